/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One turn of a thread that takes messages: from the rings of its worker straight to their
 * handlers. While a handler thread is in a handler for long, the others take messages of its other
 * lanes.
 */
#include "turn.h"
#include "handle.h"
#include "lane.h"
#include "model.h"
#include "peer.h"
#include "pool.h"
#include "receive.h"

#include "client/wait.h"
#include "stream/rx_queue.h"

#include <string.h>

#define STUCK_NS 1000000u /* in one batch: other handler threads help */

/* ---- the message in hand ---- */

/* `helps`: t is another handler thread's worker. */
static void
worker_lock(struct weir_thread *t, bool helps)
{
	if (helps)
		weir_bias_lock_slow(&t->lock);
	else
		weir_lock(t);
}

static void
worker_unlock(struct weir_thread *t, bool helps)
{
	if (helps)
		weir_bias_unlock_passing(&t->lock);
	else
		weir_unlock(t);
}

/* Releases the message in hand. Worker locked. True: only k kept its lane from closing. */
static inline bool
finish(struct handler_thread *k)
{
	struct lane *lane = k->lane;
	struct weir_conn *c = lane->life == k->life ? lane->conn : NULL;

	weir_taken_done(c, &k->taken);
	k->lane = NULL;
	if (weir_unlikely(lane->running != k))
		return false;
	lane->running = NULL;
	if (weir_unlikely(c && (c->queue || c->pending)))
		lane_resume(lane);
	return weir_unlikely(lane->closing && !lane->pins);
}

static void
put_down(struct handler_thread *k, bool helps)
{
	struct lane *lane = k->lane;
	uint64_t life = k->life;
	bool last;

	if (!lane)
		return;
	worker_lock(lane->worker, helps);
	last = finish(k);
	worker_unlock(lane->worker, helps);
	if (last)
		lane_ended(lane, life, -ECONNRESET);
}

void
message_finish(struct handler_thread *k)
{
	put_down(k, false);
}

/* Reports the cost of the last message. Worker locked by weir_bias_enter(). */
static __attribute__((noinline, cold)) void
report_consumed(struct weir_conn *c, struct weir_bias_seat *seat)
{
	c->worker->lock.held = seat;
	weir_conn_consumed_slow(c);
}

/*
 * The common case: the lane's next message is small and lies at the ring's head, and nothing else
 * needs attention. The lane stays the handler thread's, so one visit to the worker releases the
 * last message and takes this one. False: nothing has changed.
 */
static inline bool
another(struct handler_thread *k, struct weir_thread *t)
{
	struct lane *lane = k->lane;
	uint32_t cost = k->taken.cost;
	struct weir_bias_seat *seat;
	struct weir_conn *c;
	bool got = false;

	if (weir_unlikely(k->taken.loan || !(seat = weir_bias_enter(&t->lock))))
		return false;
	if (weir_likely(lane->running == k && !lane->first && TAILQ_EMPTY(&t->lanes))) {
		c = lane->conn;
		got = weir_take_small(c, k->buffer, &k->taken);
		if (got && weir_unlikely(weir_conn_note_consumed(c, cost, c->local)))
			report_consumed(c, seat);
		if (got)
			lane_used(lane);
	}
	weir_bias_leave(seat);
	return got;
}

/* Releases the last message and takes the next one. */
static inline int
next(struct handler_thread *k, struct weir_thread *t, bool helps)
{
	struct take take;
	struct lane *lane = k->lane;
	uint64_t life = k->life;
	bool last;
	int rc;

	if (lane && !helps && another(k, t))
		return TAKE_MESSAGE;
	worker_lock(t, helps);
	last = lane && finish(k);
	rc = worker_take(t, k->m, k->buffer, &take);
	if (rc == TAKE_MESSAGE) {
		k->lane = take.lane;
		k->life = take.life;
		k->taken = take.taken;
		take.lane->running = k;
		lane_used(take.lane);
		if (weir_unlikely(take.taken.loan && take.lane->bare == take.taken.length))
			rc = TAKE_BARE;
	}
	if (weir_unlikely(rc == TAKE_MOVED && !LIST_EMPTY(&t->waiters)))
		weir_thread_wake(t);
	worker_unlock(t, helps);
	if (weir_unlikely(last))
		lane_ended(lane, life, -ECONNRESET);
	if (weir_unlikely(rc == TAKE_ENDED))
		lane_ended(take.lane, take.life, take.status);
	return rc;
}

/* ---- handler threads look after each other ---- */

static void
set_since(struct handler_thread *k, uint64_t since)
{
	atomic_store_explicit(&k->since, since, memory_order_relaxed);
	if (k->line)
		atomic_store_explicit(&k->line->since, since, memory_order_relaxed);
}

void
handler_show(struct handler_thread *k, const char *name)
{
	uint64_t words[sizeof(k->line->name) / sizeof(k->line->name[0])] = {0};

	if (!k->line)
		return;
	memcpy(words, name, strnlen(name, sizeof(words) - 1));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		atomic_store_explicit(&k->line->name[i], words[i], memory_order_relaxed);
}

void
handler_wake(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;

	pthread_mutex_lock(&m->leaf);
	if (k->worker)
		weir_wake_fd(k->worker->wake_fd);
	pthread_mutex_unlock(&m->leaf);
}

