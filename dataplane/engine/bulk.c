/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bulk messages, by rendezvous: RTS announces one, the receiver finds a run of blocks and answers
 * CTS, the sender WRITEs it there in segments on the link's second QP and says BULK in the ring
 * once all of it is acknowledged. So messages are delivered in ring order and none waits behind
 * another connection's bytes.
 */
#include "internal.h"

/* ---- sending ---- */

/* RTS of p has left: the next one. */
void
bulk_ask(struct conn *c, struct pend *p)
{
	p->state = PEND_ASKED;
	c->asked[c->asked_count++] = p;
	for (p = p->next; p && p->state != PEND_BULK; p = p->next) {
		/* continuations follow their head */
		uint32_t n = p->slot.op == WEIR_OP_INLINE ? weir_slots_inline(p->slot.length) : 1;

		while (--n)
			p = p->next;
	}
	c->rts_next = p;
}

bool
bulk_answered(struct engine *e, struct conn *c, const struct weir_wire_cts *cts)
{
	struct pend *p = NULL;

	for (uint32_t i = 0; i < c->asked_count && !p; i++)
		if (c->asked[i]->number == cts->number && c->asked[i]->state == PEND_ASKED)
			p = c->asked[i];
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
		list_append(&c->link->writing, &p->writing);
	} else {
		p->state = PEND_WRITTEN;
		conn_advance(e, c);
	}
	link_busy(e, c->link);
	return true;
}

/* Posts the next segment of p; false if the queue has no room. */
static bool
post_segment(struct engine *e, struct link *l, struct pend *p)
{
	struct conn *c = p->conn;
	uint32_t left = p->slot.length - p->written;
	uint32_t length = left < BULK_SEGMENT ? left : BULK_SEGMENT;
	uint64_t offset = WEIR_PLACE_OFFSET(p->slot.place[0]) + p->written;
	struct nic_send_wr wr = {
	    .wr_id = l->sq_posted[1] + 1,
	    .sge = {{(uintptr_t)(c->session->base + offset), length,
		     c->session->shared->send_mr.lkey}},
	    .sge_count = 1,
	    .opcode = NIC_WRITE,
	    .flags = NIC_SIGNALED,
	    .remote_address = p->remote + p->written,
	    .rkey = p->rkey,
	};
	int n = nic_post_send(l->is.qp[1], &wr, 1);

	if (n < 0)
		link_break(e, l, BULK, (uint32_t)-n, 0);
	if (n <= 0)
		return false;
	l->sq_posted[1]++;
	l->in_flight[l->flight_end++ % BULK_WRITES] = p;
	p->written += length;
	p->in_flight++;
	c->bulk_flight++;
	return true;
}

bool
bulk_may_post(const struct link *l)
{
	return !l->bulk_broken && !l->hold && !list_empty(&l->writing) &&
	       l->flight_end - l->flight_first < BULK_WRITES;
}

void
bulk_post(struct engine *e, struct link *l)
{
	while (bulk_may_post(l)) {
		struct pend *p = LIST_OWNER(l->writing.next, struct pend, writing);

		if (!post_segment(e, l, p))
			break;
		list_remove(&p->writing);
		if (p->written < p->slot.length)
			list_append(&l->writing, &p->writing);
	}
}

/* The oldest WRITE in flight is acknowledged. */
void
bulk_done(struct engine *e, struct link *l)
{
	struct pend *p = l->in_flight[l->flight_first++ % BULK_WRITES];
	struct conn *c = p->conn;

	l->bulk_unproven = false;
	p->in_flight--;
	c->bulk_flight--;
	if (c->state == CONN_OPEN || c->state == CONN_FINISHING) {
		if (p->written == p->slot.length && !p->in_flight) {
			p->state = PEND_WRITTEN;
			conn_advance(e, c);
		}
	} else if (!c->bulk_flight) {
		pend_drop(e, c);
		owe(e, c, 0); /* RESET and FIN_ACK have waited for this */
		conn_settle(e, c);
	}
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
		l->in_flight[(l->flight_first + behind) % BULK_WRITES]->conn->bulk_refused = true;
}

/* From the oldest segment on that nobody has acknowledged. They are acknowledged in order. */
static void
rewind_writes(struct engine *e, struct link *l, struct pend *p)
{
	uint32_t segments = (p->written + BULK_SEGMENT - 1) / BULK_SEGMENT;

	count(&e->counters.bulk_replayed, p->in_flight);
	p->conn->bulk_flight -= p->in_flight;
	p->written = (segments - p->in_flight) * BULK_SEGMENT;
	p->in_flight = 0;
	list_append_once(&l->writing, &p->writing);
}

/*
 * The QP is a new one, and the peer's old one can't write any more. WRITEs whose outcome is unknown
 * are made again: their place is promised until BULK, FIN_ACK or RESET, none of which has left
 * while they were in flight, and the same bytes twice are the same. Whatever else will once go by
 * this QP, and must not be repeated, ends with -EIO here.
 */
void
bulk_resume(struct engine *e, struct link *l)
{
	for (; l->flight_first != l->flight_end; l->flight_first++) {
		struct pend *p = l->in_flight[l->flight_first % BULK_WRITES];
		struct conn *c = p->conn;

		if (!p->in_flight) /* an older segment has rewound it */
			continue;
		rewind_writes(e, l, p);
		if (c->state != CONN_OPEN && c->state != CONN_FINISHING) {
			list_remove(&p->writing);
			if (c->bulk_flight)
				continue;
			pend_drop(e, c);
			owe(e, c, 0); /* RESET and FIN_ACK have waited for this */
			conn_settle(e, c);
		} else if (c->bulk_refused && !c->bulk_flight) {
			conn_abort(e, c, ECONNRESET, false);
		} else {
			l->bulk_unproven = true;
		}
	}
	l->sq_done[BULK] = l->sq_posted[BULK];
}

