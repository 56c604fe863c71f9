/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Races. Sums are those of all that was added; tickets are a permutation; each compare and swap
 * that took place continues the one path; pairs and complex numbers are never half of one update
 * and half of another; the largest value stays. Each aligned 8 bytes that are got come from one
 * put. The operations of one program take effect in their order, and what a program has seen of
 * another one does not go back. The expected values come from arithmetic of this file alone.
 */
#include "racing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Offsets of the words. */
#define TICKET 24u
#define PATH 32u
#define PAIR 48u
#define LARGEST 64u
#define SLOTS 128u

#define SLOT_COUNT 8u
#define SLOT_PAIR SLOT_COUNT /* the pair, among places that programs overwrite */
#define IDS (RACING_USERS * (RACING_MOST + 1u))

enum kind { SUM, TAKE, SWAP, REPLACE, READ, RAISE, PUT, GET, KINDS };

static const struct sum {
	uint32_t at;
	enum weir_type type;
} sums[] = {
    {0, WEIR_T_UINT64}, {8, WEIR_T_DOUBLE}, {16, WEIR_T_INT32}, {80, WEIR_T_DOUBLE_COMPLEX}};
#define SUMS (sizeof(sums) / sizeof(sums[0]))

struct racing {
	uint32_t offset;
	bool lost[RACING_USERS], any_lost;
	uint64_t begun[SUMS][RACING_USERS], complete[SUMS][RACING_USERS];
	uint64_t tickets[RACING_USERS]; /* begun */
	bool taken[RACING_USERS * RACING_MOST];
	uint64_t swaps[RACING_USERS]; /* begun */
	uint32_t next[IDS];	      /* of each id on the path; 0: its end */
	uint32_t steps;		      /* of the path */
	uint64_t last[RACING_USERS];  /* id that the user has seen there */
	/* what programs overwrite: 1 + the number of a user's latest, and what each has seen */
	uint64_t puts[RACING_USERS], latest[SLOT_COUNT + 1][RACING_USERS];
	uint64_t seen[SLOT_COUNT + 1][RACING_USERS][RACING_USERS];
	uint64_t raised[RACING_USERS]; /* largest value of each user */
};

struct racing *
racing_create(uint32_t offset)
{
	struct racing *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	x->offset = offset;
	return x;
}

static uint64_t
total(const uint64_t of[RACING_USERS])
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < RACING_USERS; i++)
		sum += of[i];
	return sum;
}

/* ---- values ---- */

/* A word of `user`: where it was put, and its number there. */
static uint64_t
word_of(uint32_t user, uint32_t slot, uint64_t number)
{
	return (uint64_t)(user + 1) << 56 | (uint64_t)slot << 48 | number;
}

static int32_t
index_of(uint64_t word)
{
	return (int32_t)((word >> 56) * 1000003 + (word & 0xffffff) * 7 + 1);
}

/* A value to add, in its type. */
static void
put_value(enum weir_type type, uint64_t value, void *to)
{
	double both[2] = {(double)value, (double)value};
	int32_t narrow = (int32_t)value;

	if (type == WEIR_T_UINT64)
		memcpy(to, &value, sizeof(value));
	else if (type == WEIR_T_INT32)
		memcpy(to, &narrow, sizeof(narrow));
	else
		memcpy(to, both, type == WEIR_T_DOUBLE ? sizeof(both[0]) : sizeof(both));
}

static uint64_t
value_at(struct sim *s, enum weir_type type, const void *from)
{
	uint64_t value;
	int32_t narrow;
	double both[2];

	if (type == WEIR_T_UINT64) {
		memcpy(&value, from, sizeof(value));
		return value;
	}
	if (type == WEIR_T_INT32) {
		memcpy(&narrow, from, sizeof(narrow));
		return (uint64_t)narrow;
	}
	memcpy(both, from, type == WEIR_T_DOUBLE ? sizeof(both[0]) : sizeof(both));
	if (type != WEIR_T_DOUBLE && memcmp(&both[0], &both[1], sizeof(both[0])))
		sim_fail(s, "a complex sum is %f and %f, of numbers with equal parts", both[0],
			 both[1]);
	return (uint64_t)both[0];
}

