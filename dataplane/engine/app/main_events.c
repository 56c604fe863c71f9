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
			conn_enter(c, CONN_FREE);
			e->free_conns[e->free_count++] = (uint32_t)(c - e->conns);
			weir_assert(e->free_count <= e->config.connections);
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
	if (!list_empty(&e->closing) && !emit_closing(e))
		return;
	if (LIKELY(!e->main_events_due))
		return;
	for (uint32_t i = 0; i < e->config.links; i++) {
		struct peer_link *l = &e->links[i];
		struct engine_event event = {.conn = {.link = i, .peer_node = l->is.peer_node}};

		if (!l->up)
			continue;
		if (l->error) {
			event.type = ENGINE_EVENT_LINK_ERROR;
			event.wc_status = l->error_wc;
			event.qpn = l->error_qpn;
			event.conn.status = l->error;
			if (!emit(e, &event))
				return;
			l->error = 0;
		}
		event.wc_status = event.conn.status = 0;
		if (l->heard) {
			event.type = ENGINE_EVENT_LINK_HEARD;
			event.qpn = l->qpn[RING];
			if (!emit(e, &event))
				return;
			l->heard = false;
		}
		if (l->silent) {
			event.type = ENGINE_EVENT_LINK_SILENT;
			event.qpn = 0;
			event.conn.status = EHOSTDOWN;
			if (!emit(e, &event))
				return;
			l->silent = false;
		}
	}
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
			snprintf(event.reason, sizeof(event.reason), "%s", s->reason);
			if (!emit(e, &event))
				return;
			s->violation_due = false;
		}
	}
	e->main_events_due = !datagrams_emit_broken(e);
}
