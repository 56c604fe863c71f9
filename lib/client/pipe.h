/* SPDX-License-Identifier: BSD-3-Clause */
/* A pair of rings towards an engine or a local thread. */
#ifndef WEIR_CLIENT_PIPE_H
#define WEIR_CLIENT_PIPE_H

#include "likely.h"
#include "public.h"

#include "ipc/bell.h"
#include "ipc/shm.h"

struct weir_conn;
struct weir_thread;

struct weir_pipe {
	struct weir_ring rx, tx;
	_Atomic uint32_t *tx_sleeping; /* the other end writes: it needs a doorbell */
	_Atomic uint32_t *rx_sleeping; /* we write */
	struct weir_bell bell;	       /* a channel rings an eventfd */
	bool fence; /* a full fence between publishing and reading tx_sleeping is necessary */
	bool local; /* a segment */
	uint8_t slow_rings; /* consecutive rings longer than WEIR_BELL_SLOW_NS */
	bool untold;	/* a segment: memory or credit was freed that the peer does not know of */
	uint32_t empty; /* consecutive polls that found nothing */
	uint32_t rung;	/* messages that rang since this thread last yielded its CPU to the peer */
	/* position at which the consumer last found the ring empty; the same when it first did
	 * since tx was at `asked` */
	uint64_t caught_up, burst_from, asked;
	/* of messages found at the ring's head: the last owner, since when, mean slots per owner */
	const struct weir_conn *owner;
	uint64_t owner_at;
	uint32_t run;
	/* rx position + 1 of a message reported but left in the ring, by looks for all connections
	 * and for another one; 0: none */
	uint64_t held[2];
	struct weir_thread *worker;
};

void weir_pipe_ring(struct weir_pipe *p) __attribute__((cold));

/* After publishing: whether the other end has to be woken. */
static inline bool
weir_pipe_asleep(const struct weir_pipe *p)
{
	/*
	 * Pairs with the fence in weir_thread_arm() of a local peer, engine_sleep_prepare() of an
	 * engine: a membarrier there, where both processes are registered.
	 */
	if (weir_unlikely(p->fence))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	return weir_unlikely(atomic_load_explicit(p->tx_sleeping, memory_order_relaxed));
}

static inline void
weir_pipe_published(struct weir_pipe *p)
{
	if (weir_pipe_asleep(p))
		weir_pipe_ring(p);
}

/* Consumes the n slots of a message; `order` and `flags` are of its head, `local` of the pipe. */
static inline void
weir_pipe_pop(struct weir_pipe *p, uint16_t order, uint8_t flags, uint32_t n, bool local)
{
	if (!local) {
		weir_ring_pop(&p->rx, n);
		return;
	}
	weir_ring_answered(&p->tx, order);
	weir_ring_pop_paired(&p->rx, flags, n);
}

#endif
