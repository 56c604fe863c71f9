/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared receive queues. A WR counts as outstanding until its completion was polled; so the
 * completions of an SRQ must have been polled before it is destroyed.
 */
#include "srq.h"
#include "context.h"

#include <errno.h>

int
roce_srq_create(struct nic_context *nctx, uint32_t depth, struct nic_srq **out)
{
	struct roce_context *ctx = (struct roce_context *)nctx;
	uint32_t size = 1;
	struct roce_srq *srq;
	size_t bytes;
	int rc;

	if (depth == 0 || depth > ctx->dev->config.cq_depth)
		return -EINVAL;
	roce_qp_reap(ctx);
	rc = roce_cq_reserve(ctx, depth); /* the first QP that uses it makes the engine move */
	if (rc)
		return rc;
	while (size < depth)
		size *= 2;
	bytes = sizeof(*srq) + size * sizeof(srq->ring[0]);
	srq = roce_memory_get(ctx->dev, ctx->id, bytes);
	if (srq == NULL) {
		ctx->cq_reserved -= depth;
		return -ENOMEM;
	}
	srq->ctx = ctx;
	srq->ring = (struct nic_recv_wr *)(srq + 1);
	srq->mask = size - 1;
	srq->depth = depth;
	srq->bytes = bytes;
	list_append(&ctx->all_srqs, &srq->all);
	*out = (struct nic_srq *)srq;
	return 0;
}

void
roce_srq_free(struct roce_srq *srq)
{
	weir_assert(srq->users == 0);
	weir_assert(srq->ctx->cq_reserved >= srq->depth);
	list_remove(&srq->all);
	srq->ctx->cq_reserved -= srq->depth;
	roce_memory_put(srq->ctx->dev, srq, srq->bytes);
}

void
roce_srq_release(struct roce_srq *srq)
{
	weir_assert(srq->users > 0);
	if (--srq->users == 0 && srq->destroy_called)
		roce_srq_free(srq);
}

void
roce_srq_destroy(struct nic_srq *nsrq)
{
	struct roce_srq *srq = (struct roce_srq *)nsrq;

	if (srq == NULL)
		return;
	roce_qp_reap(srq->ctx);
	srq->destroy_called = true; /* freed with the last QP that uses it */
	if (srq->users == 0)
		roce_srq_free(srq);
}

int
roce_post_srq_recv(struct nic_srq *nsrq, const struct nic_recv_wr *wr, unsigned n)
{
	struct roce_srq *srq = (struct roce_srq *)nsrq;
	uint32_t room = srq->depth - (srq->posted - srq->freed);
	unsigned i;

	weir_assert(room <= srq->depth && srq->posted - srq->taken <= srq->depth);
	for (i = 0; i < n && i < room; i++)
		srq->ring[srq->posted++ & srq->mask] = wr[i];
	return (int)i;
}
