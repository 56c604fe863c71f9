/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving. A message at the head of the ring is copied straight to the caller; messages of other
 * connections before it move to the queues of these.
 */
#include "channel_progress.h"
#include "ctrl_slots.h"
#include "model.h"
#include "parts.h"
#include "plane_lost.h"
#include "rx_queue.h"
#include "segment_progress.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"

#include <limits.h>

#define STREAM_BURST 64u /* slots in a row that make a stream */
#define STREAM_PAUSES 20u
#define ROUNDS 16u
#define GOES_ALONE (-ENOTSUP)
#define FRAGMENT_LOOKS 400u /* for the next fragment of a message */
#define ENDS_MAX 5000u	    /* naps until waiting for the end of a connection is given up */

enum next { NEXT_QUEUE, NEXT_RING };

static inline bool
is_mine(const struct weir_conn *c, const struct weir_head *h)
{
	return h->vqpn == c->vqpn &&
	       (h->op == WEIR_OP_INLINE || h->op == WEIR_OP_PLACE ||
		(h->op == WEIR_OP_BUNDLE && c->local)) &&
	       !c->end;
}

/* Makes progress on the connection's rings, on the worker's others now and then. As next(). */
static int
next_slow(struct weir_conn *c, struct weir_head *h)
{
	struct weir_thread *t = c->worker;

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct weir_pipe *p = c->pipe;
		unsigned n = p->local ? weir_segment_progress(WEIR_SEGMENT_OF(p), c) : 0;
		struct weir_slot *s;

		if (n && weir_unlikely(!LIST_EMPTY(&t->waiters)))
			weir_thread_wake(t);
		if (!n && (!p->local || weir_ring_peek(&c->channel->pipe.rx) ||
			   (p->empty % 16 == 0 && p->held[1] != p->rx.pos + 1)))
			n = weir_progress(t, c);
		if (c->queue)
			return NEXT_QUEUE;
		s = weir_ring_peek(&c->pipe->rx);
		if (s) {
			*h = weir_head_copy(s);
			if (is_mine(c, h))
				return NEXT_RING;
		}
		if (!n)
			return c->end ? c->end : -EAGAIN;
	}
	return -EAGAIN;
}

/* Where the next message lies: NEXT_*, -EAGAIN, or how the connection ended. */
static inline int
next(struct weir_conn *c, struct weir_head *h)
{
	struct weir_pipe *p = c->pipe;
	struct weir_slot *s;

	if (weir_unlikely(c->queue))
		return NEXT_QUEUE;
	s = weir_ring_peek(&p->rx);
	if (weir_likely(s)) {
		*h = weir_head_copy(s);
		if (weir_likely(is_mine(c, h)))
			return NEXT_RING;
	} else if (p->local && (p->empty + 1) % 8 && !weir_ring_peek(&c->channel->pipe.rx) &&
		   !c->end) {
		p->empty++;
		/* fetch the second line of a message before the first is seen */
		__builtin_prefetch(weir_ring_at(&p->rx, p->rx.pos + 1));
		return -EAGAIN;
	}
	return next_slow(c, h);
}

static int
spoilt(struct weir_conn *c)
{
	if (c->local)
		weir_segment_spoil(WEIR_SEGMENT_OF(c->pipe));
	else
		weir_conn_ended(c, EPROTO);
	return weir_conn_failed(c, -EPROTO);
}

static inline int
too_small(uint32_t needs, size_t size, size_t *length)
{
	*length = needs;
	return weir_fail(-EMSGSIZE, "the message has %u bytes, the buffer %zu; give a larger one",
			 needs, size);
}

/* ---- from the ring ---- */

static inline __attribute__((always_inline)) int
take_inline(struct weir_conn *c, const struct weir_head *h, void *buf, size_t size, size_t *length)
{
	if (weir_unlikely(h->length > WEIR_INLINE_MAX))
		return spoilt(c);
	if (weir_unlikely(h->length > size))
		return too_small(h->length, size, length);
	weir_ring_get_inline(&c->pipe->rx, buf, h->length);
	*length = h->length;
	weir_conn_consumed(c,
			   weir_slots_received(c, h, weir_slots_inline(h->length), c->pipe->local));
	return 0;
}

