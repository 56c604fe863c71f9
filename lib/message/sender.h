/* SPDX-License-Identifier: BSD-3-Clause */
/* Senders. */
#ifndef WEIR_MESSAGE_SENDER_H
#define WEIR_MESSAGE_SENDER_H

#include "messenger.h"

#include <sys/queue.h>

struct lane;
struct weir_thread;

struct request_slot {
	struct weir_request *request; /* NULL: free */
	uint32_t generation;
	uint32_t next; /* free list */
	struct lane *lane;
};

/* A thread that sends, or several that share its lanes. */
struct sender {
	struct weir_messenger *m;
	struct weir_thread *worker;
	uint32_t index; /* in the order of making */
	uint32_t users; /* threads. m->lock */
	TAILQ_ENTRY(sender) next;
	struct lane_spares spares; /* m->lock */
	/* worker */
	struct lane **page[NODES / NODE_PAGE];
	struct request_slot *slots;
	uint32_t slot_count, slot_free;
	_Atomic uint64_t turn_end;	  /* ns; its threads write and read */
	_Atomic uint64_t late, malformed; /* responses to ended requests; malformed ones */
	uint8_t buffer[WEIR_INLINE_MAX + 12] __attribute__((aligned(64)));
};

static inline struct lane *
sender_lane(const struct sender *s, uint16_t node)
{
	struct lane **page = s->page[node / NODE_PAGE];

	return page ? page[node % NODE_PAGE] : NULL;
}

/* The sender that the thread used last. */
struct sender_latest {
	uint64_t serial; /* of its messenger */
	struct sender *sender;
};
extern __thread struct sender_latest sender_last
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The calling thread's sender if it was used last. NULL: ask sender_get(). */
static inline struct sender *
sender_latest(const struct weir_messenger *m)
{
	return weir_likely(sender_last.serial == m->serial && weir_state(m->w) == WEIR_UP)
		   ? sender_last.sender
		   : NULL;
}

/* The calling thread's sender. NULL: *rc says why. */
struct sender *sender_get(struct weir_messenger *m, int *rc);
void sender_leave(void *sender);
/* Takes responses, HELLO and BYE on the sender's lanes until r (NULL: none) has ended. Worker
 * locked. */
void sender_take(struct sender *s, const struct weir_request *r);

#endif
