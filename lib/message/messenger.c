/* SPDX-License-Identifier: BSD-3-Clause */
/* Messengers: opening, closing, events and counters. */
#define _GNU_SOURCE
#include "messenger.h"
#include "handle.h"
#include "lane.h"
#include "model.h"
#include "peer.h"
#include "pool.h"
#include "request.h"
#include "room.h"
#include "sender.h"

#include "base/vec.h"
#include "client/membarrier.h"
#include "client/reason.h"
#include "client/sized.h"
#include "client/wait.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static _Atomic uint64_t serials = 1;

/* ---- options ---- */

static int
check(const struct weir_messenger_options *o)
{
	/* the names of the other handler threads are up to three characters longer */
	if (!o->service || !*o->service || strlen(o->service) > WEIR_SERVICE_MAX - 5)
		return weir_fail(-EINVAL,
				 "not a service name; give 1 to %u letters, digits, '_', "
				 "'-', '.'",
				 WEIR_SERVICE_MAX - 5);
	if (o->flags & ~(WEIR_MESSENGER_CLIENT | WEIR_MESSENGER_PUBLIC))
		return weir_fail(-EINVAL, "unknown flag; see WEIR_MESSENGER_* in weir/message.h");
	if (o->handler_threads > WEIR_HANDLER_THREADS_MAX)
		return weir_fail(-EINVAL, "%u handler threads; give at most %u", o->handler_threads,
				 WEIR_HANDLER_THREADS_MAX);
	if (o->receivers > o->handler_threads)
		return weir_fail(-EINVAL, "%u receivers of %u handler threads; give at most all",
				 o->receivers, o->handler_threads);
	if (!o->lanes || o->lanes > WEIR_LANES_MAX)
		return weir_fail(-EINVAL, "%u lanes; give 1 to %u", o->lanes, WEIR_LANES_MAX);
	if (!o->connections || o->connections > NODES)
		return weir_fail(-EINVAL, "a limit of %u connections; give 1 to %u", o->connections,
				 NODES);
	if (o->window && (o->window < MINIMUM_WINDOW || o->window > 1u << 30))
		return weir_fail(-EINVAL,
				 "a window of %u bytes; give 0 for the data plane's default, or "
				 "%u to %u",
				 o->window, MINIMUM_WINDOW, 1u << 30);
	if (!o->threshold || o->threshold > 90)
		return weir_fail(-EINVAL, "a threshold of %u %%; give 1 to 90", o->threshold);
	if (!o->request_timeout_ms || o->request_timeout_ms > INT32_MAX)
		return weir_fail(-EINVAL, "a request timeout of %u ms; give at least 1",
				 o->request_timeout_ms);
	if (o->message_max < WEIR_MESSAGE_WHOLE)
		return weir_fail(-EINVAL, "message_max of %llu bytes; give at least %u",
				 (unsigned long long)o->message_max, WEIR_MESSAGE_WHOLE);
	if (o->assembly_max && o->assembly_max < 4 * WEIR_MESSAGE_WHOLE)
		return weir_fail(-EINVAL,
				 "assembly_max of %llu bytes; give 0 for twice message_max, or at "
				 "least %u",
				 (unsigned long long)o->assembly_max, 4 * WEIR_MESSAGE_WHOLE);
	return 0;
}

/* ---- opening ---- */

static void
free_lanes(struct lane_spares *spares)
{
	struct lane *lane;

	while ((lane = SLIST_FIRST(spares))) {
		SLIST_REMOVE_HEAD(spares, spare);
		free(lane->held);
		free(lane);
	}
}

static void
messenger_free(struct weir_messenger *m)
{
	struct sender *s;

	while ((s = TAILQ_FIRST(&m->senders))) {
		TAILQ_REMOVE(&m->senders, s, next);
		free_lanes(&s->spares);
		for (uint32_t i = 0; i < NODES / NODE_PAGE; i++)
			free(s->page[i]);
		free(s->slots);
		completions_fini(&s->done);
		free(s);
	}
	free_lanes(&m->former);
	for (uint32_t i = 0; i < m->receiving; i++)
		free_lanes(&m->pool[i].spares);
	for (uint32_t i = 0; i < NODES / NODE_PAGE; i++) {
		for (uint32_t k = 0; m->peers[i] && k < NODE_PAGE; k++)
			free(m->peers[i][k]);
		free(m->peers[i]);
	}
	handlers_free(m);
	model_free(m);
	free(m->pool);
	free(m->events);
	pthread_key_delete(m->key);
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->leaf);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

