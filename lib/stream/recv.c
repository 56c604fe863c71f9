/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving. A message at the head of the ring is copied straight to the caller; what lies before
 * it for other connections is parked with them.
 */
#include "model.h"
#include "progress.h"

#include "client/reason.h"
#include "client/wait.h"

#include <time.h>

#define STREAM_BURST 64u /* messages in a row that are a stream */
#define STREAM_PAUSES 20u
#define ROUNDS 16u
#define ENDS_MAX 5000u /* naps; far more than the end takes */

enum next { NEXT_QUEUE, NEXT_RING };

static inline bool
is_mine(const struct weir_conn *c, const struct weir_head *h)
{
	return h->vqpn == c->vqpn && (h->op == WEIR_OP_INLINE || h->op == WEIR_OP_PLACE) &&
	       c->state != CONN_ENDED;
}

/* Drives the rings of this connection always, others now and then. */
static unsigned
drive_for(struct weir_conn *c)
{
	struct weir_thread *t = c->worker;
	struct weir_pipe *p = c->pipe;
	unsigned n;

	if (!p->local)
		return weir_drive(t, c);
	n = weir_segment_drive(WEIR_SEGMENT_OF(p), c);
	if (n) {
		if (weir_unlikely(!LIST_EMPTY(&t->waiters)))
			weir_thread_wake(t, NULL);
		return n;
	}
	if (weir_ring_peek(&c->channel->pipe.rx) || p->empty % 16 == 0)
		return weir_drive(t, c);
	return 0;
}

static int
next_slow(struct weir_conn *c, struct weir_head *h)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned n = drive_for(c);
		struct weir_slot *s;

		if (c->queue)
			return NEXT_QUEUE;
		s = weir_ring_peek(&c->pipe->rx);
		if (s) {
			*h = weir_head_copy(s);
			if (is_mine(c, h))
				return NEXT_RING;
		}
		if (!n)
			return c->state == CONN_ENDED ? c->end : -EAGAIN;
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
		   c->state != CONN_ENDED) {
		p->empty++;
		/* the second line of a message shall be on its way when the first is seen */
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
	struct weir_pipe *p = c->pipe;
	uint32_t slots;

	if (weir_unlikely(h->length > WEIR_INLINE_MAX))
		return spoilt(c);
	if (weir_unlikely(h->length > size))
		return too_small(h->length, size, length);
	slots = weir_slots_inline(h->length);
	weir_ring_get_inline(&p->rx, buf, h->length);
	weir_pipe_pop(p, h->order, h->flags, slots);
	p->burst++;
	c->received++;
	*length = h->length;
	weir_conn_consumed(c, h->flags & WEIR_SLOT_BULK ? 0 : slots * WEIR_SLOT_SIZE);
	return 0;
}

static int
take_area(struct weir_conn *c, const struct weir_head *h, void *buf, size_t size, size_t *length)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	uint64_t offset, span;
	int rc;

	if (h->length <= WEIR_INLINE_MAX || h->length > WEIR_MESSAGE_MAX)
		return spoilt(c);
	if (!weir_segment_whole(seg, h, &offset)) {
		rc = weir_segment_take_piece(c, h);
		return rc == -EPROTO ? spoilt(c) : rc ? rc : -EINTR;
	}
	if (h->length > size)
		return too_small(h->length, size, length);
	rc = weir_area_arrived(seg, offset, h->length, &span);
	if (rc)
		return rc == -EPROTO ? spoilt(c) : rc;
	memcpy(buf, seg->in_area + offset, h->length);
	weir_area_free(seg, span);
	weir_pipe_pop(&seg->pipe, h->order, h->flags, 1);
	c->pipe->burst++;
	c->received++;
	*length = h->length;
	weir_conn_consumed(c, (uint32_t)weir_segment_cost(h->length));
	return 0;
}

/* What was posted for a message is its place and the caller's buffer in one. */
static void
copy_out(uint8_t *buf, const uint8_t *from, uint32_t length)
{
	if (length && buf != from)
		memmove(buf, from, length); /* a caller may give a part of what it posted */
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
	weir_control_release(c->channel, place);
	c->received++;
	*length = h->length;
	weir_conn_consumed(
	    c, h->flags & WEIR_SLOT_BULK || h->length > WEIR_BLOCK_SIZE ? 0 : weir_cost(h->length));
	return 0;
}

/* ---- from the queue ---- */

