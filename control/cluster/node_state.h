/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of one other node, as reported to our data plane. A state machine: membership, the
 * data plane's view of its links and time in; actions out. Also decides which of two connections
 * stays. No sockets, no clock. The table of transitions is in docs/protocol.md.
 */
#ifndef WEIR_CONTROL_PEER_H
#define WEIR_CONTROL_PEER_H

#include "transport/message.h"

#include <stdbool.h>

enum peer_event {
	PEER_TICK,	/* time passed */
	PEER_RECORD,	/* its record is another; status, view, hearsay */
	PEER_LINKED,	/* the data planes have taken up offers of each other */
	PEER_LINK_DOWN, /* our data plane: the peer doesn't answer on a link */
	PEER_UNLINKED,	/* our data plane has gone, and its links with it */
};

enum peer_action {
	PEER_DO_TELL = 1,   /* tell our data plane the node's new state */
	PEER_DO_OFFERS = 2, /* the peer's data plane can take link offers (again) */
	PEER_DO_PROBE = 4,  /* find out whether its control lives */
	PEER_DO_CLOSE = 8,  /* its connection is of no use any more */
	PEER_DO_DOUBT = 16, /* ask it: hearsay, which a living link contradicts, was not believed */
};

struct peer {
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
void peer_init(struct peer *p, uint32_t timeout_ms, uint64_t now);

/*
 * The one transition function. Returns a mask of enum peer_action. The rest is of RECORD only;
 * `hearsay`: others have told the record, not the node itself.
 */
unsigned peer_step(struct peer *p, enum peer_event event, uint64_t now, enum swim_status status,
		   const struct dp_view *view, bool hearsay);

/*
 * A node, whose id is `id`, has dialled us although there is a connection: may the new one take its
 * place? Both ends decide alike: of two that cross each other the one stays that the lower id has
 * dialled.
 */
struct peer_conn {
	bool joined;	 /* its handshake is done; else we are dialling */
	bool same_life;	 /* the new one is of the same run of its control */
	bool same_place; /* both say that they listen at one address, where two can't */
};
bool peer_replaces(const struct peer_conn *old, uint16_t own, uint16_t id, enum swim_status status);

#endif
