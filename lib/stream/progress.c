/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress of a worker, made by each call besides its own work. */
#include "channel_progress.h"
#include "conn.h"
#include "ctrl_slots.h"
#include "listen.h"
#include "nodes.h"
#include "partial_send.h"
#include "reconnect.h"
#include "remote.h"
#include "reserve.h"
#include "rx_queue.h"
#include "segment_progress.h"
#include "send.h"

#include "client/channel.h"
#include "client/progress.h"
#include "client/wait.h"

#include <stdlib.h>

#define LINGER_NS 5000000000u
#define UNBLOCK_MAX 8u

/*
 * Reports WRITABLE to some connections that got -EAGAIN: local ones, and those that wait for send
 * blocks. To all of them before a sleep: room that came before the flags were up rings no doorbell.
 */
static void
unblock(struct weir_thread *t)
{
	struct weir_conn *c, *first = NULL;

	for (unsigned i = 0; i < UNBLOCK_MAX || t->armed; i++) {
		c = TAILQ_FIRST(&t->blocked);
		if (!c || c == first)
			return;
		weir_assert(c->on_blocked && c->worker == t);
		TAILQ_REMOVE(&t->blocked, c, in_blocked);
		if (!weir_send_possible(c)) {
			TAILQ_INSERT_TAIL(&t->blocked, c, in_blocked);
			first = first ? first : c;
			continue;
		}
		c->on_blocked = c->want_heap = false;
		if (c->blocked)
			weir_conn_report(c, PENDING_WRITABLE);
		c->blocked = false;
	}
}

unsigned
weir_progress(struct weir_thread *t, struct weir_conn *want)
{
	struct weir_channel *ch;
	struct weir_segment *seg;
	unsigned n = 0;

	weir_assert(weir_worker_locked(t));
	SLIST_FOREACH(ch, &t->channels, next)
	n += weir_channel_progress(ch, want);
	LIST_FOREACH(seg, &t->segments, next)
	n += weir_segment_progress(seg, want);
	if (weir_unlikely(!TAILQ_EMPTY(&t->tails)))
		n += weir_partials_push(t);
	if (weir_unlikely(!TAILQ_EMPTY(&t->blocked)))
		unblock(t);
	t->turns++;
	if (n && weir_unlikely(!LIST_EMPTY(&t->waiters)))
		weir_thread_wake(t);
	return n;
}

static void
want_room(struct weir_conn *c)
{
	if (c->pipe && c->pipe->local)
		atomic_store_explicit(&WEIR_SEGMENT_OF(c->pipe)->out->wanted, 1,
				      memory_order_relaxed);
}

void
weir_progress_finish(struct weir_thread *t)
{
	struct weir_channel *ch;
	struct weir_segment *seg;
	struct weir_conn *c;

	weir_assert(weir_worker_locked(t));
	t->report_pending = false;
	SLIST_FOREACH(ch, &t->channels, next)
	{
		weir_ctrl_report(ch);
		t->report_pending |= weir_ctrl_pending(ch);
	}
	LIST_FOREACH(seg, &t->segments, next)
	{
		weir_segment_report(seg);
		t->report_pending |= seg->endings || seg->unknown_since;
	}
	TAILQ_FOREACH(c, &t->blocked, in_blocked)
	want_room(c);
	TAILQ_FOREACH(c, &t->tails, in_tails)
	want_room(c);
}

void
weir_progress_leave(struct weir_thread *t)
{
	if (weir_likely(!t->armed))
		return;
	weir_progress_finish(t);
	if (t->report_pending)
		weir_thread_wake(t);
}

/* ---- the end ---- */

static void
close_open(struct weir_conn *c)
{
	if (c->state == CONN_CLOSING)
		return;
	if (c->listener) {
		TAILQ_REMOVE(&c->listener->conns, c, in_accept);
		c->listener = NULL;
	}
	weir_conn_close(c);
}

static void
close_all(struct weir_thread *t)
{
	weir_lock(t);
	weir_conns_each(t, close_open);
	weir_progress_finish(t);
	weir_unlock(t);
}

static void
count_closing(struct weir_thread *t)
{
	weir_lock(t);
	weir_progress(t, NULL);
	t->w->lingering += t->closing;
	weir_unlock(t);
}

void
weir_linger(struct weir *w)
{
	uint64_t end = weir_clock() + LINGER_NS;

	if (weir_state(w) != WEIR_UP)
		return;
	weir_threads_each(w, close_all);
	do {
		w->lingering = 0;
		weir_threads_each(w, count_closing);
		if (w->lingering)
			weir_sleep(100000);
	} while (w->lingering && weir_state(w) == WEIR_UP && weir_clock() < end);
}

void
weir_thread_clear(struct weir_thread *t)
{
	struct weir_reservation *r;
	struct weir_listener *l;
	struct weir_rx_message *p;

	weir_node_table_free(t);
	weir_reconnects_free(t);
	weir_lock(t);
	while ((l = LIST_FIRST(&t->listening)))
		weir_listener_free(l);
	weir_conns_each(t, weir_conn_free);
	while ((p = LIST_FIRST(&t->loans))) {
		LIST_REMOVE(p, in_loans);
		if (p->kind == RX_BUFFER)
			weir_buffer_give(t->w, p->data);
		if (p->class == WEIR_SPARE_CLASSES)
			weir_buffer_give(t->w, p);
		else
			free(p);
	}
	for (unsigned i = 0; i < WEIR_SPARE_CLASSES; i++) {
		while ((p = t->spare[i])) {
			t->spare[i] = p->next;
			free(p);
		}
	}
	while ((r = LIST_FIRST(&t->spare_reservations))) {
		LIST_REMOVE(r, next);
		free(r);
	}
	weir_notices_free(t);
	weir_unlock(t);
}
