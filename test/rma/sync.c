/* SPDX-License-Identifier: BSD-3-Clause */
/* Notices, signals, locks. */
#include "cases.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART 4096u

/* Each puts with a notice to the next; behind it lie the bytes. */
static void
notify_put(struct ranks *r, uint64_t bytes)
{
	struct memory m = memory_make(r, (bytes + PART - 1) / PART * PART);
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
	uint8_t *out = malloc(bytes);

	for (uint32_t round = 1; round <= 20; round++) {
		const struct weir_transfer t = {.buf = out,
						.length = bytes,
						.notify = WEIR_WITH_NOTICE,
						.tag = round,
						.source = r->rank};
		struct weir_notice n = {0};
		bool right = true;

		for (uint64_t i = 0; i < bytes; i++)
			out[i] = pattern(r->rank, round, i);
		OK(r, weir_remote_put_with(m.at[to], &t));
		OK(r, weir_notice_next(r->w, &n, CASE_MS));
		CHECK(r, n.x == m.x && n.tag == round && n.source == from && n.bytes == bytes);
		for (uint64_t i = 0; i < bytes; i++)
			right &= m.base[i] == pattern(from, round, i);
		CHECK(r, right);
		together(r);
	}
	free(out);
	memory_free(r, &m);
}

static void
notify_small(struct ranks *r)
{
	notify_put(r, 8);
}

static void
notify_large(struct ranks *r)
{
	notify_put(r, 300001);
}

/* A get tells the owner when its bytes were read. */
static void
notify_get(struct ranks *r)
{
	struct memory m = memory_make(r, PART);
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;

	for (uint64_t i = 1; i <= 50; i++) {
		uint64_t is = 0;
		const struct weir_transfer t = {.offset = 8,
						.buf = &is,
						.length = 8,
						.notify = WEIR_WITH_NOTICE,
						.tag = (uint32_t)i,
						.source = r->rank};
		struct weir_notice n = {0};

		*(_Atomic uint64_t *)(void *)(m.base + 8) = i;
		together(r);
		OK(r, weir_remote_get_with(m.at[to], &t));
		OK(r, weir_notice_next(r->w, &n, CASE_MS)); /* the word may change now */
		CHECK(r, n.tag == i && n.source == from);
		*(_Atomic uint64_t *)(void *)(m.base + 8) = 0;
		OK(r, weir_remote_flush(m.at[to], CASE_MS));
		CHECK(r, is == i);
		together(r);
	}
	memory_free(r, &m);
}

/* More notices than any window has, taken late: none is lost, none is doubled. */
static void
notify_many(struct ranks *r)
{
	enum { N = 500 };
	struct memory m = memory_make(r, PART);
	uint32_t next[RANKS_MAX] = {0}, to = (r->rank + 1) % r->size, sent = 0, taken = 0;
	struct weir_notice n;

	while (sent < N || taken < N) {
		bool moved = false;

		if (sent < N && !weir_remote_notify(m.at[to], sent, r->rank, WEIR_NOWAIT)) {
			sent++;
			moved = true;
		}
		if (weir_notice_next(r->w, &n, moved ? 0 : 10))
			continue;
		CHECK(r, n.source < r->size && n.tag == next[n.source]);
		if (n.source < r->size)
			next[n.source]++;
		taken++;
	}
	WANT(r, weir_notice_next(r->w, &n, 0), -EAGAIN);
	memory_free(r, &m);
}

/* A ring of signals that count, with bytes before each. */
static void
signal_ring(struct ranks *r)
{
	struct memory m = memory_make(r, PART);
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;

	for (uint64_t round = 1; round <= 100; round++) {
		uint64_t word = round * 100 + r->rank, seen = 0;
		const struct weir_transfer t = {.offset = 64,
						.buf = &word,
						.length = 8,
						.notify = round % 2 ? WEIR_WITH_SIGNAL_ADD
								    : WEIR_WITH_SIGNAL_SET,
						.signal = 128,
						.operand = round % 2 ? 1 : round};

		OK(r, weir_remote_put_with(m.at[to], &t));
		OK(r, weir_signal_wait(m.x, 128, WEIR_GE, round, CASE_MS, &seen));
		CHECK(r, seen == round);
		CHECK(r, *(_Atomic uint64_t *)(void *)(m.base + 64) == round * 100 + from);
		together(r);
	}
	memory_free(r, &m);
}

/* A counter that is read and written in two steps, under an exclusive lock. */
static void
lock_contention(struct ranks *r)
{
	enum { N = 100 };
	struct memory m = memory_make(r, PART);
	uint64_t v = 0;

	for (unsigned i = 0; i < N; i++) {
		OK(r, weir_remote_lock(m.at[0], WEIR_LOCK_EXCLUSIVE, CASE_MS));
		OK(r, weir_remote_get(m.at[0], 0, &v, 8, 0));
		OK(r, weir_remote_flush(m.at[0], CASE_MS));
		v++;
		OK(r, weir_remote_put(m.at[0], 0, &v, 8, 0));
		OK(r, weir_remote_unlock(m.at[0], CASE_MS));
	}
	together(r);
	CHECK(r, r->rank || *(_Atomic uint64_t *)(void *)m.base == N * (uint64_t)r->size);
	memory_free(r, &m);
}

/* Two words that writers change together are equal to readers. */
static void
lock_shared(struct ranks *r)
{
	struct memory m = memory_make(r, PART);

	for (uint64_t i = 1; i <= 100; i++) {
		bool writes = (i + r->rank) % 4 == 0;
		uint64_t is[2] = {0, 1};

		OK(r, weir_remote_lock(m.at[0], writes ? WEIR_LOCK_EXCLUSIVE : WEIR_LOCK_SHARED,
				       CASE_MS));
		if (writes) {
			is[0] = is[1] = i * 16 + r->rank;
			OK(r, weir_remote_put(m.at[0], 0, &is[0], 8, 0));
			OK(r, weir_remote_put(m.at[0], 2048, &is[1], 8, 0));
		} else {
			OK(r, weir_remote_get(m.at[0], 0, &is[0], 8, 0));
			OK(r, weir_remote_get(m.at[0], 2048, &is[1], 8, 0));
		}
		OK(r, weir_remote_unlock(m.at[0], CASE_MS));
		CHECK(r, is[0] == is[1]);
	}
	memory_free(r, &m);
}

/* Several locks at once, none twice, none that is not held. */
static void
lock_nested(struct ranks *r)
{
	struct memory m = memory_make(r, PART);

	for (unsigned i = 0; i < 20; i++) {
		for (uint32_t to = 0; to < r->size; to++) /* all in one order: no deadlock */
			OK(r, weir_remote_lock(m.at[to], WEIR_LOCK_EXCLUSIVE, CASE_MS));
		WANT(r, weir_remote_lock(m.at[0], WEIR_LOCK_SHARED, CASE_MS), -EALREADY);
		for (uint32_t to = 0; to < r->size; to++)
			OK(r, weir_remote_unlock(m.at[to], CASE_MS));
		WANT(r, weir_remote_unlock(m.at[0], CASE_MS), -ENOLCK);
	}
	memory_free(r, &m);
}

const struct rma_case sync_cases[] = {
    {"notify/small", notify_small},
    {"notify/large", notify_large},
    {"notify/get", notify_get},
    {"notify/many", notify_many},
    {"signal/ring", signal_ring},
    {"remote/contention", lock_contention},
    {"lock/shared", lock_shared},
    {"remote/nested", lock_nested},
    {NULL, NULL},
};
