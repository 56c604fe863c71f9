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
struct message_lane;
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
	struct sender *sender;	     /* outgoing: its owner; NULL: incoming */
	uint32_t receiver;	     /* MESSAGE_HANDLERS, or the guest that it leads to */
	struct message_lane *handle; /* the model's, told of its end; NULL: none. Worker */
	struct lane **at;	     /* where its owner finds it; NULL: nowhere. Worker */
	struct weir_conn *conn;	     /* NULL: none. Written under m->lock and worker */
	uint64_t life;		     /* counts connections. As conn */
	TAILQ_ENTRY(lane) in_peer;   /* m->lock */
	SLIST_ENTRY(lane) spare;     /* m->lock */
	bool open;		     /* the program was told. m->lock */
	bool client;		     /* incoming: from a program that does not listen. m->lock */
	/* worker */
	bool hello_due;			/* HELLO is to be sent first */
	bool sending_fragments;		/* a message in fragments is being sent */
	bool closing;			/* closes at pins == 0 and running == NULL */
	uint32_t pins;			/* calls that use conn without holding the lock */
	struct handler_thread *running; /* has a message of the lane, the next one waits */
	struct waiting *first, **last;	/* responses; messages wait until these are sent */
	_Atomic uint64_t incarnation;	/* of the other end; 0: not known yet */
	/* for look_lane() */
	_Atomic uint32_t bye_received; /* such a message was received */
	_Atomic uint32_t malformed;    /* errno: one that ends the lane was received */
	_Atomic uint32_t receivers;    /* of the other end, + 1; 0: no new HELLO */
	/* incoming: the thread `running`'s; else under worker */
	struct assembly in;  /* fragments.total: a message is under way */
	uint64_t key;	     /* a BYE for it has this id; 0: not known yet. m->lock */
	uint64_t accepted;   /* incoming: ns. m->lock */
	uint64_t made;	     /* outgoing: the peer's count of lanes when made. m->lock */
	bool named;	     /* outgoing: connected to the messenger's name itself, not to NAME.k */
	bool finishing;	     /* outgoing: sends no more, the other end closes it. m->lock */
	bool hello_received; /* incoming: its HELLO has come. m->lock */
	bool bye_sent;	     /* incoming: BYE for it is sent. m->lock */
	struct held *held;   /* place for a message that waits; kept */
	/* incoming: the thread `running`'s; else under worker */
	void *state;   /* the model's; NULL: none */
	uint32_t bare; /* length of the bare message that comes next; 0: none does */
	/* worker writes; evict() reads */
	_Atomic uint32_t used; /* m->epoch at the last message */
	/* requests, and messages with a cookie, sent on it and not ended */
	_Atomic uint32_t outstanding;
};

static inline struct lane *
lane_of(const struct weir_conn *c)
{
	return (struct lane *)c->lane;
}

/* A message was sent or received. Worker locked. */
static inline void
lane_used(struct lane *lane)
{
	uint32_t epoch = atomic_load_explicit(&lane->m->epoch, memory_order_relaxed);

	/* written once per epoch: evict() reads it */
	if (weir_unlikely(atomic_load_explicit(&lane->used, memory_order_relaxed) != epoch))
		atomic_store_explicit(&lane->used, epoch, memory_order_relaxed);
}

/* Counts requests, and messages with a cookie, that have not ended. Worker locked. */
static inline void
lane_outstanding(struct lane *lane, int n)
{
	uint32_t now = atomic_load_explicit(&lane->outstanding, memory_order_relaxed);

	weir_assert(n > 0 || now);
	atomic_store_explicit(&lane->outstanding, now + (uint32_t)n, memory_order_relaxed);
}

/* An open lane of s to a node, pinned; made if necessary. 0, -EAGAIN, or why not. */
int lane_pin(struct sender *s, uint16_t node, int timeout_ms, struct lane **lane);
/* The same for the connection of a model's lane, whose sender is the caller's. */
int lane_pin_for(struct message_lane *to, int timeout_ms, struct lane **lane);
/* Pins an incoming lane for a response. 0 or -EHOSTUNREACH. */
int lane_pin_reply(struct lane *lane, uint64_t life);
void lane_unpin(struct lane *lane);
enum lane_use {
	LANE_SENDS,    /* threads of the sender find it */
	LANE_FAREWELL, /* carries BYE alone */
	LANE_PROBE     /* only asks which program has the name */
};
/* Begins to connect a lane. m->lock. */
int lane_make(struct sender *s, struct peer *p, enum lane_use use);
/* Opens the lane's connection and says hello on it. 0, -EAGAIN: not open yet, or how it ended.
 * Worker locked. */
int lane_greet(struct lane *lane);
/* Makes a lane of an accepted connection. m->lock. */
int lane_accept(struct handler_thread *k, struct peer *p, struct weir_conn *c);
/* Answers HELLO on an accepted lane of a model; !all: it speaks another version, and no more than
 * the versions here is said. m->lock. */
void lane_answer(struct lane *lane, bool all);
/* The connection closes soon: its thread sends nothing more on it, but what it holds. m->lock. */
void lane_withdraw(struct lane *lane);
/*
 * Closes an outgoing lane in order: the other end closes the connection when it has handled all
 * that was sent. Messages on another lane then come after it. m->lock.
 */
void lane_finish(struct lane *lane);
/* Closes its connection, which has ended with `status` or shall end; ends its requests. m->lock. */
void lane_end(struct lane *lane, int status);
/* The same without m->lock, if the lane still has that life's connection. */
void lane_ended(struct lane *lane, uint64_t life, int status);
/* Sends on a pinned lane of the caller's sender; cookie: NULL, or it is reported at the end. */
int lane_send(struct lane *lane, const struct iovec *parts, unsigned n, size_t length,
	      const uint64_t *cookie, int timeout_ms);
/* Sends a message of any length gathered from n parts, likewise. */
int lane_send_message(struct lane *lane, uint16_t type, const struct iovec *iov, unsigned n,
		      uint64_t length, const uint64_t *cookie, int timeout_ms);
/* The length of a message of n parts. 0, -EINVAL: too many; -EMSGSIZE: above message_max. */
int message_length(const struct weir_messenger *m, const struct iovec *iov, unsigned n,
		   uint64_t *length);
/* Messages with a cookie have ended: notes those that have. Worker locked. */
void lane_sent(struct lane *lane);
/* The connection is about to be closed: the others end with `status`. Worker locked. */
void lane_unsent(struct lane *lane, int status);
/* Messages of the lane may be taken again. Worker locked. */
void lane_resume(struct lane *lane);
/* Sends responses that wait for room. Worker locked. */
void lane_flush(struct lane *lane);
/* Sends now, or keeps a copy. Worker locked. */
int lane_say(struct lane *lane, const struct iovec *parts, unsigned n, size_t length);
/* Drops the first copy. Worker locked. */
void lane_unsay(struct lane *lane);

#endif
