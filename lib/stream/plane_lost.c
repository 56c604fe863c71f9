/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of the data plane, on a worker. Messages that lie whole in its rings, or that an engine
 * kept in the session's memory for want of room in a ring, are taken in, once there is memory for
 * them; then its connections end with weir_loss(). A local peer may have written until it noticed
 * the end itself: it says so in the segment, and messages that it wrote before count as delivered,
 * so this waits for it. A peer that does not say so in time is told that nothing is taken in any
 * more.
 */
#include "channel_progress.h"
#include "conn.h"
#include "model.h"
#include "plane_lost.h"
#include "rx_queue.h"
#include "segment_progress.h"

#include "client/channel.h"
#include "client/membarrier.h"
#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"

#define AWAIT_NS 30000000u /* -ENODEV comes within 100 ms */

/* ---- messages that an engine kept ---- */

struct chain {
	uint64_t block; /* from the arena's start */
	uint32_t from, left;
	bool starved; /* there was no memory */
};

/* NULL: the chain has ended, or leaves the receive memory. */
static const struct weir_slot *
next_slot(const struct weir *w, struct chain *at)
{
	uint64_t first = weir_arena_recv(&w->geometry) / WEIR_BLOCK_SIZE;
	const struct weir_slot *block, *slot;

	if (!at->left || at->block < first || at->block - first >= w->geometry.recv_blocks ||
	    at->from >= WEIR_SPILL_SLOTS)
		return NULL;
	block = (const struct weir_slot *)(const void *)(w->arena + at->block * WEIR_BLOCK_SIZE);
	slot = &block[at->from];
	at->left--;
	if (++at->from == WEIR_SPILL_SLOTS) {
		at->from = 0;
		at->block = atomic_load_explicit(&block->seq, memory_order_relaxed);
	}
	return slot;
}

/* The next message of the chain. NULL: no memory, or no whole message. */
static struct weir_rx_message *
next_message(struct weir_channel *ch, struct chain *at, struct weir_head *h)
{
	struct weir_thread *t = ch->pipe.worker;
	const struct weir_slot *slot = next_slot(t->w, at);
	struct weir_rx_message *p;
	const uint8_t *from;
	uint32_t n = WEIR_SLOT_HEAD_BYTES, done = 0;

	/* notices have no numbers that would tell a repeated one: those are lost */
	while (slot && weir_head_copy(slot).op == WEIR_OP_NOTICE)
		slot = next_slot(t->w, at);
	if (!slot)
		return NULL;
	*h = weir_head_copy(slot);
	if (h->op != WEIR_OP_PLACE && (h->op != WEIR_OP_INLINE || h->length > WEIR_INLINE_MAX))
		return NULL;
	p = weir_rx_message_new(t, h->op == WEIR_OP_INLINE ? h->length : 0);
	if (!p) {
		at->starved = true;
		return NULL;
	}
	p->vqpn = h->vqpn;
	p->length = h->length;
	if (h->op == WEIR_OP_PLACE) {
		p->at = slot->place[0];
		return p;
	}
	for (from = slot->data;; from = ((const struct weir_slot_more *)(const void *)slot)->data) {
		if (n > h->length - done)
			n = h->length - done;
		memcpy(p->data + done, from, n);
		done += n;
		if (done == h->length)
			return p;
		n = WEIR_SLOT_MORE_BYTES;
		slot = next_slot(t->w, at);
		if (!slot) {
			weir_rx_message_free(p);
			return NULL;
		}
	}
}

/*
 * Appends the messages that a dead data plane kept to the queues of their connections. False: there
 * is no memory for some; called again, it appends the rest.
 */
static bool
recover(struct weir_channel *ch)
{
	struct weir_thread *t = ch->pipe.worker;
	const struct weir_channel_head *head =
	    (const void *)(t->w->arena + weir_arena_channel(&t->w->geometry, ch->index));
	struct weir_rx_message *p;
	struct weir_head h;
	struct chain at;
	uint64_t spilled;

	/* a data plane that lives and has ended this session goes on for a while */
	if (weir_loss(t->w) != -ENODEV)
		return true;
	/* pairs with the release in show() in dataplane/engine/rx/spill.c */
	spilled = atomic_load_explicit(&head->spilled, memory_order_acquire);
	at = (struct chain){spilled >> 40, spilled >> 32 & 0xff, (uint32_t)spilled, false};
	while ((p = next_message(ch, &at, &h))) {
		bool stale;
		struct weir_conn *c = weir_conn_find(t, h.vqpn, &stale);

		if (!c || c->state == CONN_CLOSING || c->end || c->pipe != &ch->pipe) {
			weir_rx_message_free(p);
			continue;
		}
		if (!c->recover_next) {
			c->recover_next = c->received + 1;
			for (const struct weir_rx_message *q = c->queue; q; q = q->next)
				c->recover_next++;
		}
		/* any other message than the next was in the ring, too, or follows a lost one */
		if (h.order != (uint16_t)(c->recover_next - 1)) {
			weir_rx_message_free(p);
			continue;
		}
		if (h.op == WEIR_OP_PLACE) {
			p->data = weir_place_data(c, weir_message_number(c, &h), p->at, h.length);
			if (!p->data) {
				weir_rx_message_free(p);
				continue;
			}
			p->kind = WEIR_PLACE_REGION(p->at) ? RX_POSTED : RX_PLACE;
			p->pipe = c->pipe;
		}
		weir_rx_queue_append(c, p);
		c->recover_next++;
	}
	return !at.starved;
}