static struct weir_parked *
unpark(struct weir_conn *c)
{
	struct weir_parked *p = c->queue;

	c->queue = p->next;
	if (!c->queue) {
		c->queue_end = &c->queue;
		/* an end is reported behind the last message */
		if (c->state == CONN_ENDED && c->pending)
			weir_conn_report(c, 0);
	}
	c->parked_cost -= p->cost;
	return p;
}

static int
take_parked(struct weir_conn *c, void *buf, size_t size, size_t *length)
{
	struct weir_parked *p = c->queue;
	uint32_t cost = p->cost;

	if (p->length > size)
		return too_small(p->length, size, length);
	unpark(c);
	copy_out(buf, p->data, p->length);
	c->received++;
	*length = p->length;
	weir_parked_free(p);
	weir_conn_consumed(c, cost);
	return 0;
}

/* ---- calls ---- */

static int
nothing(struct weir_conn *c, int rc)
{
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
	if (c->pipe->burst >= STREAM_BURST && c->pipe->caught_up != c->pipe->rx.pos)
		for (unsigned i = 0; i < STREAM_PAUSES; i++)
			weir_pause();
	c->pipe->caught_up = c->pipe->rx.pos;
	return rc;
}

static inline int
try_recv(struct weir_conn *c, void *buf, size_t size, size_t *length)
{
	struct weir_head h;
	int rc;

	do {
		rc = next(c, &h);
		if (rc < 0)
			return nothing(c, rc);
		if (rc == NEXT_QUEUE)
			return take_parked(c, buf, size, length);
		if (h.op == WEIR_OP_INLINE)
			rc = take_inline(c, &h, buf, size, length);
		else if (c->local)
			rc = take_area(c, &h, buf, size, length);
		else
			rc = take_place(c, &h, buf, size, length);
	} while (rc == -EINTR); /* a piece of a message */
	return rc;
}

/*
 * Waiting: a message that is on its way is seen at once. Not with a lock that others wait for.
 */
static inline void
look_out(const struct weir_conn *c, uint32_t looks)
{
	const struct weir_ring *r = &c->pipe->rx, *events = &c->channel->pipe.rx;

	if (c->queue || !c->worker->lock.held)
		return;
	while (looks-- && !weir_ring_peek(r) && !weir_ring_peek(events))
		weir_pause();
}

static int __attribute__((noinline))
locked_recv(struct weir_conn *c, void *buf, size_t size, size_t *length)
{
	int rc;

	weir_lock(c->worker);
	rc = try_recv(c, buf, size, length);
	weir_unlock(c->worker);
	return rc;
}

/* The common case: a small message that lies at the head of the ring. False: not so. */
static inline bool
take_small(struct weir_conn *c, void *buf, size_t size, size_t *length)
{
	const struct weir_slot *s;
	struct weir_head h;

	if (weir_unlikely(c->state != CONN_OPEN || c->queue))
		return false;
	s = weir_ring_peek(&c->pipe->rx);
	if (!s)
		return false;
	h = weir_head_copy(s);
	if (weir_unlikely(h.vqpn != c->vqpn || h.op != WEIR_OP_INLINE || h.length > size ||
			  h.length > WEIR_INLINE_MAX))
		return false;
	return take_inline(c, &h, buf, size, length) == 0;
}

/*
 * As weir_wait_next(), but it does not give up when the data plane is gone: the connection ends
 * soon, and what comes until then is received.
 */
static int
wait_next(struct weir_wait *wait)
{
	static const struct timespec nap = {.tv_nsec = 200000};
	int rc = weir_wait_next(wait);

	if (weir_likely(!weir_is_loss(rc)) || !wait->worker->w->watched || wait->ends++ == ENDS_MAX)
		return rc;
	nanosleep(&nap, NULL);
	return 0;
}

static int __attribute__((noinline))
recv_wait(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms)
{
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, c->worker, timeout_ms);
	do {
		rc = wait_next(&wait);
		if (rc)
			break;
		weir_lock(c->worker);
		look_out(c, wait.looks);
		rc = take_small(c, buf, size, length) ? 0 : try_recv(c, buf, size, length);
		weir_unlock(c->worker);
	} while (rc == -EAGAIN);
	weir_wait_end(&wait);
	if (weir_is_loss(rc) && weir_conn_await_end(c))
		rc = locked_recv(c, buf, size, length);
	return rc;
}

