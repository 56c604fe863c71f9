/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices and signals from the public calls down to the engines, between two nodes, apart and
 * mapped: order, windows, waiting and waking, events, threads, revoked exports, misuse, ends.
 */
#include "places.h"

#include "remote/notice.h"

#include <pthread.h>
#include <stdatomic.h>

#define FIRST 8u
#define COUNT 3000u
#define SLEEP_MS 20000u /* within which a thread that has nothing sleeps */

static int
signal_to(struct weir_remote *r, uint32_t options, uint64_t offset, uint64_t operand)
{
	struct weir_cell_notice n = {
	    .handle = WEIR_HANDLE_FIRST, .options = options, .signal = offset, .operand = operand};

	return weir_notice_begin(r, &n, 0);
}

static void *
send_all(void *arg)
{
	struct memory *m = arg;
	uint64_t value = 0;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < COUNT; i++) {
		value = i + 1;
		rc = weir_remote_put(m->r, i % 512 * 8, &value, sizeof(value), 0);
		if (!rc)
			rc = weir_remote_notify(m->r, i, ~i, 0);
	}
	if (!rc)
		rc = weir_remote_flush(m->r, PATIENT);
	return (void *)(intptr_t)rc;
}

/* Each comes once, behind its put, however slow the receiver is; the sender waits for its window.
 */
static void
test_order(void **state)
{
	for (unsigned i = 0; i < 2 * PLACES; i++) {
		struct memory m = memory_open_with(
		    i % PLACES, &(struct plane_options){.engines = 1 + i / PLACES});
		struct weir_notice n;
		pthread_t t;
		uint64_t is;
		void *rc;

		assert_int_equal(weir_notice_next(m.b, &n, 0), -EAGAIN);
		assert_int_equal(pthread_create(&t, NULL, send_all, &m), 0);
		for (uint32_t k = 0; k < COUNT; k++) {
			assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
			assert_ptr_equal(n.x, m.x);
			assert_int_equal(n.tag, k);
			assert_int_equal(n.source, ~k);
			assert_int_equal(n.bytes, 0);
			is = __atomic_load_n((uint64_t *)(void *)(m.base + k % 512 * 8),
					     __ATOMIC_RELAXED);
			assert_true(is > k);
		}
		pthread_join(t, &rc);
		assert_int_equal((int)(intptr_t)rc, 0);
		assert_int_equal(weir_notice_next(m.b, &n, 0), -EAGAIN);
		memory_close(&m);
	}
}

/* Without waiting the window is the limit; taking notices returns it. */
static void
test_window(void **state)
{
	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);
		struct weir_notice n;
		uint32_t sent = 0;
		int rc;

		while (!(rc = weir_remote_notify(m.r, sent, 0, WEIR_NOWAIT)))
			sent++;
		assert_int_equal(rc, -EAGAIN);
		assert_int_equal(sent, FIRST);
		/* neither puts nor signals use it */
		assert_int_equal(weir_remote_put(m.r, 0, &sent, 4, 0), 0);
		assert_int_equal(signal_to(m.r, WEIR_NOTICE_SET, 8, 1), 0);
		assert_int_equal(weir_remote_flush(m.r, PATIENT), 0);
		assert_int_equal(weir_remote_notify(m.r, sent, 0, WEIR_NOWAIT), -EAGAIN);
		for (uint32_t k = 0; k < FIRST; k++) {
			assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
			assert_int_equal(n.tag, k);
		}
		/* which comes back while the receiver does nothing more */
		assert_int_equal(weir_remote_notify(m.r, FIRST, 0, 0), 0);
		assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
		assert_int_equal(n.tag, FIRST);
		memory_close(&m);
	}
}

