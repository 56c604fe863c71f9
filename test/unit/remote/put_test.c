/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Remote memory from the public calls down to the engines, between two nodes and on one: bytes land
 * where they were put and nowhere else; keys, rights, ranges, revocation, deaths, many threads.
 */
#define START 4096u
#define ALL WEIR_MAY_WRITE
#include "places.h"

#include "ipc/key.h"

#include <pthread.h>

#define EACH_PLACE(i) for (unsigned i = REMOTE; i <= APART; i++)

static void
put(struct weir_remote *r, uint64_t offset, uint32_t seed, size_t length)
{
	uint8_t *bytes = make_message(seed, length);

	assert_int_equal(weir_remote_put(r, offset, bytes, length, 0), 0);
	memset(bytes, 0, length); /* it is the library's business no more */
	free(bytes);
}

/* Of the region. */
static void
assert_zero(const struct memory *m, size_t from, size_t to)
{
	const uint8_t *region = m->base - START;

	for (; from < to; from++)
		if (region[from])
			fail_msg("byte %zu of the region was stored", from);
}

static void
test_lengths(void **state)
{
	static const size_t lengths[] = {0,   1,   2,	3,   7,	   8,	 31,   32,    33,    92,
					 932, 933, 948, 949, 1864, 1865, 8192, 30000, LENGTH};

	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, ALL);
		struct weir_remote_info info;

		weir_remote_info(r, &info);
		assert_int_equal(info.length, LENGTH);
		assert_int_equal(info.rights, WEIR_MAY_WRITE);
		assert_int_equal(info.local, i == APART);
		assert_int_equal(info.node, weir_node(m.b));
		assert_int_equal(weir_remote_flush(r, 0), 0); /* nothing is under way */
		for (unsigned k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
			size_t n = lengths[k], at = n > LENGTH - 5 ? 0 : 5, last = LENGTH - n;

			memset(m.base - START, 0, BYTES);
			put(r, at, k, n);
			assert_int_equal(weir_remote_flush(r, PATIENT), 0);
			check_message(m.base + at, k, n);
			assert_zero(&m, 0, START + at);
			assert_zero(&m, START + at + n, BYTES);
			put(r, last, k + 100, n);
			assert_int_equal(weir_remote_flush(r, PATIENT), 0);
			check_message(m.base + last, k + 100, n);
			assert_zero(&m, START + LENGTH, BYTES);
		}
		weir_remote_close(r);
		assert_int_equal(weir_revoke(m.x), 0);
		memory_close(&m);
	}
}

/* Puts of one thread take effect in order, the last one wins; a flush covers all of them. */
static void
test_order(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, ALL);

		for (uint64_t n = 1; n <= 20000; n++)
			assert_int_equal(weir_remote_put(r, n % 64 * 8, &n, sizeof(n), 0), 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		for (uint64_t k = 0; k < 64; k++) {
			uint64_t is, last = 20000 / 64 * 64 + k;

			memcpy(&is, m.base + k * 8, sizeof(is));
			assert_int_equal(is, last > 20000 ? last - 64 : last);
		}
		weir_remote_close(r);
		memory_close(&m);
	}
}

