/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gets, updates, fetches, compare and swap from the public calls down to the engines, between two
 * nodes and on one: results, order, waiting, many threads, misuse, ends.
 */
#define BYTES 131072u
#define START 4096u
#define ALL (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE)
#include "places.h"

#include "ipc/apply.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define EACH_PLACE(i) for (unsigned i = REMOTE; i <= APART; i++)

static void
test_get(void **state)
{
	static const size_t lengths[] = {0,  1,	  2,   4,    7,	   8,	 48,	49,    64,
					 65, 948, 949, 8191, 8192, 8193, 30000, 65536, LENGTH};

	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, ALL);
		uint8_t *to = malloc(LENGTH + 2);

		for (uint32_t k = 0; k < LENGTH; k++)
			m.base[k] = (uint8_t)(k * 13 + k / 256);
		for (unsigned k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
			size_t n = lengths[k], from = n > LENGTH - 3 ? 0 : 3;

			memset(to, 0xee, LENGTH + 2);
			assert_int_equal(weir_remote_get(r, from, to + 1, n, 0), 0);
			assert_int_equal(k % 2 ? weir_remote_flush(r, PATIENT)
					       : weir_remote_flush_local(r, PATIENT),
					 0);
			assert_memory_equal(to + 1, m.base + from, n);
			assert_int_equal(to[0], 0xee);
			assert_int_equal(to[n + 1], 0xee);
		}
		/* behind a put of the same thread */
		for (uint64_t n = 1; n < 100; n++) {
			uint64_t is = 0;

			assert_int_equal(weir_remote_put(r, 8, &n, sizeof(n), 0), 0);
			assert_int_equal(weir_remote_get(r, 8, &is, sizeof(is), 0), 0);
			assert_int_equal(weir_remote_flush_local(r, PATIENT), 0);
			assert_int_equal(is, n);
		}
		assert_int_equal(weir_remote_flush_local(r, 0), 0); /* nothing is under way */
		free(to);
		weir_remote_close(r);
		memory_close(&m);
	}
}