static void
test_event(void **state)
{
	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);
		struct weir_event e[4];
		struct weir_notice n;

		assert_int_equal(weir_poll(m.b, e, 4), 0);
		for (unsigned round = 0; round < 3; round++) {
			assert_int_equal(weir_remote_notify(m.r, 1, 2, 0), 0);
			assert_int_equal(weir_remote_notify(m.r, 1, 3, 0), 0);
			assert_int_equal(weir_wait(m.b, e, 4, PATIENT), 1);
			assert_int_equal(e[0].type, WEIR_EVENT_NOTICE);
			assert_int_equal(weir_remote_flush(m.r, PATIENT), 0);
			assert_int_equal(weir_poll(m.b, e, 4), 0); /* reported once */
			assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
			assert_int_equal(weir_poll(m.b, e, 4), 0);
			assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
			assert_int_equal(n.source, 3);
		}
		/* a program that sleeps on its descriptor sees one that is there */
		assert_int_equal(weir_remote_notify(m.r, 1, 2, 0), 0);
		assert_int_equal(weir_remote_flush(m.r, PATIENT), 0);
		while (!weir_arm(m.b))
			;
		assert_int_equal(weir_poll(m.b, e, 4), 1);
		assert_int_equal(weir_notice_next(m.b, &n, 0), 0);
		memory_close(&m);
	}
}

/* While the engine takes no windows back, notices stay: an event says that they are still there. */
static void
test_windows_stay(void **state)
{
	struct memory m = memory_open(APART);
	struct weir_remote *r[6 * WEIR_RELEASES];
	uint32_t opened = sizeof(r) / sizeof(r[0]), sent = opened * FIRST, taken = 0;
	struct weir_event e;
	struct weir_notice n;
	int rc;

	for (uint32_t i = 0; i < opened; i++)
		assert_int_equal(weir_remote_open(m.a, &m.key, ALL, 0, PATIENT, &r[i]), 0);
	/* a slot returns the windows of WEIR_RELEASES connections */
	for (uint32_t i = 0; i < sent; i++)
		assert_int_equal(weir_remote_notify(r[i % opened], i, 0, 0), 0);
	for (uint32_t i = 0; i < opened; i++)
		assert_int_equal(weir_remote_flush(r[i], PATIENT), 0);
	assert_int_equal(weir_wait(m.b, &e, 1, PATIENT), 1);
	assert_int_equal(e.type, WEIR_EVENT_NOTICE);
	plane_hold(m.f, true);
	while (!(rc = weir_notice_next(m.b, &n, 0)))
		assert_int_equal(n.tag, taken++);
	assert_int_equal(rc, -EAGAIN);
	assert_true(taken < sent);
	plane_hold(m.f, false);
	while (taken < sent) {
		assert_int_equal(weir_wait(m.b, &e, 1, SLEEP_MS), 1);
		assert_int_equal(e.type, WEIR_EVENT_NOTICE);
		while (!weir_notice_next(m.b, &n, 0))
			assert_int_equal(n.tag, taken++);
	}
	assert_int_equal(weir_poll(m.b, &e, 1), 0);
	for (uint32_t i = 0; i < opened; i++)
		weir_remote_close(r[i]);
	memory_close(&m);
}

/* ---- signals ---- */

struct waiter {
	struct memory *m;
	uint64_t offset, value, seen;
	enum weir_compare compare;
	int timeout_ms, rc;
};

static void *
wait_signal(void *arg)
{
	struct waiter *s = arg;

	s->rc = weir_signal_wait(s->m->x, s->offset, s->compare, s->value, s->timeout_ms, &s->seen);
	return NULL;
}

/* Whether a thread of the program sleeps for signals. */
static bool
sleeps(struct weir *w)
{
	const struct weir_channel_head *h;

	for (uint32_t i = 0; i < w->geometry.channels; i++) {
		h = (const void *)(w->arena + weir_arena_channel(&w->geometry, i));
		if (atomic_load(&h->rx_sleeping) & WEIR_SLEEPS_SIGNALS)
			return true;
	}
	return false;
}

