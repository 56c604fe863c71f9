/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs on the main thread. It writes a QP's fields before it publishes the state in which
 * the engine uses them; ERR, RESET, SQD and the end are orders to the engine, by the mailbox.
 */
#include "qp.h"
#include "address.h"
#include "build.h"
#include "context.h"
#include "read_requester.h"
#include "read_responder.h"
#include "srq.h"

#include <errno.h>

static void
order(struct roce_qp *qp, uint32_t what)
{
	struct roce_context *ctx = qp->ctx;
	struct roce_qp *head;

	/* partner: the exchange in roce_qp_take_orders(). Orders before it: the QP is in the
	 * mailbox */
	if (atomic_fetch_or_explicit(&qp->orders, what, memory_order_acq_rel) != 0)
		return;
	head = atomic_load_explicit(&ctx->mailbox, memory_order_relaxed);
	do {
		qp->mail_next = head;
		/* release; partner: the acquire exchange of the mailbox in roce_qp_take_orders() */
	} while (!atomic_compare_exchange_weak_explicit(
	    &ctx->mailbox, &head, qp, memory_order_release, memory_order_relaxed));
}

static struct roce_qp *
allocate(struct roce_context *ctx, uint32_t send_wrs)
{
	uint32_t frames = ctx->dev->config.window_frames, size = 1, reads = 1;
	struct roce_qp *qp;
	size_t bytes;

	while (size < send_wrs)
		size *= 2;
	while (reads < ctx->dev->config.rd_atomic)
		reads *= 2;
	bytes = sizeof(*qp) + size * sizeof(qp->rq.sq[0]) +
		reads * (sizeof(qp->rs.served[0]) + sizeof(qp->rq.reads[0])) +
		frames * (sizeof(qp->rq.frames[0]) + sizeof(qp->rq.lengths[0]));
	qp = roce_memory_get(ctx->dev, ctx->id, bytes);
	if (qp == NULL)
		return NULL;
	qp->bytes = bytes;
	qp->rq.sq = (struct sq_entry *)(qp + 1);
	qp->rq.sq_mask = size - 1;
	qp->rq.sq_depth = send_wrs;
	qp->rq.frames = (void **)(qp->rq.sq + size);
	qp->rq.lengths = (uint16_t *)(qp->rq.frames + frames);
	qp->rs.served = (struct served *)(void *)(qp->rq.lengths + frames);
	qp->rs.served_mask = qp->rq.reads_mask = reads - 1;
	qp->rq.reads = (struct read_part *)(qp->rs.served + reads);
	qp->rq.frame_mask = frames - 1;
	return qp;
}

int
roce_qp_create(struct nic_context *nctx, const struct nic_qp_init *init, struct nic_qp **out)
{
	struct roce_context *ctx = (struct roce_context *)nctx;
	struct roce_device *dev = ctx->dev;
	struct roce_config *config = &dev->config;
	uint32_t bits = dev->engine_bits + dev->index_bits, most = (1u << (24 - bits)) - 1;
	uint32_t index, generation, tries = 0;
	struct roce_qp *qp;
	int rc;

	if (init->type != NIC_RC && init->type != NIC_UD)
		return -EINVAL;
	if (init->send_wrs == 0 || init->send_wrs > config->max_wr)
		return -EINVAL;
	roce_qp_reap(ctx);
	do
		index = ctx->next_index++ % config->max_qp;
	while (atomic_load_explicit(&ctx->qps[index], memory_order_relaxed) &&
	       ++tries < config->max_qp);
	if (tries == config->max_qp)
		return -ENOSPC;
	rc = roce_cq_reserve(ctx, init->send_wrs);
	if (rc)
		return rc;
	qp = allocate(ctx, init->send_wrs);
	if (qp == NULL) {
		ctx->cq_reserved -= init->send_wrs;
		return -ENOMEM;
	}
	/* the QPN: generation (never 0), index, engine */
	generation = ctx->generations[index];
	generation = generation >= most || generation == UINT8_MAX ? 1 : generation + 1;
	ctx->generations[index] = (uint8_t)generation;
	qp->head = (struct nic_qp_head){
	    .ops = &roce_ops, .qpn = generation << bits | index << dev->engine_bits | ctx->id};
	qp->ctx = ctx;
	qp->user = init->user;
	qp->ud = init->type == NIC_UD;
	qp->headers = dev->headers;
	qp->peer = (struct address){UINT64_MAX, UINT64_MAX};
	qp->access = NIC_REMOTE_WRITE;
	qp->index = index;
	qp->send_wrs = init->send_wrs;
	qp->srq = (struct roce_srq *)init->srq;
	if (qp->srq)
		qp->srq->users++;
	list_append(&ctx->all_qps, &qp->all);
	weir_assert(ctx->cq_reserved <= config->cq_depth);
	/* before the engine hears of the QP, and polls what comes for it */
	if (atomic_load_explicit(&ctx->cq_next, memory_order_relaxed))
		order(qp, ORDER_MOVE);
	/* partner: the acquire load in find_qp() */
	atomic_store_explicit(&ctx->qps[index], qp, memory_order_release);
	*out = (struct nic_qp *)qp;
	return 0;
}

int
roce_peer_find(struct roce_device *dev, const struct nic_gid *gid, struct address *out,
	       struct neighbour **neighbour)
{
	struct address ip, hop;

