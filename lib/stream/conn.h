/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the stream model: connections, listeners, messages that were taken out of a ring before
 * anybody asked for them. All of it is protected by the lock of the connection's worker.
 */
#ifndef WEIR_STREAM_CONN_H
#define WEIR_STREAM_CONN_H

#include "client/segment.h"
#include "client/session.h"

#include <errno.h>

/* A message in process memory, or still where it arrived. */
enum weir_parked_kind {
	PARKED_BYTES,  /* in `bytes` */
	PARKED_BUFFER, /* in memory of its own */
	PARKED_PLACE,  /* in a receive block of the arena */
	PARKED_SPAN,   /* in the byte area of a segment */
	PARKED_POSTED, /* in memory that the program posted */
};

struct weir_parked {
	struct weir_parked *next;
	uint8_t *data;
	uint32_t length;
	uint8_t kind;  /* enum weir_parked_kind */
	uint8_t class; /* of spare memory it goes back to; WEIR_SPARE_CLASSES: none */
	uint32_t vqpn;
	uint32_t cost;		/* still to be counted as consumed */
	uint64_t at;		/* place, or span */
	struct weir_pipe *pipe; /* PLACE, SPAN: where it came in */
	struct weir_thread *worker;
	LIST_ENTRY(weir_parked) in_loans; /* while the program has it */
	uint8_t bytes[];
};

/* A FIFO of what waits for messages to complete. */
struct weir_note {
	uint64_t number; /* of the message */
	uint64_t value;	 /* cookie, first block of the heap, or with NOTE_REGION a region */
};
#define NOTE_REGION (1ull << 63) /* the rest: its number */
struct weir_notes {
	struct weir_note *ring;
	uint32_t room; /* a power of two, or 0 */
	uint32_t head, tail;
};

enum weir_conn_state {
	CONN_OPENING, /* connect() under way */
	CONN_OPEN,
	CONN_ENDED,   /* the other end is gone: `end` says how */
	CONN_CLOSING, /* closed by us: stays until CLOSED has come */
};

#define PENDING_OPENED 0x1u
#define PENDING_READABLE 0x2u
#define PENDING_WRITABLE 0x4u
#define PENDING_SENT 0x8u
#define PENDING_CLOSED 0x10u

#define CONTROL_WANT 0x1u
#define CONTROL_CONSUMED 0x2u
#define CONTROL_CLOSE 0x4u
#define CONTROL_POST 0x8u
#define CONTROL_ROOM 0x10u

#define WEIR_POSTS_MAX 64u /* of a connection */

/* Memory for a message to come. */
struct weir_post {
	uint8_t *data;
	size_t size;
	uint64_t cookie;
	struct weir_region *region; /* kept */
};
struct weir_posts {
	uint64_t first, next; /* numbers of messages: for [first, next) there is memory */
	uint64_t told;	      /* the engine knows of those before */
	struct weir_post post[WEIR_POSTS_MAX];
};

struct weir_lane;

