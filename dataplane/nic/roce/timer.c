/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One timer per QP: for an ACK, for the peer's receiver to be ready, for ARP. Waiting QPs are in a
 * list, which is walked when the earliest deadline may have come.
 */
#include "timer.h"
#include "arp.h"
#include "context.h"
#include "qp_poll.h"
#include "ud.h"

void
roce_timer_start(struct roce_qp *qp, uint64_t deadline)
{
	struct roce_context *ctx = qp->ctx;

	weir_assert(qp_state(qp) == NIC_QP_RTS);
	qp->rq.deadline = deadline;
	if (!list_linked(&qp->timer))
		list_append(&ctx->timers, &qp->timer);
	if (deadline < ctx->next_tick)
		ctx->next_tick = deadline;
}

static void
expired(struct roce_qp *qp, uint64_t now)
{
	struct requester *rq = &qp->rq;

	if (qp->ud) {
		roce_ud_expired(qp, now);
		return;
	}
	if (rq->rnr_wait) {
		rq->rnr_wait = false;
		rq->deadline = now + roce_window_rto(&rq->window, rq->timeout_ns);
		roce_requester_wake(qp);
		return;
	}
	if (rq->una == rq->next && rq->built == rq->posted) {
		list_remove(&qp->timer);
		return;
	}
	roce_count(&qp->ctx->counters.timeouts, 1);
	/* both: a process that was stopped for a while must still get its retries */
	if (rq->retries >= rq->retry &&
	    now - rq->progress >= rq->timeout_ns * (rq->retry + UINT64_C(1))) {
		roce_qp_fail(qp, rq->retired, NIC_WC_RETRY_EXC_ERR);
		return;
	}
	if (rq->retries < 32)
		rq->retries++;
	if (rq->retries >= 7) /* the peer may have another MAC now */
		roce_arp_ask(qp->ctx, qp->neighbour, now);
	roce_window_timeout(&rq->window, rq->next);
	roce_requester_go_back(qp);
	rq->deadline = now + roce_window_rto(&rq->window, rq->timeout_ns);
}

void
roce_timer_run(struct roce_context *ctx, uint64_t now)
{
	uint64_t earliest = UINT64_MAX;
	uint64_t soonest = now + ROCE_TICK_NS;
	struct list_node *l, *next;

	for (l = ctx->timers.next; l != &ctx->timers; l = next) {
		struct roce_qp *qp = LIST_OWNER(l, struct roce_qp, timer);

		next = l->next;
		soonest += ROCE_TICK_QP_NS;
		if (qp->rq.deadline <= now)
			expired(qp, now);
		if (list_linked(l) && qp->rq.deadline < earliest)
			earliest = qp->rq.deadline;
	}
	ctx->next_tick = earliest < soonest ? soonest : earliest;
}
