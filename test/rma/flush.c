/* SPDX-License-Identifier: BSD-3-Clause */
/* Flushes: completion at the target, and at the caller. */
#include "part.h"

#include <errno.h>
#include <stdlib.h>

#define PART 4096u
#define KINDS 5u /* of operations below */

/* Changes a word by an operation of some kind: what it is then. */
static uint64_t
change(struct ranks *r, struct weir_window *win, uint32_t to, uint64_t at, unsigned kind,
       uint64_t is)
{
	uint64_t next = is * 3 + 5, more = next - is, was = is;

	switch (kind % KINDS) {
	case 0:
		OK(r, weir_window_put(win, to, at, &next, 8, 0));
		break;
	case 1:
		OK(r,
		   weir_window_accumulate(win, to, at, &more, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0));
		break;
	case 2:
		OK(r, weir_window_get_accumulate(win, to, at, &more, &was, 1, WEIR_T_UINT64,
						 WEIR_ACC_SUM, 0));
		break;
	case 3:
		OK(r, weir_window_fetch_op(win, to, at, &next, &was, WEIR_T_UINT64,
					   WEIR_ACC_REPLACE, 0));
		break;
	default:
		OK(r, weir_window_compare_swap(win, to, at, &is, &next, &was, WEIR_T_UINT64, 0));
	}
	if (kind / KINDS % 2)
		OK(r, weir_window_flush(win, to, CASE_MS));
	else
		OK(r, weir_window_flush_all(win, CASE_MS));
	CHECK(r, was == is);
	return next;
}

/* A third rank that is told after an unlock finds a megabyte. */
static void
flush_third(struct ranks *r)
{
	const uint32_t n = 1u << 20, at = r->size - 1;
	uint8_t *bytes = malloc(n), *in = malloc(n);
	struct weir_window *win;

	make(r, n, 0, &win);
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < n; i++)
			bytes[i] = pattern(0, round, i);
		if (!r->rank) {
			OK(r, weir_window_lock(win, at, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
			OK(r, weir_window_put(win, at, 0, bytes, n, 0));
			OK(r, weir_window_unlock(win, at, CASE_MS));
		}
		together(r);
		OK(r, weir_window_lock(win, at, WEIR_LOCK_SHARED, 0, CASE_MS));
		OK(r, weir_window_get(win, at, 0, in, n, 0));
		OK(r, weir_window_unlock(win, at, CASE_MS));
		CHECK(r, !memcmp(in, bytes, n));
		together(r);
	}
	free(in);
	free(bytes);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Rank 0 changes a word of the last rank and flushes; gets of all see it, and loads of those that
 * have it at `load`. */
static void
flush_each(struct ranks *r, struct weir_window *changes, uint64_t at, struct weir_window *reads,
	   uint64_t at_read, const void *load)
{
	uint32_t last = r->size - 1;
	uint64_t is = 0, seen;

	OK(r, weir_window_lock_all(changes, 0, CASE_MS));
	if (reads != changes)
		OK(r, weir_window_lock_all(reads, 0, CASE_MS));
	for (unsigned kind = 0; kind < 4 * KINDS; kind++) {
		uint64_t next = is * 3 + 5;

		if (!r->rank)
			CHECK(r, change(r, changes, last, at, kind, is) == next);
		is = next;
		together(r);
		OK(r, weir_window_get(reads, last, at_read, &seen, 8, 0));
		OK(r, weir_window_flush(reads, last, CASE_MS));
		CHECK(r, seen == is);
		weir_window_sync(reads);
		CHECK(r, !load || word(load, 0) == is);
		together(r);
	}
	OK(r, weir_window_unlock_all(changes, CASE_MS));
	if (reads != changes)
		OK(r, weir_window_unlock_all(reads, CASE_MS));
}

static void
flush_get_each(struct ranks *r)
{
	struct weir_window *win;

	make(r, PART, 0, &win);
	flush_each(r, win, 3, win, 3, NULL);
	OK(r, weir_window_free(win, CASE_MS));
}

/* The target loads; in a shared window every member of the host does. */
static void
flush_load_each(struct ranks *r)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	struct ranks host = host_ranks(r);
	void *at;

	flush_each(r, win, 3, win, 3, r->rank == r->size - 1 ? base + 24 : NULL);
	OK(r, weir_window_free(win, CASE_MS));
	o.disp_unit = 8;
	OK(&host, weir_window_allocate_shared(host.g, 64, &o, CASE_MS, &at, &win));
	OK(&host, weir_window_query(win, host.size - 1, &at, NULL, NULL));
	flush_each(&host, win, 3, win, 3, (uint8_t *)at + 24);
	OK(&host, weir_window_free(win, CASE_MS));
	host_done(r, &host);
}

