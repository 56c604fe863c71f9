/* SPDX-License-Identifier: BSD-3-Clause */
/* Senders. */
#ifndef WEIR_MESSAGE_SENDER_H
#define WEIR_MESSAGE_SENDER_H

#include "messenger.h"

#include <sys/queue.h>

struct lane;
struct weir_guard;
struct weir_thread;

struct request_slot {
	struct weir_request *request; /* NULL: free */
	uint32_t generation;
	uint32_t next; /* free list */
	struct lane *lane;
};

/* A message with a cookie that has ended. */
struct completion {
	uint64_t cookie;
	int status;
	uint16_t node;
};

/* Ended messages and requests that weir_messenger_progress() reports. `lock` is a leaf. */
struct completions {
	pthread_mutex_t lock;
	struct completion *sent;
	uint32_t first, end, room; /* of sent */
	uint32_t under_way;	   /* messages with a cookie that have not ended: they have room */
	struct weir_request *requests, **requests_end;
	struct sender *successor; /* gets what ends from now on; NULL: this one */
	_Atomic uint32_t pending; /* all together. Written under lock, read by all */
};

/* A thread that sends, or several that share its lanes. It stays with its session. */
struct sender {
	struct weir_messenger *m;
	struct weir_thread *worker;
	struct weir_life *life; /* of the session */
	uint32_t index;		/* in the order of making */
	uint32_t users;		/* threads. m->lock */
	TAILQ_ENTRY(sender) next;
	struct lane_spares spares; /* m->lock */
	/* worker */
	struct lane **page[NODES / NODE_PAGE];
	struct request_slot *slots;
	uint32_t slot_count, slot_free, slots_used;
	_Atomic uint64_t turn_end;	  /* ns; its threads write and read */
	_Atomic uint64_t late, malformed; /* responses to ended requests; malformed ones */
	struct completions done;
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
	struct sender *s = sender_last.sender;

	return weir_likely(sender_last.serial == m->serial &&
			   atomic_load_explicit(&s->life->state, memory_order_relaxed) == WEIR_UP)
		   ? s
		   : NULL;
}

/* The calling thread's sender. NULL: *rc says why. */
struct sender *sender_get(struct weir_messenger *m, int *rc);
void sender_leave(void *sender);
/* ---- completion.c ---- */
void completions_init(struct completions *done);
void completions_fini(struct completions *done);
/* Makes room for one more message with a cookie; taken back if it is not sent. 0 or -ENOMEM. */
int completion_expect(struct sender *s);
void completion_unexpect(struct sender *s);
/* A message with a cookie has ended. */
void completion_sent(struct sender *s, uint16_t node, uint64_t cookie, int status);
/* A request that has a callback has ended. */
void completion_request(struct sender *s, struct weir_request *r);
/* `to` reports what `from` would report. 0 or -ENOMEM. */
int completions_move(struct sender *from, struct sender *to);
/* Whether something has not ended, or not been reported. Nothing locked. */
bool completions_left(struct sender *s);
/* Calls the program for what has ended, at most `most`, outside of the wait of `guard` (NULL:
 * none). How many. Nothing locked. */
unsigned completions_report_pending(struct sender *s, unsigned most, struct weir_guard *guard);
static inline unsigned
completions_report(struct sender *s, unsigned most, struct weir_guard *guard)
{
	return weir_likely(!atomic_load_explicit(&s->done.pending, memory_order_relaxed))
		   ? 0
		   : completions_report_pending(s, most, guard);
}

/*
 * Takes responses, HELLO and BYE on the sender's lanes until r (NULL: none) has ended, for threads
 * that sleep for other requests too, and wakes those of them whose request has ended. Worker
 * locked.
 */
void sender_take(struct sender *s, const struct weir_request *r);

#endif
