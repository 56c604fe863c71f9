/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link whose QPs failed goes on with new ones: pause, then resume from what the peer's engine has
 * taken out of its ring. Meanwhile whatever would leave waits, as it does when the peer's ring is
 * full. docs/protocol.md 2 says why nothing is lost or doubled.
 */
#include "batch.h"
#include "link.h"
#include "rndv.h"
#include "state.h"

#include <errno.h>

static struct link *
find(struct engine *e, uint32_t id)
{
	return id < e->config.links && e->links[id].up ? &e->links[id] : NULL;
}

/* Main has moved those QPs to ERR and will destroy them. What comes of them is not looked at. */
int
link_pause(struct engine *e, struct engine_link_command *k)
{
	struct link *l = find(e, k->link);

	if (!l)
		return -ENOENT;
	k->proven = !l->proof && !l->bulk_unproven;
	l->bulk_broken = true;
	if (k->resumes == WEIR_RESUME_BOTH) {
		l->broken = true;
		l->tx_limit = 0;
		l->frame_wrs = l->frame_posted = 0;
		/* the peer will count from what we have received, as if all were given back */
		l->wrs_back = l->wrs_told = l->wrs_seen;
		l->heard = false;
	}
	if (!l->broken || k->resumes == WEIR_RESUME_BOTH)
		l->error = 0;
	k->consumed = l->rx_pos;
	k->received = l->wrs_seen;
	return 0;
}

/* What lies in the staging from `at` on are whole frames: the peer may say any number. */
static bool
frames_from(const struct link *l, uint64_t at)
{
	while (at != l->tx_posted) {
		struct weir_frame_head head;

		memcpy(&head, link_at(l, at), sizeof(head));
		if (head.version != WEIR_WIRE_VERSION || head.position != at || !head.lines ||
		    head.lines > l->tx_posted - at)
			return false;
		at += head.lines;
	}
	return true;
}

static void
take_over(struct link *l, const struct engine_link_command *k, unsigned index)
{
	l->is.qp[index] = k->qp[index];
	l->qpn[index] = nic_qpn(k->qp[index]);
}

static int
resume_ring(struct engine *e, struct link *l, const struct engine_link_command *k)
{
	struct weir_credit_line *line = &l->is.credit[0];

	if (k->consumed < l->credited || k->consumed > l->tx_posted ||
	    k->received < l->wrs_credited || k->received > l->wrs_used ||
	    !frames_from(l, k->consumed))
		return -EPROTO;
	take_over(l, k, RING);
	l->is.ring_mr = k->ring_mr;
	l->is.staging_mr = k->staging_mr;
	l->is.credit_mr = k->credit_mr;
	l->is.peer_ring_address = k->peer_ring_address;
	l->is.peer_ring_rkey = k->peer_ring_rkey;
	l->is.peer_credit_address = k->peer_credit_address;
	l->is.peer_credit_rkey = k->peer_credit_rkey;
	l->wrs_used = l->wrs_credited = k->received;
	/* credit that came with frames which are still to be repeated doesn't count before them */
	atomic_store_explicit(&line->consumed, l->credited, memory_order_relaxed);
	atomic_store_explicit(&line->wrs, l->wrs_credited, memory_order_relaxed);
	l->snapped = false;
	if (l->tx_pos != l->tx_posted)
		link_seal(e, l);
	l->sq_done[RING] = l->sq_signaled[RING] = l->sq_posted[RING];
	l->stalled = l->stall_told = false;
	l->replay = k->consumed;
	l->replaying = true;
	l->proof = PROOF_DUE;
	/* our credit may be lost as well: it is told anew, and wakes the peer */
	l->peer_stalled = true;
	l->broken = false;
	return 0;
}

int
link_resume(struct engine *e, const struct engine_link_command *k)
{
	struct link *l = find(e, k->link);
	int rc = 0;

	if (!l || !l->bulk_broken || (k->resumes == WEIR_RESUME_BOTH && !l->broken))
		return -EINVAL;
	if (k->resumes == WEIR_RESUME_BOTH)
		rc = resume_ring(e, l, k);
	if (rc)
		return rc;
	take_over(l, k, BULK);
	bulk_resume(e, l);
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
	struct link *l = find(e, k->link);

	if (!l)
		return -ENOENT;
	l->hold = WEIR_RESUME_NOT;
	link_busy(e, l);
	return 0;
}

/* The peer writes into the ring: so it has resumed. */
void
link_heard(struct engine *e, struct link *l)
{
	l->hold = WEIR_RESUME_NOT;
	l->heard = true;
	e->news = true;
}
