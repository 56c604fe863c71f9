/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots from engines: messages, and events of connections, listeners and nodes. */
#include "channel_progress.h"
#include "ctrl_slots.h"
#include "listen.h"
#include "model.h"
#include "reconnect.h"
#include "remote.h"
#include "rx_place.h"
#include "rx_queue.h"
#include "segment_progress.h"

#include "base/vec.h"
#include "client/thread.h"
#include "client/wait.h"
#include "ipc/text.h"

#define BUDGET 128u /* slots per call */

/* NULL: not inside the arena. */
static uint8_t *
arena_data(const struct weir *w, weir_place place, uint32_t length)
{
	uint64_t offset = WEIR_PLACE_OFFSET(place);

	if (offset > w->geometry.bytes || length > w->geometry.bytes - offset)
		return NULL;
	return w->arena + offset;
}

uint8_t *
weir_place_data(struct weir_conn *c, uint64_t number, weir_place place, uint32_t length)
{
	if (weir_unlikely(WEIR_PLACE_REGION(place)))
		return weir_posted(c, number, place, length);
	return arena_data(c->worker->w, place, length);
}

/* The place that the slot at the ring's head names. Read once: the slot is shared memory. */
static weir_place
head_place(const struct weir_ring *r)
{
	weir_place place = weir_ring_at(r, r->pos)->place[0];

	atomic_signal_fence(memory_order_seq_cst);
	return place;
}

/* Whether the message at the ring's head, which lies at `place`, can be c's. */
static bool
message_ok(struct weir_conn *c, const struct weir_head *h, weir_place place)
{
	if (h->op == WEIR_OP_INLINE)
		return h->length <= WEIR_INLINE_MAX;
	return weir_place_data(c, weir_message_number(c, h), place, h->length);
}

/* Bulk messages take no credit. */
static uint32_t
message_cost(const struct weir_head *h)
{
	if (h->flags & WEIR_SLOT_BULK || (h->op == WEIR_OP_PLACE && h->length > WEIR_BLOCK_SIZE))
		return 0;
	return weir_cost(h->length);
}

/* Moves the message at the ring's head, which is ok, to c's queue. False: no memory, it stays. */
static bool
enqueue(struct weir_conn *c, const struct weir_head *h, weir_place place)
{
	struct weir_ring *r = &c->pipe->rx;
	struct weir_rx_message *p;

	if (h->op == WEIR_OP_INLINE) {
		p = weir_rx_message_inline(c, h);
		if (!p)
			return false;
		weir_ring_pop(r, weir_slots_inline(h->length));
	} else {
		p = weir_rx_message_new(c->worker, 0);
		if (!p)
			return false;
		p->kind = WEIR_PLACE_REGION(place) ? RX_POSTED : RX_PLACE;
		p->data = weir_place_data(c, weir_message_number(c, h), place, h->length);
		p->length = h->length;
		p->at = place;
		p->pipe = c->pipe;
		weir_ring_pop(r, 1);
	}
	p->vqpn = c->vqpn;
	p->cost = message_cost(h);
	weir_rx_queue_append(c, p);
	return true;
}

int
weir_channel_enqueue(struct weir_conn *c, const struct weir_head *h)
{
	weir_place place = head_place(&c->pipe->rx);

	if (!message_ok(c, h, place)) {
		weir_ring_pop(&c->pipe->rx, 1);
		return -EPROTO;
	}
	return enqueue(c, h, place) ? 0 : -ENOMEM;
}

