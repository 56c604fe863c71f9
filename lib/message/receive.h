/* SPDX-License-Identifier: BSD-3-Clause */
/* Responses, and messages for handlers, taken from the rings of a worker. */
#ifndef WEIR_MESSAGE_RECEIVE_H
#define WEIR_MESSAGE_RECEIVE_H

#include "stream/model.h"

struct lane;

enum {
	TAKE_NOTHING = 0,
	TAKE_MESSAGE = 1, /* of an incoming lane */
	TAKE_ENDED = 2,	  /* the lane's connection has ended: *life, *status */
	TAKE_MOVED = 3,	  /* another slot was taken */
};
struct take {
	struct weir_taken taken;
	struct lane *lane;
	uint64_t life;
	int status;
};

/*
 * Makes progress on a worker, which is locked: takes in responses and finds the next message.
 * `mine`: for outgoing lanes only; messages for handlers move to their queues.
 */
int worker_take(struct weir_thread *t, uint8_t *buffer, bool mine, struct take *out);

#endif
