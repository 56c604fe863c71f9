/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conservation across the wire: what one end believes to have been granted, used and given back
 * against what the other end has granted, received and taken back. An engine alone can't see it;
 * engine_check() sees the rest.
 */
#include "conserve.h"

#include "node.h"

#include "engine/conn.h"
#include "engine/link.h"
#include "base/list.h"
#include "engine/state.h"

/* The other end of l, if it is of the same life. */
static struct peer_link *
other_end(struct sim *s, const struct peer_link *l)
{
	struct sim_node *n = s->node[l->is.peer_node];
	struct engine *e = n->engine[l->is.peer_engine].engine;

	for (uint32_t i = 0; i < e->config.links; i++) {
		struct peer_link *m = &e->links[i];

		if (m->up && !m->broken && (uintptr_t)m->is.credit == l->is.peer_credit_address &&
		    (uintptr_t)l->is.credit == m->is.peer_credit_address)
			return m;
	}
	return NULL;
}

/* From l to m: lines and receive WRs. */
static const char *
check_ring(const struct peer_link *l, const struct peer_link *m)
{
	if (m->rx_pos > l->tx_posted || m->rx_told > m->rx_pos || l->credited > m->rx_told)
		return "lines: returned <= consumed <= written does not hold between two nodes";
	if (l->is.peer_recv_wrs != m->is.recv_wrs)
		return "both ends of a link count other receive WRs";
	if (l->is.peer_answers != m->is.answer_lines * WEIR_SLOT_SIZE ||
	    l->is.peer_answers - l->answer_room <
		(m->answers_end - m->answers_first) * WEIR_SLOT_SIZE)
		return "more answers wait than the peer has taken credit for";
	if (m->wrs_seen > l->wrs_used || m->wrs_back > m->wrs_seen || m->wrs_told > m->wrs_back ||
	    l->wrs_credited > m->wrs_told)
		return "receive WRs: returned <= taken <= used does not hold between two nodes";
	return NULL;
}

/* From c to p: cost and messages. */
static const char *
check_window(const struct conn *c, const struct conn *p)
{
	if (c->kind == CONN_MEMORY && conn_is_passive(c))
		return (uint16_t)(c->cold->memory.answers - p->rx_messages) > LINK_AWAITED
			   ? "more answers came than were sent"
			   : NULL;
	if (c->kind == CONN_MEMORY &&
	    ((conn_is_open(p) && p->cold->memory.export && c->granted > p->rx_granted) ||
	     p->rx_delivered > c->spent || c->returned > p->rx_consumed))
		return "notices: returned <= taken, delivered <= sent, granted <= granted there "
		       "does not hold between two nodes";
	if (c->kind != CONN_STREAM)
		return p->rx_messages > c->sent ? "more datagrams came than were sent" : NULL;
	if (p->accepts && c->granted > p->rx_granted)
		return "a sender has more window than it was granted";
	if (p->rx_delivered > c->spent)
		return "more was delivered than was spent";
	if (c->returned > p->rx_consumed)
		return "more window was returned than was consumed";
	/* what was announced may be fetched, and delivered, before it counts as sent */
	if (c->state != CONN_DEAD && c->state != CONN_PEER_GONE &&
	    p->rx_messages > c->sent + c->asked_count)
		return "more messages were delivered than were sent";
	/* status 0 is a promise */
	if (c->completed > p->rx_messages)
		return "a message is complete that was not delivered";
	return NULL;
}

static const char *
check_conn(struct engine *there, const struct conn *c, const struct peer_link *m)
{
	const struct conn *p = c->peer_vqpn ? conn_find(there, c->peer_vqpn) : NULL;
	const char *wrong;

	if (!p || p->link != m || p->peer_vqpn != c->vqpn)
		return NULL; /* not yet, or no longer */
	wrong = check_window(c, p);
	return wrong ? wrong : check_window(p, c);
}

const char *
sim_conserved(struct sim *s, const struct engine *e)
{
	for (uint32_t i = 0; i < e->config.links; i++) {
		struct peer_link *l = &e->links[i],
				 *m = l->up && !l->broken ? other_end(s, l) : NULL;
		struct engine *there;
		const struct list_node *node;
		const char *wrong;

		s->counts.classes_broken += l->up && l->broken && l->is.class;
		if (!m)
			continue;
		there = s->node[l->is.peer_node]->engine[l->is.peer_engine].engine;
		wrong = check_ring(l, m);
		if (!wrong)
			wrong = check_ring(m, l);
		for (node = l->conns.next; node != &l->conns && !wrong; node = node->next)
			wrong = check_conn(there, LIST_OWNER(node, const struct conn, of_link), m);
		if (wrong)
			return wrong;
		s->counts.conserved++;
		s->counts.classes_conserved += l->is.class != 0;
	}
	return NULL;
}

void
sim_count_engine(struct sim *s, const struct engine *e)
{
	const struct engine_counters *c = &e->counters;

	for (uint32_t i = 0; i < e->config.links; i++)
		s->counts.rings_wrapped +=
		    e->links[i].mask && e->links[i].tx_pos > e->links[i].mask + 1;
	s->counts.ring_stalls += atomic_load(&c->ring_stalls);
	s->counts.rings_withdrawn += atomic_load(&c->rings_withdrawn);
	s->counts.rings_regained += atomic_load(&c->rings_regained);
	s->counts.window_stalls += atomic_load(&c->window_stalls);
	s->counts.answer_stalls += atomic_load(&c->answer_stalls);
	s->counts.spilled += atomic_load(&c->spilled);
	s->counts.bulk += atomic_load(&c->bulk_messages);
	s->counts.fetched += atomic_load(&c->fetched);
	s->counts.replayed += atomic_load(&c->frames_replayed);
	s->counts.bulk_replayed += atomic_load(&c->bulk_replayed);
	s->counts.by_send += atomic_load(&c->frames_by_send);
	s->counts.credit_writes += atomic_load(&c->credit_writes);
}

void
sim_count_sleep(struct sim *s, const struct engine *e)
{
	bool ring = false, window = false;

	for (uint32_t i = 0; i < e->config.links; i++)
		ring |= e->links[i].up && e->links[i].stalled;
	for (uint32_t i = 0; i < e->conns_fresh; i++)
		window |= e->conns[i].vqpn && e->conns[i].stall_told;
	s->counts.engine_sleeps++;
	s->counts.ring_stalled_sleeps += ring;
	s->counts.window_stalled_sleeps += window;
}