/* Returns the message that was put together in the caller's own buffer. */
static int
take_assembled(struct weir_conn *c, size_t *length)
{
	struct weir_rx_message *p = c->assembly;
	uint32_t cost = p->cost;

	weir_assert(weir_assembly_is_lent(c));
	*length = p->length;
	c->assembly = NULL;
	c->received++;
	c->received_bytes += p->length;
	weir_rx_message_free(p);
	weir_conn_consumed(c, cost);
	return 0;
}

/*
 * Offset of the whole message at the ring's head in the byte area. -EINTR: it was a fragment and is
 * taken, into `buf` if the message fits there; else an error.
 */
static int
whole_in_area(struct weir_conn *c, const struct weir_head *h, void *buf, size_t size,
	      uint64_t *offset)
{
	int rc = 0;

	if (h->length <= WEIR_INLINE_MAX || h->length > WEIR_MESSAGE_MAX)
		return spoilt(c);
	if (!c->assembly && weir_segment_whole(WEIR_SEGMENT_OF(c->pipe), h, offset))
		return 0;
	if (!c->assembly && h->length <= size)
		rc = weir_assembly_lend(c, buf, h->length);
	if (!rc)
		rc = weir_segment_take_fragment(c, h);
	return rc == -EPROTO ? spoilt(c) : rc ? rc : -EINTR;
}

/* Moves the messages of the bundle at the ring's head to the queue: -EINTR, or an error. */
static int
unbundle(struct weir_conn *c, const struct weir_head *h)
{
	int rc = weir_segment_take_fragment(c, h);

	return rc == -EPROTO ? spoilt(c) : rc ? rc : -EINTR;
}

static int
take_area(struct weir_conn *c, const struct weir_head *h, void *buf, size_t size, size_t *length)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	uint64_t offset, span;
	int rc = whole_in_area(c, h, buf, size, &offset);

	if (rc == -EINTR && weir_assembly_is_whole(c))
		return take_assembled(c, length);
	if (rc)
		return rc;
	if (h->length > size)
		return too_small(h->length, size, length);
	rc = weir_area_arrived(seg, offset, h->length, &span);
	if (rc)
		return rc == -EPROTO ? spoilt(c) : rc;
	memcpy(buf, seg->in_area + offset, h->length);
	weir_area_free(seg, span);
	weir_slots_received(c, h, 1, true);
	*length = h->length;
	weir_conn_consumed(c, (uint32_t)weir_segment_cost(h->length));
	return 0;
}

/* A message in posted memory lies in the caller's buffer already. */
static void
copy_out(uint8_t *buf, const uint8_t *from, uint32_t length)
{
	if (length && buf != from)
		memmove(buf, from, length); /* the buffer may be a part of the posted memory */
}

static int
take_place(struct weir_conn *c, const struct weir_head *h, void *buf, size_t size, size_t *length)
{
	struct weir_ring *r = &c->pipe->rx;
	weir_place place = weir_ring_at(r, r->pos)->place[0];
	const uint8_t *from = weir_place_data(c, c->received, place, h->length);

	if (!from) {
		weir_ring_pop(r, 1);
		return spoilt(c);
	}
	if (h->length > size)
		return too_small(h->length, size, length);
	copy_out(buf, from, h->length);
	weir_ring_pop(r, 1);
	weir_ctrl_release(c->channel, place);
	c->received++;
	c->received_bytes += h->length;
	*length = h->length;
	weir_conn_consumed(
	    c, h->flags & WEIR_SLOT_BULK || h->length > WEIR_BLOCK_SIZE ? 0 : weir_cost(h->length));
	return 0;
}

/* ---- from the queue ---- */