static void
await_sleep(struct weir *w)
{
	for (unsigned i = 0; i < SLEEP_MS && !sleeps(w); i++)
		weir_sleep(1000000);
	assert_true(sleeps(w));
}

/* A sleeper raises its flag, and wakes by a signal, an update, a store. */
static void
test_signal(void **state)
{
	for (unsigned i = 0; i < 4 * PLACES; i++) {
		struct memory m =
		    memory_open_with(i % PLACES, &(struct plane_options){.engines = 1 + i % 2});
		struct waiter s = {
		    .m = &m, .offset = 64, .compare = WEIR_GE, .value = 5, .timeout_ms = PATIENT};
		uint64_t five = 5;
		pthread_t t;

		assert_int_equal(pthread_create(&t, NULL, wait_signal, &s), 0);
		await_sleep(m.b);
		/* not enough */
		assert_int_equal(signal_to(m.r, WEIR_NOTICE_ADD, 64, 4), 0);
		assert_int_equal(weir_remote_flush(m.r, PATIENT), 0);
		await_sleep(m.b);
		if (i / PLACES == 0)
			assert_int_equal(signal_to(m.r, WEIR_NOTICE_ADD, 64, 1), 0);
		else if (i / PLACES == 1)
			assert_int_equal(signal_to(m.r, WEIR_NOTICE_SET, 64, 5), 0);
		else if (i / PLACES == 2)
			assert_int_equal(weir_remote_compare_swap(m.r, 64, &(uint64_t){4}, &five,
								  &five, WEIR_T_UINT64, 0),
					 0);
		else
			assert_int_equal(weir_remote_put(m.r, 64, &five, 8, 0), 0);
		pthread_join(t, NULL);
		assert_int_equal(s.rc, 0);
		assert_int_equal(s.seen, 5);
		assert_false(sleeps(m.b));
		assert_int_equal(weir_remote_flush(m.r, PATIENT), 0);
		memory_close(&m);
	}
}

static void
test_compare(void **state)
{
	static const struct {
		enum weir_compare compare;
		bool less, equal, more;
	} all[] = {{WEIR_EQ, false, true, false}, {WEIR_NE, true, false, true},
		   {WEIR_GT, false, false, true}, {WEIR_GE, false, true, true},
		   {WEIR_LT, true, false, false}, {WEIR_LE, true, true, false}};
	struct memory m = memory_open(APART);
	uint64_t big = 1ull << 63, seen = 0;

	memcpy(m.base + 8, &big, 8);
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		assert_int_equal(weir_signal_wait(m.x, 8, all[i].compare, big + 1, 0, NULL),
				 all[i].less ? 0 : -EAGAIN);
		assert_int_equal(weir_signal_wait(m.x, 8, all[i].compare, big, 0, &seen),
				 all[i].equal ? 0 : -EAGAIN);
		assert_int_equal(weir_signal_wait(m.x, 8, all[i].compare, big - 1, 0, NULL),
				 all[i].more ? 0 : -EAGAIN);
	}
	assert_true(seen == big);
	/* it gives up in time */
	expect(weir_signal_wait(m.x, 8, WEIR_EQ, 1, 30, NULL), -EAGAIN);
	memory_close(&m);
}

/* ---- many threads ---- */

#define THREADS 3u
#define EACH 400u

struct job {
	struct memory *m;
	uint32_t number;
	struct weir_export *x;
	struct weir_key key;
	struct weir_remote *r;
	_Atomic uint32_t *step;
	int rc;
};

/* Exports, takes what is for it; others do the same. */
static void *
take_own(void *arg)
{
	struct job *j = arg;
	struct weir_notice n;

	j->rc = weir_export(j->m->region, j->number * 4096, 4096, ALL, &j->x, &j->key);
	atomic_fetch_add(j->step, 1);
	for (uint32_t k = 0; !j->rc && k < EACH; k++) {
		j->rc = weir_notice_next(j->m->b, &n, PATIENT);
		if (!j->rc && (n.x != j->x || n.tag != k || n.source != j->number))
			j->rc = -EBADMSG;
	}
	return NULL;
}

