/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays and rings that grow keep what they have, and refuse sizes that overflow. Sorted arrays. */
#include "worlds/test.h"
#include "base/vec.h"

TEST(test_grows)
{
	uint64_t *items = NULL;
	uint32_t room = 0, moves = 0;

	for (uint32_t i = 0; i < 10000; i++) {
		uint32_t before = room;

		assert_int_equal(VEC_RESERVE(items, room, i + 1), 0);
		assert_true(room > i);
		moves += room != before;
		items[i] = i;
	}
	assert_true(moves <= 12);
	for (uint32_t i = 0; i < 10000; i++)
		assert_int_equal(items[i], i);
	assert_int_equal(VEC_RESERVE(items, room, 0), 0);
	free(items);
}

TEST(test_refuses)
{
	uint8_t small_room = 0;
	size_t room = 0;
	uint32_t *items = NULL;
	char *bytes = NULL;

	assert_int_equal(VEC_RESERVE(items, room, 1), 0);
	items[0] = 7;
	assert_int_equal(VEC_RESERVE(items, room, SIZE_MAX / 2), -ENOMEM);
	assert_int_equal(VEC_RESERVE(items, room, SIZE_MAX / sizeof(*items) + 2), -ENOMEM);
	assert_int_equal(items[0], 7);
	assert_int_equal(room, VEC_LEAST);
	free(items);
	/* as many as the type of the room can count */
	assert_int_equal(VEC_RESERVE(bytes, small_room, 200), 0);
	assert_int_equal(VEC_RESERVE(bytes, small_room, 255), 0);
	assert_int_equal(small_room, 255);
	assert_int_equal(VEC_RESERVE(bytes, small_room, 256), -ENOMEM);
	free(bytes);
}

TEST(test_sorted)
{
	uint32_t even[100];

	for (uint32_t i = 0; i < 100; i++)
		even[i] = 2 * i;
	for (uint32_t count = 0; count <= 100; count++)
		for (uint32_t below = 0; below <= 200; below++) {
			uint32_t all = (below + 1) / 2, want = all < count ? all : count;

			assert_int_equal(VEC_BEFORE(count, i, even[i] < below), want);
		}
}

/* A ring grows in the middle of its elements; indices run on over 2^32. */
TEST(test_ring)
{
	uint32_t first = UINT32_MAX - 30, next = first, room = 0;
	uint64_t *ring = NULL;

	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(RING_RESERVE(ring, room, first, next - first, 4u), 0);
		assert_true(room > next - first && !(room & (room - 1)));
		ring[next & (room - 1)] = next;
		next++;
		for (uint32_t k = first; k != next; k++)
			assert_int_equal(ring[k & (room - 1)], k);
		first += i % 3 == 0;
	}
	free(ring);
}
