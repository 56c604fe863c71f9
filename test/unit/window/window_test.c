/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows from the public calls down to the engines: calls that go on after a timeout, threads,
 * epochs, locks. Members that end are in end_test.c, notices in notice_test.c; whatever all ranks
 * run alike is in test/rma/window.c.
 */
#include "../group/team.h"
#include "remote/handle.h"
#include "window/handle.h"
#include "worlds/test.h"

#include "weir/window.h"

#define PART 4096u
#define WRITERS 3u

static pthread_barrier_t meeting; /* of members, without the library */

/* ---- timeouts ---- */

static int
patient(struct team *t, uint32_t i)
{
	struct weir_group *g = t->g[i];
	uint32_t rank = weir_group_rank(g), size = weir_group_size(g);
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	uint64_t v = 100 + rank;
	struct weir_window *win;
	void *base;
	int rc;

	for (unsigned apart = 0; apart < 2; apart++) {
		o.flags = apart ? WEIR_WINDOW_APART : 0;
		usleep(rank * 3000);
		rc = weir_window_allocate(g, PART, &o, 0, &base, &win);
		if (rc == -EAGAIN &&
		    weir_window_allocate(g, 2 * PART, &o, 0, &base, &win) != -EBUSY)
			return __LINE__;
		if (rc == -EAGAIN && weir_group_barrier(g, 0) != -EBUSY)
			return __LINE__;
		if (rc == -EAGAIN)
			GO_ON(rc, weir_window_allocate(g, PART, &o, 0, &base, &win));
		if (rc)
			return __LINE__;
		GO_ON(rc, weir_window_fence(win, 0, 0));
		if (rc || weir_window_put(win, (rank + 1) % size, 8, &v, 8, 0))
			return __LINE__;
		usleep(rank * 3000);
		GO_ON(rc, weir_window_fence(win, 0, 0));
		if (rc || ((uint64_t *)base)[1] != 100 + (rank + size - 1) % size)
			return __LINE__;
		usleep(rank * 3000);
		rc = weir_window_fence(win, WEIR_NO_PRECEDE, 0);
		if (rc == -EAGAIN && !apart && weir_group_barrier(g, 0) != -EBUSY)
			return __LINE__;
		if (rc == -EAGAIN)
			GO_ON(rc, weir_window_fence(win, WEIR_NO_PRECEDE, 0));
		if (rc)
			return __LINE__;
		GO_ON(rc, weir_window_free(win, 0));
		if (rc)
			return __LINE__;
	}
	return 0;
}

TEST(test_timeouts)
{
	team_of(5, patient);
}

/* ---- a call that is given up ---- */

static int
give_up(struct team *t, uint32_t i)
{
	struct weir_window *win;
	void *base;

	if (weir_group_rank(t->g[i]) != 1)
		return weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win) ==
			       -ECONNRESET
			   ? 0
			   : __LINE__;
	if (weir_window_allocate(t->g[i], PART, NULL, 0, &base, &win) != -EAGAIN)
		return __LINE__;
	weir_group_leave(t->g[i]);
	t->g[i] = NULL;
	return 0;
}

TEST(test_given_up)
{
	team_of(3, give_up);
}

/* ---- threads ---- */

struct writer {
	struct weir_window *win;
	uint32_t to, from, number;
	int rc;
};

/* All threads send to one member, and take what another one sends. */
static void *
write_words(void *arg)
{
	struct writer *w = arg;
	struct weir_watch watch;
	uint64_t one = 1, seen = 0;

	weir_watch_init(&watch, w->win, w->from, w->number, 1);
	for (uint64_t n = 1; n <= 50 && !w->rc; n++) {
		if (weir_window_accumulate(w->win, w->to, w->number, &one, 1, WEIR_T_UINT64,
					   WEIR_ACC_SUM, 0) ||
		    weir_window_put(w->win, w->to, WRITERS + w->number, &n, 8, 0) ||
		    weir_window_get(w->win, w->to, WRITERS + w->number, &seen, 8, 0) ||
		    weir_window_flush(w->win, w->to, PATIENT) || seen != n ||
		    weir_window_notify(w->win, w->to, w->number, 0) ||
		    weir_watch_wait(&watch, PATIENT))
			w->rc = __LINE__;
		weir_watch_start(&watch);
	}
	return NULL;
}

