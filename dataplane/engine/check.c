/* SPDX-License-Identifier: BSD-3-Clause */
/* The invariants that hold after every turn, whatever programs and peers do. For tests. */
#include "answer.h"
#include "channel.h"
#include "conn.h"
#include "ctrl_line.h"
#include "export.h"
#include "link.h"
#include "base/list.h"
#include "region.h"
#include "rndv.h"
#include "scheduler.h"
#include "send_queue.h"
#include "session.h"
#include "state.h"

struct sums { /* of one session */
	uint64_t promised, pend_slots, blocks;
	uint64_t in_regions, posted, conns_memory_lent;
};

static const char *
check_conn(const struct conn *c, struct sums *sums)
{
	bool opening = c->state == CONN_OPENING; /* the service lies where sends are counted */
	uint64_t cost = 0;
	uint32_t asked = 0;

	if (!opening && c->granted < c->spent)
		return "spent more than was granted";
	if (!opening && c->returned > c->spent)
		return "more was returned than was spent";
	if (!opening && !c->sealed &&
	    c->completed != (c->kind == CONN_MEMORY ? answers_complete(c) : c->landed))
		return "completed is not what has landed, or was answered";
	if (c->rx_consumed + c->cold->rx_lent > c->rx_delivered || c->rx_delivered > c->rx_granted)
		return "consumed + lent <= delivered <= granted does not hold";
	if (c->fast &&
	    (c->pend_first || c->state != CONN_OPEN || c->shut || !c->link || c->session->limited))
		return "the short way is open while something waits";
	if (c->peer_shut && (c->accepts || (c->state == CONN_OPEN && c->rts_count)))
		return "messages are awaited from a peer that sends no more";
	if (list_linked(&c->active) && !c->pend_first)
		return "takes part in the round with nothing to send";
	if (c->kind != CONN_MEMORY) /* notices: to the exporting session, see check_session() */
		sums->promised += c->rx_granted - c->rx_delivered;
	for (uint32_t i = 0; i < c->rts_count; i++)
		if (bulk_has_place(&c->cold->rts[i])) {
			sums->promised += WEIR_SLOT_SIZE;
			if (WEIR_PLACE_REGION(c->cold->rts[i].place))
				sums->in_regions++;
			else
				sums->blocks += bulk_blocks(c->cold->rts[i].length);
		}
	for (const struct pend *p = c->cold->post_first; p; p = p->next)
		sums->posted++;
	sums->conns_memory_lent += c->memory_lent;
	for (const struct pend *p = c->pend_first; p; p = p->next) {
		uint32_t n = message_slots(p->slot.op, p->slot.length);

		if (p->state == PEND_MESSAGE)
			cost += message_cost(&p->slot);
		else
			asked += p->state != PEND_BULK && p->state != PEND_TRANSFER;
		sums->pend_slots += n;
		sums->in_regions += p->region != 0;
		while (--n) {
			p = p->next;
			if (!p)
				return "a waiting message lacks its end";
		}
	}
	if (cost != c->pend_cost)
		return "cost of what waits is wrong";
	return asked == c->asked_count ? NULL : "count of announced bulk messages is wrong";
}

static const char *
check_blocks(const struct session *s, uint64_t placed)
{
	static const uint32_t none[64];
	uint32_t out = 0, chained = 0, spilled = 0, b = 0, end;

	/* blocks of messages, and those of spill chains; most of the many are free */
	for (; b < s->blocks.count; b = end) {
		end = b + 64 < s->blocks.count ? b + 64 : s->blocks.count;
		if (!memcmp(&s->runs[b], none, (end - b) * sizeof(none[0])))
			continue;
		for (; b < end; b++)
			if (s->runs[b] & RUN_CHAIN)
				chained++;
			else
				out += s->runs[b];
	}
	for (uint32_t i = 0; i < s->shared->geometry.channels; i++) {
		const struct channel *ch = &s->channels[i];
		uint32_t slots = ch->spill_count + (ch->spill_count ? ch->spill_from : 0);

		if (!ch->session)
			continue;
		spilled += (slots + WEIR_BLOCK_SIZE / WEIR_SLOT_SIZE - 1) /
			   (WEIR_BLOCK_SIZE / WEIR_SLOT_SIZE);
		if (!ch->spill_count != (ch->spill_last == WEIR_BLOCK_NONE))
			return "a spill chain without slots, or slots without a chain";
	}
	if (spilled != chained)
		return "spill blocks are not what is spilled";
	if (out + chained + placed != s->blocks.count - s->blocks.free)
		return "blocks taken are not those in use";
	return NULL;
}

