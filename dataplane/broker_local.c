/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections between programs of this host. Both ends get an entry in the engine of their channel;
 * the bytes go through a segment, which all connections between the same two threads share. The
 * accepting program is told first, so that it knows the connection before data comes.
 */
#include "broker_internal.h"

#include <errno.h>
#include <stdlib.h>

static struct segment *
find_segment(const struct broker *b, const struct broker_session *s, uint32_t channel,
	     const struct broker_session *t, uint32_t peer_channel)
{
	for (uint32_t i = 1; i < b->segment_top; i++) {
		struct segment *g = b->segment[i];

		if (g && g->side[0].session == s && g->side[0].channel == channel &&
		    g->side[1].session == t && g->side[1].channel == peer_channel &&
		    segment_open_to_new(g))
			return g;
	}
	return NULL;
}

static struct segment *
segment_by_id(const struct broker *b, uint32_t id)
{
	struct segment *g = b->segment[id % BROKER_SEGMENTS_MAX];

	return g && g->id == id ? g : NULL;
}

uint64_t
local_messages(const struct broker *b, uint32_t segment, uint32_t index)
{
	const struct segment *g = segment_by_id(b, segment);

	return g ? segment_messages(g, index) : 0;
}

static void
set_side(struct segment *g, unsigned i, struct broker_session *s, uint32_t channel)
{
	g->side[i] =
	    (struct segment_side){.session = s, .channel = channel, .membarrier = s->membarrier};
	s->segment_count++;
}

/* NULL and errno. */
static struct segment *
make_segment(struct broker *b, struct broker_session *s, uint32_t channel, struct broker_session *t,
	     uint32_t peer_channel)
{
	uint32_t engine = t->channel[peer_channel].engine, i = 1;
	struct segment *g;

	while (i < BROKER_SEGMENTS_MAX && b->segment[i])
		i++;
	errno = EMFILE;
	if (i == BROKER_SEGMENTS_MAX || s->segment_count >= BROKER_SESSION_SEGMENTS ||
	    t->segment_count >= BROKER_SESSION_SEGMENTS)
		return NULL;
	g = segment_open(broker_engine(b, engine)->numa_socket);
	if (!g)
		return NULL;
	g->id = i | (b->segment_generation++ & 0x7fffu) << 16;
	b->segment[i] = g;
	if (i >= b->segment_top)
		b->segment_top = i + 1;
	set_side(g, 0, s, channel);
	set_side(g, 1, t, peer_channel);
	return g;
}

static void
drop_if_unused(struct broker *b, struct segment *g)
{
	if (!segment_unused(g))
		return;
	for (unsigned i = 0; i < 2; i++)
		if (g->side[i].session)
			g->side[i].session->segment_count--;
	b->segment[g->id % BROKER_SEGMENTS_MAX] = NULL;
	segment_close(g);
}

void
local_line_give(struct broker *b, struct broker_conn *c)
{
	struct segment *g = c->segment;

	if (!g)
		return;
	c->segment = NULL;
	segment_give(g, c->conn_index, c->listener == ENGINE_LISTENER_NONE ? 0 : 1);
	drop_if_unused(b, g);
}

void
local_session_end(struct broker *b, struct broker_session *s)
{
	for (uint32_t i = 1; i < b->segment_top; i++) {
		struct segment *g = b->segment[i];

		if (!g)
			continue;
		for (unsigned k = 0; k < 2; k++)
			if (g->side[k].session == s)
				g->side[k].session = NULL;
		drop_if_unused(b, g);
	}
}

static void
tell_opened(struct broker *b, struct broker_conn *c, uint32_t status, command_done_fn *done)
{
	struct broker_command *k = conn_command(b, c, ENGINE_CONN_LOCAL_OPENED, done);

	c->opened = true;
	k->cmd.conn.status = status;
	command_submit(b, k);
}

