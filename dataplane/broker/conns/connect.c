/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections with peers: over a link, or waiting until one is up. */
#include "arena.h"
#include "command.h"
#include "conn.h"
#include "connect.h"
#include "datagram.h"
#include "export.h"
#include "link.h"
#include "local.h"
#include "node.h"
#include "quota.h"
#include "service.h"
#include "session.h"
#include "set.h"
#include "state.h"
#include "user.h"

#include "ipc/invariant.h"

#include <errno.h>

struct service_listener *
connect_listener(struct broker *b, const char *service)
{
	struct service_listener *l = service_find(&b->services, service);
	uint32_t accepted;

	if (!l || l->session->state != SESSION_OPEN)
		return NULL;
	accepted =
	    atomic_load_explicit(&arena_head(&l->session->arena)->accepted[l->id % WEIR_LISTENERS],
				 memory_order_relaxed);
	/* a false number of the program shortens or lengthens its own queue only */
	if ((int32_t)(l->created - accepted) >= (int64_t)l->backlog)
		return NULL;
	return l;
}

void
connect_not_accepted(struct broker_conn *c)
{
	struct service_listener *l = NULL;

	if (c->session && c->listener != ENGINE_LISTENER_NONE)
		l = c->session->listener[c->listener % WEIR_LISTENERS];
	if (l && l->id == c->listener)
		l->created--;
}

static void start_or_wait(struct broker *b, struct broker_conn *c);

static void
started(struct broker *b, struct broker_command *k)
{
	struct broker_conn *c = k->context;
	struct broker_link *l = link_by_id(b, c->engine, k->cmd.conn.link);

	if (k->cmd.result && l)
		link_idle(l);
	if (k->cmd.result == -ENOLINK) { /* its other end wants no more of it: over the next one */
		link_ends(b, c->engine, k->cmd.conn.link);
		if (!c->gone && c->session && c->session->state == SESSION_OPEN)
			start_or_wait(b, c);
		conn_command_done(b, c);
		return;
	}
	/* The link went in the meantime; -ENOENT: the program closed it, CONN_CLOSED follows. */
	if (k->cmd.result && k->cmd.result != -ENOENT && !c->gone && !k->cmd.conn.status) {
		struct broker_command *end = conn_command(b, c, ENGINE_CONN_START, NULL);

		if (end) {
			end->cmd.conn.status = EHOSTUNREACH;
			command_submit(b, end);
		}
	}
	conn_command_done(b, c);
}

static void
start(struct broker *b, struct broker_conn *c, struct broker_link *l, uint32_t status)
{
	struct broker_command *k;

	weir_assert(c->vqpn && !c->waiting_for);
	c->link = l ? l->id : ENGINE_LINK_NONE;
	k = conn_command(b, c, ENGINE_CONN_START, started);
	if (!k)
		return;
	if (l)
		link_used(l);
	k->cmd.conn.status = status;
	if (l && c->kind == CONN_DATAGRAM)
		k->cmd.conn.status = (uint32_t)-datagrams_fill(b, l, &k->cmd.conn);
	command_submit(b, k);
}

void
connect_give_up(struct broker *b, struct broker_conn *c, uint32_t status)
{
	weir_assert(c->waiting_for);
	connect_forget(c);
	start(b, c, NULL, status);
}

static void
start_or_wait(struct broker *b, struct broker_conn *c)
{
	struct broker_node *n = c->loop ? node_loop(b) : node_find(b, c->node);
	int status = EHOSTUNREACH;
	struct broker_link *l = n ? link_want(b, c->engine, n, c->class, &status) : NULL;

	if (l || status) {
		start(b, c, l, l ? 0 : (uint32_t)status);
		return;
	}
	c->waiting_for = n;
	STAILQ_INSERT_TAIL(&n->waiting, c, in_waiting);
}

void
connect_forget(struct broker_conn *c)
{
	if (c->waiting_for)
		STAILQ_REMOVE(&c->waiting_for->waiting, c, broker_conn, in_waiting);
	c->waiting_for = NULL;
}

