/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whose turn it is. Programs that wait for room on a link take turns by deficit round robin, and
 * within a program its connections do (send_queue.c, rndv_write.c); programs whose messages go
 * straight into frames each get their part of frames that are too small for all. Both by weight. So
 * do those whose channels have something at all: each slot is charged to its program, whatever
 * comes of it.
 *
 * A program's rate is a bucket that its engines share: engine_share.paid is the time at which what
 * has left is paid for. While that lies ahead nothing more leaves; when nothing left for a while it
 * counts as at most burst_ns ago. Above it may be another, which all programs of a user share.
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

/* A connection has something for it. */
void
queue_join(struct engine *e, struct queue *q, struct list_node *node)
{
	list_append_once(&q->members, node);
	if (list_linked(&q->turn)) /* or limited: it will be woken */
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

/* Its turn begins, unless it goes on. */
void
queue_turn(struct queue *q, uint32_t quantum)
{
	if (!q->in_turn)
		q->deficit += quantum * weight_of(q->session);
	q->in_turn = true;
}

/* How its turn ended. */
void
queue_turned(struct engine *e, struct queue *q, enum turn t)
{
	if (t == TURN_FULL)
		return;
	list_remove(&q->turn);
	if (t == TURN_LIMITED) { /* its turn goes on then */
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

/* When this engine may take a part for the session: if it took the last one, others come first. */
static uint64_t
part_due(const struct engine_share *share, uint64_t mine, uint64_t rate)
{
	uint64_t wait = time_of(chunk_of(rate), rate) / 4;
	uint64_t burst = atomic_load_explicit(&share->burst_ns, memory_order_relaxed);
	uint64_t paid = atomic_load_explicit(&share->paid, memory_order_relaxed);

	if (paid != mine)
		return paid;
	return paid + (wait < burst / 2 ? wait : burst / 2);
}

/* ... from the program's and from the user's. */
static uint64_t
parts_due(const struct session *s)
{
	const struct engine_share *share = s->share;
	uint64_t due = 0;

	for (unsigned i = 0; share; share = share->above, i++) {
		uint64_t rate = rate_of(share);
		uint64_t at = rate ? part_due(share, s->paid[i], rate) : 0;

		due = at > due ? at : due;
	}
	return due;
}

static void
pay(struct engine_share *share, uint64_t now, uint64_t bytes, uint64_t rate, uint64_t *mine)
{
	uint64_t burst = atomic_load_explicit(&share->burst_ns, memory_order_relaxed);
	uint64_t paid = atomic_load_explicit(&share->paid, memory_order_relaxed), next;

	do
		next = (paid + burst > now ? paid : now - burst) + time_of(bytes, rate);
	while (!atomic_compare_exchange_weak_explicit(&share->paid, &paid, next,
						      memory_order_relaxed, memory_order_relaxed));
	*mine = next;
}

/*
 * Takes what an engine spends in a millisecond, and what was spent beyond the last part. Engines
 * that find the same part free each take one: it is paid for all the same.
 */
static bool
take_tokens(struct engine *e, struct session *s)
{
	uint64_t bytes = RATE_CHUNK, due = parts_due(s);
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
		uint64_t rate = rate_of(share);

		if (rate)
			pay(share, e->now, bytes, rate, &s->paid[i]);
	}
	s->tokens += (int64_t)bytes;
	return true;
}

/* Whether something of this program may leave now; who sends it takes it off session.tokens. */
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

/* Main has changed it. */
void
share_apply(struct engine *e, struct session *s)
{
	struct list_node *node, *following;

	s->limited = share_limits(s->share);
	s->tokens = 0;
	if (!list_empty(&e->limited))
		e->limited_at = e->now; /* who waits looks again */
	LIST_EACH (node, following, &s->conns)
		conn_refresh(LIST_OWNER(node, struct conn, of_session));
}

/* When something of it may leave. */
static uint64_t
renewed_at(const struct session *s)
{
	return s->limited && s->tokens <= 0 ? parts_due(s) : 0;
}

/* Programs whose rate lets them go on take part in their links' rounds again. */
void
shares_renew(struct engine *e)
{
	struct list_node *node, *following;

	e->limited_at = UINT64_MAX;
	LIST_EACH (node, following, &e->limited) {
		struct queue *q = LIST_OWNER(node, struct queue, turn);
		uint64_t due = renewed_at(q->session);

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

/* ---- the engine's time ---- */

/* What it took beyond its part is taken off the next ones. */
void
share_round(struct engine *e, struct session *s)
{
	uint64_t rounds = e->round - s->round;
	int64_t income = (int64_t)FRAME_LINES * weight_of(s);

	s->left += (int64_t)(rounds < FORGIVEN ? rounds : FORGIVEN) * income;
	s->left = s->left < income ? s->left : income;
	s->round = e->round;
}

/* ---- frames ---- */

/* Its lines of a frame that can't hold what all have; what it lacked for a message is kept. */
uint32_t
share_lines(struct link *l, struct session *s)
{
	struct queue *q = queue_of(s, l, RING);

	if (q->frame != l->frame_number) {
		uint32_t part = (FRAME_LINES - 1) * weight_of(s) / l->last_weight;

		q->lines = (q->lines < MESSAGE_LINES ? q->lines : MESSAGE_LINES) + part + !part;
		share_seen(l, q);
	}
	return q->lines;
}

/* It found no room in the open frame, or none of its part. */
void
share_pressed(struct link *l, struct session *s)
{
	share_seen(l, queue_of(s, l, RING));
	l->pressed = true;
}

void
share_frame_closed(struct engine *e, struct link *l)
{
	l->crowded = l->pressed && l->frame_programs > 1;
	if (l->crowded)
		e->crowded = e->turn + 1;
	l->last_weight = l->frame_weight;
	l->pressed = false;
	l->frame_programs = l->frame_weight = 0;
	l->frame_number++;
}
