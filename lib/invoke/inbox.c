/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches between threads of a process: handed over by pointer, and back when they have run. Each
 * thread has one list of those that came, which any thread pushes to, and one of those that came
 * back. Both are taken as a whole, so that no entry is seen twice while it is pushed again (ABA).
 */
#include "batch.h"
#include "invoker.h"

#include "client/likely.h"

#include <errno.h>
#include <stdlib.h>

#define WINDOW (256u << 10) /* bytes handed to one thread that have not run */
#define SPARES_ROOM WEIR_BATCH_MAX

struct batch *
batch_make(struct invoke_thread *t, uint32_t room)
{
	struct batch *b = NULL;

	if (room == SPARES_ROOM && t->spare) {
		b = t->spare;
		t->spare = b->next;
	}
	if (!b) {
		b = malloc(sizeof(*b) + room);
		if (!b)
			return NULL;
		b->from = t;
		b->room = room;
		b->draft.data = NULL;
	}
	b->next = NULL;
	b->data = b->bytes;
	b->length = b->calls = 0;
	b->asks = b->asks_last = NULL;
	b->asks_answer = b->lost = false;
	b->parcel = NULL;
	b->put = NULL;
	return b;
}

void
batch_free(struct batch *b)
{
	struct invoke_thread *t = b->from;

	if (b->room != SPARES_ROOM) {
		free(b);
		return;
	}
	b->next = t->spare;
	t->spare = b;
}

/* Any thread. */
static void
push(_Atomic(struct batch *) *list, struct batch *b)
{
	b->next = atomic_load_explicit(list, memory_order_relaxed);
	/* pairs with the acquire in pull(); a sleeper's flag is read after it */
	while (!atomic_compare_exchange_weak_explicit(list, &b->next, b, memory_order_seq_cst,
						      memory_order_relaxed))
		;
}

/* Takes all, in the order in which each thread has pushed. */
static struct batch *
pull(_Atomic(struct batch *) *list)
{
	struct batch *b, *next, *first = NULL;

	/* a sleeper looks behind its flag: both are in the one order of all such accesses */
	if (!atomic_load_explicit(list, memory_order_seq_cst))
		return NULL;
	/* pairs with the release in push() */
	b = atomic_exchange_explicit(list, NULL, memory_order_acquire);
	for (; b; b = next) {
		next = b->next;
		b->next = first;
		first = b;
	}
	return first;
}

/* The asks of b are answered, if its line is still there. */
static void
came_back(struct invoke_thread *t, const struct batch *b)
{
	struct line *l = line_find(t, (struct weir_to){t->v->self, b->receiver});
	int status = b->lost ? -EHOSTUNREACH : 0;

	if (b->asks_answer) {
		t->local_asks--;
		t->ran++; /* made in inbox_put(): what it ends may make calls */
		if (l)
			asks_answered(l, b->ask, status);
	}
	if (b->parcel)
		parcel_end(t, b->parcel, status);
	if (b->lost && l)
		futures_lost(t, l, status);
}

void
inbox_settle(struct invoke_thread *t)
{
	struct batch *b = pull(&t->returned), *next;

	for (; b; b = next) {
		next = b->next;
		t->in_flight[b->receiver] -= b->length;
		came_back(t, b);
		batch_free(b);
	}
}

/* Any thread. */
static void
give_back(struct batch *b)
{
	struct invoke_thread *from = b->from;

	push(&from->returned, b);
	/* pairs with the exchange in inbox_put(): one of both sees the other's */
	if (atomic_load_explicit(&from->wants_returned, memory_order_seq_cst) &&
	    atomic_exchange_explicit(&from->wants_returned, false, memory_order_relaxed) &&
	    from->index != WEIR_THREAD_ANY)
		message_wake(from->v->m, from->index);
}

/* Threads of the pool, which never wait, are bounded by queue_bytes. */
static uint64_t
window_of(const struct invoke_thread *from)
{
	return from->index == WEIR_THREAD_ANY ? from->v->o.queue_bytes : WINDOW;
}

static bool
has_room(struct invoke_thread *from, const struct invoke_thread *to, const struct batch *b)
{
	inbox_settle(from);
	return !from->in_flight[to->index] ||
	       from->in_flight[to->index] + (uint64_t)b->length <= window_of(from);
}

/* The calls of these batches do not run. How many. */
static uint64_t
give_back_all(struct batch *b)
{
	uint64_t calls = 0;
	struct batch *next;

	for (; b; b = next) {
		next = b->next;
		calls += b->calls;
		b->lost = true;
		give_back(b);
	}
	return calls;
}

/* A thread that has left may not have seen what came last. Apart: it is rare. */
static __attribute__((noinline, cold)) void
take_back(struct invoke_thread *from, struct invoke_thread *to)
{
	invoke_count(&from->counters.dropped, give_back_all(pull(&to->inbox)));
	atomic_fetch_add_explicit(&from->v->lost, 1, memory_order_relaxed);
}

int
inbox_put(struct invoke_thread *from, struct invoke_thread *to, struct batch *b)
{
	if (!atomic_load_explicit(&to->entered, memory_order_acquire))
		return -ECONNREFUSED;
	if (from->in_flight[to->index] + (uint64_t)b->length > WINDOW && !has_room(from, to, b)) {
		/* pairs with the load in give_back() */
		atomic_exchange_explicit(&from->wants_returned, true, memory_order_seq_cst);
		if (!has_room(from, to, b))
			return -EAGAIN;
	}
	b->receiver = to->index;
	from->local_asks += b->asks_answer;
	invoke_count(&from->sent, b->asks_answer);
	from->in_flight[to->index] += b->length;
	push(&to->inbox, b);
	/* pairs with the store in forget(): one of both sees the other's */
	if (weir_unlikely(!atomic_load_explicit(&to->entered, memory_order_seq_cst)))
		take_back(from, to);
	/* pairs with the exchange in thread_falls_asleep(): one of both sees the other's */
	if (to != from && atomic_load_explicit(&to->asleep, memory_order_seq_cst))
		message_wake(to->v->m, to->index);
	return 0;
}

bool
inbox_is_free(struct invoke_thread *from, uint32_t to)
{
	inbox_settle(from);
	return !from->in_flight[to];
}

unsigned
inbox_run(struct invoke_thread *t, unsigned most)
{
	struct origin origin = {.from.process = t->v->self};
	unsigned n = 0;
	struct batch *b;

	/* those that come meanwhile, as from the own functions, are for the next turn */
	if (!t->arrived)
		t->arrived = pull(&t->inbox);
	if (t->arrived)
		message_begin(t->v->m);
	while ((b = t->arrived) && n < most) {
		t->arrived = b->next;
		n += b->calls;
		origin.from.thread = b->from->index;
		origin.batch = b;
		/* a result of it has no room: its thread does not wait for it, and those behind */
		b->lost = !run_batch(t, &origin, b->data, b->length);
		if (b->lost)
			atomic_fetch_add_explicit(&t->v->lost, 1, memory_order_relaxed);
		give_back(b);
	}
	return n;
}

uint64_t
inbox_drop(struct invoke_thread *t)
{
	uint64_t calls = give_back_all(t->arrived);

	t->arrived = NULL;
	return calls + give_back_all(pull(&t->inbox));
}
