/* SPDX-License-Identifier: BSD-3-Clause */
/* Misuse of windows: each call returns its error, changes nothing, and the window keeps working. */
#include "part.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PART 4096u

/* Each rank puts a number into the next one's part, in an epoch of each kind. */
static void
works(struct ranks *r, struct weir_window *win)
{
	void *base = NULL;

	OK(r, weir_window_query(win, r->rank, &base, NULL, NULL));
	for (unsigned k = 0; base && k < EPOCH_KINDS; k++) {
		uint64_t v = 7000 + 100 * k + r->rank;

		epoch_begin(r, win, (enum epoch_kind)k);
		OK(r, weir_window_put(win, next_rank(r), 1, &v, 8, 0));
		epoch_end(r, win, (enum epoch_kind)k);
		CHECK(r, word(base, 1) == 7000 + 100 * k + previous_rank(r));
	}
}

/* ---- epochs ---- */

/* Ends of epochs that are not open, but for the given kind; operations are not possible without
 * one. */
static void
ends_refused(struct ranks *r, struct weir_window *win, enum epoch_kind open)
{
	uint64_t v = 1, was;

	if (open != BY_START)
		WANT(r, weir_window_complete(win, 0), -ENOLCK);
	if (open != BY_START)
		WANT(r, weir_window_wait(win, 0), -ENOLCK);
	if (open != BY_LOCKS)
		WANT(r, weir_window_unlock(win, r->rank, 0), -ENOLCK);
	if (open != BY_LOCK_ALL)
		WANT(r, weir_window_unlock_all(win, 0), -ENOLCK);
	if (open != EPOCH_KINDS)
		return;
	WANT(r, weir_window_put(win, r->rank, 0, &v, 8, 0), -ENOLCK);
	WANT(r, weir_window_get(win, r->rank, 0, &v, 8, 0), -ENOLCK);
	WANT(r, weir_window_accumulate(win, 0, 0, &v, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0), -ENOLCK);
	WANT(r, weir_window_fetch_op(win, 0, 0, &v, &was, WEIR_T_UINT64, WEIR_ACC_SUM, 0), -ENOLCK);
	WANT(r, weir_window_compare_swap(win, 0, 0, &v, &v, &was, WEIR_T_UINT64, 0), -ENOLCK);
	WANT(r, weir_window_put_with(win, 0, &(struct weir_transfer){.buf = &v, .length = 8}),
	     -ENOLCK);
	WANT(r, weir_window_get_with(win, 0, &(struct weir_transfer){.buf = &v, .length = 8}),
	     -ENOLCK);
	WANT(r, weir_window_notify(win, 0, 1, 0), -ENOLCK);
	WANT(r, weir_window_flush(win, r->rank, 0), -ENOLCK);
	WANT(r, weir_window_flush_local(win, r->rank, 0), -ENOLCK);
	WANT(r, weir_window_flush_all(win, 0), -ENOLCK);
	WANT(r, weir_window_flush_local_all(win, 0), -ENOLCK);
}

/* Beginnings of other epochs, and the end of the window, while one of the kind is open. */
static void
begins_refused(struct ranks *r, struct weir_window *win, enum epoch_kind open)
{
	uint32_t me = r->rank;

	WANT(r, weir_window_lock(win, me, WEIR_LOCK_EXCLUSIVE, 0, 0), -EALREADY);
	WANT(r, weir_window_lock_all(win, 0, 0), -EALREADY);
	WANT(r, weir_window_start(win, &me, 1, 0, 0), -EALREADY);
	if (open == BY_FENCE)
		return;
	WANT(r, weir_window_fence(win, 0, 0), -EALREADY);
	WANT(r, weir_window_free(win, 0), -EBUSY);
	if (open == BY_START)
		WANT(r, weir_window_post(win, &me, 1, 0), -EALREADY);
}

