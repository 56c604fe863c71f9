/* SPDX-License-Identifier: BSD-3-Clause */
/* Completions, and the engine's part in the end and the reset of a QP. */
#include "internal.h"

#include <endian.h>
#include <string.h>

static const uint8_t statuses[] = {
    [IBV_WC_SUCCESS] = NIC_WC_SUCCESS,
    [IBV_WC_LOC_LEN_ERR] = NIC_WC_LOC_LEN_ERR,
    [IBV_WC_LOC_QP_OP_ERR] = NIC_WC_FATAL_ERR,
    [IBV_WC_LOC_EEC_OP_ERR] = NIC_WC_FATAL_ERR,
    [IBV_WC_LOC_PROT_ERR] = NIC_WC_LOC_PROT_ERR,
    [IBV_WC_WR_FLUSH_ERR] = NIC_WC_WR_FLUSH_ERR,
    [IBV_WC_MW_BIND_ERR] = NIC_WC_FATAL_ERR,
    [IBV_WC_BAD_RESP_ERR] = NIC_WC_BAD_RESP_ERR,
    [IBV_WC_LOC_ACCESS_ERR] = NIC_WC_LOC_PROT_ERR,
    [IBV_WC_REM_INV_REQ_ERR] = NIC_WC_REM_INV_REQ_ERR,
    [IBV_WC_REM_ACCESS_ERR] = NIC_WC_REM_ACCESS_ERR,
    [IBV_WC_REM_OP_ERR] = NIC_WC_REM_OP_ERR,
    [IBV_WC_RETRY_EXC_ERR] = NIC_WC_RETRY_EXC_ERR,
    [IBV_WC_RNR_RETRY_EXC_ERR] = NIC_WC_RNR_RETRY_EXC_ERR,
    [IBV_WC_RESP_TIMEOUT_ERR] = NIC_WC_RETRY_EXC_ERR,
};

static uint8_t
status_of(unsigned status)
{
	if (status < sizeof(statuses) / sizeof(statuses[0]) &&
	    (statuses[status] != NIC_WC_SUCCESS || status == IBV_WC_SUCCESS))
		return statuses[status];
	return NIC_WC_FATAL_ERR;
}

/* The entry of a QPN in the table; NULL: there is no page for it. */
static _Atomic(struct vnic_qp *) *
entry_of(struct vnic_context *ctx, uint32_t qpn)
{
	/* partner: the release store in vnic_qp_create() */
	_Atomic(struct vnic_qp *) *page = atomic_load_explicit(
	    &ctx->qps[qpn >> VNIC_QPN_BITS & (VNIC_QPN_PAGE - 1)], memory_order_acquire);

	return page ? &page[qpn & (VNIC_QPN_PAGE - 1)] : NULL;
}

static void
free_places(struct vnic_qp *qp, uint64_t up_to)
{
	weir_assert(qp->freed <= up_to && up_to <= qp->posted);
	weir_assert(qp->cq->outstanding >= up_to - qp->freed);
	qp->cq->outstanding -= (uint32_t)(up_to - qp->freed);
	qp->freed = up_to;
}

/* Returns 1 if `wc` was filled. */
static unsigned
take_send(struct vnic_qp *qp, const struct ibv_wc *in, struct nic_wc *wc)
{
	const struct vnic_sent *s;

	if (!qp || in->wr_id < qp->freed || in->wr_id >= qp->posted || in->wr_id >= qp->refused)
		return 0;
	s = &qp->sent[in->wr_id & qp->mask];
	free_places(qp, in->wr_id + 1);
	if (in->status != IBV_WC_SUCCESS)
		qp->broken = true;
	else if (!s->wanted)
		return 0;
	*wc = (struct nic_wc){
	    .wr_id = s->wr_id,
	    .qp_user = qp->user,
	    .status = status_of(in->status),
	    .opcode = s->opcode,
	    .qpn = in->qp_num,
	};
	return 1;
}

/* A failed receive counts too: its WR is used up. */
static unsigned
take_receive(struct vnic_context *ctx, struct vnic_qp *qp, const struct ibv_wc *in,
	     struct nic_wc *wc)
{
	struct vnic_srq *srq = ctx->srq[in->wr_id >> 32 & (VNIC_SRQS - 1)];
	uint32_t place = (uint32_t)in->wr_id;

