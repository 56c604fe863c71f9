/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles of operations and marks, between two nodes, apart and mapped: when they end, waiting for
 * one, any and all, sleeping, how they end with the export.
 */
#include "places.h"

#include "remote/revoke.h"

#include <pthread.h>
#include <stdatomic.h>

static uint8_t bytes[8192], got[8192];

static struct weir_transfer
transfer(struct weir_op *op, unsigned flags, size_t length)
{
	return (struct weir_transfer){.buf = bytes, .length = length, .op = op, .flags = flags};
}

/* A put whose buffer was copied has ended; at the target it has not before it took effect. */
static void
test_end(void **state)
{
	struct weir_update u = {
	    .operand = bytes, .count = 1, .type = WEIR_T_UINT64, .op = WEIR_ACC_SUM};

	memset(bytes, 0x11, sizeof(bytes));
	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);
		struct weir_op copied, put, kept, read, updated, fetched;
		struct weir_transfer t;
		struct weir_mark before, after, results;
		bool mapped = i == MAPPED;

		memory_flush(&m);
		weir_remote_mark(m.r, &before);
		assert_int_equal(weir_mark_done(&before), 1);
		plane_hold(m.f, true);
		t = transfer(&copied, 0, 100);
		assert_int_equal(weir_remote_put_with(m.r, &t), 0);
		t = transfer(&kept, WEIR_KEEP, 100);
		assert_int_equal(weir_remote_put_with(m.r, &t), 0);
		t = transfer(&put, WEIR_AT_TARGET, 100);
		assert_int_equal(weir_remote_put_with(m.r, &t), 0);
		u.handle = &updated;
		u.flags = WEIR_AT_TARGET;
		assert_int_equal(weir_remote_update(m.r, &u), 0);
		weir_remote_mark(m.r, &after);
		t = transfer(&read, 0, 100);
		t.buf = got;
		memset(got, 0, sizeof(got));
		assert_int_equal(weir_remote_get_with(m.r, &t), 0);
		u.handle = &fetched;
		u.flags = 0;
		u.result = got + 1000;
		assert_int_equal(weir_remote_update(m.r, &u), 0);
		u.result = NULL;
		weir_remote_mark(m.r, &results);
		for (unsigned k = 0; k < 10; k++) {
			assert_int_equal(weir_op_test(&copied), 1);
			assert_int_equal(weir_op_test(&kept), mapped);
			assert_int_equal(weir_op_test(&put), mapped);
			assert_int_equal(weir_op_test(&updated), mapped);
			assert_int_equal(weir_op_test(&read), mapped);
			assert_int_equal(weir_op_test(&fetched), mapped);
			assert_int_equal(weir_mark_done(&before), 1);
			assert_int_equal(weir_mark_done(&after), mapped);
			assert_int_equal(weir_mark_done(&results), mapped);
		}
		assert_int_equal(weir_op_wait(&put, 0), mapped ? 0 : -EAGAIN);
		plane_hold(m.f, false);
		while (!weir_mark_done(&results))
			;
		assert_int_equal(weir_mark_done(&after), 1);
		assert_memory_equal(got + 8, bytes + 8, 92);
		assert_int_equal(got[1000], 0x22);
		assert_int_equal(weir_op_wait(&fetched, PATIENT), 0);
		assert_int_equal(weir_op_wait(&read, PATIENT), 0);
		assert_int_equal(weir_op_wait(&put, PATIENT), 0);
		assert_int_equal(weir_op_wait(&kept, 0), 0);
		assert_int_equal(weir_op_wait(&updated, 0), 0);
		assert_int_equal(updated.status, 0);
		assert_int_equal(m.base[99], 0x11);
		memory_close(&m);
	}
}

/* Each handle is reported once by wait_any; NULL, unused and reported ones are skipped. */
static void
test_any(void **state)
{
	for (unsigned i = 0; i < PLACES; i++) {
		struct memory m = memory_open(i);
		struct weir_remote *other;
		struct weir_op op[10], unused = {0}, *ops[12];
		unsigned seen = 0;
		int k;

		assert_int_equal(weir_remote_open(m.a, &m.key, ALL, 0, PATIENT, &other), 0);
		for (unsigned n = 0; n < 12; n++)
			ops[n] = n < 10 ? &op[n] : n == 10 ? NULL : &unused;
		for (unsigned round = 0; round < 50; round++) {
			for (unsigned n = 0; n < 10; n++) {
				struct weir_transfer t = transfer(&op[n], WEIR_AT_TARGET, n * 700);

				t.buf = n % 2 ? bytes : got;
				assert_int_equal(
				    n % 2 ? weir_remote_put_with(n % 3 ? m.r : other, &t)
					  : weir_remote_get_with(n % 3 ? m.r : other, &t),
				    0);
			}
			for (seen = 0; (k = weir_op_wait_any(ops, 12, PATIENT)) >= 0;
			     seen |= 1u << k) {
				assert_true(k < 10 && !(seen & 1u << k));
				assert_int_equal(op[k].status, 0);
			}
			assert_int_equal(k, -ENOENT);
			assert_int_equal(seen, 1023);
			assert_int_equal(weir_op_wait_all(ops, 12, 0), 0);
		}
		assert_int_equal(weir_op_wait_any(ops, 0, PATIENT), -ENOENT);
		assert_int_equal(weir_op_wait_all(ops, 0, PATIENT), 0);
		assert_int_equal(weir_op_test(&unused), 1);
		weir_remote_close(other);
		memory_close(&m);
	}
}

