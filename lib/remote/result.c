/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers to operations. The data plane puts them into the send heap, small ones into lines of one
 * block per connection; they are copied from there. So it never writes into memory that the program
 * may have freed. Layouts of the program may be gone by then, too: what is left of them is kept.
 */
#include "handle.h"

#include "client/reason.h"
#include "client/send_heap.h"
#include "ipc/remote.h"
#include "stream/remote.h"

#include <stdlib.h>

/* Results of a connection that may be awaited: the small ones lie in the lines of a block. */
#define RESULTS_MAX (WEIR_BLOCK_SIZE / WEIR_SLOT_SIZE)

struct result {
	uint64_t number; /* of its operation */
	uint8_t *to;
	uint32_t length;
	uint32_t block; /* its own; WEIR_BLOCK_NONE: a line */
	bool scattered;
};

/* The pieces that an answer is copied to. */
struct scatter {
	struct weir_layout_walk walk;
	struct weir_piece list[WEIR_SCATTER_LIST];
};

struct weir_results {
	uint32_t head, tail;
	uint32_t lines;		 /* block of RESULTS_MAX lines; WEIR_BLOCK_NONE: none yet */
	struct scatter *scatter; /* of each; NULL: none was wanted yet */
	struct result of[RESULTS_MAX];
};

static struct result *
at(struct weir_results *s, uint32_t i)
{
	return &s->of[i % RESULTS_MAX];
}

static uint64_t
offset_of(const struct weir_conn *c, uint32_t i)
{
	const struct weir_results *s = c->results;
	const struct result *x = &s->of[i % RESULTS_MAX];

	if (x->block != WEIR_BLOCK_NONE)
		return weir_heap_offset(c->worker->w, x->block);
	return weir_heap_offset(c->worker->w, s->lines) + i % RESULTS_MAX * WEIR_SLOT_SIZE;
}

int
weir_result_reserve(struct weir_conn *c, uint32_t length, const struct weir_layout_walk *scatter,
		    uint32_t *place)
{
	struct weir_results *s = c->results;
	struct result *x;

	weir_assert(weir_worker_locked(c->worker) && length);
	if (weir_unlikely(!s)) {
		c->results = s = malloc(sizeof(*s));
		if (!s)
			return weir_fail(-ENOMEM, "no memory for answers; free some");
		s->head = s->tail = 0;
		s->lines = WEIR_BLOCK_NONE;
		s->scatter = NULL;
	}
	if (scatter && !s->scatter) {
		s->scatter = malloc(RESULTS_MAX * sizeof(*s->scatter));
		if (!s->scatter)
			return weir_fail(-ENOMEM, "no memory for layouts of answers; free some");
	}
	if (s->tail - s->head == RESULTS_MAX)
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
	x->scattered = scatter;
	if (scatter) {
		struct scatter *kept = &s->scatter[s->tail % RESULTS_MAX];

		kept->walk = *scatter;
		if (!scatter->l.block) { /* the list is the caller's */
			size_t n = scatter->l.count - scatter->piece;

			n = n < WEIR_SCATTER_LIST ? n : WEIR_SCATTER_LIST;
			memcpy(kept->list, scatter->l.list + scatter->piece,
			       n * sizeof(kept->list[0]));
			kept->walk.l.list = kept->list;
			kept->walk.l.count = n;
			kept->walk.piece = 0;
		}
	}
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
		const uint8_t *from = c->worker->w->arena + offset_of(c, s->head);

		if (x->scattered)
			weir_layout_store(&s->scatter[s->head % RESULTS_MAX].walk, x->to, 0, from,
					  x->length);
		else
			memcpy(x->to, from, x->length);
		if (x->block != WEIR_BLOCK_NONE)
			weir_heap_give(c->worker, x->block);
		/* pairs with the acquire in weir_results_last() of the thread without the lock */
		__atomic_store_n(&s->head, s->head + 1, __ATOMIC_RELEASE);
	}
}

void
weir_results_give_lines(struct weir_conn *c)
{
	struct weir_results *s = c->results;

	weir_results_take(c);
	if (!s || s->head != s->tail || s->lines == WEIR_BLOCK_NONE)
		return;
	weir_heap_give(c->worker, s->lines);
	s->lines = WEIR_BLOCK_NONE;
}

uint64_t
weir_results_last(const struct weir_conn *c)
{
	struct weir_results *s = c->results;

	return s && __atomic_load_n(&s->head, __ATOMIC_ACQUIRE) != s->tail
		   ? at(s, s->tail - 1)->number + 1
		   : 0;
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
	free(s->scatter);
	free(s);
	c->results = NULL;
}
