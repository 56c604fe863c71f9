/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocator of equal blocks over a bitmap. */
#include "block.h"

#include "invariant.h"

#include <assert.h>
#include <string.h>

void
weir_blocks_init(struct weir_blocks *b, uint64_t *map, uint32_t count)
{
	uint32_t words = weir_blocks_words(count);

	memset(map, 0, words * sizeof(*map));
	if (count % 64)
		map[words - 1] = ~0ull << (count % 64);
	b->taken = map;
	b->count = count;
	b->free = count;
	b->hint = 0;
}

/* No word before b->hint has a free block. */
uint32_t
weir_blocks_take(struct weir_blocks *b)
{
	uint32_t words = weir_blocks_words(b->count);

	for (; b->hint < words; b->hint++) {
		uint64_t open = ~b->taken[b->hint];
		uint32_t bit;

		if (!open)
			continue;
		weir_assert(b->free);
		bit = (uint32_t)__builtin_ctzll(open);
		b->taken[b->hint] |= 1ull << bit;
		b->free--;
		return b->hint * 64 + bit;
	}
	return WEIR_BLOCK_NONE;
}

/* Greatest block in [least, end) that is taken (or free), or WEIR_BLOCK_NONE. */
static uint32_t
last_between(const struct weir_blocks *b, uint32_t least, uint32_t end, bool taken)
{
	while (end > least) {
		uint32_t word = (end - 1) / 64, bits = (end - 1) % 64 + 1;
		uint64_t w = taken ? b->taken[word] : ~b->taken[word];

		w &= ~0ull >> (64 - bits);
		if (w) {
			uint32_t found = word * 64 + 63 - (uint32_t)__builtin_clzll(w);

			return found >= least ? found : WEIR_BLOCK_NONE;
		}
		end = word * 64;
	}
	return WEIR_BLOCK_NONE;
}

static void
mark(struct weir_blocks *b, uint32_t first, uint32_t n, bool taken)
{
	weir_assert(first <= b->count && n <= b->count - first);
	while (n) {
		uint32_t word = first / 64, bit = first % 64;
		uint32_t here = 64 - bit < n ? 64 - bit : n;
		uint64_t bits = (~0ull >> (64 - here)) << bit;

		if (taken)
			b->taken[word] |= bits;
		else
			b->taken[word] &= ~bits;
		first += here;
		n -= here;
	}
}

uint32_t
weir_blocks_take_run(struct weir_blocks *b, uint32_t n)
{
	uint32_t end = b->count;

	if (!n || n > b->free)
		return WEIR_BLOCK_NONE;
	for (;;) {
		uint32_t high = last_between(b, 0, end, false), low;

		if (high == WEIR_BLOCK_NONE || high + 1 < n)
			return WEIR_BLOCK_NONE;
		low = last_between(b, high + 1 - n, high, true);
		if (low == WEIR_BLOCK_NONE) {
			mark(b, high - n + 1, n, true);
			b->free -= n;
			return high - n + 1;
		}
		end = low;
	}
}

bool
weir_blocks_are_taken(const struct weir_blocks *b, uint32_t first, uint32_t n)
{
	return n && first < b->count && n <= b->count - first &&
	       last_between(b, first, first + n, false) == WEIR_BLOCK_NONE;
}

void
weir_blocks_give(struct weir_blocks *b, uint32_t first, uint32_t n)
{
	assert(weir_blocks_are_taken(b, first, n));
	mark(b, first, n, false);
	b->free += n;
	weir_assert(b->free <= b->count);
	if (first / 64 < b->hint)
		b->hint = first / 64;
}
