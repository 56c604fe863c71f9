/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiving half of a QP: requests in sequence go into memory, others are answered as the
 * standard says. */
#include "responder.h"
#include "ack.h"
#include "context.h"
#include "qp_poll.h"
#include "read_responder.h"
#include "srq.h"

#define PSN_HALF 0x800000u

enum drop
roce_responder_refuse(struct roce_qp *qp, enum nak_code code, uint32_t psn)
{
	qp->rs.nak = code;
	qp->rs.nak_psn = psn;
	roce_ack_later(qp, RESPOND_FATAL);
	roce_qp_fail(qp, qp->rq.posted, NIC_WC_WR_FLUSH_ERR);
	return DROP_bad_request;
}

static enum drop
refuse(struct roce_qp *qp, enum nak_code code)
{
	return roce_responder_refuse(qp, code, qp->rs.expected);
}

/* The same, and the receive WR under way ends with `status`. */
static enum drop
refuse_send(struct roce_qp *qp, enum nic_wc_status status, enum nak_code code)
{
	qp->rs.kind = PACKET_NONE;
	roce_qp_not_received(qp, status);
	return refuse(qp, code);
}

static enum drop
not_ready(struct roce_qp *qp)
{
	qp->rs.seen = qp->rs.expected;
	qp->rs.gap = true; /* frames that follow are ahead, and get no NAK */
	roce_ack_later(qp, RESPOND_RNR);
	return DROP_no_buffer;
}

/* The next receive WR, or NULL; it is valid until others are posted. */
static const struct nic_recv_wr *
take_recv(struct roce_qp *qp)
{
	struct roce_srq *srq = qp->srq;

	if (srq == NULL || srq->taken == srq->posted)
		return NULL;
	return &srq->ring[srq->taken++ & srq->mask];
}

static enum drop
take_send(struct roce_qp *qp, const struct packet *p)
{
	struct responder *rs = &qp->rs;
	const struct nic_recv_wr *wr;
	struct cq_entry *e;

	if (p->flags & PACKET_FIRST) {
		wr = take_recv(qp);
		if (wr == NULL)
			return not_ready(qp);
		rs->wr = *wr;
		rs->kind = PACKET_SEND;
		rs->address = rs->wr.sge.address;
		rs->left = rs->wr.sge.length;
		rs->received = 0;
	}
	if (p->payload_length > rs->left)
		return refuse_send(qp, NIC_WC_LOC_LEN_ERR, NAK_INVALID_REQUEST);
	if ((p->flags & PACKET_INV) && !roce_mr_invalidate(&qp->ctx->dev->mrs, p->imm))
		return refuse_send(qp, NIC_WC_LOC_PROT_ERR, NAK_REMOTE_ACCESS);
	if (p->payload_length != 0) {
		if (!mr_check(&qp->ctx->dev->mrs, rs->wr.sge.lkey, rs->address, p->payload_length,
			      NIC_LOCAL_WRITE))
			return refuse_send(qp, NIC_WC_LOC_PROT_ERR, NAK_REMOTE_OPERATION);
		memcpy((void *)(uintptr_t)rs->address, p->payload, p->payload_length);
	}
	weir_assert(rs->left >= p->payload_length && rs->kind == PACKET_SEND);
	rs->address += p->payload_length;
	rs->left -= p->payload_length;
	rs->received += p->payload_length;
	if (p->flags & PACKET_LAST) {
		e = roce_qp_received(qp, &rs->wr, NIC_RECV, p, rs->received);
		if (p->flags & PACKET_INV) {
			e->wc.invalidated = true;
			e->wc.imm = p->imm;
		}
	}
	return DROP_NONE;
}

static inline __attribute__((always_inline)) enum drop
take_write(struct roce_qp *qp, const struct packet *p, uint8_t flags)
{
	struct responder *rs = &qp->rs;
	bool first = flags & PACKET_FIRST, last = flags & PACKET_LAST;
	uint64_t address = first ? p->address : rs->address;
	uint32_t left = first ? p->dma_length : rs->left, n = p->payload_length;
	uint32_t rkey = first ? p->rkey : rs->rkey;
	const struct nic_recv_wr *wr = NULL;

	if (left > ROCE_MESSAGE_MAX || n > left || (n == left) != last)
		return refuse(qp, NAK_INVALID_REQUEST);
	/* the whole message when it begins, and each packet: the region may be gone meanwhile */
	if (left != 0 && !mr_check(&qp->ctx->dev->mrs, rkey, address, left, NIC_REMOTE_WRITE))
		return refuse(qp, NAK_REMOTE_ACCESS);
	if (flags & PACKET_IMM) {
		wr = take_recv(qp);
		if (wr == NULL)
			return not_ready(qp);
	}
	if (n != 0 && (uintptr_t)p->payload != address)
		memcpy((void *)(uintptr_t)address, p->payload, n);
	if (!first)
		n += rs->received;
	if (!last) {
		rs->received = n;
		rs->kind = PACKET_WRITE;
		rs->address = address + p->payload_length;
		rs->left = left - p->payload_length;
		rs->rkey = rkey;
	}
	if (wr != NULL)
		roce_qp_received(qp, wr, NIC_RECV_IMM, p, n);
	return DROP_NONE;
}

