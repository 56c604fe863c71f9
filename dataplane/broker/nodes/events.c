/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events of nodes for programs. Changes are numbered, and nodes are listed in the order of their
 * latest change. A program says up to which number it knows and gets the later ones, however slow
 * it is; main stores nothing per program and only rings its doorbell.
 */
#include "arena.h"
#include "node.h"
#include "session.h"
#include "state.h"

#include "ipc/invariant.h"

#include <errno.h>

void
node_news(struct broker *b, struct broker_node *n)
{
	if (n->changed)
		TAILQ_REMOVE(&b->node_news, n, in_news);
	weir_assert(n != b->loop);
	n->changed = ++b->node_changes;
	TAILQ_INSERT_TAIL(&b->node_news, n, in_news);
}

/* Slow doorbells end the session, as in the engine (engine/app/doorbell_ring.c). */
static void
ring(struct broker_session *s)
{
	for (uint32_t i = 0; i < s->channel_count; i++) {
		if (!s->channel[i].watches)
			continue;
		if (weir_bell_ring_timed(&s->channel[i].bell, true) <= WEIR_BELL_SLOW_NS) {
			s->slow_bells = 0;
		} else if (++s->slow_bells >= WEIR_BELL_SLOW_MAX) {
			session_spoil(s, "its doorbell takes milliseconds to ring");
			return;
		}
	}
}

void
nodes_publish(struct broker *b)
{
	if (b->node_changes_told == b->node_changes)
		return;
	b->node_changes_told = b->node_changes;
	for (uint32_t i = 0; i < b->config.sessions; i++) {
		struct broker_session *s = b->session[i];

		if (!s || session_ends(s)) /* its arena may not exist */
			continue;
		atomic_store_explicit(&arena_head(&s->arena)->nodes, b->node_changes,
				      memory_order_relaxed);
		if (s->state == SESSION_OPEN)
			ring(s);
	}
}

void
nodes_request(struct broker_session *s, const struct weir_session_msg *m)
{
	struct weir_session_msg r = session_msg(WEIR_MSG_NODE_LIST);
	struct broker *b = s->b;
	struct broker_node *n;

	if (m->nodes.channel != UINT32_MAX && m->nodes.channel >= s->channel_count) {
		session_refuse(s, EINVAL, "no channel %u to watch nodes on", m->nodes.channel);
		return;
	}
	if (m->nodes.channel != UINT32_MAX)
		s->channel[m->nodes.channel].watches = m->nodes.watch;
	/* the first node that has changed since */
	n = m->nodes.since ? TAILQ_LAST(&b->node_news, broker_news) : NULL;
	while (n && n->changed > m->nodes.since)
		n = TAILQ_PREV(n, broker_news, in_news);
	n = n ? TAILQ_NEXT(n, in_news) : TAILQ_FIRST(&b->node_news);
	r.node_list.upto = m->nodes.since;
	for (; n && r.node_list.count < WEIR_NODES_A_MSG; n = TAILQ_NEXT(n, in_news)) {
		/* one that control reports as up is down for programs until a link reaches it */
		bool unreached = n->is.state == WEIR_NODE_UP && !n->told_up && !n->is.self;
		struct weir_node_info *info = &r.node_list.node[r.node_list.count++];

		*info = (struct weir_node_info){
		    .id = (uint16_t)n->is.id,
		    .state = (uint8_t)(unreached ? WEIR_NODE_DOWN : n->is.state),
		    .self = n->is.self != 0,
		    .engines = n->is.self ? b->config.engines : n->is.engines,
		    .incarnation = n->is.self ? b->config.incarnation : n->is.incarnation,
		    .address_count = n->is.address_count,
		};
		memcpy(info->address, n->is.address, sizeof(info->address));
		r.node_list.upto = n->changed;
	}
	r.node_list.more = n != NULL;
	r.node_list.whole = !n && b->synced;
	if (!n)
		r.node_list.upto = b->node_changes;
	session_reply(s, &r, NULL, 0);
}
