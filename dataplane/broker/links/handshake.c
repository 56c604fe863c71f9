/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Offers: how both ends of a link learn of each other's QPs and keys, through the controls. Offers
 * may cross, be repeated, come late or from a former incarnation; docs/protocol.md has the table.
 *   answered = 0: connect to these QPs, or repeat that you have; else: connected to that attempt.
 *   resumes: these QPs are new, but the link is the one known by born and peer_born.
 */
#include "control_socket.h"
#include "link.h"
#include "node.h"
#include "state.h"

#include <errno.h>

#define LAYOUT (WEIR_WIRE_VERSION | 0x100u)
#define RING_LINES_MIN 256u
#define RING_LINES_MAX 65536u
#define RECV_WRS_MIN 4u
#define RECV_WRS_MAX 65536u

void
link_offer_fill(const struct broker_link *l, uint32_t answered, struct weir_link_offer *o)
{
	const struct broker *b = l->b;
	const struct nic_attr *attr = &b->attr[l->engine];
	struct broker_node *n = node_find(b, l->node);

	*o = (struct weir_link_offer){
	    .node = (uint16_t)b->node,
	    .peer_node = (uint16_t)l->node,
	    .engine = (uint8_t)l->engine,
	    .peer_engine = (uint8_t)l->peer_engine,
	    .layout = LAYOUT,
	    .incarnation = b->config.incarnation,
	    .peer_incarnation = n ? n->is.incarnation : 0,
	    .attempt = l->attempt,
	    .answered = answered,
	    .lid = attr->lid,
	    .mtu = attr->mtu,
	    .qpn = {nic_qpn(l->qp[0]), nic_qpn(l->qp[1])},
	    .psn = {l->psn[0], l->psn[1]},
	    .ring_address = l->ring_mr.address,
	    .credit_address = l->credit_mr.address,
	    .ring_rkey = l->ring_mr.rkey,
	    .credit_rkey = l->credit_mr.rkey,
	    .ring_lines = b->config.peer_ring_lines,
	    .recv_wrs = b->config.recv_wrs,
	    .joined = l->peer_attempt,
	    .resumes = l->resumes,
	    .born = l->born,
	    .peer_born = l->peer_born,
	    .consumed = l->consumed,
	    .received = l->received,
	};
	memcpy(o->gid, attr->gid.raw, sizeof(o->gid));
}

void
link_offer_send(struct broker_link *l, uint32_t answered)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK, .length = weir_ctl_length(WEIR_CTL_LINK)};

	if (l->b->node == BROKER_NODE_UNKNOWN || l->loop_end)
		return;
	link_offer_fill(l, answered, &m.link);
	l->b->counters.offers_sent++;
	broker_control_send(l->b, &m);
}

void
link_resync(struct broker *b)
{
	for (struct broker_link *l = b->links; l; l = l->next)
		if (l->state == LINK_OFFERED || l->state == LINK_UP)
			link_offer_send(l, l->confirmed ? l->peer_attempt : 0);
}

static bool
place_ok(uint64_t address, uint64_t bytes)
{
	return address && address % 64 == 0 && address <= UINT64_MAX - bytes;
}

static bool
power_of_two(uint32_t x)
{
	return x && !(x & (x - 1));
}

/* The fault of an offer, by itself or for this node; NULL: none. */
static const char *
offer_fault(const struct broker *b, const struct broker_node *n, const struct weir_link_offer *o)
{
	static const uint8_t no_gid[16];
	uint32_t engines = b->config.engines;

	if (o->layout != LAYOUT)
		return "another layout or byte order";
	if (!o->incarnation || !o->attempt)
		return "no incarnation or attempt";
	if (!power_of_two(o->mtu) || o->mtu < 256 || o->mtu > 4096)
		return "bad MTU";
	if (!o->qpn[0] || !o->qpn[1] || o->qpn[0] == o->qpn[1] ||
	    (o->qpn[0] | o->qpn[1] | o->psn[0] | o->psn[1]) > 0xffffff)
		return "bad QPN or PSN";
	if (!power_of_two(o->ring_lines) || o->ring_lines < RING_LINES_MIN ||
	    o->ring_lines > RING_LINES_MAX)
		return "bad ring size";
	if (!place_ok(o->ring_address, (uint64_t)o->ring_lines * WEIR_SLOT_SIZE) ||
	    !place_ok(o->credit_address, sizeof(struct weir_credit_line)))
		return "bad address";
	if (o->resumes > WEIR_RESUME_BOTH || (o->resumes && (!o->born || !o->peer_born)))
		return "resumes no link";
	if (o->recv_wrs < RECV_WRS_MIN || o->recv_wrs > RECV_WRS_MAX)
		return "bad number of receives";
	if (!memcmp(o->gid, no_gid, sizeof(no_gid)) && !o->lid)
		return "no GID and no LID";
	if (o->peer_node != b->node || !n || n->is.self)
		return "not for this node, or from no member";
	if (o->peer_engine >= engines || !broker_engine(b, o->peer_engine)->dev)
		return "for an engine without a port";
	if (o->engine >= n->is.engines ||
	    (o->peer_engine != o->engine % engines && o->engine != o->peer_engine % n->is.engines))
		return "these engines have no link";
	return NULL;
}

