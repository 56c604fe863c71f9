/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that can't leave at once: beyond the window, behind a bulk message, with the peer's ring
 * full or the program's rate used up. They wait per connection, in slots of their session's pool.
 */
#ifndef WEIR_ENGINE_SEND_QUEUE_H
#define WEIR_ENGINE_SEND_QUEUE_H

#include "engine.h"
#include "slot_head.h"

struct channel;
struct conn;
struct peer_link;
struct session;

enum {
	/* lines per connection and round of its program: any message fits */
	QUANTUM = 1 + WEIR_BLOCK_SIZE / WEIR_SLOT_SIZE,
};

enum pend_state {
	PEND_MESSAGE, /* goes into the ring when the window allows it */
	PEND_BULK,    /* by rendezvous: no RTS yet */
	PEND_ASKED,   /* RTS has left */
	PEND_WRITING, /* CTS has come */
	PEND_WRITTEN, /* all of it acknowledged: BULK may leave */
	/* put or get by WRITEs or READs, not begun; then WRITING, WRITTEN */
	PEND_TRANSFER,
};

/* A slot that waits; the continuations of an inline message follow their head. */
struct pend {
	struct weir_slot slot;
	struct pend *next;
	struct conn *conn;
	/* bulk */
	uint64_t number, remote;
	union {
		uint32_t rkey;
		uint32_t answer; /* of an operation: bytes of its answer, 0: none */
	};
	uint32_t written;
	uint32_t in_flight; /* WRITEs */
	uint8_t state;	    /* enum pend_state */
	union {
		bool fetched; /* the peer has read it */
		bool paid;    /* of an operation: the link's credit for its answer is taken */
		bool fenced;  /* of a put: the READ behind its WRITEs is posted */
	};
	uint16_t region; /* of its payload, which it keeps; 0: the arena */
};

struct pend *pend_take(struct session *s);
void pend_give(struct session *s, struct pend *p);
/* Removes the first slot that waits. */
void pend_give_first(struct session *s, struct conn *c);
/* The first entry of cold.asked is done with. */
void asked_drop_first(struct conn *c);
/* Copies the message at the channel's position; `checked`: what stands for its head, or NULL.
 * False: the session's pool has no room. */
bool pend_message(struct engine *e, struct conn *c, struct channel *ch, struct head h,
		  weir_place place, const struct weir_slot *checked);
/* Copies the payload of an inline message that waits. */
void pend_get_inline(const struct pend *p, uint8_t *to, uint32_t length);
/* Drops all messages that wait. Memory of WRITEs in flight stays until they have ended. */
void pend_drop(struct conn *c);
/* Completes the first message, a bulk message that the peer has read and delivered. */
void pend_delivered(struct engine *e, struct conn *c);
/* Whether only room in the ring keeps the first message that waits from leaving. */
bool conn_ready(const struct conn *c);
/* Gives a connection that is ready its part in the rounds of its program. */
void conn_activate(struct engine *e, struct conn *c);
/* After any change that concerns messages that wait: lets them leave, or asks for what they lack.
 */
void conn_advance(struct engine *e, struct conn *c);
/* Sends messages that wait for this link, as far as the frame has room. */
void link_send_queued(struct engine *e, struct peer_link *l);

#endif
