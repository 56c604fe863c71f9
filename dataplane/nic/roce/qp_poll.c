/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's side of a QP's life: completions, errors, orders of main. */
#include "qp_poll.h"
#include "ack.h"
#include "context.h"
#include "read_responder.h"

void
roce_qp_drop_frames(struct roce_qp *qp, uint32_t n)
{
	struct requester *rq = &qp->rq;
	struct roce_context *ctx = qp->ctx;

	weir_assert(n <= rq->next - rq->una);
	while (rq->unframed != 0 && n > 0) { /* some PSNs stand for answers to READs and atomics */
		void **frame = &rq->frames[rq->una++ & rq->frame_mask];

		n--;
		if (*frame == NULL) {
			weir_assert(rq->unframed > 0);
			rq->unframed--;
			continue;
		}
		ctx->held--;
		ctx->wire.drop(ctx->wire_user, frame, 1);
	}
	weir_assert(ctx->held >= n);
	ctx->held -= n;
	while (n > 0) {
		uint32_t slot = rq->una & rq->frame_mask, run = rq->frame_mask + 1 - slot;

		if (run > n)
			run = n;
		ctx->wire.drop(ctx->wire_user, &rq->frames[slot], run);
		rq->una += run;
		n -= run;
	}
}

void
roce_qp_complete(struct roce_qp *qp, enum nic_wc_status status)
{
	struct requester *rq = &qp->rq;
	struct sq_entry *wr = &rq->sq[rq->retired++ & rq->sq_mask];
	struct cq_entry *e;

	weir_assert((int32_t)(rq->posted - rq->retired) >= 0);
	if (status == NIC_WC_SUCCESS && !(wr->flags & NIC_SIGNALED))
		return;
	e = cq_push(qp->ctx, qp);
	e->qp = qp;
	e->srq = NULL;
	e->sq_freed = rq->retired;
	e->wc.wr_id = wr->wr_id;
	e->wc.status = status;
	e->wc.opcode = wr->opcode;
	e->wc.has_imm = e->wc.invalidated = false;
	e->wc.imm = 0;
	e->wc.length = wr->length;
}

static inline struct cq_entry *
received(struct roce_qp *qp, const struct nic_recv_wr *wr, enum nic_wc_status status,
	 enum nic_opcode opcode)
{
	struct cq_entry *e = cq_push(qp->ctx, qp);

	e->qp = NULL;
	e->srq = qp->srq;
	e->wc.wr_id = wr->wr_id;
	e->wc.status = status;
	e->wc.opcode = opcode;
	return e;
}

struct cq_entry *
roce_qp_received(struct roce_qp *qp, const struct nic_recv_wr *wr, enum nic_opcode opcode,
		 const struct packet *p, uint32_t length)
{
	struct cq_entry *e = received(qp, wr, NIC_WC_SUCCESS, opcode);

	e->wc.has_imm = p->flags & PACKET_IMM;
	e->wc.imm = e->wc.has_imm ? p->imm : 0;
	e->wc.invalidated = false;
	e->wc.length = length;
	return e;
}

void
roce_qp_not_received(struct roce_qp *qp, enum nic_wc_status status)
{
	struct cq_entry *e = received(qp, &qp->rs.wr, status, NIC_RECV);

	e->wc.has_imm = e->wc.invalidated = false;
	e->wc.imm = e->wc.length = 0;
}

/* For the main thread, which asks by nic async_event. Without room the event is lost. */
static void
report(struct roce_qp *qp, uint32_t event)
{
	struct roce_context *ctx = qp->ctx;
	uint32_t head = atomic_load_explicit(&ctx->events_head, memory_order_relaxed);

	/* partner: the release store of the tail in async_event() */
	if (head - atomic_load_explicit(&ctx->events_tail, memory_order_acquire) == ROCE_EVENTS)
		return;
	ctx->events[head % ROCE_EVENTS] = event << 24 | qp->head.qpn;
	/* partner: the acquire load in async_event() */
	atomic_store_explicit(&ctx->events_head, head + 1, memory_order_release);
}

void
roce_qp_fail(struct roce_qp *qp, uint32_t wr, enum nic_wc_status status)
{
	struct requester *rq = &qp->rq;
	uint8_t from = (uint8_t)qp_state(qp);

	/* from now on qp_enter() of the main thread fails */
	while (!qp_enter(qp, &from, NIC_QP_ERR))
		;
	if (from == NIC_QP_RTS) { /* before, the sending half is main's, and has nothing to end */
		list_remove(&qp->sender);
		list_remove(&qp->timer);
		roce_qp_drop_frames(qp, rq->next - rq->una);
		rq->send = rq->next;
		rq->in_flight = 0;
		rq->posted += rq->parked;
		rq->parked = 0;
		rq->draining = false;
		rq->built = rq->posted;
		rq->special = 0;
		rq->reads_first = rq->reads_next;
		rq->out_of_frames = false;
		while (rq->retired != rq->posted)
			roce_qp_complete(qp, rq->retired == wr ? status : NIC_WC_WR_FLUSH_ERR);
	}
	if (qp->rs.kind == PACKET_SEND)
		roce_qp_not_received(qp, NIC_WC_WR_FLUSH_ERR);
	qp->rs.kind = PACKET_NONE;
	/* the QP may be destroyed before an ACK that waits leaves, and the peer would wait, too */
	qp->ctx->acks_urgent |= list_linked(&qp->ack);
	if (qp->rs.response != RESPOND_FATAL) /* else answers before the NAK still leave */
		roce_read_serve_stop(qp);
	report(qp, NIC_EVENT_QP_FATAL);
}

