/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What local peers send. The peer is not trusted: a slot's head is copied once, the copy checked,
 * and a peer that breaks the rules spoils the segment for its own connections.
 */
#include "conn.h"

#include "client/channel.h"
#include "client/wait.h"

#include <stdlib.h>

#define BUDGET 64u
#define UNKNOWN_NS 1000000000u

struct piece {
	uint64_t offset, at, bytes; /* in the area; in the message */
};

static struct piece
piece_copy(const struct weir_slot *s)
{
	struct piece p;

	memcpy(&p, s->place, sizeof(p));
	atomic_signal_fence(memory_order_seq_cst); /* never read again */
	return p;
}

void
weir_segment_spoil(struct weir_segment *seg)
{
	struct weir_conn *c, *next;

	if (seg->error)
		return;
	seg->error = -EPROTO;
	for (c = TAILQ_FIRST(&seg->conns); c; c = next) {
		next = TAILQ_NEXT(c, in_segment);
		if (c->state != CONN_CLOSING) {
			weir_conn_ended(c, EPROTO);
		} else if (c->tail_kept) {
			weir_tail_drop(c);
			weir_control_post(c, CONTROL_CLOSE);
		}
	}
}

void
weir_segment_tell(struct weir_segment *seg)
{
	struct weir_ring *r = &seg->pipe.rx;
	struct weir_conn *c;

	if (!seg->pipe.untold)
		return;
	seg->pipe.untold = false;
	while ((c = TAILQ_FIRST(&seg->dues))) {
		TAILQ_REMOVE(&seg->dues, c, in_dues);
		c->due = false;
		c->returned = c->consumed;
		atomic_store_explicit(&c->ours->received, c->received, memory_order_relaxed);
		/* pairs with the acquire in refresh_window() */
		atomic_store_explicit(&c->ours->consumed, c->consumed, memory_order_release);
	}
	if (r->pos != r->limit)
		weir_ring_publish_tail(r);
	if (seg->in_told != seg->in_free) {
		seg->in_told = seg->in_free;
		/* pairs with the acquire in refresh() of segment.c */
		atomic_store_explicit(&seg->in->area_tail, seg->in_free, memory_order_release);
	}
	/* pairs with the fence in weir_thread_arm() of the peer */
	if (weir_unlikely(seg->pipe.fence))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	if (weir_unlikely(atomic_load_explicit(&seg->in->wanted, memory_order_relaxed)))
		weir_pipe_ring(&seg->pipe);
}

/*
 * Room was freed that no receive call tells of: tells a peer that waits for room, and tells for a
 * thread that has armed, since nothing else would before that thread sleeps.
 */
static void
tell_freed(struct weir_segment *seg)
{
	if (seg->pipe.worker->armed || atomic_load_explicit(&seg->in->wanted, memory_order_relaxed))
		weir_segment_tell(seg);
}

static int
park_inline(struct weir_segment *seg, struct weir_conn *c, const struct weir_head *h)
{
	struct weir_parked *p = weir_park_inline(c, h);

	if (!p)
		return -ENOMEM;
	weir_pipe_pop(&seg->pipe, h->order, h->flags, weir_slots_inline(h->length));
	weir_park_append(c, p);
	return 0;
}

/* One piece is the whole message: copied, so that it keeps no others waiting in the area. */
static int
park_whole(struct weir_segment *seg, struct weir_conn *c, const struct weir_head *h,
	   const struct piece *piece)
{
	struct weir_parked *p = weir_parked_new(c->worker, h->length);
	uint64_t span;
	int rc;

	if (!p)
		return -ENOMEM;
	rc = weir_area_arrived(seg, piece->offset, piece->bytes, &span);
	if (rc) {
		weir_parked_free(p);
		return rc;
	}
	memcpy(p->bytes, seg->in_area + piece->offset, h->length);
	weir_area_free(seg, span);
	weir_pipe_pop(&seg->pipe, h->order, h->flags, 1);
	p->vqpn = c->vqpn;
	p->cost = (uint32_t)weir_segment_cost(h->length);
	weir_park_append(c, p);
	return 0;
}

