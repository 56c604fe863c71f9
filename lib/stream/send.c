/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending. Up to WEIR_INLINE_MAX bytes go straight from the caller's memory into slots. Longer
 * messages go through the send heap to an engine, through the byte area to a local peer. Window,
 * ring and memory are checked before anything is taken.
 */
#include "channel_progress.h"
#include "ctrl_slots.h"
#include "partial_send.h"
#include "segment_progress.h"
#include "send.h"
#include "parts.h"
#include "small.h"

#include "client/channel.h"
#include "client/progress.h"
#include "client/reason.h"
#include "client/region.h"
#include "client/wait.h"

#include <limits.h>
#include <stdlib.h>

/* ---- window and room ---- */

static inline bool
fits_window(const struct weir_conn *c, uint64_t cost)
{
	/* grants may shrink below what was spent */
	return c->spent + cost <= c->granted;
}

/* Reads what the receiver grants now. 0, -EAGAIN, -EPROTO. */
static int
window_slow(struct weir_conn *c, uint64_t cost)
{
	const struct weir_segment_conn *line = c->theirs;
	uint64_t consumed;

	if (!c->pipe->local) {
		c->granted = atomic_load_explicit(&c->desc->granted, memory_order_relaxed);
		weir_conn_update_quick(c);
		return fits_window(c, cost) ? 0 : -EAGAIN;
	}
	/* pairs with the release in weir_segment_report() of the peer */
	consumed = atomic_load_explicit(&line->consumed, memory_order_acquire);
	if (consumed > c->spent || consumed + c->peer_window < c->granted)
		return -EPROTO;
	c->peer_window =
	    weir_segment_window(atomic_load_explicit(&line->window, memory_order_relaxed));
	c->granted = consumed + c->peer_window;
	weir_conn_update_quick(c);
	/* one local message may be larger than the window, alone */
	return fits_window(c, cost) || c->spent == consumed ? 0 : -EAGAIN;
}

static inline int
window(struct weir_conn *c, uint64_t cost)
{
	return weir_likely(fits_window(c, cost)) ? 0 : window_slow(c, cost);
}

static int
room_slow(struct weir_pipe *p, uint32_t n)
{
	if (!weir_ring_refresh(&p->tx))
		return -EPROTO;
	if (weir_ring_room(&p->tx) >= n)
		return 0;
	if (!p->local)
		return -EAGAIN;
	/* polling the line that the consumer is about to write only slows it down */
	for (unsigned i = 0; i < 20; i++)
		weir_pause();
	if (!weir_ring_refresh(&p->tx))
		return -EPROTO;
	return weir_ring_room(&p->tx) >= n ? 0 : -EAGAIN;
}

/* Room for n slots, and on a channel for control slots. 0, -EAGAIN, -EPROTO. */
static inline int
room(struct weir_pipe *p, uint32_t n)
{
	if (!p->local)
		n += WEIR_CONTROL_RESERVE;
	return weir_likely(weir_ring_room(&p->tx) >= n) ? 0 : room_slow(p, n);
}

/* ---- the ways of a message; 0, -EAGAIN, -EPROTO, -EMSGSIZE, -ENOMEM ---- */

/* Publishes the message of n slots whose head is `s`, at pos of the pipe's ring. */
static inline void
publish(struct weir_conn *c, struct weir_slot *s, uint32_t n, uint64_t cost, uint8_t op,
	uint8_t flags, uint32_t length)
{
	struct weir_pipe *p = c->pipe;

	weir_slot_whose(s, c->send_vqpn, length);
	if (p->local)
		weir_ring_publish_paired(&p->tx, s, n,
					 weir_slot_what(op, flags, (uint16_t)p->rx.pos));
	else
		weir_ring_publish_what(&p->tx, s, n, weir_slot_what(op, flags, (uint16_t)c->sent));
	c->spent += cost;
	c->sent++;
	c->sent_bytes += length;
	weir_pipe_published(p);
}

