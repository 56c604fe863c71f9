/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --adopt: a program's own buffers, adopted into its session, out of which messages leave without a
 * copy; each is written again when what it held is complete.
 */
#ifndef WEIR_PERF_SLOTS_H
#define WEIR_PERF_SLOTS_H

#include "weir/memory.h"

#include <stdint.h>

#define SLOTS_MAX 16u
#define SLOTS_BYTES (4u << 20) /* what a cache holds; one buffer in any case */

struct perf_slots {
	uint8_t *memory; /* NULL: none */
	uint32_t count;
	uint64_t stride;
	struct weir_region *region;
};

/* Buffers for messages of `size` bytes: `most`, if not 0, or as many as are useful. 0 or -errno. */
int perf_slots_open(struct perf_slots *s, struct weir *weir, uint32_t size, uint32_t most);
/* The connection that used them is flushed first. */
void perf_slots_close(struct perf_slots *s, struct weir_conn *conn);

/* Where message i lies. */
static inline uint8_t *
perf_slots_at(const struct perf_slots *s, uint64_t i)
{
	return s->memory + i % s->count * s->stride;
}

#endif
