/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What this control knows of one other node, as a state machine: events and time in, actions out.
 * No sockets, no clock. The table of transitions is in docs/protocol.md.
 *
 * The node with the lower id dials, always: one connection per pair and nothing to arbitrate.
 */
#ifndef WEIR_CONTROL_PEER_H
#define WEIR_CONTROL_PEER_H

#include "message.h"

#include <stdbool.h>

#define PEER_RETRY_MIN 100u  /* ms between dials, doubling */
#define PEER_RETRY_MAX 2000u /* ms */
#define PEER_BEAT 250u	     /* ms between heartbeats, less if the node timeout is short */
#define PEER_CLOSE_MIN 5000u /* ms of silence after which a connection is taken for half-open */

enum peer_event {
	PEER_TICK,	/* time passed */
	PEER_OPENED,	/* handshake done; view: the peer's data plane as its control told it */
	PEER_HEARD,	/* any message came */
	PEER_VIEW,	/* the peer's control tells its data plane anew; view */
	PEER_LOST,	/* the connection is gone, or a dial failed */
	PEER_LINK_DOWN, /* our data plane: the peer doesn't answer on a link */
};

enum peer_action {
	PEER_DO_DIAL = 1,
	PEER_DO_BEAT = 2,    /* send a heartbeat */
	PEER_DO_CLOSE = 4,   /* close the connection; PEER_LOST has to follow */
	PEER_DO_TELL = 8,    /* tell our data plane the node's new state */
	PEER_DO_OFFERS = 16, /* the peer's data plane can take link offers (again) */
};

/* How much of the peer's control is there. */
enum peer_phase {
	PEER_APART,    /* no connection; we dial at retry_at, or wait to be dialled */
	PEER_DIALLING, /* a dial or its handshake is under way */
	PEER_JOINED,   /* handshake done */
};

struct peer {
	uint16_t id;
	bool dials; /* this end dials */
	enum peer_phase phase;
	enum weir_node_state state; /* what our data plane is told */
	struct dp_view dp; /* state UNKNOWN while apart; the rest is the last that was told */
	uint32_t timeout;  /* ms of silence until SUSPECT */
	uint32_t backoff;
	uint64_t heard_at, link_down_at, retry_at, beat_at; /* ms; link_down_at 0 = never */
};

void peer_init(struct peer *p, uint16_t id, uint16_t own_id, uint32_t timeout_ms, uint64_t now);

/* The one transition function. Returns a mask of enum peer_action. `view`: OPENED and VIEW only. */
unsigned peer_step(struct peer *p, enum peer_event event, uint64_t now, const struct dp_view *view);

/* May a new connection of this node take the place of the one there is? No while that one is heard.
 */
bool peer_replaceable(const struct peer *p, uint64_t now);

#endif
