/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared windows of the members of each host; what windows say of themselves; many and large ones.
 */
#include "part.h"

#include <errno.h>
#include <stdlib.h>

#define PART 4096u

/* ---- shared windows ---- */

/* Fences order loads and stores of all with each other, and with operations. */
static void
shared_fence(struct ranks *r)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct ranks host = host_ranks(r);
	uint32_t to = next_rank(&host), from = previous_rank(&host);
	struct weir_window *win;
	void *own, *next;

	o.disp_unit = 8;
	OK(&host, weir_window_allocate_shared(host.g, 256, &o, CASE_MS, &own, &win));
	OK(&host, weir_window_query(win, to, &next, NULL, NULL));
	OK(&host, weir_window_fence(win, WEIR_NO_PRECEDE, CASE_MS));
	for (uint64_t round = 1; round <= 20; round++) {
		uint64_t v = round * 100 + host.rank, in = 0;

		memcpy((uint8_t *)next + 8, &v, 8);
		OK(&host, weir_window_fence(win, 0, CASE_MS));
		CHECK(&host, word(own, 1) == round * 100 + from);
		OK(&host, weir_window_get(win, to, 1, &in, 8, 0));
		OK(&host, weir_window_put(win, to, 2, &v, 8, 0));
		OK(&host, weir_window_fence(win, 0, CASE_MS));
		CHECK(&host, in == v && word(own, 2) == round * 100 + from);
	}
	OK(&host, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
	OK(&host, weir_window_free(win, CASE_MS));
	host_done(r, &host);
}

/* Loads and stores of all by all, contiguous and by pages; puts and flushes, seen by loads. */
static void
shared_each(struct ranks *r)
{
	enum { WORDS = 40 };
	struct ranks host = host_ranks(r);

	for (unsigned pages = 0; pages < 2; pages++) {
		struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
		_Atomic uint64_t *part[RANKS_MAX];
		struct weir_window *win;
		void *own, *at;
		bool right = true;

		o.disp_unit = 8;
		o.flags = pages ? WEIR_WINDOW_PAGES : 0;
		OK(&host, weir_window_allocate_shared(host.g, 8 * WORDS, &o, CASE_MS, &own, &win));
		for (uint32_t i = 0; i < host.size; i++) {
			OK(&host, weir_window_query(win, i, &at, NULL, NULL));
			part[i] = at;
			CHECK(&host, pages ? !((uintptr_t)at % 4096)
					   : (uint8_t *)at == (uint8_t *)part[0] + i * 8 * WORDS);
		}
		CHECK(&host, part[host.rank] == own);
		OK(&host, weir_window_lock_all(win, 0, CASE_MS));
		for (uint32_t i = 0; i < host.size; i++) {
			uint64_t v = 500 + host.rank;

			part[i][host.rank] = 100 * i + host.rank;
			OK(&host, weir_window_put(win, i, 20 + host.rank, &v, 8, 0));
		}
		OK(&host, weir_window_flush_all(win, CASE_MS));
		weir_window_sync(win);
		together(&host);
		weir_window_sync(win);
		for (uint32_t i = 0; i < host.size; i++)
			for (uint32_t k = 0; k < host.size; k++)
				right &= part[i][k] == 100 * i + k && part[i][20 + k] == 500 + k;
		CHECK(&host, right);
		OK(&host, weir_window_unlock_all(win, CASE_MS));
		OK(&host, weir_window_free(win, CASE_MS));
	}
	host_done(r, &host);
}

/* Parts that are empty, in front, in between, all; each is asked for, and the first with bytes. */
static void
shared_query(struct ranks *r)
{
	struct ranks host = host_ranks(r);

	for (unsigned k = 0; k < 4; k++) {
		struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
		uint32_t first = k == 3 ? host.size : k % host.size, unit;
		void *own, *at = NULL, *before = NULL;
		struct weir_window *win;
		uint64_t bytes;

		o.disp_unit = 4;
		o.flags = k % 2 ? WEIR_WINDOW_PAGES : 0;
		/* of `first` and each second one behind it */
		bytes = host.rank >= first && (host.rank - first) % 2 == 0 ? 128 : 0;
		OK(&host, weir_window_allocate_shared(host.g, bytes, &o, CASE_MS, &own, &win));
		CHECK(&host, !own == !bytes);
		WANT(&host, weir_window_query(win, WEIR_RANK_ANY, &before, &bytes, &unit),
		     first < host.size ? 0 : -ENOENT);
		for (uint32_t i = 0; i < host.size; i++) {
			OK(&host, weir_window_query(win, i, &at, &bytes, &unit));
			CHECK(&host, bytes == (i >= first && (i - first) % 2 == 0 ? 128 : 0));
			CHECK(&host, unit == 4 && !at == !bytes);
			CHECK(&host, i != first || at == before);
		}
		WANT(&host, weir_window_query(win, host.size, &at, NULL, NULL), -EINVAL);
		OK(&host, weir_window_free(win, CASE_MS));
	}
	host_done(r, &host);
}

/* ---- all kinds ---- */

