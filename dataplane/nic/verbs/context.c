/* SPDX-License-Identifier: BSD-3-Clause */
/* One engine's part of a device: completion queues, their channel, SRQs, sleep. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>

static int
make_cq(struct vnic_context *ctx, struct vnic_cq *cq, uint32_t entries)
{
	cq->cq = ibv_create_cq(ctx->dev->ctx, (int)entries, cq, ctx->channel, 0);
	if (!cq->cq)
		return errno ? -errno : -ENOMEM;
	cq->entries = entries;
	return 0;
}

/* A CQ with room for the completions of one more QP, made if there is none; NULL and errno. */
struct vnic_cq *
vnic_send_cq(struct vnic_context *ctx, uint32_t entries)
{
	uint32_t count = atomic_load_explicit(&ctx->send_cqs, memory_order_relaxed);
	uint32_t size = (uint32_t)ctx->dev->attr.max_cqe;
	struct vnic_cq *cq;
	int rc;

	for (uint32_t i = 0; i < count; i++)
		if (ctx->send_cq[i]->entries - ctx->send_cq[i]->reserved >= entries)
			return ctx->send_cq[i];
	errno = ENOSPC;
	if (count == VNIC_SEND_CQS || entries > size)
		return NULL;
	if (size > VNIC_SEND_CQ)
		size = entries > VNIC_SEND_CQ ? entries : VNIC_SEND_CQ;
	cq = vnic_get(ctx->dev, sizeof(*cq), ctx->dev->config.numa_socket[ctx->id]);
	if (!cq)
		return NULL;
	rc = make_cq(ctx, cq, size);
	if (rc) {
		vnic_put(ctx->dev, cq, sizeof(*cq));
		errno = -rc;
		return NULL;
	}
	ctx->send_cq[count] = cq;
	/* partner: the acquire loads in vnic_poll() and vnic_arm() */
	atomic_store_explicit(&ctx->send_cqs, count + 1, memory_order_release);
	return cq;
}

