/* SPDX-License-Identifier: BSD-3-Clause */
/* The board of Hex, against one that looks at cell after cell. */
#include "worlds/hex_world.h"

TEST(test_winner)
{
	struct dice d = dice_of(1);

	for (unsigned size = BOARD_LEAST; size <= BOARD_MOST; size++)
		for (unsigned game = 0; game < 40; game++) {
			struct board b;

			board_start(&b, size);
			while (!b.winner) {
				int turn = board_turn(&b);

				if (board_put(&b, dice_below(&d, size * size), turn))
					continue;
				assert_int_equal(board_joined(&b, turn), b.winner == turn);
				assert_false(board_joined(&b, -turn));
			}
			assert_int_equal(board_put(&b, 0, board_turn(&b)), -EINVAL);
		}
}

/* A cell touches, in the column before, that of its row and that of the next one. */
TEST(test_neighbours)
{
	for (unsigned r = 0; r < 3; r++) {
		struct board b;

		board_start(&b, 3);
		for (unsigned i = 0; i < 3; i++)
			board_put(&b, i * 3 + 2, 1); /* the last column */
		board_put(&b, 4, 1);		     /* the middle */
		board_put(&b, r * 3, 1);
		assert_int_equal(b.winner, r > 0);
		assert_int_equal(board_joined(&b, 1), r > 0);
	}
}

TEST(test_refuses)
{
	struct board b, before;

	board_start(&b, 5);
	assert_int_equal(board_put(&b, 25, 1), -EINVAL);
	assert_int_equal(board_put(&b, UINT32_MAX, 1), -EINVAL);
	assert_int_equal(board_put(&b, 7, 1), 0);
	before = b;
	assert_int_equal(board_put(&b, 7, -1), -EINVAL);
	assert_int_equal(memcmp(&before, &b, offsetof(struct board, history)), 0);
	assert_int_equal(board_stone(&b, 7), 1);
	assert_int_equal(board_turn(&b), -1);
}

TEST(test_names)
{
	char text[4];

	for (unsigned size = BOARD_LEAST; size <= BOARD_MOST; size++)
		for (unsigned cell = 0; cell < size * size; cell++) {
			assert_int_equal(board_cell(board_name(cell, size, text), size), cell);
			assert_int_equal(board_mirrored(board_mirrored(cell, size), size), cell);
		}
	assert_string_equal(board_name(0, 19, text), "a1");
	assert_string_equal(board_name(1, 19, text), "b1");
	assert_string_equal(board_name(360, 19, text), "s19");
	assert_int_equal(board_cell("B3", 3), 7);
	for (const char *const *bad =
		 (const char *const[]){"", "a", "a0", "a4", "d1", "1a", "a1b", "a 1", "a-1",
				       "a4294967297", "`1", "{1", "a1 ",
				       "\xe1"
				       "1",
				       NULL};
	     *bad; bad++)
		if (board_cell(*bad, 3) >= 0)
			fail_msg("'%s' is a cell", *bad);
}

/* A position as bytes: one per move, two on boards with more than 255 cells. */
TEST(test_state)
{
	struct dice d = dice_of(2);

	for (unsigned size = BOARD_LEAST; size <= BOARD_MOST; size++) {
		struct game g = board_game(size, false);
		unsigned bytes = size * size > 255 ? 2 : 1;
		uint8_t wire[2 * BOARD_CELLS + 3];

		for (unsigned i = 0; i < 20; i++) {
			struct board b, again;
			size_t n;

			board_random(&b, size, dice_below(&d, size * size + 1), &d);
			n = g.write(&b, wire);
			assert_int_equal(n, (b.count + 1u) * bytes);
			assert_true(n <= g.state_max);
			assert_int_equal(g.read(&g, &again, wire, n), 0);
			assert_int_equal(again.winner, b.winner);
			assert_int_equal(again.count, b.count);
			assert_int_equal(g.hash(&again), g.hash(&b));
			assert_memory_equal(again.stones, b.stones, sizeof(b.stones));
			/* bytes are missing, or there are more */
			wire[n] = 0;
			assert_int_equal(g.read(&g, &again, wire, n + 1), -EINVAL);
			assert_int_equal(g.read(&g, &again, wire, n + bytes), -EINVAL);
			assert_int_equal(g.read(&g, &again, wire, n - 1), -EINVAL);
			assert_int_equal(g.read(&g, &again, wire, 0), -EINVAL);
			if (b.count < 2)
				continue;
			/* a move on a stone, and one outside */
			memcpy(wire + bytes, wire + 2 * bytes, bytes);
			assert_int_equal(g.read(&g, &again, wire, n), -EINVAL);
			wire[bytes] = 0xff;
			wire[2 * bytes - 1] = 0xff;
			assert_int_equal(g.read(&g, &again, wire, n), -EINVAL);
		}
	}
}

/* A game goes on after it was won. */
TEST(test_state_after_end)
{
	struct game g = board_game(2, false);
	uint8_t wire[] = {4, 0, 2, 1, 3};
	struct board b;

	assert_int_equal(g.read(&g, &b, wire, 5), -EINVAL); /* 0 and 1 join the columns */
	wire[0] = 3;
	assert_int_equal(g.read(&g, &b, wire, 4), 0);
	assert_int_equal(b.winner, 1);
}

TEST(test_hash)
{
	struct game g = board_game(11, false);
	struct board b, other;
	uint64_t hash;

	board_start(&b, 11);
	board_start(&other, 11);
	hash = g.hash_after(g.hash(&b), 5, 1);
	g.play(&b, 5);
	assert_int_equal(g.hash(&b), hash);
	g.play(&b, 6);
	g.play(&b, 7);
	/* the order of moves makes no difference, the player does */
	g.play(&other, 7);
	g.play(&other, 6);
	assert_true(g.hash(&b) != g.hash(&other));
	g.play(&other, 5);
	assert_int_equal(g.hash(&b), g.hash(&other));
	assert_true(g.hash_after(0, 5, 1) != g.hash_after(0, 5, -1));
}

TEST(test_moves)
{
	struct dice d = dice_of(3);
	struct game g = board_game(7, false);
	uint16_t list[49];

	for (unsigned i = 0; i < 100; i++) {
		struct board b;
		unsigned n;

		board_random(&b, 7, dice_below(&d, 50), &d);
		n = g.moves(&b, list);
		assert_int_equal(n, b.winner ? 0 : 49 - b.count);
		for (unsigned k = 0; k < n; k++) {
			assert_int_equal(board_stone(&b, list[k]), 0);
			assert_true(!k || list[k] > list[k - 1]);
		}
	}
}
