/* SPDX-License-Identifier: BSD-3-Clause */
/* Updates through windows: every type, and all ranks at one element. */
#include "part.h"

#include "ipc/apply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PART 4096u

/* ---- tickets ---- */

/* Counts that a ticket was taken, at rank 0 behind word `from`. */
static void
mark(struct ranks *r, struct weir_window *win, uint64_t from, uint64_t ticket, uint64_t tickets)
{
	uint64_t one = 1;

	CHECK(r, ticket < tickets);
	if (ticket < tickets)
		OK(r, weir_window_accumulate(win, 0, from + ticket, &one, 1, WEIR_T_UINT64,
					     WEIR_ACC_SUM, 0));
}

static void
all_marked(struct ranks *r, const uint8_t *base, uint64_t from, uint64_t tickets)
{
	for (uint64_t i = 0; !r->rank && i < tickets; i++)
		CHECK(r, word(base, from + i) == 1);
}

/* Each number is given once. */
static void
update_tickets(struct ranks *r)
{
	enum { N = 60, FROM = 8 };
	struct weir_window *win;
	uint8_t *base = make(r, 8 * (FROM + N * r->size), 0, &win);
	uint64_t one = 1, ticket = 0;

	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (unsigned i = 0; i < N; i++) {
		OK(r,
		   weir_window_fetch_op(win, 0, 0, &one, &ticket, WEIR_T_UINT64, WEIR_ACC_SUM, 0));
		OK(r, weir_window_flush(win, 0, CASE_MS));
		mark(r, win, FROM, ticket, N * r->size);
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	together(r);
	all_marked(r, base, FROM, N * r->size);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Counters in a binary tree, node i above 2i and 2i + 1: a rank adds to the nodes from its leaf
 * up and reads those beside them, under a lock. Its ticket is what all have taken before. */
static void
update_tree(struct ranks *r)
{
	enum { N = 15, FROM = 2 * RANKS_MAX };
	uint32_t leaves = 1;
	uint64_t one = 1, beside[8], taken = 0;
	struct weir_window *win;
	uint8_t *base = make(r, 8 * (FROM + N * r->size), 0, &win);

	while (leaves < r->size)
		leaves *= 2;
	for (unsigned i = 0; i < N; i++) {
		uint64_t ticket = taken++;
		unsigned level = 0;

		OK(r, weir_window_lock(win, 0, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
		for (uint32_t node = leaves + r->rank; node; node /= 2) {
			OK(r, weir_window_accumulate(win, 0, node, &one, 1, WEIR_T_UINT64,
						     WEIR_ACC_SUM, 0));
			if (node > 1)
				OK(r, weir_window_get(win, 0, node ^ 1, &beside[level++], 8, 0));
		}
		OK(r, weir_window_unlock(win, 0, CASE_MS));
		while (level)
			ticket += beside[--level];
		OK(r, weir_window_lock(win, 0, WEIR_LOCK_SHARED, 0, CASE_MS));
		mark(r, win, FROM, ticket, N * r->size);
		OK(r, weir_window_unlock(win, 0, CASE_MS));
	}
	together(r);
	CHECK(r, r->rank || word(base, 1) == N * r->size);
	all_marked(r, base, FROM, N * r->size);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Operations that read, compute and write are one step against each other, whichever they are. */
static void
update_rmw(struct ranks *r)
{
	enum { N = 40, FROM = 8 };
	uint64_t one = 1, was = 0, next, tickets = 3 * N * r->size;
	struct weir_window *win;
	uint8_t *base = make(r, 8 * (FROM + tickets), 0, &win);

	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (unsigned i = 0; i < 3 * N; i++) {
		unsigned kind = (i + r->rank) % 3;

		if (kind == 0)
			OK(r, weir_window_fetch_op(win, 0, 0, &one, &was, WEIR_T_UINT64,
						   WEIR_ACC_SUM, 0));
		if (kind == 1)
			OK(r, weir_window_get_accumulate(win, 0, 0, &one, &was, 1, WEIR_T_UINT64,
							 WEIR_ACC_SUM, 0));
		OK(r, weir_window_flush(win, 0, CASE_MS));
		for (uint64_t is = was; kind == 2; is = was) {
			next = is + 1;
			OK(r,
			   weir_window_compare_swap(win, 0, 0, &is, &next, &was, WEIR_T_UINT64, 0));
			OK(r, weir_window_flush(win, 0, CASE_MS));
			if (was == is || r->failures)
				break;
		}
		mark(r, win, FROM, was, tickets);
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	together(r);
	CHECK(r, r->rank || word(base, 0) == tickets);
	all_marked(r, base, FROM, tickets);
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- types ---- */

/* A failure of a type. */
static void
check_type(struct ranks *r, bool right, unsigned t, unsigned op)
{
	char what[64];

	snprintf(what, sizeof(what), "type %u, operation %u", t, op);
	check(r, right, what, __LINE__);
}

/* Each type fetched, replaced and changed, at the caller and at another rank. */
static void
update_fop_types(struct ranks *r)
{
	static const enum weir_acc no = WEIR_ACC_NO_OP, set = WEIR_ACC_REPLACE;
	_Alignas(ELEMENT_MAX) uint8_t out[ELEMENT_MAX], got[4][ELEMENT_MAX], is[ELEMENT_MAX];
	struct weir_window *win;

	make(r, 2 * (uint64_t)PART, 0, &win);
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (unsigned t = 1; t <= TYPES; t++)
		for (unsigned other = 0; other < 2; other++) {
			enum weir_type type = (enum weir_type)t;
			enum weir_acc op = first_operation(type);
			uint32_t to = other ? next_rank(r) : r->rank;
			size_t size = weir_type_size(type);
			uint64_t at = (t * 2 + other) * ELEMENT_MAX / 8;

			operands(type, r->rank + 1, 1, out);
			OK(r, weir_window_fetch_op(win, to, at, out, got[0], type, set, 0));
			OK(r, weir_window_fetch_op(win, to, at, NULL, got[1], type, no, 0));
			OK(r, weir_window_fetch_op(win, to, at, out, got[2], type, op, 0));
			OK(r, weir_window_fetch_op(win, to, at, NULL, got[3], type, no, 0));
			OK(r, weir_window_flush(win, to, CASE_MS));
			memcpy(is, out, size);
			check_type(r, is_filled(got[0], 0, size) && !memcmp(got[1], is, size), t,
				   set);
			OK(r, weir_apply(type, op, is, out, NULL, 1));
			check_type(r, !memcmp(got[2], out, size) && !memcmp(got[3], is, size), t,
				   op);
		}
	WANT(r, weir_window_fetch_op(win, 0, 0, out, got[0], (enum weir_type)(TYPES + 1), set, 0),
	     -EINVAL);
	WANT(r, weir_window_fetch_op(win, 0, 0, out, got[0], WEIR_T_FLOAT, WEIR_ACC_BAND, 0),
	     -EINVAL);
	OK(r, weir_window_unlock_all(win, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

/* Every type, operation and layout; the elements before are returned, those beside stay. */
static void
update_gacc(struct ranks *r)
{
	enum { N = 6, SLOT = 512 };
	struct weir_window *win;
	uint8_t *base = make(r, (uint64_t)OPERATIONS * SLOT, 0, &win);
	uint8_t want[OPERATIONS * SLOT], got[OPERATIONS * SLOT / 2];
	_Alignas(ELEMENT_MAX) uint8_t out[N * ELEMENT_MAX], one[ELEMENT_MAX];
	struct weir_piece list[N];

	for (unsigned t = 1; t <= TYPES; t++) {
		enum weir_type type = (enum weir_type)t;
		size_t size = weir_type_size(type), gap = t % 3 ? 2 * size : size;
		const struct weir_layout strided = {.block = size,
						    .dims = 2,
						    .dim = {{N / 2, (int64_t)gap},
							    {2, (int64_t)(gap * (N / 2))}}},
					 listed = {.list = list, .count = N},
					 *there = t % 3 == 2   ? &listed
						  : t % 3 == 1 ? &strided
							       : NULL;

		for (unsigned i = 0; i < N; i++)
			list[i] = (struct weir_piece){(int64_t)(i * gap), size};
		memset(base, UNTOUCHED, (size_t)OPERATIONS * SLOT);
		for (unsigned op = 1; op <= OPERATIONS; op++)
			for (unsigned i = 0; i < N; i++)
				operands(type, 5 * op + i, 1, base + (op - 1) * SLOT + i * gap);
		memcpy(want, base, sizeof(want));
		memset(got, UNTOUCHED, sizeof(got));
		epoch_begin(r, win, t % 2 ? BY_FENCE : BY_LOCK_ALL);
		for (unsigned op = 1; op <= OPERATIONS; op++) {
			struct weir_update u = {.offset = (op - 1) * SLOT / 8,
						.operand = out,
						.result = got + (op - 1) * SLOT / 2,
						.count = N,
						.there = there,
						.type = t,
						.op = op};
			bool valid = weir_acc_valid(type, (enum weir_acc)op);

			operands(type, 3 * op + 1, N, out);
			WANT(r, weir_window_update_with(win, next_rank(r), &u),
			     valid ? 0 : -EINVAL);
			for (unsigned i = 0; valid && i < N; i++)
				OK(r, weir_apply(type, (enum weir_acc)op,
						 want + (op - 1) * SLOT + i * gap, out + i * size,
						 one, 1));
		}
		epoch_end(r, win, t % 2 ? BY_FENCE : BY_LOCK_ALL);
		for (unsigned op = 1; op <= OPERATIONS; op++) {
			const uint8_t *is = got + (op - 1) * SLOT / 2;
			bool valid = weir_acc_valid(type, (enum weir_acc)op);

			operands(type, 5 * op, N, out);
			check_type(r,
				   !memcmp(base + (op - 1) * SLOT, want + (op - 1) * SLOT, SLOT) &&
				       (valid ? !memcmp(is, out, N * size)
					      : is_filled(is, UNTOUCHED, N * size)) &&
				       is_filled(is + N * size, UNTOUCHED, SLOT / 2 - N * size),
				   t, op);
		}
	}
	OK(r, weir_window_free(win, CASE_MS));
}

/* Swaps that take place and swaps that do not, of each type that has them. */
static void
update_cas(struct ranks *r)
{
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win), is[8], other[8];
	uint64_t was[2], zero[4] = {0};

	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (unsigned t = 1; t <= TYPES; t++) {
		enum weir_type type = (enum weir_type)t;
		size_t size = weir_type_size(type);
		uint32_t to = t % 2 ? next_rank(r) : r->rank;
		uint8_t want[16];

		if (!weir_type_swaps(type)) {
			WANT(r, weir_window_compare_swap(win, to, 4 * t, zero, zero, was, type, 0),
			     -EINVAL);
			continue;
		}
		memset(is, type == WEIR_T_BOOL ? 1 : 0x81, sizeof(is));
		memset(other, type == WEIR_T_BOOL ? 1 : 0x42, sizeof(other));
		memset(was, UNTOUCHED, sizeof(was));
		/* 0 becomes `is`, which is not 0 then */
		OK(r, weir_window_compare_swap(win, to, 4 * t, zero, is, &was[0], type, 0));
		OK(r, weir_window_compare_swap(win, to, 4 * t, zero, other, &was[1], type, 0));
		OK(r, weir_window_flush(win, to, CASE_MS));
		memset(want, UNTOUCHED, sizeof(want));
		memset(want, 0, size);
		memcpy(want + 8, is, size);
		check_type(r, !memcmp(was, want, sizeof(want)), t, 0);
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	together(r);
	for (unsigned t = 1; t <= TYPES; t++) {
		uint8_t want[32] = {0};

		if (weir_type_swaps((enum weir_type)t))
			memset(want, t == WEIR_T_BOOL ? 1 : 0x81,
			       weir_type_size((enum weir_type)t));
		check_type(r, !memcmp(base + 32 * t, want, sizeof(want)), t, 0);
	}
	OK(r, weir_window_free(win, CASE_MS));
}

/* Whether a pair is one that a rank has put: the value and the index are the same number. */
static bool
is_whole(enum weir_type t, const void *pair)
{
	switch (t) {
#define CASE(name, T)                                                                              \
	case name:                                                                                 \
		return (long double)((const struct T *)pair)->value == ((const struct T *)pair)->at
		CASE(WEIR_T_INT16_AT, weir_int16_at);
		CASE(WEIR_T_INT32_AT, weir_int32_at);
		CASE(WEIR_T_INT64_AT, weir_int64_at);
		CASE(WEIR_T_FLOAT_AT, weir_float_at);
		CASE(WEIR_T_DOUBLE_AT, weir_double_at);
		CASE(WEIR_T_LONG_DOUBLE_AT, weir_long_double_at);
#undef CASE
	default:
		return false;
	}
}

static void
set_pair(enum weir_type t, int32_t v, void *pair)
{
	memset(pair, 0, ELEMENT_MAX);
	switch (t) {
#define CASE(name, T, V)                                                                           \
	case name:                                                                                 \
		((struct T *)pair)->value = (V)v;                                                  \
		((struct T *)pair)->at = v;                                                        \
		break
		CASE(WEIR_T_INT16_AT, weir_int16_at, int16_t);
		CASE(WEIR_T_INT32_AT, weir_int32_at, int32_t);
		CASE(WEIR_T_INT64_AT, weir_int64_at, int64_t);
		CASE(WEIR_T_FLOAT_AT, weir_float_at, float);
		CASE(WEIR_T_DOUBLE_AT, weir_double_at, double);
		CASE(WEIR_T_LONG_DOUBLE_AT, weir_long_double_at, long double);
#undef CASE
	default:
		break;
	}
}

/* Fetches of pairs that others replace never get one half of each. */
static void
update_pair_get(struct ranks *r)
{
	enum { N = 40 };
	_Alignas(ELEMENT_MAX) uint8_t pair[ELEMENT_MAX], is[ELEMENT_MAX];
	struct weir_window *win;

	make(r, PART, 0, &win);
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (unsigned t = WEIR_T_INT16_AT; t <= WEIR_T_LONG_DOUBLE_AT; t++)
		for (int32_t i = 1; i <= N; i++) {
			enum weir_type type = (enum weir_type)t;

			set_pair(type, i * 16 + (int32_t)r->rank, pair);
			memset(is, 0xff, sizeof(is));
			if ((i + (int32_t)r->rank) % 2)
				OK(r, weir_window_accumulate(win, 0, 4 * t, pair, 1, type,
							     WEIR_ACC_REPLACE, 0));
			OK(r,
			   weir_window_fetch_op(win, 0, 4 * t, NULL, is, type, WEIR_ACC_NO_OP, 0));
			OK(r, weir_window_flush(win, 0, CASE_MS));
			check_type(r, is_whole(type, is), t, WEIR_ACC_NO_OP);
		}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

/* The least and the greatest of all ranks and their places, for each pair, at every second one. */
static void
update_loc(struct ranks *r)
{
	enum { N = 3 };
	struct weir_window *win;
	uint8_t *base = make(r, 2 * (uint64_t)PART, 0, &win);
	_Alignas(ELEMENT_MAX) uint8_t mine[N * ELEMENT_MAX], want[ELEMENT_MAX];

	for (unsigned t = WEIR_T_INT16_AT; t <= WEIR_T_LONG_DOUBLE_AT; t++)
		for (unsigned i = 0; i < 4 * N; i++) {
			set_pair((enum weir_type)t, i < 2 * N ? 1000 : -1000, want);
			memcpy(base + (t - WEIR_T_INT16_AT) * 1024 +
				   i * weir_type_size((enum weir_type)t),
			       want, weir_type_size((enum weir_type)t));
		}
	epoch_begin(r, win, BY_FENCE);
	for (unsigned t = WEIR_T_INT16_AT; t <= WEIR_T_LONG_DOUBLE_AT; t++) {
		size_t size = weir_type_size((enum weir_type)t);
		const struct weir_layout second = {
		    .block = size, .dims = 1, .dim = {{N, 2 * (int64_t)size}}};
		struct weir_update u = {.offset = (t - WEIR_T_INT16_AT) * 128,
					.operand = mine,
					.count = N,
					.there = &second,
					.type = t,
					.op = WEIR_ACC_MINLOC};
		/* the greatest ones begin behind the least ones */
		const struct weir_piece list[N] = {{(int64_t)(2 * N * size), size},
						   {(int64_t)((2 * N + 2) * size), size},
						   {(int64_t)((2 * N + 4) * size), size}};
		const struct weir_layout listed = {.list = list, .count = N};

		for (int32_t i = 0; i < N; i++) {
			set_pair((enum weir_type)t, (int32_t)r->rank * 3 + i, want);
			memcpy(mine + (size_t)i * size, want, size);
		}
		OK(r, weir_window_update_with(win, 0, &u));
		u.op = WEIR_ACC_MAXLOC;
		u.there = &listed;
		OK(r, weir_window_update_with(win, 0, &u));
	}
	epoch_end(r, win, BY_FENCE);
	for (unsigned t = WEIR_T_INT16_AT; !r->rank && t <= WEIR_T_LONG_DOUBLE_AT; t++)
		for (int32_t i = 0; i < 4 * N; i++) {
			size_t size = weir_type_size((enum weir_type)t);
			int32_t v = i < 2 * N ? 1000 : -1000;

			if (i % 2 == 0) /* of rank 0, or of the last one */
				v = i < 2 * N ? i / 2
					      : (int32_t)(r->size - 1) * 3 + (i - 2 * N) / 2;
			set_pair((enum weir_type)t, v, want);
			check_type(r,
				   !memcmp(base + (t - WEIR_T_INT16_AT) * 1024 + (size_t)i * size,
					   want, size),
				   t, WEIR_ACC_MINLOC);
		}
	OK(r, weir_window_free(win, CASE_MS));
}

/* Updates of one rank at one place take effect in their order, long ones and short ones. */
static void
update_order(struct ranks *r)
{
	enum { N = 8192, AT = 5000 };
	uint32_t to = next_rank(r);
	struct weir_window *win;
	uint8_t *base = make(r, 8 * N, 0, &win);
	uint64_t *large = malloc(8 * N), *was = malloc(8 * N), one, seen[3];

	OK(r, weir_window_lock(win, to, WEIR_LOCK_SHARED, 0, CASE_MS));
	for (uint64_t round = 1; round <= 6; round++) {
		for (unsigned i = 0; i < N; i++)
			large[i] = round * 10000 + i;
		one = round;
		/* write after write, read after write, write after read, read after read */
		OK(r, weir_window_accumulate(win, to, 0, large, N, WEIR_T_UINT64, WEIR_ACC_REPLACE,
					     0));
		OK(r, weir_window_accumulate(win, to, AT, &one, 1, WEIR_T_UINT64, WEIR_ACC_REPLACE,
					     0));
		OK(r, weir_window_fetch_op(win, to, AT, &one, &seen[0], WEIR_T_UINT64, WEIR_ACC_SUM,
					   0));
		OK(r, weir_window_fetch_op(win, to, AT, NULL, &seen[1], WEIR_T_UINT64,
					   WEIR_ACC_NO_OP, 0));
		OK(r, weir_window_get_accumulate(win, to, 0, large, was, N, WEIR_T_UINT64,
						 WEIR_ACC_SUM, 0));
		OK(r, weir_window_fetch_op(win, to, AT, NULL, &seen[2], WEIR_T_UINT64,
					   WEIR_ACC_NO_OP, 0));
		OK(r, weir_window_flush(win, to, CASE_MS));
		CHECK(r,
		      seen[0] == round && seen[1] == 2 * round && seen[2] == 2 * round + large[AT]);
		CHECK(r, was[AT] == 2 * round && was[AT - 1] == large[AT - 1] &&
			     was[N - 1] == large[N - 1]);
	}
	OK(r, weir_window_unlock(win, to, CASE_MS));
	together(r);
	CHECK(r, word(base, AT) == 12 + 60000 + AT && word(base, AT + 1) == 2 * (60001 + AT));
	free(was);
	free(large);
	OK(r, weir_window_free(win, CASE_MS));
}

const struct rma_case atomic_cases[] = {
    {"update/tickets", update_tickets},	  {"update/tree", update_tree},
    {"update/rmw", update_rmw},		  {"update/fop_types", update_fop_types},
    {"update/gacc", update_gacc},	  {"update/cas", update_cas},
    {"update/pair_get", update_pair_get}, {"update/loc", update_loc},
    {"update/order", update_order},	  {NULL, NULL},
};
