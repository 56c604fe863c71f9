/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * If a model has opened the messenger (message.h), processes take the place of nodes: peers, tables
 * and calls are by the number of a process, which is then what fields named `node` hold.
 *
 * A messenger has peers, one for each node that it ever knew; a peer has lanes, each of them a
 * connection of the stream model that hangs on a worker: outgoing ones on that of a sender (a
 * program thread), incoming ones on that of a handler thread. Messages and requests go one way on a
 * lane, responses come back on it.
 *
 * Locks: m->lock, then a worker, then m->leaf. A message touches only objects under its worker's
 * lock. A lane gets and loses its connection under both m->lock and its worker. Peers, lanes,
 * senders and handler threads are not freed before the messenger closes, so a thread that has
 * released a lock may look at one again.
 */
#ifndef WEIR_MESSAGE_MESSENGER_H
#define WEIR_MESSAGE_MESSENGER_H

#include "fragments.h"
#include "header.h"
#include "public.h"

#include "client/session.h"

#include <pthread.h>
#include <sys/queue.h>

struct handler;
struct held;
struct message_model;
struct peer;
struct sender;
struct handler_thread;

#define NODES 65536u
#define NODE_PAGE 256u
#define LEAVE_NS 10000000000ull /* ns for a connection to close */
#define STRANGERS_MAX 4096u	/* accepted connections whose HELLO has not come */
#define TICK_MS 100		/* between rounds of housekeeping */
#define TICK_NS (TICK_MS * 1000000ull)
#define MINIMUM_WINDOW (64u << 10)
#define TYPES 65536u

SLIST_HEAD(lane_spares, lane);

/* For the program. */
struct event {
	uint16_t node;
	enum weir_link_event link; /* 0: a message broke off */
	int status;
	struct assembly broken;
};

struct weir_messenger {
	/* the present session. Written under lock, read by all */
	_Atomic(struct weir *) w;
	uint64_t serial; /* never given twice */
	uint64_t incarnation;
	/* lowest << 32 | highest version of the last messenger that speaks none of ours */
	_Atomic uint64_t foreign;
	uint32_t working;   /* handler threads in work(); lock */
	bool begun;	    /* all handler threads have started: they may work. lock */
	bool driven;	    /* no handler threads: weir_messenger_progress() runs handlers */
	uint32_t receivers; /* handler threads that listen */
	struct weir_messenger_options o;
	char service[WEIR_SERVICE_MAX];
	_Atomic(struct handler *) *handlers; /* by type; written under leaf */
	struct handler *retired;	     /* leaf */
	struct handler_thread *pool;	     /* handler threads, then guests */
	uint32_t receiving;		     /* entries of pool */
	struct message_model *model;	     /* NULL: the program has opened it */
	/* has the lanes from processes whose HELLO has not come; not on any list. NULL: no model */
	struct peer *strangers;
	LIST_HEAD(, message_lane) lanes; /* of the model. lock */
	pthread_key_t key;		 /* a thread's sender */
	_Atomic uint32_t stop;
	bool fence; /* handler_hold() needs a fence: there is no membarrier */
	/* under lock; read by every message: on a cache line without other written fields */
	_Alignas(64) _Atomic uint32_t epoch;
	_Alignas(64) pthread_mutex_t lock;
	struct peer **peers[NODES / NODE_PAGE];
	TAILQ_HEAD(, peer) open, stepping;
	uint32_t connected; /* peers that are not DOWN */
	uint32_t counted;   /* of these, those that count against the limit */
	TAILQ_HEAD(, sender) senders;
	uint32_t sender_count;	   /* of the present session */
	struct lane_spares former; /* lanes of earlier sessions */
	uint64_t created, lost, evicted, stalled;
	struct event *events;
	uint32_t event_count, event_room;
	pthread_cond_t changed; /* a peer went DOWN */
	/* ns: end of the last turn booked, by engine. Senders that wait for room write and read */
	_Atomic uint64_t booked[WEIR_ENGINES_MAX];
	pthread_mutex_t leaf;
	/* leaf */
	TAILQ_HEAD(, held) exclusive;
	bool exclusive_taken;
	/* bytes reserved for messages in fragments; at most */
	uint64_t room_used, room_max;
	TAILQ_HEAD(, held) room_waiting, room_admitted;
	uint64_t room_passes;	    /* over room_waiting */
	bool room_full;		    /* the last pass ended at a message that finds no room */
	_Atomic uint32_t room_news; /* room_admitted is not empty */
};

/* As weir_messenger_open(); `model`: checked by its caller, NULL: none. */
int messenger_open(struct weir *w, const struct weir_messenger_options *options,
		   const struct message_model *model, struct weir_messenger **messenger);
/* Sets the reason why calls fail: the session is over. */
int messenger_gone(const struct weir_messenger *m) __attribute__((cold));
/* Goes on in the session to which the program has attached again. 0, or why there is none. Nothing
 * locked. */
int messenger_follow(struct weir_messenger *m);
/* Turns an error of the stream model into one of the message model. */
int message_error(const struct weir_messenger *m, int rc);
/* Whether the sender of this HELLO speaks a version of ours; else message_error() tells which. */
bool messenger_speaks(struct weir_messenger *m, const struct message_header *hello);
/* Adds an event that the first handler thread reports. m->lock. */
void event_add(struct weir_messenger *m, const struct event *e);
/* Reports events to the program. How many. Nothing locked. */
unsigned events_report(struct weir_messenger *m);
/* Waits up to 20 ms for a peer to go DOWN. m->lock. */
void messenger_await(struct weir_messenger *m);

/* For asserts: whether a thread holds the lock. */
static inline bool
is_locked(pthread_mutex_t *lock)
{
	if (pthread_mutex_trylock(lock))
		return true;
	pthread_mutex_unlock(lock);
	return false;
}

static inline void
count(_Atomic uint64_t *counter)
{
	/* one writer */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

#endif
