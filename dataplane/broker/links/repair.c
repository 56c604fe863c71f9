/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A QP error is not a lost node: the engine releases the QPs that failed, and new ones are made and
 * offered like those of a new link. The offer names the link that it resumes and says how far its
 * ring has been read. Lost or late offers, a repair by the peer at the same time and a control that
 * restarts are handled as in the set-up of a link: docs/protocol.md 2.
 */
#include "link.h"
#include "node.h"
#include "state.h"

#include "ipc/invariant.h"

#include <errno.h>

#define PATIENCE_NS (BROKER_SECOND_NS / 10) /* ns before another try after one that failed */

static unsigned
first_qp(const struct broker_link *l)
{
	return l->resumes == WEIR_RESUME_BOTH ? 0 : 1;
}

static void paused(struct broker *b, struct broker_command *c);

static void
pause_link(struct broker_link *l, uint32_t resumes)
{
	struct nic_qp_attr attr = {.state = NIC_QP_ERR};
	struct broker_command *c = command_reserved(l->b, l->engine, ENGINE_LINK_PAUSE, paused, l);

	link_enter(l, LINK_PAUSING);
	l->resumes = resumes;
	l->resumes_next = 0;
	l->confirmed = false;
	if (resumes == WEIR_RESUME_BOTH)
		l->open = false;
	for (unsigned k = first_qp(l); k < 2; k++)
		if (l->qp[k])
			broker_ops(l->b, l->engine)->qp_modify(l->qp[k], &attr);
	link_fill_command(l, &c->cmd.link);
	c->cmd.link.resumes = resumes;
	command_submit(l->b, c);
}

static void
repair_one(struct broker_link *l, uint32_t resumes)
{
	switch (l->state) {
	case LINK_UP:
		/* if the peer has not joined these, it may know nothing of the ring's either */
		if (!l->confirmed)
			resumes = WEIR_RESUME_BOTH;
		l->b->counters.links_broken++;
		l->first_failure = l->rebuild_now = true;
		pause_link(l, resumes);
		break;
	case LINK_ADDING:
	case LINK_PAUSING:
		if (resumes > l->resumes_next && (l->state == LINK_ADDING || resumes > l->resumes))
			l->resumes_next = resumes;
		break;
	case LINK_PAUSED:
	case LINK_OFFERED:
		if (l->live && resumes > l->resumes) {
			l->rebuild_now = true;
			pause_link(l, resumes);
		}
		break;
	default:
		break;
	}
}

void
link_repair(struct broker_link *l, uint32_t resumes)
{
	repair_one(l, resumes);
	if (l->loop_end)
		repair_one(l->loop_end, resumes);
}

void
link_qp_fatal(struct broker *b, const void *qp_user)
{
	for (struct broker_link *l = b->links; l; l = l->next)
		for (unsigned k = 0; k < 2; k++)
			if (l->qp[k] && l->user[k] == qp_user) {
				link_repair(l, k ? WEIR_RESUME_BULK : WEIR_RESUME_BOTH);
				return;
			}
}

/* The engine has released the QPs. */
static void
paused(struct broker *b, struct broker_command *c)
{
	struct broker_link *l = c->context;
	const struct engine_link_command *k = &c->cmd.link;
	uint64_t now = broker_now(b), patience = b->config.repair_timeout_ns;

	if (l->state != LINK_PAUSING)
		return;
	if (c->cmd.result == -ENOLINK) {
		link_ended(l);
		return;
	}
	if (l->resumes_next) {
		pause_link(l, l->resumes_next);
		return;
	}
	/* the deadline counts from the first failure since all that was sent before got through */
	if (l->first_failure && (k->proven || now - l->resumed_at >= patience))
		l->deadline = now + patience;
	else if (!k->proven)
		l->rebuild_now = false;
	l->first_failure = false;
	l->consumed = k->consumed;
	l->received = k->received;
	l->ring_lines = k->rings.ring_lines;
	l->ring_least = k->rings.ring_least;
	link_destroy_qps(l, first_qp(l));
	link_enter(l, LINK_PAUSED);
	l->resend = now + PATIENCE_NS;
	if (l->rebuild_now)
		link_rebuild(l);
}

void
link_rebuild(struct broker_link *l)
{
	struct weir_link_offer saved = l->saved, ours, other;
	struct broker_link *loop_end = l->loop_end;
	uint64_t now = broker_now(l->b);
	uint32_t attempt;
	int rc = 0;

	weir_assert(l->state == LINK_PAUSED);
	if (l->resumes == WEIR_RESUME_BOTH)
		rc = link_change_keys(l);
	if (!rc)
		rc = link_make_qps(l, first_qp(l));
	if (rc) {
		LINK_BLAME(l, LOG_LEVEL_WARNING,
			   "link of engine %u with node %u: no new queue pairs: %s", strerror(-rc));
		l->resend = now + PATIENCE_NS;
		return;
	}
	attempt = ++l->attempt;
	l->peer_attempt = 0;
	l->fail_status = 0;
	l->saved.attempt = 0;
	link_enter(l, LINK_OFFERED);
	l->resend = now + BROKER_SECOND_NS / 2;
	if (!loop_end) {
		if (saved.attempt)
			link_offer_input(l->b, &saved);
	} else if (loop_end->state == LINK_OFFERED && loop_end->live &&
		   loop_end->resumes == l->resumes) {
		/* the two ends of a loop need no control */
		link_offer_fill(l, 0, &ours);
		link_offer_fill(loop_end, 0, &other);
		if (!link_take_again(l, &other))
			link_take_again(loop_end, &ours);
	}
	if (l->state == LINK_OFFERED && l->attempt == attempt)
		link_offer_send(l, 0);
}

int
link_take_again(struct broker_link *l, const struct weir_link_offer *offer)
{
	struct broker_command *c;
	int rc;

	weir_assert(l->state == LINK_OFFERED && l->live);
	if (offer->recv_wrs != l->peer.recv_wrs || offer->answers != l->peer.answers) {
		broker_link_fail(l, ECONNRESET);
		return -EPROTO;
	}
	l->peer = *offer;
	l->peer_attempt = l->peer_newest = offer->attempt;
	rc = link_connect_qps(l, offer, first_qp(l));
	if (rc) {
		LINK_BLAME(
		    l, LOG_LEVEL_WARNING,
		    "link of engine %u with node %u can't be repaired by these queue pairs: %s",
		    strerror(-rc));
		l->rebuild_now = false;
		pause_link(l, l->resumes);
		if (l->loop_end)
			repair_one(l->loop_end, l->resumes);
		return rc;
	}
	link_enter(l, LINK_ADDING);
	c = command_reserved(l->b, l->engine, ENGINE_LINK_RESUME, link_engine_has_it, l);
	link_fill_command(l, &c->cmd.link);
	c->cmd.link.resumes = l->resumes;
	c->cmd.link.consumed = offer->consumed;
	c->cmd.link.received = offer->received;
	command_submit(l->b, c);
	return 0;
}

void
link_give_up(struct broker_link *l)
{
	struct broker *b = l->b;
	struct broker_node *n = l->loop_end ? NULL : node_find(b, l->node);
	bool others = false;

	LINK_BLAME(l, LOG_LEVEL_WARNING,
		   "link of engine %u with node %u stays broken; look at its data plane and the "
		   "ports between");
	for (struct broker_link *o = n ? n->links : NULL; o; o = o->next_of_node)
		others |= o != l && o->open;
	if (n && !others && !l->closing) /* one that was ending has no connection */
		node_lost(b, n);
	else
		broker_link_fail(l, EHOSTDOWN);
}
