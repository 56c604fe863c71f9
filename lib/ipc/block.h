/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocator of equal blocks: single ones from the low end, contiguous runs from the high end, so
 * that runs stay possible. A bitmap in the owner's private memory, without locks. The engine uses
 * it for receive blocks, the library for the send heap.
 */
#ifndef WEIR_COMMON_BLOCK_H
#define WEIR_COMMON_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define WEIR_BLOCK_NONE UINT32_MAX

struct weir_blocks {
	uint64_t *taken; /* bit i = block i is taken; bits beyond count are set */
	uint32_t count, free;
	uint32_t hint; /* word where the search for a single block starts */
};

/* Words of memory that `count` blocks need. */
static inline uint32_t
weir_blocks_words(uint32_t count)
{
	return (count + 63) / 64;
}

/* All free. `map` has weir_blocks_words(count) words and belongs to the caller. */
void weir_blocks_init(struct weir_blocks *b, uint64_t *map, uint32_t count);
/* One block, or WEIR_BLOCK_NONE. O(words) at worst, usually O(1). */
uint32_t weir_blocks_take(struct weir_blocks *b);
/* n contiguous blocks, the first one's index, or WEIR_BLOCK_NONE. n >= 1. */
uint32_t weir_blocks_take_run(struct weir_blocks *b, uint32_t n);
/* Whether all of [first, first + n) exist and are taken. */
bool weir_blocks_are_taken(const struct weir_blocks *b, uint32_t first, uint32_t n);
/* Frees blocks, which must be taken. */
void weir_blocks_give(struct weir_blocks *b, uint32_t first, uint32_t n);

#endif
