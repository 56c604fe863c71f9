/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside sending: functions of send.c and transfer.c for zero-copy sends and other models. */
#ifndef WEIR_STREAM_SEND_H
#define WEIR_STREAM_SEND_H

#include "stream/conn.h"

#include <sys/uio.h>

/* A message to be sent. */
struct weir_message_out {
	const uint8_t *data;
	uint32_t length;
	uint32_t flags;
	uint64_t cookie;
	uint32_t block; /* data lies in this send block already, WEIR_BLOCK_NONE: it doesn't */
	struct weir_region *region; /* data lies in this region, kept; taken: NULL */
	bool in_place;		    /* data lies in the reserved part of the byte area */
	const struct iovec *parts;  /* data lies in these places; NULL: at `data` */
	uint8_t *copy;	  /* memory of `length` for the part that finds no room; taken: NULL */
	uint8_t transfer; /* WEIR_SLOT_* of the operation asked for; 0: any */
};

/* ---- transfer.c ---- */
/* Checks transport and operation in `flags`; `others`: flags that may be there, too. */
int weir_flags_check(unsigned flags, unsigned others);
/* WEIR_SLOT_* for the operation in checked flags. */
uint8_t weir_transfer_flags(unsigned flags);
/* Checks the flags of *m and fills in its way. 0, -EINVAL, -EMSGSIZE. */
int weir_message_transfer(const struct weir_conn *c, struct weir_message_out *m);

/* ---- send.c ---- */

/* Copies `bytes` of the message's data, from this offset on. */
void weir_message_copy(uint8_t *to, const struct weir_message_out *m, uint32_t from,
		       uint32_t bytes);
/* Sends without waiting. Worker locked. */
int weir_send_locked(struct weir_conn *c, struct weir_message_out *m);
/* The same for a message of any length: the connection copies what finds no room now. */
int weir_send_whole(struct weir_conn *c, struct weir_message_out *m);
/* Sends; waits for room until the timeout. */
int weir_send_message(struct weir_conn *c, struct weir_message_out *m, int timeout_ms);
/* The same for any length. */
int weir_send_large(struct weir_conn *c, struct weir_message_out *m, int timeout_ms);
/* WRITABLE is wanted for a message of `length`: asks the engine or the peer to report room. `bulk`:
 * it needs no window. Worker locked. */
void weir_send_blocked(struct weir_conn *c, uint32_t length, bool bulk);
/*
 * Nothing can be sent now: takes events that may change this. A program that only sends, and never
 * waits, makes no other call that takes them. False: there were none. Worker locked.
 */
bool weir_send_take_events(struct weir_conn *c);
/* The reason why nothing can be sent, or -EAGAIN. */
int weir_send_error(const struct weir_conn *c);
/* Whether a message of want_length could be sent now. Worker locked. */
bool weir_send_possible(struct weir_conn *c);
/* Makes progress on the worker while a sender waits. */
void weir_send_progress(struct weir_conn *c);

#endif
