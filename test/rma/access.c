/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys, rights, puts, gets, layouts, order, handles, marks, revocation. */
#include "cases.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART 4096u /* bytes of a rank in the memory of another */

/* A key with one bit changed opens nothing; the right key still does. */
static void
key_forged(struct ranks *r)
{
	struct memory m = memory_make(r, PART);
	uint32_t to = (r->rank + 1) % r->size;
	struct weir_remote *forged;

	/* node and version are what says where to ask */
	for (unsigned bit = 64; bit < 8 * sizeof(m.keys[0]); bit += 13) {
		struct weir_key key = m.keys[to];
		int rc;

		key.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		forged = NULL;
		rc = weir_remote_open(r->w, &key, WEIR_MAY_READ, 0, CASE_MS, &forged);
		CHECK(r, rc < 0 && !forged);
	}
	OK(r, weir_remote_open(r->w, &m.keys[to], WEIR_MAY_READ, 0, CASE_MS, &forged));
	weir_remote_close(forged);
	memory_free(r, &m);
}

/* A key grants what it says, a handle what it was opened for. */
static void
rights_each(struct ranks *r)
{
	static const unsigned rights[] = {WEIR_MAY_READ, WEIR_MAY_WRITE, WEIR_MAY_UPDATE,
					  WEIR_MAY_NOTIFY, WEIR_MAY_LOCK};
	struct memory m = memory_make(r, PART);
	struct weir_key own, keys[RANKS_MAX];
	uint32_t to = (r->rank + 1) % r->size;
	struct weir_export *x;
	uint64_t word = 0;

	for (unsigned i = 0; i < sizeof(rights) / sizeof(rights[0]); i++) {
		struct weir_remote *h = NULL;

		OK(r, weir_export(m.region, 0, PART, rights[i], &x, &own));
		OK(r, weir_group_allgather(r->g, &own, sizeof(own), keys, CASE_MS));
		for (unsigned k = 0; k < sizeof(rights) / sizeof(rights[0]); k++)
			if (k != i)
				WANT(r,
				     weir_remote_open(r->w, &keys[to], rights[k], 0, CASE_MS, &h),
				     -EACCES);
		OK(r, weir_remote_open(r->w, &keys[to], rights[i], 0, CASE_MS, &h));
		WANT(r, weir_remote_get(h, 0, &word, 8, 0),
		     rights[i] == WEIR_MAY_READ ? 0 : -EACCES);
		WANT(r, weir_remote_put(h, 0, &word, 8, 0),
		     rights[i] == WEIR_MAY_WRITE ? 0 : -EACCES);
		WANT(r, weir_remote_fetch_op(h, 0, &word, &word, WEIR_T_UINT64, WEIR_ACC_BOR, 0),
		     rights[i] == WEIR_MAY_UPDATE ? 0 : -EACCES);
		WANT(r, weir_remote_notify(h, 1, 2, 0), rights[i] == WEIR_MAY_NOTIFY ? 0 : -EACCES);
		WANT(r, weir_remote_lock(h, WEIR_LOCK_SHARED, CASE_MS),
		     rights[i] == WEIR_MAY_LOCK ? 0 : -EACCES);
		if (rights[i] == WEIR_MAY_LOCK)
			OK(r, weir_remote_unlock(h, CASE_MS));
		OK(r, weir_remote_flush(h, CASE_MS));
		together(r);
		if (rights[i] == WEIR_MAY_NOTIFY) {
			struct weir_notice n;

			OK(r, weir_notice_next(r->w, &n, CASE_MS));
			CHECK(r, n.x == x && n.tag == 1 && n.source == 2);
		}
		weir_remote_close(h);
		together(r);
		OK(r, weir_revoke(x));
	}
	memory_free(r, &m);
}