static void *
send_one(void *arg)
{
	struct job *j = arg;

	for (uint32_t k = 0; !j->rc && k < EACH; k++)
		j->rc = weir_remote_notify(j->r, k, j->number, 0);
	for (uint32_t k = 0; !j->rc && k < EACH; k++)
		j->rc = signal_to(j->m->r, WEIR_NOTICE_ADD, 16, 1);
	if (!j->rc)
		j->rc = weir_remote_flush(j->m->r, PATIENT);
	return NULL;
}

/* Notices go to the thread that exported; signals of many threads add up. */
static void
test_threads(void **state)
{
	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open_with(i, &(struct plane_options){.engines = 2});
		struct job take[THREADS], send[THREADS];
		pthread_t t[2 * THREADS];
		_Atomic uint32_t step = 0;
		uint64_t seen;

		for (uint32_t k = 0; k < THREADS; k++) {
			take[k] = (struct job){.m = &m, .number = 1 + k, .step = &step};
			pthread_create(&t[k], NULL, take_own, &take[k]);
		}
		while (atomic_load(&step) < THREADS)
			sched_yield();
		for (uint32_t k = 0; k < THREADS; k++) {
			send[k] = (struct job){.m = &m, .number = 1 + k};
			assert_int_equal(weir_remote_open(m.a, &take[k].key, WEIR_MAY_NOTIFY, 0,
							  PATIENT, &send[k].r),
					 0);
			pthread_create(&t[THREADS + k], NULL, send_one, &send[k]);
		}
		assert_int_equal(weir_signal_wait(m.x, 16, WEIR_EQ, THREADS * EACH, PATIENT, &seen),
				 0);
		for (uint32_t k = 0; k < 2 * THREADS; k++)
			pthread_join(t[k], NULL);
		for (uint32_t k = 0; k < THREADS; k++) {
			assert_int_equal(take[k].rc, 0);
			assert_int_equal(send[k].rc, 0);
			weir_remote_close(send[k].r);
		}
		memory_close(&m);
	}
}

/* ---- ends ---- */

/* Of an export that was revoked no notice is seen; those of others stay. */
static void
test_revoke(void **state)
{
	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);
		struct weir_remote *other;
		struct weir_export *x;
		struct weir_notice n;
		struct weir_key key;

		assert_int_equal(weir_export(m.region, 4096, 64, ALL, &x, &key), 0);
		assert_int_equal(weir_remote_open(m.a, &key, ALL, 0, PATIENT, &other), 0);
		assert_int_equal(weir_remote_notify(m.r, 1, 0, 0), 0);
		assert_int_equal(weir_remote_notify(m.r, 2, 0, 0), 0);
		assert_int_equal(weir_remote_flush(m.r, PATIENT), 0);
		assert_int_equal(weir_remote_notify(other, 3, 0, 0), 0);
		assert_int_equal(weir_remote_flush(other, PATIENT), 0);
		assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
		assert_int_equal(n.tag, 1);
		assert_int_equal(weir_revoke(m.x), 0);
		/* another export of that number gets nothing of the former one */
		assert_int_equal(weir_export(m.region, 0, BYTES, ALL, &m.x, &m.key), 0);
		assert_int_equal(weir_notice_next(m.b, &n, PATIENT), 0);
		assert_ptr_equal(n.x, x);
		assert_int_equal(n.tag, 3);
		assert_int_equal(weir_notice_next(m.b, &n, 0), -EAGAIN);
		weir_remote_close(other);
		memory_close(&m);
	}
}

static atomic_bool begun; /* the thread's connection is open */

static void *
notify_until(void *arg)
{
	struct memory *m = arg;
	int rc;

	while (!(rc = weir_remote_notify(m->r, 0, 0, 0)))
		atomic_store(&begun, true);
	atomic_store(&begun, true);
	return (void *)(intptr_t)rc;
}

