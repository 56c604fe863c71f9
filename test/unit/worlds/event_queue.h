/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual time and chance of all simulators: a clock, the events still to come, a generator. */
#ifndef TEST_EVENT_QUEUE_H
#define TEST_EVENT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};
uint64_t rng_next(struct rng *r);

struct sim;

struct queued {
	uint64_t at;
	uint64_t order;				   /* among events of one instant */
	void (*run)(struct sim *s, void *subject); /* of test-sim; NULL: `subject` says itself */
	void *subject;
};

struct event_queue {
	uint64_t now;	 /* in the simulator's unit; first, so that an union can name it */
	uint64_t pushed; /* events so far: an order in which they come as they were pushed */
	struct queued *heap;
	size_t count, room;
};

void queue_push(struct event_queue *q, struct queued e);
/* Takes the next event due at `until` or before; time goes to it, never back. False: none. */
bool queue_pop(struct event_queue *q, uint64_t until, struct queued *e);
/* Forgets the events, which the caller has released. */
void queue_free(struct event_queue *q);

#endif
