/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrays that grow: a pointer, the elements it has room for, and the caller's number of elements.
 * Rings that grow: FIFOs in such an array, whose room is 0 or a power of two. Sorted arrays.
 */
#ifndef WEIR_BASE_VEC_H
#define WEIR_BASE_VEC_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VEC_LEAST 8u /* elements of the first allocation */

/*
 * The array with room for `count` elements of `size` bytes, and *room; it may have moved. NULL: out
 * of memory, more than `most` elements or a size that overflows, and the array is as it was. New
 * elements are not cleared.
 */
static inline void *
vec_grown(void *items, size_t *room, size_t most, size_t count, size_t size)
{
	size_t want = *room > most / 2 ? most : 2 * *room, bytes;

	if (count <= *room && items)
		return items;
	want = want < VEC_LEAST ? VEC_LEAST : want;
	want = want < count ? count : want;
	if (want > most || __builtin_mul_overflow(want, size, &bytes))
		return NULL;
	items = realloc(items, bytes);
	if (items)
		*room = want;
	return items;
}

/* Makes room for `count` elements in lvalues `items` and `room` (of any unsigned type). 0 or
 * -ENOMEM. At least doubles the room, so that adding one at a time takes linear time. */
#define VEC_RESERVE(items, room, count)                                                            \
	__extension__({                                                                            \
		size_t vec_room_ = (room);                                                         \
		void *vec_new_ = vec_grown((items), &vec_room_, (__typeof__(room))-1, (count),     \
					   sizeof(*(items)));                                      \
		int vec_rc_ = -ENOMEM;                                                             \
                                                                                                   \
		if (vec_new_) {                                                                    \
			(items) = vec_new_;                                                        \
			(room) = (__typeof__(room))vec_room_;                                      \
			vec_rc_ = 0;                                                               \
		}                                                                                  \
		vec_rc_;                                                                           \
	})

/*
 * The ring, which is full, with room for another element, and *room; it has moved. Element
 * `first` + i is at its index modulo the room. NULL: out of memory, and the ring is as it was.
 */
static inline void *
ring_grown(void *ring, uint32_t *room, uint32_t first, uint32_t count, uint32_t least, size_t size)
{
	uint32_t more = *room ? 2 * *room : least;
	uint8_t *grown = malloc(more * size);

	if (!grown)
		return NULL;
	for (uint32_t i = first; i != first + count; i++)
		memcpy(grown + (i & (more - 1)) * size, (uint8_t *)ring + (i & (*room - 1)) * size,
		       size);
	free(ring);
	*room = more;
	return grown;
}

/* Makes room for one more than `count` elements in lvalues `ring` and `room`; for `least` at first.
 * 0 or -ENOMEM. */
#define RING_RESERVE(ring, room, first, count, least)                                              \
	__extension__({                                                                            \
		int ring_rc_ = 0;                                                                  \
                                                                                                   \
		if ((count) >= (room)) {                                                           \
			void *ring_new_ = ring_grown((ring), &(room), (first), (count), (least),   \
						     sizeof(*(ring)));                             \
                                                                                                   \
			if (ring_new_)                                                             \
				(ring) = ring_new_;                                                \
			else                                                                       \
				ring_rc_ = -ENOMEM;                                                \
		}                                                                                  \
		ring_rc_;                                                                          \
	})

/*
 * The number of elements at the beginning of a sorted array of `count` for which `before`, an
 * expression of the index `i`, holds; it holds for none behind them. A binary search.
 */
#define VEC_BEFORE(count, i, before)                                                               \
	__extension__({                                                                            \
		uint32_t vec_from_ = 0, vec_to_ = (count);                                         \
                                                                                                   \
		while (vec_from_ < vec_to_) {                                                      \
			uint32_t i = vec_from_ + (vec_to_ - vec_from_) / 2;                        \
                                                                                                   \
			if (before)                                                                \
				vec_from_ = i + 1;                                                 \
			else                                                                       \
				vec_to_ = i;                                                       \
		}                                                                                  \
		vec_from_;                                                                         \
	})

#endif
