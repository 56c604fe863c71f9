/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups from the public calls down to the engines: collective calls on one node and on two,
 * misuse, groups made from groups, members that end.
 */
#include "team.h"

#include "group/board.h"

#include <stdio.h>
#include <unistd.h>

static void
test_calls(void **state)
{
	for (uint32_t size = 1; size <= 6; size++) {
		struct weir_member m;
		struct team t;

		team_open(&t, size, false);
		team_join(&t);
		team_run(&t, use);
		for (uint32_t i = 0; i < size; i++)
			assert_int_equal(t.result[i], 0);
		/* by node */
		for (uint32_t rank = 0; rank < size; rank++) {
			uint32_t here = (size + 1) / 2;

			assert_int_equal(weir_group_member(t.g[0], rank, &m), 0);
			assert_int_equal(m.node, rank >= here);
			assert_int_equal(m.local, rank < here);
			assert_int_equal(m.on_host, rank < here ? rank : rank - here);
		}
		assert_int_equal(weir_group_member(t.g[0], size, &m), -EINVAL);
		team_close(&t);
	}
}

static void
test_misuse(void **state)
{
	struct weir_group_options o = WEIR_GROUP_OPTIONS_INIT;
	uint32_t ranks[2] = {0, 0}, out;
	struct weir_group *g, *h;
	struct team t;
	char secret[65];
	int64_t v = 5;

	team_open(&t, 1, true);
	memset(secret, 'x', sizeof(secret));
	secret[64] = 0;
	assert_int_equal(weir_group_join(t.w[0], "g", NULL, 0, &g), -EINVAL);
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 0, &g), -EINVAL); /* no size */
	o.size = 1;
	assert_int_equal(weir_group_join(t.w[0], "", &o, 0, &g), -EINVAL);
	assert_int_equal(weir_group_join(t.w[0], "a b", &o, 0, &g), -EINVAL);
	assert_int_equal(weir_group_join(t.w[0], "abcdefghijklmnopqrstuvwxyz", &o, 0, &g), -EINVAL);
	o.rank = 1;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 0, &g), -EINVAL);
	o.rank = 0;
	o.secret = secret;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 0, &g), -EINVAL);
	o.secret = secret + 1;
	o.flags = 2;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 0, &g), -EINVAL);
	o.flags = WEIR_GROUP_NODE;
	o.more[3] = 1;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 0, &g), -EINVAL);
	o.more[3] = 0;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, PATIENT, &g), 0);
	weir_group_leave(g);
	weir_group_leave(NULL);
	o.size = 2;
	assert_int_equal(weir_group_join(t.w[0], "g", &o, 50, &g), -EAGAIN);
	assert_non_null(strstr(weir_reason(), "not all 2 members"));

	assert_int_equal(weir_group_self(t.w[0], &g), 0);
	assert_int_equal(all_calls(g), 0);
	assert_int_equal(weir_group_broadcast(g, 1, &v, 8, 0), -EINVAL);
	assert_int_equal(weir_group_allreduce(g, &v, &v, 1, WEIR_T_DOUBLE, WEIR_ACC_BAND, 0),
			 -EINVAL);
	assert_int_equal(
	    weir_group_allreduce(g, &v, (char *)&v + 1, 0, WEIR_T_INT64, WEIR_ACC_SUM, 0), -EINVAL);
	assert_int_equal(weir_group_allgather(g, &v, SIZE_MAX / 2, &v, 0), -EINVAL);
	assert_int_equal(weir_group_subset(g, ranks, 2, 0, &h), -EINVAL); /* more than there are */
	ranks[0] = 1;
	assert_int_equal(weir_group_subset(g, ranks, 1, 0, &h), -EINVAL);
	assert_int_equal(weir_group_translate(g, 1, ranks, g, &out), -EINVAL);
	ranks[0] = 0;
	assert_int_equal(weir_group_subset(g, ranks, 1, PATIENT, &h), 0);
	assert_int_equal(weir_group_translate(g, 1, ranks, h, &out), 0);
	assert_int_equal(out, 0);
	weir_group_leave(g);
	assert_int_equal(all_calls(h), 0); /* outlives the one that it was made from */
	weir_group_leave(h);
	team_close(&t);
}

/* ---- groups of groups ---- */

