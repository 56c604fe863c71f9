/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams: one frame each, to the WR's address handle. A WR completes when its frame has left, or
 * when the MAC of the address stays unknown for too long: a datagram may be lost.
 */
#include "ud.h"
#include "arp.h"
#include "build.h"
#include "qp_poll.h"
#include "srq.h"
#include "timer.h"
#include "transmit.h"

#include <errno.h>

#define DETH_BYTES 8u /* Q_Key, source QPN */

/* ---- address handles, main thread ---- */

int
roce_ah_create(struct nic_device *ndev, const struct nic_ah_attr *attr, struct nic_ah **out)
{
	struct roce_device *dev = (struct roce_device *)ndev;
	struct roce_ah *ah = roce_memory_get(dev, ROCE_ALL, sizeof(*ah));
	struct address ip;
	int error;

	if (ah == NULL)
		return -ENOMEM;
	error = roce_peer_find(dev, &attr->gid, &ip, &ah->neighbour);
	if (error) {
		roce_memory_put(dev, ah, sizeof(*ah));
		return error;
	}
	ah->dev = dev;
	ah->ip_sum = roce_template_make(dev, ip, attr->traffic_class, attr->priority, ah->template);
	list_append(&dev->all_ahs, &ah->all);
	*out = (struct nic_ah *)ah;
	return 0;
}

void
roce_ah_destroy(struct nic_ah *nah)
{
	struct roce_ah *ah = (struct roce_ah *)nah;

	if (ah == NULL)
		return;
	list_remove(&ah->all);
	roce_neighbour_put(ah->neighbour);
	roce_memory_put(ah->dev, ah, sizeof(*ah));
}

/* ---- sending ---- */

int
roce_ud_take(const struct roce_qp *qp, struct sq_entry *e, const struct nic_send_wr *wr)
{
	const struct roce_ah *ah = (const struct roce_ah *)wr->ah;

	if (!qp_orders_datagram_ok(wr) || e->length > qp->mtu || ah->dev != qp->ctx->dev ||
	    wr->remote_qpn > QPN_MASK)
		return -EINVAL;
	e->ah = ah;
	e->rkey = wr->remote_qpn;
	/* the highest bit selects the QP's own, as with other NICs */
	e->qkey = wr->qkey >> 31 ? qp->qkey : wr->qkey;
	return 0;
}

static uint32_t
build(struct roce_qp *qp, const struct sq_entry *wr, uint8_t *f)
{
	uint32_t n = wr->length, pad = -n & 3;
	uint32_t at = EXT_AT + DETH_BYTES + (wr->wire.has_imm ? IMM_BYTES : 0);
	uint8_t *bth = f + BTH_AT;

	roce_template_use(&qp->headers, wr->ah->template, wr->ah->ip_sum,
			  neighbour_mac(wr->ah->neighbour), f, at + n + pad);
	put16(f + UDP_AT, roce_source_port(qp->head.qpn, wr->rkey));
	bth[0] = wr->wire.has_imm ? UD_SEND_ONLY_IMM : UD_SEND_ONLY;
	bth[1] = (uint8_t)(pad << 4 | (wr->flags & NIC_SOLICITED ? BTH_SOLICITED : 0));
	put32(bth + 4, wr->rkey);
	put32(bth + 8, qp->rq.next++ & PSN_MASK);
	put32(f + EXT_AT, wr->qkey);
	put32(f + EXT_AT + 4, qp->head.qpn);
	if (wr->wire.has_imm)
		put32(f + EXT_AT + DETH_BYTES, wr->imm);
	return roce_build_copy(qp, f, at, roce_build_payload(qp, wr, 0, n), n);
}

static void
done(struct roce_qp *qp)
{
	struct requester *rq = &qp->rq;

	rq->una = rq->send = rq->next;
	rq->built++;
	list_remove(&qp->timer);
	roce_qp_complete(qp, NIC_WC_SUCCESS);
}

