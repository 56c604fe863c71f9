/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the stream model: connections, listeners, messages taken off a ring before the program
 * asked for them. The lock of the connection's worker protects all of it.
 */
#ifndef WEIR_STREAM_CONN_H
#define WEIR_STREAM_CONN_H

#include "client/segment.h"
#include "client/session.h"
#include "client/thread.h"

#include <errno.h>

/* Where the data of a message lies. */
enum weir_rx_kind {
	RX_BYTES,  /* in `bytes` */
	RX_BUFFER, /* in a buffer of the session */
	RX_PLACE,  /* in a receive block of the arena */
	RX_SPAN,   /* in the byte area of a segment */
	RX_POSTED, /* in memory that the program posted */
};

struct weir_rx_message {
	struct weir_rx_message *next;
	uint8_t *data;
	uint32_t length;
	uint8_t kind;  /* enum weir_rx_kind */
	uint8_t class; /* of spare memory; WEIR_SPARE_CLASSES: none */
	uint32_t vqpn;
	uint32_t cost;		/* still to be counted as consumed */
	bool lent;		/* the cost is in weir_conn.lent */
	uint64_t at;		/* place, or span */
	struct weir_pipe *pipe; /* PLACE, SPAN: it arrived here */
	struct weir_thread *worker;
	LIST_ENTRY(weir_rx_message) in_loans; /* while the program holds it */
	uint8_t bytes[];
};

/* A FIFO of resources and cookies that wait for messages to complete. */
struct weir_note {
	uint64_t number; /* of the message */
	uint64_t value;	 /* cookie, first block of the heap, or with NOTE_REGION a region */
};
#define NOTE_REGION (1ull << 63) /* the rest: its address */
struct weir_notes {
	struct weir_note *ring;
	uint32_t room; /* a power of two, or 0 */
	uint32_t head, tail;
};

enum weir_conn_state {
	CONN_OPENING, /* connect() under way */
	CONN_OPEN,
	CONN_HALF,    /* the peer sends no more, and receives */
	CONN_ENDED,   /* the other end is gone: `end` says how */
	CONN_CLOSING, /* closed here: stays until CLOSED has come */
};

#define PENDING_OPENED 0x1u
#define PENDING_READABLE 0x2u
#define PENDING_WRITABLE 0x4u
#define PENDING_SENT 0x8u
#define PENDING_CLOSED 0x10u
#define PENDING_END 0x20u

#define CTRL_WANT 0x1u
#define CTRL_CONSUMED 0x2u
#define CTRL_CLOSE 0x4u
#define CTRL_POST 0x8u
#define CTRL_ROOM 0x10u
#define CTRL_END 0x20u
#define CTRL_FLUSH 0x40u
#define CTRL_UNLOCK 0x80u

#define WEIR_POSTS_MAX 64u /* per connection */

/* Posted memory for a message to come. */
struct weir_post {
	uint8_t *data;
	size_t size;
	uint64_t cookie;
	struct weir_region *region; /* kept */
};
struct weir_posts {
	uint64_t first, next; /* messages with these numbers [first, next) have memory */
	uint64_t announced;   /* the engine knows the posts of messages before this number */
	struct weir_post post[WEIR_POSTS_MAX];
};

struct weir_lane;
struct weir_message_out;
struct weir_remote_lane;
struct weir_results;

/* Memory that the program composes a message in. */
struct weir_reservation {
	LIST_ENTRY(weir_reservation) next;
	pthread_t thread; /* that reserved it */
	uint8_t *buf;
	uint32_t length;
	uint32_t block; /* first one of the send heap; WEIR_BLOCK_NONE: in the byte area */
};

