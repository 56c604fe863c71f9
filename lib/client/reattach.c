/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attaching again after a restart of the data plane: a new session replaces the ended one under the
 * same handle. The library makes anew the threads' objects (at their first call), the listeners
 * (stream/listen.c) and the table of nodes; nothing else moves to the new session. Memory of the
 * former session stays mapped until nothing of it is used.
 */
#define _GNU_SOURCE
#include "reason.h"
#include "session.h"
#include "wait.h"
#include "wake.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <poll.h>

/* ns between two attempts of weir_reattach(): doubled from the first to the largest */
#define PAUSE_MIN_NS 5000000u
#define PAUSE_MAX_NS 250000000u

struct weir *
weir_latest(struct weir *w)
{
	/* pairs with the release in attempt_locked() */
	struct weir *latest = atomic_load_explicit(&w->first->latest, memory_order_acquire);

	return latest ? latest : w->first;
}

/* An error that another attempt would return again. */
static bool
is_final(int rc)
{
	switch (rc) {
	case -EACCES:
	case -EPERM:
	case -EPROTO:
	case -EINVAL:
	case -ENAMETOOLONG:
	case -ENOTCONN:
	case -EINTR:
	case -ECONNABORTED: /* evicted while it attached */
		return true;
	}
	return false;
}

/* Whether the data plane of a session that counts as up is gone: the watcher will notice. */
static bool
has_hung_up(const struct weir *w)
{
	struct pollfd p = {.fd = w->transport.fd, .events = POLLRDHUP};
	int n;

	if (!w->watched || atomic_load(&w->hung_up))
		return w->watched;
	do
		n = poll(&p, 1, 0);
	while (n < 0 && errno == EINTR);
	return n > 0;
}

/* One attempt. reattach_lock held. */
static int
attempt_locked(struct weir *first)
{
	struct weir *former = weir_latest(first), *w;
	struct weir_options o = {.size = sizeof(o),
				 .instance = former->instance,
				 .name = former->name,
				 .arena = former->arena_wish,
				 .flags = (former->polling ? WEIR_POLLING : 0) |
					  (former->reattaches ? WEIR_REATTACH : 0)};
	struct weir_transport transport;
	int rc;

	if (weir_state(former) == WEIR_UP && has_hung_up(former))
		return weir_fail(-ECONNREFUSED,
				 "the data plane has just hung up and the session is not over yet; "
				 "try again");
	if (weir_state(former) != WEIR_DEAD)
		return weir_state(former) == WEIR_UP ? 0 : weir_gone(former);
	if (!former->transport.reopen)
		return weir_fail(-EINVAL, "this session can't be made again; detach and attach");
	rc = former->transport.reopen(former->transport.user, o.instance, &transport);
	if (rc)
		return rc;
	rc = weir_attach_with(&o, &transport, &w);
	if (rc) {
		weir_transport_end(&transport);
		return rc == -ENODEV ? -ECONNREFUSED : rc;
	}
	weir_assert(first == former->first && weir_state(former) == WEIR_DEAD);
	w->first = first;
	w->former = former;
	/* pairs with the acquire in weir_latest() */
	atomic_store_explicit(&first->latest, w, memory_order_release);
	return 0;
}

static int
attempt(struct weir *first)
{
	int rc;

	pthread_mutex_lock(&first->reattach_lock);
	rc = attempt_locked(first);
	pthread_mutex_unlock(&first->reattach_lock);
	return rc;
}

int
weir_reattach_attempt(struct weir *w)
{
	struct weir *first = w->first;
	int rc;

	if (weir_clock() < atomic_load_explicit(&first->reattach_at, memory_order_relaxed) &&
	    weir_state(weir_now(first)) != WEIR_UP)
		return -EAGAIN;
	rc = attempt(first);
	atomic_store_explicit(&first->reattach_at, weir_clock() + WEIR_REATTACH_MS * 1000000u,
			      memory_order_relaxed);
	return rc && !is_final(rc) ? -EAGAIN : rc;
}

int
weir_reattach(struct weir *w, int timeout_ms)
{
	uint64_t start, gone, pause = PAUSE_MIN_NS, limit = (uint64_t)timeout_ms * 1000000u;
	struct weir_guard g = {0};
	struct weir *s;
	int rc;

	if (weir_state(w) == WEIR_FORKED) /* locks are the parent's */
		return weir_gone(w);
	/* below 0 it has no end: no handler may run unseen between two sleeps */
	weir_guard_block(&g);
	start = weir_clock();
	while ((rc = attempt(w->first)) && !is_final(rc)) {
		gone = weir_clock() - start;
		if (timeout_ms >= 0 && gone >= limit)
			break;
		if (timeout_ms >= 0 && pause > limit - gone)
			pause = limit - gone;
		if (weir_wake_await(&g, w, -1, weir_clock() + pause) == -EINTR) {
			rc = -EINTR;
			break;
		}
		pause = pause * 2 < PAUSE_MAX_NS ? pause * 2 : PAUSE_MAX_NS;
	}
	weir_guard_end(&g);
	if (rc || !weir_thread_get(weir_now(w)))
		return rc ? rc
			  : weir_fail(-errno,
				      "no resources for another thread: %s; raise the limit of "
				      "open files",
				      strerror(errno));
	for (s = weir_now(w)->former; s; s = s->former)
		weir_threads_release(s);
	return 0;
}
