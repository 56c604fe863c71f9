/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks from the public calls down to the engines, between two nodes, apart and mapped, with one
 * engine and with several, of which any may be the owner: exclusion, order, waiting and waking,
 * time-outs, deaths, revoked exports, misuse.
 */
#define ALL (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY | WEIR_MAY_LOCK)
#include "places.h"

#include <pthread.h>
#include <stdatomic.h>

#define SHARED WEIR_LOCK_SHARED
#define EXCLUSIVE WEIR_LOCK_EXCLUSIVE

/* way: the place; with a second engine; which of the exports. */
#define WAYS (PLACES * 2 * 2)

/* a and c open what b exports. */
static struct memory
way_open(unsigned way)
{
	struct plane_options o = {.engines = 1 + way / PLACES % 2, .watched = true};
	enum place place = way % PLACES;
	unsigned rights = ALL | (place == MAPPED ? WEIR_MAY_MAP : 0);
	struct memory m = memory_make(place, &o, rights);

	m.c = plane_attach(m.f);
	if (way / PLACES / 2)
		memory_export(&m, rights);
	m.r = open_key(&m, ALL);
	assert_int_equal(weir_remote_open(m.c, &m.key, ALL, 0, PATIENT, &m.rc), 0);
	return m;
}

/* ---- another thread that locks ---- */

struct locker {
	struct weir_remote *r;
	int kind, timeout_ms, rc;
	_Atomic bool began, got;
	_Atomic int go; /* 1: it unlocks; 2: its thread ends with the lock */
	pthread_t t;
};

static void *
lock_one(void *arg)
{
	struct locker *k = arg;

	atomic_store(&k->began, true);
	k->rc = weir_remote_lock(k->r, k->kind, k->timeout_ms);
	atomic_store(&k->got, true);
	while (!atomic_load(&k->go))
		weir_sleep(100000);
	if (atomic_load(&k->go) == 1 && (!k->rc || k->rc == -EOWNERDEAD) &&
	    weir_remote_unlock(k->r, PATIENT))
		k->rc = -EBADMSG;
	return NULL;
}

static void
locker_start(struct locker *k, struct weir_remote *r, int kind, int timeout_ms)
{
	*k = (struct locker){.r = r, .kind = kind, .timeout_ms = timeout_ms};
	assert_int_equal(pthread_create(&k->t, NULL, lock_one, k), 0);
	while (!atomic_load(&k->began))
		sched_yield();
}

/* It asks, and waits as the n-th. */
static void
locker_queue(struct locker *k, const struct memory *m, struct weir_remote *r, int kind, uint32_t n)
{
	locker_start(k, r, kind, PATIENT);
	for (unsigned i = 0; i < PATIENT && plane_lock_waiters(m->f, m->b, m->number) < n; i++)
		weir_sleep(1000000);
	assert_int_equal(plane_lock_waiters(m->f, m->b, m->number), n);
}

static bool
locker_waits(struct locker *k)
{
	weir_sleep(20000000);
	return !atomic_load(&k->got);
}

static void
locker_await(struct locker *k)
{
	for (unsigned i = 0; i < PATIENT && !atomic_load(&k->got); i++)
		weir_sleep(1000000);
	assert_true(atomic_load(&k->got));
}

static int
locker_end(struct locker *k, int how)
{
	atomic_store(&k->go, how);
	pthread_join(k->t, NULL);
	return k->rc;
}

/* ---- exclusion ---- */

#define THREADS 4u
#define EACH 150u

struct job {
	struct weir_remote *r;
	unsigned seed;
	_Atomic uint32_t *readers;
	int rc;
};

/* Adds to two words as only an exclusive holder may; readers see both alike. */
static void *
contend(void *arg)
{
	struct job *j = arg;
	uint64_t is[2];

	for (unsigned i = 0; i < EACH && !j->rc; i++) {
		int kind = (i * 7 + j->seed) % 3 ? EXCLUSIVE : SHARED;

		j->rc = weir_remote_lock(j->r, kind, PATIENT);
		/* word by word: ThreadSanitizer does not see the order by another mapping */
		for (unsigned k = 0; k < 2 && !j->rc; k++)
			j->rc = weir_remote_get(j->r, 4096 + 8 * k, &is[k], 8, 0);
		if (!j->rc)
			j->rc = weir_remote_flush(j->r, PATIENT);
		if (!j->rc && is[0] != is[1])
			j->rc = -EBADMSG;
		is[0]++;
		for (unsigned k = 0; k < 2 && !j->rc && kind == EXCLUSIVE; k++)
			j->rc = weir_remote_put(j->r, 4096 + 8 * k, is, 8, 0);
		if (!j->rc)
			j->rc = weir_remote_unlock(j->r, PATIENT);
	}
	return NULL;
}