void
connect_kick(struct broker *b, struct broker_node *n)
{
	struct broker_conn *c;
	uint32_t count = 0;

	for (c = STAILQ_FIRST(&n->waiting); c; c = STAILQ_NEXT(c, in_waiting))
		count++;
	/* connections that go on waiting are appended again */
	while (count-- && (c = STAILQ_FIRST(&n->waiting))) {
		connect_forget(c);
		start_or_wait(b, c);
	}
}

static uint64_t
node_deadline(struct broker *b, struct broker_node *n, uint64_t now)
{
	struct broker_conn *c;

	while ((c = STAILQ_FIRST(&n->waiting)) && c->since + BROKER_CONNECT_TIMEOUT_NS <= now) {
		/* room that came late is no fault of the peer's */
		bool no_room = link_lacks_room(b, c->engine, n, c->class,
					       c->since + BROKER_CONNECT_TIMEOUT_NS / 2);

		b->counters.connects_timed_out++;
		connect_give_up(b, c, no_room ? ENOSPC : ETIMEDOUT);
	}
	return c ? c->since + BROKER_CONNECT_TIMEOUT_NS : UINT64_MAX;
}

uint64_t
connect_timers(struct broker *b, uint64_t now)
{
	uint64_t next = b->loop ? node_deadline(b, b->loop, now) : UINT64_MAX;

	for (uint32_t i = 0; i < b->node_count; i++) {
		uint64_t t = node_deadline(b, b->node_list[i], now);

		if (t < next)
			next = t;
	}
	return next;
}

static void
opened(struct broker *b, struct broker_command *k)
{
	struct broker_conn *c = k->context;
	struct broker_link *l = link_by_id(b, c->engine, c->link);

	if (k->cmd.result) {
		if (l)
			link_idle(l);
		if (c->session)
			session_refuse(c->session, -k->cmd.result,
				       "engine %u opens no connection now: %s; try again",
				       c->engine, strerror(-k->cmd.result));
		conn_gone(b, c);
	} else {
		c->vqpn = k->cmd.conn.vqpn;
		conn_reply_connecting(c);
		if (c->link != k->cmd.conn.link) /* it ends */
			link_ends(b, c->engine, c->link);
		if (conn_made(b, c, k->cmd.conn.vqpn) && c->session->state == SESSION_OPEN &&
		    k->cmd.conn.link == ENGINE_LINK_NONE)
			start_or_wait(b, c);
	}
	conn_command_done(b, c);
}

static void
refuse_conn(struct broker_session *s, int rc)
{
	if (rc == -ENOMEM)
		session_refuse_memory(s);
	else
		user_refuse_conn(s, s);
}

/* A connection over a link that a program asks for. */
struct wish {
	uint32_t channel, window;
	uint8_t class, kind; /* enum weir_class, enum engine_conn_kind */
	bool loop;
	char service[WEIR_SERVICE_MAX]; /* memory: struct weir_wire_export */
};

static void
remote_connect(struct broker_session *s, const struct wish *wish, struct broker_node *n)
{
	struct broker *b = s->b;
	uint32_t engine = s->channel[wish->channel].engine;
	struct weir_session_msg other = session_msg(WEIR_MSG_CONNECTING);
	struct broker_command *k;
	char reason[WEIR_REASON_MAX];
	struct broker_link *l;
	struct broker_conn *c;
	bool loop = wish->loop;
	int status, rc;

	if (!loop && n->is.state >= WEIR_NODE_DOWN) {
		session_refuse(s, EHOSTDOWN, "node %u is down; connect again when it is up",
			       n->is.id);
		return;
	}
	if (!loop && !node_reached(b, n, reason, sizeof(reason))) {
		session_refuse(s, EHOSTUNREACH, "%s", reason);
		return;
	}
	/* another engine reaches the node: the program asks again on a channel to that one */
	other.connecting.engine = loop ? engine : node_engine(b, n, engine);
	if (other.connecting.engine != engine) {
		session_reply(s, &other, NULL, 0);
		return;
	}
	l = link_want(b, engine, n, wish->class, &status);
	if (!l && status) {
		session_refuse(s, status,
			       "no link from engine %u to node %u: %s; see the data plane's log",
			       engine, n->is.id, strerror(status));
		return;
	}
	rc = broker_conn_new(s, wish->channel, &c);
	if (rc) {
		refuse_conn(s, rc);
		return;
	}
	b->counters.connects_out++;
	c->loop = loop;
	c->class = wish->class;
	c->node = n->is.id;
	c->window = wish->window;
	c->kind = wish->kind;
	/* datagrams take two steps: the second makes the objects that the link lacks for them */
	if (c->kind == CONN_DATAGRAM)
		l = NULL;
	c->link = l ? l->id : ENGINE_LINK_NONE;
	if (l)
		link_used(l);
	k = conn_command(b, c, ENGINE_CONN_OPEN, opened);
	if (!k) {
		if (l)
			link_idle(l);
		conn_gone(b, c);
		session_refuse_memory(s);
		return;
	}
	memcpy(k->cmd.conn.service, wish->service, sizeof(k->cmd.conn.service));
	command_submit(b, k);
}

