/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that were taken out of a ring before the program asked for them, and loans: the same
 * thing with the program holding it.
 */
#include "conn.h"

#include "client/channel.h"
#include "client/thread.h"

#include <stdlib.h>

/* By size: of what waits few cache lines are touched. Many small ones may wait at a time. */
static const struct {
	uint32_t bytes, spares;
} classes[WEIR_SPARE_CLASSES] = {{WEIR_SLOT_HEAD_BYTES, 2048},
				 {WEIR_SLOT_HEAD_BYTES + WEIR_SLOT_MORE_BYTES, 2048},
				 {WEIR_INLINE_MAX, 256}};

struct weir_parked *
weir_parked_new(struct weir_thread *t, uint32_t length)
{
	struct weir_parked *p;
	uint8_t k = 0;

	while (k < WEIR_SPARE_CLASSES && length > classes[k].bytes)
		k++;
	if (k < WEIR_SPARE_CLASSES && t->spare[k]) {
		p = t->spare[k];
		t->spare[k] = p->next;
		t->spare_count[k]--;
	} else {
		p = malloc(sizeof(*p) + (k < WEIR_SPARE_CLASSES ? classes[k].bytes : length));
		if (!p)
			return NULL;
	}
	*p = (struct weir_parked){.length = length, .class = k, .kind = PARKED_BYTES, .worker = t};
	p->data = p->bytes;
	return p;
}

void
weir_parked_free(struct weir_parked *p)
{
	struct weir_thread *t = p->worker;

	switch (p->kind) {
	case PARKED_BUFFER:
		free(p->data);
		break;
	case PARKED_PLACE:
		weir_control_release(WEIR_CHANNEL_OF(p->pipe), p->at);
		break;
	case PARKED_SPAN:
		weir_area_free(WEIR_SEGMENT_OF(p->pipe), p->at);
		WEIR_SEGMENT_OF(p->pipe)->users--;
		break;
	}
	if (p->class == WEIR_SPARE_CLASSES ||
	    t->spare_count[p->class] == classes[p->class].spares) {
		free(p);
		return;
	}
	p->next = t->spare[p->class];
	t->spare[p->class] = p;
	t->spare_count[p->class]++;
}

struct weir_parked *
weir_park_inline(struct weir_conn *c, const struct weir_head *h)
{
	struct weir_parked *p = weir_parked_new(c->worker, h->length);

	if (!p)
		return NULL;
	weir_ring_get_inline(&c->pipe->rx, p->bytes, h->length);
	p->vqpn = c->vqpn;
	p->cost = weir_cost(h->length);
	return p;
}

void
weir_park_append(struct weir_conn *c, struct weir_parked *p)
{
	p->next = NULL;
	*c->queue_end = p;
	c->queue_end = &p->next;
	c->parked_cost += p->cost;
	if (!c->readable) {
		c->readable = true;
		weir_conn_report(c, PENDING_READABLE);
	}
}

void
weir_park_clear(struct weir_conn *c)
{
	struct weir_parked *p;

	while ((p = c->queue)) {
		c->queue = p->next;
		weir_parked_free(p);
	}
	c->queue_end = &c->queue;
}

/* What may be consumed before the engine wants to know. */
static uint32_t
due_after(const struct weir_conn *c)
{
	uint64_t due = atomic_load_explicit(&c->desc->recv_due, memory_order_relaxed);
	uint32_t half = atomic_load_explicit(&c->desc->recv_window, memory_order_relaxed) / 2;

	return due > c->returned && due - c->returned < half ? (uint32_t)(due - c->returned) : half;
}

void
weir_conn_consumed_slow(struct weir_conn *c)
{
	struct weir_segment *seg;

	if (!c->pipe->local) {
		if (!c->due && c->consumed != c->returned) {
			c->due = true;
			c->pipe->empty = 0;
			c->due_at = due_after(c);
			TAILQ_INSERT_TAIL(&c->channel->dues, c, in_dues);
		}
		if (c->consumed - c->returned >= c->due_at && c->due_at) {
			TAILQ_REMOVE(&c->channel->dues, c, in_dues);
			c->due = false;
			weir_control_post(c, CONTROL_CONSUMED);
		}
		return;
	}
	seg = WEIR_SEGMENT_OF(c->pipe);
	seg->pipe.untold = true;
	if (!c->due) {
		c->due = true;
		seg->pipe.empty = 0; /* told when nothing else comes */
		TAILQ_INSERT_TAIL(&seg->dues, c, in_dues);
	}
	if (c->consumed - c->returned >= c->due_at ||
	    weir_unlikely(atomic_load_explicit(&seg->in->wanted, memory_order_relaxed)) ||
	    c->worker->armed) /* another thread's work: who sleeps doesn't tell */
		weir_segment_tell(seg);
}