static inline int
put_inline(struct weir_conn *c, const struct weir_message_out *m)
{
	struct weir_slot *s = weir_ring_at(&c->pipe->tx, c->pipe->tx.pos);
	uint32_t slots = weir_slots_inline(m->length);
	int rc = window(c, slots * WEIR_SLOT_SIZE);

	if (!rc)
		rc = room(c->pipe, slots);
	if (weir_unlikely(rc))
		return rc;
	if (weir_unlikely(m->parts))
		weir_parts_put(&c->pipe->tx, m->parts, m->length);
	else
		weir_ring_put_inline(&c->pipe->tx, m->data, m->length);
	publish(c, s, slots, slots * WEIR_SLOT_SIZE, WEIR_OP_INLINE,
		(uint8_t)((m->flags & WEIR_NOTIFY ? WEIR_SLOT_NOTIFY : 0) | m->transfer),
		m->length);
	return 0;
}

void
weir_message_copy(uint8_t *to, const struct weir_message_out *m, uint32_t from, uint32_t bytes)
{
	if (m->parts)
		weir_parts_copy(to, m->parts, from, bytes);
	else
		memcpy(to, m->data + from, bytes);
}

/* Through the send heap, to an engine. */
static int
put_place(struct weir_conn *c, struct weir_message_out *m)
{
	struct weir_thread *t = c->worker;
	struct weir_slot *s = weir_ring_at(&c->pipe->tx, c->pipe->tx.pos);
	uint32_t block = m->block, cost = weir_cost(m->length);
	bool bulk = m->transfer
			? m->transfer & WEIR_SLOT_BULK
			: m->length > WEIR_BLOCK_SIZE ||
			      cost > atomic_load_explicit(&c->desc->window, memory_order_relaxed);
	struct weir_region *r = m->region;
	int rc = bulk ? 0 : window(c, cost);

	if (!r && !weir_heap_fits(t->w, m->length))
		return weir_fail(-EMSGSIZE,
				 "a message of %u bytes is larger than the arena; attach "
				 "with a larger one",
				 m->length);
	if (!rc)
		rc = room(c->pipe, 1);
	if (!rc)
		rc = weir_notes_room(&c->blocks);
	if (rc)
		return rc;
	if (r) {
		c->want_heap = false;
	} else if (block == WEIR_BLOCK_NONE) {
		block = weir_heap_take(t, m->length);
		c->want_heap = block == WEIR_BLOCK_NONE;
		if (c->want_heap)
			return -EAGAIN;
		weir_message_copy(t->w->arena + weir_heap_offset(t->w, block), m, 0, m->length);
	}
	s->place[0] = r ? WEIR_PLACE(r->index, m->data - r->addr)
			: WEIR_PLACE(0, weir_heap_offset(t->w, block));
	weir_notes_put(&c->blocks, c->sent, r ? NOTE_REGION | (uintptr_t)r : block);
	m->block = WEIR_BLOCK_NONE; /* freed on completion, as the region is */
	m->region = NULL;
	publish(c, s, 1, bulk ? 0 : cost, WEIR_OP_PLACE,
		(uint8_t)(WEIR_SLOT_NOTIFY | (bulk ? WEIR_SLOT_BULK : 0) | m->transfer), m->length);
	return 0;
}

/* Through the byte area, in one piece. */
static int
put_area(struct weir_conn *c, const struct weir_message_out *m)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	struct weir_slot *s = weir_ring_at(&c->pipe->tx, c->pipe->tx.pos);
	uint64_t cost = weir_segment_cost(m->length), offset;
	int rc = window(c, cost);

	if (!rc)
		rc = room(c->pipe, 1);
	if (!rc)
		rc = m->in_place ? weir_area_take_reserved(seg, m->length, &offset)
				 : weir_area_take(seg, m->length, &offset);
	if (rc)
		return rc;
	if (!m->in_place)
		weir_message_copy(seg->out_area + offset, m, 0, m->length);
	s->place[0] = offset;
	s->place[1] = 0;
	s->place[2] = m->length;
	publish(c, s, 1, cost, WEIR_OP_PLACE, 0, m->length);
	return 0;
}

/* Through the byte area in fragments; those that find no room are sent later. */
static int
put_fragments(struct weir_conn *c, struct weir_message_out *m)
{
	uint64_t cost = weir_segment_cost(m->length);
	int rc = window(c, cost);

	if (rc)
		return rc;
	c->sent++;
	c->partial_lender = m;
	c->partial_length = m->length;
	c->partial_sent = 0;
	rc = weir_partial_push(c);
	if (!c->partial_sent) {
		c->sent--;
		c->partial_lender = NULL;
		c->partial_length = 0;
		return rc;
	}
	c->spent += cost;
	c->sent_bytes += m->length;
	if (rc)
		weir_partial_keep(c, m, NULL);
	else
		c->partial_lender = NULL;
	return rc == -EAGAIN ? 0 : rc;
}

