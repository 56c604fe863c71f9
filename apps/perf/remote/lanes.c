/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * put, get, acc, fop, cas, notify, signal, flag, lock, lockall, fence, pscw: the driver's threads,
 * lanes, operate on the memory of targets, each in its own part. First for the latency: an
 * operation and its flush, in blocks that alternate as in lat. Then for the rate: operations with
 * one flush at the end, or one per --window. The program's main thread is lane 0. With --alltoall
 * each server has lanes of its own. Of notify, signal and flag there is no rate: the target answers
 * each put, which is complete with the answer. Of lock neither: all lanes contend for one; nor of
 * epochs, which one lane begins and ends.
 */
#include "lanes.h"

#include "clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WARMUP 1000u   /* operations that are not measured */
#define BLOCK 512u     /* operations of a block of the latency */
#define SLOW_NS 1e5    /* mean time of an operation from which blocks are SLOW_BLOCK long */
#define SLOW_BLOCK 8u  /* operations */
#define BATCH 64u      /* operations between two readings of the clock, for the rate */
#define LARGE 16384u   /* bytes from which it is read after each */
#define LATENCY_PART 2 /* 1/LATENCY_PART of the run is for the latency */

/* The last get has left its slot in the buffer. */
bool
lane_got_right(const struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	uint64_t of = i % run->layout.slots;

	return run->request.flags & PERF_VERIFY
		   ? perf_schedule_check(&l->schedule, of, l->buffer, run->request.size)
		   : perf_schedule_stamped(of, l->buffer, run->request.size);
}

/* The value before: those of operations on the same slot. */
bool
lane_fetched_right(const struct lane *l, uint64_t i)
{
	const struct perf_message *request = &l->run->request;
	uint64_t times = i / l->run->layout.slots;

	if (request->test == PERF_FOP)
		times = perf_element_after(request->type, request->op, times);
	return perf_element_is(request->type, times, l->fetched);
}

static inline int
begin(struct lane *l)
{
	int rc = l->run->kind->begin(l, l->begun);

	l->begun += rc >= 0; /* also the last one of all */
	return rc;
}

/* An operation, until it is complete or the target has answered it. */
static inline int
complete_one(struct lane *l)
{
	const struct remote_kind *kind = l->run->kind;
	int rc = begin(l);

	return rc || !kind->complete ? rc : kind->complete(l);
}

/* Whether the run goes on, with what others see of it. */
static int
look(struct lane *l, uint64_t now)
{
	struct driver *d = l->run->driver;

	atomic_store_explicit(&l->so_far, l->begun, memory_order_relaxed);
	if (atomic_load_explicit(&perf_stop, memory_order_relaxed))
		return -EINTR;
	if (atomic_load_explicit(&l->run->failed, memory_order_relaxed) ||
	    (d->team && atomic_load_explicit(&d->team->failed, memory_order_relaxed)))
		return -ECANCELED;
	if (!l->number && l->flow == d->flows) {
		d->sent = l->begun;
		driver_progress(d, now);
	}
	return 0;
}

/* n of the latency's operations. */
static int
block(struct lane *l, uint64_t n, bool timed)
{
	uint64_t begin_ns = now_ns(), then = begin_ns, now;
	uint64_t i;
	int rc = 0;

	/* a fence is one call */
	l->run->rounds.timed = timed && l->run->request.test == PERF_PSCW;
	for (i = 0; i < n && !rc; i++) {
		rc = complete_one(l);
		if (!timed)
			continue;
		now = now_ns();
		histogram_record(&l->latency, now - then);
		then = now;
	}
	if (!timed) {
		l->bare += i;
		l->bare_ns += now_ns() - begin_ns;
	}
	return rc;
}

/* count 0: until end_ns. `slow`: an operation takes more than SLOW_NS, as it seems. */
static int
measure_latency(struct lane *l, uint64_t count, uint64_t end_ns, bool slow)
{
	uint64_t left = count ? count : UINT64_MAX, now = now_ns(), n;
	bool timed = true;
	int rc = 0;

	for (; left && (count || now < end_ns) && !rc && !driver_stopped(l->run->driver);
	     timed = !timed) {
		if (l->latency.count)
			slow = histogram_mean(&l->latency) > SLOW_NS;
		n = !count && slow ? SLOW_BLOCK : BLOCK;
		n = n < left ? n : left;
		left -= n;
		rc = block(l, n, timed);
		now = now_ns();
		if (!rc)
			rc = look(l, now);
	}
	return rc;
}

