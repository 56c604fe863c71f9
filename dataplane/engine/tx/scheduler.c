/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Three turns, each by weight. Programs that wait for room on a link take turns by deficit round
 * robin, and the connections of a program among each other (send_queue.c, rndv_write.c). Programs
 * whose messages go straight into frames each get a part of a frame that is too small for all.
 * Programs whose channels have slots get a part of the engine's time: each slot is charged to its
 * program, whether or not a message leaves. Updates of memory are charged beyond their lines and
 * slots as much as they cost the engine that executes them (cell_charge()).
 *
 * A program's rate is a bucket that its engines share: engine_share.paid is the time up to which
 * the bytes that have left are paid for. While it lies in the future no more bytes leave; after a
 * pause it counts as at most burst_ns ago. The bucket above, if any, is that of the user's
 * programs.
 */
#include "batch.h"
#include "conn.h"
#include "link.h"
#include "base/list.h"
#include "scheduler.h"
#include "session.h"
#include "state.h"

enum {
	/* lines of the longest message in a peer's ring */
	MESSAGE_LINES = 1 + WEIR_BLOCK_SIZE / WEIR_SLOT_SIZE,
	CLASS_TURNS = 4,
	RATE_CHUNK = 16384, /* bytes of a program's rate that an engine takes at a time, at most */
};

void
queues_init(struct session *s, uint32_t links)
{
	for (uint32_t i = 0; i < 2 * links; i++) {
		list_init(&s->queues[i].members);
		s->queues[i].session = s;
		s->queues[i].index = i % 2;
	}
}

static void
append(struct queue *q)
{
	list_append(q->index == RING ? &q->link->active : &q->link->writing, &q->turn);
}

void
queue_join(struct engine *e, struct queue *q, struct list_node *node)
{
	list_append_once(&q->members, node);
	if (list_linked(&q->turn)) /* in the round, or limited until shares_renew() */
		return;
	append(q);
	link_busy(e, q->link);
}

void
queue_leave(struct queue *q, struct list_node *node)
{
	list_remove(node);
	if (!list_empty(&q->members))
		return;
	list_remove(&q->turn);
	q->in_turn = false;
	q->deficit = 0;
}

static uint32_t
weight_of(const struct session *s)
{
	return atomic_load_explicit(&s->share->weight, memory_order_relaxed);
}

void
queue_turn(struct queue *q, uint32_t quantum)
{
	if (!q->in_turn)
		q->deficit += quantum * weight_of(q->session);
	q->in_turn = true;
}

void
queue_turned(struct engine *e, struct queue *q, enum turn t)
{
	if (t == TURN_FULL)
		return;
	list_remove(&q->turn);
	if (t == TURN_LIMITED) { /* the turn continues once the rate allows it */
		list_append(&e->limited, &q->turn);
		return;
	}
	q->in_turn = false;
	if (t == TURN_SPENT)
		append(q);
	else
		q->deficit = 0;
}

/* ---- rates ---- */

static uint64_t
time_of(uint64_t bytes, uint64_t rate)
{
	return (uint64_t)(((unsigned __int128)bytes * 1000000000u + rate / 2) / rate);
}

static uint64_t
chunk_of(uint64_t rate)
{
	return rate / 1000 < RATE_CHUNK ? rate / 1000 + 1 : RATE_CHUNK;
}

static uint64_t
rate_of(const struct engine_share *share)
{
	return atomic_load_explicit(&share->rate, memory_order_relaxed);
}

bool
share_limits(const struct engine_share *share)
{
	for (; share; share = share->above)
		if (rate_of(share))
			return true;
	return false;
}

/* ns: when this engine may take a part of the program's rate, and of the user's. */
static uint64_t
part_due(const struct session *s)
{
	const struct engine_share *share = s->share;
	uint64_t due = 0;

	for (unsigned i = 0; share; share = share->above, i++) {
		uint64_t burst = atomic_load_explicit(&share->burst_ns, memory_order_relaxed);
		uint64_t at = atomic_load_explicit(&share->paid, memory_order_relaxed);
		uint64_t rate = rate_of(share), wait;

		if (!rate)
			continue;
		if (at == s->paid[i]) { /* this engine took the last part: others come first */
			wait = time_of(chunk_of(rate), rate) / 4;
			at += wait < burst / 2 ? wait : burst / 2;
		}
		due = at > due ? at : due;
	}
	return due;
}

/*
 * Takes the bytes of a millisecond, and those spent beyond the last part. Engines that find the
 * same part free each take one: all of them are paid for.
 */
