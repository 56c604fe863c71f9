/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dynamic sparse data exchange: window_sparse [--apart] [--by messages] NAME SIZE MESSAGES ROUNDS.
 * SIZE programs, on any nodes, join the group NAME. In each round a member has MESSAGES messages
 * for members that it chooses by chance; nobody else knows for whom.
 *
 * By puts: the sender adds its messages to a counter of the receiver, which gives it places there.
 * After a fence the counter says how many messages come; each is a put with a notice. With
 * --by messages an alltoall tells the numbers, and the messages go by connections.
 *
 * At the end each member compares what came of whom in each round with an alltoall.
 */
#include "members.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 64u /* of a message, 8 bytes each */

struct message {
	uint32_t round, source, index, target;
	uint64_t word[WORDS];
};

/* A member's part: counters of the rounds in turn, then places for messages. */
struct part {
	uint64_t counter[2];
	struct message place[];
};

/* Messages between two members in a round. */
struct tally {
	uint64_t count, sum; /* sum of their first words */
};

struct exchange {
	struct members m;
	struct weir_window *win;
	struct part *part;
	size_t messages, rounds;
	struct tally *to;     /* each member, in this round */
	struct tally *from;   /* each member: as an alltoall says */
	struct tally *came;   /* from each member in each round */
	uint64_t *place;      /* at each member, of the next message */
	struct message *mine; /* the messages of this round, by distance of their targets */
	struct piece *out, *in;
};

static uint64_t
word(uint32_t source, uint32_t round, uint32_t index, uint32_t i)
{
	return mix(mix(mix((uint64_t)source << 32 | round) + index) + i);
}

/* The target of a member's message: any other one. */
static uint32_t
target(const struct exchange *x, uint32_t source, uint32_t round, uint32_t index)
{
	uint64_t chance = mix((uint64_t)source << 32 | round) ^ mix(index);

	return (uint32_t)((source + 1 + mix(chance) % (x->m.size - 1)) % x->m.size);
}

/* The messages of this member in a round. */
static void
count_messages(struct exchange *x, uint32_t round)
{
	memset(x->to, 0, x->m.size * sizeof(*x->to));
	for (uint32_t i = 0; i < x->messages; i++) {
		struct tally *to = &x->to[target(x, x->m.rank, round, i)];

		to->count++;
		to->sum += word(x->m.rank, round, i, 0);
	}
}

/* Makes the messages of a round, those for the next rank first. */
static void
compose(struct exchange *x, uint32_t round)
{
	uint32_t n = x->m.size;
	struct message *next = x->mine;

	count_messages(x, round);
	for (uint32_t k = 1; k < n; k++)
		for (uint32_t i = 0; i < x->messages; i++) {
			if (target(x, x->m.rank, round, i) != (x->m.rank + k) % n)
				continue;
			*next = (struct message){round, x->m.rank, i, (x->m.rank + k) % n};
			for (uint32_t j = 0; j < WORDS; j++)
				next->word[j] = word(x->m.rank, round, i, j);
			next++;
		}
}

/* Exchanges the messages of a round; *n receives how many have come. */
static int
exchange_by_puts(struct exchange *x, uint32_t round, uint64_t *n)
{
	uint64_t *counter = &x->part->counter[round % 2];
	struct weir_watch watch;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < x->m.size; i++)
		if (x->to[i].count)
			rc = weir_window_fetch_op(
			    x->win, i, offsetof(struct part, counter[round % 2]), &x->to[i].count,
			    &x->place[i], WEIR_T_UINT64, WEIR_ACC_SUM, 0);
	if (!rc)
		rc = weir_window_fence(x->win, 0, -1);
	if (rc)
		return rc;
	*n = *counter;
	*counter = 0; /* for the round after the next, which comes after a fence */
	weir_watch_init(&watch, x->win, WEIR_RANK_ANY, round, (uint32_t)*n);
	for (uint32_t i = 0; !rc && i < x->messages; i++) {
		uint64_t at = x->place[x->mine[i].target]++;
		struct weir_transfer t = {.buf = &x->mine[i],
					  .length = sizeof(x->mine[i]),
					  .offset = offsetof(struct part, place) +
						    at * sizeof(struct message),
					  .notify = WEIR_WITH_NOTICE,
					  .tag = round};

		rc = weir_window_put_with(x->win, x->mine[i].target, &t);
		/* takes notices meanwhile: those that put here do not wait for room */
		if (!rc)
			rc = weir_watch_test(&watch);
		rc = rc > 0 ? 0 : rc;
	}
	return rc ? rc : weir_watch_wait(&watch, -1);
}

