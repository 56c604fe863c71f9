/* SPDX-License-Identifier: BSD-3-Clause */
/* Responses, and messages for handlers, taken from the rings of a worker. */
#ifndef WEIR_MESSAGE_RECEIVE_H
#define WEIR_MESSAGE_RECEIVE_H

#include "stream/model.h"

struct lane;
struct weir_messenger;

enum {
	TAKE_NOTHING = 0,
	TAKE_MESSAGE = 1, /* of an incoming lane */
	TAKE_ENDED = 2,	  /* the lane's connection has ended: *life, *status */
	TAKE_MOVED = 3,	  /* another slot was taken */
	TAKE_BARE = 4,	  /* as MESSAGE, without a head */
};
struct take {
	struct weir_taken taken;
	struct lane *lane;
	uint64_t life;
	int status;
};

/*
 * Makes progress on a worker, which is locked: takes in responses and finds the next message for
 * handlers of m. Other messages for handlers move to the queues of their connections; with m NULL,
 * all do.
 */
int worker_take(struct weir_thread *t, const struct weir_messenger *m, uint8_t *buffer,
		struct take *out);

#endif
