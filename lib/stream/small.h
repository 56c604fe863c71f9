/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One put and one take of a small message, of 1 or 2 slots, for streams and the message model. Both
 * call nothing and keep little in memory: their stores wait for the slots' cache lines together,
 * and the store queue holds few. Worker locked.
 */
#ifndef WEIR_STREAM_SMALL_H
#define WEIR_STREAM_SMALL_H

#include "conn.h"

/* Where a message goes; a constant at compile time, where the caller knows. */
enum weir_small_to { TO_ENGINE, TO_LOCAL_PEER, TO_EITHER };

/*
 * Puts a message of `length` bytes at `buf` behind a head of `head_length` bytes (0, 8 or 16). The
 * caller has checked error, window and room. `head_length` and `slots` (1 or 2, as both lengths
 * require) are constants at compile time. True: the other end sleeps and has to be woken.
 */
static inline __attribute__((always_inline)) bool
weir_small_put(struct weir_conn *c, const void *head, uint32_t head_length, const void *buf,
	       uint32_t length, uint32_t slots, enum weir_small_to to)
{
	struct weir_pipe *p = c->pipe;
	struct weir_slot *s = weir_ring_at(&p->tx, p->tx.pos);
	uint32_t first = slots == 1 ? length : WEIR_SLOT_HEAD_BYTES - head_length;
	uint32_t seq = (uint32_t)(p->tx.pos + 2);
	struct weir_slot_more *more;

	weir_assert(head_length + length <= WEIR_INLINE_SMALL &&
		    slots == weir_slots_inline(head_length + length));
	weir_assert(to == TO_EITHER || (to == TO_LOCAL_PEER) == p->local);
	for (uint32_t i = 0; i < slots; i++)
		weir_ring_prefetch(&p->tx, i);
	if (slots == 2) {
		more = (struct weir_slot_more *)weir_ring_at(&p->tx, p->tx.pos + 1);
		weir_slot_fill(more->data, (const uint8_t *)buf + first, length - first);
		atomic_store_explicit(&more->seq, seq, memory_order_relaxed);
	}
	if (head_length)
		memcpy(s->data, head, head_length);
	weir_slot_fill(s->data + head_length, buf, first);
	weir_slot_whose(s, c->send_vqpn, head_length + length);
	if (to == TO_EITHER ? p->local : to == TO_LOCAL_PEER)
		weir_ring_publish_paired(&p->tx, s, slots,
					 weir_slot_what(WEIR_OP_INLINE, 0, (uint16_t)p->rx.pos));
	else
		weir_ring_publish_what(&p->tx, slots,
				       weir_slot_what(WEIR_OP_INLINE, 0, (uint16_t)c->sent));
	c->spent += slots * WEIR_SLOT_SIZE;
	c->sent++;
	c->sent_bytes += head_length + length;
	if (p->burst)
		p->burst = 0;
	return weir_unlikely(weir_pipe_asleep(p));
}

/*
 * The slot of c's next message if that lies at the ring's head, inline, of at most `most` bytes;
 * *h is a copy of its head. NULL: look elsewhere.
 */
static inline __attribute__((always_inline)) const struct weir_slot *
weir_small_peek(const struct weir_conn *c, size_t most, struct weir_head *h)
{
	const struct weir_slot *s;

	if (weir_unlikely(c->state != CONN_OPEN || c->queue))
		return NULL;
	s = weir_ring_peek(&c->pipe->rx);
	if (!s)
		return NULL;
	*h = weir_head_copy(s);
	return weir_likely(h->vqpn == c->vqpn && h->op == WEIR_OP_INLINE && h->length <= most)
		   ? s
		   : NULL;
}

/* Pops c's message of `slots` slots off the ring and counts it as received. Its cost if inline. */
static inline __attribute__((always_inline)) uint32_t
weir_slots_received(struct weir_conn *c, const struct weir_head *h, uint32_t slots)
{
	struct weir_pipe *p = c->pipe;

	weir_pipe_pop(p, h->order, h->flags, slots);
	p->burst++;
	c->received++;
	c->received_bytes += h->length;
	return h->flags & WEIR_SLOT_BULK ? 0 : slots * WEIR_SLOT_SIZE;
}

/*
 * Takes the message of `slots` slots (1 or 2, a constant at compile time) that weir_small_peek()
 * found at s into buf. The cost that counts as consumed once the caller is done with it.
 */
static inline __attribute__((always_inline)) uint32_t
weir_small_take(struct weir_conn *c, const struct weir_slot *s, const struct weir_head *h,
		void *buf, uint32_t slots)
{
	const struct weir_ring *r = &c->pipe->rx;
	const struct weir_slot_more *more;

	weir_assert(slots == weir_slots_inline(h->length) && s == weir_ring_at(r, r->pos));
	if (slots == 1) {
		weir_slot_copy(buf, s->data, h->length);
	} else {
		more = (const struct weir_slot_more *)weir_ring_at(r, r->pos + 1);
		weir_slot_copy((uint8_t *)buf + WEIR_SLOT_HEAD_BYTES, more->data,
			       h->length - WEIR_SLOT_HEAD_BYTES);
		memcpy(buf, s->data, WEIR_SLOT_HEAD_BYTES);
	}
	return weir_slots_received(c, h, slots);
}

#endif
