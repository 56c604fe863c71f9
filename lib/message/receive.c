/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that arrive at a worker. A message at the head of a ring goes from there to its handler,
 * unless its lane has to wait: then it moves to the connection's queue, and the lane is reported
 * again when it goes on.
 */
#include "receive.h"
#include "lane.h"
#include "model.h"
#include "request.h"
#include "sender.h"

#include "client/progress.h"
#include "client/thread.h"
#include "client/wait.h"

#include <errno.h>

#define RESPONSES_MAX 64u

/*
 * A message on a lane of ours: a response, HELLO or BYE. 0, -EPROTO: it is malformed, or
 * -EPROTONOSUPPORT. Worker locked.
 */
static int
outgoing(struct lane *lane, struct weir_taken *taken)
{
	const uint8_t *data = taken->data;
	uint32_t length = taken->length;
	struct message_header h;
	uint32_t head = message_header_read(&h, data, length);

	switch (head ? h.kind : 0) {
	case KIND_RESPONSE:
		request_response(lane, &h, data + head, length - head, taken);
		return 0;
	case KIND_FRAGMENT:
		return request_piece(lane, &h, data + head, length - head) ? 0 : -EPROTO;
	case KIND_HELLO:
		if (!messenger_speaks(lane->m, &h))
			return -EPROTONOSUPPORT;
		if (!h.id || atomic_load_explicit(&lane->incarnation, memory_order_relaxed) ||
		    (lane->m->model && !model_greets(lane, data + head, length - head)))
			return -EPROTO;
		atomic_store_explicit(&lane->incarnation, h.id, memory_order_relaxed);
		/* pairs with the acquire in look_lane() */
		atomic_store_explicit(&lane->receivers, (h.status & 0xff) + 1,
				      memory_order_release);
		return 0;
	case KIND_BYE:
		/* pairs with the acquire in look_lane() */
		atomic_store_explicit(&lane->bye_received, 1, memory_order_release);
		return 0;
	default:
		return model_reply(lane, taken) ? 0 : -EPROTO;
	}
}

static inline bool
takeable(const struct lane *lane, const struct weir_messenger *m)
{
	return lane->sender || (lane->m == m && !lane->running && !lane->first && !lane->closing);
}

/* Takes c's next message. Worker locked. TAKE_*. */
static int
take(struct weir_conn *c, uint8_t *buffer, struct take *out)
{
	struct lane *lane = lane_of(c);
	int rc = weir_take(c, buffer, &out->taken);

	if (rc == -EAGAIN)
		return TAKE_NOTHING;
	out->lane = lane;
	out->life = lane->life;
	if (rc) {
		out->status = rc;
		return TAKE_ENDED;
	}
	if (!lane->sender)
		return TAKE_MESSAGE;
	rc = outgoing(lane, &out->taken);
	weir_taken_done(c, &out->taken);
	if (!rc)
		return TAKE_MOVED;
	count(&lane->sender->malformed);
	/* pairs with the acquire in look_lane() */
	atomic_store_explicit(&lane->malformed, (uint32_t)-rc, memory_order_release);
	weir_conn_ended(c, (uint32_t)-rc);
	out->status = rc;
	return TAKE_ENDED;
}

/* Takes the message at the ring's head if its lane need not wait. TAKE_*. */
static inline int
take_head(struct weir_thread *t, struct weir_pipe *p, const struct weir_messenger *m,
	  uint8_t *buffer, struct take *out)
{
	struct weir_slot *s = weir_ring_peek(&p->rx);
	struct weir_head h;
	struct weir_conn *c;
	bool stale;

	if (!s)
		return TAKE_NOTHING;
	h = weir_head_copy(s);
	if (h.op == WEIR_OP_INLINE || h.op == WEIR_OP_PLACE) {
		c = weir_conn_find(t, h.vqpn, &stale);
		if (c && c->lane && c->pipe == p && c->state == CONN_OPEN &&
		    takeable(lane_of(c), m))
			return take(c, buffer, out);
	}
	return p->local || !weir_channel_step(WEIR_CHANNEL_OF(p)) ? TAKE_NOTHING : TAKE_MOVED;
}

