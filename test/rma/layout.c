/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts through windows, and transfers of nothing. */
#include "part.h"

#include "ipc/apply.h"

#include <errno.h>
#include <stdlib.h>

#define PART 4096u

/* ---- every type in every layout ---- */

#define LAYOUTS 4u
#define ELEMENTS 12u

/* The same number of elements: strided, nested, from the last one to the first, listed. */
static struct weir_layout
layout_of(unsigned which, uint64_t size, struct weir_piece list[ELEMENTS])
{
	int64_t gap = 2 * (int64_t)size;

	for (unsigned i = 0; i < ELEMENTS; i++)
		list[i] = (struct weir_piece){(int64_t)((i * 5 % ELEMENTS * 2 + 1) * size), size};
	switch (which) {
	case 0:
		return (struct weir_layout){.block = size, .dims = 1, .dim = {{ELEMENTS, gap}}};
	case 1:
		return (struct weir_layout){
		    .block = size, .dims = 2, .dim = {{3, gap}, {4, 4 * gap}}};
	case 2:
		return (struct weir_layout){
		    .block = 2 * size, .dims = 1, .dim = {{ELEMENTS / 2, -2 * gap}}};
	default:
		return (struct weir_layout){.list = list, .count = ELEMENTS};
	}
}

/* Where element i of that layout is, in elements. */
static int64_t
element_at(unsigned which, int64_t i)
{
	switch (which) {
	case 0:
		return 2 * i;
	case 1:
		return i % 3 * 2 + i / 3 * 8;
	case 2:
		return i % 2 - i / 2 * 4;
	default:
		return i * 5 % (int64_t)ELEMENTS * 2 + 1;
	}
}