/* False: the message stays. */
static bool
message(struct weir_channel *ch, const struct weir_head *h, struct weir_conn *want, bool hold)
{
	struct weir_ring *r = &ch->pipe.rx;
	weir_place place = head_place(r);
	bool stale;
	struct weir_conn *c = weir_conn_find(ch->pipe.worker, h->vqpn, &stale);

	if (h->op == WEIR_OP_INLINE
		? h->length > WEIR_INLINE_MAX
		: !WEIR_PLACE_REGION(place) && !arena_data(ch->pipe.worker->w, place, h->length)) {
		weir_ring_pop(r, 1); /* the data plane is mistaken */
		return true;
	}
	/* dropped after the end: a data plane that lives, was given up and sends recovered messages
	 */
	if (!c || c->state == CONN_CLOSING || c->end || c->pipe != &ch->pipe) {
		if (h->op == WEIR_OP_PLACE)
			weir_ctrl_release(ch, place);
		weir_ring_pop(r, h->op == WEIR_OP_PLACE ? 1 : weir_slots_inline(h->length));
		if (c && c->state == CONN_CLOSING && c->pipe == &ch->pipe)
			weir_conn_dropped(c, message_cost(h));
		return true;
	}
	if (!message_ok(c, h, place)) {
		weir_ring_pop(r, 1);
		weir_conn_ended(c, EPROTO);
		return true;
	}
	if ((c == want && !c->queue) || (hold && weir_conn_hold(c, want, false)))
		return false;
	return enqueue(c, h, place);
}

static void
accepted(struct weir_channel *ch, const struct weir_head *h, const struct weir_slot_accept *a)
{
	struct weir_thread *t = ch->pipe.worker;
	struct weir_listener *l;
	struct weir_conn *c;

	LIST_FOREACH(l, &t->listening, in_worker)
	if (l->id == a->listener)
		break;
	c = l ? weir_conn_new(t, ch, h->vqpn, h->length) : NULL;
	if (!c) {
		if (l)
			weir_listener_took(l);
		weir_ctrl_refuse(ch, h->vqpn);
		return;
	}
	if (a->flags & WEIR_ACCEPTED_HELD) {
		c->undecided = true;
	} else {
		weir_conn_enter(c, CONN_OPEN);
		weir_conn_set_send_error(c, 0);
	}
	c->peer_node = a->peer_node;
	c->mtu = a->mtu;
	c->window = weir_segment_window(a->window);
	c->listener = l;
	c->local = a->segment;
	if (c->local) {
		c->pipe = NULL;
		c->segment_id = a->segment;
		c->side = 1;
		c->conn_index = a->conn_index;
		c->peer_vqpn = a->peer_vqpn;
		weir_conn_find_segment(c);
	}
	TAILQ_INSERT_TAIL(&l->conns, c, in_accept);
	weir_listener_report(l);
}

/* A part of the reason why the connection does not open. Without memory it stays unknown. */
static void
note_refusal(struct weir_conn *c, const char *part, size_t length)
{
	if (c->state != CONN_OPENING || !*part)
		return;
	if (!c->refusal)
		c->refusal = calloc(1, WEIR_REFUSAL_MAX);
	if (c->refusal)
		weir_reason_append(c->refusal, part, length);
}