/* Two windows over one region, of which one is longer: both ways, and sums through both. */
static void
flush_overlap(struct ranks *r)
{
	struct weir_window_options o = options(r);
	struct weir_window *whole, *part, *win;
	struct weir_region_info info;
	struct weir_region *region;
	uint64_t one = 1;

	o.disp_unit = 8;
	OK(r, weir_region_alloc(r->w, 2 * (uint64_t)PART, NULL, &region));
	weir_region_info(region, &info);
	OK(r, weir_window_create(r->g, region, 0, info.bytes, &o, CASE_MS, &whole));
	OK(r, weir_window_create(r->g, region, PART, PART, &o, CASE_MS, &part));
	flush_each(r, whole, PART / 8 + 3, part, 3, NULL);
	flush_each(r, part, 4, whole, PART / 8 + 4, NULL);
	OK(r, weir_window_lock_all(whole, 0, CASE_MS));
	OK(r, weir_window_lock_all(part, 0, CASE_MS));
	for (unsigned i = 0; i < 200; i++) {
		win = i % 2 ? whole : part;
		OK(r, weir_window_accumulate(win, 0, win == whole ? PART / 8 + 5 : 5, &one, 1,
					     WEIR_T_UINT64, WEIR_ACC_SUM, 0));
	}
	OK(r, weir_window_unlock_all(part, CASE_MS));
	OK(r, weir_window_unlock_all(whole, CASE_MS));
	together(r);
	CHECK(r, r->rank || word(info.base, PART / 8 + 5) == 200 * (uint64_t)r->size);
	OK(r, weir_window_free(whole, CASE_MS));
	WANT(r, weir_region_free(region), -EBUSY);
	OK(r, weir_window_free(part, CASE_MS));
	OK(r, weir_region_free(region));
}

/* Once complete here, buffers may change and results are present. */
static void
flush_local(struct ranks *r)
{
	static const uint32_t lengths[] = {8, 1000, 8192, 8200, 70000, 300000};
	const uint32_t most = 300000;
	uint32_t to = next_rank(r), from = previous_rank(r);
	uint8_t *out = malloc(most), *in = malloc(most), *sum = malloc(most);
	struct weir_window *win;
	uint8_t *base = make(r, 2 * (uint64_t)most, 0, &win);
	struct weir_op op;

	for (uint32_t k = 0; k < 6; k++) {
		uint32_t n = lengths[k];
		struct weir_transfer t = {.buf = out, .length = n, .op = &op, .flags = WEIR_KEEP};
		bool right = true;

		memset(base + most, 1, n);
		together(r);
		for (uint32_t i = 0; i < n; i++)
			out[i] = pattern(r->rank, k, i);
		OK(r, weir_window_lock(win, to, WEIR_LOCK_SHARED, 0, CASE_MS));
		OK(r, weir_window_put_with(win, to, &t));
		if (k % 2)
			OK(r, weir_window_flush_local(win, to, CASE_MS));
		else
			OK(r, weir_op_wait(&op, CASE_MS));
		memset(out, 0xff, n);
		OK(r, weir_window_get(win, to, most / 8, in, n, 0));
		OK(r, weir_window_flush_local_all(win, CASE_MS));
		CHECK(r, is_filled(in, 1, n));
		memset(out, 2, n);
		OK(r, weir_window_accumulate(win, to, most / 8, out, n, WEIR_T_UINT8, WEIR_ACC_SUM,
					     0));
		memset(out, 0xff, n);
		OK(r, weir_window_get_accumulate(win, to, most / 8, in, sum, n, WEIR_T_UINT8,
						 WEIR_ACC_SUM, 0));
		OK(r, weir_window_flush_local(win, to, CASE_MS));
		memset(in, 0xff, n);
		CHECK(r, is_filled(sum, 3, n));
		OK(r, weir_window_unlock(win, to, CASE_MS));
		together(r);
		for (uint32_t i = 0; i < n; i++)
			right &= base[i] == pattern(from, k, i);
		CHECK(r, right && is_filled(base + most, 4, n));
	}
	free(sum);
	free(in);
	free(out);
	OK(r, weir_window_free(win, CASE_MS));
}