/* Each rank puts a part of every length into the memory of each, and gets it back. */
static void
many_each(struct ranks *r)
{
	static const uint32_t lengths[] = {0, 1, 2, 4, 7, 8, 31, 32, 33, 60, 932, 933, 4000, 4096};
	struct memory m = memory_make(r, (uint64_t)RANKS_MAX * PART);
	uint8_t bytes[PART], back[PART + 1];

	for (uint32_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
		uint32_t n = lengths[k];

		for (uint32_t to = 0; to < r->size; to++) {
			for (uint32_t i = 0; i < n; i++)
				bytes[i] = pattern(r->rank * RANKS_MAX + to, k, i);
			OK(r, weir_remote_put(m.at[to], (uint64_t)r->rank * PART, bytes, n, 0));
		}
		flush_all(r, &m);
		for (uint32_t from = 0; from < r->size; from++) {
			bool whole = true;

			for (uint32_t i = 0; i < n; i++)
				whole &= m.base[from * PART + i] ==
					 pattern(from * RANKS_MAX + r->rank, k, i);
			CHECK(r, whole);
			memset(back, 0xee, sizeof(back));
			OK(r, weir_remote_get(m.at[from], (uint64_t)r->rank * PART, back, n, 0));
			OK(r, weir_remote_flush(m.at[from], CASE_MS));
			for (uint32_t i = 0; i < n; i++)
				whole &= back[i] == pattern(r->rank * RANKS_MAX + from, k, i);
			CHECK(r, whole && back[n] == 0xee);
		}
		together(r);
	}
	memory_free(r, &m);
}

/* A megabyte from each to each, at once. */
static void
many_all_to_all(struct ranks *r)
{
	const uint64_t n = 1u << 20;
	struct memory m = memory_make(r, n * r->size);
	uint8_t *bytes = malloc(n), *back = malloc(n);
	bool whole = true;

	for (uint64_t i = 0; i < n; i++)
		bytes[i] = pattern(r->rank, 5, i);
	for (uint32_t i = 0; i < r->size; i++)
		OK(r, weir_remote_put(m.at[(r->rank + i) % r->size], r->rank * n, bytes, n, 0));
	flush_all(r, &m);
	for (uint32_t from = 0; from < r->size; from++) {
		for (uint64_t i = 0; i < n; i++)
			whole &= m.base[from * n + i] == pattern(from, 5, i);
		OK(r, weir_remote_get(m.at[from], r->rank * n, back, n, 0));
		OK(r, weir_remote_flush_local(m.at[from], CASE_MS));
		whole &= !memcmp(back, bytes, n);
	}
	CHECK(r, whole);
	free(bytes);
	free(back);
	memory_free(r, &m);
}

/* A third program, told by a barrier, gets what another has put and flushed. */
static void
flush_third(struct ranks *r)
{
	struct memory m = memory_make(r, PART);

	for (uint64_t i = 1; i <= 50; i++) {
		uint64_t is = 0;

		if (!r->rank) {
			OK(r, weir_remote_put(m.at[r->size - 1], 64, &i, 8, 0));
			OK(r, weir_remote_flush(m.at[r->size - 1], CASE_MS));
		}
		together(r);
		OK(r, weir_remote_get(m.at[r->size - 1], 64, &is, 8, 0));
		OK(r, weir_remote_flush(m.at[r->size - 1], CASE_MS));
		CHECK(r, is == i);
		together(r);
	}
	memory_free(r, &m);
}

/* Operations of one rank on one place take effect in their order, of whatever kind they are. */
static void
order_each(struct ranks *r)
{
	struct memory m = memory_make(r, (uint64_t)RANKS_MAX * PART);
	uint64_t at = (uint64_t)r->rank * PART, one = 1;

	for (uint32_t to = 0; to < r->size; to++)
		for (uint64_t i = 0; i < 200; i++) {
			uint64_t is[3] = {0}, put = i * 1000;

			OK(r, weir_remote_put(m.at[to], at, &put, 8, 0));
			OK(r, weir_remote_get(m.at[to], at, &is[0], 8, 0));
			OK(r, weir_remote_fetch_op(m.at[to], at, &one, &is[1], WEIR_T_UINT64,
						   WEIR_ACC_SUM, 0));
			OK(r, weir_remote_get(m.at[to], at, &is[2], 8, 0));
			OK(r, weir_remote_flush_local(m.at[to], CASE_MS));
			CHECK(r, is[0] == put && is[1] == put && is[2] == put + 1);
		}
	memory_free(r, &m);
}

