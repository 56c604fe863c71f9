/* SPDX-License-Identifier: BSD-3-Clause */
/* How simulated programs attach to a simulated node: libweir's seam instead of a socket. */
#ifndef WEIR_TEST_SIM_CLIENT_H
#define WEIR_TEST_SIM_CLIENT_H

#include "program.h"

/* Attaches; then calls sim_program_attached(). */
void sim_client_start(struct sim_program *p);
/* Ends the session with weir_detach(), which waits until what was sent has been delivered. */
void sim_client_detach(struct sim_program *p);
/* The program dies: at once, in whatever state it is. */
void sim_client_die(struct sim_program *p);

#endif
