/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside sending: what send.c offers to zero-copy sends and to flush. */
#ifndef WEIR_STREAM_SEND_H
#define WEIR_STREAM_SEND_H

#include "stream/conn.h"

#include <sys/uio.h>

/* What is sent, and how. */
struct weir_message_out {
	const uint8_t *data;
	uint32_t length;
	uint32_t flags;
	uint64_t cookie;
	uint32_t block; /* data lies in this send block already, WEIR_BLOCK_NONE: it doesn't */
	struct weir_region *region; /* data lies in this region, kept; taken: NULL */
	bool in_place;		    /* data lies in what is reserved of the byte area */
	const struct iovec
	    *parts; /* what `data` would be lies in so many places; NULL: it doesn't */
	uint32_t part_count;
	uint8_t *copy; /* memory of `length` for what finds no room; taken: NULL */
	uint8_t way;   /* WEIR_SLOT_* that say which one is asked for; 0: any */
};

/* ---- transfer.c ---- */
/* Whether transport and operation in `flags` go together; `others`: what else may be there. */
int weir_flags_check(unsigned flags, unsigned others);
/* WEIR_SLOT_* for the operation in checked flags. */
uint8_t weir_way(unsigned flags);
/* Checks the flags of *m and fills in its way. 0, -EINVAL, -EMSGSIZE. */
int weir_message_way(const struct weir_conn *c, struct weir_message_out *m);

/* ---- send.c ---- */

/* Copies what is sent to one place. */
void weir_message_fill(uint8_t *to, const struct weir_message_out *m);
/* Sends without waiting. Worker locked. */
int weir_send_locked(struct weir_conn *c, struct weir_message_out *m);
/* Sends, waiting for room as long as it may. */
int weir_send_message(struct weir_conn *c, struct weir_message_out *m, int timeout_ms);
/* The same for any length. */
int weir_send_large(struct weir_conn *c, struct weir_message_out *m, int timeout_ms);
/* Remembers that WRITABLE is wanted and says so to whom it concerns. `bulk`: it needs no window.
 * Worker locked. */
void weir_send_blocked(struct weir_conn *c, uint32_t length, bool bulk);
/* Why nothing can be sent, or -EAGAIN. */
int weir_send_error(const struct weir_conn *c);
/* Moves what waits on the rings, while a sender waits. */
void weir_send_progress(struct weir_conn *c);

#endif
