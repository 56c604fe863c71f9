/* SPDX-License-Identifier: BSD-3-Clause */
/* Dynamic windows: attached ranges, operations by address. */
#include "cases.h"

#include <weir/window.h>

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 8192u
#define MANY 96u /* ranges of a rank */

/* A dynamic window, and a region of each rank. */
struct parts {
	struct weir_window *win;
	struct weir_region *region;
	uint8_t *base;
	uint64_t at[RANKS_MAX]; /* addresses of the regions of all */
};

static struct parts
make(struct ranks *r)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct weir_region_info info = {0};
	struct parts p = {0};
	uint64_t mine;

	o.flags = r->maps ? 0 : WEIR_WINDOW_APART;
	OK(r, weir_window_create_dynamic(r->g, &o, CASE_MS, &p.win));
	OK(r, weir_region_alloc(r->w, BYTES, NULL, &p.region));
	weir_region_info(p.region, &info);
	p.base = info.base;
	mine = weir_address_of(p.base);
	OK(r, weir_group_allgather(r->g, &mine, sizeof(mine), p.at, CASE_MS));
	return p;
}

static void
unmake(struct ranks *r, struct parts *p)
{
	OK(r, weir_window_free(p->win, CASE_MS));
	OK(r, weir_region_free(p->region));
}

static uint64_t
word(const void *at)
{
	return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
}

/* Attaching and detaching, and their misuse. */
static void
dynamic_ranges(struct ranks *r)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct parts p = make(r);
	struct weir_window_info info;
	struct weir_window *none;
	void *base;

	weir_window_info(p.win, &info);
	CHECK(r, info.kind == WEIR_WINDOW_DYNAMIC && !info.base && !info.bytes);
	WANT(r, weir_window_query(p.win, r->rank, &base, NULL, NULL), -EINVAL);
	OK(r, weir_window_attach(p.win, p.region, 1024, 512));
	WANT(r, weir_window_attach(p.win, p.region, 1024, 512), -EEXIST);
	WANT(r, weir_window_attach(p.win, p.region, 0, BYTES), -EEXIST);
	WANT(r, weir_window_attach(p.win, p.region, 1535, 1), -EEXIST);
	WANT(r, weir_window_attach(p.win, p.region, 1000, 25), -EEXIST);
	WANT(r, weir_window_attach(p.win, p.region, 1100, 1), -EEXIST);
	OK(r, weir_window_attach(p.win, p.region, 1000, 24));
	OK(r, weir_window_attach(p.win, p.region, 1536, 1));
	WANT(r, weir_window_attach(p.win, p.region, BYTES, 1), -EINVAL);
	WANT(r, weir_window_attach(p.win, p.region, 0, 0), -EINVAL);
	WANT(r, weir_window_attach(p.win, p.region, 16, UINT64_MAX), -EINVAL);
	WANT(r, weir_window_attach(p.win, NULL, 0, 8), -EINVAL);
	WANT(r, weir_region_free(p.region), -EBUSY);
	WANT(r, weir_window_detach(p.win, p.base), -ENOENT);
	WANT(r, weir_window_detach(p.win, p.base + 1025), -ENOENT);
	WANT(r, weir_window_detach(p.win, NULL), -ENOENT);
	OK(r, weir_window_detach(p.win, p.base + 1024));
	WANT(r, weir_window_detach(p.win, p.base + 1024), -ENOENT);
	OK(r, weir_window_detach(p.win, p.base + 1000));
	OK(r, weir_window_detach(p.win, p.base + 1536));
	OK(r, weir_window_attach(p.win, p.region, 0, BYTES)); /* the free call detaches it */
	unmake(r, &p);
	o.disp_unit = 8;
	WANT(r, weir_window_create_dynamic(r->g, &o, CASE_MS, &none), -EINVAL);
	o.disp_unit = 0;
	o.flags = WEIR_WINDOW_SAME_ADDRESS;
	WANT(r, weir_window_create_dynamic(r->g, &o, CASE_MS, &none), -EINVAL);
	o.flags = 0;
	OK(r, weir_window_allocate(r->g, 64, &o, CASE_MS, &base, &none));
	WANT(r, weir_window_attach(none, p.region, 0, 8), -EINVAL);
	WANT(r, weir_window_detach(none, base), -EINVAL);
	OK(r, weir_window_free(none, CASE_MS));
}

