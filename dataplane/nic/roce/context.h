/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context: an engine's QPs and completions. Fields marked "main" belong to the main thread,
 * fields marked "engine" to the engine of the context; fields of both are _Atomic and name their
 * writer.
 */
#ifndef WEIR_ROCE_CONTEXT_H
#define WEIR_ROCE_CONTEXT_H

#include "device.h"
#include "base/list.h"
#include "qp.h"
#include "roce.h"
#include "wr.h"

#define ROCE_MTU_MAX 4096u
#define ROCE_SPARE (2 * ROCE_QUANTUM) /* frames taken from the wire in advance */
#define ROCE_EVENTS 256u

/* Completions of a context. Grows as queue pairs are made: main makes a larger one, the engine
 * moves. */
struct cq_ring {
	struct cq_ring *next; /* while the engine has left it and main has not freed it */
	size_t bytes;
	uint32_t size; /* a power of two */
	struct cq_entry entries[];
};

struct roce_context {
	struct nic_context_head head;
	struct roce_device *dev;
	struct roce_wire wire;
	void *wire_user;
	size_t frame_at; /* offset 0 of a frame, from its buffer */
	uint32_t front;	 /* the device's headers.front */
	unsigned id;
	/* engine */
	struct list_node senders, acks, timers;
	uint64_t next_tick; /* <= every deadline, or the earliest time at which timers may run */
	uint32_t deferred;  /* turns since the timers were due; frames came in each of them */
	uint32_t held;	    /* frames kept for retransmission */
	bool received;	    /* frames came in this turn */
	bool unsent;	    /* the turn ended before everything was sent */
	uint8_t at_once;  /* 1 + frames that posts may still send before the flush; 0: not asked */
	bool acks_urgent; /* not only ACKs wait in `acks` */
	bool acks_lazy;	  /* only ACKs of short messages */
	uint64_t acks_since; /* time since when ACKs wait; 0: none */
	uint32_t spare_count;
	void *spare[ROCE_SPARE];
	uint8_t gathered[ROCE_MTU_MAX]; /* payload gathered from two pieces */
	struct cq_entry *cq;		/* of cq_ring */
	uint32_t cq_mask, cq_head, cq_tail;
	struct cq_ring *cq_ring;
	struct nic_counters counters; /* engine writes with roce_count(), anyone reads relaxed */
	/* main writes with release, engine reads with acquire (find_qp) */
	_Atomic(struct roce_qp *) *qps;
	/* stacks linked by mail_next: main pushes and engine takes all; the other way round */
	_Alignas(CACHE_LINE) _Atomic(struct roce_qp *) mailbox;
	_Atomic(struct roce_qp *) dead;
	_Atomic(struct cq_ring *) cq_next; /* main gives, engine takes */
	_Atomic(struct cq_ring *) cq_left; /* stack by next: engine gives, main frees */
	/* event 8 | QPN 24: engine writes at events_head (release), main reads at events_tail
	 * (release) */
	_Atomic uint32_t events_head, events_tail;
	uint32_t events[ROCE_EVENTS];
	/* main */
	_Alignas(CACHE_LINE) struct list_node all_qps;
	struct list_node all_srqs;
	uint32_t cq_reserved, cq_size; /* cq_size: entries of the newest cq_ring */
	uint8_t *generations;	       /* by QP index */
	uint32_t next_index;
	size_t qps_bytes;
};

void roce_context_destroy(struct roce_context *ctx);
/* Makes room for `more` completions: 0, -ENOSPC (cq_depth) or -ENOMEM. Main. */
int roce_cq_reserve(struct roce_context *ctx, uint32_t more);
/* Moves to the larger ring that main has made. Engine. */
void roce_cq_move(struct roce_context *ctx);
/* Frees rings that the engine has left. Main. */
void roce_cq_reap(struct roce_context *ctx);
unsigned roce_context_poll(struct nic_context *ctx, struct nic_wc *wc, unsigned n, uint64_t now,
			   bool *busy);
void roce_context_flush(struct nic_context *ctx, uint64_t now);
uint64_t roce_context_arm(struct nic_context *ctx, uint64_t now, int *fd);
void roce_context_counters(const struct nic_context *ctx, struct nic_counters *out);

static inline __attribute__((always_inline)) struct roce_qp *
find_qp(struct roce_context *ctx, uint32_t qpn)
{
	struct roce_device *dev = ctx->dev;
	uint32_t index = (qpn >> dev->engine_bits) & ((1u << dev->index_bits) - 1);
	/* partner: the release stores of roce_qp_create() and roce_qp_destroy() */
	struct roce_qp *qp = atomic_load_explicit(&ctx->qps[index], memory_order_acquire);

	return qp && qp->head.qpn == qpn ? qp : NULL;
}

/* Whether all memory of a WR is registered; before the first byte is read. */
static inline bool
memory_ok(const struct roce_qp *qp, const struct sq_entry *wr, uint32_t access)
{
	if (wr->flags & NIC_INLINE)
		return true;
	for (unsigned i = 0; i < wr->sge_count; i++) {
		const struct nic_sge *s = &wr->sge[i];

		if (s->length != 0 &&
		    !mr_check(&qp->ctx->dev->mrs, s->lkey, s->address, s->length, access))
			return false;
	}
	return true;
}

/* Can't overflow: the ring covers every send queue and SRQ. */
static inline struct cq_entry *
cq_push(struct roce_context *ctx, struct roce_qp *qp)
{
	struct cq_entry *e = &ctx->cq[ctx->cq_head++ & ctx->cq_mask];

	weir_assert(ctx->cq_head - ctx->cq_tail <= ctx->cq_mask + 1);
	e->wc.qp_user = qp->user;
	e->wc.qpn = qp->head.qpn;
	e->wc.source_qpn = 0;
	return e;
}

#endif
