/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of one program that many access, at once and in turn. */
#ifndef WEIR_TEST_SIM_COMMON_H
#define WEIR_TEST_SIM_COMMON_H

#include "program.h"

#include "weir/remote.h"

void sim_common_create(struct sim *s);
void sim_common_destroy(struct sim *s);
/* Attached: exports the memory, if it is its to export. */
void sim_common_attached(struct sim_program *p);
/* Operates, passes on, checks. True: something was done. */
bool sim_common_step(struct sim_program *p, uint32_t thread);
/* A notice came to p. False: it is of another export. */
bool sim_common_notice(struct sim_program *p, const struct weir_notice *n);
/* When there is something to do although nothing comes; SIM_NEVER: no such time. */
uint64_t sim_common_timer(const struct sim_program *p);
/* Nobody waits for it any more, and it waits for nobody. */
bool sim_common_over(const struct sim_program *p);
/* Adds what is left to be done to `text`. */
void sim_common_waits_for(const struct sim *s, char *text, size_t size);
/* It detaches; or `dies`. */
void sim_common_left(struct sim_program *p, bool dies);

#endif
