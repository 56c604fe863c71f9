/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that make and run calls: those of the program that have entered, and the pool. */
#include "batch.h"
#include "line.h"

#include "client/likely.h"
#include "client/reason.h"
#include "client/session.h"
#include "client/wait.h"

#include <errno.h>
#include <stdlib.h>

#define LEAVE_MS 10000

__thread struct thread_latest thread_last;

/* ---- who calls ---- */

static struct invoke_thread *
find(const struct weir_invoker *v)
{
	uint32_t pool = atomic_load_explicit(&v->pool_used, memory_order_acquire);
	pthread_t self = pthread_self();

	for (uint32_t i = 0; i < v->o.threads; i++)
		if (atomic_load_explicit(&v->threads[i].entered, memory_order_relaxed) == self)
			return &v->threads[i];
	for (uint32_t i = 0; i < pool; i++)
		if (atomic_load_explicit(&v->pool[i].entered, memory_order_relaxed) == self)
			return &v->pool[i];
	return NULL;
}

struct invoke_thread *
thread_find(const struct weir_invoker *v)
{
	struct invoke_thread *t = find(v);

	if (t)
		thread_last = (struct thread_latest){v->serial, t};
	return t;
}

int
thread_foreign(const struct weir_invoker *v)
{
	if (weir_state(v->w) == WEIR_FORKED)
		return weir_gone(v->w);
	return weir_fail(-EPERM, "the thread has not entered; call weir_invoker_enter()");
}

int
thread_waits_inside(void)
{
	return weir_fail(-EDEADLK, "called in a function; let it return first");
}

int
thread_of_pool(void)
{
	return weir_fail(-EPERM,
			 "a thread of the pool has no number that results could go to; make "
			 "the call in a thread that has entered");
}

int
weir_invoker_self(const struct weir_invoker *v, struct weir_to *self)
{
	const struct invoke_thread *t = thread_own(v);

	if (!t || weir_state(v->w) == WEIR_FORKED)
		return thread_foreign(v);
	if (t->index == WEIR_THREAD_ANY)
		return thread_of_pool();
	*self = (struct weir_to){v->self, t->index};
	return 0;
}

void
thread_wake(struct invoke_thread *t)
{
	if (t->index != WEIR_THREAD_ANY && t->v->m)
		message_wake(t->v->m, t->index);
}

/* ---- turns ---- */

/* The object of the handler thread that calls. */
static struct invoke_thread *
pool_own(struct weir_invoker *v)
{
	struct invoke_thread *t = thread_own(v);
	uint32_t i;

	if (weir_likely(t != NULL))
		return t;
	i = atomic_fetch_add_explicit(&v->pool_used, 1, memory_order_acq_rel);
	weir_assert(i < (v->o.pool_threads ? v->o.pool_threads : 1));
	t = &v->pool[i];
	atomic_store_explicit(&t->entered, pthread_self(), memory_order_release);
	return thread_own(v);
}

/* Whether there is such a thread, and its calls to this receiver come in messages. */
static bool
is_known(const struct weir_invoker *v, struct weir_to thread, uint32_t receiver)
{
	const struct invoke_process *p = &v->processes[thread.process];

	return (thread.thread == WEIR_THREAD_ANY || thread.thread < p->threads) &&
	       (thread.process != v->self || receiver == MESSAGE_HANDLERS);
}

/* The line from there ends, and the line to there: what that thread owes may have been on the
 * first. */
static void
refuse(struct invoke_thread *t, struct weir_to from)
{
	struct line *l = line_find(t, from);

	if (!l)
		return;
	line_has_lost(l);
	line_lose(l, -EHOSTUNREACH);
}

bool
thread_take(struct weir_messenger *m, const struct message_taken *taken, void *user)
{
	struct weir_invoker *v = user;
	struct origin origin = {.from = {taken->process, taken->tag.value}, .reply = &taken->reply};
	struct invoke_thread *t;

	t = taken->receiver == MESSAGE_HANDLERS ? pool_own(v) : &v->threads[taken->receiver];
	if (weir_unlikely(taken->tag.kind == MESSAGE_BARE)) {
		if (payload_arrived(t, taken, &origin.from))
			return true;
	} else if (weir_unlikely(!is_known(v, origin.from, taken->receiver))) {
		return false;
	} else if (weir_likely(
		       taken->tag.kind == KIND_CALLS &&
		       (taken->tag.flags ? taken->tag.flags == TAG_ASKS : !taken->tag.type) &&
		       run_batch(t, &origin, taken->data, taken->length) &&
		       (!taken->tag.flags || !line_owe(t, origin.from, taken->tag.type)))) {
		return true;
	}
	refuse(t, origin.from);
	return false;
}