void
roce_qp_drained(struct roce_qp *qp)
{
	struct requester *rq = &qp->rq;

	if (!rq->draining || rq->drained || rq->una != rq->next || rq->built != rq->posted)
		return;
	rq->drained = true;
	report(qp, NIC_EVENT_SQ_DRAINED);
}

/* Into SQD or out of it: WRs that have not begun to leave wait for RTS. */
static void
drain(struct roce_qp *qp)
{
	struct requester *rq = &qp->rq;
	/* ordered by the mailbox after the store in roce_qp_modify() */
	bool wanted = atomic_load_explicit(&qp->drain, memory_order_relaxed);
	uint32_t end = rq->posted + rq->parked, begun = rq->built + (rq->offset != 0);

	if (qp_state(qp) != NIC_QP_RTS || wanted == rq->draining)
		return;
	rq->draining = wanted;
	rq->drained = false;
	rq->posted = wanted ? begun : end;
	rq->parked = end - rq->posted;
	if (wanted)
		roce_qp_drained(qp);
	else
		roce_requester_wake(qp);
}

/* Drops completions of the QP's sends that are not polled yet. Completions of receives stay: they
 * return buffers. */
static void
forget_sends(struct roce_qp *qp)
{
	struct roce_context *ctx = qp->ctx;

	for (uint32_t i = ctx->cq_tail; i != ctx->cq_head; i++) {
		if (ctx->cq[i & ctx->cq_mask].qp == qp)
			ctx->cq[i & ctx->cq_mask].qp = NULL;
	}
}

/* Into the state of a new QP; outstanding WRs are forgotten. */
static void
reset(struct roce_qp *qp)
{
	struct requester *rq = &qp->rq;
	struct responder *rs = &qp->rs;
	uint8_t from = (uint8_t)qp_state(qp);

	list_remove(&qp->sender);
	list_remove(&qp->timer);
	list_remove(&qp->ack);
	roce_qp_drop_frames(qp, rq->next - rq->una);
	if (rs->kind == PACKET_SEND)
		roce_qp_not_received(qp, NIC_WC_WR_FLUSH_ERR);
	forget_sends(qp);
	*rq = (struct requester){.sq = rq->sq,
				 .sq_mask = rq->sq_mask,
				 .sq_depth = rq->sq_depth,
				 .frame_mask = rq->frame_mask,
				 .frames = rq->frames,
				 .lengths = rq->lengths,
				 .reads = rq->reads,
				 .reads_mask = rq->reads_mask};
	*rs = (struct responder){.served = rs->served, .served_mask = rs->served_mask};
	qp->fits_end = 0;
	qp->fits_mac = 0;
	/* from here on the fields are main's */
	while (!qp_enter(qp, &from, NIC_QP_RESET))
		;
}

/* After this the engine does not refer to the QP; main may free it. */
static void
end(struct roce_qp *qp)
{
	struct roce_context *ctx = qp->ctx;
	struct roce_qp *head;

	if (qp_state(qp) != NIC_QP_ERR)
		roce_qp_fail(qp, qp->rq.posted, NIC_WC_WR_FLUSH_ERR);
	list_remove(&qp->ack);
	weir_assert(!list_linked(&qp->sender) && !list_linked(&qp->timer));
	weir_assert(qp->rq.retired == qp->rq.posted && qp->rq.unframed == 0);
	forget_sends(qp);
	head = atomic_load_explicit(&ctx->dead, memory_order_relaxed);
	do {
		qp->mail_next = head;
		/* partner: the acquire exchange in roce_qp_reap() */
	} while (!atomic_compare_exchange_weak_explicit(&ctx->dead, &head, qp, memory_order_release,
							memory_order_relaxed));
}

void
roce_qp_take_orders(struct roce_context *ctx)
{
	/* partner: the release push in order() of qp.c */
	struct roce_qp *qp = atomic_exchange_explicit(&ctx->mailbox, NULL, memory_order_acquire);

	while (qp) {
		struct roce_qp *next = qp->mail_next; /* read first: it may be ordered again */
		/* partner: the fetch-or in order() */
		uint32_t orders = atomic_exchange_explicit(&qp->orders, 0, memory_order_acq_rel);

		if (orders & ORDER_MOVE)
			roce_cq_move(ctx);
		if (orders & ORDER_DESTROY) { /* main may free it from then on */
			end(qp);
			qp = next;
			continue;
		}
		if ((orders & ORDER_ERROR) && qp_state(qp) != NIC_QP_ERR)
			roce_qp_fail(qp, qp->rq.posted, NIC_WC_WR_FLUSH_ERR);
		if (orders & ORDER_DRAIN)
			drain(qp);
		if (orders & ORDER_RESET)
			reset(qp);
		qp = next;
	}
}
