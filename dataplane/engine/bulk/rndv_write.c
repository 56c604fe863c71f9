/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bulk messages, by rendezvous: RTS announces one, the receiver finds a place. Either it answers
 * CTS and the sender WRITEs the message there, or it READs it itself (rndv_read.c) and answers
 * FETCHED; in segments, on the link's second QP. Then the sender puts BULK into the ring, unless
 * the receiver has delivered the message already. So messages are delivered in ring order and none
 * waits behind another connection's bytes.
 */
#include "conn.h"
#include "credit.h"
#include "ctrl_line.h"
#include "deliver.h"
#include "flight.h"
#include "link.h"
#include "base/list.h"
#include "region.h"
#include "remote.h"
#include "rndv.h"
#include "scheduler.h"
#include "send_queue.h"
#include "session.h"
#include "state.h"

#include <errno.h>

enum { WEIGHT_BYTES = 6554 }; /* bytes per unit of weight and round of a link */

/* ---- sending ---- */

/* The first message behind p that is not announced yet. */
static struct pend *
next_bulk(struct pend *p)
{
	for (p = p->next; p && p->state != PEND_BULK; p = p->next) {
		/* continuations follow their head */
		uint32_t n = message_slots(p->slot.op, p->slot.length);

		while (--n)
			p = p->next;
	}
	return p;
}

void
bulk_ask(struct conn *c, struct pend *p)
{
	p->state = PEND_ASKED;
	c->cold->asked[c->asked_count++] = p;
	c->rts_next = next_bulk(p);
}

/*
 * A message that became bulk because the window was too small for it, and isn't announced yet, goes
 * by the ring once the window is large enough: else each message of a burst on a new connection
 * would take a rendezvous.
 */
void
bulk_rejoin(struct conn *c)
{
	struct pend *p;

	while ((p = c->rts_next) && p->slot.length <= WEIR_BLOCK_SIZE &&
	       !(p->slot.flags & WEIR_SLOT_TRANSFERS)) {
		uint32_t cost = weir_cost(p->slot.length);

		if (cost > c->peer_window)
			return;
		p->state = PEND_MESSAGE;
		c->pend_cost += cost;
		credit_unspent(c, cost);
		c->rts_next = next_bulk(p);
	}
}

bool
bulk_answered(struct engine *e, struct conn *c, const struct weir_wire_cts *cts)
{
	struct pend *p = NULL;

	for (uint32_t i = 0; i < c->asked_count && !p; i++)
		if (c->cold->asked[i]->number == cts->number &&
		    c->cold->asked[i]->state == PEND_ASKED)
			p = c->cold->asked[i];
	if (!p)
		return false;
	if (cts->status) {
		conn_abort(e, c, cts->status == EMSGSIZE ? EMSGSIZE : ENOMEM, false);
		return true;
	}
	p->remote = cts->address;
	p->rkey = cts->rkey;
	p->state = PEND_WRITING;
	count(&e->counters.bulk_messages, 1);
	if (p->slot.length) {
		queue_join(e, queue_of(c->session, c->link, BULK), &c->cold->writing);
	} else {
		p->state = PEND_WRITTEN;
		conn_advance(e, c);
	}
	link_busy(e, c->link);
	return true;
}

uint32_t
bulk_ways(const struct pend *p)
{
	if (p->slot.flags & WEIR_SLOT_READ)
		return WEIR_RTS_READ;
	return p->slot.flags & WEIR_SLOT_WRITE ? WEIR_RTS_WRITE : WEIR_RTS_WRITE | WEIR_RTS_READ;
}

bool
bulk_fetched(struct engine *e, struct conn *c, uint64_t number, bool delivered)
{
	for (uint32_t i = 0; i < c->asked_count; i++) {
		struct pend *p = c->cold->asked[i];

		if (p->number != number || p->state != PEND_ASKED ||
		    !(bulk_ways(p) & WEIR_RTS_READ))
			continue;
		if (delivered && p != c->pend_first)
			return false;
		p->state = PEND_WRITTEN;
		p->fetched = true;
		count(&e->counters.bulk_messages, 1);
		if (delivered)
			pend_delivered(e, c);
		conn_advance(e, c);
		return true;
	}
	return false;
}

