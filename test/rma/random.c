/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random epochs without races. All ranks draw the same plan: in each round a block of words belongs
 * to one rank, or is read by all. So each rank knows what every get, fetch and load must see: what
 * happened before it by fences, post and start, locks, flushes and notices. In some rounds nothing
 * but a lock, or a notice behind a flush, orders the operations of different ranks.
 */
#include "part.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WORDS 32u /* of a part that plans use */
#define BLOCK 4u  /* words of an owner */
#define BLOCKS (WORDS / BLOCK)
#define GUARD 8u			/* words before and behind them, which nothing changes */
#define LEDGER (2 * GUARD + WORDS)	/* words under the lock */
#define ENTRIES 1100u			/* of them: more bytes than go by cells */
#define MAIL (LEDGER + ENTRIES + GUARD) /* a word per rank, for notices */
#define PART_WORDS (MAIL + RANKS_MAX + GUARD)
#define ROUNDS 12u
#define OPS_MOST 24u /* of a rank in a round */
#define HOPS 6u	     /* of a block from rank to rank */
#define WRITES 5u    /* kinds of writes to a ledger */
#define ALL UINT32_MAX

struct run {
	struct ranks *r;
	struct weir_window *win;
	uint8_t *base;
	uint64_t state;			  /* of the generator, equal at all */
	uint64_t model[RANKS_MAX][WORDS]; /* what the parts hold */
	uint64_t writes[RANKS_MAX];	  /* by all to each part's ledger */
	uint64_t least[RANKS_MAX];	  /* of them, those that this rank has seen */
	uint64_t ledger[ENTRIES];
	uint32_t owner[RANKS_MAX][BLOCKS]; /* in this round; ALL: read by all */
	bool touched[RANKS_MAX][WORDS];	   /* by this rank since its last flush there */
	unsigned waits[RANKS_MAX];	   /* entries of `got` and `want` not compared yet */
	uint64_t got[RANKS_MAX][OPS_MOST][BLOCK], want[RANKS_MAX][OPS_MOST][BLOCK];
	uint32_t length[RANKS_MAX][OPS_MOST]; /* words of each */
};

