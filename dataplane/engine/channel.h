/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels: the rings between one thread of a program and this engine, their doorbells, and slots
 * spilled into receive blocks while the program's ring is full.
 */
#ifndef WEIR_ENGINE_CHANNEL_H
#define WEIR_ENGINE_CHANNEL_H

#include "conn.h"
#include "session.h"

enum {
	DEAR = 16, /* slots charged for a slot that is no message, and for a look at a channel */
};

/* TAKEN_DEAR: the slot left nothing to send, and is charged as DEAR slots. */
enum take { TAKEN, STAYS, TAKEN_DEAR };

struct channel {
	struct session *session; /* NULL: doesn't exist */
	struct weir_ring tx, rx, returns;
	struct weir_channel_head *head;
	uint32_t empty; /* turns without work */
	bool spilling;	/* messages that arrive are spilled, behind earlier ones */
	bool blocked;	/* the first slot waits for an earlier message or for room in the engine */
	bool bell_due;	/* published since the bell was last looked at */
	bool fence;
	uint32_t doorbell;
	uint64_t bell_at; /* ns: theoretical arrival time of the next doorbell */
	uint32_t opening; /* connections whose OPENED or ACCEPTED waits for room */
	/* spilled slots: a chain of receive blocks */
	uint32_t spill_first, spill_last; /* blocks */
	uint32_t spill_from, spill_to;	  /* slots in those blocks */
	uint32_t spill_count;
	struct list_node events;  /* connections with events */
	struct list_node polled;  /* in engine.hot or engine.cold */
	struct list_node backlog; /* in engine.backlog */
	struct list_node bell;	  /* in engine.doorbells */
};

void channel_init(struct engine *e, struct session *s, uint32_t index, uint32_t doorbell,
		  bool fence);
void channel_fini(struct channel *ch);
/* Takes slots of programs; returns their number. */
unsigned channels_poll(struct engine *e);
void channels_housekeeping(struct engine *e);
/* The slot at the channel's head breaks the rules: its session ends. */
enum take channel_refuse(struct engine *e, struct channel *ch, const char *reason);
/* Whether the first slot waits for an earlier message of its connection. */
bool channel_out_of_order(struct engine *e, const struct channel *ch);
bool channel_has_work(const struct channel *ch);
/* Slow path of channel_room(): reads the program's position. */
bool channel_find_room(struct engine *e, struct channel *ch, uint32_t n);

/* Rings the doorbells that are due. */
void doorbells_ring(struct engine *e);
/* ns: when the next doorbell that waits may be rung. */
uint64_t doorbells_next(const struct engine *e);

/* ---- spilling ---- */

/* Recomputes channel.spilling; backlogs_drain() looks at the channel while events or slots wait. */
void channel_update_backlog(struct engine *e, struct channel *ch);
/* Spills a message of n slots: its head, and the rest from a ring. c: whose end waits for it, or
 * NULL. */
void spill_slots(struct engine *e, struct channel *ch, struct conn *c, const struct weir_slot *head,
		 const struct weir_slot *ring, uint32_t mask, uint64_t pos, uint32_t n);
/* Bytes of free blocks that the next spills may take beyond their own size. */
uint64_t spill_slack(const struct channel *ch);
/* Moves spilled slots into the programs' rings, as far as they have room. */
void backlogs_drain(struct engine *e);

/* Slots were put into the program's ring: its doorbell is due. */
static inline void
channel_published(struct engine *e, struct channel *ch)
{
	e->served = true;
	if (!ch->bell_due) {
		session_active(e, ch->session);
		ch->bell_due = true;
		list_append_once(&e->doorbells, &ch->bell);
	}
}

/* Slots of messages were taken from the program. */
static inline void
channel_taken(struct engine *e, struct channel *ch, struct conn *c, uint32_t messages,
	      uint32_t slots, uint64_t bytes)
{
	c->taken += messages;
	c->bytes += bytes;
	count(&e->counters.tx_messages, messages);
	count(&e->counters.tx_bytes, bytes);
	count(&ch->session->counters->tx_messages, messages);
	count(&ch->session->counters->tx_bytes, bytes);
	weir_ring_pop(&ch->tx, slots);
}

/* Room for n slots in the program's ring. */
static inline bool
channel_room(struct engine *e, struct channel *ch, uint32_t n)
{
	return weir_ring_room(&ch->rx) >= n || channel_find_room(e, ch, n);
}

#endif
