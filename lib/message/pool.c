/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The threads that handlers run in. Each owns a worker, on which the lanes that chose it hang, and
 * takes turns (turn.c) until the messenger closes.
 */
#include "pool.h"
#include "handle.h"
#include "lane.h"
#include "model.h"
#include "peer.h"
#include "sender.h"
#include "turn.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define SHORT_RESTS 200 /* of 1 ms, while messages of a session that is over may remain */
#define GUARD_MS 4	/* between looks of an idle handler thread after busy ones */
#define GUARD_NS 100000000u

/* ---- starting, and starting again in another session ---- */

void
handler_line_take(struct handler_thread *k)
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
	if (k->line)
		handler_show(k, "");
}

void
handler_line_give(struct handler_thread *k)
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

void
handler_listen_again(struct handler_thread *k)
{
	weir_listener_close(k->listener);
	k->listener = NULL;
	k->listen_at = listen_on_name(k) ? weir_clock() + TICK_NS : 0;
}

int
handler_open(struct handler_thread *k)
{
	struct weir_messenger *m = k->m;
	int rc = 0;

	k->worker = weir_thread_own(m->w, &rc);
	if (!k->worker)
		return rc;
	k->sender = sender_get(m, &rc);
	return k->sender ? listen_on_name(k) : rc;
}

void
handler_spares_leave(struct handler_thread *k)
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

int
handler_rejoin(struct handler_thread *k)
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
	if (k->is_guest && s->worker != t)
		return guest_shares();
	handler_line_give(k);
	pthread_mutex_lock(&m->lock);
	handler_spares_leave(k);
	pthread_mutex_lock(&m->leaf);
	k->worker = t;
	pthread_mutex_unlock(&m->leaf);
	pthread_mutex_unlock(&m->lock);
	k->sender = s;
	k->rests = 0;
	handler_line_take(k);
	if (k->listener && !weir_listener_in(k->listener, t->w))
		handler_listen_again(k);
	for (; former; former = former->former)
		weir_threads_release(former);
	return 0;
}

/* ---- the threads ---- */

static __thread struct calling *calling;

void
calling_begin(struct calling *c, const struct weir_messenger *m)
{
	*c = (struct calling){.m = m, .outer = calling};
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

void
calling_turn(struct handler_thread *k)
{
	weir_assert(calling && calling->m == k->m);
	calling->handler = k;
}

struct handler_thread *
calling_handler(void)
{
	return calling ? calling->handler : NULL;
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
		unsigned n = handler_turn(k, BATCH, &stepping);
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
		if (handler_rejoin(k)) {
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
	rc = handler_open(k);
	started(k, rc);
	if (!rc) {
		handler_line_take(k);
		work(k);
		handler_line_give(k);
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

void
pool_call(struct weir_messenger *m)
{
	handler_wake(&m->pool[0]);
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
		rc = handler_open(first);
		if (!rc)
			handler_line_take(first);
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
		handler_line_give(k);
		weir_listener_close(k->listener);
		return;
	}
	for (uint32_t i = 0; i < m->o.handler_threads; i++)
		if (m->pool[i].runs)
			handler_wake(&m->pool[i]);
	for (uint32_t i = 0; i < m->o.handler_threads; i++)
		if (m->pool[i].runs)
			pthread_join(m->pool[i].thread, NULL);
}