/* Acts on the pending events of a lane. Worker locked. TAKE_*. */
static int
reported(struct weir_conn *c, uint8_t *buffer, struct take *out)
{
	struct lane *lane = lane_of(c);
	int rc;

	c->pending &= (uint8_t)~PENDING_OPENED;
	if (c->pending & PENDING_SENT) {
		c->pending &= (uint8_t)~PENDING_SENT;
		lane_sent(lane);
	}
	/* a peer that sends no more responses is of no use */
	if (c->pending & PENDING_END) {
		c->pending &= (uint8_t)~PENDING_END;
		weir_conn_ended(c, 0);
	}
	if (c->pending & PENDING_WRITABLE) {
		c->pending &= (uint8_t)~PENDING_WRITABLE;
		lane_flush(lane);
		if (!takeable(lane, lane->m)) {
			weir_conn_unready(c);
			return TAKE_NOTHING;
		}
	}
	if (c->pending & PENDING_READABLE || c->queue) {
		rc = take(c, buffer, out);
		if (rc)
			return rc;
	}
	if (c->pending & PENDING_CLOSED && !c->queue) {
		c->pending = 0;
		*out = (struct take){.lane = lane, .life = lane->life, .status = c->end};
		return TAKE_ENDED;
	}
	return TAKE_NOTHING;
}

static int
take_reported(struct weir_thread *t, const struct weir_messenger *m, uint8_t *buffer,
	      struct take *out)
{
	struct weir_conn *c, *next;
	int rc;

	for (c = TAILQ_FIRST(&t->lanes); c; c = next) {
		next = TAILQ_NEXT(c, in_ready);
		if (!lane_of(c)->sender && lane_of(c)->m != m)
			continue;
		/* lanes that wait report again */
		if (!takeable(lane_of(c), m) && !(c->pending & PENDING_WRITABLE)) {
			weir_conn_unready(c);
			continue;
		}
		rc = reported(c, buffer, out);
		if (c->lane && !c->queue && !(c->pending & ~PENDING_READABLE)) {
			c->readable = false;
			c->pending = 0;
		}
		if (!c->pending && !c->queue)
			weir_conn_unready(c);
		if (rc)
			return rc;
	}
	return TAKE_NOTHING;
}

void
lane_resume(struct lane *lane)
{
	struct weir_conn *c = lane->conn;

	if (c && (c->queue || c->pending))
		weir_conn_report(c, c->queue ? PENDING_READABLE : 0);
}

int
worker_take(struct weir_thread *t, const struct weir_messenger *m, uint8_t *buffer,
	    struct take *out)
{
	bool reports = !TAILQ_EMPTY(&t->lanes);
	struct weir_channel *ch;
	struct weir_segment *seg;
	int rc = TAKE_NOTHING, got;

	weir_assert(weir_worker_locked(t));
	/* queued messages come before those in the rings now and then */
	if (weir_unlikely(reports) && t->turns++ % 8 == 0)
		rc = take_reported(t, m, buffer, out);
	if (rc)
		return rc;
	SLIST_FOREACH(ch, &t->channels, next)
	{
		rc = take_head(t, &ch->pipe, m, buffer, out);
		if (rc)
			return rc;
	}
	LIST_FOREACH(seg, &t->segments, next)
	{
		rc = seg->error ? TAKE_NOTHING : take_head(t, &seg->pipe, m, buffer, out);
		if (rc)
			return rc;
	}
	rc = weir_progress(t, NULL) ? TAKE_MOVED : TAKE_NOTHING;
	if (!TAILQ_EMPTY(&t->lanes)) {
		got = take_reported(t, m, buffer, out);
		rc = got ? got : rc;
	}
	return rc;
}

/* Whether threads wait for other requests than r, so that the caller takes these responses too. */
static bool
others_sleep(const struct sender *s, const struct weir_request *r)
{
	const struct weir_waiter *first = LIST_FIRST(&s->worker->waiters);

	return weir_unlikely(first && (first->awaits != r || LIST_NEXT(first, next)));
}

void
sender_take(struct sender *s, const struct weir_request *r)
{
	struct weir_thread *t = s->worker;
	struct weir_waiter *waiter;
	int rc = TAKE_NOTHING;
	struct take take;
	uint32_t n = 0;

	while (n < RESPONSES_MAX && (!r || !request_ended(r) || others_sleep(s, r))) {
		rc = worker_take(t, NULL, s->buffer, &take);
		if (rc == TAKE_ENDED) {
			/* a thread with m->lock closes the lane: no request waits for it any more
			 */
			requests_end(take.lane, message_error(s->m, take.status));
			n++;
			break;
		}
		if (rc == TAKE_NOTHING)
			break;
		n++;
	}
	if (!n || weir_likely(LIST_EMPTY(&t->waiters)))
		return;
	/* threads that sleep at s, for what may have come */
	LIST_FOREACH(waiter, &t->waiters, next)
	{
		const struct weir_request *awaits = waiter->awaits;

		/* the caller looks at its own request after this */
		if (!awaits || (awaits != r && (rc != TAKE_NOTHING || request_ended(awaits))))
			weir_wake_fd(waiter->fd);
	}
}