/* Every kind of operation, in every kind of epoch that fits it. */
static void
dynamic_each(struct ranks *r)
{
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size, error;
	const struct weir_layout pairs = {
	    .block = 8, .dims = 1, .dim = {{.count = 4, .stride = 64}}};
	struct weir_transfer t = {.length = 32, .there = &pairs};
	struct parts p = make(r);
	uint64_t at = p.at[to], one = 1, old = 0, want = 100 + r->rank, fresh = 7;
	uint8_t out[4096], in[4096];
	bool right = true;

	OK(r, weir_window_attach(p.win, p.region, 0, BYTES));
	for (uint32_t i = 0; i < sizeof(out); i++)
		out[i] = pattern(r->rank, 1, i);
	OK(r, weir_window_fence(p.win, WEIR_NO_PRECEDE, CASE_MS));
	OK(r, weir_window_put(p.win, to, at, out, sizeof(out), 0));
	OK(r, weir_window_fence(p.win, 0, CASE_MS));
	for (uint32_t i = 0; i < sizeof(out); i++)
		right &= p.base[i] == pattern(from, 1, i);
	CHECK(r, right);
	OK(r, weir_window_get(p.win, to, at, in, sizeof(in), 0));
	OK(r, weir_window_fence(p.win, WEIR_NO_SUCCEED, CASE_MS));
	CHECK(r, !memcmp(in, out, sizeof(in)));

	memset(p.base, 0, BYTES);
	together(r);
	OK(r, weir_window_lock_all(p.win, 0, CASE_MS));
	for (uint32_t i = 0; i < r->size; i++)
		for (uint32_t n = 0; n < 50; n++)
			OK(r, weir_window_accumulate(p.win, i, p.at[i], &one, 1, WEIR_T_UINT64,
						     WEIR_ACC_SUM, 0));
	OK(r, weir_window_flush_all(p.win, CASE_MS));
	together(r);
	CHECK(r, word(p.base) == 50 * r->size);
	OK(r, weir_window_fetch_op(p.win, to, at + 8, &want, &old, WEIR_T_UINT64, WEIR_ACC_REPLACE,
				   0));
	OK(r, weir_window_flush(p.win, to, CASE_MS));
	CHECK(r, old == 0);
	OK(r, weir_window_compare_swap(p.win, to, at + 8, &want, &fresh, &old, WEIR_T_UINT64, 0));
	OK(r, weir_window_flush(p.win, to, CASE_MS));
	CHECK(r, old == want);
	OK(r, weir_window_get_accumulate(p.win, to, at + 8, NULL, &old, 1, WEIR_T_UINT64,
					 WEIR_ACC_NO_OP, 0));
	t.offset = at + 1024;
	t.buf = out;
	OK(r, weir_window_put_with(p.win, to, &t));
	t.buf = in;
	OK(r, weir_window_get_with(p.win, to, &t));
	OK(r, weir_window_flush(p.win, to, CASE_MS));
	CHECK(r, old == fresh && !memcmp(in, out, 32));
	OK(r, weir_window_unlock_all(p.win, CASE_MS));
	together(r);
	for (uint32_t i = 0; i < 4 * 64; i++)
		right &=
		    p.base[1024 + i] == (i % 64 < 8 ? pattern(from, 1, i / 64 * 8 + i % 64) : 0);
	CHECK(r, right);

	/* the word of a signal, and a watch */
	old = r->rank + 5;
	t = (struct weir_transfer){.offset = at + 2048,
				   .buf = &old,
				   .length = 8,
				   .notify = WEIR_WITH_SIGNAL_SET | WEIR_WITH_NOTICE,
				   .tag = 3,
				   .signal = at + 3072,
				   .operand = 11};
	OK(r, weir_window_lock(p.win, to, WEIR_LOCK_SHARED, 0, CASE_MS));
	OK(r, weir_window_put_with(p.win, to, &t));
	OK(r, weir_window_unlock(p.win, to, CASE_MS));
	OK(r, weir_window_signal_wait(p.win, weir_address_of(p.base) + 3072, WEIR_EQ, 11, CASE_MS,
				      NULL));
	CHECK(r, word(p.base + 2048) == from + 5);
	{
		struct weir_watch watch;

		weir_watch_init(&watch, p.win, from, 3, 1);
		OK(r, weir_watch_wait(&watch, CASE_MS));
	}
	WANT(r, weir_window_error(p.win, &error), -ENOENT);
	unmake(r, &p);
}