static int __attribute__((noinline))
recv_slow(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms)
{
	int rc;

	if (weir_unlikely(weir_conn_life(c) == WEIR_FORKED))
		return weir_gone(c->worker->w);
	rc = locked_recv(c, buf, size, length);
	if (weir_likely(rc != -EAGAIN))
		return rc;
	if (!timeout_ms && weir_conn_life(c) == WEIR_UP) {
		weir_pause(); /* whoever polls polls again */
		return rc;
	}
	return recv_wait(c, buf, size, length, timeout_ms);
}

/* What was consumed has to be told. */
static __attribute__((noinline)) int
tell_consumed(struct weir_conn *c, struct weir_bias_seat *seat)
{
	c->worker->lock.held = seat;
	weir_conn_consumed_slow(c);
	weir_bias_leave(seat);
	return 0;
}

static inline __attribute__((always_inline)) int
recv_small(struct weir_conn *c, struct weir_bias_seat *seat, const struct weir_slot *s,
	   struct weir_head h, void *buf, size_t *length, uint32_t slots)
{
	struct weir_pipe *p = c->pipe;

	*length = h.length;
	weir_ring_get_small(&p->rx, s, buf, h.length, slots);
	weir_pipe_pop(p, h.order, h.flags, slots);
	p->burst++;
	c->received++;
	if (weir_unlikely(
		weir_conn_note_consumed(c, h.flags & WEIR_SLOT_BULK ? 0 : slots * WEIR_SLOT_SIZE)))
		return tell_consumed(c, seat);
	weir_bias_leave(seat);
	return 0;
}

/* The common case, a small message at the head of the ring: as weir_send(). */
int
weir_recv(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms)
{
	struct weir_bias_seat *seat;
	const struct weir_slot *s;
	struct weir_head h;

	if (weir_unlikely(weir_conn_life(c) != WEIR_UP ||
			  !(seat = weir_bias_enter(&c->worker->lock))))
		return recv_slow(c, buf, size, length, timeout_ms);
	if (weir_likely(c->state == CONN_OPEN && !c->queue)) {
		s = weir_ring_peek(&c->pipe->rx);
		if (s) {
			h = weir_head_copy(s);
			if (weir_likely(h.vqpn == c->vqpn && h.op == WEIR_OP_INLINE &&
					h.length <= size)) {
				if (h.length <= WEIR_SLOT_HEAD_BYTES)
					return recv_small(c, seat, s, h, buf, length, 1);
				if (h.length <= WEIR_INLINE_SMALL)
					return recv_small(c, seat, s, h, buf, length, 2);
			}
		}
	}
	weir_bias_leave(seat);
	return recv_slow(c, buf, size, length, timeout_ms);
}

/* ---- loans ---- */

/* A whole message in the byte area: lent where it lies. */
static int
lend_area(struct weir_conn *c, const struct weir_head *h, struct weir_parked **out)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	struct weir_parked *p;
	uint64_t offset;
	int rc;

	if (h->length <= WEIR_INLINE_MAX || h->length > WEIR_MESSAGE_MAX)
		return spoilt(c);
	if (!weir_segment_whole(seg, h, &offset)) {
		rc = weir_segment_take_piece(c, h);
		return rc == -EPROTO ? spoilt(c) : rc ? rc : -EINTR;
	}
	p = weir_parked_new(c->worker, 0);
	if (!p)
		return -ENOMEM;
	rc = weir_area_arrived(seg, offset, h->length, &p->at);
	if (rc) {
		weir_parked_free(p);
		return rc == -EPROTO ? spoilt(c) : rc;
	}
	weir_pipe_pop(&seg->pipe, h->order, h->flags, 1);
	seg->users++;
	p->kind = PARKED_SPAN;
	p->data = seg->in_area + offset;
	p->length = h->length;
	p->pipe = c->pipe;
	p->cost = (uint32_t)weir_segment_cost(h->length);
	*out = p;
	return 0;
}

/* Anything else: as it would be parked. */
static int
lend_ring(struct weir_conn *c, const struct weir_head *h, struct weir_parked **out)
{
	int rc;

	if (c->local && h->op == WEIR_OP_PLACE)
		return lend_area(c, h, out);
	if (c->local)
		rc = h->length > WEIR_INLINE_MAX ? -EPROTO : weir_segment_take_piece(c, h);
	else
		rc = weir_channel_park(c, h);
	if (rc == -EPROTO)
		return spoilt(c);
	if (rc)
		return rc;
	*out = unpark(c);
	return 0;
}

