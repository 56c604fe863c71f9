/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How well the search plays, by an oracle: boards that are solved. One thread, and eight threads of
 * two processes in virtual time, choose as many winning moves. WEIR_HEX_POSITIONS: positions of
 * 4 x 4, in each of which the mover has a winning move.
 */
#include "hex/solve.h"
#include "worlds/hex_world.h"

static const struct virtual_costs costs = {130, 600, 60, {100, 300}, {1500, 4500}};

static unsigned
positions(unsigned few)
{
	const char *text = getenv("WEIR_HEX_POSITIONS");

	return text ? (unsigned)strtoul(text, NULL, 10) : few;
}

/* Whether the mover still wins after his move. */
static bool
is_good(const struct solved *s, const struct board *b, int move)
{
	struct board after = *b;

	assert_int_equal(board_put(&after, (unsigned)move, board_turn(b)), 0);
	return solve_winner(s, &after) == board_turn(b);
}

TEST(test_4x4)
{
	struct game g = board_game(4, false);
	struct mcts_options one = {&g, 1, 1, .nodes_max = 1u << 16, .seed = 1};
	struct mcts_options eight = {&g, 2, 4, .nodes_max = 1u << 16, .seed = 1};
	struct solved *solved = solve_all(4);
	unsigned n = positions(40), good[2] = {0};
	struct search *s[2];
	struct dice d = dice_of(1);
	struct board b;

	assert_non_null(solved);
	assert_int_equal(port_one_open(&one, &s[0]), 0);
	assert_int_equal(port_virtual_open(&eight, &costs, &s[1]), 0);
	for (unsigned i = 0; i < n;) {
		board_random(&b, 4, dice_below(&d, 12), &d);
		if (b.winner || solve_winner(solved, &b) != board_turn(&b))
			continue;
		i++;
		for (unsigned k = 0; k < 2; k++)
			good[k] += is_good(solved, &b, search_move(s[k], &b, 16384));
	}
	print_message("of %u positions: one thread %u, eight threads %u\n", n, good[0], good[1]);
	/* 97 %, and at most one point less */
	assert_true(100 * good[0] >= 97 * n);
	assert_true(100 * good[1] >= 97 * n);
	assert_true(100 * good[1] + n >= 100 * good[0]);
	for (unsigned k = 0; k < 2; k++)
		s[k]->close(s[k]);
	solve_free(solved);
}

/* Positions of 3 x 3, every one in a long run. */
TEST(test_3x3)
{
	struct game g = board_game(3, false);
	struct mcts_options o = {&g, 1, 1, .nodes_max = 1u << 16, .seed = 1};
	struct solved *solved = solve_all(3);
	unsigned step = getenv("WEIR_HEX_POSITIONS") ? 1 : 97, first = 0;
	struct search *s;

	assert_non_null(solved);
	assert_int_equal(port_one_open(&o, &s), 0);
	for (unsigned number = first; number < 19683; number += step) {
		unsigned cells[2][9], count[2] = {0}, rest = number;
		struct board b;

		for (unsigned cell = 0; cell < 9; cell++, rest /= 3)
			if (rest % 3)
				cells[rest % 3 - 1][count[rest % 3 - 1]++] = cell;
		if (count[0] != count[1] && count[0] != count[1] + 1)
			continue;
		board_start(&b, 3);
		for (unsigned i = 0; i < count[0] + count[1]; i++)
			board_put(&b, cells[i % 2][i / 2], board_turn(&b));
		if (b.winner || b.count != count[0] + count[1] ||
		    solve_winner(solved, &b) != board_turn(&b))
			continue;
		if (!is_good(solved, &b, search_move(s, &b, 4096)))
			fail_msg("position %u: a losing move", number);
	}
	s->close(s);
	solve_free(solved);
}

/* Openings of 5 x 5: the search expects the solver's winner. */
TEST(test_5x5)
{
	static const unsigned few[] = {5, 8, 12, 15, 16, 24};
	struct game g = board_game(5, false);
	struct mcts_options o = {&g, 1, 1, .nodes_max = 1u << 20, .seed = 1};
	bool all = getenv("WEIR_HEX_POSITIONS");
	unsigned n = all ? 25 : 6, good = 0;
	struct search *s;

	assert_int_equal(port_one_open(&o, &s), 0);
	for (unsigned i = 0; i < n; i++) {
		struct mcts_front *f = &s->processes[0]->front;
		double share = 0;
		uint64_t searched;
		struct board b;
		int move;

		board_start(&b, 5);
		board_put(&b, all ? i : few[i], 1);
		/* some of all openings are close: these need more rollouts */
		move = search_move(s, &b, all ? 400000 : 20000);
		for (unsigned k = 0; k < f->stat_count; k++)
			if (f->stats[k].move == move)
				share = f->stats[k].wins / 65535.0;
		good += (solve_search(&b, &searched) < 0) == (share > 0.5);
	}
	assert_true(good + 1 >= n);
	s->close(s);
}