static struct weir_rx_message *
dequeue(struct weir_conn *c)
{
	struct weir_rx_message *p = c->queue;

	weir_assert(p && c->queue_cost >= p->cost);
	c->queue = p->next;
	if (!c->queue) {
		c->queue_end = &c->queue;
		/* an end is reported behind the last message */
		if (c->end && c->pending)
			weir_conn_report(c, 0);
	}
	c->queue_cost -= p->cost;
	weir_conn_update_next(c);
	return p;
}

/* ---- calls ---- */

static int
nothing(struct weir_conn *c, int rc)
{
	struct weir_pipe *p = c->pipe;

	c->readable = false;
	if (weir_unlikely(c->pending & PENDING_READABLE)) {
		c->pending &= (uint8_t)~PENDING_READABLE;
		if (!c->pending)
			weir_conn_unready(c);
	}
	if (rc == -ENODEV)
		return weir_gone(c->worker->w);
	if (rc != -EAGAIN)
		return weir_conn_failed(c, rc);
	if (p->asked != p->tx.pos) {
		p->asked = p->tx.pos;
		p->burst_from = p->rx.pos;
	}
	if (p->rx.pos - p->burst_from >= STREAM_BURST && p->caught_up != p->rx.pos)
		for (unsigned i = 0; i < STREAM_PAUSES; i++)
			weir_pause();
	p->caught_up = p->rx.pos;
	return rc;
}

static inline int
try_recv(struct weir_conn *c, void *buf, size_t size, size_t *length)
{
	struct weir_rx_message *p;
	struct weir_head h;
	uint32_t cost;
	int rc;

	if (weir_unlikely(weir_assembly_is_whole(c)))
		return take_assembled(c, length);
	do {
		rc = next(c, &h);
		if (weir_unlikely(weir_assembly_is_whole(c))) /* next() took its last fragment */
			return take_assembled(c, length);
		if (rc < 0)
			return nothing(c, rc);
		if (rc == NEXT_QUEUE) {
			if (c->queue->length > size)
				return too_small(c->queue->length, size, length);
			p = dequeue(c);
			cost = p->cost;
			copy_out(buf, p->data, p->length);
			c->received++;
			c->received_bytes += p->length;
			*length = p->length;
			weir_rx_message_free(p);
			weir_conn_consumed(c, cost);
			return 0;
		}
		/* among the fragments of a message unbundle() refuses both */
		if (h.op == WEIR_OP_INLINE && weir_likely(!c->assembly))
			rc = take_inline(c, &h, buf, size, length);
		else if (h.op != WEIR_OP_PLACE)
			rc = unbundle(c, &h);
		else if (c->local)
			rc = take_area(c, &h, buf, size, length);
		else
			rc = take_place(c, &h, buf, size, length);
	} while (rc == -EINTR); /* a fragment, or a bundle */
	return rc;
}

/* Looks for a message; a large one that has begun to arrive may leave buf lent. */
static int
look(struct weir_conn *c, void *buf, size_t size, size_t *length, bool *lent)
{
	int rc;

	weir_lock(c->worker);
	rc = try_recv(c, buf, size, length);
	*lent = weir_assembly_is_lent(c);
	weir_unlock(c->worker);
	return rc;
}

/* The call ends with rc and takes its lent buffer back. */
static int
end_lending(struct weir_conn *c, int rc, size_t *length)
{
	weir_assert(rc);
	weir_lock(c->worker);
	if (weir_assembly_is_whole(c))
		rc = take_assembled(c, length);
	else
		weir_assembly_reclaim(c);
	weir_unlock(c->worker);
	return rc;
}

/*
 * As weir_wait_next(), but goes on when the data plane is gone: the connection ends soon, and
 * messages that arrive until then are received.
 */
static int
wait_next(struct weir_wait *wait)
{
	int rc = weir_wait_next(wait);

	if (weir_likely(!weir_is_loss(rc)) || !wait->worker->w->watched || wait->ends++ == ENDS_MAX)
		return rc;
	weir_sleep(200000);
	return 0;
}

