/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads of the program that take messages: guests of a model's messenger, and the thread that
 * drives a messenger without handler threads.
 */
#include "handle.h"
#include "lane.h"
#include "model.h"
#include "peer.h"
#include "pool.h"
#include "sender.h"
#include "turn.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"
#include "stream/reconnect.h"

#include <errno.h>

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
		handler_line_give(k);
	pthread_mutex_lock(&m->lock);
	for (p = TAILQ_FIRST(&m->open); p; p = next) {
		next = TAILQ_NEXT(p, in_open);
		end_lanes_to(k, p);
	}
	end_lanes_to(k, m->strangers);
	handler_spares_leave(k);
	pthread_mutex_lock(&m->leaf);
	k->worker = NULL;
	pthread_mutex_unlock(&m->leaf);
	pthread_mutex_unlock(&m->lock);
	k->sender = NULL;
	/* pairs with the acquire in message_enter() */
	atomic_store_explicit(&k->entered, 0, memory_order_release);
}

/* Lanes that another guest left on k's worker are k's. m->lock. */
static void
spares_take(struct handler_thread *k)
{
	struct lane_spares former = k->m->former;
	struct lane *lane;

	weir_assert(is_locked(&k->m->lock));
	SLIST_INIT(&k->m->former);
	while ((lane = SLIST_FIRST(&former))) {
		SLIST_REMOVE_HEAD(&former, spare);
		if (lane->worker == k->worker && !lane->sender)
			SLIST_INSERT_HEAD(&k->spares, lane, spare);
		else
			SLIST_INSERT_HEAD(&k->m->former, lane, spare);
	}
}

int
guest_shares(void)
{
	return weir_fail(-ENOSPC, "the thread shares its lanes; raise `lanes`");
}

int
message_enter(struct weir_messenger *m, uint32_t guest)
{
	struct handler_thread *k;
	pthread_t none = 0;
	int rc;

	weir_assert(m->model);
	if (is_calling(m))
		return weir_fail(-EDEADLK, "called from a function of the messenger; enter when it "
					   "has returned");
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
	rc = handler_open(k);
	if (!rc && k->sender->worker != k->worker)
		rc = guest_shares();
	if (rc) {
		guest_leave(k);
		return rc;
	}
	handler_line_take(k);
	pthread_mutex_lock(&m->lock);
	spares_take(k);
	pthread_mutex_unlock(&m->lock);
	return 0;
}

void
message_wake(struct weir_messenger *m, uint32_t guest)
{
	handler_wake(&m->pool[m->o.handler_threads + guest]);
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
	if (!handler_turn(k, BATCH, &stepping))
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
	n = k->is_guest ? guest_turn(k, most) : handler_turn(k, most, &stepping);
	if (!n && weir_unlikely(weir_state(k->worker->w) != WEIR_UP))
		rc = handler_rejoin(k);
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
	const struct handler_thread *guest;
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
		guest = m->model ? guest_own(m) : NULL;
		pthread_mutex_lock(&m->lock);
		timed = m->connected || k->listen_at || (guest && guest->listen_at);
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
