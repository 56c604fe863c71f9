/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Room for links. An engine has a number of them (config.links), and memory for what it has. A link
 * that no connection uses stays until another one needs its place, the least recently used one
 * first, or until it was idle for long. The engines of both ends agree on its end. A link that
 * finds no room waits; the wish of a peer waits only while a link is closing, else it is refused
 * and the peer asks again. docs/protocol.md 2 has the messages.
 */
#include "connect.h"
#include "conn.h"
#include "control_socket.h"
#include "link.h"
#include "node.h"
#include "state.h"

#include "ipc/invariant.h"

#include <errno.h>

/* Part of the links that peers may begin and we may not: two ends with only wishes of their own
 * would refuse each other for ever. */
#define FOR_PEERS 8u
/* Part of the receive WRs left that the next link gets. */
#define GRANT_PART 32u
/* ns before a link that is new, or that the peer needs, is asked to make room */
#define STAYS_NS (BROKER_SECOND_NS / 10)

static struct broker_room *
room_of(const struct broker_link *l)
{
	return &l->b->room[l->engine];
}

void
links_init(struct broker *b)
{
	TAILQ_INIT(&b->timed);
	for (uint32_t i = 0; i < b->config.engines; i++) {
		TAILQ_INIT(&b->room[i].idle);
		TAILQ_INIT(&b->room[i].wanting);
	}
}

void
link_takes_room(struct broker_link *l)
{
	const struct broker_config *c = &l->b->config;
	struct broker_room *r = room_of(l);
	uint32_t most = c->recv_wrs, left = c->links - r->used, spare, part;
	uint32_t least = most < BROKER_RECV_LEAST ? most : BROKER_RECV_LEAST;

	l->recv_wrs = most;
	/* first every link's least; what is left beyond that goes out in parts of what is left */
	if (c->recv_depth) {
		weir_assert(left && c->recv_depth >= r->granted + left * least);
		spare = c->recv_depth - r->granted - left * least;
		part = spare / (left < GRANT_PART ? left : GRANT_PART);
		if (part < most - least)
			l->recv_wrs = least + part;
	}
	r->granted += l->recv_wrs;
	r->used++;
	weir_assert(r->used <= c->links);
}

void
link_gives_room(struct broker_link *l)
{
	struct broker_room *r = room_of(l);

	weir_assert(r->used && r->granted >= l->recv_wrs);
	r->used--;
	r->granted -= l->recv_wrs;
	r->closing -= l->closing;
	l->closing = false;
}

/* ---- idle links ---- */

void
link_used(struct broker_link *l)
{
	if (!l->is_idle)
		return;
	TAILQ_REMOVE(&room_of(l)->idle, l, in_idle);
	l->is_idle = false;
}

void
link_is_new(struct broker_link *l)
{
	l->stays_until = broker_now(l->b) + STAYS_NS;
}

void
link_idle(struct broker_link *l)
{
	if (l->state != LINK_UP || !l->open || l->closing)
		return;
	link_used(l);
	l->is_idle = true;
	l->idle_since = broker_now(l->b);
	TAILQ_INSERT_TAIL(&room_of(l)->idle, l, in_idle);
}

static void
enter_closing(struct broker_link *l)
{
	link_used(l);
	l->open = false;
	room_of(l)->closing += !l->closing;
	l->idled &= l->closing;
	l->closing = true;
}

/* Connections use it, of the peer's end or (main hears LINK_IDLE) of ours. */
static void
stays(struct broker_link *l, bool peer)
{
	struct broker *b = l->b;
	struct broker_node *n = l->loop_end ? b->loop : node_find(b, l->node);

	if (!l->closing || l->over)
		return;
	l->closing = false;
	room_of(l)->closing--;
	l->open = l->state == LINK_UP && l->confirmed;
	if (peer) /* nobody says here when its connections have ended */
		l->stays_until = broker_now(b) + STAYS_NS;
	if (peer || l->idled)
		link_idle(l);
	if (n)
		connect_kick(b, n);
	links_serve(b, l->engine);
}

static void
asked(struct broker *b, struct broker_command *c)
{
	/* the engine has connections that main has not heard of, or will hear the end of */
	if (c->cmd.result)
		stays(c->context, false);
}

/* The engines of both ends look whether a connection uses it. */
static void
close_idle(struct broker_link *l)
{
	struct broker_command *c = command_reserved(l->b, l->engine, ENGINE_LINK_CLOSE, asked, l);

	weir_assert(l->is_idle && l->state == LINK_UP);
	enter_closing(l);
	c->cmd.link.link = l->id;
	command_submit(l->b, c);
}

uint64_t
links_idle_timers(struct broker *b, uint64_t now)
{
	uint64_t next = UINT64_MAX, due;
	struct broker_link *l;

	for (uint32_t i = 0; i < b->config.engines; i++) {
		struct broker_room *r = &b->room[i];

		while (b->config.link_idle_ns && (l = TAILQ_FIRST(&r->idle))) {
			due = l->idle_since + b->config.link_idle_ns;
			if (due > now) {
				next = due < next ? due : next;
				break;
			}
			close_idle(l);
		}
		/* memory comes back unannounced, and links are old enough to be asked by time */
		if (r->wanted && r->look_at <= now) {
			r->look_at = now + STAYS_NS;
			links_serve(b, i);
		}
		if (r->wanted)
			next = r->look_at < next ? r->look_at : next;
	}
	return next;
}

void
link_ends(struct broker *b, uint32_t engine, uint32_t id)
{
	struct broker_link *l = link_by_id(b, engine, id);

	if (l)
		enter_closing(l);
}

