/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames of peers. A peer is believed no more than a program: each line's head is copied once and
 * checked; what isn't a frame breaks the link, what a connection may not do ends that connection.
 */
#include "internal.h"

/* The message or control line at pos, of a frame that ends at `end`: its lines, or -1. */
static inline int
take_line(struct engine *e, struct link *l, uint64_t pos, uint64_t end)
{
	const struct weir_slot *line = &l->ring[pos & l->rx_mask];
	struct head h = head_load(line);
	struct weir_slot copy;
	struct conn *c;

	if (LIKELY(h.op == WEIR_OP_INLINE || h.op == WEIR_OP_PLACE)) {
		c = conn_find(e, h.vqpn);
		if (UNLIKELY(!c || c->link != l || c->state == CONN_OPENING))
			return -1;
		if (LIKELY(h.op == WEIR_OP_INLINE)) {
			if (h.length > WEIR_INLINE_MAX || weir_slots_inline(h.length) > end - pos)
				return -1;
			return deliver_inline(e, c, h, l, pos);
		}
		if (h.length <= WEIR_INLINE_MAX || h.length > WEIR_BLOCK_SIZE ||
		    message_lines(h.length) > end - pos)
			return -1;
		return deliver_place(e, c, h, l, pos);
	}
	line_load(&copy, line);
	return control_receive(e, l, &copy);
}

/* A frame of so many lines has arrived, as the immediate says. False: it is none. */
bool
frame_receive(struct engine *e, struct link *l, uint32_t lines)
{
	struct weir_frame_head head;
	uint64_t pos = l->rx_pos, end = pos + lines;

	line_load((struct weir_slot *)(void *)&head, &l->ring[pos & l->rx_mask]);
	if (head.version != WEIR_WIRE_VERSION || head.lines != lines || head.position != pos ||
	    lines == 0 || lines > l->rx_mask + 1)
		return false;
	l->frames_received++;
	count(&e->counters.frames_received, 1);
	if (head.flags & WEIR_FRAME_STALLED)
		l->peer_stalled = true;
	for (pos++; pos < end;) {
		int n = take_line(e, l, pos, end);

		if (n < 0)
			return false;
		pos += (unsigned)n;
	}
	l->rx_pos = end;
	link_busy(e, l);
	/* after the lines: a RESET among them says what was not delivered */
	return link_credit(e, l, head.consumed, head.wrs);
}
