/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of an engine: the window, messages that wait, control lines and events due. */
#ifndef WEIR_ENGINE_CONN_H
#define WEIR_ENGINE_CONN_H

#include "engine.h"
#include "flight.h"
#include "base/list.h"
#include "rndv.h"
#include "session.h"
#include "state.h"

struct export;
struct peer_link;
struct pend;

enum lock_state {
	LOCK_NONE,
	LOCK_WAITS,
	LOCK_HELD,
};

/* The lock of the export as one connection asks for it. */
struct conn_lock {
	/* beginning end */
	uint32_t number, result; /* of the LOCK that is awaited, as in struct awaited */
	bool awaited;		 /* it has left, or waits here, and LOCKED has not come */
	bool begun;		 /* LOCK was taken from the program, and no UNLOCK */
	bool silent;		 /* LOCKED has not come for what was taken */
	/* executing end */
	uint8_t state;		 /* enum lock_state */
	bool cut;		 /* the connection ended while it waited */
	bool by_words;		 /* the last LOCK was granted by words (ipc/lock_words.h) */
	uint16_t member;	 /* whose words it stands for; 0: nobody's */
	weir_lock_status status; /* of LOCKED, if that is due */
	struct engine_seat seat;
	/* if another engine is the owner */
	uint8_t wanted;		  /* WEIR_LOCKS_* */
	bool ask_due;		  /* main must hear of the request */
	bool drop_due;		  /* and before, of the end of the last one */
	bool dropping;		  /* main has heard of that end, the owner has not answered */
	struct engine_lock asked; /* of what main heard last, or hears as its end */
	struct list_node news;	  /* in engine.lock_news */
};

/*
 * Fields that an idle connection doesn't touch. Entry i belongs to connection i of the table; an
 * entry that no connection has used yet takes no memory. The lists are empty when the connection
 * ends.
 */
struct conn_cold {
	struct pend *asked[RTS_MAX]; /* bulk messages whose RTS has left, oldest first */
	union {
		struct rts rts[RTS_MAX]; /* stream: announced by the peer */
		struct {
			union { /* ours alone, zeroed when it begins */
				struct {
					uint64_t
					    newest;    /* largest number that has arrived, 0 none */
					uint64_t came; /* bit i: newest - i has arrived */
					uint64_t dropped; /* no room */
					uint32_t qpn;	  /* our QP, as the peer knows it */
					uint16_t mtu;	  /* its largest message */
				} dgram;
				struct {
					struct export *export; /* executing end; NULL: revoked */
					uint64_t length;       /* bytes of the export */
					/* of which runs of operations are taken: `length`; 0 at the
					 * executing end of a dynamic export */
					uint64_t direct;
					uint32_t rights; /* WEIR_RIGHT_* */
					struct list_node of_export;
					/* executing end: the export whose key the peer has, also
					 * after it was revoked; NULL: none */
					struct export *keyed;
					uint32_t keyed_generation;
					/* executing end: operations outside the ranges of a dynamic
					 * export */
					uint64_t refused;
					uint64_t cells; /* beginning end: that have left */
					/* executing end: what ACCEPT says; beginning: said */
					struct weir_wire_key key;
					/* executing end: answers in link.is.answers */
					uint32_t answers_waiting;
					uint16_t answers; /* low bits of their count */
					/* beginning end: a FIFO in link.awaited; 1 + index, 0:
					 * empty */
					uint16_t awaited_first, awaited_last;
					uint64_t answered; /* all operations before this one */
					struct list_node lacks_answers; /* in link.lack_answers */
					uint32_t lacked; /* if there: bytes of credit */
					struct conn_lock lock;
				} memory;
			};
			char refusal[WEIR_REFUSAL_MAX]; /* if conn.reasoned, which never opens */
		};
	};
	struct list_node writing;      /* in queue.members (BULK): has segments to post */
	struct list_node reading;      /* in link.reading */
	struct list_node awaits_grant; /* in session.awaits_grant: lacks memory for a grant */
	/* in session.awaits_place: lacks a place for a bulk message; in link.to_read: will */
	struct list_node awaits_place;
	struct list_node settling;	     /* in engine.settling: may have come to its end */
	struct list_node closing;	     /* in engine.closing: main isn't told yet */
	struct pend *post_first, *post_last; /* memory that the program posted, by number */
	uint64_t post_next;		     /* the next one has at least this number */
	uint32_t rx_lent; /* cost beyond rx_consumed that the program holds on loan */
	uint64_t unspent; /* if conn.rejoined: cost of bulk messages that go through the ring */
};

