/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows from the public calls down to the engines: calls that go on after a timeout, threads,
 * epochs, locks. Members that end are in end_test.c, notices in notice_test.c; whatever all ranks
 * run alike is in test/rma/window.c.
 */
#include "../group/team.h"
#include "client/wake.h"
#include "remote/handle.h"
#include "window/handle.h"
#include "worlds/test.h"

#include "weir/window.h"

#define PART 4096u
#define WRITERS 3u

static pthread_barrier_t meeting, rest; /* of members, without the library */

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

static struct {
	struct weir_transport real;
	unsigned succeed; /* requests to rename an export, before one fails */
} renaming;

static int
rename_some(void *user, const struct weir_session_msg *m, struct weir_session_msg *reply,
	    int fds[WEIR_SESSION_FDS])
{
	if (m->type == WEIR_MSG_NAME && !renaming.succeed--)
		return -EPROTO;
	return renaming.real.request(user, m, reply, fds);
}

static bool
is_named(struct team *t, uint32_t i, struct weir_window *win, const char *name)
{
	struct weir_window_info info;

	weir_window_info(win, &info);
	return !strcmp(info.name, name) &&
	       plane_export_is(t->f, t->w[i], win->whole_x->number, name);
}

/* A shared window has two exports at rank 0: a request fails, then one export has ended. */
static int
renames_half(struct team *t, uint32_t i)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct weir_transport *transport = &t->w[i]->transport;
	struct weir_window *win;
	void *base;
	int rc;

	o.name = "first";
	if (weir_window_allocate_shared(t->g[i], PART, &o, PATIENT, &base, &win))
		return __LINE__;
	renaming.real = *transport;
	for (unsigned n = 0; n < 2; n++) {
		renaming.succeed = n;
		transport->request = rename_some;
		if (weir_window_set_name(win, "second") != -EPROTO)
			return __LINE__;
		transport->request = renaming.real.request;
		if (!is_named(t, i, win, "first") ||
		    !plane_export_is(t->f, t->w[i], win->x->number, "first"))
			return __LINE__;
	}
	if (weir_region_free(win->region))
		return __LINE__;
	win->region = NULL;
	do
		rc = weir_export_rename(win->x, "first");
	while (!rc);
	if (rc != -ENOENT || weir_window_set_name(win, "third") || !is_named(t, i, win, "third"))
		return __LINE__;
	return weir_window_free(win, PATIENT) ? __LINE__ : 0;
}

/* A window that cannot be renamed keeps its name; what is left of one can be renamed. */
TEST(test_names_half)
{
	team_of_one_node(1, renames_half);
}

/* ---- what engines do ---- */

static struct weir_window *of[3];
static uint64_t *parts[3];
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

/* In mapped parts an engine executes updates only if the type is wide; flushes await it and its
 * notices. */
TEST(test_wide_by_engine)
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
	team_close(&t);
}

/* With members on another node engines execute all updates, if they are asked to. */
TEST(test_by_engine)
{
	struct team t;
	uint32_t to;

	team_open(&t, 3, false);
	team_join(&t);
	to = weir_group_rank(t.g[2]);
	window_flags = WEIR_WINDOW_BY_ENGINE;
	team_run(&t, open_window);
	assert_int_equal(t.result[0] | t.result[1] | t.result[2], 0);
	assert_int_equal(add(to, 0), 0);
	assert_int_equal(weir_window_flush(of[0], to, PATIENT), 0);
	assert_int_equal(parts[2][0], 1);
	assert_non_null(window_member_find(of[0], to)->words); /* mapped */
	plane_stop(t.f);
	assert_int_equal(add(to, WEIR_NOWAIT), 0);
	assert_int_equal(parts[2][0], 1);
	assert_int_equal(weir_window_flush(of[0], to, 0), -EAGAIN);
	assert_int_equal(weir_window_notify(of[0], to, 3, WEIR_NOWAIT), -EAGAIN);
	plane_run(t.f);
	assert_int_equal(notify_soon(to), 0);
	assert_int_equal(parts[2][0], 2);
	team_run(&t, free_window);
	assert_int_equal(t.result[0] | t.result[1] | t.result[2], 0);
	team_close(&t);
}

/* ---- turns ---- */