int
vnic_context_create(struct vnic_device *dev, unsigned id)
{
	struct vnic_context *ctx = vnic_get(dev, sizeof(*ctx), dev->config.numa_socket[id]);
	int flags;

	if (!ctx)
		return -ENOMEM;
	dev->context[id] = ctx;
	ctx->head = (struct nic_context_head){.ops = &vnic_ops, .dev = vnic_nic_device(dev)};
	ctx->dev = dev;
	ctx->id = id;
	ctx->channel = ibv_create_comp_channel(dev->ctx);
	if (!ctx->channel)
		return errno ? -errno : -ENOMEM;
	flags = fcntl(ctx->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(ctx->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return -errno;
	return make_cq(ctx, &ctx->recv_cq, dev->config.recv_depth);
}

static void
acknowledge(struct vnic_cq *cq)
{
	if (cq->events)
		ibv_ack_cq_events(cq->cq, cq->events);
	cq->events = 0;
}

static void
free_cq(struct vnic_cq *cq)
{
	if (!cq->cq)
		return;
	acknowledge(cq);
	ibv_destroy_cq(cq->cq);
}

/* The engine has stopped: this is its part of every QP's end. */
void
vnic_context_destroy(struct vnic_context *ctx)
{
	struct vnic_device *dev;
	uint32_t cqs;

	if (!ctx)
		return;
	dev = ctx->dev;
	while (!LIST_EMPTY(&ctx->all))
		vnic_qp_free(LIST_FIRST(&ctx->all));
	for (unsigned i = 0; i < VNIC_SRQS; i++)
		if (ctx->srq[i])
			vnic_srq_free(ctx->srq[i]);
	cqs = atomic_load_explicit(&ctx->send_cqs, memory_order_relaxed);
	for (uint32_t i = 0; i < cqs; i++) {
		free_cq(ctx->send_cq[i]);
		vnic_put(dev, ctx->send_cq[i], sizeof(*ctx->send_cq[i]));
	}
	free_cq(&ctx->recv_cq);
	if (ctx->channel)
		ibv_destroy_comp_channel(ctx->channel);
	for (unsigned i = 0; i < VNIC_QPN_PAGE; i++)
		vnic_put(dev, (void *)atomic_load_explicit(&ctx->qps[i], memory_order_relaxed),
			 VNIC_QPN_PAGE * sizeof(_Atomic(struct vnic_qp *)));
	dev->context[ctx->id] = NULL;
	vnic_put(dev, ctx, sizeof(*ctx));
}

/* ---- sleep ---- */

/*
 * Completions of before the CQs were armed raise no event: after arming the engine polls again, and
 * sleeps only if nothing has changed when it comes back here.
 */
uint64_t
vnic_arm(struct nic_context *nctx, uint64_t now, int *fd)
{
	struct vnic_context *ctx = (struct vnic_context *)nctx;
	uint64_t next = UINT64_MAX;
	struct ibv_cq *cq;
	uint32_t cqs;
	void *user;

	*fd = ctx->channel->fd;
	while (!ibv_get_cq_event(ctx->channel, &cq, &user)) {
		struct vnic_cq *owner = user;

		ctx->armed = false;
		if (++owner->events == VNIC_EVENTS)
			acknowledge(owner);
	}
	if (ctx->dirty || ctx->refused || atomic_load_explicit(&ctx->mailbox, memory_order_relaxed))
		return now;
	/* partner: the release store in vnic_send_cq() */
	cqs = atomic_load_explicit(&ctx->send_cqs, memory_order_acquire);
	if (!ctx->armed || ctx->armed_cqs != cqs) {
		ibv_req_notify_cq(ctx->recv_cq.cq, 0);
		for (uint32_t i = 0; i < cqs; i++)
			ibv_req_notify_cq(ctx->send_cq[i]->cq, 0);
		ctx->armed_cqs = cqs;
		ctx->armed = true;
		return now;
	}
	for (const struct vnic_qp *qp = ctx->ending; qp; qp = qp->next_ending)
		if (qp->deadline < next)
			next = qp->deadline;
	return next;
}

/* ---- SRQs ---- */

int
vnic_srq_create(struct nic_context *nctx, uint32_t depth, struct nic_srq **out)
{
	struct vnic_context *ctx = (struct vnic_context *)nctx;
	struct ibv_srq_init_attr init = {.attr = {.max_wr = depth, .max_sge = 1}};
	size_t bytes = sizeof(struct vnic_srq) +
		       depth * (sizeof(uint64_t) + sizeof(struct ibv_sge) + sizeof(uint32_t));
	struct vnic_srq *srq;
	uint32_t index = 0;
	int rc = 0;

	if (!depth || depth > (uint32_t)ctx->dev->attr.max_srq_wr)
		return -EINVAL;
	while (index < VNIC_SRQS && ctx->srq[index])
		index++;
	if (index == VNIC_SRQS || depth > ctx->dev->config.recv_depth - ctx->recv_reserved)
		return -ENOSPC;
	srq = vnic_get(ctx->dev, bytes, ctx->dev->config.numa_socket[ctx->id]);
	if (!srq)
		return -ENOMEM;
	srq->ctx = ctx;
	srq->depth = srq->free_count = depth;
	srq->bytes = bytes;
	srq->index = index;
	srq->wr_id = (uint64_t *)(srq + 1);
	srq->sge = (struct ibv_sge *)(srq->wr_id + depth);
	srq->free_place = (uint32_t *)(srq->sge + depth);
	for (uint32_t i = 0; i < depth; i++)
		srq->free_place[i] = i;
	srq->srq = ibv_create_srq(ctx->dev->pd, &init);
	if (!srq->srq) {
		rc = errno ? -errno : -ENOMEM;
		vnic_put(ctx->dev, srq, srq->bytes);
		return rc;
	}
	ctx->recv_reserved += depth;
	weir_assert(ctx->recv_reserved <= ctx->dev->config.recv_depth);
	ctx->srq[index] = srq;
	*out = (struct nic_srq *)srq;
	return 0;
}

void
vnic_srq_free(struct vnic_srq *srq)
{
	struct vnic_context *ctx = srq->ctx;

	weir_assert(srq->users == 0 && ctx->recv_reserved >= srq->depth);
	ibv_destroy_srq(srq->srq);
	ctx->recv_reserved -= srq->depth;
	ctx->srq[srq->index] = NULL;
	vnic_put(ctx->dev, srq, srq->bytes);
}

void
vnic_srq_destroy(struct nic_srq *nsrq)
{
	struct vnic_srq *srq = (struct vnic_srq *)nsrq;

	if (!srq)
		return;
	vnic_qp_reap(srq->ctx);
	srq->destroy_called = true;
	if (!srq->users)
		vnic_srq_free(srq);
}