static bool
take_tokens(struct engine *e, struct session *s)
{
	uint64_t bytes = RATE_CHUNK, due = part_due(s);
	struct engine_share *share;

	if (due > e->now) {
		if (due < e->limited_at)
			e->limited_at = due;
		return false;
	}
	for (share = s->share; share; share = share->above) {
		uint64_t rate = rate_of(share);

		if (rate && chunk_of(rate) < bytes)
			bytes = chunk_of(rate);
	}
	bytes += (uint64_t)(s->tokens < 0 ? -s->tokens : 0);
	share = s->share;
	for (unsigned i = 0; share; share = share->above, i++) {
		uint64_t burst = atomic_load_explicit(&share->burst_ns, memory_order_relaxed);
		uint64_t paid = atomic_load_explicit(&share->paid, memory_order_relaxed);
		uint64_t rate = rate_of(share), cost, next;

		if (!rate)
			continue;
		cost = time_of(bytes, rate);
		do
			next = (paid + burst > e->now ? paid : e->now - burst) + cost;
		while (!atomic_compare_exchange_weak_explicit(
		    &share->paid, &paid, next, memory_order_relaxed, memory_order_relaxed));
		s->paid[i] = next;
	}
	s->tokens += (int64_t)bytes;
	return true;
}

bool
share_pays(struct engine *e, struct session *s)
{
	if (LIKELY(!s->limited || s->tokens > 0))
		return true;
	if (!share_limits(s->share) || take_tokens(e, s))
		return true;
	count(&e->counters.rate_limited, 1);
	count(&s->counters->limited, 1);
	return false;
}

void
share_apply(struct engine *e, struct session *s)
{
	struct list_node *node, *following;

	s->limited = share_limits(s->share);
	s->tokens = 0;
	if (!list_empty(&e->limited))
		e->limited_at = e->now; /* limited queues look again */
	LIST_EACH (node, following, &s->conns)
		conn_refresh(LIST_OWNER(node, struct conn, of_session));
}

void
shares_renew(struct engine *e)
{
	struct list_node *node, *following;

	e->limited_at = UINT64_MAX;
	LIST_EACH (node, following, &e->limited) {
		struct queue *q = LIST_OWNER(node, struct queue, turn);
		const struct session *s = q->session;
		uint64_t due = s->limited && s->tokens <= 0 ? part_due(s) : 0;

		if (due > e->now) {
			if (due < e->limited_at)
				e->limited_at = due;
			continue;
		}
		list_remove(node);
		append(q);
		link_busy(e, q->link);
	}
}

/* ---- classes ---- */

/*
 * A turn in which a link sends is a frame and some segments of large messages. Beside a class that
 * sends, a lower one has one of CLASS_TURNS turns, and one of their square two classes below.
 */
void
class_send(struct engine *e, struct peer_link *l)
{
	static const uint8_t rank[WEIR_CLASSES] = {
	    [WEIR_CLASS_LOW] = 0, [WEIR_CLASS_NORMAL] = 1, [WEIR_CLASS_HIGH] = 2};
	uint64_t posted = l->sq_posted[RING] + l->sq_posted[BULK], every = 1;

	for (unsigned i = 0; i < WEIR_CLASSES; i++) {
		uint64_t turns =
		    rank[i] == rank[l->is.class] + 1 ? CLASS_TURNS : CLASS_TURNS * CLASS_TURNS;

		if (rank[i] > rank[l->is.class] && e->class_turn[i] &&
		    e->turn - e->class_turn[i] <= 1 && turns > every)
			every = turns;
	}
	if (e->turn % every)
		return; /* it stays busy */
	link_send(e, l);
	if (l->sq_posted[RING] + l->sq_posted[BULK] != posted)
		e->class_turn[l->is.class] = e->turn;
}

/* ---- the engine's time ---- */

void
share_round(struct engine *e, struct session *s)
{
	uint64_t rounds = e->round - s->round; /* the debt of earlier ones is carried over */
	int64_t income = (int64_t)FRAME_LINES * weight_of(s);

	s->left += (int64_t)(rounds < FORGIVEN ? rounds : FORGIVEN) * income;
	s->left = s->left < income ? s->left : income;
	s->round = e->round;
}

/* ---- frames ---- */

uint32_t
share_lines(struct peer_link *l, struct session *s)
{
	struct queue *q = queue_of(s, l, RING);

	if (q->frame != l->frame_number) {
		/* lines too few for a message are kept for the next frame */
		uint32_t part = (FRAME_LINES - 1) * weight_of(s) / l->last_weight;

		q->lines =
		    (q->lines < MESSAGE_LINES ? q->lines : MESSAGE_LINES) + (int32_t)(part + !part);
		share_seen(l, q);
	}
	return q->lines > 0 ? (uint32_t)q->lines : 0;
}

void
share_pressed(struct engine *e, struct peer_link *l, struct session *s)
{
	share_seen(l, queue_of(s, l, RING));
	l->overfull = true;
	if (!l->tx_limit)
		link_busy(e, l); /* no other program may open a frame again */
}

void
share_frame_closed(struct engine *e, struct peer_link *l)
{
	l->split = l->overfull && l->frame_programs > 1;
	if (l->split)
		e->split_turn = e->turn + 1;
	l->last_weight = l->frame_weight;
	l->overfull = false;
	l->frame_programs = l->frame_weight = 0;
	l->frame_number++;
}