static int
measure_rate(struct lane *l, uint64_t count, uint64_t end_ns)
{
	uint32_t window = l->run->request.window, batch;
	uint64_t start = now_ns(), now = start, first = l->begun, left = count ? count : UINT64_MAX;
	int rc = 0;

	batch = l->run->request.size < LARGE ? BATCH : 1;
	while (left && (count || now < end_ns) && !rc && !driver_stopped(l->run->driver)) {
		for (uint32_t i = 0; i < batch && left && !rc; i++, left--) {
			rc = begin(l);
			if (!rc && window && (l->begun - first) % window == 0)
				rc = l->run->kind->complete(l);
		}
		now = now_ns();
		if (!rc)
			rc = look(l, now);
	}
	if (!rc)
		rc = l->run->kind->complete(l);
	l->rated = l->begun - first;
	l->rate_ns = now_ns() - start;
	return rc;
}

static void *
run_lane(void *arg)
{
	struct lane *l = arg;
	struct remote_run *run = l->run;
	const struct perf_options *o = run->driver->options;
	uint64_t all = o->count / run->threads + (l->number < o->count % run->threads);
	bool serial = perf_is_serial(run->request.test);
	uint64_t lat = serial ? all : all / LATENCY_PART, n = 0;
	uint64_t warm_ns = run->start_ns + (uint64_t)(o->duration_s * 1e8);
	int rc = 0;

	for (; n < (all ? lat / 10 : WARMUP) && (all || now_ns() < warm_ns) && !rc; n++)
		rc = complete_one(l);
	l->rated = l->begun;
	l->rate_ns = now_ns();
	if (!rc && (lat > n || !all))
		rc = measure_latency(l, all ? lat - n : 0, run->end_ns,
				     (double)(l->rate_ns - run->start_ns) > (double)n * SLOW_NS);
	l->rated = l->begun - l->rated;
	l->rate_ns = now_ns() - l->rate_ns;
	if (!rc && !serial)
		rc = measure_rate(l, all ? all - lat : 0,
				  run->start_ns + (uint64_t)(o->duration_s * 1e9));
	if (rc >= 0)
		rc = run->win ? window_end(l) : access_end(l);
	l->rc = rc;
	if (rc && !atomic_exchange(&run->failed, true))
		snprintf(run->driver->reason, sizeof(run->driver->reason), "%s", weir_reason());
	return NULL;
}

/* The lanes run to their ends. 0 or -errno. */
static int
run_lanes(struct remote_run *run, struct lane *lanes)
{
	uint32_t started = 1;
	int rc = 0, code;

	run->start_ns = now_ns();
	run->end_ns =
	    run->start_ns + (uint64_t)(run->driver->options->duration_s * 1e9 /
				       (perf_is_serial(run->request.test) ? 1 : LATENCY_PART));
	while (started < run->lanes && !rc) {
		rc = -pthread_create(&lanes[started].thread, NULL, run_lane, &lanes[started]);
		started += !rc;
	}
	if (rc)
		atomic_store(&run->failed, true);
	else
		run_lane(&lanes[0]);
	for (uint32_t i = 1; i < started; i++) {
		code = -pthread_join(lanes[i].thread, NULL);
		rc = rc ? rc : code;
	}
	/* the cause, not that others ended with it */
	for (uint32_t i = 0; i < run->lanes && !rc; i++)
		if (lanes[i].rc != -ECANCELED)
			rc = lanes[i].rc;
	for (uint32_t i = 0; i < run->lanes && !rc; i++)
		rc = lanes[i].rc;
	return rc;
}

