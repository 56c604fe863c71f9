/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches (frames on the wire) of peers. A peer is trusted no more than a program: each line's head
 * is copied once and checked. A malformed frame breaks the link; a line that its connection may not
 * send ends that connection.
 */
#include "answer.h"
#include "batch.h"
#include "channel.h"
#include "conn.h"
#include "ctrl_line.h"
#include "deliver.h"
#include "link.h"
#include "remote.h"
#include "slot_head.h"
#include "state.h"

/*
 * Copies lines of the ring into slots unchanged; the head is stored last, of two words: op and
 * order without a sequence number, vQPN and length.
 */
static inline void
copy_to_ring(const struct weir_ring *r, const struct weir_slot *ring, uint32_t mask, uint64_t pos,
	     uint64_t a, uint64_t b, uint32_t n)
{
	struct weir_slot *to = weir_ring_at(r, r->pos);

	for (uint32_t i = 1; i < n; i++) {
		char *more = (char *)weir_ring_at(r, r->pos + i);

		memcpy(more + 4, (const char *)&ring[(pos + i) & mask] + 4, WEIR_SLOT_MORE_BYTES);
		weir_ring_continue(r, i);
	}
	memcpy((char *)to + 8, &b, 8);
	memcpy(to->data, ring[pos & mask].data, WEIR_SLOT_HEAD_BYTES);
	/* pairs with the acquire in weir_ring_peek(); sequence and first half of the head at once
	 */
	atomic_store_explicit(&to->first, a | (uint32_t)(r->pos + 1), memory_order_release);
}

/* The program's ring is full, or older messages wait already. */
static COLD void
spill_inline(struct engine *e, struct conn *c, struct head h, const struct peer_link *l,
	     uint64_t pos, uint32_t n)
{
	struct weir_slot head;

	line_load(&head, &l->rx[pos & l->rx_mask]);
	h.flags = 0;
	head_store(&head, 0, h);
	spill_slots(e, c->channel, c, &head, l->rx, l->rx_mask, pos, n);
}

/*
 * Delivers the ordinary inline messages of one connection from pos on. Returns their lines. The
 * connection's fields stay in registers meanwhile: a store between those to slots would wait, as
 * they do, for cache lines that the program holds, and the store queue is short.
 */
static uint32_t
deliver_messages(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end)
{
	const struct weir_slot *ring = l->rx;
	uint32_t mask = l->rx_mask, most, taken = 0, vqpn;
	struct head_words h = head_words(&ring[pos & mask]);
	struct conn *c = conn_find(e, (uint32_t)h.b);
	uint64_t bytes = 0, messages = 0, room, a;
	struct weir_ring to;

	if ((uint8_t)(h.a >> 32) != WEIR_OP_INLINE || !c || c->link != l ||
	    c->state == CONN_OPENING || !c->accepts || c->channel->spilling)
		return 0;
	to = c->channel->rx;
	room = weir_ring_room(&to);
	if (room > (c->rx_granted - c->rx_delivered) / WEIR_SLOT_SIZE)
		room = (c->rx_granted - c->rx_delivered) / WEIR_SLOT_SIZE;
	most = (uint32_t)(end - pos < room ? end - pos : room);
	a = head_word(WEIR_OP_INLINE, (uint16_t)c->rx_messages);
	vqpn = (uint32_t)h.b;
	if (!most)
		return 0;
	for (;;) {
		uint32_t length = (uint32_t)(h.b >> 32), n = weir_slots_inline(length);

		if ((h.a & ~HEAD_FLAGS & ~HEAD_SEQ) != a || (uint32_t)h.b != vqpn ||
		    length > WEIR_INLINE_MAX || n > most - taken)
			break;
		copy_to_ring(&to, ring, mask, pos + taken, a, h.b, n);
		to.pos += n;
		taken += n;
		bytes += length;
		messages++;
		if (taken == most) /* what lies behind is of no frame, or has no room */
			break;
		a += HEAD_NEXT;
		h = head_words(&ring[(pos + taken) & mask]);
	}
	if (!taken)
		return 0;
	admitted(e, c, messages, bytes, taken * WEIR_SLOT_SIZE);
	c->channel->rx.pos = to.pos;
	channel_published(e, c->channel);
	e->delivered = true;
	return taken;
}

