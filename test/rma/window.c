/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows: kinds, operations, epochs, misuse. */
#include "part.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define PART 4096u
#define ROUNDS 10u

/* ---- operations between fences ---- */

static void
window_fence(struct ranks *r)
{
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
	struct weir_window *win;
	uint8_t *base = make(r, 2 * PART, 0, &win), out[PART], in[PART];

	OK(r, weir_window_fence(win, WEIR_NO_PRECEDE, CASE_MS));
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		bool right = true;

		for (uint32_t i = 0; i < PART; i++)
			out[i] = pattern(r->rank, round, i);
		OK(r, weir_window_put(win, to, round % 2 * PART / 8, out, PART, 0));
		OK(r, weir_window_fence(win, 0, CASE_MS));
		for (uint32_t i = 0; i < PART; i++)
			right &= base[round % 2 * PART + i] == pattern(from, round, i);
		CHECK(r, right);
		/* what the one before got: from the one before it */
		OK(r, weir_window_get(win, from, round % 2 * PART / 8, in, PART, 0));
		OK(r, weir_window_fence(win, 0, CASE_MS));
		for (uint32_t i = 0; i < PART; i++)
			right &= in[i] == pattern((from + r->size - 1) % r->size, round, i);
		CHECK(r, right);
	}
	OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
	WANT(r, weir_window_put(win, to, 0, out, 8, 0), -ENOLCK);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Over a part of a region of the program, which stays until the window is freed. */
static void
window_region(struct ranks *r)
{
	struct weir_window_options o = options(r);
	uint32_t to = (r->rank + 1) % r->size;
	struct weir_region_info info;
	struct weir_region *region;
	struct weir_window *win;
	uint64_t v = 1000 + r->rank, seen = 0;

	OK(r, weir_region_alloc(r->w, 4 * PART, NULL, &region));
	weir_region_info(region, &info);
	WANT(r, weir_window_create(r->g, region, 8, PART, &o, CASE_MS, &win), -EINVAL);
	WANT(r, weir_window_create(r->g, region, 0, info.bytes + 1, &o, CASE_MS, &win), -EINVAL);
	WANT(r, weir_window_create(r->g, NULL, 0, 8, &o, CASE_MS, &win), -EINVAL);
	for (unsigned whole = 0; whole < 2; whole++) {
		uint64_t offset = whole ? 0 : PART, bytes = whole ? info.bytes : 2 * PART;
		void *base;

		OK(r, weir_window_create(r->g, region, offset, bytes, &o, CASE_MS, &win));
		WANT(r, weir_region_free(region), -EBUSY);
		OK(r, weir_window_fence(win, 0, CASE_MS));
		OK(r, weir_window_put(win, to, bytes - 8, &v, 8, 0));
		WANT(r, weir_window_put(win, to, bytes - 7, &v, 8, 0), -ERANGE);
		WANT(r, weir_window_put(win, to, UINT64_MAX, &v, 8, 0), -ERANGE);
		WANT(r, weir_window_get(win, to, bytes, &seen, 1, 0), -ERANGE);
		OK(r, weir_window_get(win, to, bytes, &seen, 0, 0));
		OK(r, weir_window_fence(win, 0, CASE_MS));
		CHECK(r, word((uint8_t *)info.base + offset, (unsigned)(bytes / 8 - 1)) ==
			     1000 + (r->rank + r->size - 1) % r->size);
		OK(r, weir_window_query(win, r->rank, &base, NULL, NULL));
		CHECK(r, base == (uint8_t *)info.base + offset);
		OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
		OK(r, weir_window_free(win, CASE_MS));
	}
	OK(r, weir_region_free(region));
}

