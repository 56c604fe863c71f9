/* SPDX-License-Identifier: BSD-3-Clause */
/* bw, rate and mix: messages sent without waiting for answers, in one or both directions. */
#include "driver.h"

#include "clock.h"

#include <errno.h>

#define BURST 32	  /* messages per direction of one pass */
#define CLOCK_EVERY 16u	  /* passes between two readings of the clock */
#define EVENTS_EVERY 8u	  /* busy passes between two polls for events */
#define BACK_WARMUP 1000u /* messages of the other direction not measured, without --count */

int
driver_stream(struct driver *d, struct perf_result *r)
{
	const struct perf_options *o = d->options;
	struct perf_flow *f = d->flow;
	uint64_t start = now_ns(), now = start;
	uint64_t end = start + (uint64_t)(o->duration_s * 1e9);
	uint64_t until = o->count ? o->count : UINT64_MAX;
	uint64_t warmup = o->count ? o->count / 10 : BACK_WARMUP, back_start = start,
		 back_last = start;
	uint32_t pass = 0;
	int rc, got = 0;

	while (
	    !driver_stopped(d) &&
	    (o->count ? f->sent != o->count || (o->both && f->received != o->count) : now < end)) {
		if (o->rate) {
			until = driver_allowed(d, now_ns() - start);
			if (o->count && o->count < until)
				until = o->count;
		}
		rc = perf_flow_send_burst(f, until, BURST);
		if (rc < 0)
			return rc;
		if (o->both) {
			got = perf_flow_recv_burst(f, BURST, warmup, &back_start, NULL);
			if (got < 0)
				return got;
			if (got)
				back_last = now_ns();
		}
		/* if this thread is also the server, each end gets its turn */
		if (d->own_server || rc + got == 0) {
			rc = driver_wait(d);
			if (rc)
				return rc;
		}
		if (++pass % CLOCK_EVERY && !d->idle.sleeping)
			continue;
		now = now_ns();
		driver_progress(d, now);
		if (atomic_load_explicit(&perf_stop, memory_order_relaxed))
			return -EINTR;
	}
	if (o->both && back_last > back_start)
		r->back_msgs_per_s = (double)(f->received - (f->received > warmup ? warmup : 0)) *
				     1e9 / (double)(back_last - back_start);
	return 0;
}

static bool
is_done(const struct driver *d, const struct perf_flow *f)
{
	return f->out.count && f->sent == f->out.count &&
	       (!d->options->both || f->received == f->out.count);
}

/*
 * Connections that can continue wait in d->ready, in turn or at random. A blocked one leaves the
 * queue until an event adds it again, so that idle connections cost nothing.
 */
int
driver_many(struct driver *d, struct perf_result *r)
{
	const struct perf_options *o = d->options;
	uint64_t start = now_ns(), now = start, back_last = start, allowed = UINT64_MAX, until;
	uint64_t end = start + (uint64_t)(o->duration_s * 1e9);
	uint32_t done = 0; /* connections that have sent and received all */
	struct perf_flow *f;
	int sent, got, rc;

	for (uint32_t i = 0; i < d->flow_count; i++)
		perf_queue_push(&d->ready, &d->flows[i]);
	for (uint32_t n = 1; !driver_stopped(d) && (o->count ? done < d->flow_count : now < end);
	     n++) {
		if (o->rate)
			allowed = driver_allowed(d, now_ns() - start);
		f = perf_queue_pop(&d->ready, d->random);
		if (f && d->random)
			d->random = perf_mix(d->random + 0x9e3779b97f4a7c15ull) | 1;
		sent = got = 0;
		if (f && !is_done(d, f)) {
			d->flow = f;
			until = allowed > d->sent ? f->sent + (allowed - d->sent) : f->sent;
			if (f->out.count && f->out.count < until)
				until = f->out.count;
			sent = perf_flow_send_burst(f, until, BURST);
			if (sent < 0)
				return sent;
			d->sent += (uint64_t)sent;
			if (o->both) {
				got = perf_flow_recv_burst(f, BURST, 0, NULL, NULL);
				if (got < 0)
					return got;
				d->received += (uint64_t)got;
				if (got)
					back_last = now_ns();
			}
			if (is_done(d, f))
				done++;
			else if (sent || got || d->sent >= allowed)
				perf_queue_push(&d->ready, f);
		}
		if (sent + got == 0 || d->own_server) {
			rc = driver_wait(d);
			if (rc)
				return rc;
		} else if (n % EVENTS_EVERY == 0) {
			perf_idle_events(&d->idle, 0);
		}
		if (n % CLOCK_EVERY && !d->idle.sleeping)
			continue;
		now = now_ns();
		driver_progress(d, now);
		if (atomic_load_explicit(&perf_stop, memory_order_relaxed))
			return -EINTR;
	}
	if (o->both && back_last > start)
		r->back_msgs_per_s = (double)d->received * 1e9 / (double)(back_last - start);
	return 0;
}
