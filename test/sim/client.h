/* SPDX-License-Identifier: BSD-3-Clause */
/* How simulated programs attach to a simulated node: libweir's seam instead of a socket. */
#ifndef WEIR_TEST_SIM_CLIENT_H
#define WEIR_TEST_SIM_CLIENT_H

#include "sim.h"

#include "weir/stream.h"

struct sim_client;

/* A session of program number `program` at a node. Fails the seed if there is none. */
struct sim_client *sim_client_attach(struct sim *s, uint32_t node, uint32_t program,
				     struct weir **w);
/* Ends the session with weir_detach(), which waits until what was sent has been delivered. */
void sim_client_detach(struct sim_client *c, struct weir *w);
/* The program dies: at once, in whatever state it is. */
void sim_client_die(struct sim_client *c, struct weir *w);

#endif
