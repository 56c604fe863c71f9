/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Round trips. Blocks alternate: in one every round trip has its time taken, for the percentiles;
 * the next is timed as a whole, for a mean without the clock's own cost in it.
 */
#include "driver.h"

#include "clock.h"

#include <errno.h>
#include <unistd.h>

#define BLOCK 512u
#define WARMUP 1000u
#define SLOW_NS 1e5
#define SLOW_BLOCK 8u

static inline int
round_trip(struct driver *d)
{
	struct perf_flow *f;
	int rc;

	if (d->flow_count > 1)
		driver_pick(d);
	f = d->flow;
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

static int
bare_block(struct driver *d, uint64_t n)
{
	int rc = 0;

	for (; n && !rc; n--)
		rc = round_trip(d);
	return rc;
}

/* Round trips that aren't measured, for a tenth of the time at most. How many in *done. */
static int
warm_up(struct driver *d, uint64_t *done)
{
	const struct perf_options *o = d->options;
	uint64_t n = o->count && o->count < 10 * WARMUP ? o->count / 10 : WARMUP;
	uint64_t end = now_ns() + (uint64_t)(o->duration_s * 1e8);
	int rc = 0;

	for (*done = 0; *done < n && !rc; ++*done) {
		if (!o->count && now_ns() > end)
			break;
		rc = round_trip(d);
	}
	return rc;
}

/* How many round trips the next block has. */
static uint64_t
block_size(const struct perf_options *o, const struct perf_result *r, uint64_t left)
{
	uint64_t n = BLOCK;

	if (o->pause_ms)
		n = 1;
	else if (!o->count && r->latency.count && histogram_mean(&r->latency) > SLOW_NS)
		n = SLOW_BLOCK; /* so that a run ends in time */
	return n < left ? n : left;
}

int
driver_latency(struct driver *d, struct perf_result *r)
{
	const struct perf_options *o = d->options;
	uint64_t n = 0, left, start, end, begin, now, bare = 0, bare_ns = 0;
	bool timed = true;
	int rc;

	rc = o->pause_ms ? 0 : warm_up(d, &n);
	if (rc)
		return rc;
	left = o->count ? o->count - n : UINT64_MAX;
	start = now = now_ns();
	end = start + (uint64_t)(o->duration_s * 1e9);
	for (n = 0; left && (o->count || now < end) && !driver_stopped(d);
	     timed = !timed || o->pause_ms) {
		uint64_t block = block_size(o, r, left);

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
