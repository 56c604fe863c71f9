/* SPDX-License-Identifier: BSD-3-Clause */
/* Notified access through windows. */
#include "part.h"

#include <errno.h>
#include <stdlib.h>

#define PART 4096u

/* Waits for the notices of a watch, whose last one is as given. */
static void
await(struct ranks *r, struct weir_watch *watch, uint32_t source, uint32_t tag, uint64_t bytes)
{
	OK(r, weir_watch_wait(watch, CASE_MS));
	CHECK(r, watch->found == watch->count && watch->last_source == source &&
		     watch->last_tag == tag && watch->bytes == bytes);
}

/* Bytes of each length lie at the target when their notice comes; the watch is used again. The
 * next round's bytes come after an answer without data. */
static void
notify_sizes(struct ranks *r)
{
	static const uint32_t lengths[] = {0, 1, 8, 32, 33, 933, 8192, 8193, 65536, 300001};
	uint32_t to = next_rank(r), from = previous_rank(r);
	uint8_t *out = malloc(300001);
	struct weir_window *win;
	uint8_t *base = make(r, 300001, 0, &win);
	struct weir_watch data, answer;

	weir_watch_init(&data, win, from, 3, 1);
	weir_watch_init(&answer, win, to, 4, 1);
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (uint32_t k = 0; k < 2 * sizeof(lengths) / sizeof(lengths[0]); k++) {
		uint32_t n = lengths[k / 2];
		const struct weir_transfer t = {
		    .buf = out, .length = n, .notify = WEIR_WITH_NOTICE, .tag = 3};
		bool right = true;

		for (uint32_t i = 0; i < n; i++)
			out[i] = pattern(r->rank, k, i);
		weir_watch_start(&data);
		weir_watch_start(&answer);
		OK(r, weir_window_put_with(win, to, &t));
		await(r, &data, from, 3, n);
		for (uint32_t i = 0; i < n; i++)
			right &= base[i] == pattern(from, k, i);
		CHECK(r, right);
		OK(r, weir_window_notify(win, from, 4, 0));
		await(r, &answer, to, 4, 0);
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	free(out);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Pairs send one word to and fro, which both count up. */
static void
notify_pingpong(struct ranks *r)
{
	enum { N = 100 };
	uint32_t pair = (r->rank ^ 1) < r->size ? r->rank ^ 1 : r->rank;
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	struct weir_watch watch;

	weir_watch_init(&watch, win, pair, 9, 1);
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (uint64_t i = 1; i <= N; i++) {
		uint64_t v = i;
		const struct weir_transfer t = {
		    .offset = 2, .buf = &v, .length = 8, .notify = WEIR_WITH_NOTICE, .tag = 9};

		if (i % 2 == r->rank % 2 || pair == r->rank)
			OK(r, weir_window_put_with(win, pair, &t));
		if (i % 2 != r->rank % 2 || pair == r->rank) {
			await(r, &watch, pair, 9, 8);
			CHECK(r, word(base, 2) == i);
			weir_watch_start(&watch);
		}
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

/* All send to all: by source in the order of each, by tag in any, and the rest as it comes. */
static void
notify_wildcards(struct ranks *r)
{
	enum { N = 6 }; /* tags */
	struct weir_window *win;
	struct weir_watch watch;
	uint32_t seen[RANKS_MAX] = {0};

	make(r, PART, 0, &win);
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (uint32_t tag = 0; tag < N; tag++)
		for (uint32_t i = 0; i < r->size; i++)
			OK(r, weir_window_notify(win, (r->rank + i) % r->size, tag, 0));
	/* any source: one of each rank has the tag */
	for (uint32_t i = 0; i < r->size; i++) {
		weir_watch_init(&watch, win, WEIR_RANK_ANY, 2, 1);
		OK(r, weir_watch_wait(&watch, CASE_MS));
		CHECK(r, watch.last_tag == 2 && watch.last_source < r->size &&
			     !seen[watch.last_source % RANKS_MAX]++);
	}
	/* any tag: those of a rank in its order */
	for (uint32_t i = 0; i < r->size; i++) {
		weir_watch_init(&watch, win, i, WEIR_TAG_ANY, 1);
		await(r, &watch, i, 0, 0);
		weir_watch_init(&watch, win, i, WEIR_TAG_ANY, 2);
		await(r, &watch, i, 3, 0);
		seen[i] = 4;
	}
	/* any of both: each rank's rest in its order */
	for (uint32_t k = 0; k < 2 * r->size; k++) {
		weir_watch_init(&watch, win, WEIR_RANK_ANY, WEIR_TAG_ANY, 1);
		OK(r, weir_watch_wait(&watch, CASE_MS));
		CHECK(r, watch.last_source < r->size &&
			     watch.last_tag == seen[watch.last_source % RANKS_MAX]++);
	}
	weir_watch_init(&watch, win, WEIR_RANK_ANY, WEIR_TAG_ANY, 1);
	WANT(r, weir_watch_test(&watch), 0);
	OK(r, weir_window_unlock_all(win, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

/* The owner of bytes learns that they were read, and may change them then. */
static void
notify_read(struct ranks *r)
{
	static const uint32_t lengths[] = {8, 4096, 70000};
	uint32_t to = next_rank(r), from = previous_rank(r);
	uint8_t *in = malloc(70000);
	struct weir_window *win;
	uint8_t *base = make(r, 70000, 0, &win);
	struct weir_watch read, filled;

	weir_watch_init(&read, win, from, 1, 1);
	weir_watch_init(&filled, win, to, 2, 1);
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (uint32_t k = 0; k < 12; k++) {
		uint32_t n = lengths[k % 3];
		const struct weir_transfer t = {
		    .buf = in, .length = n, .notify = WEIR_WITH_NOTICE, .tag = 1};
		bool right = true;

		for (uint32_t i = 0; i < n; i++)
			base[i] = pattern(r->rank, k, i);
		weir_watch_start(&read);
		weir_watch_start(&filled);
		weir_window_sync(win);
		OK(r, weir_window_notify(win, from, 2, 0));
		await(r, &filled, to, 2, 0);
		OK(r, weir_window_get_with(win, to, &t));
		await(r, &read, from, 1, n);
		memset(base, 0, n);
		OK(r, weir_window_flush_local(win, to, CASE_MS));
		for (uint32_t i = 0; i < n; i++)
			right &= in[i] == pattern(to, k, i);
		CHECK(r, right);
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	free(in);
	OK(r, weir_window_free(win, CASE_MS));
}

/* A notice stands for all that its sender did before: puts and updates of any length and handle. */
static void
notify_consistency(struct ranks *r)
{
	enum { N = 40000 };
	uint32_t to = next_rank(r), from = previous_rank(r);
	uint8_t *out = malloc(N);
	struct weir_watch watch, back;

	for (unsigned k = 0; k < 2; k++) {
		struct weir_window *win;
		uint8_t *base = make(r, N + 64, k ? WEIR_WINDOW_BY_ENGINE : 0, &win);

		weir_watch_init(&watch, win, from, 1, 1);
		weir_watch_init(&back, win, to, 2, 1);
		OK(r, weir_window_lock_all(win, 0, CASE_MS));
		for (uint64_t round = 1; round <= 20; round++) {
			bool right = true;
			uint64_t v = round;

			for (uint32_t i = 0; i < N; i++)
				out[i] = pattern(r->rank, (uint32_t)round, i);
			weir_watch_start(&watch);
			weir_watch_start(&back);
			OK(r, weir_window_put(win, to, 0, out, N, 0));
			OK(r, weir_window_put(win, to, N / 8, &v, 8, 0));
			OK(r, weir_window_accumulate(win, to, N / 8 + 1, &v, 1, WEIR_T_UINT64,
						     WEIR_ACC_SUM, 0));
			OK(r, weir_window_notify(win, to, 1, 0));
			await(r, &watch, from, 1, 0);
			for (uint32_t i = 0; i < N; i++)
				right &= base[i] == pattern(from, (uint32_t)round, i);
			CHECK(r, right && word(base, N / 8) == round &&
				     word(base, N / 8 + 1) == round * (round + 1) / 2);
			OK(r, weir_window_notify(win, from, 2, 0));
			await(r, &back, to, 2, 0);
		}
		OK(r, weir_window_unlock_all(win, CASE_MS));
		OK(r, weir_window_free(win, CASE_MS));
	}
	free(out);
}

/* Notices of transfers with layouts count the bytes of the layout. */
static void
layouts(struct ranks *r, uint32_t flags)
{
	enum { ROWS = 20 };
	const struct weir_layout column = {.block = 8, .dims = 1, .dim = {{ROWS, 64}}};
	uint32_t to = next_rank(r), from = previous_rank(r);
	struct weir_window *win;
	uint8_t *base = make(r, ROWS * 64, flags, &win);
	uint64_t own[ROWS * 8], in[ROWS];
	struct weir_transfer put = {.offset = 3,
				    .buf = own + 5,
				    .here = &column,
				    .there = &column,
				    .notify = WEIR_WITH_NOTICE,
				    .tag = 1},
			     get = {.offset = 3,
				    .buf = in,
				    .there = &column,
				    .length = 8 * ROWS,
				    .notify = WEIR_WITH_NOTICE,
				    .tag = 2};
	struct weir_watch watch;

	for (uint64_t i = 0; i < ROWS * 8; i++)
		own[i] = r->rank * 1000 + i;
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	OK(r, weir_window_put_with(win, to, &put));
	weir_watch_init(&watch, win, from, 1, 1);
	await(r, &watch, from, 1, 8 * ROWS);
	for (uint64_t i = 0; i < ROWS * 8; i++)
		CHECK(r, word(base, i) == (i % 8 == 3 ? from * 1000 + i + 2 : 0));
	together(r); /* the bytes are there: they are got back */
	OK(r, weir_window_get_with(win, to, &get));
	weir_watch_init(&watch, win, from, WEIR_TAG_ANY, 1);
	await(r, &watch, from, 2, 8 * ROWS);
	OK(r, weir_window_flush_local(win, to, CASE_MS));
	for (uint64_t i = 0; i < ROWS; i++)
		CHECK(r, in[i] == r->rank * 1000 + 8 * i + 5);
	OK(r, weir_window_unlock_all(win, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

static void
notify_layout(struct ranks *r)
{
	layouts(r, 0);
	layouts(r, WEIR_WINDOW_BY_ENGINE);
}

/* In each kind of epoch, and of shared windows. */
static void
notify_epochs(struct ranks *r)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	struct ranks host = host_ranks(r);
	struct weir_window *win;
	uint64_t v = 4;
	const struct weir_transfer t = {
	    .offset = 1, .buf = &v, .length = 8, .notify = WEIR_WITH_NOTICE, .tag = 6};
	void *base;

	for (unsigned shared = 0; shared < 2; shared++) {
		struct ranks *of = shared ? &host : r;
		struct weir_watch watch;

		o.disp_unit = 8;
		if (shared)
			OK(of, weir_window_allocate_shared(of->g, 64, &o, CASE_MS, &base, &win));
		else
			base = make(of, 64, 0, &win);
		for (unsigned k = 0; k < EPOCH_KINDS; k++) {
			epoch_begin(of, win, (enum epoch_kind)k);
			v = 10 * k + of->rank;
			OK(of, weir_window_put_with(win, next_rank(of), &t));
			weir_watch_init(&watch, win, WEIR_RANK_ANY, 6, 1);
			await(of, &watch, previous_rank(of), 6, 8);
			CHECK(of, word(base, 1) == 10 * k + previous_rank(of));
			epoch_end(of, win, (enum epoch_kind)k);
		}
		OK(of, weir_window_free(win, CASE_MS));
	}
	host_done(r, &host);
}

/* More notices than a connection's window holds, which no watch takes until they are all there. */
static void
notify_late(struct ranks *r)
{
	enum { N = 700 };
	uint32_t to = next_rank(r), from = previous_rank(r);
	struct weir_window *win;
	struct weir_watch watch;

	make(r, PART, 0, &win);
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (uint32_t i = 0; i < N; i++)
		OK(r, weir_window_notify(win, to, i, 0));
	together(r);
	weir_watch_init(&watch, win, from, N - 1, 1); /* overtakes those that nobody awaits yet */
	await(r, &watch, from, N - 1, 0);
	for (uint32_t i = 0; i < N - 1; i++) {
		weir_watch_init(&watch, win, i % 2 ? from : WEIR_RANK_ANY, WEIR_TAG_ANY, 1);
		await(r, &watch, from, i, 0);
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

const struct rma_case notify_cases[] = {
    {"notify/sizes", notify_sizes},
    {"notify/pingpong", notify_pingpong},
    {"notify/wildcards", notify_wildcards},
    {"notify/read", notify_read},
    {"notify/consistency", notify_consistency},
    {"notify/layout", notify_layout},
    {"notify/epochs", notify_epochs},
    {"notify/late", notify_late},
    {NULL, NULL},
};