/* The class of a connection that the program asks for. False after a refusal. */
static bool
class_of(struct broker_session *s, uint32_t asked, uint8_t *class)
{
	if (asked >= WEIR_CLASSES) {
		session_refuse(s, EINVAL, "no such priority; give one of weir/stream.h");
		return false;
	}
	*class = asked == WEIR_CLASS_NORMAL ? s->quota.class : (uint8_t)asked;
	if (asked != WEIR_CLASS_HIGH || s->quota.class == WEIR_CLASS_HIGH ||
	    s->owner->limits.class == WEIR_CLASS_HIGH)
		return true;
	session_refuse(s, EACCES,
		       "user %u may not connect with priority high; have it allowed (weirctl set "
		       "user.%u.priority high, or --user-limit)",
		       (unsigned)s->uid, (unsigned)s->uid);
	return false;
}

static void
refuse_draining(struct broker_session *s, const struct broker_node *n)
{
	s->b->counters.drained++;
	session_refuse(s, ECONNREFUSED, "%s is being drained: no new connections; try again later",
		       n ? "that node" : "this node");
}

void
connect_request(struct broker_session *s, const struct weir_session_msg *m)
{
	const struct weir_address *a = &m->connect.address;
	struct wish wish = {.channel = m->connect.channel,
			    .window = m->connect.window,
			    .kind = conn_kind(m->connect.flags),
			    .loop = m->connect.flags & WEIR_CONNECT_LOOP};
	struct broker_node *n;
	int rc;

	if (m->connect.channel >= s->channel_count || m->connect.flags & ~WEIR_CONNECT_KNOWN) {
		session_refuse(s, EINVAL,
			       "no such channel, or an unknown flag; correct the program");
		return;
	}
	if (m->connect.window && m->connect.window < WEIR_CONNECT_WINDOW_MIN) {
		session_refuse(s, EINVAL,
			       "a window of %u bytes doesn't hold a message; give %u or more",
			       m->connect.window, WEIR_CONNECT_WINDOW_MIN);
		return;
	}
	if (!weir_service_ok(a->service)) {
		session_refuse(s, EINVAL, "the address names no service; write ADDRESS:SERVICE");
		return;
	}
	if (!class_of(s, m->connect.class, &wish.class))
		return;
	memcpy(wish.service, a->service, sizeof(wish.service));
	rc = node_resolve(s->b, a, &n);
	if (rc == -EINVAL) {
		session_refuse(s, EINVAL,
			       "not an address of any kind; make it with weir_address_parse()");
	} else if (rc) {
		session_refuse(s, -rc,
			       s->b->synced ? "no member of the cluster has this address; see "
					      "weirctl show nodes"
					    : "the members of the cluster are not known; "
					      "start weir-control");
	} else if (draining(s->b, n)) {
		refuse_draining(s, n);
	} else if (wish.loop && n) {
		session_refuse(
		    s, EINVAL,
		    "loop-back needs an address of this very node; weirctl show nodes names it");
	} else if (wish.loop) {
		remote_connect(s, &wish, node_loop(s->b));
	} else if (n) {
		remote_connect(s, &wish, n);
	} else {
		local_connect(s, m, wish.class);
	}
}

/* ---- connections to exports ---- */

static void
refuse_key(struct broker_session *s, int rc)
{
	if (rc == -EACCES)
		session_refuse(s, EACCES,
			       "the key does not grant these rights; get one that does, or ask for "
			       "less");
	else
		session_refuse(s, EKEYREJECTED,
			       "there is no such export, or the key is not as it was made; get the "
			       "key of an export that exists");
}