bool
roce_ud_transmit(struct roce_qp *qp, unsigned limit, unsigned *sent, uint64_t now)
{
	struct roce_context *ctx = qp->ctx;
	struct requester *rq = &qp->rq;

	rq->out_of_frames = false;
	for (; rq->built != rq->posted; ++*sent) {
		struct sq_entry *wr = &rq->sq[rq->built & rq->sq_mask];
		void *frame;

		if (*sent == limit)
			return true;
		if (!neighbour_known(wr->ah->neighbour)) {
			roce_arp_ask(ctx, wr->ah->neighbour, now);
			if (!list_linked(&qp->timer)) {
				rq->progress = now;
				roce_timer_start(qp, now + ROCE_NEIGHBOUR_NS);
			}
			return false;
		}
		if (!memory_ok(qp, wr, 0)) {
			roce_qp_fail(qp, rq->built, NIC_WC_LOC_PROT_ERR);
			return false;
		}
		frame = roce_frame_take(ctx);
		rq->out_of_frames = frame == NULL;
		if (frame == NULL)
			return false;
		roce_frame_send(ctx, frame, build(qp, wr, roce_frame_data(ctx, frame)), false);
		done(qp);
	}
	return false;
}

void
roce_ud_expired(struct roce_qp *qp, uint64_t now)
{
	struct requester *rq = &qp->rq;

	if (rq->built == rq->posted) {
		list_remove(&qp->timer);
		return;
	}
	rq->deadline = now + ROCE_NEIGHBOUR_NS;
	if (now - rq->progress >= qp->ctx->dev->config.timeout_ns) {
		roce_count(&qp->ctx->counters.drop_no_neighbour, 1);
		done(qp);
	}
	if (rq->built != rq->posted)
		roce_requester_wake(qp);
}

/* ---- receiving ---- */

enum drop
roce_ud_input(struct roce_qp *qp, const uint8_t *frame, struct packet *p)
{
	bool imm = p->flags & PACKET_IMM;
	const uint8_t *deth = p->payload - DETH_BYTES - (imm ? IMM_BYTES : 0);
	uint32_t n = NIC_GRH_BYTES + p->payload_length;
	struct roce_srq *srq = qp->srq;
	struct nic_recv_wr *wr;
	uint8_t *to;

	if (p->kind != PACKET_DATAGRAM || p->payload_length > qp->mtu)
		return DROP_bad_request;
	if (get32(deth) != qp->qkey)
		return DROP_bad_qkey;
	if (srq == NULL || srq->taken == srq->posted)
		return DROP_no_buffer;
	wr = &srq->ring[srq->taken & srq->mask];
	/* too long for the buffer: dropped, a stranger must not break the QP */
	if (n > wr->sge.length)
		return DROP_bad_request;
	srq->taken++;
	p->imm = imm ? get32(deth + DETH_BYTES) : 0;
	p->source_qpn = get32(deth + 4) & QPN_MASK;
	if (!mr_check(&qp->ctx->dev->mrs, wr->sge.lkey, wr->sge.address, n, NIC_LOCAL_WRITE)) {
		qp->rs.wr = *wr;
		roce_qp_not_received(qp, NIC_WC_LOC_PROT_ERR);
		roce_qp_fail(qp, qp->rq.posted, NIC_WC_WR_FLUSH_ERR);
		return DROP_bad_request;
	}
	/* before the payload the IP header, at the end of the place for a GRH, where verbs programs
	 * expect it; one of IPv6 fills that place */
	to = (uint8_t *)(uintptr_t)wr->sge.address;
	if (qp->headers.six) {
		memcpy(to, frame + IP6_AT, IP6_BYTES);
	} else {
		memset(to, 0, NIC_GRH_BYTES - IP_BYTES);
		memcpy(to + NIC_GRH_BYTES - IP_BYTES, frame + IP_AT, IP_BYTES);
	}
	if (p->payload_length != 0)
		memcpy(to + NIC_GRH_BYTES, p->payload, p->payload_length);
	roce_qp_received(qp, wr, NIC_RECV, p, n)->wc.source_qpn = p->source_qpn;
	return DROP_NONE;
}
