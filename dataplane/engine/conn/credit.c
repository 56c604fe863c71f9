/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flow-control window of connections: returned at the sending end, granted at the receiving
 * end. Grants that peers have not used yet always fit the free receive blocks (docs/decisions.md
 * 4), whatever the program does.
 */
#include "conn.h"
#include "credit.h"
#include "ctrl_line.h"
#include "events.h"
#include "base/list.h"
#include "notice.h"
#include "rndv.h"
#include "send_queue.h"
#include "session.h"
#include "state.h"

#define COST_MAX (WEIR_SLOT_SIZE + WEIR_BLOCK_SIZE)

/* ---- sending end ---- */

static void
show_granted(struct conn *c)
{
	uint64_t unspent = c->rejoined ? c->cold->unspent : 0;
	/* window handed back since may have been what those messages waited for */
	uint64_t granted = c->granted > unspent ? c->granted - unspent : 0;

	atomic_store_explicit(&c->desc->granted, granted, memory_order_relaxed);
	atomic_store_explicit(&c->desc->window, c->peer_window, memory_order_relaxed);
}

void
credit_unspent(struct conn *c, uint32_t cost)
{
	c->cold->unspent = cost + (c->rejoined ? c->cold->unspent : 0);
	c->rejoined = true;
	show_granted(c);
}

void
credit_return(struct engine *e, struct conn *c, uint64_t granted, uint64_t consumed,
	      uint32_t window)
{
	weir_assert(c->spent <= granted);
	c->granted = granted;
	c->returned = consumed;
	c->peer_window = window;
	c->stall_told = false;
	show_granted(c);
	e->served = true;
	credit_answer_want(e, c);
	conn_advance(e, c);
}

/*
 * Hands back all unused window, unless the first message that waits can leave with it: a message
 * that waits for memory of the peer, window or a place for a bulk message, must not hold any.
 */
void
credit_hand_back(struct engine *e, struct conn *c)
{
	if (!conn_ready(c))
		c->granted = c->spent;
	show_granted(c);
	ctrl_line_due(e, c, CTRL_RECLAIMED);
	credit_stalled(e, c);
}

static uint32_t
want_of(const struct conn *c)
{
	return c->wanted < COST_MAX ? c->wanted : COST_MAX;
}

uint32_t
credit_missing(const struct conn *c)
{
	const struct pend *p = c->pend_first;
	uint32_t cost = 0;

	if (p && p->state == PEND_MESSAGE)
		cost = message_cost(&p->slot);
	else if (!p && c->wants)
		cost = want_of(c);
	return c->granted - c->spent < cost ? cost : 0;
}

void
credit_answer_want(struct engine *e, struct conn *c)
{
	/* apart, notices have a window, too */
	if (!c->wants ||
	    (c->state != CONN_OPEN && (c->state != CONN_LOCAL || c->kind != CONN_MEMORY)))
		return;
	if (c->granted - c->spent >= (uint64_t)c->pend_cost + want_of(c)) {
		c->wants = false;
		app_event(e, c, APP_WRITABLE);
	} else {
		credit_stalled(e, c);
	}
}

void
credit_stalled(struct engine *e, struct conn *c)
{
	/* the window of notices is granted unasked */
	if (c->kind == CONN_MEMORY || c->stall_told || c->ctrl_lines & CTRL_STALLED ||
	    !credit_missing(c))
		return;
	count(&e->counters.window_stalls, 1);
	ctrl_line_due(e, c, CTRL_STALLED);
}

/* ---- receiving end ---- */

uint64_t
session_spare(const struct session *s)
{
	uint64_t have = (uint64_t)s->blocks.free * WEIR_BLOCK_SIZE;
	uint64_t need = s->promised + (uint64_t)s->reserve * WEIR_BLOCK_SIZE;

	return have > need ? have - need : 0;
}

bool
session_affords(const struct session *s, uint64_t more, uint32_t n)
{
	return session_spare(s) >= more + (uint64_t)n * WEIR_BLOCK_SIZE;
}

/* Cost that the program has taken: consumed, or on loan. */
static uint64_t
taken(const struct conn *c)
{
	return c->rx_consumed + c->cold->rx_lent;
}

/* Cost that the program took since credit was last returned. */
static uint64_t
unreturned(const struct conn *c)
{
	return (uint32_t)taken(c) - c->rx_told;
}