static int __attribute__((noinline))
recv_wait(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms, bool lent)
{
	struct weir_thread *t = c->worker;
	struct weir_wait wait;
	struct weir_head h;
	int rc;

	weir_wait_init(&wait, t, timeout_ms);
	do {
		uint32_t looks;

		rc = wait_next(&wait);
		if (rc)
			break;
		looks = wait.looks;
		weir_lock(t);
		/* spin for a message under way, but not with a lock that others wait for */
		if (!c->queue && t->lock.held)
			while (looks-- && !weir_ring_peek(&c->pipe->rx) &&
			       !weir_ring_peek(&c->channel->pipe.rx))
				weir_pause();
		/* the last look before sleep is at all rings of the worker */
		if (weir_unlikely(wait.armed))
			weir_progress(t, c);
		if (!lent &&
		    weir_small_peek(c, size < WEIR_INLINE_MAX ? size : WEIR_INLINE_MAX, &h, false))
			rc = take_inline(c, &h, buf, size, length);
		else
			rc = try_recv(c, buf, size, length);
		lent = weir_assembly_is_lent(c);
		weir_unlock(t);
	} while (rc == -EAGAIN);
	weir_wait_end(&wait);
	if (weir_unlikely(lent))
		rc = end_lending(c, rc, length);
	if (weir_is_loss(rc) && weir_conn_await_end(c)) {
		rc = look(c, buf, size, length, &lent);
		if (lent)
			rc = end_lending(c, rc, length);
	}
	return rc;
}

static int __attribute__((noinline))
recv_slow(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms)
{
	bool lent;
	int rc;

	if (weir_unlikely(weir_conn_life(c) == WEIR_FORKED))
		return weir_gone(c->worker->w);
	rc = look(c, buf, size, length, &lent);
	if (rc == -EAGAIN && (timeout_ms || weir_conn_life(c) != WEIR_UP))
		return recv_wait(c, buf, size, length, timeout_ms, lent);
	/* the sender is copying the next fragment: taking the buffer back costs more */
	for (uint32_t looks = FRAGMENT_LOOKS; rc == -EAGAIN && lent && looks; looks--) {
		weir_pause();
		rc = look(c, buf, size, length, &lent);
	}
	if (weir_unlikely(lent))
		rc = end_lending(c, rc, length);
	if (rc == -EAGAIN)
		weir_pause(); /* the caller polls again */
	return rc;
}

/* Reports consumed bytes to the sender and leaves. */
static __attribute__((noinline)) int
report_consumed(struct weir_conn *c, struct weir_bias_seat *seat)
{
	c->worker->lock.held = seat;
	weir_conn_consumed_slow(c);
	weir_bias_leave(seat);
	return 0;
}

/*
 * Takes the small message at s, and leaves. `length`: of the message; in a leaf for one size, and
 * `slots` and `local` always, a constant.
 */
static inline __attribute__((always_inline)) int
recv_small(struct weir_conn *c, struct weir_bias_seat *seat, const struct weir_slot *s, void *buf,
	   struct weir_head h, uint32_t length, uint32_t slots, bool local)
{
	h.length = length;
	if (weir_unlikely(
		weir_conn_note_consumed(c, weir_small_take(c, s, &h, buf, slots, local), local)))
		return report_consumed(c, seat);
	weir_bias_leave(seat);
	return 0;
}

/* The same without flags. Not inlined, so that each needs few registers. */
#define RECV_LEAF(name, length, slots, local)                                                      \
	static __attribute__((noinline)) int name(                                                 \
	    struct weir_conn *c, struct weir_bias_seat *seat, const struct weir_slot *s,           \
	    void *buf, uint16_t order, uint32_t bytes)                                             \
	{                                                                                          \
		struct weir_head h = {.op = WEIR_OP_INLINE, .order = order};                       \
                                                                                                   \
		return recv_small(c, seat, s, buf, h, length, slots, local);                       \
	}
RECV_LEAF(recv_one_slot, bytes, 1, false)
RECV_LEAF(recv_two_slots, bytes, 2, false)
RECV_LEAF(recv_one_slot_local, bytes, 1, true)
RECV_LEAF(recv_two_slots_local, bytes, 2, true)
RECV_LEAF(recv_8_local, 8, 1, true)
RECV_LEAF(recv_64_local, 64, 2, true)

