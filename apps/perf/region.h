/* SPDX-License-Identifier: BSD-3-Clause */
/* -t read: the server's memory that is read, with contents that follow from the place. */
#ifndef WEIR_PERF_REGION_H
#define WEIR_PERF_REGION_H

#include "weir/memory.h"

#include <stdint.h>

#define REGION_PIECE (64ull << 20) /* adopted at a time */
#define REGION_PIECES 256u

struct perf_region {
	uint8_t *memory; /* NULL: nobody has read yet */
	uint64_t size;
	struct weir_region
	    *piece[REGION_PIECES]; /* the first `adopted` bytes, which aren't copied */
	uint64_t adopted;
};

/* Writes the memory when it is needed first, and has as much of it adopted as goes. 0 or -ENOMEM.
 */
int perf_region_open(struct perf_region *r, struct weir *weir);
void perf_region_close(struct perf_region *r);

#endif
