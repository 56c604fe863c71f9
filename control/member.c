/* SPDX-License-Identifier: BSD-3-Clause */
/* One other node: its connection, what comes over it, and what its state machine orders. */
#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void
member_init(struct member *m, struct control *c, const struct peer_entry *entry, uint64_t now)
{
	m->control = c;
	m->entry = entry;
	peer_init(&m->peer, entry->id, c->self->id, c->options->node_timeout, now);
}

void
member_fini(struct member *m)
{
	static const struct control_msg bye = {.type = CONTROL_BYE};

	if (m->conn && m->conn->joined)
		conn_send(m->conn, &bye);
	conn_close(m->conn, NULL);
	m->conn = NULL;
	offers_fini(&m->offers);
}

void
member_tell(struct member *m)
{
	const struct peer_entry *e = m->entry;
	struct weir_ctl_msg out = {.type = WEIR_CTL_NODE};

	out.node.id = e->id;
	out.node.state = m->peer.state;
	out.node.incarnation = m->peer.dp.incarnation;
	out.node.engines = m->peer.dp.engines;
	out.node.address_count = e->address_count;
	memcpy(out.node.address, e->address, sizeof(out.node.address));
	memcpy(out.node.lid, e->lid, sizeof(out.node.lid));
	memcpy(out.node.control, e->control, sizeof(out.node.control));
	dp_send(m->control->dp, &out);
}

static void
announce(struct member *m, uint64_t now)
{
	unsigned id = m->entry->id;

	switch (m->peer.state) {
	case WEIR_NODE_UP:
		log_metered(&m->meter, now, "node %u is up (incarnation %llu, %u engines)", id,
			    (unsigned long long)m->peer.dp.incarnation, m->peer.dp.engines);
		break;
	case WEIR_NODE_SUSPECT:
		log_metered(&m->meter, now,
			    "node %u is suspect: its control has been silent for %u ms; traffic "
			    "goes on",
			    id, m->peer.timeout);
		break;
	case WEIR_NODE_DOWN:
		log_metered(&m->meter, now, "node %u is down: %s", id,
			    m->peer.dp.state == DP_DOWN
				? "its data plane does not run"
				: "neither its control nor its links answer");
		break;
	default:
		break;
	}
}

static void
send_offers(struct member *m, uint64_t now)
{
	const struct weir_link_offer *link;
	struct control_msg out = {.type = CONTROL_LINK_OFFER};

	if (!m->conn || !m->conn->joined || m->peer.dp.state != DP_UP)
		return;
	while ((link = offers_next(&m->offers, now))) {
		out.link = *link;
		conn_send(m->conn, &out);
	}
}

static void
dial(struct member *m)
{
	struct control *c = m->control;

	m->conn = conn_dial(c->base, c->transport, (struct sockaddr *)&m->address,
			    m->address_length, &member_handler, c);
	if (m->conn) {
		m->conn->member = m;
		return;
	}
	log_once(&m->trouble, "cannot dial node %u at %s: %s", m->entry->id, m->entry->control,
		 strerror(errno));
	member_step(m, PEER_LOST, NULL);
}

void
member_step(struct member *m, enum peer_event event, const struct dp_view *view)
{
	static const struct control_msg beat = {.type = CONTROL_HEARTBEAT};
	uint64_t now = control_now();
	unsigned actions = peer_step(&m->peer, event, now, view);

	if (actions & PEER_DO_TELL) {
		announce(m, now);
		member_tell(m);
		if (m->peer.state == WEIR_NODE_DOWN)
			offers_clear(&m->offers);
	}
	if (actions & PEER_DO_OFFERS) {
		offers_restart(&m->offers, m->peer.dp.incarnation, now);
		send_offers(m, now);
	}
	if (actions & PEER_DO_BEAT)
		conn_send(m->conn, &beat);
	if (actions & PEER_DO_CLOSE) {
		log_metered(&m->meter, now, "node %u: connection closed after long silence",
			    m->entry->id);
		conn_close(m->conn, NULL);
		m->conn = NULL;
		member_step(m, PEER_LOST, NULL);
	}
	if (actions & PEER_DO_DIAL)
		dial(m);
}

void
member_tick(struct member *m, uint64_t now)
{
	member_step(m, PEER_TICK, NULL);
	send_offers(m, now);
}

void
member_view(struct member *m, const struct dp_view *view)
{
	struct control_msg out = {.type = CONTROL_DATA_PLANE, .dp = *view};

	if (view->state != DP_UP)
		offers_clear(&m->offers);
	if (m->conn && m->conn->said_hello)
		conn_send(m->conn, &out);
}

void
member_offer(struct member *m, const struct weir_link_offer *link)
{
	uint64_t now = control_now();

	if (offers_put(&m->offers, link, now))
		log_line("out of memory: a link offer for node %u is lost", m->entry->id);
	send_offers(m, now);
}

void
member_resync(struct member *m, const struct weir_ctl_msg *msg)
{
	struct control_msg out = {.type = CONTROL_RESYNC};

	out.resync.node = msg->link_down.node;
	out.resync.peer_node = msg->link_down.peer_node;
	out.resync.engine = msg->link_down.engine;
	out.resync.peer_engine = msg->link_down.peer_engine;
	out.resync.status = msg->link_down.status;
	if (m->conn && m->conn->joined)
		conn_send(m->conn, &out);
}