/* The end of an epoch covers what all threads did; an exclusive lock is the program's. */
static int
write_by_threads(struct team *t, uint32_t i, uint32_t flags)
{
	uint32_t rank = weir_group_rank(t->g[i]), size = weir_group_size(t->g[i]);
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct writer writer[WRITERS];
	pthread_t thread[WRITERS];
	struct weir_window *win;
	uint64_t *base;
	void *at;

	o.flags = flags;
	o.disp_unit = 8;
	if (weir_window_allocate(t->g[i], PART, &o, PATIENT, &at, &win))
		return __LINE__;
	base = at;
	for (unsigned exclusive = 0; exclusive < 2; exclusive++) {
		uint32_t to = (rank + 1) % size;

		if (exclusive ? weir_window_lock(win, to, WEIR_LOCK_EXCLUSIVE, 0, PATIENT)
			      : weir_window_lock_all(win, 0, PATIENT))
			return __LINE__;
		for (uint32_t k = 0; k < WRITERS; k++) {
			writer[k] = (struct writer){win, to, (rank + size - 1) % size, k, 0};
			if (pthread_create(&thread[k], NULL, write_words, &writer[k]))
				return __LINE__;
		}
		for (uint32_t k = 0; k < WRITERS; k++) {
			pthread_join(thread[k], NULL);
			if (writer[k].rc)
				return __LINE__;
		}
		if (exclusive ? weir_window_unlock(win, to, PATIENT)
			      : weir_window_unlock_all(win, PATIENT))
			return __LINE__;
		if (weir_group_barrier(t->g[i], PATIENT))
			return __LINE__;
		for (uint32_t k = 0; k < WRITERS; k++)
			if (base[k] != 50 * (exclusive + 1) || base[WRITERS + k] != 50)
				return __LINE__;
		if (weir_group_barrier(t->g[i], PATIENT))
			return __LINE__;
	}
	return weir_window_free(win, PATIENT) ? __LINE__ : 0;
}

static int
write_apart(struct team *t, uint32_t i)
{
	return write_by_threads(t, i, WEIR_WINDOW_APART);
}

static int
write_mapped(struct team *t, uint32_t i)
{
	return write_by_threads(t, i, 0);
}

TEST(test_threads)
{
	team_of(4, write_apart);
	team_of_one_node(3, write_mapped);
	team_of(4, write_mapped);
}

/* ---- names ---- */

static int
renames(struct team *t, uint32_t i)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	uint32_t rank = weir_group_rank(t->g[i]);
	const char *name = rank ? "second" : NULL;
	bool shared = t->size == 1;
	struct weir_window_info info;
	struct weir_window *win;
	void *base;

	o.name = "first";
	if (shared ? weir_window_allocate_shared(t->g[i], PART, &o, PATIENT, &base, &win)
		   : weir_window_allocate(t->g[i], PART, &o, PATIENT, &base, &win))
		return __LINE__;
	if (!plane_export_is(t->f, t->w[i], win->x->number, "first") ||
	    weir_window_set_name(win, name) ||
	    !plane_export_is(t->f, t->w[i], win->x->number, name ? name : ""))
		return __LINE__;
	if (shared && !plane_export_is(t->f, t->w[i], win->whole_x->number, ""))
		return __LINE__;
	if (weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	if (rank) { /* a part that an operator has ended is shown, a session that has ended not */
		if (plane_evict_export(t->f, t->w[i], win->x->number) != 1 ||
		    weir_window_set_name(win, "third") ||
		    !plane_export_is(t->f, t->w[i], win->x->number, "third"))
			return __LINE__;
		plane_die(t->f, t->w[i]);
		if (weir_window_set_name(win, "fourth") != -ENODEV)
			return __LINE__;
		weir_window_info(win, &info);
		if (strcmp(info.name, "third"))
			return __LINE__;
	}
	return !weir_window_free(win, PATIENT) == shared ? 0 : __LINE__;
}

/* Operators see the name that each member gave last. */
TEST(test_names)
{
	team_of_one_node(2, renames);
	team_of_one_node(1, renames);
}

/* ---- what engines do ---- */

static struct weir_window *of[2];
static uint64_t *parts[2];
static uint32_t window_flags;

