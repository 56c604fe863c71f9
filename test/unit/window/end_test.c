/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows whose members end, leave, or lose their part: in accesses, waits, fences, epochs and
 * locks. All others hear of it, and go on.
 */
#include "../group/team.h"
#include "remote/handle.h"
#include "window/handle.h"
#include "worlds/test.h"

#include "weir/window.h"

#define PART 4096u

/* ---- in accesses and waits ---- */

static int
outlive(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), size = weir_group_size(t->g[i]), who = 9;
	const uint32_t dead = 2;
	struct weir_watch watch;
	struct weir_window *win, *other;
	struct weir_group *living;
	uint64_t v = rank + 1, seen = 0;
	void *base, *at;
	int rc;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win) ||
	    weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	/* all have all open */
	for (uint32_t k = 0; k < size; k++)
		if (weir_window_put(win, k, 8 * rank, &v, 8, 0))
			return __LINE__;
	if (weir_window_fence(win, WEIR_NO_SUCCEED, PATIENT) ||
	    weir_window_lock_all(win, WEIR_NO_CHECK, 0))
		return __LINE__;
	if (rank == dead) {
		for (uint32_t k = 0; k < size; k++) /* no fence of another member waits for it */
			while (k != dead && !atomic_load(&((_Atomic uint64_t *)base)[8 + k]))
				usleep(100);
		plane_die(t->f, t->w[i]);
		weir_window_unlock_all(win, 0);
		return weir_window_free(win, 0) ? 0 : __LINE__;
	}
	do { /* until it is known */
		rc = weir_window_put(win, dead, 64 + 8 * rank, &v, 8, 0);
		if (!rc)
			rc = weir_window_flush(win, dead, PATIENT);
	} while (!rc);
	if (rc != -ECONNRESET || weir_window_error(win, &who) != -ECONNRESET || who != dead)
		return __LINE__;
	/* the others go on */
	if (weir_window_get(win, (rank + 1) % size == dead ? 3 : (rank + 1) % size, 8 * rank, &seen,
			    8, 0))
		return __LINE__;
	rc = weir_window_unlock_all(win, PATIENT);
	if ((rc && rc != -ECONNRESET) || seen != v)
		return __LINE__;
	if (weir_window_start(win, &dead, 1, 0, PATIENT) != -ECONNRESET)
		return __LINE__;
	weir_watch_init(&watch, win, dead, 1, 1);
	if (weir_watch_wait(&watch, PATIENT) != -ECONNRESET)
		return __LINE__;
	if (weir_window_fence(win, 0, PATIENT) != -ECONNRESET)
		return __LINE__;
	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &at, &other) != -ECONNRESET)
		return __LINE__;
	/* no barrier of the group tells any more that nobody uses the part */
	if (weir_group_survivors(t->g[i], PATIENT, &living) || weir_group_barrier(living, PATIENT))
		return __LINE__;
	weir_group_leave(living);
	return weir_window_free(win, PATIENT) == -ECONNRESET ? 0 : __LINE__;
}

TEST(test_death)
{
	team_of(4, outlive);
}

struct ending {
	struct weir_window *win;
	uint32_t of;
	int rc;
};

static void *
flush_until_end(void *arg)
{
	struct ending *e = arg;

	while (!e->rc)
		e->rc = weir_window_flush(e->win, e->of, PATIENT);
	return NULL;
}

/* Each operation on a mapped part tells the member's end, also in a thread that has no connection,
 * while the one that has stands still. */
