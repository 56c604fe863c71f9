/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events for programs: each is a bit of its connection until the program's ring has room, so that
 * no number of events needs memory. OPENED and ACCEPTED come before the connection's messages,
 * END
 * and CLOSED after them.
 */
#include "channel.h"
#include "conn.h"
#include "events.h"
#include "base/list.h"
#include "session.h"
#include "state.h"

#include "ipc/text.h"

#include <errno.h>

void
channel_update_backlog(struct engine *e, struct channel *ch)
{
	ch->spilling = ch->opening || ch->spill_count;
	if (ch->spilling || !list_empty(&ch->events))
		list_append_once(&e->backlog, &ch->backlog);
}

void
app_event(struct engine *e, struct conn *c, unsigned what)
{
	struct channel *ch = c->channel;

	/* no program reads it */
	if (conn_is_passive(c) || c->session->remove || c->session->violated) {
		if (what & APP_CLOSED)
			c->closed_told = true;
		return;
	}
	c->events_due |= what;
	if (what & (APP_OPENED | APP_ACCEPTED))
		ch->opening++;
	list_append_once(&ch->events, &c->events);
	channel_update_backlog(e, ch);
	if (what & (APP_OPENED | APP_ACCEPTED))
		app_events_put(e, ch);
}

void
app_events_drop(struct conn *c)
{
	if (conn_is_passive(c))
		return;
	c->channel->opening -= !!(c->events_due & APP_OPENED) + !!(c->events_due & APP_ACCEPTED);
	c->events_due = 0;
	list_remove(&c->events);
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
	const char *reason;

	if (what == APP_OPENED) {
		s.op = WEIR_OP_OPENED;
		s.value = c->kind == CONN_MEMORY ? c->cold->memory.length : c->segment;
		s.length = c->kind == CONN_DATAGRAM ? c->cold->dgram.mtu
			   : c->kind == CONN_MEMORY ? c->cold->memory.rights
						    : 0;
		s.status = c->refused ? c->status : 0;
		if (!c->refused) {
			s.extra = c->peer_node;
			if (c->kind == CONN_MEMORY)
				s.place[2] = c->cold->memory.key.rkey != 0;
		} else if (c->reasoned) { /* its end: put_reason() puts the parts before */
			reason = c->cold->refusal;
			reason += weir_reason_slots(reason) * WEIR_SLOT_HEAD_BYTES;
			memcpy(s.reason, reason, strnlen(reason, sizeof(s.reason) - 1));
		}
	} else if (what == APP_ACCEPTED) {
		s.op = WEIR_OP_ACCEPTED;
		s.length = conn_desc_index(c);
		s.accept = (struct weir_slot_accept){
		    .listener = c->listener,
		    .segment = c->segment,
		    .peer_node = c->peer_node,
		    .mtu = c->kind == CONN_DATAGRAM ? c->cold->dgram.mtu : 0,
		    .peer_vqpn = c->peer_vqpn,
		    .conn_index = c->conn_index,
		    .flags = c->held ? WEIR_ACCEPTED_HELD : 0,
		    .window = c->rx_window_max};
	} else if (what == APP_WRITABLE) {
		s.op = WEIR_OP_WRITABLE;
	} else if (what == APP_DONE) {
		s.op = WEIR_OP_DONE;
		s.value = c->completed;
	} else if (what == APP_END) {
		s.op = WEIR_OP_END;
	} else {
		s.op = WEIR_OP_CLOSED;
		s.status = c->status;
		if (!s.status && c->user_closed && !c->local && c->completed != c->taken)
			s.status = ECONNRESET;
	}
	return s;
}

/* The parts of a long reason, which OPENED follows. False: no room for all. */
static bool
put_reason(struct engine *e, struct channel *ch, const struct conn *c)
{
	struct weir_slot s = {.vqpn = c->vqpn, .op = WEIR_OP_REASON};
	const char *reason = c->cold->refusal;
	uint32_t n = weir_reason_slots(reason);

	if (!channel_room(e, ch, n + 1))
		return false;
	for (; n; n--, reason += sizeof(s.data)) {
		memcpy(s.data, reason, sizeof(s.data));
		channel_put_event(e, ch, &s);
	}
	return true;
}

void
app_events_put(struct engine *e, struct channel *ch)
{
	static const unsigned order[] = {APP_ACCEPTED, APP_OPENED, APP_WRITABLE,
					 APP_DONE,     APP_END,	   APP_CLOSED};
	bool room = true;

	while (room && !list_empty(&ch->events)) {
		struct conn *c = LIST_OWNER(ch->events.next, struct conn, events);

		for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
			unsigned what = order[i];
			struct weir_slot event;

			if (!(c->events_due & what) ||
			    (what & (APP_END | APP_CLOSED) && c->spilled))
				continue;
			event = make_event(c, what);
			room = (what != APP_OPENED || !c->refused || !c->reasoned ||
				put_reason(e, ch, c)) &&
			       channel_put_event(e, ch, &event);
			if (!room)
				break;
			c->events_due &= (uint8_t)~what;
			if (what & (APP_OPENED | APP_ACCEPTED)) {
				weir_assert(ch->opening > 0);
				ch->opening--;
			}
			if (what == APP_OPENED && c->refused) /* the program is done with it */
				c->user_closed = c->closed_told = true;
			if (what == APP_CLOSED)
				c->closed_told = true;
		}
		if (room) {
			list_remove(&c->events);
			conn_settle_later(e, c);
		}
	}
	channel_update_backlog(e, ch);
}

void
node_events_put(struct engine *e)
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
