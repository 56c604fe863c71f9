/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exports that programs of the same host map: loads and stores in place of cells, read-only
 * mappings that stay read-only, ends that reach the handle, holes that end the export alone.
 */
#define _GNU_SOURCE
#define ALL (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_MAP)
#include "places.h"

#include "broker/sigbus.h"
#include "remote/handle.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

static struct weir_remote *
open_with(struct memory *m, unsigned rights, uint32_t flags, uint8_t **mapped)
{
	struct weir_remote_info info;
	struct weir_remote *r = NULL;

	assert_int_equal(weir_remote_open(m->a, &m->key, rights, flags, PATIENT, &r), 0);
	weir_remote_info(r, &info);
	assert_int_equal(info.length, BYTES);
	*mapped = info.mapped;
	return r;
}

/* Puts are there when the call returns: no engine turns. */
static void
test_put(void **state)
{
	static const size_t lengths[] = {0, 1, 2, 3, 4, 7, 8, 9, 31, 4096, 8193, BYTES};
	struct memory m = memory_make(MAPPED, NULL, ALL);
	uint8_t *mapped, byte = 1;
	struct weir_remote *r = open_with(&m, ALL & ~WEIR_MAY_MAP, 0, &mapped);

	assert_non_null(mapped);
	plane_hold(m.f, true);
	for (unsigned k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++)
		for (size_t at = 0; at < 9 && at <= BYTES - lengths[k]; at++) {
			uint8_t *bytes = make_message(k, lengths[k]);

			memset(m.base, 0, BYTES);
			assert_int_equal(weir_remote_put(r, at, bytes, lengths[k], 0), 0);
			assert_int_equal(weir_remote_flush(r, 0), 0);
			check_message(m.base + at, k, lengths[k]);
			check_message(mapped + at, k, lengths[k]);
			assert_true(!at || !m.base[at - 1]);
			assert_true(at + lengths[k] == BYTES || !m.base[at + lengths[k]]);
			free(bytes);
		}
	plane_hold(m.f, false);
	assert_int_equal(weir_remote_put(r, BYTES, NULL, 0, 0), 0);
	expect(weir_remote_put(r, BYTES, &byte, 1, 0), -ERANGE);
	expect(weir_remote_put(r, BYTES - 1, &byte, 2, 0), -ERANGE);
	expect(weir_remote_put(r, UINT64_MAX, &byte, 1, 0), -ERANGE);
	expect(weir_remote_put(r, 1, &byte, SIZE_MAX, 0), -ERANGE);
	weir_remote_close(r);
	memory_close(&m);
}

/* Without the right, from another node, or if the opener wants none, there is no mapping. */
static void
test_apart(void **state)
{
	for (unsigned i = 0; i < 3; i++) {
		struct memory m =
		    memory_make(i == 1 ? REMOTE : MAPPED, NULL, i == 0 ? WEIR_MAY_WRITE : ALL);
		struct weir_remote *r;
		uint64_t word = 5;
		uint8_t *mapped;

		r = open_with(&m, WEIR_MAY_WRITE, i == 2 ? WEIR_OPEN_APART : 0, &mapped);
		assert_null(mapped);
		assert_int_equal(weir_remote_put(r, 8, &word, sizeof(word), 0), 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		assert_memory_equal(m.base + 8, &word, sizeof(word));
		weir_remote_close(r);
		memory_close(&m);
	}
}

static void
test_refused(void **state)
{
	struct memory m = memory_make(MAPPED, NULL, ALL);
	struct weir_remote *r;
	struct weir_export *x;
	struct weir_key key;

	expect(weir_export(m.region, 0, BYTES - 1, ALL, &x, &key), -EINVAL);
	expect(weir_export(m.region, 4096, BYTES - 4096, ALL, &x, &key), -EINVAL);
	expect(weir_remote_open(m.a, &m.key, ALL, 0, PATIENT, &r), -EINVAL);
	expect(weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 2, PATIENT, &r), -EINVAL);
	memory_close(&m);
}

/* Neither mprotect() nor the key's other rights make a read-only mapping writable. */
static void
test_read_only(void **state)
{
	struct memory m = memory_make(MAPPED, NULL, ALL);
	struct weir_remote *r;
	uint8_t *mapped;

	for (unsigned i = 0; i < 2; i++) {
		if (i) { /* MAP implies READ; the key has nothing else */
			assert_int_equal(weir_revoke(m.x), 0);
			assert_int_equal(
			    weir_export(m.region, 0, BYTES, WEIR_MAY_MAP, &m.x, &m.key), 0);
			expect(weir_remote_open(m.a, &m.key, WEIR_MAY_WRITE, 0, PATIENT, &r),
			       -EACCES);
		}
		r = open_with(&m, WEIR_MAY_READ, 0, &mapped);
		assert_non_null(mapped);
		m.base[77] = (uint8_t)(8 + i);
		assert_int_equal(mapped[77], 8 + i);
		assert_int_equal(mprotect(mapped, BYTES, PROT_READ | PROT_WRITE), -1);
		assert_int_equal(errno, EACCES);
		expect(weir_remote_put(r, 0, &i, sizeof(i), 0), -EACCES);
		weir_remote_close(r);
	}
	memory_close(&m);
}