/* A sender that waits for its window learns how the export ended. */
static void
test_ends(void **state)
{
	for (unsigned i = 0; i < 2 * PLACES; i++) {
		struct memory m = memory_open(i / 2);
		pthread_t t;
		void *rc;

		atomic_store(&begun, false);
		assert_int_equal(pthread_create(&t, NULL, notify_until, &m), 0);
		while (!atomic_load(&begun))
			weir_sleep(1000000);
		weir_sleep(5000000);
		if (i % 2)
			plane_die(m.f, m.b);
		else
			assert_int_equal(weir_revoke(m.x), 0);
		pthread_join(t, &rc);
		assert_int_equal((int)(intptr_t)rc, i % 2 ? -ECONNRESET : -ESTALE);
		memory_close(&m);
	}
}

static void
test_refused(void **state)
{
	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);
		struct waiter s = {
		    .m = &m, .offset = 8, .compare = WEIR_EQ, .value = 1, .timeout_ms = PATIENT};
		struct weir_remote *other;
		struct weir_notice n;
		struct weir_export *x;
		struct weir_key key;
		pthread_t t;

		assert_int_equal(weir_remote_open(m.a, &m.key, WEIR_MAY_READ, 0, PATIENT, &other),
				 0);
		expect(weir_remote_notify(other, 1, 1, 0), -EACCES);
		expect(weir_remote_notify(m.r, 1, 1, 0x10), -EINVAL);
		expect(signal_to(m.r, WEIR_NOTICE_SET, BYTES, 1), -ERANGE);
		expect(signal_to(m.r, WEIR_NOTICE_SET, -8ull, 1), -ERANGE);
		expect(signal_to(m.r, WEIR_NOTICE_SET, 4, 1), -EINVAL);
		expect(weir_notice_next(m.b, NULL, 0), -EINVAL);
		expect(weir_notice_next(NULL, &n, 0), -EINVAL);
		expect(weir_signal_wait(NULL, 0, WEIR_EQ, 0, 0, NULL), -EINVAL);
		expect(weir_signal_wait(m.x, 0, (enum weir_compare)6, 0, 0, NULL), -EINVAL);
		expect(weir_signal_wait(m.x, 4, WEIR_EQ, 0, 0, NULL), -EINVAL);
		expect(weir_signal_wait(m.x, BYTES - 7, WEIR_EQ, 0, 0, NULL), -ERANGE);
		expect(weir_signal_wait(m.x, UINT64_MAX - 3, WEIR_EQ, 0, 0, NULL), -ERANGE);
		expect(weir_export(m.region, 8, 64, WEIR_MAY_NOTIFY, &x, &key), -EINVAL);
		/* a key without the right */
		assert_int_equal(weir_export(m.region, 8, 64, WEIR_MAY_READ, &x, &key), 0);
		weir_remote_close(other);
		expect(weir_remote_open(m.a, &key, WEIR_MAY_NOTIFY, 0, PATIENT, &other), -EACCES);
		/* memory that a thread waits on stays */
		assert_int_equal(pthread_create(&t, NULL, wait_signal, &s), 0);
		await_sleep(m.b);
		expect(weir_region_free(m.region), -EBUSY);
		assert_int_equal(signal_to(m.r, WEIR_NOTICE_SET, 8, 1), 0);
		pthread_join(t, NULL);
		assert_int_equal(s.rc, 0);
		assert_int_equal(weir_region_free(m.region), 0);
		expect(weir_signal_wait(m.x, 0, WEIR_EQ, 0, 0, NULL), -ESTALE);
		memory_close(&m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_order),   cmocka_unit_test(test_window),
	    cmocka_unit_test(test_event),   cmocka_unit_test(test_windows_stay),
	    cmocka_unit_test(test_signal),  cmocka_unit_test(test_compare),
	    cmocka_unit_test(test_threads), cmocka_unit_test(test_revoke),
	    cmocka_unit_test(test_ends),    cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
