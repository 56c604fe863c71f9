/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The send queue. Programs with connections whose first message lacks only room in the ring take
 * turns, and the connections of a program among each other (deficit round robin in lines).
 */
#include "answer.h"
#include "batch.h"
#include "cell.h"
#include "channel.h"
#include "conn.h"
#include "credit.h"
#include "ctrl_line.h"
#include "datagram.h"
#include "link.h"
#include "lock.h"
#include "base/list.h"
#include "region.h"
#include "remote.h"
#include "rndv.h"
#include "scheduler.h"
#include "send_queue.h"
#include "session.h"
#include "slot_head.h"
#include "state.h"

enum { WEIGHT_LINES = 13 }; /* lines per unit of weight and round of a link */

struct pend *
pend_take(struct session *s)
{
	struct pend *p = s->pool_free;

	weir_assert(s->pool_used < s->pool_size);
	weir_assert(p || s->pool_fresh < s->pool_size);
	if (p)
		s->pool_free = p->next;
	else
		p = &s->pool[s->pool_fresh++];
	s->pool_used++;
	p->next = NULL;
	p->region = 0;
	return p;
}

void
pend_give(struct session *s, struct pend *p)
{
	weir_assert(s->pool_used > 0);
	weir_assert(p >= s->pool && p < s->pool + s->pool_size);
	if (UNLIKELY(p->region))
		region_drop(s, p->region);
	p->next = s->pool_free;
	s->pool_free = p;
	s->pool_used--;
}

bool
pend_message(struct engine *e, struct conn *c, struct channel *ch, struct head h, weir_place place,
	     const struct weir_slot *checked)
{
	uint32_t n = message_slots(h.op, h.length);
	bool first = !c->pend_first;
	struct session *s = c->session;
	struct pend *p;

	if (s->pool_used + n > s->pool_size)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		p = pend_take(s);
		memcpy(&p->slot, !i && checked ? checked : weir_ring_at(&ch->tx, ch->tx.pos + i),
		       WEIR_SLOT_SIZE);
		weir_assert(!c->pend_first || c->pend_last);
		if (c->pend_first)
			c->pend_last->next = p;
		else
			c->pend_first = p;
		c->pend_last = p;
		if (i)
			continue;
		head_store(&p->slot, 0, h);
		p->conn = c;
		p->number = c->taken;
		p->state = h.flags & WEIR_SLOT_BULK ? PEND_BULK : PEND_MESSAGE;
		if (h.op == WEIR_OP_TRANSFER)
			p->state = PEND_TRANSFER;
		p->written = p->in_flight = 0;
		p->fetched = false; /* nor paid */
		p->answer = weir_op_is_cell(h.op) ? cell_answer_bytes(&p->slot) : 0;
		if (h.op == WEIR_OP_PLACE || h.op == WEIR_OP_TRANSFER) {
			p->slot.place[0] = place;
			p->region = WEIR_PLACE_REGION(place);
			if (p->region)
				region_keep(s, p->region);
		}
		if (p->state == PEND_MESSAGE)
			c->pend_cost += message_cost(&p->slot);
		else if (p->state == PEND_BULK && !c->rts_next)
			c->rts_next = p;
	}
	c->fast = false;
	if (first || c->rts_next || h.op == WEIR_OP_TRANSFER)
		conn_advance(e, c);
	return true;
}

bool
conn_ready(const struct conn *c)
{
	const struct pend *p = c->pend_first;

	if (!p || !conn_is_open(c) || c->ctrl_lines & CTRL_ACCEPT)
		return false;
	if (c->kind == CONN_MEMORY && p->answer && !p->paid)
		return false;
	if (p->state == PEND_MESSAGE)
		return c->granted - c->spent >= message_cost(&p->slot);
	return p->state == PEND_WRITTEN && c->kind != CONN_MEMORY;
}

void
conn_activate(struct engine *e, struct conn *c)
{
	if (c->link && !list_linked(&c->active))
		queue_join(e, queue_of(c->session, c->link, RING), &c->active);
}

void
conn_advance(struct engine *e, struct conn *c)
{
	if (UNLIKELY(c->kind == CONN_MEMORY))
		transfers_advance(e, c);
	if (!c->pend_first) {
		conn_refresh(c);
		credit_answer_want(e, c);
		conn_try_finish(e, c);
		return;
	}
	if (!c->link || !conn_is_open(c))
		return;
	if (c->rts_next)
		bulk_rejoin(c);
	if (c->rts_next && c->asked_count < RTS_MAX)
		ctrl_line_due(e, c, CTRL_RTS);
	if (c->kind == CONN_MEMORY)
		answer_pay_first(e, c);
	if (conn_ready(c))
		conn_activate(e, c);
	else
		credit_stalled(e, c);
}

void
pend_give_first(struct session *s, struct conn *c)
{
	struct pend *p = c->pend_first;

	c->pend_first = p->next;
	pend_give(s, p);
}

void
asked_drop_first(struct conn *c)
{
	memmove(c->cold->asked, c->cold->asked + 1, --c->asked_count * sizeof(c->cold->asked[0]));
}

void
pend_get_inline(const struct pend *p, uint8_t *to, uint32_t length)
{
	const uint8_t *from = p->slot.data;
	uint32_t part = WEIR_SLOT_HEAD_BYTES;

	for (;;) {
		part = length < part ? length : part;
		memcpy(to, from, part);
		to += part;
		length -= part;
		if (!length)
			return;
		p = p->next;
		from = ((const struct weir_slot_more *)(const void *)&p->slot)->data;
		part = WEIR_SLOT_MORE_BYTES;
	}
}

