/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of a thread that have something to do: first come first served, or any of them. */
#ifndef WEIR_PERF_QUEUE_H
#define WEIR_PERF_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct perf_flow;

struct perf_queue {
	struct perf_flow **ring; /* room for all connections there are */
	uint32_t mask, head, tail;
};

/* Makes room for n connections. 0 or -ENOMEM. */
int perf_queue_reserve(struct perf_queue *q, uint32_t n);
void perf_queue_free(struct perf_queue *q);
/* Adds a connection at the end, unless it is in there. */
void perf_queue_push(struct perf_queue *q, struct perf_flow *f);
/* Takes the first one, or the one that `random` stands for where that is not 0. NULL: empty. */
struct perf_flow *perf_queue_pop(struct perf_queue *q, uint64_t random);
/* Takes out a connection, wherever it is. */
void perf_queue_remove(struct perf_queue *q, struct perf_flow *f);

static inline uint32_t
perf_queue_count(const struct perf_queue *q)
{
	return q->head - q->tail;
}

#endif
