/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bulk messages, by rendezvous: RTS announces one, the receiver finds a run of blocks. Either it
 * answers CTS and the sender WRITEs the message there, or it READs it itself (rndv_read.c) and says
 * FETCHED; in segments, on the link's second QP. When all of it is there the sender says BULK in
 * the ring, unless the receiver has delivered it already. So messages are delivered in ring order
 * and none waits behind another connection's bytes.
 */
#include "conn.h"
#include "credit.h"
#include "ctrl_line.h"
#include "deliver.h"
#include "link.h"
#include "base/list.h"
#include "region.h"
#include "rndv.h"
#include "scheduler.h"
#include "send_queue.h"
#include "session.h"
#include "state.h"

#include <errno.h>

enum { WEIGHT_BYTES = 6554 }; /* bytes per unit of weight and round of a link */

/* ---- sending ---- */

/* The first one behind p that is to be announced. */
static struct pend *
next_bulk(struct pend *p)
{
	for (p = p->next; p && p->state != PEND_BULK; p = p->next) {
		/* continuations follow their head */
		uint32_t n = p->slot.op == WEIR_OP_INLINE ? weir_slots_inline(p->slot.length) : 1;

		while (--n)
			p = p->next;
	}
	return p;
}

/* RTS of p has left. */
void
bulk_ask(struct conn *c, struct pend *p)
{
	p->state = PEND_ASKED;
	c->cold->asked[c->asked_count++] = p;
	c->rts_next = next_bulk(p);
}

/*
 * What was sent as bulk because the window was too small for it, and isn't announced yet, goes by
 * the ring when the window no longer is: else all of a burst on a new connection would take a
 * rendezvous each.
 */
