/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on remote memory. The engine of the program that begins one checks it and passes it
 * on; the engine of the memory checks it again and executes it, at once. Where program and memory
 * are on one host and nothing is mapped (apart), one engine is both.
 */
#ifndef WEIR_ENGINE_REMOTE_H
#define WEIR_ENGINE_REMOTE_H

#include "channel.h"
#include "conn.h"

/* Takes an operation, or FLUSH, from the head of a channel. c: its connection, the program's own.
 */
enum take remote_take(struct engine *e, struct channel *ch, struct conn *c,
		      const struct weir_slot *slot);
/*
 * Takes the PUTs of c at the channel's head that go into the open frame, up to position `end`
 * there. Returns their number, 0 if the first one needs more than that.
 */
unsigned remote_take_puts(struct engine *e, struct channel *ch, struct conn *c,
			  const struct weir_slot *slot, uint64_t end);
/*
 * Takes the operation at `pos`, in a frame that ends at `end`. Returns its lines, or -1: the frame
 * is malformed.
 */
int remote_receive(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end);
/* An operation of c was put into the open frame: asks for its credit if c flushes up to it. */
void remote_sent(struct peer_link *l, const struct conn *c);
/* Bytes of the answer to an operation that has been checked; 0: it has none. */
uint32_t remote_answer_bytes(const struct weir_slot *cell);

#endif
