/* SPDX-License-Identifier: BSD-3-Clause */
/* Perfect play: backwards from the end, by search, and by trying everything. */
#include "hex/solve.h"
#include "worlds/hex_world.h"

/* Tries everything. */
static int
winner_of(const struct board *b)
{
	int turn = board_turn(b);

	if (b->winner)
		return b->winner;
	for (unsigned cell = 0; cell < (unsigned)b->size * b->size; cell++) {
		struct board after = *b;

		if (!board_put(&after, cell, turn) && winner_of(&after) == turn)
			return turn;
	}
	return -turn;
}

/* Every position of the board that moves in turns lead to, by all orders of moves. */
static void
check_all(const struct solved *s, const struct board *b, uint8_t *seen)
{
	uint32_t number = 0;

	for (unsigned cell = (unsigned)b->size * b->size; cell-- > 0;)
		number = 3 * number + (uint32_t)(board_stone(b, cell) + 3) % 3;
	if (seen[number])
		return;
	seen[number] = 1;
	assert_int_equal(solve_winner(s, b), winner_of(b));
	for (unsigned cell = 0; cell < (unsigned)b->size * b->size; cell++) {
		struct board after = *b;

		if (!board_put(&after, cell, board_turn(b)))
			check_all(s, &after, seen);
	}
}

TEST(test_all_of_2)
{
	struct solved *s = solve_all(2);
	uint8_t seen[81] = {0};
	struct board b;

	assert_non_null(s);
	board_start(&b, 2);
	check_all(s, &b, seen);
	solve_free(s);
}

/* 3 x 3 from three stones on: the other positions follow from these. */
TEST(test_all_of_3)
{
	struct solved *s = solve_all(3);
	static uint8_t seen[19683];
	uint64_t wins[2];
	struct board b;

	assert_non_null(s);
	memset(seen, 0, sizeof(seen));
	for (unsigned i = 0; i < 9 * 9 * 9; i++) {
		board_start(&b, 3);
		if (!board_put(&b, i % 9, 1) && !board_put(&b, i / 9 % 9, -1) &&
		    !board_put(&b, i / 81, 1))
			check_all(s, &b, seen);
	}
	solve_count(s, wins);
	assert_true(wins[0] > wins[1]);
	solve_free(s);
}

/* The one who begins wins, in the middle and on the short diagonal. */
TEST(test_openings)
{
	for (unsigned size = 2; size <= SOLVE_ALL_MOST; size++) {
		struct solved *s = solve_all(size);
		struct board b;

		assert_non_null(s);
		board_start(&b, size);
		assert_int_equal(solve_winner(s, &b), 1);
		for (unsigned i = 0; i < size; i++) {
			board_start(&b, size);
			board_put(&b, i * size + size - 1 - i, 1);
			assert_int_equal(solve_winner(s, &b), 1);
		}
		board_start(&b, size);
		board_put(&b, 0, 1);
		assert_int_equal(solve_winner(s, &b), -1);
		solve_free(s);
	}
}

TEST(test_search)
{
	struct solved *s = solve_all(4);
	struct dice d = dice_of(1);
	uint64_t searched;
	struct board b;

	assert_non_null(s);
	for (unsigned i = 0; i < 60; i++) {
		board_random(&b, 4, 2 + dice_below(&d, 12), &d);
		assert_int_equal(solve_search(&b, &searched), solve_winner(s, &b));
		assert_true(!searched == (b.winner != 0));
	}
	for (unsigned cell = 0; cell < 16; cell++) {
		board_start(&b, 4);
		board_put(&b, cell, 1);
		assert_int_equal(solve_search(&b, &searched), solve_winner(s, &b));
	}
	solve_free(s);
}

/* 5 x 5: turned by half a circle, an opening is as good as before. The shortest searches. */
TEST(test_search_of_5)
{
	static const struct {
		unsigned cell;
		int winner;
	} openings[] = {{5, -1}, {8, 1}, {10, -1}, {12, 1}, {15, -1}, {16, 1}, {24, -1}};

	for (unsigned i = 0; i < sizeof(openings) / sizeof(openings[0]); i++) {
		uint64_t searched;
		struct board b;

		board_start(&b, 5);
		board_put(&b, openings[i].cell, 1);
		assert_int_equal(solve_search(&b, &searched), openings[i].winner);
	}
}
