/* SPDX-License-Identifier: BSD-3-Clause */
/* Fences, post and start, and kinds of epochs in turn. */
#include "part.h"

#include "ipc/apply.h"

#include <errno.h>

#define PART 4096u

/* ---- fences ---- */

/* Puts and sums between two fences, then single gets, the last word first. */
static void
fence_series(struct ranks *r)
{
	enum { N = 40 };
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t in[2 * N];
	bool right = true;

	epoch_begin(r, win, BY_FENCE);
	for (uint64_t i = 0; i < N; i++) {
		uint64_t v = r->rank * 1000 + i;

		OK(r, weir_window_put(win, next_rank(r), i, &v, 8, 0));
		v = i + 1;
		for (uint32_t k = 0; k < r->size; k++)
			OK(r, weir_window_accumulate(win, k, N + i, &v, 1, WEIR_T_UINT64,
						     WEIR_ACC_SUM, 0));
	}
	OK(r, weir_window_fence(win, 0, CASE_MS));
	for (uint64_t i = 0; i < N; i++)
		right &= word(base, i) == previous_rank(r) * 1000 + i &&
			 word(base, N + i) == r->size * (i + 1);
	CHECK(r, right);
	for (uint64_t i = 2 * N; i--;)
		OK(r, weir_window_get(win, next_rank(r), i, &in[i], 8, 0));
	epoch_end(r, win, BY_FENCE);
	for (uint64_t i = 0; i < N; i++)
		right &= in[i] == r->rank * 1000 + i && in[N + i] == r->size * (i + 1);
	CHECK(r, right);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Each fence ends one epoch and begins the next, with operations or without. */
static void
fence_epochs(struct ranks *r)
{
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t v, in = 0;

	OK(r, weir_window_fence(win, WEIR_NO_PRECEDE | WEIR_NO_STORE, CASE_MS));
	for (uint64_t i = 1; i <= 9; i++) {
		v = 10 * i + r->rank;
		if (i % 3 == 1)
			OK(r, weir_window_put(win, next_rank(r), 0, &v, 8, 0));
		if (i % 3 == 2) /* of what the epoch before has put */
			OK(r, weir_window_get(win, next_rank(r), 0, &in, 8, 0));
		OK(r, weir_window_accumulate(win, next_rank(r), 16 + i, &i, 1, WEIR_T_UINT64,
					     WEIR_ACC_SUM, 0));
		OK(r, weir_window_fence(win, 0, CASE_MS));
		CHECK(r, word(base, 16 + i) == i);
		CHECK(r, i % 3 != 1 || word(base, 0) == 10 * i + previous_rank(r));
		CHECK(r, i % 3 != 2 || in == 10 * (i - 1) + r->rank);
	}
	OK(r, weir_window_fence(win, WEIR_NO_PUT, CASE_MS));
	((_Atomic uint64_t *)(void *)base)[2] = 77 + r->rank;
	OK(r, weir_window_fence(win, 0, CASE_MS));
	OK(r, weir_window_get(win, next_rank(r), 2, &in, 8, 0));
	OK(r, weir_window_fence(win, WEIR_NO_SUCCEED | WEIR_NO_PUT, CASE_MS));
	CHECK(r, in == 77 + next_rank(r));
	WANT(r, weir_window_put(win, next_rank(r), 0, &v, 8, 0), -ENOLCK);
	OK(r, weir_window_fence(win, WEIR_NO_PRECEDE, CASE_MS));
	OK(r, weir_window_fence(win, 0, CASE_MS));
	OK(r, weir_window_put(win, next_rank(r), 3, &v, 8, 0));
	OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
	CHECK(r, word(base, 3) == 90 + previous_rank(r));
	OK(r, weir_window_free(win, CASE_MS));
}

#define AREA 1024u /* bytes for each type: what is put, what is updated, what is got */
#define COUNT 7u

/* Where a type's elements lie. */
static uint32_t
area(unsigned t, unsigned what)
{
	return (t - 1) * AREA + what * (AREA / 4);
}

/* Each type put, got and updated; all bytes beside stay as they are. */
static void
types(struct ranks *r, enum epoch_kind kind)
{
	struct weir_window *win;
	uint8_t *base = make(r, (uint64_t)TYPES * AREA, 0, &win), want[TYPES * AREA];
	uint32_t to = next_rank(r), from = previous_rank(r);
	_Alignas(ELEMENT_MAX) uint8_t out[COUNT * ELEMENT_MAX], in[TYPES][COUNT * ELEMENT_MAX];

	memset(base, UNTOUCHED, sizeof(want));
	memset(want, UNTOUCHED, sizeof(want));
	for (unsigned t = 1; t <= TYPES; t++) {
		enum weir_type type = (enum weir_type)t;
		size_t bytes = COUNT * weir_type_size(type);

		operands(type, 40 + r->rank, COUNT, base + area(t, 1));
		operands(type, 90 + r->rank, COUNT, base + area(t, 2));
		memcpy(want + area(t, 1), base + area(t, 1), 2 * (AREA / 4));
		operands(type, from, COUNT, out);
		memcpy(want + area(t, 0), out, bytes);
		OK(r, weir_apply(type, first_operation(type), want + area(t, 1), out, NULL, COUNT));
	}
	epoch_begin(r, win, kind);
	for (unsigned t = 1; t <= TYPES; t++) {
		enum weir_type type = (enum weir_type)t;
		size_t bytes = COUNT * weir_type_size(type);

		operands(type, r->rank, COUNT, out);
		OK(r, weir_window_put(win, to, area(t, 0) / 8, out, bytes, 0));
		OK(r, weir_window_accumulate(win, to, area(t, 1) / 8, out, COUNT, type,
					     first_operation(type), 0));
		OK(r, weir_window_get(win, to, area(t, 2) / 8, in[t - 1], bytes, 0));
	}
	epoch_end(r, win, kind);
	CHECK(r, !memcmp(base, want, sizeof(want)));
	for (unsigned t = 1; t <= TYPES; t++) {
		operands((enum weir_type)t, 90 + to, COUNT, out);
		CHECK(r, !memcmp(in[t - 1], out, COUNT * weir_type_size((enum weir_type)t)));
	}
	OK(r, weir_window_free(win, CASE_MS));
}

static void
fence_types(struct ranks *r)
{
	types(r, BY_FENCE);
}

/* ---- post, start, complete, wait ---- */

static void
pscw_basic(struct ranks *r)
{
	types(r, BY_START);
}

/* Rank 0 exposes its part to rank 1 alone, and does something else until that has completed. */
static void
pscw_busy(struct ranks *r)
{
	enum { N = 9000 };
	uint32_t zero = 0, one = 1;
	struct weir_window *win;
	uint8_t *base = make(r, N, 0, &win), out[N];

	for (uint32_t round = 1; r->size > 1 && round <= 5; round++) {
		bool right = true;

		if (!r->rank)
			OK(r, weir_window_post(win, &one, 1, 0));
		if (r->rank == 1) {
			for (uint32_t i = 0; i < N; i++)
				out[i] = pattern(1, round, i);
			OK(r, weir_window_start(win, &zero, 1, 0, CASE_MS));
			OK(r, weir_window_put(win, 0, 0, out, N, 0));
			OK(r, weir_window_complete(win, CASE_MS));
		}
		together(r); /* no wait yet; the others never start */
		if (!r->rank) {
			OK(r, weir_window_wait(win, CASE_MS));
			for (uint32_t i = 0; i < N; i++)
				right &= base[i] == pattern(1, round, i);
			CHECK(r, right);
		}
	}
	OK(r, weir_window_free(win, CASE_MS));
}

/* Epochs without operations, without members, and with WEIR_RANK_NULL. */
static void
pscw_null(struct ranks *r)
{
	uint32_t null = WEIR_RANK_NULL;
	struct weir_window *win;
	uint64_t v = 1;

	make(r, PART, 0, &win);
	for (unsigned round = 0; round < 3; round++) {
		OK(r, weir_window_post(win, NULL, 0, 0));
		WANT(r, weir_window_post(win, NULL, 0, 0), -EALREADY);
		OK(r, weir_window_start(win, NULL, 0, 0, 0));
		WANT(r, weir_window_put(win, 0, 0, &v, 8, 0), -ENOLCK);
		OK(r, weir_window_wait(win, 0));
		OK(r, weir_window_complete(win, 0));
		OK(r, weir_window_start(win, &null, 1, 0, 0));
		OK(r, weir_window_post(win, &null, 1, 0));
		OK(r, weir_window_put(win, null, 0, &v, 8, 0));
		WANT(r, weir_window_put(win, 0, 0, &v, 8, 0), -ENOLCK);
		OK(r, weir_window_complete(win, 0));
		OK(r, weir_window_wait(win, 0));
		WANT(r, weir_window_complete(win, 0), -ENOLCK);
		WANT(r, weir_window_wait(win, 0), -ENOLCK);
		epoch_begin(r, win, BY_START);
		epoch_end(r, win, BY_START);
	}
	OK(r, weir_window_free(win, CASE_MS));
}

/* Starts that come before the posts, of pairs; exposure to some, access to others. */
static void
pscw_crossed(struct ranks *r)
{
	uint32_t pair = (r->rank ^ 1) < r->size ? r->rank ^ 1 : r->rank, lower[RANKS_MAX],
		 higher[RANKS_MAX], n = 0;
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t v = 0;

	for (uint64_t round = 1; round <= 4; round++) {
		bool both = round % 2, starts = both || r->rank % 2 == 0,
		     posts = both || r->rank % 2 || pair == r->rank;

		v = round * 100 + r->rank;
		if (starts)
			WANT(r, weir_window_start(win, &pair, 1, 0, 0), -EAGAIN);
		together(r);
		if (posts)
			OK(r, weir_window_post(win, &pair, 1, 0));
		if (both) { /* nobody has started */
			WANT(r, weir_window_wait(win, 0), -EAGAIN);
			together(r);
		}
		if (starts) {
			OK(r, weir_window_start(win, &pair, 1, 0, CASE_MS));
			OK(r, weir_window_put(win, pair, round, &v, 8, 0));
			OK(r, weir_window_complete(win, CASE_MS));
		}
		if (posts)
			OK(r, weir_window_wait(win, CASE_MS));
		CHECK(r, word(base, round) == (posts ? round * 100 + pair : 0));
	}
	for (uint32_t i = 0; i < r->size; i++) {
		lower[i] = i;
		if (i > r->rank)
			higher[n++] = i;
	}
	OK(r, weir_window_post(win, lower, r->rank, 0));
	OK(r, weir_window_start(win, higher, n, 0, CASE_MS));
	for (uint32_t i = 0; i < n; i++)
		OK(r, weir_window_put(win, higher[i], 16 + r->rank, &v, 8, 0));
	WANT(r, weir_window_put(win, r->rank, 16 + r->rank, &v, 8, 0), -ENOLCK);
	OK(r, weir_window_complete(win, CASE_MS));
	OK(r, weir_window_wait(win, CASE_MS));
	for (uint32_t i = 0; i < r->size; i++)
		CHECK(r, word(base, 16 + i) == (i < r->rank ? 400 + i : 0));
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- kinds of epochs in turn ---- */

/* A load behind complete and wait, a fence, or unlock sees the data; so does a lock of the own
 * part. */
static void
sync_complete(struct ranks *r)
{
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);

	for (uint64_t round = 0; round < 3 * EPOCH_KINDS; round++) {
		enum epoch_kind kind = (enum epoch_kind)(round % EPOCH_KINDS);
		uint64_t v = round * 100 + r->rank, seen = 0;

		epoch_begin(r, win, kind);
		OK(r, weir_window_put(win, next_rank(r), 5, &v, 8, 0));
		epoch_end(r, win, kind);
		CHECK(r, word(base, 5) == round * 100 + previous_rank(r));
		OK(r, weir_window_lock(win, r->rank, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
		OK(r, weir_window_get(win, r->rank, 5, &seen, 8, 0));
		OK(r, weir_window_flush(win, r->rank, CASE_MS));
		CHECK(r, seen == round * 100 + previous_rank(r));
		((_Atomic uint64_t *)(void *)base)[5] = 0;
		OK(r, weir_window_unlock(win, r->rank, CASE_MS));
	}
	OK(r, weir_window_free(win, CASE_MS));
}

static void
sync_mixed(struct ranks *r)
{
	static const char kinds[] = "00102031121322330"; /* each kind behind each */
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t one = 1;

	for (uint64_t round = 0; kinds[round]; round++) {
		enum epoch_kind kind = (enum epoch_kind)(kinds[round] - '0');
		uint64_t v = round * 100 + r->rank, in = 0;

		epoch_begin(r, win, kind);
		for (uint32_t i = 0; i < r->size; i++)
			OK(r, weir_window_accumulate(win, i, 0, &one, 1, WEIR_T_UINT64,
						     WEIR_ACC_SUM, 0));
		OK(r, weir_window_put(win, next_rank(r), 1 + round % 2, &v, 8, 0));
		OK(r, weir_window_get(win, next_rank(r), 2 - round % 2, &in, 8, 0));
		epoch_end(r, win, kind);
		CHECK(r, word(base, 0) == r->size * (round + 1));
		CHECK(r, word(base, 1 + round % 2) == round * 100 + previous_rank(r));
		CHECK(r, in == (round ? (round - 1) * 100 + r->rank : 0));
	}
	OK(r, weir_window_free(win, CASE_MS));
}

/* A fence that no operation follows permits a lock, a start and lock_all, and is over then. */
static void
sync_fence_gives_way(struct ranks *r)
{
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);

	for (unsigned k = BY_START; k < EPOCH_KINDS; k++) {
		uint64_t v = k * 100 + r->rank;

		OK(r, weir_window_fence(win, 0, CASE_MS));
		epoch_begin(r, win, (enum epoch_kind)k);
		OK(r, weir_window_put(win, next_rank(r), 0, &v, 8, 0));
		epoch_end(r, win, (enum epoch_kind)k);
		CHECK(r, word(base, 0) == k * 100 + previous_rank(r));
		WANT(r, weir_window_put(win, next_rank(r), 0, &v, 8, 0), -ENOLCK);
	}
	OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

/* A rank is the target of its own operations of every kind, in every kind of epoch. */
static void
self_all(struct ranks *r)
{
	uint64_t five = 5, seven = 7, got[3] = {0}, was[3];
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);

	for (unsigned k = 0; k < EPOCH_KINDS; k++) {
		memset(base, 0, PART);
		epoch_begin(r, win, (enum epoch_kind)k);
		OK(r, weir_window_put(win, r->rank, 0, &five, 8, 0));
		OK(r, weir_window_flush(win, r->rank, CASE_MS));
		CHECK(r, word(base, 0) == 5);
		OK(r, weir_window_accumulate(win, r->rank, 0, &seven, 1, WEIR_T_UINT64,
					     WEIR_ACC_SUM, 0));
		OK(r, weir_window_fetch_op(win, r->rank, 0, &five, &was[0], WEIR_T_UINT64,
					   WEIR_ACC_PROD, 0)); /* 60 */
		OK(r, weir_window_get_accumulate(win, r->rank, 0, &seven, &was[1], 1, WEIR_T_UINT64,
						 WEIR_ACC_REPLACE, 0)); /* 7 */
		OK(r, weir_window_flush_local(win, r->rank, CASE_MS));
		OK(r, weir_window_compare_swap(win, r->rank, 0, &seven, &five, &was[2],
					       WEIR_T_UINT64, 0));
		OK(r, weir_window_flush(win, r->rank, CASE_MS));
		OK(r, weir_window_get(win, r->rank, 0, got, sizeof(got), 0));
		epoch_end(r, win, (enum epoch_kind)k);
		CHECK(r, was[0] == 12 && was[1] == 60 && was[2] == 7);
		CHECK(r, got[0] == 5 && !got[1] && !got[2] && word(base, 0) == 5);
	}
	OK(r, weir_window_free(win, CASE_MS));
}

const struct rma_case epoch_cases[] = {
    {"fence/series", fence_series}, {"fence/epochs", fence_epochs},
    {"fence/types", fence_types},   {"pscw/basic", pscw_basic},
    {"pscw/busy", pscw_busy},	    {"pscw/null", pscw_null},
    {"pscw/crossed", pscw_crossed}, {"sync/complete", sync_complete},
    {"sync/mixed", sync_mixed},	    {"sync/fence_gives_way", sync_fence_gives_way},
    {"self/all", self_all},	    {NULL, NULL},
};
