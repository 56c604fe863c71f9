/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * put, get, acc, fop, cas, notify, signal, lock: the driver's threads, lanes, operate on the
 * exported memory, each in its own part. First for the latency: an operation and its flush, in
 * blocks that alternate as in lat. Then for the rate: operations with one flush at the end, or one
 * per --window. The program's main thread is lane 0. With --alltoall each server has lanes of its
 * own. Of notify and signal there is no rate: the target answers each put, which is complete with
 * the answer. Of lock neither: all lanes contend for one.
 */
#include "remote.h"
#include "driver.h"

#include "clock.h"

#include "weir/remote.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_MS 10000
#define WARMUP 1000u   /* operations that are not measured */
#define BLOCK 512u     /* operations of a block of the latency */
#define SLOW_NS 1e5    /* mean time of an operation from which blocks are SLOW_BLOCK long */
#define SLOW_BLOCK 8u  /* operations */
#define BATCH 64u      /* operations between two readings of the clock, for the rate */
#define LARGE 16384u   /* bytes from which it is read after each */
#define LATENCY_PART 2 /* 1/LATENCY_PART of the run is for the latency */

struct remote_run;

struct lane {
	pthread_t thread;
	struct remote_run *run;
	struct perf_flow *flow;	    /* to the server whose memory it is */
	struct weir_remote *remote; /* the memory */
	uint32_t number;	    /* among the threads that use it */
	struct perf_schedule schedule;
	uint64_t begun;		 /* operations */
	_Atomic uint64_t so_far; /* the lane writes, main reads */
	uint64_t bare, bare_ns;	 /* operations of blocks that were timed as a whole */
	uint64_t rated, rate_ns; /* operations and time of the rate's part */
	int rc;
	struct histogram latency;
	uint8_t *buffer;
	_Alignas(16) uint8_t fetched[PERF_ELEMENT_MAX]; /* by the last operation */
	uint64_t errors;
};

/* Operations of one kind; a further one is a line here and a test in schedule.h. */
static int begin_put(struct lane *l, uint64_t i);
static int begin_get(struct lane *l, uint64_t i);
static int begin_acc(struct lane *l, uint64_t i);
static int begin_fop(struct lane *l, uint64_t i);
static int begin_cas(struct lane *l, uint64_t i);
static int begin_notify(struct lane *l, uint64_t i);
static int begin_signal(struct lane *l, uint64_t i);
static int begin_lock(struct lane *l, uint64_t i);
static bool got_right(const struct lane *l, uint64_t i);
static bool fetched_right(const struct lane *l, uint64_t i);
static const struct remote_kind {
	unsigned rights;
	int (*begin)(struct lane *l, uint64_t i);
	/* Whether operation i, which is complete, had the right result; NULL: it has none. */
	bool (*right)(const struct lane *l, uint64_t i);
} kinds[PERF_TESTS] = {
    [PERF_PUT] = {WEIR_MAY_WRITE, begin_put, NULL},
    [PERF_GET] = {WEIR_MAY_READ, begin_get, got_right},
    [PERF_ACC] = {WEIR_MAY_UPDATE, begin_acc, NULL},
    [PERF_FOP] = {WEIR_MAY_UPDATE, begin_fop, fetched_right},
    [PERF_CAS] = {WEIR_MAY_UPDATE, begin_cas, fetched_right},
    [PERF_NOTIFY] = {WEIR_MAY_NOTIFY, begin_notify, NULL},
    [PERF_SIGNAL] = {WEIR_MAY_NOTIFY, begin_signal, NULL},
    [PERF_LOCK] = {WEIR_MAY_LOCK, begin_lock, NULL},
};

struct remote_run {
	struct driver *driver;
	const struct remote_kind *kind;
	struct weir_remote **remotes; /* one per connection */
	struct weir_remote *lock;     /* of a team's first program: all contend for it */
	struct remote_layout layout;
	struct weir_layout there; /* pieces of an operation */
	struct weir_export *x;	  /* for answers; NULL: there are none */
	struct perf_message request;
	uint32_t threads; /* for each memory */
	uint32_t lanes;	  /* for all */
	int patience_ms;
	uint64_t start_ns, end_ns; /* end_ns of the latency's part; without a count */
	atomic_bool failed;	   /* a lane writes: the others end */
};

static void
fill_next(struct lane *l, uint64_t i)
{
	const struct perf_message *request = &l->run->request;

	if (request->flags & PERF_VERIFY)
		perf_schedule_fill(&l->schedule, i, l->buffer, request->size);
	else
		perf_schedule_stamp(i, l->buffer, request->size);
}

/* Operation i, with pieces or what else it has beside bytes. */
static struct weir_transfer
transfer(const struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;

	return (struct weir_transfer){.offset = remote_slot_at(&run->layout, l->number, i),
				      .buf = l->buffer,
				      .length = run->request.size,
				      .there = run->there.block ? &run->there : NULL};
}