/* The connecting end stays without a peer: its program gets OPENED with an error. */
static void
give_up(struct broker *b, struct broker_conn *x)
{
	conn_reply_connecting(x);
	tell_opened(b, x, ECONNREFUSED, NULL);
}

/*
 * `told`: the other end's program may have known of the connection, have sent and closed before
 * this one hears that it is open.
 */
void
local_peer_ended(struct broker *b, struct broker_conn *c, bool told, uint32_t status)
{
	struct broker_command *k;

	if (c->session->state == SESSION_CLOSING) /* its engine forgets it anyway */
		return;
	if (!c->opened && c->listener == ENGINE_LISTENER_NONE && !told) {
		give_up(b, c);
		return;
	}
	if (!c->opened) /* a program can only close what it was told of */
		tell_opened(b, c, 0, NULL);
	k = conn_command(b, c, ENGINE_CONN_PEER_CLOSED, NULL);
	k->cmd.conn.status = status;
	command_submit(b, k);
}

/* The accepting program knows it (or is gone): now the connecting one. */
static void
acceptor_told(struct broker *b, struct broker_command *k)
{
	struct broker_conn *y = k->context, *x = y->peer;

	if (x && !x->opened)
		tell_opened(b, x, k->cmd.result ? ECONNREFUSED : 0, NULL);
	conn_command_done(b, y);
}

static void
acceptor_made(struct broker *b, struct broker_command *k)
{
	struct broker_conn *y = k->context, *x = y->peer;

	if (k->cmd.result) {
		y->peer = NULL;
		connect_not_accepted(y);
		if (x) {
			x->peer = NULL;
			give_up(b, x);
		}
		conn_gone(b, y);
	} else if (!x) {
		if (conn_made(b, y, k->cmd.conn.vqpn))
			local_peer_ended(b, y, false, ECONNRESET);
	} else {
		/* set first: CONNECTING tells it */
		y->vqpn = k->cmd.conn.vqpn;
		conn_reply_connecting(x);
		if (conn_made(b, y, y->vqpn)) /* else x has been told by conn_gone() */
			tell_opened(b, y, 0, acceptor_told);
	}
	conn_command_done(b, y);
}

static void
connector_made(struct broker *b, struct broker_command *k)
{
	struct broker_conn *x = k->context, *y = x->peer;

	if (k->cmd.result) {
		x->peer = NULL;
		if (y) {
			y->peer = NULL;
			connect_not_accepted(y);
			conn_gone(b, y);
		}
		if (x->session)
			session_refuse(x->session, -k->cmd.result,
				       "engine %u opens no connection now: %s; try again, or raise "
				       "--max-connections",
				       x->engine, strerror(-k->cmd.result));
		conn_gone(b, x);
	} else if (!conn_made(b, x, k->cmd.conn.vqpn)) {
		; /* conn_gone() has let go of y */
	} else if (!y) {
		give_up(b, x);
	} else {
		command_submit(b, conn_command(b, y, ENGINE_CONN_LOCAL, acceptor_made));
	}
	conn_command_done(b, x);
}

/* Both ends, joined and with a line in a segment; NULL after a refusal. */
static struct broker_conn *
make_ends(struct broker_session *s, uint32_t channel, struct service_listener *l)
{
	struct broker *b = s->b;
	struct broker_session *t = l->session;
	uint32_t peer_channel = l->channel[s->channel[channel].engine];
	struct segment *g = find_segment(b, s, channel, t, peer_channel);
	struct broker_conn *x, *y;
	uint32_t index;
	int rc;

	if (!g)
		g = make_segment(b, s, channel, t, peer_channel);
	rc = g ? segment_take(g, &index) : -errno;
	if (rc) {
		session_refuse(s, -rc, "no shared memory for a local connection: %s; free some",
			       strerror(-rc));
		return NULL;
	}
	x = broker_conn_new(s, channel);
	y = x ? broker_conn_new(t, peer_channel) : NULL;
	if (!y) {
		user_refuse_conn(s, t);
		if (x)
			conn_gone(b, x);
		segment_give(g, index, 0);
		segment_give(g, index, 1);
		return NULL;
	}
	x->peer = y;
	y->peer = x;
	x->segment = y->segment = g;
	x->conn_index = y->conn_index = index;
	x->node = y->node = b->node;
	y->listener = l->id;
	l->created++;
	return x;
}