unsigned
thread_work(struct weir_messenger *m, unsigned most, void *user)
{
	struct weir_invoker *v = user;
	struct invoke_thread *t = thread_own(v);
	bool broken;
	unsigned n;

	if (!t)
		return 0;
	n = weir_unlikely(inbox_has(t)) ? inbox_run(t, most) : 0;
	/* lines_ended() has the acquire */
	if (weir_unlikely(atomic_load_explicit(&t->lane_ended, memory_order_relaxed)))
		n += lines_ended(t);
	if (t->connecting && t->connected == -EAGAIN) {
		/* a connection that was refused has ended: another one would be, too */
		t->connected = t->connecting->status ? t->connecting->status
						     : message_lane_connect(t->connecting->lane, 0);
		n += t->connected != -EAGAIN;
	}
	if (t->local_asks)
		inbox_settle(t);
	if (!TAILQ_EMPTY(&t->busy))
		n += lines_flush(t);
	broken = atomic_load_explicit(&t->broken, memory_order_relaxed);
	if (t->ended || weir_unlikely(t->futures_lost || broken || t->gets))
		message_begin(m);
	if (t->ended)
		n += asks_count(t);
	if (weir_unlikely(t->futures_lost))
		n += futures_end_lost(t);
	if (weir_unlikely(broken))
		n += payloads_drop(t);
	if (weir_unlikely(t->gets != NULL))
		n += gets_continue(t);
	turn_close(t);
	return n + meeting_has_news(t) +
	       (t->index != WEIR_THREAD_ANY &&
		atomic_load_explicit(&v->news, memory_order_relaxed));
}

/* Tells the program of processes that were lost. */
static bool
tell(struct weir_invoker *v)
{
	bool any = false;

	if (weir_likely(!atomic_load_explicit(&v->news, memory_order_relaxed)))
		return false;
	for (uint32_t i = 0; i < v->process_count; i++) {
		struct invoke_process *p = &v->processes[i];

		/* pairs with the release in link_changed() */
		if (!atomic_load_explicit(&p->unheard, memory_order_relaxed) ||
		    !atomic_exchange_explicit(&p->unheard, false, memory_order_acquire))
			continue;
		atomic_fetch_sub_explicit(&v->news, 1, memory_order_relaxed);
		any = true;
		if (v->o.lost)
			v->o.lost(v, i, atomic_load_explicit(&p->status, memory_order_relaxed),
				  v->o.user);
	}
	return any;
}

void
thread_falls_asleep(struct invoke_thread *t)
{
	if (t->local_asks)
		atomic_store_explicit(&t->wants_returned, true, memory_order_seq_cst);
	/* pairs with the loads in inbox_put() and give_back(): one of both sees the other's */
	atomic_exchange_explicit(&t->asleep, true, memory_order_seq_cst);
}

void
thread_is_awake(struct invoke_thread *t)
{
	atomic_store_explicit(&t->asleep, false, memory_order_relaxed);
}

int
thread_turn(struct invoke_thread *t, unsigned max, int timeout_ms)
{
	int rc;

	weir_assert(!thread_is_inside(t));
	if (timeout_ms)
		thread_falls_asleep(t);
	rc = weir_messenger_progress(t->v->m, max, timeout_ms);
	thread_is_awake(t);
	return tell(t->v) && !rc ? 1 : rc;
}

int
weir_invoker_progress(struct weir_invoker *v, unsigned max, int timeout_ms)
{
	struct invoke_thread *t = thread_own(v);
	uint64_t end, before, run, told;
	int rc, left = timeout_ms;

	if (weir_unlikely(!t || weir_state(v->w) == WEIR_FORKED))
		return thread_foreign(v);
	if (weir_unlikely(thread_is_inside(t)))
		return thread_waits_inside();
	before = atomic_load_explicit(&t->counters.run, memory_order_relaxed);
	told = t->told;
	end = timeout_ms > 0 ? weir_time_end(timeout_ms) : 0;
	do {
		bool heard = atomic_load_explicit(&v->news, memory_order_relaxed);

		rc = thread_turn(t, max, left);
		run = atomic_load_explicit(&t->counters.run, memory_order_relaxed) - before;
		if (run || rc < 0 || heard || t->told != told)
			break;
		left = timeout_ms > 0 ? weir_time_left(end) : timeout_ms;
	} while (left);
	if (run)
		return run < INT32_MAX ? (int)run : INT32_MAX;
	return rc < 0 && rc != -EAGAIN ? rc : 0;
}

