/* SPDX-License-Identifier: BSD-3-Clause */
/* Datagram connections: unordered, unacknowledged messages by one queue pair per engine. */
#ifndef WEIR_ENGINE_DATAGRAM_H
#define WEIR_ENGINE_DATAGRAM_H

#include "engine.h"

struct conn;
struct peer_link;
struct head;

/* State that all datagram connections of an engine share. */
struct datagrams {
	struct engine_datagram_command is;
	uint32_t qpn;
	bool up;
	bool broken;		/* the QP has failed; until main brings another */
	bool ending;		/* its connections end in the next turn */
	bool broken_due;	/* main is told once no WR is outstanding */
	uint64_t posted, done;	/* WRs; WR n uses buffer n mod ENGINE_DATAGRAMS */
	uint32_t missing_count; /* buffers to be posted */
	uint16_t missing[ENGINE_DATAGRAMS];
};

int datagrams_add(struct engine *e, const struct engine_datagram_command *k);
/* The QP failed. Callers keep using its connections, which end in the next turn. */
void datagrams_break(struct engine *e);
/* Ends the connections of a QP that failed. Once per turn. */
void datagrams_settle(struct engine *e);
/* Tells main of the break. False: main's queue has no room. */
bool datagrams_emit_broken(struct engine *e);
void datagrams_refill(struct engine *e);
void datagrams_completion(struct engine *e, const struct nic_wc *wc);
/* Sets the address of the peer's datagram QP, and takes datagrams from there as the peer's. */
void datagrams_join(struct peer_link *l, const struct engine_conn_command *k);
void datagrams_open(struct engine *e, struct conn *c, uint32_t peer_vqpn);
/*
 * Sends the message at the ring's position, or, if r is NULL, the first message that waits. False:
 * the NIC has no room for it yet.
 */
bool datagram_send(struct engine *e, struct conn *c, const struct weir_ring *r, struct head h,
		   weir_place place);

#endif
