/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes: reports of control, their addresses, and the loss of a node. */
#include "command.h"
#include "connect.h"
#include "control_socket.h"
#include "link.h"
#include "node.h"
#include "session.h"
#include "state.h"

#include "base/fail.h"
#include "ipc/invariant.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FORGET_NS                                                                                  \
	(60 * BROKER_SECOND_NS) /* ns until an unreported node is forgotten, as in control */

struct broker_node *
node_find(const struct broker *b, uint32_t id)
{
	return id < BROKER_NODES ? b->node_by_id[id] : NULL;
}

static struct broker_node *
node_new(uint32_t id)
{
	struct broker_node *n = broker_alloc(sizeof(*n));

	if (n) {
		n->is.id = id;
		STAILQ_INIT(&n->waiting);
	}
	return n;
}

/* NULL: out of memory. */
static struct broker_node *
node_add(struct broker *b, uint32_t id)
{
	struct broker_node *n;

	if (b->node_count == b->node_room) {
		uint32_t room = b->node_room ? b->node_room * 2 : 16;
		struct broker_node **more = broker_alloc(room * sizeof(*more));

		if (!more)
			return NULL;
		if (b->node_count)
			memcpy(more, b->node_list, b->node_count * sizeof(*more));
		free(b->node_list);
		b->node_list = more;
		b->node_room = room;
	}
	n = node_new(id);
	if (!n)
		return NULL;
	weir_assert(!b->node_by_id[id]);
	b->node_list[b->node_count++] = n;
	b->node_by_id[id] = n;
	return n;
}

int
nodes_begin(struct broker *b)
{
	b->loop = node_new(0);
	if (!b->loop)
		return -ENOMEM;
	node_tell_engines(b); /* not known yet, but a loop-back link needs a number */
	return 0;
}

struct broker_node *
node_loop(struct broker *b)
{
	/* without a control the number is not known; it stays within this node */
	b->loop->is.id = b->node == BROKER_NODE_UNKNOWN ? UINT16_MAX : b->node;
	b->loop->is.state = WEIR_NODE_UP;
	b->loop->is.engines = b->config.engines;
	return b->loop;
}

bool
node_usable(const struct broker_node *n)
{
	return n->is.engines && (n->is.state == WEIR_NODE_UP || n->is.state == WEIR_NODE_SUSPECT);
}

static int
resolve_gid(struct broker *b, const uint8_t gid[16], struct broker_node **node)
{
	static const uint8_t mapped_loop[13] = {[10] = 0xff, 0xff, 127}, loop[16] = {[15] = 1};
	struct broker_node *found = NULL;

	*node = NULL;
	if (!memcmp(gid, mapped_loop, sizeof(mapped_loop)) || !memcmp(gid, loop, sizeof(loop)))
		return 0;
	for (uint32_t i = 0; i < b->config.engines; i++)
		if (!memcmp(b->attr[i].gid.raw, gid, 16))
			return 0;
	/* of two nodes with one address (a host came back with another id) the one that is up */
	for (uint32_t i = 0; i < b->node_count; i++) {
		struct broker_node *n = b->node_list[i];

		for (uint32_t k = 0; k < n->is.address_count; k++)
			if (!memcmp(n->is.address[k], gid, 16) &&
			    (!found || found->is.state >= WEIR_NODE_DOWN))
				found = n;
	}
	if (found)
		*node = found->is.self ? NULL : found;
	return found ? 0 : -EHOSTUNREACH;
}

/* By our ports, the reports of control, and the offers of links. */
static int
resolve_lid(struct broker *b, uint32_t lid, struct broker_node **node)
{
	*node = NULL;
	if (!lid || lid > UINT16_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < b->config.engines; i++)
		if (broker_engine(b, i)->dev && b->attr[i].lid == lid)
			return 0;
	for (uint32_t i = 0; i < b->node_count; i++) {
		struct broker_node *n = b->node_list[i];

		for (uint32_t k = 0; k < WEIR_CTL_ADDRESSES; k++)
			if (n->is.lid[k] == lid) {
				*node = n->is.self ? NULL : n;
				return 0;
			}
	}
	for (const struct broker_link *l = b->links; l; l = l->next)
		if (!l->loop_end && l->peer.lid == lid) {
			*node = node_find(b, l->node);
			return *node ? 0 : -EHOSTUNREACH;
		}
	return -EHOSTUNREACH;
}