/* Puts, gets and updates between layouts; at both ends nothing else changes. */
static void
layout_matrix(struct ranks *r)
{
	enum { SLOT = 2048, AT = 1024, ALL = LAYOUTS * 3 * SLOT };
	struct weir_window *win;
	uint8_t *base = make(r, ALL, 0, &win), *want = malloc(ALL), *in = malloc(ALL),
		*wanted = malloc(ALL), *out = malloc(SLOT);
	struct weir_piece list[ELEMENTS], other_list[ELEMENTS];

	for (unsigned t = 1; t <= TYPES; t++) {
		enum weir_type type = (enum weir_type)t;
		enum weir_acc op = first_operation(type);
		size_t size = weir_type_size(type);

		memset(want, UNTOUCHED, ALL);
		memset(in, UNTOUCHED, ALL);
		memset(wanted, UNTOUCHED, ALL);
		operands(type, 3, SLOT / (unsigned)size, out); /* of this many elements */
		for (unsigned k = 0; k < 3 * LAYOUTS; k++)
			operands(type, 7 + k, SLOT / (unsigned)size, want + k * SLOT);
		memcpy(base, want, ALL);
		epoch_begin(r, win, BY_FENCE);
		for (unsigned k = 0; k < LAYOUTS; k++) {
			unsigned other = (k + t) % LAYOUTS;
			const struct weir_layout there = layout_of(k, size, list),
						 here = layout_of(other, size, other_list);
			struct weir_transfer put = {.offset = (k * SLOT + AT) / 8,
						    .buf = out + AT,
						    .here = &here,
						    .there = &there},
					     get = put;
			const struct weir_update u = {.offset = ((LAYOUTS + k) * SLOT + AT) / 8,
						      .operand = out,
						      .count = ELEMENTS,
						      .there = &there,
						      .type = t,
						      .op = op};

			get.offset += 2 * LAYOUTS * SLOT / 8;
			get.buf = in + k * SLOT + AT;
			OK(r, weir_window_put_with(win, next_rank(r), &put));
			OK(r, weir_window_update_with(win, next_rank(r), &u));
			OK(r, weir_window_get_with(win, next_rank(r), &get));
			for (int64_t i = 0; i < (int64_t)ELEMENTS; i++) {
				int64_t to = AT + element_at(k, i) * (int64_t)size,
					from = AT + element_at(other, i) * (int64_t)size;

				memcpy(want + k * SLOT + to, out + from, size);
				OK(r, weir_apply(type, op, want + (LAYOUTS + k) * SLOT + to,
						 out + (uint64_t)i * size, NULL, 1));
				memcpy(wanted + k * SLOT + from,
				       want + (2 * LAYOUTS + k) * SLOT + to, size);
			}
		}
		epoch_end(r, win, BY_FENCE);
		CHECK(r, !memcmp(base, want, ALL));
		CHECK(r, !memcmp(in, wanted, ALL));
	}
	free(out);
	free(wanted);
	free(in);
	free(want);
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- patches of matrices ---- */

#define ROWS 30u
#define COLUMNS 40u

/* A patch of 12 rows and 10 columns of doubles at (3, 4): by rows, by a list, as a sub-array. */
static struct weir_layout
patch_of(unsigned which, struct weir_piece list[12])
{
	for (unsigned i = 0; i < 12; i++)
		list[i] = (struct weir_piece){(int64_t)(8 * ((3 + i) * COLUMNS + 4)), 80};
	switch (which) {
	case 0:
		return (struct weir_layout){.block = 80, .dims = 1, .dim = {{12, 8 * COLUMNS}}};
	case 1:
		return (struct weir_layout){.list = list, .count = 12};
	default:
		return (struct weir_layout){
		    .block = 8, .dims = 2, .dim = {{10, 8}, {12, 8 * COLUMNS}}};
	}
}

static bool
in_patch(unsigned i)
{
	return i / COLUMNS >= 3 && i / COLUMNS < 15 && i % COLUMNS >= 4 && i % COLUMNS < 14;
}

/* Put, got, summed with and without the values before; all in one epoch, and one lock for each. */
static void
layout_patch(struct ranks *r)
{
	const uint64_t corner = 3 * COLUMNS + 4;
	uint32_t to = next_rank(r), from = previous_rank(r);
	struct weir_window *win;
	double *base = (void *)make(r, 8 * ROWS * COLUMNS, 0, &win),
	       *own = malloc(8 * ROWS * COLUMNS), sum[120], was[120];
	struct weir_piece list[12];
	bool right = true;

	for (unsigned k = 0; k < 6; k++) {
		const struct weir_layout patch = patch_of(k % 3, list);
		/* the list begins at the matrix, the others at the patch */
		uint64_t at = k % 3 == 1 ? 0 : corner;
		struct weir_transfer t = {
		    .offset = at, .buf = own + at, .here = &patch, .there = &patch};
		const struct weir_update u = {.offset = at,
					      .operand = sum,
					      .result = k % 2 ? was : NULL,
					      .count = 120,
					      .there = &patch,
					      .type = WEIR_T_DOUBLE,
					      .op = WEIR_ACC_SUM};

		for (unsigned i = 0; i < ROWS * COLUMNS; i++) {
			base[i] = -1;
			own[i] = 1000 * r->rank + i;
		}
		for (unsigned i = 0; i < 120; i++)
			sum[i] = 0.5;
		together(r);
		OK(r, weir_window_lock(win, to, k < 3 ? WEIR_LOCK_SHARED : WEIR_LOCK_EXCLUSIVE, 0,
				       CASE_MS));
		OK(r, weir_window_put_with(win, to, &t));
		if (k >= 3) {
			OK(r, weir_window_unlock(win, to, CASE_MS));
			OK(r, weir_window_lock(win, to, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
		}
		OK(r, weir_window_update_with(win, to, &u));
		OK(r, weir_window_flush(win, to, CASE_MS));
		for (unsigned i = 0; i < ROWS * COLUMNS; i++)
			own[i] = -2;
		OK(r, weir_window_get_with(win, to, &t));
		OK(r, weir_window_unlock(win, to, CASE_MS));
		together(r);
		for (unsigned i = 0; i < ROWS * COLUMNS; i++) {
			right &= base[i] == (in_patch(i) ? 1000 * from + i + 0.5 : -1);
			right &= own[i] == (in_patch(i) ? 1000 * r->rank + i + 0.5 : -2);
		}
		for (unsigned i = 0; k % 2 && i < 120; i++)
			right &= was[i] == 1000 * r->rank + corner + i / 10 * COLUMNS + i % 10;
		CHECK(r, right);
		together(r);
	}
	free(own);
	OK(r, weir_window_free(win, CASE_MS));
}

/* A matrix is transposed on its way, by puts, gets and sums, in each kind of epoch. */
static void
layout_transpose(struct ranks *r)
{
	enum { N = 20 };
	/* element (i, k) goes to (k, i): columns one behind the other */
	const struct weir_layout columns = {.block = 8, .dims = 2, .dim = {{N, 8 * N}, {N, 8}}};
	const uint64_t all = N * N;
	uint32_t to = next_rank(r), from = previous_rank(r);
	struct weir_window *win;
	uint8_t *base = make(r, 3 * 8 * all, 0, &win);
	uint64_t own[N * N], in[N * N];

	for (unsigned kind = 0; kind < EPOCH_KINDS; kind++) {
		struct weir_transfer put = {.buf = own, .length = 8 * all, .there = &columns},
				     get = {.offset = 2 * all,
					    .buf = in,
					    .length = 8 * all,
					    .there = &columns};
		const struct weir_update u = {.offset = all,
					      .operand = own,
					      .count = all,
					      .there = &columns,
					      .type = WEIR_T_UINT64,
					      .op = WEIR_ACC_SUM};
		bool right = true;

		for (uint64_t i = 0; i < all; i++) {
			own[i] = 10000 * r->rank + i;
			memcpy(base + 8 * (all + i), &(uint64_t){1}, 8);
			memcpy(base + 8 * (2 * all + i), &own[i], 8);
		}
		epoch_begin(r, win, (enum epoch_kind)kind);
		OK(r, weir_window_put_with(win, to, &put));
		OK(r, weir_window_update_with(win, to, &u));
		OK(r, weir_window_get_with(win, to, &get));
		epoch_end(r, win, (enum epoch_kind)kind);
		for (uint64_t i = 0; i < all; i++) {
			uint64_t mirrored = i % N * N + i / N;

			right &= word(base, i) == 10000 * from + mirrored;
			right &= word(base, all + i) == 10000 * from + mirrored + 1;
			right &= in[i] == 10000 * to + mirrored;
		}
		CHECK(r, right);
	}
	OK(r, weir_window_free(win, CASE_MS));
}

struct record {
	char name[5];
	int32_t number;
	char gap[9];
	double value;
};

/* Leading gaps, fields of structures, addresses instead of offsets. */
static void
layout_displaced(struct ranks *r)
{
	enum { N = 5 };
	const struct weir_piece fields[] = {
	    {offsetof(struct record, value), sizeof(double)},
	    {offsetof(struct record, name), 5},
	    {sizeof(struct record) + offsetof(struct record, number), 4},
	};
	const struct weir_layout listed = {.list = fields, .count = 3};
	uint32_t to = next_rank(r), from = previous_rank(r);
	struct record out[N], in[N], *mine;
	struct weir_piece at[N], there[N];
	const struct weir_layout absolute = {.list = at, .count = N},
				 behind = {.list = there, .count = N};
	struct weir_transfer fields_of = {.buf = out, .here = &listed, .there = &listed},
			     absolutes = {
				 .offset = 64, .buf = out, .here = &absolute, .there = &behind};
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);

	mine = (void *)base;
	memset(base, UNTOUCHED, PART);
	memset(in, UNTOUCHED, sizeof(in));
	for (unsigned i = 0; i < N; i++) {
		out[i] =
		    (struct record){"rank", (int32_t)(r->rank * 10 + i), "", r->rank + 0.5 + i};
		/* from the address of the first record to that of any field, the last one first */
		at[i] = (struct weir_piece){
		    (int64_t)((uintptr_t)&out[N - 1 - i].number - (uintptr_t)&out[0]), 4};
		there[i] = (struct weir_piece){100 + 12 * (int64_t)i, 4}; /* a leading gap */
	}
	epoch_begin(r, win, BY_LOCKS);
	OK(r, weir_window_put_with(win, to, &fields_of));
	OK(r, weir_window_put_with(win, to, &absolutes));
	OK(r, weir_window_flush(win, to, CASE_MS));
	fields_of.buf = in;
	OK(r, weir_window_get_with(win, to, &fields_of));
	epoch_end(r, win, BY_LOCKS);
	CHECK(r, !memcmp(mine[0].name, "rank", 5) && mine[0].value == from + 0.5 &&
		     mine[1].number == (int32_t)(from * 10 + 1));
	CHECK(r, is_filled((uint8_t *)&mine[0] + 5, UNTOUCHED, offsetof(struct record, value) - 5));
	CHECK(r, is_filled((uint8_t *)&mine[1].number + 4, UNTOUCHED,
			   512 + 100 - 4 - sizeof(*mine) - offsetof(struct record, number)));
	for (unsigned i = 0; i < N; i++) {
		int32_t number;

		memcpy(&number, base + 512 + 100 + 12 * i, 4);
		CHECK(r, number == (int32_t)(from * 10 + N - 1 - i));
		CHECK(r, is_filled(base + 512 + 104 + 12 * i, UNTOUCHED, 8));
	}
	CHECK(r, !memcmp(in[0].name, "rank", 5) && in[0].value == r->rank + 0.5 &&
		     in[1].number == out[1].number);
	CHECK(r, is_filled((uint8_t *)in[0].gap, UNTOUCHED, 9) &&
		     is_filled((uint8_t *)&in[2], UNTOUCHED, 3 * sizeof(in[0])));
	OK(r, weir_window_free(win, CASE_MS));
}

/* Transfers of no bytes and to nobody: they end, and change nothing. */
static void
zero_each(struct ranks *r)
{
	uint32_t to[] = {next_rank(r), WEIR_RANK_NULL};
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t v = 5, was = 6;
	struct weir_op op;

	memset(base, UNTOUCHED, PART);
	for (unsigned k = 0; k < 2 * EPOCH_KINDS; k++) {
		bool null = k % 2;
		uint64_t n = null, at = null ? UINT64_MAX : PART / 8; /* behind the last byte */
		struct weir_transfer t = {.offset = at, .buf = &v, .length = 8 * n, .op = &op};
		const struct weir_update u = {.offset = at,
					      .operand = &v,
					      .result = &was,
					      .count = n,
					      .handle = &op,
					      .type = WEIR_T_UINT64,
					      .op = WEIR_ACC_SUM};

		epoch_begin(r, win, (enum epoch_kind)(k / 2));
		OK(r, weir_window_put(win, to[null], at, &v, 8 * n, 0));
		OK(r, weir_window_get(win, to[null], at, &v, 8 * n, 0));
		OK(r, weir_window_accumulate(win, to[null], at, &v, n, WEIR_T_UINT64, WEIR_ACC_SUM,
					     0));
		OK(r, weir_window_get_accumulate(win, to[null], at, &v, &was, n, WEIR_T_UINT64,
						 WEIR_ACC_SUM, 0));
		OK(r, weir_window_put_with(win, to[null], &t));
		OK(r, weir_op_wait(&op, CASE_MS));
		OK(r, weir_window_get_with(win, to[null], &t));
		OK(r, weir_op_wait(&op, CASE_MS));
		OK(r, weir_window_update_with(win, to[null], &u));
		OK(r, weir_op_wait(&op, CASE_MS));
		if (null) {
			OK(r, weir_window_fetch_op(win, to[1], at, &v, &was, WEIR_T_UINT64,
						   WEIR_ACC_SUM, 0));
			OK(r, weir_window_compare_swap(win, to[1], at, &v, &v, &was, WEIR_T_UINT64,
						       0));
			OK(r, weir_window_flush(win, to[1], CASE_MS));
		} else {
			WANT(r, weir_window_put(win, to[0], at + 1, &v, 0, 0), -ERANGE);
		}
		epoch_end(r, win, (enum epoch_kind)(k / 2));
		CHECK(r, v == 5 && was == 6 && is_filled(base, UNTOUCHED, PART));
	}
	OK(r, weir_window_free(win, CASE_MS));
}

const struct rma_case layout_cases[] = {
    {"layout/matrix", layout_matrix},
    {"layout/patch", layout_patch},
    {"layout/transpose", layout_transpose},
    {"layout/displaced", layout_displaced},
    {"zero/each", zero_each},
    {NULL, NULL},
};