static int
make_parts(struct team *t, uint32_t i)
{
	struct weir_group *g = t->g[i], *half, *host, *rest, *none;
	uint32_t rank = weir_group_rank(g), size = weir_group_size(g), n = 0;
	uint32_t ranks[MOST], out[MOST];

	/* by parity, in reverse order */
	if (weir_group_split(g, rank % 2, (int)(size - rank), PATIENT, &half))
		return __LINE__;
	if (weir_group_size(half) != (size + 1 - rank % 2) / 2)
		return __LINE__;
	for (uint32_t k = 0; k < size; k++)
		ranks[k] = k;
	if (weir_group_translate(g, size, ranks, half, out))
		return __LINE__;
	for (uint32_t k = 0; k < size; k++)
		if (out[k] !=
		    (k % 2 != rank % 2 ? WEIR_RANK_ANY : weir_group_size(half) - 1 - k / 2))
			return __LINE__;
	if (all_calls(half))
		return __LINE__;
	if (weir_group_split_host(g, PATIENT, &host) || all_calls(host))
		return __LINE__;
	/* all but rank 1, backwards; twice the same */
	for (uint32_t k = size; k-- > 0;)
		if (k != 1)
			ranks[n++] = k;
	for (int again = 0; again < 2 && rank != 1; again++) {
		if (weir_group_subset(g, ranks, n, PATIENT, &rest))
			return __LINE__;
		if (ranks[weir_group_rank(rest)] != rank || all_calls(rest))
			return __LINE__;
		weir_group_leave(rest);
	}
	if (weir_group_split(g, rank ? -1 : 3, 0, PATIENT, &none) || !none != !!rank)
		return __LINE__;
	weir_group_leave(none);
	weir_group_leave(half);
	weir_group_leave(host);
	return all_calls(g);
}

static void
test_parts(void **state)
{
	team_of(5, make_parts);
}

/* ---- timeouts and differences ---- */

static _Atomic bool has_waited;

static int
come_late(struct team *t, uint32_t i)
{
	uint64_t mine = i, all[MOST];
	int rc, waits = 0;

	while (i == 1 && !has_waited)
		usleep(1000);
	while ((rc = weir_group_allgather(t->g[i], &mine, 8, all, i ? PATIENT : 10)) == -EAGAIN) {
		waits++;
		if (weir_group_barrier(t->g[i], 0) != -EBUSY)
			return __LINE__;
		has_waited |= !i;
	}
	if (rc || all[weir_group_rank(t->g[i])] != i)
		return __LINE__;
	return i || waits ? 0 : __LINE__;
}

static void
test_continue(void **state)
{
	team_of(3, come_late);
}

static int
differ(struct team *t, uint32_t i)
{
	uint32_t rank = weir_group_rank(t->g[i]);
	uint64_t mine[2] = {0}, all[2 * MOST];
	int rc = weir_group_allgather(t->g[i], mine, rank == 1 ? 16 : 8, all, PATIENT);

	return rc ? rc : weir_group_barrier(t->g[i], PATIENT);
}

static void
test_differ(void **state)
{
	uint32_t dead;
	struct team t;

	team_open(&t, 4, false);
	team_join(&t);
	team_run(&t, differ);
	for (uint32_t i = 0; i < t.size; i++) {
		assert_int_equal(t.result[i], -EINVAL);
		assert_int_equal(weir_group_barrier(t.g[i], PATIENT), -EINVAL);
		assert_int_equal(weir_group_failed(t.g[i], &dead, 1), 0);
	}
	team_close(&t);
}

/* ---- work while a member waits ---- */

#define WORK_MS 60000u /* after that it never comes */

/* The others enter a call when the function of the member with index 0 has run in it. */
static struct {
	struct weir_group *g; /* of that member */
	_Atomic unsigned runs;
	unsigned refused; /* runs whose collective calls were refused */
} idle;

static int
work(void *arg)
{
	uint32_t rank = weir_group_rank(idle.g), dead;
	struct weir_group *h;

	assert_ptr_equal(arg, &idle);
	idle.refused += weir_group_barrier(idle.g, 0) == -EBUSY &&
			strstr(weir_reason(), "_idle()") &&
			weir_group_subset(idle.g, &rank, 1, 0, &h) == -EBUSY &&
			weir_group_split_host(idle.g, 0, &h) == -EBUSY &&
			weir_group_survivors(idle.g, 0, &h) == -EBUSY && !h &&
			weir_group_failed(idle.g, &dead, 1) == 0;
	return atomic_fetch_add(&idle.runs, 1) % 2;
}

/* Before the call in which it is to run. */
static void
await_work(struct weir_group *g, bool waits)
{
	if (waits) {
		idle.g = g;
		idle.refused = 0;
		weir_group_idle(g, work, &idle);
	}
	for (unsigned ms = 0; !waits && !atomic_load(&idle.runs) && ms < WORK_MS; ms++)
		usleep(1000);
}