static void
test_exclusion(void **state)
{
	for (unsigned i = 0; i < WAYS; i++) {
		struct memory m = way_open(i);
		struct job j[THREADS];
		pthread_t t[THREADS];
		uint64_t is, want = 0;

		for (unsigned k = 0; k < THREADS; k++) {
			j[k] = (struct job){.r = k % 2 ? m.r : m.rc, .seed = k};
			pthread_create(&t[k], NULL, contend, &j[k]);
			for (unsigned n = 0; n < EACH; n++)
				want += (n * 7 + k) % 3 != 0;
		}
		for (unsigned k = 0; k < THREADS; k++) {
			pthread_join(t[k], NULL);
			assert_int_equal(j[k].rc, 0);
		}
		memcpy(&is, m.base + 4096, sizeof(is));
		assert_int_equal(is, want);
		memory_close(&m);
	}
}

/* ---- order ---- */

/* Shared ones enter together, but not past an exclusive one that waits, and none starves. */
static void
test_order(void **state)
{
	for (unsigned i = 0; i < WAYS; i++) {
		struct memory m = way_open(i);
		struct locker w, r[3], x;

		assert_int_equal(weir_remote_lock(m.r, SHARED, PATIENT), 0);
		locker_start(&r[0], m.rc, SHARED, PATIENT);
		locker_await(&r[0]);
		locker_queue(&w, &m, m.rc, EXCLUSIVE, 1);
		locker_queue(&r[1], &m, m.r, SHARED, 2);
		locker_queue(&r[2], &m, m.rc, SHARED, 3);
		locker_queue(&x, &m, m.r, EXCLUSIVE, 4);
		assert_int_equal(locker_end(&r[0], 1), 0);
		assert_true(locker_waits(&w) && locker_waits(&r[1]));
		assert_int_equal(weir_remote_unlock(m.r, PATIENT), 0);
		locker_await(&w);
		assert_true(locker_waits(&r[1]) && locker_waits(&r[2]) && locker_waits(&x));
		assert_int_equal(locker_end(&w, 1), 0);
		locker_await(&r[1]);
		locker_await(&r[2]);
		assert_true(locker_waits(&x));
		assert_int_equal(locker_end(&r[1], 1), 0);
		assert_int_equal(locker_end(&r[2], 1), 0);
		assert_int_equal(locker_end(&x, 1), 0);
		memory_close(&m);
	}
}

/* ---- time-outs ---- */

/* A thread that gives up has nothing, and is in no other's way. */
static void
test_timeout(void **state)
{
	for (unsigned i = 0; i < WAYS; i++) {
		struct memory m = way_open(i);
		struct locker r;
		uint64_t is = 7;

		assert_int_equal(weir_remote_lock(m.r, SHARED, PATIENT), 0);
		for (unsigned k = 0; k < 5; k++) {
			assert_int_equal(weir_remote_lock(m.rc, EXCLUSIVE, k % 3 * 10), -EAGAIN);
			expect(weir_remote_unlock(m.rc, PATIENT), -ENOLCK);
			/* other operations go on at once */
			assert_int_equal(weir_remote_put(m.rc, 8 * k, &is, 8, 0), 0);
			assert_int_equal(weir_remote_get(m.rc, 8 * k, &is, 8, 0), 0);
			assert_int_equal(weir_remote_flush(m.rc, PATIENT), 0);
			/* and a reader does not wait behind it */
			locker_start(&r, m.rc, SHARED, PATIENT);
			locker_await(&r);
			assert_int_equal(locker_end(&r, 1), 0);
		}
		assert_int_equal(weir_remote_unlock(m.r, PATIENT), 0);
		assert_int_equal(weir_remote_lock(m.rc, EXCLUSIVE, PATIENT), 0);
		assert_int_equal(weir_remote_unlock(m.rc, PATIENT), 0);
		memory_close(&m);
	}
}

static void *
give_up_often(void *arg)
{
	struct job *j = arg;

	for (unsigned i = 0; i < EACH && !j->rc; i++) {
		j->rc = weir_remote_lock(j->r, i % 4 ? EXCLUSIVE : SHARED, i % 2);
		if (j->rc == -EAGAIN)
			j->rc = 0;
		else if (!j->rc) {
			uint32_t before = atomic_fetch_add(j->readers, 1);

			if (i % 4 && before)
				j->rc = -EBADMSG;
			atomic_fetch_sub(j->readers, 1);
			if (!j->rc)
				j->rc = weir_remote_unlock(j->r, PATIENT);
		}
	}
	return NULL;
}

