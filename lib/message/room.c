/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for messages in fragments: reserved with the first fragment, for the whole message, so
 * that each message that has begun can become whole. All together have `assembly_max`, those of one
 * node half of that. A message that finds no room waits, and its lane with it; others go on.
 */
#include "room.h"
#include "handle.h"
#include "lane.h"
#include "peer.h"
#include "pool.h"

#include "client/thread.h"

#include <errno.h>

static uint64_t
share(const struct weir_messenger *m)
{
	return m->room_max / 2;
}

/* m->leaf. */
static void
reserve(struct lane *lane, uint64_t bytes)
{
	weir_assert(bytes <= lane->m->room_max - lane->m->room_used && !lane->in.reserved);
	lane->m->room_used += bytes;
	lane->peer->room_used += bytes;
	lane->in.reserved = bytes;
}

/*
 * Admits messages in the order of arrival: a small one doesn't overtake a large one that waits for
 * room, so the large one finds some in the end. A message that waits for its own node's share holds
 * up that node alone. m->leaf.
 */
static void
admit(struct weir_messenger *m)
{
	struct held *e, *next;

	weir_assert(is_locked(&m->leaf));
	m->room_passes++;
	m->room_full = false;
	for (e = TAILQ_FIRST(&m->room_waiting); e && !m->room_full; e = next) {
		struct peer *p = e->lane->peer;

		next = TAILQ_NEXT(e, next);
		if (p->room_pass == m->room_passes || e->bytes > share(m) - p->room_used) {
			p->room_pass = m->room_passes;
		} else if (e->bytes > m->room_max - m->room_used) {
			m->room_full = true;
		} else {
			reserve(e->lane, e->bytes);
			TAILQ_REMOVE(&m->room_waiting, e, next);
			TAILQ_INSERT_TAIL(&m->room_admitted, e, next);
			atomic_store_explicit(&m->room_news, 1, memory_order_relaxed);
		}
	}
}

/* m->leaf. */
static struct held *
take_admitted(struct weir_messenger *m)
{
	struct held *e = TAILQ_FIRST(&m->room_admitted);

	weir_assert(is_locked(&m->leaf));
	if (e)
		TAILQ_REMOVE(&m->room_admitted, e, next);
	if (TAILQ_EMPTY(&m->room_admitted))
		atomic_store_explicit(&m->room_news, 0, memory_order_relaxed);
	return e;
}

int
room_take(struct handler_thread *k, uint64_t bytes)
{
	struct weir_messenger *m = k->m;
	struct lane *lane = k->lane;
	uint64_t life = k->life;
	struct held *e;
	bool ends;

	if (bytes > share(m))
		return -EMSGSIZE;
	pthread_mutex_lock(&m->leaf);
	if (TAILQ_EMPTY(&m->room_waiting) && bytes <= share(m) - lane->peer->room_used &&
	    bytes <= m->room_max - m->room_used) {
		reserve(lane, bytes);
		pthread_mutex_unlock(&m->leaf);
		return 0;
	}
	e = lane_held(lane);
	if (!e) {
		pthread_mutex_unlock(&m->leaf);
		return -EMSGSIZE;
	}
	message_hold(k, e);
	e->bytes = bytes;
	TAILQ_INSERT_TAIL(&m->room_waiting, e, next);
	admit(m);
	pthread_mutex_unlock(&m->leaf);
	weir_lock(lane->worker);
	ends = lane->life == life && lane->closing;
	weir_unlock(lane->worker);
	if (ends) /* the lane ended before its message waited */
		room_forget(lane, life);
	return -EAGAIN;
}

void
room_give(struct lane *lane)
{
	struct weir_messenger *m = lane->m;
	bool news;

	if (!lane->in.reserved)
		return;
	pthread_mutex_lock(&m->leaf);
	weir_assert(m->room_used >= lane->in.reserved);
	m->room_used -= lane->in.reserved;
	lane->peer->room_used -= lane->in.reserved;
	lane->in.reserved = 0;
	admit(m);
	news = !TAILQ_EMPTY(&m->room_admitted);
	pthread_mutex_unlock(&m->leaf);
	if (news)
		pool_call(m);
}

struct held *
room_next(struct weir_messenger *m)
{
	struct held *e;

	if (weir_likely(!atomic_load_explicit(&m->room_news, memory_order_relaxed)))
		return NULL;
	pthread_mutex_lock(&m->leaf);
	e = take_admitted(m);
	pthread_mutex_unlock(&m->leaf);
	return e;
}

void
room_forget(struct lane *lane, uint64_t life)
{
	struct weir_messenger *m = lane->m;
	struct held *e;

	pthread_mutex_lock(&m->leaf);
	TAILQ_FOREACH(e, &m->room_waiting, next)
	if (e->lane == lane && e->life == life)
		break;
	if (e) {
		TAILQ_REMOVE(&m->room_waiting, e, next);
		TAILQ_INSERT_TAIL(&m->room_admitted, e, next);
		atomic_store_explicit(&m->room_news, 1, memory_order_relaxed);
		admit(m); /* it may have held up others */
	}
	pthread_mutex_unlock(&m->leaf);
	if (e)
		pool_call(m);
}

bool
room_wanted(struct weir_messenger *m, const struct peer *p)
{
	bool wanted;

	pthread_mutex_lock(&m->leaf);
	wanted = !TAILQ_EMPTY(&m->room_waiting) && (m->room_full || p->room_pass == m->room_passes);
	pthread_mutex_unlock(&m->leaf);
	return wanted;
}

void
room_close(struct weir_messenger *m)
{
	struct handler_thread *k = &m->pool[0];
	struct held *e;

	pthread_mutex_lock(&m->leaf);
	TAILQ_CONCAT(&m->room_admitted, &m->room_waiting, next);
	while ((e = take_admitted(m))) {
		pthread_mutex_unlock(&m->leaf);
		message_resume(k, e);
		message_finish(k);
		pthread_mutex_lock(&m->leaf);
	}
	pthread_mutex_unlock(&m->leaf);
}