/* Behind that call, which all members have made. 0, or the line that fails. */
static int
work_done(struct weir_group *g, bool waits)
{
	unsigned runs = atomic_load(&idle.runs);

	if (!waits)
		return weir_group_barrier(g, PATIENT) ? __LINE__ : 0;
	if (!runs || idle.refused != runs)
		return __LINE__;
	weir_group_idle(idle.g, NULL, NULL);
	atomic_store(&idle.runs, 0);
	if (weir_group_barrier(g, PATIENT))
		return __LINE__;
	return atomic_load(&idle.runs) ? __LINE__ : 0;
}

static int
idle_calls(struct team *t, uint32_t i)
{
	struct weir_group *g = t->g[i], *h;
	uint32_t ranks[MOST], size = weir_group_size(g);
	uint64_t mine = i, all[MOST];
	int rc;

	for (uint32_t k = 0; k < size; k++)
		ranks[k] = k;
	await_work(g, !i);
	if (weir_group_allgather(g, &mine, sizeof(mine), all, PATIENT))
		return __LINE__;
	rc = work_done(g, !i);
	if (rc)
		return rc;
	/* while the members of a new group meet, the function of the old one runs, and not later */
	await_work(g, !i);
	if (weir_group_subset(g, ranks, size, PATIENT, &h))
		return __LINE__;
	rc = work_done(g, !i);
	if (rc)
		return rc;
	if (!i)
		weir_group_idle(g, work, &idle);
	if (all_calls(h) || (!i && atomic_load(&idle.runs)))
		return __LINE__;
	weir_group_leave(h);
	await_work(g, !i);
	if (weir_group_survivors(g, PATIENT, &h))
		return __LINE__;
	rc = work_done(h, !i);
	weir_group_leave(h);
	return rc;
}

static void
test_idle(void **state)
{
	team_of_one_node(3, idle_calls);
	team_of(4, idle_calls);
}

static int
never_done(void *arg)
{
	assert_true(++*(unsigned *)arg < 20000000);
	return 1;
}

/* A function that always has handled something does not keep a call from its end. */
static void
test_idle_ends(void **state)
{
	unsigned runs = 0;
	struct team t;

	team_open(&t, 2, true);
	team_join(&t);
	weir_group_idle(t.g[0], never_done, &runs);
	assert_int_equal(weir_group_barrier(t.g[0], 0), -EAGAIN);
	assert_int_equal(runs, 1);
	while (runs <= 10)
		assert_int_equal(weir_group_barrier(t.g[0], 50), -EAGAIN);
	weir_wake(t.w[0]);
	assert_int_equal(weir_group_barrier(t.g[0], PATIENT), -EINTR);
	team_close(&t);
}

#define TRIES 50u /* on a machine that keeps members from their CPUs */
#define WAIT_MS 1000

static _Atomic bool waits_inside, was_quick;

/* When the call that runs it is about to sleep. */
static int
wait_for_events(void *w)
{
	struct weir_event event;

	if (!weir_thread_get(w)->armed)
		return 0;
	atomic_store(&waits_inside, true);
	return weir_wait(w, &event, 1, 50) > 0;
}

static int
wait_within_waits(struct team *t, uint32_t i)
{
	uint32_t root, word;
	uint64_t begun;

	if (join(t, i) || weir_group_barrier(t->g[i], PATIENT))
		return __LINE__;
	root = i ? weir_group_rank(t->g[i]) : 1 - weir_group_rank(t->g[i]);
	if (!i) {
		plane_stop(t->f); /* no engine rings for anything else */
		weir_group_idle(t->g[i], wait_for_events, t->w[i]);
	}
	for (unsigned n = 0; n < TRIES && !atomic_load(&was_quick); n++) {
		for (unsigned ms = 0; i && !atomic_load(&waits_inside) && ms < WORK_MS; ms++)
			usleep(1000);
		atomic_store(&waits_inside, false);
		word = i ? n : ~0u;
		begun = weir_clock();
		if (weir_group_broadcast(t->g[i], root, &word, sizeof(word),
					 i ? PATIENT : WAIT_MS) ||
		    word != n)
			return __LINE__;
		/* one that slept on took the message at the end of its time */
		if (!i && weir_clock() - begun < WAIT_MS * 500000ull)
			atomic_store(&was_quick, true);
		if (weir_group_barrier(t->g[i], PATIENT))
			return __LINE__;
	}
	return atomic_load(&was_quick) ? 0 : __LINE__;
}

/* A wait inside the function takes the wake-up, and what ends the call: the call looks again. */
static void
test_idle_waits(void **state)
{
	struct team t;

	team_open(&t, 2, true);
	t.succeeds = true;
	team_run(&t, wait_within_waits); /* in the threads that join */
	assert_int_equal(t.result[0] | t.result[1], 0);
	team_close(&t);
}