/* Whether all of it is posted. */
static bool
is_posted(const struct conn *c, const struct pend *p)
{
	return p->written == p->slot.length && (p->fenced || !transfer_fence(c, p));
}

/* The oldest message, or put or get, that has segments to post, or NULL. */
static struct pend *
next_to_write(const struct conn *c)
{
	for (uint32_t i = 0; i < c->asked_count; i++) {
		struct pend *p = c->cold->asked[i];

		if (p->state == PEND_WRITING && !is_posted(c, p))
			return p;
	}
	return NULL;
}

/* WRITEs a segment of one program, whose connections take turns. TURN_FULL: its turn goes on. */
static enum turn
write_queue(struct engine *e, struct peer_link *l, struct queue *q, bool *posted)
{
	while (!list_empty(&q->members)) {
		struct conn *c =
		    conn_of_cold(e, LIST_OWNER(q->members.next, struct conn_cold, writing));
		struct pend *p = next_to_write(c);
		struct nic_send_wr wr;
		uint32_t length;

		if (!p) {
			list_remove(&c->cold->writing);
			continue;
		}
		length = p->slot.length - p->written;
		if (length > FLIGHT_SEGMENT)
			length = FLIGHT_SEGMENT;
		if (!length)
			length = transfer_fence(c, p);
		if (q->deficit < length)
			return TURN_SPENT;
		if (!share_pays(e, q->session))
			return TURN_LIMITED;
		if (p->written < p->slot.length) {
			weir_place place = p->slot.place[0];

			wr = (struct nic_send_wr){.opcode = NIC_WRITE, .sge_count = 1};
			wr.sge[0] = (struct nic_sge){(uintptr_t)place_memory(c->session, place) +
							 p->written,
						     length, place_mr(c->session, place)->lkey};
			wr.remote_address = p->remote + p->written;
			wr.rkey = p->rkey;
			if (c->kind == CONN_MEMORY)
				transfer_fill(c, p, &wr);
		} else {
			transfer_fill_fence(e, c, &wr);
		}
		flight_put(
		    e, l, &wr,
		    (struct flight){.owner = &rndv_write, .conn = c, .pend = p, .bytes = length});
		*posted = true;
		if (p->written < p->slot.length)
			p->written += length;
		else
			p->fenced = true;
		p->in_flight++;
		q->deficit -= length;
		q->session->tokens -= length;
		list_remove(&c->cold->writing);
		if (next_to_write(c))
			list_append(&q->members, &c->cold->writing);
		if (!list_empty(&q->members))
			return TURN_FULL;
	}
	return TURN_IDLE;
}

static bool
write_waits(const struct peer_link *l)
{
	return !list_empty(&l->writing);
}

static bool
write_post(struct engine *e, struct peer_link *l)
{
	bool posted = false;

	while (!posted && !list_empty(&l->writing)) {
		struct queue *q = LIST_OWNER(l->writing.next, struct queue, turn);

		queue_turn(q, WEIGHT_BYTES);
		queue_turned(e, q, write_queue(e, l, q, &posted));
	}
	return posted;
}

static void
write_done(struct engine *e, const struct flight *f)
{
	struct pend *p = f->pend;

	p->in_flight--;
	if (!conn_is_open(f->conn) || p->in_flight || !is_posted(f->conn, p))
		return;
	p->state = PEND_WRITTEN;
	conn_advance(e, f->conn);
}

static uint32_t
write_rewind(struct engine *e, struct peer_link *l, const struct flight *f)
{
	struct conn *c = f->conn;
	struct pend *p = f->pend;
	uint32_t n = p->in_flight, segments;

	if (!n)
		return 0;
	segments = n - transfer_rewind_fence(c, p);
	if (segments)
		p->written = flight_rewound(p->written, segments);
	p->in_flight = 0;
	if (conn_is_open(c))
		queue_join(e, queue_of(c->session, l, BULK), &c->cold->writing);
	else
		bulk_cancel(c);
	return n;
}

const struct flight_owner rndv_write = {write_waits, write_post, write_done, write_rewind};

