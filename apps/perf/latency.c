/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lat: round trips. Blocks alternate: one times every round trip, for the percentiles; the next is
 * timed as a whole, for a mean without the cost of reading the clock.
 */
#include "driver.h"

#include "clock.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define LOST_NS (NS_PER_S / 10) /* after which a datagram without an answer is lost */
#define BLOCK 512u		/* round trips of a block */
#define WARMUP 1000u		/* round trips that are not measured */
#define SLOW_NS 1e5		/* mean round trip above which blocks are SLOW_BLOCK long */
#define SLOW_BLOCK 8u		/* round trips */
#define WINDOW 16u		/* read: requests under way without --window */
#define CLOCK_EVERY 16u		/* read: passes between two readings of the clock */

static inline int
send_one(struct driver *d)
{
	struct perf_flow *f = d->flow;
	int rc;

	while ((rc = perf_flow_send(f)) == -EAGAIN) {
		rc = driver_wait(d);
		if (rc)
			return rc;
	}
	return rc;
}

static inline int
round_trip(struct driver *d)
{
	uint64_t sent_ns = 0;
	struct perf_flow *f;
	int rc;

	if (d->flow_count > 1)
		driver_pick(d);
	f = d->flow;
	rc = send_one(d);
	if (rc)
		return rc;
	if (f->datagrams)
		sent_ns = now_ns();
	while ((rc = perf_flow_recv(f)) == -EAGAIN) {
		rc = driver_wait(d);
		if (!rc && f->datagrams && now_ns() - sent_ns > LOST_NS) {
			rc = send_one(d);
			sent_ns = now_ns();
		}
		if (rc)
			return rc;
	}
	d->idle.empty = 0;
	d->sent++;
	d->received++;
	return rc == FLOW_CONTROL ? -EPROTO : rc;
}

static int
timed_block(struct driver *d, uint64_t n, struct histogram *h)
{
	uint64_t then = now_ns(), now;

	for (; n; n--) {
		int rc;

		if (d->options->pause_ms) {
			usleep(d->options->pause_ms * 1000);
			then = now_ns();
		}
		rc = round_trip(d);
		if (rc)
			return rc;
		now = now_ns();
		histogram_record(h, now - then);
		then = now;
	}
	return 0;
}

int
driver_latency(struct driver *d, struct perf_result *r)
{
	const struct perf_options *o = d->options;
	uint64_t n = 0, left = UINT64_MAX, block, start, end, begin, now, bare = 0, bare_ns = 0;
	bool timed = true;
	int rc = 0;

	if (!o->pause_ms) {
		uint64_t warmup = o->count && o->count < 10 * WARMUP ? o->count / 10 : WARMUP;

		/* not measured, a tenth of the time at most */
		end = now_ns() + (uint64_t)(o->duration_s * 1e8);
		for (; n < warmup && (o->count || now_ns() <= end); n++) {
			rc = round_trip(d);
			if (rc)
				return rc;
		}
	}
	if (o->count)
		left = o->count - n;
	start = now = now_ns();
	end = start + (uint64_t)(o->duration_s * 1e9);
	for (n = 0; left && (o->count || now < end) && !driver_stopped(d);
	     timed = !timed || o->pause_ms) {
		block = BLOCK;
		if (o->pause_ms)
			block = 1;
		else if (!o->count && r->latency.count && histogram_mean(&r->latency) > SLOW_NS)
			block = SLOW_BLOCK; /* so that a run ends in time */
		if (block > left)
			block = left;
		begin = now;
		if (timed)
			rc = timed_block(d, block, &r->latency);
		else
			for (uint64_t i = 0; i < block && !rc; i++)
				rc = round_trip(d);
		if (rc)
			return rc;
		now = now_ns();
		if (!timed) {
			bare += block;
			bare_ns += now - begin;
		}
		n += block;
		left -= block;
		driver_progress(d, now);
	}
	r->duration_s = (double)(now - start) / 1e9;
	r->msgs_per_s = r->duration_s > 0 ? (double)n / r->duration_s : 0;
	r->bytes_per_s = r->msgs_per_s * r->size;
	r->mean_us = (bare ? (double)bare_ns / (double)bare : histogram_mean(&r->latency)) / 1e3;
	return 0;
}

/*
 * read: small requests, each answered with a piece of the server's memory. The window is shared by
 * all connections, so that the load does not depend on their number.
 */

/* Receives all answers of a connection; sent_ns: a ring of `window` times. Their number, or -errno.
 */
static int
receive(struct driver *d, struct perf_flow *f, const uint64_t *sent_ns, uint32_t window,
	struct perf_result *r)
{
	int n = 0, rc;

	sent_ns += (size_t)(f - d->flows) * window;
	while ((rc = perf_flow_recv(f)) == 0) {
		uint64_t now = now_ns();

		histogram_record(&r->latency, now - sent_ns[(f->received - 1) % window]);
		d->received++;
		r->last_ns = now;
		n++;
	}
	return rc == -EAGAIN ? n : rc == FLOW_CONTROL ? -EPROTO : rc;
}

int
driver_read(struct driver *d, struct perf_result *r)
{
	const struct perf_options *o = d->options;
	uint32_t window = o->window ? o->window : WINDOW;
	uint64_t *sent_ns = calloc(d->flow_count, (size_t)window * sizeof(*sent_ns));
	uint64_t until = o->count ? o->count : UINT64_MAX, asked = 0, start = now_ns(), now;
	uint64_t end = o->count ? UINT64_MAX : start + (uint64_t)(o->duration_s * 1e9);
	struct perf_flow *f;
	bool over = false;
	int got, rc = 0;

	if (!sent_ns)
		return -ENOMEM;
	r->start_ns = start;
	for (uint32_t n = 1; !over || d->received < asked; n++) {
		rc = 0;
		while (!over && asked < d->received + window && asked < until && !rc) {
			driver_pick(d);
			f = d->flow;
			sent_ns[(size_t)(f - d->flows) * window + f->sent % window] = now_ns();
			rc = perf_flow_send(f);
			asked += !rc;
		}
		if (rc && rc != -EAGAIN)
			break;
		rc = got = 0;
		if (d->flow_count == 1) {
			got = receive(d, d->flow, sent_ns, window, r);
		} else {
			perf_idle_events(&d->idle, 0);
			while (got >= 0 && (f = perf_queue_pop(&d->ready, 0))) {
				rc = receive(d, f, sent_ns, window, r);
				got = rc < 0 ? rc : got + rc;
			}
		}
		rc = got < 0 ? got : 0;
		if (!got || (!rc && d->own_server))
			rc = driver_wait(d);
		if (rc)
			break;
		if (n % CLOCK_EVERY && !d->idle.sleeping)
			continue;
		now = now_ns();
		driver_progress(d, now);
		over = asked == until || now >= end || driver_stopped(d);
		if (atomic_load_explicit(&perf_stop, memory_order_relaxed)) {
			rc = -EINTR;
			break;
		}
	}
	free(sent_ns);
	r->measured = r->received = d->received;
	r->payload = d->received * r->size;
	r->mean_us = histogram_mean(&r->latency) / 1e3;
	return rc;
}