static int
end_of_mapped(struct team *t, uint32_t i)
{
	const uint32_t ends = 1;
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct weir_window *win;
	struct ending e = {.of = ends};
	uint64_t v = 1, was = 7;
	pthread_t thread;
	void *base;

	o.disp_unit = 8;
	if (weir_window_allocate(t->g[i], PART, &o, PATIENT, &base, &win) ||
	    weir_window_lock_all(win, WEIR_NO_CHECK, 0) ||
	    weir_window_put(win, ends, 2, &v, 8, 0) ||
	    weir_window_put(win, ends, 3 + weir_group_rank(t->g[i]), &v, 8, 0))
		return __LINE__;
	if (weir_group_rank(t->g[i]) == ends) {
		while (!atomic_load(&((_Atomic uint64_t *)base)[3]))
			usleep(100);
		plane_die(t->f, t->w[i]);
		weir_window_unlock_all(win, 0);
		return weir_window_free(win, 0) ? 0 : __LINE__;
	}
	e.win = win;
	if (pthread_create(&thread, NULL, flush_until_end, &e))
		return __LINE__;
	pthread_join(thread, NULL);
	if (e.rc != -ECONNRESET || weir_window_flush(win, ends, 0) != -ECONNRESET ||
	    weir_window_put(win, ends, 2, &v, 8, 0) != -ECONNRESET ||
	    weir_window_get(win, ends, 2, &was, 8, 0) != -ECONNRESET ||
	    weir_window_accumulate(win, ends, 2, &v, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0) !=
		-ECONNRESET ||
	    weir_window_fetch_op(win, ends, 2, &v, &was, WEIR_T_UINT64, WEIR_ACC_SUM, 0) !=
		-ECONNRESET ||
	    weir_window_compare_swap(win, ends, 2, &v, &v, &was, WEIR_T_UINT64, 0) != -ECONNRESET ||
	    was != 7)
		return __LINE__;
	if (weir_window_unlock_all(win, PATIENT) != -ECONNRESET)
		return __LINE__;
	return weir_window_free(win, PATIENT) == -ECONNRESET ? 0 : __LINE__;
}

TEST(test_end_of_mapped)
{
	team_of_one_node(2, end_of_mapped);
}

static struct {
	_Atomic(struct weir *) w;
	_Atomic uint32_t number;
} evictee;

/* An operator ends one part: each call that covers what was lost there says so, and completes what
 * is for others. */
