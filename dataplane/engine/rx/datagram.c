/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagram connections. One UD queue pair per engine serves all of them, in both directions. A
 * message is one datagram, complete when it is posted; one that finds no room is dropped and
 * counted. Connections are made and ended over links, as streams are: so both ends learn each
 * other's numbers, and notice a peer's death.
 *
 * A datagram counts only if it came from the address and queue pair that the link's peer named, and
 * names the vqpns of both ends. Datagrams are numbered, and a bit map of the last 64 numbers keeps
 * those that the network doubles from being delivered twice.
 */
#include "channel.h"
#include "conn.h"
#include "ctrl_line.h"
#include "datagram.h"
#include "deliver.h"
#include "link.h"
#include "region.h"
#include "send_queue.h"
#include "session.h"
#include "slot_head.h"
#include "state.h"

#include <errno.h>

#define WINDOW 64u /* numbers whose arrival is remembered */

void *
engine_datagram_user(struct engine *e)
{
	e->datagram_user = (struct link_qp){NULL, DATAGRAM};
	return &e->datagram_user;
}

int
datagrams_add(struct engine *e, const struct engine_datagram_command *k)
{
	struct datagrams *d = &e->datagrams;

	if (!k->qp || !k->srq || !k->memory || (d->up && !d->broken) || d->done != d->posted)
		return -EINVAL;
	if (d->ending)
		datagrams_settle(e);
	if (!d->up)
		for (uint32_t i = 0; i < ENGINE_DATAGRAMS; i++)
			d->missing[d->missing_count++] = (uint16_t)i;
	d->is = *k;
	d->qpn = nic_qpn(k->qp);
	d->up = true;
	d->broken = d->broken_due = false;
	e->rare = true; /* buffers are missing */
	return 0;
}

void
datagrams_break(struct engine *e)
{
	struct datagrams *d = &e->datagrams;

	if (!d->up || d->broken)
		return;
	d->broken = d->ending = d->broken_due = e->main_events_due = e->rare = true;
}

void
datagrams_settle(struct engine *e)
{
	weir_assert(e->datagrams.broken);
	e->datagrams.ending = false;
	for (uint32_t i = 0; i < e->conns_fresh; i++)
		if (e->conns[i].vqpn && e->conns[i].kind == CONN_DATAGRAM && !e->conns[i].local)
			conn_abort(e, &e->conns[i], ECONNRESET, true);
}

bool
datagrams_emit_broken(struct engine *e)
{
	const struct engine_event event = {.type = ENGINE_EVENT_DATAGRAM_ERROR,
					   .qpn = e->datagrams.qpn};
	struct datagrams *d = &e->datagrams;

	if (!d->broken_due)
		return true;
	if (d->ending || d->done != d->posted || !e->config.emit(e->config.user, &event))
		return false;
	d->broken_due = false;
	return true;
}

void
datagrams_join(struct peer_link *l, const struct engine_conn_command *k)
{
	if (k->ah)
		l->ah = k->ah;
	if (k->to.qpn)
		l->datagrams_to = k->to;
}

void
datagrams_open(struct engine *e, struct conn *c, uint32_t peer_vqpn)
{
	/* the library reports consumed cost per half of this */
	atomic_store_explicit(&c->desc->recv_window, c->rx_window_max, memory_order_relaxed);
	conn_opened(e, c, peer_vqpn, GRANT_ALL, 1u << 30);
	/* the queue pair that the peer knows is gone */
	if (c->cold->dgram.qpn && (e->datagrams.broken || c->cold->dgram.qpn != e->datagrams.qpn))
		conn_abort(e, c, ECONNRESET, true);
}

/* ---- sending ---- */