static atomic_bool held, ended;

static void *
wait_asleep(void *arg)
{
	struct memory *m = arg;
	struct weir_op op[3], *ops[] = {&op[0], &op[1], &op[2]};
	int rc = 0;

	for (unsigned k = 0; k < 3 && !rc; k++) {
		struct weir_transfer t = transfer(&op[k], WEIR_AT_TARGET, 8);

		rc = weir_remote_put_with(m->r, &t);
	}
	if (!rc) /* its connection is open now, and the first ones may take effect */
		rc = weir_op_wait_all(ops, 3, PATIENT);
	plane_hold(m->f, true);
	held = true;
	for (unsigned k = 0; k < 3 && !rc; k++) {
		struct weir_transfer t = transfer(&op[k], WEIR_AT_TARGET, 8);

		rc = weir_remote_put_with(m->r, &t);
	}
	if (!rc)
		rc = weir_op_wait_all(ops, 3, PATIENT);
	ended = true;
	return (void *)(intptr_t)rc;
}

/* Whether a thread of the program sleeps. */
static bool
sleeps(struct weir *w)
{
	for (uint32_t i = 0; i < w->geometry.channels; i++) {
		const struct weir_channel_head *h =
		    (const void *)(w->arena + weir_arena_channel(&w->geometry, i));

		if (atomic_load(&h->rx_sleeping) & WEIR_SLEEPS)
			return true;
	}
	return false;
}

/* A waiter sleeps until DONE rings. */
static void
test_sleep(void **state)
{
	for (unsigned i = 0; i < MAPPED; i++) {
		struct memory m = memory_open(i);
		pthread_t t;
		void *rc;

		held = ended = false;
		assert_int_equal(pthread_create(&t, NULL, wait_asleep, &m), 0);
		while (!ended && (!held || !sleeps(m.a)))
			weir_sleep(100000);
		if (ended) {
			pthread_join(t, &rc);
			fail_msg("it waited for nothing: %d", (int)(intptr_t)rc);
		}
		plane_hold(m.f, false);
		pthread_join(t, &rc);
		assert_int_equal((int)(intptr_t)rc, 0);
		memory_close(&m);
	}
}

/* Operations that did not take effect end with the cause, each, and so does a flush. */
static void
test_ends(void **state)
{
	for (unsigned i = 0; i < MAPPED; i++) {
		struct memory m = memory_open(i);
		struct weir_op op[4], *ops[] = {&op[0], &op[1], &op[2], &op[3]};
		struct weir_transfer t;
		struct weir_mark mark;
		int k;

		memory_flush(&m);
		plane_hold(m.f, true);
		for (unsigned n = 0; n < 4; n++) {
			t = transfer(&op[n], WEIR_AT_TARGET, 100);
			t.buf = n % 2 ? bytes : got;
			assert_int_equal(n % 2 ? weir_remote_put_with(m.r, &t)
					       : weir_remote_get_with(m.r, &t),
					 0);
		}
		weir_remote_mark(m.r, &mark);
		k = weir_export_revoke(m.x, 0); /* the peer's engine is held */
		assert_true(k == 0 || k == -EAGAIN);
		plane_hold(m.f, false);
		expect(weir_op_wait(&op[0], PATIENT), -ESTALE);
		assert_int_equal(op[0].status, -ESTALE);
		assert_int_equal(weir_op_test(&op[0]), 1);
		k = weir_op_wait_any(ops, 4, PATIENT);
		assert_true(k > 0 && op[k].status == -ESTALE);
		assert_int_equal(weir_op_wait_all(ops, 4, PATIENT), -ESTALE);
		for (unsigned n = 0; n < 4; n++)
			assert_int_equal(op[n].status, -ESTALE);
		assert_int_equal(weir_mark_done(&mark), 0);
		expect(weir_remote_flush(m.r, PATIENT), -ESTALE);
		t = transfer(&op[0], WEIR_AT_TARGET, 100);
		expect(weir_remote_put_with(m.r, &t), -ESTALE);
		assert_int_equal(weir_op_test(&op[0]), 1);
		memory_close(&m);
	}
}

/* The program with the memory dies: each operation has taken effect, or says so. */
static void
test_death(void **state)
{
	for (unsigned i = 0; i < MAPPED; i++) {
		struct memory m = memory_open(i);
		struct weir_transfer t;
		struct weir_op op;
		int rc;

		memory_flush(&m);
		plane_die(m.f, m.b);
		do {
			t = transfer(&op, WEIR_AT_TARGET, 100);
			rc = weir_remote_put_with(m.r, &t);
			if (!rc)
				rc = weir_op_wait(&op, PATIENT);
		} while (!rc);
		expect(rc, -ECONNRESET);
		memory_close(&m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_end),	 cmocka_unit_test(test_any),   cmocka_unit_test(test_sleep),
	    cmocka_unit_test(test_ends), cmocka_unit_test(test_death),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