static int
begin_put(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	uint32_t size = run->request.size;
	struct weir_transfer t;

	fill_next(l, i);
	if (run->there.block) {
		t = transfer(l, i);
		return weir_remote_put_with(l->remote, &t);
	}
	return weir_remote_put(l->remote, remote_slot_at(&run->layout, l->number, i), l->buffer,
			       size, 0);
}

static int
begin_get(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	struct weir_transfer t;

	if (run->there.block) {
		t = transfer(l, i);
		return weir_remote_get_with(l->remote, &t);
	}
	return weir_remote_get(l->remote, remote_slot_at(&run->layout, l->number, i), l->buffer,
			       run->request.size, 0);
}

/* The last get has left its slot in the buffer. */
static bool
got_right(const struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	uint64_t of = i % run->layout.slots;

	return run->request.flags & PERF_VERIFY
		   ? perf_schedule_check(&l->schedule, of, l->buffer, run->request.size)
		   : perf_schedule_stamped(of, l->buffer, run->request.size);
}

/* The buffer holds ones. */
static int
begin_acc(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	uint32_t type = perf_element(run->request.type);
	struct weir_update u = {.offset = remote_slot_at(&run->layout, l->number, i),
				.operand = l->buffer,
				.count = run->request.size / perf_element_size(type),
				.there = run->there.block ? &run->there : NULL,
				.type = type,
				.op = perf_acc(run->request.op)};

	return weir_remote_update(l->remote, &u);
}

static int
begin_fop(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;

	return weir_remote_fetch_op(l->remote, remote_slot_at(&run->layout, l->number, i),
				    l->buffer, l->fetched,
				    (enum weir_type)perf_element(run->request.type),
				    (enum weir_acc)perf_acc(run->request.op), 0);
}

static int
begin_cas(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	int64_t is = (int64_t)(i / run->layout.slots), then = is + 1;

	return weir_remote_compare_swap(l->remote, remote_slot_at(&run->layout, l->number, i), &is,
					&then, &l->fetched, WEIR_T_INT64, 0);
}

static int
begin_notify(struct lane *l, uint64_t i)
{
	struct weir_transfer t = transfer(l, i);

	fill_next(l, i);
	t.notify = WEIR_WITH_NOTICE;
	t.tag = (uint32_t)i & INT32_MAX;
	return weir_remote_put_with(l->remote, &t);
}

static int
begin_signal(struct lane *l, uint64_t i)
{
	struct weir_transfer t = transfer(l, i);

	fill_next(l, i);
	t.notify = WEIR_WITH_SIGNAL_SET;
	t.signal = remote_signal_at(&l->run->layout);
	t.operand = i + 1;
	return weir_remote_put_with(l->remote, &t);
}

