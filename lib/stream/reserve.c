/* SPDX-License-Identifier: BSD-3-Clause */
/* Zero-copy send: the program writes a message into the send heap and commits it. */
#include "stream/send.h"

static int
try_reserve(struct weir_conn *c, size_t length, void **buf)
{
	struct weir_thread *t = c->home;
	uint32_t first;
	int rc = 0;

	if (weir_state(t->w) != WEIR_UP)
		return weir_gone(t->w);
	weir_lock(t);
	if (c->send_error) {
		rc = weir_send_error(c);
	} else {
		/* completions give memory back */
		if (c->pipe && !c->pipe->local && weir_ring_peek(&c->pipe->rx))
			weir_channel_drive(c->channel, NULL);
		first = weir_heap_take(t, (uint32_t)length);
		if (first == WEIR_BLOCK_NONE) {
			rc = -EAGAIN;
			c->want_heap = true;
			weir_send_blocked(c, (uint32_t)length);
		} else {
			*buf = t->w->arena + weir_heap_offset(t->w, first);
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

	if (weir_state(c->home->w) != WEIR_UP)
		return weir_gone(c->home->w);
	if (length > WEIR_STREAM_MESSAGE_MAX || !weir_heap_fits(c->home->w, (uint32_t)length))
		return weir_fail(-EMSGSIZE, "a message of %zu bytes is larger than %s", length,
				 length > WEIR_STREAM_MESSAGE_MAX
				     ? "messages may be; send it in parts"
				     : "the arena; attach with a larger one");
	weir_wait_init(&wait, c->home, timeout_ms);
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

int
weir_send_commit(struct weir_conn *c, void *buf, size_t length, unsigned flags, uint64_t cookie)
{
	struct weir *w = c->home->w;
	struct weir_message_out m = {
	    .data = buf, .length = (uint32_t)length, .flags = flags, .cookie = cookie};
	int rc;

	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	m.block = block_of(w, buf);
	if (flags & ~WEIR_NOTIFY || m.block == WEIR_BLOCK_NONE ||
	    length > (uint64_t)w->heap.run[m.block] * WEIR_BLOCK_SIZE)
		return weir_fail(-EINVAL,
				 "not what weir_send_reserve() gave, or longer than that; reserve "
				 "again");
	if (!c->local)
		return weir_send_message(c, &m, 0);
	rc = weir_send_large(c, &m, 0);
	if (!rc)
		weir_send_abandon(c, buf);
	return rc;
}

void
weir_send_abandon(struct weir_conn *c, void *buf)
{
	struct weir *w = c->home->w;
	uint32_t block = weir_state(w) == WEIR_FORKED ? WEIR_BLOCK_NONE : block_of(w, buf);

	if (block == WEIR_BLOCK_NONE)
		return;
	weir_lock(c->home);
	weir_heap_give(c->home, block);
	weir_unlock(c->home);
}
