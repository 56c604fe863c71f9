/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the message model.
 *
 * A messenger has peers, one for each node that it ever knew; a peer has lanes, each of them a
 * connection of the stream model that hangs on a home: outgoing ones on that of a sender (a program
 * thread), incoming ones on that of a worker (a handler thread). Messages and requests go one way
 * on a lane, responses come back on it.
 *
 * Locks: m->lock, then a home, then m->leaf. What one message touches is under its home's lock
 * alone. A lane gets and loses its connection under both m->lock and its home. Peers, lanes,
 * senders and workers stay where they are until the messenger closes, so that who lost sight of one
 * may look at it again.
 */
#ifndef WEIR_MESSAGE_INTERNAL_H
#define WEIR_MESSAGE_INTERNAL_H

#pragma GCC visibility push(default)
#include "weir/message.h"
#pragma GCC visibility pop

#include "client/reason.h"
#include "client/wait.h"
#include "message/header.h"
#include "stream/model.h"
#include "stream/progress.h"

#include <errno.h>

#define NODES 65536u
#define NODE_PAGE 256u
#define LEAVE_NS 10000000000ull /* a connection that closes is given so long */
#define TICK_MS 100		/* housekeeping */
#define MINIMUM_WINDOW (64u << 10)
#define TYPES 65536u

/* ---- lanes ---- */

/* A response that found no room. */
struct waiting {
	struct waiting *next;
	uint32_t length;
	uint8_t bytes[];
};

/* A message that arrives in pieces. */
struct assembly {
	struct message_pieces pieces;
	uint8_t *data; /* NULL: the pieces are dropped */
	/* data is the library's: bytes allocated, and bytes of m->room_used that are its. 0:
	 * place() gave it */
	uint64_t allocated, reserved;
	uint64_t deadline; /* ns; later than this it gives its room to messages that wait */
	bool revoked;	   /* it did: no more of it may arrive */
	const struct weir_handler *handler; /* registered when the first piece came */
};

struct lane {
	struct weir_messenger *m;
	struct peer *peer;
	struct weir_thread *home;
	struct sender *sender;	   /* outgoing: whose; NULL: incoming */
	struct weir_conn *conn;	   /* NULL: none. Written under m->lock and home */
	uint64_t life;		   /* counts connections. As conn */
	TAILQ_ENTRY(lane) in_peer; /* m->lock */
	SLIST_ENTRY(lane) spare;   /* m->lock */
	bool open;		   /* the program was told. m->lock */
	bool client;		   /* incoming: of a program to which nothing leads back. m->lock */
	/* home */
	bool greet;		       /* hello is to be sent first */
	bool cutting;		       /* a message in pieces is being sent */
	bool doomed;		       /* closes when pins and running have gone */
	uint32_t pins;		       /* calls that use conn without holding the lock */
	struct worker *running;	       /* has a message of it, the next one waits */
	struct waiting *first, **last; /* responses; messages wait until they have gone */
	_Atomic uint64_t incarnation;  /* of the other end; 0: not known yet */
	_Atomic uint32_t asked;	       /* good-bye has come on it, to be looked at */
	_Atomic uint32_t spoilt;       /* something malformed has, to be looked at */
	_Atomic uint32_t hello;	       /* receivers over there + 1, to be looked at; 0: nothing */
	/* in.total: something is under way. Incoming: who has `running`; else home */
	struct assembly in;
	uint64_t key;	   /* a BYE for it says this; 0: not known yet. m->lock */
	uint64_t made;	   /* outgoing: the peer's `made` when it was. m->lock */
	bool named;	   /* outgoing: leads to the messenger's name itself, not to NAME.k */
	bool greeted;	   /* incoming: its HELLO has come. m->lock */
	bool parted;	   /* incoming: BYE for it is sent. m->lock */
	struct held *held; /* place for a message that waits; kept */
	/* home writes; who looks for the least recently used reads */
	_Atomic uint32_t used;	      /* m->epoch at the last message */
	_Atomic uint32_t outstanding; /* requests sent on it and not ended */
};

static inline struct lane *
lane_of(const struct weir_conn *c)
{
	return (struct lane *)c->lane;
}

/* ---- peers ---- */

enum peer_state {
	PEER_DOWN,    /* no lanes */
	PEER_OPEN,    /* lanes, or about to have some */
	PEER_LEAVING, /* we want to close: BYE goes when no request is outstanding */
	PEER_BYE,     /* BYE is sent: the other end closes its lanes */
	PEER_ASKED,   /* BYE has come: our lanes close when no request is outstanding */
};

