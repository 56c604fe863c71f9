/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks that have arrived, until all of their fragments are read. */
#ifndef WEIR_SHUFFLE_HELD_H
#define WEIR_SHUFFLE_HELD_H

#include "shuffle.h"

struct held {
	STAILQ_ENTRY(held) next;
	struct shuffle_thread *t; /* to which it came, and whose memory it is */
	struct block_head head;
	const uint8_t *raw;    /* fragments, head.raw bytes */
	uint8_t *memory;       /* they lie there; NULL: where they arrived */
	uint32_t bytes;	       /* of `memory`, as memory_buffer() gave it */
	uint64_t charged;      /* bytes of the account, or lent by the session */
	struct weir_kept kept; /* memory NULL */
	_Atomic uint32_t refs;
	enum memory_side side; /* of the account */
	/* STAGE, under the lock of the store: a thread writes it to a file; it cannot be written */
	bool leaving, stuck;
};
STAILQ_HEAD(helds, held);

/*
 * Takes the payload of a call, checked, unpacked; a large one may stay where it arrived. `local`:
 * as the call says. NULL: malformed or no memory; the call has been refused. One reference.
 */
struct held *held_take(struct shuffle_thread *t, struct weir_incoming *c, uint32_t local);
/* Any thread. */
void held_ref(struct held *b);
void held_unref(struct held *b);
/* Nobody reads it. */
void held_drop(struct shuffle_thread *t, struct held *b);

#endif