/* Sends the first message. False: the frame, or the NIC's queue for datagrams, has no room. */
static bool
send_first(struct engine *e, struct peer_link *l, struct conn *c, uint32_t lines)
{
	struct pend *p = c->pend_first;
	struct head h = head_load(&p->slot);
	bool notify = h.flags & WEIR_SLOT_NOTIFY;
	uint32_t slots = message_slots(h.op, h.length);
	struct weir_slot *to;

	if (c->kind == CONN_DATAGRAM) {
		if (!datagram_send(e, c, NULL, h, p->slot.place[0]))
			return false;
		c->pend_cost -= weir_cost(h.length);
		while (slots--)
			pend_give_first(c->session, c);
		return true;
	}
	if (link_room_for(e, l, lines, p->state == PEND_MESSAGE ? h.flags : 0) != ROOM)
		return false;
	h.flags = 0;
	h.vqpn = c->peer_vqpn;
	if (p->state == PEND_WRITTEN) {
		to = link_put_line(l);
		memset(to, 0, sizeof(*to));
		h.op = WEIR_WIRE_BULK;
		head_store(to, 0, h);
		to->value = p->number;
		asked_drop_first(c);
		c->by_read += p->fetched;
		c->by_write += !p->fetched;
	} else {
		link_count(l, c, 1);
		credit_spend(c, message_cost(&p->slot));
		c->pend_cost -= message_cost(&p->slot);
		if (h.op == WEIR_OP_INLINE || weir_op_is_cell(h.op)) {
			to = link_put_line(l);
			head_store(to, 0, h);
			memcpy(to->data, p->slot.data, WEIR_SLOT_HEAD_BYTES);
			if (c->kind == CONN_MEMORY) {
				to->order = (uint16_t)c->cold->memory.cells++;
				if (p->answer)
					answer_await(c, c->sent, to, p->answer);
			}
			if (h.op == WEIR_OP_LOCK)
				lock_await(c, to);
			while (--slots) {
				pend_give_first(c->session, c);
				memcpy(link_put_line(l), &c->pend_first->slot, WEIR_SLOT_SIZE);
			}
		} else if (h.length <= WEIR_INLINE_MAX) {
			link_put_inline(l, h, place_memory(c->session, p->slot.place[0]));
		} else {
			link_put_place(l, h, place_memory(c->session, p->slot.place[0]));
		}
	}
	pend_give_first(c->session, c);
	link_sent(l, c, 1, notify);
	if (c->kind == CONN_MEMORY)
		remote_sent(l, c);
	return true;
}

void
pend_delivered(struct engine *e, struct conn *c)
{
	bool notify = c->pend_first->slot.flags & WEIR_SLOT_NOTIFY;

	queue_leave(queue_of(c->session, c->link, RING), &c->active);
	asked_drop_first(c);
	c->by_read++;
	c->sent++;
	pend_give_first(c->session, c);
	/* credit for earlier messages may still be on its way: DONE waits for them */
	if (notify)
		c->done_at = c->sent;
	conn_completed(e, c, 1, false);
}

/* Sends messages of one program, whose connections take turns. */
static enum turn
send_queue(struct engine *e, struct peer_link *l, struct queue *q)
{
	while (!list_empty(&q->members)) {
		struct conn *c = LIST_OWNER(q->members.next, struct conn, active);

		if (!c->in_turn)
			c->deficit += QUANTUM;
		c->in_turn = true;
		while (conn_ready(c)) {
			const struct pend *p = c->pend_first;
			/* of a bulk message only BULK is left: its WRITEs are paid */
			uint32_t lines = 1, charge = 0, bytes = 0;

			if (p->state == PEND_MESSAGE) {
				bytes = p->slot.length;
				lines = weir_op_is_cell(p->slot.op)
					    ? message_slots(p->slot.op, bytes)
					    : message_lines(bytes);
				if (c->kind == CONN_MEMORY) { /* who asks pays for the answer */
					bytes += p->answer;
					charge = cell_charge(&p->slot);
				}
			}
			if (lines + charge > c->deficit)
				break;
			if (lines + charge > q->deficit)
				return TURN_SPENT;
			if (bytes && !share_pays(e, q->session))
				return TURN_LIMITED;
			if (!send_first(e, l, c, lines))
				return TURN_FULL;
			c->deficit -= lines + charge;
			q->deficit -= lines + charge;
			q->session->tokens -= bytes;
		}
		list_remove(&c->active);
		c->in_turn = false;
		if (conn_ready(c)) {
			list_append(&q->members, &c->active);
		} else {
			c->deficit = 0;
			conn_advance(e, c);
		}
	}
	return TURN_IDLE;
}

void
link_send_queued(struct engine *e, struct peer_link *l)
{
	while (!list_empty(&l->active)) {
		struct queue *q = LIST_OWNER(l->active.next, struct queue, turn);
		enum turn t;

		queue_turn(q, WEIGHT_LINES);
		t = send_queue(e, l, q);
		queue_turned(e, q, t);
		if (t == TURN_FULL)
			return;
	}
}

void
pend_drop(struct conn *c)
{
	answer_drop_first(c);
	bulk_cancel(c);
	if (c->link)
		queue_leave(queue_of(c->session, c->link, RING), &c->active);
	if (c->bulk_flight)
		return;
	region_lend(c);
	while (c->pend_first)
		pend_give_first(c->session, c);
	c->asked_count = 0;
	c->pend_cost = 0;
	c->rts_next = NULL;
}
