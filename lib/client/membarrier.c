/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "membarrier.h"

#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic bool threads_ok, global_ok; /* written by attaching threads, always the same */

static bool
membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0) == 0;
}

void
weir_barrier_register(void)
{
	threads_ok = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
	global_ok = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

bool
weir_barrier_private(void)
{
	return threads_ok;
}

bool
weir_barrier_registered(void)
{
	return global_ok;
}

void
weir_barrier_threads(void)
{
	if (!threads_ok || !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		atomic_thread_fence(memory_order_seq_cst);
}

void
weir_barrier_global(void)
{
	if (!global_ok || !membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED))
		atomic_thread_fence(memory_order_seq_cst);
}
