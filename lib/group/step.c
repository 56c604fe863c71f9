/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barrier: dissemination. Broadcast: binomial tree. Allgather, alltoall: Bruck. Allreduce: up the
 * tree of rank 0, which keeps the order of ranks, and down again.
 */
#include "step.h"

#include "ipc/apply.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t
collective_rounds(uint32_t size)
{
	uint32_t n = 0;

	while (n < 32 && (uint64_t)1 << n < size)
		n++;
	return n;
}

/* The rank `distance` behind, or with -1 before. */
static uint32_t
away(const struct collective *c, uint32_t distance, bool before)
{
	uint64_t at = (uint64_t)c->rank + (before ? c->size - distance : distance);

	weir_assert(distance < c->size);
	return (uint32_t)(at % c->size);
}

/* ---- blocks ---- */

static uint8_t *
block(const struct collective *c, uint8_t *of, uint32_t i)
{
	return c->call.length ? of + (size_t)i * c->call.length : of;
}

/* Reverses the order of blocks [from, to). */
static void
reverse(const struct collective *c, uint32_t from, uint32_t to)
{
	const size_t n = c->call.length;

	for (; from + 1 < to; from++, to--) {
		uint8_t *a = block(c, c->call.all, from), *b = block(c, c->call.all, to - 1);

		for (size_t i = 0; i < n; i++) {
			uint8_t was = a[i];

			a[i] = b[i];
			b[i] = was;
		}
	}
}

/* Block i moves to i + by, modulo the size. */
static void
rotate(const struct collective *c, uint32_t by)
{
	by %= c->size;
	reverse(c, 0, c->size);
	reverse(c, 0, by);
	reverse(c, by, c->size);
}

/* Copies the blocks with bit k between `all` and scratch. How many. */
static uint32_t
pack(const struct collective *c, uint8_t *packed, bool back)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->size; i++) {
		uint8_t *at = block(c, c->call.all, i), *in = block(c, packed, n);

		if (!(i >> c->k & 1))
			continue;
		if (c->call.length)
			memcpy(back ? at : in, back ? in : at, c->call.length);
		n++;
	}
	weir_assert(n <= (c->size + 1) / 2); /* blocks of each half of scratch */
	return n;
}

/* ---- calls ---- */

int
collective_begin(struct collective *c, const struct collective_call *call, uint32_t rank,
		 uint32_t size)
{
	size_t room = 0;

	weir_assert(rank < size && (call->kind != COLLECTIVE_BROADCAST || call->root < size));
	*c = (struct collective){.call = *call, .rank = rank, .size = size};
	if (call->kind == COLLECTIVE_ALLREDUCE)
		room = call->length;
	else if (call->kind == COLLECTIVE_ALLTOALL)
		room = 2 * (size_t)((size + 1) / 2) * call->length;
	if (!room || size == 1)
		return 0;
	c->scratch = malloc(room);
	return c->scratch ? 0 : -ENOMEM;
}

void
collective_end(struct collective *c)
{
	free(c->scratch);
	*c = (struct collective){0};
}

static bool
next_barrier(struct collective *c, struct step *s)
{
	uint32_t distance = 1u << c->k;

	if (distance >= c->size)
		return false;
	s->to = away(c, distance, false);
	s->from = away(c, distance, true);
	s->label = (uint16_t)c->k++;
	return true;
}

/* Down a binomial tree: k counts down. `base`: label of the first step. */
static bool
next_spread(struct collective *c, struct step *s, uint32_t root, uint16_t base)
{
	uint32_t v = (c->rank + c->size - root) % c->size, rounds = collective_rounds(c->size);

	if (c->stage != STAGE_SPREAD) {
		c->stage = STAGE_SPREAD;
		c->k = v ? (uint32_t)__builtin_ctz(v) : rounds;
		if (v) {
			s->from = away(c, 1u << c->k, true);
			s->place = c->call.all;
			s->receive = c->call.length;
			s->label = (uint16_t)(base + rounds - c->k);
			return true;
		}
	}
	while (c->k) {
		c->k--;
		if (1u << c->k >= c->size - v)
			continue;
		s->to = away(c, 1u << c->k, false);
		s->data = c->call.all;
		s->send = c->call.length;
		s->label = (uint16_t)(base + rounds - c->k);
		return true;
	}
	return false;
}

