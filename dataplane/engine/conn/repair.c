/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link whose QPs failed continues with new ones: pause, then resume from the ring position that
 * the peer's engine has consumed. Meanwhile lines wait, as they do when the peer's ring is full.
 * docs/protocol.md 2 says why nothing is lost or doubled.
 */
#include "batch.h"
#include "flight.h"
#include "link.h"
#include "state.h"

#include <errno.h>

int
link_pause(struct engine *e, struct engine_link_command *k)
{
	struct peer_link *l = link_find(e, k->link);

	if (!l)
		return -ENOENT;
	if (!link_lasts(l)) { /* nothing to repair; the event may come after this answer */
		link_over(e, l);
		return -ENOLINK;
	}
	k->proven = !l->proof && !l->bulk_unproven;
	l->bulk_broken = l->look = true;
	if (k->resumes == WEIR_RESUME_BOTH) {
		l->broken = true;
		l->tx_limit = 0;
		l->frame_wrs = 0;
		/* the peer will count from what we have received, as if all were posted again */
		l->wrs_back = l->wrs_told = l->wrs_seen;
		l->heard = false;
	}
	if (!l->broken || k->resumes == WEIR_RESUME_BOTH)
		l->error = 0;
	k->consumed = l->rx_pos;
	k->received = l->wrs_seen;
	link_rings_fill(l, &k->rings);
	return 0;
}

static void
take_over(struct peer_link *l, const struct engine_link_command *k, unsigned index)
{
	l->is.qp[index] = k->qp[index];
	l->qpn[index] = nic_qpn(k->qp[index]);
}

/* The ring's part of link_resume(). */
static int
resume_ring(struct engine *e, struct peer_link *l, const struct engine_link_command *k)
{
	struct weir_credit_line *line = &l->is.credit[0];
	/* LINK_LEFT has arrived: the peer names the memory that follows */
	bool moved = l->way == WAY_LEFT && k->consumed == l->left_at;

	if (l->unanswered || k->peer_ring_lines != (moved ? l->next_way.lines : l->mask + 1))
		return -EPROTO;
	if (k->consumed < l->credited || k->consumed > l->tx_posted ||
	    k->received < l->wrs_credited || k->received > l->wrs_used)
		return -EPROTO;
	/* the peer may name any position: only whole frames follow a valid one */
	for (uint64_t at = k->consumed; at != l->tx_posted;) {
		struct weir_frame_head head;

		memcpy(&head, link_at(l, at), sizeof(head));
		if (head.version != WEIR_WIRE_VERSION || head.position != at || !head.lines ||
		    head.lines > l->tx_posted - at)
			return -EPROTO;
		at += head.lines;
	}
	take_over(l, k, RING);
	l->is.ring_mr = k->ring_mr;
	l->is.least = k->least;
	l->is.credit_mr = k->credit_mr;
	*(moved ? &l->next_way.address : &l->is.peer_ring_address) = k->peer_ring_address;
	*(moved ? &l->next_way.rkey : &l->is.peer_ring_rkey) = k->peer_ring_rkey;
	l->is.peer_credit_address = k->peer_credit_address;
	l->is.peer_credit_rkey = k->peer_credit_rkey;
	l->wrs_used = l->wrs_credited = k->received;
	/* credit from frames that the peer still has to repeat doesn't count before those */
	atomic_store_explicit(&line->consumed, l->credited, memory_order_relaxed);
	atomic_store_explicit(&line->wrs, l->wrs_credited, memory_order_relaxed);
	atomic_store_explicit(&line->executed, l->executed, memory_order_relaxed);
	l->snapped = false;
	if (l->tx_pos != l->tx_posted)
		link_seal(e, l);
	l->sq_done[RING] = l->sq_signaled = l->sq_posted[RING];
	l->stalled = l->stall_told = false;
	l->replay = k->consumed;
	l->replaying = true;
	l->proof = PROOF_DUE;
	if (l->last_wr)
		l->last_wr = PROOF_DUE;
	if (l->left_wr)
		l->left_wr = PROOF_DUE;
	/* our credit may be lost as well: return it again, and wake the peer */
	l->peer_stalled = true;
	l->credit_due = e->now;
	l->broken = false;
	return 0;
}

int
link_resume(struct engine *e, const struct engine_link_command *k)
{
	struct peer_link *l = link_find(e, k->link);
	int rc = 0;

	if (!l || !l->bulk_broken || (k->resumes == WEIR_RESUME_BOTH && !l->broken))
		return -EINVAL;
	if (k->resumes == WEIR_RESUME_BOTH)
		rc = resume_ring(e, l, k);
	if (rc)
		return rc;
	take_over(l, k, BULK);
	flight_resume(e, l);
	l->bulk_broken = false;
	l->hold = (uint8_t)k->resumes;
	l->heard_at = e->now;
	l->silent = false;
	link_busy(e, l);
	return 0;
}

int
link_go(struct engine *e, const struct engine_link_command *k)
{
	struct peer_link *l = link_find(e, k->link);

	if (!l)
		return -ENOENT;
	l->hold = WEIR_RESUME_NOT;
	link_busy(e, l);
	return 0;
}

void
link_heard(struct engine *e, struct peer_link *l)
{
	l->hold = WEIR_RESUME_NOT;
	l->heard = true;
	link_busy(e, l);
	link_tell(e, l);
}