/* Messages of one bundle at the beginning of m. */
static unsigned
bundle_count(const struct weir_segment *seg, const struct iovec *m, unsigned n)
{
	uint64_t bytes = weir_bundle_head(WEIR_BUNDLE_MAX), most = weir_area_whole(seg);
	unsigned i;

	for (i = 0; i < n && i < WEIR_BUNDLE_MAX && m[i].iov_len <= WEIR_INLINE_MAX; i++) {
		bytes += weir_bundle_padded((uint32_t)m[i].iov_len);
		if (bytes > most)
			break;
	}
	return i;
}

/* Messages in one bundle, to a peer that takes several per call. 0, -EAGAIN, -EPROTO. */
static int
put_bundle(struct weir_conn *c, const struct iovec *m, unsigned count)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	struct weir_slot *s = weir_ring_at(&c->pipe->tx, c->pipe->tx.pos);
	uint32_t head = weir_bundle_head(count), bytes = head, payload = 0;
	uint64_t offset, cost;
	uint8_t *to;
	int rc;

	weir_assert(count && count <= WEIR_BUNDLE_MAX);
	for (unsigned i = 0; i < count; i++) {
		bytes += weir_bundle_padded((uint32_t)m[i].iov_len);
		payload += (uint32_t)m[i].iov_len;
	}
	cost = weir_bundle_cost(count, bytes);
	rc = window(c, cost);
	if (!rc)
		rc = room(c->pipe, 1);
	if (!rc)
		rc = weir_area_take(seg, bytes, &offset);
	if (rc)
		return rc;
	to = seg->out_area + offset;
	for (unsigned i = 0; i < count; i++) {
		uint16_t length = (uint16_t)m[i].iov_len;

		memcpy(to + i * sizeof(length), &length, sizeof(length));
	}
	to += head;
	for (unsigned i = 0; i < count; i++) {
		uint32_t length = (uint32_t)m[i].iov_len;

		if (length <= WEIR_SLOT_SIZE)
			weir_slot_fill(to, m[i].iov_base, length);
		else
			memcpy(to, m[i].iov_base, length);
		to += weir_bundle_padded(length);
	}
	s->place[0] = offset;
	s->place[1] = count;
	s->place[2] = bytes;
	publish(c, s, 1, cost, WEIR_OP_BUNDLE, 0, bytes);
	c->sent += count - 1;
	c->sent_bytes -= bytes - payload;
	return 0;
}

static int
put_local(struct weir_conn *c, struct weir_message_out *m)
{
	uint64_t number = c->sent;
	int rc;

	c->want_heap = false;
	m->transfer = 0;
	if (c->partial_queued)
		return -EAGAIN;
	if (m->flags & WEIR_NOTIFY && weir_notes_room(&c->cookies))
		return -ENOMEM;
	if (m->length <= WEIR_INLINE_MAX)
		rc = put_inline(c, m);
	else if (m->length <= weir_area_whole(WEIR_SEGMENT_OF(c->pipe)))
		rc = put_area(c, m);
	else
		rc = m->copy ? put_fragments(c, m) : -ENOBUFS;
	if (rc)
		return rc;
	if (m->flags & WEIR_NOTIFY) {
		weir_notes_put(&c->cookies, number, m->cookie);
		weir_conn_update_completed(c);
	}
	return 0;
}

static int
put_remote(struct weir_conn *c, struct weir_message_out *m)
{
	uint64_t number = c->sent;
	int rc;

	c->want_heap = false;
	/* completions release memory: they must not pile up behind a program that only sends */
	if (weir_ring_peek(&c->pipe->rx))
		weir_channel_progress(c->channel, NULL);
	if (c->send_error)
		return weir_send_error(c);
	if (m->flags & WEIR_NOTIFY && weir_notes_room(&c->cookies))
		return -ENOMEM;
	rc = m->length <= WEIR_INLINE_MAX && !(m->transfer & WEIR_SLOT_BULK) ? put_inline(c, m)
									     : put_place(c, m);
	if (rc == -EAGAIN && m->length <= WEIR_INLINE_MAX && !m->transfer &&
	    !fits_window(c, weir_cost(m->length)) &&
	    weir_cost(m->length) > atomic_load_explicit(&c->desc->window, memory_order_relaxed))
		rc = put_place(c, m);
	if (rc)
		return rc;
	if (weir_unlikely(m->block != WEIR_BLOCK_NONE))
		weir_heap_give(c->worker, m->block); /* the message went inline after all */
	if (m->flags & WEIR_NOTIFY)
		weir_notes_put(&c->cookies, number, m->cookie);
	return 0;
}