static void
apart_opened(struct broker *b, struct broker_command *k)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_CONNECTING);
	struct broker_conn *c = k->context;

	if (k->cmd.result && c->session) {
		if (k->cmd.result == -ESTALE)
			refuse_key(c->session, -EKEYREJECTED);
		else
			session_refuse(c->session, -k->cmd.result,
				       "engine %u opens no connection now: %s; try again",
				       c->engine, strerror(-k->cmd.result));
	}
	if (k->cmd.result) {
		conn_gone(b, c);
	} else {
		m.connecting.vqpn = k->cmd.conn.vqpn;
		m.connecting.desc = c->desc;
		m.connecting.engine = c->engine;
		m.connecting.local = 1;
		if (c->session)
			session_reply(c->session, &m, NULL, 0);
		conn_made(b, c, k->cmd.conn.vqpn);
	}
	conn_command_done(b, c);
}

/* To an export of this host: the engine of the channel executes what the program asks for. */
static void
connect_apart(struct broker_session *s, uint32_t channel, const struct weir_wire_export *wanted)
{
	struct engine_conn_command what = {0};
	struct broker_session *owner;
	struct broker_command *k;
	struct broker_conn *c;
	int rc = export_find(s->b, wanted, &owner, &what);

	if (rc) {
		refuse_key(s, rc);
		return;
	}
	rc = broker_conn_new(s, channel, &c);
	if (rc) {
		refuse_conn(s, rc);
		return;
	}
	s->b->counters.connects_local++;
	c->kind = CONN_MEMORY;
	c->node = s->b->node;
	c->class = s->quota.class;
	k = conn_command(s->b, c, ENGINE_CONN_APART, apart_opened);
	if (!k) {
		conn_gone(s->b, c);
		session_refuse_memory(s);
		return;
	}
	k->cmd.conn.export_session = what.export_session;
	k->cmd.conn.export_number = what.export_number;
	k->cmd.conn.export_generation = what.export_generation;
	k->cmd.conn.rights = what.rights;
	command_submit(s->b, k);
}

/* The node whose data plane made a key; NULL: none that is known. */
static struct broker_node *
node_of_key(const struct broker *b, const struct weir_key_fields *key)
{
	struct broker_node *n;

	if (key->node == b->node)
		return NULL;
	if (key->node != UINT32_MAX) {
		n = node_find(b, key->node);
		/* that of a node that is down says nothing about the key */
		if (n && n->is.state < WEIR_NODE_DOWN && n->is.incarnation &&
		    n->is.incarnation != key->incarnation)
			return NULL;
		return n;
	}
	for (uint32_t i = 0; i < b->node_count; i++) {
		n = b->node_list[i];
		if (!n->is.self && n->is.incarnation && n->is.incarnation == key->incarnation)
			return n;
	}
	return NULL;
}

void
open_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct wish wish = {.channel = m->open.channel, .kind = CONN_MEMORY};
	struct weir_wire_export wanted;
	struct weir_key_fields key;
	struct broker_node *n;

	memcpy(&key, m->open.key, sizeof(key));
	if (m->open.channel >= s->channel_count || !m->open.rights ||
	    m->open.rights & ~WEIR_RIGHTS_KNOWN || m->open.reserved) {
		session_refuse(s, EINVAL,
			       "no such channel, no rights or unknown ones; correct the program");
		return;
	}
	if (!class_of(s, m->open.class, &wish.class))
		return;
	if (!weir_key_ok(&key)) {
		refuse_key(s, -EKEYREJECTED);
		return;
	}
	wanted = weir_key_wanted(&key, m->open.rights);
	if (export_key_is_ours(s->b, &key)) {
		if (draining(s->b, NULL))
			refuse_draining(s, NULL);
		else
			connect_apart(s, m->open.channel, &wanted);
		return;
	}
	n = node_of_key(s->b, &key);
	if (!n && key.node == UINT32_MAX) {
		session_refuse(s, EKEYREJECTED,
			       "no node that is known here has made this key, or its data plane "
			       "has ended; try again when weirctl show nodes has it, or get a new "
			       "key");
		return;
	}
	if (!n) {
		refuse_key(s, -EKEYREJECTED);
		return;
	}
	if (draining(s->b, n)) {
		refuse_draining(s, n);
		return;
	}
	static_assert(sizeof(wanted) <= sizeof(wish.service), "fits a CONNECT");
	memcpy(wish.service, &wanted, sizeof(wanted));
	remote_connect(s, &wish, n);
}

