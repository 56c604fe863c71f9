/* SPDX-License-Identifier: BSD-3-Clause */
/* Adopted memory: the server's region for -t read, and the driver's own buffers for --adopt. */
#ifndef WEIR_PERF_MEMORY_H
#define WEIR_PERF_MEMORY_H

#include "weir/memory.h"

#include <stdint.h>

#define REGION_PIECE (64ull << 20) /* bytes adopted by one call */
#define REGION_PIECES 256u
#define SLOTS_MAX 16u
#define SLOTS_BYTES (4u << 20) /* bytes of all buffers that fit in a cache; at least one buffer */

/* -t read: the memory that is read. Each word's value follows from its offset. */
struct perf_region {
	uint8_t *memory; /* NULL until the first reader asks */
	uint64_t size;
	struct weir_region *piece[REGION_PIECES]; /* cover the first `adopted` bytes */
	uint64_t adopted;			  /* bytes sent without a copy */
};

/* Allocates and fills the memory once, and adopts as much as possible. 0 or -ENOMEM. */
int perf_region_open(struct perf_region *r, struct weir *weir);
void perf_region_close(struct perf_region *r);

/*
 * --adopt: buffers out of which messages leave without a copy; a buffer is written again when its
 * last message is complete.
 */
struct perf_slots {
	uint8_t *memory; /* NULL: none */
	uint32_t count;
	uint64_t stride; /* bytes from one buffer to the next */
	struct weir_region *region;
};

/* Buffers for messages of `size` bytes, at most `most` (0: SLOTS_MAX). 0 or -errno. */
int perf_slots_open(struct perf_slots *s, struct weir *weir, uint32_t size, uint32_t most);
/* Flushes the connection that used them first. */
void perf_slots_close(struct perf_slots *s, struct weir_conn *conn);

/* The buffer of message i. */
static inline uint8_t *
perf_slots_at(const struct perf_slots *s, uint64_t i)
{
	return s->memory + i % s->count * s->stride;
}

#endif
