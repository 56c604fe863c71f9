/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections between programs of this host. Both ends get an entry in the engine of their channel;
 * the bytes go through a segment, which all connections between the same two threads share. The
 * accepting program is told first, so that it knows the connection before data comes.
 */
#include "command.h"
#include "conn.h"
#include "connect.h"
#include "local.h"
#include "memfd.h"
#include "release.h"
#include "segment.h"
#include "service.h"
#include "session.h"
#include "state.h"
#include "user.h"

#include "ipc/invariant.h"
#include "ipc/text.h"

#include <errno.h>
#include <stdlib.h>

static struct segment *
segment_by_id(const struct broker *b, uint32_t id)
{
	struct segment *g = b->segment[id % BROKER_SEGMENTS_MAX];

	return g && g->id == id ? g : NULL;
}

uint64_t
local_messages(const struct broker *b, uint32_t segment, uint32_t index, uint64_t *bytes)
{
	const struct segment *g = segment_by_id(b, segment);

	return g ? segment_messages(g, index, bytes) : 0;
}

static void
set_side(struct segment *g, unsigned i, struct broker_session *s, uint32_t channel)
{
	g->side[i].segment = g;
	g->side[i].session = s;
	g->side[i].channel = channel;
	g->side[i].membarrier = s->membarrier;
	g->side[i].pid = s->pid;
	g->side[i].uid = s->uid;
	memcpy(g->side[i].name, s->name, sizeof(g->side[i].name));
	LIST_INSERT_HEAD(&s->segments, &g->side[i], in_session);
	s->segment_count++;
}

/*
 * Whether s may make another segment of this size with t. The user of s may have as many with t as
 * it leaves to others: half of the segments if it is alone, a third beside one other user. So the
 * next user always finds room. The last quarter of what the user of t may have is not for other
 * users.
 */
static bool
leaves_room(const struct broker_session *s, const struct broker_session *t, uint64_t bytes)
{
	uint64_t most = s->segment_count < t->segment_count ? t->segment_count : s->segment_count;
	uint64_t left = most < BROKER_SESSION_SEGMENTS ? BROKER_SESSION_SEGMENTS - most : 0;
	uint64_t of_user = s->owner == t->owner ? UINT64_MAX : user_left(t->owner, bytes);
	const struct segment_side *side;
	uint32_t shared = 0;

	LIST_FOREACH(side, &t->segments, in_session)
	{
		const struct segment_side *other =
		    &side->segment->side[side == &side->segment->side[0]];

		shared += other->session && other->session->owner == s->owner;
	}
	return shared < (of_user < left ? of_user : left);
}

/*
 * Charges a segment to both users; the memory counts once in the sum of all users. 0, or -EDQUOT or
 * -ENOSPC, with the user in *lacks and its limit in *what.
 */
static int
charge(struct broker_user *u, struct broker_user *v, uint64_t bytes,
       const struct broker_user **lacks, enum user_limit *what)
{
	int rc;

	*lacks = u;
	*what = USER_SEGMENTS;
	rc = user_take(u, USER_SEGMENTS, 1);
	if (rc)
		return rc;
	*what = USER_MEMORY;
	rc = user_take(u, USER_MEMORY, bytes);
	if (!rc && u != v) {
		*lacks = v;
		rc = user_share_in(v, bytes);
		if (rc)
			user_give(u, USER_MEMORY, bytes);
	}
	if (rc)
		user_give(u, USER_SEGMENTS, 1);
	return rc;
}

/* The segment of these two threads, s on the connecting side. NULL after a refusal. */
static struct segment *
find_or_make_segment(struct broker_session *s, uint32_t channel, struct broker_session *t,
		     uint32_t peer_channel)
{
	uint64_t bytes = segment_bytes(&segment_streams);
	struct broker *b = s->b;
	uint32_t engine = t->channel[peer_channel].engine, i = 1;
	const struct segment_side *side;
	const struct broker_user *lacks;
	enum user_limit what;
	struct broker_release *release;
	struct segment *g;
	int rc;

	LIST_FOREACH(side, &s->segments, in_session)
	{
		g = side->segment;
		if (side == &g->side[0] && side->channel == channel && g->side[1].session == t &&
		    g->side[1].channel == peer_channel && segment_open_to_new(g))
			return g;
	}
	while (i < BROKER_SEGMENTS_MAX && b->segment[i])
		i++;
	if (i == BROKER_SEGMENTS_MAX || !leaves_room(s, t, bytes)) {
		session_refuse(s, EMFILE,
			       "user %u shares all memory with program %s that others leave it; "
			       "use fewer threads",
			       (unsigned)s->uid, t->name);
		return NULL;
	}
	rc = charge(s->owner, t->owner, bytes, &lacks, &what);
	if (rc) {
		user_refuse(s, lacks, what, what == USER_MEMORY ? bytes : 1, rc);
		return NULL;
	}
	release = release_new();
	g = release ? segment_open(&segment_streams, broker_engine(b, engine)->numa_socket) : NULL;
	if (!g) {
		rc = release ? errno : ENOMEM;
		free(release);
		session_refuse(s, rc, "no shared memory for a local connection: %s; free some",
			       strerror(rc));
		user_give(s->owner, USER_SEGMENTS, 1);
		user_give(s->owner, USER_MEMORY, bytes);
		if (s->owner != t->owner)
			user_share_out(t->owner, bytes);
		return NULL;
	}
	g->release = release;
	g->id = i | (b->segment_generation++ & 0x7fffu) << 16;
	b->segment[i] = g;
	if (i >= b->segment_top)
		b->segment_top = i + 1;
	set_side(g, 0, s, channel);
	set_side(g, 1, t, peer_channel);
	g->side[0].charged = s->owner;
	g->side[1].charged = s->owner == t->owner ? NULL : t->owner;
	return g;
}