int
node_resolve(struct broker *b, const struct weir_address *address, struct broker_node **node)
{
	uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff};

	switch (address->kind) {
	case WEIR_ADDRESS_NODE:
		*node = NULL;
		if (address->id == b->node)
			return 0;
		*node = node_find(b, address->id);
		return *node ? 0 : -EHOSTUNREACH;
	case WEIR_ADDRESS_IPV4:
		memcpy(mapped + 12, address->ip, 4);
		return resolve_gid(b, mapped, node);
	case WEIR_ADDRESS_IPV6:
	case WEIR_ADDRESS_GID:
		return resolve_gid(b, address->ip, node);
	case WEIR_ADDRESS_LID:
		return resolve_lid(b, address->id, node);
	}
	return -EINVAL;
}

static bool
same_network(const struct nic_attr *attr, const uint8_t address[16])
{
	return nic_gid_same(attr->gid.raw, address, attr->prefix);
}

static bool
routed(const struct nic_attr *attr, const uint8_t address[16])
{
	for (unsigned i = 0; i < attr->route_count; i++)
		if (nic_gid_same(attr->routes[i].network.raw, address, attr->routes[i].bits))
			return true;
	return false;
}

static void
set_port(struct weir_address *port, const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, none[16];

	if (!memcmp(gid, none, sizeof(none)))
		return;
	port->kind = WEIR_ADDRESS_IPV6;
	memcpy(port->ip, gid, 16);
	if (memcmp(gid, mapped, sizeof(mapped)))
		return;
	port->kind = WEIR_ADDRESS_IPV4;
	memset(port->ip, 0, 16);
	memcpy(port->ip, gid + 12, 4);
}

void
node_gid_port(struct weir_address *port, const uint8_t gid[16], uint16_t lid)
{
	memset(port, 0, sizeof(*port));
	set_port(port, gid);
	if (!lid)
		return;
	port->kind = WEIR_ADDRESS_LID;
	port->id = lid;
}

void
node_port(const struct broker *b, const struct broker_node *n, struct weir_address *port)
{
	memset(port, 0, sizeof(*port));
	for (uint32_t i = 0; !n && i < b->config.engines && !port->kind; i++) {
		if (!broker_engine(b, i)->dev)
			continue;
		node_gid_port(port, b->attr[i].gid.raw, b->attr[i].lid);
	}
	if (!n)
		return;
	if (n->is.lid[0]) {
		port->kind = WEIR_ADDRESS_LID;
		port->id = n->is.lid[0];
	} else if (n->is.address_count) {
		set_port(port, n->is.address[0]);
	}
	for (uint32_t i = 0; i < b->config.engines; i++)
		for (uint32_t k = 0; k < n->is.address_count; k++)
			if (broker_engine(b, i)->dev && b->attr[i].prefix &&
			    same_network(&b->attr[i], n->is.address[k])) {
				set_port(port, n->is.address[k]);
				return;
			}
}

/*
 * Whether the engine's port reaches the node, through gateways only if `far`. *address: by which of
 * its addresses, -1 not known.
 */
static bool
engine_reaches(const struct broker *b, uint32_t engine, const struct broker_node *n, bool far,
	       int *address)
{
	const struct nic_attr *attr = &b->attr[engine];

	*address = -1;
	if (!broker_engine(b, engine)->dev)
		return false;
	for (uint32_t k = 0; k < n->is.address_count && attr->prefix; k++)
		if (same_network(attr, n->is.address[k]) ||
		    (far && routed(attr, n->is.address[k]))) {
			*address = (int)k;
			return true;
		}
	return !attr->prefix;
}

uint32_t
node_engine(const struct broker *b, const struct broker_node *n, uint32_t wish)
{
	for (uint32_t i = 0; i < 2 * b->config.engines; i++) {
		uint32_t engine = (wish + i) % b->config.engines;
		int address;

		/* ports in a network of the node before those behind a gateway */
		if (engine_reaches(b, engine, n, i >= b->config.engines, &address))
			return engine;
	}
	return wish;
}

void
node_gid_text(const uint8_t gid[16], char text[NODE_GID_TEXT])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, none[16];
	bool v4 = !memcmp(gid, mapped, sizeof(mapped));

	text[0] = '\0';
	if (memcmp(gid, none, sizeof(none)))
		inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid + 12 : gid, text, NODE_GID_TEXT);
}