struct weir_conn {
	/* touched by every message */
	struct weir_pipe *pipe; /* NULL: local, its segment is not mapped yet */
	struct weir_thread *worker;
	struct weir_life *life;
	uint32_t vqpn;	    /* ours */
	uint32_t send_vqpn; /* in slots that we write */
	int send_error;	    /* 0: may send; -EAGAIN: not open yet; -EPIPE: shut or closed */
	uint8_t transfer;   /* WEIR_SLOT_*: default of messages; 0: any */
	uint32_t state;	    /* enum weir_conn_state */
	/*
	 * The short ways of weir_send() and weir_recv() each compare one number for all that must
	 * hold. `quick`: `granted`, or 0 where a small message needs another look: an error, a rest
	 * that goes first, an operation asked for, a fence. `next`: vqpn, or a number that no slot
	 * can have where the next message does not simply lie in the ring.
	 */
	uint64_t spent, quick; /* cost of sent messages; see above */
	uint64_t next;
	uint64_t consumed, report_at; /* cost of received messages; at which cost to report it */
	uint64_t sent, received;      /* messages; received: taken by the program */
	uint64_t sent_bytes, received_bytes; /* their payload */
	uint64_t granted;		     /* cost that may be spent, as read last */
	uint64_t returned;		     /* `consumed` as reported to the sender */
	struct weir_rx_message *queue;
	uint32_t due_at; /* unreported cost at which a report is due */
	bool due;	 /* on the pipe's list: has unreported cost */
	bool readable;	 /* READABLE is reported, or about to be */
	bool blocked;	 /* WRITABLE is to be reported */
	bool wanting;	 /* a WANT is under way */
	/* the rest */
	struct weir_rx_message **queue_end;
	bool local;	     /* data goes by a segment */
	bool undecided;	     /* accepted by a listener that holds connections */
	bool queued;	     /* on a list of ready connections */
	bool on_blocked;     /* on its worker's list */
	bool needs_room;     /* on its channel's list: waits for room in tx */
	bool want_heap;	     /* blocked for lack of send blocks */
	bool end_held;	     /* CLOSED has come: freed when our CLOSE is written */
	uint8_t control;     /* CTRL_*: slots to be written */
	uint8_t pending;     /* PENDING_*: events to be reported */
	bool never_opened;   /* connect() failed, or the data plane is gone: no CLOSE is owed */
	bool ending;	     /* CLOSED has come, but messages in the segment are not all taken in */
	bool shut;	     /* the program sends no more */
	bool end_due;	     /* local: END waits for room in the segment, on the list of partials */
	uint32_t end_status; /* of CLOSED */
	int end;	     /* result of recv after the last message; 0: none is the last yet */
	uint32_t want_length; /* of the message that was refused last */
	uint32_t wanted;      /* cost in the WANT under way */
	uint64_t completed;
	struct weir_channel *channel; /* for control slots; for data too if remote */
	struct weir_conn_desc *desc;
	struct weir_notes blocks, cookies;
	struct weir_posts *posts;	       /* NULL: never any */
	uint32_t segment_id, side, conn_index; /* local */
	uint32_t peer_vqpn;
	uint16_t peer_node;
	uint16_t mtu; /* datagram connection: its largest message; 0: a stream */
	const struct weir_segment_conn *theirs; /* local: the line that the peer writes */
	struct weir_segment_conn *ours;		/* local: the line that we write */
	/* local: bytes of the flow-control window towards us; of the other one, as last read */
	uint32_t window, peer_window;
	char *refusal; /* why the peer's program refused it; NULL: nothing was said */
	bool bundles;  /* local: the peer takes several messages per call, as last seen */
	/* local: a message that arrives in fragments */
	struct weir_rx_message *assembly; /* NULL: none */
	uint8_t *assembly_at; /* its memory, or the buffer of a weir_recv() that is under way */
	uint32_t assembled;
	uint64_t queue_cost;   /* local: of the messages in the queue */
	uint64_t recover_next; /* number + 1 of the next message to recover; 0: not counted yet */
	/* local: a message that is sent in fragments */
	const struct weir_message_out *partial_lender; /* a caller that waits, in whose memory it
							  is; NULL: it is in ours */
	uint8_t *partial;			       /* ours */
	uint32_t partial_length, partial_sent;
	bool partial_queued; /* a rest of it, or END, waits: on its worker's list */
	LIST_HEAD(, weir_reservation) reservations;
	struct weir_thread *reporter;	/* its weir_poll() reports events */
	struct weir_foreign *foreign;	/* reporter's entry for our worker, if they differ */
	struct weir_listener *listener; /* not accepted yet */
	struct weir_reconnect_state *reconnect_state; /* NULL: never reconnects */
	bool is_attempt;	/* reconnecting: the program does not know this connection yet */
	struct weir_lane *lane; /* of the message model, which takes its events; NULL: a stream's */
	bool silent;		/* no program polls it: who waits for it looks at it */
	/* to memory: the lane that it serves, until it closes; NULL: a stream's */
	struct weir_remote_lane *remote;
	bool makes_room;	       /* closed for another one, which waits for its end */
	_Atomic uint64_t remote_bytes; /* of the export, as OPENED said; any thread reads */
	uint64_t flush_asked;	       /* operations of which DONE was requested */
	_Atomic int remote_end;	       /* `end`; any thread reads */
	struct weir_results *results;  /* answers to come; NULL: never any */
	uint64_t kept_upto;   /* operations up to the last one on memory of the program itself */
	bool transfers;	      /* many bytes go by TRANSFER, as OPENED said */
	uint64_t lock_upto;   /* operations until the last LOCK, which is one; 0: there is none */
	uint32_t lock_status; /* of its answer: weir_lock_status */
	uint8_t lock_held;    /* WEIR_LOCK_*; 0: not held */
	uint8_t lock_unlock;  /* kind of the UNLOCK that is due: 0, or WEIR_LOCKS_UNSEEN */
	uint16_t lock_member; /* number of the program among the words of the lock; 0: none */
	uint8_t threshold;    /* percent of the window until a report; 0: the data plane's choice */
	/* cost of receive blocks that the program holds; as reported to the engine */
	uint32_t lent, lent_told;
	void *user;
	TAILQ_ENTRY(weir_conn)
	in_control, in_to_report, in_ready, in_blocked, in_needs_room, in_tails, in_segment,
	    in_accept;
};

