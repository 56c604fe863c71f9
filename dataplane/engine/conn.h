/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections inside an engine, what they owe and what waits for them. Private to its thread. */
#ifndef WEIR_ENGINE_CONN_H
#define WEIR_ENGINE_CONN_H

#include "engine.h"
#include "list.h"

#define RTS_MAX 8 /* bulk messages of a connection under way */

struct conn;
struct link;
struct session;
struct channel;

/* Control lines that a connection owes its peer, in the order in which they are written. */
enum owed {
	OWE_CONNECT = 0x1,
	OWE_ACCEPT = 0x2,
	OWE_GRANT = 0x4,
	OWE_RECLAIM = 0x8, /* no GRANT between this and its answer */
	OWE_RECLAIMED = 0x10,
	OWE_STALLED = 0x20,
	OWE_RTS = 0x40,
	OWE_CTS = 0x80,
	OWE_FIN = 0x100,
	OWE_RESET = 0x200,
	OWE_FIN_ACK = 0x400,
};

/* Events that a program will get about a connection. */
enum tell {
	TELL_OPENED = 0x1,
	TELL_ACCEPTED = 0x2,
	TELL_WRITABLE = 0x4,
	TELL_DONE = 0x8,
	TELL_CLOSED = 0x10,
};

enum pend_state {
	PEND_MESSAGE, /* goes into the ring when the window lets it */
	PEND_BULK,    /* by rendezvous: no RTS yet */
	PEND_ASKED,   /* RTS has left */
	PEND_WRITING, /* CTS has come */
	PEND_WRITTEN, /* all of it acknowledged: BULK may leave */
};

/* A slot that waits; the continuations of an inline message follow their head. */
struct pend {
	struct weir_slot slot;
	struct pend *next;
	struct conn *conn;
	/* bulk */
	uint64_t number, remote;
	uint32_t rkey, written;
	uint32_t in_flight; /* WRITEs */
	uint8_t state;	    /* enum pend_state */
	bool fetched;	    /* the peer has read it */
	uint16_t region;    /* of its payload, which it keeps; 0: the arena */
};

enum rts_state {
	RTS_WAITING,
	RTS_PLACED, /* CTS is due */
	RTS_ANSWERED,
	RTS_REFUSED,
	RTS_READING, /* READs leave, or are under way */
	RTS_READ,    /* all there: FETCHED is due */
	RTS_FETCHED,
};

/* A bulk message that the peer announced. */
struct rts {
	uint64_t number, address; /* address: at the peer */
	weir_place place;	  /* a run of receive blocks, or posted memory; when placed */
	uint32_t length;
	uint32_t rkey;
	uint32_t posted;   /* bytes that READs have been posted for */
	uint8_t in_flight; /* of those READs */
	uint8_t state;	   /* enum rts_state */
	uint8_t ways;	   /* WEIR_RTS_* */
	bool waited;	   /* there was no memory for it at first */
	bool delivered;	   /* the peer isn't told yet */
};

/*
 * What an idle connection doesn't touch. Entry i belongs to connection i of the table; what no
 * connection has used yet takes no memory. The lists are empty when the connection ends.
 */
struct conn_cold {
	struct pend *asked[RTS_MAX]; /* bulk messages whose RTS has left, oldest first */
	union {
		struct rts rts[RTS_MAX];  /* those that the peer announced */
		struct {		  /* datagram: ours alone, zeroed when it begins */
			uint64_t newest;  /* number that came last of all, 0 none */
			uint64_t came;	  /* bit i: newest - i has come */
			uint64_t dropped; /* no room */
			uint32_t qpn;	  /* of ours that the peer was told */
			uint16_t mtu;	  /* its largest message */
		} way;
	};
	struct list writing;  /* in queue.members (BULK): has segments to post */
	struct list fetching; /* in link.fetching */
	struct list starving; /* in session.starving: wants grant that isn't there */
	struct list placing;  /* in session.placing: wants a place for a bulk message; in
				 link.to_fetch: will */
	struct list closing;  /* in engine.closing: main isn't told yet */
	struct pend *post_first, *post_last; /* memory that the program posted, by number */
	uint64_t post_next;		     /* the next one has at least this number */
	uint64_t unspent; /* if conn.rejoined: cost of what was sent as bulk and goes by the ring */
};