void
bulk_cancel(struct conn *c)
{
	if (c->link)
		queue_leave(queue_of(c->session, c->link, BULK), &c->cold->writing);
}

/* ---- receiving ---- */

/* The message must fit the blocks beside the reserve, from which its slot may be spilled. */
static bool
refuse_if_too_large(struct engine *e, struct conn *c, struct rts *r)
{
	const struct session *s = c->session;

	if (bulk_blocks(r->length) + s->reserve < s->blocks.count ||
	    post_find(c, r->number, r->length))
		return false;
	r->state = RTS_REFUSED;
	ctrl_line_due(e, c, CTRL_CTS);
	return true;
}

/*
 * Whether the peer has places for what it writes while the next CTS travels. Places further ahead
 * would be out of the caches by the time they are filled.
 */
static bool
is_ahead(const struct conn *c, uint32_t length)
{
	uint64_t bytes = length;
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->rts_count; i++) {
		const struct rts *r = &c->cold->rts[i];

		if (r->state != RTS_PLACED && r->state != RTS_ANSWERED)
			continue;
		bytes += r->length;
		n++;
	}
	return n >= PLACED_MESSAGES && bytes > PLACED_BYTES;
}

bool
bulk_asked(struct engine *e, struct conn *c, const struct weir_wire_rts *rts, uint32_t length)
{
	struct session *s = c->session;
	struct rts *r = &c->cold->rts[c->rts_count];

	if (c->peer_shut || c->rts_count == RTS_MAX || length > WEIR_MESSAGE_MAX ||
	    rts->number < c->rx_messages || !rts->ways ||
	    rts->ways & ~(WEIR_RTS_WRITE | WEIR_RTS_READ))
		return false;
	for (uint32_t i = 0; i < c->rts_count; i++)
		if (c->cold->rts[i].number == rts->number)
			return false;
	c->rts_count++;
	*r = (struct rts){.number = rts->number,
			  .address = rts->address,
			  .length = length,
			  .rkey = rts->rkey,
			  .state = RTS_WAITING,
			  .ways = (uint8_t)rts->ways};
	if (refuse_if_too_large(e, c, r))
		return true;
	session_await_memory(e, s, &s->awaits_place, &c->cold->awaits_place);
	session_memory_freed(e, s);
	r->waited = r->state == RTS_WAITING && !is_ahead(c, length);
	/* a message this small is bulk because the window was too small: let it grow, unless an
	 * earlier message's want (STALLED) stands. Programs with a rate announce WRITE alone. */
	if (length <= WEIR_BLOCK_SIZE && rts->ways & WEIR_RTS_WRITE && !c->rx_wanted &&
	    session_affords(s, WEIR_SLOT_SIZE, 1))
		credit_wanted(e, c, weir_cost(length));
	return true;
}

/*
 * Finds a place for the i-th message announced to c: posted memory, or a run of blocks that leaves
 * `beside` others free. False: there is none now.
 */
static bool
find_place(struct conn *c, uint32_t i, uint32_t beside)
{
	struct session *s = c->session;
	struct rts *r = &c->cold->rts[i];
	uint32_t n = bulk_blocks(r->length), block;

	r->place = post_find(c, r->number, r->length);
	if (r->place) {
		if (!session_affords(s, WEIR_SLOT_SIZE, 0))
			return false;
		region_keep(s, WEIR_PLACE_REGION(r->place));
		return true;
	}
	if (!session_affords(s, WEIR_SLOT_SIZE, n + beside))
		return false;
	block = weir_blocks_take_run(&s->blocks, n);
	r->place = WEIR_PLACE(0, s->recv_at + (uint64_t)block * WEIR_BLOCK_SIZE);
	return block != WEIR_BLOCK_NONE;
}

enum placing { PLACING_DONE, PLACING_PLACED, PLACING_LATER, PLACING_FULL, PLACING_IN_TURN };