int
weir_invoker_flush(struct weir_invoker *v)
{
	struct invoke_thread *t = thread_own(v);

	if (!t || weir_state(v->w) == WEIR_FORKED)
		return thread_foreign(v);
	if (weir_state(v->w) != WEIR_UP)
		return weir_gone(v->w);
	lines_flush(t);
	return 0;
}

/* ---- entering and leaving ---- */

int
weir_invoker_enter(struct weir_invoker *v, uint32_t index)
{
	struct invoke_thread *t = thread_own(v);
	int rc;

	if (weir_state(v->w) == WEIR_FORKED)
		return weir_gone(v->w);
	if (t && (thread_is_inside(t) || t->index == WEIR_THREAD_ANY))
		return thread_waits_inside();
	if (t)
		return weir_fail(-EALREADY, "the thread has entered as %u; let it leave first",
				 t->index);
	if (index >= v->o.threads)
		return weir_fail(-EINVAL, "thread %u of %u; give a number below that", index,
				 v->o.threads);
	t = &v->threads[index];
	/* pairs with the release in depart() */
	if (atomic_exchange_explicit(&t->taken, true, memory_order_acquire))
		return weir_fail(-EBUSY, "another thread has entered as %u; let it leave first",
				 index);
	rc = message_enter(v->m, index);
	if (rc) {
		atomic_store_explicit(&t->taken, false, memory_order_release);
		return rc;
	}
	t->shown = NULL;
	pthread_setspecific(v->key, t);
	meeting_enter(t);
	/* pairs with the acquire in inbox_put() */
	atomic_store_explicit(&t->entered, pthread_self(), memory_order_release);
	return 0;
}

void
thread_drop(struct invoke_thread *t)
{
	uint64_t dropped;

	gets_drop(t);
	lines_drop(t);
	asks_count(t);
	futures_end_lost(t);
	futures_end_all(t, -ECANCELED);
	sync_names_drop(t);
	dropped = inbox_drop(t);
	invoke_count(&t->counters.dropped, dropped);
	if (dropped)
		atomic_fetch_add_explicit(&t->v->lost, 1, memory_order_relaxed);
}

void
thread_free(struct invoke_thread *t)
{
	struct batch *b;

	payloads_drop(t);
	inbox_settle(t);
	/* payloads of a thread that has left */
	asks_count(t);
	futures_end_lost(t);
	lines_free(t);
	asks_free(t);
	futures_free(t);
	while ((b = t->spare)) {
		t->spare = b->next;
		free(b);
	}
}

/* The calling thread is nobody any more. */
static void
forget(struct invoke_thread *t)
{
	/* pairs with the load behind the push in inbox_put() */
	atomic_store_explicit(&t->entered, 0, memory_order_seq_cst);
	meeting_leave(t);
	thread_last.serial = 0; /* functions of the program that learn of the end make no calls */
	thread_drop(t);
}

/* Nothing comes to it any more: another one may enter in its place. */
static void
depart(struct invoke_thread *t)
{
	message_leave(t->v->m);
	payloads_drop(t);
	/* pairs with the acquire in weir_invoker_enter() */
	atomic_store_explicit(&t->taken, false, memory_order_release);
}

void
thread_ended(void *thread)
{
	struct invoke_thread *t = thread;

	if (weir_state(t->v->w) == WEIR_FORKED)
		return;
	forget(t);
	depart(t);
}

int
weir_invoker_leave(struct weir_invoker *v)
{
	struct invoke_thread *t = thread_own(v);
	uint64_t end;
	int rc = 0, left;

	if (!t || weir_state(v->w) == WEIR_FORKED)
		return thread_foreign(v);
	if (thread_is_inside(t) || t->index == WEIR_THREAD_ANY)
		return thread_waits_inside();
	end = weir_time_end(LEAVE_MS);
	lines_flush(t);
	while ((!TAILQ_EMPTY(&t->busy) || t->gets) && rc >= 0 && (left = weir_time_left(end)))
		rc = thread_turn(t, 0, left);
	rc =
	    TAILQ_EMPTY(&t->busy) && !t->gets
		? 0
		: weir_fail(-EAGAIN, "calls of the thread found no room for %u s; they are dropped",
			    LEAVE_MS / 1000);
	forget(t);
	pthread_setspecific(v->key, NULL);
	depart(t);
	return rc;
}
