/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hash of a value is the XXH3 of its bytes, seeded with the hash of the values before it. Equal
 * values must have equal bytes, however an array holds them: nulls, floats and dictionaries need
 * care.
 */
#include "hash.h"

#include "array.h"

#include "ipc/invariant.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* In the place of a null's bytes. */
static const uint64_t null_word = 0x6e756c6c6e756c6cull;

/* One zero and one NaN per width: IEEE 754 of 2, 4 or 8 bytes. */
static uint64_t
canonical_float(const uint8_t *p, uint32_t width)
{
	unsigned bits = 8 * width, exponent = width == 2 ? 5 : width == 4 ? 8 : 11;
	uint64_t value = 0, magnitude, infinity;

	memcpy(&value, p, width);
	magnitude = value & (((uint64_t)1 << (bits - 1)) - 1);
	infinity = (((uint64_t)1 << exponent) - 1) << (bits - 1 - exponent);
	return magnitude > infinity ? infinity + 1 : magnitude ? value : 0;
}

static uint64_t
hash_fixed(const struct arrow_type *t, const struct ArrowArray *a, uint64_t place, uint64_t seed)
{
	const uint8_t *p = (const uint8_t *)a->buffers[1] + place * t->width;
	uint64_t value;

	if (t->number != ARROW_FLOAT)
		return XXH3_64bits_withSeed(t->width ? p : NULL, t->width, seed);
	value = canonical_float(p, t->width);
	return XXH3_64bits_withSeed(&value, t->width, seed);
}

/* Element number i of an array, counted from its offset. */
static uint64_t
hash_value(const struct arrow_type *t, const struct ArrowArray *a, uint64_t i, uint64_t seed)
{
	uint64_t place = i + (uint64_t)a->offset, first, end;
	const struct arrow_type *below = t + 1;
	uint8_t bit;

	if (t->layout == ARROW_NULL || arrow_is_null(a, place))
		return XXH3_64bits_withSeed(&null_word, sizeof(null_word), seed);
	if (t->dictionary)
		return hash_value(below, a->dictionary, arrow_index(t, a->buffers[1], place), seed);
	switch (t->layout) {
	case ARROW_BOOL:
		bit = arrow_bit(a->buffers[1], place);
		return XXH3_64bits_withSeed(&bit, 1, seed);
	case ARROW_FIXED:
		return hash_fixed(t, a, place, seed);
	case ARROW_STRUCT:
		for (uint32_t k = 0; k < t->children; k++, below += below->nodes)
			seed = hash_value(below, a->children[k], place, seed);
		return seed;
	case ARROW_FIXED_LIST:
		first = place * t->width;
		end = first + t->width;
		break;
	default:
		first = (uint64_t)arrow_offset(t, a, place);
		end = (uint64_t)arrow_offset(t, a, place + 1);
		break;
	}
	if (t->layout == ARROW_BYTES || t->layout == ARROW_LARGE_BYTES)
		return XXH3_64bits_withSeed(
		    end > first ? (const uint8_t *)a->buffers[2] + first : NULL, end - first, seed);
	end -= first;
	seed = XXH3_64bits_withSeed(&end, sizeof(end), seed); /* [[1], [2]] differs from [[1, 2]] */
	for (uint64_t k = 0; k < end; k++)
		seed = hash_value(below, a->children[0], first + k, seed);
	return seed;
}

void
arrow_hash(const struct arrow_schema *s, const struct ArrowArray *rows, uint32_t key,
	   uint64_t *hash)
{
	const struct arrow_type *t = &s->type[1];

	weir_assert(key < s->type[0].children);
	for (uint32_t i = 0; i < key; i++)
		t += t->nodes;
	for (int64_t row = 0; row < rows->length; row++)
		hash[row] =
		    hash_value(t, rows->children[key], (uint64_t)(row + rows->offset), hash[row]);
}
