/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of programs about single connections: who is at the other end, and whether one that a
 * listener holds opens. A held connection has an entry in its engine, and its program knows it, but
 * neither the connecting program nor the peer has an answer yet.
 */
#include "command.h"
#include "conn.h"
#include "connect.h"
#include "link.h"
#include "local.h"
#include "node.h"
#include "segment.h"
#include "session.h"
#include "state.h"

#include "ipc/text.h"

#include <errno.h>

/* The session's connection. NULL after a refusal. */
static struct broker_conn *
own_conn(struct broker_session *s, uint32_t vqpn)
{
	struct broker_conn *c = vqpn ? conn_find(s->b, vqpn) : NULL;

	if (c && c->session == s)
		return c;
	session_refuse(s, ENOTCONN, "the connection has ended; close it");
	return NULL;
}

/* The engine has done it: what the program is told of the connection lies in its ring. */
static void
decided(struct broker *b, struct broker_command *k)
{
	struct broker_session *s = b->session[k->cmd.conn.session];
	struct weir_session_msg ok = session_msg(WEIR_MSG_OK);
	const struct broker_conn *c = k->context;

	weir_assert(s);
	session_command_done(s);
	session_reply(s, &ok, NULL, 0);
	if (c->segment && !k->cmd.conn.status)
		local_acceptor_told(b, k);
	else
		conn_command_done(b, k->context);
}

void
decide_request(struct broker_session *s, const struct weir_session_msg *m)
{
	bool refuses = m->decide.flags & WEIR_DECIDE_REFUSE;
	struct broker_conn *c = own_conn(s, m->decide.vqpn);
	uint32_t window = m->decide.window;
	struct broker_command *k;

	if (!c)
		return;
	if (m->decide.flags & ~WEIR_DECIDE_REFUSE || (window && window < WEIR_CONNECT_WINDOW_MIN)) {
		session_refuse(s, EINVAL,
			       "an unknown flag, or a window of %u bytes, which doesn't hold a "
			       "message; give %u or more",
			       window, WEIR_CONNECT_WINDOW_MIN);
		return;
	}
	if (c->listener == ENGINE_LISTENER_NONE || (refuses && !c->held)) {
		session_refuse(s, EISCONN,
			       "the connection is open already; close it, or listen with "
			       "WEIR_LISTEN_HOLD");
		return;
	}
	if (c->held && c->segment && !c->peer) {
		session_refuse(s, ECONNRESET, "the connecting program has gone; close this end");
		return;
	}
	c->held = false;
	if (window)
		c->window = window;
	k = conn_command(s->b, c, ENGINE_CONN_DECIDE, decided);
	if (!k) {
		session_refuse_memory(s);
		return;
	}
	k->cmd.conn.window = window;
	k->cmd.conn.status = refuses ? ECONNREFUSED : 0;
	weir_text_copy(k->cmd.refusal, m->decide.reason, sizeof(k->cmd.refusal));
	s->commands++;
	command_submit(s->b, k);
	if (refuses && c->segment)
		local_refuse(s->b, c, m->decide.reason);
}

void
who_request(struct broker_session *s, const struct weir_session_msg *m)
{
	const struct broker_conn *c = own_conn(s, m->who.vqpn);
	struct weir_session_msg r = session_msg(WEIR_MSG_PEER);
	const struct segment_side *there;
	const struct broker_link *l;
	struct broker *b = s->b;
	const struct nic_attr *attr;

	if (!c)
		return;
	r.peer.age_ms = (broker_now(b) - c->since) / 1000000;
	r.peer.class = c->class;
	r.peer.node = c->segment || c->loop ? b->node : c->node;
	if (c->segment) {
		there = &c->segment->side[c->listener == ENGINE_LISTENER_NONE];
		r.peer.local = 1;
		r.peer.pid = (uint32_t)there->pid;
		r.peer.uid = there->uid;
		memcpy(r.peer.program, there->name, sizeof(r.peer.program));
		node_port(b, NULL, &r.peer.here);
		r.peer.there = r.peer.here;
	} else {
		attr = &b->attr[c->engine];
		node_gid_port(&r.peer.here, attr->gid.raw, attr->lid);
		l = link_by_id(b, c->engine, c->link);
		if (l)
			node_gid_port(&r.peer.there, l->peer.gid, l->peer.lid);
	}
	session_reply(s, &r, NULL, 0);
}