/* ---- full ---- */

bool
weir_send_possible(struct weir_conn *c)
{
	struct weir_segment *seg;
	uint64_t cost = weir_segment_cost(c->want_length), need;

	if (!weir_conn_is_open(c))
		return true;
	if (c->want_heap)
		return !atomic_load_explicit(&c->worker->starved, memory_order_relaxed);
	if (!c->pipe->local)
		return true; /* it has a block by now; the engine reports window and room */
	if (c->partial_queued)
		return false;
	if (window(c, cost) == -EAGAIN)
		return false;
	if (c->want_length <= WEIR_INLINE_MAX)
		return room(c->pipe, weir_slots_inline(c->want_length)) != -EAGAIN;
	if (room(c->pipe, 1) == -EAGAIN)
		return false;
	seg = WEIR_SEGMENT_OF(c->pipe);
	need =
	    c->want_length <= weir_area_whole(seg) ? c->want_length : seg->geometry.area_bytes / 4;
	return weir_area_room(seg, (uint32_t)need);
}

void
weir_send_blocked(struct weir_conn *c, uint32_t length, bool bulk)
{
	struct weir_thread *t = c->worker;
	uint32_t cost;
	bool asked;

	weir_assert(weir_worker_locked(c->worker));
	if (!weir_conn_is_open(c))
		return;
	c->want_length = length;
	c->blocked = true;
	if ((c->pipe->local || c->want_heap) && !c->on_blocked) {
		TAILQ_INSERT_TAIL(&t->blocked, c, in_blocked);
		c->on_blocked = true;
		/* a sleeping thread has not asked the peer for a doorbell: wake it to do so */
		if (t->armed)
			weir_thread_wake(t);
	}
	if (c->pipe->local || c->want_heap)
		return;
	/* a message that goes by rendezvous needs a slot, no window */
	cost = bulk || length > WEIR_BLOCK_SIZE ? 0 : weir_cost(length);
	if (fits_window(c, cost)) {
		asked = c->needs_room;
		weir_ctrl_need_room(c);
		if (!asked)
			weir_ctrl_wake(c->channel);
		return;
	}
	/* the answer to a WANT under way comes early enough, unless that WANT asks for more */
	if (c->wanting && c->wanted <= cost)
		return;
	c->wanting = true;
	c->wanted = cost;
	weir_ctrl_add(c, CTRL_WANT);
	weir_ctrl_wake(c->channel);
}

int
weir_send_error(const struct weir_conn *c)
{
	return c->send_error == -EAGAIN ? -EAGAIN : weir_conn_failed(c, c->send_error);
}

bool
weir_send_take_events(struct weir_conn *c)
{
	/* of a channel that carries the data, each call takes them */
	if ((!c->local && !c->send_error) || !weir_ring_peek(&c->channel->pipe.rx))
		return false;
	return weir_channel_progress(c->channel, NULL);
}

int
weir_send_locked(struct weir_conn *c, struct weir_message_out *m)
{
	bool again = false;
	int rc;

	do {
		weir_assert(weir_worker_locked(c->worker) && weir_conn_is_settled(c));
		if (weir_unlikely(c->send_error))
			rc = weir_send_error(c);
		else if (weir_unlikely(c->mtu && m->length > c->mtu))
			rc = weir_fail(-EMSGSIZE,
				       "a datagram to this peer has at most %u bytes, not %u; send "
				       "it in parts, or connect without WEIR_UD",
				       c->mtu, m->length);
		else if (c->pipe->local)
			rc = put_local(c, m);
		else
			rc = put_remote(c, m);
		if (weir_likely(!rc))
			return 0;
		again = rc == -EAGAIN && !again &&
			((c->want_heap && weir_lanes_give_blocks(c->worker)) ||
			 weir_send_take_events(c));
	} while (again);
	if (rc == -EAGAIN)
		weir_send_blocked(c, m->length, m->transfer & WEIR_SLOT_BULK);
	if (rc == -ENOMEM)
		return weir_fail(rc, "no memory to note a message; free some");
	if (rc != -EPROTO)
		return rc;
	if (c->pipe->local)
		weir_segment_spoil(WEIR_SEGMENT_OF(c->pipe));
	return weir_fail(rc, "the %s spoilt the shared memory; close the connection",
			 c->pipe->local ? "local peer" : "data plane");
}

