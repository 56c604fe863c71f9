/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The broker's record of a connection, from the command that asks the engine for an entry until the
 * engine has freed that entry: its descriptor, and for a local one its other end. A connection
 * that is gone is freed in broker_conns_settle(), so that callers may still name it until their
 * turn ends.
 */
#include "command.h"
#include "conn.h"
#include "connect.h"
#include "datagram.h"
#include "local.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>

static int
conn_new(struct broker_session *s, uint32_t engine, struct broker_conn **conn)
{
	struct broker_conn *c;

	*conn = NULL;
	/* limits may be set below what is there */
	if (s->conn_count >= s->quota.conn_limit || s->b->conn_count >= s->b->conn_limit ||
	    !user_take_conn(s))
		return -EMFILE;
	c = broker_alloc(sizeof(*c));
	if (!c) {
		user_give(s->owner, USER_CONNECTIONS, 1);
		return -ENOMEM;
	}
	c->session = s;
	c->engine = (uint8_t)engine;
	c->desc = ENGINE_DESC_NONE;
	c->listener = ENGINE_LISTENER_NONE;
	c->link = ENGINE_LINK_NONE;
	c->since = broker_now(s->b);
	LIST_INSERT_HEAD(&s->conns, c, entry);
	s->conn_count++;
	s->b->conn_count++;
	*conn = c;
	return 0;
}

int
broker_conn_new(struct broker_session *s, uint32_t channel, struct broker_conn **conn)
{
	int rc = -EMFILE;

	*conn = NULL;
	if (s->free_desc_count)
		rc = conn_new(s, s->channel[channel].engine, conn);
	if (rc)
		return rc;
	(*conn)->channel = (uint16_t)channel;
	(*conn)->desc = s->free_desc[--s->free_desc_count];
	return 0;
}

int
broker_conn_new_passive(struct broker_session *s, uint32_t engine, struct broker_conn **conn)
{
	return conn_new(s, engine, conn);
}

struct broker_conn *
conn_find(const struct broker *b, uint32_t vqpn)
{
	struct broker_conn *c = b->conn[WEIR_VQPN_INDEX(vqpn)];

	return c && c->vqpn == vqpn ? c : NULL;
}

bool
conn_made(struct broker *b, struct broker_conn *c, uint32_t vqpn)
{
	struct broker_conn **at = &b->conn[WEIR_VQPN_INDEX(vqpn)];

	/* the engine has used the entry again: the earlier one's CONN_CLOSED is on its way */
	if (*at)
		conn_gone(b, *at);
	weir_assert(vqpn && !c->gone);
	c->vqpn = vqpn;
	*at = c;
	if (command_closed_early(b, c->engine, vqpn)) {
		conn_gone(b, c);
		return false;
	}
	return !c->gone;
}

void
conn_gone(struct broker *b, struct broker_conn *c)
{
	struct broker_session *s = c->session;

	if (c->gone)
		return;
	c->gone = true;
	if (c->vqpn && b->conn[WEIR_VQPN_INDEX(c->vqpn)] == c)
		b->conn[WEIR_VQPN_INDEX(c->vqpn)] = NULL;
	connect_forget(c);
	conn_tell_peer(b, c, ECONNRESET);
	local_line_give(b, c);

	LIST_REMOVE(c, entry);
	c->session = NULL;
	weir_assert(s->conn_count && b->conn_count);
	s->conn_count--;
	b->conn_count--;
	user_give(s->owner, USER_CONNECTIONS, 1);
	if (c->desc != ENGINE_DESC_NONE)
		s->free_desc[s->free_desc_count++] = c->desc;
	if (!c->commands)
		LIST_INSERT_HEAD(&b->conns_gone, c, entry);
}

struct broker_command *
conn_command(struct broker *b, struct broker_conn *c, enum engine_command_type type,
	     command_done_fn *done)
{
	struct broker_command *k = c->vqpn ? command_urgent(b, c->engine, type, done, c)
					   : command_new(b, c->engine, type, done, c);
	struct engine_conn_command *e;

	if (!k) {
		if (c->vqpn && c->session)
			session_end(c->session);
		return NULL;
	}
	e = &k->cmd.conn;
	k->about_conn = done != NULL;
	if (done)
		c->commands++;
	e->session = c->session ? c->session->id : 0;
	e->channel = c->desc == ENGINE_DESC_NONE ? ENGINE_CHANNEL_NONE : c->channel;
	e->vqpn = c->vqpn;
	e->desc = c->desc;
	e->link = c->link;
	e->peer_node = (uint16_t)c->node;
	e->kind = c->kind;
	if (c->kind == CONN_DATAGRAM && c->segment)
		e->mtu = datagrams_local_mtu(b, c->engine);
	e->peer_vqpn = c->peer ? c->peer->vqpn : 0;
	e->window = c->window || !c->segment ? c->window : WEIR_SEGMENT_WINDOW;
	e->listener = c->listener;
	e->held = c->held;
	e->segment = c->segment ? c->segment->id : 0;
	e->conn_index = c->conn_index;
	return k;
}

void
conn_command_done(struct broker *b, struct broker_conn *c)
{
	weir_assert(c->commands);
	if (--c->commands == 0 && c->gone)
		LIST_INSERT_HEAD(&b->conns_gone, c, entry);
}

void
broker_conns_settle(struct broker *b)
{
	struct broker_conn *c;

	while ((c = LIST_FIRST(&b->conns_gone))) {
		weir_assert(c->gone && !c->commands && !c->peer && !c->waiting_for);
		LIST_REMOVE(c, entry);
		free(c);
	}
}

void
conn_tell_peer(struct broker *b, struct broker_conn *c, uint32_t status)
{
	struct broker_conn *p = c->peer;

	if (!p)
		return;
	weir_assert(p->peer == c);
	c->peer = NULL;
	p->peer = NULL;
	if (p->gone)
		return;
	if (p->vqpn) {
		local_peer_ended(b, p, c->opened && !c->held, status);
	} else if (!p->commands) { /* else the answer that makes it will find no peer */
		connect_not_accepted(p);
		conn_gone(b, p);
	}
}

void
conn_reply_connecting(struct broker_conn *c)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_CONNECTING);

	if (!c->session || c->replied)
		return;
	weir_assert(c->vqpn);
	c->replied = true;
	m.connecting.vqpn = c->vqpn;
	m.connecting.desc = c->desc;
	m.connecting.engine = c->engine;
	m.connecting.segment = c->segment ? c->segment->id : 0;
	m.connecting.conn_index = c->conn_index;
	m.connecting.peer_vqpn = c->peer ? c->peer->vqpn : 0;
	session_reply(c->session, &m, NULL, 0);
}