/*
 * ---- beginning ----
 * A call on memory that is mapped may wait, and others go on meanwhile: they may see what was
 * begun.
 */

static int
begin_sum(struct racing *x, struct rng *r, uint32_t user, struct weir_remote *remote,
	  struct race *o)
{
	const struct sum *w = &sums[o->at = (uint8_t)rng_below(r, SUMS)];
	uint8_t operand[16];
	struct weir_update u = {.offset = x->offset + w->at,
				.operand = operand,
				.count = 1,
				.type = w->type,
				.op = WEIR_ACC_SUM,
				.flags = WEIR_NOWAIT};
	int rc;

	o->value = 1 + rng_below(r, 100);
	o->fetches = rng_chance(r, 500);
	u.result = o->fetches ? o->result : NULL;
	put_value(w->type, o->value, operand);
	o->before[0] = x->begun[o->at][user];
	x->begun[o->at][user] += o->value;
	rc = weir_remote_update(remote, &u);
	if (rc)
		x->begun[o->at][user] -= o->value;
	return rc;
}

static int
begin_take(struct racing *x, uint32_t user, struct weir_remote *remote, struct race *o)
{
	uint64_t one = 1;
	int rc = weir_remote_fetch_op(remote, x->offset + TICKET, &one, o->result, WEIR_T_UINT64,
				      WEIR_ACC_SUM, WEIR_NOWAIT);

	o->before[0] = x->tickets[user];
	x->tickets[user] += !rc;
	return rc;
}

static int
begin_swap(struct racing *x, uint32_t user, struct weir_remote *remote, struct race *o)
{
	int rc;

	o->before[0] = x->last[user];
	o->value = user * (RACING_MOST + 1) + 1 + x->swaps[user];
	rc = weir_remote_compare_swap(remote, x->offset + PATH, &o->before[0], &o->value, o->result,
				      WEIR_T_UINT64, WEIR_NOWAIT);
	x->swaps[user] += !rc;
	return rc;
}

/* Replaces the pair, or reads it. */
static int
begin_pair(struct racing *x, struct rng *r, uint32_t user, struct weir_remote *remote,
	   struct race *o)
{
	uint64_t number = x->puts[user] + 1, word = word_of(user, SLOT_PAIR, number);
	uint64_t latest = x->latest[SLOT_PAIR][user];
	struct weir_int64_at pair = {.value = (int64_t)word, .at = index_of(word)};
	struct weir_update u = {.offset = x->offset + PAIR,
				.operand = &pair,
				.count = 1,
				.type = WEIR_T_INT64_AT,
				.op = o->kind == READ ? WEIR_ACC_NO_OP : WEIR_ACC_REPLACE,
				.flags = WEIR_NOWAIT};
	int rc;

	o->fetches = o->kind == READ || rng_chance(r, 500);
	u.result = o->fetches ? o->result : NULL;
	o->before[0] = latest;
	if (o->kind == REPLACE)
		x->puts[user] = x->latest[SLOT_PAIR][user] = number;
	rc = weir_remote_update(remote, &u);
	if (rc && o->kind == REPLACE) {
		x->puts[user] = number - 1;
		x->latest[SLOT_PAIR][user] = latest;
	}
	return rc;
}

static int
begin_raise(struct racing *x, struct rng *r, uint32_t user, struct weir_remote *remote,
	    struct race *o)
{
	struct weir_double_at pair = {.value = 1 + rng_below(r, 1000), .at = (int32_t)user};
	struct weir_update u = {.offset = x->offset + LARGEST,
				.operand = &pair,
				.result = o->result,
				.count = 1,
				.type = WEIR_T_DOUBLE_AT,
				.op = WEIR_ACC_MAXLOC,
				.flags = WEIR_NOWAIT};
	int rc;

	o->before[0] = x->raised[user];
	if ((uint64_t)pair.value > x->raised[user])
		x->raised[user] = (uint64_t)pair.value;
	rc = weir_remote_update(remote, &u);
	if (rc)
		x->raised[user] = o->before[0];
	return rc;
}

/* Puts words, or gets some. */
static int
begin_words(struct racing *x, struct rng *r, uint32_t user, struct weir_remote *remote,
	    struct race *o)
{
	uint64_t word[SLOT_COUNT], number = x->puts[user] + 1, at;
	int rc;

