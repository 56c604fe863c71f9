/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The threads that handlers run in. Each owns a worker, on which the lanes that chose it hang, and
 * takes messages from the rings straight to their handlers. While one is in a handler for long, the
 * others take messages of its other lanes.
 */
#include "pool.h"
#include "handle.h"
#include "lane.h"
#include "model.h"
#include "peer.h"
#include "receive.h"
#include "sender.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"
#include "stream/reconnect.h"
#include "stream/rx_queue.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define BATCH 64u	  /* messages between looks at everything else */
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

/* The worker, and its descriptor, may be replaced meanwhile: not under leaf. */
static void
wake(struct handler_thread *k)
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
		wake(other);
}

/* Messages of a worker, at most `most`. How much was done. */
static unsigned
pump(struct handler_thread *k, struct weir_thread *t, bool helps, unsigned most)
{
	unsigned n = 0, messages = 0;
	int rc;

	while (n < BATCH && messages < most && (rc = next(k, t, helps)) != TAKE_NOTHING) {
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
has_accepts(struct weir_thread *t, bool driven)
{
	bool any;

	weir_lock(t);
	any = !TAILQ_EMPTY(&t->lane_accepts);
	if (!driven)
		t->node_count = 0; /* lanes notice lost nodes */
	weir_unlock(t);
	return any;
}

bool
pool_has_accepts(struct weir_messenger *m)
{
	struct handler_thread *k;
	bool any = false;

	for (uint32_t i = 0; i < m->o.handler_threads && !any; i++) {
		k = &m->pool[i];
		if (!k->listener)
			continue;
		weir_lock(k->worker);
		weir_progress(k->worker, NULL);
		any = !TAILQ_EMPTY(&k->worker->lane_accepts);
		weir_unlock(k->worker);
	}
	return any;
}

static void
accept_all(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	struct weir_conn *c;

	/* weir_accept() of a session that is over would listen in the next one */
	while (k->listener && has_accepts(k->worker, m->driven) &&
	       !weir_accept(k->listener, 0, &c)) {
		struct peer *p;

		pthread_mutex_lock(&m->lock);
		p = m->model ? model_stranger(m, c->peer_node) : peer_get(m, c->peer_node);
		if (p && (p == m->strangers || !peer_use(m, p, true))) {
			if (lane_accept(k, p, c))
				peer_unuse(m, p);
		} else {
			weir_close(c);
		}
		pthread_mutex_unlock(&m->lock);
	}
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

/* ---- turns ---- */

static void listen_again(struct handler_thread *k);

/* One turn, with at most `most` messages. *stepping: a connection is closing. How much was done. */
static unsigned
turn(struct handler_thread *k, unsigned most, bool *stepping)
{
	struct weir_messenger *m = k->m;
	unsigned n = pump(k, k->worker, false, most);
	bool idle;

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
		listen_again(k);
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

/* The same of a guest, which takes no part in the work of the handler threads. */
static unsigned
guest_turn(struct handler_thread *k, unsigned most)
{
	unsigned n = pump(k, k->worker, false, most);

	if (has_accepts(k->worker, true))
		accept_all(k);
	if (weir_unlikely(k->listen_at && weir_clock() >= k->listen_at))
		listen_again(k);
	return n;
}

/* ---- starting, and starting again in another session ---- */

/* Takes a line of the arena's head, if one is free. */
static void
line_take(struct handler_thread *k)
{
	struct weir *w = k->worker->w;
	struct weir_arena_head *head = (struct weir_arena_head *)w->arena;
	uint32_t used = atomic_load(&w->handler_lines), i;

	do {
		for (i = 0; i < WEIR_HANDLER_LINES && used & 1u << i; i++)
			;
	} while (i < WEIR_HANDLER_LINES &&
		 !atomic_compare_exchange_weak(&w->handler_lines, &used, used | 1u << i));
	if (i < WEIR_HANDLER_LINES)
		k->line = &head->handler[i];
}

static void
line_give(struct handler_thread *k)
{
	struct weir *w = k->worker->w;
	struct weir_arena_head *head = (struct weir_arena_head *)w->arena;

	if (k->line)
		atomic_fetch_and(&w->handler_lines, ~(1u << (k->line - head->handler)));
	k->line = NULL;
}

static int
listen_on_name(struct handler_thread *k)
{
	struct weir_listen_options o = {.size = sizeof(o), .backlog = 4096};
	struct weir_messenger *m = k->m;
	char name[WEIR_SERVICE_MAX];

	if (!k->is_guest && (m->o.flags & WEIR_MESSENGER_CLIENT || k->index >= m->receivers))
		return 0;
	if (k->is_guest)
		messenger_name(m, m->model->self, k->index, 0, name);
	else
		snprintf(name, sizeof(name), k->index ? "%.27s.%u" : "%.27s", m->service, k->index);
	/* the first thread's name is the messenger's */
	if (m->o.flags & WEIR_MESSENGER_PUBLIC && k == m->pool)
		o.flags = WEIR_LISTEN_PUBLIC;
	return weir_listen_lanes(m->w, name, &o, &k->listener);
}

/* Another program has taken the name while the data plane was gone: tries until the name is free.
 */
static void
listen_again(struct handler_thread *k)
{
	weir_listener_close(k->listener);
	k->listener = NULL;
	k->listen_at = listen_on_name(k) ? weir_clock() + TICK_NS : 0;
}

static int
open_thread(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	int rc = 0;

	k->worker = weir_thread_own(m->w, &rc);
	if (!k->worker)
		return rc;
	k->sender = sender_get(m, &rc);
	return k->sender ? listen_on_name(k) : rc;
}

/* k goes to another worker. m->lock. */
static void
spares_leave(struct handler_thread *k)
{
	struct lane *lane;

	while ((lane = SLIST_FIRST(&k->spares))) {
		SLIST_REMOVE_HEAD(&k->spares, spare);
		SLIST_INSERT_HEAD(&k->m->former, lane, spare);
	}
}

/* Whether lanes of k's worker have messages left, or have not ended yet. m->lock. */
static bool
has_lanes(const struct handler_thread *k, const struct peer *p)
{
	const struct lane *lane;
	bool any = false;

	TAILQ_FOREACH(lane, &p->lanes, in_peer)
	any |= lane->worker == k->worker && lane->conn && !lane->closing;
	return any;
}

/*
 * k's session is over. Once the program has attached again, and the messages that had come are
 * handled, k goes on in the new session. 0: it has; -EAGAIN: not yet, or why there is no session.
 */
static int
rejoin(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	struct weir *former = k->worker->w;
	struct weir_thread *t;
	struct sender *s;
	struct peer *p;
	bool any;
	int rc = messenger_follow(m);

	if (rc || m->w == former)
		return rc ? rc : -EAGAIN;
	pthread_mutex_lock(&m->lock);
	any = m->strangers && has_lanes(k, m->strangers);
	TAILQ_FOREACH(p, &m->open, in_open)
	any |= has_lanes(k, p);
	pthread_mutex_unlock(&m->lock);
	if (any)
		return -EAGAIN;
	t = weir_thread_own(m->w, &rc); /* its listeners follow */
	s = t ? sender_get(m, &rc) : NULL;
	if (!s)
		return rc;
	line_give(k);
	pthread_mutex_lock(&m->lock);
	spares_leave(k);
	pthread_mutex_lock(&m->leaf);
	k->worker = t;
	pthread_mutex_unlock(&m->leaf);
	pthread_mutex_unlock(&m->lock);
	k->sender = s;
	k->rests = 0;
	line_take(k);
	if (k->listener && !weir_listener_in(k->listener, t->w))
		listen_again(k);
	for (; former; former = former->former)
		weir_threads_release(former);
	return 0;
}

/* ---- the threads ---- */

static __thread struct calling *calling;

void
calling_begin(struct calling *c, const struct weir_messenger *m)
{
	*c = (struct calling){m, calling};
	calling = c;
}

void
calling_end(struct calling *c)
{
	weir_assert(calling == c);
	calling = c->outer;
}

bool
is_calling(const struct weir_messenger *m)
{
	const struct calling *c = calling;

	while (c && c->m != m)
		c = c->outer;
	return c;
}

static void
work(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	struct weir_wait wait;
	struct pollfd called;
	uint64_t ms, count;

	weir_wait_init(&wait, k->worker, TICK_MS);
	wait.events = true;
	while (!atomic_load_explicit(&m->stop, memory_order_acquire)) {
		bool stepping, early;
		unsigned n = turn(k, BATCH, &stepping);
		int rc;

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
		/* the session is over: handle its last messages and events until another one */
		weir_wait_end(&wait);
		if (rejoin(k)) {
			early = k->rests < SHORT_RESTS;
			k->rests += early;
			called = (struct pollfd){.fd = k->worker->wake_fd, .events = POLLIN};
			if (poll(&called, 1, early ? 1 : TICK_MS) > 0)
				(void)!read(called.fd, &count, sizeof(count));
		}
		weir_wait_init(&wait, k->worker, TICK_MS);
		wait.events = true;
	}
	weir_wait_end(&wait);
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
	struct calling c;
	int rc;

	calling_begin(&c, m);
	weir_guard_exempt();
	rc = open_thread(k);
	started(k, rc);
	if (!rc) {
		line_take(k);
		work(k);
		line_give(k);
		/* none ends before all have stopped */
		pthread_mutex_lock(&m->lock);
		m->working--;
		pthread_cond_broadcast(&m->changed);
		while (m->working)
			pthread_cond_wait(&m->changed, &m->lock);
		pthread_mutex_unlock(&m->lock);
	}
	weir_listener_close(k->listener);
	calling_end(&c);
	return NULL;
}

void
pool_call(struct weir_messenger *m)
{
	wake(&m->pool[0]);
}

int
pool_start(struct weir_messenger *m)
{
	struct handler_thread *first = &m->pool[0];
	sigset_t all, before;
	int rc = 0;

	for (uint32_t i = m->o.handler_threads; i < m->receiving; i++) {
		m->pool[i].m = m;
		m->pool[i].index = i - m->o.handler_threads;
		m->pool[i].is_guest = true;
	}

	if (m->driven) { /* no thread: the caller is the one that drives */
		first->m = m;
		first->thread = pthread_self();
		rc = open_thread(first);
		if (!rc)
			line_take(first);
		m->begun = true;
		return rc;
	}
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
	struct handler_thread *k = &m->pool[0];

	atomic_store_explicit(&m->stop, 1, memory_order_release);
	if (m->driven && k->sender) {
		line_give(k);
		weir_listener_close(k->listener);
		return;
	}
	for (uint32_t i = 0; i < m->o.handler_threads; i++)
		if (m->pool[i].runs)
			wake(&m->pool[i]);
	for (uint32_t i = 0; i < m->o.handler_threads; i++)
		if (m->pool[i].runs)
			pthread_join(m->pool[i].thread, NULL);
}

/* ---- guests ---- */

struct handler_thread *
guest_own(const struct weir_messenger *m)
{
	pthread_t self = pthread_self();

	for (uint32_t i = m->o.handler_threads; i < m->receiving; i++)
		if (atomic_load_explicit(&m->pool[i].entered, memory_order_relaxed) == self)
			return &m->pool[i];
	return NULL;
}

/* Ends lanes to the guest. m->lock. */
static void
end_lanes_to(const struct handler_thread *k, struct peer *p)
{
	struct lane *lane, *next;

	for (lane = TAILQ_FIRST(&p->lanes); lane; lane = next) {
		next = TAILQ_NEXT(lane, in_peer);
		if (!lane->sender && lane->receiver == k->index)
			lane_end(lane, 0);
	}
}

void
guest_leave(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	struct peer *p, *next;

	if (!atomic_load_explicit(&k->entered, memory_order_relaxed))
		return;
	weir_listener_close(k->listener);
	k->listener = NULL;
	k->listen_at = 0;
	if (k->worker)
		line_give(k);
	pthread_mutex_lock(&m->lock);
	for (p = TAILQ_FIRST(&m->open); p; p = next) {
		next = TAILQ_NEXT(p, in_open);
		end_lanes_to(k, p);
	}
	end_lanes_to(k, m->strangers);
	spares_leave(k);
	pthread_mutex_lock(&m->leaf);
	k->worker = NULL;
	pthread_mutex_unlock(&m->leaf);
	pthread_mutex_unlock(&m->lock);
	k->sender = NULL;
	/* pairs with the acquire in message_enter() */
	atomic_store_explicit(&k->entered, 0, memory_order_release);
}

int
message_enter(struct weir_messenger *m, uint32_t guest)
{
	struct handler_thread *k;
	pthread_t none = 0;
	int rc;

	weir_assert(m->model);
	if (guest >= m->model->guests)
		return weir_fail(-EINVAL, "receiver %u of %u; give a number below that", guest,
				 m->model->guests);
	if (guest_own(m))
		return weir_fail(-EALREADY, "the thread receives already; let it leave first");
	rc = messenger_follow(m);
	if (rc)
		return rc;
	k = &m->pool[m->o.handler_threads + guest];
	/* pairs with the release in guest_leave() */
	if (!atomic_compare_exchange_strong_explicit(&k->entered, &none, pthread_self(),
						     memory_order_acquire, memory_order_relaxed))
		return weir_fail(-EBUSY, "another thread is receiver %u; let it leave first",
				 guest);
	rc = open_thread(k);
	if (!rc && k->sender->worker != k->worker)
		rc = weir_fail(-ENOSPC, "the thread shares its lanes; raise `lanes`");
	if (rc)
		guest_leave(k);
	else
		line_take(k);
	return rc;
}

int
message_leave(struct weir_messenger *m)
{
	struct handler_thread *k = guest_own(m);

	if (!k)
		return weir_fail(-ENOENT, "the thread does not receive; nothing is to be done");
	if (is_calling(m))
		return weir_fail(-EDEADLK, "called from a function of the messenger; leave when it "
					   "has returned");
	guest_leave(k);
	return 0;
}

/* ---- a messenger without handler threads ---- */

bool
pool_is_driver(const struct weir_messenger *m)
{
	return m->driven && pthread_equal(m->pool[0].thread, pthread_self());
}

void
pool_step(struct weir_messenger *m)
{
	struct handler_thread *k = &m->pool[0];

	if (weir_likely(!pool_is_driver(m)))
		return;
	pthread_mutex_lock(&m->lock);
	peers_step(m);
	pthread_mutex_unlock(&m->lock);
	if (weir_clock() >= k->due) {
		peers_look(m);
		k->due = weir_clock() + TICK_NS;
	}
}

void
pool_last_turn(struct weir_messenger *m)
{
	struct handler_thread *k = &m->pool[0];
	bool stepping;

	k->thread = pthread_self();
	k->inside = true;
	if (!turn(k, BATCH, &stepping))
		weir_sleep(50000);
	k->inside = false;
}

/* Leaves WEIR_EVENT_MESSAGES due if there is more for the thread, and only then. */
static void
leave_news(struct sender *s)
{
	struct weir_thread *t = s->worker;
	bool more;

	weir_lock(t);
	more = !TAILQ_EMPTY(&t->lanes) || !TAILQ_EMPTY(&t->lane_accepts) ||
	       atomic_load_explicit(&s->done.pending, memory_order_relaxed);
	atomic_store_explicit(&t->lane_news, more, memory_order_relaxed);
	weir_unlock(t);
}

/* The handler thread that the calling thread is; NULL: none. */
static struct handler_thread *
own_handler(struct weir_messenger *m)
{
	if (pool_is_driver(m))
		return &m->pool[0];
	return m->model ? guest_own(m) : NULL;
}

/* The sender of the calling thread, which is handler thread k, if its session is over and all is
 * reported that of the present one. NULL: *rc says why. */
static struct sender *
own_sender(struct weir_messenger *m, const struct handler_thread *k, int *rc)
{
	struct sender *s = k ? k->sender : pthread_getspecific(m->key);

	if (s && (k || weir_state(s->worker->w) != WEIR_DEAD || completions_left(s)))
		return s;
	return sender_get(m, rc);
}

/* One turn of k, in the program's thread. Returns the number of calls of the program, or why the
 * session is over. */
static inline __attribute__((always_inline)) int
progress_handler(struct handler_thread *k, unsigned most, struct weir_guard *guard)
{
	uint64_t before = atomic_load_explicit(&k->handled, memory_order_relaxed);
	bool stepping;
	unsigned n;
	int rc = 0;

	k->inside = true;
	k->guard = guard;
	k->told = 0;
	n = k->is_guest ? guest_turn(k, most) : turn(k, most, &stepping);
	if (!n && weir_unlikely(weir_state(k->worker->w) != WEIR_UP))
		rc = rejoin(k);
	k->guard = NULL;
	k->inside = false;
	if (rc && rc != -EAGAIN)
		return rc;
	return (int)(atomic_load_explicit(&k->handled, memory_order_relaxed) - before + k->told);
}

/* The same of the thread that drives, k, as a guest, if it is one; `calls` were made before. */
static __attribute__((noinline)) int
progress_as_guest(struct handler_thread *k, int calls, unsigned most, struct weir_guard *guard)
{
	struct handler_thread *guest = guest_own(k->m);
	int rc;

	if (!guest)
		return calls;
	k->inside = true;
	rc = progress_handler(guest, most, guard);
	k->inside = false;
	return rc < 0 && !calls ? rc : calls + (rc > 0 ? rc : 0);
}

/* One turn of a thread, which is handler thread k. As progress_handler(). */
static int
progress(struct weir_messenger *m, struct sender *s, struct handler_thread *k, unsigned most,
	 struct weir_guard *guard)
{
	struct weir_thread *t = s->worker;
	struct calling c;
	unsigned n;
	int rc = 0;

	calling_begin(&c, m);
	n = completions_report(s, most, guard);
	if (weir_unlikely(weir_thread_get(t->w) == t && t->fd_armed))
		weir_thread_disarm_fd(t);
	if (n < most && k) {
		rc = progress_handler(k, most - n, guard);
		if (weir_unlikely(m->model != NULL) && !k->is_guest && rc >= 0 &&
		    n + (unsigned)rc < most)
			rc = progress_as_guest(k, rc, most - n - (unsigned)rc, guard);
	} else if (n < most) {
		weir_lock(t);
		sender_take(s, NULL);
		weir_unlock(t);
	}
	n += rc > 0 ? (unsigned)rc : 0;
	if (n < most)
		n += completions_report(s, most - n, guard);
	calling_end(&c);
	return n ? (int)n : rc;
}

int
weir_messenger_progress(struct weir_messenger *m, unsigned max, int timeout_ms)
{
	struct handler_thread *k = own_handler(m);
	uint64_t end = UINT64_MAX, now, ms;
	struct weir_wait wait;
	struct weir_thread *t;
	struct sender *s;
	int rc = 0, n = 0;

	if (k && k->inside)
		return weir_fail(-EINVAL, "called from a handler; let the handler return");
	if (weir_state(m->w) == WEIR_FORKED)
		return weir_gone(m->w);
	s = own_sender(m, k, &rc);
	if (!s)
		return rc;
	t = k ? k->worker : s->worker;
	weir_wait_init(&wait, t, 0);
	if (timeout_ms > 0)
		end = weir_clock() + (uint64_t)timeout_ms * 1000000u;
	while (!(n = progress(m, s, k, max ? max : BATCH, &wait.guard)) && timeout_ms && !rc) {
		/* the thread that drives has housekeeping to do, too */
		t = k ? k->worker : s->worker;
		if (!wait.timeout_ms || wait.worker != t) {
			weir_wait_end(&wait);
			now = weir_clock();
			ms = end > now ? (end - now + 999999) / 1000000u : 0;
			weir_wait_init(&wait, t, ms < TICK_MS ? (int)ms : TICK_MS);
			wait.events = k;
		}
		rc = weir_wait_next(&wait);
		if (rc == -EAGAIN || weir_is_loss(rc)) {
			weir_wait_end(&wait);
			wait.timeout_ms = 0;
			if (rc != -EAGAIN) /* until its lanes have ended */
				weir_sleep(200000);
			rc = 0;
		}
		if (weir_clock() >= end)
			break;
		s = own_sender(m, k, &rc);
		if (!s)
			break;
	}
	weir_wait_end(&wait);
	if (s)
		leave_news(s);
	return n ? n : rc;
}

int
weir_messenger_fd(struct weir_messenger *m)
{
	int rc = 0;
	struct sender *s = sender_get(m, &rc);

	return s ? weir_fd(m->w) : rc;
}

int
weir_messenger_arm(struct weir_messenger *m)
{
	struct handler_thread *k = own_handler(m);
	bool drives = pool_is_driver(m), busy = false, timed;
	struct weir_thread *t;
	struct sender *s;
	uint64_t now;
	int rc = 0;

	s = sender_get(m, &rc);
	if (!s)
		return rc;
	t = s->worker;
	/* the sender's worker is shared with other threads, or is not the one that receives */
	if (weir_thread_get(t->w) != t || (k && k->worker != t))
		return -EAGAIN;
	leave_news(s);
	if (drives) {
		now = weir_clock();
		pthread_mutex_lock(&m->lock);
		timed = m->connected || k->listen_at;
		busy = m->event_count || !TAILQ_EMPTY(&m->stepping) ||
		       atomic_load_explicit(&m->room_news, memory_order_relaxed) || now >= k->due;
		if (!busy && (timed || t->timer_at))
			weir_reconnect_timer(t, timed ? (uint32_t)((k->due - now) / 1000000u) + 1
						      : UINT32_MAX);
		pthread_mutex_unlock(&m->lock);
	} else if (k && k->listen_at) {
		weir_reconnect_timer(t, TICK_MS);
	}
	return busy ? -EAGAIN : weir_arm(m->w);
}
