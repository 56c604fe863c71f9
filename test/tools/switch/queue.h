/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames that wait for a port of a switch, first in first out, up to a limit. One thread. No DPDK.
 */
#ifndef WEIR_SWITCH_QUEUE_H
#define WEIR_SWITCH_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct switch_queue {
	void **frames; /* `cells` of them, a power of two */
	uint32_t cells, limit, head, tail;
};

static inline uint32_t
switch_queue_count(const struct switch_queue *q)
{
	return q->tail - q->head;
}

/* false: it is full. */
static inline bool
switch_queue_push(struct switch_queue *q, void *frame)
{
	if (switch_queue_count(q) >= q->limit)
		return false;
	q->frames[q->tail++ & (q->cells - 1)] = frame;
	return true;
}

/* The first ones, as many as lie in a row; 0: there are none. */
static inline uint32_t
switch_queue_first(const struct switch_queue *q, void ***frames)
{
	uint32_t at = q->head & (q->cells - 1), n = switch_queue_count(q);

	*frames = q->frames + at;
	return n < q->cells - at ? n : q->cells - at;
}

/* The first n have left. */
static inline void
switch_queue_pop(struct switch_queue *q, uint32_t n)
{
	q->head += n;
}

#endif