static inline int
try_send(struct weir_conn *c, struct weir_message_out *m)
{
	int rc;

	if (weir_unlikely(weir_state(c->worker->w) != WEIR_UP))
		return weir_gone(c->worker->w);
	weir_lock(c->worker);
	rc = weir_send_locked(c, m);
	weir_unlock(c->worker);
	return rc;
}

/* ---- waiting ---- */

void
weir_send_progress(struct weir_conn *c)
{
	weir_lock(c->worker);
	weir_progress(c->worker, NULL);
	weir_unlock(c->worker);
}

/* Whether the rest of m waits in the caller's memory. Another message may have followed it. */
static bool
is_lent(const struct weir_conn *c, const struct weir_message_out *m)
{
	return c->partial_lender == m;
}

/* The message is accepted: the connection copies the part that is still in the caller's memory. */
static void
keep_rest(struct weir_conn *c, struct weir_message_out *m)
{
	if (!is_lent(c, m))
		return;
	weir_message_copy(m->copy + c->partial_sent, m, c->partial_sent,
			  m->length - c->partial_sent);
	weir_partial_keep(c, NULL, m->copy);
	m->copy = NULL;
}

int
weir_send_whole(struct weir_conn *c, struct weir_message_out *m)
{
	int rc = weir_send_locked(c, m);

	if (weir_likely(rc != -ENOBUFS))
		return rc;
	m->copy = weir_buffer_take(c->worker->w, m->length);
	if (!m->copy)
		return weir_fail(-ENOMEM, "no memory for a message of %u bytes; free some",
				 m->length);
	rc = weir_send_locked(c, m);
	if (!rc)
		keep_rest(c, m);
	weir_buffer_give(c->worker->w, m->copy);
	m->copy = NULL;
	return rc;
}

/* The message is accepted: sends the rest until the timeout, then copies the remainder for later.
 */
static void
push_rest(struct weir_conn *c, struct weir_message_out *m, struct weir_wait *wait)
{
	for (;;) {
		bool kept;
		int rc;

		weir_lock(c->worker);
		weir_partials_push(c->worker);
		kept = is_lent(c, m);
		weir_unlock(c->worker);
		if (!kept)
			return;
		rc = weir_wait_next(wait);
		if (rc)
			break;
		weir_send_progress(c);
	}
	weir_lock(c->worker);
	keep_rest(c, m);
	weir_unlock(c->worker);
}

int
weir_send_message(struct weir_conn *c, struct weir_message_out *m, int timeout_ms)
{
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, c->worker, timeout_ms);
	while ((rc = try_send(c, m)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
		weir_send_progress(c);
	}
	if (!rc && m->copy)
		push_rest(c, m, &wait);
	weir_wait_end(&wait);
	return rc;
}

/* Apart: only messages that a segment may take in fragments need memory for their rest. */
int
weir_send_large(struct weir_conn *c, struct weir_message_out *m, int timeout_ms)
{
	int rc;

	if (m->length > WEIR_STREAM_MESSAGE_MAX)
		return weir_fail(-EMSGSIZE, "a message has at most %u bytes; send it in parts",
				 WEIR_STREAM_MESSAGE_MAX);
	rc = weir_send_message(c, m, timeout_ms);
	if (rc == -ENOBUFS) {
		m->copy = weir_buffer_take(c->worker->w, m->length);
		if (!m->copy)
			return weir_fail(-ENOMEM, "no memory for a message of %u bytes; free some",
					 m->length);
		rc = weir_send_message(c, m, timeout_ms);
	}
	weir_buffer_give(c->worker->w, m->copy);
	return rc;
}

