/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The threads that handlers run in. Each owns a worker, on which the lanes that chose it hang, and
 * takes messages from the rings straight to their handlers. While one is in a handler for long, the
 * others take messages of its other lanes.
 */
#include "pool.h"
#include "handle.h"
#include "lane.h"
#include "peer.h"
#include "receive.h"
#include "sender.h"

#include "client/reason.h"
#include "client/wait.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define BATCH 64u
#define STUCK_NS 1000000u /* in one batch: other handler threads help */
#define SHORT_RESTS 200	  /* of 1 ms, while messages of a session that is over may remain */
#define GUARD_MS 4	  /* between looks of an idle handler thread after busy ones */
#define GUARD_NS 100000000u

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
	if (weir_likely(lane->running == k && !lane->first && TAILQ_EMPTY(&t->ready))) {
		c = lane->conn;
		got = weir_take_small(c, k->buffer, &k->taken);
		if (got && weir_unlikely(weir_conn_note_consumed(c, cost)))
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
	rc = worker_take(t, k->buffer, false, &take);
	if (rc == TAKE_MESSAGE) {
		k->lane = take.lane;
		k->life = take.life;
		k->taken = take.taken;
		take.lane->running = k;
		lane_used(take.lane);
	}
	if (weir_unlikely(rc == TAKE_MOVED && !LIST_EMPTY(&t->waiters)))
		weir_thread_wake(t, NULL);
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

static void
begin_batch(struct handler_thread *k)
{
	uint32_t asleep = atomic_load_explicit(&k->asleep, memory_order_relaxed), its;
	struct handler_thread *all = k->m->pool, *other = NULL;

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
		weir_wake_fd(other->worker->wake_fd);
}

static unsigned
pump(struct handler_thread *k, struct weir_thread *t, bool helps)
{
	unsigned n = 0, messages = 0;
	int rc;

	while (n < BATCH && (rc = next(k, t, helps)) != TAKE_NOTHING) {
		n++;
		if (rc != TAKE_MESSAGE)
			continue;
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

static bool
has_accepts(struct weir_thread *t)
{
	bool any;

	weir_lock(t);
	any = !TAILQ_EMPTY(&t->accepts);
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
	while (k->listener && has_accepts(k->worker) && !weir_accept(k->listener, 0, &c)) {
		struct peer *p;

		pthread_mutex_lock(&m->lock);
		p = peer_get(m, c->peer_node);
		if (p && !peer_use(m, p, true)) {
			if (lane_accept(k, p, c))
				peer_unuse(m, p);
		} else {
			weir_close(c);
		}
		pthread_mutex_unlock(&m->lock);
	}
}

/* Takes messages of handler threads that are stuck in a handler. How many. */
static unsigned
help(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	unsigned n = 0;

	for (uint32_t i = 0; i < m->o.handler_threads; i++) {
		struct handler_thread *other = &m->pool[i];
		uint64_t since = atomic_load_explicit(&other->since, memory_order_relaxed);

		if (other == k || !since || weir_clock() - since < STUCK_NS)
			continue;
		n += pump(k, other->worker, true);
		accept_all(other);
	}
	return n;
}

/* ms that an idle handler thread may sleep. */
static uint64_t
nap_ms(struct handler_thread *k, bool stepping)
{
	struct weir_messenger *m = k->m;
	uint64_t now = weir_clock();
	bool busy = false;

	for (uint32_t i = 0; i < m->o.handler_threads; i++) {
		struct handler_thread *other = &m->pool[i];

		if (other == k)
			continue;
		if (atomic_load_explicit(&other->since, memory_order_relaxed))
			stepping = true;
		busy |= !atomic_load_explicit(&other->asleep, memory_order_relaxed);
	}
	if (busy)
		k->guard_until = now + GUARD_NS;
	return stepping ? 1 : now < k->guard_until ? GUARD_MS : TICK_MS;
}

/* ---- the threads ---- */

static void
work(struct handler_thread *k)
{
	struct pollfd called = {.fd = k->worker->wake_fd, .events = POLLIN};
	struct weir_messenger *m = k->m;
	struct weir_wait wait;
	uint64_t due = 0, ms, count;
	uint32_t turns = 0;

	weir_wait_init(&wait, k->worker, TICK_MS);
	wait.events = true;
	while (!atomic_load_explicit(&m->stop, memory_order_acquire)) {
		unsigned n = pump(k, k->worker, false);
		bool stepping = false, early;
		int rc;

		/* messages that waited for memory */
		if (weir_unlikely(atomic_load_explicit(&m->room_news, memory_order_relaxed))) {
			begin_batch(k);
			n += messages_admitted(k);
			set_since(k, 0);
		}
		if (has_accepts(k->worker))
			accept_all(k);
		if (!n)
			n = help(k);
		if (!k->index && (!n || ++turns % 256 == 0)) {
			events_report(m);
			pthread_mutex_lock(&m->lock);
			stepping = peers_step(m);
			pthread_mutex_unlock(&m->lock);
			if (weir_clock() >= due) {
				peers_look(m);
				due = weir_clock() + TICK_MS * 1000000ull;
			}
		}
		if (n) {
			weir_wait_end(&wait);
			weir_wait_init(&wait, k->worker, TICK_MS);
			wait.events = true;
			continue;
		}
		if (wait.armed) {
			ms = nap_ms(k, stepping);
			wait.deadline = weir_clock() + ms * 1000000u;
			atomic_store_explicit(&k->asleep, ms == TICK_MS ? 2 : 1,
					      memory_order_relaxed);
		}
		rc = weir_wait_next(&wait);
		if (rc == -EAGAIN) {
			wait.deadline = UINT64_MAX;
			continue;
		}
		if (!rc)
			continue;
		/* the session is over: handle its last messages and events until the close */
		weir_wait_end(&wait);
		early = k->rests < SHORT_RESTS;
		k->rests += early;
		if (poll(&called, 1, early ? 1 : TICK_MS) > 0)
			(void)!read(called.fd, &count, sizeof(count));
		weir_wait_init(&wait, k->worker, TICK_MS);
		wait.events = true;
	}
	weir_wait_end(&wait);
}

static int
open_thread(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	struct weir_listen_options o = {.backlog = 4096};
	char name[WEIR_SERVICE_MAX];
	int rc = 0;

	k->worker = weir_thread_own(m->w, &rc);
	if (!k->worker)
		return rc;
	k->sender = sender_get(m, &rc);
	if (!k->sender)
		return rc;
	if (m->o.flags & WEIR_MESSENGER_CLIENT || k->index >= m->receivers)
		return 0;
	snprintf(name, sizeof(name), k->index ? "%.27s.%u" : "%.27s", m->service, k->index);
	/* the first thread's name is the messenger's */
	if (m->o.flags & WEIR_MESSENGER_PUBLIC && !k->index)
		o.flags = WEIR_LISTEN_PUBLIC;
	return weir_listen_with(m->w, name, &o, &k->listener);
}

/* Reports the start. Handler threads look at each other: none begins before all are there. */
static void
started(struct handler_thread *k, int rc)
{
	struct weir_messenger *m = k->m;

	pthread_mutex_lock(&m->lock);
	k->status = rc;
	if (rc)
		snprintf(k->reason, sizeof(k->reason), "%s", weir_reason());
	k->started = true;
	m->working += !rc;
	pthread_cond_broadcast(&m->changed);
	while (!rc && !m->begun)
		pthread_cond_wait(&m->changed, &m->lock);
	pthread_mutex_unlock(&m->lock);
}

static void *
run(void *arg)
{
	struct handler_thread *k = arg;
	struct weir_messenger *m = k->m;
	struct weir_arena_head *head = (struct weir_arena_head *)m->w->arena;
	_Atomic uint32_t *lines = &m->w->handler_lines;
	uint32_t used, i;
	int rc = open_thread(k);

	started(k, rc);
	if (!rc) {
		/* a line of the arena's head for the thread */
		used = atomic_load(lines);
		do {
			for (i = 0; i < WEIR_HANDLER_LINES && used & 1u << i; i++)
				;
		} while (i < WEIR_HANDLER_LINES &&
			 !atomic_compare_exchange_weak(lines, &used, used | 1u << i));
		if (i < WEIR_HANDLER_LINES)
			k->line = &head->handler[i];
		work(k);
		if (k->line)
			atomic_fetch_and(lines, ~(1u << i));
		/* none ends before all have stopped */
		pthread_mutex_lock(&m->lock);
		m->working--;
		pthread_cond_broadcast(&m->changed);
		while (m->working)
			pthread_cond_wait(&m->changed, &m->lock);
		pthread_mutex_unlock(&m->lock);
	}
	weir_listener_close(k->listener);
	return NULL;
}

void
pool_call(struct weir_messenger *m)
{
	if (m->pool[0].worker)
		weir_wake_fd(m->pool[0].worker->wake_fd);
}

int
pool_start(struct weir_messenger *m)
{
	sigset_t all, before;
	int rc = 0;

	/* the others look at all of them */
	for (uint32_t i = 0; i < m->o.handler_threads; i++) {
		m->pool[i].m = m;
		m->pool[i].index = i;
		atomic_store(&m->pool[i].asleep, 2);
	}
	sigfillset(&all);
	for (uint32_t i = 0; i < m->o.handler_threads && !rc; i++) {
		struct handler_thread *k = &m->pool[i];

		pthread_sigmask(SIG_BLOCK, &all, &before);
		rc = -pthread_create(&k->thread, NULL, run, k);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		if (rc) {
			weir_fail(rc, "no handler thread: %s; raise the limit of threads",
				  strerror(-rc));
			break;
		}
		k->runs = true;
		pthread_mutex_lock(&m->lock);
		while (!k->started)
			pthread_cond_wait(&m->changed, &m->lock);
		pthread_mutex_unlock(&m->lock);
		rc = k->status;
		if (rc)
			weir_fail(rc, "%s", k->reason);
	}
	atomic_store_explicit(&m->stop, rc != 0, memory_order_relaxed);
	pthread_mutex_lock(&m->lock);
	m->begun = true;
	pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
	return rc;
}

void
pool_stop(struct weir_messenger *m)
{
	atomic_store_explicit(&m->stop, 1, memory_order_release);
	for (uint32_t i = 0; i < m->o.handler_threads; i++)
		if (m->pool[i].runs && m->pool[i].worker)
			weir_wake_fd(m->pool[i].worker->wake_fd);
	for (uint32_t i = 0; i < m->o.handler_threads; i++)
		if (m->pool[i].runs)
			pthread_join(m->pool[i].thread, NULL);
}