static void
error_epochs(struct ranks *r)
{
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t v = 9;

	ends_refused(r, win, EPOCH_KINDS);
	for (unsigned k = 0; k < EPOCH_KINDS; k++) {
		enum epoch_kind open = (enum epoch_kind)k;

		epoch_begin(r, win, open);
		OK(r, weir_window_put(win, next_rank(r), 2, &v, 8, 0));
		ends_refused(r, win, open);
		begins_refused(r, win, open);
		v++; /* the epoch goes on */
		OK(r, weir_window_put(win, next_rank(r), 2, &v, 8, 0));
		epoch_end(r, win, open);
		CHECK(r, word(base, 2) == v);
		ends_refused(r, win, EPOCH_KINDS);
		/* exposed, but without access: the window cannot be freed */
		OK(r, weir_window_post(win, &r->rank, 1, 0));
		WANT(r, weir_window_free(win, 0), -EBUSY);
		WANT(r, weir_window_put(win, r->rank, 2, &v, 8, 0), -ENOLCK);
		OK(r, weir_window_start(win, &r->rank, 1, 0, CASE_MS));
		OK(r, weir_window_complete(win, CASE_MS));
		OK(r, weir_window_wait(win, CASE_MS));
	}
	works(r, win);
	OK(r, weir_window_free(win, CASE_MS));
}

#define LARGE (1u << 20)

/* A window that is freed within an epoch of fences: all that was put is there. */
static void
error_free(struct ranks *r)
{
	uint8_t *from = malloc(LARGE), *base;
	struct weir_window_options o = options(r);
	struct weir_region_info info;
	struct weir_region *region;
	struct weir_window *win;

	OK(r, weir_region_alloc(r->w, LARGE, NULL, &region));
	weir_region_info(region, &info);
	base = info.base;
	OK(r, weir_window_create(r->g, region, 0, LARGE, &o, CASE_MS, &win));
	epoch_begin(r, win, BY_FENCE);
	memset(from, 1 + (int)r->rank, LARGE);
	OK(r, weir_window_put(win, next_rank(r), 0, from, LARGE, 0));
	OK(r, weir_window_free(win, CASE_MS));
	CHECK(r, is_filled(base, (uint8_t)(1 + previous_rank(r)), LARGE));
	OK(r, weir_region_free(region));
	free(from);
}