struct weir_conn {
	/* what every message touches */
	struct weir_pipe *pipe; /* NULL: local, its segment is not mapped yet */
	struct weir_thread *worker;
	struct weir_life *life;
	uint32_t vqpn;		 /* ours */
	uint32_t send_vqpn;	 /* what goes into slots that we write */
	int send_error;		 /* 0: may send; -EAGAIN: not open yet */
	uint8_t way;		 /* WEIR_SLOT_* of messages that don't ask for another; 0: any */
	uint32_t state;		 /* enum weir_conn_state */
	uint64_t spent, granted; /* cost: of what we sent; that we may spend */
	uint64_t sent;		 /* messages */
	struct weir_parked *queue, **queue_end;
	uint64_t consumed, returned; /* cost: of what was received; that the sender was told */
	uint64_t received;	     /* messages that the program took */
	uint32_t due_at;	     /* tell when so much is untold */
	bool due;		     /* on the pipe's list of dues */
	bool readable;		     /* reported, or about to be */
	bool blocked;		     /* WRITABLE shall be reported */
	bool wanting;		     /* a WANT is under way */
	/* the rest */
	bool local;	 /* its bytes go by a segment */
	bool queued;	 /* on a list of ready ones */
	bool on_blocked; /* on its worker's list */
	bool cramped;	 /* on its channel's list */
	bool want_heap;	 /* blocked for want of send blocks */
	bool end_held;	 /* CLOSED has come: goes when our CLOSE is written */
	uint8_t control; /* CONTROL_*: slots to be written */
	uint8_t pending; /* PENDING_*: events to be reported */
	bool
	    never_opened; /* connect() failed, or the data plane is gone: nothing is to be closed */
	bool ending; /* CLOSED has come, but not all that the segment holds could be taken in yet */
	uint32_t end_status;  /* of that CLOSED */
	int end;	      /* what recv says after the last message */
	uint32_t want_length; /* of the message that was refused last */
	uint32_t wanted;      /* cost in the WANT under way */
	uint64_t completed;
	struct weir_channel *channel; /* for control; of the data too if remote */
	struct weir_conn_desc *desc;
	struct weir_notes blocks, cookies;
	struct weir_posts *posts;	       /* NULL: never any */
	uint32_t segment_id, side, conn_index; /* local */
	uint32_t peer_vqpn;
	uint16_t peer_node;
	uint16_t mtu;			 /* datagram connection: its largest message; 0: a stream */
	_Atomic uint64_t *peer_consumed; /* local: written by the peer, how far it is */
	struct weir_segment_conn *ours;	 /* local: the line that we write */
	/* local: a message that came, or goes, in pieces */
	uint8_t *assembly;
	uint32_t assembly_length, assembled;
	uint64_t parked_cost; /* local: of what lies in the queue */
	uint64_t salvage; /* 1 more than the next message, of those that a dead data plane has left;
			     0: not counted yet */
	uint8_t *tail;
	uint32_t tail_length, tail_at;
	bool tail_lent;			/* tail is the memory of a caller who waits */
	bool tail_kept;			/* there is a tail, on its worker's list */
	struct weir_thread *reporter;	/* whose weir_poll() tells of it */
	struct weir_foreign *foreign;	/* reporter's entry for our worker, if they differ */
	struct weir_listener *listener; /* not accepted yet */
	struct weir_again *again;	/* how it is made again; NULL: never */
	bool trying;			/* it is a try, and not the program's yet */
	struct weir_lane *lane; /* a connection of the message model; its own events are not told */
	uint8_t threshold; /* percent of the window after which consumption is told; 0: as the data
			      plane wishes */
	void *user;
	TAILQ_ENTRY(weir_conn)
	in_control, in_dues, in_ready, in_blocked, in_cramped, in_tails, in_segment, in_accept;
};

struct weir_listener {
	struct weir_thread *worker;
	struct weir_listener *face; /* the program's handle: the first one, maybe this */
	/* which one took this one's place after the data plane had gone; NULL: none. Written once,
	 * under the handle's renew_lock, read by all */
	_Atomic(struct weir_listener *) now;
	int error; /* why none could. Worker */
	bool left; /* does not count among its worker's users any more */
	char service[WEIR_SERVICE_MAX];
	uint32_t backlog, flags;
	uint32_t id;
	bool queued;		       /* on its worker's list of those with something to report */
	TAILQ_HEAD(, weir_conn) conns; /* not accepted yet */
	TAILQ_ENTRY(weir_listener) in_accepts;
	LIST_ENTRY(weir_listener) in_worker;
};

/* The 16 bytes before a slot's data, copied once. */
struct weir_head {
	uint32_t seq;
	uint8_t op, flags;
	uint16_t order;
	uint32_t vqpn, length;
};
static_assert(sizeof(struct weir_head) == offsetof(struct weir_slot, data), "head of a slot");

static inline struct weir_head
weir_head_copy(const struct weir_slot *s)
{
	struct weir_head h;

	memcpy(&h, s, sizeof(h));
	atomic_signal_fence(memory_order_seq_cst); /* never read again */
	return h;
}

static inline uint32_t
weir_conn_life(const struct weir_conn *c)
{
	return atomic_load_explicit(&c->life->state, memory_order_relaxed);
}

/* Moves a connection; asserts that the pair of states is legal. */
void weir_conn_enter(struct weir_conn *c, enum weir_conn_state to);

/* ---- conn.c ---- */
struct weir_conn *weir_conn_new(struct weir_thread *t, struct weir_channel *ch, uint32_t vqpn,
				uint32_t desc);