/* Grants cross with those who give up: the lock is never lost, and never held twice. */
static void
test_crossing(void **state)
{
	for (unsigned i = 0; i < WAYS; i++) {
		struct memory m = way_open(i);
		_Atomic uint32_t inside = 0;
		struct job j[THREADS];
		pthread_t t[THREADS];

		for (unsigned k = 0; k < THREADS; k++) {
			j[k] = (struct job){.r = k % 2 ? m.r : m.rc, .readers = &inside};
			pthread_create(&t[k], NULL, give_up_often, &j[k]);
		}
		for (unsigned k = 0; k < THREADS; k++) {
			pthread_join(t[k], NULL);
			assert_int_equal(j[k].rc, 0);
		}
		assert_int_equal(weir_remote_lock(m.r, EXCLUSIVE, PATIENT), 0);
		assert_int_equal(weir_remote_unlock(m.r, PATIENT), 0);
		memory_close(&m);
	}
}

/* ---- ends ---- */

/* The lock of a program that died passes on, with EOWNERDEAD until an exclusive holder knows. */
static void
test_death(void **state)
{
	for (unsigned i = 0; i < 2 * WAYS; i++) {
		struct memory m = way_open(i / 2);
		int kind = i % 2 ? EXCLUSIVE : SHARED, in_doubt = i % 2 ? -EOWNERDEAD : 0;
		struct locker r, w;

		assert_int_equal(weir_remote_lock(m.rc, kind, PATIENT), 0);
		locker_queue(&w, &m, m.r, EXCLUSIVE, 1);
		plane_die(m.f, m.c);
		locker_await(&w);
		assert_int_equal(w.rc, in_doubt);
		assert_int_equal(locker_end(&w, 1), in_doubt);
		assert_int_equal(weir_remote_lock(m.r, SHARED, PATIENT), 0);
		locker_start(&r, m.r, SHARED, PATIENT);
		locker_await(&r);
		assert_int_equal(locker_end(&r, 1), 0);
		assert_int_equal(weir_remote_unlock(m.r, PATIENT), 0);
		plane_cut(m.f, m.c); /* nobody answers it any more */
		memory_close(&m);
	}
}

/* Readers behind a dead writer are all told; closing a handle is like dying. */
static void
test_doubt(void **state)
{
	for (unsigned i = 0; i < WAYS; i++) {
		struct memory m = way_open(i);
		struct locker r[2];

		assert_int_equal(weir_remote_lock(m.rc, EXCLUSIVE, PATIENT), 0);
		locker_queue(&r[0], &m, m.r, SHARED, 1);
		locker_queue(&r[1], &m, m.r, SHARED, 2);
		weir_remote_close(m.rc);
		for (unsigned k = 0; k < 2; k++) {
			locker_await(&r[k]);
			assert_int_equal(locker_end(&r[k], 1), -EOWNERDEAD);
		}
		assert_int_equal(weir_remote_open(m.c, &m.key, ALL, 0, PATIENT, &m.rc), 0);
		expect(weir_remote_lock(m.rc, EXCLUSIVE, PATIENT), -EOWNERDEAD);
		assert_int_equal(weir_remote_unlock(m.rc, PATIENT), 0);
		assert_int_equal(weir_remote_lock(m.r, SHARED, PATIENT), 0);
		assert_int_equal(weir_remote_unlock(m.r, PATIENT), 0);
		memory_close(&m);
	}
}

/* A waiter that dies is not waited for. */
static void
test_dead_waiter(void **state)
{
	for (unsigned i = 0; i < WAYS; i++) {
		struct memory m = way_open(i);
		struct locker w, r;

		assert_int_equal(weir_remote_lock(m.r, SHARED, PATIENT), 0);
		locker_queue(&w, &m, m.rc, EXCLUSIVE, 1);
		locker_queue(&r, &m, m.r, SHARED, 2);
		plane_die(m.f, m.c);
		locker_await(&r);
		assert_int_equal(locker_end(&r, 1), 0);
		assert_int_equal(weir_remote_unlock(m.r, PATIENT), 0);
		assert_int_equal(weir_remote_lock(m.r, EXCLUSIVE, PATIENT), 0);
		assert_int_equal(weir_remote_unlock(m.r, PATIENT), 0);
		plane_cut(m.f, m.c);
		assert_int_equal(locker_end(&w, 1), -ENODEV);
		memory_close(&m);
	}
}

