/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Turns and shares: programs take turns on a link by weighted deficit round robin, share frames
 * that are too small for all, share the engine's time, and keep to their rates.
 */
#ifndef WEIR_ENGINE_SCHEDULER_H
#define WEIR_ENGINE_SCHEDULER_H

#include "link.h"
#include "session.h"

enum { FORGIVEN = 1024 }; /* rounds after which a program's debt is forgotten */

/*
 * Messages of one program for one of a link's QPs. The queue takes part in the link's round while
 * only room keeps some of them from leaving, and is in engine.limited while the program has used up
 * its rate.
 */
struct queue {
	struct list_node turn; /* in link.active (RING), link.writing (BULK) or engine.limited */
	struct list_node
	    members;	  /* struct conn, by active or writing: take turns among each other */
	uint32_t deficit; /* lines, or bytes of bulk */
	int32_t lines;	  /* from its channels that frame `frame` may still take; negative: debt */
	uint32_t frame;	  /* link.frame_number when `lines` was set */
	bool in_turn;	  /* has its quantum of this round */
	uint8_t index;	  /* RING or BULK */
	struct session *session;
	struct peer_link *link;
};

/* How a queue's turn ended. */
enum turn {
	TURN_FULL,    /* no room: the turn continues when there is some */
	TURN_SPENT,   /* the quantum is used up */
	TURN_LIMITED, /* the rate of the program is used up */
	TURN_IDLE,    /* no message is left that could leave */
};

void queues_init(struct session *s, uint32_t links);
/* A connection has messages for the queue. */
void queue_join(struct engine *e, struct queue *q, struct list_node *node);
void queue_leave(struct queue *q, struct list_node *node);
/* Begins the queue's turn, unless it continues. */
void queue_turn(struct queue *q, uint32_t quantum);
void queue_turned(struct engine *e, struct queue *q, enum turn t);
/* Whether the program's rate lets it send; the sender takes the bytes off session.tokens. */
bool share_pays(struct engine *e, struct session *s);
/* Main has changed the share. */
void share_apply(struct engine *e, struct session *s);
/* Whether the share, or the one above, has a rate. */
bool share_limits(const struct engine_share *share);
/* Lets limited programs take part again once their rate allows it. */
void shares_renew(struct engine *e);
/* Lines that this program may put into the open frame straight from its channels. */
uint32_t share_lines(struct peer_link *l, struct session *s);
/* The program found no room in the open frame, or none of its part. */
void share_pressed(struct engine *e, struct peer_link *l, struct session *s);
/* The frame leaves, or no program that wanted room in it had a part large enough. */
void share_frame_closed(struct engine *e, struct peer_link *l);
/* link_send() in the turns that the link's class gets. */
void class_send(struct engine *e, struct peer_link *l);
/* Gives a program its part of the next round of programs that compete. */
void share_round(struct engine *e, struct session *s);

static inline struct queue *
queue_of(const struct session *s, const struct peer_link *l, unsigned index)
{
	return &s->queues[2 * l->is.link + index];
}

/* Counts the program among those that use, or want, the open frame. */
static inline void
share_seen(struct peer_link *l, struct queue *q)
{
	if (q->frame == l->frame_number)
		return;
	q->frame = l->frame_number;
	l->frame_programs++;
	l->frame_weight += atomic_load_explicit(&q->session->share->weight, memory_order_relaxed);
}

#endif