	if (roce_address(gid, &ip) != (dev->headers.six ? ADDRESS_IP6 : ADDRESS_IP4))
		return -EINVAL;
	if (!roce_next_hop(dev, gid, &hop))
		return -ENETUNREACH;
	*neighbour = roce_neighbour_get(&dev->neighbours, hop);
	if (*neighbour == NULL)
		return -ENOSPC;
	if (address_same(ip, dev->address))
		roce_neighbour_learn(*neighbour, ip, dev->config.mac);
	*out = ip;
	return 0;
}

int
roce_qp_modify(struct nic_qp *nqp, const struct nic_qp_attr *attr)
{
	struct roce_qp *qp = (struct roce_qp *)nqp;
	struct requester *rq = &qp->rq;
	struct roce_device *dev = qp->ctx->dev;
	const struct roce_config *config = &dev->config;
	uint8_t *t = qp->template + ROCE_TEMPLATE_AT;
	struct address ip;
	struct qp_limits limits = {.mtu = config->mtu, .rd_atomic = config->rd_atomic};
	enum nic_qp_state state = qp_state(qp), to = attr->state;
	uint8_t from = (uint8_t)state;
	int error;

	if (state == NIC_QP_RESET)
		qp->resetting = false;
	if (state == NIC_QP_RTS && atomic_load_explicit(&qp->drain, memory_order_relaxed))
		state = NIC_QP_SQD;
	if (qp->resetting)
		return -EAGAIN;
	error = qp_orders_check(state, attr, &limits);
	if (error)
		return error;
	if (to == NIC_QP_ERR) {
		order(qp, ORDER_ERROR);
		return 0;
	}
	if (to == NIC_QP_RESET) {
		qp->resetting = state != NIC_QP_RESET;
		if (qp->resetting)
			order(qp, ORDER_RESET);
		return 0;
	}
	if (to == NIC_QP_SQD || state == NIC_QP_SQD) {
		/* the mailbox orders it */
		atomic_store_explicit(&qp->drain, to == NIC_QP_SQD, memory_order_relaxed);
		order(qp, ORDER_DRAIN);
		return 0;
	}
	if (to == NIC_QP_INIT) { /* the engine has released the QP */
		if (qp->neighbour)
			roce_neighbour_put(qp->neighbour);
		qp->neighbour = NULL;
		qp->peer = (struct address){UINT64_MAX, UINT64_MAX};
		qp->access = NIC_REMOTE_WRITE;
		atomic_store_explicit(&qp->drain, false, memory_order_relaxed);
	} else if (to == NIC_QP_RTR) {
		qp->mtu = attr->mtu ? attr->mtu : config->mtu;
		qp->qkey = attr->qkey;
		if (!qp->ud) {
			error = roce_peer_find(dev, &attr->remote_gid, &ip, &qp->neighbour);
			if (error)
				return error;
			qp->peer = ip;
			qp->peer_qpn = attr->remote_qpn;
			qp->rs.expected = attr->remote_psn;
			qp->rs.served_limit = attr->rd_atomic ? attr->rd_atomic : config->rd_atomic;
			if (attr->access)
				qp->access = attr->access;
			/* Headers of all frames of the QP; lengths, checksum, opcode, PSN and the
			 * peer's MAC are set per frame. Lengths of an earlier life would be part of
			 * the sum. */
			memset(qp->template, 0, sizeof(qp->template));
			qp->ip_sum = roce_template_make(dev, ip, attr->traffic_class,
							attr->priority, qp->template);
			put16(t + UDP_AT, roce_source_port(qp->head.qpn, qp->peer_qpn));
			put32(t + BTH_AT + 4, qp->peer_qpn);
		}
	} else {
		rq->una = rq->send = rq->next = attr->psn;
		rq->timeout_ns = attr->timeout_ns ? attr->timeout_ns : config->timeout_ns;
		rq->retry = attr->retry ? attr->retry : config->retry;
		rq->rnr_retry = attr->rnr_retry ? attr->rnr_retry : config->rnr_retry;
		rq->rnr_left = rq->rnr_retry;
		rq->reads_limit = attr->rd_atomic ? attr->rd_atomic : config->rd_atomic;
		roce_window_init(&rq->window, ROCE_FRAME_MAX(qp->mtu), ROCE_MIN_FRAMES,
				 config->window_bytes);
	}
	/* fails if the engine has met an error meanwhile */
	return qp_enter(qp, &from, to) ? 0 : -EINVAL;
}

void
roce_qp_destroy(struct nic_qp *nqp)
{
	struct roce_qp *qp = (struct roce_qp *)nqp;
	struct roce_context *ctx;

	if (qp == NULL)
		return;
	ctx = qp->ctx;
	/* partner: the acquire load in find_qp() */
	atomic_store_explicit(&ctx->qps[qp->index], NULL, memory_order_release);
	order(qp, ORDER_DESTROY);
	roce_qp_reap(ctx);
}

void
roce_qp_free(struct roce_qp *qp)
{
	weir_assert(qp->ctx->cq_reserved >= qp->send_wrs);
	list_remove(&qp->all);
	if (qp->neighbour)
		roce_neighbour_put(qp->neighbour);
	if (qp->srq)
		roce_srq_release(qp->srq);
	qp->ctx->cq_reserved -= qp->send_wrs;
	roce_memory_put(qp->ctx->dev, qp, qp->bytes);
}

void
roce_qp_reap(struct roce_context *ctx)
{
	/* partner: the release push in end() of qp_poll.c */
	struct roce_qp *qp = atomic_exchange_explicit(&ctx->dead, NULL, memory_order_acquire);

	while (qp) {
		struct roce_qp *next = qp->mail_next;

		roce_qp_free(qp);
		qp = next;
	}
}
