/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages taken off a ring before the program asked for them, and loans. Worker locked. */
#ifndef WEIR_STREAM_RX_QUEUE_H
#define WEIR_STREAM_RX_QUEUE_H

#include "conn.h"

/* Where the data of a message lies. */
enum weir_rx_kind {
	RX_BYTES,  /* in `bytes` */
	RX_BUFFER, /* in a buffer of the session */
	RX_PLACE,  /* in a receive block of the arena */
	RX_SPAN,   /* in the byte area of a segment */
	RX_POSTED, /* in memory that the program posted */
};

struct weir_rx_message {
	struct weir_rx_message *next;
	uint8_t *data;
	uint32_t length;
	uint8_t kind;  /* enum weir_rx_kind */
	uint8_t class; /* of spare memory; WEIR_SPARE_CLASSES: none */
	uint32_t vqpn;
	uint32_t cost;		/* still to be counted as consumed */
	bool lent;		/* the cost is in weir_conn.lent */
	uint64_t at;		/* place, or span */
	struct weir_pipe *pipe; /* PLACE, SPAN: it arrived here */
	struct weir_thread *worker;
	LIST_ENTRY(weir_rx_message) in_loans; /* while the program holds it */
	uint8_t bytes[];
};

struct weir_rx_message *weir_rx_message_new(struct weir_thread *t, uint32_t length);
void weir_rx_message_free(struct weir_rx_message *p);
/* Copies an inline message at the pipe's head out of the ring. NULL: no memory, it stays. */
struct weir_rx_message *weir_rx_message_inline(struct weir_conn *c, const struct weir_head *h);
void weir_rx_queue_append(struct weir_conn *c, struct weir_rx_message *p);
/* Frees all messages not received. Returns their cost. */
uint32_t weir_rx_queue_clear(struct weir_conn *c);
/*
 * Messages of that cost were dropped behind weir_close(). They count as consumed: CLOSE may wait in
 * the ring behind messages to a program that itself waits until its messages are taken.
 */
void weir_conn_dropped(struct weir_conn *c, uint32_t cost);
/*
 * The program gets a message of c on loan. All but a receive block counts as consumed; a block does
 * so when the loan ends, and until then against the largest window alone.
 */
void weir_loan_begin(struct weir_rx_message *p, struct weir_conn *c);
/* The program is done with a loan: frees it and counts it as consumed. c: its connection or NULL.
 */
void weir_loan_end(struct weir_rx_message *p, struct weir_conn *c);
/* Consumption is to be reported, now or later. */
void weir_conn_consumed_slow(struct weir_conn *c);

/*
 * c's message at the head of its ring is about to move to its queue. True: it is reported and
 * stays, once per position and kind of look, so that c receives it from the ring. This pays where
 * several messages of a connection follow each other, or for a large one. `want`: see
 * weir_progress().
 */
bool weir_conn_hold(struct weir_conn *c, const struct weir_conn *want, bool large);

/* `cost` was received. True: weir_conn_consumed_slow() has to follow. `local`: of c. */
static inline bool
weir_conn_note_consumed(struct weir_conn *c, uint32_t cost, bool local)
{
	c->consumed += cost;
	return c->consumed >= c->report_at ||
	       (local &&
		atomic_load_explicit(&WEIR_SEGMENT_OF(c->pipe)->in->wanted, memory_order_relaxed));
}

static inline void
weir_conn_consumed(struct weir_conn *c, uint32_t cost)
{
	if (weir_unlikely(weir_conn_note_consumed(c, cost, c->local)))
		weir_conn_consumed_slow(c);
}

#endif
