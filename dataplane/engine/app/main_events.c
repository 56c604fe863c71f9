/* SPDX-License-Identifier: BSD-3-Clause */
/* Events for the main lcore, whose queue may be full: they are kept where they happened until it
 * isn't. */
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

static bool
emit_connects(struct engine *e)
{
	for (; e->connect_first != e->connect_end; e->connect_first++) {
		const struct engine_event *event = &e->connects[e->connect_first % CONNECTS];

		if (event->conn.link != ENGINE_LINK_NONE && !emit(e, event))
			return false;
	}
	return true;
}

static void
release(struct engine *e, struct conn *c)
{
	struct session *s = c->session;

	if (s->reclaim_next == &c->of_session)
		s->reclaim_next = c->of_session.next;
	list_remove(&c->of_session);
	list_remove(&c->cold->closing);
	list_remove(&c->cold->settling);
	list_remove(&c->telling);
	conn_enter(c, CONN_FREE);
	e->free_conns[e->free_count++] = (uint32_t)(c - e->conns);
}

static bool
emit_closing(struct engine *e)
{
	struct list_node *node, *following;

	LIST_EACH (node, following, &e->closing) {
		struct conn *c = conn_of_cold(e, LIST_OWNER(node, struct conn_cold, closing));
		struct engine_event event = {
		    .type = ENGINE_EVENT_LOCAL_CLOSE,
		    .conn = {.session = c->session->shared->id,
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
		event.type = ENGINE_EVENT_CONN_CLOSED;
		event.conn.status = c->status;
		if (!c->gone)
			list_remove(node);
		else if (emit(e, &event))
			release(e, c);
		else
			return false;
	}
	return true;
}

static bool
emit_link_errors(struct engine *e)
{
	for (uint32_t i = 0; i < e->config.links; i++) {
		struct link *l = &e->links[i];
		struct engine_event event = {
		    .type = ENGINE_EVENT_LINK_ERROR,
		    .wc_status = l->error_wc,
		    .qpn = l->error_qpn,
		    .conn = {.link = i, .peer_node = l->is.peer_node, .status = l->error},
		};

		if (!l->up || !l->error)
			continue;
		if (!emit(e, &event))
			return false;
		l->error = 0;
	}
	return true;
}

static bool
emit_heard(struct engine *e)
{
	for (uint32_t i = 0; i < e->config.links; i++) {
		struct link *l = &e->links[i];
		struct engine_event event = {
		    .type = ENGINE_EVENT_LINK_HEARD,
		    .qpn = l->qpn[RING],
		    .conn = {.link = i, .peer_node = l->is.peer_node},
		};

		if (!l->up || !l->heard)
			continue;
		if (!emit(e, &event))
			return false;
		l->heard = false;
	}
	return true;
}

static bool
emit_silence(struct engine *e)
{
	for (uint32_t i = 0; i < e->config.links; i++) {
		struct link *l = &e->links[i];
		struct engine_event event = {
		    .type = ENGINE_EVENT_LINK_SILENT,
		    .conn = {.link = i, .peer_node = l->is.peer_node, .status = EHOSTDOWN},
		};

		if (!l->up || !l->silent)
			continue;
		if (!emit(e, &event))
			return false;
		l->silent = false;
	}
	return true;
}

static bool
emit_violations(struct engine *e)
{
	for (uint32_t i = 0; i < e->config.sessions; i++) {
		struct session *s = &e->sessions[i];
		struct engine_event event = {
		    .type = ENGINE_EVENT_VIOLATION,
		    .conn = {.session = i, .status = EPROTO},
		};

		if (!s->shared || !s->tell_violation)
			continue;
		snprintf(event.reason, sizeof(event.reason), "%s", s->reason);
		if (!emit(e, &event))
			return false;
		s->tell_violation = false;
	}
	return true;
}

static bool
emit_full(struct engine *e)
{
	for (uint32_t i = 0; i < e->config.sessions; i++) {
		struct session *s = &e->sessions[i];
		struct engine_event event = {.type = ENGINE_EVENT_FULL, .conn = {.session = i}};

		if (!s->shared || !s->tell_full)
			continue;
		if (!emit(e, &event))
			return false;
		s->tell_full = false;
	}
	return true;
}

void
engine_emit_pending(struct engine *e)
{
	if (e->connect_first != e->connect_end && !emit_connects(e))
		return;
	if (!list_empty(&e->closing) && !emit_closing(e))
		return;
	if (e->news && emit_link_errors(e) && emit_heard(e) && emit_silence(e) &&
	    emit_violations(e) && datagrams_tell(e) && emit_full(e))
		e->news = false;
}
