/* SPDX-License-Identifier: BSD-3-Clause */
/* -t read: the server's memory that is read, with contents that follow from the place. */
#ifndef WEIR_PERF_REGION_H
#define WEIR_PERF_REGION_H

#include <stdint.h>

struct perf_region {
	uint8_t *memory; /* NULL: nobody has read yet */
	uint64_t size;
};

/* Writes the memory when it is needed first. 0 or -ENOMEM. */
int perf_region_open(struct perf_region *r);
void perf_region_close(struct perf_region *r);

#endif