/* m->lock */
struct peer {
	uint16_t node;
	uint8_t state; /* enum peer_state */
	bool told;     /* the program was told CREATED */
	bool evicted;
	bool stepping;		 /* on m->stepping */
	uint32_t threads;	 /* receivers over there, as its messenger said; else 1 */
	uint32_t incoming, open; /* lanes: from there; that are open */
	uint32_t used;		 /* as lanes', of those that are gone */
	/*
	 * Of the messenger over there. Lanes that we made to its name say so; until one has, the
	 * first lane from there is believed. When another one claims to be of another messenger,
	 * the name is asked again, on a lane of its own.
	 */
	uint64_t incarnation;
	uint64_t made;	    /* counts our lanes */
	uint64_t said_by;   /* `made` of the lane that said `incarnation`; 0: none has */
	uint64_t named;	    /* ns when the first lane to the name was made; 0: none was */
	struct lane *probe; /* asks; on no page of a sender. NULL: none does */
	uint64_t probed;    /* ns when the last one was made */
	uint64_t deadline;  /* of closing */
	uint32_t lives;	    /* counts how often it went DOWN */
	int leave_status;   /* how the last closing ended */
	int lost;	    /* how its last lane ended */
	/* m->leaf */
	uint64_t room_used; /* of m->room_used */
	uint64_t room_pass; /* m->room_passes when messages of it waited for its share; 0: never */
	TAILQ_HEAD(lane_list, lane) lanes;
	TAILQ_ENTRY(peer) in_open, in_stepping;
};

/* ---- senders ---- */

struct request_slot {
	struct weir_request *request; /* NULL: free */
	uint32_t generation;
	uint32_t next; /* free list */
	struct lane *lane;
};

/* A thread that sends, or several that share one's lanes. */
struct sender {
	struct weir_messenger *m;
	struct weir_thread *home;
	uint32_t index; /* counts them */
	uint32_t users; /* threads. m->lock */
	TAILQ_ENTRY(sender) next;
	SLIST_HEAD(, lane) spares; /* m->lock */
	/* home */
	struct lane **page[NODES / NODE_PAGE];
	struct request_slot *slots;
	uint32_t slot_count, slot_free;
	_Atomic uint64_t turn_end;	  /* ns; its threads write and read */
	_Atomic uint64_t late, malformed; /* responses for nobody; what is none */
	uint8_t buffer[WEIR_INLINE_MAX + 12] __attribute__((aligned(64)));
};

static inline struct lane *
sender_lane(const struct sender *s, uint16_t node)
{
	struct lane **page = s->page[node / NODE_PAGE];

	return page ? page[node % NODE_PAGE] : NULL;
}

/* ---- workers ---- */

struct worker {
	struct weir_messenger *m;
	pthread_t thread;
	uint32_t index;
	bool runs;	  /* has a thread */
	bool started;	  /* m->lock: status is known */
	int status;	  /* of its start */
	char reason[256]; /* for that */
	struct weir_thread *home;
	struct sender *sender;
	struct weir_listener *listener;
	struct weir_handler_line
	    *line;		   /* where main sees how long it is at it; NULL: none is left */
	SLIST_HEAD(, lane) spares; /* m->lock */
	/* the message in hand: the worker's alone */
	struct lane *lane; /* NULL: none */
	uint64_t life;
	struct weir_taken taken;
	struct message_header header;
	struct weir_message message;
	uint64_t guard_until;
	uint32_t rests; /* since its session is over */
	/* worker writes, others read */
	_Alignas(64) _Atomic uint64_t since; /* ns: began with the messages at hand; 0: waits */
	_Atomic uint32_t type;		     /* being handled, + 1; 0: none */
	_Atomic uint32_t asleep;	     /* 2: until it is called; 1: for a moment */
	_Atomic uint64_t handled, unknown, malformed, oversized, taken_over;
	_Alignas(64) uint8_t buffer[WEIR_INLINE_MAX + 12];
};

/* ---- messengers ---- */

/* What the program is to be told. */
struct event {
	uint16_t node;
	enum weir_link_event link; /* 0: a message broke off */
	int status;
	struct assembly broken;
};

struct handler {
	struct weir_handler h;
	struct handler *retired; /* unregistered, kept until the messenger closes */
};

/*
 * A message that waits: for its turn at an exclusive handler, or for memory to be put together in.
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

struct weir_messenger {
	struct weir *w;
	uint64_t serial; /* never given twice */
	uint64_t incarnation;
	uint32_t working;   /* workers in work(); lock */
	bool begun;	    /* they may work: all of them have started. lock */
	uint32_t receivers; /* workers that listen; others have as many as far as we know */
	struct weir_messenger_options o;
	char service[WEIR_SERVICE_MAX];
	_Atomic(struct handler *) *handlers; /* by type; written under leaf */
	struct handler *retired;	     /* leaf */
	struct worker *workers;
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