/* Each kind of update, if it is the caller's turn; else -EAGAIN, and nothing. */
static void
update_each(uint32_t to, int want)
{
	const struct weir_layout apart = {.block = 8, .dims = 1, .dim = {{4, 16}}};
	struct weir_update pieces = {.offset = 1024,
				     .count = 4,
				     .type = WEIR_T_UINT64,
				     .op = WEIR_ACC_SUM,
				     .there = &apart,
				     .flags = WEIR_NOWAIT};
	uint64_t one = 1, was = 7, is = parts[1][0];
	double many[100];

	for (unsigned i = 0; i < 100; i++)
		many[i] = 1;
	pieces.operand = (uint64_t[]){1, 1, 1, 1};
	assert_int_equal(add(to, WEIR_NOWAIT), want);
	assert_int_equal(weir_window_accumulate(of[0], to, 64, many, 100, WEIR_T_DOUBLE,
						WEIR_ACC_SUM, WEIR_NOWAIT),
			 want);
	assert_int_equal(weir_window_update_with(of[0], to, &pieces), want);
	assert_int_equal(weir_window_fetch_op(of[0], to, 0, &one, &was, WEIR_T_UINT64, WEIR_ACC_SUM,
					      WEIR_NOWAIT),
			 want);
	assert_int_equal(was, want ? 7 : is + 1);
	is += want ? 0 : 2;
	one = is + 1;
	assert_int_equal(
	    weir_window_compare_swap(of[0], to, 0, &is, &one, &was, WEIR_T_UINT64, WEIR_NOWAIT),
	    want);
	assert_int_equal(was, want ? 7 : is);
	assert_int_equal(parts[1][0], want ? is : is + 1);
}

/* n rounds of the above have left this. */
static void
assert_updated(unsigned n)
{
	const double *many = (const double *)(const void *)((const uint8_t *)parts[1] + 64);

	assert_int_equal(parts[1][0], 3 * n);
	for (unsigned i = 0; i < 100; i++)
		assert_true(many[i] == n);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(parts[1][128 + 2 * i], n);
	assert_int_equal(parts[1][129], 0);
}

struct taken {
	struct plane *f;
	const struct weir_waker *waker;
};

/* Engines turn again once a wait has taken the wake. */
static void *
run_when_taken(void *arg)
{
	const struct taken *t = arg;

	while (t->waker->woken)
		usleep(100);
	plane_run(t->f);
	return NULL;
}

/* On one host members that map a part update it in turn, without an engine. */
TEST(test_turns)
{
	struct weir_transfer signal = {
	    .length = 8, .notify = WEIR_WITH_SIGNAL_ADD, .offset = 2048, .signal = 2048};
	struct window_member *m;
	uint64_t v = 3;
	struct weir_waker *waker;
	pthread_t thread;
	struct team t;
	uint32_t to;

	signal.buf = &v;
	signal.operand = 4;
	team_open(&t, 2, true);
	team_join(&t);
	to = weir_group_rank(t.g[1]);
	window_flags = WEIR_WINDOW_BY_ENGINE;
	team_run(&t, open_window);
	assert_int_equal(t.result[0] | t.result[1], 0);
	assert_int_equal(weir_window_put_with(of[0], to, &signal), 0);
	m = window_member_find(of[0], to);
	plane_stop(t.f);
	update_each(to, 0);
	assert_updated(1);
	assert_int_equal(weir_window_flush(of[0], to, 0), 0);
	assert_int_equal(*m->turn, 0);
	/* the turn of another one, and of another thread */
	*m->turn = of[1]->own;
	update_each(to, -EAGAIN);
	*m->turn = of[0]->own;
	update_each(to, -EAGAIN);
	/* of no member: it is spoilt */
	*m->turn = 77;
	update_each(to, 0);
	assert_updated(2);
	/* one that was taken away stays the other's */
	assert_int_equal(window_turn_take(of[0], m, 0), 0);
	assert_int_equal(*m->turn, of[0]->own);
	*m->turn = of[1]->own;
	window_turn_leave(of[0], m);
	assert_int_equal(*m->turn, of[1]->own);
	*m->turn = 0;
	/* an engine signals in the caller's turn, which ends with the signal */
	signal.flags = WEIR_NOWAIT;
	assert_int_equal(weir_window_put_with(of[0], to, &signal), -EMSGSIZE);
	signal.flags = 0;
	plane_run(t.f);
	assert_int_equal(weir_window_put_with(of[0], to, &signal), 0);
	assert_int_equal(parts[1][256], v + signal.operand);
	assert_int_equal(*m->turn, 0);
	/* a wake does not end the turn, but the next wait */
	plane_stop(t.f);
	assert_int_equal(weir_thread_waker(t.w[0], &waker), 0);
	weir_wake_thread(waker);
	assert_int_equal(pthread_create(&thread, NULL, run_when_taken, &(struct taken){t.f, waker}),
			 0);
	assert_int_equal(weir_window_put_with(of[0], to, &signal), 0);
	pthread_join(thread, NULL);
	assert_int_equal(parts[1][256], v + signal.operand);
	assert_int_equal(weir_window_signal_wait(of[0], 0, WEIR_EQ, 77, PATIENT, NULL), -EINTR);
	assert_int_equal(weir_window_signal_wait(of[0], 0, WEIR_EQ, 77, 10, NULL), -EAGAIN);
	team_run(&t, free_window);
	assert_int_equal(t.result[0] | t.result[1], 0);
	team_close(&t);
}