/* Unreturned cost that is worth a return: the program's percentage of the window, or ours. */
static uint64_t
returns_at(const struct engine *e, const struct conn *c)
{
	double share = c->percent ? c->percent / 100.0 : e->config.threshold;

	return (uint64_t)(share * c->rx_window);
}

/* Shows the program how much to take before it reports to us. */
static void
show_due(const struct engine *e, const struct conn *c)
{
	atomic_store_explicit(&c->desc->recv_window, c->rx_window, memory_order_relaxed);
	atomic_store_explicit(&c->desc->recv_due, taken(c) - unreturned(c) + returns_at(e, c),
			      memory_order_relaxed);
}

void
credit_first(struct engine *e, struct conn *c)
{
	uint64_t spare = session_spare(c->session);
	uint32_t grant = e->config.initial_grant;

	if (grant > spare)
		grant = (uint32_t)spare;
	grant -= grant % WEIR_SLOT_SIZE;
	weir_assert(!c->rx_granted && !c->rx_delivered);
	c->session->promised += grant;
	c->rx_granted = c->rx_window = grant;
	show_due(e, c);
}

/*
 * The window after the program took a part of it: doubled, up to the wished one, or halved
 * while a connection of the session lacks receive memory.
 */
static uint32_t
next_window(const struct engine *e, struct conn *c)
{
	uint32_t window = c->rx_window;
	bool used_up = (uint32_t)taken(c) - c->rx_grown >= e->config.threshold * window;

	if (used_up) {
		c->rx_grown = (uint32_t)taken(c);
		window = c->session->lacks_memory ? window / 2 : window * 2;
	}
	if (window < c->rx_wanted)
		window = c->rx_wanted;
	if (window < e->config.initial_grant)
		window = e->config.initial_grant;
	if (window > c->rx_window_max)
		window = c->rx_window_max;
	/* without free memory the window doesn't grow */
	if (window > c->rx_window && c->rx_window >= e->config.initial_grant &&
	    taken(c) + window > c->rx_granted + session_spare(c->session))
		window = c->rx_window;
	return window;
}

/* Grants the window that is due, as far as the memory reaches. */
static void
grant(struct engine *e, struct conn *c)
{
	struct session *s = c->session;
	uint64_t used = unreturned(c), left = c->rx_granted - c->rx_delivered;
	uint64_t target, most, due, more, spare;
	bool starves, is_due;

	weir_assert(c->rx_delivered <= c->rx_granted && taken(c) <= c->rx_delivered);
	if (c->kind == CONN_MEMORY)
		notices_grant(e, c);
	if (c->kind != CONN_STREAM)
		return;
	if (c->reclaiming)
		return; /* its answer comes back here */
	/* with less than COST_MAX left a sender may hold a message that doesn't fit it */
	is_due = c->rx_wanted > left ||
		 (used && (used >= returns_at(e, c) || (left < COST_MAX && left < c->rx_window)));
	if (!c->accepts || !conn_is_open(c) || !is_due) {
		list_remove(&c->cold->awaits_grant);
		return;
	}
	c->rx_window = next_window(e, c);
	target = taken(c) + c->rx_window;
	most = c->rx_consumed + c->rx_window_max; /* which is all that loans count against */
	/* a program may have taken up to half a window unreported: that mustn't stall the peer */
	if (target < c->rx_delivered + c->rx_wanted) {
		target += c->rx_window / 2;
		most += c->rx_window_max / 2;
	}
	if (target > most)
		target = most;
	spare = session_spare(s);
	due = target > c->rx_granted ? target - c->rx_granted : 0;
	more = due < spare ? due : spare;
	more -= more % WEIR_SLOT_SIZE;
	/* a part that isn't enough helps no message, and others would lack it */
	if (c->rx_granted + more < c->rx_delivered + c->rx_wanted)
		more = 0;
	c->rx_granted += more;
	s->promised += more;
	weir_assert(s->promised + (uint64_t)s->reserve * WEIR_BLOCK_SIZE <=
			(uint64_t)s->blocks.free * WEIR_BLOCK_SIZE ||
		    !more);
	/* for lack of memory; if only the window is too small, CONSUMED comes back here */
	starves = c->rx_granted - c->rx_delivered < c->rx_wanted &&
		  (due >= spare + WEIR_SLOT_SIZE ||
		   session_spare(s) < c->rx_wanted); /* or lack of memory kept the window small */
	if (c->rx_granted - c->rx_delivered >= c->rx_wanted)
		c->rx_wanted = 0;
	if (starves)
		session_await_memory(e, s, &s->awaits_grant, &c->cold->awaits_grant);
	else
		list_remove(&c->cold->awaits_grant);
	if (!more)
		return;
	c->rx_told = (uint32_t)taken(c);
	show_due(e, c);
	ctrl_line_due(e, c, CTRL_GRANT);
}

