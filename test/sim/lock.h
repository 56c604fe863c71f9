/* SPDX-License-Identifier: BSD-3-Clause */
/* A lock of an export that many programs ask for. */
#ifndef WEIR_TEST_SIM_LOCK_H
#define WEIR_TEST_SIM_LOCK_H

#include "program.h"

struct engine;

void sim_lock_create(struct sim *s);
void sim_lock_destroy(struct sim *s);
/* Attached: exports the lock, if it is its to export. */
void sim_lock_attached(struct sim_program *p);
/* Asks, holds, unlocks, gives up. True: something was done. */
bool sim_lock_step(struct sim_program *p, uint32_t thread);
/* When there is something to do although nothing comes; SIM_NEVER: no such time. */
uint64_t sim_lock_timer(const struct sim_program *p);
/* Nobody waits for it any more, and it waits for nobody. */
bool sim_lock_over(const struct sim_program *p);
/* NULL, or how an engine of the node breaks the order of the lock's queue. After each turn. */
const char *sim_lock_watch(struct sim *s, struct engine *e, uint32_t node);
/* It detaches; or `dies`. */
void sim_lock_left(struct sim_program *p, bool dies);

#endif
