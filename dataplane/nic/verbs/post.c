/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Posting: WRs become libibverbs' and are gathered per QP; flush() gives each QP's chain to the
 * NIC, one doorbell each. Of unsignaled WRs one in signal_every is signaled all the same: its
 * completion frees the places of all before it.
 */
#include "internal.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static const uint8_t opcodes[] = {
    [NIC_SEND] = IBV_WR_SEND,
    [NIC_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
    [NIC_WRITE] = IBV_WR_RDMA_WRITE,
    [NIC_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
    [NIC_READ] = IBV_WR_RDMA_READ,
    [NIC_CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
    [NIC_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
    [NIC_SEND_INV] = IBV_WR_SEND_WITH_INV,
};

/* Inline data are copied: into the batch until flush(), or into memory of ours until completion if
 * the NIC can't take them into the WQE. */
static int
take_memory(struct vnic_qp *qp, struct vnic_batch *b, const struct nic_send_wr *wr)
{
	size_t at = (qp->posted & qp->mask) * QP_INLINE_MAX;
	uint8_t *data = qp->bounce ? qp->bounce + at : b->data;
	int length;

	if (wr->flags & NIC_INLINE && !qp_orders_fetches(wr->opcode)) {
		length = qp_orders_copy_inline(data, wr);
		if (length < 0)
			return length;
		b->sge[0] = (struct ibv_sge){(uintptr_t)data, (uint32_t)length, 0};
		b->wr.num_sge = length > 0;
		if (qp->bounce)
			b->sge[0].lkey = qp->bounce_mr->lkey;
		else
			b->wr.send_flags |= IBV_SEND_INLINE;
		return 0;
	}
	b->wr.num_sge = wr->sge_count;
	for (unsigned i = 0; i < wr->sge_count; i++)
		b->sge[i] =
		    (struct ibv_sge){wr->sge[i].address, wr->sge[i].length, wr->sge[i].lkey};
	return 0;
}

static int
take_wr(struct vnic_qp *qp, struct vnic_batch *b, const struct nic_send_wr *wr)
{
	struct ibv_send_wr *to = &b->wr;

	if (!qp_orders_wr_ok(wr))
		return -EINVAL;
	*to = (struct ibv_send_wr){
	    .wr_id = qp->posted,
	    .sg_list = b->sge,
	    .opcode = opcodes[wr->opcode],
	};
	if (wr->flags & NIC_FENCE)
		to->send_flags |= IBV_SEND_FENCE;
	if (wr->flags & NIC_SOLICITED)
		to->send_flags |= IBV_SEND_SOLICITED;
	if (qp->type == NIC_UD) {
		if (!qp_orders_datagram_ok(wr))
			return -EINVAL;
		to->wr.ud.ah = (struct ibv_ah *)wr->ah;
		to->wr.ud.remote_qpn = wr->remote_qpn;
		to->wr.ud.remote_qkey = wr->qkey;
	} else if (wr->opcode == NIC_CMP_SWAP || wr->opcode == NIC_FETCH_ADD) {
		if (wr->sge_count != 1 || wr->sge[0].length != 8)
			return -EINVAL;
		to->wr.atomic.remote_addr = wr->remote_address;
		to->wr.atomic.compare_add = wr->compare_add;
		to->wr.atomic.swap = wr->swap;
		to->wr.atomic.rkey = wr->rkey;
		return take_memory(qp, b, wr);
	} else if (wr->opcode >= NIC_WRITE && wr->opcode <= NIC_READ) {
		to->wr.rdma.remote_addr = wr->remote_address;
		to->wr.rdma.rkey = wr->rkey;
	}
	if (wr->opcode == NIC_SEND_INV)
		to->invalidate_rkey = wr->rkey;
	else
		to->imm_data = htobe32(wr->imm);
	return take_memory(qp, b, wr);
}

/* The WR is taken: into the QP's chain, and its place remembers it. */
static void
enqueue(struct vnic_qp *qp, struct vnic_batch *b, const struct nic_send_wr *wr)
{
	struct vnic_context *ctx = qp->ctx;
	bool wanted = wr->flags & NIC_SIGNALED;
	uint64_t bytes = 0;

	weir_assert(ctx->batched < VNIC_BATCH && qp->posted - qp->freed < qp->depth);
	if (wanted || ++qp->unsignaled >= qp->signal_every) {
		b->wr.send_flags |= IBV_SEND_SIGNALED;
		qp->unsignaled = 0;
	}
	qp->sent[qp->posted & qp->mask] =
	    (struct vnic_sent){.wr_id = wr->wr_id, .opcode = wr->opcode, .wanted = wanted};
	if (qp->dirty) {
		qp->last->wr.next = &b->wr;
	} else {
		qp->dirty = true;
		qp->first = b;
		qp->next_dirty = ctx->dirty;
		ctx->dirty = qp;
	}
	qp->last = b;
	qp->posted++;
	qp->cq->outstanding++;
	ctx->batched++;
	for (int i = 0; i < b->wr.num_sge; i++)
		bytes += b->sge[i].length;
	if (b->wr.opcode != IBV_WR_RDMA_READ) {
		vnic_count(&ctx->counters.tx_bytes, bytes);
		return;
	}
	/* completions of READs have no length */
	vnic_count(&ctx->counters.read_bytes, bytes);
	vnic_count(&ctx->counters.rx_bytes, bytes);
}

int
vnic_post_send(struct nic_qp *nqp, const struct nic_send_wr *wr, unsigned n)
{
	struct vnic_qp *qp = (struct vnic_qp *)nqp;
	struct vnic_context *ctx = qp->ctx;
	uint32_t room = qp->depth - (uint32_t)(qp->posted - qp->freed);
	unsigned i;

	if (!qp_orders_may_send(vnic_qp_state(qp)) || qp->broken)
		return -ENOTCONN;
	if (room > VNIC_BATCH - ctx->batched)
		room = VNIC_BATCH - ctx->batched;
	if (n > room)
		n = room;
	for (i = 0; i < n; i++) {
		struct vnic_batch *b = &ctx->batch[ctx->batched];
		int rc = take_wr(qp, b, &wr[i]);

		if (rc && i == 0)
			return rc;
		if (rc)
			break;
		enqueue(qp, b, &wr[i]);
	}
	return (int)i;
}

void
vnic_flush(struct nic_context *nctx, uint64_t now)
{
	struct vnic_context *ctx = (struct vnic_context *)nctx;
	struct vnic_qp *qp;

	while ((qp = ctx->dirty)) {
		struct ibv_send_wr *bad = NULL;

		ctx->dirty = qp->next_dirty;
		qp->dirty = false;
		vnic_count(&ctx->counters.doorbells, 1);
		if (!ibv_post_send(qp->qp, &qp->first->wr, &bad))
			continue;
		/* WRs that the NIC did not take complete with an error in poll() */
		qp->broken = true;
		if (qp->refused != UINT64_MAX)
			continue;
		qp->refused = qp->refused_polled = bad ? bad->wr_id : qp->first->wr.wr_id;
		qp->next_refused = ctx->refused;
		ctx->refused = qp;
	}
	ctx->batched = 0;
}

/* Gives the chain to the NIC; returns the number that it took. */
static unsigned
give_receives(struct vnic_srq *srq, struct ibv_recv_wr *wr, unsigned n)
{
	struct ibv_recv_wr *bad = NULL;

	if (!ibv_post_srq_recv(srq->srq, wr, &bad))
		return n;
	return bad ? (unsigned)(bad - wr) : 0;
}

static struct ibv_recv_wr
receive_at(struct vnic_srq *srq, uint32_t place, struct ibv_recv_wr *next)
{
	return (struct ibv_recv_wr){
	    .wr_id = VNIC_RECV | (uint64_t)srq->index << 32 | place,
	    .next = next,
	    .sg_list = &srq->sge[place],
	    .num_sge = srq->sge[place].length > 0,
	};
}

void
vnic_receive_again(struct vnic_srq *srq, uint32_t place)
{
	struct ibv_recv_wr wr = receive_at(srq, place, NULL);

	if (!give_receives(srq, &wr, 1))
		srq->free_place[srq->free_count++] = place;
}

int
vnic_post_srq_recv(struct nic_srq *nsrq, const struct nic_recv_wr *wr, unsigned n)
{
	struct vnic_srq *srq = (struct vnic_srq *)nsrq;
	struct ibv_recv_wr out[NIC_POLL_MAX];
	unsigned done = 0;

	if (n > srq->free_count)
		n = srq->free_count;
	while (done < n) {
		unsigned part = n - done < NIC_POLL_MAX ? n - done : NIC_POLL_MAX, taken;

		for (unsigned i = 0; i < part; i++) {
			const struct nic_recv_wr *from = &wr[done + i];
			uint32_t place = srq->free_place[srq->free_count - 1 - i];

			srq->wr_id[place] = from->wr_id;
			srq->sge[place] =
			    (struct ibv_sge){from->sge.address, from->sge.length, from->sge.lkey};
			out[i] = receive_at(srq, place, i + 1 < part ? &out[i + 1] : NULL);
		}
		taken = give_receives(srq, out, part);
		weir_assert(taken <= part && taken <= srq->free_count);
		srq->free_count -= taken;
		done += taken;
		if (taken < part)
			break;
	}
	vnic_count(&srq->ctx->counters.doorbells, 1);
	return (int)done;
}