uint8_t *
roce_responder_place(const struct roce_qp *qp, const struct packet *p)
{
	const struct responder *rs = &qp->rs;
	bool last = p->flags & PACKET_LAST;
	uint32_t n = p->payload_length;

	if (p->kind != PACKET_WRITE || (p->flags & (PACKET_FIRST | PACKET_IMM)) ||
	    rs->kind != PACKET_WRITE || p->psn != rs->expected || (n == rs->left) != last ||
	    (last ? n > qp->mtu || (n & 3) != 0 : n != qp->mtu || n > rs->left) ||
	    !(qp->access & NIC_REMOTE_WRITE) ||
	    !mr_check(&qp->ctx->dev->mrs, rs->rkey, rs->address, rs->left, NIC_REMOTE_WRITE))
		return NULL;
	return (uint8_t *)(uintptr_t)rs->address;
}

/* The expected packet came after a NAK for it. */
static void
gap_closed(struct responder *rs)
{
	if (rs->response == RESPOND_RNR)
		rs->response = RESPOND_ACK;
	if (rs->response != RESPOND_SEQUENCE) /* else the NAK of this gap hasn't even left */
		rs->gap = false;
}

static enum drop
out_of_sequence(struct roce_qp *qp, const struct packet *p, uint32_t ahead)
{
	struct responder *rs = &qp->rs;

	if (ahead >= PSN_HALF) {
		if (p->kind == PACKET_READ || p->kind == PACKET_ATOMIC)
			return roce_read_serve_again(qp, p);
		if (p->kind == PACKET_RESERVED)
			return DROP_duplicate;
		roce_ack_later(qp, RESPOND_ACK); /* the ACK may have been lost */
		return DROP_duplicate;
	}
	/* PSNs that begin anew: the peer has gone back, and the expected one is lost again */
	if (!rs->gap || ((p->psn - rs->seen) & PSN_MASK) >= PSN_HALF) {
		rs->gap = true;
		roce_ack_later(qp, RESPOND_SEQUENCE);
	}
	rs->seen = p->psn;
	return DROP_out_of_order;
}

/* `kind` and `flags` are those of *p; constants for the packet that is the most frequent. */
static inline __attribute__((always_inline)) enum drop
request(struct roce_qp *qp, const struct packet *p, uint8_t kind, uint8_t flags)
{
	static const uint8_t rights[] = {
	    [PACKET_SEND] = 0,
	    [PACKET_WRITE] = NIC_REMOTE_WRITE,
	    [PACKET_READ] = NIC_REMOTE_READ,
	    [PACKET_ATOMIC] = NIC_REMOTE_ATOMIC,
	    [PACKET_RESERVED] = 0,
	};
	struct responder *rs = &qp->rs;
	uint32_t ahead = (p->psn - rs->expected) & PSN_MASK;
	uint8_t right = flags & PACKET_INV ? NIC_REMOTE_INVALIDATE : rights[kind];
	bool first = flags & PACKET_FIRST, last = flags & PACKET_LAST;
	enum drop drop;

	if (ahead != 0)
		return out_of_sequence(qp, p, ahead);
	if (rs->kind == PACKET_NONE ? !first : (first || kind != rs->kind))
		return refuse(qp, NAK_INVALID_REQUEST);
	/* The IBTA's table of responder errors calls an operation that the QP lacks the right for
	 * an invalid request, of 0 bytes too; keys are checked later. */
	if (kind == PACKET_RESERVED || (qp->access & right) != right)
		return refuse(qp, NAK_INVALID_REQUEST);
	if (last ? p->payload_length > qp->mtu || (!first && p->payload_length == 0)
		 : p->payload_length != qp->mtu)
		return refuse(qp, NAK_INVALID_REQUEST);
	if (kind == PACKET_READ || kind == PACKET_ATOMIC) {
		drop = roce_read_serve(qp, p);
		if (drop == DROP_NONE && rs->gap)
			gap_closed(rs);
		return drop;
	}
	drop = kind == PACKET_SEND ? take_send(qp, p) : take_write(qp, p, flags);
	if (drop != DROP_NONE)
		return drop;
	rs->expected = (rs->expected + 1) & PSN_MASK;
	if (rs->gap)
		gap_closed(rs);
	if (last) {
		rs->kind = PACKET_NONE;
		rs->msn = (rs->msn + 1) & PSN_MASK;
	}
	if (!p->ack_request)
		return DROP_NONE;
	/* one packet, which took a receive WR */
	if (first && last && p->payload_length <= ROCE_ACK_LAZY_BYTES &&
	    (kind == PACKET_SEND || (flags & PACKET_IMM)))
		roce_ack_lazily(qp);
	else
		roce_ack_later(qp, RESPOND_ACK);
	return DROP_NONE;
}

enum drop
roce_responder_input(struct roce_qp *qp, const struct packet *p)
{
	enum { FRAME = PACKET_ONLY | PACKET_RETH | PACKET_IMM | PACKET_PAYLOAD };

	if (__builtin_expect(p->kind == PACKET_WRITE && p->flags == FRAME, 1))
		return request(qp, p, PACKET_WRITE, FRAME);
	return request(qp, p, p->kind, p->flags);
}
