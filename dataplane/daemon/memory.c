/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory.h"

#include <rte_malloc.h>
#include <rte_memory.h>

static size_t used;

void *
memory_get(size_t bytes, int numa_socket)
{
	void *memory = rte_zmalloc_socket("weir", bytes, 64, numa_socket);

	if (!memory && numa_socket != SOCKET_ID_ANY)
		memory = rte_zmalloc_socket("weir", bytes, 64, SOCKET_ID_ANY);
	if (memory)
		used += bytes;
	return memory;
}

void
memory_put(void *memory, size_t bytes)
{
	if (!memory)
		return;
	used -= bytes;
	rte_free(memory);
}

size_t
memory_used(void)
{
	return used;
}
