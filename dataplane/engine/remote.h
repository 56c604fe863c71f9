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
#include "send_queue.h"

/* Takes an operation, or FLUSH, from the head of a channel. c: its connection, the program's own.
 */
enum take remote_take(struct engine *e, struct channel *ch, struct conn *c,
		      const struct weir_slot *slot);
/*
 * Takes the operations of c at the channel's head that go into the open frame, are all PUTs or all
 * UPDATEs, and want nothing back, up to position `end` there. Returns their number, 0 if the first
 * one needs more than that.
 */
unsigned remote_take_run(struct engine *e, struct channel *ch, struct conn *c,
			 const struct weir_slot *slot, uint64_t end);
/*
 * Takes the operation at `pos`, in a frame that ends at `end`. Returns its lines, or -1: the frame
 * is malformed.
 */
int remote_receive(struct engine *e, struct peer_link *l, uint64_t pos, uint64_t end);
/* An operation of c was put into the open frame: asks for its credit if c flushes up to it. */
void remote_sent(struct peer_link *l, const struct conn *c);
/*
 * Puts and gets by WRITEs and READs (transfer.c). Takes one from the head of a channel; `cell`: a
 * copy of the slot, of an operation that c may begin.
 */
enum take transfer_take(struct engine *e, struct channel *ch, struct conn *c,
			const struct weir_slot *cell);
/* Completes those that are done, and begins those that may: after any change that concerns them. */
void transfers_advance(struct engine *e, struct conn *c);
/* Whether the first operation that waits is one that earlier cells keep from going on. */
bool transfer_awaits_cells(const struct conn *c);
/* Bytes at the end of a put that are READ, so that the WRITEs before are visible; 0: they are when
 * they are acknowledged. */
uint32_t transfer_fence(const struct conn *c, const struct pend *p);
/* Makes the WR of a segment that of a put or get; makes that of a fence. */
void transfer_fill(const struct conn *c, const struct pend *p, struct nic_send_wr *wr);
/* The fence of p is posted again, if it was: 1, else 0. */
uint32_t transfer_rewind_fence(const struct conn *c, struct pend *p);
void transfer_fill_fence(const struct engine *e, const struct conn *c, struct nic_send_wr *wr);

#endif
