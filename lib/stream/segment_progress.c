/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of local peers. The peer is not trusted: a slot's head is copied once, the copy checked,
 * and a peer that breaks the rules spoils the segment for its own connections.
 */
#include "conn.h"
#include "ctrl_slots.h"
#include "partial_send.h"
#include "rx_queue.h"
#include "segment_progress.h"

#include "client/channel.h"
#include "client/wait.h"

#include <stdlib.h>

#define BUDGET 64u	       /* messages per call */
#define UNKNOWN_NS 1000000000u /* for the event of a connection, while its messages wait */

struct fragment {
	uint64_t offset, at, bytes; /* in the area; in the message */
};

static struct fragment
fragment_copy(const struct weir_slot *s)
{
	struct fragment p;

	memcpy(&p, s->place, sizeof(p));
	atomic_signal_fence(memory_order_seq_cst); /* never read again */
	return p;
}

void
weir_segment_spoil(struct weir_segment *seg)
{
	struct weir_conn *c, *next;

	weir_assert(weir_worker_locked(seg->pipe.worker));
	if (seg->error)
		return;
	seg->error = -EPROTO;
	for (c = TAILQ_FIRST(&seg->conns); c; c = next) {
		next = TAILQ_NEXT(c, in_segment);
		if (c->state != CONN_CLOSING) {
			weir_conn_ended(c, EPROTO);
		} else if (c->partial_queued) {
			weir_partial_drop(c);
			weir_ctrl_add(c, CTRL_CLOSE);
		}
	}
	/* no doorbell rings for the ends of the other connections */
	weir_thread_wake(seg->pipe.worker);
}

