/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fences that the rare side executes on the CPUs of the common side (membarrier), which then needs
 * none. If the kernel or a seccomp filter forbids it, each side executes its own fence.
 */
#ifndef WEIR_CLIENT_BARRIER_H
#define WEIR_CLIENT_BARRIER_H

#include <stdbool.h>

/* Registers this process; may be repeated. Any thread. */
void weir_barrier_register(void);
/* Whether weir_barrier_threads() reaches the threads of this process. */
bool weir_barrier_private(void);
/* Whether weir_barrier_global() reaches all registered processes. */
bool weir_barrier_registered(void);
void weir_barrier_threads(void);
/* A full fence here and in every registered process. */
void weir_barrier_global(void);

#endif
