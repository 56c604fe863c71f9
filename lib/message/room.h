/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for messages in fragments, and messages that wait. */
#ifndef WEIR_MESSAGE_ROOM_H
#define WEIR_MESSAGE_ROOM_H

#include "header.h"
#include "public.h"

#include "stream/model.h"

#include <sys/queue.h>

struct lane;
struct peer;
struct handler_thread;

/*
 * A message that waits: for its turn at an exclusive handler, or for memory to be reassembled in.
 * Its lane's `running` is set.
 */
struct held {
	TAILQ_ENTRY(held) next;
	uint64_t bytes; /* of memory */
	struct lane *lane;
	uint64_t life;
	struct weir_taken taken;
	struct message_header header;
	struct weir_message message;
	_Alignas(16) uint8_t small[WEIR_INLINE_MAX];
};

/* Reserves memory for the message that k has in hand. 0; -EAGAIN: the message waits for it, k has
 * nothing in hand; -EMSGSIZE. */
int room_take(struct handler_thread *k, uint64_t bytes);
/* Releases the memory reserved for the lane's message. */
void room_give(struct lane *lane);
/* A message that waited and has memory now. NULL: none. */
struct held *room_next(struct weir_messenger *m);
/* The message of a lane which ends waits no longer. */
void room_forget(struct lane *lane, uint64_t life);
/* Whether a message waits for memory of the peer's. */
bool room_wanted(struct weir_messenger *m, const struct peer *p);
/* Releases waiting messages. No handler thread runs. Nothing locked. */
void room_close(struct weir_messenger *m);

#endif
