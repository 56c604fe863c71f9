/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local messages too large for the byte area at once go in fragments. The part that has found no
 * room yet is the rest: the next call that makes progress on the worker pushes it, or the watcher
 * thread.
 */
#include "ctrl_slots.h"
#include "partial_send.h"
#include "segment_progress.h"
#include "send.h"

#include "client/thread.h"
#include "client/wait.h"

#include <stdlib.h>

/* Room for a slot: 0, -EAGAIN, -EPROTO. */
static int
slot_room(struct weir_ring *r)
{
	if (!weir_ring_room(r) && !weir_ring_refresh(r))
		return -EPROTO;
	return weir_ring_room(r) ? 0 : -EAGAIN;
}

int
weir_partial_push(struct weir_conn *c)
{
	const struct weir_message_out *lender = c->partial_lender;
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	struct weir_ring *r = &seg->pipe.tx;
	uint32_t most = (uint32_t)(seg->geometry.area_bytes / 4);

	weir_assert(c->pipe->local && c->partial_sent <= c->partial_length);
	while (c->partial_sent < c->partial_length) {
		uint32_t left = c->partial_length - c->partial_sent,
			 bytes = left < most ? left : most;
		struct weir_slot *s = weir_ring_at(r, r->pos);
		uint64_t offset;
		int rc = slot_room(r);

		if (!rc)
			rc = weir_area_take(seg, bytes, &offset);
		if (rc)
			return rc;
		if (lender)
			weir_message_copy(seg->out_area + offset, lender, c->partial_sent, bytes);
		else
			memcpy(seg->out_area + offset, c->partial + c->partial_sent, bytes);
		weir_slot_whose(s, c->send_vqpn, c->partial_length);
		s->place[0] = offset;
		s->place[1] = c->partial_sent;
		s->place[2] = bytes;
		weir_ring_publish_paired(
		    r, s, 1, weir_slot_what(WEIR_OP_PLACE, 0, (uint16_t)c->pipe->rx.pos));
		weir_pipe_published(c->pipe);
		c->partial_sent += bytes;
	}
	return 0;
}

void
weir_partial_keep(struct weir_conn *c, const struct weir_message_out *lender, uint8_t *ours)
{
	struct weir *w = c->worker->w;

	if (!c->partial_queued)
		TAILQ_INSERT_TAIL(&c->worker->tails, c, in_tails);
	c->partial = ours;
	c->partial_lender = lender;
	/* who lends memory pushes it itself */
	if (!lender && w->watched)
		weir_wake_fd(w->watcher_fd);
	c->partial_queued = true;
	weir_conn_update_quick(c);
}

void
weir_partial_drop(struct weir_conn *c)
{
	if (!c->partial_queued)
		return;
	TAILQ_REMOVE(&c->worker->tails, c, in_tails);
	weir_buffer_give(c->worker->w, c->partial);
	c->partial = NULL;
	c->partial_lender = NULL;
	c->partial_length = c->partial_sent = 0;
	c->partial_queued = c->end_due = false;
	weir_conn_update_quick(c);
}

void
weir_partial_end(struct weir_conn *c)
{
	weir_assert(c->local && c->shut && !c->end_due);
	c->end_due = true;
	if (!c->partial_queued)
		weir_partial_keep(c, NULL, NULL);
	weir_partials_push(c->worker);
}

unsigned
weir_partials_push(struct weir_thread *t)
{
	struct weir_conn *c, *next;
	unsigned n = 0;

	weir_assert(weir_worker_locked(t));
	for (c = TAILQ_FIRST(&t->tails); c; c = next) {
		uint32_t at = c->partial_sent;
		bool end = c->end_due;
		struct weir_ring *r = &c->pipe->tx;
		int rc = weir_partial_push(c);
		struct weir_slot *s;

		/* all messages are out */
		if (!rc && c->end_due)
			rc = slot_room(r);
		if (!rc && c->end_due) {
			s = weir_ring_at(r, r->pos);
			weir_slot_whose(s, c->send_vqpn, 0);
			weir_ring_publish_paired(
			    r, s, 1, weir_slot_what(WEIR_OP_END, 0, (uint16_t)c->pipe->rx.pos));
			weir_pipe_published(c->pipe);
			c->end_due = false;
		}
		next = TAILQ_NEXT(c, in_tails);
		n += at != c->partial_sent || end != c->end_due;
		if (rc == -EPROTO) { /* this ends connections and so changes the list */
			weir_segment_spoil(WEIR_SEGMENT_OF(c->pipe));
			return n + 1;
		}
		if (rc)
			continue;
		weir_partial_drop(c);
		weir_conn_update_completed(c);
		if (c->state == CONN_CLOSING)
			weir_ctrl_add(c, CTRL_CLOSE);
		else if (c->state == CONN_HALF && c->shut) /* both ends have */
			weir_conn_ended(c, 0);
	}
	return n;
}