static void
event(struct weir_channel *ch, const struct weir_head *h, const struct weir_slot *s)
{
	struct weir_thread *t = ch->pipe.worker;
	uint32_t status = s->status, i = 0;
	uint16_t node = (uint16_t)s->value;
	bool stale;
	struct weir_conn *c = weir_conn_find(t, h->vqpn, &stale);

	switch (h->op) {
	case WEIR_OP_ACCEPTED:
		accepted(ch, h, &s->accept);
		return;
	case WEIR_OP_NODE:
		/* threads that watch get every change */
		if (atomic_load_explicit(&t->w->watchers, memory_order_relaxed))
			return;
		while (i < t->node_count && t->nodes[i].node != node)
			i++;
		if (VEC_RESERVE(t->nodes, t->node_room, i + 1))
			return;
		if (i == t->node_count)
			t->node_count++;
		t->nodes[i] = (struct weir_node_event){node, -(int32_t)status};
		return;
	}
	if (!c)
		return;
	switch (h->op) {
	case WEIR_OP_OPENED:
		if (status) {
			/* it never was open: no CLOSE is owed, and no other end will come */
			c->never_opened = c->state == CONN_OPENING;
			note_refusal(c, s->reason, sizeof(s->reason));
			weir_rx_queue_clear(c); /* a local peer may have written already */
			weir_conn_forget(c);	/* its vQPN may be another's by now */
			weir_conn_ended(c, status);
		} else if (c->state == CONN_OPENING) {
			weir_conn_enter(c, CONN_OPEN);
			weir_conn_set_send_error(c, 0);
			c->undecided = false;
			c->peer_node = (uint16_t)s->extra;
			c->mtu = c->remote ? 0 : (uint16_t)h->length;
			c->transfers = c->remote && s->place[2];
			/* pairs with the acquire in weir_remote_info() */
			atomic_store_explicit(&c->remote_bytes, s->value, memory_order_release);
			if (c->posts && !c->local)
				weir_ctrl_add(c, CTRL_POST);
			if (weir_unlikely(c->reconnect_state))
				weir_reconnect_opened(c);
			weir_conn_report(c, PENDING_OPENED);
		}
		break;
	case WEIR_OP_REASON:
		note_refusal(c, (const char *)s->data, sizeof(s->data));
		break;
	case WEIR_OP_END:
		if (c->state == CONN_OPEN && !c->local)
			weir_conn_peer_shut(c);
		break;
	case WEIR_OP_CLOSED:
		if (c->local && c->state != CONN_CLOSING && c->state != CONN_ENDED)
			weir_segment_finish(c, status);
		else
			weir_conn_ended(c, status);
		break;
	case WEIR_OP_DONE:
		weir_conn_completed(c, s->value);
		break;
	case WEIR_OP_WRITABLE:
		c->wanting = false;
		weir_ctrl_want_answered(c);
		if (c->blocked && !c->want_heap) {
			c->blocked = false;
			weir_conn_report(c, PENDING_WRITABLE);
		}
		break;
	}
}

/* False: nothing is there, or it stays. */
static inline bool
one(struct weir_channel *ch, struct weir_conn *want, bool hold)
{
	struct weir_ring *r = &ch->pipe.rx;
	struct weir_slot *s = weir_ring_peek(r);
	struct weir_head h;

	if (!s)
		return false;
	h = weir_head_copy(s);
	if (h.op == WEIR_OP_INLINE || h.op == WEIR_OP_PLACE)
		return message(ch, &h, want, hold);
	if (weir_unlikely(h.op == WEIR_OP_NOTICE) && !weir_notice_came(ch, h.vqpn, s->data))
		return false;
	if (h.op == WEIR_OP_ACCEPTED && weir_ctrl_may_refuse(ch))
		return false;
	event(ch, &h, s);
	weir_ring_pop(r, 1);
	return true;
}

bool
weir_channel_step(struct weir_channel *ch)
{
	if (!one(ch, NULL, false))
		return false;
	ch->pipe.empty = 0;
	return true;
}

unsigned
weir_channel_progress(struct weir_channel *ch, struct weir_conn *want)
{
	struct weir_ring *r = &ch->pipe.rx;
	/* before a sleep all that was published so far; the bell rings for what comes later */
	unsigned n = 0, budget = ch->pipe.worker->armed ? r->mask + 1 : BUDGET;

	weir_assert(weir_worker_locked(ch->pipe.worker));
	while (n < budget && one(ch, want, !ch->pipe.worker->armed))
		n++;
	ch->pipe.empty = n ? 0 : ch->pipe.empty + 1;
	if (ch->pipe.empty == 1 && r->pos != r->told)
		weir_ring_publish_tail(r);
	else if (ch->pipe.empty == 64)
		weir_ctrl_report(ch);
	if (!TAILQ_EMPTY(&ch->control) || weir_unlikely(ch->refused_count))
		weir_ctrl_flush(ch);
	if (weir_unlikely(!TAILQ_EMPTY(&ch->needs_room)))
		weir_ctrl_report_room(ch);
	return n;
}

void
weir_channel_end_life(struct weir_channel *ch, uint32_t vqpn)
{
	struct weir_thread *t = ch->pipe.worker;

	if (weir_likely(!weir_conn_vqpn_taken(t, vqpn)))
		return;
	while (weir_conn_vqpn_taken(t, vqpn) && one(ch, NULL, false))
		ch->pipe.empty = 0;
	weir_thread_wake(t);
}