/* One member is locked or started: the others are not targets. */
static void
error_target(struct ranks *r)
{
	uint32_t to = next_rank(r), other = (r->rank + 2) % r->size;
	struct weir_window *win;
	uint64_t v = 1;

	make(r, PART, 0, &win);
	for (unsigned k = 0; k < 4 && other != to; k++) {
		bool start = k % 2;

		if (start)
			OK(r, weir_window_post(win, &(uint32_t){previous_rank(r)}, 1, 0));
		if (start)
			OK(r, weir_window_start(win, &to, 1, 0, CASE_MS));
		else
			OK(r, weir_window_lock(win, to, WEIR_LOCK_SHARED, 0, CASE_MS));
		WANT(r, weir_window_put(win, other, 0, &v, 8, 0), -ENOLCK);
		WANT(r, weir_window_get(win, other, 0, &v, 8, 0), -ENOLCK);
		WANT(r, weir_window_notify(win, other, 1, 0), -ENOLCK);
		WANT(r, weir_window_flush(win, other, 0), -ENOLCK);
		WANT(r, weir_window_unlock(win, other, 0), -ENOLCK);
		OK(r, weir_window_put(win, to, 0, &v, 8, 0));
		if (start)
			OK(r, weir_window_complete(win, CASE_MS));
		else
			OK(r, weir_window_unlock(win, to, CASE_MS));
		if (start)
			OK(r, weir_window_wait(win, CASE_MS));
	}
	works(r, win);
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- arguments ---- */

/* A rank that there is not, in every call that takes one. */
static void
error_rank(struct ranks *r)
{
	const uint32_t bad[] = {r->size, WEIR_RANK_ANY, 1u << 31};
	struct weir_window *win;
	uint64_t v = 1, was;
	void *at;

	make(r, PART, 0, &win);
	for (unsigned i = 0; i < 3; i++) {
		uint32_t no = bad[i], both[] = {r->rank, no};

		WANT(r, weir_window_lock(win, no, WEIR_LOCK_SHARED, 0, 0), -EINVAL);
		WANT(r, weir_window_post(win, both, 2, 0), -EINVAL);
		WANT(r, weir_window_start(win, both, 2, 0, 0), -EINVAL);
		OK(r, weir_window_lock_all(win, 0, CASE_MS));
		WANT(r, weir_window_put(win, no, 0, &v, 8, 0), -EINVAL);
		WANT(r, weir_window_get(win, no, 0, &v, 8, 0), -EINVAL);
		WANT(r, weir_window_accumulate(win, no, 0, &v, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0),
		     -EINVAL);
		WANT(r, weir_window_fetch_op(win, no, 0, &v, &was, WEIR_T_UINT64, WEIR_ACC_SUM, 0),
		     -EINVAL);
		WANT(r, weir_window_compare_swap(win, no, 0, &v, &v, &was, WEIR_T_UINT64, 0),
		     -EINVAL);
		WANT(r, weir_window_notify(win, no, 1, 0), -EINVAL);
		WANT(r, weir_window_flush(win, no, 0), -EINVAL);
		WANT(r, weir_window_flush_local(win, no, 0), -EINVAL);
		OK(r, weir_window_unlock_all(win, CASE_MS));
		if (no != WEIR_RANK_ANY)
			WANT(r, weir_window_query(win, no, &at, NULL, NULL), -EINVAL);
	}
	works(r, win);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Displacements beyond the part, and products with the unit that overflow: nothing begins. */
static void
error_overflow(struct ranks *r)
{
	static const uint32_t units[] = {1, 8, 48, 4096, UINT32_MAX};
	const struct weir_layout back = {.block = 8, .dims = 1, .dim = {{2, -4096}}};
	uint64_t v = 1, was = 2;

	for (unsigned k = 0; k < sizeof(units) / sizeof(units[0]); k++) {
		struct weir_window_options o = options(r);
		uint64_t unit = units[k];
		/* the product, or the sum with the length, is small again */
		uint64_t wraps = unit == 1 ? UINT64_MAX - 7 : UINT64_MAX / unit + 1;
		const uint64_t disps[] = {PART / unit + 1,    wraps,
					  wraps + 1,	      UINT64_MAX,
					  UINT64_MAX / 2 + 1, (UINT64_C(1) << 32) + PART / unit};
		struct weir_window *win;
		void *base;

		o.disp_unit = units[k];
		OK(r, weir_window_allocate(r->g, PART, &o, CASE_MS, &base, &win));
		memset(base, UNTOUCHED, PART);
		epoch_begin(r, win, BY_LOCK_ALL);
		for (unsigned i = 0; i < sizeof(disps) / sizeof(disps[0]); i++) {
			uint64_t at = disps[i];
			uint32_t to = next_rank(r);
			struct weir_transfer t = {.offset = at, .buf = &v, .length = 8};

			WANT(r, weir_window_put(win, to, at, &v, 8, 0), -ERANGE);
			WANT(r, weir_window_get(win, to, at, &v, 8, 0), -ERANGE);
			WANT(r, weir_window_put_with(win, to, &t), -ERANGE);
			WANT(r, weir_window_get_with(win, to, &t), -ERANGE);
			t = (struct weir_transfer){
			    .buf = &v, .length = 8, .notify = WEIR_WITH_SIGNAL_SET, .signal = at};
			WANT(r, weir_window_put_with(win, to, &t), -ERANGE);
			WANT(r,
			     weir_window_accumulate(win, to, at, &v, 1, WEIR_T_UINT64, WEIR_ACC_SUM,
						    0),
			     -ERANGE);
			WANT(r,
			     weir_window_compare_swap(win, to, at, &v, &v, &was, WEIR_T_UINT64, 0),
			     -ERANGE);
			WANT(r, weir_window_signal_wait(win, at, WEIR_EQ, 0, 0, NULL), -ERANGE);
		}
		/* an element that is not aligned */
		if (unit == 1) {
			WANT(r,
			     weir_window_accumulate(win, 0, 4, &v, 1, WEIR_T_UINT64, WEIR_ACC_SUM,
						    0),
			     -EINVAL);
			WANT(r, weir_window_compare_swap(win, 0, 4, &v, &v, &was, WEIR_T_UINT64, 0),
			     -EINVAL);
		}
		/* counts and layouts that leave the part */
		WANT(r,
		     weir_window_accumulate(win, 0, 0, &v, UINT64_MAX / 4, WEIR_T_UINT64,
					    WEIR_ACC_SUM, 0),
		     -ERANGE);
		WANT(r, weir_window_put(win, 0, 0, &v, (size_t)PART + 1, 0), -ERANGE);
		WANT(r, weir_window_put(win, 0, 0, &v, SIZE_MAX, 0), -ERANGE);
		WANT(r,
		     weir_window_put_with(
			 win, 0, &(struct weir_transfer){.buf = &v, .length = 16, .there = &back}),
		     -ERANGE);
		epoch_end(r, win, BY_LOCK_ALL);
		CHECK(r, v == 1 && was == 2 && is_filled(base, UNTOUCHED, PART));
		OK(r, weir_window_free(win, CASE_MS));
	}
}

/* Parts that are smaller at the target than at the caller, down to none. */
static void
error_smaller(struct ranks *r)
{
	struct weir_window_options o = options(r);
	uint64_t bytes = 64 * r->rank, v[RANKS_MAX * 8] = {0};
	struct weir_window *win;
	void *base;

	OK(r, weir_window_allocate(r->g, bytes, &o, CASE_MS, &base, &win));
	epoch_begin(r, win, BY_FENCE);
	for (uint32_t i = 0; i < r->size; i++) {
		WANT(r, weir_window_put(win, i, 0, v, bytes, 0), i < r->rank ? -ERANGE : 0);
		WANT(r, weir_window_get(win, i, 0, v, bytes, 0), i < r->rank ? -ERANGE : 0);
		WANT(r, weir_window_put(win, i, 64 * i, v, 1, 0), -ERANGE);
	}
	epoch_end(r, win, BY_FENCE);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Windows refuse each operation that remote memory refuses, with its error; nothing begins. */
static void
error_operation(struct ranks *r)
{
	const struct weir_layout bad[] = {
	    {.block = 8, .dims = WEIR_LAYOUT_DIMS + 1},
	    {.block = 8, .dims = 1, .dim = {{0, 8}}},
	    {.block = 8, .reserved = 1},
	    {.block = 0, .count = 1},
	    {.block = 8, .dims = 2, .dim = {{UINT64_MAX / 8, 8}, {16, 8}}}};
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint32_t to = next_rank(r);
	uint64_t v = 1, was = 2;

	memset(base, UNTOUCHED, PART);
	epoch_begin(r, win, BY_LOCK_ALL);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct weir_transfer t = {.buf = &v, .length = 8, .there = &bad[i]};
		const struct weir_update u = {.operand = &v,
					      .count = 1,
					      .there = &bad[i],
					      .type = WEIR_T_UINT64,
					      .op = WEIR_ACC_SUM};

		WANT(r, weir_window_put_with(win, to, &t), -EINVAL);
		WANT(r, weir_window_get_with(win, to, &t), -EINVAL);
		WANT(r, weir_window_update_with(win, to, &u), -EINVAL);
		t.there = NULL;
		t.here = &bad[i];
		WANT(r, weir_window_put_with(win, to, &t), -EINVAL);
	}
	WANT(r, weir_window_accumulate(win, to, 0, &v, 1, (enum weir_type)0, WEIR_ACC_SUM, 0),
	     -EINVAL);
	WANT(r, weir_window_accumulate(win, to, 0, &v, 1, WEIR_T_UINT64, (enum weir_acc)15, 0),
	     -EINVAL);
	WANT(r, weir_window_accumulate(win, to, 0, &v, 1, WEIR_T_BYTE, WEIR_ACC_SUM, 0), -EINVAL);
	WANT(r, weir_window_accumulate(win, to, 0, NULL, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0),
	     -EINVAL);
	WANT(r, weir_window_get_accumulate(win, to, 0, &v, NULL, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0),
	     -EINVAL);
	WANT(r, weir_window_put(win, to, 0, NULL, 8, 0), -EINVAL);
	WANT(r, weir_window_get(win, to, 0, NULL, 8, 0), -EINVAL);
	WANT(r, weir_window_compare_swap(win, to, 0, &v, NULL, &was, WEIR_T_UINT64, 0), -EINVAL);
	WANT(r, weir_window_compare_swap(win, to, 0, &v, &v, &was, WEIR_T_DOUBLE, 0), -EINVAL);
	WANT(r, weir_window_put(win, to, 0, &v, 8, 0x8000), -EINVAL);
	WANT(r, weir_window_put_with(win, to, NULL), -EINVAL);
	WANT(r, weir_window_update_with(win, to, NULL), -EINVAL);
	WANT(r, weir_window_put(NULL, to, 0, &v, 8, 0), -EINVAL);
	/* ends of different lengths; a signal that is not aligned, two of them, an odd tag */
	WANT(r,
	     weir_window_put_with(
		 win, to,
		 &(struct weir_transfer){
		     .buf = &v, .length = 8, .there = &(struct weir_layout){.block = 16}}),
	     -EINVAL);
	WANT(r,
	     weir_window_put_with(
		 win, to,
		 &(struct weir_transfer){.buf = &v,
					 .length = 8,
					 .notify = WEIR_WITH_SIGNAL_SET | WEIR_WITH_SIGNAL_ADD}),
	     -EINVAL);
	WANT(r,
	     weir_window_put_with(
		 win, to,
		 &(struct weir_transfer){
		     .buf = &v, .length = 8, .notify = WEIR_WITH_NOTICE, .tag = WEIR_TAG_ANY}),
	     -EINVAL);
	epoch_end(r, win, BY_LOCK_ALL);
	CHECK(r, v == 1 && was == 2 && is_filled(base, UNTOUCHED, PART));
	works(r, win);
	OK(r, weir_window_free(win, CASE_MS));
	/* with a unit of 1 an element may be misaligned */
	OK(r, weir_window_allocate(r->g, PART, NULL, CASE_MS, (void **)&base, &win));
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	OK(r, weir_window_put(win, to, 0, &v, 8, 0)); /* what follows finds the lock acquired */
	WANT(r, weir_window_accumulate(win, to, 4, &v, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0), -EINVAL);
	WANT(r, weir_window_fetch_op(win, to, 12, &v, &was, WEIR_T_INT64, WEIR_ACC_SUM, 0),
	     -EINVAL);
	WANT(r, weir_window_compare_swap(win, to, 2, &v, &v, &was, WEIR_T_UINT32, 0), -EINVAL);
	OK(r, weir_window_unlock_all(win, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

/* Options that no window has, and asserts that a call does not have. */
static void
error_options(struct ranks *r)
{
	struct weir_window_options o;
	struct weir_window *win = NULL;
	void *base;

	for (unsigned k = 0; k < 7; k++) {
		o = options(r);
		o.flags |= k == 0 ? 0x8000 : k == 1 ? WEIR_WINDOW_PAGES : 0; /* of shared windows */
		o.rights = k == 2 ? WEIR_MAY_MAP : k == 3 ? 0x8000 : 0;
		o.name = k == 4 ? "12345678901234567890123456789012" : NULL;
		o.more[2] = k == 5;
		WANT(r,
		     weir_window_allocate(r->g, k == 6 ? WEIR_WINDOW_PART_MAX + 1 : PART, &o,
					  CASE_MS, &base, &win),
		     -EINVAL);
		CHECK(r, !win && !base);
	}
	o = options(r);
	o.flags = WEIR_WINDOW_SAME_ADDRESS;
	WANT(r, weir_window_create(r->g, NULL, 0, 0, &o, CASE_MS, &win), -EINVAL);
	WANT(r, weir_window_allocate(NULL, PART, NULL, 0, &base, &win), -EINVAL);
	WANT(r, weir_window_allocate(r->g, PART, NULL, 0, NULL, &win), -EINVAL);
	make(r, PART, 0, &win);
	WANT(r, weir_window_fence(win, 0x80, 0), -EINVAL);
	WANT(r, weir_window_lock(win, 0, WEIR_LOCK_SHARED, WEIR_NO_STORE, 0), -EINVAL);
	WANT(r, weir_window_lock(win, 0, 0, 0, 0), -EINVAL);
	WANT(r, weir_window_lock_all(win, WEIR_NO_PRECEDE, 0), -EINVAL);
	WANT(r, weir_window_post(win, NULL, 1, 0), -EINVAL);
	WANT(r, weir_window_post(win, &r->rank, 1, WEIR_NO_SUCCEED), -EINVAL);
	WANT(r, weir_window_start(win, NULL, 1, 0, 0), -EINVAL);
	WANT(r, weir_window_fence(NULL, 0, 0), -EINVAL);
	WANT(r, weir_window_query(win, 0, NULL, NULL, NULL), -EINVAL);
	works(r, win);
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- members and memory ---- */

/* Members that differ in kind, in an option, in the size at one address; in the order of calls. */
static void
error_members(struct ranks *r)
{
	struct weir_window_options o = options(r);
	bool odd = r->rank % 2;
	struct weir_window *win = NULL;
	struct weir_group *g;
	void *base = NULL;
	uint64_t all[RANKS_MAX];
	int rc;

	if (r->size < 2)
		return;
	for (unsigned k = 0; k < 5; k++) {
		struct weir_window_options mine = o;

		mine.flags |= k == 0 && odd ? WEIR_WINDOW_NO_LOCKS : 0;
		mine.flags |= k == 1 ? WEIR_WINDOW_SAME_ADDRESS : 0;
		mine.rights = k == 2 && odd ? WEIR_MAY_READ : 0;
		mine.disp_unit = k == 3 && odd ? 8 : 4;
		if (k == 4 && odd)
			rc = weir_window_create(r->g, NULL, 0, 0, &mine, CASE_MS, &win);
		else
			rc = weir_window_allocate(r->g, k == 1 ? PART + 8 * r->rank : PART, &mine,
						  CASE_MS, &base, &win);
		CHECK(r, rc == -EINVAL && !win);
	}
	make(r, PART, 0, &win);
	works(r, win);
	OK(r, weir_window_free(win, CASE_MS));
	/* one makes a window while the others gather: that group is of no use any more */
	OK(r, weir_group_split(r->g, 0, (int)r->rank, CASE_MS, &g));
	together(r);
	rc = odd ? weir_window_allocate(g, PART, &o, CASE_MS, &base, &win)
		 : weir_group_alltoall(g, all, 0, all, CASE_MS);
	CHECK(r, rc == -EINVAL);
	weir_group_leave(g);
	together(r);
}

/* Addresses of parts that are not mapped here: of other hosts, apart, of part of a region. */
static void
error_query(struct ranks *r)
{
	struct weir_window_options o = options(r);
	struct weir_region *region;
	struct weir_window *win;
	struct weir_member m;
	uint64_t bytes = 0;
	void *at, *base;

	o.disp_unit = 8;
	OK(r, weir_region_alloc(r->w, 2 * (uint64_t)PART, NULL, &region));
	for (unsigned k = 0; k < 3; k++) {
		if (k == 1)
			o.flags |= WEIR_WINDOW_APART;
		if (k == 2)
			OK(r, weir_window_create(r->g, region, PART, PART, &o, CASE_MS, &win));
		else
			OK(r, weir_window_allocate(r->g, PART, &o, CASE_MS, &base, &win));
		for (uint32_t i = 0; i < r->size; i++) {
			bool mapped = i == r->rank;

			OK(r, weir_group_member(r->g, i, &m));
			mapped |= k == 0 && r->maps && m.local;
			WANT(r, weir_window_query(win, i, &at, &bytes, NULL), mapped ? 0 : -EXDEV);
			CHECK(r, !mapped || (at && bytes == PART));
		}
		if (k < 2)
			works(r, win);
		OK(r, weir_window_free(win, CASE_MS));
	}
	OK(r, weir_region_free(region));
}

/* A region is in use until its window is freed. */
static void
used(struct ranks *r, struct weir_region *region, int (*give_up)(struct weir_region *))
{
	struct weir_window_options o = options(r);
	struct weir_window *win;

	o.disp_unit = 8;
	OK(r, weir_window_create(r->g, region, 0, PART, &o, CASE_MS, &win));
	WANT(r, give_up(region), -EBUSY);
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	WANT(r, give_up(region), -EBUSY);
	OK(r, weir_window_unlock_all(win, CASE_MS));
	works(r, win);
	OK(r, weir_window_free(win, CASE_MS));
	OK(r, give_up(region));
}

/* Allocated regions and adopted ones; one for other uses makes no window. */
static void
error_region(struct ranks *r)
{
	void *memory = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t none, any = 0;
	struct weir_region *region;
	struct weir_window *win;
	int rc;

	OK(r, weir_region_alloc(r->w, PART, NULL, &region));
	used(r, region, weir_region_free);
	rc = weir_adopt(r->w, memory, PART, WEIR_ADOPT_SEND, &region);
	none = rc == -ENOSPC; /* the session may adopt nothing */
	OK(r, none ? 0 : rc);
	OK(r, weir_group_allreduce(r->g, &none, &any, 1, WEIR_T_UINT64, WEIR_ACC_MAX, CASE_MS));
	if (any) {
		OK(r, none ? 0 : weir_disown(region));
		munmap(memory, PART);
		return;
	}
	WANT(r, weir_window_create(r->g, region, 0, PART, NULL, CASE_MS, &win), -EACCES);
	OK(r, weir_disown(region));
	OK(r, weir_adopt(r->w, memory, PART, WEIR_ADOPT_EXPOSE, &region));
	used(r, region, weir_disown);
	CHECK(r, word(memory, 1) == 7300 + previous_rank(r)); /* the program's again */
	munmap(memory, PART);
}

const struct rma_case error_cases[] = {
    {"error/epochs", error_epochs},	  {"error/free", error_free},
    {"error/target", error_target},	  {"error/rank", error_rank},
    {"error/overflow", error_overflow},	  {"error/smaller", error_smaller},
    {"error/operation", error_operation}, {"error/options", error_options},
    {"error/members", error_members},	  {"error/query", error_query},
    {"error/region", error_region},	  {NULL, NULL},
};