static void
test_refused(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, ALL), *other;
		struct weir_export *x;
		struct weir_key key;
		uint8_t byte = 1;

		expect(weir_remote_put(r, LENGTH, &byte, 1, 0), -ERANGE);
		expect(weir_remote_put(r, LENGTH - 1, &byte, 2, 0), -ERANGE);
		expect(weir_remote_put(r, UINT64_MAX, &byte, 1, 0), -ERANGE);
		expect(weir_remote_put(r, 1, &byte, SIZE_MAX, 0), -ERANGE);
		expect(weir_remote_put(r, 0, &byte, 1, 0x8000), -EINVAL);
		expect(weir_remote_open(m.a, &m.key, 0, 0, PATIENT, &other), -EINVAL);
		expect(weir_remote_open(m.a, &m.key, 0x40, 0, PATIENT, &other), -EINVAL);
		expect(weir_export(m.region, 0, BYTES + 1, WEIR_MAY_WRITE, &x, &key), -EINVAL);
		expect(weir_export(m.region, BYTES, 1, WEIR_MAY_WRITE, &x, &key), -EINVAL);
		expect(weir_export(m.region, 1, UINT64_MAX, WEIR_MAY_WRITE, &x, &key), -EINVAL);
		expect(weir_export(m.region, 0, 0, WEIR_MAY_WRITE, &x, &key), -EINVAL);
		expect(weir_export(m.region, 0, 1, 0, &x, &key), -EINVAL);
		expect(weir_export(m.region, 0, 1, 0x80, &x, &key), -EINVAL);
		for (unsigned k = 0; k < 3; k++) /* four in all: see plane.c */
			assert_int_equal(weir_export(m.region, k, 1, WEIR_MAY_WRITE, &x, &key), 0);
		expect(weir_export(m.region, 0, 1, WEIR_MAY_WRITE, &x, &key), -EMFILE);
		assert_int_equal(weir_revoke(x), 0);
		assert_int_equal(weir_export(m.region, 0, 1, WEIR_MAY_WRITE, &x, &key), 0);
		assert_zero(&m, 0, BYTES);
		weir_remote_close(r);
		memory_close(&m);
	}
}

/* A key opens nothing once any of its bits differs. */
static void
test_keys(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r;

		for (unsigned bit = 0; bit < 8 * sizeof(m.key); bit++) {
			struct weir_key key = m.key;

			key.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			expect(weir_remote_open(m.a, &key, WEIR_MAY_WRITE, 0, PATIENT, &r),
			       -EKEYREJECTED);
		}
		/* a forged one has a sum that fits */
		for (unsigned bit = 0; bit < 8 * offsetof(struct weir_key_fields, sum); bit++) {
			struct weir_key_fields forged;
			struct weir_key key;

			memcpy(&forged, &m.key, sizeof(forged));
			((uint8_t *)&forged)[bit / 8] ^= (uint8_t)(1u << bit % 8);
			forged.sum = weir_key_sum(&forged);
			memcpy(&key, &forged, sizeof(key));
			expect(weir_remote_open(m.a, &key, WEIR_MAY_WRITE, 0, PATIENT, &r),
			       -EKEYREJECTED);
		}
		r = open_key(&m, ALL);
		weir_remote_close(r);
		memory_close(&m);
	}
}

/* Exporting does not wait for control: other nodes find the key's node when they know it. */
static void
test_before_id(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, &(struct plane_options){.alone = true}, ALL);
		struct weir_remote_info info;
		struct weir_key_fields k;
		struct weir_remote *r;

		assert_int_equal(weir_node(m.b), -EAGAIN);
		memcpy(&k, &m.key, sizeof(k));
		assert_int_equal(k.node, UINT32_MAX);
		if (i == APART) {
			weir_remote_close(open_key(&m, ALL));
		} else {
			expect(weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 0, PATIENT, &r),
			       -EKEYREJECTED);
			assert_non_null(strstr(weir_reason(), "weirctl show nodes"));
		}
		plane_stop(m.f);
		plane_join(m.f);
		plane_run(m.f);
		assert_int_equal(weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 0, PATIENT, &r), 0);
		put(r, 0, 5, LENGTH);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		check_message(m.base, 5, LENGTH);
		weir_remote_info(r, &info);
		assert_int_equal(info.local, i == APART);
		assert_int_equal(info.node, weir_node(m.b));
		weir_remote_close(r);
		/* an earlier run of that data plane has ended */
		k.incarnation--;
		k.sum = weir_key_sum(&k);
		memcpy(&m.key, &k, sizeof(k));
		expect(weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 0, PATIENT, &r),
		       -EKEYREJECTED);
		memory_close(&m);
	}
}

static void
expect_ended(struct weir_remote *r, int why)
{
	uint64_t word = 78;

	expect(put_until_end(r), why);
	expect(weir_remote_put(r, 0, &word, sizeof(word), 0), why);
	expect(weir_remote_put(r, 0, &word, sizeof(word), WEIR_NOWAIT), why);
}