void
bulk_cancel(struct conn *c)
{
	for (uint32_t i = 0; i < c->asked_count; i++)
		list_remove(&c->asked[i]->writing);
}

/* ---- receiving ---- */

static uint32_t
blocks_of(uint32_t length)
{
	return length ? (length + WEIR_BLOCK_SIZE - 1) / WEIR_BLOCK_SIZE : 1;
}

/* Its slot may have to be spilled: into a block beyond those that channels begin with. */
static bool
refuse_if_too_large(struct engine *e, struct conn *c, struct rts *r)
{
	const struct session *s = c->session;

	if (blocks_of(r->length) + s->reserve < s->blocks.count)
		return false;
	r->state = RTS_REFUSED;
	owe(e, c, OWE_CTS);
	return true;
}

/* RTS. False: the peer broke the rules. */
bool
bulk_asked(struct engine *e, struct conn *c, uint64_t number, uint32_t length)
{
	struct session *s = c->session;
	struct rts *r = &c->rts[c->rts_count];

	if (c->rts_count == RTS_MAX || length > WEIR_MESSAGE_MAX || number < c->rx_messages)
		return false;
	for (uint32_t i = 0; i < c->rts_count; i++)
		if (c->rts[i].number == number)
			return false;
	c->rts_count++;
	*r = (struct rts){.number = number, .length = length, .state = RTS_WAITING};
	if (refuse_if_too_large(e, c, r))
		return true;
	session_hunger(s, &s->placing, &c->placing);
	session_feed(e, s);
	/* it came so for want of window */
	if (length <= WEIR_BLOCK_SIZE && session_affords(s, WEIR_SLOT_SIZE, 1))
		credit_wanted(e, c, weir_cost(length));
	return true;
}

/*
 * Blocks that must stay free beyond the place of c's i-th: half of them unless it is the next to
 * be delivered. What comes between may have to wait for memory first, and must find some.
 */
static uint32_t
blocks_beside(const struct conn *c, uint32_t i)
{
	return c->rts[i].number == c->rx_messages + i ? 0 : c->session->blocks.count / 2;
}

enum placing { PLACING_DONE, PLACING_PLACED, PLACING_LATER, PLACING_FULL };

/* Finds a place for the first that has none. */
static enum placing
place_first(struct engine *e, struct conn *c)
{
	struct session *s = c->session;

	for (uint32_t i = 0; c->accepts && i < c->rts_count; i++) {
		struct rts *r = &c->rts[i];
		uint32_t n = blocks_of(r->length), beside = blocks_beside(c, i);

		if (r->state != RTS_WAITING)
			continue;
		if (refuse_if_too_large(e, c, r)) /* by now: channels were added */
			return PLACING_PLACED;
		if (!session_affords(s, WEIR_SLOT_SIZE, n + beside))
			return beside ? PLACING_LATER : PLACING_FULL;
		r->block = weir_blocks_take_run(&s->blocks, n);
		if (r->block == WEIR_BLOCK_NONE)
			return beside ? PLACING_LATER : PLACING_FULL;
		s->promised += WEIR_SLOT_SIZE; /* its slot may have to be spilled */
		r->state = RTS_PLACED;
		owe(e, c, OWE_CTS);
		return PLACING_PLACED;
	}
	return PLACING_DONE;
}

/* Places for those that wait, in turns, as far as the memory reaches. */
void
bulk_place(struct engine *e, struct session *s)
{
	struct list *node, *following;
	bool any;

	do {
		any = false;
		LIST_EACH (node, following, &s->placing) {
			enum placing p = place_first(e, LIST_OWNER(node, struct conn, placing));

			if (p == PLACING_FULL)
				return;
			if (p == PLACING_LATER)
				continue;
			list_remove(node);
			if (p == PLACING_PLACED) { /* the others first */
				list_append(&s->placing, node);
				any = true;
			}
		}
	} while (any);
}

static void
remove_rts(struct conn *c, uint32_t i)
{
	memmove(&c->rts[i], &c->rts[i + 1], (--c->rts_count - i) * sizeof(c->rts[0]));
}

/* BULK: the message lies in its place. False: the peer broke the rules. */
bool
bulk_arrived(struct engine *e, struct conn *c, uint64_t number)
{
	for (uint32_t i = 0; i < c->rts_count; i++) {
		struct rts r = c->rts[i];

		if (r.number != number)
			continue;
		if (r.state != RTS_ANSWERED || number != c->rx_messages)
			return false;
		remove_rts(c, i);
		c->session->promised -= WEIR_SLOT_SIZE;
		c->session->runs[r.block] = blocks_of(r.length);
		deliver_bulk(e, c, r.block, r.length);
		session_feed(e, c->session);
		return true;
	}
	return false;
}

/* No bulk message of the peer will come: what was set aside is free. */
void
bulk_forget(struct engine *e, struct conn *c)
{
	struct session *s = c->session;

	for (uint32_t i = 0; i < c->rts_count; i++) {
		const struct rts *r = &c->rts[i];

		if (r->state != RTS_PLACED && r->state != RTS_ANSWERED)
			continue;
		weir_blocks_give(&s->blocks, r->block, blocks_of(r->length));
		s->promised -= WEIR_SLOT_SIZE;
	}
	c->rts_count = 0;
	list_remove(&c->placing);
	session_feed(e, s);
}