static void
test_update(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, WEIR_MAY_UPDATE);
		uint32_t n = 3000, one = 1, was, seen;
		uint32_t *operand = calloc(n, 4), *before = calloc(n, 4), *is = (void *)m.base;
		struct weir_update u = {.operand = operand,
					.result = before,
					.count = n,
					.type = WEIR_T_UINT32,
					.op = WEIR_ACC_SUM};
		float half = 0.5f, f;
		int64_t v;

		for (uint32_t k = 0; k < n; k++) {
			is[k] = k * k;
			operand[k] = 7 * k;
		}
		assert_int_equal(weir_remote_update(r, &u), 0);
		memset(operand, 0xff, 4 * (size_t)n); /* it is the library's business no more */
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		for (uint32_t k = 0; k < n; k++) {
			assert_int_equal(before[k], k * k);
			assert_int_equal(is[k], k * k + 7 * k);
		}
		u.result = NULL;
		u.op = WEIR_ACC_BAND;
		u.offset = 4;
		u.count = n - 1; /* all ones */
		assert_int_equal(weir_remote_update(r, &u), 0);
		u.op = WEIR_ACC_NO_OP;
		u.operand = NULL;
		u.result = before;
		assert_int_equal(weir_remote_update(r, &u), 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		for (uint32_t k = 1; k < n; k++)
			assert_int_equal(before[k - 1], k * k + 7 * k);
		u.count = 0;
		assert_int_equal(weir_remote_update(r, &u), 0);
		/* one element */
		v = -5;
		memcpy(m.base + 64, &v, 8);
		v = 6;
		assert_int_equal(weir_remote_fetch_op(r, 64, &v, &v, WEIR_T_INT64, WEIR_ACC_MAX, 0),
				 0);
		assert_int_equal(weir_remote_flush_local(r, PATIENT), 0);
		assert_int_equal(v, -5);
		assert_int_equal(
		    weir_remote_fetch_op(r, 64, NULL, &v, WEIR_T_INT64, WEIR_ACC_NO_OP, 0), 0);
		assert_int_equal(weir_remote_flush_local(r, PATIENT), 0);
		assert_int_equal(v, 6);
		f = 1.25f;
		memcpy(m.base + 72, &f, 4);
		assert_int_equal(
		    weir_remote_fetch_op(r, 72, &half, &f, WEIR_T_FLOAT, WEIR_ACC_PROD, 0), 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		assert_true(f == 1.25f);
		memcpy(&f, m.base + 72, 4);
		assert_true(f == 0.625f);
		/* compare and swap */
		is[0] = 0;
		was = 0;
		assert_int_equal(
		    weir_remote_compare_swap(r, 0, &was, &one, &seen, WEIR_T_UINT32, 0), 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		assert_int_equal(seen, 0);
		assert_int_equal(is[0], 1);
		assert_int_equal(
		    weir_remote_compare_swap(r, 0, &was, &was, &seen, WEIR_T_UINT32, 0), 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		assert_int_equal(seen, 1);
		assert_int_equal(is[0], 1);
		free(operand);
		free(before);
		weir_remote_close(r);
		memory_close(&m);
	}
}

/* Types that no CPU updates by one instruction: against plain calls, in one cell and in several. */
static void
test_wide(void **state)
{
	enum { N = 70, AT = 512 };

	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, NULL, ALL);
		struct weir_remote *r = open_key(&m, WEIR_MAY_UPDATE);
		uint8_t *want = malloc(N * 32), *before = malloc(N * 32), *got = malloc(N * 32);

		for (unsigned t = WEIR_T_LONG_DOUBLE; t <= WEIR_T_LONG_DOUBLE_AT; t++)
			for (unsigned op = WEIR_ACC_SUM; op <= WEIR_ACC_NO_OP; op++) {
				size_t size = weir_type_size(t), n = op % 3 ? N : 1;
				uint8_t *operand = make_message(t + op, n * size);
				struct weir_update u = {.offset = AT,
							.operand = operand,
							.result = op % 2 ? NULL : got,
							.count = n,
							.type = t,
							.op = op};

				if (!weir_acc_valid(t, op)) {
					free(operand);
					continue;
				}
				for (size_t k = 0; k < n * size + 64; k++)
					m.base[AT - 32 + k] = pattern(op, k);
				memcpy(want, m.base + AT, n * size);
				assert_int_equal(weir_apply(t, op, want, operand, before, n), 0);
				assert_int_equal(weir_remote_update(r, &u), 0);
				assert_int_equal(weir_remote_flush(r, PATIENT), 0);
				assert_memory_equal(m.base + AT, want, n * size);
				if (u.result)
					assert_memory_equal(got, before, n * size);
				for (size_t k = 0; k < 32; k++) {
					size_t behind = 32 + n * size + k;

					assert_int_equal(m.base[AT - 32 + k], pattern(op, k));
					assert_int_equal(m.base[AT - 32 + behind],
							 pattern(op, behind));
				}
				free(operand);
			}
		free(want);
		free(before);
		free(got);
		weir_remote_close(r);
		memory_close(&m);
	}
}

