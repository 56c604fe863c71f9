/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of peers, put into their session's memory: into the rx ring, or a block, or spilled. */
#include "internal.h"

/* Room for n slots in the program's ring. */
bool
channel_room(struct engine *e, struct channel *ch, uint32_t n)
{
	if (LIKELY(weir_ring_room(&ch->rx) >= n))
		return true;
	if (ch->session->violated)
		return false;
	if (!weir_ring_refresh(&ch->rx)) {
		session_violate(e, ch->session, "tail of the receive ring out of range");
		return false;
	}
	return weir_ring_room(&ch->rx) >= n;
}

/* The peer sent what it may not: nothing of it is believed any more. */
static bool
peer_misbehaved(struct engine *e, struct conn *c)
{
	count(&e->counters.bad_frames, 1);
	conn_abort(e, c, EPROTO, true);
	return false;
}

/* Whether a message of this cost may be delivered; takes it off the grant. */
static inline bool
admit(struct engine *e, struct conn *c, struct head h, uint32_t cost)
{
	if (UNLIKELY(!c->accepts)) {
		count(&e->counters.stray, 1);
		return false;
	}
	if (UNLIKELY((uint16_t)c->rx_messages != h.order || c->rx_granted - c->rx_delivered < cost))
		return peer_misbehaved(e, c);
	c->rx_delivered += cost;
	c->rx_messages++;
	c->session->promised -= cost;
	e->rx_messages++;
	e->rx_bytes += h.length;
	return true;
}

/* The last store of a slot: its sequence and the first half of its head. */
static inline void
publish(struct weir_ring *r, struct weir_slot *to, struct head h, uint32_t n)
{
	uint64_t a = (uint64_t)h.order << 48 | (uint64_t)h.flags << 40 | (uint64_t)h.op << 32 |
		     (uint32_t)(r->pos + 1);

	/* pairs with the acquire in weir_ring_peek() */
	atomic_store_explicit((_Atomic uint64_t *)(void *)to, a, memory_order_release);
	r->pos += n;
}

/* Lines of the ring go into slots as they are. */
static inline void
copy_slots(struct weir_ring *r, const struct link *l, uint64_t pos, struct head h, uint32_t n)
{
	struct weir_slot *to = weir_ring_at(r, r->pos);
	uint64_t b = (uint64_t)h.length << 32 | h.vqpn;

	for (uint32_t i = 1; i < n; i++) {
		char *more = (char *)weir_ring_at(r, r->pos + i);

		memcpy(more + 4, (const char *)&l->ring[(pos + i) & l->rx_mask] + 4,
		       WEIR_SLOT_MORE_BYTES);
		weir_ring_continue(r, i);
	}
	memcpy((char *)to + 8, &b, 8);
	memcpy(to->data, l->ring[pos & l->rx_mask].data, WEIR_SLOT_HEAD_BYTES);
	publish(r, to, h, n);
}

/* Returns the lines of the message at pos, which lie within the frame, or -1. */
int
deliver_inline(struct engine *e, struct conn *c, struct head h, const struct link *l, uint64_t pos)
{
	uint32_t n = weir_slots_inline(h.length);
	struct channel *ch = c->channel;

	if (UNLIKELY(!admit(e, c, h, n * WEIR_SLOT_SIZE)))
		return (int)n;
	h.flags = 0;
	if (LIKELY(!ch->clogged && channel_room(e, ch, n))) {
		copy_slots(&ch->rx, l, pos, h, n);
		channel_published(e, ch);
	} else {
		struct weir_slot head;

		line_load(&head, &l->ring[pos & l->rx_mask]);
		head_store(&head, 0, h);
		spill_slots(e, ch, c, &head, l->ring, l->rx_mask, pos, n);
	}
	return (int)n;
}

/* A slot that names a place: into the ring, or spilled. */
static void
deliver_slot(struct engine *e, struct conn *c, struct head h, uint32_t block)
{
	struct session *s = c->session;
	struct channel *ch = c->channel;
	struct weir_slot slot = {0};

	head_store(&slot, 0, h);
	slot.place[0] = WEIR_PLACE(0, s->recv_at + (uint64_t)block * WEIR_BLOCK_SIZE);
	if (ch->clogged || !channel_put_event(e, ch, &slot))
		spill_slots(e, ch, c, &slot, NULL, 0, 0, 1);
}

int
deliver_place(struct engine *e, struct conn *c, struct head h, const struct link *l, uint64_t pos)
{
	uint32_t lines = message_lines(h.length), block, at, first;
	struct session *s = c->session;
	uint8_t *to;

	if (!admit(e, c, h, weir_cost(h.length)))
		return (int)lines;
	block = weir_blocks_take(&s->blocks);
	assert(block != WEIR_BLOCK_NONE); /* it was promised */
	s->runs[block] = 1;
	to = s->base + s->recv_at + (uint64_t)block * WEIR_BLOCK_SIZE;
	at = (uint32_t)((pos + 1) & l->rx_mask);
	first = (l->rx_mask + 1 - at) * WEIR_SLOT_SIZE;
	if (first > h.length)
		first = h.length;
	memcpy(to, &l->ring[at], first);
	memcpy(to + first, l->ring, h.length - first);
	h.flags = 0;
	deliver_slot(e, c, h, block);
	return (int)lines;
}

/* A bulk message that lies in its blocks already. */
void
deliver_bulk(struct engine *e, struct conn *c, uint32_t block, uint32_t length)
{
	struct head h = {.op = WEIR_OP_PLACE,
			 .flags = WEIR_SLOT_BULK,
			 .order = (uint16_t)c->rx_messages,
			 .vqpn = c->vqpn,
			 .length = length};

	c->rx_messages++;
	c->by_write++;
	e->rx_messages++;
	e->rx_bytes += length;
	deliver_slot(e, c, h, block);
}