/* The sender that a thread used last. */
struct sender_latest {
	uint64_t serial; /* its messenger's */
	struct sender *sender;
};
extern __thread struct sender_latest sender_last
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The calling thread's sender if that was the last one. NULL: sender_get() knows. */
static inline struct sender *
sender_latest(const struct weir_messenger *m)
{
	return weir_likely(sender_last.serial == m->serial && weir_state(m->w) == WEIR_UP)
		   ? sender_last.sender
		   : NULL;
}

/* A message goes on it, or came. Home locked. */
static inline void
lane_used(struct lane *lane)
{
	uint32_t epoch = atomic_load_explicit(&lane->m->epoch, memory_order_relaxed);

	/* who looks for the least recently used reads it */
	if (weir_unlikely(atomic_load_explicit(&lane->used, memory_order_relaxed) != epoch))
		atomic_store_explicit(&lane->used, epoch, memory_order_relaxed);
}

/* ---- lane.c ---- */
/* The calling thread's sender. NULL: *rc says why. */
struct sender *sender_get(struct weir_messenger *m, int *rc);
void sender_leave(void *sender);
/* An open lane of s to a node, pinned: made if need be. 0, -EAGAIN, or why not. */
int lane_pin(struct sender *s, uint16_t node, int timeout_ms, struct lane **lane);
/* Pins an incoming lane for a response. 0 or -EHOSTUNREACH. */
int lane_pin_reply(struct lane *lane, uint64_t life);
void lane_unpin(struct lane *lane);
/* Begins to connect a lane; `probe`: one that only hears who has the name. m->lock. */
int lane_make(struct sender *s, struct peer *p, bool probe);
/* Opens the lane's connection and says hello on it. 0, -EAGAIN: not open yet, or how it ended. Home
 * locked. */
int lane_greet(struct lane *lane);
/* Makes a lane of an accepted connection. m->lock. */
int lane_accept(struct worker *k, struct peer *p, struct weir_conn *c);
/* Its connection has ended with `status`, or is to end: closed, requests ended. m->lock. */
void lane_end(struct lane *lane, int status);
/* The same without m->lock, if that connection still is the lane's. */
void lane_ended(struct lane *lane, uint64_t life, int status);
/* Why no call does anything any more: the session is over. */
int messenger_gone(const struct weir_messenger *m) __attribute__((cold));
/* What a call of the stream model means to who sends messages. */
int message_error(const struct weir_messenger *m, int rc);

/* ---- dispatch.c ---- */
/* Sends on a pinned lane of the caller's sender. */
int lane_send(struct lane *lane, const struct iovec *parts, unsigned n, size_t length,
	      int timeout_ms);

/* ---- peer.c ---- */
struct peer *peer_get(struct weir_messenger *m, uint16_t node);
/* A lane is about to be made: counts the peer, evicts another. 0, -EAGAIN: not now. m->lock. */
int peer_use(struct weir_messenger *m, struct peer *p, bool must);
/* No lane was made after all. m->lock. */
void peer_unuse(struct weir_messenger *m, struct peer *p);
/* m->lock. */
void peer_lane_open(struct lane *lane);
/* A lane has gone. m->lock. */
void peer_lane_gone(struct lane *lane, int status);
/* Begins to close. m->lock. */
void peer_leave(struct weir_messenger *m, struct peer *p, enum peer_state state);
/* What closes gets on. True: something still does. m->lock. */
bool peers_step(struct weir_messenger *m);
/* HELLO has come. m->lock. */
void peer_hello(struct lane *lane, uint64_t incarnation, uint32_t threads);
/* BYE has come on a lane of ours. m->lock. */
void peer_bye(struct weir_messenger *m, struct peer *p);
/* BYE has come on a lane from there, for the one of ours that has the key. m->lock. */
void peer_bye_for(struct weir_messenger *m, struct peer *p, uint64_t key);
/* A lane to the peer's name is asked for its HELLO, which says how many receivers there are.
 * m->lock
 */
void peer_listen(struct peer *p);
/* Lanes whose other end is gone, of threads that don't look. */
void peers_look(struct weir_messenger *m);

/* ---- request.c ---- */
/* A response has come on an outgoing lane. Home locked. */
void request_response(struct lane *lane, const struct message_header *h, const uint8_t *data,
		      uint32_t length);
/* False: it is malformed. */
bool request_piece(struct lane *lane, const struct message_header *h, const uint8_t *data,
		   uint32_t length);
/* Ends what waits for the lane. Home locked. */
void requests_end(struct lane *lane, int status);
/* Ends all of a sender's that go to a node, or to any: UINT32_MAX. How many. */
uint32_t requests_cancel(struct sender *s, uint32_t node);

