/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations: cells written into the channel of the thread's connection (ipc/remote.h). An engine
 * reports their completion in the connection's descriptor.
 */
#include "handle.h"

#include "client/channel.h"
#include "client/reason.h"
#include "client/wait.h"
#include "stream/parts.h"
#include "stream/progress.h"

/* Slots of a put of any length, in cells of WEIR_PUT_MAX bytes. */
static uint64_t
put_slots(uint64_t length)
{
	return length / WEIR_PUT_MAX * WEIR_INLINE_SLOTS +
	       (length % WEIR_PUT_MAX ? weir_put_slots(length % WEIR_PUT_MAX) : 0);
}

/* Room for n slots beside the control slots. 0, -EAGAIN, -EPROTO. */
static int
room(struct weir_ring *tx, uint64_t n)
{
	n += WEIR_CONTROL_RESERVE;
	if (weir_likely(weir_ring_room(tx) >= n))
		return 0;
	if (!weir_ring_refresh(tx))
		return -EPROTO;
	return weir_ring_room(tx) >= n ? 0 : -EAGAIN;
}

/* Writes one cell, for which there is room. Worker locked. */
static void
put_cell(struct weir_conn *c, uint64_t offset, const uint8_t *buf, uint32_t length)
{
	struct weir_cell_put put = {.handle = WEIR_HANDLE_FIRST, .offset = offset};
	struct weir_ring *tx = &c->pipe->tx;
	struct weir_slot *s = weir_ring_at(tx, tx->pos);
	const struct iovec parts[] = {{&put, WEIR_PUT_FIELDS}, {(void *)(uintptr_t)buf, length}};

	if (length <= sizeof(put.payload)) {
		memcpy(s->data, &put, WEIR_PUT_FIELDS);
		memcpy(s->data + WEIR_PUT_FIELDS, buf, length);
	} else {
		weir_parts_put(tx, parts, WEIR_PUT_FIELDS + length);
	}
	weir_slot_whose(s, c->vqpn, length);
	weir_ring_publish_what(tx, s, weir_put_slots(length),
			       weir_slot_what(WEIR_OP_PUT, 0, (uint16_t)c->sent));
	c->sent++;
	c->sent_bytes += length;
	weir_pipe_published(c->pipe);
}

/* Writes what there is room for and counts it in *done. 0, -EAGAIN, or an error. Worker locked. */
static int
put_some(struct weir_conn *c, uint64_t offset, const uint8_t *buf, size_t length, size_t *done)
{
	int rc = 0;

	if (weir_ring_peek(&c->pipe->rx))
		weir_channel_progress(c->channel, NULL);
	while (!rc && *done < length) {
		uint32_t part =
		    length - *done < WEIR_PUT_MAX ? (uint32_t)(length - *done) : WEIR_PUT_MAX;

		if (weir_unlikely(c->send_error))
			return c->send_error == -EAGAIN ? -EAGAIN : weir_remote_ended(c);
		rc = room(&c->pipe->tx, weir_put_slots(part));
		if (rc)
			break;
		put_cell(c, offset + *done, buf + *done, part);
		*done += part;
	}
	if (rc == -EPROTO)
		return weir_fail(rc, "the data plane spoilt the shared memory; attach again");
	return rc;
}

/* Waits for room, until all is written. */
static int
put_waiting(struct weir_conn *c, uint64_t offset, const uint8_t *buf, size_t length, size_t done)
{
	struct weir_thread *t = c->worker;
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, t, -1);
	do {
		weir_lock(t);
		weir_progress(t, NULL);
		rc = put_some(c, offset, buf, length, &done);
		if (rc == -EAGAIN && weir_conn_is_open(c)) {
			c->blocked = true;
			weir_ctrl_need_room(c);
		}
		weir_unlock(t);
		if (rc != -EAGAIN)
			break;
		rc = weir_wait_next(&wait);
	} while (!rc);
	weir_wait_end(&wait);
	return rc;
}

/* Whether one put of this length can wait for nothing. Worker locked. */
static int
put_now(struct weir_conn *c, uint64_t length)
{
	struct weir_ring *tx = &c->pipe->tx;

	if (put_slots(length) + WEIR_CONTROL_RESERVE > tx->mask + 1u)
		return weir_fail(-EMSGSIZE,
				 "%llu bytes never find room at once; put less, or without "
				 "WEIR_NOWAIT",
				 (unsigned long long)length);
	return room(tx, put_slots(length));
}

int
weir_remote_put(struct weir_remote *r, uint64_t offset, const void *buf, size_t length,
		unsigned flags)
{
	struct weir_conn *c;
	size_t done = 0;
	uint64_t bytes;
	int rc;

	if (weir_unlikely(flags & ~WEIR_NOWAIT))
		return weir_fail(-EINVAL, "unknown flag 0x%x; see weir/remote.h", flags);
	if (weir_unlikely(!(r->rights & WEIR_MAY_WRITE)))
		return weir_fail(-EACCES, "opened without WEIR_MAY_WRITE; open it with that");
	c = weir_remote_conn(r, true, &rc);
	if (weir_unlikely(!c))
		return rc;
	if (weir_unlikely(c->state == CONN_OPENING)) {
		rc = weir_remote_await_open(c, flags & WEIR_NOWAIT ? 0 : -1);
		if (rc)
			return rc;
	}
	if (weir_unlikely(c->state == CONN_ENDED))
		return weir_remote_ended(c);
	bytes = atomic_load_explicit(&c->remote_bytes, memory_order_relaxed);
	if (weir_unlikely(offset > bytes || length > bytes - offset))
		return weir_fail(-ERANGE, "%zu bytes at %llu are not within the export of %llu",
				 length, (unsigned long long)offset, (unsigned long long)bytes);
	weir_lock(c->worker);
	rc = flags & WEIR_NOWAIT && !c->send_error ? put_now(c, length) : 0;
	if (!rc)
		rc = put_some(c, offset, buf, length, &done);
	weir_unlock(c->worker);
	if (weir_unlikely(rc == -EAGAIN && !(flags & WEIR_NOWAIT)))
		rc = put_waiting(c, offset, buf, length, done);
	return rc;
}

/* 1: all is complete; 0: not yet, and `ask` has the engine say when; or how it ended. */
static int
look(struct weir_conn *c, uint64_t all, bool ask)
{
	struct weir_thread *t = c->worker;
	int rc;

	weir_lock(t);
	weir_progress(t, NULL);
	weir_conn_update_completed(c);
	if (c->completed >= all)
		rc = 1;
	else if (c->state == CONN_ENDED)
		rc = weir_remote_ended(c);
	else
		rc = 0;
	/* once: DONE then comes for all that was sent before */
	if (!rc && ask && c->flush_asked != c->sent) {
		c->flush_asked = c->sent;
		weir_ctrl_add(c, CTRL_FLUSH);
	}
	weir_unlock(t);
	return rc;
}

int
weir_remote_flush(struct weir_remote *r, int timeout_ms)
{
	struct weir_wait wait;
	struct weir_conn *c;
	uint64_t all;
	int rc;

	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	c = weir_remote_conn(r, false, &rc);
	if (!c || c->completed == c->sent)
		return 0;
	all = c->sent;
	weir_wait_init(&wait, c->worker, timeout_ms);
	rc = look(c, all, true);
	while (!rc) {
		rc = weir_wait_next(&wait);
		if (!rc)
			rc = look(c, all, false);
	}
	weir_wait_end(&wait);
	return rc > 0 ? 0 : rc;
}