void
weir_segment_report(struct weir_segment *seg)
{
	struct weir_ring *r = &seg->pipe.rx;
	struct weir_conn *c;

	weir_assert(weir_worker_locked(seg->pipe.worker));
	if (!seg->pipe.untold && seg->reported == r->pos)
		return;
	seg->pipe.untold = false;
	seg->reported = r->pos;
	while ((c = TAILQ_FIRST(&seg->to_report))) {
		TAILQ_REMOVE(&seg->to_report, c, in_to_report);
		c->returned = c->consumed;
		weir_conn_set_due(c, false);
		atomic_store_explicit(&c->ours->received, c->received, memory_order_relaxed);
		atomic_store_explicit(&c->ours->bytes, c->received_bytes, memory_order_relaxed);
		/* pairs with the acquire in window_slow() of the peer */
		atomic_store_explicit(&c->ours->consumed, c->consumed, memory_order_release);
	}
	if (r->pos != r->told)
		weir_ring_publish_tail(r);
	if (seg->in_reported != seg->in_free) {
		seg->in_reported = seg->in_free;
		/* pairs with the acquire in area_free() and skip_for() of segment.c */
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
 * Room was freed that no receive call reports: reports it to a peer that waits for room, and if the
 * thread has armed, since nothing else would before it sleeps.
 */
static void
report_freed(struct weir_segment *seg)
{
	if (seg->pipe.worker->armed || atomic_load_explicit(&seg->in->wanted, memory_order_relaxed))
		weir_segment_report(seg);
}

int
weir_bundle_lengths(const struct weir_segment *seg, const struct weir_head *h,
		    uint16_t lengths[WEIR_BUNDLE_MAX], uint64_t *offset)
{
	struct fragment f = fragment_copy(weir_ring_at(&seg->pipe.rx, seg->pipe.rx.pos));
	uint64_t size = seg->geometry.area_bytes, count = f.at;
	uint32_t bytes;

	if (!count || count > WEIR_BUNDLE_MAX || f.offset >= size || h->length > size - f.offset)
		return -EPROTO;
	bytes = weir_bundle_head((uint32_t)count);
	if (bytes > h->length)
		return -EPROTO;
	memcpy(lengths, seg->in_area + f.offset, count * sizeof(*lengths));
	atomic_signal_fence(memory_order_seq_cst); /* never read again */
	*offset = f.offset + bytes;
	for (uint32_t i = 0; i < count; i++) {
		if (lengths[i] > WEIR_INLINE_MAX)
			return -EPROTO;
		bytes += weir_bundle_padded(lengths[i]);
	}
	return bytes == h->length ? (int)count : -EPROTO;
}

/* The messages of a bundle, one by one. */
static int
enqueue_bundle(struct weir_segment *seg, struct weir_conn *c, const struct weir_head *h)
{
	struct weir_rx_message *first = NULL, **end = &first, *p;
	uint16_t lengths[WEIR_BUNDLE_MAX];
	uint64_t offset, span;
	int count = weir_bundle_lengths(seg, h, lengths, &offset), rc = 0;

	if (count < 0)
		return count;
	for (int i = 0; i < count && !rc; i++) {
		*end = weir_rx_message_new(c->worker, lengths[i]);
		if (*end)
			end = &(*end)->next;
		else
			rc = -ENOMEM;
	}
	if (!rc)
		rc = weir_area_arrived(seg, offset - weir_bundle_head((uint32_t)count), h->length,
				       &span);
	while ((p = first)) {
		first = p->next;
		if (rc) {
			weir_rx_message_free(p);
			continue;
		}
		memcpy(p->data, seg->in_area + offset, p->length);
		offset += weir_bundle_padded(p->length);
		p->vqpn = c->vqpn;
		p->cost = first ? 0 : (uint32_t)weir_bundle_cost((uint32_t)count, h->length);
		weir_rx_queue_append(c, p);
	}
	if (rc)
		return rc;
	weir_area_free(seg, span);
	weir_pipe_pop(&seg->pipe, h->order, h->flags, 1, true);
	return 0;
}

/* A whole message: copied, so that it does not keep others waiting for room in the area. */
static int
enqueue_whole(struct weir_segment *seg, struct weir_conn *c, const struct weir_head *h,
	      const struct fragment *fragment)
{
	struct weir_rx_message *p = weir_rx_message_new(c->worker, h->length);
	uint64_t span;
	int rc;

	if (!p)
		return -ENOMEM;
	rc = weir_area_arrived(seg, fragment->offset, fragment->bytes, &span);
	if (rc) {
		weir_rx_message_free(p);
		return rc;
	}
	memcpy(p->bytes, seg->in_area + fragment->offset, h->length);
	weir_area_free(seg, span);
	weir_pipe_pop(&seg->pipe, h->order, h->flags, 1, true);
	p->vqpn = c->vqpn;
	p->cost = (uint32_t)weir_segment_cost(h->length);
	weir_rx_queue_append(c, p);
	return 0;
}

static int
assembly_begin(struct weir_conn *c, uint32_t length)
{
	struct weir_rx_message *p = weir_rx_message_new(c->worker, length);

	weir_assert(!c->assembly);
	if (!p)
		return -ENOMEM;
	p->vqpn = c->vqpn;
	p->cost = (uint32_t)weir_segment_cost(length);
	c->assembly = p;
	c->assembly_at = p->data;
	c->assembled = 0;
	return 0;
}

int
weir_assembly_lend(struct weir_conn *c, uint8_t *buf, uint32_t length)
{
	int rc = assembly_begin(c, length);

	if (!rc)
		c->assembly_at = buf;
	return rc;
}

void
weir_assembly_reclaim(struct weir_conn *c)
{
	weir_assert(!weir_assembly_is_whole(c));
	memcpy(c->assembly->data, c->assembly_at, c->assembled);
	c->assembly_at = c->assembly->data;
}

/* The next fragment of a message. */
static int
assemble(struct weir_segment *seg, struct weir_conn *c, const struct weir_head *h,
	 const struct fragment *fragment)
{
	struct weir_rx_message *p;
	uint64_t span;
	int rc;

	if (!c->assembly) {
		if (fragment->at)
			return -EPROTO;
		rc = assembly_begin(c, h->length);
		if (rc)
			return rc;
	}
	p = c->assembly;
	weir_assert(c->assembled < p->length);
	if (h->length != p->length || fragment->at != c->assembled ||
	    fragment->bytes > p->length - c->assembled)
		return -EPROTO;
	rc = weir_area_arrived(seg, fragment->offset, fragment->bytes, &span);
	if (rc)
		return rc;
	memcpy(c->assembly_at + c->assembled, seg->in_area + fragment->offset, fragment->bytes);
	weir_area_free(seg, span);
	c->assembled += (uint32_t)fragment->bytes;
	weir_pipe_pop(&seg->pipe, h->order, h->flags, 1, true);
	if (c->assembled != p->length || weir_assembly_is_lent(c))
		return 0;
	c->assembly = NULL;
	weir_rx_queue_append(c, p);
	return 0;
}

/* Takes the message or fragment at the ring's head. 0, -EPROTO, -ENOMEM. */
static int
enqueue(struct weir_segment *seg, struct weir_conn *c, const struct weir_head *h)
{
	struct weir_rx_message *p;
	struct fragment fragment;

	/* the peer keeps to the window, but for one message that is larger, and for those that it
	 * sent before the window was made smaller */
	if (c->queue_cost > WEIR_SEGMENT_WINDOW && c->queue_cost > c->window)
		return -EPROTO;
	if (h->op == WEIR_OP_INLINE) {
		if (c->assembly) /* fragments of a message follow each other */
			return -EPROTO;
		p = weir_rx_message_inline(c, h);
		if (!p)
			return -ENOMEM;
		weir_pipe_pop(&seg->pipe, h->order, h->flags, weir_slots_inline(h->length), true);
		weir_rx_queue_append(c, p);
		return 0;
	}
	if (h->op == WEIR_OP_BUNDLE)
		return c->assembly ? -EPROTO : enqueue_bundle(seg, c, h);
	fragment = fragment_copy(weir_ring_at(&seg->pipe.rx, seg->pipe.rx.pos));
	if (fragment.bytes == h->length && !c->assembly)
		return enqueue_whole(seg, c, h, &fragment);
	return assemble(seg, c, h, &fragment);
}

int
weir_segment_take_fragment(struct weir_conn *c, const struct weir_head *h)
{
	struct weir_segment *seg = WEIR_SEGMENT_OF(c->pipe);
	int rc = enqueue(seg, c, h);

	report_freed(seg);
	return rc;
}

bool
weir_segment_whole(struct weir_segment *seg, const struct weir_head *h, uint64_t *offset)
{
	struct fragment fragment = fragment_copy(weir_ring_at(&seg->pipe.rx, seg->pipe.rx.pos));

	*offset = fragment.offset;
	return fragment.bytes == h->length;
}

static inline bool
is_legal(const struct weir_head *h)
{
	switch (h->op) {
	case WEIR_OP_INLINE:
		return h->length <= WEIR_INLINE_MAX;
	case WEIR_OP_PLACE:
		return h->length > WEIR_INLINE_MAX && h->length <= WEIR_MESSAGE_MAX;
	case WEIR_OP_END:
		return !h->length;
	default: /* its lengths are checked when it is taken */
		return h->op == WEIR_OP_BUNDLE;
	}
}

/* END is at the ring's head. 0; 1: it stays for now; -EPROTO. */
static int
take_end(struct weir_segment *seg, struct weir_conn *c, const struct weir_head *h)
{
	if (c->state == CONN_OPENING && !c->ending) /* OPENED is on its way */
		return 1;
	if (c->assembly)
		return -EPROTO;
	weir_pipe_pop(&seg->pipe, h->order, h->flags, 1, true);
	if (c->state == CONN_OPENING) /* CLOSED came instead, and says how it ends */
		return 0;
	return c->state == CONN_ENDED || weir_conn_peer_shut(c) ? 0 : -EPROTO;
}

/*
 * Takes one message out of the ring. `hold`: it may be reported first and left in place, so that
 * recv copies it once. 0; 1: it stays for now; -EPROTO; -ENOMEM.
 */
static inline int
one(struct weir_segment *seg, const struct weir_head *h, struct weir_conn *want, bool hold)
{
	struct weir_ring *r = &seg->pipe.rx;
	const struct weir_channel *ch;
	uint64_t now, span;
	struct weir_conn *c;
	struct fragment fragment;
	bool stale;
	int rc;

	if (!is_legal(h))
		return -EPROTO;
	c = weir_conn_find(seg->pipe.worker, h->vqpn, &stale);
	if (!c && !stale) {
		/*
		 * The accepting program is told of a connection before its peer may send on it, so
		 * this waits for events in the channels, but not without limit. A thread that was
		 * stopped meanwhile has events to read.
		 */
		now = weir_clock();
		if (!seg->unknown_since)
			seg->unknown_since = now;
		if (now - seg->unknown_since <= UNKNOWN_NS)
			return 1;
		SLIST_FOREACH(ch, &seg->pipe.worker->channels, next)
		if (weir_ring_peek(&ch->pipe.rx))
			return 1;
		return -EPROTO;
	}
	if (c)
		seg->unknown_since = 0;
	if (!c || c->state == CONN_CLOSING) { /* was closed here: dropped */
		if (h->op == WEIR_OP_PLACE || h->op == WEIR_OP_BUNDLE) {
			fragment = fragment_copy(weir_ring_at(r, r->pos));
			if (h->op == WEIR_OP_BUNDLE)
				fragment.bytes = h->length;
			rc = weir_area_arrived(seg, fragment.offset, fragment.bytes, &span);
			if (rc)
				return rc;
			weir_area_free(seg, span);
		}
		weir_pipe_pop(&seg->pipe, h->order, h->flags,
			      h->op == WEIR_OP_INLINE ? weir_slots_inline(h->length) : 1, true);
		return 0;
	}
	if (!c->pipe)
		weir_conn_find_segment(c);
	if (c->pipe != &seg->pipe)
		return -EPROTO;
	if (weir_unlikely(weir_assembly_is_whole(c)))
		return 1;
	if (weir_unlikely(h->op == WEIR_OP_END))
		return take_end(seg, c, h);
	if (weir_unlikely(c->state == CONN_HALF)) /* a message after the last */
		return -EPROTO;
	if (c == want && !c->queue && !c->assembly)
		return 1;
	if (hold && weir_conn_hold(c, want, h->op == WEIR_OP_PLACE && !want))
		return 1;
	return enqueue(seg, c, h);
}

/* Ends connections whose CLOSED has come, once all that was published before is taken in. */
static void
finish_endings(struct weir_segment *seg)
{
	struct weir_conn *c, *next;

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
			return;
	}
	for (c = TAILQ_FIRST(&seg->conns); c; c = next) {
		next = TAILQ_NEXT(c, in_segment);
		if (!c->ending)
			continue;
		c->ending = false;
		weir_assert(seg->endings);
		seg->endings--;
		weir_conn_ended(c, c->end_status);
	}
}

void
weir_segment_finish(struct weir_conn *c, uint32_t status)
{
	c->ending = true;
	c->end_status = status;
	if (!c->pipe) /* not accepted yet: weir_accept() maps the segment */
		return;
	WEIR_SEGMENT_OF(c->pipe)->endings++;
	finish_endings(WEIR_SEGMENT_OF(c->pipe));
}

unsigned
weir_segment_progress(struct weir_segment *seg, struct weir_conn *want)
{
	/* before a sleep all that was published so far; the bell rings for what comes later */
	unsigned n = 0, budget = seg->pipe.worker->armed ? seg->geometry.ring_slots : BUDGET;

	weir_assert(weir_worker_locked(seg->pipe.worker));
	for (; n < budget && !seg->error; n++) {
		struct weir_slot *s = weir_ring_peek(&seg->pipe.rx);
		struct weir_head h;
		int rc;

		if (!s)
			break;
		h = weir_head_copy(s);
		/* a thread about to sleep sees all that lies behind it, too */
		rc = one(seg, &h, want, !seg->pipe.worker->armed);
		if (rc == -EPROTO)
			weir_segment_spoil(seg);
		if (rc)
			break;
	}
	if (seg->endings)
		finish_endings(seg);
	if (n) {
		seg->pipe.empty = 0;
		report_freed(seg);
	} else {
		weir_segment_idle(seg);
	}
	return n;
}
