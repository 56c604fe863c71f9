/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for rings and tables: from DPDK's heap, hugepages if there are any, on a NUMA socket.
 * Main lcore only.
 */
#ifndef WEIR_MEMORY_H
#define WEIR_MEMORY_H

#include <stddef.h>

/*
 * Zeroed, aligned to 64; from another socket if numa_socket (-1: any) has none. NULL: none is left.
 * Callbacks of broker and ports, hence `user`, which is not used.
 */
void *memory_get(void *user, size_t bytes, int numa_socket);
void memory_put(void *user, void *memory, size_t bytes);

#endif