void
member_link_down(struct member *m, const struct weir_ctl_msg *msg)
{
	offers_drop(&m->offers, msg->link_down.engine, msg->link_down.peer_engine);
	member_step(m, PEER_LINK_DOWN, NULL);
}

static void
say_hello(struct conn *conn)
{
	struct control *c = conn->owner;
	struct control_msg out = {.type = CONTROL_HELLO};

	out.hello.version = CONTROL_VERSION;
	out.hello.node = c->self->id;
	snprintf(out.hello.cluster, sizeof(out.hello.cluster), "%s", c->options->cluster);
	out.hello.dp = *dp_view(c->dp);
	conn_send(conn, &out);
}

// Who a stranger says it is: is that somebody who may come in? Sets conn->member.
static const char *
admit(struct control *c, struct conn *conn, uint32_t node)
{
	static char why[CONTROL_REASON_MAX];
	struct member *m = control_member(c, node);

	if (node == c->self->id)
		snprintf(why, sizeof(why), "node id %u is this node's own; give each node its own",
			 node);
	else if (!m)
		snprintf(why, sizeof(why), "node %u is not in the peers file of node %u", node,
			 c->self->id);
	else if (m->peer.dials)
		snprintf(why, sizeof(why), "node %u is dialled by node %u, not the other way round",
			 node, c->self->id);
	else if (!peer_replaceable(&m->peer, control_now()))
		snprintf(why, sizeof(why),
			 "node %u is connected already; give each node its own id", node);
	else {
		conn->member = m;
		return NULL;
	}
	return why;
}

static const char *
on_hello(struct conn *conn, const struct control_msg *in)
{
	static char why[CONTROL_REASON_MAX];
	struct control *c = conn->owner;
	struct member *m = conn->member;
	const char *refused;

	if (strcmp(in->hello.cluster, c->options->cluster)) {
		snprintf(why, sizeof(why), "cluster is '%s' here, '%s' there; check --cluster",
			 c->options->cluster, in->hello.cluster);
		return why;
	}
	if (conn->dialled && in->hello.node != m->entry->id) {
		snprintf(why, sizeof(why), "node %u answers at %s; check the peers file",
			 in->hello.node, m->entry->control);
		return why;
	}
	if (!conn->dialled) {
		refused = admit(c, conn, in->hello.node);
		if (refused)
			return refused;
		m = conn->member;
		door_forget(c, conn);
		conn_close(m->conn, "replaced by a newer connection");
		m->conn = conn;
		say_hello(conn);
	}
	conn->joined = true;
	log_forget(&m->trouble);
	member_step(m, PEER_OPENED, &in->hello.dp);
	return NULL;
}

static const char *
take_offer(struct member *m, const struct weir_link_offer *link)
{
	struct control *c = m->control;
	const struct dp_view *own = dp_view(c->dp);
	struct weir_ctl_msg out = {.type = WEIR_CTL_LINK};

	if (link->node != m->entry->id || link->peer_node != c->self->id)
		return "a link offer that is not between us";
	// What a dead data plane offered, or what was meant for one: on its way when that died.
	if (link->incarnation != m->peer.dp.incarnation ||
	    (link->peer_incarnation && link->peer_incarnation != own->incarnation))
		return NULL;
	offers_answered(&m->offers, link);
	out.link = *link;
	dp_send(c->dp, &out);
	return NULL;
}

static const char *
take_resync(struct member *m, const struct control_resync *resync)
{
	struct control *c = m->control;
	struct weir_ctl_msg out = {.type = WEIR_CTL_RESYNC};

	if (resync->node != m->entry->id || resync->peer_node != c->self->id)
		return "a resync that is not between us";
	out.link_down.node = resync->node;
	out.link_down.peer_node = resync->peer_node;
	out.link_down.engine = resync->engine;
	out.link_down.peer_engine = resync->peer_engine;
	out.link_down.status = resync->status;
	dp_send(c->dp, &out);
	return NULL;
}

static const char *
on_message(struct conn *conn, const struct control_msg *in)
{
	struct member *m = conn->member;

	if (in->type == CONTROL_DATA_PLANE) {
		member_step(m, PEER_VIEW, &in->dp);
		return NULL;
	}
	member_step(m, PEER_HEARD, NULL);
	if (in->type == CONTROL_LINK_OFFER)
		return take_offer(m, &in->link);
	if (in->type == CONTROL_RESYNC)
		return take_resync(m, &in->resync);
	return NULL;
}

static void
on_closed(struct conn *conn, const char *reason)
{
	struct control *c = conn->owner;
	struct member *m = conn->member;

	if (!m) {
		door_forget(c, conn);
		log_limited(&c->stranger_trouble, control_now(), "refused a connection from %s: %s",
			    conn->stranger, reason);
		return;
	}
	if (conn->joined)
		log_metered(&m->meter, control_now(),
			    "node %u: connection to its control ended: %s", m->entry->id, reason);
	else
		log_once(&m->trouble, "node %u at %s is not connected: %s; trying again",
			 m->entry->id, m->entry->control, reason);
	m->conn = NULL;
	member_step(m, PEER_LOST, NULL);
}

const struct conn_handler member_handler = {
    .opened = say_hello,
    .hello = on_hello,
    .message = on_message,
    .closed = on_closed,
};
