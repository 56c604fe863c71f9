/* SPDX-License-Identifier: BSD-3-Clause */
#include "queue.h"

#include "flow.h"

#include <errno.h>
#include <stdlib.h>

int
perf_queue_reserve(struct perf_queue *q, uint32_t n)
{
	uint32_t room = 64, count = perf_queue_count(q);
	struct perf_flow **ring;

	if (q->ring && n <= q->mask + 1)
		return 0;
	while (room < n)
		room *= 2;
	ring = calloc(room, sizeof(struct perf_flow *));
	if (!ring)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		ring[i] = q->ring[(q->tail + i) & q->mask];
	free(q->ring);
	*q = (struct perf_queue){.ring = ring, .mask = room - 1, .head = count};
	return 0;
}

void
perf_queue_free(struct perf_queue *q)
{
	free(q->ring);
	*q = (struct perf_queue){0};
}

void
perf_queue_push(struct perf_queue *q, struct perf_flow *f)
{
	if (f->queued)
		return;
	f->queued = true;
	q->ring[q->head++ & q->mask] = f;
}

struct perf_flow *
perf_queue_pop(struct perf_queue *q, uint64_t random)
{
	uint32_t count = perf_queue_count(q), at;
	struct perf_flow *f;

	if (!count)
		return NULL;
	at = (q->tail + (uint32_t)(random % count)) & q->mask;
	f = q->ring[at];
	q->ring[at] = q->ring[q->tail & q->mask];
	q->tail++;
	f->queued = false;
	return f;
}

void
perf_queue_remove(struct perf_queue *q, struct perf_flow *f)
{
	for (uint32_t i = q->tail; f->queued && i != q->head; i++) {
		if (q->ring[i & q->mask] != f)
			continue;
		q->ring[i & q->mask] = q->ring[q->tail & q->mask];
		q->tail++;
		f->queued = false;
	}
}
