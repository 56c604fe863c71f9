/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events for the main lcore. While its queue is full an event stays with the object that it is
 * about.
 */
#include "conn.h"
#include "datagram.h"
#include "events.h"
#include "link.h"
#include "base/list.h"
#include "lock.h"
#include "session.h"
#include "state.h"

#include <errno.h>
#include <stdio.h>

static bool
emit(struct engine *e, const struct engine_event *event)
{
	return e->config.emit(e->config.user, event);
}

/* False: main's queue is full. */
static bool
emit_closing(struct engine *e)
{
	struct list_node *node, *following;

	LIST_EACH (node, following, &e->closing) {
		struct conn *c = conn_of_cold(e, LIST_OWNER(node, struct conn_cold, closing));
		struct session *s = c->session;
		struct engine_event event = {
		    .type = ENGINE_EVENT_LOCAL_CLOSE,
		    .conn = {.session = s->shared->id,
			     .vqpn = c->ended ? c->ended_vqpn : c->vqpn,
			     .desc = conn_desc_index(c),
			     .peer_node = c->peer_node,
			     .peer_vqpn = c->peer_vqpn,
			     .segment = c->segment,
			     .conn_index = c->conn_index,
			     .listener = c->listener,
			     .status = c->abort ? ECONNRESET : 0},
		};

		if (c->local && !c->local_told) {
			if (!emit(e, &event))
				return false;
			c->local_told = true;
		}
		if (c->ended) {
			event.type = ENGINE_EVENT_CONN_CLOSED;
			event.conn.status = c->status;
			if (!emit(e, &event))
				return false;
			weir_assert(!c->link && !c->pend_first && !c->bulk_flight);
			if (s->reclaim_next == &c->of_session)
				s->reclaim_next = c->of_session.next;
			list_remove(&c->of_session);
			list_remove(&c->events);
			weir_assert(!list_linked(&c->cold->settling));
			weir_assert(c->kind != CONN_MEMORY ||
				    !list_linked(&c->cold->memory.lock.news));
			conn_enter(c, CONN_FREE);
			e->free_conns[e->free_count++] = (uint32_t)(c - e->conns);
			weir_assert(e->free_count <= e->config.connections);
		}
		list_remove(node);
	}
	return true;
}

static bool
emit_links(struct engine *e)
{
	static const enum engine_event_type types[] = {
	    ENGINE_EVENT_LINK_IDLE, ENGINE_EVENT_LINK_CLOSED, ENGINE_EVENT_LINK_STAYS,
	    ENGINE_EVENT_LINK_RINGS};
	struct list_node *node, *following;

	LIST_EACH (node, following, &e->link_news) {
		struct peer_link *l = LIST_OWNER(node, struct peer_link, telling);
		struct engine_event event = {
		    .conn = {.link = l->is.link, .peer_node = l->is.peer_node}};

		weir_assert(l->up);
		if (l->error) {
			event.type = ENGINE_EVENT_LINK_ERROR;
			event.wc_status = l->error_wc;
			event.qpn = l->error_qpn;
			event.conn.status = l->error;
			if (!emit(e, &event))
				return false;
			l->error = 0;
		}
		event.wc_status = event.conn.status = 0;
		event.qpn = l->qpn[RING];
		if (l->heard) {
			event.type = ENGINE_EVENT_LINK_HEARD;
			if (!emit(e, &event))
				return false;
			l->heard = false;
		}
		if (l->silent) {
			event.type = ENGINE_EVENT_LINK_SILENT;
			event.conn.status = EHOSTDOWN;
			if (!emit(e, &event))
				return false;
			l->silent = false;
			event.conn.status = 0;
		}
		if (!list_empty(&l->conns)) /* used again meanwhile */
			l->news &= (uint8_t)~LINK_NEWS_IDLE;
		link_rings_fill(l, &event.rings);
		for (unsigned i = 0; l->news; i++) {
			if (!(l->news & 1u << i))
				continue;
			event.type = types[i];
			if (!emit(e, &event))
				return false;
			l->news &= (uint8_t) ~(1u << i);
		}
		list_remove(node);
	}
	return true;
}

void
engine_emit_pending(struct engine *e)
{
	for (; e->connect_first != e->connect_end; e->connect_first++) {
		const struct engine_event *event = &e->connects[e->connect_first % CONNECTS];

		if (event->conn.link != ENGINE_LINK_NONE && !emit(e, event))
			return;
	}
	/* ends of requests before those of their connections */
	if (!list_empty(&e->lock_news) && !locks_emit(e))
		return;
	if (!list_empty(&e->closing) && !emit_closing(e))
		return;
	if (!e->main_events_due)
		return;
	if (!emit_links(e))
		return;
	for (uint32_t i = 0; i < e->config.sessions; i++) {
		struct session *s = &e->sessions[i];
		struct engine_event event = {.conn = {.session = i}};

		if (!s->shared)
			continue;
		if (s->full_due) {
			event.type = ENGINE_EVENT_FULL;
			if (!emit(e, &event))
				return;
			s->full_due = false;
		}
		if (s->violation_due) {
			event.type = ENGINE_EVENT_VIOLATION;
			event.conn.status = EPROTO;
			event.reason = s->reason;
			if (!emit(e, &event))
				return;
			s->violation_due = false;
		}
	}
	e->main_events_due = !datagrams_emit_broken(e);
}