/* No plain small message lies at the ring's head: one with flags, another one, or none. */
static __attribute__((noinline)) int
recv_other(struct weir_conn *c, struct weir_bias_seat *seat, void *buf, size_t size, size_t *length,
	   int timeout_ms)
{
	struct weir_head h;
	const struct weir_slot *s = weir_small_peek(c, size, &h, false);

	if (!s || h.length > WEIR_INLINE_SMALL) {
		weir_bias_leave(seat);
		return recv_slow(c, buf, size, length, timeout_ms);
	}
	*length = h.length;
	return h.length <= WEIR_SLOT_HEAD_BYTES
		   ? recv_small(c, seat, s, buf, h, h.length, 1, c->pipe->local)
		   : recv_small(c, seat, s, buf, h, h.length, 2, c->pipe->local);
}

/* A small message at the head of the ring takes the short way: weir_small_take(). */
int
weir_recv(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms)
{
	struct weir_bias_seat *seat;
	const struct weir_slot *s;
	struct weir_head h;

	if (weir_unlikely(weir_conn_life(c) != WEIR_UP ||
			  !(seat = weir_bias_enter(&c->worker->lock))))
		return recv_slow(c, buf, size, length, timeout_ms);
	s = weir_small_peek(c, size, &h, true);
	if (weir_unlikely(!s || h.length > WEIR_INLINE_SMALL))
		return recv_other(c, seat, buf, size, length, timeout_ms);
	*length = h.length;
	if (!c->pipe->local)
		return h.length <= WEIR_SLOT_HEAD_BYTES
			   ? recv_one_slot(c, seat, s, buf, h.order, h.length)
			   : recv_two_slots(c, seat, s, buf, h.order, h.length);
	if (h.length == 64)
		return recv_64_local(c, seat, s, buf, h.order, 64);
	if (h.length == 8)
		return recv_8_local(c, seat, s, buf, h.order, 8);
	return h.length <= WEIR_SLOT_HEAD_BYTES
		   ? recv_one_slot_local(c, seat, s, buf, h.order, h.length)
		   : recv_two_slots_local(c, seat, s, buf, h.order, h.length);
}

/* ---- several messages ---- */

/*
 * Takes the bundle at the ring's head if there are buffers for all its messages: the number; 0:
 * there are not; -EPROTO, -ENOMEM.
 */
static int
take_bundle(struct weir_conn *c, const struct weir_head *h, struct iovec *m, unsigned n)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	uint16_t lengths[WEIR_BUNDLE_MAX];
	uint64_t offset, span;
	int count = weir_bundle_lengths(seg, h, lengths, &offset), rc;
	const uint8_t *from;

	if (count < 0)
		return spoilt(c);
	if ((unsigned)count > n)
		return 0;
	for (int i = 0; i < count; i++)
		if (lengths[i] > m[i].iov_len)
			return 0;
	rc = weir_area_arrived(seg, offset - weir_bundle_head((uint32_t)count), h->length, &span);
	if (rc)
		return rc == -EPROTO ? spoilt(c) : rc;
	from = seg->in_area + offset;
	c->received_bytes -= h->length; /* weir_slots_received() counts head and padding */
	for (int i = 0; i < count; i++) {
		c->received_bytes += lengths[i];
		if (lengths[i] <= WEIR_SLOT_SIZE)
			weir_slot_copy(m[i].iov_base, from, lengths[i]);
		else
			memcpy(m[i].iov_base, from, lengths[i]);
		m[i].iov_len = lengths[i];
		from += weir_bundle_padded(lengths[i]);
	}
	weir_area_free(seg, span);
	weir_slots_received(c, h, 1, true);
	c->received += (unsigned)count - 1;
	weir_conn_consumed(c, (uint32_t)weir_bundle_cost((uint32_t)count, h->length));
	return count;
}