/* Parts of different sizes, some empty. */
static void
window_sizes(struct ranks *r)
{
	struct weir_window_options o = options(r);
	uint64_t mine = r->rank % 3 == 1 ? 0 : 64 * (r->rank + 1), bytes;
	struct weir_window *win;
	void *base, *first;

	OK(r, weir_window_allocate(r->g, mine, &o, CASE_MS, &base, &win));
	CHECK(r, !base == !mine);
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (uint32_t i = 0; i < r->size; i++) {
		uint64_t there = i % 3 == 1 ? 0 : 64 * (i + 1);
		uint8_t b = 1;

		WANT(r, weir_window_put(win, i, there, &b, 1, 0), -ERANGE);
		WANT(r, weir_window_put(win, i, there, &b, 0, 0), 0);
		if (there)
			OK(r, weir_window_put(win, i, there - 1, &b, 1, 0));
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	/* a part of which nothing can be accessed has a lock */
	OK(r, weir_window_lock(win, 1 % r->size, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
	OK(r, weir_window_unlock(win, 1 % r->size, CASE_MS));
	OK(r, weir_window_query(win, r->rank, &first, &bytes, NULL));
	CHECK(r, first == base && bytes == mine);
	together(r);
	CHECK(r, !mine || ((uint8_t *)base)[mine - 1] == 1);
	OK(r, weir_window_free(win, CASE_MS));
	OK(r, weir_window_allocate(r->g, 0, &o, CASE_MS, &base, &win));
	WANT(r, weir_window_query(win, WEIR_RANK_ANY, &first, NULL, NULL), -ENOENT);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Sums, reads and swaps of all ranks at all ranks. */
static void
sums(struct ranks *r, uint32_t flags)
{
	struct weir_window *win;
	uint8_t *base = make(r, PART, flags, &win);
	int64_t one = 1, before, no = 0, many[64];
	uint64_t won = 0;

	for (unsigned i = 0; i < 64; i++)
		many[i] = i;
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (uint32_t round = 0; round < ROUNDS; round++)
		for (uint32_t i = 0; i < r->size; i++) {
			OK(r, weir_window_accumulate(win, i, 0, &one, 1, WEIR_T_INT64, WEIR_ACC_SUM,
						     0));
			OK(r, weir_window_fetch_op(win, i, 1, &one, &before, WEIR_T_INT64,
						   WEIR_ACC_SUM, 0));
			OK(r, weir_window_flush(win, i, CASE_MS));
			CHECK(r, before >= round && before < r->size * ROUNDS);
			OK(r, weir_window_accumulate(win, i, 8, many, 64, WEIR_T_INT64,
						     WEIR_ACC_SUM, 0));
		}
	/* one rank wins at each */
	for (uint32_t i = 0; i < r->size; i++) {
		int64_t me = r->rank + 1;

		OK(r, weir_window_compare_swap(win, i, 2, &no, &me, &before, WEIR_T_INT64, 0));
		OK(r, weir_window_flush_local(win, i, CASE_MS));
		won += !before;
	}
	OK(r, weir_window_unlock_all(win, CASE_MS));
	OK(r, weir_group_allreduce(r->g, &won, &won, 1, WEIR_T_UINT64, WEIR_ACC_SUM, CASE_MS));
	CHECK(r, won == r->size);
	CHECK(r, word(base, 0) == r->size * ROUNDS && word(base, 1) == r->size * ROUNDS);
	for (unsigned i = 0; i < 64; i++)
		CHECK(r, word(base, 8 + i) == (uint64_t)r->size * ROUNDS * i);
	OK(r, weir_window_free(win, CASE_MS));
}

static void
window_sums(struct ranks *r)
{
	sums(r, 0);
}

static void
window_by_engine(struct ranks *r)
{
	sums(r, WEIR_WINDOW_BY_ENGINE);
}

/* A column of each rank goes into a column of the next one's matrix of 16 rows of 64 bytes. */
static void
window_layout(struct ranks *r)
{
	const struct weir_layout column = {.block = 8, .dims = 1, .dim = {{16, 64}}};
	struct weir_transfer t = {.offset = 3, .length = 128, .there = &column};
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
	struct weir_window *win;
	uint8_t *base = make(r, 16 * 64, 0, &win);
	uint64_t out[16], in[16];
	struct weir_op op;

	for (unsigned i = 0; i < 16; i++)
		out[i] = r->rank * 100 + i;
	t.buf = out;
	t.op = &op;
	OK(r, weir_window_fence(win, 0, CASE_MS));
	OK(r, weir_window_put_with(win, to, &t));
	OK(r, weir_op_wait(&op, CASE_MS));
	t.offset = 8; /* the last piece is behind the part */
	WANT(r, weir_window_put_with(win, to, &t), -ERANGE);
	OK(r, weir_window_fence(win, 0, CASE_MS));
	for (unsigned i = 0; i < 16; i++)
		CHECK(r, word(base, 8 * i + 3) == from * 100 + i && !word(base, 8 * i + 2));
	t.offset = 3;
	t.buf = in;
	OK(r, weir_window_get_with(win, to, &t));
	OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
	CHECK(r, !memcmp(in, out, sizeof(in)));
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- locks ---- */

static void
window_exclusive(struct ranks *r)
{
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);

	for (uint32_t round = 0; round < ROUNDS; round++)
		for (uint32_t i = 0; i < r->size; i++) {
			uint64_t v = 0;

			OK(r, weir_window_lock(win, i, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
			OK(r, weir_window_get(win, i, 0, &v, 8, 0));
			OK(r, weir_window_flush(win, i, CASE_MS));
			v++;
			OK(r, weir_window_put(win, i, 0, &v, 8, 0));
			OK(r, weir_window_unlock(win, i, CASE_MS));
		}
	together(r);
	CHECK(r, word(base, 0) == (uint64_t)r->size * ROUNDS);
	OK(r, weir_window_free(win, CASE_MS));
}

/* Several members at a time, and readers together. */
static void
window_shared_locks(struct ranks *r)
{
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t v;

	memcpy(base, &(uint64_t){r->rank + 5}, 8);
	together(r);
	for (uint32_t i = 0; i < r->size; i++)
		OK(r, weir_window_lock(win, i, WEIR_LOCK_SHARED, 0, CASE_MS));
	together(r); /* all hold all */
	for (uint32_t i = 0; i < r->size; i++) {
		OK(r, weir_window_get(win, i, 0, &v, 8, 0));
		OK(r, weir_window_flush_all(win, CASE_MS));
		CHECK(r, v == i + 5);
	}
	for (uint32_t i = 0; i < r->size; i++)
		OK(r, weir_window_unlock(win, i, CASE_MS));
	OK(r, weir_window_lock(win, 0, WEIR_LOCK_SHARED, WEIR_NO_CHECK, 0));
	OK(r, weir_window_unlock(win, 0, CASE_MS));
	OK(r, weir_window_lock_all(win, WEIR_NO_CHECK, 0));
	OK(r, weir_window_get(win, 0, 0, &v, 8, 0));
	OK(r, weir_window_unlock_all(win, CASE_MS));
	CHECK(r, v == 5);
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- post, start, complete, wait ---- */

static void
window_pscw(struct ranks *r)
{
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint32_t all[RANKS_MAX + 1];
	int rc;

	for (uint64_t round = 1; round <= ROUNDS; round++) {
		uint64_t v = round * 100 + r->rank;

		OK(r, weir_window_post(win, &from, 1, 0));
		OK(r, weir_window_start(win, &to, 1, 0, CASE_MS));
		OK(r, weir_window_put(win, to, 1, &v, 8, 0));
		OK(r, weir_window_complete(win, CASE_MS));
		OK(r, weir_window_wait(win, CASE_MS));
		CHECK(r, word(base, 1) == round * 100 + from);
	}
	/* with all, and by tests */
	for (uint32_t i = 0; i < r->size; i++)
		all[i] = i;
	all[r->size] = WEIR_RANK_NULL;
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		uint64_t v = round;

		OK(r, weir_window_post(win, all, r->size + 1, 0));
		do {
			rc = weir_window_start(win, all, r->size + 1, 0, 0);
			let_others_run();
		} while (rc == -EAGAIN);
		OK(r, rc);
		for (uint32_t i = 0; i < r->size; i++)
			OK(r, weir_window_put(win, i, 8 + r->rank, &v, 8, 0));
		OK(r, weir_window_complete(win, CASE_MS));
		do {
			rc = weir_window_wait(win, 0);
			let_others_run();
		} while (rc == -EAGAIN);
		OK(r, rc);
		for (uint32_t i = 0; i < r->size; i++)
			CHECK(r, word(base, 8 + i) == round);
	}
	/* already matched: a barrier is in front of it */
	OK(r, weir_window_post(win, &from, 1, WEIR_NO_CHECK));
	together(r);
	OK(r, weir_window_start(win, &to, 1, WEIR_NO_CHECK, CASE_MS));
	OK(r, weir_window_complete(win, CASE_MS));
	OK(r, weir_window_wait(win, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

static void
window_pscw_misused(struct ranks *r)
{
	uint32_t me = r->rank, no = r->size, other = (r->rank + 1) % r->size;
	struct weir_window *win;
	uint64_t v = 1;

	make(r, PART, 0, &win);
	WANT(r, weir_window_complete(win, 0), -ENOLCK);
	WANT(r, weir_window_wait(win, 0), -ENOLCK);
	WANT(r, weir_window_post(win, &no, 1, 0), -EINVAL);
	WANT(r, weir_window_start(win, &no, 1, 0, 0), -EINVAL);
	WANT(r, weir_window_start(win, &me, 1, WEIR_NO_PUT, 0), -EINVAL);
	WANT(r, weir_window_start(win, &me, 1, 0, 0), -EAGAIN); /* nobody has posted */
	OK(r, weir_window_post(win, &me, 1, 0));
	WANT(r, weir_window_post(win, &me, 1, 0), -EALREADY);
	WANT(r, weir_window_wait(win, 0), -EAGAIN);
	WANT(r, weir_window_free(win, 0), -EBUSY);
	OK(r, weir_window_start(win, &me, 1, 0, CASE_MS));
	WANT(r, weir_window_start(win, &me, 1, 0, 0), -EALREADY);
	WANT(r, weir_window_lock(win, me, WEIR_LOCK_SHARED, 0, 0), -EALREADY);
	WANT(r, weir_window_lock_all(win, 0, 0), -EALREADY);
	WANT(r, weir_window_fence(win, 0, 0), -EALREADY);
	if (other != me)
		WANT(r, weir_window_put(win, other, 0, &v, 8, 0), -ENOLCK);
	OK(r, weir_window_put(win, me, 0, &v, 8, 0));
	OK(r, weir_window_flush(win, me, CASE_MS));
	OK(r, weir_window_complete(win, CASE_MS));
	WANT(r, weir_window_put(win, me, 0, &v, 8, 0), -ENOLCK);
	OK(r, weir_window_wait(win, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- notified access ---- */

#define TAGS 8u

static void
watch_for(struct ranks *r, struct weir_window *win, uint32_t source, uint32_t tag, uint32_t count,
	  uint32_t last_source, uint32_t last_tag, uint64_t bytes)
{
	struct weir_watch watch;

	weir_watch_init(&watch, win, source, tag, count);
	OK(r, weir_watch_wait(&watch, CASE_MS));
	CHECK(r, watch.found == count && watch.last_source == last_source &&
		     watch.last_tag == last_tag && watch.bytes == bytes);
}

/* Each puts with notices to the next, which takes them by tag, by source, and as they came. */
static void
watches(struct ranks *r, uint32_t flags)
{
	uint32_t to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
	struct weir_window *win;
	uint8_t *base = make(r, PART, flags, &win);
	struct weir_watch one, other, *both[] = {&one, &other};
	uint64_t v;
	int rc;

	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (uint32_t tag = 0; tag < TAGS; tag++) {
		const struct weir_transfer t = {
		    .offset = tag, .buf = &v, .length = 8, .notify = WEIR_WITH_NOTICE, .tag = tag};

		v = 1000 + tag;
		OK(r, weir_window_put_with(win, to, &t));
	}
	/* the last one first, then any, then one of a count */
	watch_for(r, win, from, TAGS - 1, 1, from, TAGS - 1, 8);
	for (uint32_t tag = 0; tag < TAGS; tag++)
		CHECK(r, word(base, tag) == 1000 + tag); /* earlier ones are there, too */
	watch_for(r, win, from, WEIR_TAG_ANY, 1, from, 0, 8);
	watch_for(r, win, WEIR_RANK_ANY, 2, 1, from, 2, 8);
	watch_for(r, win, WEIR_RANK_ANY, WEIR_TAG_ANY, 2, from, 3, 16);
	watch_for(r, win, from, WEIR_TAG_ANY, TAGS - 5, from, TAGS - 2, 8 * (TAGS - 5));
	weir_watch_init(&one, win, WEIR_RANK_ANY, WEIR_TAG_ANY, 1);
	WANT(r, weir_watch_test(&one), 0);
	WANT(r, weir_watch_wait(&one, 0), -EAGAIN);
	together(r);
	/* without data; a watch that is used again */
	weir_watch_init(&one, win, from, 5, 2);
	weir_watch_init(&other, win, from, 6, 1);
	for (unsigned round = 0; round < 3; round++) {
		OK(r, weir_window_notify(win, to, 5, 0));
		OK(r, weir_window_notify(win, to, 5, 0));
		rc = weir_watch_wait_any(both, 2, CASE_MS);
		CHECK(r, rc == 0 && one.found == 2 && one.bytes == 0 && !other.found);
		weir_watch_start(&one);
	}
	together(r); /* until then nobody finds the other tag, however far its source is ahead */
	OK(r, weir_window_notify(win, to, 6, 0));
	CHECK(r, weir_watch_wait_any(both, 2, CASE_MS) == 1);
	WANT(r, weir_window_notify(win, to, WEIR_TAG_ANY, 0), -EINVAL);
	OK(r, weir_window_notify(win, WEIR_RANK_NULL, 1, 0));
	OK(r, weir_window_unlock_all(win, CASE_MS));
	WANT(r, weir_window_notify(win, to, 1, 0), -ENOLCK);
	/* none is left for the thread that made the window */
	WANT(r, weir_notice_next(r->w, &(struct weir_notice){0}, 0), -EAGAIN);
	OK(r, weir_window_free(win, CASE_MS));
}

static void
window_watch(struct ranks *r)
{
	watches(r, 0);
}

static void
window_watch_by_engine(struct ranks *r)
{
	watches(r, WEIR_WINDOW_BY_ENGINE);
}

static void
window_signal(struct ranks *r)
{
	uint32_t to = (r->rank + 1) % r->size;
	struct weir_window *win;
	uint8_t *base = make(r, PART, 0, &win);
	uint64_t seen = 0;

	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		const struct weir_transfer t = {.offset = 3,
						.buf = &round,
						.length = 8,
						.notify = WEIR_WITH_SIGNAL_ADD,
						.signal = 5,
						.operand = 2};

		OK(r, weir_window_put_with(win, to, &t));
		OK(r, weir_window_signal_wait(win, 5, WEIR_GE, 2 * round, CASE_MS, &seen));
		CHECK(r, seen >= 2 * round && word(base, 3) >= round);
	}
	WANT(r, weir_window_signal_wait(win, PART / 8, WEIR_GE, 0, 0, NULL), -ERANGE);
	WANT(r, weir_window_signal_wait(win, 5, WEIR_EQ, 0, 0, NULL), -EAGAIN);
	OK(r, weir_window_unlock_all(win, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- misuse ---- */

static void
window_epochs(struct ranks *r)
{
	struct weir_window *win, *unlocked;
	uint64_t v = 1;

	make(r, PART, 0, &win);
	make(r, PART, WEIR_WINDOW_NO_LOCKS, &unlocked);
	WANT(r, weir_window_put(win, 0, 0, &v, 8, 0), -ENOLCK);
	WANT(r, weir_window_put(win, WEIR_RANK_NULL, 0, &v, 8, 0), -ENOLCK);
	WANT(r, weir_window_flush(win, 0, 0), -ENOLCK);
	WANT(r, weir_window_flush_all(win, 0), -ENOLCK);
	WANT(r, weir_window_unlock(win, 0, 0), -ENOLCK);
	WANT(r, weir_window_unlock_all(win, 0), -ENOLCK);
	WANT(r, weir_window_lock(win, r->size, WEIR_LOCK_SHARED, 0, 0), -EINVAL);
	WANT(r, weir_window_lock(win, 0, 3, 0, 0), -EINVAL);
	WANT(r, weir_window_lock(win, 0, WEIR_LOCK_SHARED, WEIR_NO_PUT, 0), -EINVAL);
	WANT(r, weir_window_fence(win, WEIR_NO_CHECK, 0), -EINVAL);
	WANT(r, weir_window_lock(unlocked, 0, WEIR_LOCK_SHARED, 0, 0), -EINVAL);
	WANT(r, weir_window_lock_all(unlocked, 0, 0), -EINVAL);
	OK(r, weir_window_lock(win, 0, WEIR_LOCK_SHARED, 0, CASE_MS));
	WANT(r, weir_window_lock(win, 0, WEIR_LOCK_SHARED, 0, 0), -EALREADY);
	WANT(r, weir_window_lock_all(win, 0, 0), -EALREADY);
	WANT(r, weir_window_fence(win, 0, 0), -EALREADY);
	WANT(r, weir_window_free(win, 0), -EBUSY);
	if (r->size > 1) {
		WANT(r, weir_window_put(win, 1, 0, &v, 8, 0), -ENOLCK);
		WANT(r, weir_window_flush(win, 1, 0), -ENOLCK);
		WANT(r, weir_window_unlock(win, 1, 0), -ENOLCK);
	}
	OK(r, weir_window_put(win, WEIR_RANK_NULL, 0, &v, 8, 0));
	OK(r, weir_window_unlock(win, 0, CASE_MS));
	OK(r, weir_window_lock_all(win, 0, CASE_MS));
	WANT(r, weir_window_lock(win, 0, WEIR_LOCK_SHARED, 0, 0), -EALREADY);
	WANT(r, weir_window_unlock(win, 0, 0), -ENOLCK);
	WANT(r, weir_window_free(win, 0), -EBUSY);
	WANT(r, weir_window_put(win, r->size, 0, &v, 8, 0), -EINVAL);
	WANT(r, weir_window_put(win, 0, 0, &v, 8, 0x8000), -EINVAL);
	WANT(r, weir_window_accumulate(win, 0, 0, &v, 1, WEIR_T_DOUBLE, WEIR_ACC_BAND, 0), -EINVAL);
	OK(r, weir_window_unlock_all(win, CASE_MS));
	/* a fence's epoch opens with its first operation */
	OK(r, weir_window_fence(win, 0, CASE_MS));
	OK(r, weir_window_lock(win, 0, WEIR_LOCK_SHARED, 0, CASE_MS));
	OK(r, weir_window_unlock(win, 0, CASE_MS));
	OK(r, weir_window_fence(win, 0, CASE_MS));
	OK(r, weir_window_put(win, 0, r->rank, &v, 8, 0));
	WANT(r, weir_window_lock(win, 0, WEIR_LOCK_SHARED, 0, 0), -EALREADY);
	WANT(r, weir_window_lock_all(win, 0, 0), -EALREADY);
	OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
	WANT(r, weir_window_error(win, NULL), -ENOENT);
	OK(r, weir_window_free(unlocked, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
	WANT(r, weir_window_free(NULL, 0), -EINVAL);
}

/* Other members only read. */
static void
window_rights(struct ranks *r)
{
	struct weir_window_options o = options(r);
	struct weir_window *win;
	uint64_t v = 1;
	void *base;

	o.rights = WEIR_MAY_READ;
	OK(r, weir_window_allocate(r->g, PART, &o, CASE_MS, &base, &win));
	OK(r, weir_window_fence(win, 0, CASE_MS));
	for (unsigned i = 0; i < 2; i++) { /* the first operation opens the member */
		WANT(r, weir_window_put(win, 0, 0, &v, 8, 0), -EACCES);
		WANT(r, weir_window_accumulate(win, 0, 0, &v, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0),
		     -EACCES);
		OK(r, weir_window_get(win, 0, 0, &v, 8, 0));
	}
	WANT(r, weir_window_notify(win, 0, 1, 0), -EACCES);
	OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
	CHECK(r, v == 0);
	OK(r, weir_window_free(win, CASE_MS));
	o.rights = WEIR_MAY_LOCK;
	WANT(r, weir_window_allocate(r->g, PART, &o, CASE_MS, &base, &win), -EINVAL);
}

/* An error at one member is an error at all, and leaves nothing behind. */
static void
window_disagree(struct ranks *r)
{
	struct weir_window_options o = options(r);
	struct weir_window *win;
	uint8_t *base;
	void *at;
	int rc;

	if (r->size == 1)
		return;
	o.disp_unit = r->rank ? 8 : 4;
	WANT(r, weir_window_allocate(r->g, PART, &o, CASE_MS, &at, &win), -EINVAL);
	CHECK(r, !win && !at);
	o.disp_unit = 8;
	o.flags |= WEIR_WINDOW_SAME_ADDRESS;
	WANT(r, weir_window_allocate(r->g, PART + r->rank, &o, CASE_MS, &at, &win), -EINVAL);
	o.flags &= ~WEIR_WINDOW_SAME_ADDRESS;
	rc = weir_window_allocate(r->g, r->rank ? PART : WEIR_WINDOW_PART_MAX, &o, CASE_MS, &at,
				  &win);
	CHECK(r, rc == -ENOSPC || rc == -EDQUOT || rc == -ENOMEM);
	CHECK(r, !win && !at);
	base = make(r, PART, 0, &win);
	OK(r, weir_window_fence(win, 0, CASE_MS));
	OK(r, weir_window_put(win, (r->rank + 1) % r->size, 0, &(uint64_t){7}, 8, 0));
	OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
	CHECK(r, word(base, 0) == 7);
	OK(r, weir_window_free(win, CASE_MS));
}

/* ---- kinds ---- */

static void
window_same_address(struct ranks *r)
{
	struct weir_window_options o = options(r);
	uint64_t mine, all[RANKS_MAX];
	struct weir_window *win;
	void *base;

	o.flags |= WEIR_WINDOW_SAME_ADDRESS;
	mine = (uint64_t)getpid();
	OK(r, weir_group_allgather(r->g, &mine, sizeof(mine), all, CASE_MS));
	if (r->size > 1 && all[0] == all[1]) { /* all are in one process */
		WANT(r, weir_window_allocate(r->g, PART, &o, CASE_MS, &base, &win), -EADDRNOTAVAIL);
		return;
	}
	OK(r, weir_window_allocate(r->g, 3 * PART, &o, CASE_MS, &base, &win));
	mine = (uintptr_t)base;
	OK(r, weir_group_allgather(r->g, &mine, sizeof(mine), all, CASE_MS));
	for (uint32_t i = 0; i < r->size; i++)
		CHECK(r, all[i] == mine && mine);
	OK(r, weir_window_fence(win, 0, CASE_MS));
	OK(r, weir_window_put(win, (r->rank + 1) % r->size, 16, &mine, 8, 0));
	OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
	CHECK(r, word(base, 2) == mine);
	OK(r, weir_window_free(win, CASE_MS));
}

static bool
on_one_host(const struct ranks *r)
{
	struct weir_member m;

	for (uint32_t i = 0; i < r->size; i++)
		if (weir_group_member(r->g, i, &m) || !m.local)
			return false;
	return true;
}

static void
share(struct ranks *r, uint32_t flags)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;
	uint64_t mine = r->rank % 2 ? 0 : 64 * (r->rank + 1), bytes, one = 1;
	uint8_t *first, *last = NULL;
	struct weir_window *win;
	void *base, *at;

	o.flags = flags;
	o.disp_unit = 8;
	if (!on_one_host(r)) {
		WANT(r, weir_window_allocate_shared(r->g, mine, &o, CASE_MS, &base, &win), -EXDEV);
		return;
	}
	OK(r, weir_window_allocate_shared(r->g, mine, &o, CASE_MS, &base, &win));
	OK(r, weir_window_query(win, WEIR_RANK_ANY, &at, &bytes, NULL));
	first = at;
	CHECK(r, bytes == 64);
	for (uint32_t i = 0; i < r->size; i++) {
		OK(r, weir_window_query(win, i, &at, &bytes, NULL));
		CHECK(r, bytes == (i % 2 ? 0 : 64 * (i + 1)));
		if (!bytes)
			continue;
		CHECK(r, !last || (flags ? (uintptr_t)at % 4096 == (uintptr_t)first % 4096
					 : (uint8_t *)at == last));
		last = (uint8_t *)at + bytes;
		if (i == r->rank)
			CHECK(r, at == base);
	}
	/* by a store of each, then by operations */
	OK(r, weir_window_fence(win, 0, CASE_MS));
	OK(r, weir_window_query(win, 0, &at, NULL, NULL));
	if (r->rank == r->size - 1)
		*(_Atomic uint64_t *)at = 500;
	weir_window_sync(win);
	OK(r, weir_window_fence(win, 0, CASE_MS));
	OK(r, weir_window_accumulate(win, 0, 0, &one, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0));
	WANT(r, weir_window_put(win, 0, 8, &one, 8, 0), -ERANGE); /* the next one's */
	OK(r, weir_window_fence(win, WEIR_NO_SUCCEED, CASE_MS));
	CHECK(r, *(_Atomic uint64_t *)at == 500 + r->size);
	/* each part has a lock of its own */
	OK(r, weir_window_lock(win, r->rank, WEIR_LOCK_EXCLUSIVE, 0, CASE_MS));
	together(r);
	OK(r, weir_window_unlock(win, r->rank, CASE_MS));
	OK(r, weir_window_free(win, CASE_MS));
}

static void
window_shared(struct ranks *r)
{
	share(r, 0);
}

static void
window_shared_pages(struct ranks *r)
{
	share(r, WEIR_WINDOW_PAGES);
}

/* Several at a time, of one group and of one made from it. */
static void
window_many(struct ranks *r)
{
	struct weir_window_info info;
	struct weir_window *win[6];
	struct weir_group *sub;
	uint8_t *base[6];
	uint64_t v;

	OK(r, weir_group_split(r->g, 0, -(int)r->rank, CASE_MS, &sub));
	for (unsigned i = 0; i < 6; i++) {
		struct ranks other = *r;

		other.g = i % 2 ? sub : r->g;
		base[i] = make(&other, 64 * (i + 1), 0, &win[i]);
		r->failures = other.failures;
		CHECK(r, weir_window_group(win[i]) == other.g);
		OK(r, weir_window_set_name(win[i], i ? "other" : "one"));
		weir_window_set_user(win[i], base[i]);
	}
	WANT(r, weir_window_set_name(win[0], "12345678901234567890123456789012"), -EINVAL);
	weir_window_info(win[0], &info);
	CHECK(r, info.kind == WEIR_WINDOW_ALLOCATED && info.bytes == 64 && info.base == base[0] &&
		     info.disp_unit == 8 && !strcmp(info.name, "one"));
	CHECK(r, weir_window_user(win[3]) == base[3]);
	for (unsigned i = 0; i < 6; i++) {
		uint32_t rank = i % 2 ? r->size - 1 - r->rank : r->rank;

		v = 10 * i + rank;
		OK(r, weir_window_fence(win[i], 0, CASE_MS));
		OK(r, weir_window_put(win[i], (rank + 1) % r->size, i, &v, 8, 0));
	}
	OK(r, weir_window_fence(win[2], WEIR_NO_SUCCEED, CASE_MS));
	OK(r, weir_window_free(win[2], CASE_MS));
	base[2] = make(r, 64, 0, &win[2]); /* has the number of the one before */
	CHECK(r, !word(base[2], 2));
	for (unsigned i = 0; i < 6; i++) {
		uint32_t rank = i % 2 ? r->size - 1 - r->rank : r->rank;

		OK(r, weir_window_fence(win[i], WEIR_NO_SUCCEED, CASE_MS));
		CHECK(r, i == 2 || word(base[i], i) == 10 * i + (rank + r->size - 1) % r->size);
		OK(r, weir_window_free(win[i], CASE_MS));
	}
	weir_group_leave(sub);
}

const struct rma_case window_cases[] = {
    {"window_fence", window_fence},
    {"window_region", window_region},
    {"window_sizes", window_sizes},
    {"window_sums", window_sums},
    {"window_by_engine", window_by_engine},
    {"window_layout", window_layout},
    {"window_exclusive", window_exclusive},
    {"window_shared_locks", window_shared_locks},
    {"window_pscw", window_pscw},
    {"window_pscw_misused", window_pscw_misused},
    {"window_watch", window_watch},
    {"window_watch_by_engine", window_watch_by_engine},
    {"window_signal", window_signal},
    {"window_epochs", window_epochs},
    {"window_rights", window_rights},
    {"window_disagree", window_disagree},
    {"window_same_address", window_same_address},
    {"window_shared", window_shared},
    {"window_shared_pages", window_shared_pages},
    {"window_many", window_many},
    {NULL, NULL},
};