/* One of the two users no longer shares it; the last one stays charged. */
static void
charge_other(struct segment *g, unsigned i)
{
	if (!g->side[0].charged || !g->side[1].charged)
		return;
	user_share_out(g->side[i].charged, g->geometry.bytes);
	g->side[i].charged = NULL;
}

static void
leave_side(struct segment_side *side)
{
	weir_assert(side->session && side->session->segment_count);
	LIST_REMOVE(side, in_session);
	side->session->segment_count--;
	side->session = NULL;
}

static void
segment_free(struct broker *b, struct segment *g)
{
	struct memfd memory = segment_take_memory(g);
	struct broker_user *owner;

	weir_assert(!g->side[0].ends && !g->side[1].ends);
	for (unsigned i = 0; i < 2; i++)
		if (g->side[i].session)
			leave_side(&g->side[i]);
	/* the connecting user pays for memory that a program still maps */
	charge_other(g, 1);
	owner = g->side[0].charged ? g->side[0].charged : g->side[1].charged;
	release_memory(b, g->release, &memory, -1, owner, g->geometry.bytes, USER_SEGMENTS);
	b->segment[g->id % BROKER_SEGMENTS_MAX] = NULL;
	segment_close(g);
}

static void
drop_if_unused(struct broker *b, struct segment *g)
{
	if (segment_unused(g))
		segment_free(b, g);
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
	struct segment_side *side;

	while ((side = LIST_FIRST(&s->segments))) {
		struct segment *g = side->segment;

		for (unsigned i = 0; i < 2; i++)
			if (g->side[i].session == s) {
				leave_side(&g->side[i]);
				charge_other(g, i);
			}
		drop_if_unused(b, g);
	}
}

void
local_free_all(struct broker *b)
{
	for (uint32_t i = 1; i < b->segment_top; i++)
		if (b->segment[i])
			segment_free(b, b->segment[i]);
}

/* `reason`: of the program that refuses the connection, or NULL. */
static void
tell_opened(struct broker *b, struct broker_conn *c, uint32_t status, const char *reason,
	    command_done_fn *done)
{
	struct broker_command *k = conn_command(b, c, ENGINE_CONN_LOCAL_OPENED, done);

	c->opened = true;
	if (!k)
		return;
	k->cmd.conn.status = status;
	if (reason)
		weir_text_copy(k->cmd.refusal, reason, sizeof(k->cmd.refusal));
	command_submit(b, k);
}

/* The connecting end has no peer: its program gets OPENED with an error. */
static void
give_up(struct broker *b, struct broker_conn *x, uint32_t status, const char *reason)
{
	conn_reply_connecting(x);
	tell_opened(b, x, status, reason, NULL);
}

void
local_refuse(struct broker *b, struct broker_conn *y, const char *reason)
{
	struct broker_conn *x = y->peer;

	weir_assert(x && x->peer == y && !x->opened);
	x->peer = y->peer = NULL;
	give_up(b, x, ECONNREFUSED, reason);
}

/*
 * `told`: the other end's program knew of the connection. It may have sent and closed before this
 * end hears that the connection is open.
 */
void
local_peer_ended(struct broker *b, struct broker_conn *c, bool told, uint32_t status)
{
	struct broker_command *k;

	weir_assert(c->vqpn && c->session);
	if (session_ends(c->session)) /* the engine forgets the connection anyway */
		return;
	if (!c->opened && c->listener == ENGINE_LISTENER_NONE && !told) {
		give_up(b, c, ECONNREFUSED, NULL);
		return;
	}
	if (!c->opened) /* a program can close only a connection that it knows */
		tell_opened(b, c, 0, NULL, NULL);
	k = conn_command(b, c, ENGINE_CONN_PEER_CLOSED, NULL);
	if (!k)
		return;
	k->cmd.conn.status = status;
	command_submit(b, k);
}

/*
 * The accepting program knows the connection or is gone: tells the connecting one, unless the
 * connection is held.
 */
void
local_acceptor_told(struct broker *b, struct broker_command *k)
{
	struct broker_conn *y = k->context, *x = y->peer;

	if (x && !x->opened && (k->cmd.result || !y->held))
		tell_opened(b, x, k->cmd.result ? ECONNREFUSED : 0, NULL, NULL);
	conn_command_done(b, y);
}

