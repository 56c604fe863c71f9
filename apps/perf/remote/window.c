/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations through a window, and the window itself. */
#include "lanes.h"

#include "clock.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

#define FLAG_LOOKS 64u /* looks at a flag before the CPU is another program's */

static int
begin_put(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	struct weir_transfer t;

	lane_fill(l, i);
	if (run->there.block) {
		t = lane_transfer(l, i);
		return weir_window_put_with(run->win, l->rank, &t);
	}
	return weir_window_put(run->win, l->rank,
			       run->base + remote_slot_at(&run->layout, l->number, i), l->buffer,
			       run->request.size, 0);
}

static int
begin_get(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	struct weir_transfer t;

	if (run->there.block) {
		t = lane_transfer(l, i);
		return weir_window_get_with(run->win, l->rank, &t);
	}
	return weir_window_get(run->win, l->rank,
			       run->base + remote_slot_at(&run->layout, l->number, i), l->buffer,
			       run->request.size, 0);
}

static int
begin_acc(struct lane *l, uint64_t i)
{
	struct weir_update u = lane_update(l, i);

	return weir_window_update_with(l->run->win, l->rank, &u);
}

static int
begin_fop(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;

	return weir_window_fetch_op(
	    run->win, l->rank, run->base + remote_slot_at(&run->layout, l->number, i), l->buffer,
	    l->fetched, (enum weir_type)perf_element(run->request.type),
	    (enum weir_acc)perf_acc(run->request.op), 0);
}

static int
begin_cas(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	int64_t is = (int64_t)(i / run->layout.slots), then = is + 1;

	return weir_window_compare_swap(run->win, l->rank,
					run->base + remote_slot_at(&run->layout, l->number, i), &is,
					&then, &l->fetched, WEIR_T_INT64, 0);
}

static int
begin_notify(struct lane *l, uint64_t i)
{
	struct weir_transfer t = lane_transfer(l, i);

	lane_fill(l, i);
	t.notify = WEIR_WITH_NOTICE;
	t.tag = (uint32_t)i & INT32_MAX;
	return weir_window_put_with(l->run->win, l->rank, &t);
}

static int
begin_signal(struct lane *l, uint64_t i)
{
	struct weir_transfer t = lane_transfer(l, i);

	lane_fill(l, i);
	t.notify = WEIR_WITH_SIGNAL_SET;
	t.signal = REMOTE_WORD_AT;
	t.operand = i + 1;
	return weir_window_put_with(l->run->win, l->rank, &t);
}