static void
window_info_of(struct ranks *r)
{
	struct weir_window_options o = options(r);
	struct weir_window_info info;
	struct weir_region_info is;
	struct weir_region *region;
	struct weir_window *win;
	void *base, *at;
	uint64_t bytes;
	uint32_t unit;

	o.name = "table";
	o.disp_unit = 4;
	o.rights = WEIR_MAY_READ | WEIR_MAY_WRITE;
	OK(r, weir_region_alloc(r->w, PART, NULL, &region));
	weir_region_info(region, &is);
	for (unsigned allocated = 0; allocated < 2; allocated++) {
		if (allocated)
			OK(r, weir_window_allocate(r->g, 100 + r->rank, &o, CASE_MS, &base, &win));
		else
			OK(r,
			   weir_window_create(r->g, region, 64, 100 + r->rank, &o, CASE_MS, &win));
		if (!allocated)
			base = (uint8_t *)is.base + 64;
		weir_window_info(win, &info);
		CHECK(r, info.kind == (allocated ? WEIR_WINDOW_ALLOCATED : WEIR_WINDOW_CREATED) &&
			     info.base == base && info.bytes == 100 + r->rank &&
			     info.disp_unit == 4 && info.rights == o.rights &&
			     info.flags == o.flags && !strcmp(info.name, "table"));
		OK(r, weir_window_query(win, r->rank, &at, &bytes, &unit));
		CHECK(r, at == base && bytes == 100 + r->rank && unit == 4);
		CHECK(r, weir_window_group(win) == r->g && !weir_window_user(win));
		weir_window_set_user(win, &info);
		CHECK(r, weir_window_user(win) == &info);
		OK(r, weir_window_set_name(win, "1234567890123456789012345678901"));
		WANT(r, weir_window_set_name(win, "12345678901234567890123456789012"), -EINVAL);
		weir_window_info(win, &info);
		CHECK(r, !strcmp(info.name, "1234567890123456789012345678901"));
		OK(r, weir_window_set_name(win, NULL));
		weir_window_info(win, &info);
		CHECK(r, !info.name[0]);
		OK(r, weir_window_free(win, CASE_MS));
	}
	OK(r, weir_region_free(region));
	OK(r, weir_window_allocate(r->g, 0, NULL, CASE_MS, &base, &win));
	weir_window_info(win, &info);
	CHECK(r, !info.base && !info.bytes && info.disp_unit == 1 && !info.name[0] &&
		     info.rights ==
			 (WEIR_MAY_READ | WEIR_MAY_WRITE | WEIR_MAY_UPDATE | WEIR_MAY_NOTIFY));
	OK(r, weir_window_free(win, CASE_MS));
}

/* As many as a group or a session may have; one more is refused at all; freed ones make room. */
static void
window_limit(struct ranks *r)
{
	struct weir_window *win[WEIR_WINDOWS_MAX + 1] = {NULL};
	struct weir_window_options o = options(r);
	void *base[WEIR_WINDOWS_MAX + 1];
	unsigned n = 0;
	int rc;

	o.disp_unit = 8;
	while (!(rc = weir_window_allocate(r->g, 64, &o, CASE_MS, &base[n], &win[n])) &&
	       n < WEIR_WINDOWS_MAX)
		n++;
	CHECK(r, rc == -EMFILE && n >= 8 && !win[n] && !base[n]);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = round; i < n; i += 7) {
			OK(r, weir_window_free(win[i], CASE_MS));
			base[i] = make(r, 64, 0, &win[i]);
			CHECK(r, is_filled(base[i], 0, 64)); /* not that of the one before */
		}
		for (uint64_t i = 0; i < n; i += 5) {
			uint64_t v = 1000 * round + i;

			OK(r, weir_window_lock_all(win[i], 0, CASE_MS));
			OK(r, weir_window_put(win[i], next_rank(r), 1, &v, 8, 0));
			OK(r, weir_window_unlock_all(win[i], CASE_MS));
		}
		together(r);
		for (uint64_t i = 0; i < n; i += 5)
			CHECK(r, word(base[i], 1) == 1000 * round + i);
		together(r);
	}
	for (unsigned i = 0; i < n; i++)
		OK(r, weir_window_free(win[i], CASE_MS));
}

/* The last rank's part has more than 4 GiB: no offset is cut to 32 bits, the last byte is there. */
static void
window_large(struct ranks *r)
{
	const uint64_t half = UINT64_C(1) << 32, most = half + PART, at[] = {0, half, most - 8};
	struct weir_window_options o = options(r);
	uint32_t last = r->size - 1;
	struct weir_window *win;
	void *base;

	OK(r, weir_window_allocate(r->g, r->rank == last ? most : 0, &o, CASE_MS, &base, &win));
	for (uint32_t of = 0; win && of < r->size; of++) {
		epoch_begin(r, win, BY_FENCE);
		for (uint64_t i = 0; of == r->rank && i < 3; i++) {
			uint64_t v = 10 * of + i + 1, was = 0;

			OK(r, weir_window_put(win, last, at[i], &v, 8, 0));
			OK(r, weir_window_fetch_op(win, last, at[i], &v, &was, WEIR_T_UINT64,
						   WEIR_ACC_SUM, 0));
			OK(r, weir_window_flush(win, last, CASE_MS));
			CHECK(r, was == v);
			OK(r, weir_window_get(win, last, at[i], &was, 8, 0));
			OK(r, weir_window_flush(win, last, CASE_MS));
			CHECK(r, was == 2 * v);
		}
		if (of == r->rank)
			WANT(r, weir_window_put(win, last, most - 7, &o, 8, 0), -ERANGE);
		epoch_end(r, win, BY_FENCE);
		for (uint64_t i = 0; r->rank == last && i < 3; i++)
			CHECK(r, word(base, at[i] / 8) == 2 * (10 * of + i + 1));
	}
	OK(r, weir_window_free(win, CASE_MS));
}

const struct rma_case shared_cases[] = {
    {"shared/fence", shared_fence},
    {"shared/each", shared_each},
    {"shared/query", shared_query},
    {"window/info", window_info_of},
    {"window/limit", window_limit},
    {"window/large", window_large, true},
    {NULL, NULL},
};
