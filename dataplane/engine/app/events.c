/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events for programs: each is a bit of its connection until the program's ring has room, so that
 * no number of events needs memory. OPENED and ACCEPTED come before the connection's messages,
 * CLOSED after them.
 */
#include "channel.h"
#include "conn.h"
#include "events.h"
#include "base/list.h"
#include "session.h"
#include "state.h"

#include <errno.h>

void
channel_clog(struct engine *e, struct channel *ch)
{
	ch->clogged = ch->opening || ch->spill_count;
	if (ch->clogged || !list_empty(&ch->telling))
		list_append_once(&e->backlog, &ch->backlog);
}

void
tell(struct engine *e, struct conn *c, unsigned what)
{
	struct channel *ch = c->channel;

	if (c->session->remove || c->session->violated) { /* no program reads it */
		if (what & TELL_CLOSED)
			c->closed_told = true;
		return;
	}
	c->tell |= what;
	if (what & (TELL_OPENED | TELL_ACCEPTED))
		ch->opening++;
	list_append_once(&ch->telling, &c->telling);
	channel_clog(e, ch);
	if (what & (TELL_OPENED | TELL_ACCEPTED))
		channel_tell(e, ch);
}

void
tell_nobody(struct conn *c)
{
	if (c->tell & (TELL_OPENED | TELL_ACCEPTED))
		c->channel->opening--;
	c->tell = 0;
	list_remove(&c->telling);
}

bool
channel_put_event(struct engine *e, struct channel *ch, const struct weir_slot *event)
{
	struct weir_slot *to;

	if (!channel_room(e, ch, 1))
		return false;
	to = weir_ring_at(&ch->rx, ch->rx.pos);
	memcpy((char *)to + 4, (const char *)event + 4, WEIR_SLOT_SIZE - 4);
	weir_ring_publish(&ch->rx, 1);
	channel_published(e, ch);
	return true;
}

static struct weir_slot
make_event(const struct conn *c, unsigned what)
{
	struct weir_slot s = {.vqpn = c->vqpn};

	if (what == TELL_OPENED) {
		s.op = WEIR_OP_OPENED;
		s.value = c->segment;
		s.extra = c->peer_node;
		s.length = c->datagram ? c->cold->way.mtu : 0;
		s.status = c->refused ? c->status : 0;
	} else if (what == TELL_ACCEPTED) {
		s.op = WEIR_OP_ACCEPTED;
		s.length = conn_desc_index(c);
		s.accept = (struct weir_slot_accept){.listener = c->listener,
						     .segment = c->segment,
						     .peer_node = c->peer_node,
						     .mtu = c->datagram ? c->cold->way.mtu : 0,
						     .peer_vqpn = c->peer_vqpn,
						     .conn_index = c->conn_index};
	} else if (what == TELL_WRITABLE) {
		s.op = WEIR_OP_WRITABLE;
	} else if (what == TELL_DONE) {
		s.op = WEIR_OP_DONE;
		s.value = c->completed;
	} else {
		s.op = WEIR_OP_CLOSED;
		s.status = c->status;
		if (!s.status && c->user_closed && !c->local && c->completed != c->taken)
			s.status = ECONNRESET;
	}
	return s;
}

void
channel_tell(struct engine *e, struct channel *ch)
{
	static const unsigned order[] = {TELL_OPENED, TELL_ACCEPTED, TELL_WRITABLE, TELL_DONE,
					 TELL_CLOSED};
	bool room = true;

	while (room && !list_empty(&ch->telling)) {
		struct conn *c = LIST_OWNER(ch->telling.next, struct conn, telling);

		for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
			unsigned what = order[i];
			struct weir_slot event;

			if (!(c->tell & what) || (what == TELL_CLOSED && c->spilled))
				continue;
			event = make_event(c, what);
			room = channel_put_event(e, ch, &event);
			if (!room)
				break;
			c->tell &= (uint8_t)~what;
			if (what & (TELL_OPENED | TELL_ACCEPTED)) {
				weir_assert(ch->opening > 0);
				ch->opening--;
			}
			if (what == TELL_OPENED && c->refused) /* the program is done with it */
				c->user_closed = c->closed_told = true;
			if (what == TELL_CLOSED)
				c->closed_told = true;
		}
		if (room) {
			list_remove(&c->telling);
			conn_settle_later(e, c);
		}
	}
	channel_clog(e, ch);
}

void
nodes_tell(struct engine *e)
{
	for (uint32_t i = 0; i < e->config.sessions; i++) {
		struct session *s = &e->sessions[i];
		struct channel *ch = s->channels, *end;

		if (!s->shared || s->node_seen == e->node_event_end)
			continue;
		/* any channel of the session takes them */
		end = ch + s->shared->geometry.channels;
		while (ch < end && !ch->session)
			ch++;
		if (ch == end || s->violated || s->remove)
			s->node_seen = e->node_event_end;
		/* a slow program gets the latest ones */
		if (e->node_event_end - s->node_seen > NODE_EVENTS)
			s->node_seen = e->node_event_end - NODE_EVENTS;
		for (; s->node_seen != e->node_event_end; s->node_seen++) {
			const struct node_event *n = &e->node_events[s->node_seen % NODE_EVENTS];
			struct weir_slot event = {.op = WEIR_OP_NODE};

			event.value = n->node;
			event.status = n->status;
			if (!channel_put_event(e, ch, &event))
				break;
		}
	}
}