void
local_connect(struct broker_session *s, const struct weir_session_msg *m)
{
	const char *service = m->connect.address.service;
	struct service_listener *l;
	struct broker_conn *x;

	l = connect_listener(s->b, service);
	if (!l) {
		session_refuse(s, ECONNREFUSED,
			       "no program listens on %s, or its queue is full; start it, or raise "
			       "its backlog",
			       service);
		return;
	}
	x = make_ends(s, m->connect.channel, l);
	if (!x)
		return;
	s->b->counters.connects_local++;
	x->window = x->peer->window = m->connect.window;
	x->datagram = x->peer->datagram = m->connect.flags & WEIR_CONNECT_DATAGRAM;
	command_submit(s->b, conn_command(s->b, x, ENGINE_CONN_LOCAL, connector_made));
}

static void
reply_segment(struct broker_session *s, struct segment *g, uint32_t side)
{
	struct weir_session_msg r = session_msg(WEIR_MSG_SEGMENT_MAP);
	int fds[] = {g->memory, g->bell[side].wait, g->bell[side].ring};

	r.segment_map.segment = g->id;
	r.segment_map.side = side;
	r.segment_map.flags =
	    g->side[0].membarrier && g->side[1].membarrier ? WEIR_WELCOME_MEMBARRIER : 0;
	r.segment_map.geometry = g->geometry;
	g->side[side].fetched = true;
	session_reply(s, &r, fds, 3);
	drop_if_unused(s->b, g);
}

void
local_segment_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct segment *g = segment_by_id(s->b, m->segment.segment);

	if (!g || m->segment.side > 1 || g->side[m->segment.side].session != s)
		session_refuse(s, ENOENT, "no segment %u of this session", m->segment.segment);
	else
		reply_segment(s, g, m->segment.side);
}

void
local_drop_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct segment *g = segment_by_id(s->b, m->segment.segment);
	struct weir_session_msg r = session_msg(WEIR_MSG_OK);

	if (g && m->segment.side <= 1 && g->side[m->segment.side].session == s) {
		struct segment_side *side = &g->side[m->segment.side];

		if (side->ends) {
			session_refuse(s, EBUSY, "%u connections still use segment %u", side->ends,
				       g->id);
			return;
		}
		side->dropped = true;
		drop_if_unused(s->b, g);
	} /* else it has gone already */
	session_reply(s, &r, NULL, 0);
}

void
local_pair_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct broker *b = s->b;
	struct broker_conn *c = conn_find(b, m->pair.vqpn), *p;
	struct broker_command *k;
	struct segment *g;

	if (!c || c->session != s || !c->peer || m->pair.channel >= s->channel_count) {
		session_refuse(s, ENOTCONN, "no local connection 0x%x, or no such channel",
			       m->pair.vqpn);
		return;
	}
	p = c->peer;
	g = find_segment(b, s, m->pair.channel, p->session, p->channel);
	if (!g) {
		g = make_segment(b, s, m->pair.channel, p->session, p->channel);
		if (!g) {
			session_refuse(s, errno,
				       "no shared memory for another thread: %s; free some",
				       strerror(errno));
			return;
		}
		k = command_new(b, p->engine, ENGINE_PAIR, NULL, NULL);
		k->cmd.conn.session = p->session->id;
		k->cmd.conn.channel = p->channel;
		k->cmd.conn.segment = g->id;
		command_submit(b, k);
	}
	reply_segment(s, g, 0);
}
