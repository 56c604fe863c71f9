/* SPDX-License-Identifier: BSD-3-Clause */
#include "event_queue.h"

#include <stdlib.h>

/* splitmix64: Steele, Lea, Flood 2014. */
uint64_t
rng_next(struct rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static bool
before(const struct queued *a, const struct queued *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void
queue_push(struct event_queue *q, struct queued e)
{
	size_t i = q->count++;

	q->pushed++;
	if (i == q->room) {
		q->room = q->room ? 2 * q->room : 1024;
		q->heap = realloc(q->heap, q->room * sizeof(*q->heap));
		if (!q->heap)
			abort();
	}
	for (; i > 0 && before(&e, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
		q->heap[i] = q->heap[(i - 1) / 2];
	q->heap[i] = e;
}

bool
queue_pop(struct event_queue *q, uint64_t until, struct queued *e)
{
	struct queued last;
	size_t i = 0, child;

	if (!q->count || q->heap[0].at > until)
		return false;
	*e = q->heap[0];
	last = q->heap[--q->count];
	for (; (child = 2 * i + 1) < q->count; i = child) {
		child += child + 1 < q->count && before(&q->heap[child + 1], &q->heap[child]);
		if (!before(&q->heap[child], &last))
			break;
		q->heap[i] = q->heap[child];
	}
	q->heap[i] = last;
	if (e->at > q->now)
		q->now = e->at;
	return true;
}

void
queue_free(struct event_queue *q)
{
	free(q->heap);
	q->heap = NULL;
	q->count = q->room = 0;
}