/* Notes the incarnation of the node. False: the offer is from a former one, or for one of ours. */
static bool
incarnation_fits(struct broker *b, struct broker_node *n, const struct weir_link_offer *o)
{
	if (o->peer_incarnation && o->peer_incarnation != b->config.incarnation)
		return false;
	if (o->incarnation < n->is.incarnation)
		return false;
	if (o->incarnation > n->is.incarnation) {
		if (n->is.incarnation)
			node_lost(b, n);
		n->is.incarnation = o->incarnation;
		if (n->is.state >= WEIR_NODE_DOWN || n->is.state == WEIR_NODE_JOINING)
			n->is.state = WEIR_NODE_UP;
		node_news(b, n);
	}
	return n->is.state < WEIR_NODE_DOWN;
}

/* The peer's QPs can still be connected to ours. */
static bool
fresh(const struct broker_link *l, const struct weir_link_offer *o)
{
	if (o->joined && o->joined != l->attempt)
		return false;
	if (o->answered)
		return o->answered == l->attempt;
	return o->attempt > l->peer_newest;
}

/* The peer has connected its QPs to ours. */
static bool
joined(const struct broker_link *l, const struct weir_link_offer *o)
{
	return o->answered == l->attempt || o->joined == l->attempt;
}

static void
take(struct broker_link *l, const struct weir_link_offer *o)
{
	bool confirms = joined(l, o);
	int rc = l->live ? link_take_again(l, o) : link_take(l, o);

	if (!rc && confirms)
		link_confirm(l);
}

static bool
same_life(const struct broker_link *l, const struct weir_link_offer *o)
{
	return o->resumes && o->born == l->peer_born && o->peer_born == l->born;
}

static void
stale(struct broker_link *l)
{
	l->b->counters.offers_stale++;
}

/* Fails the link; the offer is handled again when the link is down. */
static void
save_and_fail(struct broker_link *l, const struct weir_link_offer *o)
{
	l->saved = *o;
	broker_link_fail(l, ECONNRESET);
}

/* Our QPs are new: those of a new link, or those that replace failed ones. */
static void
offer_to_offered(struct broker_link *l, const struct weir_link_offer *o)
{
	if (!l->live) {
		if (o->resumes && o->peer_born == l->attempt)
			/* the peer joined this attempt, and its QPs failed since: it can't again */
			save_and_fail(l, o);
		else if (o->resumes)
			link_offer_send(l, 0); /* the link that it resumes is gone here */
		else if (fresh(l, o))
			take(l, o);
		else
			stale(l);
	} else if (o->attempt <= l->peer_newest && !joined(l, o)) {
		/* else: failed QPs of ours had joined this attempt, and the peer knows our new ones
		 */
		stale(l);
	} else if (!same_life(l, o)) {
		save_and_fail(l, o);
	} else if (o->resumes > l->resumes) {
		l->saved = *o;
		link_repair(l, o->resumes);
	} else if (o->resumes < l->resumes) {
		link_offer_send(l, 0); /* the peer has to make a new ring QP too */
	} else if (fresh(l, o)) {
		take(l, o);
	} else {
		stale(l);
	}
}

static void
offer_to_live(struct broker_link *l, const struct weir_link_offer *o)
{
	if (o->attempt < l->peer_attempt) {
		stale(l);
	} else if (o->attempt > l->peer_attempt && same_life(l, o)) {
		/* the peer's QPs are new: with new ones here this offer is looked at again */
		l->saved = *o;
		link_repair(l, o->resumes);
	} else if (o->attempt > l->peer_attempt) {
		save_and_fail(l, o);
	} else {
		if (joined(l, o))
			link_confirm(l);
		if (!o->answered && l->state == LINK_UP)
			link_offer_send(l, l->peer_attempt);
	}
}

void
link_offer_input(struct broker *b, const struct weir_link_offer *o)
{
	struct broker_node *n = node_find(b, o->node);
	const char *wrong;
	struct broker_link *l;

	if (n && !n->is.engines)
		return; /* control has not reported its engines yet: the peer repeats the offer */
	wrong = offer_fault(b, n, o);
	if (wrong) {
		b->counters.offers_bad++;
		broker_blame_node(b, o->node, "its offers", LOG_LEVEL_WARNING, NODE_FIELDS(o->node),
				  "offer of node %u refused: %s", o->node, wrong);
		return;
	}
	if (b->stopping || !incarnation_fits(b, n, o)) {
		b->counters.offers_stale++;
		return;
	}
	l = link_make(b, o->peer_engine, o->node, o->engine);
	if (!l)
		return; /* the peer sends its offer again */
	if (l->peer_incarnation != o->incarnation) {
		l->peer_incarnation = o->incarnation;
		l->peer_newest = 0;
	}
	switch (l->state) {
	case LINK_DOWN:
		if (link_start(l))
			break;
		if (!o->answered && !o->joined && !o->resumes && o->attempt > l->peer_newest)
			take(l, o);
		else /* an answer to QPs that are gone: a new offer tells the peer so */
			link_offer_send(l, 0);
		break;
	case LINK_OFFERED:
		offer_to_offered(l, o);
		break;
	case LINK_ADDING:
	case LINK_UP:
		offer_to_live(l, o);
		break;
	case LINK_PAUSING:
	case LINK_PAUSED:
	case LINK_FAILING:
	case LINK_QUIET:
		if (o->attempt > l->saved.attempt)
			l->saved = *o;
		break;
	}
}