static int
end_of_part(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), size = weir_group_size(t->g[i]), who = size;
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	const uint32_t ended = size - 1;
	struct weir_window *win;
	uint64_t v = 1, *words;
	bool lost = false; /* something of this member is, or the part is mapped */
	void *base;
	int rc;

	o.disp_unit = 8;
	if (weir_window_allocate(t->g[i], PART, &o, PATIENT, &base, &win) ||
	    weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	words = base;
	for (uint32_t k = 0; k < size; k++)
		if (weir_window_put(win, k, rank, &v, 8, 0))
			return __LINE__;
	if (rank == ended) {
		evictee.w = t->w[i];
		evictee.number = win->x->number;
	}
	if (weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	if (!rank) {
		plane_stop(t->f); /* so that the first put is lost where it is not a store */
		rc = weir_window_put(win, ended, 8, &v, 8, 0);
		if (rc || plane_evict_export(t->f, evictee.w, evictee.number) != 1)
			return __LINE__;
		plane_run(t->f);
		while (!rc) {
			rc = weir_window_flush(win, ended, PATIENT);
			lost = rc;
			if (!rc)
				rc = weir_window_put(win, ended, 8, &v, 8, 0);
		}
		lost |= window_member_find(win, ended)->direct.at != NULL;
		if (rc != -ESTALE)
			return __LINE__;
	}
	if (weir_group_barrier(t->g[i], PATIENT))
		return __LINE__;
	for (v = 2; v < 5; v++) {
		for (uint32_t k = 0; k < ended; k++)
			if (weir_window_put(win, k, rank, &v, 8, 0))
				return __LINE__;
		rc = weir_window_fence(win, 0, PATIENT);
		if (rc != -ESTALE && (rc || lost))
			return __LINE__;
		for (uint32_t k = 0; rank != ended && k < size; k++)
			if (words[k] != v)
				return __LINE__;
		if (weir_window_fence(win, WEIR_NO_PRECEDE, PATIENT))
			return __LINE__;
	}
	if (!rank && (weir_window_put(win, ended, 8, &v, 8, 0) != -ESTALE ||
		      weir_window_flush(win, 1, PATIENT) ||
		      weir_window_error(win, &who) != -ESTALE || who != ended))
		return __LINE__;
	if (lost && (weir_window_flush_all(win, PATIENT) != -ESTALE ||
		     weir_window_flush_all(win, PATIENT) != -ESTALE))
		return __LINE__;
	rc = weir_window_free(win, PATIENT);
	return rc != -ESTALE && (rc || lost) ? __LINE__ : 0;
}

TEST(test_end_of_part)
{
	team_of(3, end_of_part);
	team_of_one_node(3, end_of_part);
}

enum { TAKEN = 1, LEFT, NEVER }; /* tags */

static _Atomic unsigned ready_to_wait;

static void *
wait_for_any(void *arg)
{
	struct ending *e = arg;
	struct weir_watch watch;

	weir_watch_init(&watch, e->win, WEIR_RANK_ANY, NEVER, 1);
	e->rc = weir_watch_wait(&watch, PATIENT);
	return NULL;
}

/* Waits for anybody end with the group, after what had come: also while another thread is inside a
 * call of the group, and of members that are no neighbours of the one that has ended. */
static int
end_of_any(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), size = weir_group_size(t->g[i]), who = size;
	const uint32_t ends = 3;
	struct weir_window *win;
	struct weir_watch watch;
	struct ending e = {0};
	pthread_t thread;
	void *base;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win) ||
	    weir_window_lock_all(win, WEIR_NO_CHECK, 0))
		return __LINE__;
	if (rank == ends) {
		for (uint32_t k = 0; k < size; k++)
			if (k != ends && (weir_window_notify(win, k, LEFT, 0) ||
					  weir_window_notify(win, k, TAKEN, 0)))
				return __LINE__;
		while (ready_to_wait + 1 < size)
			usleep(100);
		usleep(20000);
		plane_die(t->f, t->w[i]);
		weir_window_unlock_all(win, 0);
		return weir_window_free(win, 0) ? 0 : __LINE__;
	}
	weir_watch_init(&watch, win, WEIR_RANK_ANY, TAKEN, 1);
	if (weir_watch_wait(&watch, PATIENT) || watch.last_source != ends)
		return __LINE__;
	ready_to_wait++;
	if (rank == 0) {
		e.win = win;
		if (pthread_create(&thread, NULL, wait_for_any, &e) ||
		    weir_group_barrier(t->g[i], PATIENT) != -ECONNRESET)
			return __LINE__;
		pthread_join(thread, NULL);
		if (e.rc != -ECONNRESET)
			return __LINE__;
	}
	if (rank == 1 && weir_window_signal_wait(win, 64, WEIR_EQ, 1, PATIENT, NULL) != -ECONNRESET)
		return __LINE__;
	weir_watch_init(&watch, win, WEIR_RANK_ANY, NEVER, 1);
	if (weir_watch_wait(&watch, PATIENT) != -ECONNRESET ||
	    weir_window_error(win, &who) != -ECONNRESET || who != ends)
		return __LINE__;
	weir_watch_init(&watch, win, WEIR_RANK_ANY, LEFT, 1);
	if (weir_watch_wait(&watch, PATIENT) || watch.last_source != ends)
		return __LINE__;
	if (weir_window_signal_wait(win, 64, WEIR_EQ, 0, PATIENT, NULL) ||
	    weir_window_signal_wait(win, 64, WEIR_EQ, 1, PATIENT, NULL) != -ECONNRESET)
		return __LINE__;
	weir_window_unlock_all(win, PATIENT);
	return weir_window_free(win, PATIENT) == -ECONNRESET ? 0 : __LINE__;
}

TEST(test_end_of_any)
{
	ready_to_wait = 0;
	team_of(MOST, end_of_any);
	ready_to_wait = 0;
	team_of_one_node(4, end_of_any);
}

/* Members that have ended a call in which all meet. One that dies earlier may end it for others. */
static _Atomic unsigned have_met;

static void
await_met(const struct team *t)
{
	for (have_met++; have_met < t->size;)
		usleep(100);
	usleep(20000); /* the others are in their next call, most likely */
}

/* ---- lock_all ---- */

static _Atomic bool has_locked;

/* Locks are acquired in the order of ranks, whatever the order of questions. A part that has ended
 * has no lock, and the others are accessed. */
static int
lock_asked(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), last = weir_group_size(t->g[i]) - 1, n = 0, ended;
	struct window_member *m;
	struct weir_window *win;
	uint64_t v = 1;
	void *base;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win))
		return __LINE__;
	for (uint32_t k = 0; !rank && k <= last; k++)
		if (weir_window_query(win, last - k, &base, NULL, NULL))
			return __LINE__;
	if (!rank &&
	    (weir_window_lock_all(win, 0, PATIENT) || weir_window_unlock_all(win, PATIENT)))
		return __LINE__;
	for (m = rank ? NULL : win->addressed; m; m = m->next_addressed)
		if (m->rank != n++)
			return __LINE__;
	if (weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	if (rank == last) {
		await_met(t);
		plane_die(t->f, t->w[i]);
		return weir_window_free(win, 0) ? 0 : __LINE__;
	}
	have_met++;
	while (weir_group_failed(t->g[i], &ended, 1) < 1)
		usleep(1000);
	if (!rank && (n != last + 1 || weir_window_lock_all(win, 0, PATIENT) ||
		      weir_window_put(win, 1, 0, &v, sizeof(v), 0)))
		return __LINE__;
	if (!rank)
		weir_window_unlock_all(win, PATIENT);
	for (has_locked |= !rank; !has_locked;)
		usleep(1000);
	return weir_window_free(win, PATIENT) == -ECONNRESET ? 0 : __LINE__;
}