void
bulk_rejoin(struct conn *c)
{
	struct pend *p;

	while ((p = c->rts_next) && p->slot.length <= WEIR_BLOCK_SIZE &&
	       !(p->slot.flags & WEIR_SLOT_WAYS)) {
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

/* How p may be moved: as its program wants it, else either way. */
uint32_t
bulk_ways(const struct pend *p)
{
	if (p->slot.flags & WEIR_SLOT_READ)
		return WEIR_RTS_READ;
	return p->slot.flags & WEIR_SLOT_WRITE ? WEIR_RTS_WRITE : WEIR_RTS_WRITE | WEIR_RTS_READ;
}

/*
 * FETCHED: the peer has read it, and delivered it, if all before it were. False: the peer broke the
 * rules.
 */
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

/* Posts a WRITE or READ; false if the queue has no room. */
bool
bulk_put(struct engine *e, struct link *l, struct nic_send_wr *wr, struct flight f)
{
	int n;

	wr->wr_id = l->sq_posted[BULK] + 1;
	wr->sge_count = 1;
	wr->flags = NIC_SIGNALED;
	n = nic_post_send(l->is.qp[BULK], wr, 1);
	if (n < 0)
		link_break(e, l, BULK, (uint32_t)-n, 0);
	if (n <= 0)
		return false;
	l->sq_posted[BULK]++;
	l->in_flight[l->flight_end++ % BULK_FLIGHT] = f;
	f.conn->bulk_flight++;
	return true;
}

static bool
has_room(const struct link *l)
{
	return l->flight_end - l->flight_first < BULK_FLIGHT;
}

bool
bulk_may_post(const struct link *l)
{
	return !l->bulk_broken && !l->hold && has_room(l) &&
	       (!list_empty(&l->writing) || !list_empty(&l->fetching) || !list_empty(&l->to_fetch));
}

/* The next segment of p. False: the queue has no room. */
static bool
post_segment(struct engine *e, struct link *l, struct pend *p)
{
	const struct session *s = p->conn->session;
	weir_place place = p->slot.place[0];
	uint32_t left = p->slot.length - p->written;
	uint32_t length = left < BULK_SEGMENT ? left : BULK_SEGMENT;
	struct nic_send_wr wr = {
	    .sge = {{(uintptr_t)place_memory(s, place) + p->written, length,
		     place_mr(s, place)->lkey}},
	    .opcode = NIC_WRITE,
	    .remote_address = p->remote + p->written,
	    .rkey = p->rkey,
	};

	if (!bulk_put(e, l, &wr, (struct flight){p->conn, p, p->number}))
		return false;
	p->written += length;
	p->in_flight++;
	return true;
}

/* Its oldest message that has segments to post, or NULL. */
static struct pend *
next_to_write(const struct conn *c)
{
	for (uint32_t i = 0; i < c->asked_count; i++) {
		struct pend *p = c->cold->asked[i];

		if (p->state == PEND_WRITING && p->written < p->slot.length)
			return p;
	}
	return NULL;
}

/* A segment of one program, whose connections take turns. TURN_FULL: its turn goes on. */
static enum turn
write_queue(struct engine *e, struct link *l, struct queue *q, bool *posted)
{
	while (!list_empty(&q->members)) {
		struct conn *c =
		    conn_of_cold(e, LIST_OWNER(q->members.next, struct conn_cold, writing));
		struct pend *p = next_to_write(c);
		uint32_t before;

		if (!p) {
			list_remove(&c->cold->writing);
			continue;
		}
		before = p->written;
		if (q->deficit < BULK_SEGMENT && q->deficit < p->slot.length - before)
			return TURN_SPENT;
		if (!share_pays(e, q->session))
			return TURN_LIMITED;
		*posted = post_segment(e, l, p);
		if (!*posted)
			return TURN_FULL;
		q->deficit -= p->written - before;
		q->session->tokens -= p->written - before;
		list_remove(&c->cold->writing);
		if (next_to_write(c))
			list_append(&q->members, &c->cold->writing);
		if (!list_empty(&q->members))
			return TURN_FULL;
	}
	return TURN_IDLE;
}

/* The next segment of those whose turn it is; false: nothing was posted. */
static bool
write_next(struct engine *e, struct link *l)
{
	bool posted = false;

	while (!posted && !list_empty(&l->writing) && has_room(l) && !l->bulk_broken) {
		struct queue *q = LIST_OWNER(l->writing.next, struct queue, turn);
		enum turn t;

		queue_turn(q, WEIGHT_BYTES);
		t = write_queue(e, l, q, &posted);
		queue_turned(e, q, t);
		if (t == TURN_FULL)
			break;
	}
	return posted;
}

void
bulk_post(struct engine *e, struct link *l)
{
	bool some = true;

	while (some && bulk_may_post(l)) {
		some = write_next(e, l);
		fetch_next(e, l);
		some |= !l->bulk_broken && has_room(l) && fetch_post(e, l);
	}
}

/* Nothing of c is in flight any more: what has waited for that. */
static void
flight_over(struct engine *e, struct conn *c)
{
	if (c->state != CONN_OPEN && c->state != CONN_FINISHING)
		pend_drop(c);
	if (c->forget)
		bulk_forget(e, c);
	owe(e, c, 0); /* FIN, RESET and FIN_ACK */
	conn_settle_later(e, c);
}

static void
written(struct engine *e, struct conn *c, struct pend *p)
{
	p->in_flight--;
	if ((c->state != CONN_OPEN && c->state != CONN_FINISHING) || p->in_flight ||
	    p->written < p->slot.length)
		return;
	p->state = PEND_WRITTEN;
	conn_advance(e, c);
}

/* The oldest one in flight has succeeded. */
void
bulk_done(struct engine *e, struct link *l)
{
	struct flight f = l->in_flight[l->flight_first++ % BULK_FLIGHT];

	l->bulk_unproven = false;
	f.conn->bulk_flight--;
	if (f.pend)
		written(e, f.conn, f.pend);
	else
		fetch_done(e, f.conn, f.number);
	if (!f.conn->bulk_flight)
		flight_over(e, f.conn);
}

/* ---- faults ---- */

/* A WRITE failed. If the peer's NIC, or ours, said why, it would fail again: its connection ends.
 */
void
bulk_failed(struct link *l, const struct nic_wc *wc)
{
	uint64_t behind = wc->wr_id - l->sq_done[BULK] - 1;

	if (wc->status == NIC_WC_RETRY_EXC_ERR || wc->status == NIC_WC_WR_FLUSH_ERR ||
	    wc->status == NIC_WC_RNR_RETRY_EXC_ERR || wc->status == NIC_WC_FATAL_ERR)
		return;
	if (!l->bulk_broken && behind < l->flight_end - l->flight_first)
		l->in_flight[(l->flight_first + behind) % BULK_FLIGHT].conn->bulk_refused = true;
}

/* Where it goes on: at the oldest segment that nobody has acknowledged. They are in order. */
uint32_t
bulk_rewound(uint32_t posted, uint32_t in_flight)
{
	return ((posted + BULK_SEGMENT - 1) / BULK_SEGMENT - in_flight) * BULK_SEGMENT;
}

/* False: an older segment has rewound it. */
static bool
rewind_writes(struct engine *e, struct link *l, struct pend *p)
{
	if (!p->in_flight)
		return false;
	count(&e->counters.bulk_replayed, p->in_flight);
	p->conn->bulk_flight -= p->in_flight;
	p->written = bulk_rewound(p->written, p->in_flight);
	p->in_flight = 0;
	if (p->conn->state == CONN_OPEN || p->conn->state == CONN_FINISHING)
		queue_join(e, queue_of(p->conn->session, l, BULK), &p->conn->cold->writing);
	else
		bulk_cancel(p->conn);
	return true;
}

/*
 * The QP is a new one, and the old ones can't write any more. WRITEs and READs whose outcome is
 * unknown are made again: their place is promised until BULK, FIN_ACK or RESET, what is read stays
 * where it is until FETCHED, FIN_ACK or RESET, none of which has left while they were in flight,
 * and the same bytes twice are the same. Whatever else will once go by this QP, and must not be
 * repeated, ends with -EIO here.
 */
void
bulk_resume(struct engine *e, struct link *l)
{
	for (; l->flight_first != l->flight_end; l->flight_first++) {
		struct flight f = l->in_flight[l->flight_first % BULK_FLIGHT];
		struct conn *c = f.conn;

		if (f.pend ? !rewind_writes(e, l, f.pend) : !fetch_rewind(e, l, c, f.number))
			continue;
		if (c->bulk_refused && !c->bulk_flight)
			conn_abort(e, c, ECONNRESET, false);
		if (c->state == CONN_OPEN || c->state == CONN_FINISHING)
			l->bulk_unproven = true;
		if (!c->bulk_flight)
			flight_over(e, c);
	}
	l->sq_done[BULK] = l->sq_posted[BULK];
}

void
bulk_cancel(struct conn *c)
{
	if (c->link)
		queue_leave(queue_of(c->session, c->link, BULK), &c->cold->writing);
}

/* ---- receiving ---- */

/* Its slot may have to be spilled: into a block beyond those that channels begin with. */
static bool
refuse_if_too_large(struct engine *e, struct conn *c, struct rts *r)
{
	const struct session *s = c->session;

	if (bulk_blocks(r->length) + s->reserve < s->blocks.count ||
	    post_find(c, r->number, r->length))
		return false;
	r->state = RTS_REFUSED;
	owe(e, c, OWE_CTS);
	return true;
}

/* RTS. False: the peer broke the rules. */
bool
bulk_asked(struct engine *e, struct conn *c, const struct weir_wire_rts *rts, uint32_t length)
{
	struct session *s = c->session;
	struct rts *r = &c->cold->rts[c->rts_count];

	if (c->rts_count == RTS_MAX || length > WEIR_MESSAGE_MAX || rts->number < c->rx_messages ||
	    !rts->ways || rts->ways & ~(WEIR_RTS_WRITE | WEIR_RTS_READ))
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
	session_hunger(e, s, &s->placing, &c->cold->placing);
	session_feed(e, s);
	r->waited = r->state == RTS_WAITING;
	/* it came so for want of window; a program with a rate has its peers read nothing. What a
	 * message before it waits for (STALLED) stays what is wanted. */
	if (length <= WEIR_BLOCK_SIZE && rts->ways & WEIR_RTS_WRITE && !c->rx_wanted &&
	    session_affords(s, WEIR_SLOT_SIZE, 1))
		credit_wanted(e, c, weir_cost(length));
	return true;
}

/* Those that are delivered, but not told. */
static uint32_t
ahead(const struct conn *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->rts_count; i++)
		n += c->cold->rts[i].delivered;
	return n;
}

/*
 * Blocks that must stay free beyond the place of c's i-th: half of them unless it is the next to
 * be delivered. What comes between may have to wait for memory first, and must find some.
 */
static uint32_t
blocks_beside(const struct conn *c, uint32_t i)
{
	return c->cold->rts[i].number == c->rx_messages + i - ahead(c)
		   ? 0
		   : c->session->blocks.count / 2;
}

static void
give_place(struct session *s, const struct rts *r)
{
	if (WEIR_PLACE_REGION(r->place))
		region_drop(s, WEIR_PLACE_REGION(r->place));
	else
		weir_blocks_give(&s->blocks, place_block(s, r->place), bulk_blocks(r->length));
}

/* A place for the i-th of c: where its program wants it, or a run of blocks. False: none now. */
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

/* Finds a place for the first that has none. */
static enum placing
place_first(struct engine *e, struct conn *c)
{
	struct session *s = c->session;

	for (uint32_t i = 0; c->accepts && i < c->rts_count; i++) {
		struct rts *r = &c->cold->rts[i];
		uint32_t beside = blocks_beside(c, i);
		bool fetch;

		if (r->state != RTS_WAITING)
			continue;
		if (refuse_if_too_large(e, c, r)) /* by now: channels were added */
			return PLACING_PLACED;
		fetch = fetch_is_better(e, c->link, r);
		/* a place that nothing fills yet would only be cold by then */
		if (fetch && !list_empty(&c->link->fetching))
			return PLACING_IN_TURN;
		if (!find_place(c, i, beside))
			return beside ? PLACING_LATER : PLACING_FULL;
		s->promised += WEIR_SLOT_SIZE; /* its slot may have to be spilled */
		if (fetch) {
			fetch_begin(e, c, r);
		} else {
			r->state = RTS_PLACED;
			owe(e, c, OWE_CTS);
		}
		return PLACING_PLACED;
	}
	return PLACING_DONE;
}

/* Places for those that wait, in turns, as far as the memory reaches. */
void
bulk_place(struct engine *e, struct session *s)
{
	struct list_node *node, *following;
	bool any;

	do {
		any = false;
		LIST_EACH (node, following, &s->placing) {
			struct conn *c =
			    conn_of_cold(e, LIST_OWNER(node, struct conn_cold, placing));
			enum placing p = place_first(e, c);

			if (p == PLACING_FULL)
				return;
			if (p == PLACING_LATER)
				continue;
			list_remove(node);
			if (p == PLACING_IN_TURN)
				list_append(&c->link->to_fetch, node);
			if (p == PLACING_PLACED) { /* the others first */
				list_append(&s->placing, node);
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

/* BULK: the message lies in its place. False: the peer broke the rules. */
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
		return true;
	}
	return false;
}

/* No bulk message of the peer will come: what was set aside is free, once no READ fills it. */
void
bulk_forget(struct engine *e, struct conn *c)
{
	struct session *s = c->session;

	list_remove(&c->cold->placing);
	list_remove(&c->cold->fetching);
	c->forget = c->bulk_flight != 0;
	if (c->forget)
		return;
	for (uint32_t i = 0; i < c->rts_count; i++) {
		const struct rts *r = &c->cold->rts[i];

		if (!bulk_has_place(r))
			continue;
		give_place(s, r);
		s->promised -= WEIR_SLOT_SIZE;
	}
	c->rts_count = 0;
	posts_forget(c, UINT64_MAX);
	session_feed(e, s);
}
