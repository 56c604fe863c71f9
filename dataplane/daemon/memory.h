/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for rings and tables: from DPDK's heap, hugepages if there are any, on a NUMA socket.
 * Main lcore only.
 */
#ifndef WEIR_MEMORY_H
#define WEIR_MEMORY_H

#include <stddef.h>

/* Zeroed, aligned to 64; on another socket if the wished one (-1: any) has none. NULL: none at all.
 */
void *memory_get(size_t bytes, int numa_socket);
void memory_put(void *memory, size_t bytes);
/* Bytes given out now. */
size_t memory_used(void);

#endif
