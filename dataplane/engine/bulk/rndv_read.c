/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bulk messages that the receiving engine READs out of the sender's memory as soon as it has a
 * place for them. The next message in order is delivered before the sender hears of it. The sender
 * keeps its memory until FETCHED.
 */
#include "conn.h"
#include "ctrl_line.h"
#include "deliver.h"
#include "flight.h"
#include "link.h"
#include "base/list.h"
#include "region.h"
#include "rndv.h"
#include "session.h"
#include "state.h"

#include <assert.h>

/*
 * A message that may go either way is written by the sender, which needs only acknowledgements for
 * that, unless its engine and host are clearly busier than ours. Where receive memory is scarce, or
 * the message had to wait for it, it is read in any case: its place is used at once, and not only
 * after CTS has travelled.
 */
bool
rndv_read_is_better(const struct engine *e, const struct conn *c, const struct rts *r)
{
	const struct weir_blocks *b = &c->session->blocks;
	struct peer_link *l = c->link;

	if (r->ways != (WEIR_RTS_WRITE | WEIR_RTS_READ))
		return r->ways == WEIR_RTS_READ;
	if (r->waited || b->free < b->count / SCARCE_PART)
		return true;
	l->prefers_read = l->peer_load > e->load + (l->prefers_read ? LOAD_WRITE : LOAD_READ);
	return l->prefers_read;
}

static bool
may_read(const struct conn *c)
{
	return c->accepts && conn_is_open(c) &&
	       !(c->ctrl_lines & (CTRL_FIN | CTRL_RESET | CTRL_FIN_ACK));
}

/* The oldest message that has segments to read, or NULL. */
static struct rts *
unread(struct conn *c)
{
	for (uint32_t i = 0; i < c->rts_count; i++) {
		struct rts *r = &c->cold->rts[i];

		if (r->state == RTS_READING && (r->posted < r->length || !r->length))
			return r;
	}
	return NULL;
}

static void
arrived(struct engine *e, struct conn *c, struct rts *r)
{
	r->state = RTS_READ;
	count(&e->counters.fetched, 1);
	count(&e->counters.fetched_bytes, r->length);
	ctrl_line_due(e, c, CTRL_CTS);
	if (r->number != c->rx_messages)
		return;
	r->delivered = true;
	deliver_bulk(e, c, r);
}

void
rndv_read_begin(struct engine *e, struct conn *c, struct rts *r)
{
	r->state = RTS_READING;
	list_append_once(&c->link->reading, &c->cold->reading);
	link_busy(e, c->link);
}

static bool
read_waits(const struct peer_link *l)
{
	return !list_empty(&l->reading) || !list_empty(&l->to_read);
}

/* READs the next segment of the connection whose turn it is. */
static bool
read_post(struct engine *e, struct peer_link *l)
{
	struct list_node *node;
	struct session *s;
	struct conn *c;
	struct rts *r;

	/* while no READ is left to post: places for the connections whose turn it is */
	while (list_empty(&l->reading) && !list_empty(&l->to_read)) {
		node = l->to_read.next;
		s = conn_of_cold(e, LIST_OWNER(node, struct conn_cold, awaits_place))->session;
		list_remove(node);
		session_await_memory(e, s, &s->awaits_place, node);
		session_memory_freed(e, s);
	}
	if (list_empty(&l->reading))
		return false;
	c = conn_of_cold(e, LIST_OWNER(l->reading.next, struct conn_cold, reading));
	r = may_read(c) ? unread(c) : NULL;
	if (r && r->length) {
		struct nic_send_wr wr = {.opcode = NIC_READ, .sge_count = 1};
		uint32_t left = r->length - r->posted;
		uint32_t length = left < FLIGHT_SEGMENT ? left : FLIGHT_SEGMENT;

		s = c->session;
		wr.sge[0] = (struct nic_sge){(uintptr_t)place_memory(s, r->place) + r->posted,
					     length, place_mr(s, r->place)->lkey};
		wr.remote_address = r->address + r->posted;
		wr.rkey = r->rkey;
		flight_put(
		    e, l, &wr,
		    (struct flight){
			.owner = &rndv_read, .conn = c, .number = r->number, .bytes = length});
		r->posted += length;
		r->in_flight++;
	} else if (r) {
		arrived(e, c, r);
	}
	list_remove(&c->cold->reading);
	if (r && unread(c))
		list_append(&l->reading, &c->cold->reading);
	return true;
}

static struct rts *
find(struct conn *c, uint64_t number)
{
	for (uint32_t i = 0; i < c->rts_count; i++)
		if (c->cold->rts[i].number == number)
			return &c->cold->rts[i];
	return NULL;
}

static void
read_done(struct engine *e, const struct flight *f)
{
	struct rts *r = find(f->conn, f->number); /* it stays as long as READs are in flight */

	assert(r && r->in_flight);
	r->in_flight--;
	if (may_read(f->conn) && !r->in_flight && r->posted == r->length)
		arrived(e, f->conn, r);
}

static uint32_t
read_rewind(struct engine *e, struct peer_link *l, const struct flight *f)
{
	struct rts *r = find(f->conn, f->number);
	uint32_t n = r ? r->in_flight : 0;

	(void)e;
	if (!n)
		return 0;
	r->posted = flight_rewound(r->posted, n);
	r->in_flight = 0;
	if (may_read(f->conn))
		list_append_once(&l->reading, &f->conn->cold->reading);
	return n;
}

const struct flight_owner rndv_read = {read_waits, read_post, read_done, read_rewind};