/*
 * Receives what is there: the number of messages, GOES_ALONE (the next one is large), -EAGAIN or
 * another error.
 */
static int
take_many(struct weir_conn *c, struct iovec *m, unsigned n)
{
	uint32_t cost = 0;
	unsigned got = 0;
	int rc = 0;

	if (c->local && c->ours && !atomic_load_explicit(&c->ours->bundles, memory_order_relaxed))
		atomic_store_explicit(&c->ours->bundles, 1, memory_order_relaxed);
	while (got < n) {
		size_t size = m[got].iov_len, length;
		const struct weir_slot *s;
		struct weir_head h;

		s = c->assembly
			? NULL
			: weir_small_peek(c, size < WEIR_INLINE_SMALL ? size : WEIR_INLINE_SMALL,
					  &h, false);
		if (s) {
			cost += h.length <= WEIR_SLOT_HEAD_BYTES
				    ? weir_small_take(c, s, &h, m[got].iov_base, 1, c->pipe->local)
				    : weir_small_take(c, s, &h, m[got].iov_base, 2, c->pipe->local);
			m[got++].iov_len = h.length;
			continue;
		}
		rc = next(c, &h);
		if (rc == NEXT_RING && h.op == WEIR_OP_BUNDLE && !c->assembly) {
			rc = take_bundle(c, &h, m + got, n - got);
			if (rc < 0)
				break;
			got += (unsigned)rc;
			if (rc)
				continue;
		} else if (rc == NEXT_RING && h.op == WEIR_OP_PLACE) {
			rc = GOES_ALONE;
		} else if (rc < 0 && !got) {
			rc = nothing(c, rc);
		}
		if (rc < 0)
			break;
		rc = try_recv(c, m[got].iov_base, size, &length);
		if (!rc || (rc == -EMSGSIZE && !got))
			m[got].iov_len = length;
		if (rc)
			break;
		got++;
	}
	if (cost)
		weir_conn_consumed(c, cost);
	return got ? (int)got : rc;
}

int
weir_recv_many(struct weir_conn *c, struct iovec *messages, unsigned n, int timeout_ms)
{
	struct weir_wait wait;
	size_t length = 0;
	int rc;

	if (!n || n > INT_MAX)
		return weir_fail(-EINVAL, "%u buffers; give 1 to %d", n, INT_MAX);
	if (weir_unlikely(weir_conn_life(c) == WEIR_FORKED))
		return weir_gone(c->worker->w);
	weir_wait_init(&wait, c->worker, timeout_ms);
	do {
		weir_lock(c->worker);
		/* the last look before sleep is at all rings of the worker */
		if (weir_unlikely(wait.armed))
			weir_progress(c->worker, c);
		rc = take_many(c, messages, n);
		weir_unlock(c->worker);
	} while (rc == -EAGAIN && !(rc = wait_next(&wait)));
	weir_wait_end(&wait);
	if (rc != GOES_ALONE && !weir_is_loss(rc))
		return rc;
	/* a large message, or what came before the data plane was lost */
	rc = weir_recv(c, messages[0].iov_base, messages[0].iov_len, &length, timeout_ms);
	if (!rc || rc == -EMSGSIZE)
		messages[0].iov_len = length;
	return rc ? rc : 1;
}

/* ---- loans ---- */

/* Lends a whole message where it lies in the byte area. */
static int
lend_area(struct weir_conn *c, const struct weir_head *h, struct weir_rx_message **out)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	struct weir_rx_message *p;
	uint64_t offset;
	int rc = whole_in_area(c, h, NULL, 0, &offset);

	if (rc)
		return rc;
	p = weir_rx_message_new(c->worker, 0);
	if (!p)
		return -ENOMEM;
	rc = weir_area_arrived(seg, offset, h->length, &p->at);
	if (rc) {
		weir_rx_message_free(p);
		return rc == -EPROTO ? spoilt(c) : rc;
	}
	weir_pipe_pop(&seg->pipe, h->order, h->flags, 1, true);
	seg->users++;
	p->kind = RX_SPAN;
	p->data = seg->in_area + offset;
	p->length = h->length;
	p->pipe = c->pipe;
	p->cost = (uint32_t)weir_segment_cost(h->length);
	*out = p;
	return 0;
}