static struct {
	struct weir_group *g; /* of two */
	_Atomic bool waits, hears;
} ending;

static int
await_end(void *arg)
{
	atomic_store(&ending.waits, true);
	for (unsigned ms = 0; !ending.hears && ms < WORK_MS; ms++) {
		ending.hears = group_has_failed(ending.g, 1 - weir_group_rank(ending.g));
		usleep(1000);
	}
	return 0;
}

static int
end_while_idle(struct team *t, uint32_t i)
{
	if (i) {
		while (!atomic_load(&ending.waits))
			usleep(1000);
		plane_die(t->f, t->w[i]);
		return 0;
	}
	ending.g = t->g[i];
	weir_group_idle(t->g[i], await_end, NULL);
	if (weir_group_barrier(t->g[i], PATIENT) != -ECONNRESET)
		return __LINE__;
	return atomic_load(&ending.hears) ? 0 : __LINE__;
}

/* The function hears of members that have ended while it runs. */
static void
test_idle_hears(void **state)
{
	team_of(2, end_while_idle);
}

/* ---- members that end ---- */

static int
go_on(struct team *t, uint32_t i)
{
	uint32_t dead[MOST], rank = weir_group_rank(t->g[i]);
	struct weir_group *h;
	int rc;

	if (rank == 2) {
		plane_die(t->f, t->w[i]);
		return 0;
	}
	do
		rc = weir_group_barrier(t->g[i], PATIENT);
	while (!rc);
	if (rc != -ECONNRESET || weir_group_failed(t->g[i], dead, MOST) != 1 || dead[0] != 2)
		return __LINE__;
	if (weir_group_survivors(t->g[i], PATIENT, &h))
		return __LINE__;
	if (weir_group_size(h) != t->size - 1 || weir_group_rank(h) != rank - (rank > 2))
		return __LINE__;
	rc = all_calls(h);
	weir_group_leave(h);
	return rc;
}

static void
test_death(void **state)
{
	team_of(6, go_on);
}

/* The lowest rank connects to all others: none connects to it, and so finds that it has ended. */
static int
miss(struct team *t, uint32_t i)
{
	static const uint32_t ranks[] = {0, 1, 2, 3};
	struct weir_group *h;

	if (!weir_group_rank(t->g[i])) {
		plane_die(t->f, t->w[i]);
		return 0;
	}
	if (weir_group_subset(t->g[i], ranks, 4, PATIENT, &h) != -ECONNRESET || h)
		return __LINE__;
	return strstr(weir_reason(), "member 0 has ended") ? 0 : __LINE__;
}

static void
test_absent(void **state)
{
	team_of(4, miss);
}

/* A member that leaves is missed when it is needed, by all. */
static int
need(struct team *t, uint32_t i)
{
	struct weir_event e;
	uint32_t dead = 9, word = 0;
	int rc = join(t, i);

	if (rc)
		return rc;
	if (weir_group_rank(t->g[i]) == 1) {
		weir_group_leave(t->g[i]);
		t->g[i] = NULL;
		return 0;
	}
	/* the thread that joined is told nothing of its connections */
	for (int k = 0; k < 200; k++) {
		if (weir_poll(t->w[i], &e, 1) > 0 && e.type != WEIR_EVENT_NODE)
			return __LINE__;
		usleep(1000);
	}
	/* members that only receive learn it, too */
	if (weir_group_broadcast(t->g[i], 1, &word, sizeof(word), 20000) != -ECONNRESET)
		return __LINE__;
	if (weir_group_barrier(t->g[i], PATIENT) != -ECONNRESET)
		return __LINE__;
	return weir_group_failed(t->g[i], &dead, 1) == 1 && dead == 1 ? 0 : __LINE__;
}

static void
test_leave(void **state)
{
	struct team t;

	team_open(&t, 5, false);
	team_run(&t, need);
	for (uint32_t i = 0; i < t.size; i++)
		assert_int_equal(t.result[i], 0);
	team_close(&t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_calls),      cmocka_unit_test(test_misuse),
	    cmocka_unit_test(test_parts),      cmocka_unit_test(test_continue),
	    cmocka_unit_test(test_differ),     cmocka_unit_test(test_death),
	    cmocka_unit_test(test_leave),      cmocka_unit_test(test_absent),
	    cmocka_unit_test(test_idle),       cmocka_unit_test(test_idle_ends),
	    cmocka_unit_test(test_idle_waits), cmocka_unit_test(test_idle_hears),
	};

	return cmocka_run_group_tests_name("group_calls", tests, NULL, NULL);
}