/* Takes the message or control line at pos, in a frame that ends at `end`: its lines, or -1. */
static inline int
take_line(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end)
{
	const struct weir_slot *line = &l->rx[pos & l->rx_mask];
	struct head h = head_load(line);
	struct weir_slot copy;
	struct conn *c;

	if (LIKELY(h.op == WEIR_OP_INLINE || h.op == WEIR_OP_PLACE)) {
		c = conn_find(e, h.vqpn);
		if (UNLIKELY(!c || c->link != l || c->state == CONN_OPENING))
			return -1;
		if (LIKELY(h.op == WEIR_OP_INLINE)) {
			uint32_t n = weir_slots_inline(h.length);

			if (UNLIKELY(h.length > WEIR_INLINE_MAX || n > end - pos))
				return -1;
			if (UNLIKELY(!admit(e, c, h, n * WEIR_SLOT_SIZE)))
				return (int)n;
			if (LIKELY(!c->channel->spilling && channel_room(e, c->channel, n))) {
				copy_to_ring(&c->channel->rx, l->rx, l->rx_mask, pos,
					     head_word(h.op, h.order), head_whose(h.vqpn, h.length),
					     n);
				c->channel->rx.pos += n;
				channel_published(e, c->channel);
			} else {
				spill_inline(e, c, h, l, pos, n);
			}
			return (int)n;
		}
		if (h.length <= WEIR_INLINE_MAX || h.length > WEIR_BLOCK_SIZE ||
		    message_lines(h.length) > end - pos)
			return -1;
		return deliver_place(e, c, h, l, pos);
	}
	if (weir_op_is_cell(h.op))
		return remote_receive(e, l, pos, end);
	if (h.op == WEIR_WIRE_ANSWER)
		return answer_receive(e, l, pos, end);
	line_load(&copy, line);
	return ctrl_line_receive(e, l, &copy) ? 1 : -1;
}

/* Takes the frame in l->rx apart, from line `at` there on. */
static bool
take_apart(struct engine *e, struct peer_link *l, uint64_t at, uint32_t lines)
{
	struct weir_frame_head head;
	uint64_t pos = at, end = at + lines;

	line_load((struct weir_slot *)(void *)&head, &l->rx[pos & l->rx_mask]);
	if (head.version != WEIR_WIRE_VERSION || head.lines != lines ||
	    head.position != l->rx_pos || lines == 0 || lines > l->rx_mask + 1)
		return false;
	l->frames_received++;
	count(&e->counters.frames_received, 1);
	if (head.flags & (WEIR_FRAME_STALLED | WEIR_FRAME_WAKE))
		l->peer_stalled = true;
	if (UNLIKELY(head.flags & WEIR_FRAME_PROMPT))
		l->peer_prompts = true;
	l->peer_load = head.load < 1000 ? head.load : 1000;
	for (pos++; pos < end;) {
		int n = (int)deliver_messages(e, l, pos, end);

		if (!n)
			n = take_line(e, l, pos, end);
		if (n < 0)
			return false;
		pos += (unsigned)n;
	}
	l->rx_pos += lines;
	if (UNLIKELY(l->ring_least))
		link_look(e, l);
	/* after the lines: a RESET among them says which messages were not delivered */
	if (head.held > head.consumed)
		return false;
	return link_credit(e, l, head.consumed, head.wrs, head.consumed - head.held);
}

bool
frame_receive(struct engine *e, struct peer_link *l, uint32_t lines)
{
	return take_apart(e, l, l->rx_pos, lines);
}

bool
frame_receive_sent(struct engine *e, struct peer_link *l, const uint8_t *frame, uint32_t lines)
{
	bool ok;

	l->rx = (const struct weir_slot *)(const void *)frame;
	l->rx_mask = WEIR_SEND_LINES - 1;
	l->rx_send = true;
	ok = take_apart(e, l, 0, lines);
	l->rx = l->ring;
	l->rx_mask = l->ring_mask;
	l->rx_send = false;
	return ok;
}
