/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What other models need of streams, below the public calls: messages out of a ring before it is
 * asked whose they are, counted as consumed when the model says so; messages with a head in front.
 * The caller has locked the connection's worker where that is said.
 */
#ifndef WEIR_STREAM_MODEL_H
#define WEIR_STREAM_MODEL_H

#include "client/channel.h"
#include "stream/conn.h"

#include <sys/uio.h>

/* A message that was received, but does not count as consumed yet. */
struct weir_taken {
	const uint8_t *data;
	uint32_t length;
	uint32_t cost;		  /* in the caller's buffer: still to be counted */
	struct weir_parked *loan; /* lent; NULL: in the caller's buffer */
};

/*
 * Takes the next message of c: a small one at the ring's head is copied to buf (WEIR_INLINE_MAX
 * bytes, aligned to 16), others are lent. 0, -EAGAIN, or how the connection ended. Worker locked.
 */
int weir_take(struct weir_conn *c, void *buf, struct weir_taken *taken);
/* The message was dealt with; `c`: its connection, NULL if that is gone. Worker locked. */
void weir_taken_done(struct weir_conn *c, struct weir_taken *taken);

/* Takes in what lies at the ring's head, an event or a message for later. False: it stays. Worker
 * locked. */
bool weir_channel_step(struct weir_channel *ch);

/* Connects a connection of `t`, which is locked; it opens later. 0 or -errno. */
int weir_conn_start(struct weir_thread *t, const struct weir_address *address,
		    const struct weir_connect_options *o, struct weir_conn **conn);

/* Sends one message gathered from n places, `length` bytes together. As weir_send(). */
int weir_send_parts(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t length,
		    int timeout_ms);

/* The same without waiting. Worker locked. */
int weir_send_now(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t length);

/* Whether a small message of any length can be put now. Worker locked. */
static inline bool
weir_put_ready(const struct weir_conn *c)
{
	const struct weir_pipe *p = c->pipe;

	return weir_likely(p && !c->send_error && !c->tail_kept &&
			   c->spent + 2 * WEIR_SLOT_SIZE <= c->granted &&
			   weir_ring_room(&p->tx) >= 2 + WEIR_CONTROL_RESERVE);
}

/*
 * A small message with a head of 8 or 16 bytes in front, when weir_put_ready(). `head_length` and
 * `slots` (1 or 2, as the two lengths want) are known when it is compiled. True: the other end
 * sleeps, weir_put_ring() has to follow. Worker locked.
 */
static inline __attribute__((always_inline)) bool
weir_put_headed(struct weir_conn *c, const void *head, uint32_t head_length, const void *buf,
		uint32_t length, uint32_t slots)
{
	struct weir_pipe *p = c->pipe;
	struct weir_slot *s = weir_ring_at(&p->tx, p->tx.pos);
	uint32_t first = slots == 1 ? length : WEIR_SLOT_HEAD_BYTES - head_length;

	if (slots == 2) {
		struct weir_slot_more *more =
		    (struct weir_slot_more *)weir_ring_at(&p->tx, p->tx.pos + 1);

		weir_slot_fill(more->data, (const uint8_t *)buf + first, length - first);
		atomic_store_explicit(&more->seq, (uint32_t)(p->tx.pos + 2), memory_order_relaxed);
	}
	memcpy(s->data, head, head_length);
	weir_slot_fill(s->data + head_length, buf, first);
	weir_slot_head(s, WEIR_OP_INLINE, 0, (uint16_t)(p->local ? p->rx.pos : c->sent),
		       c->send_vqpn, head_length + length);
	if (p->local)
		weir_ring_publish_paired(&p->tx, s, slots);
	else
		weir_ring_publish(&p->tx, slots);
	c->spent += slots * WEIR_SLOT_SIZE;
	c->sent++;
	if (p->burst)
		p->burst = 0;
	return weir_unlikely(weir_pipe_asleep(p));
}

/* The other end sleeps. True: it was rung before, and waits for this very CPU. Worker locked. */
bool weir_put_ring(struct weir_pipe *p);

/*
 * A small message with an id in its head, if everything is ready for it: 0; else -EAGAIN, and
 * weir_send_parts() knows why. `length` <= WEIR_INLINE_SMALL - 16. Worker locked.
 */
int weir_send_headed(struct weir_conn *c, const void *head, const void *buf, uint32_t length);

/*
 * As weir_take() for a small message of c that lies at the ring's head, when nothing else is to be
 * looked at. False: not so. Worker locked.
 */
static inline __attribute__((always_inline)) bool
weir_take_small(struct weir_conn *c, uint8_t *buf, struct weir_taken *taken)
{
	struct weir_pipe *p = c->pipe;
	const struct weir_slot *s;
	struct weir_head h;
	uint32_t slots;

	if (weir_unlikely(c->state != CONN_OPEN || c->queue))
		return false;
	s = weir_ring_peek(&p->rx);
	if (!s)
		return false;
	h = weir_head_copy(s);
	if (weir_unlikely(h.vqpn != c->vqpn || h.op != WEIR_OP_INLINE ||
			  h.length > WEIR_INLINE_SMALL))
		return false;
	if (h.length > WEIR_SLOT_HEAD_BYTES) {
		slots = 2;
		weir_ring_get_small(&p->rx, s, buf, h.length, 2);
	} else {
		slots = 1;
		weir_ring_get_small(&p->rx, s, buf, h.length, 1);
	}
	weir_pipe_pop(p, h.order, h.flags, slots);
	p->burst++;
	c->received++;
	taken->data = buf;
	taken->length = h.length;
	taken->cost = h.flags & WEIR_SLOT_BULK ? 0 : slots * WEIR_SLOT_SIZE;
	return true;
}

#endif