/* xorshift64*: every rank draws the same. */
static uint32_t
draw(struct run *u, uint32_t below)
{
	u->state ^= u->state >> 12;
	u->state ^= u->state << 25;
	u->state ^= u->state >> 27;
	return (uint32_t)((u->state * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % below;
}

/* Gets and fetches from a member have brought the values that they must have. */
static void
compare(struct run *u, uint32_t to)
{
	for (unsigned i = 0; i < u->waits[to]; i++)
		CHECK(u->r, !memcmp(u->got[to][i], u->want[to][i], u->length[to][i] * 8));
	u->waits[to] = 0;
	memset(u->touched[to], 0, sizeof(u->touched[to]));
}

static void
flush(struct run *u, uint32_t to)
{
	OK(u->r, weir_window_flush(u->win, to, CASE_MS));
	compare(u, to);
}

/* Where the next answer from a member goes, n words; all ranks call it, and the caller's counts. */
static uint64_t *
answer(struct run *u, uint32_t to, uint32_t n, const uint64_t *want)
{
	unsigned i = u->waits[to]++;

	memcpy(u->want[to][i], want, n * 8);
	u->length[to][i] = n;
	return u->got[to][i];
}

/* One operation of rank `from` on a block of member `to`, which that rank executes. */
static void
operation(struct run *u, uint32_t from, uint32_t to, uint32_t block, uint32_t kind)
{
	uint32_t first = block * BLOCK + draw(u, BLOCK), n = 1 + draw(u, BLOCK - first % BLOCK);
	uint64_t value = (uint64_t)draw(u, 1u << 30) << 20 | draw(u, 1u << 20), values[BLOCK];
	bool mine = from == u->r->rank, again = draw(u, 4) == 0, touched = false;
	uint64_t *at = &u->model[to][first], disp = GUARD + first;

	if (kind >= 2)
		n = 1;
	for (uint32_t i = 0; mine && i < n; i++) {
		touched = touched || u->touched[to][first + i];
		u->touched[to][first + i] = true;
	}
	if (touched || (mine && again)) {
		flush(u, to);
		for (uint32_t i = 0; i < n; i++)
			u->touched[to][first + i] = true;
	}
	for (uint32_t i = 0; i < n; i++)
		values[i] = value + i;
	switch (kind) {
	case 0:
		if (mine)
			OK(u->r, weir_window_get(u->win, to, disp, answer(u, to, n, at), n * 8, 0));
		break;
	case 1:
		if (mine)
			OK(u->r, weir_window_put(u->win, to, disp, values, n * 8, 0));
		memcpy(at, values, n * 8);
		break;
	case 2:
		if (mine)
			OK(u->r, weir_window_accumulate(u->win, to, disp, values, 1, WEIR_T_UINT64,
							WEIR_ACC_SUM, 0));
		*at += value;
		break;
	case 3:
		if (mine)
			OK(u->r,
			   weir_window_fetch_op(u->win, to, disp, values, answer(u, to, 1, at),
						WEIR_T_UINT64, WEIR_ACC_BXOR, 0));
		*at ^= value;
		break;
	case 4: /* swaps if the drawn bit says so */
		values[0] = value & 1 ? *at : ~*at;
		if (mine)
			OK(u->r, weir_window_compare_swap(u->win, to, disp, values, &value,
							  answer(u, to, 1, at), WEIR_T_UINT64, 0));
		*at = value & 1 ? value : *at;
		break;
	default:
		if (mine)
			OK(u->r, weir_window_get_accumulate(u->win, to, disp, values,
							    answer(u, to, 1, at), 1, WEIR_T_UINT64,
							    WEIR_ACC_REPLACE, 0));
		*at = value;
	}
}

/* One on a drawn block, if the rank may access it in this round. */
static void
operation_of_round(struct run *u, uint32_t from)
{
	uint32_t to = draw(u, u->r->size), block = draw(u, BLOCKS), kind = draw(u, 6);

	if (u->owner[to][block] == ALL)
		operation(u, from, to, block, 0);
	else if (u->owner[to][block] == from)
		operation(u, from, to, block, kind);
}

/* A round of operations in one epoch of all. */
static void
epoch(struct run *u, enum epoch_kind kind)
{
	epoch_begin(u->r, u->win, kind);
	for (uint32_t i = 0; i < u->r->size; i++)
		for (uint32_t b = 0; b < BLOCKS; b++)
			u->owner[i][b] = draw(u, 3) ? draw(u, u->r->size) : ALL;
	for (uint32_t n = draw(u, OPS_MOST) + 1; n; n--)
		for (uint32_t from = 0; from < u->r->size; from++)
			operation_of_round(u, from);
	epoch_end(u->r, u->win, kind);
	for (uint32_t i = 0; i < u->r->size; i++)
		compare(u, i);
}

/* Word i of a ledger that was written that often. */
static uint64_t
entry(uint64_t writes, uint64_t i)
{
	return writes * (2 * i + 1);
}

static void
check_ledger(struct run *u, const uint64_t *is)
{
	bool right = true;

	for (uint64_t i = 0; i < ENTRIES; i++)
		right &= is[i] == entry(is[0], i);
	CHECK(u->r, right);
}

/* Makes what u->ledger has the contents of a ledger, its first word by an operation of that kind.
 * The exclusive lock is held; *was is complete when it is released. */
static void
write_ledger(struct run *u, uint32_t to, uint32_t kind, uint64_t *was)
{
	const uint64_t one = 1, is = u->ledger[0], next = is + 1;

	for (uint64_t i = 0; i < ENTRIES; i++)
		u->ledger[i] = entry(next, i);
	*was = is;
	switch (kind) {
	case 0:
		OK(u->r, weir_window_put(u->win, to, LEDGER, &next, 8, 0));
		break;
	case 1:
		OK(u->r, weir_window_accumulate(u->win, to, LEDGER, &one, 1, WEIR_T_UINT64,
						WEIR_ACC_SUM, 0));
		break;
	case 2:
		OK(u->r, weir_window_fetch_op(u->win, to, LEDGER, &one, was, WEIR_T_UINT64,
					      WEIR_ACC_SUM, 0));
		break;
	case 3:
		OK(u->r,
		   weir_window_compare_swap(u->win, to, LEDGER, &is, &next, was, WEIR_T_UINT64, 0));
		break;
	default:
		OK(u->r, weir_window_get_accumulate(u->win, to, LEDGER, &next, was, 1,
						    WEIR_T_UINT64, WEIR_ACC_REPLACE, 0));
	}
	OK(u->r, weir_window_put(u->win, to, LEDGER + 1, u->ledger + 1, (ENTRIES - 1) * 8, 0));
}

/* Reads a ledger under its lock, and writes it unless that is shared. */
static void
use_ledger(struct run *u, uint32_t to, uint32_t kind)
{
	bool writes = kind < WRITES;
	uint64_t was = 0, is;

	OK(u->r, weir_window_lock(u->win, to, writes ? WEIR_LOCK_EXCLUSIVE : WEIR_LOCK_SHARED, 0,
				  CASE_MS));
	OK(u->r, weir_window_get(u->win, to, LEDGER, u->ledger, sizeof(u->ledger), 0));
	OK(u->r, weir_window_flush(u->win, to, CASE_MS));
	check_ledger(u, u->ledger);
	is = u->ledger[0];
	CHECK(u->r, is >= u->least[to]);
	u->least[to] = is + writes;
	if (writes)
		write_ledger(u, to, kind, &was);
	OK(u->r, weir_window_unlock(u->win, to, CASE_MS));
	CHECK(u->r, !writes || was == is);
}

/* All read and write drawn ledgers, in any order. */
static void
ledgers(struct run *u)
{
	for (uint32_t n = 0; n < 3; n++)
		for (uint32_t from = 0; from < u->r->size; from++) {
			uint32_t to = draw(u, u->r->size), kind = draw(u, WRITES + 2);

			u->writes[to] += kind < WRITES;
			if (from == u->r->rank)
				use_ledger(u, to, kind);
		}
	together(u->r);
	CHECK(u->r, word(u->base, LEDGER) == u->writes[u->r->rank]);
	check_ledger(u, (const uint64_t *)(const void *)u->base + LEDGER);
	together(u->r);
}

/*
 * Blocks pass from rank to rank, all at once: each knows what the former ones have done to the
 * block. A flush ends what a rank does, and a notice tells the next one; the member whose part it
 * is gets the notice behind the operations.
 */
static void
relay(struct run *u, uint32_t round)
{
	uint32_t at[BLOCKS], holder[BLOCKS];

	for (uint32_t b = 0; b < BLOCKS; b++) {
		at[b] = draw(u, u->r->size);
		holder[b] = draw(u, u->r->size);
	}
	OK(u->r, weir_window_lock_all(u->win, 0, CASE_MS));
	for (uint32_t hop = 0; hop < HOPS; hop++)
		for (uint32_t b = 0; b < BLOCKS; b++) {
			uint32_t from = holder[b], next = draw(u, u->r->size);
			uint32_t tag = round << 16 | hop << 8 | b;
			struct weir_watch watch;

			for (uint32_t n = draw(u, 4); n; n--)
				operation(u, from, at[b], b, draw(u, 6));
			if (from == u->r->rank && next != at[b])
				flush(u, at[b]);
			if (from == u->r->rank && next != from)
				OK(u->r, weir_window_notify(u->win, next, tag, 0));
			if (from == u->r->rank && next == at[b])
				flush(u, at[b]);
			if (next == u->r->rank && next != from) {
				weir_watch_init(&watch, u->win, from, tag, 1);
				OK(u->r, weir_watch_wait(&watch, CASE_MS));
			}
			holder[b] = next;
		}
	OK(u->r, weir_window_unlock_all(u->win, CASE_MS));
	together(u->r);
}

/*
 * A ring: each stores in its own part and puts to the next one with a notice, which sees the put by
 * a load, and the store by a get.
 */
static void
letters(struct run *u, uint32_t round)
{
	struct ranks *r = u->r;
	uint32_t next = next_rank(r), previous = previous_rank(r);
	uint64_t letter = (uint64_t)round << 32 | r->rank, seen = 0;
	struct weir_transfer put = {.offset = MAIL + r->rank,
				    .buf = &letter,
				    .length = 8,
				    .notify = WEIR_WITH_NOTICE,
				    .tag = round};
	struct weir_watch watch;

	OK(r, weir_window_lock_all(u->win, 0, CASE_MS));
	atomic_store((_Atomic uint64_t *)(void *)u->base + MAIL + r->rank, ~letter);
	weir_window_sync(u->win);
	OK(r, weir_window_put_with(u->win, next, &put));
	weir_watch_init(&watch, u->win, previous, round, 1);
	OK(r, weir_watch_wait(&watch, CASE_MS));
	letter = (uint64_t)round << 32 | previous;
	if (r->size > 1)
		CHECK(r, word(u->base, MAIL + previous) == letter);
	OK(r, weir_window_get(u->win, previous, MAIL + previous, &seen, 8, 0));
	OK(r, weir_window_flush(u->win, previous, CASE_MS));
	if (r->size > 1)
		CHECK(r, seen == ~letter);
	OK(r, weir_window_unlock_all(u->win, CASE_MS));
	together(r);
}

/* The own part holds what the model says, and nothing beside it has changed. */
static void
check_part(struct run *u)
{
	const uint8_t *behind = u->base + (GUARD + WORDS) * 8;

	for (uint32_t i = 0; i < WORDS; i++)
		CHECK(u->r, word(u->base, GUARD + i) == u->model[u->r->rank][i]);
	CHECK(u->r, is_filled(u->base, UNTOUCHED, GUARD * 8));
	CHECK(u->r, is_filled(behind, UNTOUCHED, GUARD * 8));
	CHECK(u->r, is_filled(u->base + (LEDGER + ENTRIES) * 8, UNTOUCHED, GUARD * 8));
	CHECK(u->r, is_filled(u->base + (MAIL + RANKS_MAX) * 8, UNTOUCHED, GUARD * 8));
}

/* The seed of this run, equal at all ranks: r->seed, or the time at one of them. */
static uint64_t
common_seed(struct ranks *r)
{
	uint64_t seed = r->seed ? r->seed : (uint64_t)time(NULL), all = 0;

	OK(r, weir_group_allreduce(r->g, &seed, &all, 1, WEIR_T_UINT64, WEIR_ACC_MAX, CASE_MS));
	return all;
}

static void
epochs(struct ranks *r, uint32_t flags)
{
	uint64_t seed = common_seed(r);
	struct run *u = calloc(1, sizeof(*u));
	unsigned before = r->failures;

	CHECK(r, u);
	if (!u)
		return;
	u->r = r;
	u->state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	u->base = make(r, PART_WORDS * 8, flags, &u->win);
	memset(u->base, UNTOUCHED, PART_WORDS * 8);
	memset(u->base + GUARD * 8, 0, WORDS * 8);
	memset(u->base + LEDGER * 8, 0, ENTRIES * 8);
	memset(u->base + MAIL * 8, 0, RANKS_MAX * 8);
	weir_window_sync(u->win);
	together(r);
	for (uint32_t round = 1; round <= ROUNDS && r->failures == before; round++) {
		uint32_t kind = draw(u, EPOCH_KINDS + 3);

		if (kind < EPOCH_KINDS)
			epoch(u, (enum epoch_kind)kind);
		else if (kind == EPOCH_KINDS)
			ledgers(u);
		else if (kind == EPOCH_KINDS + 1)
			relay(u, round);
		else
			letters(u, round);
		check_part(u);
		together(r);
	}
	if (r->failures != before)
		fprintf(stderr, "%s: the seed is %llu\n", r->name, (unsigned long long)seed);
	OK(r, weir_window_free(u->win, CASE_MS));
	free(u);
}

static void
random_epochs(struct ranks *r)
{
	epochs(r, 0);
}

static void
random_by_engine(struct ranks *r)
{
	epochs(r, WEIR_WINDOW_BY_ENGINE);
}

static void
random_threads(struct ranks *r)
{
	epochs(r, WEIR_WINDOW_THREADS);
}

const struct rma_case random_cases[] = {{"random/epochs", random_epochs},
					{"random/by_engine", random_by_engine},
					{"random/threads", random_threads},
					{NULL}};