static int
park_assembled(struct weir_conn *c)
{
	struct weir_parked *p = weir_parked_new(c->worker, 0);

	if (!p)
		return -ENOMEM;
	p->kind = PARKED_BUFFER;
	p->data = c->assembly;
	p->length = c->assembly_length;
	p->vqpn = c->vqpn;
	p->cost = (uint32_t)weir_segment_cost(p->length);
	c->assembly = NULL;
	weir_park_append(c, p);
	return 0;
}

/* The next piece of a message that came in several. */
static int
assemble(struct weir_segment *seg, struct weir_conn *c, const struct weir_head *h,
	 const struct piece *piece)
{
	uint64_t span;
	int rc;

	if (!c->assembly) {
		if (piece->at)
			return -EPROTO;
		c->assembly = malloc(h->length);
		if (!c->assembly)
			return -ENOMEM;
		c->assembly_length = h->length;
		c->assembled = 0;
	}
	if (h->length != c->assembly_length || piece->at != c->assembled ||
	    piece->bytes > h->length - c->assembled)
		return -EPROTO;
	rc = weir_area_arrived(seg, piece->offset, piece->bytes, &span);
	if (rc)
		return rc;
	memcpy(c->assembly + c->assembled, seg->in_area + piece->offset, piece->bytes);
	weir_area_free(seg, span);
	c->assembled += (uint32_t)piece->bytes;
	weir_pipe_pop(&seg->pipe, h->order, h->flags, 1);
	return c->assembled == c->assembly_length ? park_assembled(c) : 0;
}

static int
park(struct weir_segment *seg, struct weir_conn *c, const struct weir_head *h)
{
	struct weir_ring *r = &seg->pipe.rx;
	struct piece piece;

	/* the peer keeps to the window, but for one message that is larger */
	if (c->parked_cost > WEIR_SEGMENT_WINDOW)
		return -EPROTO;
	if (h->op == WEIR_OP_INLINE)
		return park_inline(seg, c, h);
	piece = piece_copy(weir_ring_at(r, r->pos));
	if (piece.bytes == h->length && !c->assembly)
		return park_whole(seg, c, h, &piece);
	return assemble(seg, c, h, &piece);
}

int
weir_segment_take_piece(struct weir_conn *c, const struct weir_head *h)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	int rc = park(seg, c, h);

	tell_freed(seg);
	return rc;
}

bool
weir_segment_whole(struct weir_segment *seg, const struct weir_head *h, uint64_t *offset)
{
	struct piece piece = piece_copy(weir_ring_at(&seg->pipe.rx, seg->pipe.rx.pos));

	*offset = piece.offset;
	return piece.bytes == h->length;
}

/* A message for a connection that we have closed. */
static int
drop(struct weir_segment *seg, const struct weir_head *h)
{
	struct weir_ring *r = &seg->pipe.rx;
	struct piece piece;
	uint64_t span;
	int rc;

	if (h->op == WEIR_OP_INLINE) {
		weir_pipe_pop(&seg->pipe, h->order, h->flags, weir_slots_inline(h->length));
		return 0;
	}
	piece = piece_copy(weir_ring_at(r, r->pos));
	rc = weir_area_arrived(seg, piece.offset, piece.bytes, &span);
	if (rc)
		return rc;
	weir_area_free(seg, span);
	weir_pipe_pop(&seg->pipe, h->order, h->flags, 1);
	return 0;
}

static bool
head_ok(const struct weir_head *h)
{
	if (h->op == WEIR_OP_INLINE)
		return h->length <= WEIR_INLINE_MAX;
	return h->op == WEIR_OP_PLACE && h->length > WEIR_INLINE_MAX &&
	       h->length <= WEIR_MESSAGE_MAX;
}

static bool
any_event(const struct weir_thread *t)
{
	const struct weir_channel *ch;

	SLIST_FOREACH(ch, &t->channels, next)
	if (weir_ring_peek(&ch->pipe.rx))
		return true;
	return false;
}

