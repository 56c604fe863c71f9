/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A QP error is not a lost node: the engine lets go of the QPs that failed, new ones are made and
 * offered like those of a new link, but the offer says which link goes on, and how far its ring has
 * been read. So whatever goes wrong with that, lost or late offers, the peer's own repair at the
 * same time, a control that restarts, is dealt with as in the set-up of a link. docs/protocol.md 2.
 */
#include "command.h"
#include "link.h"
#include "node.h"
#include "state.h"

#include <errno.h>

#define PATIENCE_NS (BROKER_SECOND_NS / 10) /* before another try after one that did not help */

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
	l->wider = 0;
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
		l->renew = l->hasty = true;
		pause_link(l, resumes);
		break;
	case LINK_ADDING:
	case LINK_PAUSING:
		if (resumes > l->wider && (l->state == LINK_ADDING || resumes > l->resumes))
			l->wider = resumes;
		break;
	case LINK_PAUSED:
	case LINK_OFFERED:
		if (l->live && resumes > l->resumes) {
			l->hasty = true;
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
	if (l->twin)
		repair_one(l->twin, resumes);
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

/* 10 s count from the first failure since all that was sent before had got through. */
static void
set_deadline(struct broker_link *l, bool proven)
{
	uint64_t now = broker_now(l->b), patience = l->b->config.repair_timeout_ns;

	if (l->renew && (proven || now - l->resumed_at >= patience))
		l->deadline = now + patience;
	else if (!proven)
		l->hasty = false;
	l->renew = false;
}

/* The engine has let go of the QPs. */
static void
paused(struct broker *b, struct broker_command *c)
{
	struct broker_link *l = c->context;
	const struct engine_link_command *k = &c->cmd.link;

	if (l->state != LINK_PAUSING)
		return;
	if (l->wider) {
		pause_link(l, l->wider);
		return;
	}
	set_deadline(l, k->proven);
	l->consumed = k->consumed;
	l->received = k->received;
	link_destroy_qps(l, first_qp(l));
	link_enter(l, LINK_PAUSED);
	l->resend = broker_now(b) + PATIENCE_NS;
	if (l->hasty)
		link_rebuild(l);
}

/* The two ends of a loop need no control. */
static void
join_loop(struct broker_link *l)
{
	struct weir_link_offer ours, twins;

	if (l->twin->state != LINK_OFFERED || !l->twin->live || l->twin->resumes != l->resumes)
		return;
	link_offer_fill(l, 0, &ours);
	link_offer_fill(l->twin, 0, &twins);
	if (!link_take_again(l, &twins))
		link_take_again(l->twin, &ours);
}

void
link_rebuild(struct broker_link *l)
{
	struct weir_link_offer saved = l->saved;
	uint64_t now = broker_now(l->b);
	uint32_t attempt;
	int rc = 0;

	if (l->resumes == WEIR_RESUME_BOTH) {
		link_deregister(l);
		rc = link_register(l);
	}
	if (!rc)
		rc = link_make_qps(l, first_qp(l));
	if (rc) {
		broker_blame_node(l->b, l->node, "its links", LOG_LEVEL_WARNING,
				  LINK_FIELDS(l->engine, l->node),
				  "link of engine %u with node %u: no new queue pairs: %s",
				  l->engine, l->node, strerror(-rc));
		l->resend = now + PATIENCE_NS;
		return;
	}
	attempt = ++l->attempt;
	l->peer_attempt = 0;
	l->fail_status = 0;
	l->saved.attempt = 0;
	link_enter(l, LINK_OFFERED);
	l->resend = now + BROKER_SECOND_NS / 2;
	if (l->twin)
		join_loop(l);
	else if (saved.attempt)
		link_offer_input(l->b, &saved);
	if (l->state == LINK_OFFERED && l->attempt == attempt)
		link_offer_send(l, 0);
}

int
link_take_again(struct broker_link *l, const struct weir_link_offer *offer)
{
	struct broker_command *c;
	int rc;

	if (offer->ring_lines != l->peer.ring_lines || offer->recv_wrs != l->peer.recv_wrs) {
		broker_link_fail(l, ECONNRESET);
		return -EPROTO;
	}
	l->peer = *offer;
	l->peer_attempt = l->peer_burnt = offer->attempt;
	rc = link_connect_qps(l, offer, first_qp(l));
	if (rc) {
		broker_blame_node(l->b, l->node, "its links", LOG_LEVEL_WARNING,
				  LINK_FIELDS(l->engine, l->node),
				  "link of engine %u with node %u can't be repaired so: %s",
				  l->engine, l->node, strerror(-rc));
		l->hasty = false;
		pause_link(l, l->resumes);
		if (l->twin)
			repair_one(l->twin, l->resumes);
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
	struct broker_node *n = l->twin ? NULL : node_find(b, l->node);
	bool others = false;

	broker_blame_node(
	    b, l->node, "its links", LOG_LEVEL_WARNING, LINK_FIELDS(l->engine, l->node),
	    "link of engine %u with node %u stays broken; look at its data plane and the "
	    "ports between",
	    l->engine, l->node);
	for (struct broker_link *o = b->links; o; o = o->next)
		others |= o != l && !o->twin && o->node == l->node && o->open;
	if (n && !others)
		node_lost(b, n);
	else
		broker_link_fail(l, EHOSTDOWN);
}
