/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads of programs that call what waits. One thread of all runs at a time: a wait of the library
 * (system.c) hands over to the one that runs the events, until the event that lets the thread
 * go on. The same holds for threads that the library starts, and for its mutexes and conditions.
 */
#ifndef WEIR_TEST_SIM_LOCKSTEP_H
#define WEIR_TEST_SIM_LOCKSTEP_H

#include "sim.h"

struct lockstep_thread;

/* The seed has such threads: frees those of the last one, which have ended. */
void lockstep_reset(struct sim *s);
/* A thread of a program on the node, which soon runs run(arg). Fails the seed if there is none. */
struct lockstep_thread *lockstep_start(struct sim *s, uint32_t node, void *(*run)(void *arg),
				       void *arg);
/* Also its destructors of thread-specific data have run. */
bool lockstep_ended(const struct lockstep_thread *t);

#endif
