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

/* False, here and below: main's queue is full. */
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
			     .vqpn = c->gone ? c->was : c->vqpn,
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
		if (c->gone) {
			event.type = ENGINE_EVENT_CONN_CLOSED;
			event.conn.status = c->status;
			if (!emit(e, &event))
				return false;
			weir_assert(!c->link && !c->pend_first && !c->bulk_flight);
			if (s->reclaim_next == &c->of_session)
				s->reclaim_next = c->of_session.next;
			list_remove(&c->of_session);
			list_remove(&c->telling);
			weir_assert(!list_linked(&c->cold->settling));
			conn_enter(c, CONN_FREE);
			e->free_conns[e->free_count++] = (uint32_t)(c - e->conns);
			weir_assert(e->free_count <= e->config.connections);
		}
		list_remove(node);
	}
	return true;
}

static bool
emit_of_link(struct engine *e, struct link *l)
{
	struct engine_event event = {
	    .type = ENGINE_EVENT_LINK_ERROR,
	    .wc_status = l->error_wc,
	    .qpn = l->error_qpn,
	    .conn = {.link = l->id, .peer_node = l->is.peer_node, .status = l->error},
	};

	if (l->error && !emit(e, &event))
		return false;
	l->error = 0;
	if (l->heard) {
		event = (struct engine_event){
		    .type = ENGINE_EVENT_LINK_HEARD,
		    .qpn = l->qpn[RING],
		    .conn = {.link = l->id, .peer_node = l->is.peer_node},
		};
		if (!emit(e, &event))
			return false;
		l->heard = false;
	}
	if (l->silent) {
		event = (struct engine_event){
		    .type = ENGINE_EVENT_LINK_SILENT,
		    .conn = {.link = l->id, .peer_node = l->is.peer_node, .status = EHOSTDOWN},
		};
		if (!emit(e, &event))
			return false;
		l->silent = false;
	}
	return true;
}

static bool
emit_of_session(struct engine *e, struct session *s)
{
	struct engine_event event = {.conn = {.session = s->shared->id}};

	if (s->tell_violation) {
		event.type = ENGINE_EVENT_VIOLATION;
		event.conn.status = EPROTO;
		snprintf(event.reason, sizeof(event.reason), "%s", s->reason);
		if (!emit(e, &event))
			return false;
		s->tell_violation = false;
	}
	if (s->tell_full) {
		event = (struct engine_event){.type = ENGINE_EVENT_FULL,
					      .conn = {.session = s->shared->id}};
		if (!emit(e, &event))
			return false;
		s->tell_full = false;
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
	if (LIKELY(!e->news))
		return;
	for (uint32_t i = 0; i < e->config.links; i++)
		if (e->links[i].up && !emit_of_link(e, &e->links[i]))
			return;
	for (uint32_t i = 0; i < e->config.sessions; i++)
		if (e->sessions[i].shared && !emit_of_session(e, &e->sessions[i]))
			return;
	e->news = !datagrams_tell(e);
}