/* A member that ends in its turn leaves it to those that wait. */
static int
end_in_turn(struct team *t, uint32_t i)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	const uint32_t last = t->size - 1;
	struct window_member *m;
	struct weir_window *win;
	const uint64_t one = 1;
	void *base;

	o.flags = WEIR_WINDOW_BY_ENGINE;
	if (weir_window_allocate(t->g[i], PART, &o, PATIENT, &base, &win) ||
	    weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	for (uint32_t k = 0; i == last && k < last; k++)
		if (window_member_open(win, weir_group_rank(t->g[k]), &m) ||
		    window_turn_take(win, m, 0))
			return __LINE__;
	pthread_barrier_wait(&meeting);
	if (i == last) {
		plane_die(t->f, t->w[i]);
		return weir_window_free(win, 0) ? 0 : __LINE__;
	}
	for (uint32_t k = 0; k < last; k++) {
		uint32_t to = weir_group_rank(t->g[k]);

		if (weir_window_accumulate(win, to, 0, &one, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0) ||
		    weir_window_flush(win, to, PATIENT))
			return __LINE__;
	}
	pthread_barrier_wait(&rest);
	if (*(uint64_t *)base != last)
		return __LINE__;
	return weir_window_free(win, PATIENT) == -ECONNRESET ? 0 : __LINE__;
}

TEST(test_end_in_turn)
{
	pthread_barrier_init(&meeting, NULL, 4);
	pthread_barrier_init(&rest, NULL, 3);
	team_of_one_node(4, end_in_turn);
	pthread_barrier_destroy(&rest);
	pthread_barrier_destroy(&meeting);
}

