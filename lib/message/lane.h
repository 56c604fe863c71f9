/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection of the stream model that messages go on. */
#ifndef WEIR_MESSAGE_LANE_H
#define WEIR_MESSAGE_LANE_H

#include "fragments.h"
#include "header.h"
#include "messenger.h"

#include "stream/conn.h"

#include <sys/queue.h>
#include <sys/uio.h>

struct held;
struct peer;
struct sender;
struct handler_thread;

/* A response that found no room. */
struct waiting {
	struct waiting *next;
	uint32_t length;
	uint8_t bytes[];
};

struct lane {
	struct weir_messenger *m;
	struct peer *peer;
	struct weir_thread *worker;
	struct sender *sender;	   /* outgoing: whose; NULL: incoming */
	struct weir_conn *conn;	   /* NULL: none. Written under m->lock and worker */
	uint64_t life;		   /* counts connections. As conn */
	TAILQ_ENTRY(lane) in_peer; /* m->lock */
	SLIST_ENTRY(lane) spare;   /* m->lock */
	bool open;		   /* the program was told. m->lock */
	bool client;		   /* incoming: of a program to which nothing leads back. m->lock */
	/* worker */
	bool greet;			/* hello is to be sent first */
	bool cutting;			/* a message in pieces is being sent */
	bool doomed;			/* closes when pins and running have gone */
	uint32_t pins;			/* calls that use conn without holding the lock */
	struct handler_thread *running; /* has a message of it, the next one waits */
	struct waiting *first, **last;	/* responses; messages wait until they have gone */
	_Atomic uint64_t incarnation;	/* of the other end; 0: not known yet */
	_Atomic uint32_t asked;		/* good-bye has come on it, to be looked at */
	_Atomic uint32_t spoilt;	/* something malformed has, to be looked at */
	_Atomic uint32_t hello;		/* receivers over there + 1, to be looked at; 0: nothing */
	/* in.total: something is under way. Incoming: who has `running`; else worker */
	struct assembly in;
	uint64_t key;	   /* a BYE for it says this; 0: not known yet. m->lock */
	uint64_t made;	   /* outgoing: the peer's `made` when it was. m->lock */
	bool named;	   /* outgoing: leads to the messenger's name itself, not to NAME.k */
	bool greeted;	   /* incoming: its HELLO has come. m->lock */
	bool parted;	   /* incoming: BYE for it is sent. m->lock */
	struct held *held; /* place for a message that waits; kept */
	/* worker writes; who looks for the least recently used reads */
	_Atomic uint32_t used;	      /* m->epoch at the last message */
	_Atomic uint32_t outstanding; /* requests sent on it and not ended */
};

static inline struct lane *
lane_of(const struct weir_conn *c)
{
	return (struct lane *)c->lane;
}

/* A message goes on it, or came. Worker locked. */
static inline void
lane_used(struct lane *lane)
{
	uint32_t epoch = atomic_load_explicit(&lane->m->epoch, memory_order_relaxed);

	/* who looks for the least recently used reads it */
	if (weir_unlikely(atomic_load_explicit(&lane->used, memory_order_relaxed) != epoch))
		atomic_store_explicit(&lane->used, epoch, memory_order_relaxed);
}

/* An open lane of s to a node, pinned: made if need be. 0, -EAGAIN, or why not. */
int lane_pin(struct sender *s, uint16_t node, int timeout_ms, struct lane **lane);
/* Pins an incoming lane for a response. 0 or -EHOSTUNREACH. */
int lane_pin_reply(struct lane *lane, uint64_t life);
void lane_unpin(struct lane *lane);
/* Begins to connect a lane; `probe`: one that only hears who has the name. m->lock. */
int lane_make(struct sender *s, struct peer *p, bool probe);
/* Opens the lane's connection and says hello on it. 0, -EAGAIN: not open yet, or how it ended.
 * Worker locked. */
int lane_greet(struct lane *lane);
/* Makes a lane of an accepted connection. m->lock. */
int lane_accept(struct handler_thread *k, struct peer *p, struct weir_conn *c);
/* Its connection has ended with `status`, or is to end: closed, requests ended. m->lock. */
void lane_end(struct lane *lane, int status);
/* The same without m->lock, if that connection still is the lane's. */
void lane_ended(struct lane *lane, uint64_t life, int status);
/* Sends on a pinned lane of the caller's sender. */
int lane_send(struct lane *lane, const struct iovec *parts, unsigned n, size_t length,
	      int timeout_ms);
/* Messages of the lane may be taken again. Worker locked. */
void lane_resume(struct lane *lane);
/* Sends what could not be sent before. Worker locked. */
void lane_flush(struct lane *lane);
/* Hello, or something as short. Worker locked. 0, -EAGAIN, or how the connection ended. */
int lane_put(struct lane *lane, const struct message_header *h);
/* Sends now, or keeps a copy. Worker locked. */
int lane_say(struct lane *lane, const struct iovec *parts, unsigned n, size_t length);

#endif