/* Receivers by default: one that shares its CPU with an engine or receiver gains nothing. */
static uint32_t
receivers(const struct weir_messenger_options *o)
{
	uint32_t cpus = 1;
	cpu_set_t set;

	if (o->receivers || !o->handler_threads)
		return o->receivers ? o->receivers : 1;
	if (!sched_getaffinity(0, sizeof(set), &set))
		cpus = (uint32_t)CPU_COUNT(&set);
	if (cpus / 2 >= o->handler_threads)
		return o->handler_threads;
	return cpus < 2 ? 1 : cpus / 2;
}

static struct weir_messenger *
messenger_make(struct weir *w, const struct weir_messenger_options *o, uint32_t guests)
{
	struct weir_messenger *m = aligned_alloc(64, WEIR_ALIGN_UP(sizeof(*m), 64));
	pthread_condattr_t attr;

	if (!m)
		return NULL;
	memset(m, 0, sizeof(*m));
	m->w = w;
	m->o = *o;
	m->receivers = receivers(o);
	m->driven = !o->handler_threads;
	if (m->driven || o->flags & WEIR_MESSENGER_CLIENT)
		m->o.handler_threads = 1;
	m->serial = atomic_fetch_add(&serials, 1);
	if (getrandom(&m->incarnation, sizeof(m->incarnation), 0) < 0)
		m->incarnation = weir_clock();
	m->incarnation |= 1; /* never 0 */
	m->fence = !weir_barrier_private();
	snprintf(m->service, sizeof(m->service), "%s", o->service);
	TAILQ_INIT(&m->open);
	TAILQ_INIT(&m->stepping);
	TAILQ_INIT(&m->senders);
	LIST_INIT(&m->lanes);
	TAILQ_INIT(&m->exclusive);
	TAILQ_INIT(&m->room_waiting);
	TAILQ_INIT(&m->room_admitted);
	/* one node has half of it: enough for the longest message */
	m->room_max = o->message_max > UINT64_MAX / 2 ? UINT64_MAX : 2 * o->message_max;
	if (o->assembly_max)
		m->room_max = o->assembly_max;
	m->handlers = calloc(TYPES, sizeof(m->handlers[0]));
	m->receiving = m->o.handler_threads + guests;
	m->pool = aligned_alloc(64, m->receiving * sizeof(*m->pool));
	if (!m->handlers || !m->pool || pthread_key_create(&m->key, sender_leave)) {
		free(m->handlers);
		free(m->pool);
		free(m);
		return NULL;
	}
	memset(m->pool, 0, m->receiving * sizeof(*m->pool));
	pthread_mutex_init(&m->lock, NULL);
	pthread_mutex_init(&m->leaf, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* messenger_await()'s */
	pthread_cond_init(&m->changed, &attr);
	pthread_condattr_destroy(&attr);
	return m;
}

int
messenger_open(struct weir *w, const struct weir_messenger_options *options,
	       const struct message_model *model, struct weir_messenger **messenger)
{
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct weir_messenger *m;
	int rc;

	if (!messenger)
		return weir_fail(-EINVAL, "no place for the messenger; give one");
	w = weir_now(w);
	if (weir_state(w) != WEIR_UP)
		return weir_gone(w);
	rc = weir_sized_read(&o, sizeof(o), options, "WEIR_MESSENGER_OPTIONS_INIT");
	rc = rc ? rc : check(&o);
	if (rc)
		return rc;
	m = messenger_make(w, &o, model ? model->guests : 0);
	if (m && model && model_adopt(m, model)) {
		messenger_free(m);
		m = NULL;
	}
	if (!m)
		return weir_fail(-ENOMEM, "no memory for a messenger; free some");
	rc = pool_start(m);
	if (rc) {
		pool_stop(m);
		messenger_free(m);
		return rc;
	}
	*messenger = m;
	return 0;
}

int
weir_messenger_open(struct weir *w, const struct weir_messenger_options *options,
		    struct weir_messenger **messenger)
{
	return messenger_open(w, options, NULL, messenger);
}

/* ---- closing ---- */

static void
end_lanes(struct peer *p, int status)
{
	struct lane *lane, *next;

	for (lane = TAILQ_FIRST(&p->lanes); lane; lane = next) {
		next = TAILQ_NEXT(lane, in_peer);
		/* no call is under way: drafts that were neither sent nor abandoned */
		weir_lock(lane->worker);
		lane->pins = 0;
		weir_unlock(lane->worker);
		lane_end(lane, status);
	}
}

void
messenger_await(struct weir_messenger *m)
{
	struct timespec ts;

	weir_assert(is_locked(&m->lock));
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += 20000000;
	ts.tv_sec += ts.tv_nsec / 1000000000;
	ts.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&m->changed, &m->lock, &ts);
}

