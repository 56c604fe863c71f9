/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that were taken off a ring before the program asked for them, and loans: the same object
 * held by the program.
 */
#include "conn.h"
#include "ctrl_slots.h"
#include "rx_queue.h"

#include "client/channel.h"
#include "client/thread.h"

#include <stdlib.h>

/* Size classes, so that a waiting message touches few cache lines; small ones may be many. */
static const struct {
	uint32_t bytes, spares;
} classes[WEIR_SPARE_CLASSES] = {{WEIR_SLOT_HEAD_BYTES, 2048},
				 {WEIR_SLOT_HEAD_BYTES + WEIR_SLOT_MORE_BYTES, 2048},
				 {WEIR_INLINE_MAX, 256}};

struct weir_rx_message *
weir_rx_message_new(struct weir_thread *t, uint32_t length)
{
	struct weir_rx_message *p;
	uint8_t k = 0;

	while (k < WEIR_SPARE_CLASSES && length > classes[k].bytes)
		k++;
	if (k < WEIR_SPARE_CLASSES && t->spare[k]) {
		p = t->spare[k];
		t->spare[k] = p->next;
		t->spare_count[k]--;
	} else {
		p = k < WEIR_SPARE_CLASSES ? malloc(sizeof(*p) + classes[k].bytes)
					   : weir_buffer_take(t->w, sizeof(*p) + (uint64_t)length);
		if (!p)
			return NULL;
	}
	*p = (struct weir_rx_message){.length = length, .class = k, .kind = RX_BYTES, .worker = t};
	p->data = p->bytes;
	return p;
}

void
weir_rx_message_free(struct weir_rx_message *p)
{
	struct weir_thread *t = p->worker;

	weir_assert(weir_worker_locked(p->worker));
	switch (p->kind) {
	case RX_BUFFER:
		weir_buffer_give(t->w, p->data);
		break;
	case RX_PLACE:
		weir_ctrl_release(WEIR_CHANNEL_OF(p->pipe), p->at);
		break;
	case RX_SPAN:
		weir_area_free(WEIR_SEGMENT_OF(p->pipe), p->at);
		WEIR_SEGMENT_OF(p->pipe)->users--;
		break;
	}
	if (p->class == WEIR_SPARE_CLASSES) {
		weir_buffer_give(t->w, p);
		return;
	}
	if (t->spare_count[p->class] == classes[p->class].spares) {
		free(p);
		return;
	}
	p->next = t->spare[p->class];
	t->spare[p->class] = p;
	t->spare_count[p->class]++;
}

void
weir_loan_begin(struct weir_rx_message *p, struct weir_conn *c)
{
	if (!p->cost)
		return;
	if (p->kind != RX_PLACE) {
		weir_conn_consumed(c, p->cost);
		p->cost = 0;
		return;
	}
	p->lent = true;
	c->lent += p->cost;
	weir_conn_set_due(c, c->due); /* sooner */
	weir_conn_consumed_slow(c);
}

void
weir_loan_end(struct weir_rx_message *p, struct weir_conn *c)
{
	uint32_t cost = p->cost;

	LIST_REMOVE(p, in_loans);
	if (c && p->lent) {
		weir_assert(c->lent >= cost);
		c->lent -= cost;
		weir_conn_set_due(c, c->due); /* later */
	}
	weir_rx_message_free(p);
	if (cost && c && c->state != CONN_CLOSING)
		weir_conn_consumed(c, cost);
}

struct weir_rx_message *
weir_rx_message_inline(struct weir_conn *c, const struct weir_head *h)
{
	struct weir_rx_message *p = weir_rx_message_new(c->worker, h->length);

	if (!p)
		return NULL;
	weir_ring_get_inline(&c->pipe->rx, p->bytes, h->length);
	p->vqpn = c->vqpn;
	p->cost = weir_cost(h->length);
	return p;
}