int
weir_send_notify(struct weir_conn *c, const void *buf, size_t length, unsigned flags,
		 uint64_t cookie, int timeout_ms)
{
	struct weir_message_out m = {.data = buf,
				     .length = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length,
				     .flags = flags,
				     .cookie = cookie,
				     .block = WEIR_BLOCK_NONE};
	struct weir *w = c->worker->w;
	int rc;

	if (weir_unlikely(flags | c->transfer)) {
		rc = weir_message_transfer(c, &m);
		if (rc)
			return rc;
	}
	if (length > WEIR_INLINE_MAX) {
		/* adopted memory may be read until the message is complete */
		if (m.flags & (WEIR_ZERO_COPY | WEIR_CACHED) && m.length > WEIR_BLOCK_SIZE &&
		    !c->local && weir_state(w) == WEIR_UP)
			m.region = m.flags & WEIR_CACHED
				       ? weir_cache_use(w, m.data, m.length)
				       : weir_region_use(w, m.data, m.length, WEIR_ADOPT_SEND);
		rc = weir_send_large(c, &m, timeout_ms);
		if (m.region)
			weir_region_drop(m.region);
		return rc;
	}
	rc = try_send(c, &m);
	if (weir_likely(rc != -EAGAIN) || !timeout_ms)
		return rc;
	return weir_send_message(c, &m, timeout_ms);
}

/* Wakes the peer and leaves. */
static __attribute__((cold, noinline)) int
wake_peer(struct weir_conn *c, struct weir_bias_seat *seat)
{
	weir_pipe_ring(c->pipe);
	weir_bias_leave(seat);
	return 0;
}

/* Puts a message for which everything is ready, and leaves. `slots` and `to` are constants. */
static inline __attribute__((always_inline)) int
put_small(struct weir_conn *c, struct weir_bias_seat *seat, const void *buf, uint32_t length,
	  uint32_t slots, enum weir_small_to to)
{
	if (weir_unlikely(weir_small_put(c, NULL, 0, buf, length, slots, to)))
		return wake_peer(c, seat);
	weir_bias_leave(seat);
	return 0;
}

static __attribute__((noinline)) int
put_one_slot_local(struct weir_conn *c, struct weir_bias_seat *seat, const void *buf,
		   uint32_t length)
{
	return put_small(c, seat, buf, length, 1, TO_LOCAL_PEER);
}

static __attribute__((noinline)) int
put_two_slots_local(struct weir_conn *c, struct weir_bias_seat *seat, const void *buf,
		    uint32_t length)
{
	return put_small(c, seat, buf, length, 2, TO_LOCAL_PEER);
}

static __attribute__((noinline)) int
put_8_local(struct weir_conn *c, struct weir_bias_seat *seat, const void *buf)
{
	return put_small(c, seat, buf, 8, 1, TO_LOCAL_PEER);
}

static __attribute__((noinline)) int
put_64_local(struct weir_conn *c, struct weir_bias_seat *seat, const void *buf)
{
	return put_small(c, seat, buf, 64, 2, TO_LOCAL_PEER);
}

static __attribute__((noinline)) int
put_one_slot(struct weir_conn *c, struct weir_bias_seat *seat, const void *buf, uint32_t length)
{
	return put_small(c, seat, buf, length, 1, TO_ENGINE);
}

static __attribute__((noinline)) int
put_two_slots(struct weir_conn *c, struct weir_bias_seat *seat, const void *buf, uint32_t length)
{
	return put_small(c, seat, buf, length, 2, TO_ENGINE);
}

/* A small message for which everything is ready takes the short way: weir_small_put(). */
int
weir_send(struct weir_conn *c, const void *buf, size_t length, int timeout_ms)
{
	bool two = length > WEIR_SLOT_HEAD_BYTES;
	struct weir_bias_seat *seat;

	if (weir_unlikely(length > WEIR_INLINE_SMALL || weir_conn_life(c) != WEIR_UP ||
			  !(seat = weir_bias_enter(&c->worker->lock))))
		return weir_send_notify(c, buf, length, 0, 0, timeout_ms);
	if (weir_unlikely(!weir_put_ready(c))) {
		weir_bias_leave(seat);
		return weir_send_notify(c, buf, length, 0, 0, timeout_ms);
	}
	if (c->pipe->local && length == 64)
		return put_64_local(c, seat, buf);
	if (c->pipe->local && length == 8)
		return put_8_local(c, seat, buf);
	if (c->pipe->local)
		return two ? put_two_slots_local(c, seat, buf, (uint32_t)length)
			   : put_one_slot_local(c, seat, buf, (uint32_t)length);
	return two ? put_two_slots(c, seat, buf, (uint32_t)length)
		   : put_one_slot(c, seat, buf, (uint32_t)length);
}