TEST(test_lock_asked)
{
	has_locked = false;
	have_met = 0;
	team_of_one_node(4, lock_asked);
}

/* ---- in a fence ---- */

static struct weir_window *kept[3]; /* of members that left before they freed them */
static unsigned kept_count;

/* One ends, or leaves, while the others wait for it in a fence. */
static int
end_in_fence(struct team *t, uint32_t i)
{
	const uint32_t ends = 2;
	struct weir_window *win;
	void *base;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win) ||
	    weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	if (weir_group_rank(t->g[i]) != ends) {
		have_met++;
		return weir_window_fence(win, 0, PATIENT) == -ECONNRESET &&
			       weir_window_free(win, PATIENT) == -ECONNRESET
			   ? 0
			   : __LINE__;
	}
	await_met(t);
	plane_die(t->f, t->w[i]);
	return weir_window_free(win, 0) ? 0 : __LINE__;
}

TEST(test_end_in_fence)
{
	have_met = 0;
	team_of(4, end_in_fence);
}

static int
leave_in_fence(struct team *t, uint32_t i)
{
	const uint32_t leaves = 2;
	struct weir_window *win;
	void *base;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win) ||
	    weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	if (weir_group_rank(t->g[i]) != leaves) {
		have_met++;
		return weir_window_fence(win, 0, PATIENT) == -ECONNRESET &&
			       weir_window_free(win, PATIENT) == -ECONNRESET
			   ? 0
			   : __LINE__;
	}
	kept[kept_count++] = win;
	await_met(t);
	weir_group_leave(t->g[i]);
	t->g[i] = NULL;
	return 0;
}

TEST(test_leave_in_fence)
{
	have_met = 0;
	team_of(4, leave_in_fence);
	have_met = 0;
	team_of(3, leave_in_fence); /* it is alone on its node */
	have_met = 0;
	team_of_one_node(3, leave_in_fence);
}

/* ---- in epochs and with locks ---- */

static _Atomic bool freed;

/* Rank 2 ends, and nobody ends the epochs of the others any more: their windows can be freed. */
static int
free_in_epochs(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), one = 1;
	struct weir_window *win;
	void *base;
	int rc;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win))
		return __LINE__;
	if (!rank && (weir_window_post(win, &one, 1, 0) ||
		      weir_window_lock(win, 1, WEIR_LOCK_EXCLUSIVE, 0, PATIENT) ||
		      weir_window_free(win, PATIENT) != -EBUSY))
		return __LINE__;
	rc = weir_group_barrier(t->g[i], PATIENT);
	if (rank == 2) {
		plane_die(t->f, t->w[i]);
		return weir_window_free(win, 0) ? 0 : __LINE__;
	}
	if (rc && rc != -ECONNRESET) /* rank 2 may have come earlier, and ended meanwhile */
		return __LINE__;
	if (!rank) { /* nothing but this call hears of the end */
		while ((rc = weir_window_free(win, PATIENT)) == -EBUSY)
			usleep(100);
		freed = true;
		return rc == -ECONNRESET ? 0 : __LINE__;
	}
	while (!freed)
		usleep(100);
	/* the lock of who freed its window passes on as that of a program that has died */
	if (weir_window_lock(win, 1, WEIR_LOCK_EXCLUSIVE, 0, PATIENT) != -EOWNERDEAD ||
	    weir_window_unlock(win, 1, PATIENT))
		return __LINE__;
	return weir_window_free(win, PATIENT) == -ECONNRESET ? 0 : __LINE__;
}

TEST(test_free_in_epochs)
{
	freed = false;
	team_of(3, free_in_epochs);
	freed = false;
	team_of_one_node(3, free_in_epochs);
}

