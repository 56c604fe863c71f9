/* SPDX-License-Identifier: BSD-3-Clause */
/* What internal.h includes of datagrams; see datagram.c. */
#ifndef WEIR_ENGINE_DATAGRAM_H
#define WEIR_ENGINE_DATAGRAM_H

#include "engine.h"

struct conn;
struct link;
struct head;

struct datagrams { /* what datagram connections share */
	struct engine_datagram_command is;
	uint32_t qpn;
	bool up;
	bool broken, tell_broken; /* main isn't told yet: WRs are outstanding */
	uint64_t posted, done;	  /* WRs; that of number n uses buffer n mod ENGINE_DATAGRAMS */
	uint32_t missing_count;	  /* buffers to be posted */
	uint16_t missing[ENGINE_DATAGRAMS];
};

int datagrams_add(struct engine *e, const struct engine_datagram_command *k);
/* Its connections end; main is told when the NIC has let go of its memory. */
void datagrams_break(struct engine *e);
bool datagrams_tell(struct engine *e);
void datagrams_refill(struct engine *e);
void datagrams_completion(struct engine *e, const struct nic_wc *wc);
/* The link may be used for datagrams to here, and what comes from here is the peer's. */
void datagrams_join(struct link *l, const struct engine_conn_command *k);
void datagrams_open(struct engine *e, struct conn *c, uint32_t peer_vqpn);
/*
 * Sends the message at the ring's position, or (r NULL) the first that waits. False: it has to wait
 * for the NIC.
 */
bool datagram_send(struct engine *e, struct conn *c, const struct weir_ring *r, struct head h,
		   weir_place place);

#endif