/* The same between layouts, under locks of both kinds. */
static void
flush_local_layout(struct ranks *r)
{
	enum { ROWS = 64, ROW = 1008, GAP = 1024 };
	const struct weir_layout here = {.block = ROW, .dims = 1, .dim = {{ROWS, GAP}}},
				 there = {.block = 16, .dims = 1, .dim = {{ROW * ROWS / 16, 32}}};
	uint32_t to = next_rank(r);
	struct weir_window *win;
	uint8_t *base = make(r, 2 * (uint64_t)ROW * ROWS, 0, &win), *out = malloc(ROWS * GAP),
		*in = malloc(ROWS * GAP);

	for (unsigned k = 0; k < 4; k++) {
		struct weir_transfer t = {
		    .buf = out, .here = &here, .there = &there, .flags = k % 2 ? WEIR_KEEP : 0};
		const struct weir_update u = {.operand = in,
					      .count = ROW * ROWS,
					      .there = &there,
					      .type = WEIR_T_UINT8,
					      .op = WEIR_ACC_SUM};

		for (unsigned i = 0; i < ROWS; i++)
			memset(out + i * GAP, (int)(10 + k), ROW);
		OK(r, weir_window_lock(win, to, k / 2 ? WEIR_LOCK_SHARED : WEIR_LOCK_EXCLUSIVE, 0,
				       CASE_MS));
		OK(r, weir_window_put_with(win, to, &t));
		if (k % 2)
			OK(r, weir_window_flush_local(win, to, CASE_MS));
		memset(out, 0xff, ROWS * GAP);
		memset(in, UNTOUCHED, ROWS * GAP);
		t.buf = in;
		t.flags = 0;
		OK(r, weir_window_get_with(win, to, &t));
		OK(r, weir_window_flush_local(win, to, CASE_MS));
		for (unsigned i = 0; i < ROWS; i++)
			CHECK(r, is_filled(in + i * GAP, (uint8_t)(10 + k), ROW) &&
				     is_filled(in + i * GAP + ROW, UNTOUCHED, GAP - ROW));
		memset(in, 50, ROW * ROWS);
		OK(r, weir_window_update_with(win, to, &u));
		memset(in, 0xff, ROW * ROWS);
		OK(r, weir_window_unlock(win, to, CASE_MS));
		together(r);
		for (unsigned i = 0; i < ROW * ROWS / 16; i++)
			CHECK(r, is_filled(base + i * 32, (uint8_t)(60 + k), 16) &&
				     is_filled(base + i * 32 + 16, 0, 16));
		together(r);
	}
	free(in);
	free(out);
	OK(r, weir_window_free(win, CASE_MS));
}

const struct rma_case flush_cases[] = {
    {"flush/third", flush_third},
    {"flush/get_each", flush_get_each},
    {"flush/load_each", flush_load_each},
    {"flush/overlap", flush_overlap},
    {"flush/local", flush_local},
    {"flush/local_layout", flush_local_layout},
    {NULL, NULL},
};
