/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quiet turns: memory that an engine may be reading is freed only after every engine has begun a
 * new turn or sleeps.
 */
#ifndef WEIR_QUIET_H
#define WEIR_QUIET_H

#include <rte_rcu_qsbr.h>

/* The quiet points of `engines` engines; NULL and errno. Main lcore. One at a time. */
struct rte_rcu_qsbr *quiet_create(unsigned engines);
void quiet_destroy(struct rte_rcu_qsbr *quiet);

/*
 * Holds EAL's interrupt thread between two callbacks while ports are stopped, started or closed, so
 * that no driver talks to its peer then. Release waits until the thread continues. Main lcore.
 */
void quiet_hold_interrupts(void);
void quiet_release_interrupts(void);

#endif