/* Its vQPN is not its own any more. */
void weir_conn_forget(struct weir_conn *c);
/* Another life of this vQPN has not ended here yet. */
bool weir_conn_vqpn_taken(struct weir_thread *t, uint32_t vqpn);
/* Takes it off all lists and frees it. */
void weir_conn_free(struct weir_conn *c);
/* Whose vQPN it is; NULL and *stale: it was ours and is over, or never will be. */
struct weir_conn *weir_conn_find(struct weir_thread *t, uint32_t vqpn, bool *stale);
/* Maps a local connection's segment. 0 or -errno. */
int weir_conn_map(struct weir_conn *c);
/* Joins it if it is mapped already. */
void weir_conn_find_segment(struct weir_conn *c);
/* The other end is gone: status 0 or positive errno. */
void weir_conn_ended(struct weir_conn *c, uint32_t status);
/* Says in words how a connection ended; returns rc. */
int weir_conn_failed(const struct weir_conn *c, int rc);
/* Something to report. */
void weir_conn_report(struct weir_conn *c, uint8_t pending);
/* Reports to another thread from now on; `foreign`: that thread's entry for the worker, NULL: to
 * its worker. */
void weir_conn_bind_to(struct weir_conn *c, struct weir_thread *reporter,
		       struct weir_foreign *foreign);
/* No longer reports anything. */
void weir_conn_unready(struct weir_conn *c);
/* Messages before number `upto` are complete. */
void weir_conn_completed(struct weir_conn *c, uint64_t upto);
/* Of a local one: what lies in the segment is complete, if the peer still takes it in. */
void weir_conn_delivered(struct weir_conn *c);
int weir_notes_room(struct weir_notes *n);
void weir_notes_put(struct weir_notes *n, uint64_t number, uint64_t value);
/* Closes; the program's handle is invalid from now on. Worker locked. */
void weir_conn_close(struct weir_conn *c);

/* ---- progress.c ---- */
/* Calls f, which may free it, for each connection of a worker. Worker locked. */
void weir_conns_each(struct weir_thread *t, void (*f)(struct weir_conn *c));

/* ---- control.c ---- */
/* Slots to the engine: written as soon as there is room. */
void weir_control_post(struct weir_conn *c, uint8_t control);
void weir_control_release(struct weir_channel *ch, weir_place place);
/* Closes a connection that we cannot take. */
void weir_control_refuse(struct weir_channel *ch, uint32_t vqpn);
/* It found no room in its channel's ring: WRITABLE is reported when there is. */
void weir_control_cramped(struct weir_conn *c);
/* It needs none any more. */
void weir_control_uncramp(struct weir_conn *c);
/* The WANT of all that need room is answered, if it was this one's. */
void weir_control_answered(struct weir_conn *c);
/* Reports to those for which there is room. */
void weir_control_make_room(struct weir_channel *ch);
/* Writes what waits. */
void weir_control_flush(struct weir_channel *ch);
/* Tells the engine of all consumption and all places given back. */
void weir_control_settle(struct weir_channel *ch);

/* ---- rx_place.c ---- */
/* The next POST that the engine doesn't know of; false: it knows all. */
bool weir_posts_next(struct weir_conn *c, struct weir_slot *s);
/* Where message `number` lies if the engine put it there: NULL unless that was posted for it. */
uint8_t *weir_posted(struct weir_conn *c, uint64_t number, weir_place place, uint32_t length);
void weir_posts_free(struct weir_conn *c);

/* ---- channel_progress.c, segment_progress.c ---- */
/*
 * Where message `number` of c lies, of which an engine says that it lies at `place`; NULL: that
 * can't be.
 */
uint8_t *weir_place_data(struct weir_conn *c, uint64_t number, weir_place place, uint32_t length);
/* Takes the message at the ring's head into the connection's queue. 0, -EPROTO, -ENOMEM. */
int weir_channel_park(struct weir_conn *c, const struct weir_head *h);
/* The data plane is gone: takes in what its engine kept beside the ring. Worker locked. */
void weir_channel_salvage(struct weir_channel *ch);
/* The data plane is gone: waits a moment until c has ended, with all that came. False: it has not.
 */
bool weir_conn_await_end(struct weir_conn *c);
unsigned weir_channel_drive(struct weir_channel *ch, struct weir_conn *want);
/*
 * A reply may overtake the end of its vQPN's last life, which is in the ring by then: takes that
 * in, and not a slot more, because what comes after it may be about the new life.
 */
void weir_channel_end_life(struct weir_channel *ch, uint32_t vqpn);
unsigned weir_segment_drive(struct weir_segment *seg, struct weir_conn *want);

/* Nothing has come: soon what was consumed is told, a pause in a conversation is not enough for
 * that. */
static inline void
weir_segment_idle(struct weir_segment *seg)
{
	if (weir_unlikely(++seg->pipe.empty == 8))
		weir_segment_tell(seg);
}

/* CLOSED has come: takes in all that the peer wrote before; ends the connection when that is done.
 */