/* Tens of thousands of these exist: see the assertion below. */
struct conn {
	/* sending */
	uint32_t vqpn; /* 0: entry unused */
	uint16_t generation;
	uint8_t state;	    /* enum engine_conn_state */
	uint8_t kind;	    /* enum engine_conn_kind */
	bool fast;	    /* a message may go straight into the frame */
	bool accepts;	    /* messages of the peer are delivered */
	bool in_turn;	    /* got its quantum of this round */
	uint8_t events_due; /* enum app_event */
	uint8_t asked_count, rts_count;
	uint8_t percent;      /* of the window: consumed when credit is returned; 0: default */
	bool user_closed : 1; /* the program closed it, or died */
	bool abort : 1;	      /* ends with RESET, not FIN */
	bool reset_sent : 1;
	bool holds : 1;	       /* the link's credit, until its RESET has left: ctrl_line_hold() */
	bool sealed : 1;       /* `completed` is final */
	bool closed_told : 1;  /* CLOSED is in the program's ring, or the program is gone */
	bool stall_told : 1;   /* STALLED has left, no GRANT since */
	bool wants : 1;	       /* WANT has no answer yet */
	bool bulk_refused : 1; /* a NIC refused a WRITE or READ: it isn't repeated */
	bool reclaiming : 1;   /* RECLAIM without an answer: no GRANT leaves */
	bool local : 1;	       /* both ends on this host */
	bool local_told : 1;   /* main knows that our local end closed, or that the other did */
	bool refused : 1;      /* never opened: OPENED says why */
	bool forget : 1;       /* bulk_forget() waits for READs in flight */
	bool memory_lent : 1;  /* the peer may still READ adopted memory of messages given up */
	bool rejoined : 1;     /* cold.unspent counts */
	bool held : 1;	    /* its program, which accepted it, has not decided yet (CONN_DECIDE) */
	bool reasoned : 1;  /* refused, or to be refused: cold.refusal says why */
	bool shut : 1;	    /* the program sends no more */
	bool end_sent : 1;  /* END has left */
	bool peer_shut : 1; /* END came: the peer sends no more */
	bool ended : 1;	    /* no object refers to it: main is told, then the entry is free */
	/* WRITEs and READs that a NIC refused since the last one that succeeded */
	uint8_t bulk_doubts : FLIGHT_DOUBT_BITS;
	uint16_t peer_node;
	uint32_t peer_vqpn;
	struct peer_link *link; /* NULL: none yet, local, or the link has failed */
	struct session *session;
	uint64_t bytes; /* payload of messages taken from the program and delivered to it */
	uint64_t taken; /* messages taken from the program */
	union {
		struct {
			uint64_t granted,
			    spent;     /* cost that the peer granted; cost of messages that left */
			uint64_t sent; /* messages that left */
			uint64_t landed; /* messages that the peer took out of its ring */
		};
		char service[WEIR_SERVICE_MAX]; /* while OPENING: the service asked for */
	};
	uint64_t completed;
	uint64_t done_at; /* DONE is due once `completed` reaches this; 0: no DONE is due */
	struct weir_conn_desc *desc; /* passive end: engine.no_desc */
	uint64_t returned;	     /* cost that the peer consumed, by its last GRANT */
	uint32_t peer_window;
	uint32_t wanted;		     /* cost of WANT */
	struct pend *pend_first, *pend_last; /* slots that wait, in order */
	struct pend *rts_next;		     /* first bulk message whose RTS has not left */
	uint32_t pend_cost;		     /* cost of messages that wait and are not bulk */
	uint32_t bulk_flight;	    /* WRITEs and READs in flight, or unknown until repair */
	uint32_t deficit;	    /* lines, in its program's round */
	uint32_t by_write, by_read; /* bulk messages sent and received */
	uint32_t by_send;	    /* messages of frames sent and received by SEND */
	uint32_t ctrl_lines;	    /* enum ctrl_line */
	uint32_t status;	    /* errno of OPENED or CLOSED */

	/* receiving */
	struct channel *channel; /* of the program thread that gets its events; passive end: NULL */
	uint64_t rx_granted, rx_delivered,
	    rx_consumed;      /* cost: granted to the peer, put into the session, consumed */
	uint64_t rx_messages; /* delivered */
	/* low bits of counts */
	uint32_t rx_told;  /* cost that it had taken when credit was last returned */
	uint32_t rx_grown; /* the same, when the window last changed with traffic */
	uint32_t rx_seen;  /* rx_delivered when reclaim looked last */
	uint32_t rx_window, rx_window_max;
	union {
		uint32_t rx_wanted;  /* cost that the peer waits for */
		uint32_t ended_vqpn; /* once `ended`: vqpn until then */
	};
	uint32_t spilled; /* messages in receive blocks because the program's ring was full */

	/* set at opening */
	uint32_t listener;
	uint32_t segment, conn_index; /* local */

	struct conn_cold *cold;
	struct list_node of_session, of_link;
	struct list_node active;   /* in queue.members (RING): the first that waits may leave */
	struct list_node ctrl_due; /* in link.ctrl_due */
	struct list_node events;   /* in channel.events */
};

