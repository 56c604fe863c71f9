/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions of an engine: receive blocks, pool of waiting slots, channels. The removal of a session
 * first takes the slots that its program has published, then ends its connections, and is done when
 * no peer can name it any more.
 */
#include "channel.h"
#include "command.h"
#include "conn.h"
#include "credit.h"
#include "events.h"
#include "export.h"
#include "base/list.h"
#include "region.h"
#include "scheduler.h"
#include "send_queue.h"
#include "session.h"
#include "state.h"

#include <errno.h>

enum {
	REMOVE_NS = 500000000, /* ns for the last messages of a dead program to leave */
	FULL_NS = 100000000,   /* ns of full receive memory after which main is told */
};

#define FULL_OVER_NS 10000000000u /* ns without full receive memory before main is told again */

#define PENDING_SHARE 4096u /* bytes of an arena for each slot that may wait in an engine */
#define PENDING_MIN 256u

/* First receive block of an engine: the blocks after the last engine's end there too. */
static uint32_t
first_block(const struct weir_geometry *g, uint32_t engine)
{
	return (uint32_t)((uint64_t)engine * g->recv_blocks / g->engines);
}

static uint32_t
block_count(const struct engine_config *config, const struct weir_geometry *g)
{
	return first_block(g, config->id + 1) - first_block(g, config->id);
}

/* Slots that may wait in the engine: fewer if the arena is small. */
static uint32_t
pending_slots(const struct engine_config *config, const struct weir_geometry *g)
{
	uint64_t slots = g->bytes / PENDING_SHARE;

	if (slots < PENDING_MIN)
		slots = PENDING_MIN;
	return slots < config->session_pending ? (uint32_t)slots : config->session_pending;
}

struct places { /* of the parts of engine_session.work, after its counters */
	size_t pool, channels, queues, map, runs, regions, exports, bytes;
};

static struct places
lay_out_session(const struct engine_config *config, const struct weir_geometry *g)
{
	uint32_t blocks = block_count(config, g);
	struct places p = {0};

	p.pool = WEIR_ALIGN_UP(sizeof(struct engine_session_counters), 64);
	p.channels = p.pool + (size_t)pending_slots(config, g) * sizeof(struct pend);
	p.queues = p.channels + (size_t)g->channels * sizeof(struct channel);
	p.map = p.queues + 2 * (size_t)config->links * sizeof(struct queue);
	p.runs = p.map + (size_t)weir_blocks_words(blocks) * sizeof(uint64_t);
	p.regions = WEIR_ALIGN_UP(p.runs + (size_t)blocks * sizeof(uint32_t), 64);
	p.exports = p.regions + (size_t)config->regions * sizeof(struct region);
	p.bytes = WEIR_ALIGN_UP(p.exports + (size_t)config->exports * sizeof(struct export), 64);
	return p;
}

size_t
engine_session_bytes(const struct engine_config *config, const struct weir_geometry *g)
{
	return lay_out_session(config, g).bytes;
}

size_t
engine_export_bytes(void)
{
	return sizeof(struct export);
}

struct session *
session_find(struct engine *e, uint32_t id)
{
	if (id >= e->config.sessions || !e->sessions[id].shared)
		return NULL;
	return &e->sessions[id];
}

/* For sessions without a share. No thread writes it, since it has no rate. */
static struct engine_share ordinary = {.weight = ENGINE_WEIGHT};

int
session_add(struct engine *e, struct engine_session *shared)
{
	const struct weir_geometry *g = &shared->geometry;
	struct places at = lay_out_session(&e->config, g);
	uint8_t *work = shared->work;
	struct session *s;

	if (shared->id >= e->config.sessions || !work || e->config.id >= g->engines)
		return -EINVAL;
	s = &e->sessions[shared->id];
	if (s->shared)
		return -EBUSY;
	memset(s, 0, sizeof(*s));
	s->shared = shared;
	s->base = shared->base;
	s->share = shared->share ? shared->share : &ordinary;
	s->limited = share_limits(s->share);
	s->counters = (struct engine_session_counters *)(void *)work;
	s->queues = (struct queue *)(void *)(work + at.queues);
	queues_init(s, e->config.links);
	s->pool = (struct pend *)(void *)(work + at.pool);
	s->pool_size = pending_slots(&e->config, g);
	s->channels = (struct channel *)(void *)(work + at.channels);
	s->runs = (uint32_t *)(void *)(work + at.runs);
	s->regions = (struct region *)(void *)(work + at.regions);
	s->region_count = e->config.regions;
	s->exports = (struct export *)(void *)(work + at.exports);
	s->export_count = e->config.exports;
	weir_blocks_init(&s->blocks, (uint64_t *)(void *)(work + at.map),
			 block_count(&e->config, g));
	s->recv_at = weir_arena_recv(g) + (uint64_t)first_block(g, e->config.id) * WEIR_BLOCK_SIZE;
	s->send_at = weir_arena_send(g);
	s->send_end = weir_arena_end(g);
	s->node_seen = e->node_event_end;
	list_init(&s->conns);
	list_init(&s->awaits_grant);
	list_init(&s->awaits_place);
	return 0;
}

