/* SPDX-License-Identifier: BSD-3-Clause */
/* One engine's part of a device, and its turn: poll, flush, arm. */
#include "context.h"
#include "ack.h"
#include "qp_poll.h"
#include "srq.h"
#include "timer.h"

#include <assert.h>
#include <errno.h>

struct roce_context *
roce_context_create(struct roce_device *dev, unsigned id, const struct roce_wire *wire,
		    void *wire_user)
{
	uint32_t size = 1, qps = 1u << dev->index_bits;
	struct roce_context *ctx;

	if (id >= dev->config.contexts || dev->contexts[id] || !wire->alloc || !wire->drop ||
	    !wire->send || !wire->room || !wire->receive || !wire->flush) {
		errno = EINVAL;
		return NULL;
	}
	ctx = roce_memory_get(dev, id, sizeof(*ctx));
	if (ctx == NULL)
		goto err;
	while (size < dev->config.cq_depth)
		size *= 2;
	ctx->cq_bytes = size * sizeof(ctx->cq[0]);
	ctx->cq_mask = size - 1;
	ctx->cq = roce_memory_get(dev, id, ctx->cq_bytes);
	/* QPs by index, and behind them their generations */
	ctx->qps_bytes = qps * sizeof(ctx->qps[0]) + qps;
	ctx->qps = roce_memory_get(dev, id, ctx->qps_bytes);
	if (ctx->cq == NULL || ctx->qps == NULL)
		goto err_free;
	ctx->generations = (uint8_t *)(ctx->qps + qps);
	ctx->head = (struct nic_context_head){.ops = &roce_ops, .dev = roce_nic_device(dev)};
	ctx->dev = dev;
	ctx->id = id;
	ctx->wire = *wire;
	ctx->wire_user = wire_user;
	ctx->front = dev->headers.front;
	ctx->frame_at = wire->data_offset + dev->headers.front;
	ctx->next_tick = UINT64_MAX;
	list_init(&ctx->senders);
	list_init(&ctx->acks);
	list_init(&ctx->timers);
	list_init(&ctx->all_qps);
	list_init(&ctx->all_srqs);
	dev->contexts[id] = ctx;
	return ctx;
err_free:
	roce_memory_put(dev, ctx->qps, ctx->qps_bytes);
	roce_memory_put(dev, ctx->cq, ctx->cq_bytes);
	roce_memory_put(dev, ctx, sizeof(*ctx));
err:
	errno = ENOMEM;
	return NULL;
}

void
roce_context_destroy(struct roce_context *ctx)
{
	struct roce_device *dev = ctx->dev;

	/* the engine has stopped: this is its part of every QP's end */
	while (!list_empty(&ctx->all_qps)) {
		struct roce_qp *qp = LIST_OWNER(ctx->all_qps.next, struct roce_qp, all);

		roce_qp_drop_frames(qp, qp->rq.next - qp->rq.una);
		roce_qp_free(qp);
	}
	while (!list_empty(&ctx->all_srqs))
		roce_srq_free(LIST_OWNER(ctx->all_srqs.next, struct roce_srq, all));
	if (ctx->spare_count > 0)
		ctx->wire.drop(ctx->wire_user, ctx->spare, ctx->spare_count);
	roce_memory_put(dev, ctx->qps, ctx->qps_bytes);
	roce_memory_put(dev, ctx->cq, ctx->cq_bytes);
	roce_memory_put(dev, ctx, sizeof(*ctx));
}

unsigned
roce_context_poll(struct nic_context *nctx, struct nic_wc *wc, unsigned n, uint64_t now, bool *busy)
{
	struct roce_context *ctx = (struct roce_context *)nctx;
	unsigned frames, count = 0;

	if (atomic_load_explicit(&ctx->mailbox, memory_order_relaxed))
		roce_qp_take_orders(ctx);
	frames = ctx->wire.receive(ctx->wire_user, ctx, now);
	ctx->received = frames != 0;
	/* after a while without the CPU, late frames may lie behind those just taken */
	if (now >= ctx->next_tick && (frames == 0 || ++ctx->deferred == ROCE_DEFER_MAX)) {
		ctx->deferred = 0;
		roce_timer_run(ctx, now);
	}
	while (count < n && ctx->cq_tail != ctx->cq_head) {
		struct cq_entry *e = &ctx->cq[ctx->cq_tail++ & ctx->cq_mask];

		if (e->srq)
			e->srq->freed++;
		else if (e->qp)
			e->qp->rq.freed = e->sq_freed;
		else
			continue;
		wc[count++] = e->wc;
	}
	if (frames != 0 || count != 0 || ctx->unsent)
		*busy = true;
	return count;
}

void
roce_context_flush(struct nic_context *nctx, uint64_t now)
{
	struct roce_context *ctx = (struct roce_context *)nctx;

	/* not in poll: the engine works on what came first */
	if (roce_ack_due(ctx, now))
		roce_ack_all(ctx);
	ctx->unsent = false;
	if (!list_empty(&ctx->senders))
		roce_requester_flush(ctx, now);
	ctx->wire.flush(ctx->wire_user, now);
}

uint64_t
roce_context_arm(struct nic_context *nctx, uint64_t now, int *fd)
{
	struct roce_context *ctx = (struct roce_context *)nctx;
	uint64_t next = UINT64_MAX;

	*fd = -1;
	if (ctx->wire.arm)
		next = ctx->wire.arm(ctx->wire_user, now, fd);
	if (!list_empty(&ctx->senders) || !list_empty(&ctx->acks) || ctx->cq_tail != ctx->cq_head ||
	    atomic_load_explicit(&ctx->mailbox, memory_order_relaxed))
		return now;
	if (!list_empty(&ctx->timers) && ctx->next_tick < next)
		next = ctx->next_tick;
	return next;
}

void
roce_context_counters(const struct nic_context *nctx, struct nic_counters *out)
{
	const struct roce_context *ctx = (const struct roce_context *)nctx;
	const uint64_t *from = (const uint64_t *)(const void *)&ctx->counters;
	uint64_t *to = (uint64_t *)(void *)out;

	static_assert(sizeof(*out) % sizeof(uint64_t) == 0, "counters are 64-bit words");
	for (size_t i = 0; i < sizeof(*out) / sizeof(uint64_t); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

struct nic_counters *
roce_counters(struct roce_context *ctx)
{
	return &ctx->counters;
}