bool
node_reached(const struct broker *b, const struct broker_node *n, char *reason, size_t size)
{
	char theirs[NODE_GID_TEXT], ours[NODE_GID_TEXT] = "", more[2][24] = {"", ""};
	uint32_t networks = 0, prefix = 0;
	int address;

	for (uint32_t i = 0; i < b->config.engines; i++) {
		const struct nic_attr *attr = &b->attr[i];
		bool seen = false;

		if (engine_reaches(b, i, n, true, &address))
			return true;
		for (uint32_t k = 0; k < i && !seen; k++)
			seen = broker_engine(b, k)->dev == broker_engine(b, i)->dev;
		if (!broker_engine(b, i)->dev || seen || networks++)
			continue;
		node_gid_text(attr->gid.raw, ours);
		prefix = attr->prefix - (strchr(ours, ':') ? 0 : 96);
	}
	if (!networks || !n->is.address_count || n->is.lid[0])
		return true; /* the link will tell */
	node_gid_text(n->is.address[0], theirs);
	if (n->is.address_count > 1)
		snprintf(more[0], sizeof(more[0]), " and %u more", n->is.address_count - 1);
	if (networks > 1)
		snprintf(more[1], sizeof(more[1]), " or %u more", networks - 1);
	fail(reason, size, 0,
	     "node %u has %s%s, which %s not in %s/%u%s; give both a port in one network, or gw=",
	     n->is.id, theirs, more[0], *more[0] ? "are" : "is", ours, prefix, more[1]);
	return false;
}

void
node_link_row(const struct broker *b, const struct broker_node *n, struct weir_row_node *r)
{
	static const char *const words[] = {"none", "setup", "repair", "up"};
	const struct broker_link *l = NULL;
	uint32_t most = 0;
	int address = -1;

	if (n->is.self || n->is.state == WEIR_NODE_GONE)
		return;
	/* queue pairs of one engine that carry data outweigh those of another that don't */
	for (const struct broker_link *k = b->links; k; k = k->next) {
		bool whole = k->state == LINK_UP;
		uint32_t is = k->open && whole ? 3 : k->live ? 2 : k->state == LINK_DOWN ? 0 : 1;

		if (k->node != n->is.id || k->loop_end || is <= most)
			continue;
		most = is;
		l = k;
	}
	snprintf(r->link, sizeof(r->link), "%s", words[most]);
	if (l && l->peer_attempt && l->peer.lid) {
		snprintf(r->link_address, sizeof(r->link_address), "lid:%u", l->peer.lid);
		return;
	}
	if (l && l->peer_attempt) {
		node_gid_text(l->peer.gid, r->link_address);
		return;
	}
	if (!node_reached(b, n, r->link_reason, sizeof(r->link_reason))) {
		snprintf(r->link, sizeof(r->link), "no way");
		return;
	}
	for (uint32_t i = 0; i < 2 * b->config.engines && address < 0; i++)
		engine_reaches(b, i % b->config.engines, n, i >= b->config.engines, &address);
	if (address >= 0)
		node_gid_text(n->is.address[address], r->link_address);
	if (n->is.state >= WEIR_NODE_DOWN)
		snprintf(r->link_reason, sizeof(r->link_reason), "the node is down");
	else if (!n->is.engines)
		snprintf(r->link_reason, sizeof(r->link_reason), "its data plane is not known yet");
}

static void
tell_programs(struct broker *b, const struct broker_node *n, uint32_t status)
{
	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct broker_command *k = command_urgent(b, i, ENGINE_NODE_EVENT, NULL, NULL);

		if (!k)
			return; /* programs learn of it by the end of their connections */
		k->cmd.conn.peer_node = (uint16_t)n->is.id;
		k->cmd.conn.status = status;
		command_submit(b, k);
	}
}

void
node_up(struct broker *b, struct broker_node *n)
{
	if (!n->told_up && !n->is.self) {
		n->told_up = true;
		node_news(b, n);
		tell_programs(b, n, 0);
	}
}

