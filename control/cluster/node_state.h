/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of one other node, as reported to our data plane. A state machine: membership, the
 * data plane's view of its links and time in; actions out. Also decides which of two connections
 * stays. No sockets, no clock. The table of transitions is in docs/protocol.md.
 */
#ifndef WEIR_CONTROL_NODE_STATE_H
#define WEIR_CONTROL_NODE_STATE_H

#include "transport/message.h"

#include <stdbool.h>

enum node_event {
	NODE_TICK,	/* time passed */
	NODE_RECORD,	/* its record is another; status, view, hearsay */
	NODE_LINKED,	/* the data planes have taken up offers of each other */
	NODE_LINK_DOWN, /* our data plane: the peer doesn't answer on a link */
	NODE_UNLINKED,	/* our data plane has gone, and its links with it */
};

enum node_action {
	NODE_DO_REPORT = 1, /* tell our data plane the node's new state */
	NODE_DO_OFFERS = 2, /* the peer's data plane can take link offers (again) */
	NODE_DO_PROBE = 4,  /* find out whether its control lives */
	NODE_DO_CLOSE = 8,  /* its connection is of no use any more */
	NODE_DO_ASK = 16,   /* ask it: hearsay, which a living link contradicts, was not believed */
};

struct node_state {
	enum weir_node_state state; /* what our data plane is told */
	struct dp_view dp;	    /* the last of which is known whether it runs */
	enum swim_status status;    /* of its control */
	bool linked;	       /* there is a data path: silence of control alone is suspicion */
	bool doubted;	       /* its latest record was not believed, for the links' sake */
	uint32_t timeout;      /* ms */
	uint64_t silent_at;    /* ms: when its control was given up; 0: it lives */
	uint64_t link_down_at; /* ms; 0 = never */
};

/* Of a node that is not heard of in time a link that fails says that it is dead. */
void node_state_init(struct node_state *p, uint32_t timeout_ms, uint64_t now);

/*
 * The one transition function. Returns a mask of enum node_action. The rest is of RECORD only;
 * `hearsay`: others have told the record, not the node itself.
 */
unsigned node_state_step(struct node_state *p, enum node_event event, uint64_t now,
			 enum swim_status status, const struct dp_view *view, bool hearsay);

/*
 * A node, whose id is `id`, has dialled us although there is a connection: may the new one take its
 * place? Both ends decide alike: of two that cross each other the one stays that the lower id has
 * dialled.
 */
struct old_conn {
	bool joined;	 /* its handshake is done; else we are dialling */
	bool same_life;	 /* the new one is of the same run of its control */
	bool same_place; /* both say that they listen at one address, where two can't */
};
bool conn_replaces(const struct old_conn *old, uint16_t own, uint16_t id, enum swim_status status);

#endif
