/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory.h"

#include <rte_malloc.h>
#include <rte_memory.h>

void *
memory_get(void *user, size_t bytes, int numa_socket)
{
	void *memory = rte_zmalloc_socket("weir", bytes, 64, numa_socket);

	if (!memory && numa_socket != SOCKET_ID_ANY)
		memory = rte_zmalloc_socket("weir", bytes, 64, SOCKET_ID_ANY);
	return memory;
}

void
memory_put(void *user, void *memory, size_t bytes)
{
	rte_free(memory);
}
