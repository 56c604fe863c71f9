/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of peers, put into the memory of their session; batch.c puts the inline ones. */
#include "channel.h"
#include "conn.h"
#include "ctrl_line.h"
#include "deliver.h"
#include "events.h"
#include "link.h"
#include "region.h"
#include "rndv.h"
#include "session.h"
#include "slot_head.h"
#include "state.h"

#include <assert.h>
#include <errno.h>

bool
channel_find_room(struct engine *e, struct channel *ch, uint32_t n)
{
	if (ch->session->violated)
		return false;
	if (!weir_ring_refresh(&ch->rx)) {
		session_violate(e, ch->session, "tail of the receive ring out of range");
		return false;
	}
	return weir_ring_room(&ch->rx) >= n;
}

bool
peer_misbehaved(struct engine *e, struct conn *c)
{
	count(&e->counters.bad_frames, 1);
	conn_abort(e, c, EPROTO, true);
	ctrl_line_hold(c);
	return false;
}

/* Puts a slot that names a place into the ring, or spills it. */
static void
deliver_slot(struct engine *e, struct conn *c, struct head h, weir_place place)
{
	struct channel *ch = c->channel;
	struct weir_slot slot = {0};

	head_store(&slot, 0, h);
	slot.place[0] = place;
	if (ch->spilling || !channel_put_event(e, ch, &slot))
		spill_slots(e, ch, c, &slot, NULL, 0, 0, 1);
}

int
deliver_place(struct engine *e, struct conn *c, struct head h, const struct peer_link *l,
	      uint64_t pos)
{
	uint32_t lines = message_lines(h.length), block, at, first;
	struct session *s = c->session;
	weir_place place;
	uint8_t *to;

	if (!admit(e, c, h, weir_cost(h.length)))
		return (int)lines;
	block = weir_blocks_take(&s->blocks);
	assert(block != WEIR_BLOCK_NONE); /* it was promised */
	s->runs[block] = 1;
	place = WEIR_PLACE(0, s->recv_at + (uint64_t)block * WEIR_BLOCK_SIZE);
	to = place_memory(s, place);
	at = (uint32_t)((pos + 1) & l->rx_mask);
	first = (l->rx_mask + 1 - at) * WEIR_SLOT_SIZE;
	if (first > h.length)
		first = h.length;
	memcpy(to, &l->rx[at], first);
	memcpy(to + first, l->rx, h.length - first);
	h.flags = 0;
	deliver_slot(e, c, h, place);
	return (int)lines;
}

void
deliver_bulk(struct engine *e, struct conn *c, const struct rts *r)
{
	struct session *s = c->session;
	struct head h = {.op = WEIR_OP_PLACE,
			 .flags = WEIR_SLOT_BULK,
			 .order = (uint16_t)c->rx_messages,
			 .vqpn = c->vqpn,
			 .length = r->length};

	s->promised -= WEIR_SLOT_SIZE;
	if (WEIR_PLACE_REGION(r->place)) {
		region_drop(s, WEIR_PLACE_REGION(r->place));
		count(&e->counters.rx_placed, 1);
	} else {
		s->runs[place_block(s, r->place)] = bulk_blocks(r->length);
	}
	c->rx_messages++;
	c->bytes += r->length;
	c->by_write += r->state == RTS_ANSWERED;
	c->by_read += r->state != RTS_ANSWERED;
	count(&e->counters.rx_messages, 1);
	count(&e->counters.rx_bytes, r->length);
	deliver_slot(e, c, h, r->place);
	posts_forget(c, c->rx_messages);
	session_memory_freed(e, s);
}
