/* SPDX-License-Identifier: BSD-3-Clause */
/* An attached program as its engine keeps it: channels, adopted memory, receive blocks, rate. */
#ifndef WEIR_ENGINE_SESSION_H
#define WEIR_ENGINE_SESSION_H

#include "ipc/block.h"
#include "engine.h"
#include "list.h"

#define SHARE_LEVELS 2u /* engine_share of a program, and of its user */

struct pend;
struct queue;

struct channel {
	struct session *session; /* NULL: doesn't exist */
	struct weir_ring tx, rx, returns;
	struct weir_channel_head *head;
	uint32_t empty; /* passes without work */
	bool clogged;	/* what arrives for it is spilled: order */
	bool blocked;	/* its head waits for an earlier message or for room in the engine */
	bool bell_due;	/* published since the bell was last looked at */
	bool fence;
	uint32_t doorbell;
	uint64_t bell_at; /* theoretical arrival time of the next doorbell */
	uint32_t opening; /* connections whose OPENED or ACCEPTED waits for room */
	/* spilled slots: a chain of receive blocks */
	uint32_t spill_first, spill_last; /* blocks */
	uint32_t spill_from, spill_to;	  /* slots in those */
	uint32_t spill_count;
	struct list telling; /* connections with events */
	struct list polled;  /* in engine.hot or engine.cold */
	struct list backlog; /* in engine.backlog */
	struct list bell;    /* in engine.bells */
};

/* A program's own memory, adopted. */
struct region {
	uint8_t *base; /* NULL: none */
	uint64_t bytes;
	uint32_t flags; /* WEIR_ADOPT_* */
	uint32_t users; /* messages under way that lie, or will lie, in it */
	bool leaving;	/* no more of them */
	struct nic_mr mr;
};

struct session {
	struct engine_session *shared; /* NULL: entry unused */
	uint8_t *base;
	struct channel *channels;
	struct weir_blocks blocks;
	uint32_t *runs; /* length of the run that is out with the program, at its first block; chain
			   of spill blocks */
	uint64_t recv_at, send_at, send_end; /* offsets in the arena */
	uint64_t promised;		     /* bytes of receive memory that may arrive unasked */
	uint32_t reserve;		     /* blocks kept for starting spills, one a channel */
	struct pend *pool, *pool_free;
	uint32_t pool_size, pool_fresh, pool_used;
	uint32_t posted;	/* of those: posted memory */
	struct region *regions; /* adopted memory: region i is regions[i - 1] */
	uint32_t region_count;
	uint32_t lent; /* connections that are so */
	struct engine_share *share;
	struct engine_session_counters *counters;
	struct queue *queues; /* two a link */
	bool limited;	      /* has a rate: its messages take the long way */
	int64_t tokens;	      /* bytes of its rate that this engine has taken */
	/* engine_share.paid, of its own and those above, when it last took a part */
	uint64_t paid[SHARE_LEVELS];
	struct list conns, starving, placing;
	struct list *reclaim_next;
	int64_t left;	   /* of its part of the engine's rounds; below 0: debt */
	uint64_t round;	   /* the last one of which it got a part */
	uint64_t stuck_at; /* turn in which its channels were last asked whether they are */
	bool deaf;	   /* its channels aren't polled */
	bool violated, tell_violation;
	uint8_t slow_bells; /* rings in a row that took longer than WEIR_BELL_SLOW_NS */
	uint64_t bells_at;  /* none is rung before, ns */
	bool hungry;	    /* somebody waits for receive memory */
	bool full;	    /* for long: main has been told, or will be (tell_full) */
	bool tell_full;
	uint64_t hungry_at; /* when that changed */
	bool adding;	    /* of these: a new channel */
	bool draining;	    /* being removed: its channels are emptied first */
	uint64_t deadline;
	uint32_t node_seen;  /* of engine.node_events */
	struct list removal; /* in engine.removals */
	struct engine_command *remove;
	const char *reason;
};

#endif