static const char *
check_session(const struct engine *e, const struct session *s)
{
	const struct list_node *node;
	struct sums sums = {0};
	uint64_t slack = 0, users = 0;

	for (node = s->conns.next; node != &s->conns; node = node->next) {
		const char *wrong =
		    check_conn(LIST_OWNER(node, const struct conn, of_session), &sums);

		if (wrong)
			return wrong;
	}
	/* notices of connections from anywhere go to the exporting session */
	for (uint32_t i = 0; i < s->export_count; i++) {
		const struct export *x = &s->exports[i];

		if (!x->generation)
			continue;
		sums.in_regions += !x->ranges;
		sums.in_regions += x->words != NULL;
		for (node = x->conns.next; node != &x->conns; node = node->next) {
			const struct conn *c = conn_of_cold(
			    e, LIST_OWNER(node, const struct conn_cold, memory.of_export));

			sums.promised += c->rx_granted - c->rx_delivered;
		}
	}
	for (uint32_t i = 0; i < s->shared->geometry.channels; i++)
		if (s->channels[i].session)
			slack += spill_slack(&s->channels[i]);
	/* programs that have something to send take part in rounds, and no others */
	for (uint32_t i = 0; i < 2 * e->config.links; i++) {
		const struct queue *q = &s->queues[i];

		if (list_linked(&q->turn) == list_empty(&q->members))
			return "a program takes part in a round with nothing to send, or not with "
			       "something";
		if (q->in_turn && list_empty(&q->members))
			return "a turn is left over";
	}
	if (sums.promised != s->promised)
		return "what is promised is not the sum over the connections";
	if (s->promised && s->promised + slack > (uint64_t)s->blocks.free * WEIR_BLOCK_SIZE)
		return "more is promised than there are blocks";
	if (sums.pend_slots + sums.posted != s->pool_used)
		return "waiting slots are not those of the connections";
	if (sums.posted != s->posted)
		return "posted memory is not that of the connections";
	for (uint32_t i = 0; i < s->region_count; i++)
		users += s->regions[i].users;
	if (users != sums.in_regions || sums.conns_memory_lent != s->conns_memory_lent)
		return "adopted memory is kept by others than messages under way and exports";
	return check_blocks(s, sums.blocks);
}

static const char *
check_link(const struct engine *e, const struct peer_link *l)
{
	uint64_t flight = 0, runs = 0, end = l->executed, asked = 0;
	uint32_t waiting = 0;
	const struct list_node *node;
	/* maybe by class_send(): an open frame and credit that is due leave in a later turn */
	bool skipped = e->classes && list_linked(&l->busy);

	if (l->executed > l->credited || l->run_end - l->run_first > l->mask + 1)
		return "messages are taken for executed that are not consumed, or more are noted "
		       "than there is room for";
	if (l->credited > l->tx_posted || l->tx_posted > l->tx_pos ||
	    l->tx_pos - l->credited > l->mask + 1)
		return "the peer's ring is overrun";
	if (!l->look && l->hold != WEIR_RESUME_BOTH && !(skipped && e->now >= l->credit_due) &&
	    (link_has_rest(l) || (l->frame_wrs && !skipped)))
		return "a link has something to send that no turn looks for";
	if ((l->rx_pos != l->rx_told || l->wrs_back != l->wrs_told) && l->credit_due == UINT64_MAX)
		return "credit is owed that never leaves";
	if (l->wrs_used - l->wrs_credited > l->is.peer_recv_wrs)
		return "more receive WRs used than granted";
	if (l->wrs_seen - l->wrs_told > l->is.recv_wrs)
		return "the peer uses more receive WRs than it was granted";
	if (l->sq_posted[0] - l->sq_done[0] > ENGINE_SEND_WRS ||
	    l->sq_posted[1] - l->sq_done[1] > FLIGHT_WRS || l->flight_bytes > FLIGHT_BYTES)
		return "a send queue is overrun";
	/* until the peer is told more, lines may be those of the memory before, which was larger */
	if (l->rx_told > l->rx_pos || ((l->rx_told > l->ring_since || !l->ring_since) &&
				       l->rx_pos - l->rx_told > l->ring_mask + 1))
		return "our ring is overrun";
	for (uint32_t i = l->run_first; i != l->run_end; i++) {
		const struct run *r = &l->runs[i & l->mask];

		if ((int32_t)(r->end - (uint32_t)end) <= 0)
			return "runs are out of order";
		end += r->end - (uint32_t)end;
		runs += r->count;
	}
	if (end > l->tx_pos)
		return "a run ends where nothing was written";
	for (node = l->conns.next; node != &l->conns; node = node->next) {
		const struct conn *c = LIST_OWNER(node, const struct conn, of_link);

		if (c->state != CONN_OPENING) /* the service lies where sends are counted */
			flight += c->sent - c->landed;
		asked += answer_credit_of(c);
		if (answers_wait(c))
			waiting += c->cold->memory.answers_waiting;
	}
	if (l->answer_room + asked != l->is.peer_answers)
		return "credit for answers is not what was granted";
	for (uint32_t at = l->answers_first; at != l->answers_end; waiting--) {
		const struct weir_slot *s = &l->is.answers[at & (l->is.answer_lines - 1)];

		at += weir_answer_lines(s->length);
		if (!waiting || at > l->answers_end)
			return "answers that wait are not those of the connections";
	}
	if (waiting || l->answers_end - l->answers_first > l->is.answer_lines)
		return "answers that wait are not those of the connections";
	return runs == flight ? NULL : "messages in flight are not those of the runs";
}

const char *
engine_check(const struct engine *e)
{
	uint32_t rejects_left = REJECTS;
	const char *wrong = NULL;

	if (!e->rare && (engine_tells_later(e) || !list_empty(&e->settling) ||
			 !list_empty(&e->violators) || e->datagrams.ending))
		return "work is due that no turn looks for";
	for (uint32_t i = 0; i < e->config.sessions && !wrong; i++)
		if (e->sessions[i].shared)
			wrong = check_session(e, &e->sessions[i]);
	for (uint32_t i = 0; i < e->config.links && !wrong; i++)
		if (e->links[i].up && !e->links[i].broken)
			wrong = check_link(e, &e->links[i]);
	for (uint32_t i = 0; i < e->config.links; i++)
		if (e->links[i].rejects.count > REJECTS_OWN)
			rejects_left -= e->links[i].rejects.count - REJECTS_OWN;
	if (rejects_left != e->rejects_left)
		return "places for rejections are not those that links have";
	return wrong;
}