struct job {
	struct weir_remote *r;
	uint64_t *words;
	int rc;
};

static void *
store_until_end(void *arg)
{
	struct job *j = arg;
	uint64_t word = 1;

	while (!j->rc)
		j->rc = weir_remote_put(j->r, 0, &word, sizeof(word), 0);
	return NULL;
}

static void *
flush_until_end(void *arg)
{
	struct job *j = arg;

	while (!j->rc)
		j->rc = weir_remote_flush(j->r, PATIENT);
	return NULL;
}

/*
 * The memory stays for who mapped it; the handle says how the export ended, also to threads that
 * have no connection, while the one that has stands still.
 */
static void
test_ends(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		struct memory m = memory_make(MAPPED, NULL, ALL);
		int end = i == 2 ? -ECONNRESET : -ESTALE;
		struct weir_remote *r;
		struct job puts, flushes;
		pthread_t t[2];
		uint8_t *mapped;

		r = open_with(&m, WEIR_MAY_WRITE, 0, &mapped);
		m.base[9] = 99;
		if (i == 0)
			assert_int_equal(weir_revoke(m.x), 0);
		else if (i == 1)
			assert_int_equal(weir_region_free(m.region), 0);
		else if (i == 3)
			assert_int_equal(plane_evict_export(m.f, m.b, 1), 1);
		else
			plane_die(m.f, m.b);
		puts = flushes = (struct job){.r = r};
		assert_int_equal(pthread_create(&t[0], NULL, store_until_end, &puts), 0);
		assert_int_equal(pthread_create(&t[1], NULL, flush_until_end, &flushes), 0);
		for (unsigned k = 0; k < 2; k++)
			pthread_join(t[k], NULL);
		assert_int_equal(puts.rc, end);
		assert_int_equal(flushes.rc, end);
		expect(weir_remote_put(r, 0, mapped, 1, 0), end);
		expect(weir_remote_flush(r, 0), end);
		assert_int_equal(mapped[9], 99);
		if (i == 3)
			expect(weir_revoke(m.x), -ECONNABORTED);
		weir_remote_close(r);
		memory_close(&m);
	}
}

static void *
put_words(void *arg)
{
	struct job *j = arg;

	for (uint64_t n = 1; n <= 10000 && !j->rc; n++) {
		j->rc = weir_remote_put(j->r, n % 64 * 8, &(uint64_t){n << 32 | n}, 8, 0);
		if (!j->rc)
			j->rc = weir_remote_flush(j->r, 0);
	}
	return NULL;
}

/* Threads without a connection of their own; words are never torn. */
static void
test_threads(void **state)
{
	struct memory m = memory_make(MAPPED, NULL, ALL);
	uint8_t *mapped;
	struct weir_remote *r = open_with(&m, WEIR_MAY_WRITE, 0, &mapped);
	struct job j[3];
	pthread_t t[3];

	for (unsigned i = 0; i < 3; i++) {
		j[i] = (struct job){.r = r};
		assert_int_equal(pthread_create(&t[i], NULL, put_words, &j[i]), 0);
	}
	for (unsigned i = 0; i < 100000; i++) {
		uint64_t is =
		    __atomic_load_n((uint64_t *)(void *)m.base + i % 64, __ATOMIC_RELAXED);

		assert_int_equal(is >> 32, is & UINT32_MAX);
	}
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(j[i].rc, 0);
	}
	weir_remote_close(r);
	memory_close(&m);
}

#define DRAWERS 4u
#define TICKETS 1000u
#define WIDE 16u /* tickets per update of a long double */