/* One end of a connection, with its descriptor and main's entry, takes half a KiB. */
static_assert(sizeof(struct conn) <= 352, "idle connections are many: put it into conn_cold");

/* Granted without flow control: more cost than a connection can ever send. */
#define GRANT_ALL (1ull << 62)

/* Recomputes conn.fast: whether messages may go straight into a frame. */
void conn_refresh(struct conn *c);
/* An entry for a connection of s, or NULL. */
struct conn *conn_new(struct engine *e, struct session *s, const struct engine_conn_command *k);
void conn_attach(struct engine *e, struct conn *c, struct peer_link *l);

/* Moves a connection; asserts that the pair of states is legal. */
void conn_enter(struct conn *c, enum engine_conn_state to);

/* ACCEPT came, or we queued it. */
void conn_opened(struct engine *e, struct conn *c, uint32_t peer_vqpn, uint64_t granted,
		 uint32_t window);
/* The connection never opened: REJECT, or no link to the peer. */
void conn_refused(struct engine *e, struct conn *c, uint32_t status);
/* Why a program refuses it, WEIR_REFUSAL_MAX bytes; empty: for no stated reason. */
void conn_set_refusal(struct conn *c, const char *reason);
/* The next part of the peer's reason. False: it is too long. */
bool conn_add_refusal(struct conn *c, const char *part, size_t length);
/* ENGINE_CONN_DECIDE. 0 or -ENOENT. */
int conn_decide(struct engine *e, struct conn *c, const struct engine_conn_command *k,
		const char *refusal);
/* The program closed the connection; `abort`: the program died. */
void conn_user_close(struct engine *e, struct conn *c, bool abort);
/* The program sends no more messages on an open connection, but receives. */
void conn_user_shut(struct engine *e, struct conn *c);
/* Sends END or FIN, as the program asked, once no message waits any more. */
void conn_try_finish(struct engine *e, struct conn *c);
/* Ends the connection from our side: the peer gets RESET, the program CLOSED with status. `refuse`:
 * the peer's messages are no longer delivered. */
void conn_abort(struct engine *e, struct conn *c, uint32_t status, bool refuse);
/* FIN or, with `seal`, RESET came: from now on the peer only acknowledges. */
void conn_peer_ended(struct engine *e, struct conn *c, uint32_t status, bool seal);
/* END: the peer sends no more messages. False: it has announced one, or said so before. */
bool conn_peer_shut(struct engine *e, struct conn *c);
/* FIN_ACK: the last line of the peer. */
void conn_peer_acknowledged(struct engine *e, struct conn *c);
void conn_link_failed(struct engine *e, struct conn *c, uint32_t status);
void conn_local_closed(struct engine *e, struct conn *c, uint32_t status);
/* Has the next turn look whether the connection has come to its end; callers keep using it. */
void conn_settle_later(struct engine *e, struct conn *c);
/* Ends the marked connections that have no step left: tells programs and main. Once per turn. */
void conns_settle(struct engine *e);
/* n more messages lie in the receiving session. */
void conn_completed(struct engine *e, struct conn *c, uint32_t n, bool notify);
/* The first operation that waited, a transfer, is complete, as are all before it. */
void conn_transferred(struct engine *e, struct conn *c);

static inline struct conn *
conn_find(struct engine *e, uint32_t vqpn)
{
	uint32_t i = WEIR_VQPN_INDEX(vqpn) - e->first_index;

	if (UNLIKELY(i >= e->conns_fresh || e->conns[i].vqpn != vqpn || !vqpn))
		return NULL;
	return &e->conns[i];
}

/* Whether queued messages may leave, and control lines of both directions count. */
static inline bool
conn_is_open(const struct conn *c)
{
	return c->state == CONN_OPEN || c->state == CONN_FINISHING;
}

/* Messages that the peer has taken, or will take, out of its ring. */
static inline uint64_t
conn_wire_sent(const struct conn *c)
{
	return c->kind == CONN_MEMORY ? c->cold->memory.cells : c->sent;
}

/* Whether it is the accepting end of a memory connection. */
static inline bool
conn_is_passive(const struct conn *c)
{
	return !c->channel;
}

static inline uint32_t
conn_desc_index(const struct conn *c)
{
	const struct engine_session *s = c->session->shared;
	const uint8_t *first = s->base + weir_arena_descs(&s->geometry);

	if (conn_is_passive(c))
		return ENGINE_DESC_NONE;
	return (uint32_t)(c->desc - (const struct weir_conn_desc *)(const void *)first);
}

/* The connection that a cold entry belongs to. */
static inline struct conn *
conn_of_cold(const struct engine *e, const struct conn_cold *cold)
{
	return &e->conns[cold - e->cold_conns];
}

#endif