	o->at = (uint8_t)rng_below(r, SLOT_COUNT);
	o->words = (uint8_t)(1 + rng_below(r, SLOT_COUNT - o->at));
	at = x->offset + SLOTS + o->at * sizeof(word[0]);
	for (uint32_t i = 0; i < o->words; i++) {
		word[i] = word_of(user, o->at + i, number);
		o->before[i] = x->latest[o->at + i][user];
	}
	if (o->kind == GET)
		return weir_remote_get(remote, at, o->result, o->words * sizeof(word[0]),
				       WEIR_NOWAIT);
	rc = weir_remote_put(remote, at, word, o->words * sizeof(word[0]), WEIR_NOWAIT);
	if (rc)
		return rc;
	x->puts[user] = number;
	for (uint32_t i = 0; i < o->words; i++)
		x->latest[o->at + i][user] = number;
	return 0;
}

int
racing_begin(struct racing *x, struct rng *r, uint32_t user, struct weir_remote *remote,
	     struct race *o)
{
	*o = (struct race){.kind = (uint8_t)rng_below(r, KINDS)};
	switch (o->kind) {
	case SUM:
		return begin_sum(x, r, user, remote, o);
	case TAKE:
		return begin_take(x, user, remote, o);
	case SWAP:
		return begin_swap(x, user, remote, o);
	case REPLACE:
	case READ:
		return begin_pair(x, r, user, remote, o);
	case RAISE:
		return begin_raise(x, r, user, remote, o);
	default:
		return begin_words(x, r, user, remote, o);
	}
}

/* ---- results ---- */

static void
check_sum(struct sim *s, struct racing *x, uint32_t user, const struct race *o)
{
	uint64_t was;

	x->complete[o->at][user] += o->value;
	if (!o->fetches)
		return;
	was = value_at(s, sums[o->at].type, o->result);
	if (was < o->before[0] || was + o->value > total(x->begun[o->at]))
		sim_fail(s, "program %u fetches a sum of %lu, between %lu and %lu were added", user,
			 was, o->before[0], total(x->begun[o->at]) - o->value);
}

static void
check_ticket(struct sim *s, struct racing *x, uint32_t user, const struct race *o)
{
	uint64_t ticket = o->result[0];

	if (ticket < o->before[0] || ticket >= total(x->tickets))
		sim_fail(s, "program %u has ticket %lu, of %lu that were asked for", user, ticket,
			 total(x->tickets));
	if (x->taken[ticket])
		sim_fail(s, "program %u has ticket %lu, as has another one", user, ticket);
	x->taken[ticket] = true;
}

static void
check_swap(struct sim *s, struct racing *x, uint32_t user, const struct race *o)
{
	uint64_t was = o->result[0], of = was ? (was - 1) / (RACING_MOST + 1) : 0;

	if (was && (of >= RACING_USERS || (was - 1) % (RACING_MOST + 1) >= x->swaps[of]))
		sim_fail(s, "program %u compares with %lu, which nobody has stored", user, was);
	x->last[user] = was;
	if (was != o->before[0])
		return;
	if (x->next[was])
		sim_fail(s, "programs have swapped %lu for %u, and for %lu", was, x->next[was],
			 o->value);
	x->next[was] = (uint32_t)o->value;
	x->steps++;
	x->last[user] = o->value;
}

/* `word`: read by `user` in a place that programs overwrite; `own`: number of its own latest there.
 */
static void
check_word(struct sim *s, struct racing *x, uint32_t user, uint32_t slot, uint64_t word,
	   uint64_t own)
{
	uint64_t writer = (word >> 56) - 1, number = word & 0xffffffffffff;

	if (!word) {
		if (own || total(x->seen[slot][user]))
			sim_fail(s, "program %u reads word %u as it was at the start", user, slot);
		return;
	}
	if (writer >= RACING_USERS || word != word_of((uint32_t)writer, slot, number) || !number ||
	    number > x->puts[writer])
		sim_fail(s, "program %u reads %lx in word %u, which nobody has put there", user,
			 word, slot);
	if (number < x->seen[slot][user][writer] || (writer == user && number != own))
		sim_fail(s, "program %u reads %lx in word %u, which was overwritten", user, word,
			 slot);
	x->seen[slot][user][writer] = number;
}

