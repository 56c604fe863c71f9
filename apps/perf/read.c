/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * read: small requests, each answered with a piece of the server's memory. So many are under way
 * together, whatever the number of connections, so that the load is the same for each number.
 */
#include "driver.h"

#include "clock.h"

#include <errno.h>
#include <stdlib.h>

#define DEPTH 16u
#define LOOK_EVERY 16u

struct reading {
	uint32_t depth;
	uint64_t *since; /* when each request left; ring of `depth` a connection */
	uint64_t asked, until;
	uint64_t start_ns, end_ns, now;
};

/* Sends one more request. 0, -EAGAIN, or how the connection ended. */
static int
ask(struct driver *d, struct reading *x)
{
	struct perf_flow *f;
	int rc;

	driver_pick(d);
	f = d->flow;
	x->since[(size_t)(f - d->flows) * x->depth + f->sent % x->depth] = now_ns();
	rc = perf_flow_send(f);
	if (!rc)
		x->asked++;
	return rc;
}

/* Takes what has come on a connection. How much, or -errno. */
static int
take(struct driver *d, struct reading *x, struct perf_flow *f, struct perf_result *r)
{
	int n = 0, rc;

	while ((rc = perf_flow_recv(f)) == 0) {
		uint64_t place = (f->received - 1) % x->depth, now = now_ns();

		histogram_record(&r->latency,
				 now - x->since[(size_t)(f - d->flows) * x->depth + place]);
		d->received++;
		r->last_ns = now;
		n++;
	}
	return rc == -EAGAIN ? n : rc == FLOW_CONTROL ? -EPROTO : rc;
}

/* All connections that events named; the only one in any case. */
static int
take_all(struct driver *d, struct reading *x, struct perf_result *r)
{
	struct perf_flow *f;
	int n = 0, rc;

	if (d->flow_count == 1)
		return take(d, x, d->flow, r);
	perf_idle_events(&d->idle, 0);
	while ((f = perf_queue_pop(&d->ready, 0))) {
		rc = take(d, x, f, r);
		if (rc < 0)
			return rc;
		n += rc;
	}
	return n;
}

/* Until no more are to be sent and all are answered. */
static int
read_on(struct driver *d, struct reading *x, struct perf_result *r)
{
	bool over = false;
	int got, rc;

	for (uint32_t n = 1; !over || d->received < x->asked; n++) {
		rc = 0;
		while (!over && x->asked < d->received + x->depth && x->asked < x->until && !rc)
			rc = ask(d, x);
		if (rc && rc != -EAGAIN)
			return rc;
		got = take_all(d, x, r);
		if (got < 0)
			return got;
		if (!got || d->here) {
			rc = driver_wait(d);
			if (rc)
				return rc;
		}
		if (n % LOOK_EVERY && !d->idle.sleeping)
			continue;
		x->now = now_ns();
		driver_progress(d, x->now);
		over = x->asked == x->until || x->now >= x->end_ns || driver_stopped(d);
		if (atomic_load_explicit(&perf_stop, memory_order_relaxed))
			return -EINTR;
	}
	return 0;
}

int
driver_read(struct driver *d, struct perf_result *r)
{
	const struct perf_options *o = d->options;
	struct reading x = {.depth = o->window ? o->window : DEPTH,
			    .until = o->count ? o->count : UINT64_MAX,
			    .start_ns = now_ns()};
	int rc;

	x.end_ns = o->count ? UINT64_MAX : x.start_ns + (uint64_t)(o->duration_s * 1e9);
	x.since = calloc(d->flow_count, (size_t)x.depth * sizeof(*x.since));
	if (!x.since)
		return -ENOMEM;
	r->start_ns = x.start_ns;
	rc = read_on(d, &x, r);
	free(x.since);
	r->measured = r->received = d->received;
	r->payload = d->received * r->size;
	r->mean_us = histogram_mean(&r->latency) / 1e3;
	return rc;
}
