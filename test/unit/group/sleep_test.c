/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a thread sleeps in a collective call that is not the one that joined: what comes for the
 * group wakes it, and what comes for its own connections.
 */
#include "team.h"

#include "client/guard.h"
#include "group/handle.h"

#include <stdatomic.h>

/* ---- sleeps: linked with --wrap=weir_guard_poll ---- */

#define SHORT_NS 1000000 /* ns; a nap, or the end of the wait is near */

static __thread bool counted;
/* Of the thread that is counted: all; short ones; those that nothing but their time has ended. */
static _Atomic uint32_t sleeps, naps, overslept;

int __real_weir_guard_poll(struct weir_guard *g, struct pollfd *fds, nfds_t n,
			   const struct timespec *ts);
int __wrap_weir_guard_poll(struct weir_guard *g, struct pollfd *fds, nfds_t n,
			   const struct timespec *ts);

int
__wrap_weir_guard_poll(struct weir_guard *g, struct pollfd *fds, nfds_t n,
		       const struct timespec *ts)
{
	bool counts = counted && ts && (ts->tv_sec || ts->tv_nsec);
	int rc;

	if (counts) {
		atomic_fetch_add(&naps, !ts->tv_sec && ts->tv_nsec <= SHORT_NS);
		atomic_fetch_add(&sleeps, 1);
	}
	rc = __real_weir_guard_poll(g, fds, n, ts);
	if (counts && !rc)
		atomic_fetch_add(&overslept, 1);
	return rc;
}

static int
counted_barrier(struct weir_group *g)
{
	int rc;

	counted = true;
	rc = weir_group_barrier(g, PATIENT);
	counted = false;
	return rc;
}

static void
await_sleep(void)
{
	while (!atomic_load(&sleeps))
		usleep(1000);
}

/* Two members on one node or two, whose group has all its connections. Their threads have ended. */
static void
team_ready(struct team *t, bool one_node)
{
	team_open(t, 2, one_node);
	team_join(t);
	t->succeeds = true;
	team_run(t, use);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(t->g[i]->unready, 0);
	atomic_store(&sleeps, 0);
	atomic_store(&naps, 0);
	atomic_store(&overslept, 0);
}

/* ---- for the group ---- */

static int
meet(struct team *t, uint32_t i)
{
	if (i)
		return weir_group_barrier(t->g[i], PATIENT) ? __LINE__ : 0;
	return counted_barrier(t->g[i]) ? __LINE__ : 0;
}

/* Each second the neighbours are told which call it is: it may wake for that, and just before. */
static void
test_no_naps(void **state)
{
	for (unsigned one_node = 0; one_node < 2; one_node++) {
		struct team t;
		uint64_t began;

		team_ready(&t, one_node);
		t.run = meet;
		began = weir_clock();
		team_start(&t, 0);
		await_sleep();
		usleep(300000);
		team_start(&t, 1);
		for (uint32_t i = 0; i < 2; i++) {
			pthread_join(t.thread[i], NULL);
			assert_int_equal(t.result[i], 0);
		}
		assert_in_range(naps, 0, 2 + 2 * (weir_clock() - began) / 1000000000u);
		team_close(&t);
	}
}

/* ---- for the thread's own connections ---- */

#define LARGE (2u << 20) /* more than a segment has room for */

/* Sends, then waits for the group. The rest of the message leaves while it does. */
static int
send_and_meet(struct team *t, uint32_t i)
{
	struct weir_address a;
	struct weir_conn *c;
	uint8_t *m;
	int rc;

	if (weir_address_parse("node:0:svc", &a))
		return __LINE__;
	while ((rc = weir_connect(t->w[i], &a, PATIENT, &c)) == -ECONNREFUSED)
		usleep(1000);
	if (rc)
		return __LINE__;
	m = make_message(5, LARGE);
	rc = weir_send(c, m, LARGE, 0);
	free(m);
	if (rc || c->worker == t->g[i]->endpoint->worker || counted_barrier(t->g[i]))
		return __LINE__;
	weir_close(c);
	return 0;
}

static int
receive_and_meet(struct team *t, uint32_t i)
{
	struct weir_listener *l;
	struct weir_conn *d;
	uint8_t *in = malloc(LARGE);
	size_t length;

	if (!in || weir_listen(t->w[i], "svc", 0, &l) || weir_accept(l, PATIENT, &d))
		return __LINE__;
	await_sleep();
	if (weir_recv(d, in, LARGE, &length, PATIENT) || length != LARGE)
		return __LINE__;
	check_message(in, 5, LARGE);
	free(in);
	if (weir_group_barrier(t->g[i], PATIENT))
		return __LINE__;
	weir_close(d);
	weir_listener_close(l);
	return 0;
}

static int
pass_and_meet(struct team *t, uint32_t i)
{
	return i ? receive_and_meet(t, i) : send_and_meet(t, i);
}

/*
 * Room for the next piece wakes the sender. A machine that stands still while it sleeps gets more
 * tries; without a wake-up each piece waits for the end of a sleep.
 */
static void
test_own_connections(void **state)
{
	unsigned tries = 0;
	struct team t;

	do {
		team_ready(&t, true);
		team_run(&t, pass_and_meet);
		for (uint32_t i = 0; i < 2; i++)
			assert_int_equal(t.result[i], 0);
		team_close(&t);
	} while (overslept && ++tries < 5);
	assert_int_equal(overslept, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_no_naps),
	    cmocka_unit_test(test_own_connections),
	};

	return cmocka_run_group_tests_name("group_sleep", tests, NULL, NULL);
}