/* There is no accepting end. */
static void
acceptor_refused(struct broker *b, struct broker_conn *y, uint32_t status)
{
	struct broker_conn *x = y->peer;

	y->peer = NULL;
	connect_not_accepted(y);
	if (x) {
		x->peer = NULL;
		give_up(b, x, status, NULL);
	}
	conn_gone(b, y);
}

static void
acceptor_made(struct broker *b, struct broker_command *k)
{
	struct broker_conn *y = k->context, *x = y->peer;

	if (k->cmd.result) {
		acceptor_refused(b, y, ECONNREFUSED);
	} else if (!x) {
		if (conn_made(b, y, k->cmd.conn.vqpn))
			local_peer_ended(b, y, false, ECONNRESET);
	} else {
		/* set first: CONNECTING has it */
		y->vqpn = k->cmd.conn.vqpn;
		conn_reply_connecting(x);
		if (conn_made(b, y, y->vqpn)) /* else x has been told by conn_gone() */
			tell_opened(b, y, 0, NULL, local_acceptor_told);
	}
	conn_command_done(b, y);
}

static void
connector_made(struct broker *b, struct broker_command *k)
{
	struct broker_conn *x = k->context, *y = x->peer;
	struct broker_command *next;

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
		; /* conn_gone() has told y */
	} else if (!y) {
		give_up(b, x, ECONNREFUSED, NULL);
	} else {
		next = conn_command(b, y, ENGINE_CONN_LOCAL, acceptor_made);
		if (next)
			command_submit(b, next);
		else
			acceptor_refused(b, y, ENOMEM);
	}
	conn_command_done(b, x);
}

void
local_connect(struct broker_session *s, const struct weir_session_msg *m, uint8_t class)
{
	struct broker *b = s->b;
	const char *service = m->connect.address.service;
	uint32_t channel = m->connect.channel, peer_channel, index, window[2];
	struct service_listener *l = connect_listener(b, service);
	struct broker_conn *x, *y = NULL;
	struct broker_command *k;
	struct segment *g;
	int rc;

	if (!l) {
		session_refuse(s, ECONNREFUSED,
			       "no program listens on %s, or its queue is full; start it, or raise "
			       "its backlog",
			       service);
		return;
	}
	peer_channel = l->channel[s->channel[channel].engine];
	g = find_or_make_segment(s, channel, l->session, peer_channel);
	if (!g)
		return;
	/* messages may wait in the accepting program: that alone raises its window */
	window[1] = m->connect.window;
	window[0] = window[1] < WEIR_SEGMENT_WINDOW ? window[1] : WEIR_SEGMENT_WINDOW;
	rc = segment_take(g, window, &index);
	if (rc) {
		session_refuse(s, -rc, "no shared memory for a local connection: %s; free some",
			       strerror(-rc));
		return;
	}
	rc = broker_conn_new(s, channel, &x);
	if (!rc)
		rc = broker_conn_new(l->session, peer_channel, &y);
	if (rc) {
		if (rc == -ENOMEM)
			session_refuse_memory(s);
		else
			user_refuse_conn(s, l->session);
		if (x)
			conn_gone(b, x);
		segment_give(g, index, 0);
		segment_give(g, index, 1);
		return;
	}
	x->peer = y;
	y->peer = x;
	x->segment = y->segment = g;
	x->conn_index = y->conn_index = index;
	x->node = y->node = b->node;
	x->class = y->class = class;
	x->window = window[1];
	y->window = window[0];
	x->kind = y->kind = conn_kind(m->connect.flags);
	y->listener = l->id;
	y->held = l->holding;
	l->created++;
	k = conn_command(b, x, ENGINE_CONN_LOCAL, connector_made);
	if (!k) {
		session_refuse_memory(s);
		conn_gone(b, x); /* and with it y */
		return;
	}
	b->counters.connects_local++;
	command_submit(b, k);
}

void
local_segment_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct weir_session_msg r = session_msg(WEIR_MSG_SEGMENT_MAP);
	struct segment *g = segment_by_id(s->b, m->segment.segment);
	uint32_t side = m->segment.side;

	if (!g || side > 1 || g->side[side].session != s) {
		session_refuse(s, ENOENT, "no segment %u of this session", m->segment.segment);
		return;
	}
	r.segment_map.segment = g->id;
	r.segment_map.side = side;
	r.segment_map.flags =
	    g->side[0].membarrier && g->side[1].membarrier ? WEIR_WELCOME_MEMBARRIER : 0;
	r.segment_map.geometry = g->geometry;
	g->side[side].fetched = true;
	session_reply(s, &r, (int[]){g->memory.fd, g->bell[side].wait, g->bell[side].ring}, 3);
	drop_if_unused(s->b, g);
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
	} /* else it is gone */
	session_reply(s, &r, NULL, 0);
}