struct weir_listener {
	struct weir_thread *worker;
	struct weir_listener *handle; /* the program's handle: the first one, maybe this */
	/* the one in place of this after the data plane was lost; NULL: none. Written once, under
	 * the handle's reattach_lock, read by all */
	_Atomic(struct weir_listener *) successor;
	int error;     /* why no other could take its place. Worker */
	bool replaced; /* does not count among its worker's users any more */
	bool of_lanes; /* of the message model, which accepts */
	bool silent;   /* no program polls it or its connections */
	char service[WEIR_SERVICE_MAX];
	uint32_t backlog, flags;
	uint32_t id;
	bool queued; /* on its worker's list: its connections are to be reported */
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

/* The list of c's reporter, its worker, on which it waits to be reported. */
static inline struct weir_ready *
weir_ready_list(const struct weir_conn *c)
{
	return weir_unlikely(c->lane) ? &c->worker->lanes : &c->worker->ready;
}

static inline struct weir_accepts *
weir_accepts_list(const struct weir_listener *l)
{
	return l->of_lanes ? &l->worker->lane_accepts : &l->worker->accepts;
}

/* For asserts: whether a thread holds the worker's lock. */
static inline bool
weir_worker_locked(struct weir_thread *t)
{
	struct weir_bias_seat *s = atomic_load_explicit(&t->lock.owner, memory_order_relaxed);

	if (atomic_load_explicit(&s->inside, memory_order_relaxed) ||
	    pthread_mutex_trylock(&t->lock.mutex))
		return true;
	pthread_mutex_unlock(&t->lock.mutex);
	return false;
}

/* After a change of `granted` or of anything else that `quick` is about. */
static inline void
weir_conn_update_quick(struct weir_conn *c)
{
	c->quick = !c->pipe || c->pipe->fence || c->send_error || c->transfer || c->partial_queued
		       ? 0
		       : c->granted;
}

/* After a change of state or queue. */
static inline void
weir_conn_update_next(struct weir_conn *c)
{
	c->next = c->state == CONN_OPEN && !c->queue ? c->vqpn : UINT64_MAX;
}

/* Cost that was lent since the last report, and not given back. */
static inline uint32_t
weir_conn_lent_untold(const struct weir_conn *c)
{
	return c->lent > c->lent_told ? c->lent - c->lent_told : 0;
}

/* For asserts: whether the numbers of the short ways are up to date. */
static inline bool
weir_conn_is_settled(const struct weir_conn *c)
{
	struct weir_conn is = *c;

	weir_conn_update_quick(&is);
	weir_conn_update_next(&is);
	return is.quick == c->quick && is.next == c->next &&
	       c->report_at == (c->due ? c->returned + c->due_at - weir_conn_lent_untold(c) : 0);
}

/* Whether c is to report consumption later. Uses `returned`. */
static inline void
weir_conn_set_due(struct weir_conn *c, bool due)
{
	c->due = due;
	/* 0: at the next message */
	c->report_at = due ? c->returned + c->due_at - weir_conn_lent_untold(c) : 0;
}

static inline void
weir_conn_set_due_at(struct weir_conn *c, uint32_t due_at)
{
	c->due_at = due_at;
	weir_conn_set_due(c, c->due);
}

/* Open, whether or not each end still sends. */
static inline bool
weir_conn_is_open(const struct weir_conn *c)
{
	return c->state == CONN_OPEN || c->state == CONN_HALF;
}

static inline uint32_t
weir_conn_life(const struct weir_conn *c)
{
	return atomic_load_explicit(&c->life->state, memory_order_relaxed);
}

/* Number of c's message whose slot has the low bits in `order`. */
static inline uint64_t
weir_message_number(const struct weir_conn *c, const struct weir_head *h)
{
	return c->received + (uint16_t)(h->order - (uint16_t)c->received);
}

/* Moves a connection; asserts that the pair of states is legal. */
void weir_conn_enter(struct weir_conn *c, enum weir_conn_state to);

/* ---- conn.c; worker locked ---- */
void weir_conn_set_send_error(struct weir_conn *c, int rc);
struct weir_conn *weir_conn_new(struct weir_thread *t, struct weir_channel *ch, uint32_t vqpn,
				uint32_t desc);
/* Takes c out of the table of vQPNs. */
void weir_conn_forget(struct weir_conn *c);
/* No connection is made for this vQPN: what a local peer has written on it is dropped. */
void weir_conn_refused(struct weir_thread *t, uint32_t vqpn);
/* An earlier life of this vQPN has not ended here yet. */
bool weir_conn_vqpn_taken(struct weir_thread *t, uint32_t vqpn);
/* Takes it off all lists and frees it. */
void weir_conn_free(struct weir_conn *c);
/* The connection with this vQPN. NULL: none; *stale: it was ours and is over, or never will be. */
struct weir_conn *weir_conn_find(struct weir_thread *t, uint32_t vqpn, bool *stale);
/* Maps a local connection's segment. 0 or -errno. */
int weir_conn_map(struct weir_conn *c);
/* Joins the segment if that is mapped already. */
void weir_conn_find_segment(struct weir_conn *c);
/* The other end is gone: status 0 or positive errno. */
void weir_conn_ended(struct weir_conn *c, uint32_t status);
/* END has come, after the last message of the peer. False: it had come before. */
bool weir_conn_peer_shut(struct weir_conn *c);
/* Sets the reason for the end of a connection; returns rc. */
int weir_conn_failed(const struct weir_conn *c, int rc);
/* Local: sets the window towards us. */
void weir_conn_set_window(struct weir_conn *c, uint32_t window);
/* Adds events, PENDING_*, to be reported. */
void weir_conn_report(struct weir_conn *c, uint8_t pending);
/* Reports to `reporter` from now on; `foreign`: its entry for the worker, NULL: is the worker. */
void weir_conn_bind_to(struct weir_conn *c, struct weir_thread *reporter,
		       struct weir_foreign *foreign);
/* No longer reports anything. */
void weir_conn_unready(struct weir_conn *c);
/* Messages before number `upto` are complete. */
void weir_conn_completed(struct weir_conn *c, uint64_t upto);
/* Looks which messages are complete; local: all in the segment, if the peer still takes them. */
void weir_conn_update_completed(struct weir_conn *c);
/* Makes room for one note. 0 or -ENOMEM. */
int weir_notes_room(struct weir_notes *n);
void weir_notes_put(struct weir_notes *n, uint64_t number, uint64_t value);
/* Closes; the program's handle is invalid from now on. */
void weir_conn_close(struct weir_conn *c);

/* ---- lib/remote; worker locked ---- */

/* A NOTICE has come, with this data. False: no memory, it stays. */
bool weir_notice_came(struct weir_channel *ch, uint32_t vqpn, const uint8_t *data);
/* Frees what has come for t and was not taken. */
void weir_notices_free(struct weir_thread *t);
/* The connection is freed: so is the memory of answers. */
void weir_results_free(struct weir_conn *c);

/* ---- connect.c ---- */
/* Whether the connection has opened: 0, -EAGAIN (not yet), or how the attempt ended. */
int weir_conn_opened(struct weir_conn *c);

/* ---- progress.c ---- */
/* Calls f, which may free its argument, for each connection of a worker. Worker locked. */
void weir_conns_each(struct weir_thread *t, void (*f)(struct weir_conn *c));

/* ---- ctrl_slots.c; worker locked ---- */
/* Adds slots to the engine, CTRL_*: written as soon as there is room. */
void weir_ctrl_add(struct weir_conn *c, uint8_t control);
void weir_ctrl_release(struct weir_channel *ch, weir_place place);
/*
 * The program took a notice that vqpn brought; the engine is told of several at a time, at once if
 * it is the `last` one there. False: it cannot be noted now, and stays.
 */
bool weir_ctrl_noticed(struct weir_channel *ch, uint32_t vqpn, bool last);
/*
 * Sees to memory for one refusal, before the connection that may be refused is begun or taken out
 * of the ring: else its other end would stay connected to nobody. 0 or -ENOMEM.
 */
int weir_ctrl_may_refuse(struct weir_channel *ch);
/* Closes a connection that cannot be taken, as soon as there is room. */
void weir_ctrl_refuse(struct weir_channel *ch, uint32_t vqpn);
/* c found no room in its channel's ring: WRITABLE is reported when there is. */
void weir_ctrl_need_room(struct weir_conn *c);
/* c needs no room any more. */
void weir_ctrl_room_unneeded(struct weir_conn *c);
/* A WANT of c is answered: if it asked for all that need room, another may ask. */
void weir_ctrl_want_answered(struct weir_conn *c);
/* Reports WRITABLE to connections for which there is room now. */
void weir_ctrl_report_room(struct weir_channel *ch);
/* Writes waiting slots. */
void weir_ctrl_flush(struct weir_channel *ch);
/* Reports all consumption and all released places to the engine. */
void weir_ctrl_report(struct weir_channel *ch);
/* Whether slots or released places wait for room in a ring. */
bool weir_ctrl_pending(const struct weir_channel *ch);
/* If so, wakes the threads that sleep at the worker, which write them later. */
void weir_ctrl_wake(struct weir_channel *ch);

/* ---- rx_place.c ---- */
/* The next POST that the engine doesn't know of; false: none. */
bool weir_posts_next(struct weir_conn *c, struct weir_slot *s);
/* Data of message `number` at `place`: NULL unless that memory was posted for it. */
uint8_t *weir_posted(struct weir_conn *c, uint64_t number, weir_place place, uint32_t length);
void weir_posts_free(struct weir_conn *c);

/* ---- channel_progress.c, segment_progress.c; worker locked ---- */
/* Data of c's message `number`, at `place` as its engine says; NULL: that can't be. */
uint8_t *weir_place_data(struct weir_conn *c, uint64_t number, weir_place place, uint32_t length);
/* Moves the message at the ring's head to the connection's queue. 0, -EPROTO, -ENOMEM. */
int weir_channel_enqueue(struct weir_conn *c, const struct weir_head *h);
unsigned weir_channel_progress(struct weir_channel *ch, struct weir_conn *want);
/*
 * A reply may overtake the end of its vQPN's last life, which is in the ring by then: takes that
 * in, and no slot after it, because that may be about the new life.
 */
void weir_channel_end_life(struct weir_channel *ch, uint32_t vqpn);
unsigned weir_segment_progress(struct weir_segment *seg, struct weir_conn *want);

/* Nothing has come: reports consumption soon, but not at each pause of a conversation. */
static inline void
weir_segment_idle(struct weir_segment *seg)
{
	if (weir_unlikely(++seg->pipe.empty == 8))
		weir_segment_report(seg);
}

/* CLOSED has come: ends the connection when all that the peer wrote before is taken in. */
void weir_segment_finish(struct weir_conn *c, uint32_t status);
/*
 * Takes the message or fragment at the ring's head: whole messages go to the connection's queue. 0,
 * -EPROTO, -ENOMEM.
 */
int weir_segment_take_fragment(struct weir_conn *c, const struct weir_head *h);
/*
 * Copies the lengths of the bundle at the ring's head, checked: the number of messages, -EPROTO.
 * *offset: of the first payload in the area, valid after weir_area_arrived() of the bundle.
 */
int weir_bundle_lengths(const struct weir_segment *seg, const struct weir_head *h,
			uint16_t lengths[WEIR_BUNDLE_MAX], uint64_t *offset);
/* *offset: of the whole message at the ring's head in the area. False: it is a fragment only. */
bool weir_segment_whole(struct weir_segment *seg, const struct weir_head *h, uint64_t *offset);
/*
 * The next message, of `length` bytes in fragments, is put together in a caller's buffer. 0,
 * -ENOMEM: memory to move it to is taken beforehand.
 */
int weir_assembly_lend(struct weir_conn *c, uint8_t *buf, uint32_t length);
/* The caller takes its buffer back: moves what has arrived. */
void weir_assembly_reclaim(struct weir_conn *c);

static inline bool
weir_assembly_is_lent(const struct weir_conn *c)
{
	return c->assembly && c->assembly_at != c->assembly->data;
}

/* A message is whole in a lent buffer: nothing more is taken in until weir_recv() returns it. */
static inline bool
weir_assembly_is_whole(const struct weir_conn *c)
{
	return c->assembly && c->assembled == c->assembly->length;
}
/* The peer broke the rules: ends the segment's connections. */
void weir_segment_spoil(struct weir_segment *seg);

/* ---- plane_lost.c ---- */
/* The data plane is gone: waits until c has ended, with all that came. False: not in time. */
bool weir_conn_await_end(struct weir_conn *c);

/* ---- rx_queue.c; worker locked ---- */
struct weir_rx_message *weir_rx_message_new(struct weir_thread *t, uint32_t length);
void weir_rx_message_free(struct weir_rx_message *p);
/* Copies an inline message at the pipe's head out of the ring. NULL: no memory, it stays. */
struct weir_rx_message *weir_rx_message_inline(struct weir_conn *c, const struct weir_head *h);
void weir_rx_queue_append(struct weir_conn *c, struct weir_rx_message *p);
/* Frees all messages not received. */
void weir_rx_queue_clear(struct weir_conn *c);
/*
 * The program gets a message of c on loan. All but a receive block counts as consumed; a block does
 * so when the loan ends, and until then against the largest window alone.
 */
void weir_loan_begin(struct weir_rx_message *p, struct weir_conn *c);
/* The program is done with a loan: frees it and counts it as consumed. c: its connection or NULL.
 */
void weir_loan_end(struct weir_rx_message *p, struct weir_conn *c);
/* Consumption is to be reported, now or later. */
void weir_conn_consumed_slow(struct weir_conn *c);

/*
 * c's message at the head of its ring is about to move to its queue. True: it is reported and
 * stays, once per position and kind of look, so that c receives it from the ring. This pays where
 * several messages of a connection follow each other, or for a large one. `want`: see
 * weir_progress().
 */
bool weir_conn_hold(struct weir_conn *c, const struct weir_conn *want, bool large);

/* `cost` was received. True: weir_conn_consumed_slow() has to follow. `local`: of c. */
static inline bool
weir_conn_note_consumed(struct weir_conn *c, uint32_t cost, bool local)
{
	c->consumed += cost;
	return c->consumed >= c->report_at ||
	       (local &&
		atomic_load_explicit(&WEIR_SEGMENT_OF(c->pipe)->in->wanted, memory_order_relaxed));
}

static inline void
weir_conn_consumed(struct weir_conn *c, uint32_t cost)
{
	if (weir_unlikely(weir_conn_note_consumed(c, cost, c->local)))
		weir_conn_consumed_slow(c);
}

/* ---- partial_send.c; worker locked ---- */
/* Pushes the part of c->partial that fits. 0: all is out; -EAGAIN, -EPROTO. */
int weir_partial_push(struct weir_conn *c);
/* The rest waits: in memory of a caller that waits, or in `ours`, which the connection frees. */
void weir_partial_keep(struct weir_conn *c, const struct weir_message_out *lender, uint8_t *ours);
void weir_partial_drop(struct weir_conn *c);
/* Sends END as soon as the segment has room, after a rest. */
void weir_partial_end(struct weir_conn *c);
/* Whether a part of the last message waits. */
static inline bool
weir_partial_left(const struct weir_conn *c)
{
	return c->partial_sent < c->partial_length;
}
/* Pushes the partial messages of all connections of a worker. How many moved. */
unsigned weir_partials_push(struct weir_thread *t);

/* ---- reserve.c ---- */
/* Frees the memory of all reservations: the program must not use it any more. Worker locked. */
void weir_reservations_clear(struct weir_conn *c);

/* ---- send.c ---- */
/* Whether a message of want_length could be sent now. Worker locked. */
bool weir_send_possible(struct weir_conn *c);

/* ---- reconnect.c ---- */
/* c reconnects when it is lost. 0 or -errno. */
int weir_reconnect_enable(struct weir_conn *c, const struct weir_address *address,
			  const struct weir_connect_options *o);
/* c is open: from now on it reconnects. */
void weir_reconnect_opened(struct weir_conn *c);
/* c has ended with this status, which is about to be reported. True: t reconnects; *cookie. */
bool weir_reconnect_begin(struct weir_thread *t, struct weir_conn *c, int status, uint64_t *cookie);
/* A try has an event. True: not one for the program, c may be gone. Worker locked. */
bool weir_reconnect_tried(struct weir_thread *t, struct weir_conn *c);
/* Starts tries that are due. Fills in up to n events of those given up. How many. */
unsigned weir_reconnect_step(struct weir_thread *t, struct weir_event *events, unsigned n);
/* Wakes the thread in `ms`, or earlier for its tries; UINT32_MAX: for these only. */
void weir_reconnect_timer(struct weir_thread *t, uint32_t ms);
/* c is freed. */
void weir_reconnect_forget(struct weir_conn *c);
/* Moves the tries of p, of an earlier session, to t. */
void weir_reconnects_follow(struct weir_thread *t, struct weir_thread *p);
void weir_reconnects_free(struct weir_thread *t);

/* ---- nodes.c ---- */
/* Whether there are node events for the thread. */
bool weir_nodes_any(struct weir_thread *t);
/* Fills in up to n events. How many. */
unsigned weir_nodes_take(struct weir_thread *t, struct weir_event *events, unsigned n);
void weir_node_table_free(struct weir_thread *t);
/* Moves the table of p, of an earlier session, to t. */
void weir_node_table_follow(struct weir_thread *t, struct weir_thread *p);

/* ---- listen.c ---- */
/* Puts l on its worker's list, if it is not there. Worker locked. */
void weir_listener_report(struct weir_listener *l);
/* A connection has left the listener's queue. */
void weir_listener_took(struct weir_listener *l);
/* Frees it and its queue; the data plane knows already, or is gone. Worker locked. */
void weir_listener_free(struct weir_listener *l);
/* The listeners of p, and of the caller's objects before that, listen again, on t, its own. */
void weir_listeners_follow(struct weir_thread *t, struct weir_thread *p);

#endif