/* Copied, so that the ring goes on; counted when the caller is done with it. */
static int
take_head(struct weir_conn *c, const struct weir_head *h, void *buf, struct weir_taken *taken)
{
	struct weir_pipe *p = c->pipe;
	uint32_t slots = weir_slots_inline(h->length);

	if (weir_unlikely(h->length > WEIR_INLINE_MAX))
		return spoilt(c);
	if (h->length > WEIR_SLOT_HEAD_BYTES && h->length <= WEIR_INLINE_SMALL)
		weir_ring_get_small(&p->rx, weir_ring_at(&p->rx, p->rx.pos), buf, h->length, 2);
	else
		weir_ring_get_inline(&p->rx, buf, h->length);
	weir_pipe_pop(p, h->order, h->flags, slots);
	p->burst++;
	c->received++;
	*taken =
	    (struct weir_taken){.data = buf,
				.length = h->length,
				.cost = h->flags & WEIR_SLOT_BULK ? 0 : slots * WEIR_SLOT_SIZE};
	return 0;
}

/* Lends what next() found, or what comes behind it if that was no message. */
static int
lend_next(struct weir_conn *c, int found, struct weir_head *h, struct weir_parked **p)
{
	for (; found >= 0; found = next(c, h)) {
		int rc = 0;

		if (found == NEXT_QUEUE)
			*p = unpark(c);
		else
			rc = lend_ring(c, h, p);
		if (rc == -EINTR)
			continue;
		if (!rc) {
			c->received++;
			LIST_INSERT_HEAD(&c->worker->loans, *p, in_loans);
		}
		return rc;
	}
	return nothing(c, found);
}

int
weir_take(struct weir_conn *c, void *buf, struct weir_taken *taken)
{
	struct weir_parked *p = NULL;
	struct weir_head h;
	int rc = next(c, &h);

	if (weir_likely(rc == NEXT_RING && h.op == WEIR_OP_INLINE))
		return take_head(c, &h, buf, taken);
	rc = lend_next(c, rc, &h, &p);
	if (!rc)
		*taken = (struct weir_taken){.data = p->data, .length = p->length, .loan = p};
	return rc;
}

static int
try_loan(struct weir_conn *c, struct weir_loan *loan)
{
	struct weir_parked *p = NULL;
	struct weir_head h;
	int rc = lend_next(c, next(c, &h), &h, &p);

	if (rc)
		return rc;
	*loan =
	    (struct weir_loan){.data = p->data, .length = p->length, .internal = {(uintptr_t)p}};
	/* a place is consumed when it is given back */
	if (p->kind != PARKED_PLACE) {
		weir_conn_consumed(c, p->cost);
		p->cost = 0;
	}
	return 0;
}

static int
locked_loan(struct weir_conn *c, struct weir_loan *loan)
{
	int rc;

	weir_lock(c->worker);
	rc = try_loan(c, loan);
	weir_unlock(c->worker);
	return rc;
}

int
weir_recv_loan(struct weir_conn *c, struct weir_loan *loan, int timeout_ms)
{
	struct weir_wait wait;
	int rc;

	if (weir_state(c->worker->w) == WEIR_FORKED)
		return weir_gone(c->worker->w);
	weir_wait_init(&wait, c->worker, timeout_ms);
	while ((rc = locked_loan(c, loan)) == -EAGAIN) {
		rc = wait_next(&wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	if (weir_is_loss(rc) && weir_conn_await_end(c))
		rc = locked_loan(c, loan);
	return rc;
}

void
weir_release(struct weir *w, struct weir_loan *loan)
{
	struct weir_parked *p = (struct weir_parked *)(uintptr_t)loan->internal[0];
	struct weir_thread *t;
	struct weir_conn *c;
	uint32_t cost;
	bool stale;

	if (!p || weir_state(w) == WEIR_FORKED)
		return;
	*loan = (struct weir_loan){0};
	t = p->worker;
	weir_lock(t);
	cost = p->cost;
	c = weir_conn_find(t, p->vqpn, &stale);
	LIST_REMOVE(p, in_loans);
	weir_parked_free(p);
	if (cost && c && c->state != CONN_CLOSING)
		weir_conn_consumed(c, cost);
	weir_drive_leave(t);
	weir_unlock(t);
	if (weir_unlikely(weir_state(t->w) != WEIR_UP))
		weir_threads_shed(t->w);
}