static void
test_revoke(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, ALL), *other;
		struct weir_export *again;
		struct weir_key key;
		uint64_t is;

		put(r, 0, 1, 8);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		assert_int_equal(weir_export(m.region, START, LENGTH, WEIR_MAY_WRITE, &again, &key),
				 0);
		assert_int_equal(weir_revoke(m.x), 0);
		/* from now on nothing is stored */
		memset(m.base - START, 0, BYTES);
		expect_ended(r, -ESTALE);
		memcpy(&is, m.base, sizeof(is));
		assert_int_equal(is, 0);
		expect(weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 0, PATIENT, &other),
		       -EKEYREJECTED);
		weir_remote_close(r);
		/* the other export of the same range lives, until its region is freed */
		m.key = key;
		r = open_key(&m, ALL);
		put(r, 8, 2, 8);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		check_message(m.base + 8, 2, 8);
		assert_int_equal(weir_region_free(m.region), 0);
		expect_ended(r, -ESTALE);
		assert_int_equal(weir_revoke(again), 0); /* it has ended before */
		weir_remote_close(r);
		/* its number is another's by now: an old handle does not end that */
		memory_export(&m, ALL);
		r = open_key(&m, ALL);
		put(r, 16, 3, 8);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		weir_remote_close(r);
		memory_close(&m);
	}
}

/* An operator ends an export: those that opened it, and its owner, are told; nobody else is. */
static void
test_evict(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, ALL), *kept;
		struct weir_export *other;
		struct weir_key key;

		assert_int_equal(weir_export(m.region, START, LENGTH, WEIR_MAY_WRITE, &other, &key),
				 0);
		assert_int_equal(weir_remote_open(m.a, &key, WEIR_MAY_WRITE, 0, PATIENT, &kept), 0);
		assert_int_equal(plane_evict_export(m.f, m.b, 1), 1);
		expect_ended(r, -ESTALE);
		weir_remote_close(r);
		expect(weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 0, PATIENT, &r),
		       -EKEYREJECTED);
		put(kept, 8, 2, 8);
		assert_int_equal(weir_remote_flush(kept, PATIENT), 0);
		check_message(m.base + 8, 2, 8);
		expect(weir_revoke(m.x), -ECONNABORTED);
		assert_non_null(strstr(weir_reason(), "evicted by an operator: in the way; "));
		/* the handle is gone, its number is free */
		assert_int_equal(plane_evict_export(m.f, m.b, 1), -ESRCH);
		assert_int_equal(weir_export(m.region, START, LENGTH, WEIR_MAY_WRITE, &m.x, &m.key),
				 0);
		r = open_key(&m, ALL);
		put(r, 16, 3, 8);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		weir_remote_close(r);
		weir_remote_close(kept);
		assert_int_equal(weir_revoke(other), 0);
		memory_close(&m);
	}
}

static void
test_death(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, ALL);

		put(r, 0, 1, 100);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		plane_die(m.f, m.b);
		expect_ended(r, -ECONNRESET);
		weir_remote_close(r);
		memory_close(&m);
	}
}

/* Handles that were not closed are freed at detach, and exports that were not revoked. */
static void
test_left(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);

		put(open_key(&m, ALL), 0, 1, 100);
		open_key(&m, ALL);
		memory_close(&m);
	}
}

static void
test_nowait(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, ALL);
		uint8_t *bytes = make_message(1, LENGTH);
		uint64_t n = 0;
		int rc;

		expect(weir_remote_put(r, 0, bytes, LENGTH, WEIR_NOWAIT | WEIR_RING), -EMSGSIZE);
		plane_hold(m.f, true);
		while (!(rc = weir_remote_put(r, n % 100 * 8, &n, sizeof(n), WEIR_NOWAIT)))
			n++;
		assert_int_equal(rc, -EAGAIN);
		assert_true(n > 200 && n < 257); /* the ring's slots, less the reserve */
		assert_int_equal(weir_remote_flush(r, 0), -EAGAIN);
		assert_int_equal(weir_remote_flush(r, 20), -EAGAIN);
		plane_hold(m.f, false);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		/* one that does not wait at all began wholly, or not */
		rc = weir_remote_put(r, 1000, bytes, 5000, WEIR_NOWAIT);
		assert_int_equal(rc, 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		check_message(m.base + 1000, 1, 5000);
		free(bytes);
		weir_remote_close(r);
		memory_close(&m);
	}
}