static _Atomic bool started; /* rank 2 has: no call that makes the window waits for rank 1 */

/* A member that has completed may end: those that are still awaited are awaited on. */
static int
complete_and_end(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), zero = 0, ended;
	const uint32_t others[] = {2, 1};
	struct weir_window *win;
	void *base;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win))
		return __LINE__;
	if (!rank) {
		if (weir_window_post(win, others, 2, 0) || weir_window_wait(win, PATIENT))
			return __LINE__;
		return weir_window_free(win, PATIENT) == -ECONNRESET ? 0 : __LINE__;
	}
	if (weir_window_start(win, &zero, 1, 0, PATIENT))
		return __LINE__;
	started |= rank == 2;
	while (!started)
		usleep(1000);
	while (rank == 2 && weir_group_failed(t->g[i], &ended, 1) < 1)
		usleep(1000);
	if (rank == 2)
		usleep(50000); /* rank 0 has learnt of it, too */
	if (weir_window_complete(win, PATIENT))
		return __LINE__;
	if (rank == 1) {
		/* a program that dies takes notices along that have not left */
		if (weir_window_lock_all(win, WEIR_NO_CHECK, 0) ||
		    weir_window_flush(win, 0, PATIENT) || weir_window_unlock_all(win, PATIENT))
			return __LINE__;
		plane_die(t->f, t->w[i]);
	}
	return weir_window_free(win, rank == 1 ? 0 : PATIENT) ? 0 : __LINE__;
}

TEST(test_completed_and_ended)
{
	started = false;
	team_of(3, complete_and_end);
}

static int dead_kind; /* of the lock that the dying member holds */
static _Atomic unsigned told, granted;

/* A member ends with a lock that it has taken by words of its host; others wait for it. */
static int
die_with_lock(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]), size = weir_group_size(t->g[i]), target = 0;
	const uint32_t dead = size - 1;
	struct weir_member own, other;
	struct weir_group *living;
	struct weir_window *win;
	void *base;
	int rc;

	if (weir_window_allocate(t->g[i], PART, NULL, PATIENT, &base, &win))
		return __LINE__;
	weir_group_member(t->g[i], dead, &own);
	do
		weir_group_member(t->g[i], target, &other);
	while (other.node != own.node && ++target);
	if (rank == dead) {
		for (unsigned k = 0; k < 3; k++)
			if (weir_window_lock(win, target, dead_kind, 0, PATIENT) ||
			    window_member_find(win, target)->by_words != dead_kind ||
			    (k < 2 && weir_window_unlock(win, target, PATIENT)))
				return __LINE__;
		if (weir_group_barrier(t->g[i], PATIENT))
			return __LINE__;
		await_met(t);
		plane_die(t->f, t->w[i]);
		while (granted + 1 < size)
			usleep(1000);
		weir_window_unlock(win, target, 0); /* what it does not hold */
		return weir_window_free(win, 0) ? 0 : __LINE__;
	}
	if (weir_group_barrier(t->g[i], PATIENT))
		return __LINE__;
	have_met++;
	rc = weir_window_lock(win, target, WEIR_LOCK_EXCLUSIVE, 0, PATIENT);
	told += rc == -EOWNERDEAD;
	granted++;
	if ((rc && rc != -EOWNERDEAD) || weir_window_unlock(win, target, PATIENT))
		return __LINE__;
	if (weir_group_survivors(t->g[i], PATIENT, &living) || weir_group_barrier(living, PATIENT))
		return __LINE__;
	/* the lock is taken by words again */
	if (rank == target && (weir_window_lock(win, target, WEIR_LOCK_SHARED, 0, PATIENT) ||
			       window_member_find(win, target)->by_words != WEIR_LOCK_SHARED ||
			       weir_window_unlock(win, target, PATIENT)))
		return __LINE__;
	weir_group_leave(living);
	return weir_window_free(win, PATIENT) == -ECONNRESET ? 0 : __LINE__;
}

TEST(test_death_with_lock)
{
	for (dead_kind = WEIR_LOCK_SHARED; dead_kind <= WEIR_LOCK_EXCLUSIVE; dead_kind++) {
		told = granted = have_met = 0;
		team_of(5, die_with_lock);
		assert_int_equal(granted, 4);
		assert_int_equal(told, dead_kind == WEIR_LOCK_EXCLUSIVE);
	}
}
