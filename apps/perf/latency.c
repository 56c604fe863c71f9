/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Round trips. Blocks alternate: in one every round trip has its time taken, for the percentiles;
 * the next is timed as a whole, for a mean without the clock's own cost in it.
 */
#include "driver.h"

#include "clock.h"

#include <errno.h>

#define BLOCK 512u

static inline int
round_trip(struct driver *d)
{
	struct perf_flow *f = &d->flow;
	int rc;

	while ((rc = perf_flow_send(f)) == -EAGAIN) {
		rc = driver_wait(d);
		if (rc)
			return rc;
	}
	if (rc)
		return rc;
	while ((rc = perf_flow_recv(f)) == -EAGAIN) {
		rc = driver_wait(d);
		if (rc)
			return rc;
	}
	return rc == FLOW_CONTROL ? -EPROTO : rc;
}

static int
timed_block(struct driver *d, uint64_t n, struct histogram *h)
{
	uint64_t then = now_ns(), now;

	for (; n; n--) {
		int rc = round_trip(d);

		if (rc)
			return rc;
		now = now_ns();
		histogram_record(h, now - then);
		then = now;
	}
	return 0;
}

static int
bare_block(struct driver *d, uint64_t n)
{
	int rc = 0;

	for (; n && !rc; n--)
		rc = round_trip(d);
	return rc;
}

int
driver_latency(struct driver *d, struct perf_result *r)
{
	const struct perf_options *o = d->options;
	uint64_t left = o->count ? o->count : UINT64_MAX, warmup, n;
	uint64_t start, end, begin, now, bare = 0, bare_ns = 0;
	bool timed = true;
	int rc;

	warmup = o->count ? o->count / 10 : 1000;
	if (warmup > 1000)
		warmup = 1000;
	start = now_ns();
	/* a warm-up of slow round trips must not eat up the time */
	for (end = start + (uint64_t)(o->duration_s * 1e8); warmup && left > 1; warmup--, left--) {
		rc = round_trip(d);
		if (rc)
			return rc;
		if (!o->count && now_ns() > end)
			break;
	}
	start = now = now_ns();
	end = start + (uint64_t)(o->duration_s * 1e9);
	for (n = 0; left && (o->count || now < end); timed = !timed) {
		uint64_t block = left < BLOCK ? left : BLOCK;

		/* long round trips: don't overshoot the time by a block of them */
		if (!o->count && r->latency.count && histogram_mean(&r->latency) > 1e5)
			block = 8;
		begin = now;
		rc = timed ? timed_block(d, block, &r->latency) : bare_block(d, block);
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