/* ---- the end of connections ---- */

static bool
is_open(const struct weir_conn *c)
{
	return weir_conn_is_open(c) || c->state == CONN_OPENING;
}

/* It may still receive. */
static void
end_local(struct weir_conn *c)
{
	if (!c->local || !c->pipe || !is_open(c))
		return;
	weir_conn_set_send_error(c, weir_loss(c->worker->w));
	if (c->blocked)
		weir_conn_report(c, PENDING_WRITABLE);
	c->blocked = false;
}

static void
end_one(struct weir_conn *c)
{
	c->never_opened = true; /* no CLOSE is owed any more */
	if (c->state == CONN_CLOSING) {
		c->worker->closing--; /* counted when it was closed */
		weir_conn_free(c);
		return;
	}
	if (c->local && c->pipe)
		end_local(c);
	else if (is_open(c))
		weir_conn_ended(c, (uint32_t)-weir_loss(c->worker->w));
}

void
weir_thread_plane_lost(struct weir_thread *t)
{
	struct weir_channel *ch;
	struct weir_segment *seg;

	if (t->recovered)
		return;
	weir_bias_lock_slow(&t->lock);
	t->recovered = true;
	SLIST_FOREACH(ch, &t->channels, next)
	{
		/* also a message that would wait in the ring to be received from there */
		while (weir_channel_step(ch))
			;
		/* without memory a slot stays, before others */
		if (weir_ring_peek(&ch->pipe.rx) || !recover(ch))
			t->recovered = false;
	}
	weir_conns_each(t, t->recovered ? end_one : end_local);
	if (!t->recovered)
		t->w->chores = true;
	LIST_FOREACH(seg, &t->segments, next)
	/* pairs with the acquire in weir_thread_end_segments() of the peer */
	atomic_store_explicit(&seg->out->over, 1, memory_order_release);
	weir_thread_wake(t);
	weir_bias_unlock_passing(&t->lock);
}

static bool
any_open(const struct weir_segment *seg)
{
	const struct weir_conn *c;

	TAILQ_FOREACH(c, &seg->conns, in_segment)
	if (is_open(c))
		return true;
	return false;
}

void
weir_thread_end_segments(struct weir_thread *t)
{
	uint32_t status = (uint32_t)-weir_loss(t->w);
	struct weir_conn *c, *next;
	struct weir_segment *seg;

	weir_bias_lock_slow(&t->lock);
	if (t->w->late && !LIST_EMPTY(&t->segments)) {
		LIST_FOREACH(seg, &t->segments, next)
		{
			seg->left = true;
			atomic_store_explicit(seg->pipe.rx_sleeping, WEIR_SEGMENT_LEFT,
					      memory_order_relaxed);
		}
		/* pairs with weir_pipe_published(): a peer that has not seen LEFT has published */
		weir_barrier_global();
	}
	LIST_FOREACH(seg, &t->segments, next)
	{
		if (!any_open(seg))
			continue;
		/* pairs with the release in weir_thread_plane_lost() of the peer */
		if (t->w->late || atomic_load_explicit(&seg->in->over, memory_order_acquire)) {
			for (c = TAILQ_FIRST(&seg->conns); c; c = next) {
				next = TAILQ_NEXT(c, in_segment);
				if (is_open(c) && !c->ending)
					weir_segment_finish(c, status);
				/* there may be no memory to take all in */
				if (is_open(c) && t->w->late)
					weir_conn_ended(c, status);
			}
		}
		if (any_open(seg))
			t->w->chores = true;
	}
	weir_thread_wake(t);
	weir_bias_unlock_passing(&t->lock);
}

bool
weir_conn_await_end(struct weir_conn *c)
{
	uint64_t end = weir_clock() + AWAIT_NS;
	bool open = true;

	while (c->worker->w->watched && open && weir_clock() < end) {
		weir_lock(c->worker);
		open = is_open(c);
		weir_unlock(c->worker);
		if (open)
			weir_sleep(100000);
	}
	return !open;
}