void weir_segment_finish(struct weir_conn *c, uint32_t status);
/* A piece of a message at the ring's head, into the connection's memory. 0, -EPROTO, -ENOMEM. */
int weir_segment_take_piece(struct weir_conn *c, const struct weir_head *h);
/* Where a whole message at the ring's head lies. False: it is a piece only. */
bool weir_segment_whole(struct weir_segment *seg, const struct weir_head *h, uint64_t *offset);
void weir_segment_spoil(struct weir_segment *seg);
/* Pushes pieces of messages that wait for room. */
unsigned weir_tails_push(struct weir_thread *t);

/* ---- rx_queue.c ---- */
struct weir_parked *weir_parked_new(struct weir_thread *t, uint32_t length);
void weir_parked_free(struct weir_parked *p);
/* Copies an inline message at the pipe's head out of the ring. NULL: no memory, it stays. */
struct weir_parked *weir_park_inline(struct weir_conn *c, const struct weir_head *h);
void weir_park_append(struct weir_conn *c, struct weir_parked *p);
/* Forgets all messages not received. */
void weir_park_clear(struct weir_conn *c);
/* `cost` was received: something is to be done about it. */
void weir_conn_consumed_slow(struct weir_conn *c);

/* `cost` was received. True: weir_conn_consumed_slow() has to follow. */
static inline bool
weir_conn_note_consumed(struct weir_conn *c, uint32_t cost)
{
	c->consumed += cost;
	return !c->due || c->consumed - c->returned >= c->due_at ||
	       (c->local &&
		atomic_load_explicit(&WEIR_SEGMENT_OF(c->pipe)->in->wanted, memory_order_relaxed));
}

static inline void
weir_conn_consumed(struct weir_conn *c, uint32_t cost)
{
	if (weir_unlikely(weir_conn_note_consumed(c, cost)))
		weir_conn_consumed_slow(c);
}

/* ---- partial_send.c ---- */
/* Pushes what fits of the message c->tail. 0: all is out; -EAGAIN, -EPROTO. */
int weir_tail_push(struct weir_conn *c);
/* The rest waits: `lent`: in memory of a caller who waits, else in ours. */
void weir_tail_keep(struct weir_conn *c, uint8_t *data, bool lent);
void weir_tail_drop(struct weir_conn *c);

/* ---- send.c ---- */
/* Whether a message of want_length could be sent now. */
bool weir_send_possible(struct weir_conn *c);

/* ---- reconnect.c ---- */
/* It shall be made again. 0 or -errno. */
int weir_again_wanted(struct weir_conn *c, const struct weir_address *address,
		      const struct weir_connect_options *o);
/* It is open: that is what shall be made again. */
void weir_again_opened(struct weir_conn *c);
/* It has ended with this status and the program is about to be told: is it made again, by t? */
bool weir_again_begin(struct weir_thread *t, struct weir_conn *c, int status, uint64_t *cookie);
/* A try has something to report. True: nothing to the program, it may be gone. Worker locked. */
bool weir_again_tried(struct weir_thread *t, struct weir_conn *c);
/* Tries what is due. Fills in up to n events, of those that were given up. How many. */
unsigned weir_again_step(struct weir_thread *t, struct weir_event *events, unsigned n);
/* Wakes the thread so many ms from now, or earlier for its tries; UINT32_MAX: for these only. */
void weir_again_timer(struct weir_thread *t, uint32_t ms);
/* c goes. */
void weir_again_forget(struct weir_conn *c);
void weir_agains_follow(struct weir_thread *t, struct weir_thread *p);
void weir_agains_free(struct weir_thread *t);

/* ---- nodes.c ---- */
/* Whether there is something to tell the thread of nodes. */
bool weir_nodes_any(struct weir_thread *t);
/* Fills in up to n events. How many. */
unsigned weir_nodes_take(struct weir_thread *t, struct weir_event *events, unsigned n);
void weir_table_free(struct weir_thread *t);
/* The table of p, an earlier session's, goes on as that of t. */
void weir_table_follow(struct weir_thread *t, struct weir_thread *p);

/* ---- listen.c ---- */
/* A connection has left the listener's queue. */
void weir_listener_took(struct weir_listener *l);
/* Frees it with what waits in it; the data plane knows already, or is gone. Worker locked. */
void weir_listener_free(struct weir_listener *l);
/* The listeners of p, and of the caller's objects before that, listen again, on t, its own. */
void weir_listeners_follow(struct weir_thread *t, struct weir_thread *p);

#endif