void
session_violate(struct engine *e, struct session *s, const char *reason)
{
	if (s->violated)
		return;
	s->violated = s->unpolled = s->violation_due = true;
	s->reason = reason;
	e->main_events_due = e->rare = true;
	atomic_store_explicit(&s->shared->violation, EPROTO, memory_order_relaxed);
	count(&e->counters.violations, 1);
	list_append(&e->violators, &s->violator);
}

void
sessions_settle(struct engine *e)
{
	struct list_node *node, *following;

	while (!list_empty(&e->violators)) {
		struct session *s = LIST_OWNER(e->violators.next, struct session, violator);

		list_remove(&s->violator);
		LIST_EACH (node, following, &s->conns)
			conn_abort(e, LIST_OWNER(node, struct conn, of_session), EPROTO, false);
	}
}

bool
session_release(struct session *s, weir_place place)
{
	uint64_t offset = WEIR_PLACE_OFFSET(place) - s->recv_at;
	uint64_t block = offset / WEIR_BLOCK_SIZE;
	uint32_t run;

	if (WEIR_PLACE_REGION(place) || WEIR_PLACE_OFFSET(place) < s->recv_at ||
	    block >= s->blocks.count || offset % WEIR_BLOCK_SIZE)
		return false;
	run = s->runs[block];
	if (!run || run & RUN_CHAIN)
		return false;
	s->runs[block] = 0;
	weir_blocks_give(&s->blocks, (uint32_t)block, run);
	return true;
}

/* ---- removal ---- */

void
session_remove(struct engine *e, struct engine_command *c)
{
	struct session *s = session_find(e, c->session->id);
	struct list_node *node, *following;

	if (!s || s->remove) {
		engine_complete(e, c, -ENOENT);
		return;
	}
	s->remove = c;
	s->draining = true;
	s->deadline = e->now + REMOVE_NS;
	LIST_EACH (node, following, &s->conns)
		app_events_drop(LIST_OWNER(node, struct conn, of_session));
	commands_abandon(e, s);
	list_append(&e->removals, &s->removal);
	e->rare = true;
}

/* Whether its channels hold nothing that can still be sent. */
static bool
is_drained(struct engine *e, const struct session *s)
{
	if (s->unpolled || e->now >= s->deadline)
		return true;
	for (uint32_t i = 0; i < s->shared->geometry.channels; i++) {
		const struct channel *ch = &s->channels[i];

		if (ch->session && weir_ring_peek(&ch->tx) && !channel_out_of_order(e, ch))
			return false;
	}
	return true;
}

void
sessions_remove(struct engine *e)
{
	struct list_node *node, *following, *conn, *next;

	LIST_EACH (node, following, &e->removals) {
		struct session *s = LIST_OWNER(node, struct session, removal);

		weir_assert(s->shared && s->remove);
		if (s->draining) {
			if (!is_drained(e, s))
				continue;
			s->draining = false;
			s->unpolled = true;
			exports_end(e, s);
			LIST_EACH (conn, next, &s->conns) {
				struct conn *c = LIST_OWNER(conn, struct conn, of_session);

				if (c->user_closed)
					conn_settle_later(e, c);
				else
					conn_user_close(e, c, true);
			}
		}
		if (e->now >= s->deadline) { /* the messages that wait will never leave */
			s->deadline = UINT64_MAX;
			LIST_EACH (conn, next, &s->conns) {
				struct conn *c = LIST_OWNER(conn, struct conn, of_session);

				if (c->state == CONN_FINISHING && c->pend_first)
					conn_abort(e, c, ECONNRESET, false);
			}
		}
		if (list_empty(&s->conns)) {
			weir_assert(!s->pool_used && !s->promised && !s->conns_memory_lent);
			for (uint32_t i = 0; i < s->shared->geometry.channels; i++)
				channel_fini(&s->channels[i]);
			list_remove(&s->removal);
			list_remove(&s->violator);
			list_remove(&s->signalled);
			s->shared = NULL;
			engine_complete(e, s->remove, 0);
		}
	}
}

void
sessions_housekeeping(struct engine *e)
{
	for (uint32_t i = 0; i < e->config.sessions; i++) {
		struct session *s = &e->sessions[i];
		uint64_t since = e->now - s->lacks_memory_at;

		if (!s->shared)
			continue;
		/* main is told once that peers wait for receive memory, and again only after it was
		 * free for a while */
		if (s->full != s->lacks_memory &&
		    since >= (s->lacks_memory ? FULL_NS : FULL_OVER_NS)) {
			s->full = s->lacks_memory;
			if (s->full) {
				count(&e->counters.receive_full, 1);
				s->full_due = e->main_events_due = e->rare = true;
			}
		}
		if (!s->lacks_memory)
			continue;
		session_memory_freed(e, s); /* deliveries have made room */
		credit_reclaim_some(e, s);
	}
}