/* There are tens of thousands of these: see the assertion below. */
struct conn {
	/* sending */
	uint32_t vqpn; /* 0: entry unused */
	uint16_t generation;
	uint8_t state; /* enum engine_conn_state */
	bool fast;     /* a message may go straight into the frame */
	bool accepts;  /* what the peer sends is delivered */
	bool in_turn;  /* has its quantum of this round */
	uint8_t tell;  /* enum tell */
	uint8_t asked_count, rts_count;
	uint8_t percent; /* of the window, at which its program wants credit returned; 0: ours */
	bool user_closed : 1; /* the program closed it, or died */
	bool abort : 1;	      /* ends with RESET, not FIN */
	bool refuses : 1;     /* the peer broke the rules: nothing of it is delivered any more */
	bool reset_sent : 1;
	bool sealed : 1;       /* `completed` is final */
	bool closed_told : 1;  /* CLOSED is in the program's ring, or nobody is there to read it */
	bool stall_told : 1;   /* STALLED has left, no GRANT since */
	bool wants : 1;	       /* WANT has no answer yet */
	bool bulk_refused : 1; /* the peer's NIC refused one: it isn't repeated */
	bool reclaiming : 1;   /* RECLAIM without an answer: no GRANT leaves */
	bool local : 1;	       /* both ends on this host */
	bool local_told : 1;   /* main knows that our local end closed, or that the other did */
	bool refused : 1;      /* never opened: OPENED says why */
	bool forget : 1;       /* bulk_forget() waits for READs in flight */
	bool lent : 1;	       /* the peer may still READ adopted memory of messages given up */
	bool datagram : 1; /* by the queue pair for datagrams: no window, no order, no repetition */
	bool rejoined : 1; /* cold.unspent counts */
	bool gone : 1;	   /* nothing refers to it: main is told, then the entry is free */
	uint16_t peer_node;
	uint32_t peer_vqpn;
	struct link *link; /* NULL: none yet, local, or the link has failed */
	struct session *session;
	uint64_t taken; /* messages taken from the program */
	union {
		struct {
			uint64_t granted, spent; /* cost; the peer's grant, what left against it */
			uint64_t sent;		 /* messages that left */
			uint64_t landed;	 /* of those: out of the peer's ring */
		};
		char service[WEIR_SERVICE_MAX]; /* while OPENING: which one it asks for */
	};
	uint64_t completed;
	uint64_t done_at; /* DONE is due until so many are complete, 0: it isn't */
	struct weir_conn_desc *desc;
	uint64_t returned; /* cost that the peer consumed, as it said with its last GRANT */
	uint32_t peer_window;
	uint32_t wanted;		     /* cost of WANT */
	struct pend *pend_first, *pend_last; /* slots that wait, in order */
	struct pend *rts_next;		     /* first bulk message whose RTS has not left */
	uint32_t pend_cost;		     /* of those that are not bulk */
	uint32_t bulk_flight;	    /* WRITEs and READs in flight, or of unknown outcome until the
				       link is repaired */
	uint32_t deficit;	    /* lines, in its program's round */
	uint32_t by_write, by_read; /* bulk messages sent and received */
	uint32_t by_send;	    /* messages of frames that went, and came, by SEND */
	uint32_t owed;		    /* enum owed */
	uint32_t status;	    /* errno of OPENED or CLOSED */

	/* receiving */
	struct channel *channel; /* where its events go */
	uint64_t rx_granted, rx_delivered,
	    rx_consumed; /* cost: granted to the peer, put into the session, taken by the program */
	uint64_t rx_messages; /* delivered */
	/* low bits: */
	uint32_t rx_told;  /* rx_consumed when credit was last returned */
	uint32_t rx_grown; /* rx_consumed when the window last changed with traffic */
	uint32_t rx_seen;  /* rx_delivered when reclaim looked last */
	uint32_t rx_window, rx_window_max;
	uint32_t rx_wanted; /* cost that the peer waits for */
	uint32_t spilled;   /* messages of it in receive blocks for want of ring */

	/* set at opening */
	uint32_t listener;
	uint32_t segment, conn_index; /* local */
	uint32_t was;		      /* vqpn of one that is gone */

	struct conn_cold *cold; /* its entry */
	struct list of_session, of_link;
	struct list active;  /* in queue.members (RING): the first that waits may leave */
	struct list owing;   /* in link.owing */
	struct list telling; /* in channel.telling */
};

/* An end of a connection, with its descriptor and what main keeps of it, is half a KiB. */
static_assert(sizeof(struct conn) <= 352, "idle connections are many: put it into conn_cold");

#endif
