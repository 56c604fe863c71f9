/* SPDX-License-Identifier: BSD-3-Clause */
/* One end of a connection, in the hands of its program. */
#ifndef WEIR_TEST_SIM_END_H
#define WEIR_TEST_SIM_END_H

#include "oracle.h"
#include "program.h"

/* Tries once; true if anything happened. */
bool sim_end_connect(struct sim_program *p, struct sim_end *e);
bool sim_end_send(struct sim_program *p, struct sim_end *e);
bool sim_end_receive(struct sim_program *p, struct sim_end *e);
/* Shuts down sending if it does so and has sent all. */
bool sim_end_shut(struct sim_program *p, struct sim_end *e);
/* Closes if it is time to. */
bool sim_end_close(struct sim_program *p, struct sim_end *e);
/* The connection broke, or could not be made. */
void sim_end_failed(struct sim_program *p, struct sim_end *e, int status);
/* When the end wants to be looked at without having been woken. */
uint64_t sim_end_timer(const struct sim_program *p, const struct sim_end *e);
/* Gives back loans that are over; all of them if `all`. */
bool sim_program_release(struct sim_program *p, bool all);

#endif