static void
begin_batch(struct handler_thread *k)
{
	uint32_t asleep = atomic_load_explicit(&k->asleep, memory_order_relaxed), its;
	struct handler_thread *all = k->m->pool, *other = NULL;

	if (weir_unlikely(k->guard != NULL))
		weir_guard_end(k->guard);
	set_since(k, weir_clock());
	if (weir_likely(!asleep))
		return;
	atomic_store_explicit(&k->asleep, 0, memory_order_relaxed);
	if (asleep != 2)
		return;
	/* k slept until it was woken: another thread must notice if this batch takes long */
	for (uint32_t i = 0; i < k->m->o.handler_threads; i++) {
		its = atomic_load_explicit(&all[i].asleep, memory_order_relaxed);
		if (&all[i] == k)
			continue;
		if (its == 1)
			return;
		if (its == 2)
			other = &all[i];
	}
	if (other)
		handler_wake(other);
}

void
message_begin(struct weir_messenger *m)
{
	struct handler_thread *k = calling_handler();

	if (!k || atomic_load_explicit(&k->since, memory_order_relaxed))
		return;
	weir_assert(k->m == m);
	begin_batch(k);
}

void
message_show(struct weir_messenger *m, const char *name)
{
	struct handler_thread *k = calling_handler();

	if (!k)
		return;
	weir_assert(k->m == m);
	handler_show(k, name);
}

/* Messages of a worker, at most `most`. How much was done. */
static unsigned
pump(struct handler_thread *k, struct weir_thread *t, bool helps, unsigned most)
{
	unsigned n = 0, messages = 0;
	int rc;

	while (n < BATCH && messages < most && (rc = next(k, t, helps)) != TAKE_NOTHING) {
		n++;
		if (rc != TAKE_MESSAGE) {
			if (rc != TAKE_BARE)
				continue;
			if (!messages++)
				begin_batch(k);
			message_bare(k);
			continue;
		}
		if (!messages++)
			begin_batch(k);
		if (weir_unlikely(helps))
			count(&k->taken_over);
		message_handle(k);
	}
	put_down(k, helps);
	if (messages)
		set_since(k, 0);
	return n;
}

/* `of_program`: the thread is the program's, which may want the node events. */
static bool
has_accepts(struct weir_thread *t, bool of_program)
{
	bool any;

	weir_lock(t);
	any = !TAILQ_EMPTY(&t->lane_accepts);
	if (!of_program)
		t->node_count = 0; /* lanes notice lost nodes */
	weir_unlock(t);
	return any;
}

static void
accept_all(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	struct weir_conn *c;

	/* weir_accept() of a session that is over would listen in the next one */
	while (k->listener && has_accepts(k->worker, m->driven || k->is_guest) &&
	       !weir_accept(k->listener, 0, &c)) {
		struct peer *p;

		pthread_mutex_lock(&m->lock);
		p = m->model ? model_stranger(m, c->peer_node) : peer_get(m, c->peer_node);
		/* connections that say nothing must not use up memory */
		if (p &&
		    (p == m->strangers ? p->incoming < STRANGERS_MAX : !peer_use(m, p, true))) {
			if (lane_accept(k, p, c))
				peer_unuse(m, p);
		} else {
			weir_close(c);
		}
		pthread_mutex_unlock(&m->lock);
	}
}

/* ---- turns ---- */

unsigned
handler_turn(struct handler_thread *k, unsigned most, bool *stepping)
{
	struct weir_messenger *m = k->m;
	unsigned n;
	bool idle;

	if (weir_unlikely(m->model != NULL))
		calling_turn(k);
	n = pump(k, k->worker, false, most);
	*stepping = false;
	/* messages that waited for memory */
	if (weir_unlikely(atomic_load_explicit(&m->room_news, memory_order_relaxed))) {
		begin_batch(k);
		n += messages_admitted(k);
		set_since(k, 0);
	}
	if (has_accepts(k->worker, m->driven))
		accept_all(k);
	/* messages of handler threads that are stuck in a handler */
	idle = !n;
	for (uint32_t i = 0; idle && i < m->o.handler_threads; i++) {
		struct handler_thread *other = &m->pool[i];
		uint64_t since = atomic_load_explicit(&other->since, memory_order_relaxed);

		if (other == k || !since || weir_clock() - since < STUCK_NS)
			continue;
		n += pump(k, other->worker, true, BATCH);
		accept_all(other);
	}
	if (weir_unlikely(k->listen_at && weir_clock() >= k->listen_at))
		handler_listen_again(k);
	if (weir_unlikely(m->model != NULL) && m->model->turn && n < most)
		n += m->model->turn(m, most - n, m->model->user);
	/* housekeeping of the first handler thread */
	if (!k->index && (!n || ++k->turns % 256 == 0)) {
		k->told += events_report(m);
		pthread_mutex_lock(&m->lock);
		*stepping = peers_step(m);
		pthread_mutex_unlock(&m->lock);
		if (weir_clock() >= k->due) {
			peers_look(m);
			k->due = weir_clock() + TICK_NS;
		}
	}
	return n;
}

unsigned
guest_turn(struct handler_thread *k, unsigned most)
{
	const struct message_model *model = k->m->model;
	unsigned n, did;

	calling_turn(k);
	n = pump(k, k->worker, false, most);
	if (model->turn && n < most) {
		did = model->turn(k->m, most - n, model->user);
		if (atomic_load_explicit(&k->since, memory_order_relaxed))
			set_since(k, 0);
		k->told += did;
		n += did;
	}

	if (has_accepts(k->worker, true))
		accept_all(k);
	if (weir_unlikely(k->listen_at && weir_clock() >= k->listen_at))
		handler_listen_again(k);
	return n;
}
