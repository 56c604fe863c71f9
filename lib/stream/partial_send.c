/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local messages too large for the byte area at once go in pieces. What has found no room yet is
 * the connection's tail: it is pushed by whichever call next makes progress on the worker, by the
 * watcher thread if none does.
 */
#include "conn.h"

#include "client/thread.h"
#include "client/wait.h"

#include <stdlib.h>

static void
put_piece(struct weir_conn *c, uint64_t offset, uint32_t bytes)
{
	struct weir_ring *r = &c->pipe->tx;
	struct weir_slot *s = weir_ring_at(r, r->pos);

	memcpy(WEIR_SEGMENT_OF(c->pipe)->out_area + offset, c->tail + c->tail_at, bytes);
	weir_slot_head(s, WEIR_OP_PLACE, 0, (uint16_t)c->pipe->rx.pos, c->send_vqpn,
		       c->tail_length);
	s->place[0] = offset;
	s->place[1] = c->tail_at;
	s->place[2] = bytes;
	weir_ring_publish_paired(r, s, 1);
	weir_pipe_published(c->pipe);
	c->tail_at += bytes;
}

int
weir_tail_push(struct weir_conn *c)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	struct weir_ring *r = &seg->pipe.tx;
	uint32_t most = (uint32_t)(seg->geometry.area_bytes / 4);

	while (c->tail_at < c->tail_length) {
		uint32_t left = c->tail_length - c->tail_at, bytes = left < most ? left : most;
		uint64_t offset;
		int rc;

		if (!weir_ring_room(r) && !weir_ring_refresh(r))
			return -EPROTO;
		if (!weir_ring_room(r))
			return -EAGAIN;
		rc = weir_area_take(seg, bytes, &offset);
		if (rc)
			return rc;
		put_piece(c, offset, bytes);
	}
	return 0;
}

void
weir_tail_keep(struct weir_conn *c, uint8_t *data, bool lent)
{
	struct weir *w = c->worker->w;

	if (!c->tail_kept)
		TAILQ_INSERT_TAIL(&c->worker->tails, c, in_tails);
	c->tail = data;
	c->tail_lent = lent;
	/* what the caller lent it pushes itself */
	if (!lent && w->watched)
		weir_nudge(w->watcher_fd);
	c->tail_kept = true;
}

void
weir_tail_drop(struct weir_conn *c)
{
	if (!c->tail_kept)
		return;
	TAILQ_REMOVE(&c->worker->tails, c, in_tails);
	if (!c->tail_lent)
		free(c->tail);
	c->tail = NULL;
	c->tail_kept = false;
}

unsigned
weir_tails_push(struct weir_thread *t)
{
	struct weir_conn *c, *next;
	unsigned n = 0;

	for (c = TAILQ_FIRST(&t->tails); c; c = next) {
		uint32_t at = c->tail_at;
		int rc = weir_tail_push(c);

		next = TAILQ_NEXT(c, in_tails);
		n += at != c->tail_at;
		if (rc == -EPROTO) { /* ends connections, so the list is no longer what it was */
			weir_segment_spoil(WEIR_SEGMENT_OF(c->pipe));
			return n + 1;
		}
		if (rc)
			continue;
		weir_tail_drop(c);
		weir_conn_delivered(c);
		if (c->state == CONN_CLOSING)
			weir_control_post(c, CONTROL_CLOSE);
	}
	return n;
}
