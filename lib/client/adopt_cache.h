/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges sent with WEIR_CACHED, which the library adopts. */
#ifndef WEIR_CLIENT_ADOPT_CACHE_H
#define WEIR_CLIENT_ADOPT_CACHE_H

#include "public.h"

#include <pthread.h>

struct weir_region;

#define WEIR_CACHE 16u
#define WEIR_CACHE_BYTES (256u << 10) /* smaller ranges are copied: docs/performance.md */
struct weir_cached {
	const uint8_t *addr; /* NULL: unused */
	size_t length;
	int uses;      /* sends without a region */
	uint64_t last; /* clock of the last send */
	struct weir_region *region;
};
struct weir_cache {
	pthread_mutex_t lock; /* protects all that follows */
	int pagemap;	      /* /proc/self/pagemap, -1: not opened */
	uint64_t clock;
	struct weir_cached entry[WEIR_CACHE];
};

void weir_cache_init(struct weir *w);
void weir_cache_fini(struct weir *w);
/*
 * The region that holds [addr, addr + length), with a reference; adopts the range when due. NULL:
 * the range is to be copied. No worker locked.
 */
struct weir_region *weir_cache_use(struct weir *w, const void *addr, size_t length);

#endif
