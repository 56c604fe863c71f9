/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending on a lane, waiting for room. Threads whose lanes an engine can't empty as fast as they
 * fill them take turns: if all of them polled, or slept and woke, for the little room that each
 * gets, they would keep the engine from making it. A thread that finds no room books a turn, sleeps
 * until then, and shares the CPU with the engine alone for TURN_NS. The engine takes the messages
 * in its ring together with all others, so an unused turn costs almost nothing.
 */
#include "lane.h"
#include "sender.h"

#include "client/progress.h"
#include "client/wait.h"
#include "stream/model.h"

#include <errno.h>

#define TURN_NS 250000u
#define EARLY_NS 60000u	   /* by which a sleep ends late */
#define AHEAD_NS 20000000u /* a thread whose turn is further away waits without one */

/* One try, and another one if the first finds no room. */
static int
send_once(struct lane *lane, const struct iovec *parts, unsigned n, size_t length,
	  const uint64_t *cookie)
{
	int rc;

	weir_lock(lane->worker);
	rc = weir_send_now(lane->conn, parts, n, length, cookie);
	if (rc == -EAGAIN) {
		weir_progress(lane->worker, NULL);
		rc = weir_send_now(lane->conn, parts, n, length, cookie);
	}
	weir_unlock(lane->worker);
	return rc;
}

/* Books the sender's next turn. ns to sleep until then; 0: do not sleep. */
static uint32_t
turn_book(struct sender *s, _Atomic uint64_t *booked)
{
	uint64_t now = weir_clock(), last = atomic_load_explicit(booked, memory_order_relaxed),
		 turn;

	if (now < atomic_load_explicit(&s->turn_end, memory_order_relaxed))
		return 0;
	do {
		turn = last > now ? last : now;
		if (turn - now > AHEAD_NS)
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(
	    booked, &last, turn + TURN_NS, memory_order_relaxed, memory_order_relaxed));
	atomic_store_explicit(&s->turn_end, turn + TURN_NS, memory_order_relaxed);
	return turn - now > EARLY_NS ? (uint32_t)(turn - now - EARLY_NS) : 0;
}

int
lane_send(struct lane *lane, const struct iovec *parts, unsigned n, size_t length,
	  const uint64_t *cookie, int timeout_ms)
{
	const struct weir_conn *c = lane->conn;
	struct weir_wait wait;
	bool engine_busy;
	int rc;

	weir_assert(lane->pins);
	lane_used(lane);
	if (length > WEIR_INLINE_MAX)
		return weir_send_parts(lane->conn, parts, n, length, cookie, timeout_ms);
	rc = send_once(lane, parts, n, length, cookie);
	if (rc != -EAGAIN || !timeout_ms)
		return rc;
	weir_wait_init(&wait, lane->worker, timeout_ms);
	weir_lock(lane->worker);
	/* the window has room: the other end is not the one that is slow */
	engine_busy = c->pipe && !c->local && c->spent + weir_cost((uint32_t)length) <= c->granted;
	weir_unlock(lane->worker);
	if (engine_busy)
		wait.nap_ns = turn_book(lane->sender, &lane->m->booked[c->channel->engine]);
	while (rc == -EAGAIN) {
		bool slept = wait.nap_ns;

		rc = weir_wait_next(&wait);
		if (rc)
			break;
		if (slept) /* a sleep on a shared CPU may end late: the turn is as long all the same
			    */
			atomic_store_explicit(&lane->sender->turn_end, weir_clock() + TURN_NS,
					      memory_order_relaxed);
		rc = send_once(lane, parts, n, length, cookie);
	}
	weir_wait_end(&wait);
	return rc;
}