static bool
next_reduce(struct collective *c, struct step *s)
{
	const struct collective_call *call = &c->call;

	if (!c->begun && call->length && call->all != call->mine)
		memmove(call->all, call->mine, call->length);
	if (c->stage == STAGE_SPREAD)
		return next_spread(c, s, 0, 64);
	if (c->combine)
		weir_apply(call->type, call->op, call->all, c->scratch, NULL,
			   call->length / weir_type_size(call->type));
	c->combine = false;
	for (; 1u << c->k < c->size; c->k++) {
		uint32_t distance = 1u << c->k;

		s->label = (uint16_t)c->k;
		if (c->rank & distance) { /* up, and nothing more until the result comes */
			if (c->stage == STAGE_REDUCE)
				break;
			c->stage = STAGE_REDUCE;
			s->to = c->rank - distance;
			s->data = call->all;
			s->send = call->length;
			return true;
		}
		if (c->rank + distance >= c->size)
			continue;
		s->from = c->rank + distance;
		s->place = c->scratch;
		s->receive = call->length;
		c->combine = call->length;
		c->k++;
		return true;
	}
	return next_spread(c, s, 0, 64);
}

static bool
next_gather(struct collective *c, struct step *s)
{
	uint32_t distance = 1u << c->k, n;

	if (!c->begun && c->call.length)
		memcpy(c->call.all, c->call.mine, c->call.length);
	if (distance >= c->size) {
		if (c->call.length)
			rotate(c, c->rank);
		return false;
	}
	n = distance < c->size - distance ? distance : c->size - distance;
	s->to = away(c, distance, true);
	s->data = c->call.all;
	s->from = away(c, distance, false);
	s->place = block(c, c->call.all, distance);
	s->send = s->receive = n * c->call.length;
	s->label = (uint16_t)c->k++;
	return true;
}

/* Where blocks come in behind those that leave. A member alone has no scratch memory. */
static uint8_t *
second_half(const struct collective *c)
{
	return block(c, c->scratch, (c->size + 1) / 2);
}

static bool
next_exchange(struct collective *c, struct step *s)
{
	uint8_t *all = c->call.all;
	size_t head = c->rank * c->call.length, rest = (c->size - c->rank) * c->call.length;
	const uint8_t *mine = c->call.mine;

	/* first my own block, then those of the ranks behind me */
	if (!c->begun && c->call.length) {
		memcpy(all, mine + head, rest);
		memcpy(all + rest, mine, head);
	}
	if (c->unpack) {
		pack(c, second_half(c), true);
		c->unpack = false;
		c->k++;
	}
	if (1u << c->k >= c->size) {
		/* block i is from the rank i before me */
		if (c->call.length) {
			reverse(c, 0, c->size);
			rotate(c, c->rank + 1);
		}
		return false;
	}
	s->to = away(c, 1u << c->k, false);
	s->from = away(c, 1u << c->k, true);
	s->data = c->scratch;
	s->place = second_half(c);
	s->label = (uint16_t)c->k;
	s->send = s->receive = pack(c, c->scratch, false) * c->call.length;
	c->unpack = true;
	return true;
}

bool
collective_next(struct collective *c, struct step *s)
{
	bool more = false;

	*s = (struct step){.to = NOBODY, .from = NOBODY};
	if (c->stage == STAGE_DONE)
		return false;
	switch (c->call.kind) {
	case COLLECTIVE_BARRIER:
		more = next_barrier(c, s);
		break;
	case COLLECTIVE_BROADCAST:
		more = next_spread(c, s, c->call.root, 0);
		break;
	case COLLECTIVE_ALLGATHER:
		more = next_gather(c, s);
		break;
	case COLLECTIVE_ALLREDUCE:
		more = next_reduce(c, s);
		break;
	case COLLECTIVE_ALLTOALL:
		more = next_exchange(c, s);
		break;
	}
	c->begun = true;
	if (!more)
		c->stage = STAGE_DONE;
	return more;
}
