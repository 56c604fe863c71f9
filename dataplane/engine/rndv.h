/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large messages by rendezvous: the sender announces one (RTS), and then either writes it to the
 * place that the receiver names (CTS) or lets the receiver read it (FETCHED).
 */
#ifndef WEIR_ENGINE_RNDV_H
#define WEIR_ENGINE_RNDV_H

#include "engine.h"
#include "flight.h"

struct conn;
struct peer_link;
struct pend;
struct session;

enum {
	LOAD_READ = 150, /* 1/1000; read when the sender's load exceeds ours by more than this */
	LOAD_WRITE = 50, /* 1/1000; write again when it exceeds ours by no more than this */
	SCARCE_PART = 4, /* read while less than 1/SCARCE_PART of the receive blocks are free */
	PLACED_MESSAGES = 2,	/* WRITEs may go to this many messages per connection at least */
	PLACED_BYTES = 2 << 20, /* and to this many bytes: further places would leave the caches */
};

#define RTS_MAX 8 /* rendezvous messages under way per connection and direction */

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
	bool waited;	   /* for receive memory */
	bool delivered;	   /* FETCHED hasn't left yet */
};

/* Receive blocks that a message of this length takes. */
static inline uint32_t
bulk_blocks(uint32_t length)
{
	return length ? (length + WEIR_BLOCK_SIZE - 1) / WEIR_BLOCK_SIZE : 1;
}

/* Whether receive memory is reserved for the message. */
static inline bool
bulk_has_place(const struct rts *r)
{
	return r->state != RTS_WAITING && r->state != RTS_REFUSED && !r->delivered;
}

/* ---- sending end, and WRITEs ---- */

/* WEIR_RTS_*: the ways in which the peer may get this message. */
uint32_t bulk_ways(const struct pend *p);
/* RTS has left. */
void bulk_ask(struct conn *c, struct pend *p);
/* Sends bulk messages that fit the window by now, and are not announced yet, through the ring. */
void bulk_rejoin(struct conn *c);
/* CTS came. False, here and below: the peer broke the rules. */
bool bulk_answered(struct engine *e, struct conn *c, const struct weir_wire_cts *cts);
/* FETCHED came: the peer has read the message, and delivered it if all before it were. */
bool bulk_fetched(struct engine *e, struct conn *c, uint64_t number, bool delivered);
extern const struct flight_owner rndv_write;
void bulk_cancel(struct conn *c);

/* ---- receiving end ---- */

/* RTS came. */
bool bulk_asked(struct engine *e, struct conn *c, const struct weir_wire_rts *rts, uint32_t length);
/* BULK came: the message lies in its place. */
bool bulk_arrived(struct engine *e, struct conn *c, uint64_t number);
/* Reserves receive memory for announced messages of the session that wait for it. */
void bulk_place(struct engine *e, struct session *s);
void bulk_remove(struct conn *c, uint32_t i);
/* Releases the memory of announced messages, once no READ into it is in flight. */
void bulk_forget(struct engine *e, struct conn *c);

/* ---- receiving end, READs ---- */

/* Whether we READ the message, instead of letting the peer WRITE it. */
bool rndv_read_is_better(const struct engine *e, const struct conn *c, const struct rts *r);
/* The message has a place: READs may leave. */
void rndv_read_begin(struct engine *e, struct conn *c, struct rts *r);
extern const struct flight_owner rndv_read;

#endif