void
node_lost(struct broker *b, struct broker_node *n)
{
	weir_assert(n != b->loop);
	n->repair_until = 0;
	for (struct broker_link *l = n->links; l; l = l->next_of_node) {
		l->saved.attempt = 0;
		broker_link_fail(l, EHOSTDOWN);
	}
	if (!n->told_up)
		return;
	n->told_up = false;
	node_news(b, n);
	b->counters.nodes_down++;
	log_event(LOG_LEVEL_WARNING, NODE_FIELDS(n->is.id), "node %u is down: its connections end",
		  n->is.id);
	tell_programs(b, n, EHOSTDOWN);
}

void
node_tell_engines(struct broker *b)
{
	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct broker_command *k = command_urgent(b, i, ENGINE_SET_NODE, NULL, NULL);

		if (!k) { /* control gives the id again when it connects again */
			b->node = BROKER_NODE_UNKNOWN;
			control_restart(b);
			return;
		}
		k->cmd.node.id = (uint16_t)b->node; /* unknown: 65535, the id of no node */
		k->cmd.node.incarnation = b->config.incarnation;
		command_submit(b, k);
	}
}

/* No node has that id now: it is not shown, and has no addresses. */
static void
node_gone(struct broker *b, struct broker_node *n)
{
	n->is = (struct weir_ctl_node){
	    .id = n->is.id, .state = WEIR_NODE_GONE, .incarnation = n->is.incarnation};
	node_news(b, n);
	node_lost(b, n);
	connect_kick(b, n);
}

void
node_set_own(struct broker *b, uint32_t id)
{
	struct broker_node *old = node_find(b, b->node);

	if (id == BROKER_NODE_UNKNOWN || id == b->node)
		return;
	if (b->node != BROKER_NODE_UNKNOWN) {
		log_event(LOG_LEVEL_WARNING, NODE_FIELDS(id),
			  "own node id changes from %u to %u: links end", b->node, id);
		for (struct broker_link *l = b->links; l; l = l->next)
			broker_link_fail(l, ECONNRESET);
	}
	if (old && old->is.self)
		node_gone(b, old);
	b->node = id;
	session_publish_node(b);
	node_tell_engines(b);
}

void
node_input(struct broker *b, const struct weir_ctl_node *is)
{
	struct broker_node *n = node_find(b, is->id);
	struct weir_ctl_node was;
	bool set_back;

	if (is->self)
		node_set_own(b, is->id);
	if (!n)
		n = node_add(b, is->id);
	if (!n) {
		control_restart(b);
		return;
	}
	was = n->is;
	n->told = true;
	if (is->state != WEIR_NODE_JOINING)
		n->unheard_until = 0;
	/* Incarnations grow, and an offer may have brought a newer one already. They don't grow
	 * when a clock was set back or another host has the id; then the node was down in between.
	 */
	set_back = was.state >= WEIR_NODE_DOWN && is->state == WEIR_NODE_UP;
	n->is = *is;
	if (!is->engines)
		n->is.engines = was.engines;
	if (is->incarnation < was.incarnation && !set_back)
		n->is.incarnation = was.incarnation;
	if (is->state == WEIR_NODE_JOINING && was.incarnation) {
		/* a restarted control has not heard of the node yet: what is known stays */
		n->is.state = was.state;
		if (!is->control[0])
			memcpy(n->is.control, was.control, sizeof(was.control));
		if (!is->address_count && !is->lid[0]) {
			n->is.address_count = was.address_count;
			memcpy(n->is.address, was.address, sizeof(was.address));
			memcpy(n->is.lid, was.lid, sizeof(was.lid));
		}
	}
	/* its data plane was restarted */
	if (was.incarnation && n->is.incarnation != was.incarnation && !n->is.self)
		node_lost(b, n);
	if (!n->changed || memcmp(&was, &n->is, sizeof(was)))
		node_news(b, n);
	if (n->is.self)
		return;
	if (n->is.state >= WEIR_NODE_DOWN)
		node_lost(b, n);
	else if (n->is.state == WEIR_NODE_UP)
		node_up(b, n);
	connect_kick(b, n);
}

/* ---- links without an answer ---- */

void
node_tell_control(struct broker_link *l, uint32_t status)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK_DOWN,
				 .length = weir_ctl_length(WEIR_CTL_LINK_DOWN)};

	m.link_down.node = (uint16_t)l->b->node;
	m.link_down.peer_node = (uint16_t)l->node;
	m.link_down.engine = (uint8_t)WEIR_END(l->engine, link_class(l));
	m.link_down.peer_engine = (uint8_t)l->peer_engine;
	m.link_down.status = status;
	broker_control_send(l->b, &m);
}