/* All members update all parts; every sum is exact. */
static int
sum_in_turn(struct team *t, uint32_t i)
{
	enum { ROUNDS = 300, N = 400 };
	uint32_t size = weir_group_size(t->g[i]);
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	uint64_t one = 1, was, tickets = 0;
	struct weir_window *win;
	float many[N];
	void *base;

	o.flags = WEIR_WINDOW_BY_ENGINE;
	for (unsigned k = 0; k < N; k++)
		many[k] = (float)(k % 3);
	if (weir_window_allocate(t->g[i], PART, &o, PATIENT, &base, &win) ||
	    weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	for (unsigned round = 0; round < ROUNDS; round++)
		for (uint32_t to = 0; to < size; to++) {
			if (weir_window_accumulate(win, to, 64, many, N, WEIR_T_FLOAT, WEIR_ACC_SUM,
						   0) ||
			    weir_window_fetch_op(win, to, 8 * (round % 4), &one, &was,
						 WEIR_T_UINT64, WEIR_ACC_SUM, 0) ||
			    weir_window_flush(win, to, PATIENT))
				return __LINE__;
			tickets += was;
		}
	if (weir_window_fence(win, 0, PATIENT))
		return __LINE__;
	for (unsigned k = 0; k < N; k++)
		if (((float *)base)[16 + k] != (float)(ROUNDS * size * (k % 3)))
			return __LINE__;
	for (unsigned k = 0; k < 4; k++)
		if (((uint64_t *)base)[k] != ROUNDS / 4 * size)
			return __LINE__;
	if (weir_group_allreduce(t->g[i], &tickets, &tickets, 1, WEIR_T_UINT64, WEIR_ACC_SUM,
				 PATIENT))
		return __LINE__;
	/* each number once, of four counters at each member */
	if (tickets != (uint64_t)size * 4 * (ROUNDS / 4 * size) * (ROUNDS / 4 * size - 1) / 2)
		return __LINE__;
	return weir_window_free(win, PATIENT) ? __LINE__ : 0;
}

TEST(test_sums_in_turn)
{
	team_of_one_node(4, sum_in_turn);
}

/* ---- epochs and locks ---- */

/* ---- work while a fence waits ---- */

static _Atomic unsigned fence_runs; /* of the function of rank 0 */
static bool two_hosts;

static int
count_run(void *arg)
{
	return (int)(atomic_fetch_add(&fence_runs, 1) % 2);
}

/* Rank 0 waits in a fence until its function has run: on one host for the other members, else as
 * the first of its host for that of the other. */
static int
idle_in_fence(struct team *t, uint32_t i)
{
	struct weir_group *g = t->g[i];
	uint32_t rank = weir_group_rank(g);
	struct weir_window *win;
	struct weir_member first;
	void *base;

	if (weir_window_allocate(g, PART, NULL, PATIENT, &base, &win) ||
	    weir_window_fence(win, 0, PATIENT) || weir_group_member(g, 0, &first))
		return __LINE__;
	if (!rank)
		weir_group_idle(g, count_run, NULL);
	if (!rank && two_hosts) /* the other member of its host has come */
		usleep(100000);
	for (unsigned ms = 0;
	     rank && !(two_hosts && first.local) && !atomic_load(&fence_runs) && ms < 60000; ms++)
		usleep(1000);
	if (weir_window_fence(win, 0, PATIENT) || (!rank && !atomic_load(&fence_runs)))
		return __LINE__;
	if (!rank)
		weir_group_idle(g, NULL, NULL);
	return weir_window_free(win, PATIENT) ? __LINE__ : 0;
}

TEST(test_idle_in_fence)
{
	two_hosts = false;
	fence_runs = 0;
	team_of_one_node(3, idle_in_fence);
	two_hosts = true;
	fence_runs = 0;
	team_of(3, idle_in_fence);
}

static _Atomic unsigned windows_refused;

static int
make_window(void *g)
{
	struct weir_window *win;
	void *base;

	windows_refused += weir_window_allocate(g, 2 * PART, NULL, 0, &base, &win) == -EBUSY;
	return 0;
}

static int
window_in_barrier(struct team *t, uint32_t i)
{
	struct weir_group *g = t->g[i];
	struct weir_window *win;
	void *base;

	if (!i)
		weir_group_idle(g, make_window, g);
	for (unsigned ms = 0; i && !windows_refused && ms < 60000; ms++)
		usleep(1000);
	if (weir_group_barrier(g, PATIENT) || !windows_refused)
		return __LINE__;
	if (!i)
		weir_group_idle(g, NULL, NULL);
	return weir_window_allocate(g, PART, NULL, PATIENT, &base, &win) ||
		       weir_window_free(win, PATIENT)
		   ? __LINE__
		   : 0;
}

/* A window that was refused while another call waits is not half made. */
TEST(test_window_in_barrier)
{
	team_of_one_node(2, window_in_barrier);
}

/* ---- members in different calls ---- */

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
	/* of three members those on one node, and the other one makes the engine update */
	uint32_t last = t->size - 1, rank = i == last;
	uint32_t other = weir_group_rank(t->g[rank ? 0 : last]);
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct weir_group *g = t->g[i];
	struct weir_window *win;
	const uint64_t one = 1;
	void *base;

	o.flags = WEIR_WINDOW_BY_ENGINE;
	if (weir_window_allocate(g, PART, &o, PATIENT, &base, &win))
		return __LINE__;
	for (uint64_t n = 1; n <= 4 && (!i || i == last); n++) {
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
	team_of(3, end_early);
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
