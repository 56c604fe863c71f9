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
#include <sys/random.h>

#define RING_LINES_MIN 256u
#define RING_LINES_MAX 65536u
#define RECV_WRS_MIN 4u
#define RECV_WRS_MAX 65536u
#define ANSWERS_MAX (1u << 30)
#define RETRY_NS (BROKER_SECOND_NS / 20)

void
link_offer_fill(const struct broker_link *l, uint32_t answered, struct weir_link_offer *o)
{
	const struct broker *b = l->b;
	const struct nic_attr *attr = &b->attr[l->engine];
	struct broker_node *n = node_find(b, l->node);

	*o = (struct weir_link_offer){
	    .node = (uint16_t)b->node,
	    .peer_node = (uint16_t)l->node,
	    .engine = (uint8_t)WEIR_END(l->engine, link_class(l)),
	    .peer_engine = (uint8_t)l->peer_engine,
	    .layout = WEIR_WIRE_VERSIONS.lowest | WEIR_LITTLE_ENDIAN,
	    .highest = WEIR_WIRE_VERSIONS.highest,
	    .incarnation = b->config.incarnation,
	    .peer_incarnation = n ? n->is.incarnation : 0,
	    .attempt = l->attempt,
	    .answered = answered,
	    .lid = attr->lid,
	    .mtu = attr->mtu,
	    .qpn = {nic_qpn(l->qp[0]), nic_qpn(l->qp[1])},
	    .psn = {l->psn[0], l->psn[1]},
	    .ring_address = link_ring_mr(l)->address,
	    .credit_address = l->credit_mr.address,
	    .ring_rkey = link_ring_mr(l)->rkey,
	    .credit_rkey = l->credit_mr.rkey,
	    .ring_lines = l->ring_lines,
	    .recv_wrs = l->recv_wrs,
	    .answers = l->answer_bytes,
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
link_offer_refuse(struct broker_link *l, uint32_t attempt, uint32_t status)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK, .length = weir_ctl_length(WEIR_CTL_LINK)};
	struct broker_node *n = node_find(l->b, l->node);

	if (l->b->node == BROKER_NODE_UNKNOWN || l->loop_end)
		return;
	m.link = (struct weir_link_offer){
	    .node = (uint16_t)l->b->node,
	    .peer_node = (uint16_t)l->node,
	    .engine = (uint8_t)WEIR_END(l->engine, link_class(l)),
	    .peer_engine = (uint8_t)l->peer_engine,
	    .layout = WEIR_WIRE_VERSIONS.lowest | WEIR_LITTLE_ENDIAN,
	    .highest = WEIR_WIRE_VERSIONS.highest,
	    .incarnation = l->b->config.incarnation,
	    .peer_incarnation = n ? n->is.incarnation : 0,
	    .attempt = l->attempt ? l->attempt : 1,
	    .answered = attempt,
	    .mtu = l->b->attr[l->engine].mtu,
	    .ring_lines = l->b->config.peer_ring_lines,
	    .refused = status,
	};
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

/* NULL: both sides speak a common version, in the same byte order. */
static const char *
version_fault(const struct weir_link_offer *o)
{
	static char why[WEIR_VERSION_WHY];
	const struct weir_versions theirs = {o->layout & (WEIR_LITTLE_ENDIAN - 1), o->highest};

	if ((o->layout & ~(WEIR_LITTLE_ENDIAN - 1)) != WEIR_LITTLE_ENDIAN)
		return "another byte order";
	return weir_version_choose(WEIR_WIRE_VERSIONS, theirs, "the wire", "this data plane",
				   "that node's", why)
		   ? NULL
		   : why;
}

/* The fault of an offer, by itself or for this node; NULL: none. */
static const char *
offer_fault(const struct broker *b, const struct broker_node *n, const struct weir_link_offer *o)
{
	static const uint8_t no_gid[16];
	const char *version = version_fault(o);
	uint32_t engines = b->config.engines, class = WEIR_END_CLASS(o->engine);
	uint32_t own = WEIR_END_ENGINE(o->peer_engine), from = WEIR_END_ENGINE(o->engine);

	if (version)
		return version;
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
	if (o->answers < WEIR_ANSWERS_LEAST || o->answers > ANSWERS_MAX)
		return "bad room for answers";
	if (!memcmp(o->gid, no_gid, sizeof(no_gid)) && !o->lid)
		return "no GID and no LID";
	if (o->peer_node != b->node || !n || n->is.self)
		return "not for this node, or from no member";
	if (class >= WEIR_CLASSES || class != WEIR_END_CLASS(o->peer_engine))
		return "no such class, or two";
	if (own >= engines || !broker_engine(b, own)->dev)
		return "for an engine without a port";
	if (from >= n->is.engines || (own != from % engines && from != own % n->is.engines))
		return "these engines have no link";
	return NULL;
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

/* Nothing exists here. */
static void
offer_to_down(struct broker_link *l, const struct weir_link_offer *o)
{
	bool begins = !o->answered && !o->joined && !o->resumes && o->attempt > l->peer_newest;
	int rc;

	if (!begins && l->over && o->attempt <= l->peer_newest) {
		stale(l); /* of the link that ended in order */
		return;
	}
	if (!begins && !link_has_room(l)) {
		link_offer_refuse(l, o->attempt, ECONNRESET);
		return;
	}
	if (begins)
		l->saved = *o;
	if (!link_begin(l, &rc)) {
		if (!l->wanting)
			l->saved.attempt = 0;
		if (!begins)
			link_offer_refuse(l, o->attempt, ECONNRESET);
		return;
	}
	l->saved.attempt = 0;
	if (begins)
		take(l, o);
	else /* an answer to QPs that are gone: a new offer tells the peer so */
		link_offer_send(l, 0);
}

/* The peer has no room for our attempt now, or nothing that belongs to it. */
static void
take_refusal(struct broker *b, const struct broker_node *n, const struct weir_link_offer *o)
{
	struct broker_link *l;
	uint32_t chance = 0;

	if (!n || n->is.self || o->peer_node != b->node || version_fault(o)) {
		b->counters.offers_bad++;
		return;
	}
	l = link_find(b, WEIR_END_ENGINE(o->peer_engine), o->node, o->engine);
	if (!l || o->answered != l->attempt || o->incarnation != n->is.incarnation ||
	    (o->peer_incarnation && o->peer_incarnation != b->config.incarnation)) {
		b->counters.offers_stale++;
		return;
	}
	if (l->state == LINK_OFFERED && !l->live && o->refused == ENOSPC) {
		b->counters.links_full++;
		link_lacks(l);
		l->full_there = true;
		/* not by all refused at once */
		if (getrandom(&chance, sizeof(chance), 0) != (ssize_t)sizeof(chance))
			chance = 0;
		l->retry_at = broker_now(b) + RETRY_NS + chance % RETRY_NS;
		broker_link_fail(l, ENOSPC);
	} else {
		broker_link_fail(l, ECONNRESET);
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
	if (o->refused) {
		take_refusal(b, n, o);
		return;
	}
	wrong = offer_fault(b, n, o);
	if (wrong) {
		b->counters.offers_bad++;
		broker_blame_node(b, o->node, "its offers", LOG_LEVEL_WARNING, NODE_FIELDS(o->node),
				  "offer of node %u refused: %s", o->node, wrong);
		return;
	}
	/* of a former life of the node, or for one of ours */
	if (b->stopping || o->incarnation < n->is.incarnation ||
	    (o->peer_incarnation && o->peer_incarnation != b->config.incarnation)) {
		b->counters.offers_stale++;
		return;
	}
	if (o->incarnation > n->is.incarnation) {
		if (n->is.incarnation)
			node_lost(b, n);
		n->is.incarnation = o->incarnation;
		if (n->is.state >= WEIR_NODE_DOWN || n->is.state == WEIR_NODE_JOINING)
			n->is.state = WEIR_NODE_UP;
		node_news(b, n);
	}
	if (n->is.state >= WEIR_NODE_DOWN) {
		b->counters.offers_stale++;
		return;
	}
	l = link_make(b, WEIR_END_ENGINE(o->peer_engine), o->node, o->engine);
	if (!l)
		return; /* the peer sends its offer again */
	if (l->peer_incarnation != o->incarnation) {
		l->peer_incarnation = o->incarnation;
		l->peer_newest = 0;
	}
	switch (l->state) {
	case LINK_DOWN:
		offer_to_down(l, o);
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