/* A matrix of words is transposed by gets of columns, and put back by rows. */
static void
layout_transpose(struct ranks *r)
{
	enum { N = 24 };
	struct memory m = memory_make(r, 2 * (uint64_t)PART);
	uint32_t to = (r->rank + 1) % r->size, (*matrix)[N] = (void *)m.base, column[N][N];
	bool right = true;

	for (uint32_t i = 0; i < N; i++)
		for (uint32_t k = 0; k < N; k++)
			matrix[i][k] = r->rank * 100000 + i * 100 + k;
	together(r);
	for (uint32_t k = 0; k < N; k++) {
		const struct weir_layout there = {
		    .block = 4, .dims = 1, .dim = {{.count = N, .stride = 4 * N}}};
		const struct weir_transfer t = {
		    .offset = 4 * k, .buf = column[k], .length = 4 * N, .there = &there};

		OK(r, weir_remote_get_with(m.at[to], &t));
	}
	OK(r, weir_remote_flush(m.at[to], CASE_MS));
	for (uint32_t i = 0; i < N; i++)
		for (uint32_t k = 0; k < N; k++)
			right &= column[k][i] == to * 100000 + i * 100 + k;
	CHECK(r, right);
	together(r);
	for (uint32_t k = 0; k < N; k++) {
		const struct weir_layout there = {
		    .block = 4, .dims = 1, .dim = {{.count = N, .stride = -4 * N}}};
		const struct weir_transfer t = {.offset = 4 * (N * (N - 1) + k),
						.buf = column[k],
						.length = 4 * N,
						.there = &there};

		OK(r, weir_remote_put_with(m.at[to], &t));
	}
	flush_all(r, &m);
	for (uint32_t i = 0; i < N; i++)
		for (uint32_t k = 0; k < N; k++)
			right &= matrix[i][k] == r->rank * 100000 + (N - 1 - i) * 100 + k;
	CHECK(r, right);
	memory_free(r, &m);
}

/* A patch of a larger array at both ends; bytes between its rows stay. */
static void
layout_patch(struct ranks *r)
{
	enum { ROWS = 40, ROW = 600, GAP = 1000 };
	struct memory m = memory_make(r, (uint64_t)ROWS * GAP / 4096 * 4096 + 4096);
	const struct weir_layout l = {
	    .block = ROW, .dims = 1, .dim = {{.count = ROWS, .stride = GAP}}};
	uint8_t *own = calloc(ROWS, GAP);
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
	const struct weir_transfer t = {.buf = own, .here = &l, .there = &l};
	bool right = true;

	for (uint32_t i = 0; i < ROWS * GAP; i++)
		own[i] = pattern(r->rank, 9, i);
	OK(r, weir_remote_put_with(m.at[to], &t));
	flush_all(r, &m);
	for (uint32_t i = 0; i < ROWS * GAP; i++)
		right &= m.base[i] == (i % GAP < ROW ? pattern(from, 9, i) : 0);
	CHECK(r, right);
	memset(own, 0x5a, ROWS * GAP);
	OK(r, weir_remote_get_with(m.at[r->rank], &t));
	OK(r, weir_remote_flush(m.at[r->rank], CASE_MS));
	for (uint32_t i = 0; i < ROWS * GAP; i++)
		right &= own[i] == (i % GAP < ROW ? pattern(from, 9, i) : 0x5a);
	CHECK(r, right);
	free(own);
	memory_free(r, &m);
}