void
link_ended(struct broker_link *l)
{
	struct broker *b = l->b;
	struct broker_node *n = l->loop_end ? NULL : node_find(b, l->node);
	bool others = false;

	if (l->over)
		return;
	enter_closing(l);
	l->over = true;
	b->counters.links_closed++;
	if (n) {
		for (struct broker_link *o = n->links; o; o = o->next_of_node)
			others |= o != l && o->live;
		node_tell_control(l, others ? ESHUTDOWN : 0);
	}
	broker_link_fail(l, ECONNRESET); /* no connection is there to see the status */
}

void
link_end_event(struct broker *b, uint32_t engine, const struct engine_event *event)
{
	struct broker_link *l = link_by_id(b, engine, event->conn.link);

	if (!l || (!l->live && l->state != LINK_ADDING) || !l->qp[0] ||
	    nic_qpn(l->qp[0]) != event->qpn)
		return;
	if (event->type == ENGINE_EVENT_LINK_IDLE) {
		l->idled = true; /* perhaps before LINK_CLOSE has its answer */
		link_idle(l);
		links_serve(b, engine);
	} else if (event->type == ENGINE_EVENT_LINK_CLOSED) {
		link_ended(l);
	} else {
		stays(l, true);
	}
}

/* ---- links that wait ---- */

bool
link_has_room(const struct broker_link *l)
{
	uint32_t links = l->b->config.links, used = room_of(l)->used;

	if (l->loop_end)
		return used + 2 <= links;
	return used + (l->saved.attempt ? 0 : links / FOR_PEERS) < links;
}

static void
forget(struct broker_link *l)
{
	if (!l->wanting)
		return;
	l->wanting = false;
	room_of(l)->wanted--;
	TAILQ_REMOVE(&room_of(l)->wanting, l, in_wanting);
}

/* Each link that closes is for one that waits. */
static void
evict(struct broker *b, uint32_t engine)
{
	struct broker_room *r = &b->room[engine];
	struct broker_link *l, *following;
	uint64_t now = broker_now(b);

	for (l = TAILQ_FIRST(&r->idle); l && r->closing < r->wanted; l = following) {
		following = TAILQ_NEXT(l, in_idle);
		if (l->stays_until > now)
			continue;
		b->counters.links_evicted++;
		close_idle(l);
	}
}

/* Whether programs wait for the link. */
static bool
is_awaited(const struct broker_link *l)
{
	const struct broker_node *n = l->loop_end ? l->b->loop : node_find(l->b, l->node);
	const struct broker_conn *c = n ? STAILQ_FIRST(&n->waiting) : NULL;

	while (c && (c->engine != l->engine || c->class != link_class(l)))
		c = STAILQ_NEXT(c, in_waiting);
	return c;
}

/* No room for the peer's wish, and none will be soon: it asks again. A wish of ours still waits. */
static void
refuse(struct broker_link *l)
{
	if (!is_awaited(l))
		forget(l);
	LINK_BLAME(l, LOG_LEVEL_INFO,
		   "engine %u has no room for a link with node %u: %u are in use; raise --links, "
		   "or the memory",
		   room_of(l)->used);
	link_offer_refuse(l, l->saved.attempt, ENOSPC);
	l->saved.attempt = 0;
}

bool
link_begin(struct broker_link *l, int *rc)
{
	struct broker_room *r = room_of(l);

	weir_assert(l->state == LINK_DOWN);
	*rc = 0;
	if (l->wanting)
		return false;
	*rc = link_has_room(l) ? link_start(l) : -ENOSPC;
	if (!*rc)
		return true;
	if ((*rc != -ENOMEM && *rc != -ENOSPC && *rc != -EMFILE) || !r->used ||
	    l->state != LINK_DOWN)
		return false;
	*rc = 0;
	weir_assert(!l->wanting);
	l->b->counters.links_full += !l->no_room;
	link_lacks(l);
	l->wanting = true;
	TAILQ_INSERT_TAIL(&r->wanting, l, in_wanting);
	r->wanted++;
	evict(l->b, l->engine);
	if (l->saved.attempt && !r->closing)
		refuse(l);
	return false;
}

void
links_serve(struct broker *b, uint32_t engine)
{
	struct broker_room *r = &b->room[engine];
	struct broker_link *l, *following;
	struct weir_link_offer saved;
	int rc;

	for (l = TAILQ_FIRST(&r->wanting); l && !b->stopping; l = following) {
		following = TAILQ_NEXT(l, in_wanting);
		if (!l->saved.attempt && !is_awaited(l)) {
			forget(l);
			continue;
		}
		if (!link_has_room(l))
			continue;
		saved = l->saved;
		forget(l);
		l->saved.attempt = 0;
		if (saved.attempt)
			link_offer_input(b, &saved);
		else if (is_awaited(l) && link_begin(l, &rc))
			link_offer_send(l, 0);
		if (l->wanting) /* no memory: no other one need try */
			break;
	}
	evict(b, engine);
	for (l = TAILQ_FIRST(&r->wanting); l && !r->closing; l = following) {
		following = TAILQ_NEXT(l, in_wanting);
		if (l->saved.attempt)
			refuse(l);
	}
}

void
link_lacks(struct broker_link *l)
{
	if (!l->no_room)
		l->lacks_since = broker_now(l->b);
	l->no_room = true;
}

bool
link_lacks_room(struct broker *b, uint32_t engine, const struct broker_node *n, uint32_t class,
		uint64_t until)
{
	const struct broker_link *l = n->links;

	if (n == b->loop)
		for (l = b->links; l && !(l->loop_end && l->leads && l->engine == engine &&
					  link_class(l) == class);)
			l = l->next;
	else
		while (l && (l->engine != engine || link_class(l) != class))
			l = l->next_of_node;
	return l && (l->no_room || l->room_at > until);
}
