/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs as the main thread sees them. It writes a QP's fields before it publishes the state
 * that lets the engine use them; what must happen on the engine (error, end) is ordered through the
 * mailbox.
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

	/* partner: the exchange in roce_qp_take_orders(). Not empty: it is in the mailbox already
	 */
	if (atomic_fetch_or_explicit(&qp->orders, what, memory_order_acq_rel) != 0)
		return;
	head = atomic_load_explicit(&ctx->mailbox, memory_order_relaxed);
	do {
		qp->mail_next = head;
		/* release; partner: the acquire exchange of the mailbox in roce_qp_take_orders() */
	} while (!atomic_compare_exchange_weak_explicit(
	    &ctx->mailbox, &head, qp, memory_order_release, memory_order_relaxed));
}

/* A QP index that is free, or UINT32_MAX. */
static uint32_t
free_index(struct roce_context *ctx)
{
	uint32_t limit = ctx->dev->config.max_qp;

	for (uint32_t i = 0; i < limit; i++) {
		uint32_t index = (ctx->next_index + i) % limit;

		if (!atomic_load_explicit(&ctx->qps[index], memory_order_relaxed)) {
			ctx->next_index = index + 1;
			return index;
		}
	}
	return UINT32_MAX;
}

/* Number of the next QP at this index: generation, never 0, index, engine. */
static uint32_t
new_qpn(struct roce_context *ctx, uint32_t index)
{
	struct roce_device *dev = ctx->dev;
	uint32_t bits = dev->engine_bits + dev->index_bits, most = (1u << (24 - bits)) - 1;
	uint32_t generation = ctx->generations[index];

	generation = generation >= most || generation == UINT8_MAX ? 1 : generation + 1;
	ctx->generations[index] = (uint8_t)generation;
	return generation << bits | index << dev->engine_bits | ctx->id;
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
		reads * (sizeof(qp->rs.served[0]) + sizeof(qp->rq.fetches[0])) +
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
	qp->rs.served_mask = qp->rq.fetches_mask = reads - 1;
	qp->rq.fetches = (struct fetch *)(qp->rs.served + reads);
	qp->rq.frame_mask = frames - 1;
	return qp;
}

int
roce_qp_create(struct nic_context *nctx, const struct nic_qp_init *init, struct nic_qp **out)
{
	struct roce_context *ctx = (struct roce_context *)nctx;
	struct roce_config *config = &ctx->dev->config;
	uint32_t index;
	struct roce_qp *qp;

	if (init->type != NIC_RC && init->type != NIC_UD)
		return -EINVAL;
	if (init->send_wrs == 0 || init->send_wrs > config->max_wr)
		return -EINVAL;
	roce_qp_reap(ctx);
	index = free_index(ctx);
	if (index == UINT32_MAX || init->send_wrs > config->cq_depth - ctx->cq_reserved)
		return -ENOSPC;
	qp = allocate(ctx, init->send_wrs);
	if (qp == NULL)
		return -ENOMEM;
	qp->head = (struct nic_qp_head){.ops = &roce_ops, .qpn = new_qpn(ctx, index)};
	qp->ctx = ctx;
	qp->user = init->user;
	qp->ud = init->type == NIC_UD;
	qp->headers = ctx->dev->headers;
	qp->peer = (struct address){UINT64_MAX, UINT64_MAX};
	qp->access = NIC_REMOTE_WRITE;
	qp->index = index;
	qp->send_wrs = init->send_wrs;
	qp->srq = (struct roce_srq *)init->srq;
	if (qp->srq)
		qp->srq->users++;
	list_append(&ctx->all_qps, &qp->all);
	ctx->cq_reserved += init->send_wrs;
	/* partner: the acquire load in find_qp() */
	atomic_store_explicit(&ctx->qps[index], qp, memory_order_release);
	*out = (struct nic_qp *)qp;
	return 0;
}

int
roce_peer_find(struct roce_device *dev, const struct nic_gid *gid, struct address *out,
	       struct neighbour **neighbour)
{
	struct address ip;

	if (roce_address(gid, &ip) != (dev->headers.six ? ADDRESS_IP6 : ADDRESS_IP4))
		return -EINVAL;
	if (!roce_on_link(dev, ip))
		return -ENETUNREACH;
	*neighbour = roce_neighbour_get(&dev->neighbours, ip);
	if (*neighbour == NULL)
		return -ENOSPC;
	if (address_same(ip, dev->address))
		roce_neighbour_learn(*neighbour, ip, dev->config.mac);
	*out = ip;
	return 0;
}

/* Headers that all frames of the QP share; lengths, checksum, opcode, PSN and peer's MAC are set
 * per frame. */