/* Handles end each once, in the order of their operations; marks follow. */
static void
op_each(struct ranks *r)
{
	enum { N = 24 };
	struct memory m = memory_make(r, PART);
	uint32_t to = (r->rank + 1) % r->size;
	uint64_t is[N], word = 1;
	struct weir_op op[N], *all[N];
	struct weir_mark mark;
	int seen = 0, rc;

	for (unsigned i = 0; i < N; i++) {
		const struct weir_transfer t = {
		    .offset = 8 * i, .buf = &is[i], .length = 8, .op = &op[i]};

		all[i] = &op[i];
		is[i] = 1000;
		OK(r, weir_remote_get_with(m.at[to], &t));
	}
	OK(r, weir_op_wait(&op[N / 2], CASE_MS));
	for (unsigned i = 0; i <= N / 2; i++)
		CHECK(r, weir_op_test(&op[i]) == 1 && !op[i].status && !is[i]);
	while ((rc = weir_op_wait_any(all, N, CASE_MS)) >= 0) {
		CHECK(r, !is[rc]);
		seen++;
	}
	CHECK(r, rc == -ENOENT && seen == N - N / 2 - 1);
	OK(r, weir_op_wait_all(all, N, CASE_MS));
	together(r);
	OK(r, weir_remote_put(m.at[to], 8, &word, 8, 0));
	weir_remote_mark(m.at[to], &mark);
	OK(r, weir_remote_flush(m.at[to], CASE_MS));
	CHECK(r, weir_mark_done(&mark) == 1);
	memory_free(r, &m);
}

/* Outside by one, by a wrap, by the largest offset. */
static void
error_range(struct ranks *r)
{
	struct memory m = memory_make(r, PART);
	uint8_t bytes[16] = {0};

	for (uint32_t to = 0; to < r->size; to++) {
		WANT(r, weir_remote_put(m.at[to], PART - 15, bytes, 16, 0), -ERANGE);
		WANT(r, weir_remote_put(m.at[to], UINT64_MAX, bytes, 1, 0), -ERANGE);
		WANT(r, weir_remote_get(m.at[to], UINT64_MAX - 14, bytes, 16, 0), -ERANGE);
		WANT(r,
		     weir_remote_fetch_op(m.at[to], PART, bytes, bytes, WEIR_T_INT8, WEIR_ACC_SUM,
					  0),
		     -ERANGE);
		WANT(r,
		     weir_remote_fetch_op(m.at[to], 4, bytes, bytes, WEIR_T_INT64, WEIR_ACC_SUM, 0),
		     -EINVAL);
		OK(r, weir_remote_put(m.at[to], PART - 16 - r->rank, bytes, 16, 0));
	}
	flush_all(r, &m);
	memory_free(r, &m);
}

/* The owner revokes while all others put: none of them stores anything afterwards. */
static void
revoke_used(struct ranks *r)
{
	struct memory m = memory_make(r, PART);
	struct weir_key own, keys[RANKS_MAX];
	struct weir_remote *h = NULL;
	struct weir_export *x;
	uint64_t i = 0, seen[RANKS_MAX];
	int rc = 0;

	OK(r, weir_export(m.region, 0, PART, WEIR_MAY_WRITE, &x, &own));
	OK(r, weir_group_allgather(r->g, &own, sizeof(own), keys, CASE_MS));
	if (r->rank) {
		OK(r, weir_remote_open(r->w, &keys[0], WEIR_MAY_WRITE, 0, CASE_MS, &h));
		while (!rc && i < 100u << 20) {
			i++;
			rc = weir_remote_put(h, 8 * r->rank, &i, 8, 0);
			if (!rc && i % 64 == 0)
				rc = weir_remote_flush(h, CASE_MS);
		}
		CHECK(r, rc == -ESTALE);
		weir_remote_close(h);
	} else {
		_Atomic uint64_t *words = (void *)m.base;

		for (uint32_t k = 1; k < r->size; k++)
			while (!words[k])
				let_others_run();
	}
	if (!r->rank || r->size == 1)
		OK(r, weir_revoke(x));
	for (uint32_t k = 0; k < r->size; k++)
		seen[k] = ((_Atomic uint64_t *)(void *)m.base)[k];
	together(r);
	for (uint32_t k = 0; k < r->size && !r->rank; k++)
		CHECK(r, seen[k] == ((_Atomic uint64_t *)(void *)m.base)[k]);
	if (r->rank)
		OK(r, weir_revoke(x));
	memory_free(r, &m);
}