static int
exchange_by_messages(struct exchange *x, uint64_t *n)
{
	uint32_t size = x->m.size;
	int rc = weir_group_alltoall(x->m.g, x->to, sizeof(*x->to), x->from, -1);

	for (size_t i = 0; i < x->messages; i++)
		x->out[i] = (struct piece){x->mine[i].target, &x->mine[i], sizeof(struct message)};
	*n = 0;
	for (uint32_t k = 1; !rc && k < size; k++) {
		uint32_t source = (x->m.rank + size - k) % size;

		for (uint64_t i = 0; i < x->from[source].count; i++, (*n)++)
			x->in[*n] =
			    (struct piece){source, &x->part->place[*n], sizeof(struct message)};
	}
	return rc ? rc : members_exchange(&x->m, x->out, x->messages, x->in, *n);
}

/* Checks the messages that have come in a round, and counts them by source. */
static bool
take(struct exchange *x, uint32_t round, uint64_t n)
{
	struct tally *came = x->came + (size_t)round * x->m.size;

	for (uint64_t i = 0; i < n; i++) {
		const struct message *got = &x->part->place[i];

		if (got->round != round || got->target != x->m.rank || got->source >= x->m.size)
			return false;
		for (uint32_t j = 0; j < WORDS; j++)
			if (got->word[j] != word(got->source, round, got->index, j))
				return false;
		came[got->source].count++;
		came[got->source].sum += got->word[0];
	}
	return true;
}

/* Compares what came in each round with what an alltoall says. */
static int
compare(struct exchange *x)
{
	size_t bytes = x->m.size * sizeof(struct tally);
	bool right = true;
	int rc = 0;

	for (uint32_t round = 0; !rc && round < x->rounds; round++) {
		count_messages(x, round);
		rc = weir_group_alltoall(x->m.g, x->to, sizeof(*x->to), x->from, -1);
		right &= !memcmp(x->from, x->came + (size_t)round * x->m.size, bytes);
	}
	return rc ? rc : members_agree(&x->m, right);
}

static int
prepare(struct exchange *x)
{
	size_t most = x->messages * x->m.size; /* all for one */
	void *memory;
	int rc;

	x->to = calloc(x->m.size, sizeof(struct tally));
	x->from = calloc(x->m.size, sizeof(struct tally));
	x->came = calloc(x->rounds * x->m.size, sizeof(struct tally));
	x->place = calloc(x->m.size, sizeof(uint64_t));
	x->mine = calloc(x->messages, sizeof(struct message));
	x->out = calloc(x->messages, sizeof(struct piece));
	x->in = calloc(most, sizeof(struct piece));
	if (!x->to || !x->from || !x->came || !x->place || !x->mine || !x->out || !x->in)
		return -ENOMEM;
	rc = members_window(&x->m, sizeof(struct part) + most * sizeof(struct message), 1, &memory,
			    &x->win);
	if (rc)
		return rc;
	x->part = memory;
	rc = x->m.by_messages ? members_connect(&x->m) : 0;
	return rc ? rc : weir_window_fence(x->win, WEIR_NO_PRECEDE, -1);
}

static int
compute(struct exchange *x)
{
	double spent = 0, begin;
	bool right = true;
	uint64_t n = 0;
	int rc = prepare(x);

	for (uint32_t round = 0; !rc && round < x->rounds; round++) {
		compose(x, round);
		begin = seconds();
		rc =
		    x->m.by_messages ? exchange_by_messages(x, &n) : exchange_by_puts(x, round, &n);
		spent += seconds() - begin;
		if (!rc)
			right &= take(x, round, n);
	}
	if (rc)
		return rc;
	members_report(&x->m,
		       x->m.by_messages ? "sparse exchange by messages" : "sparse exchange by puts",
		       spent, x->rounds);
	rc = members_agree(&x->m, right);
	if (!rc)
		rc = compare(x);
	if (!rc)
		rc = weir_window_fence(x->win, WEIR_NO_SUCCEED, -1);
	return rc ? rc : weir_window_free(x->win, -1);
}

int
main(int argc, char **argv)
{
	static struct exchange x = {.m.program = "window_sparse"};
	size_t arguments[2];
	int rc;

	if (!members_arguments(&x.m, argc, argv,
			       "[--apart] [--by messages] NAME SIZE MESSAGES ROUNDS", arguments, 2))
		return 2;
	x.messages = arguments[0];
	x.rounds = arguments[1];
	if (x.m.size < 2 || x.rounds > UINT32_MAX - 1) {
		fprintf(stderr, "window_sparse: give SIZE of 2 or more\n");
		return 2;
	}
	rc = members_join(&x.m);
	if (!rc)
		rc = compute(&x);
	return members_leave(&x.m, rc);
}