static int
open_window(struct team *t, uint32_t i)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	void *base;

	o.flags = window_flags;
	if (weir_window_allocate(t->g[i], PART, &o, PATIENT, &base, &of[i]) ||
	    weir_window_lock_all(of[i], WEIR_NO_CHECK, 0))
		return __LINE__;
	parts[i] = base;
	return 0;
}

static int
free_window(struct team *t, uint32_t i)
{
	(void)t;
	return weir_window_unlock_all(of[i], PATIENT) || weir_window_free(of[i], PATIENT) ? __LINE__
											  : 0;
}

static int
add(uint32_t to, unsigned flags)
{
	uint64_t one = 1;

	return weir_window_accumulate(of[0], to, 0, &one, 1, WEIR_T_UINT64, WEIR_ACC_SUM, flags);
}

/* A notice that never waits, but is sent once what is before it is complete. */
static int
notify_soon(uint32_t to)
{
	int rc;

	while ((rc = weir_window_notify(of[0], to, 3, WEIR_NOWAIT)) == -EAGAIN)
		usleep(100);
	return rc;
}

/* In mapped parts an engine executes updates only if it is asked to, or the type is wide; flushes
 * await it and its notices. */
TEST(test_by_engine)
{
	struct weir_transfer put = {
	    .length = 8, .flags = WEIR_NOWAIT, .notify = WEIR_WITH_NOTICE, .offset = 128, .tag = 1};
	struct weir_transfer signal = {.length = 8,
				       .flags = WEIR_NOWAIT,
				       .notify = WEIR_WITH_SIGNAL_SET,
				       .offset = 128,
				       .signal = 256,
				       .operand = 1};
	long double wide = 1;
	uint64_t v = 3, sent;
	struct window_member *m;
	struct team t;
	uint32_t to;

	team_open(&t, 2, true);
	team_join(&t);
	to = weir_group_rank(t.g[1]);
	put.buf = signal.buf = &v;

	window_flags = 0;
	team_run(&t, open_window);
	assert_int_equal(t.result[0] | t.result[1], 0);
	/* opens this thread's connection */
	assert_int_equal(weir_window_put_with(of[0], to, &signal), 0);
	assert_int_equal(weir_window_flush(of[0], to, PATIENT), 0);
	m = window_member_find(of[0], to);
	sent = weir_remote_conn(m->memory)->sent;
	assert_int_equal(
	    weir_window_accumulate(of[0], to, 64, &wide, 1, WEIR_T_LONG_DOUBLE, WEIR_ACC_SUM, 0),
	    0);
	assert_int_equal(weir_remote_conn(m->memory)->sent, sent + 1);
	plane_stop(t.f); /* no engine turns */
	assert_int_equal(add(to, WEIR_NOWAIT), 0);
	assert_int_equal(parts[1][0], 1);
	/* a notice that must not wait goes behind the signal, not by the ring */
	assert_int_equal(weir_window_put_with(of[0], to, &signal), 0);
	assert_int_equal(weir_window_notify(of[0], to, 2, WEIR_NOWAIT), 0);
	assert_int_equal(m->ring_sent, 0);
	assert_int_equal(weir_window_put_with(of[0], to, &put), 0);
	assert_int_equal(parts[1][16], 3);
	assert_int_equal(weir_window_flush(of[0], to, 0), -EAGAIN);
	plane_run(t.f);
	assert_int_equal(weir_window_flush(of[0], to, PATIENT), 0);
	team_run(&t, free_window);
	assert_int_equal(t.result[0] | t.result[1], 0);

	window_flags = WEIR_WINDOW_BY_ENGINE;
	team_run(&t, open_window);
	assert_int_equal(t.result[0] | t.result[1], 0);
	assert_int_equal(add(to, 0), 0);
	assert_int_equal(weir_window_flush(of[0], to, PATIENT), 0);
	assert_int_equal(parts[1][0], 1);
	plane_stop(t.f);
	assert_int_equal(add(to, WEIR_NOWAIT), 0);
	assert_int_equal(parts[1][0], 1);
	assert_int_equal(weir_window_flush(of[0], to, 0), -EAGAIN);
	assert_int_equal(weir_window_notify(of[0], to, 3, WEIR_NOWAIT), -EAGAIN);
	plane_run(t.f);
	assert_int_equal(notify_soon(to), 0);
	assert_int_equal(parts[1][0], 2);
	team_run(&t, free_window);
	assert_int_equal(t.result[0] | t.result[1], 0);
	team_close(&t);
}