bool
credit_consumed(struct engine *e, struct conn *c, uint64_t consumed, uint32_t lent,
		uint32_t percent)
{
	if (consumed > c->rx_delivered || lent > c->rx_delivered - consumed ||
	    c->kind == CONN_MEMORY) /* of notices: NOTICED */
		return false;
	c->percent = percent < 100 ? (uint8_t)percent : 100;
	/* else a later report overtook in another channel: neither sum ever shrinks */
	if (consumed >= c->rx_consumed && consumed + lent >= taken(c) &&
	    (consumed != c->rx_consumed || lent != c->cold->rx_lent)) {
		c->rx_consumed = consumed;
		c->cold->rx_lent = lent;
		grant(e, c);
		session_memory_freed(
		    e, c->session); /* the ring has room: fewer slots may be spilled */
	}
	return true;
}

void
credit_wanted(struct engine *e, struct conn *c, uint32_t cost)
{
	cost = cost < COST_MAX ? cost : COST_MAX;
	c->rx_wanted = c->rx_granted - c->rx_delivered < cost ? cost : 0;
	grant(e, c);
}

void
credit_reclaimed(struct engine *e, struct conn *c, uint64_t granted)
{
	weir_assert(c->reclaiming && granted <= c->rx_granted && granted >= c->rx_delivered);
	weir_assert(c->session->promised >= c->rx_granted - granted);
	c->session->promised -= c->rx_granted - granted;
	c->rx_granted = granted;
	c->rx_window =
	    e->config.initial_grant < c->rx_window_max ? e->config.initial_grant : c->rx_window_max;
	c->reclaiming = false;
	show_due(e, c);
	grant(e, c);
	session_memory_freed(e, c->session);
}

void
credit_reclaim_some(struct engine *e, struct session *s)
{
	for (unsigned i = 0; i < 64; i++) {
		struct list_node *node = s->reclaim_next ? s->reclaim_next : s->conns.next;
		struct conn *c;

		if (node == &s->conns) {
			s->reclaim_next = NULL;
			break;
		}
		c = LIST_OWNER(node, struct conn, of_session);
		s->reclaim_next = node->next;
		/* the first connection that starves gets the window of the others */
		if (c->accepts && !c->reclaiming &&
		    s->awaits_grant.next != &c->cold->awaits_grant &&
		    c->rx_seen == (uint32_t)c->rx_delivered && c->rx_granted > c->rx_delivered &&
		    conn_is_open(c)) {
			c->reclaiming = true;
			ctrl_line_due(e, c, CTRL_RECLAIM);
		}
		c->rx_seen = (uint32_t)c->rx_delivered;
	}
}

void
credit_withdraw(struct engine *e, struct conn *c)
{
	c->accepts = false;
	weir_assert(c->rx_delivered <= c->rx_granted);
	weir_assert(c->session->promised >= c->rx_granted - c->rx_delivered);
	c->session->promised -= c->rx_granted - c->rx_delivered;
	c->rx_granted = c->rx_delivered;
	c->rx_wanted = 0;
	list_remove(&c->cold->awaits_grant);
	session_memory_freed(e, c->session);
}

void
session_await_memory(struct engine *e, struct session *s, struct list_node *l,
		     struct list_node *node)
{
	weir_assert(l == &s->awaits_grant || l == &s->awaits_place);
	list_append_once(l, node);
	if (s->lacks_memory)
		return;
	s->lacks_memory = true;
	s->lacks_memory_at = e->now;
}

void
session_memory_freed(struct engine *e, struct session *s)
{
	if (LIKELY(!s->lacks_memory))
		return;
	while (!list_empty(&s->awaits_grant)) {
		struct list_node *first = s->awaits_grant.next;

		grant(e, conn_of_cold(e, LIST_OWNER(first, struct conn_cold, awaits_grant)));
		if (s->awaits_grant.next == first)
			break;
	}
	bulk_place(e, s);
	s->lacks_memory =
	    !list_empty(&s->awaits_grant) || !list_empty(&s->awaits_place) || s->adding;
	if (!s->lacks_memory)
		s->lacks_memory_at = e->now;
}