/* A silent link and a silent control mean that the node is down: control decides. */
void
node_link_silent(struct broker *b, uint32_t engine, const struct engine_event *event)
{
	struct broker_link *l = link_by_id(b, engine, event->conn.link);

	if (l && l->live && !l->loop_end)
		node_tell_control(l, EHOSTDOWN);
}

void
node_link_heard(struct broker *b, uint32_t engine, const struct engine_event *event)
{
	struct broker_link *l = link_by_id(b, engine, event->conn.link);

	if (l && l->qp[0] && nic_qpn(l->qp[0]) == event->qpn)
		link_confirm(l);
}

void
node_link_error(struct broker *b, uint32_t engine, const struct engine_event *event)
{
	struct broker_link *l = link_by_id(b, engine, event->conn.link);
	uint32_t resumes = WEIR_RESUME_NOT;
	struct broker_node *n;

	if (!l || (!l->live && l->state != LINK_ADDING))
		return;
	if (event->conn.status == EPROTO && !event->wc_status) {
		/* the peer broke the rules: its connections end, then the link is set up anew */
		n = l->loop_end ? NULL : node_find(b, l->node);
		LINK_BLAME(l, LOG_LEVEL_WARNING, "link of engine %u with node %u ended: %s",
			   strerror(EPROTO));
		if (n && !n->repair_until)
			n->repair_until = broker_now(b) + b->config.repair_timeout_ns;
		broker_link_fail(l, ECONNRESET);
		return;
	}
	if (l->qp[0] && nic_qpn(l->qp[0]) == event->qpn)
		resumes = WEIR_RESUME_BOTH;
	else if (l->qp[1] && nic_qpn(l->qp[1]) == event->qpn)
		resumes = WEIR_RESUME_BULK;
	if (!resumes)
		return; /* that queue pair is gone */
	LINK_BLAME(l, LOG_LEVEL_WARNING,
		   "link of engine %u with node %u broke: %s (%s); it is repaired",
		   event->wc_status ? nic_wc_status_name(event->wc_status) : "nothing can be sent",
		   strerror((int)event->conn.status));
	if (event->wc_status == NIC_WC_RETRY_EXC_ERR && !l->loop_end)
		node_tell_control(l, EHOSTDOWN);
	link_repair(l, resumes);
}

/* ---- nodes that a new control has not reported ---- */

void
nodes_unheard(struct broker *b)
{
	for (uint32_t i = 0; i < b->node_count; i++) {
		b->node_list[i]->unheard_until = broker_now(b) + b->config.repair_timeout_ns;
		b->node_list[i]->told = false;
	}
}

/*
 * The new control has not reported the node in time: it left while there was no control. A node
 * with a live link is left to that link. One that control never reports is not a member.
 */
static void
unheard(struct broker *b, struct broker_node *n)
{
	bool usable = node_usable(n), linked = false;

	for (const struct broker_link *l = n->links; l && !linked; l = l->next_of_node)
		linked = l->live;
	n->unheard_until = 0;
	if (n->is.self || n->is.state == WEIR_NODE_GONE)
		return;
	if (!n->told && (usable || linked))
		n->unheard_until = broker_now(b) + FORGET_NS;
	else if (!n->told)
		node_gone(b, n);
	if (!usable || linked)
		return;
	n->is.state = WEIR_NODE_DOWN;
	node_news(b, n);
	node_lost(b, n);
	connect_kick(b, n);
}

static uint64_t
earlier(uint64_t time, uint64_t next)
{
	return time && time < next ? time : next;
}

uint64_t
node_timers(struct broker *b, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < b->node_count; i++) {
		struct broker_node *n = b->node_list[i];

		if (n->unheard_until && n->unheard_until <= now)
			unheard(b, n);
		if (n->repair_until && n->repair_until <= now)
			node_lost(b, n);
		next = earlier(n->unheard_until, earlier(n->repair_until, next));
	}
	return next;
}

void
node_free_all(struct broker *b)
{
	for (uint32_t i = 0; i < b->node_count; i++) {
		free(b->node_list[i]->offers);
		free(b->node_list[i]);
	}
	free(b->node_list);
	free(b->node_by_id);
	free(b->loop);
}