/* ---- receive.c ---- */
enum {
	TAKE_NOTHING = 0,
	TAKE_MESSAGE = 1, /* of an incoming lane */
	TAKE_ENDED = 2,	  /* the lane's connection has ended: *life, *status */
	TAKE_MOVED = 3,	  /* something else */
};
struct take {
	struct weir_taken taken;
	struct lane *lane;
	uint64_t life;
	int status;
};
/*
 * Gets on with a home, which is locked: takes in responses and finds the next message. `mine`: only
 * what concerns outgoing lanes; messages for handlers are put by.
 */
int home_take(struct weir_thread *t, uint8_t *buffer, bool mine, struct take *out);
/* Takes in what concerns the sender, responses most of all, until r (NULL: none) has ended. Home
 * locked. */
void sender_take(struct sender *s, const struct weir_request *r);
bool request_ended(const struct weir_request *r);
/* Messages of the lane may be taken again. Home locked. */
void lane_resume(struct lane *lane);

/* ---- respond.c ---- */
/* Sends what could not be sent before. Home locked. */
void lane_flush(struct lane *lane);
/* Hello, or something as short. Home locked. 0, -EAGAIN, or how the connection ended. */
int lane_put(struct lane *lane, const struct message_header *h);
/* Sends now, or keeps a copy. Home locked. */
int lane_say(struct lane *lane, const struct iovec *parts, unsigned n, size_t length);

/* ---- handle.c ---- */
/* Deals with the message in the worker's hand. Nothing locked. */
void message_handle(struct worker *k);
/* Puts it down. Home not locked. */
void message_finish(struct worker *k);
/* Tells a handler that a message broke off. In the worker's thread, or when that has ended. */
void message_broken(struct worker *k, uint16_t node, const struct assembly *a);
/* The type's handler, which stays until handler_release(); NULL: there is none. */
const struct weir_handler *handler_hold(struct worker *k, uint16_t type);
void handler_release(struct worker *k);
/* The message leaves the worker's hand to wait. m->leaf. */
void message_hold(struct worker *k, struct held *e);
/* And comes into one's hand. True: its lane is about to close. */
bool message_resume(struct worker *k, const struct held *e);
/* The lane's place for one that waits; NULL: no memory. By who has `running`. */
struct held *lane_held(struct lane *lane);
/* Goes on with those that waited for memory and have it. How many. */
unsigned messages_admitted(struct worker *k);
void handlers_free(struct weir_messenger *m);

/* ---- fragments.c ---- */
/* Sends what is longer than WEIR_MESSAGE_WHOLE. */
int pieces_send(struct lane *lane, const struct message_header *h, const struct iovec *iov,
		unsigned n, uint64_t total, int timeout_ms);
/* The worker has a piece in hand. 1: now it has the whole message; 0; -EAGAIN: it waits for memory
 * and has left the worker's hand; how its lane has to end. */
int piece_take(struct worker *k, const uint8_t *data, uint32_t length);
/* Forgets what is under way; the program is told if it gave the memory. m->lock. */
void assembly_drop(struct lane *lane);
/* Ends one that is whole and was handled. */
void assembly_done(struct lane *lane);

/* Messages that should be whole by now give their memory to those that wait for it. m->lock. */
void assemblies_press(struct weir_messenger *m);

/* ---- room.c ---- */
/* Reserves memory for the message in the worker's hand. 0; -EAGAIN: it waits for that and has left
 * the worker's hand; -EMSGSIZE. */
int room_take(struct worker *k, uint64_t bytes);
/* Releases what the lane's message has. */
void room_give(struct lane *lane);
/* One that waited has it. NULL: none. */
struct held *room_next(struct weir_messenger *m);
/* That of a lane which ends waits no longer. */
void room_forget(struct lane *lane, uint64_t life);
/* Whether a message waits for memory of the peer's. */
bool room_wanted(struct weir_messenger *m, const struct peer *p);
/* Puts down what waits. No worker runs. Nothing locked. */
void room_close(struct weir_messenger *m);

/* ---- messenger.c ---- */
/* To be told by the first worker. m->lock. */
void event_add(struct weir_messenger *m, const struct event *e);
/* Tells the program. Nothing locked. */
void events_tell(struct weir_messenger *m);
/* Waits for a while, for peers to go DOWN. m->lock. */
void messenger_await(struct weir_messenger *m);

/* ---- pool.c ---- */
int workers_start(struct weir_messenger *m);
void workers_stop(struct weir_messenger *m);
/* Wakes the first worker: housekeeping has something to do. */
void workers_call(struct weir_messenger *m);

static inline void
count(_Atomic uint64_t *counter)
{
	/* one writer */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

#endif