/* ---- several messages ---- */

/* Sends the small messages at the beginning of m: the number, or why the first did not go. */
static int
send_small(struct weir_conn *c, const struct iovec *m, unsigned n)
{
	bool bundles, asleep = false;
	unsigned done = 0, count;
	int rc = 0;

	if (weir_unlikely(weir_state(c->worker->w) != WEIR_UP))
		return weir_gone(c->worker->w);
	weir_lock(c->worker);
	if (c->local && c->theirs && !c->bundles)
		c->bundles = atomic_load_explicit(&c->theirs->bundles, memory_order_relaxed);
	bundles = c->bundles;
	for (; done < n && !rc && m[done].iov_len <= WEIR_INLINE_MAX; done += rc ? 0 : count) {
		uint32_t length = (uint32_t)m[done].iov_len, slots = weir_slots_inline(length);

		count = 1;
		if (weir_put_ready(c)) {
			if (bundles)
				count = bundle_count(WEIR_SEGMENT_OF(c->pipe), m + done, n - done);
			if (count > 1) {
				rc = put_bundle(c, m + done, count);
				if (!rc)
					continue;
				/* one by one: it wants less room */
				rc = 0;
				bundles = false;
				count = 0;
				continue;
			}
			if (slots <= 2) {
				const void *buf = m[done].iov_base;

				asleep |=
				    slots == 1
					? weir_small_put(c, NULL, 0, buf, length, 1, TO_EITHER)
					: weir_small_put(c, NULL, 0, buf, length, 2, TO_EITHER);
				continue;
			}
		}
		rc = weir_send_locked(c, &(struct weir_message_out){.data = m[done].iov_base,
								    .length = length,
								    .transfer = c->transfer,
								    .block = WEIR_BLOCK_NONE});
	}
	if (asleep)
		weir_pipe_ring(c->pipe);
	weir_unlock(c->worker);
	return done ? (int)done : rc;
}

int
weir_send_many(struct weir_conn *c, const struct iovec *messages, unsigned n, int timeout_ms)
{
	unsigned done = 0;
	int rc = 0;

	if (n > INT_MAX)
		return weir_fail(-EINVAL, "%u messages in one call; send fewer", n);
	while (done < n && !rc) {
		const struct iovec *m = &messages[done];

		rc = m->iov_len <= WEIR_INLINE_MAX ? send_small(c, m, n - done) : -EAGAIN;
		if (rc > 0) {
			done += (unsigned)rc;
			rc = 0;
			continue;
		}
		/* large, or there is no room: only the first message is waited for */
		if (rc == -EAGAIN && (!done || m->iov_len > WEIR_INLINE_MAX))
			rc = weir_send_notify(c, m->iov_base, m->iov_len, 0, 0,
					      done ? 0 : timeout_ms);
		done += !rc;
	}
	return done ? (int)done : rc;
}

/* ---- waiting until everything sent so far is complete ---- */

int
weir_flush(struct weir_conn *c, int timeout_ms)
{
	struct weir_thread *t = c->worker;
	struct weir_wait wait;
	uint64_t upto;
	int rc = 0;

	if (weir_state(t->w) != WEIR_UP)
		return weir_gone(t->w);
	weir_lock(t);
	upto = c->sent;
	weir_unlock(t);
	weir_wait_init(&wait, t, timeout_ms);
	wait.nap_always = true; /* completion need not ring the doorbell */
	while (!rc) {
		bool complete, ended;

		weir_lock(t);
		weir_progress(t, NULL);
		if (weir_conn_is_open(c))
			weir_conn_update_completed(c);
		complete = c->completed >= upto;
		ended = c->state == CONN_ENDED;
		if (!complete && ended)
			rc = weir_send_error(c);
		weir_unlock(t);
		if (complete || ended)
			break;
		rc = weir_wait_next(&wait);
	}
	weir_wait_end(&wait);
	return rc;
}
