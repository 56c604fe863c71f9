/* SPDX-License-Identifier: BSD-3-Clause */
#include "worlds/test.h"
#include "ipc/block.h"

#define ROOM 300u

TEST(test_singles)
{
	static const uint32_t counts[] = {1, 63, 64, 65, 128, ROOM};
	uint64_t map[5];
	struct weir_blocks b;

	for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		uint32_t n = counts[c];

		weir_blocks_init(&b, map, n);
		assert_int_equal(b.free, n);
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(weir_blocks_take(&b), i);
		assert_int_equal(weir_blocks_take(&b), WEIR_BLOCK_NONE);
		assert_int_equal(weir_blocks_take_run(&b, 1), WEIR_BLOCK_NONE);
		assert_true(weir_blocks_are_taken(&b, 0, n));
		assert_false(weir_blocks_are_taken(&b, 0, n + 1));
		weir_blocks_give(&b, n / 2, 1);
		assert_false(weir_blocks_are_taken(&b, n / 2, 1));
		assert_int_equal(weir_blocks_take(&b), n / 2);
	}
}

TEST(test_runs)
{
	uint64_t map[5];
	struct weir_blocks b;

	weir_blocks_init(&b, map, ROOM);
	assert_int_equal(weir_blocks_take_run(&b, 0), WEIR_BLOCK_NONE);
	assert_int_equal(weir_blocks_take_run(&b, ROOM + 1), WEIR_BLOCK_NONE);
	assert_int_equal(weir_blocks_take_run(&b, ROOM), 0);
	weir_blocks_give(&b, 0, ROOM);
	assert_int_equal(weir_blocks_take_run(&b, 100), 200);
	assert_int_equal(weir_blocks_take(&b), 0);
	assert_int_equal(weir_blocks_take_run(&b, 199), 1);
	assert_int_equal(b.free, 0);
	weir_blocks_give(&b, 60, 10); /* a hole across words */
	weir_blocks_give(&b, 250, 5);
	assert_int_equal(weir_blocks_take_run(&b, 11), WEIR_BLOCK_NONE);
	assert_int_equal(weir_blocks_take_run(&b, 10), 60);
	assert_int_equal(weir_blocks_take_run(&b, 5), 250);
	assert_int_equal(b.free, 0);
}

TEST(test_are_taken_bounds)
{
	uint64_t map[5];
	struct weir_blocks b;

	weir_blocks_init(&b, map, ROOM);
	assert_int_equal(weir_blocks_take_run(&b, 2), ROOM - 2);
	assert_true(weir_blocks_are_taken(&b, ROOM - 2, 2));
	assert_false(weir_blocks_are_taken(&b, ROOM - 3, 2));
	assert_false(weir_blocks_are_taken(&b, ROOM - 1, 2));
	assert_false(weir_blocks_are_taken(&b, ROOM, 1));
	assert_false(weir_blocks_are_taken(&b, UINT32_MAX, 2));
	assert_false(weir_blocks_are_taken(&b, ROOM - 1, UINT32_MAX));
	assert_false(weir_blocks_are_taken(&b, ROOM - 1, 0));
}

/* Against a plain array of bytes. */
TEST(test_random)
{
	uint64_t map[5];
	uint8_t model[ROOM] = {0};
	struct weir_blocks b;
	uint32_t seed = 12345;

	weir_blocks_init(&b, map, ROOM);
	for (unsigned step = 0; step < 20000; step++) {
		uint32_t r = seed = seed * 1664525 + 1013904223, n = 1 + (r >> 20) % 20, at;

		if (r >> 31) {
			at = n == 1 ? weir_blocks_take(&b) : weir_blocks_take_run(&b, n);
			if (at == WEIR_BLOCK_NONE)
				continue;
			assert_true(at + n <= ROOM);
			for (uint32_t i = 0; i < n; i++)
				assert_false(model[at + i]++);
		} else {
			at = (r >> 8) % ROOM;
			if (!model[at])
				continue;
			model[at] = 0;
			weir_blocks_give(&b, at, 1);
		}
		at = 0;
		for (uint32_t i = 0; i < ROOM; i++) {
			assert_int_equal(weir_blocks_are_taken(&b, i, 1), model[i]);
			at += !model[i];
		}
		assert_int_equal(b.free, at);
	}
}
