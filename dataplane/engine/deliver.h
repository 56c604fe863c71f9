/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of peers, put into the memory of the session that receives them. */
#ifndef WEIR_ENGINE_DELIVER_H
#define WEIR_ENGINE_DELIVER_H

#include "conn.h"
#include "link.h"
#include "slot_head.h"

/* Puts a message at a place of the ring into a receive block. Returns the lines that it took. */
int deliver_place(struct engine *e, struct conn *c, struct head h, const struct peer_link *l,
		  uint64_t pos);
/* Delivers a bulk message that lies in its place already. */
void deliver_bulk(struct engine *e, struct conn *c, const struct rts *r);
/* The peer broke the rules: ends the connection with RESET. Returns false. */
bool peer_misbehaved(struct engine *e, struct conn *c);

/* Counts messages that may be delivered against the grant. */
static inline void
admitted(struct engine *e, struct conn *c, uint64_t messages, uint64_t bytes, uint32_t cost)
{
	c->rx_delivered += cost;
	c->rx_messages += messages;
	c->bytes += bytes;
	c->session->promised -= cost;
	if (UNLIKELY(c->link->rx_send))
		c->by_send += (uint32_t)messages;
	count(&e->counters.rx_messages, messages);
	count(&e->counters.rx_bytes, bytes);
}

/* Whether a message of this cost may be delivered; counts it against the grant. */
static inline bool
admit(struct engine *e, struct conn *c, struct head h, uint32_t cost)
{
	if (UNLIKELY(!c->accepts)) {
		count(&e->counters.stray, 1);
		ctrl_line_hold(c);
		return (c->peer_shut || c->kind == CONN_MEMORY) && peer_misbehaved(e, c);
	}
	if (UNLIKELY((uint16_t)c->rx_messages != h.order || c->rx_granted - c->rx_delivered < cost))
		return peer_misbehaved(e, c);
	admitted(e, c, 1, h.length, cost);
	return true;
}

#endif
