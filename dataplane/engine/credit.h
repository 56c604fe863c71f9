/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flow-control window of connections: spent and returned at the sending end, granted at the
 * receiving end.
 */
#ifndef WEIR_ENGINE_CREDIT_H
#define WEIR_ENGINE_CREDIT_H

#include "conn.h"

#include <assert.h>

/* ---- sending end ---- */

static inline void
credit_spend(struct conn *c, uint32_t cost)
{
	assert(c->granted - c->spent >= cost);
	c->spent += cost;
}

/* A message for which the program spent nothing goes by the ring: the program sees less granted. */
void credit_unspent(struct conn *c, uint32_t cost);
/* GRANT came. */
void credit_return(struct engine *e, struct conn *c, uint64_t granted, uint64_t consumed,
		   uint32_t window);
/* RECLAIM came: releases what no message needs that could leave at once. */
void credit_hand_back(struct engine *e, struct conn *c);
/* Window that the first message that waits, or the program, lacks; 0: another reason. */
uint32_t credit_missing(const struct conn *c);
/* Answers WANT once there is window beyond what waits already. */
void credit_answer_want(struct engine *e, struct conn *c);
/* Tells the peer that messages wait for window, once per GRANT. */
void credit_stalled(struct engine *e, struct conn *c);

/* ---- receiving end ---- */

/* The grant of a new connection. */
uint32_t credit_first(struct engine *e, struct conn *c);
/*
 * The program consumed; percent: part of the window after which credit is returned, 0: ours. False:
 * more than was delivered.
 */
bool credit_consumed(struct engine *e, struct conn *c, uint64_t consumed, uint32_t percent);
/* STALLED came: the peer waits for this cost. */
void credit_wanted(struct engine *e, struct conn *c, uint32_t cost);
/* RECLAIMED came. */
void credit_reclaimed(struct engine *e, struct conn *c, uint64_t granted);
/* Asks some idle senders for window that they don't use. */
void credit_reclaim_some(struct engine *e, struct session *s);
/* The peer's messages are no longer delivered: takes its grant back. */
void credit_withdraw(struct engine *e, struct conn *c);

#endif