#define EACH 1024u /* bytes of a rank in memory that is lent */

/* All ranks use the loan: each puts, adds to a word of all, and gets what the next one has put. */
static void
use_loan(struct ranks *r, struct weir_remote *h)
{
	uint64_t count = r->size * EACH, sum = 0, one = 1;
	uint32_t next = (r->rank + 1) % r->size;
	uint8_t bytes[EACH], is[EACH];

	OK(r, weir_remote_get(h, r->rank * EACH, is, EACH, 0));
	OK(r, weir_remote_flush(h, CASE_MS));
	for (unsigned i = 0; i < EACH; i++) {
		CHECK(r, !is[i]);
		bytes[i] = pattern(r->rank, 1, i);
	}
	OK(r, weir_remote_put(h, r->rank * EACH, bytes, EACH, 0));
	OK(r, weir_remote_fetch_op(h, count, &one, &sum, WEIR_T_UINT64, WEIR_ACC_SUM, 0));
	OK(r, weir_remote_flush(h, CASE_MS));
	CHECK(r, sum < r->size);
	together(r);
	OK(r, weir_remote_get(h, next * EACH, is, EACH, 0));
	OK(r, weir_remote_get(h, count, &sum, sizeof(sum), 0));
	OK(r, weir_remote_flush(h, CASE_MS));
	for (unsigned i = 0; i < EACH; i++)
		CHECK(r, is[i] == pattern(next, 1, i));
	CHECK(r, sum == r->size);
	together(r);
}

/* Memory that the last rank's node lends to rank 0, which passes on the key and gives it back. */
static void
remote_lent(struct ranks *r)
{
	const uint64_t bytes = RANKS_MAX * EACH + sizeof(uint64_t);
	struct weir_where where = {.numa_node = -1};
	struct weir_remote *h = NULL;
	struct weir_member last = {0};
	struct {
		struct weir_key key;
		int64_t rc;
	} loan = {.rc = 0};
	uint64_t word;
	int rc = 0;

	OK(r, weir_group_member(r->g, r->size - 1, &last));
	where.node = (uint16_t)last.node;
	if (!r->rank)
		loan.rc = weir_remote_alloc(r->w, &where, bytes, CASE_MS, &h, &loan.key);
	OK(r, weir_group_broadcast(r->g, 0, &loan, sizeof(loan), CASE_MS));
	if (loan.rc == -ECONNREFUSED) {
		if (!r->rank && r->says_ok)
			printf("%-24s no weir-lend on node %u\n", r->name, where.node);
		return;
	}
	WANT(r, (int)loan.rc, 0);
	if (loan.rc)
		return;
	if (r->rank)
		OK(r, weir_remote_open(r->w, &loan.key,
				       WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE, 0, CASE_MS,
				       &h));
	use_loan(r, h);
	if (!r->rank) {
		OK(r, weir_remote_free(h));
		return;
	}
	/* the others hear that it has ended */
	while (!rc) {
		rc = weir_remote_get(h, 0, &word, sizeof(word), 0);
		if (!rc)
			rc = weir_remote_flush(h, CASE_MS);
	}
	CHECK(r, rc == -ESTALE);
	weir_remote_close(h);
}

const struct rma_case access_cases[] = {
    {"key/forged", key_forged},
    {"rights/each", rights_each},
    {"remote/each", many_each},
    {"remote/all_to_all", many_all_to_all},
    {"remote/third", flush_third},
    {"order/each", order_each},
    {"remote/transpose", layout_transpose},
    {"remote/patch", layout_patch},
    {"remote/handles", op_each},
    {"error/range", error_range},
    {"revoke/used", revoke_used},
    {"remote/lent", remote_lent},
    {NULL, NULL},
};
