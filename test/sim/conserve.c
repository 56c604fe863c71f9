/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conservation across the wire: what one end believes to have been granted, used and given back
 * against what the other end has granted, received and taken back. An engine alone can't see it;
 * engine_check() sees the rest.
 */
#include "conserve.h"

#include "node.h"

#include "engine/cell.h"
#include "engine/conn.h"
#include "engine/link.h"
#include "base/list.h"
#include "engine/slot_head.h"
#include "engine/state.h"

#include <stdlib.h>

#define ANSWERED 64u /* connections of a link with answers under way */

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

/* ---- answers ---- */

/* Bytes of answers, of connections of the end that they are under way to. */
struct under_way {
	uint32_t count;
	struct {
		uint32_t vqpn;
		uint64_t bytes;
	} of[ANSWERED];
};

static uint64_t *
bytes_of(struct under_way *u, uint32_t vqpn)
{
	static uint64_t others;
	uint32_t i = 0;

	while (i < u->count && u->of[i].vqpn != vqpn)
		i++;
	if (i == ANSWERED)
		return &others;
	if (i == u->count) {
		u->of[i].vqpn = vqpn;
		u->of[i].bytes = 0;
		u->count++;
	}
	return &u->of[i].bytes;
}

static uint64_t
answer_bytes(uint32_t length)
{
	return weir_answer_lines(length) * WEIR_SLOT_SIZE;
}

static uint32_t
lines_of(struct head h)
{
	if (weir_op_is_cell(h.op))
		return weir_cell_slots(h.op, h.length);
	if (h.op == WEIR_WIRE_ANSWER)
		return weir_answer_lines(h.length);
	return h.op == WEIR_OP_INLINE || h.op == WEIR_OP_PLACE ? message_lines(h.length) : 1;
}

/*
 * Visits lines that l has written, from `pos` on, which is the head of a frame. asked, given: get
 * the answers of operations, and answers; NULL: of no interest. Returns the number of updates.
 */
static uint32_t
visit(const struct peer_link *l, uint64_t pos, struct under_way *asked, struct under_way *given)
{
	uint32_t updates = 0;

	while (pos < l->tx_pos) {
		const struct weir_frame_head *frame = (const void *)link_at(l, pos);
		/* the head of the open frame is written when it leaves */
		uint64_t end = pos < l->tx_posted ? pos + frame->lines : l->tx_pos;

		if (end <= pos)
			abort();
		for (pos++; pos < end;) {
			const struct weir_slot *line = link_at(l, pos);
			struct head h = head_load(line);

			if (asked && weir_op_is_cell(h.op) && cell_answer_bytes(line))
				*bytes_of(asked, h.vqpn) += answer_bytes(cell_answer_bytes(line));
			if (given && h.op == WEIR_WIRE_ANSWER)
				*bytes_of(given, h.vqpn) += answer_bytes(h.length);
			updates += h.op == WEIR_OP_UPDATE || h.op == WEIR_OP_CAS;
			pos += lines_of(h);
		}
	}
	return updates;
}

/* Answers that wait in m, by the connections there that they are of. */
static void
visit_waiting(const struct peer_link *m, struct under_way *waiting)
{
	for (uint32_t at = m->answers_first; at != m->answers_end;) {
		const struct weir_slot *s = &m->is.answers[at & (m->is.answer_lines - 1)];

		*bytes_of(waiting, atomic_load_explicit(&s->seq, memory_order_relaxed)) +=
		    answer_bytes(s->length);
		at += weir_answer_lines(s->length);
	}
}

/* Credit that operations of c have which have left. */
static uint64_t
awaited_bytes(const struct conn *c)
{
	uint64_t bytes = 0;

	for (uint16_t i = c->cold->memory.awaited_first; i; i = c->link->awaited[i - 1].next)
		bytes += answer_bytes(c->link->awaited[i - 1].length);
	return bytes;
}

/*
 * For each operation of l that has left and has credit for an answer, either it is on its way to m,
 * or the answer waits there, or that is on its way back. Where the connection has ended at m no
 * answer may come, and none may come without credit.
 */
static const char *
check_answers(struct engine *there, const struct peer_link *l, const struct peer_link *m)
{
	static struct under_way asked, waiting, given;
	const struct list_node *node;
	uint64_t all = 0;

	asked.count = waiting.count = given.count = 0;
	visit(l, m->rx_pos, &asked, NULL);
	visit(m, l->rx_pos, NULL, &given);
	visit_waiting(m, &waiting);
	if (asked.count == ANSWERED || waiting.count == ANSWERED || given.count == ANSWERED)
		return NULL;
	for (uint32_t i = 0; i < given.count; i++)
		all += given.of[i].bytes;
	for (node = l->conns.next; node != &l->conns; node = node->next) {
		const struct conn *c = LIST_OWNER(node, const struct conn, of_link), *p;
		uint64_t answers, awaited;

		if (c->kind != CONN_MEMORY || conn_is_passive(c) || c->state == CONN_OPENING)
			continue;
		awaited = awaited_bytes(c);
		answers = *bytes_of(&given, c->vqpn) + *bytes_of(&waiting, c->peer_vqpn);
		all -= *bytes_of(&given, c->vqpn);
		if (answers > awaited)
			return "answers are under way for which there is no credit";
		p = c->peer_vqpn ? conn_find(there, c->peer_vqpn) : NULL;
		if (!conn_is_open(c) || !p || p->link != m || p->peer_vqpn != c->vqpn ||
		    !conn_is_open(p))
			continue;
		if (awaited != answers + *bytes_of(&asked, p->vqpn))
			return "credit for answers is not that of operations and answers under way";
	}
	return all ? "answers are under way to a connection that has ended" : NULL;
}

/* A link that breaks with updates under way, and is repaired. */
static void
count_repair(struct sim *s, struct sim_engine *e, uint32_t i, const struct peer_link *l)
{
	if (l->up && l->broken && !e->torn[i])
		e->torn[i] = visit(l, l->credited, NULL, NULL) ? SIM_TORN_UPDATES : SIM_TORN;
	if (l->broken)
		return;
	s->counts.updates_replayed += l->up && e->torn[i] == SIM_TORN_UPDATES;
	e->torn[i] = SIM_WHOLE;
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
		count_repair(s, e->config.user, i, l);
		if (!m)
			continue;
		there = s->node[l->is.peer_node]->engine[l->is.peer_engine].engine;
		wrong = check_ring(l, m);
		if (!wrong)
			wrong = check_ring(m, l);
		for (node = l->conns.next; node != &l->conns && !wrong; node = node->next)
			wrong = check_conn(there, LIST_OWNER(node, const struct conn, of_link), m);
		if (!wrong && l->awaited_fresh) {
			s->counts.answers_conserved++;
			wrong = check_answers(there, l, m);
		}
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
