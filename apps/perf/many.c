/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bw, rate and mix on several connections: those that can go on wait in a queue, in turn or in any
 * order; one that cannot leaves it until an event brings it back, so that the others' number costs
 * nothing.
 */
#include "clock.h"
#include "driver.h"
#include "flow.h"
#include "queue.h"

#include <errno.h>
#include <stdlib.h>

#define BURST 32
#define LOOK_EVERY 16u /* turns between two looks at the clock */
#define EVENTS_EVERY 8u

struct crowd {
	uint64_t allowed; /* messages by now, with --rate */
	uint64_t start_ns, end_ns, back_ns;
	uint32_t done; /* connections that have sent and received all */
	bool both;
};

/* Takes what has arrived on a connection. How many, or -errno. */
static int
take(struct driver *d, struct perf_flow *f)
{
	int n, rc = 0;

	for (n = 0; n < BURST && !rc; n++)
		rc = perf_flow_recv(f);
	n -= rc != 0;
	d->received += (uint64_t)n;
	if (rc == FLOW_CONTROL)
		return -EPROTO; /* the result comes after END only */
	return rc && rc != -EAGAIN ? rc : n;
}

/* Up to a burst of messages. How many, or -errno. */
static int
give(struct driver *d, struct perf_flow *f, uint64_t allowed)
{
	uint64_t until = f->out.count ? f->out.count : UINT64_MAX;
	int n, rc = 0;

	for (n = 0; n < BURST && f->sent < until && d->sent < allowed; n++) {
		rc = perf_flow_send(f);
		if (rc)
			break;
		d->sent++;
	}
	return rc && rc != -EAGAIN ? rc : n;
}

static bool
is_done(const struct crowd *c, const struct perf_flow *f)
{
	return f->out.count && f->sent == f->out.count && (!c->both || f->received == f->out.count);
}

/* One connection's turn. How much was done, or -errno. */
static int
turn(struct driver *d, struct crowd *c)
{
	struct perf_flow *f = perf_queue_pop(&d->ready, d->random);
	int gave, got = 0;

	if (!f)
		return 0;
	if (d->random)
		d->random = perf_mix(d->random + 0x9e3779b97f4a7c15ull) | 1;
	if (is_done(c, f))
		return 0;
	d->flow = f;
	gave = give(d, f, c->allowed);
	if (gave >= 0 && c->both)
		got = take(d, f);
	if (gave < 0 || got < 0)
		return gave < 0 ? gave : got;
	if (got)
		c->back_ns = now_ns();
	if (is_done(c, f))
		c->done++;
	else if (gave || got || d->sent >= c->allowed)
		perf_queue_push(&d->ready, f);
	return gave + got;
}

static bool
is_over(const struct driver *d, const struct crowd *c, uint64_t now)
{
	if (driver_stopped(d))
		return true;
	return d->options->count ? c->done == d->flow_count : now >= c->end_ns;
}

static void
begin(struct driver *d, struct crowd *c)
{
	const struct perf_options *o = d->options;

	*c = (struct crowd){.start_ns = now_ns(), .allowed = UINT64_MAX, .both = o->both};
	c->back_ns = c->start_ns;
	c->end_ns = c->start_ns + (uint64_t)(o->duration_s * 1e9);
	for (uint32_t i = 0; i < d->flow_count; i++)
		perf_queue_push(&d->ready, &d->flows[i]);
}

int
driver_crowd(struct driver *d, struct perf_result *r)
{
	struct crowd c;
	uint64_t now;
	int rc;

	begin(d, &c);
	now = c.start_ns;
	for (uint32_t n = 1; !is_over(d, &c, now); n++) {
		if (d->options->rate)
			c.allowed = driver_allowed(d, now_ns() - c.start_ns);
		rc = turn(d, &c);
		if (rc < 0)
			return rc;
		if (!rc || d->here) {
			rc = driver_wait(d);
			if (rc)
				return rc;
		} else if (n % EVENTS_EVERY == 0) {
			perf_idle_events(&d->idle, 0);
		}
		if (n % LOOK_EVERY && !d->idle.sleeping)
			continue;
		now = now_ns();
		driver_progress(d, now);
		if (atomic_load_explicit(&perf_stop, memory_order_relaxed))
			return -EINTR;
	}
	if (c.both && c.back_ns > c.start_ns)
		r->back_msgs_per_s = (double)d->received * 1e9 / (double)(c.back_ns - c.start_ns);
	return 0;
}

int
perf_queue_reserve(struct perf_queue *q, uint32_t n)
{
	uint32_t room = 64, count = perf_queue_count(q);
	struct perf_flow **ring;

	if (q->ring && n <= q->mask + 1)
		return 0;
	while (room < n)
		room *= 2;
	ring = calloc(room, sizeof(struct perf_flow *));
	if (!ring)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		ring[i] = q->ring[(q->tail + i) & q->mask];
	free(q->ring);
	*q = (struct perf_queue){.ring = ring, .mask = room - 1, .head = count};
	return 0;
}

void
perf_queue_free(struct perf_queue *q)
{
	free(q->ring);
	*q = (struct perf_queue){0};
}

void
perf_queue_push(struct perf_queue *q, struct perf_flow *f)
{
	if (f->queued)
		return;
	f->queued = true;
	q->ring[q->head++ & q->mask] = f;
}

struct perf_flow *
perf_queue_pop(struct perf_queue *q, uint64_t random)
{
	uint32_t count = perf_queue_count(q), at;
	struct perf_flow *f;

	if (!count)
		return NULL;
	at = (q->tail + (uint32_t)(random % count)) & q->mask;
	f = q->ring[at];
	q->ring[at] = q->ring[q->tail & q->mask];
	q->tail++;
	f->queued = false;
	return f;
}

void
perf_queue_remove(struct perf_queue *q, struct perf_flow *f)
{
	for (uint32_t i = q->tail; f->queued && i != q->head; i++) {
		if (q->ring[i & q->mask] != f)
			continue;
		q->ring[i & q->mask] = q->ring[q->tail & q->mask];
		q->tail++;
		f->queued = false;
	}
}
