/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flow-control window of connections: spent and returned at the sending end, granted at the
 * receiving end.
 */
#ifndef WEIR_ENGINE_CREDIT_H
#define WEIR_ENGINE_CREDIT_H

#include "conn.h"

/* ---- sending end ---- */

static inline void
credit_spend(struct conn *c, uint32_t cost)
{
	weir_assert(c->granted - c->spent >= cost);
	c->spent += cost;
}

/* A bulk message, for which the program spent no window, goes by the ring: the program sees that
 * much less granted. */
void credit_unspent(struct conn *c, uint32_t cost);
/* GRANT came. */
void credit_return(struct engine *e, struct conn *c, uint64_t granted, uint64_t consumed,
		   uint32_t window);
/* RECLAIM came: releases the window that no message can use at once. */
void credit_hand_back(struct engine *e, struct conn *c);
/* Cost of the first message that waits, or of WANT, if the window lacks it; else 0. */
uint32_t credit_missing(const struct conn *c);
/* Answers WANT once there is window beyond that of the messages that wait. */
void credit_answer_want(struct engine *e, struct conn *c);
/* Tells the peer, once per GRANT, that a message waits for window. */
void credit_stalled(struct engine *e, struct conn *c);

/* ---- receiving end ---- */

/* The grant of a new connection. */
void credit_first(struct engine *e, struct conn *c);
/*
 * The program reports cost that it consumed, and of what it holds on loan; percent: part of the
 * window after which credit is returned, 0: ours. False: more than was delivered.
 */
bool credit_consumed(struct engine *e, struct conn *c, uint64_t consumed, uint32_t lent,
		     uint32_t percent);
/* STALLED came: the peer waits for this cost. */
void credit_wanted(struct engine *e, struct conn *c, uint32_t cost);
/* RECLAIMED came. */
void credit_reclaimed(struct engine *e, struct conn *c, uint64_t granted);
/* Asks some idle senders for their unused window. */
void credit_reclaim_some(struct engine *e, struct session *s);
/* Messages of the peer are no longer delivered: its grant ends. */
void credit_withdraw(struct engine *e, struct conn *c);

#endif