/* Waiters and holders learn how the export ended. */
static void
test_ends(void **state)
{
	for (unsigned i = 0; i < 3 * WAYS; i++) {
		struct memory m = way_open(i / 3);
		int want = i % 3 == 2 ? -ECONNRESET : -ESTALE;
		struct locker w[2];

		assert_int_equal(weir_remote_lock(m.r, EXCLUSIVE, PATIENT), 0);
		locker_queue(&w[0], &m, m.rc, SHARED, 1);
		locker_queue(&w[1], &m, m.r, EXCLUSIVE, 2);
		if (i % 3 == 0)
			assert_int_equal(weir_revoke(m.x), 0);
		else if (i % 3 == 1)
			assert_int_equal(plane_evict_export(m.f, m.b, m.number), 1);
		else
			plane_die(m.f, m.b);
		for (unsigned k = 0; k < 2; k++) {
			locker_await(&w[k]);
			assert_int_equal(locker_end(&w[k], 1), want);
		}
		expect(weir_remote_unlock(m.r, PATIENT), want);
		expect(weir_remote_lock(m.r, EXCLUSIVE, PATIENT), want);
		memory_close(&m);
	}
}

/* ---- misuse ---- */

static void
test_refused(void **state)
{
	for (unsigned i = 0; i < WAYS; i++) {
		struct memory m = way_open(i);
		struct weir_remote *other;
		struct locker w;

		assert_int_equal(weir_remote_open(m.a, &m.key, WEIR_MAY_READ, 0, PATIENT, &other),
				 0);
		expect(weir_remote_lock(other, SHARED, PATIENT), -EACCES);
		expect(weir_remote_unlock(other, PATIENT), -ENOLCK);
		weir_remote_close(other);
		expect(weir_remote_lock(m.r, 0, PATIENT), -EINVAL);
		expect(weir_remote_lock(m.r, 3, PATIENT), -EINVAL);
		expect(weir_remote_unlock(m.r, PATIENT), -ENOLCK);
		assert_int_equal(weir_remote_lock(m.r, SHARED, PATIENT), 0);
		expect(weir_remote_lock(m.r, SHARED, PATIENT), -EALREADY);
		expect(weir_remote_lock(m.r, EXCLUSIVE, 0), -EALREADY);
		assert_int_equal(weir_remote_unlock(m.r, PATIENT), 0);
		expect(weir_remote_unlock(m.r, PATIENT), -ENOLCK);
		/* what this thread holds another does not */
		assert_int_equal(weir_remote_lock(m.r, EXCLUSIVE, PATIENT), 0);
		locker_start(&w, m.r, EXCLUSIVE, PATIENT);
		assert_true(locker_waits(&w));
		assert_int_equal(weir_remote_unlock(m.r, PATIENT), 0);
		locker_await(&w);
		assert_int_equal(locker_end(&w, 1), 0);
		memory_close(&m);
	}
}

/* A full channel delays neither a request nor its end for ever. */
static void
test_held(void **state)
{
	struct memory m = way_open(REMOTE);
	uint64_t is = 1;

	assert_int_equal(weir_remote_lock(m.r, EXCLUSIVE, PATIENT), 0);
	plane_hold(m.f, true);
	while (!weir_remote_put(m.r, 0, &is, 8, WEIR_NOWAIT))
		;
	assert_int_equal(weir_remote_unlock(m.r, 20), -EAGAIN);
	expect(weir_remote_lock(m.r, EXCLUSIVE, 0), -EALREADY);
	assert_int_equal(weir_remote_lock(m.rc, EXCLUSIVE, 20), -EAGAIN);
	plane_hold(m.f, false);
	assert_int_equal(weir_remote_lock(m.rc, EXCLUSIVE, 20), -EAGAIN);
	assert_int_equal(weir_remote_unlock(m.r, PATIENT), 0);
	assert_int_equal(weir_remote_lock(m.rc, EXCLUSIVE, PATIENT), 0);
	assert_int_equal(weir_remote_unlock(m.rc, PATIENT), 0);
	memory_close(&m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_exclusion),	cmocka_unit_test(test_order),
	    cmocka_unit_test(test_timeout),	cmocka_unit_test(test_crossing),
	    cmocka_unit_test(test_death),	cmocka_unit_test(test_doubt),
	    cmocka_unit_test(test_dead_waiter), cmocka_unit_test(test_ends),
	    cmocka_unit_test(test_refused),	cmocka_unit_test(test_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