/* Finds a place for the first message of c that has none. */
static enum placing
place_first(struct engine *e, struct conn *c)
{
	struct session *s = c->session;
	uint32_t delivered = 0;

	for (uint32_t i = 0; i < c->rts_count; i++)
		delivered += c->cold->rts[i].delivered;
	for (uint32_t i = 0; c->accepts && i < c->rts_count; i++) {
		struct rts *r = &c->cold->rts[i];
		/* unless it is the next to be delivered, half of the blocks stay free: the messages
		 * before it may have to wait for memory first, and must find some */
		bool next = r->number == c->rx_messages + i - delivered;
		uint32_t beside = next ? 0 : s->blocks.count / 2;
		bool fetch;

		if (r->state != RTS_WAITING)
			continue;
		if (refuse_if_too_large(e, c, r)) /* channels were added meanwhile */
			return PLACING_PLACED;
		fetch = rndv_read_is_better(e, c, r);
		/* a place that waits to be filled would be out of the caches by then */
		if (fetch && !list_empty(&c->link->reading))
			return PLACING_IN_TURN;
		if (!fetch && is_ahead(c, r->length))
			return PLACING_DONE; /* until BULK comes */
		if (!find_place(c, i, beside)) {
			r->waited = true;
			return beside ? PLACING_LATER : PLACING_FULL;
		}
		s->promised += WEIR_SLOT_SIZE; /* its slot may have to be spilled */
		if (fetch) {
			rndv_read_begin(e, c, r);
		} else {
			r->state = RTS_PLACED;
			ctrl_line_due(e, c, CTRL_CTS);
		}
		return PLACING_PLACED;
	}
	return PLACING_DONE;
}

/* A message has left its place: others of c may be waiting for that. */
static void
place_more(struct engine *e, struct conn *c)
{
	struct session *s = c->session;

	for (uint32_t i = 0; i < c->rts_count; i++) {
		if (c->cold->rts[i].state != RTS_WAITING)
			continue;
		session_await_memory(e, s, &s->awaits_place, &c->cold->awaits_place);
		session_memory_freed(e, s);
		return;
	}
}

/* The connections that wait take turns. */
void
bulk_place(struct engine *e, struct session *s)
{
	struct list_node *node, *following;
	bool any;

	do {
		any = false;
		LIST_EACH (node, following, &s->awaits_place) {
			struct conn *c =
			    conn_of_cold(e, LIST_OWNER(node, struct conn_cold, awaits_place));
			enum placing p = place_first(e, c);

			if (p == PLACING_FULL)
				return;
			if (p == PLACING_LATER)
				continue;
			list_remove(node);
			if (p == PLACING_IN_TURN)
				list_append(&c->link->to_read, node);
			if (p == PLACING_PLACED) { /* the other connections first */
				list_append(&s->awaits_place, node);
				any = true;
			}
		}
	} while (any);
}

void
bulk_remove(struct conn *c, uint32_t i)
{
	memmove(&c->cold->rts[i], &c->cold->rts[i + 1],
		(--c->rts_count - i) * sizeof(c->cold->rts[0]));
}

bool
bulk_arrived(struct engine *e, struct conn *c, uint64_t number)
{
	for (uint32_t i = 0; i < c->rts_count; i++) {
		struct rts r = c->cold->rts[i];

		if (r.number != number)
			continue;
		if ((r.state != RTS_ANSWERED && r.state != RTS_FETCHED) || number != c->rx_messages)
			return false;
		bulk_remove(c, i);
		deliver_bulk(e, c, &r);
		place_more(e, c);
		return true;
	}
	return false;
}

void
bulk_forget(struct engine *e, struct conn *c)
{
	struct session *s = c->session;

	list_remove(&c->cold->awaits_place);
	list_remove(&c->cold->reading);
	c->forget = c->bulk_flight != 0;
	if (c->forget)
		return;
	for (uint32_t i = 0; i < c->rts_count; i++) {
		const struct rts *r = &c->cold->rts[i];

		if (!bulk_has_place(r))
			continue;
		if (WEIR_PLACE_REGION(r->place))
			region_drop(s, WEIR_PLACE_REGION(r->place));
		else
			weir_blocks_give(&s->blocks, place_block(s, r->place),
					 bulk_blocks(r->length));
		s->promised -= WEIR_SLOT_SIZE;
	}
	c->rts_count = 0;
	posts_forget(c, UINT64_MAX);
	session_memory_freed(e, s);
}