	if (!srq || place >= srq->depth || srq->free_count == srq->depth)
		return 0;
	if (!qp) { /* gone, and its user with it: the SRQ's user still counts on the WR */
		vnic_receive_again(srq, place);
		return 0;
	}
	srq->free_place[srq->free_count++] = place;
	*wc = (struct nic_wc){
	    .wr_id = srq->wr_id[place],
	    .qp_user = qp->user,
	    .status = status_of(in->status),
	    .opcode = NIC_RECV,
	    .qpn = in->qp_num,
	};
	if (in->status != IBV_WC_SUCCESS)
		return 1;
	if (in->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		wc->opcode = NIC_RECV_IMM;
	wc->has_imm = in->wc_flags & IBV_WC_WITH_IMM;
	wc->invalidated = in->wc_flags & IBV_WC_WITH_INV;
	if (wc->has_imm)
		wc->imm = be32toh(in->imm_data);
	else if (wc->invalidated)
		wc->imm = in->invalidated_rkey;
	wc->length = in->byte_len;
	wc->source_qpn = in->src_qp;
	vnic_count(&ctx->counters.rx_bytes, in->byte_len);
	return 1;
}

/* Fills up to n completions of one CQ; fewer than n: it is empty. */
static unsigned
poll_cq(struct vnic_context *ctx, struct ibv_cq *cq, struct nic_wc *wc, unsigned n, bool *busy)
{
	struct ibv_wc in[NIC_POLL_MAX];
	unsigned count = 0;
	int want, got;

	do {
		want = (int)(n - count < NIC_POLL_MAX ? n - count : NIC_POLL_MAX);
		got = ibv_poll_cq(cq, want, in);
		for (int i = 0; i < got; i++) {
			_Atomic(struct vnic_qp *) *entry = entry_of(ctx, in[i].qp_num);
			/* partner: the release store in vnic_qp_create() */
			struct vnic_qp *qp =
			    entry ? atomic_load_explicit(entry, memory_order_acquire) : NULL;

			if (in[i].wr_id & VNIC_RECV)
				count += take_receive(ctx, qp, &in[i], &wc[count]);
			else
				count += take_send(qp, &in[i], &wc[count]);
		}
		if (got > 0)
			*busy = true;
	} while (got == want && count < n);
	return count;
}

/* Completes WRs that the NIC refused: the first failed, the others are flushed. */
static unsigned
take_refused(struct vnic_context *ctx, struct nic_wc *wc, unsigned n)
{
	struct vnic_qp *qp;
	unsigned count = 0;

	while ((qp = ctx->refused)) {
		for (; qp->refused_polled < qp->posted; qp->refused_polled++) {
			const struct vnic_sent *s = &qp->sent[qp->refused_polled & qp->mask];
			bool first = qp->refused_polled == qp->refused;

			if (count == n)
				return count;
			wc[count++] = (struct nic_wc){
			    .wr_id = s->wr_id,
			    .qp_user = qp->user,
			    .status = first ? NIC_WC_FATAL_ERR : NIC_WC_WR_FLUSH_ERR,
			    .opcode = s->opcode,
			    .qpn = qp->head.qpn,
			};
		}
		ctx->refused = qp->next_refused;
	}
	return count;
}

/* ---- the end of a QP ---- */

static void
take_orders(struct vnic_context *ctx, uint64_t now, bool *busy)
{
	/* partner: the release push in order() of qp.c */
	struct vnic_qp *qp = atomic_exchange_explicit(&ctx->mailbox, NULL, memory_order_acquire);

	while (qp) {
		struct vnic_qp *next = qp->mail_next; /* read first: it may be ordered again */
		/* partner: the fetch-or in order() */
		uint32_t orders = atomic_exchange_explicit(&qp->orders, 0, memory_order_acq_rel);

		if (!qp->ending) {
			qp->next_ending = ctx->ending;
			ctx->ending = qp;
		}
		qp->broken = qp->ending = true;
		qp->destroyed |= (orders & VNIC_ORDER_DESTROY) != 0;
		/* in RESET a NIC reports nothing more */
		qp->deadline = now + (qp->destroyed ? VNIC_LINGER_NS : 0);
		qp = next;
		*busy = true;
	}
}

/* With all CQs empty: QPs without further completions end, or are as new after a RESET. */
static void
end_ready(struct vnic_context *ctx)
{
	struct vnic_qp **at = &ctx->ending, *qp, *head;

	while ((qp = *at)) {
		if (!qp->ready || qp->dirty) {
			at = &qp->next_ending;
			continue;
		}
		*at = qp->next_ending;
		qp->ending = false;
		free_places(qp, qp->posted);
		if (!qp->destroyed) { /* completions and places of before are behind */
			qp->refused = UINT64_MAX;
			qp->broken = false;
			qp->unsignaled = 0;
			/* partner: the acquire load in vnic_qp_modify() */
			atomic_store_explicit(&qp->resetting, false, memory_order_release);
			continue;
		}
		atomic_store_explicit(entry_of(ctx, qp->head.qpn), NULL, memory_order_relaxed);
		head = atomic_load_explicit(&ctx->dead, memory_order_relaxed);
		do {
			qp->mail_next = head;
			/* partner: the acquire exchange in vnic_qp_reap() */
		} while (!atomic_compare_exchange_weak_explicit(
		    &ctx->dead, &head, qp, memory_order_release, memory_order_relaxed));
	}
}

unsigned
vnic_poll(struct nic_context *nctx, struct nic_wc *wc, unsigned n, uint64_t now, bool *busy)
{
	struct vnic_context *ctx = (struct vnic_context *)nctx;
	unsigned count = 0;
	uint32_t cqs;

	if (atomic_load_explicit(&ctx->mailbox, memory_order_relaxed))
		take_orders(ctx, now, busy);
	/* before the CQs are polled: QPs whose last completion is in them by now */
	for (struct vnic_qp *qp = ctx->ending; qp; qp = qp->next_ending)
		/* partner: the release store in async_event() */
		qp->ready =
		    now >= qp->deadline || atomic_load_explicit(&qp->flushed, memory_order_acquire);
	if (ctx->refused)
		count = take_refused(ctx, wc, n);
	if (count < n)
		count += poll_cq(ctx, ctx->recv_cq.cq, wc + count, n - count, busy);
	/* partner: the release store in vnic_send_cq() */
	cqs = atomic_load_explicit(&ctx->send_cqs, memory_order_acquire);
	for (uint32_t i = 0; i < cqs && count < n; i++)
		if (ctx->send_cq[i]->outstanding)
			count += poll_cq(ctx, ctx->send_cq[i]->cq, wc + count, n - count, busy);
	if (ctx->ending && count < n)
		end_ready(ctx);
	if (count)
		*busy = true;
	return count;
}