static void
check_pair(struct sim *s, struct racing *x, uint32_t user, const struct race *o)
{
	struct weir_int64_at pair;
	uint64_t word;

	if (!o->fetches)
		return;
	memcpy(&pair, o->result, sizeof(pair));
	word = (uint64_t)pair.value;
	if (pair.at != (word ? index_of(word) : 0))
		sim_fail(s, "program %u reads half a pair: %lx and %d", user, word, pair.at);
	check_word(s, x, user, SLOT_PAIR, word, o->before[0]);
}

static void
check_largest(struct sim *s, const struct racing *x, uint32_t user, const struct race *o)
{
	struct weir_double_at pair;

	memcpy(&pair, o->result, sizeof(pair));
	if (pair.value < (double)o->before[0])
		sim_fail(s, "program %u fetches %f, and has raised it to %lu", user, pair.value,
			 o->before[0]);
	if (pair.value > 0 && (pair.at < 0 || (uint32_t)pair.at >= RACING_USERS ||
			       pair.value > (double)x->raised[pair.at]))
		sim_fail(s, "program %u fetches %f of program %d", user, pair.value, pair.at);
}

void
racing_complete(struct sim *s, struct racing *x, uint32_t user, const struct race *o)
{
	s->counts.raced++;
	switch (o->kind) {
	case SUM:
		check_sum(s, x, user, o);
		break;
	case TAKE:
		check_ticket(s, x, user, o);
		break;
	case SWAP:
		check_swap(s, x, user, o);
		break;
	case REPLACE:
	case READ:
		check_pair(s, x, user, o);
		break;
	case RAISE:
		check_largest(s, x, user, o);
		break;
	case GET:
		for (uint32_t i = 0; i < o->words; i++)
			check_word(s, x, user, o->at + i, o->result[i], o->before[i]);
		break;
	default:
		break;
	}
}

void
racing_lost(struct racing *x, uint32_t user)
{
	x->lost[user] = x->any_lost = true;
}

/* ---- the end ---- */

static void
check_sums(struct sim *s, const struct racing *x, const uint8_t *at)
{
	for (uint32_t w = 0; w < SUMS; w++) {
		uint64_t is = value_at(s, sums[w].type, at + sums[w].at), least = 0;

		for (uint32_t i = 0; i < RACING_USERS; i++)
			least += x->lost[i] ? x->complete[w][i] : x->begun[w][i];
		if (is < least || is > total(x->begun[w]))
			sim_fail(s, "sum %u is %lu, and %lu to %lu were added", w, is, least,
				 total(x->begun[w]));
	}
}

static void
check_path(struct sim *s, const struct racing *x, const uint8_t *at)
{
	uint32_t id = 0, steps = 0;
	uint64_t end;

	for (; x->next[id]; id = x->next[id])
		steps++;
	memcpy(&end, at + PATH, sizeof(end));
	if (!x->any_lost && (steps != x->steps || end != id))
		sim_fail(s, "%u swaps took place, the path has %u and ends at %u, the word is %lu",
			 x->steps, steps, id, end);
}

void
racing_check(struct sim *s, const struct racing *x, const uint8_t *at)
{
	struct weir_double_at largest;
	uint64_t tickets, most = 0;
	int32_t who = 0;

	check_sums(s, x, at);
	check_path(s, x, at);
	memcpy(&tickets, at + TICKET, sizeof(tickets));
	if (tickets > total(x->tickets) || (!x->any_lost && tickets != total(x->tickets)))
		sim_fail(s, "%lu tickets were taken, and %lu asked for", tickets,
			 total(x->tickets));
	for (uint32_t i = 0; i < RACING_USERS; i++)
		if (x->raised[i] > most) {
			most = x->raised[i];
			who = (int32_t)i;
		}
	memcpy(&largest, at + LARGEST, sizeof(largest));
	if (!x->any_lost && (largest.value != (double)most || largest.at != who))
		sim_fail(s, "the largest value is %f of program %d, not %lu of program %d",
			 largest.value, largest.at, most, who);
}