/* More operations than may be under way, and than the session has send memory for. */
static void
test_many(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(
		    i,
		    &(struct plane_options){.ring_slots = 64, .send_blocks = 8, .answers = 16384},
		    ALL);
		struct weir_remote *r = open_key(&m, ALL);
		uint64_t one = 1, was[500];
		uint8_t *to = malloc(LENGTH);

		for (uint32_t k = 0; k < LENGTH; k++)
			m.base[k] = (uint8_t)(k / 64 + k);
		memset(m.base, 0, 8);
		for (unsigned k = 0; k < 500; k++)
			assert_int_equal(weir_remote_fetch_op(r, 0, &one, &was[k], WEIR_T_UINT64,
							      WEIR_ACC_SUM, 0),
					 0);
		assert_int_equal(weir_remote_get(r, 0, to, LENGTH, 0), 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		for (unsigned k = 0; k < 500; k++)
			assert_int_equal(was[k], k);
		assert_memory_equal(to, m.base, LENGTH);
		free(to);
		weir_remote_close(r);
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
		uint64_t one = 1, was[129], n = 0;
		struct weir_update u = {.operand = m.base, /* any memory */
					.count = LENGTH / 8,
					.type = WEIR_T_UINT64,
					.op = WEIR_ACC_SUM,
					.flags = WEIR_NOWAIT};
		uint8_t to[8193];
		int rc;

		memset(m.base, 0, LENGTH);
		expect(weir_remote_get(r, 0, to, 8193, WEIR_NOWAIT | WEIR_RING), -EMSGSIZE);
		expect(weir_remote_update(r, &u), -EMSGSIZE);
		u.count = 200;
		u.result = to;
		expect(weir_remote_update(r, &u), -EMSGSIZE);
		assert_int_equal(weir_remote_get(r, 0, to, 8192, WEIR_NOWAIT), 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		plane_hold(m.f, true);
		while (!(rc = weir_remote_fetch_op(r, 0, &one, &was[n], WEIR_T_UINT64, WEIR_ACC_SUM,
						   WEIR_NOWAIT)))
			n++;
		assert_int_equal(rc, -EAGAIN);
		assert_int_equal(n, 128); /* lines of a block */
		assert_int_equal(weir_remote_flush_local(r, 20), -EAGAIN);
		plane_hold(m.f, false);
		assert_int_equal(weir_remote_flush_local(r, PATIENT), 0);
		for (uint64_t k = 0; k < n; k++)
			assert_int_equal(was[k], k);
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
		struct weir_remote *r = open_key(&m, ALL), *other = open_key(&m, WEIR_MAY_WRITE);
		struct weir_update u = {
		    .operand = &u, .count = 1, .type = WEIR_T_INT8, .op = WEIR_ACC_SUM};
		struct weir_export *x;
		struct weir_key key;
		long double wide = 1;
		uint64_t v = 0;

		expect(weir_remote_get(other, 0, &v, 8, 0), -EACCES);
		expect(weir_remote_update(other, &u), -EACCES);
		expect(weir_remote_fetch_op(other, 0, &v, &v, WEIR_T_INT64, WEIR_ACC_SUM, 0),
		       -EACCES);
		expect(weir_remote_compare_swap(other, 0, &v, &v, &v, WEIR_T_INT64, 0), -EACCES);
		expect(weir_remote_get(r, LENGTH, &v, 1, 0), -ERANGE);
		expect(weir_remote_get(r, 1, &v, SIZE_MAX, 0), -ERANGE);
		expect(weir_remote_get(r, 0, NULL, 1, 0), -EINVAL);
		expect(weir_remote_put(r, 0, NULL, 1, 0), -EINVAL);
		expect(weir_remote_get(r, 0, &v, 1, 0x10), -EINVAL);
		expect(weir_remote_fetch_op(r, LENGTH, &v, &v, WEIR_T_INT64, WEIR_ACC_SUM, 0),
		       -ERANGE);
		expect(
		    weir_remote_fetch_op(r, UINT64_MAX - 7, &v, &v, WEIR_T_INT64, WEIR_ACC_SUM, 0),
		    -ERANGE);
		expect(weir_remote_fetch_op(r, 4, &v, &v, WEIR_T_INT64, WEIR_ACC_SUM, 0), -EINVAL);
		expect(weir_remote_fetch_op(r, 0, &v, &v, WEIR_T_DOUBLE, WEIR_ACC_BAND, 0),
		       -EINVAL);
		expect(weir_remote_fetch_op(r, 0, &v, &v, 99, WEIR_ACC_SUM, 0), -EINVAL);
		expect(weir_remote_fetch_op(r, 0, &v, &v, WEIR_T_INT64, 99, 0), -EINVAL);
		expect(weir_remote_fetch_op(r, 0, NULL, &v, WEIR_T_INT64, WEIR_ACC_SUM, 0),
		       -EINVAL);
		expect(weir_remote_fetch_op(r, 0, &v, NULL, WEIR_T_INT64, WEIR_ACC_SUM, 0),
		       -EINVAL);
		expect(
		    weir_remote_fetch_op(r, 8, &wide, &wide, WEIR_T_LONG_DOUBLE, WEIR_ACC_SUM, 0),
		    -EINVAL);
		expect(weir_remote_compare_swap(r, 0, &v, &v, &v, WEIR_T_DOUBLE, 0), -EINVAL);
		expect(weir_remote_compare_swap(r, 0, NULL, &v, &v, WEIR_T_INT64, 0), -EINVAL);
		u.count = UINT64_MAX;
		expect(weir_remote_update(r, &u), -ERANGE);
		u.count = LENGTH + 1;
		expect(weir_remote_update(r, &u), -ERANGE);
		u.count = 1;
		u.offset = LENGTH; /* as programs make them most: small, without a result */
		expect(weir_remote_update(r, &u), -ERANGE);
		u.offset = UINT64_MAX - u.offset % 8 - 7;
		expect(weir_remote_update(r, &u), -ERANGE);
		u.offset = 2;
		u.type = WEIR_T_INT64;
		expect(weir_remote_update(r, &u), -EINVAL);
		u.offset = 0;
		u.type = WEIR_T_DOUBLE;
		u.op = WEIR_ACC_BAND;
		expect(weir_remote_update(r, &u), -EINVAL);
		u.type = 99;
		expect(weir_remote_update(r, &u), -EINVAL);
		u.type = WEIR_T_LONG_DOUBLE;
		u.op = WEIR_ACC_MINLOC;
		expect(weir_remote_update(r, &u), -EINVAL);
		u.flags = 0x10;
		expect(weir_remote_update(r, &u), -EINVAL);
		u.flags = 0;
		u.type = WEIR_T_INT64;
		u.reserved = 1;
		expect(weir_remote_update(r, &u), -EINVAL);
		expect(weir_remote_update(r, NULL), -EINVAL);
		expect(weir_export(m.region, 8, 64, WEIR_MAY_UPDATE, &x, &key), -EINVAL);
		assert_int_equal(weir_export(m.region, 8, 64, WEIR_MAY_READ, &x, &key), 0);
		assert_int_equal(weir_export(m.region, 16, 64, WEIR_MAY_UPDATE, &x, &key), 0);
		/* none of that was begun */
		v = 5;
		assert_int_equal(weir_remote_fetch_op(r, 0, &v, &v, WEIR_T_INT64, WEIR_ACC_SUM, 0),
				 0);
		assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		assert_int_equal(v, 0);
		weir_remote_close(r);
		weir_remote_close(other);
		memory_close(&m);
	}
}

/* Results under way when a handle is closed, or the export ends, are not written later. */
static void
test_ends(void **state)
{
	for (unsigned i = 0; i < 6; i++) {
		struct memory m = memory_make(i % 2, NULL, ALL);
		struct weir_remote *r = open_key(&m, ALL);
		uint64_t one = 1, was = 99;
		uint8_t *to = malloc(60000);
		int rc;

		memset(to, 0x77, 60000);
		plane_hold(m.f, true);
		assert_int_equal(
		    weir_remote_fetch_op(r, 0, &one, &was, WEIR_T_UINT64, WEIR_ACC_SUM, 0), 0);
		assert_int_equal(weir_remote_get(r, 0, to, 60000, 0), 0);
		if (i / 2 == 0) {
			weir_remote_close(r);
			plane_hold(m.f, false);
			r = open_key(&m, ALL);
			assert_int_equal(weir_remote_get(r, 0, &one, 8, 0), 0);
			assert_int_equal(weir_remote_flush(r, PATIENT), 0);
		} else {
			plane_hold(m.f, false);
			if (i / 2 == 1)
				assert_int_equal(weir_revoke(m.x), 0);
			else
				plane_die(m.f, m.b);
			do
				rc = weir_remote_get(r, 0, &one, 8, 0);
			while (!rc && !(rc = weir_remote_flush(r, PATIENT)));
			expect(rc, i / 2 == 1 ? -ESTALE : -ECONNRESET);
			expect(weir_remote_get(r, 0, &one, 8, 0), rc);
			expect(
			    weir_remote_fetch_op(r, 0, &one, &one, WEIR_T_UINT64, WEIR_ACC_SUM, 0),
			    rc);
		}
		if (i / 2 == 0) {
			assert_int_equal(was, 99);
			for (uint32_t k = 0; k < 60000; k++)
				assert_int_equal(to[k], 0x77);
		}
		free(to);
		weir_remote_close(r);
		memory_close(&m);
	}
}

/* Memory that is mapped: an operation is complete when it returns. */
static void
test_mapped(void **state)
{
	struct memory m = memory_make(APART, NULL, ALL);
	uint64_t one = 1, two = 2, was = 0, words[4] = {5, 6, 7, 8}, before[4];
	struct weir_update u = {.offset = 64,
				.operand = words,
				.result = before,
				.count = 4,
				.type = WEIR_T_UINT64,
				.op = WEIR_ACC_BXOR};
	struct weir_remote_info info;
	struct weir_export *x;
	struct weir_remote *r;

	assert_int_equal(weir_revoke(m.x), 0);
	assert_int_equal(weir_export(m.region, 0, BYTES, ALL | WEIR_MAY_MAP, &x, &m.key), 0);
	m.base -= START;
	r = open_key(&m, ALL);
	weir_remote_info(r, &info);
	assert_non_null(info.mapped);
	assert_int_equal(weir_remote_put(r, 64, words, sizeof(words), 0), 0);
	assert_int_equal(weir_remote_get(r, 72, &was, 8, 0), 0);
	assert_int_equal(was, 6);
	assert_int_equal(weir_remote_update(r, &u), 0);
	assert_memory_equal(before, words, sizeof(words));
	assert_int_equal(weir_remote_fetch_op(r, 64, &two, &was, WEIR_T_UINT64, WEIR_ACC_SUM, 0),
			 0);
	assert_int_equal(was, 0);
	assert_int_equal(
	    weir_remote_compare_swap(r, 64, &two, &one, &was, WEIR_T_UINT64, WEIR_NOWAIT), 0);
	assert_int_equal(was, 2);
	assert_memory_equal(m.base + 64, &one, 8);
	assert_int_equal(weir_remote_flush_local(r, 0), 0);
	assert_int_equal(weir_remote_flush(r, 0), 0);
	expect(weir_remote_get(r, BYTES - 7, &was, 8, 0), -ERANGE);
	u.count = UINT64_MAX / 4;
	expect(weir_remote_update(r, &u), -ERANGE);
	weir_remote_close(r);
	/* with the right to update alone: nothing can be mapped for that */
	r = open_key(&m, WEIR_MAY_UPDATE);
	weir_remote_info(r, &info);
	assert_null(info.mapped);
	assert_int_equal(weir_remote_fetch_op(r, 64, &two, &was, WEIR_T_UINT64, WEIR_ACC_SUM, 0),
			 0);
	assert_int_equal(weir_remote_flush(r, PATIENT), 0);
	assert_int_equal(was, 1);
	weir_remote_close(r);
	memory_close(&m);
}

/* ---- threads ---- */

#define THREADS 4u
#define TICKETS 1000u
#define UPDATES 10u /* per ticket */

struct job {
	struct weir_remote *r;
	uint64_t *drawn; /* by ticket: how often */
	int rc;
};

/* A thread of the owner that updates all the time. Two of them: at each moment one is likely to
 * run beside an engine. */
struct adder {
	uint64_t *word, added;
	atomic_bool ends;
	pthread_t thread;
};

static void *
add_on(void *arg)
{
	struct adder *a = arg;

	while (!a->ends) {
		for (unsigned k = 0; k < 1000; k++)
			__atomic_fetch_add(a->word, 1, __ATOMIC_RELAXED);
		a->added += 1000;
		sched_yield(); /* to engines, on few CPUs */
	}
	return NULL;
}

static void *
draw_tickets(void *arg)
{
	struct job *j = arg;
	uint64_t one = 1, was, next, seen;
	struct weir_update add = {
	    .operand = &one, .offset = 128, .count = 1, .type = WEIR_T_UINT64, .op = WEIR_ACC_SUM};

	for (unsigned n = 0; !j->rc && n < TICKETS; n++) {
		j->rc = weir_remote_fetch_op(j->r, 0, &one, &was, WEIR_T_UINT64, WEIR_ACC_SUM, 0);
		if (!j->rc)
			j->rc = weir_remote_flush(j->r, PATIENT);
		if (!j->rc)
			__atomic_fetch_add(&j->drawn[was], 1, __ATOMIC_RELAXED);
		if (!j->rc)
			j->rc = weir_remote_get(j->r, 0, &seen, sizeof(seen), 0);
		if (!j->rc)
			j->rc = weir_remote_flush(j->r, PATIENT);
		if (!j->rc && seen <= was)
			j->rc = -EBADMSG;
		for (unsigned k = 0; !j->rc && k < UPDATES; k++)
			j->rc = weir_remote_update(j->r, &add);
		/* a counter by compare and swap */
		for (seen = 0, next = 1, was = 0; !j->rc; was = seen, next = seen + 1) {
			j->rc = weir_remote_compare_swap(j->r, 64, &was, &next, &seen,
							 WEIR_T_UINT64, 0);
			if (!j->rc)
				j->rc = weir_remote_flush_local(j->r, PATIENT);
			if (seen == was)
				break;
		}
	}
	return NULL;
}

/* Each ticket is drawn once, and no update is lost; the owner updates the same words meanwhile. */
static void
test_threads(void **state)
{
	EACH_PLACE(i)
	{
		struct memory m = memory_make(i, &(struct plane_options){.engines = 2}, ALL);
		struct weir_remote *r = open_key(&m, ALL);
		uint64_t drawn[(THREADS + 1) * TICKETS] = {0}, *word = (void *)m.base;
		struct adder adders[2] = {{.word = word + 16}, {.word = word + 16}};
		uint64_t added = THREADS * TICKETS * UPDATES;
		struct job job[THREADS];
		pthread_t t[THREADS];

		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(
			    pthread_create(&adders[k].thread, NULL, add_on, &adders[k]), 0);
		for (unsigned k = 0; k < THREADS; k++) {
			job[k] = (struct job){.r = r, .drawn = drawn};
			assert_int_equal(pthread_create(&t[k], NULL, draw_tickets, &job[k]), 0);
		}
		for (unsigned k = 0; k < TICKETS; k++)
			__atomic_fetch_add(&drawn[__atomic_fetch_add(word, 1, __ATOMIC_RELAXED)], 1,
					   __ATOMIC_RELAXED);
		for (unsigned k = 0; k < THREADS; k++) {
			pthread_join(t[k], NULL);
			assert_int_equal(job[k].rc, 0);
		}
		for (unsigned k = 0; k < 2; k++) {
			adders[k].ends = true;
			pthread_join(adders[k].thread, NULL);
			added += adders[k].added;
		}
		assert_int_equal(word[16], added);
		assert_int_equal(*word, (THREADS + 1) * TICKETS);
		for (unsigned k = 0; k < (THREADS + 1) * TICKETS; k++)
			assert_int_equal(drawn[k], 1);
		assert_int_equal(word[8], THREADS * TICKETS);
		weir_remote_close(r);
		memory_close(&m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_get),	    cmocka_unit_test(test_update),
	    cmocka_unit_test(test_many),    cmocka_unit_test(test_nowait),
	    cmocka_unit_test(test_refused), cmocka_unit_test(test_ends),
	    cmocka_unit_test(test_mapped),  cmocka_unit_test(test_threads),
	    cmocka_unit_test(test_wide),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
