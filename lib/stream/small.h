/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One put and one take of a small message, of 1 or 2 slots, for streams and the message model. Both
 * call nothing and keep little in memory: their stores wait for the slots' cache lines together,
 * and the store queue holds few. Worker locked.
 */
#ifndef WEIR_STREAM_SMALL_H
#define WEIR_STREAM_SMALL_H

#include "conn.h"

#include "client/channel.h"

/* Where a message goes; a constant at compile time, where the caller knows. */
enum weir_small_to { TO_ENGINE, TO_LOCAL_PEER, TO_EITHER };

/* Whether weir_small_put() of a message of any length is possible now. Worker locked. */
static inline bool
weir_put_ready(const struct weir_conn *c)
{
	return weir_likely(c->spent + 2 * WEIR_SLOT_SIZE <= c->quick &&
			   weir_ring_room(&c->pipe->tx) >= 2 + WEIR_CONTROL_RESERVE);
}

/*
 * Puts a message of `length` bytes at `buf` behind a head of `head_length` bytes (0, 8 or 16).
 * weir_put_ready() has been true. `head_length` and `slots` (1 or 2, as both lengths require) are
 * constants at compile time. True: the other end sleeps and has to be woken.
 */
static inline __attribute__((always_inline)) bool
weir_small_put(struct weir_conn *c, const void *head, uint32_t head_length, const void *buf,
	       uint32_t length, uint32_t slots, enum weir_small_to to)
{
	struct weir_pipe *p = c->pipe;
	struct weir_ring *r = &p->tx;
	uint64_t pos = r->pos; /* read once: what is written below may alias the ring */
	uint32_t at = weir_ring_offset(r, pos);
	uint32_t first = slots == 1 ? length : WEIR_SLOT_HEAD_BYTES - head_length;
	struct weir_slot *s = weir_ring_slot(r, at);
	struct weir_slot *ahead = weir_ring_slot(r, at + WEIR_RING_AHEAD * WEIR_SLOT_SIZE);
	struct weir_slot_more *more;

	weir_assert(head_length + length <= WEIR_INLINE_SMALL &&
		    slots == weir_slots_inline(head_length + length));
	weir_assert(to == TO_EITHER || (to == TO_LOCAL_PEER) == p->local);
	weir_assert(weir_conn_is_settled(c) && !p->fence);
	weir_ring_prefetch(ahead);
	if (slots == 2) {
		weir_ring_prefetch(ahead + 1); /* at the ring's end another line, for nothing */
		more = weir_ring_slot(r, at + WEIR_SLOT_SIZE);
		weir_slot_fill(more->data, (const uint8_t *)buf + first, length - first);
		atomic_store_explicit(&more->seq, (uint32_t)(pos + 2), memory_order_relaxed);
	}
	if (head_length)
		memcpy(s->data, head, head_length);
	weir_slot_fill(s->data + head_length, buf, first);
	weir_slot_whose(s, c->send_vqpn, head_length + length);
	if (to == TO_EITHER ? p->local : to == TO_LOCAL_PEER)
		weir_ring_publish_paired(r, s, slots,
					 weir_slot_what(WEIR_OP_INLINE, 0, (uint16_t)p->rx.pos));
	else
		weir_ring_publish_what(r, s, slots,
				       weir_slot_what(WEIR_OP_INLINE, 0, (uint16_t)c->sent));
	c->spent += slots * WEIR_SLOT_SIZE;
	c->sent++;
	c->sent_bytes += head_length + length;
	/* as weir_pipe_asleep() without a fence */
	atomic_signal_fence(memory_order_seq_cst);
	return weir_unlikely(atomic_load_explicit(p->tx_sleeping, memory_order_relaxed));
}

/*
 * The slot of c's next message if that lies at the ring's head, inline, of at most `most` bytes;
 * *h is a copy of its head. NULL: look elsewhere. `plain`, a constant: without flags only.
 */
static inline __attribute__((always_inline)) const struct weir_slot *
weir_small_peek(const struct weir_conn *c, size_t most, struct weir_head *h, bool plain)
{
	const struct weir_ring *r = &c->pipe->rx;
	uint64_t pos = r->pos, other;
	const struct weir_slot *s = weir_ring_at(r, pos);
	/* pairs with the release in weir_ring_publish_what() */
	uint64_t first = atomic_load_explicit(&s->first, memory_order_acquire);

	other = first ^ ((uint32_t)(pos + 1) | (uint64_t)WEIR_OP_INLINE << 32);
	if (other << (plain ? 16 : 24)) /* order, and flags, may differ */
		return NULL;
	h->vqpn = s->vqpn;
	h->length = s->length;
	atomic_signal_fence(memory_order_seq_cst); /* never read again */
	if (weir_unlikely(h->vqpn != c->next || h->length > most))
		return NULL;
	h->seq = (uint32_t)first;
	h->op = WEIR_OP_INLINE;
	h->flags = plain ? 0 : (uint8_t)(first >> 40);
	h->order = (uint16_t)(first >> 48);
	return s;
}

/*
 * Pops c's message of `slots` slots off the ring and counts it as received. Its cost if inline.
 * `local`: of the pipe.
 */
static inline __attribute__((always_inline)) uint32_t
weir_slots_received(struct weir_conn *c, const struct weir_head *h, uint32_t slots, bool local)
{
	struct weir_pipe *p = c->pipe;

	weir_assert(local == p->local);
	weir_pipe_pop(p, h->order, h->flags, slots, local);
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
		void *buf, uint32_t slots, bool local)
{
	const struct weir_ring *r = &c->pipe->rx;
	const struct weir_slot_more *more;

	weir_assert(slots == weir_slots_inline(h->length) && s == weir_ring_at(r, r->pos));
	weir_assert(weir_conn_is_settled(c));
	if (slots == 1) {
		weir_slot_copy(buf, s->data, h->length);
	} else {
		more = weir_ring_slot(r, (uint32_t)((uintptr_t)s - (uintptr_t)r->slots) +
					     WEIR_SLOT_SIZE);
		weir_slot_copy((uint8_t *)buf + WEIR_SLOT_HEAD_BYTES, more->data,
			       h->length - WEIR_SLOT_HEAD_BYTES);
		memcpy(buf, s->data, WEIR_SLOT_HEAD_BYTES);
	}
	return weir_slots_received(c, h, slots, local);
}

#endif