/* ---- epochs and locks ---- */

static bool fence_first;

/* Members in a fence and in another call wait for each other: all hear of it. */
static int
differ(struct team *t, uint32_t i)
{
	struct weir_window *win;
	void *base;
	int rc;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win) ||
	    weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	if ((weir_group_rank(t->g[i]) == 1) == fence_first)
		usleep(20000);
	rc = weir_group_rank(t->g[i]) == 1 ? weir_group_barrier(t->g[i], PATIENT)
					   : weir_window_fence(win, 0, PATIENT);
	return rc == -EINVAL && weir_window_free(win, PATIENT) == -EINVAL ? 0 : __LINE__;
}

TEST(test_differing_calls)
{
	fence_first = true;
	team_of(4, differ);
	fence_first = false;
	team_of(4, differ);
}

/* Each post admits once, and each exposure is completed by its own epoch. */
static int
two_rounds(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), other = 1 - rank;
	struct weir_group *g = t->g[i];
	struct weir_window *win;
	void *base;

	if (weir_window_allocate(g, PART, NULL, PATIENT, &base, &win))
		return __LINE__;
	if (rank == 1 && weir_window_start(win, &other, 1, 0, 0) != -EAGAIN)
		return __LINE__;
	for (unsigned round = 0; round < 2; round++) {
		if (weir_group_barrier(g, PATIENT))
			return __LINE__;
		if (rank == 0 &&
		    (weir_window_post(win, &other, 1, 0) || weir_window_wait(win, 0) != -EAGAIN))
			return __LINE__;
		if (weir_group_barrier(g, PATIENT))
			return __LINE__;
		if (rank == 1 && (weir_window_start(win, &other, 1, 0, PATIENT) ||
				  weir_window_complete(win, PATIENT) ||
				  weir_window_start(win, &other, 1, 0, 0) != -EAGAIN))
			return __LINE__;
		if (rank == 0 && weir_window_wait(win, PATIENT))
			return __LINE__;
	}
	return weir_window_free(win, PATIENT) ? __LINE__ : 0;
}

/* The end of an epoch waits for what the engine does, also where all else is done without it. */
static int
end_early(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), other = 1 - rank;
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct weir_group *g = t->g[i];
	struct weir_window *win;
	const uint64_t one = 1;
	void *base;

	o.flags = WEIR_WINDOW_BY_ENGINE;
	if (weir_window_allocate(g, PART, &o, PATIENT, &base, &win))
		return __LINE__;
	for (uint64_t n = 1; n <= 4; n++) {
		bool locks = n % 2;

		if (!locks && !rank && weir_window_post(win, &other, 1, 0))
			return __LINE__;
		if (rank) {
			if (locks ? weir_window_lock_all(win, 0, PATIENT)
				  : weir_window_start(win, &other, 1, 0, PATIENT))
				return __LINE__;
			/* the lock is acquired, and this thread's connection open */
			if (weir_window_put(win, other, 8, &n, 8, 0) ||
			    weir_window_accumulate(win, other, 0, &one, 1, WEIR_T_UINT64,
						   WEIR_ACC_SUM, 0) ||
			    weir_window_flush(win, other, PATIENT))
				return __LINE__;
			plane_hold(t->f, true);
			if (weir_window_accumulate(win, other, 0, &one, 1, WEIR_T_UINT64,
						   WEIR_ACC_SUM, 0) ||
			    (locks ? weir_window_unlock_all(win, 0)
				   : weir_window_complete(win, 0)) != -EAGAIN)
				return __LINE__;
		}
		pthread_barrier_wait(&meeting);
		if (!locks && !rank && weir_window_wait(win, 0) != -EAGAIN)
			return __LINE__;
		pthread_barrier_wait(&meeting);
		if (rank) {
			plane_hold(t->f, false);
			if (locks ? weir_window_unlock_all(win, PATIENT)
				  : weir_window_complete(win, PATIENT))
				return __LINE__;
		}
		if (!locks && !rank && weir_window_wait(win, PATIENT))
			return __LINE__;
		if (locks)
			pthread_barrier_wait(&meeting);
		if (!rank && *(uint64_t *)base != 2 * n)
			return __LINE__;
		if (!locks) /* the next round changes it */
			pthread_barrier_wait(&meeting);
	}
	return weir_window_free(win, PATIENT) ? __LINE__ : 0;
}