static int
begin_flag(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	const uint64_t flag = i + 1;
	int rc = begin_put(l, i);

	if (!rc)
		rc = weir_window_flush(run->win, l->rank, run->patience_ms);
	if (!rc)
		rc = weir_window_put(run->win, l->rank, REMOTE_WORD_AT, &flag, sizeof(flag), 0);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static int
flush(struct lane *l)
{
	return lane_flushed(l, weir_window_flush(l->run->win, l->rank, l->run->patience_ms));
}

static int
await_notice(struct lane *l)
{
	int rc;

	weir_watch_start(&l->watch);
	rc = weir_watch_wait(&l->watch, l->run->patience_ms);
	l->errors += !rc && l->watch.last_tag != ((uint32_t)(l->begun - 1) & INT32_MAX);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static int
await_signal(struct lane *l)
{
	uint64_t seen;
	int rc = weir_window_signal_wait(l->run->win, REMOTE_WORD_AT, WEIR_GE, l->begun,
					 l->run->patience_ms, &seen);

	l->errors += !rc && seen != l->begun;
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static int
await_flag(struct lane *l)
{
	const struct remote_run *run = l->run;
	uint64_t seen;
	int rc = part_await(run->driver->window.own.base, l->begun, run->patience_ms, &seen);

	l->errors += !rc && seen != l->begun;
	return rc ? -ETIMEDOUT : 0;
}

/* ---- epochs, with a put if the test has a size ---- */

static int
put_within(struct lane *l, uint64_t i)
{
	return l->run->request.size ? begin_put(l, i) : 0;
}

/* All programs contend for the lock of the first target, or of the first of all. */
static int
begin_lock(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	uint32_t rank = run->request.flags & PERF_HERE ? 0 : 1;
	int rc = weir_window_lock(run->win, rank, run->lock_kind, 0, run->patience_ms);

	if (!rc)
		rc = put_within(l, i);
	if (!rc)
		rc = weir_window_unlock(run->win, rank, run->patience_ms);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static int
begin_lockall(struct lane *l, uint64_t i)
{
	const struct remote_run *run = l->run;
	int rc = weir_window_lock_all(run->win, 0, run->patience_ms);

	if (!rc)
		rc = put_within(l, i);
	if (!rc)
		rc = weir_window_unlock_all(run->win, run->patience_ms);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static int
begin_round(struct lane *l, uint64_t i)
{
	struct remote_run *run = l->run;

	lane_fill(l, i);
	return rounds_one(&run->rounds, run->base + remote_slot_at(&run->layout, l->number, i),
			  l->buffer, run->request.size);
}

const struct remote_kind window_kinds[PERF_TESTS] = {
    [PERF_PUT] = {0, begin_put, flush, NULL},
    [PERF_GET] = {0, begin_get, flush, lane_got_right},
    [PERF_ACC] = {0, begin_acc, flush, NULL},
    [PERF_FOP] = {0, begin_fop, flush, lane_fetched_right},
    [PERF_CAS] = {0, begin_cas, flush, lane_fetched_right},
    [PERF_NOTIFY] = {0, begin_notify, await_notice, NULL},
    [PERF_SIGNAL] = {0, begin_signal, await_signal, NULL},
    [PERF_FLAG] = {0, begin_flag, await_flag, NULL},
    [PERF_LOCK] = {0, begin_lock, NULL, NULL},
    [PERF_LOCKALL] = {0, begin_lockall, NULL, NULL},
    [PERF_FENCE] = {0, begin_round, NULL, NULL},
    [PERF_PSCW] = {0, begin_round, NULL, NULL},
};

/* ---- rounds ---- */

int
rounds_begin(struct remote_rounds *r, struct weir_window *win, const uint8_t *base,
	     const struct perf_message *request, int patience_ms)
{
	bool fence = request->test == PERF_FENCE;
	struct weir_group *g = weir_window_group(win);

	*r = (struct remote_rounds){.win = win,
				    .base = base,
				    .test = request->test,
				    .partners = fence ? 1 : request->partners,
				    .members = weir_group_size(g),
				    .patience_ms = patience_ms};
	for (uint32_t i = 0; i < r->partners; i++) {
		r->right[i] = remote_partner(weir_group_rank(g), r->members, i, true);
		r->left[i] = remote_partner(weir_group_rank(g), r->members, i, false);
	}
	return fence ? weir_window_fence(win, WEIR_NO_PRECEDE, patience_ms) : 0;
}

/* Counts a call of a round that is timed, which began at *then. */
static inline void
note(struct remote_rounds *r, enum perf_call call, uint64_t *then)
{
	uint64_t now;

	if (!r->timed)
		return;
	now = now_ns();
	r->calls.ns[call] += now - *then;
	*then = now;
}

int
rounds_one(struct remote_rounds *r, uint64_t at, const void *bytes, size_t length)
{
	bool pscw = r->test == PERF_PSCW;
	uint64_t then = r->timed ? now_ns() : 0;
	int rc = 0;

	if (pscw) {
		rc = weir_window_post(r->win, r->left, r->partners, 0);
		note(r, CALL_POST, &then);
	}
	if (!rc && pscw) {
		rc = weir_window_start(r->win, r->right, r->partners, 0, r->patience_ms);
		note(r, CALL_START, &then);
	}
	if (!rc && length)
		rc = weir_window_put(r->win, r->right[0], at, bytes, length, 0);
	if (!rc && r->last && !r->told) {
		rc = weir_window_put(r->win, r->right[0], REMOTE_WORD_AT, &r->last, sizeof(r->last),
				     0);
		r->told = true;
	}
	note(r, CALL_PUT, &then);
	if (!rc && pscw) {
		rc = weir_window_complete(r->win, r->patience_ms);
		note(r, CALL_COMPLETE, &then);
	}
	if (!rc)
		rc = pscw ? weir_window_wait(r->win, r->patience_ms)
			  : weir_window_fence(r->win, 0, r->patience_ms);
	note(r, CALL_WAIT, &then);
	if (rc)
		return rc == -EAGAIN ? -ETIMEDOUT : rc;
	r->calls.rounds += r->timed;
	r->done++;
	if (!r->last) /* the member to the left puts it, once and whole */
		r->last =
		    __atomic_load_n((const uint64_t *)(const void *)r->base, __ATOMIC_ACQUIRE);
	return r->done == r->last ? REMOTE_LAST : 0;
}

int
rounds_end(struct remote_rounds *r, uint64_t at, const void *bytes, size_t length)
{
	int rc = r->last && r->done == r->last ? REMOTE_LAST : 0;

	r->timed = false;
	/* one more member learns it with each round */
	if (!r->last && !weir_group_rank(weir_window_group(r->win)))
		r->last = r->done + r->members;
	while (!rc)
		rc = rounds_one(r, 0, NULL, 0);
	return rc < 0 ? rc : rounds_one(r, at, bytes, length);
}

/* ---- the epoch of a run ---- */

/* weir_window_lock_all() acquires the locks of parts that the program may load and store. */
static int
address_partners(struct remote_run *run)
{
	uint32_t members = run->request.members, rank = driver_member(run->driver), disp_unit;
	uint64_t bytes;
	void *base;
	int rc = 0;

	for (uint32_t i = 0; i < run->driver->options->partners && !rc; i++)
		rc = weir_window_query(run->win, remote_partner(rank, members, i, true), &base,
				       &bytes, &disp_unit);
	return rc == -EXDEV ? -EOPNOTSUPP : rc; /* -EXDEV is of --loop */
}

int
window_begin(struct remote_run *run)
{
	struct driver *d = run->driver;
	const struct remote_part *part = d->own_server ? &d->own_server->part : &d->window.own;
	uint32_t test = run->request.test;

	run->win = d->window.win;
	run->base = remote_base(&run->request);
	if (perf_is_round(test))
		return rounds_begin(&run->rounds, run->win, part->base, &run->request,
				    run->patience_ms);
	if (test == PERF_LOCKALL)
		return address_partners(run);
	return perf_is_epoch(test) ? 0 : weir_window_lock_all(run->win, 0, run->patience_ms);
}

int
window_end(struct lane *l)
{
	struct remote_run *run = l->run;
	uint64_t at = run->base + remote_count_at(&run->layout, l->number);
	bool locks = perf_is_epoch(run->request.test);
	int rc = 0;

	if (perf_is_round(run->request.test))
		return rounds_end(&run->rounds, at, &l->begun, sizeof(l->begun));
	if (locks)
		rc = weir_window_lock(run->win, l->rank, WEIR_LOCK_SHARED, 0, run->patience_ms);
	if (!rc)
		rc = weir_window_put(run->win, l->rank, at, &l->begun, sizeof(l->begun), 0);
	if (!rc)
		rc = locks ? weir_window_unlock(run->win, l->rank, run->patience_ms) : flush(l);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

int
window_finish(struct remote_run *run)
{
	return perf_is_epoch(run->request.test)
		   ? 0
		   : weir_window_unlock_all(run->win, run->patience_ms);
}

/* ---- the window ---- */

int
part_open(struct remote_part *p, struct weir *weir, const struct perf_message *request,
	  uint32_t drivers)
{
	struct remote_layout l = remote_layout(remote_extent(request), request->threads);
	struct weir_region_info info;
	int rc;

	if (p->region)
		return 0;
	rc = weir_region_alloc(weir, REMOTE_LINE + drivers * l.bytes, NULL, &p->region);
	if (rc) {
		p->region = NULL;
		return rc;
	}
	weir_region_info(p->region, &info);
	p->base = info.base;
	p->bytes = info.bytes;
	return 0;
}

int
part_await(const uint8_t *base, uint64_t least, int timeout_ms, uint64_t *seen)
{
	uint64_t end = now_ns() + (uint64_t)timeout_ms * 1000000;

	for (uint32_t looks = 1;; looks++) {
		*seen = __atomic_load_n((const uint64_t *)(const void *)base, __ATOMIC_ACQUIRE);
		if (*seen >= least)
			return 0;
		if (looks % FLAG_LOOKS)
			continue;
		if (now_ns() >= end)
			return -EAGAIN;
		sched_yield();
	}
}

void
part_close(struct remote_part *p)
{
	if (p->region)
		weir_region_free(p->region);
	*p = (struct remote_part){0};
}

int
remote_window_open(struct remote_window *w, struct weir *weir, const struct perf_message *request,
		   uint32_t rank, const struct remote_part *part, int timeout_ms)
{
	struct weir_group_options g = WEIR_GROUP_OPTIONS_INIT;
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	char name[WEIR_GROUP_NAME_MAX + 1];
	int rc;

	snprintf(name, sizeof(name), "perf-%llx", (unsigned long long)request->group);
	g.rank = rank;
	g.size = request->members;
	rc = weir_group_join(weir, name, &g, timeout_ms, &w->g);
	if (rc)
		return rc;
	o.name = "weir-perf";
	o.flags = (uint32_t)request->options;
	/* the whole region, so that members of the host can map it */
	return weir_window_create(w->g, part->region, 0, part->bytes, &o, timeout_ms, &w->win);
}

int
remote_window_close(struct remote_window *w, int timeout_ms)
{
	int rc = w->win ? weir_window_free(w->win, timeout_ms) : 0;

	if (rc == -EAGAIN || rc == -EINTR || rc == -EBUSY)
		return rc;
	weir_group_leave(w->g);
	part_close(&w->own);
	*w = (struct remote_window){0};
	return rc;
}

int
driver_window(struct driver *d, const struct perf_message *request)
{
	bool all = d->options->alltoall;
	int rc = all ? 0 : part_open(&d->window.own, d->weir, request, 0);

	if (rc)
		return rc;
	return remote_window_open(&d->window, d->weir, request, driver_member(d),
				  all ? &d->own_server->part : &d->window.own,
				  d->options->patience_s * 1000);
}
