/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A messenger has peers, one for each node that it ever knew; a peer has lanes, each of them a
 * connection of the stream model that hangs on a worker: outgoing ones on that of a sender (a
 * program thread), incoming ones on that of a handler thread. Messages and requests go one way on a
 * lane, responses come back on it.
 *
 * Locks: m->lock, then a worker, then m->leaf. What one message touches is under its worker's lock
 * alone. A lane gets and loses its connection under both m->lock and its worker. Peers, lanes,
 * senders and handler threads stay where they are until the messenger closes, so that who lost
 * sight of one may look at it again.
 */
#ifndef WEIR_MESSAGE_MESSENGER_H
#define WEIR_MESSAGE_MESSENGER_H

#include "fragments.h"
#include "public.h"

#include "client/session.h"

#include <pthread.h>
#include <sys/queue.h>

struct handler;
struct held;
struct peer;
struct sender;
struct handler_thread;

#define NODES 65536u
#define NODE_PAGE 256u
#define LEAVE_NS 10000000000ull /* a connection that closes is given so long */
#define TICK_MS 100		/* housekeeping */
#define MINIMUM_WINDOW (64u << 10)
#define TYPES 65536u

/* What the program is to be told. */
struct event {
	uint16_t node;
	enum weir_link_event link; /* 0: a message broke off */
	int status;
	struct assembly broken;
};

struct weir_messenger {
	struct weir *w;
	uint64_t serial; /* never given twice */
	uint64_t incarnation;
	uint32_t working;   /* handler threads in work(); lock */
	bool begun;	    /* they may work: all of them have started. lock */
	uint32_t receivers; /* handler threads that listen; others have as many as far as we know */
	struct weir_messenger_options o;
	char service[WEIR_SERVICE_MAX];
	_Atomic(struct handler *) *handlers; /* by type; written under leaf */
	struct handler *retired;	     /* leaf */
	struct handler_thread *pool;
	pthread_key_t key; /* a thread's sender */
	_Atomic uint32_t stop;
	bool fence; /* who unregisters can't make others run a fence */
	/* lock writes; read by every message, so nothing else that is written lies beside it */
	_Alignas(64) _Atomic uint32_t epoch;
	_Alignas(64) pthread_mutex_t lock;
	struct peer **peers[NODES / NODE_PAGE];
	TAILQ_HEAD(, peer) open, stepping;
	uint32_t connected; /* peers that are not DOWN */
	TAILQ_HEAD(, sender) senders;
	uint32_t sender_count;
	uint64_t created, lost, evicted, stalled;
	struct event *events;
	uint32_t event_count, event_room;
	pthread_cond_t changed; /* a peer went DOWN */
	/* ns: until then senders have turns, by engine. Who waits for room writes and reads */
	_Atomic uint64_t booked[WEIR_ENGINES_MAX];
	pthread_mutex_t leaf;
	/* leaf */
	TAILQ_HEAD(, held) exclusive;
	bool exclusive_taken;
	/* bytes of messages in pieces that the library has memory for, or will; at most */
	uint64_t room_used, room_max;
	TAILQ_HEAD(, held) room_waiting, room_admitted;
	uint64_t room_passes;	    /* over those that wait */
	bool room_full;		    /* the last one ended before one that finds no room */
	_Atomic uint32_t room_news; /* some are admitted */
};

/* Why no call does anything any more: the session is over. */
int messenger_gone(const struct weir_messenger *m) __attribute__((cold));
/* What a call of the stream model means to who sends messages. */
int message_error(const struct weir_messenger *m, int rc);
/* To be told by the first handler thread. m->lock. */
void event_add(struct weir_messenger *m, const struct event *e);
/* Tells the program. Nothing locked. */
void events_tell(struct weir_messenger *m);
/* Waits for a while, for peers to go DOWN. m->lock. */
void messenger_await(struct weir_messenger *m);

static inline void
count(_Atomic uint64_t *counter)
{
	/* one writer */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

#endif