/*
 * Takes c's message off the ring's head: into c's queue, or lent in *p. -EINTR: it was a fragment
 * of one, or a bundle.
 */
static int
take_off(struct weir_conn *c, const struct weir_head *h, struct weir_rx_message **p)
{
	int rc;

	if (c->local && h->op == WEIR_OP_PLACE)
		return lend_area(c, h, p);
	if (h->op == WEIR_OP_BUNDLE)
		return unbundle(c, h);
	if (!c->local)
		rc = weir_channel_enqueue(c, h);
	else
		rc = h->length > WEIR_INLINE_MAX ? -EPROTO : weir_segment_take_fragment(c, h);
	return rc == -EPROTO ? spoilt(c) : rc;
}

/* Lends the message that next() found; takes fragments until a message is whole. */
static int
lend_next(struct weir_conn *c, int found, struct weir_head *h, struct weir_rx_message **p)
{
	for (; found >= 0; found = next(c, h)) {
		int rc = found == NEXT_RING ? take_off(c, h, p) : 0;

		if (!rc && !*p)
			*p = dequeue(c);
		if (rc == -EINTR)
			continue;
		if (!rc) {
			c->received++;
			c->received_bytes += (*p)->length;
			LIST_INSERT_HEAD(&c->worker->loans, *p, in_loans);
		}
		return rc;
	}
	return nothing(c, found);
}

int
weir_take(struct weir_conn *c, void *buf, struct weir_taken *taken)
{
	struct weir_ring *r = &c->pipe->rx;
	struct weir_rx_message *p = NULL;
	struct weir_head h;
	int rc = next(c, &h);

	weir_assert(weir_worker_locked(c->worker));
	if (weir_likely(rc == NEXT_RING && h.op == WEIR_OP_INLINE)) {
		if (weir_unlikely(h.length > WEIR_INLINE_MAX))
			return spoilt(c);
		/* copied, so that the ring goes on; counted when the caller is done with it */
		*taken = (struct weir_taken){.data = buf, .length = h.length};
		if (h.length > WEIR_SLOT_HEAD_BYTES && h.length <= WEIR_INLINE_SMALL) {
			taken->cost =
			    weir_small_take(c, weir_ring_at(r, r->pos), &h, buf, 2, c->pipe->local);
		} else {
			weir_ring_get_inline(r, buf, h.length);
			taken->cost =
			    weir_slots_received(c, &h, weir_slots_inline(h.length), c->pipe->local);
		}
		return 0;
	}
	rc = lend_next(c, rc, &h, &p);
	if (!rc)
		*taken = (struct weir_taken){.data = p->data, .length = p->length, .loan = p};
	return rc;
}

static int
locked_loan(struct weir_conn *c, void *arg)
{
	struct weir_rx_message *p = NULL;
	struct weir_loan *loan = arg;
	struct weir_head h;
	int rc;

	weir_lock(c->worker);
	rc = lend_next(c, next(c, &h), &h, &p);
	if (!rc) {
		loan->data = p->data;
		loan->length = p->length;
		loan->internal[0] = (uintptr_t)p;
		weir_loan_begin(p, c);
	}
	weir_unlock(c->worker);
	return rc;
}

/* Calls f, which locks the worker, until there is a message or the timeout is over. */
static inline __attribute__((always_inline)) int
await_message(struct weir_conn *c, int (*f)(struct weir_conn *c, void *arg), void *arg,
	      int timeout_ms)
{
	struct weir_wait wait;
	int rc;

	if (weir_state(c->worker->w) == WEIR_FORKED)
		return weir_gone(c->worker->w);
	weir_wait_init(&wait, c->worker, timeout_ms);
	while ((rc = f(c, arg)) == -EAGAIN) {
		rc = wait_next(&wait);
		if (rc)
			break;
		if (wait.armed) { /* the last look before sleep is at all rings of the worker */
			weir_lock(c->worker);
			weir_progress(c->worker, NULL);
			weir_unlock(c->worker);
		}
	}
	weir_wait_end(&wait);
	if (weir_is_loss(rc) && weir_conn_await_end(c))
		rc = f(c, arg);
	return rc;
}

