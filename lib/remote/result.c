/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers to operations. The data plane puts them into the send heap, small ones into lines of one
 * block per connection; they are copied from there. So it never writes into memory that the program
 * may have freed.
 */
#include "handle.h"

#include "client/reason.h"
#include "client/send_heap.h"
#include "ipc/remote.h"

#include <stdlib.h>

struct result {
	uint64_t number; /* of its operation */
	uint8_t *to;
	uint32_t length;
	uint32_t block; /* its own; WEIR_BLOCK_NONE: a line */
};

struct weir_results {
	uint32_t head, tail;
	uint32_t lines; /* block of WEIR_AWAITED_MAX lines; WEIR_BLOCK_NONE: none yet */
	struct result of[WEIR_AWAITED_MAX];
};

static struct result *
at(struct weir_results *s, uint32_t i)
{
	return &s->of[i % WEIR_AWAITED_MAX];
}

static uint64_t
offset_of(const struct weir_conn *c, uint32_t i)
{
	const struct weir_results *s = c->results;
	const struct result *x = &s->of[i % WEIR_AWAITED_MAX];

	if (x->block != WEIR_BLOCK_NONE)
		return weir_heap_offset(c->worker->w, x->block);
	return weir_heap_offset(c->worker->w, s->lines) + i % WEIR_AWAITED_MAX * WEIR_SLOT_SIZE;
}

int
weir_result_reserve(struct weir_conn *c, uint32_t length, uint32_t *place)
{
	struct weir_results *s = c->results;
	struct result *x;

	weir_assert(weir_worker_locked(c->worker) && length && length <= WEIR_BLOCK_SIZE);
	if (weir_unlikely(!s)) {
		c->results = s = malloc(sizeof(*s));
		if (!s)
			return weir_fail(-ENOMEM, "no memory for answers; free some");
		s->head = s->tail = 0;
		s->lines = WEIR_BLOCK_NONE;
	}
	if (s->tail - s->head == WEIR_AWAITED_MAX)
		return -EAGAIN;
	x = at(s, s->tail);
	x->length = length;
	x->block = WEIR_BLOCK_NONE;
	if (length > WEIR_SLOT_SIZE)
		x->block = weir_heap_take(c->worker, length);
	else if (s->lines == WEIR_BLOCK_NONE)
		s->lines = weir_heap_take(c->worker, WEIR_BLOCK_SIZE);
	if ((length > WEIR_SLOT_SIZE ? x->block : s->lines) == WEIR_BLOCK_NONE)
		return -EAGAIN;
	*place = (uint32_t)(offset_of(c, s->tail) / WEIR_SLOT_SIZE);
	return 0;
}

void
weir_result_await(struct weir_conn *c, uint64_t number, void *to)
{
	struct result *x = at(c->results, c->results->tail++);

	x->number = number;
	x->to = to;
}

void
weir_results_take(struct weir_conn *c)
{
	struct weir_results *s = c->results;

	weir_assert(weir_worker_locked(c->worker));
	if (!s)
		return;
	while (s->head != s->tail && at(s, s->head)->number < c->completed) {
		const struct result *x = at(s, s->head);

		memcpy(x->to, c->worker->w->arena + offset_of(c, s->head), x->length);
		if (x->block != WEIR_BLOCK_NONE)
			weir_heap_give(c->worker, x->block);
		s->head++;
	}
}

uint64_t
weir_results_last(const struct weir_conn *c)
{
	struct weir_results *s = c->results;

	return s && s->head != s->tail ? at(s, s->tail - 1)->number + 1 : 0;
}

void
weir_results_free(struct weir_conn *c)
{
	struct weir_results *s = c->results;

	for (; s->head != s->tail; s->head++)
		if (at(s, s->head)->block != WEIR_BLOCK_NONE)
			weir_heap_give(c->worker, at(s, s->head)->block);
	if (s->lines != WEIR_BLOCK_NONE)
		weir_heap_give(c->worker, s->lines);
	free(s);
	c->results = NULL;
}