static void
reject(struct broker *b, uint32_t engine, const struct engine_conn_command *asked, uint32_t status)
{
	struct broker_command *k = command_urgent(b, engine, ENGINE_CONN_REJECT, NULL, NULL);

	b->counters.connects_refused++;
	if (!k)
		return; /* the peer gives up by its own timeout */
	k->cmd.conn = *asked;
	k->cmd.conn.status = status;
	command_submit(b, k);
}

static void
accepted(struct broker *b, struct broker_command *k)
{
	struct broker_conn *c = k->context;
	struct broker_link *l = link_by_id(b, c->engine, k->cmd.conn.link);

	if (k->cmd.result && l)
		link_idle(l);
	if (k->cmd.result) {
		reject(b, c->engine, &k->cmd.conn,
		       k->cmd.result == -ESTALE ? EKEYREJECTED : ECONNREFUSED);
		connect_not_accepted(c);
		conn_gone(b, c);
	} else {
		conn_made(b, c, k->cmd.conn.vqpn);
	}
	conn_command_done(b, c);
}

void
connect_event(struct broker *b, uint32_t engine, const struct engine_event *event)
{
	const struct engine_conn_command *asked = &event->conn;
	struct broker_link *link = link_by_id(b, engine, asked->link);
	struct engine_conn_command way = {0};
	struct service_listener *l = NULL;
	struct weir_wire_export wanted;
	struct broker_session *owner;
	struct broker_conn *c = NULL;
	struct broker_command *k;
	int rc = 0;

	b->counters.connects_in++;
	if (link)
		link_confirm(link);
	if (draining(b, node_find(b, asked->peer_node))) {
		b->counters.drained++;
		reject(b, engine, asked, ECONNREFUSED);
		return;
	}
	if (asked->kind == CONN_MEMORY) {
		memcpy(&wanted, asked->service, sizeof(wanted));
		rc = export_find(b, &wanted, &owner, &way);
		if (!rc)
			rc = broker_conn_new_passive(owner, engine, &c);
	} else {
		l = connect_listener(b, asked->service);
		if (asked->kind == CONN_DATAGRAM)
			rc = link ? datagrams_fill(b, link, &way) : -EHOSTDOWN;
		if (l && !rc && broker_conn_new(l->session, l->channel[engine], &c) == -ENOMEM)
			rc = -ENOMEM;
	}
	if (!c) {
		reject(b, engine, asked, rc ? (uint32_t)-rc : ECONNREFUSED);
		return;
	}
	if (link)
		link_used(link);
	c->link = asked->link;
	c->node = asked->peer_node;
	if (l) {
		c->listener = l->id;
		c->held = l->holding;
	}
	c->class = link ? (uint8_t)link_class(link) : WEIR_CLASS_NORMAL;
	c->window = asked->window;
	c->kind = asked->kind;
	k = conn_command(b, c, ENGINE_CONN_ACCEPT, accepted);
	if (!k) {
		if (link)
			link_idle(link);
		conn_gone(b, c);
		reject(b, engine, asked, ENOMEM);
		return;
	}
	if (l)
		l->created++;
	else
		k->cmd.conn.listener = 0; /* not ours: the engine knows no other of a passive end */
	k->cmd.conn.export_session = way.export_session;
	k->cmd.conn.export_number = way.export_number;
	k->cmd.conn.export_generation = way.export_generation;
	k->cmd.conn.rights = way.rights;
	if (c->kind == CONN_MEMORY)
		k->cmd.key = export_key(b, engine, &way);
	k->cmd.conn.to = asked->to;
	k->cmd.conn.ah = way.ah;
	k->cmd.conn.mtu = way.mtu;
	k->cmd.conn.peer_vqpn = asked->peer_vqpn;
	k->cmd.conn.granted = asked->granted;
	memcpy(k->cmd.conn.service, asked->service, sizeof(k->cmd.conn.service));
	command_submit(b, k);
}