static struct lane *
make_lanes(struct remote_run *run)
{
	size_t size = run->request.size ? run->request.size : 1;
	size_t element = perf_element_size(run->request.type);
	struct lane *lanes = calloc(run->lanes, sizeof(*lanes));
	bool updates = perf_is_update(run->request.test);
	struct perf_message request;
	uint32_t of;

	for (uint32_t i = 0; lanes && i < run->lanes; i++) {
		of = i / run->threads;
		request = driver_request(run->driver, run->request.test, run->request.size, of);
		lanes[i].run = run;
		lanes[i].flow = &run->driver->flows[of];
		if (run->remotes)
			lanes[i].remote = run->remotes[of];
		else
			lanes[i].rank = driver_rank(run->driver, of);
		if (!run->remotes)
			weir_watch_init(&lanes[i].watch, run->driver->window.win, lanes[i].rank,
					WEIR_TAG_ANY, 1);
		lanes[i].number = i % run->threads;
		lanes[i].schedule = remote_schedule(&request, lanes[i].number);
		lanes[i].buffer = malloc(size);
		histogram_clear(&lanes[i].latency);
		if (!lanes[i].buffer) {
			run->lanes = i; /* frees those before it */
			break;
		}
		memset(lanes[i].buffer, 0x5a, size);
		for (size_t at = 0; updates && at < size; at += element)
			perf_element_store(run->request.type, 1, lanes[i].buffer + at);
	}
	return lanes;
}

int
driver_remote(struct driver *d, struct perf_result *r)
{
	bool window = perf_in_window(d->options, r->test);
	struct remote_run run = {
	    .driver = d,
	    .kind = window ? &window_kinds[r->test] : &access_kinds[r->test],
	    .request = driver_request(d, r->test, r->size, 0),
	    .threads = d->options->threads,
	    .lanes = d->options->threads * d->flow_count,
	    .lock_kind = d->number < d->options->readers ? WEIR_LOCK_SHARED : WEIR_LOCK_EXCLUSIVE,
	    .patience_ms = d->options->patience_s * 1000,
	};
	uint64_t bare = 0, bare_ns = 0;
	struct lane *lanes = NULL;
	double rate, duration;
	int rc;

	/* a program has one epoch of a window at a time, and one thread begins and ends it */
	if (window && perf_is_epoch(r->test))
		run.lanes = 1;
	run.layout = remote_layout(remote_extent(&run.request), run.threads);
	if (run.request.block) {
		run.there = (struct weir_layout){.block = run.request.block, .dims = 1};
		run.there.dim[0].count = r->size / run.request.block;
		run.there.dim[0].stride = run.request.stride;
	}
	rc = window ? driver_window(d, &run.request) : access_open(&run);
	if (!rc) {
		uint32_t all = run.lanes;

		lanes = make_lanes(&run);
		rc = lanes && run.lanes == all ? 0 : -ENOMEM;
	}
	if (!rc && window)
		rc = window_begin(&run);
	if (!rc)
		rc = run_lanes(&run, lanes);
	if (!rc && window)
		rc = window_finish(&run);
	for (uint32_t i = 0; i < run.lanes && !rc; i++) {
		const struct lane *l = &lanes[i];

		duration = (double)l->rate_ns / 1e9;
		rate = l->rate_ns ? (double)l->rated * 1e9 / (double)l->rate_ns : 0;
		l->flow->sent += l->begun;
		r->errors += l->errors;
		r->msgs_per_s += rate;
		if (duration > r->duration_s)
			r->duration_s = duration;
		histogram_add(&r->latency, &l->latency);
		if (run.lanes > 1)
			perf_shares_add(&r->shares, rate);
		bare += l->bare;
		bare_ns += l->bare_ns;
	}
	r->bytes_per_s = r->msgs_per_s * r->size;
	r->mean_us = (bare ? (double)bare_ns / (double)bare : histogram_mean(&r->latency)) / 1e3;
	for (uint32_t i = 0; lanes && i < run.lanes; i++)
		free(lanes[i].buffer);
	free(lanes);
	if (!window)
		access_close(&run);
	r->members = run.request.members;
	r->calls = run.rounds.calls;
	d->sent = 0;
	for (uint32_t i = 0; i < d->flow_count; i++)
		d->sent += d->flows[i].sent;
	return rc;
}