TEST(test_ends_early)
{
	pthread_barrier_init(&meeting, NULL, 2);
	team_of_one_node(2, end_early);
	team_of(2, end_early);
	pthread_barrier_destroy(&meeting);
}

static _Atomic int writing;

/* Requests that are taken back, when they may just have been granted, leave the lock as it is. */
static int
take_back(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]);
	struct weir_window *win;
	void *base;
	int rc;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win))
		return __LINE__;
	for (unsigned k = 0; k < 2000; k++) {
		int kind = rank && k % 8 ? WEIR_LOCK_SHARED : WEIR_LOCK_EXCLUSIVE;

		GO_ON(rc, weir_window_lock(win, 0, kind, 0, rank ? 0 : PATIENT));
		if (rc)
			return __LINE__;
		if (kind == WEIR_LOCK_EXCLUSIVE && writing++)
			return __LINE__;
		for (unsigned j = 0; j < (k % 16 ? 300 : 30000); j++)
			if (writing != (kind == WEIR_LOCK_EXCLUSIVE))
				return __LINE__;
		if (kind == WEIR_LOCK_EXCLUSIVE)
			writing--;
		if (weir_window_unlock(win, 0, PATIENT))
			return __LINE__;
	}
	return weir_window_free(win, PATIENT) ? __LINE__ : 0;
}

/* A request is taken back before the engine has read it: meanwhile the words are not used, since
 * the engine will grant it and take it back. */
static int
unread_request(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]);
	const struct window_member *m;
	struct weir_window *win;
	static bool taken;
	void *base;
	int rc = 0;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win))
		return __LINE__;
	for (unsigned k = 0; k < 2; k++) /* both know the words */
		if (weir_window_lock(win, 0, WEIR_LOCK_EXCLUSIVE, 0, PATIENT) ||
		    weir_window_unlock(win, 0, PATIENT))
			return __LINE__;
	pthread_barrier_wait(&meeting);
	if (!rank && weir_window_lock(win, 0, WEIR_LOCK_EXCLUSIVE, 0, PATIENT))
		return __LINE__;
	pthread_barrier_wait(&meeting);
	if (rank) {
		plane_hold(t->f, true);
		if (weir_window_lock(win, 0, WEIR_LOCK_SHARED, 0, 0) != -EAGAIN)
			return __LINE__;
	}
	pthread_barrier_wait(&meeting);
	if (!rank && weir_window_unlock(win, 0, PATIENT))
		return __LINE__;
	pthread_barrier_wait(&meeting);
	if (rank) {
		rc = weir_window_lock(win, 0, WEIR_LOCK_SHARED, 0, 0);
		taken = !rc;
		if (rc && rc != -EAGAIN)
			return __LINE__;
		plane_hold(t->f, false);
		m = window_member_find(win, 0);
		while (weir_remote_knows_words(m->locks), m->known->withdrawn)
			usleep(100);
	}
	pthread_barrier_wait(&meeting);
	if (!rank) {
		rc = weir_window_lock(win, 0, WEIR_LOCK_EXCLUSIVE, 0, taken ? 500 : PATIENT);
		if (rc != (taken ? -EAGAIN : 0) || (!rc && weir_window_unlock(win, 0, PATIENT)))
			return __LINE__;
	}
	pthread_barrier_wait(&meeting);
	if (rank && taken && weir_window_unlock(win, 0, PATIENT))
		return __LINE__;
	return weir_window_free(win, PATIENT) ? __LINE__ : 0;
}

TEST(test_taken_back)
{
	team_of_one_node(2, take_back);
	pthread_barrier_init(&meeting, NULL, 2);
	team_of_one_node(2, unread_request);
	pthread_barrier_destroy(&meeting);
}

TEST(test_rounds)
{
	team_of_one_node(2, two_rounds);
	team_of(2, two_rounds);
}
