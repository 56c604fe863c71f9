/* SPDX-License-Identifier: BSD-3-Clause */
/* An attached program as its engine keeps it: channels, adopted memory, receive blocks, rate. */
#ifndef WEIR_ENGINE_SESSION_H
#define WEIR_ENGINE_SESSION_H

#include "engine.h"
#include "ipc/block.h"
#include "base/list.h"
#include "state.h"

#define SHARE_LEVELS 2u /* engine_share of a program, and of its user */

struct channel;
struct export;
struct pend;
struct queue;
struct region;

enum {
	RIVALS_NS = 1000000, /* ns for which programs compete after each of them had messages */
};

/*
 * Flag of an entry of session.runs: the block is not out with the program, it holds spilled slots.
 * The rest of the entry is the next block of the chain.
 */
#define RUN_CHAIN 0x80000000u

struct session {
	struct engine_session *shared; /* NULL: entry unused */
	uint8_t *base;
	struct channel *channels;
	uint32_t channel_end; /* those behind are not in use */
	struct weir_blocks blocks;
	uint32_t *runs; /* by first block: length of the run out with the program; or RUN_CHAIN */
	uint64_t recv_at, send_at, send_end; /* offsets in the arena */
	uint64_t promised;		     /* bytes of receive memory granted to peers */
	uint32_t reserve;		     /* blocks kept for starting spills, one per channel */
	struct pend *pool, *pool_free;
	uint32_t pool_size, pool_fresh, pool_used;
	uint32_t posted;	/* entries of the pool in use for posted memory */
	struct region *regions; /* adopted memory: region i is regions[i - 1] */
	uint32_t region_count;
	struct export *exports; /* export i is exports[i - 1] */
	uint32_t export_count;
	uint32_t conns_memory_lent; /* connections with conn.memory_lent set */
	struct engine_share *share;
	struct engine_session_counters *counters;
	struct queue *queues; /* two per link */
	bool limited;	      /* has a rate: its messages go through the send queue */
	int64_t tokens;	      /* bytes of its rate that this engine has taken */
	/* engine_share.paid of each level when this engine last took a part of the rate */
	uint64_t paid[SHARE_LEVELS];
	struct list_node conns, awaits_grant, awaits_place;
	struct list_node *reclaim_next;
	int64_t left;	/* slots left of its part of the engine's round; below 0: debt */
	uint64_t round; /* last engine.round of which it got a part */
	uint64_t
	    stuck_at;  /* turn in which its channels were last checked for messages out of order */
	bool unpolled; /* its channels are not polled */
	bool violated, violation_due;
	uint8_t slow_bells; /* rings in a row that took longer than WEIR_BELL_SLOW_NS */
	uint64_t bells_at;  /* ns: no doorbell is rung before */
	bool lacks_memory;  /* a connection waits for receive memory */
	bool full;	    /* lacks_memory for long: main was told, or will be (full_due) */
	bool full_due;
	uint64_t lacks_memory_at; /* ns: `lacks_memory` changed last */
	bool adding;		  /* a new channel waits for receive memory */
	bool draining;		  /* being removed: its channels are emptied first */
	uint64_t deadline;
	uint32_t node_seen;	   /* entries of engine.node_events put into its rings */
	struct list_node removal;  /* in engine.removals */
	struct list_node violator; /* in engine.violators */
	/* in engine.signalled: memory that its threads may sleep on has changed */
	struct list_node signalled;
	struct engine_command *remove;
	const char *reason;
};

struct session *session_find(struct engine *e, uint32_t id);
int session_add(struct engine *e, struct engine_session *shared);
void session_remove(struct engine *e, struct engine_command *c);
/* Ends the connections of sessions that broke the rules. Once per turn. */
void sessions_settle(struct engine *e);
/* Continues removals; their commands complete when nothing refers to the session. */
void sessions_remove(struct engine *e);
void sessions_housekeeping(struct engine *e);
/* The program broke the rules: its channels are no longer polled, its peers get RESET. Callers keep
 * using its connections, which end in the next turn. */
void session_violate(struct engine *e, struct session *s, const char *reason);
/* The program releases a block, or the run of a bulk message. False: it has no such block. */
bool session_release(struct session *s, weir_place place);

/* ---- receive memory ---- */

/* Bytes of receive memory that may still be granted. */
uint64_t session_spare(const struct session *s);
/* Whether n blocks can be taken besides the memory granted, `more` bytes and the reserve. */
bool session_affords(const struct session *s, uint64_t more, uint32_t n);
/* Puts a connection that waits for receive memory on list `l`. */
void session_await_memory(struct engine *e, struct session *s, struct list_node *l,
			  struct list_node *node);
/* After receive memory has become free: serves the connections that wait for it. */
void session_memory_freed(struct engine *e, struct session *s);

/* The program sends or receives: it competes with another that did so lately. */
static inline void
session_active(struct engine *e, struct session *s)
{
	if (LIKELY(e->latest == s))
		return;
	e->latest = s;
	e->rivals_until = e->now + RIVALS_NS;
}

#endif