bool
datagram_send(struct engine *e, struct conn *c, const struct weir_ring *r, struct head h,
	      weir_place place)
{
	struct datagrams *d = &e->datagrams;
	uint8_t *at = d->is.memory + (size_t)(ENGINE_DATAGRAMS + d->posted % ENGINE_DATAGRAMS) *
					 ENGINE_DATAGRAM_BYTES;
	struct weir_datagram_head head = {
	    .vqpn = c->peer_vqpn, .from = c->vqpn, .number = c->sent + 1};
	struct peer_link *l = c->link;
	struct nic_send_wr wr;
	int n;

	weir_assert(c->kind == CONN_DATAGRAM);
	/* a datagram that can't be sent now is lost: its connection ends, or isn't accepted yet */
	if (d->up && !d->broken && l && l->ah && !(c->ctrl_lines & CTRL_ACCEPT)) {
		weir_assert(d->posted - d->done <= ENGINE_DATAGRAMS);
		if (d->posted - d->done == ENGINE_DATAGRAMS)
			return false;
		memcpy(at, &head, sizeof(head));
		if (h.op != WEIR_OP_INLINE)
			memcpy(at + sizeof(head), place_memory(c->session, place), h.length);
		else if (r)
			weir_ring_get_inline(r, at + sizeof(head), h.length);
		else
			pend_get_inline(c->pend_first, at + sizeof(head), h.length);
		wr = (struct nic_send_wr){
		    .wr_id = d->posted + 1,
		    .sge = {{(uintptr_t)at, (uint32_t)sizeof(head) + h.length, d->is.mr.lkey}},
		    .sge_count = 1,
		    .opcode = NIC_SEND_IMM,
		    .flags = NIC_SIGNALED,
		    .imm = WEIR_IMM(WEIR_IMM_DATAGRAM, 0),
		    .ah = l->ah,
		    .remote_qpn = l->datagrams_to.qpn,
		    .qkey = l->datagrams_to.qkey,
		};
		n = nic_post_send(d->is.qp, &wr, 1);
		if (!n)
			return false;
		if (n < 0)
			datagrams_break(e);
		else
			l->last_datagram = ++d->posted;
		count(&e->counters.datagrams_sent, 1);
	}
	c->sent++;
	conn_completed(e, c, 1, h.flags & WEIR_SLOT_NOTIFY);
	return true;
}

/* ---- receiving ---- */

/* Whether the IP header, or GRH, before the datagram names the link's peer as its source. */
static bool
is_from(const struct peer_link *l, const uint8_t *grh)
{
	static const uint8_t mapped[12] = {[10] = 0xff, 0xff};
	const uint8_t *gid = l->is.peer_gid.raw;

	if (l->is.peer_lid)
		return true; /* InfiniBand: within a subnet there is no GRH */
	if (!memcmp(gid, mapped, sizeof(mapped)))
		return grh[20] >> 4 == 4 && !memcmp(grh + 32, gid + 12, 4);
	return grh[0] >> 4 == 6 && !memcmp(grh + 8, gid, 16);
}

/* Notes the arrival of number n. False: it had arrived, or is too old to know. */
static bool
is_new(struct conn *c, uint64_t n)
{
	uint64_t ahead = n - c->cold->dgram.newest, behind = c->cold->dgram.newest - n;

	if (n > c->cold->dgram.newest) {
		c->cold->dgram.came = ahead < WINDOW ? c->cold->dgram.came << ahead | 1 : 1;
		c->cold->dgram.newest = n;
		return true;
	}
	if (behind >= WINDOW || c->cold->dgram.came >> behind & 1)
		return false;
	c->cold->dgram.came |= 1ull << behind;
	return true;
}