int
weir_messenger_close(struct weir_messenger *m)
{
	uint64_t end = weir_clock() + LEAVE_NS;
	struct peer *p, *next;
	struct sender *s;
	struct calling calling;
	struct weir *w;
	int status;

	if (!m || weir_state(m->w) == WEIR_FORKED)
		return 0;
	if (is_calling(m))
		return weir_fail(-EDEADLK, "called from a handler of the messenger; close it when "
					   "the handler has returned");
	calling_begin(&calling, m);
	for (uint32_t i = m->o.handler_threads; i < m->receiving; i++)
		guest_leave(&m->pool[i]);
	pthread_mutex_lock(&m->lock);
	TAILQ_FOREACH(s, &m->senders, next)
	requests_cancel(s, UINT32_MAX);
	/* also those that were made, and sent on, without being accepted yet */
	while ((m->connected || peer_strangers_leave(m) || pool_has_accepts(m)) &&
	       weir_state(m->w) == WEIR_UP && weir_clock() < end) {
		TAILQ_FOREACH(p, &m->open, in_open)
		peer_leave(m, p, PEER_LEAVING);
		if (!m->driven) {
			messenger_await(m);
			continue;
		}
		pthread_mutex_unlock(&m->lock);
		pool_last_turn(m);
		pthread_mutex_lock(&m->lock);
	}
	pthread_mutex_unlock(&m->lock);
	pool_stop(m);
	room_close(m);
	/* lanes are left when the time, or the data plane, is over */
	pthread_mutex_lock(&m->lock);
	status = weir_state(m->w) == WEIR_UP ? 0 : weir_loss(m->w);
	for (p = TAILQ_FIRST(&m->open); p; p = next) {
		next = TAILQ_NEXT(p, in_open);
		end_lanes(p, status);
	}
	if (m->strangers)
		end_lanes(m->strangers, status);
	pthread_mutex_unlock(&m->lock);
	events_report(m);
	TAILQ_FOREACH(s, &m->senders, next)
	completions_report(s, UINT32_MAX, NULL);
	calling_end(&calling);
	w = m->w;
	messenger_free(m);
	for (; w; w = w->former)
		if (weir_state(w) != WEIR_UP)
			weir_threads_release(w);
	return 0;
}

/* ---- events and counters ---- */

void
event_add(struct weir_messenger *m, const struct event *e)
{
	weir_assert(is_locked(&m->lock));
	if (VEC_RESERVE(m->events, m->event_room, m->event_count + 1))
		return;
	m->events[m->event_count++] = *e;
	pool_call(m);
}

unsigned
events_report(struct weir_messenger *m)
{
	struct weir_guard *guard = m->pool[0].guard;
	struct event *events;
	uint32_t n;

	pthread_mutex_lock(&m->lock);
	events = m->events;
	n = m->event_count;
	m->events = NULL;
	m->event_count = m->event_room = 0;
	pthread_mutex_unlock(&m->lock);
	if (n && guard)
		weir_guard_end(guard);
	for (uint32_t i = 0; i < n; i++) {
		const struct event *e = &events[i];

		if (!e->link)
			message_broken(&m->pool[0], e->node, &e->broken);
		else if (m->o.link)
			m->o.link(e->node, e->link, e->status, m->o.user);
	}
	free(events);
	return n;
}

int
weir_messenger_stats(const struct weir_messenger *messenger, struct weir_messenger_stats *given)
{
	struct weir_messenger *m = (struct weir_messenger *)(uintptr_t)messenger;
	struct weir_messenger_stats stats = WEIR_MESSENGER_STATS_INIT;
	struct sender *s;

	pthread_mutex_lock(&m->lock);
	for (uint32_t i = 0; i < m->receiving; i++) {
		struct handler_thread *k = &m->pool[i];

		stats.handled += atomic_load_explicit(&k->handled, memory_order_relaxed);
		stats.unknown += atomic_load_explicit(&k->unknown, memory_order_relaxed);
		stats.malformed += atomic_load_explicit(&k->malformed, memory_order_relaxed);
		stats.oversized += atomic_load_explicit(&k->oversized, memory_order_relaxed);
		stats.taken_over += atomic_load_explicit(&k->taken_over, memory_order_relaxed);
	}
	TAILQ_FOREACH(s, &m->senders, next)
	{
		stats.late += atomic_load_explicit(&s->late, memory_order_relaxed);
		stats.malformed += atomic_load_explicit(&s->malformed, memory_order_relaxed);
	}
	stats.created = m->created;
	stats.lost = m->lost;
	stats.evicted = m->evicted;
	stats.stalled = m->stalled;
	pthread_mutex_unlock(&m->lock);
	return weir_sized_write(given, &stats, sizeof(stats), "WEIR_MESSENGER_STATS_INIT");
}