/* Opened without waiting: the first operation says how that ended. */
static void
test_open_later(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote_info info;
		struct weir_remote *r;
		uint64_t word = 7;
		int rc;

		assert_int_equal(weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 0, 0, &r), 0);
		while ((rc = weir_remote_put(r, 0, &word, sizeof(word), WEIR_NOWAIT)) == -EAGAIN)
			;
		assert_int_equal(rc, 0);
		weir_remote_info(r, &info);
		assert_int_equal(info.length, LENGTH);
		assert_int_equal(info.node, weir_node(m.b));
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		weir_remote_close(r);
		assert_int_equal(weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 0, 0, &r), 0);
		weir_remote_close(r); /* before it is open */
		assert_int_equal(weir_revoke(m.x), 0);
		rc = weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 0, 0, &r);
		if (!rc) {
			rc = weir_remote_put(r, 0, &word, sizeof(word), 0);
			expect(weir_remote_put(r, LENGTH, &word, 8, WEIR_NOWAIT), -EKEYREJECTED);
			weir_remote_close(r);
		}
		expect(rc, -EKEYREJECTED);
		memory_close(&m);
	}
}

/* ---- threads ---- */

#define THREADS 4u
#define PUTS 2000u

struct job {
	struct weir_remote *r;
	uint32_t first;
	int rc;
};

static void *
put_many(void *arg)
{
	struct job *j = arg;
	uint64_t n;

	for (n = 1; !j->rc && n <= PUTS; n++) {
		j->rc = weir_remote_put(j->r, (j->first + n % 8) * 8, &n, sizeof(n), 0);
		if (!j->rc && n % 500 == 0)
			j->rc = weir_remote_flush(j->r, PATIENT);
	}
	return NULL;
}

static void
test_threads(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, &(struct plane_options){.engines = 2}, ALL);
		struct weir_remote *r = open_key(&m, ALL);
		struct job job[THREADS];
		pthread_t t[THREADS];

		for (unsigned k = 0; k < THREADS; k++) {
			job[k] = (struct job){.r = r, .first = 8 * k};
			assert_int_equal(pthread_create(&t[k], NULL, put_many, &job[k]), 0);
		}
		for (unsigned k = 0; k < THREADS; k++) {
			pthread_join(t[k], NULL);
			assert_int_equal(job[k].rc, 0);
		}
		for (unsigned k = 0; k < 8 * THREADS; k++) {
			uint64_t is;

			memcpy(&is, m.base + 8 * k, sizeof(is));
			assert_int_equal(is, PUTS - (PUTS - k) % 8);
		}
		assert_zero(&m, START + 64 * THREADS, BYTES);
		weir_remote_close(r);
		memory_close(&m);
	}
}

/* The exporting program is not scheduled while others put; here it takes no part in any turn. */
static void
test_events(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, ALL);
		struct weir_event e;

		put(r, 0, 1, 8);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		assert_int_equal(weir_revoke(m.x), 0);
		expect_ended(r, -ESTALE);
		/* neither program hears of a connection that it does not know */
		while (weir_poll(m.a, &e, 1) > 0)
			assert_int_equal(e.type, WEIR_EVENT_NODE);
		while (weir_poll(m.b, &e, 1) > 0)
			assert_int_equal(e.type, WEIR_EVENT_NODE);
		weir_remote_close(r);
		memory_close(&m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_lengths),    cmocka_unit_test(test_order),
	    cmocka_unit_test(test_refused),    cmocka_unit_test(test_keys),
	    cmocka_unit_test(test_before_id),  cmocka_unit_test(test_revoke),
	    cmocka_unit_test(test_evict),      cmocka_unit_test(test_death),
	    cmocka_unit_test(test_left),       cmocka_unit_test(test_nowait),
	    cmocka_unit_test(test_open_later), cmocka_unit_test(test_threads),
	    cmocka_unit_test(test_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