/*
 * The accepting program is told of a connection before its peer may send on it. So this waits for
 * what the channel has to say, but not for ever. Who was stopped for long has that still to read.
 */
static int
unknown(struct weir_segment *seg)
{
	uint64_t now = weir_clock();

	if (!seg->unknown_since)
		seg->unknown_since = now;
	return now - seg->unknown_since > UNKNOWN_NS && !any_event(seg->pipe.worker) ? -EPROTO : 1;
}

/*
 * Takes one message out of the ring. `hold`: large ones are reported first and left where they are,
 * so that recv copies them once. 0; 1: it stays for now; -EPROTO; -ENOMEM.
 */
static int
one(struct weir_segment *seg, const struct weir_head *h, struct weir_conn *want, bool hold)
{
	struct weir_ring *r = &seg->pipe.rx;
	struct weir_conn *c;
	bool stale;

	if (!head_ok(h))
		return -EPROTO;
	c = weir_conn_find(seg->pipe.worker, h->vqpn, &stale);
	if (!c)
		return stale ? drop(seg, h) : unknown(seg);
	seg->unknown_since = 0;
	if (c->state == CONN_CLOSING)
		return drop(seg, h);
	if (!c->pipe)
		weir_conn_find_segment(c);
	if (c->pipe != &seg->pipe)
		return -EPROTO;
	if (c == want && !c->queue && !c->assembly)
		return 1;
	if (hold && h->op == WEIR_OP_PLACE && seg->held != r->pos + 1) {
		seg->held = r->pos + 1;
		if (!c->readable) {
			c->readable = true;
			weir_conn_report(c, PENDING_READABLE);
		}
		return 1;
	}
	return park(seg, c, h);
}

/* Takes in everything that was published before now. False: not all could be. */
static bool
drain(struct weir_segment *seg)
{
	for (uint32_t n = 0; n < seg->geometry.ring_slots && !seg->error; n++) {
		struct weir_slot *s = weir_ring_peek(&seg->pipe.rx);
		struct weir_head h;
		int rc;

		if (!s)
			break;
		h = weir_head_copy(s);
		rc = one(seg, &h, NULL, false);
		if (rc == -EPROTO)
			weir_segment_spoil(seg);
		else if (rc)
			return false;
	}
	return true;
}

static void
finish_endings(struct weir_segment *seg)
{
	struct weir_conn *c, *next;

	if (!drain(seg))
		return;
	for (c = TAILQ_FIRST(&seg->conns); c; c = next) {
		next = TAILQ_NEXT(c, in_segment);
		if (!c->ending)
			continue;
		c->ending = false;
		seg->endings--;
		weir_conn_ended(c, c->end_status);
	}
}

void
weir_segment_finish(struct weir_conn *c, uint32_t status)
{
	c->ending = true;
	c->end_status = status;
	if (!c->pipe) /* not accepted yet: what lies there is fetched then */
		return;
	WEIR_SEGMENT_OF(c->pipe)->endings++;
	finish_endings(WEIR_SEGMENT_OF(c->pipe));
}

unsigned
weir_segment_drive(struct weir_segment *seg, struct weir_conn *want)
{
	unsigned n = 0;

	for (; n < BUDGET && !seg->error; n++) {
		struct weir_slot *s = weir_ring_peek(&seg->pipe.rx);
		struct weir_head h;
		int rc;

		if (!s)
			break;
		h = weir_head_copy(s);
		/* who is about to sleep sees all that lies behind it, too */
		rc = one(seg, &h, want, !want && !seg->pipe.worker->armed);
		if (rc == -EPROTO)
			weir_segment_spoil(seg);
		if (rc)
			break;
	}
	if (seg->endings)
		finish_endings(seg);
	if (n) {
		seg->pipe.empty = 0;
		tell_freed(seg);
	} else {
		weir_segment_idle(seg);
	}
	return n;
}
