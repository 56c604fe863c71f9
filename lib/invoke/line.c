/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lines: made by the first call, freed by their thread. The open batch lies in the memory that the
 * message leaves from. Batches that found no room wait in a queue, in order, and later ones behind
 * them.
 */
#include "batch.h"
#include "line.h"

#include "client/likely.h"
#include "client/reason.h"
#include "client/session.h"
#include "client/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define STALE_NS 10000000u

/* ---- making and freeing ---- */

/* Where t keeps its line to a thread. */
static uint32_t
index_of(const struct invoke_thread *t, struct weir_to to)
{
	return to.thread == WEIR_THREAD_ANY ? t->v->processes[to.process].threads : to.thread;
}

/* NULL: no memory. */
static struct line **
place_of(struct invoke_thread *t, struct weir_to to)
{
	const struct weir_invoker *v = t->v;
	uint32_t threads = v->processes[to.process].threads;
	struct line ***of_process;
	uint16_t **asked;

	if (!t->lines)
		t->lines = calloc(v->process_count, sizeof(*t->lines));
	if (!t->asked)
		t->asked = calloc(v->process_count, sizeof(*t->asked));
	if (!t->lines || !t->asked)
		return NULL;
	of_process = &t->lines[to.process];
	asked = &t->asked[to.process];
	if (!*of_process)
		*of_process = calloc(threads + 1, sizeof(**of_process));
	if (!*asked)
		*asked = calloc(threads + 1, sizeof(**asked));
	if (!*of_process || !*asked)
		return NULL;
	return &(*of_process)[index_of(t, to)];
}

int
invoke_no_memory(void)
{
	return weir_fail(-ENOMEM, "no memory for calls; free some");
}

static struct line *
make(struct invoke_thread *t, struct weir_to to, int *rc)
{
	struct weir_invoker *v = t->v;
	struct line *l = calloc(1, sizeof(*l));

	if (!l) {
		*rc = invoke_no_memory();
		return NULL;
	}
	l->fast.run = UINT64_MAX;
	l->thread = t;
	l->to = to;
	l->targets = v->processes[to.process].table->targets;
	l->batching = v->o.batching;
	l->last = &l->first;
	l->asks_last = &l->asks;
	l->asked = l->answered = t->asked[to.process][index_of(t, to)];
	l->behind_last = &l->behind;
	if (to.process == v->self && to.thread != WEIR_THREAD_ANY) {
		l->receiver = &v->threads[to.thread];
		l->connected = true;
		return l;
	}
	*rc = message_lane_open(v->m, (uint16_t)to.process, to.thread, &l->lane);
	if (*rc) {
		free(l);
		return NULL;
	}
	message_lane_set_user(l->lane, l);
	return l;
}

struct line *
line_find(const struct invoke_thread *t, struct weir_to to)
{
	uint32_t i = index_of(t, to), last = t->v->processes[to.process].threads;

	return t->lines && t->lines[to.process] && i <= last ? t->lines[to.process][i] : NULL;
}

struct line *
line_get_slow(struct invoke_thread *t, struct weir_to to, int *rc)
{
	const struct weir_invoker *v = t->v;
	const struct invoke_process *p;
	struct line **at;

	if (weir_unlikely(to.process >= v->process_count)) {
		*rc = weir_fail(-ENOENT, "process %u of %u; give a number below that", to.process,
				v->process_count);
		return NULL;
	}
	p = &v->processes[to.process];
	if (weir_unlikely(to.thread == WEIR_THREAD_ANY ? !p->pool_threads
						       : to.thread >= p->threads)) {
		*rc = to.thread == WEIR_THREAD_ANY
			  ? weir_fail(-ENOENT, "process %u has no pool; open it with pool_threads",
				      to.process)
			  : weir_fail(-ENOENT,
				      "thread %u of process %u, which has %u; give a "
				      "number below that",
				      to.thread, to.process, p->threads);
		return NULL;
	}
	at = place_of(t, to);
	if (weir_unlikely(!at)) {
		*rc = invoke_no_memory();
		return NULL;
	}
	if (weir_unlikely(!*at))
		*at = make(t, to, rc);
	return *at;
}

/* ---- batches ---- */

void
line_end_fast_path(struct line *l)
{
	l->fast.run = UINT64_MAX;
	l->fast.check = l->fast.at;
}