static void
make_template(struct roce_qp *qp, uint8_t traffic_class)
{
	uint8_t *t = qp->template + ROCE_TEMPLATE_AT;

	/* an earlier life's lengths would be summed up */
	memset(qp->template, 0, sizeof(qp->template));
	qp->ip_sum = roce_template_make(qp->ctx->dev, qp->peer, traffic_class, qp->template);
	put16(t + UDP_AT, roce_source_port(qp->head.qpn, qp->peer_qpn));
	put32(t + BTH_AT + 4, qp->peer_qpn);
}

static int
to_rtr(struct roce_qp *qp, const struct nic_qp_attr *attr)
{
	struct roce_device *dev = qp->ctx->dev;
	uint16_t mtu = attr->mtu ? attr->mtu : dev->config.mtu;
	struct address ip;
	int error;

	if (mtu < 256 || mtu > dev->config.mtu || (mtu & (mtu - 1)) != 0 ||
	    attr->remote_qpn > QPN_MASK || attr->remote_psn > PSN_MASK ||
	    attr->rd_atomic > dev->config.rd_atomic)
		return -EINVAL;
	qp->mtu = mtu;
	qp->qkey = attr->qkey;
	if (qp->ud)
		return 0;
	error = roce_peer_find(dev, &attr->remote_gid, &ip, &qp->neighbour);
	if (error)
		return error;
	qp->peer = ip;
	qp->peer_qpn = attr->remote_qpn;
	qp->rs.expected = attr->remote_psn;
	qp->rs.served_limit = attr->rd_atomic ? attr->rd_atomic : dev->config.rd_atomic;
	if (attr->access)
		qp->access = attr->access;
	make_template(qp, attr->traffic_class);
	return 0;
}

static int
to_rts(struct roce_qp *qp, const struct nic_qp_attr *attr)
{
	const struct roce_config *config = &qp->ctx->dev->config;
	struct requester *rq = &qp->rq;

	if (attr->psn > PSN_MASK || attr->retry > 7 || attr->rnr_retry > 7 ||
	    attr->rd_atomic > config->rd_atomic)
		return -EINVAL;
	rq->una = rq->send = rq->next = attr->psn;
	rq->timeout_ns = attr->timeout_ns ? attr->timeout_ns : config->timeout_ns;
	rq->retry = attr->retry ? attr->retry : config->retry;
	rq->rnr_retry = attr->rnr_retry ? attr->rnr_retry : config->rnr_retry;
	rq->rnr_left = rq->rnr_retry;
	rq->fetches_limit = attr->rd_atomic ? attr->rd_atomic : config->rd_atomic;
	roce_window_init(&rq->window, ROCE_FRAME_MAX(qp->mtu), ROCE_MIN_FRAMES,
			 config->window_bytes);
	return 0;
}

/* The engine has let go of a QP that comes here. */
static void
to_init(struct roce_qp *qp)
{
	if (qp->neighbour)
		roce_neighbour_put(qp->neighbour);
	qp->neighbour = NULL;
	qp->peer = (struct address){UINT64_MAX, UINT64_MAX};
	qp->access = NIC_REMOTE_WRITE;
	atomic_store_explicit(&qp->drain, false, memory_order_relaxed);
}

static void
set_drain(struct roce_qp *qp, bool wanted)
{
	/* the mailbox orders it */
	atomic_store_explicit(&qp->drain, wanted, memory_order_relaxed);
	order(qp, ORDER_DRAIN);
}

/* The state that nic.h speaks of. */
static enum nic_qp_state
state_seen(struct roce_qp *qp)
{
	enum nic_qp_state state = qp_state(qp);

	if (state == NIC_QP_RESET)
		qp->resetting = false;
	if (state == NIC_QP_RTS && atomic_load_explicit(&qp->drain, memory_order_relaxed))
		return NIC_QP_SQD;
	return state;
}

int
roce_qp_modify(struct nic_qp *nqp, const struct nic_qp_attr *attr)
{
	struct roce_qp *qp = (struct roce_qp *)nqp;
	enum nic_qp_state state = state_seen(qp);
	uint8_t from = (uint8_t)state, to = (uint8_t)attr->state;
	int error = 0;

	if (qp->resetting)
		return -EAGAIN;
	if (!nic_qp_may(state, attr->state))
		return -EINVAL;
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
		set_drain(qp, to == NIC_QP_SQD);
		return 0;
	}
	if (to == NIC_QP_INIT)
		to_init(qp);
	else
		error = to == NIC_QP_RTR ? to_rtr(qp, attr) : to_rts(qp, attr);
	if (error)
		return error;
	/* release: partner is qp_state(). The engine may have found an error meanwhile */
	if (!atomic_compare_exchange_strong_explicit(&qp->state, &from, to, memory_order_release,
						     memory_order_relaxed))
		return -EINVAL;
	return 0;
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