/* Operations outside ranges, and across those that adjoin. */
static void
dynamic_outside(struct ranks *r)
{
	uint32_t to = (r->rank + 1) % r->size, error = UINT32_MAX;
	const struct weir_layout apart = {
	    .block = 8, .dims = 1, .dim = {{.count = 2, .stride = 512}}};
	struct weir_transfer t = {.length = 16, .there = &apart};
	struct parts p = make(r);
	uint64_t at = p.at[to], one = 1, old = 99;
	double complex_[2] = {1, 2};
	uint8_t out[256], in[256];

	memset(out, 0xa5, sizeof(out));
	/* [0, 24) and [24, 256) adjoin; [512, 640) does not */
	OK(r, weir_window_attach(p.win, p.region, 0, 24));
	OK(r, weir_window_attach(p.win, p.region, 24, 232));
	OK(r, weir_window_attach(p.win, p.region, 512, 128));
	together(r);
	OK(r, weir_window_lock(p.win, to, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
	OK(r, weir_window_put(p.win, to, at, out, 256, 0));
	OK(r, weir_window_get(p.win, to, at, in, 256, 0));
	OK(r, weir_window_flush(p.win, to, CASE_MS));
	CHECK(r, !memcmp(in, out, 256));
	t.offset = at;
	t.buf = out;
	OK(r, weir_window_put_with(p.win, to, &t));
	OK(r, weir_window_flush(p.win, to, CASE_MS));

	/* each of these is outside, and changes nothing */
	OK(r, weir_window_put(p.win, to, at + 1, out, 256, 0));
	WANT(r, weir_window_flush(p.win, to, CASE_MS), -ERANGE);
	WANT(r, weir_window_error(p.win, &error), -ERANGE);
	CHECK(r, error == to);
	OK(r, weir_window_flush(p.win, to, CASE_MS)); /* told once */
	memset(in, 0xff, sizeof(in));
	OK(r, weir_window_get(p.win, to, at + 200, in, 57, 0));
	WANT(r, weir_window_flush(p.win, to, CASE_MS), -ERANGE);
	CHECK(r, !in[0] && !in[56] && in[57] == 0xff);
	OK(r,
	   weir_window_fetch_op(p.win, to, at + 256, &one, &old, WEIR_T_UINT64, WEIR_ACC_SUM, 0));
	OK(r, weir_window_compare_swap(p.win, to, at + 1024, &one, &one, &old, WEIR_T_UINT64, 0));
	OK(r, weir_window_accumulate(p.win, to, 4096, &one, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0));
	t.offset = at + 192;
	OK(r, weir_window_put_with(p.win, to, &t)); /* its second block */
	WANT(r, weir_window_flush(p.win, to, CASE_MS), -ERANGE);
	CHECK(r, !old);
	/* a signal whose word is outside, behind bytes that are inside */
	t = (struct weir_transfer){.offset = at,
				   .buf = out,
				   .length = 8,
				   .notify = WEIR_WITH_SIGNAL_ADD,
				   .signal = at + 640,
				   .operand = 1};
	OK(r, weir_window_put_with(p.win, to, &t));
	WANT(r, weir_window_flush(p.win, to, CASE_MS), -ERANGE);
	/* an element over the border of two ranges */
	OK(r, weir_window_accumulate(p.win, to, at + 16, complex_, 1, WEIR_T_DOUBLE_COMPLEX,
				     WEIR_ACC_SUM, 0));
	WANT(r, weir_window_flush(p.win, to, CASE_MS), -ERANGE);
	/* what is no address at all is refused at once */
	WANT(r, weir_window_put(p.win, to, UINT64_MAX - 7, &one, 8, 0), -ERANGE);
	WANT(r, weir_window_put(p.win, to, (UINT64_C(1) << 48) - 8, &one, 8, 0), -ERANGE);
	WANT(r, weir_window_get(p.win, to, (UINT64_C(1) << 48) - 8, &old, 8, 0), -ERANGE);
	/* the lock is held still: the end of the epoch tells of the last one */
	OK(r, weir_window_put(p.win, to, at + 700, out, 8, 0));
	WANT(r, weir_window_unlock(p.win, to, CASE_MS), -ERANGE);
	together(r);
	for (uint32_t i = 0; i < BYTES; i++)
		if (p.base[i] != (i < 256 || (i >= 512 && i < 520) ? 0xa5 : 0)) {
			CHECK(r, !"a byte outside was changed, or one inside was not");
			break;
		}
	together(r);

	/* an access to a range that is detached, and to the same address again */
	OK(r, weir_window_detach(p.win, p.base + 512));
	together(r);
	OK(r, weir_window_fence(p.win, WEIR_NO_PRECEDE, CASE_MS));
	OK(r, weir_window_put(p.win, to, at + 512, &one, 8, 0));
	WANT(r, weir_window_fence(p.win, 0, CASE_MS), -ERANGE);
	OK(r, weir_window_attach(p.win, p.region, 512, 64));
	OK(r, weir_window_fence(p.win, 0, CASE_MS));
	OK(r, weir_window_put(p.win, to, at + 512, &one, 8, 0));
	OK(r, weir_window_fence(p.win, WEIR_NO_SUCCEED, CASE_MS));
	CHECK(r, word(p.base + 512) == 1);
	unmake(r, &p);
}

/* A window whose members may only write, and exposures with operations outside. */
static void
dynamic_started(struct ranks *r)
{
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct parts p = make(r);
	struct weir_window *win;
	uint64_t v = 7, seen = 0;

	o.flags = r->maps ? 0 : WEIR_WINDOW_APART;
	o.rights = WEIR_MAY_WRITE;
	OK(r, weir_window_create_dynamic(r->g, &o, CASE_MS, &win));
	OK(r, weir_window_attach(win, p.region, 0, 64));
	together(r);
	OK(r, weir_window_lock(win, to, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
	OK(r, weir_window_put(win, to, p.at[to], &v, 8, 0));
	OK(r, weir_window_flush(win, to, CASE_MS));
	OK(r, weir_window_put(win, to, p.at[to] + 60, &v, 8, 0));
	WANT(r, weir_window_get(win, to, p.at[to], &seen, 8, 0), -EACCES);
	WANT(r, weir_window_unlock(win, to, CASE_MS), -ERANGE);
	together(r);
	CHECK(r, word(p.base) == 7 && !word(p.base + 56));
	OK(r, weir_window_free(win, CASE_MS));

	/* the exposure ends although an operation was refused */
	OK(r, weir_window_attach(p.win, p.region, 64, 64));
	for (uint32_t round = 0; round < 2; round++) {
		OK(r, weir_window_post(p.win, &from, 1, 0));
		OK(r, weir_window_start(p.win, &to, 1, 0, CASE_MS));
		v = 100 + round;
		OK(r, weir_window_put(p.win, to, p.at[to] + 64, &v, 8, 0));
		OK(r, weir_window_put(p.win, to, p.at[to] + (round ? 72 : 128), &v, 8, 0));
		WANT(r, weir_window_complete(p.win, CASE_MS), round ? 0 : -ERANGE);
		OK(r, weir_window_wait(p.win, CASE_MS));
		CHECK(r, word(p.base + 64) == 100 + round);
	}
	/* nobody has asked about the last one yet */
	together(r);
	OK(r, weir_window_fence(p.win, WEIR_NO_PRECEDE, CASE_MS));
	OK(r, weir_window_put(p.win, to, p.at[to] + 4096, &v, 8, 0));
	WANT(r, weir_window_free(p.win, CASE_MS), -ERANGE);
	OK(r, weir_region_free(p.region));
}

/* Ranges of two regions that adjoin are one for a transfer. */
static void
dynamic_adjoining(struct ranks *r)
{
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
	struct weir_alloc_options exact = {.flags = WEIR_ALLOC_EXACT | WEIR_ALLOC_ORDINARY,
					   .numa_node = -1};
	struct weir_alloc_options small = {.flags = WEIR_ALLOC_ORDINARY, .numa_node = -1};
	struct weir_region *first = NULL, *second = NULL;
	struct weir_region_info info;
	struct parts p = make(r);
	uint64_t mine, all[RANKS_MAX];
	uint8_t out[4096];
	bool right = true;
	int rc = -EEXIST;

	/* an address below which there is room, found by taking it and giving it back */
	for (unsigned i = 0; rc == -EEXIST && i < 16; i++) {
		OK(r, weir_region_alloc(r->w, 2 * BYTES, &small, &first));
		weir_region_info(first, &info);
		exact.address = info.base;
		OK(r, weir_region_free(first));
		rc = weir_region_alloc(r->w, BYTES, &exact, &first);
		if (rc)
			continue;
		exact.address = (uint8_t *)exact.address + BYTES;
		rc = weir_region_alloc(r->w, BYTES, &exact, &second);
		if (rc)
			OK(r, weir_region_free(first));
	}
	OK(r, rc);
	OK(r, weir_window_attach(p.win, second, 0, BYTES));
	OK(r, weir_window_attach(p.win, first, 0, BYTES));
	weir_region_info(second, &info);
	mine = weir_address_of(info.base);
	OK(r, weir_group_allgather(r->g, &mine, sizeof(mine), all, CASE_MS));
	for (uint32_t i = 0; i < sizeof(out); i++)
		out[i] = pattern(r->rank, 2, i);
	OK(r, weir_window_fence(p.win, WEIR_NO_PRECEDE, CASE_MS));
	OK(r, weir_window_put(p.win, to, all[to] - 2000, out, sizeof(out), 0));
	OK(r, weir_window_accumulate(p.win, to, all[to] - 64, out, 16, WEIR_T_UINT64,
				     WEIR_ACC_REPLACE, 0));
	OK(r, weir_window_fence(p.win, WEIR_NO_SUCCEED, CASE_MS));
	for (uint32_t i = 0; i < sizeof(out); i++) {
		uint8_t want = pattern(from, 2, i);

		if (i >= 2000 - 64 && i < 2000 + 64)
			want = pattern(from, 2, i - (2000 - 64));
		right &= ((uint8_t *)info.base)[(int)i - 2000] == want;
	}
	CHECK(r, right);
	unmake(r, &p);
	OK(r, weir_region_free(first));
	OK(r, weir_region_free(second));
}

/* Many ranges, attached and detached in an order of their own. */
static void
dynamic_many(struct ranks *r)
{
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size, lost = 0;
	struct parts p = make(r);

	for (uint32_t i = 0; i < MANY; i++) /* 37 and MANY have no common factor */
		OK(r, weir_window_attach(p.win, p.region, i * 37 % MANY * 64, 16));
	for (uint32_t i = 0; i < MANY; i += 2)
		OK(r, weir_window_detach(p.win, p.base + i * 5 % MANY * 64));
	together(r);
	OK(r, weir_window_lock_all(p.win, 0, CASE_MS));
	for (uint32_t i = 0; i < MANY; i++) {
		uint64_t v = 1000 * r->rank + i;
		bool there = true;

		for (uint32_t k = 0; k < MANY; k += 2)
			there &= k * 5 % MANY != i;
		OK(r, weir_window_put(p.win, to, p.at[to] + i * 64 + 8, &v, 8, 0));
		WANT(r, weir_window_flush(p.win, to, CASE_MS), there ? 0 : -ERANGE);
		lost += !there;
	}
	CHECK(r, lost == MANY / 2);
	OK(r, weir_window_unlock_all(p.win, CASE_MS));
	together(r);
	for (uint32_t i = 0; i < MANY; i++) {
		uint64_t v = word(p.base + i * 64 + 8);
		bool there = true;

		for (uint32_t k = 0; k < MANY; k += 2)
			there &= k * 5 % MANY != i;
		CHECK(r, v == (there ? 1000 * from + i : 0));
	}
	unmake(r, &p);
}

/* ---- a list that all ranks append to ---- */

#define ELEMENTS 12u /* of a rank */

struct element {
	uint64_t next; /* rank << 48 | address; 0: it is the last */
	uint64_t value;
};

static uint64_t
pointer(uint32_t rank, const void *at)
{
	return (uint64_t)rank << 48 | weir_address_of(at);
}

/* The value at `offset` of an element. */
static uint64_t
fetch(struct ranks *r, struct weir_window *win, uint64_t to, size_t offset)
{
	uint32_t rank = (uint32_t)(to >> 48);
	uint64_t v = 0;

	OK(r, weir_window_fetch_op(win, rank, (to & ((UINT64_C(1) << 48) - 1)) + offset, NULL, &v,
				   WEIR_T_UINT64, WEIR_ACC_NO_OP, 0));
	OK(r, weir_window_flush(win, rank, CASE_MS));
	return v;
}

/* Hangs an element behind the last one, which is at or behind *tail. */
static void
append(struct ranks *r, struct weir_window *win, uint64_t element, uint64_t *tail)
{
	uint64_t none = 0, found;

	do {
		uint32_t rank = (uint32_t)(*tail >> 48);

		OK(r, weir_window_compare_swap(win, rank, *tail & ((UINT64_C(1) << 48) - 1), &none,
					       &element, &found, WEIR_T_UINT64, 0));
		OK(r, weir_window_flush(win, rank, CASE_MS));
		*tail = found ? found : element;
	} while (found && !r->failures);
}

/* Elements are attached one by one, and the list goes through all ranks. */
static void
dynamic_list(struct ranks *r)
{
	struct parts p = make(r);
	struct element *mine = (struct element *)(void *)p.base;
	uint64_t head, tail, at, seen[RANKS_MAX * ELEMENTS] = {0};
	uint32_t length = 0;
	bool each = true;

	head = pointer(0, &mine[ELEMENTS]);
	OK(r, weir_group_broadcast(r->g, 0, &head, sizeof(head), CASE_MS));
	if (!r->rank)
		OK(r, weir_window_attach(p.win, p.region, ELEMENTS * sizeof(*mine), sizeof(*mine)));
	together(r);
	tail = head;
	OK(r, weir_window_lock_all(p.win, 0, CASE_MS));
	for (uint32_t i = 0; i < ELEMENTS; i++) {
		mine[i].value = r->rank * ELEMENTS + i + 1;
		OK(r, weir_window_attach(p.win, p.region, i * sizeof(*mine), sizeof(*mine)));
		append(r, p.win, pointer(r->rank, &mine[i]), &tail);
	}
	together(r);
	for (at = head; (at = fetch(r, p.win, at, 0)) && length < RANKS_MAX * ELEMENTS; length++) {
		uint64_t value = fetch(r, p.win, at, offsetof(struct element, value));

		if (value && value <= r->size * ELEMENTS)
			seen[value - 1]++;
	}
	OK(r, weir_window_unlock_all(p.win, CASE_MS));
	CHECK(r, length == r->size * ELEMENTS);
	for (uint32_t i = 0; i < r->size * ELEMENTS; i++)
		each &= seen[i] == 1;
	CHECK(r, each);
	unmake(r, &p);
}

const struct rma_case dynamic_cases[] = {
    {"dynamic/ranges", dynamic_ranges},	      {"dynamic/each", dynamic_each},
    {"dynamic/outside", dynamic_outside},     {"dynamic/started", dynamic_started},
    {"dynamic/adjoining", dynamic_adjoining}, {"dynamic/many", dynamic_many},
    {"dynamic/list", dynamic_list},	      {NULL, NULL},
};