void
line_close_run(struct line *l)
{
	uint32_t count;

	if (!l->head)
		return;
	count = (uint32_t)(l->fast.at - l->head - RUN_HEAD) / run_stride(l->length, l->flags);
	memcpy(l->head, &(uint64_t){run_head_word(l->number, l->flags, l->length, count)},
	       RUN_HEAD);
	l->open->calls += count;
	invoke_count(&l->thread->sent, count);
	if (l->function < FUNCTION_LIBRARY)
		invoke_count(&l->thread->counters.made, count);
	l->head = NULL;
	line_end_fast_path(l);
}

static void
set_busy(struct line *l, bool busy)
{
	if (l->busy == busy)
		return;
	l->busy = busy;
	if (busy)
		TAILQ_INSERT_TAIL(&l->thread->busy, l, in_busy);
	else
		TAILQ_REMOVE(&l->thread->busy, l, in_busy);
}

int
line_open_batch(struct line *l, uint32_t room)
{
	struct batch *b = batch_make(l->thread, room);

	weir_assert(!l->open);
	if (!b)
		return invoke_no_memory();
	/* it is sent before the lane's next message is reserved */
	if (l->lane && l->connected && !l->first && room == WEIR_BATCH_MAX &&
	    !message_lane_reserve(l->lane, room, 0, &b->draft))
		b->data = b->draft.data;
	b->since = weir_clock();
	l->open = b;
	l->fast.at = l->fast.check = b->data;
	set_busy(l, true);
	return 0;
}

void
line_free_batch(struct line *l, struct batch *b)
{
	if (b->draft.data && l->thread->v->m)
		weir_message_abandon(l->thread->v->m, &b->draft);
	b->draft.data = NULL;
	free(b->put);
	batch_free(b);
}

