/* SPDX-License-Identifier: BSD-3-Clause */
/* Zero-copy send: the program writes a message into the send heap and commits it. */
#include "send.h"

#include "client/reason.h"
#include "client/wait.h"

/* In the byte area, where a local peer reads it. -EBUSY: not possible now. */
static int
reserve_area(struct weir_conn *c, uint32_t length, void **buf)
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
	if (!rc)
		*buf = seg->out_area + offset;
	return rc;
}

static int
try_reserve(struct weir_conn *c, size_t length, void **buf)
{
	struct weir_thread *t = c->worker;
	uint32_t first;
	bool local;
	int rc;

	if (weir_state(t->w) != WEIR_UP)
		return weir_gone(t->w);
	weir_lock(t);
	local = c->pipe && c->pipe->local;
	if (c->send_error)
		rc = weir_send_error(c);
	else if (c->mtu && length > c->mtu)
		rc =
		    weir_fail(-EMSGSIZE,
			      "a datagram to this peer has at most %u bytes; reserve less", c->mtu);
	else
		rc = local ? reserve_area(c, (uint32_t)length, buf) : -EBUSY;
	if (rc == -EBUSY) {
		/* in the send heap: completions release memory */
		if (c->pipe && !local && weir_ring_peek(&c->pipe->rx))
			weir_channel_progress(c->channel, NULL);
		first = weir_heap_take(t, (uint32_t)length);
		if (first != WEIR_BLOCK_NONE) {
			*buf = t->w->arena + weir_heap_offset(t->w, first);
			rc = 0;
		} else {
			c->want_heap = true;
			weir_send_blocked(c, (uint32_t)length, false);
			rc = -EAGAIN;
		}
	}
	weir_unlock(t);
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

/* The block that a reservation begins with, or WEIR_BLOCK_NONE. */
static uint32_t
block_of(const struct weir *w, const void *buf)
{
	uint64_t at = (uint64_t)((const uint8_t *)buf - w->arena) - weir_arena_send(&w->geometry);

	if (at % WEIR_BLOCK_SIZE || at / WEIR_BLOCK_SIZE >= w->geometry.send_blocks ||
	    !w->heap.run[at / WEIR_BLOCK_SIZE])
		return WEIR_BLOCK_NONE;
	return (uint32_t)(at / WEIR_BLOCK_SIZE);
}

/* Whether buf is the connection's place in the byte area. Worker locked. */
static bool
in_area(const struct weir_conn *c, const void *buf)
{
	const struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);

	return c->pipe && c->pipe->local && seg->reserver == c &&
	       buf == seg->out_area + seg->reserved;
}

/* Bytes that were reserved at m->data, 0: none. Fills in m->in_place and m->block. */
static uint64_t
reserved_bytes(const struct weir_conn *c, struct weir_message_out *m)
{
	uint64_t bytes = 0;

	m->block = WEIR_BLOCK_NONE;
	weir_lock(c->worker);
	m->in_place = in_area(c, m->data);
	if (m->in_place)
		bytes = WEIR_SEGMENT_OF(c->pipe)->reserved_bytes;
	weir_unlock(c->worker);
	if (m->in_place)
		return bytes;
	m->block = block_of(c->worker->w, m->data);
	return m->block == WEIR_BLOCK_NONE
		   ? 0
		   : (uint64_t)c->worker->w->heap.run[m->block] * WEIR_BLOCK_SIZE;
}

int
weir_send_commit(struct weir_conn *c, void *buf, size_t length, unsigned flags, uint64_t cookie)
{
	struct weir_message_out m = {
	    .data = buf, .length = (uint32_t)length, .flags = flags, .cookie = cookie};
	uint64_t most;
	int rc;

	if (weir_state(c->worker->w) != WEIR_UP)
		return weir_gone(c->worker->w);
	most = reserved_bytes(c, &m);
	if (!most || length > most)
		return weir_fail(-EINVAL,
				 "not what weir_send_reserve() gave, or longer than that; reserve "
				 "again");
	rc = weir_message_transfer(c, &m);
	if (rc)
		return rc;
	if (!c->local)
		return weir_send_message(c, &m, 0);
	rc = weir_send_large(c, &m, 0);
	if (!rc && (!m.in_place || length <= WEIR_INLINE_MAX)) /* the message was copied */
		weir_send_abandon(c, buf);
	return rc;
}

void
weir_send_abandon(struct weir_conn *c, void *buf)
{
	struct weir *w = c->worker->w;
	uint32_t block;

	if (weir_state(w) == WEIR_FORKED)
		return;
	weir_lock(c->worker);
	if (in_area(c, buf)) {
		WEIR_SEGMENT_OF(c->pipe)->reserver = NULL;
	} else {
		block = block_of(w, buf);
		if (block != WEIR_BLOCK_NONE)
			weir_heap_give(c->worker, block);
	}
	weir_unlock(c->worker);
	if (weir_unlikely(weir_state(w) != WEIR_UP))
		weir_threads_release(w);
}
