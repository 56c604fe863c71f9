/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections. The lock of the connection's worker protects all of it. */
#ifndef WEIR_STREAM_CONN_H
#define WEIR_STREAM_CONN_H

#include "head.h"

#include "client/segment.h"
#include "client/session.h"
#include "client/thread.h"

#include <errno.h>

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

struct weir_lane;
struct weir_listener;
struct weir_message_out;
struct weir_posts;
struct weir_reconnect_state;
struct weir_remote_lane;
struct weir_reservation;
struct weir_results;
struct weir_rx_message;

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

/* The list of c's reporter, its worker, on which it waits to be reported. */
static inline struct weir_ready *
weir_ready_list(const struct weir_conn *c)
{
	return weir_unlikely(c->lane) ? &c->worker->lanes : &c->worker->ready;
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

/* ---- worker locked ---- */

/* Moves a connection; asserts that the pair of states is legal. */
void weir_conn_enter(struct weir_conn *c, enum weir_conn_state to);
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
/* Calls f, which may free its argument, for each connection of a worker. */
void weir_conns_each(struct weir_thread *t, void (*f)(struct weir_conn *c));

#endif