int
weir_recv_loan(struct weir_conn *c, struct weir_loan *loan, int timeout_ms)
{
	return await_message(c, locked_loan, loan, timeout_ms);
}

int
weir_recv_loan_many(struct weir_conn *c, struct weir_loan *loans, unsigned n, int timeout_ms)
{
	unsigned got = 1;
	int rc;

	if (!n || n > INT_MAX)
		return weir_fail(-EINVAL, "%u loans; ask for 1 to %d", n, INT_MAX);
	rc = weir_recv_loan(c, &loans[0], timeout_ms);
	if (rc)
		return rc;
	while (got < n && !locked_loan(c, &loans[got]))
		got++;
	return (int)got;
}

void
weir_release(struct weir *w, struct weir_loan *loan)
{
	struct weir_rx_message *p = (struct weir_rx_message *)(uintptr_t)loan->internal[0];
	struct weir_thread *t;
	bool stale;

	if (!p || weir_state(w) == WEIR_FORKED)
		return;
	loan->data = NULL;
	loan->length = 0;
	loan->internal[0] = 0;
	t = p->worker;
	weir_lock(t);
	weir_loan_end(p, weir_conn_find(t, p->vqpn, &stale));
	weir_progress_leave(t);
	weir_unlock(t);
	if (weir_unlikely(weir_state(t->w) != WEIR_UP))
		weir_threads_release(t->w);
}

/* ---- the next message, looked at or scattered ---- */

/* Moves the next message to c's queue, where it lies in a place that no peer takes back. */
static int
hold_next(struct weir_conn *c)
{
	struct weir_rx_message *p = NULL;
	struct weir_head h;
	int rc;

	while ((rc = next(c, &h)) == NEXT_RING) {
		rc = take_off(c, &h, &p);
		if (rc && rc != -EINTR)
			return rc;
		if (p)
			weir_rx_queue_append(c, p);
		p = NULL;
	}
	return rc < 0 ? nothing(c, rc) : 0;
}

struct view {
	const struct iovec *parts; /* NULL: only look */
	uint8_t *buf;
	size_t size;	/* bytes of buf, or of all parts */
	size_t *length; /* out */
};

static int
locked_view(struct weir_conn *c, void *arg)
{
	const struct view *v = arg;
	struct weir_rx_message *p;
	uint32_t cost;
	int rc;

	weir_lock(c->worker);
	rc = hold_next(c);
	if (!rc && !v->parts) {
		*v->length = c->queue->length;
		if (v->size)
			memcpy(v->buf, c->queue->data,
			       v->size < c->queue->length ? v->size : c->queue->length);
	} else if (!rc && c->queue->length > v->size) {
		rc = too_small(c->queue->length, v->size, v->length);
	} else if (!rc) {
		p = dequeue(c);
		cost = p->cost;
		*v->length = p->length;
		weir_parts_scatter(v->parts, p->data, p->length);
		c->received++;
		c->received_bytes += p->length;
		weir_rx_message_free(p);
		weir_conn_consumed(c, cost);
	}
	weir_unlock(c->worker);
	return rc;
}

int
weir_peek(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms)
{
	struct view v = {.buf = buf, .size = size, .length = length};

	return await_message(c, locked_view, &v, timeout_ms);
}

int
weir_recvv(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t *length,
	   int timeout_ms)
{
	static const struct iovec none;
	struct view v = {.parts = n ? parts : &none, .length = length};
	int rc = weir_parts_check(parts, n, SIZE_MAX, &v.size);

	if (rc)
		return rc == -EMSGSIZE ? -EINVAL : rc;
	return await_message(c, locked_view, &v, timeout_ms);
}