/* Draws tickets, counted in j->words; at times the data plane adds to a word beside them. */
static void *
draw_tickets(void *arg)
{
	struct job *j = arg;
	long double wide = 1, before;
	uint64_t one = 1, was, is;

	for (unsigned n = 0; n < TICKETS && !j->rc; n++) {
		j->rc = weir_remote_fetch_op(j->r, 0, &one, &was, WEIR_T_UINT64, WEIR_ACC_SUM, 0);
		if (!j->rc)
			j->rc = weir_remote_get(j->r, 0, &is, sizeof(is), 0);
		if (!j->rc && n % WIDE == 0)
			j->rc = weir_remote_fetch_op(j->r, 16, &wide, &before, WEIR_T_LONG_DOUBLE,
						     WEIR_ACC_SUM, 0);
		if (!j->rc)
			j->rc = weir_remote_flush(j->r, PATIENT);
		if (!j->rc && (is <= was || was >= DRAWERS * TICKETS))
			j->rc = -EBADMSG;
		if (!j->rc)
			__atomic_fetch_add(&j->words[was], 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *
count_up(void *arg)
{
	struct job *j = arg;
	uint64_t one = 1, was;

	for (unsigned n = 0; n < TICKETS && !j->rc; n++)
		j->rc = weir_remote_fetch_op(j->r, 0, &one, &was, WEIR_T_UINT64, WEIR_ACC_SUM, 0);
	return NULL;
}

/* Nothing but the updates themselves orders those of two threads: ThreadSanitizer sees a race if
 * they are no atomic instructions, whether they have met or not. */
static void
test_updates_of_threads(void **state)
{
	struct memory m = memory_make(MAPPED, NULL, ALL | WEIR_MAY_UPDATE);
	struct job j[2] = {{0}};
	struct weir_remote *r;
	uint8_t *mapped;
	pthread_t t[2];
	uint64_t sum;

	r = open_with(&m, WEIR_MAY_UPDATE | WEIR_MAY_WRITE, 0, &mapped);
	assert_non_null(mapped);
	for (unsigned i = 0; i < 2; i++) {
		j[i].r = r;
		assert_int_equal(pthread_create(&t[i], NULL, count_up, &j[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(j[i].rc, 0);
	}
	memcpy(&sum, m.base, sizeof(sum));
	assert_int_equal(sum, 2 * TICKETS);
	weir_remote_close(r);
	memory_close(&m);
}

/* Threads that mapped the memory, and one for which the data plane works: each ticket once. */
static void
test_tickets(void **state)
{
	struct memory m = memory_make(MAPPED, NULL, ALL | WEIR_MAY_UPDATE);
	unsigned rights = WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE;
	uint64_t drawn[DRAWERS * TICKETS] = {0};
	struct weir_remote *r, *apart;
	struct job j[DRAWERS];
	pthread_t t[DRAWERS];
	uint8_t *mapped;

	apart = open_with(&m, rights, WEIR_OPEN_APART, &mapped);
	assert_null(mapped);
	r = open_with(&m, rights, 0, &mapped);
	assert_non_null(mapped);
	for (unsigned i = 0; i < DRAWERS; i++) {
		j[i] = (struct job){.r = i ? r : apart, .words = drawn};
		assert_int_equal(pthread_create(&t[i], NULL, draw_tickets, &j[i]), 0);
	}
	for (unsigned i = 0; i < DRAWERS; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(j[i].rc, 0);
	}
	for (unsigned i = 0; i < DRAWERS * TICKETS; i++)
		assert_int_equal(drawn[i], 1);
	assert_true(*(long double *)(void *)(m.base + 16) ==
		    DRAWERS * ((TICKETS + WIDE - 1) / WIDE));
	weir_remote_close(r);
	weir_remote_close(apart);
	memory_close(&m);
}

/* The data plane does what no CPU does by one instruction; it is done on return, like the rest. */
static void
test_wide(void **state)
{
	struct memory m = memory_make(MAPPED, NULL, ALL | WEIR_MAY_UPDATE);
	uint8_t *mapped;
	struct weir_remote *r = open_with(&m, WEIR_MAY_WRITE | WEIR_MAY_UPDATE, 0, &mapped);
	const struct weir_layout two = {
	    .block = 16, .dims = 1, .dim = {{.count = 2, .stride = 64}}};
	struct weir_double_at in[2] = {{5, 1}, {7, 2}}, was[2], *at = (void *)(m.base + 128);
	struct weir_update u = {.offset = 128,
				.operand = in,
				.result = was,
				.count = 2,
				.there = &two,
				.type = WEIR_T_DOUBLE_AT,
				.op = WEIR_ACC_MAXLOC};
	long double one = 1, before = -1;
	struct weir_op op;

	assert_non_null(mapped);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(weir_remote_fetch_op(r, 32, &one, &before, WEIR_T_LONG_DOUBLE,
						      WEIR_ACC_SUM, i % 2 ? WEIR_NOWAIT : 0),
				 0);
		assert_true(before == i && *(long double *)(void *)(m.base + 32) == i + 1);
	}
	assert_int_equal(r->first->sent, 100);
	at[0] = (struct weir_double_at){6, 3};
	assert_int_equal(weir_remote_update(r, &u), 0);
	assert_true(at[0].value == 6 && at[0].at == 3 && at[4].value == 7 && at[4].at == 2);
	assert_true(was[0].value == 6 && was[0].at == 3 && was[1].value == 0);
	u.there = NULL;
	u.handle = &op;
	u.op = WEIR_ACC_REPLACE;
	assert_int_equal(weir_remote_update(r, &u), 0);
	assert_true(at[0].value == 5 && at[1].value == 7 && was[0].value == 6);
	assert_int_equal(weir_op_test(&op), 1);
	assert_int_equal(weir_remote_flush(r, 0), 0);
	assert_int_equal(weir_remote_flush_local(r, 0), 0);
	expect(weir_remote_fetch_op(r, BYTES, &one, &before, WEIR_T_LONG_DOUBLE, WEIR_ACC_SUM, 0),
	       -ERANGE);
	plane_die(m.f, m.b);
	while (!weir_remote_fetch_op(r, 32, &one, &before, WEIR_T_LONG_DOUBLE, WEIR_ACC_SUM, 0))
		;
	expect(weir_remote_flush(r, PATIENT), -ECONNRESET);
	weir_remote_close(r);
	memory_close(&m);
}

static void *
add_ones(void *arg)
{
	struct job *j = arg;
	uint64_t one = 1;
	const struct weir_update u = {
	    .offset = 64, .operand = &one, .count = 1, .type = WEIR_T_UINT64, .op = WEIR_ACC_SUM};

	int rc = 0;

	for (unsigned n = 0; n < 20000 && !rc; n++)
		rc = weir_remote_update(j->r, &u);
	__atomic_store_n(&j->rc, rc ? rc : weir_remote_flush(j->r, PATIENT), __ATOMIC_RELAXED);
	return NULL;
}

/* Sums by this CPU and by an engine are atomic to each other. */
static void
test_both_ways(void **state)
{
	struct memory m = memory_make(MAPPED, NULL, ALL | WEIR_MAY_UPDATE);
	uint8_t *mapped, *none;
	struct job apart = {
	    .r = open_with(&m, WEIR_MAY_UPDATE | WEIR_MAY_WRITE, WEIR_OPEN_APART, &none)};
	struct weir_remote *r = open_with(&m, WEIR_MAY_UPDATE | WEIR_MAY_WRITE, 0, &mapped);
	uint64_t one = 1, before, sum, own = 0;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, add_ones, &apart), 0);
	do {
		for (unsigned i = 0; i < 100; i++, own++)
			assert_int_equal(weir_remote_fetch_op(r, 64, &one, &before, WEIR_T_UINT64,
							      WEIR_ACC_SUM, 0),
					 0);
	} while (before - (own - 1) < 20000 && !__atomic_load_n(&apart.rc, __ATOMIC_RELAXED) &&
		 own < 100000000);
	pthread_join(t, NULL);
	assert_int_equal(apart.rc, 0);
	memcpy(&sum, m.base + 64, sizeof(sum));
	assert_int_equal(sum, own + 20000);
	weir_remote_close(r);
	weir_remote_close(apart.r);
	memory_close(&m);
}

/* A program that mapped the region punches a hole: its owner stays, the export ends. */
static void
test_hole(void **state)
{
	struct weir_remote *r, *apart;
	struct weir_export *x;
	struct weir_key key;
	uint8_t *mapped, *none;
	struct memory m;

	if (sigbus_watch()) { /* holes are filled again, and nobody notices */
		print_message("no userfaultfd\n");
		return;
	}
	m = memory_make(MAPPED, NULL, ALL);
	apart = open_with(&m, WEIR_MAY_WRITE, WEIR_OPEN_APART, &none);
	r = open_with(&m, WEIR_MAY_WRITE, 0, &mapped);
	assert_int_equal(madvise(mapped, 4096, MADV_REMOVE), 0);
	/* an engine falls into it */
	expect(put_until_end(apart), -ESTALE);
	expect(put_until_end(r), -ESTALE);
	expect(weir_export(m.region, 0, 64, WEIR_MAY_WRITE, &x, &key), -EFAULT);
	assert_int_equal(weir_revoke(m.x), 0);
	assert_int_equal(weir_region_free(m.region), 0);
	assert_int_equal(weir_region_alloc(m.b, BYTES, NULL, &m.region), 0);
	assert_int_equal(weir_export(m.region, 0, BYTES, ALL, &m.x, &m.key), 0);
	weir_remote_close(apart);
	weir_remote_close(r);
	memory_close(&m);
	sigbus_unwatch();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_put),
	    cmocka_unit_test(test_apart),
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_read_only),
	    cmocka_unit_test(test_ends),
	    cmocka_unit_test(test_threads),
	    cmocka_unit_test(test_updates_of_threads),
	    cmocka_unit_test(test_wide),
	    cmocka_unit_test(test_both_ways),
	    cmocka_unit_test(test_hole),
	    cmocka_unit_test(test_tickets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