static void
add_queued(struct weir_invoker *v, uint64_t bytes)
{
	uint64_t now = atomic_fetch_add_explicit(&v->queued, bytes, memory_order_relaxed) + bytes,
		 peak = atomic_load_explicit(&v->queue_peak, memory_order_relaxed);

	while (now > peak &&
	       !atomic_compare_exchange_weak_explicit(&v->queue_peak, &peak, now,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

/* The open batch waits behind the others. */
static void
close_batch(struct line *l)
{
	struct invoke_thread *t = l->thread;
	struct batch *b = l->open;

	line_close_run(l);
	b->length = (uint32_t)(l->fast.at - b->data);
	if (weir_clock() - b->since > STALE_NS)
		invoke_count(&t->counters.stale, 1);
	l->open = NULL;
	l->fast.at = l->fast.check = NULL;
	*l->last = b;
	l->last = &b->next;
	b->place = ++l->queued;
	add_queued(t->v, b->length);
}

/* Takes the first batch out of the queue. */
static struct batch *
unqueue(struct line *l)
{
	struct batch *b = l->first;

	l->first = b->next;
	if (!l->first)
		l->last = &l->first;
	b->next = NULL;
	atomic_fetch_sub_explicit(&l->thread->v->queued, b->length, memory_order_relaxed);
	return b;
}

void
line_has_lost(const struct line *l)
{
	atomic_fetch_add_explicit(&l->thread->v->lost, 1, memory_order_relaxed);
}

int
line_lose(struct line *l, int rc)
{
	bool cut = false;
	struct batch *b;

	if (l->open)
		close_batch(l);
	if (l->first)
		line_has_lost(l);
	while (l->first) {
		b = unqueue(l);
		invoke_count(&l->thread->counters.dropped, b->calls);
		batch_asks_lost(l, b, rc);
		if (b->parcel) {
			cut |= parcel_is_cut(l, b->parcel);
			parcel_end(l->thread, b->parcel, rc);
		}
		line_free_batch(l, b);
	}
	if (weir_unlikely(l->behind != NULL)) {
		line_has_lost(l);
		invoke_count(&l->thread->counters.dropped, parcels_lose(l, rc, &cut));
	}
	if (weir_unlikely(cut)) /* what comes next would be taken for the rest */
		message_lane_renew(l->lane);
	l->numbers = 0;
	asks_lost(l, rc);
	futures_lost(l->thread, l, rc);
	l->status = rc;
	l->connected = l->receiver;
	set_busy(l, l->owes);
	return rc;
}

static void
drop(struct line *l)
{
	struct invoke_thread *t = l->thread;

	line_lose(l, -ECANCELED);
	set_busy(l, false);
	/* answers that are under way are none for the line that follows */
	t->asked[l->to.process][index_of(t, l->to)] = l->asked;
	if (l->lane && t->v->m)
		message_lane_close(l->lane);
	free(l);
}

void
lines_drop(struct invoke_thread *t)
{
	for (uint32_t p = 0; t->lines && p < t->v->process_count; p++)
		for (uint32_t i = 0; t->lines[p] && i <= t->v->processes[p].threads; i++)
			if (t->lines[p][i]) {
				drop(t->lines[p][i]);
				t->lines[p][i] = NULL;
			}
}

void
lines_free(struct invoke_thread *t)
{
	for (uint32_t p = 0; t->lines && p < t->v->process_count; p++) {
		free(t->lines[p]);
		if (t->asked)
			free(t->asked[p]);
	}
	free(t->lines);
	free(t->asked);
}

void
lines_close_fast_path(struct invoke_thread *t)
{
	for (uint32_t p = 0; t->lines && p < t->v->process_count; p++)
		for (uint32_t i = 0; t->lines[p] && i <= t->v->processes[p].threads; i++)
			if (t->lines[p][i])
				line_end_fast_path(t->lines[p][i]);
}

unsigned
lines_ended(struct invoke_thread *t)
{
	const struct weir_invoker *v = t->v;
	unsigned n = 0;
	int status;

	/* pairs with the release in lane_ended() */
	atomic_exchange_explicit(&t->lane_ended, false, memory_order_acquire);
	for (uint32_t p = 0; t->lines && p < v->process_count; p++)
		for (uint32_t i = 0; t->lines[p] && i <= v->processes[p].threads; i++) {
			struct line *l = t->lines[p][i];

			status =
			    l ? atomic_exchange_explicit(&l->ended, 0, memory_order_relaxed) : 0;
			if (!status)
				continue;
			line_has_lost(l);
			line_lose(l, status);
			n++;
		}
	return n;
}

bool
line_take_out(struct line *l, uint64_t place)
{
	struct batch **at = &l->first, *b;

	while (*at && (*at)->place != place)
		at = &(*at)->next;
	b = *at;
	if (!b)
		return false;
	*at = b->next;
	if (!*at)
		l->last = at;
	atomic_fetch_sub_explicit(&l->thread->v->queued, b->length, memory_order_relaxed);
	/* counted when it was queued */
	invoke_count(&l->thread->sent, -UINT64_C(1));
	invoke_count(&l->thread->counters.made, -UINT64_C(1));
	batch_asks_forget(l->thread, b);
	line_free_batch(l, b);
	return true;
}

/* ---- sending ---- */

int
line_not_entered(const struct line *l)
{
	return weir_fail(-ECONNREFUSED, "thread %u of process %u has not entered, or has left",
			 l->to.thread, l->to.process);
}

int
line_failed(const struct line *l, int rc)
{
	const struct invoke_process *p = &l->thread->v->processes[l->to.process];
	int status = atomic_load_explicit(&p->status, memory_order_relaxed);
	char why[WEIR_REASON_MAX];

	if (rc == -EHOSTUNREACH) {
		snprintf(why, sizeof(why), "%s", weir_reason());
		return weir_fail(rc, "the line to thread %u of process %u was lost: %s",
				 l->to.thread, l->to.process, why);
	}
	if (rc != -ECONNREFUSED)
		return rc;
	if (status)
		return weir_fail(-EHOSTUNREACH, "process %u was lost: %s", l->to.process,
				 strerror(-status));
	return line_not_entered(l);
}

/* Hands b to a thread of the process; what it asks is answered when it comes back, and a payload
 * may be used again. */
static int
hand_over(struct line *l, struct batch *b)
{
	int rc;

	if (b->asks || b->parcel) {
		b->ask = (uint16_t)(l->asked + (b->asks ? 1 : 0));
		b->asks_answer = true;
	}
	rc = inbox_put(l->thread, l->receiver, b);
	return rc == -ECONNREFUSED ? line_not_entered(l) : rc;
}

int
line_send_batch(struct line *l, struct batch *b)
{
	struct message_tag tag = {.kind = KIND_CALLS, .value = l->thread->index};
	struct iovec part = {b->data, b->length};
	struct batch asks = {.asks = b->asks, .asks_last = b->asks_last};
	int rc;

	if (asks.asks && !asks_have_room(l))
		return -EAGAIN;
	if (l->receiver) {
		rc = hand_over(l, b);
		if (rc)
			return rc;
	} else {
		if (asks.asks) {
			tag.flags = TAG_ASKS;
			tag.type = (uint16_t)(l->asked + 1);
		}
		rc = b->draft.data ? message_lane_commit(l->lane, &b->draft, b->length, &tag, 0)
				   : message_lane_send(l->lane, &tag, &part, 1, 0);
		if (rc)
			return rc == -EAGAIN ? rc : line_failed(l, rc);
		l->connected = true;
		b->draft.data = NULL;
		if (weir_likely(!b->parcel))
			batch_free(b);
	}
	if (asks.asks)
		asks_sent(l, &asks);
	return 0;
}

/* Whether b, the first of the queue, waits for its put. A put that has failed ends its call: *rc.
 */
static bool
put_has_ended(struct line *l, struct batch *b, int *rc)
{
	if (!weir_op_test(b->put))
		return false;
	*rc = b->put->status;
	if (*rc) {
		unqueue(l);
		line_has_lost(l);
		invoke_count(&l->thread->counters.dropped, b->calls);
		batch_asks_lost(l, b, *rc);
		line_free_batch(l, b);
	} else {
		free(b->put);
		b->put = NULL;
	}
	return true;
}

/* Sends batches that wait. 0, -EAGAIN, or why they were dropped. */
static int
push(struct line *l)
{
	struct batch *b;
	int rc;

	while ((b = l->first)) {
		if (weir_unlikely(b->put != NULL)) {
			if (!put_has_ended(l, b, &rc))
				return -EAGAIN;
			if (rc)
				continue;
		}
		/* it is another thread's on success */
		l->first = b->next;
		atomic_fetch_sub_explicit(&l->thread->v->queued, b->length, memory_order_relaxed);
		rc = weir_unlikely(b->parcel != NULL) ? parcel_send(l, b) : line_send_batch(l, b);
		if (!rc) {
			invoke_count(&l->thread->counters.messages, 1);
			continue;
		}
		l->first = b;
		atomic_fetch_add_explicit(&l->thread->v->queued, b->length, memory_order_relaxed);
		if (rc == -EAGAIN)
			return rc;
		return line_lose(l, rc);
	}
	l->last = &l->first;
	if (!l->open)
		set_busy(l, l->owes || l->behind);
	return 0;
}

/* Nothing is in it: its first call found no memory. */
static __attribute__((noinline, cold)) void
free_open(struct line *l)
{
	line_free_batch(l, l->open);
	l->open = NULL;
	l->fast.at = l->fast.check = NULL;
}

int
line_send_open(struct line *l)
{
	int rc;

	if (weir_likely(l->fast.at != l->open->data))
		close_batch(l);
	else
		free_open(l);
	rc = push(l);
	if (rc == -EAGAIN)
		invoke_count(&l->thread->counters.queued, 1);
	return rc;
}

int
line_flush(struct line *l)
{
	int rc = push(l);

	/* without room it stays open for more calls */
	return rc || !l->open ? rc : line_send_open(l);
}

/* Tells the other end which of its batches have run. */
static int
settle(struct line *l)
{
	struct done_args args = {.ask = l->owed};
	struct call c = {.args = &args, .length = sizeof(args), .flags = CALL_LIBRARY};
	int rc;

	c.function = c.number = FUNCTION_DONE;
	rc = call_make(l, &c);
	/* without memory, or beyond all bounds, it is tried again in the next turn */
	l->owes = rc == -ENOMEM || rc == -EAGAIN;
	return rc;
}

unsigned
lines_flush(struct invoke_thread *t)
{
	uint64_t before = atomic_load_explicit(&t->counters.messages, memory_order_relaxed);
	struct line *l, *next;

	for (l = TAILQ_FIRST(&t->busy); l; l = next) {
		next = TAILQ_NEXT(l, in_busy);
		if (l->owes)
			settle(l);
		if (l->open)
			invoke_count(&t->counters.waited, 1);
		line_flush(l);
		if (weir_unlikely(l->behind != NULL) && !l->first)
			line_send_piece(l);
	}
	return (unsigned)(atomic_load_explicit(&t->counters.messages, memory_order_relaxed) -
			  before);
}

bool
lines_close_runs(struct invoke_thread *t)
{
	bool all = true;
	struct line *l;

	TAILQ_FOREACH(l, &t->busy, in_busy)
	{
		line_close_run(l);
		all &= !l->owes;
	}
	return all;
}

int
line_owe(struct invoke_thread *t, struct weir_to to, uint16_t number)
{
	int rc = 0;
	struct line *l = line_get(t, to, &rc);

	if (!l)
		return rc;
	l->owed = number;
	l->owes = true;
	set_busy(l, true);
	return 0;
}
