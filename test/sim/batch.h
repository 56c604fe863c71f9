/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls for several messages, or for one in pieces, beside those of end.c. */
#ifndef WEIR_TEST_SIM_BATCH_H
#define WEIR_TEST_SIM_BATCH_H

#include "oracle.h"
#include "program.h"

/* Of each end, from the seed alone: whether it has such calls, and their chance. */
void sim_batch_init(struct sim_program *p, struct sim_end *e);
/* Whether the next call of this end is one of these. */
bool sim_batch_turn(struct sim_end *e);
/* The number of messages accepted, 1 at least, or why the first one was not. */
int sim_batch_send(struct sim_program *p, struct sim_end *e);
/* 0: messages were received and verified; else what a call for one message returns. */
int sim_batch_receive(struct sim_program *p, struct sim_end *e);

#endif
