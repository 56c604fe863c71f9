/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks inside engines: credits at both ends, stalls. */
#ifndef WEIR_TEST_SIM_CONSERVE_H
#define WEIR_TEST_SIM_CONSERVE_H

#include "sim.h"

struct engine;

/* NULL, or which credit of a link of e is not conserved between its two ends. */
const char *sim_conserved(struct sim *s, const struct engine *e);
/* At the end of an engine: adds what it has been through to the counts. */
void sim_count_engine(struct sim *s, const struct engine *e);
/* It falls asleep now. */
void sim_count_sleep(struct sim *s, const struct engine *e);

#endif
