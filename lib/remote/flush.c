/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion of operations. An engine reports it in the connection's descriptor; a flush waits for
 * it. Of dynamic exports it also asks how many operations were refused.
 */
#include "operation.h"

#include "client/progress.h"
#include "client/reason.h"
#include "client/wait.h"
#include "client/wake.h"
#include "stream/ctrl_slots.h"

#include "weir/stream.h"

int
weir_operation_look(struct weir_remote_lane *l, uint64_t all, bool ask)
{
	struct weir_thread *t = l->worker;
	struct weir_conn *c;
	int rc;

	weir_lock(t);
	if (all <= l->before) {
		weir_unlock(t);
		return 1;
	}
	c = l->conn;
	all -= l->before;
	weir_progress(t, NULL);
	weir_conn_update_completed(c);
	weir_results_take(c);
	if (c->completed >= all)
		rc = 1;
	else if (c->state == CONN_ENDED)
		rc = weir_remote_ended(c, c->end);
	else
		rc = 0;
	/* DONE then comes for all that was sent before */
	if (!rc && ask)
		weir_remote_ask_done(c);
	weir_unlock(t);
	return rc;
}

/* Operations of the lane up to `all`. Out of line: flushes that wait for nothing are many. */
static __attribute__((noinline)) int
await_lane(struct weir_remote_lane *l, uint64_t all, int timeout_ms)
{
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, l->worker, timeout_ms);
	rc = weir_operation_look(l, all, true);
	while (!rc) {
		rc = weir_wait_next(&wait);
		if (!rc)
			rc = weir_operation_look(l, all, false);
	}
	weir_wait_end(&wait);
	return rc > 0 ? 0 : rc;
}

/* Whether the last operation is a lock for which the thread waits: none goes behind it. */
static bool
awaits_lock(const struct weir_conn *c)
{
	return c->lock_upto == c->sent && c->lock_upto > c->completed &&
	       !(c->control & CTRL_UNLOCK);
}

int
weir_lane_ask_refusals(struct weir_remote_lane *l)
{
	struct todo d = {.op = WEIR_OP_GET,
			 .cell = {.handle = WEIR_HANDLE_FIRST, .offset = WEIR_DYNAMIC_REFUSALS},
			 .to = (uint8_t *)&l->refusals,
			 .left = sizeof(l->refusals),
			 .unit = 1,
			 .most = WEIR_ANSWER_MAX};
	int rc;

	weir_assert(weir_worker_locked(l->worker) && l->conn);
	weir_conn_update_completed(l->conn);
	if (l->asked == l->before + l->conn->sent || awaits_lock(l->conn))
		return 0;
	rc = weir_operation_try(l->conn, &d);
	if (!rc)
		l->asked = l->before + l->conn->sent;
	return rc;
}

void
weir_lane_count_refusals(struct weir_remote_lane *l)
{
	atomic_fetch_add_explicit(&l->remote->refused, l->refusals - l->refusals_counted,
				  memory_order_relaxed);
	l->refusals_counted = l->refusals;
}

/* Completes the operations of a lane to a dynamic export, and counts those that were refused. */
static int
flush_dynamic(struct weir_remote_lane *l, int timeout_ms)
{
	uint64_t end = weir_time_end(timeout_ms), all = 0;
	struct weir_wait wait;
	int rc;

	weir_wait_init(&wait, l->worker, timeout_ms);
	do {
		weir_lock(l->worker);
		rc = l->conn ? weir_lane_ask_refusals(l) : 0;
		if (!rc)
			all = l->before + (l->conn ? l->conn->sent - awaits_lock(l->conn) : 0);
		weir_unlock(l->worker);
		if (rc != -EAGAIN)
			break;
		rc = weir_wait_next(&wait);
	} while (!rc);
	weir_wait_end(&wait);
	if (!rc)
		rc = await_lane(l, all, weir_time_left(end));
	if (rc)
		return rc;
	weir_lock(l->worker);
	weir_lane_count_refusals(l);
	weir_unlock(l->worker);
	return 0;
}

int
weir_remote_refused(struct weir_remote *r)
{
	uint64_t n =
	    r->dynamic ? atomic_exchange_explicit(&r->refused, 0, memory_order_relaxed) : 0;

	return n ? weir_fail(-ERANGE,
			     "%llu operations were not within the ranges that the member has "
			     "attached",
			     (unsigned long long)n)
		 : 0;
}

int
weir_operation_await(struct weir_conn *c, uint64_t all, int timeout_ms)
{
	return await_lane(c->remote, c->remote->before + all, timeout_ms);
}

int
weir_remote_flush_others(struct weir_remote *r, int timeout_ms)
{
	const struct weir_thread *own;
	uint64_t end, all;
	struct weir_remote_lane *l;
	int rc = 0;

	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	if (r->direct.at && !atomic_load_explicit(&r->by_engine, memory_order_relaxed))
		return 0; /* stores of other threads are complete when their calls return */
	own = weir_thread_get(r->w);
	end = weir_time_end(timeout_ms);
	/* lanes stay as long as the handle; new ones come in front */
	pthread_mutex_lock(&r->lock);
	l = LIST_FIRST(&r->lanes);
	pthread_mutex_unlock(&r->lock);
	for (; l && !rc; l = LIST_NEXT(l, in_remote)) {
		if (l->worker == own)
			continue;
		if (r->dynamic) {
			rc = flush_dynamic(l, weir_time_left(end));
			continue;
		}
		weir_lock(l->worker);
		all = l->before + (l->conn ? l->conn->sent : 0);
		if (l->conn && awaits_lock(l->conn)) /* which may take long */
			all--;
		weir_unlock(l->worker);
		rc = await_lane(l, all, weir_time_left(end));
	}
	return rc;
}

int
weir_remote_flush(struct weir_remote *r, int timeout_ms)
{
	struct weir_conn *c;
	int rc;

	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	if (weir_unlikely(r->direct.at)) {
		if (weir_direct_flush(&r->direct))
			return 0;
		rc = weir_mapped_ended(r);
		if (rc)
			return rc;
	}
	c = weir_remote_conn(r);
	if (!c)
		return 0;
	if (weir_unlikely(r->dynamic))
		return flush_dynamic(c->remote, timeout_ms);
	if (weir_remote_completed(c) == c->sent && !weir_results_last(c))
		return 0;
	return weir_operation_await(c, c->sent, timeout_ms);
}

int
weir_remote_flush_uninterrupted(struct weir_remote *r)
{
	bool interrupted = false;
	int rc;

	while ((rc = weir_remote_flush(r, -1)) == -EINTR)
		interrupted = true;
	if (interrupted)
		weir_waker_restore(r->w);
	return rc;
}

int
weir_remote_flush_local(struct weir_remote *r, int timeout_ms)
{
	struct weir_conn *c;
	uint64_t last;
	int rc;

	if (weir_state(r->w) == WEIR_FORKED)
		return weir_gone(r->w);
	if (r->direct.at) {
		if (weir_direct_flush(&r->direct))
			return 0;
		rc = weir_mapped_ended(r);
		if (rc)
			return rc;
	}
	c = weir_remote_conn(r);
	last = c ? weir_results_last(c) : 0;
	if (c && c->kept_upto > weir_remote_completed(c) && c->kept_upto > last)
		last = c->kept_upto;
	return last ? weir_operation_await(c, last, timeout_ms) : 0;
}
