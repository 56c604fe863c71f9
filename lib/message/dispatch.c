/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending on a lane, waiting for room. Threads whose lanes an engine can't empty as fast as they
 * fill them take turns: if all of them polled, or slept and woke, for the little room that each
 * gets, they would keep the engine from making it. One that finds no room books a turn, sleeps
 * until then, and has the CPU to itself and the engine for that long. What it left in its ring
 * meanwhile is taken with everybody else's, so a turn that nobody uses costs next to nothing.
 */
#include "lane.h"
#include "sender.h"

#include "client/wait.h"
#include "stream/model.h"
#include "stream/progress.h"

#include <errno.h>

#define TURN_NS 250000u
#define EARLY_NS 60000u	   /* a sleep ends so late */
#define AHEAD_NS 20000000u /* who would have to wait longer waits as for anything else */

/* One try. Other threads' messages got room meanwhile, or this one's responses came. */
static int
send_once(struct lane *lane, const struct iovec *parts, unsigned n, size_t length)
{
	int rc;

	weir_lock(lane->worker);
	rc = weir_send_now(lane->conn, parts, n, length);
	if (rc == -EAGAIN) {
		weir_drive(lane->worker, NULL);
		rc = weir_send_now(lane->conn, parts, n, length);
	}
	weir_unlock(lane->worker);
	return rc;
}

/* It is the engine that has no time, not the other end. */
static bool
is_crowded(struct lane *lane, size_t length)
{
	const struct weir_conn *c = lane->conn;
	bool crowded;

	weir_lock(lane->worker);
	crowded = c->pipe && !c->local && c->spent + weir_cost((uint32_t)length) <= c->granted;
	weir_unlock(lane->worker);
	return crowded;
}

/* How long to sleep until it is the sender's turn, in ns. */
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

static int
send_small(struct lane *lane, const struct iovec *parts, unsigned n, size_t length, int timeout_ms)
{
	struct weir_wait wait;
	int rc = send_once(lane, parts, n, length);

	if (rc != -EAGAIN || !timeout_ms)
		return rc;
	weir_wait_init(&wait, lane->worker, timeout_ms);
	if (is_crowded(lane, length))
		wait.nap_ns =
		    turn_book(lane->sender, &lane->m->booked[lane->conn->channel->engine]);
	while (rc == -EAGAIN) {
		bool slept = wait.nap_ns;

		rc = weir_wait_next(&wait);
		if (rc)
			break;
		if (slept) /* late, where the CPU is others' too: the turn is as long all the same
			    */
			atomic_store_explicit(&lane->sender->turn_end, weir_clock() + TURN_NS,
					      memory_order_relaxed);
		rc = send_once(lane, parts, n, length);
	}
	weir_wait_end(&wait);
	return rc;
}

int
lane_send(struct lane *lane, const struct iovec *parts, unsigned n, size_t length, int timeout_ms)
{
	lane_used(lane);
	return length <= WEIR_INLINE_MAX
		   ? send_small(lane, parts, n, length, timeout_ms)
		   : weir_send_parts(lane->conn, parts, n, length, timeout_ms);
}
