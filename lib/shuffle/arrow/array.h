/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrays of a program. Elements are named by their place in the buffers: the number of the element
 * plus the array's offset. Elements of a struct's child are numbered by the struct's places.
 */
#ifndef WEIR_SHUFFLE_ARROW_ARRAY_H
#define WEIR_SHUFFLE_ARROW_ARRAY_H

#include "block.h"
#include "type.h"

#include <string.h>

/* Checks an array against its type as far as the interface tells: numbers of buffers and children,
 * lengths, offsets and dictionary indices. 0, -EINVAL or -EMSGSIZE. */
int arrow_array_check(const struct arrow_schema *s, const struct ArrowArray *a);

static inline bool
arrow_has_nulls(const struct ArrowArray *a)
{
	return a->null_count && a->n_buffers && a->buffers[0];
}

/* The null type has no bitmap: its elements are no concern of this function. */
static inline bool
arrow_is_null(const struct ArrowArray *a, uint64_t place)
{
	return arrow_has_nulls(a) && !arrow_bit(a->buffers[0], place);
}

/* Offset number `place` of an array with offsets. */
static inline int64_t
arrow_offset(const struct arrow_type *t, const struct ArrowArray *a, uint64_t place)
{
	int32_t small;
	int64_t large;

	if (arrow_offset_width(t) == 8) {
		memcpy(&large, (const uint8_t *)a->buffers[1] + place * 8, 8);
		return large;
	}
	memcpy(&small, (const uint8_t *)a->buffers[1] + place * 4, 4);
	return small;
}

/* A dictionary's index. Negative ones become huge. */
static inline uint64_t
arrow_index(const struct arrow_type *t, const void *indices, uint64_t place)
{
	const uint8_t *p = (const uint8_t *)indices + place * t->width;
	uint64_t index = 0;
	unsigned unused = 64 - 8 * t->width;

	memcpy(&index, p, t->width);
	return t->number == ARROW_SIGNED ? (uint64_t)((int64_t)(index << unused) >> unused) : index;
}

#endif
