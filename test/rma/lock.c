/* SPDX-License-Identifier: BSD-3-Clause */
/* Locks of windows. */
#include "part.h"

#include <errno.h>
#include <stdlib.h>

#define PART 4096u
#define ROUNDS 10u

/* One operation under a lock of each kind; the next lock sees it. */
static void
lock_single(struct ranks *r)
{
	static const uint32_t lengths[] = {8, 4096, 70000};
	const uint32_t most = 70000;
	uint32_t to = next_rank(r); /* which no other rank locks */
	struct weir_window *win;
	uint8_t *out = malloc(most), *in = malloc(most);

	make(r, most, 0, &win);
	for (uint32_t i = 0; i < 12; i++) {
		int kind = i % 2 ? WEIR_LOCK_SHARED : WEIR_LOCK_EXCLUSIVE;
		unsigned asserts = i / 2 % 2 ? WEIR_NO_CHECK : 0;
		uint32_t n = lengths[i / 4];
		uint64_t seven = 7, first;

		for (uint32_t k = 0; k < n; k++)
			out[k] = pattern(r->rank, i, k);
		memcpy(&first, out, 8);
		OK(r, weir_window_lock(win, to, kind, asserts, CASE_MS));
		OK(r, weir_window_put(win, to, 0, out, n, 0));
		OK(r, weir_window_unlock(win, to, CASE_MS));
		OK(r, weir_window_lock(win, to, kind, asserts, CASE_MS));
		OK(r, weir_window_get(win, to, 0, in, n, 0));
		OK(r, weir_window_unlock(win, to, CASE_MS));
		CHECK(r, !memcmp(in, out, n));
		OK(r, weir_window_lock(win, to, kind, asserts, CASE_MS));
		OK(r,
		   weir_window_accumulate(win, to, 0, &seven, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0));
		OK(r, weir_window_unlock(win, to, CASE_MS));
		OK(r, weir_window_lock(win, to, kind, asserts, CASE_MS));
		OK(r, weir_window_get(win, to, 0, in, 8, 0));
		OK(r, weir_window_unlock(win, to, CASE_MS));
		CHECK(r, word(in, 0) == first + 7);
	}
	free(in);
	free(out);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Each locks each, from its own rank on: writers alone, readers together. Two words are equal
 * whenever the lock is acquired. */
static void
lock_contention(struct ranks *r)
{
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t writes = 0;

	for (uint32_t round = 0; round < 3 * ROUNDS; round++)
		for (uint32_t k = 0; k < r->size; k++) {
			uint32_t i = (r->rank + k) % r->size;
			bool write = (round + r->rank + i) % 3 == 0;
			uint64_t is[2] = {0, 1};

			OK(r,
			   weir_window_lock(win, i, write ? WEIR_LOCK_EXCLUSIVE : WEIR_LOCK_SHARED,
					    0, CASE_MS));
			OK(r, weir_window_get(win, i, 0, &is[0], 8, 0));
			OK(r, weir_window_get(win, i, 300, &is[1], 8, 0));
			OK(r, weir_window_flush_local(win, i, CASE_MS));
			CHECK(r, is[0] == is[1]);
			is[0]++;
			if (write && round % 2) /* several operations, and one */
				OK(r, weir_window_put(win, i, 300, &is[0], 8, 0));
			if (write)
				OK(r, weir_window_put(win, i, 0, &is[0], 8, 0));
			if (write && round % 2 == 0)
				OK(r, weir_window_put(win, i, 300, &is[0], 8, 0));
			OK(r, weir_window_unlock(win, i, CASE_MS));
			/* what rank i writes here in this round */
			writes += (round + i + r->rank) % 3 == 0;
		}
	together(r);
	CHECK(r, word(base, 0) == writes && word(base, 300) == writes);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Locks without operations. */
static void
lock_null(struct ranks *r)
{
	const uint32_t null = WEIR_RANK_NULL;
	struct weir_window *win;
	uint64_t v = 1;

	make(r, PART, 0, &win);
	for (uint32_t i = 0; i < 4 * r->size; i++) {
		uint32_t to = (r->rank + i) % r->size;
		int kind = i % 2 ? WEIR_LOCK_SHARED : WEIR_LOCK_EXCLUSIVE;

		OK(r, weir_window_lock(win, to, kind, 0, CASE_MS));
		if (i % 3 == 0)
			OK(r, weir_window_flush(win, to, CASE_MS));
		if (i % 3 == 1)
			OK(r, weir_window_put(win, to, 0, &v, 0, 0));
		OK(r, weir_window_unlock(win, to, CASE_MS));
		WANT(r, weir_window_put(win, to, 0, &v, 8, 0), -ENOLCK);
		OK(r, weir_window_lock_all(win, 0, CASE_MS));
		OK(r, weir_window_flush_all(win, CASE_MS));
		OK(r, weir_window_flush_local(win, to, CASE_MS));
		OK(r, weir_window_unlock_all(win, CASE_MS));
	}
	OK(r, weir_window_lock(win, null, WEIR_LOCK_EXCLUSIVE, 0, 0));
	OK(r, weir_window_put(win, null, 0, &v, 8, 0));
	OK(r, weir_window_flush(win, null, 0));
	WANT(r, weir_window_put(win, r->rank, 0, &v, 8, 0), -ENOLCK);
	WANT(r, weir_window_free(win, 0), -EBUSY);
	OK(r, weir_window_unlock(win, null, 0));
	WANT(r, weir_window_unlock(win, null, 0), -ENOLCK);
	OK(r, weir_window_free(win, CASE_MS));
}

/* All parts locked at once, in one order by all, and released in another one. */
static void
lock_nested(struct ranks *r)
{
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t v[RANKS_MAX], seen;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < r->size; i++)
			OK(r, weir_window_lock(win, i, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
		for (uint32_t i = 0; i < r->size; i++)
			OK(r, weir_window_get(win, i, 0, &v[i], 8, 0));
		OK(r, weir_window_flush_all(win, CASE_MS));
		for (uint32_t i = 1; i < r->size; i++) /* nobody changes one without the others */
			CHECK(r, v[i] == v[0]);
		v[0]++;
		for (uint32_t i = 0; i < r->size; i++)
			OK(r, weir_window_put(win, i, 0, &v[0], 8, 0));
		for (uint32_t i = 0; i < r->size; i++) {
			uint32_t of = (i + r->rank) % r->size;

			OK(r, weir_window_unlock(win, of, CASE_MS));
			WANT(r, weir_window_get(win, of, 0, &seen, 8, 0), -ENOLCK);
		}
	}
	together(r);
	CHECK(r, word(base, 0) == (uint64_t)r->size * ROUNDS);
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- a queue lock made of fetches, swaps and loads of the own part ---- */

enum { TAIL, NEXT, BLOCKED, COUNTER }; /* words; the first and the last one are of rank 0 */

/* Atomic operation on a word; what it was. */
static uint64_t
fetch(struct ranks *r, struct weir_window *win, uint32_t rank, uint64_t at, uint64_t v,
      enum weir_acc op)
{
	uint64_t was = 0;

	OK(r, weir_window_fetch_op(win, rank, at, &v, &was, WEIR_T_UINT64, op, 0));
	OK(r, weir_window_flush(win, rank, CASE_MS));
	return was;
}

/* Until a word of the own part is 0, or is not: what it is. */
static uint64_t
await(struct ranks *r, const uint8_t *base, uint64_t at, bool zero)
{
	uint64_t v;

	while ((v = word(base, at), !v) != zero && !r->failures)
		let_others_run();
	atomic_thread_fence(memory_order_acquire);
	return v;
}

static void
mcs_acquire(struct ranks *r, struct weir_window *win, const uint8_t *base)
{
	uint64_t before;

	fetch(r, win, r->rank, NEXT, 0, WEIR_ACC_REPLACE);
	fetch(r, win, r->rank, BLOCKED, 1, WEIR_ACC_REPLACE);
	before = fetch(r, win, 0, TAIL, r->rank + 1, WEIR_ACC_REPLACE);
	if (!before)
		return;
	fetch(r, win, (uint32_t)before - 1, NEXT, r->rank + 1, WEIR_ACC_REPLACE);
	await(r, base, BLOCKED, true);
}

static void
mcs_release(struct ranks *r, struct weir_window *win, const uint8_t *base)
{
	uint64_t mine = r->rank + 1, none = 0, was = 0;

	if (!word(base, NEXT)) {
		OK(r, weir_window_compare_swap(win, 0, TAIL, &mine, &none, &was, WEIR_T_UINT64, 0));
		OK(r, weir_window_flush(win, 0, CASE_MS));
		if (was == mine)
			return;
	}
	fetch(r, win, (uint32_t)await(r, base, NEXT, false) - 1, BLOCKED, 0, WEIR_ACC_REPLACE);
}

static void
mutex_mcs(struct ranks *r)
{
	enum { N = 40 };
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t v = 0;

	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (unsigned i = 0; i < N; i++) {
		mcs_acquire(r, win, base);
		OK(r, weir_window_get(win, 0, COUNTER, &v, 8, 0));
		OK(r, weir_window_flush(win, 0, CASE_MS));
		v++;
		OK(r, weir_window_put(win, 0, COUNTER, &v, 8, 0));
		OK(r, weir_window_flush(win, 0, CASE_MS));
		mcs_release(r, win, base);
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	together(r);
	CHECK(r, r->rank || (word(base, COUNTER) == N * (uint64_t)r->size && !word(base, TAIL)));
	OK(r, weir_window_free(win, CASE_MS));
}

/*
 * lock_all excludes an exclusive lock of parts that its caller may load and store: of its own, and
 * of one whose address it has asked for. An operation to another one waits for the lock as long as
 * lock_all was allowed to.
 */
static void
lock_all_excludes(struct ranks *r)
{
	enum { SHORT_MS = 20 };
	uint32_t next = (r->rank + 1) % r->size;
	struct weir_window *win;
	uint64_t v = 1;
	void *there;
	bool mapped = false;

	if (r->size == 1)
		return;
	make(r, PART, 0, &win);
	for (unsigned asked = 0; asked < 2; asked++) {
		if (!r->rank) {
			OK(r, weir_window_lock_all(win, 0, CASE_MS));
			mapped = asked && !weir_window_query(win, next, &there, NULL, NULL);
		}
		together(r);
		if (r->rank == 1) {
			WANT(r, weir_window_lock(win, 0, WEIR_LOCK_EXCLUSIVE, 0, SHORT_MS),
			     -EAGAIN);
			OK(r, weir_window_lock(win, 0, WEIR_LOCK_SHARED, 0, CASE_MS));
			OK(r, weir_window_unlock(win, 0, CASE_MS));
		}
		together(r);
		if (!r->rank) {
			OK(r, weir_window_unlock_all(win, CASE_MS));
			OK(r, weir_window_lock(win, 0, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
			WANT(r, weir_window_lock_all(win, 0, 0), -EALREADY);
			OK(r, weir_window_unlock(win, 0, CASE_MS));
		}
		together(r);
	}
	/* the part that was asked for is locked at once, another one by an operation */
	if (r->rank == 1)
		OK(r, weir_window_lock(win, 1, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
	together(r);
	if (!r->rank && mapped) {
		WANT(r, weir_window_lock_all(win, 0, SHORT_MS), -EAGAIN);
		WANT(r, weir_window_put(win, 0, 0, &v, 8, 0), -ENOLCK);
		/* it holds nothing */
		OK(r, weir_window_lock(win, 0, WEIR_LOCK_EXCLUSIVE, 0, SHORT_MS));
		OK(r, weir_window_unlock(win, 0, CASE_MS));
	} else if (!r->rank) {
		OK(r, weir_window_lock_all(win, 0, SHORT_MS));
		WANT(r, weir_window_put(win, next, 0, &v, 8, 0), -EAGAIN);
	}
	together(r);
	if (r->rank == 1)
		OK(r, weir_window_unlock(win, 1, CASE_MS));
	together(r);
	if (!r->rank && mapped)
		OK(r, weir_window_lock_all(win, 0, CASE_MS));
	if (!r->rank) {
		OK(r, weir_window_put(win, next, 0, &v, 8, 0));
		OK(r, weir_window_unlock_all(win, CASE_MS));
	}
	together(r);
	OK(r, weir_window_free(win, CASE_MS));
}

const struct rma_case lock_cases[] = {
    {"lock/single", lock_single},
    {"lock/contention", lock_contention},
    {"lock/null", lock_null},
    {"lock/nested", lock_nested},
    {"lock/all", lock_all_excludes},
    {"mutex/mcs", mutex_mcs},
    {NULL, NULL},
};
