/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State of an engine. All of it is private to the engine's thread. Memory shared with programs
 * (slots, tails, sleep flags, descriptors) and with peers (ring, credit line) is reached through
 * pointers and never trusted; docs/decisions.md 2-6 explain the scheme.
 */
#ifndef WEIR_ENGINE_STATE_H
#define WEIR_ENGINE_STATE_H

#include "datagram.h"
#include "engine.h"
#include "events.h"
#include "base/list.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((noinline)) /* keeps rare code out of hot functions */

struct channel;
struct conn;
struct conn_cold;
struct peer_link;
struct reject;
struct session;

enum { HOUSEKEEPING = 256 }; /* turns between two housekeepings, a power of two */

/* nic_qp_init.user of a QP: RING or BULK of a link, DATAGRAM of the engine. */
struct link_qp {
	struct peer_link *link;
	unsigned index;
};

struct engine {
	struct engine_config config;
	void *memory; /* in which all of this lies, from its first cache line on */
	uint64_t now, turn;
	uint64_t keepalive_at, probe_at, look_at; /* ns: the sooner one; of links_keepalive() */
	uint32_t load;				  /* 1/1000 */
	uint64_t away;				  /* ns, see engine_set_away() */
	struct conn *conns;
	struct conn_cold *cold_conns; /* entry i belongs to conns[i] */
	uint32_t first_index;	      /* vqpn index of conns[0] */
	uint32_t *free_conns;	      /* stack */
	uint32_t free_count, conns_fresh;
	struct session *sessions; /* by id */
	struct peer_link *links;
	struct list_node hot, cold; /* channels that had work lately; all others */
	struct list_node busy, backlog, doorbells, closing, removals;
	/* work that most turns don't have is due: whoever makes some sets it, engine_turn() looks
	 * for all of it then */
	bool rare;
	struct list_node links_in_use; /* links whose peer is probed when silent */
	struct list_node link_news;    /* links that main must hear of */
	struct list_node settling;  /* connections that conns_settle() looks at in the next turn */
	struct list_node violators; /* sessions whose connections end in the next turn */
	struct list_node lock_news; /* connections with requests for the owners of locks */
	struct list_node signalled; /* sessions whose sleepers doorbells_ring() looks for */
	struct list_node limited;   /* struct queue of programs that have used up their rate */
	uint64_t limited_at;	    /* ns: the first of them may send again */
	uint64_t class_turn[WEIR_CLASSES]; /* last turn in which a link of the class sent, or 0 */
	bool classes;			   /* there was a link of another class than NORMAL */
	uint64_t split_turn;	  /* last turn in which a link's frame is split among programs */
	struct session *latest;	  /* sent or received last */
	uint64_t rivals_until;	  /* ns: until then several sessions compete */
	uint64_t round;		  /* number of the round of programs that compete */
	int64_t cost;		  /* slots: cost of the messages taken from the channel */
	bool held;		  /* a channel waits for its program's next round */
	uint32_t active_channels; /* channels that had work in this turn */
	bool flags_up;		  /* of sleep: no turn may follow the one behind a doorbell */
	bool sleeps;		  /* it has slept, so it may sleep again
				   */
	struct peer_link *opened; /* a link whose frame was opened in this turn, NULL: none */
	bool opened_more;	  /* so were other links' */
	bool served;		  /* programs sent or received in this turn */
	bool delivered;	      /* small messages were delivered in this turn: answers follow soon */
	bool ctrl_added;      /* a control line, since links sent last */
	bool main_events_due; /* main must hear of a link's error or a session's violation */
	uint32_t *srq_free;   /* stack of receive buffers that are not posted */
	uint32_t srq_missing; /* entries of srq_free */
	uint32_t wrs_granted; /* receive WRs that the peers of all links were granted */
	bool wrs_lack;	      /* peers are not told of used ones: none stand in for them */
	struct datagrams datagrams;
	struct link_qp datagram_user;
	uint16_t node;
	struct reject *rejects;	       /* reject_entries() */
	uint16_t reject_free;	       /* list of entries, 0: none */
	uint16_t rejects_fresh;	       /* entries behind this one were never used */
	uint16_t rejects_left;	       /* of REJECTS */
	struct engine_event *connects; /* ring */
	uint32_t connect_first, connect_end;
	struct node_event node_events[NODE_EVENTS];
	uint32_t node_event_end;
	struct engine_command *waiting; /* each turn executes them again: see engine_execute() */
	struct engine_command *done, **done_last;
	struct engine_counters counters;
	struct weir_conn_desc no_desc; /* of all passive ends: written, never read */
	struct list_node lock_polls; /* exports whose first waiter awaits a program of this host */
};

/* Whether something waits for room in the queue of main, or for a program that will not tell. */
static inline bool
engine_tells_later(const struct engine *e)
{
	return e->main_events_due || e->waiting || !list_empty(&e->closing) ||
	       !list_empty(&e->removals) || !list_empty(&e->lock_news) ||
	       !list_empty(&e->lock_polls) || e->connect_first != e->connect_end;
}

static inline void
count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

#endif