static void
deliver(struct engine *e, struct conn *c, const uint8_t *from, uint32_t length)
{
	uint32_t cost = weir_cost(length), n = 1, block;
	struct session *s = c->session;
	struct channel *ch = c->channel;
	struct weir_slot *to = weir_ring_at(&ch->rx, ch->rx.pos);
	bool is_inline = length <= WEIR_INLINE_MAX;
	uint64_t offset;

	if (is_inline)
		n = weir_slots_inline(length);
	/* a connection that isn't read may not take the memory that others wait for */
	if (!c->accepts || ch->spilling || s->lacks_memory ||
	    c->rx_delivered - c->rx_consumed + cost > c->rx_window_max || !channel_room(e, ch, n) ||
	    (!is_inline && !session_affords(s, 0, 1))) {
		c->cold->dgram.dropped++;
		count(&e->counters.datagrams_dropped, 1);
		return;
	}
	if (is_inline) {
		weir_ring_put_inline(&ch->rx, from, length);
	} else {
		block = weir_blocks_take(&s->blocks);
		weir_assert(block != WEIR_BLOCK_NONE);
		s->runs[block] = 1;
		offset = s->recv_at + (uint64_t)block * WEIR_BLOCK_SIZE;
		memcpy(s->base + offset, from, length);
		to->place[0] = WEIR_PLACE(0, offset);
	}
	weir_slot_whose(to, c->vqpn, length);
	weir_ring_publish_what(&ch->rx, to, n,
			       weir_slot_what(is_inline ? WEIR_OP_INLINE : WEIR_OP_PLACE, 0,
					      (uint16_t)c->rx_messages));
	channel_published(e, ch);
	e->delivered = true;
	/* granted only now that it is here */
	c->rx_granted += cost;
	s->promised += cost;
	admitted(e, c, 1, length, cost);
	count(&e->counters.datagrams_received, 1);
}

void
datagrams_completion(struct engine *e, const struct nic_wc *wc)
{
	bool received = wc->opcode == NIC_RECV || wc->opcode == NIC_RECV_IMM;
	struct datagrams *d = &e->datagrams;
	uint32_t i = (uint32_t)wc->wr_id, at = NIC_GRH_BYTES;
	struct weir_datagram_head head;
	const uint8_t *buffer;
	struct conn *c = NULL;

	if (!received) {
		if (wc->qpn == d->qpn && wc->wr_id > d->done && wc->wr_id <= d->posted)
			d->done = wc->wr_id;
		if (wc->qpn == d->qpn && wc->status != NIC_WC_SUCCESS)
			datagrams_break(e);
		return;
	}
	if (i >= ENGINE_DATAGRAMS || d->missing_count == ENGINE_DATAGRAMS)
		return;
	d->missing[d->missing_count++] = (uint16_t)i;
	e->rare = true;
	if (wc->status != NIC_WC_SUCCESS || wc->qpn != d->qpn)
		return;
	buffer = d->is.memory + (size_t)i * ENGINE_DATAGRAM_BYTES;
	if (wc->length >= at + sizeof(head) && wc->length <= ENGINE_DATAGRAM_BYTES && wc->has_imm &&
	    wc->imm == WEIR_IMM(WEIR_IMM_DATAGRAM, 0)) {
		memcpy(&head, buffer + at, sizeof(head));
		at += sizeof(head);
		c = conn_find(e, head.vqpn);
	}
	/* a datagram that overtakes its ACCEPT is lost */
	if (!c || c->kind != CONN_DATAGRAM || !c->link || c->state == CONN_OPENING ||
	    head.from != c->peer_vqpn || wc->source_qpn != c->link->datagrams_to.qpn ||
	    !head.number || !is_from(c->link, buffer))
		count(&e->counters.datagrams_refused, 1);
	else if (is_new(c, head.number))
		deliver(e, c, buffer + at, wc->length - at);
	else
		count(&e->counters.datagrams_doubled, 1);
}

void
datagrams_refill(struct engine *e)
{
	struct datagrams *d = &e->datagrams;
	struct nic_recv_wr wr[NIC_POLL_MAX];

	while (d->missing_count) {
		unsigned n = 0;
		int posted;

		for (; n < NIC_POLL_MAX && n < d->missing_count; n++) {
			uint32_t i = d->missing[d->missing_count - 1 - n];

			wr[n] = (struct nic_recv_wr){
			    .wr_id = i,
			    .sge = {(uintptr_t)(d->is.memory + (size_t)i * ENGINE_DATAGRAM_BYTES),
				    ENGINE_DATAGRAM_BYTES, d->is.mr.lkey}};
		}
		posted = NIC_OPS(e->config.nic)->post_srq_recv(d->is.srq, wr, n);
		if (posted <= 0)
			return;
		d->missing_count -= (uint32_t)posted;
	}
}
