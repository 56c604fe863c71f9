/* SPDX-License-Identifier: BSD-3-Clause */
/* Random ends of games: exact counts of stones, equal chances, and the right winner. */
#include "worlds/hex_world.h"

#include <math.h>

/* Board i of a row of boards that playout_fill() has made. */
static struct board
board_of(const struct board *b, const playout_lanes *filled, unsigned i)
{
	struct board full = *b;

	for (unsigned c = 0; c < b->size; c++) {
		full.stones[0][c] = filled[c][i];
		full.stones[1][c] = ~filled[c][i] & ((1u << b->size) - 1);
	}
	return full;
}

TEST(test_fill_and_winner)
{
	struct dice d = dice_of(1);

	for (unsigned size = BOARD_LEAST; size <= BOARD_MOST; size++)
		for (unsigned i = 0; i < 60; i++) {
			playout_lanes filled[BOARD_MOST], won;
			unsigned empty, stones;
			struct board b;

			board_random(&b, size, dice_below(&d, size * size), &d);
			if (b.winner)
				continue;
			empty = size * size - b.count;
			/* the player to move gets one more, if their number is odd */
			stones = (b.count + 1u) / 2 + empty / 2 + (empty % 2 && board_turn(&b) > 0);
			playout_fill(&b, &d, filled);
			playout_winners(filled, size, &won);
			for (unsigned k = 0; k < PLAYOUT_LANES; k++) {
				struct board full = board_of(&b, filled, k);
				unsigned n = 0;

				for (unsigned cell = 0; cell < size * size; cell++) {
					int stone = board_stone(&b, cell);

					n += board_stone(&full, cell) > 0;
					assert_true(!stone || stone == board_stone(&full, cell));
				}
				assert_int_equal(n, stones);
				assert_int_equal(board_joined(&full, 1), won[k] != 0);
				assert_int_equal(board_joined(&full, -1), won[k] == 0);
			}
		}
}

/* The last cell is the mover's, who wins by it. */
TEST(test_last_cell)
{
	struct dice d = dice_of(2);
	unsigned seen = 0;

	while (seen < 100) {
		struct game g = board_game(4, seen % 2);
		struct board b, won;
		uint16_t cell;
		int turn;

		board_random(&b, 4, 15, &d);
		if (b.winner)
			continue;
		turn = board_turn(&b);
		assert_int_equal(g.moves(&b, &cell), 1);
		won = b;
		g.play(&won, cell);
		assert_int_equal(won.winner, turn);
		assert_int_equal(g.playouts(&b, 16, &d), turn > 0 ? 16 : 0);
		seen++;
	}
}

/* Each way to choose 3 of 6 cells has the same chance: chi squared of 20 ways. */
TEST(test_equal_chances)
{
	struct dice d = dice_of(3);
	unsigned counts[64] = {0}, n = 0, ways = 0;
	double sum = 0;
	struct board b;

	do
		board_random(&b, 4, 10, &d);
	while (b.winner);
	for (; n < 40000; n += PLAYOUT_LANES) {
		playout_lanes filled[BOARD_MOST];

		playout_fill(&b, &d, filled);
		for (unsigned i = 0; i < PLAYOUT_LANES; i++) {
			struct board full = board_of(&b, filled, i);
			unsigned set = 0, bit = 0;

			for (unsigned cell = 0; cell < 16; cell++)
				if (!board_stone(&b, cell))
					set |= (unsigned)(board_stone(&full, cell) > 0) << bit++;
			counts[set]++;
		}
	}
	for (unsigned set = 0; set < 64; set++)
		if (counts[set]) {
			ways++;
			sum += pow(counts[set] - n / 20.0, 2) / (n / 20.0);
		}
	assert_int_equal(ways, 20);
	assert_true(sum < 45); /* once in 1,400 at 19 degrees of freedom; the seed is fixed */
}

/* Both ways of playouts win as often: within four sigmas. */
TEST(test_as_flood)
{
	struct dice d = dice_of(4);

	for (unsigned i = 0; i < 12; i++) {
		unsigned size = 3 + i, n = 4000;
		struct game fast = board_game(size, false), flood = board_game(size, true);
		struct board b;
		double a, c;

		do
			board_random(&b, size, dice_below(&d, size * size / 2), &d);
		while (b.winner);
		a = (double)fast.playouts(&b, n, &d) / n;
		c = (double)flood.playouts(&b, n, &d) / n;
		assert_true(fabs(a - c) < 4 * sqrt(0.5 / n));
	}
}

/* Any number, not only whole rows of boards. */
TEST(test_counts)
{
	struct game g = board_game(2, false);
	struct dice d = dice_of(5);
	struct board b;

	board_start(&b, 2);
	g.play(&b, 0);
	g.play(&b, 1); /* 0 and 2, 3: the lower row joins */
	for (unsigned n = 0; n < 20; n++)
		assert_true(g.playouts(&b, n, &d) <= n);
}
