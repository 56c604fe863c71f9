/* SPDX-License-Identifier: BSD-3-Clause */
/* bw, rate and mix: messages one after another without waiting for answers, in one or both
 * directions. */
#include "driver.h"

#include "clock.h"

#include <errno.h>

#define BURST 32

struct back {
	uint64_t warmup, start_ns, last_ns;
};

/* With -b: takes what has arrived. How many, or -errno. */
static int
take(struct driver *d, struct back *back)
{
	struct perf_flow *f = d->flow;
	int n, rc = 0;

	for (n = 0; n < BURST; n++) {
		rc = perf_flow_recv(f);
		if (rc)
			break;
		if (f->received == back->warmup)
			back->start_ns = now_ns();
	}
	if (n)
		back->last_ns = now_ns();
	if (rc == FLOW_CONTROL)
		return -EPROTO; /* the result comes after END only */
	return rc && rc != -EAGAIN ? rc : n;
}

/* Up to a burst of messages. How many, or -errno. */
static int
give(struct perf_flow *f, uint64_t until)
{
	int n, rc = 0;

	for (n = 0; n < BURST && f->sent < until; n++) {
		rc = perf_flow_send(f);
		if (rc)
			break;
	}
	return rc && rc != -EAGAIN ? rc : n;
}

static bool
is_done(const struct driver *d, bool both, uint64_t now, uint64_t end)
{
	const struct perf_flow *f = d->flow;

	if (driver_stopped(d))
		return true;
	if (!d->options->count)
		return now >= end;
	return f->sent == d->options->count && (!both || f->received == d->options->count);
}

/* How many may have been sent by now. */
static uint64_t
allowed(const struct driver *d, uint64_t ns)
{
	uint64_t by_rate = driver_allowed(d, ns), count = d->options->count;

	return count && count < by_rate ? count : by_rate;
}

int
driver_stream(struct driver *d, struct perf_result *r)
{
	const struct perf_options *o = d->options;
	struct perf_flow *f = d->flow;
	uint64_t start = now_ns(), now = start;
	uint64_t end = start + (uint64_t)(o->duration_s * 1e9);
	uint64_t until = o->count ? o->count : UINT64_MAX;
	struct back back = {
	    .warmup = o->count ? o->count / 10 : 1000, .start_ns = start, .last_ns = start};
	uint32_t turn = 0;
	int rc, got = 0;

	while (!is_done(d, o->both, now, end)) {
		if (o->rate)
			until = allowed(d, now_ns() - start);
		rc = give(f, until);
		if (rc >= 0 && o->both)
			got = take(d, &back);
		if (rc < 0 || got < 0)
			return rc < 0 ? rc : got;
		/* alone in both roles, each gets its turn; otherwise only what has nothing to do
		 * waits */
		if (d->here || rc + got == 0) {
			rc = driver_wait(d);
			if (rc)
				return rc;
		}
		if (++turn % 16 && !d->idle.sleeping)
			continue;
		now = now_ns();
		driver_progress(d, now);
		if (atomic_load_explicit(&perf_stop, memory_order_relaxed))
			return -EINTR;
	}
	if (o->both && back.last_ns > back.start_ns)
		r->back_msgs_per_s =
		    (double)(f->received - (f->received > back.warmup ? back.warmup : 0)) * 1e9 /
		    (double)(back.last_ns - back.start_ns);
	return 0;
}