void
weir_rx_queue_append(struct weir_conn *c, struct weir_rx_message *p)
{
	weir_assert(c->queue ? !*c->queue_end : c->queue_end == &c->queue);
	p->next = NULL;
	*c->queue_end = p;
	c->queue_end = &p->next;
	c->queue_cost += p->cost;
	weir_conn_update_next(c);
	if (!c->readable) {
		c->readable = true;
		weir_conn_report(c, PENDING_READABLE);
	}
}

#define RUN_LONG 16u /* slots per owner at the ring's head from which messages wait there */
#define RUN_MAX 1024u

bool
weir_conn_hold(struct weir_conn *c, const struct weir_conn *want, bool large)
{
	struct weir_pipe *p = c->pipe;
	uint64_t run = p->rx.pos - p->owner_at, *held = &p->held[want != NULL];

	if (c != p->owner) {
		p->run += (uint32_t)(run < RUN_MAX ? run : RUN_MAX) / 4 - p->run / 4;
		p->owner = c;
		p->owner_at = p->rx.pos;
	}
	if (*held == p->rx.pos + 1 || (!large && (p->run < RUN_LONG || c->queue || c->lane)))
		return false;
	*held = p->rx.pos + 1;
	if (!c->readable) {
		c->readable = true;
		weir_conn_report(c, PENDING_READABLE);
	}
	return true;
}

uint32_t
weir_rx_queue_clear(struct weir_conn *c)
{
	struct weir_rx_message *p;
	uint32_t cost = 0;

	while ((p = c->queue)) {
		c->queue = p->next;
		cost += p->cost;
		weir_rx_message_free(p);
	}
	c->queue_end = &c->queue;
	weir_conn_update_next(c);
	return cost;
}

void
weir_conn_dropped(struct weir_conn *c, uint32_t cost)
{
	weir_assert(c->state == CONN_CLOSING);
	/* CLOSE of a local one waits for nothing; after the end there is nobody to tell */
	if (cost && !c->local && !c->remote && !c->end && !c->end_held)
		weir_conn_consumed(c, cost);
}

void
weir_conn_consumed_slow(struct weir_conn *c)
{
	struct weir_segment *seg;

	if (!c->pipe->local) {
		uint64_t untold = c->consumed - c->returned + weir_conn_lent_untold(c);

		if (!c->due && untold) {
			/* the engine wants to know at recv_due, and at half the window */
			uint64_t told = c->returned + c->lent_told;
			uint64_t at =
			    atomic_load_explicit(&c->desc->recv_due, memory_order_relaxed);
			uint32_t half =
			    atomic_load_explicit(&c->desc->recv_window, memory_order_relaxed) / 2;

			c->pipe->empty = 0;
			weir_conn_set_due_at(
			    c, at > told && at - told < half ? (uint32_t)(at - told) : half);
			weir_conn_set_due(c, true);
			TAILQ_INSERT_TAIL(&c->channel->to_report, c, in_to_report);
		}
		if (untold >= c->due_at && c->due_at) {
			TAILQ_REMOVE(&c->channel->to_report, c, in_to_report);
			weir_conn_set_due(c, false);
			weir_ctrl_add(c, CTRL_CONSUMED);
		}
		if (c->worker->armed) { /* the worker sleeps: it would report only when woken */
			weir_ctrl_report(c->channel);
			weir_ctrl_wake(c->channel);
		}
		return;
	}
	seg = WEIR_SEGMENT_OF(c->pipe);
	seg->pipe.untold = true;
	if (!c->due) {
		weir_conn_set_due(c, true);
		seg->pipe.empty = 0; /* reported when nothing else comes */
		TAILQ_INSERT_TAIL(&seg->to_report, c, in_to_report);
	}
	if (c->consumed - c->returned >= c->due_at ||
	    weir_unlikely(atomic_load_explicit(&seg->in->wanted, memory_order_relaxed)) ||
	    c->worker->armed) /* the worker sleeps: it would report only when woken */
		weir_segment_report(seg);
}
