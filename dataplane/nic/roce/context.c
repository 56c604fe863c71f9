/* SPDX-License-Identifier: BSD-3-Clause */
/* One engine's part of a device, and its turn: poll, flush, arm. */
#include "context.h"
#include "ack.h"
#include "qp_poll.h"
#include "srq.h"
#include "timer.h"

#include <assert.h>
#include <errno.h>

#define CQ_LEAST 1024u /* completions of the smallest ring */

/* ---- completions ---- */

static struct cq_ring *
cq_make(struct roce_context *ctx, uint32_t least)
{
	uint32_t size = CQ_LEAST;
	struct cq_ring *r;
	size_t bytes;

	while (size < least)
		size *= 2;
	bytes = sizeof(*r) + size * sizeof(r->entries[0]);
	r = roce_memory_get(ctx->dev, ctx->id, bytes);
	if (r == NULL)
		return NULL;
	r->bytes = bytes;
	r->size = ctx->cq_size = size;
	return r;
}

static void
cq_use(struct roce_context *ctx, struct cq_ring *r)
{
	ctx->cq_ring = r;
	ctx->cq = r->entries;
	ctx->cq_mask = r->size - 1;
}

static void
cq_free(struct roce_context *ctx, struct cq_ring *r)
{
	if (r)
		roce_memory_put(ctx->dev, r, r->bytes);
}

int
roce_cq_reserve(struct roce_context *ctx, uint32_t more)
{
	struct cq_ring *r;

	if (more > ctx->dev->config.cq_depth - ctx->cq_reserved)
		return -ENOSPC;
	roce_cq_reap(ctx);
	if (ctx->cq_reserved + more > ctx->cq_size) {
		r = cq_make(ctx, ctx->cq_reserved + more);
		if (r == NULL)
			return -ENOMEM;
		/* partner: the exchange in roce_cq_move(). One that the engine has not taken is
		 * ours again. */
		cq_free(ctx, atomic_exchange_explicit(&ctx->cq_next, r, memory_order_acq_rel));
	}
	ctx->cq_reserved += more;
	return 0;
}

void
roce_cq_move(struct roce_context *ctx)
{
	/* partner: the exchange in roce_cq_reserve() */
	struct cq_ring *r = atomic_exchange_explicit(&ctx->cq_next, NULL, memory_order_acq_rel);
	struct cq_ring *old = ctx->cq_ring;

	if (r == NULL)
		return;
	weir_assert(r->size >= old->size);
	for (uint32_t i = ctx->cq_tail; i != ctx->cq_head; i++)
		r->entries[i & (r->size - 1)] = old->entries[i & (old->size - 1)];
	cq_use(ctx, r);
	old->next = atomic_load_explicit(&ctx->cq_left, memory_order_relaxed);
	/* release; partner: the acquire exchange in roce_cq_reap() */
	while (!atomic_compare_exchange_weak_explicit(&ctx->cq_left, &old->next, old,
						      memory_order_release, memory_order_relaxed))
		;
}

void
roce_cq_reap(struct roce_context *ctx)
{
	/* partner: the release in roce_cq_move() */
	struct cq_ring *r = atomic_exchange_explicit(&ctx->cq_left, NULL, memory_order_acquire);

	while (r) {
		struct cq_ring *next = r->next;

		cq_free(ctx, r);
		r = next;
	}
}

struct roce_context *
roce_context_create(struct roce_device *dev, unsigned id, const struct roce_wire *wire,
		    void *wire_user)
{
	uint32_t qps = 1u << dev->index_bits;
	struct roce_context *ctx;

	if (id >= dev->config.contexts || dev->contexts[id] || !wire->alloc || !wire->drop ||
	    !wire->send || !wire->room || !wire->receive || !wire->flush) {
		errno = EINVAL;
		return NULL;
	}
	ctx = roce_memory_get(dev, id, sizeof(*ctx));
	if (ctx == NULL)
		goto err;
	ctx->dev = dev;
	ctx->id = id;
	ctx->cq_ring = cq_make(ctx, 1);
	/* QPs by index, and behind them their generations */
	ctx->qps_bytes = qps * sizeof(ctx->qps[0]) + qps;
	ctx->qps = roce_memory_get(dev, id, ctx->qps_bytes);
	if (ctx->cq_ring == NULL || ctx->qps == NULL)
		goto err_free;
	cq_use(ctx, ctx->cq_ring);
	ctx->generations = (uint8_t *)(ctx->qps + qps);
	ctx->head = (struct nic_context_head){.ops = &roce_ops, .dev = roce_nic_device(dev)};
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
	cq_free(ctx, ctx->cq_ring);
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
	cq_free(ctx, atomic_exchange_explicit(&ctx->cq_next, NULL, memory_order_acquire));
	roce_cq_reap(ctx);
	cq_free(ctx, ctx->cq_ring);
	roce_memory_put(dev, ctx, sizeof(*ctx));
}

unsigned
roce_context_poll(struct nic_context *nctx, struct nic_wc *wc, unsigned n, uint64_t now, bool *busy)
{
	struct roce_context *ctx = (struct roce_context *)nctx;
	unsigned frames, count = 0;

	if (atomic_load_explicit(&ctx->mailbox, memory_order_relaxed))
		roce_qp_take_orders(ctx);
	ctx->head.now = now;
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
	ctx->at_once = 0;
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
	if (ctx->at_once != 0 || !list_empty(&ctx->senders) || !list_empty(&ctx->acks) ||
	    ctx->cq_tail != ctx->cq_head ||
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
