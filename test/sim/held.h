/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections that their acceptor holds, and what programs learn of connections. */
#ifndef WEIR_TEST_SIM_HELD_H
#define WEIR_TEST_SIM_HELD_H

#include "program.h"

/* The next connection of the end's listener is there, undecided. */
void sim_held_accepted(struct sim_program *p, struct sim_end *e, struct weir_conn *c);
/* Decides when it is time to: true if anything happened; *open: it has been admitted, and is open.
 */
bool sim_held_decide(struct sim_program *p, struct sim_end *e, bool *open);
/* The connecting program was told that its connection is open, or refused. */
void sim_held_opened(struct sim_program *p, const struct sim_end *e);
void sim_held_refused(struct sim_program *p, struct sim_end *e);
/* Compares what the data plane and the library say of an open connection. */
void sim_check_info(struct sim_program *p, const struct sim_end *e);

#endif
