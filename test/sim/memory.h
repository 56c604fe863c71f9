/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that one program exports and another one puts into, checked byte by byte. */
#ifndef WEIR_TEST_SIM_MEMORY_H
#define WEIR_TEST_SIM_MEMORY_H

#include "program.h"

void sim_memories_create(struct sim *s);
void sim_memories_destroy(struct sim *s);
/* Attached: exports what is its to export. */
void sim_memory_attached(struct sim_program *p);
/* Puts, flushes, checks, revokes. True: something was done. */
bool sim_memory_step(struct sim_program *p, uint32_t thread);
/* Takes some notices of exports of p. */
bool sim_memory_notices(struct sim_program *p);
/* When there is something to do although nothing comes; SIM_NEVER: no such time. */
uint64_t sim_memory_timer(const struct sim_program *p);
/* Nobody waits for it any more, and it waits for nobody. */
bool sim_memory_over(const struct sim_program *p);
/* It detaches, or dies. */
void sim_memory_left(struct sim_program *p);

#endif