/* It is complete when the lock is free again, or another's. */
static int
begin_lock(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	int rc = weir_remote_lock(run->lock, WEIR_LOCK_EXCLUSIVE, run->patience_ms);

	(void)i;
	if (!rc)
		rc = weir_remote_unlock(run->lock, run->patience_ms);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

/* The value before: those of operations on the same slot. */
static bool
fetched_right(const struct lane *l, uint64_t i)
{
	const struct perf_message *request = &l->run->request;
	uint64_t times = i / l->run->layout.slots;

	if (request->test == PERF_FOP)
		times = perf_element_after(request->type, request->op, times);
	return perf_element_is(request->type, times, l->fetched);
}

static int
flush(struct lane *l)
{
	const struct remote_kind *kind = l->run->kind;
	int rc = weir_remote_flush(l->remote, l->run->patience_ms);

	if (!rc && kind->right && l->begun)
		l->errors += !kind->right(l, l->begun - 1);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static inline int
begin(struct lane *l)
{
	int rc = l->run->kind->begin(l, l->begun);

	l->begun += !rc;
	return rc;
}

/* An operation, until it is complete or the target has answered it. */
static inline int
complete_one(struct lane *l)
{
	const struct remote_run *run = l->run;
	struct weir_notice n;
	uint64_t seen;
	int rc = begin(l);

	if (rc || perf_is_lock(run->request.test))
		return rc;
	if (!perf_is_answered(run->request.test))
		return flush(l);
	if (run->request.test == PERF_SIGNAL) {
		rc = weir_signal_wait(run->x, 0, WEIR_GE, l->begun, run->patience_ms, &seen);
		l->errors += !rc && seen != l->begun;
	} else {
		rc = weir_notice_next(run->driver->weir, &n, run->patience_ms);
		l->errors += !rc && n.tag != ((uint32_t)(l->begun - 1) & INT32_MAX);
	}
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
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
	int rc = 0;

	for (uint64_t i = 0; i < n && !rc; i++) {
		rc = complete_one(l);
		if (!timed)
			continue;
		now = now_ns();
		histogram_record(&l->latency, now - then);
		then = now;
	}
	if (!timed) {
		l->bare += n;
		l->bare_ns += now_ns() - begin_ns;
	}
	return rc;
}

/* count 0: until end_ns. */
static int
measure_latency(struct lane *l, uint64_t count, uint64_t end_ns)
{
	uint64_t left = count ? count : UINT64_MAX, now = now_ns(), n;
	bool timed = true;
	int rc = 0;

	for (; left && (count || now < end_ns) && !rc && !driver_stopped(l->run->driver);
	     timed = !timed) {
		n = !count && l->latency.count && histogram_mean(&l->latency) > SLOW_NS ? SLOW_BLOCK
											: BLOCK;
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
				rc = flush(l);
		}
		now = now_ns();
		if (!rc)
			rc = look(l, now);
	}
	if (!rc)
		rc = flush(l);
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
		rc = measure_latency(l, all ? lat - n : 0, run->end_ns);
	l->rated = l->begun - l->rated;
	l->rate_ns = now_ns() - l->rate_ns;
	if (!rc && !serial)
		rc = measure_rate(l, all ? all - lat : 0,
				  run->start_ns + (uint64_t)(o->duration_s * 1e9));
	/* behind all others */
	if (!rc)
		rc = weir_remote_put(l->remote, remote_count_at(&run->layout, l->number), &l->begun,
				     sizeof(l->begun), 0);
	if (!rc)
		rc = flush(l);
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
		lanes[i].remote = run->remotes[of];
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

/* Exports memory for answers, and has the target open it. */
static int
greet(struct remote_run *run, struct weir_region **region)
{
	/* a put of no bytes has a signal */
	unsigned rights = WEIR_MAY_NOTIFY | WEIR_MAY_WRITE;
	struct weir_key key;
	int rc = weir_region_alloc(run->driver->weir, sizeof(uint64_t), NULL, region);

	if (!rc)
		rc = weir_export(*region, 0, sizeof(uint64_t), rights, &run->x, &key);
	if (!rc)
		rc = weir_remote_put(run->remotes[0], remote_key_at(&run->layout), key.bytes,
				     sizeof(key.bytes), 0);
	return rc ? rc : weir_remote_notify(run->remotes[0], REMOTE_HELLO, 0, 0);
}

/* Opens the memory, and that of the lock. 0 or -errno. */
static int
open_memory(struct remote_run *run)
{
	struct driver *d = run->driver;
	uint32_t flags = d->options->apart ? WEIR_OPEN_APART : 0;
	struct weir_key key;
	int rc;

	run->remotes = calloc(d->flow_count, sizeof(struct weir_remote *));
	rc = run->remotes ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < d->flow_count && !rc; i++) {
		memcpy(key.bytes, d->flows[i].key, sizeof(key.bytes));
		rc = weir_remote_open(d->weir, &key, run->kind->rights | WEIR_MAY_WRITE, flags,
				      OPEN_MS, &run->remotes[i]);
	}
	if (rc)
		return rc;
	run->lock = run->remotes[0];
	if (!d->team || !d->number || !perf_is_lock(run->request.test))
		return 0;
	memcpy(key.bytes, d->team->key, sizeof(key.bytes));
	run->lock = NULL;
	return weir_remote_open(d->weir, &key, WEIR_MAY_LOCK, flags, OPEN_MS, &run->lock);
}

int
driver_remote(struct driver *d, struct perf_result *r)
{
	struct remote_run run = {
	    .driver = d,
	    .kind = &kinds[r->test],
	    .request = driver_request(d, r->test, r->size, 0),
	    .threads = d->options->threads,
	    .lanes = d->options->threads * d->flow_count,
	    .patience_ms = d->options->patience_s * 1000,
	};
	struct weir_region *region = NULL;
	uint64_t bare = 0, bare_ns = 0;
	struct lane *lanes = NULL;
	double rate, duration;
	int rc;

	run.layout = remote_layout(remote_extent(&run.request), run.threads);
	if (run.request.block) {
		run.there = (struct weir_layout){.block = run.request.block, .dims = 1};
		run.there.dim[0].count = r->size / run.request.block;
		run.there.dim[0].stride = run.request.stride;
	}
	rc = open_memory(&run);
	if (!rc) {
		lanes = make_lanes(&run);
		rc = lanes && run.lanes == run.threads * d->flow_count ? 0 : -ENOMEM;
	}
	if (!rc && perf_is_answered(r->test))
		rc = greet(&run, &region);
	if (!rc)
		rc = run_lanes(&run, lanes);
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
	if (run.remotes && run.lock != run.remotes[0])
		weir_remote_close(run.lock);
	for (uint32_t i = 0; run.remotes && i < d->flow_count; i++)
		weir_remote_close(run.remotes[i]);
	free(run.remotes);
	if (run.x)
		weir_revoke(run.x);
	if (region)
		weir_region_free(region);
	d->sent = 0;
	for (uint32_t i = 0; i < d->flow_count; i++)
		d->sent += d->flows[i].sent;
	return rc;
}
