/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Zero-copy send: the program writes a message into the send heap, or into a segment's byte area,
 * and commits it. Each thread has at most one such memory per connection.
 */
#include "channel_progress.h"
#include "reserve.h"
#include "send.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"

#include <stdlib.h>

/* In the byte area, where a local peer reads it. -EBUSY: not possible now. */
static int
reserve_area(struct weir_conn *c, uint32_t length, struct weir_reservation *r)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	uint64_t offset;
	int rc;

	if (length <= WEIR_INLINE_MAX || length > seg->geometry.area_bytes / 4)
		return -EBUSY;
	rc = weir_area_reserve(seg, c, length, &offset);
	if (rc == -EAGAIN) {
		c->want_heap = false;
		weir_send_blocked(c, length, false);
	}
	if (!rc) {
		r->buf = seg->out_area + offset;
		r->block = WEIR_BLOCK_NONE;
	}
	return rc;
}

/* The reservation of this memory, or NULL. Worker locked. */
static struct weir_reservation *
of_memory(const struct weir_conn *c, const void *buf)
{
	struct weir_reservation *r;

	LIST_FOREACH(r, &c->reservations, next)
	if (r->buf == buf)
		return r;
	return NULL;
}

/* Removes a reservation whose memory the program has no longer. */
static void
forget(struct weir_conn *c, struct weir_reservation *r)
{
	LIST_REMOVE(r, next);
	LIST_INSERT_HEAD(&c->worker->spare_reservations, r, next);
}

/* The same, and frees its memory. */
static void
release(struct weir_conn *c, struct weir_reservation *r)
{
	if (r->block == WEIR_BLOCK_NONE)
		WEIR_SEGMENT_OF(c->pipe)->reserver = NULL;
	else
		weir_heap_give(c->worker, r->block);
	forget(c, r);
}

void
weir_reservations_clear(struct weir_conn *c)
{
	weir_assert(weir_worker_locked(c->worker));
	while (!LIST_EMPTY(&c->reservations))
		release(c, LIST_FIRST(&c->reservations));
}

/* Worker locked. */
static int
reserve(struct weir_conn *c, uint32_t length, void **buf)
{
	struct weir_thread *t = c->worker;
	struct weir_reservation *r;
	int rc = -EBUSY;

	if (c->send_error)
		return weir_send_error(c);
	if (c->mtu && length > c->mtu)
		return weir_fail(-EMSGSIZE,
				 "a datagram to this peer has at most %u bytes; reserve less",
				 c->mtu);
	LIST_FOREACH(r, &c->reservations, next)
	if (pthread_equal(r->thread, pthread_self()))
		return weir_fail(-EBUSY, "this thread holds a reservation of the connection; "
					 "commit or abandon it first");
	r = LIST_FIRST(&t->spare_reservations);
	if (!r) {
		r = malloc(sizeof(*r));
		if (!r)
			return weir_fail(-ENOMEM, "no memory to note a reservation; free some");
		LIST_INSERT_HEAD(&t->spare_reservations, r, next);
	}
	if (c->local)
		rc = reserve_area(c, length, r);
	if (rc == -EBUSY) { /* in the send heap; completions release memory */
		if (!c->local && weir_ring_peek(&c->pipe->rx))
			weir_channel_progress(c->channel, NULL);
		r->block = weir_heap_take(t, length);
		if (r->block == WEIR_BLOCK_NONE && weir_lanes_give_blocks(t))
			r->block = weir_heap_take(t, length);
		if (r->block == WEIR_BLOCK_NONE) {
			c->want_heap = true;
			weir_send_blocked(c, length, false);
			return -EAGAIN;
		}
		r->buf = t->w->arena + weir_heap_offset(t->w, r->block);
		rc = 0;
	}
	if (rc)
		return rc;
	LIST_REMOVE(r, next);
	r->thread = pthread_self();
	r->length = length;
	LIST_INSERT_HEAD(&c->reservations, r, next);
	*buf = r->buf;
	return 0;
}

static int
try_reserve(struct weir_conn *c, size_t length, void **buf)
{
	int rc;

	if (weir_state(c->worker->w) != WEIR_UP)
		return weir_gone(c->worker->w);
	weir_lock(c->worker);
	rc = reserve(c, (uint32_t)length, buf);
	if (rc == -EAGAIN && weir_send_take_events(c))
		rc = reserve(c, (uint32_t)length, buf);
	weir_unlock(c->worker);
	return rc;
}

int
weir_send_reserve(struct weir_conn *c, size_t length, int timeout_ms, void **buf)
{
	struct weir_wait wait;
	int rc;

	if (weir_state(c->worker->w) != WEIR_UP)
		return weir_gone(c->worker->w);
	if (length > WEIR_STREAM_MESSAGE_MAX || !weir_heap_fits(c->worker->w, (uint32_t)length))
		return weir_fail(-EMSGSIZE, "a message of %zu bytes is larger than %s", length,
				 length > WEIR_STREAM_MESSAGE_MAX
				     ? "messages may be; send it in parts"
				     : "the arena; attach with a larger one");
	weir_wait_init(&wait, c->worker, timeout_ms);
	while ((rc = try_reserve(c, length, buf)) == -EAGAIN) {
		rc = weir_wait_next(&wait);
		if (rc)
			break;
		weir_send_progress(c);
	}
	weir_wait_end(&wait);
	return rc;
}

int
weir_send_commit(struct weir_conn *c, void *buf, size_t length, unsigned flags, uint64_t cookie)
{
	struct weir_message_out m = {
	    .data = buf, .length = (uint32_t)length, .flags = flags, .cookie = cookie};
	struct weir_reservation *r;
	int rc;

	if (weir_state(c->worker->w) != WEIR_UP)
		return weir_gone(c->worker->w);
	weir_lock(c->worker);
	r = of_memory(c, buf);
	if (!r || length > r->length) {
		rc = weir_fail(-EINVAL,
			       r ? "the message is longer than the %u reserved bytes; reserve again"
				 : "not memory of weir_send_reserve(), or used up; reserve again",
			       r ? r->length : 0);
	} else {
		m.block = r->block;
		m.in_place = r->block == WEIR_BLOCK_NONE;
		rc = weir_message_transfer(c, &m);
		if (!rc)
			rc = weir_send_whole(c, &m);
		/* an engine frees the memory; a local peer reads what lies in the byte area */
		if (!rc && (!c->local || (m.in_place && length > WEIR_INLINE_MAX)))
			forget(c, r);
		else if (!rc)
			release(c, r);
	}
	weir_unlock(c->worker);
	return rc;
}

void
weir_send_abandon(struct weir_conn *c, void *buf)
{
	struct weir *w = c->worker->w;
	struct weir_reservation *r;

	if (weir_state(w) == WEIR_FORKED)
		return;
	weir_lock(c->worker);
	r = of_memory(c, buf);
	if (r)
		release(c, r);
	weir_unlock(c->worker);
	if (weir_unlikely(weir_state(w) != WEIR_UP))
		weir_threads_release(w);
}
