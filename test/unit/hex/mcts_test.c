/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tree search in virtual time, from seeds: whatever the number of threads, the delays and the
 * options, all rollouts return, sums are right, and trees that are given up leave nothing behind.
 */
#include "worlds/hex_world.h"

/* A team of threads, by a seed. */
static struct search *
open_random(struct dice *d, struct mcts_options *o, const struct game *g)
{
	struct virtual_costs costs = {.simulation = dice_below(d, 400),
				      .selection = dice_below(d, 2000),
				      .message = dice_below(d, 200)};
	uint64_t slow = dice_below(d, 2) ? 1000000 : 3000;
	struct search *s;

	costs.within[1] = dice_below(d, 2) ? 0 : dice_below(d, 20000);
	costs.between[0] = dice_below(d, (uint32_t)slow);
	costs.between[1] = costs.between[0] + dice_below(d, (uint32_t)slow);
	*o = (struct mcts_options){.game = g,
				   .processes = 1 + dice_below(d, 8),
				   .threads = 1 + dice_below(d, 8),
				   .nodes_max = 1u << 20,
				   .seed = dice_next(d),
				   .place_local = dice_below(d, 4) == 0,
				   .remote_always = dice_below(d, 4) == 0};
	assert_int_equal(port_virtual_open(o, &costs, &s), 0);
	return s;
}

/* The process of the root has launched all, and all are back. */
static void
check_phase(const struct search *s, uint64_t visits)
{
	struct mcts_front *f = &s->processes[0]->front;
	struct mcts *m = s->processes[name_thread(f->root) / s->processes[0]->o.threads];

	assert_int_equal(f->visits, visits);
	assert_int_equal(m->returned, visits);
	assert_false(m->searching);
	assert_int_equal(m->launchers, 0);
}

/* No message of these threads was refused, or came too late. */
static void
check_messages(const struct search *s)
{
	uint64_t sent = 0, received = 0;

	for (uint32_t i = 0; i < s->count; i++)
		for (uint32_t k = 0; k < s->processes[i]->o.threads; k++) {
			const struct mcts_counts *c = &s->processes[i]->threads[k].counts;

			assert_int_equal(c->refused, 0);
			assert_int_equal(c->stale, 0);
			sent += c->sent;
			received += c->received;
		}
	assert_int_equal(sent, received);
}

static void
end(struct search *s)
{
	mcts_drop(s->processes[0]->threads);
	search_settle(s);
	assert_int_equal(tree_nodes(s->processes), 0);
	check_messages(s);
	s->close(s);
}

/* A whole game from a position, with a tree that is kept from move to move. */
static void
play_game(const struct game *g, void *position, uint64_t seed)
{
	struct dice d = dice_of(seed);
	struct mcts_options o;
	struct search *s = open_random(&d, &o, g);
	struct mcts_front *f = &s->processes[0]->front;
	struct mcts_thread *t = s->processes[0]->threads;
	uint64_t before = 0;

	mcts_set_root(t, position);
	for (;;) {
		uint64_t rollouts = 1 + dice_below(&d, dice_below(&d, 3) ? 600 : 3);
		struct node *root;

		search_run(s, &f->ready);
		root = tree_node(s->processes, f->root);
		assert_int_equal(root->parent, 0);
		before = root->visits;
		mcts_search(t, rollouts, UINT64_MAX);
		search_run(s, &f->done);
		search_settle(s);
		if (g->winner(position)) {
			assert_int_equal(f->best, -1);
			break;
		}
		check_phase(s, rollouts * MCTS_SIMULATIONS);
		assert_int_equal(root->visits, before + rollouts * MCTS_SIMULATIONS);
		assert_int_equal(tree_check(s->processes, f->root), tree_nodes(s->processes));
		assert_int_equal(g->play(position, (unsigned)f->best), 0);
		mcts_advance(t, (unsigned)f->best, position);
	}
	end(s);
}

TEST(test_games_of_hex)
{
	for (uint64_t seed = 1; seed <= 24; seed++) {
		struct game g = board_game(2 + (unsigned)seed % 6, seed % 3 == 0);
		struct board b;

		board_start(&b, g.size);
		play_game(&g, &b, seed);
	}
}

TEST(test_games_of_y)
{
	for (uint64_t seed = 100; seed <= 112; seed++) {
		struct game g = y_game(2 + (unsigned)seed % 5);
		void *position = malloc(g.position_bytes);

		assert_non_null(position);
		y_start(&g, position);
		play_game(&g, position, seed);
		free(position);
	}
}

/* The search knows a game by its table: at Y, the middle of 3 rows wins at once. */
TEST(test_wins_at_y)
{
	struct game g = y_game(3);
	struct mcts_options o = {&g, 2, 2, .nodes_max = 10000, .seed = 3};
	struct virtual_costs costs = {100, 500, 50, {100, 200}, {1000, 3000}};
	struct search *s;
	void *position = malloc(g.position_bytes);

	assert_int_equal(port_virtual_open(&o, &costs, &s), 0);
	y_start(&g, position);
	g.play(position, 0);
	g.play(position, 3);
	/* +1 has the corner: cell 4 touches the bottom, and then both 1 and 2 lead to it */
	assert_int_equal(search_move(s, position, 4000), 4);
	free(position);
	end(s);
}

/* Everything that a run decides is the same again; with another seed it is not. */
TEST(test_same_seed_same_game)
{
	struct game g = board_game(6, false);
	uint64_t sums[3];

	for (unsigned run = 0; run < 3; run++) {
		struct mcts_options o = {&g, 3, 4, .nodes_max = 1u << 20, .seed = 7 + run / 2};
		struct virtual_costs costs = {100, 500, 50, {100, 200}, {1000, 30000}};
		struct search *s;
		struct board b;
		uint64_t sum = 0;

		assert_int_equal(port_virtual_open(&o, &costs, &s), 0);
		board_start(&b, 6);
		while (!b.winner) {
			int move = search_move(s, &b, 500);
			struct mcts_front *f = &s->processes[0]->front;

			for (unsigned i = 0; i < f->stat_count; i++)
				sum = dice_mix(sum + f->stats[i].move) + f->stats[i].rollouts +
				      f->stats[i].wins;
			sum = dice_mix(sum + (unsigned)move) + s->now(s);
			g.play(&b, (unsigned)move);
		}
		for (unsigned i = 0; i < 12; i++)
			sum = dice_mix(sum + s->processes[i / 4]->threads[i % 4].counts.sent);
		sums[run] = sum;
		end(s);
	}
	assert_int_equal(sums[0], sums[1]);
	assert_true(sums[0] != sums[2]);
}

/* A slow machine tells figures more often, which is no part of the game. */
TEST(test_same_game_on_slow_machine)
{
	struct game g = board_game(4, false);
	uint16_t moves[2][16];
	unsigned count[2] = {0};

	for (unsigned slow = 0; slow < 2; slow++) {
		struct mcts_options o = {&g, 1, 1, .nodes_max = 1u << 20, .seed = 5};
		struct virtual_costs costs = {slow ? 500000 : 1};
		struct search *s;
		struct board b;

		assert_int_equal(port_virtual_open(&o, &costs, &s), 0);
		board_start(&b, 4);
		while (!b.winner) {
			int move = search_move(s, &b, 100);

			moves[slow][count[slow]++] = (uint16_t)move;
			g.play(&b, (unsigned)move);
		}
		assert_true((s->now(s) > 1000000000) == slow);
		end(s);
	}
	assert_int_equal(count[0], count[1]);
	assert_memory_equal(moves[0], moves[1], count[0] * sizeof(moves[0][0]));
}

/* Owners are drawn from all threads. */
TEST(test_work_is_shared)
{
	struct game g = board_game(11, false);
	struct mcts_options o = {&g, 4, 4, .nodes_max = 1u << 20, .seed = 1};
	struct virtual_costs costs = {130, 600, 60, {100, 300}, {1500, 4500}};
	struct search *s;
	struct board b;
	uint64_t most = 0;

	assert_int_equal(port_virtual_open(&o, &costs, &s), 0);
	board_start(&b, 11);
	search_move(s, &b, 16 * 1000);
	for (unsigned i = 0; i < 16; i++) {
		uint64_t n = s->processes[i / 4]->threads[i % 4].counts.simulations;

		most = n > most ? n : most;
	}
	assert_true(most < 1.15 * 16000 * MCTS_SIMULATIONS / 16);
	end(s);
	/* all work stays with the root's process, if nodes belong to the thread that adds them */
	o.place_local = true;
	assert_int_equal(port_virtual_open(&o, &costs, &s), 0);
	search_move(s, &b, 1000);
	for (unsigned i = 0; i < 4; i++) {
		uint64_t n = 0;
		bool here = i == name_thread(s->processes[0]->front.root) / 4;

		for (unsigned k = 0; k < 4; k++)
			n += s->processes[i]->threads[k].counts.simulations;
		assert_int_equal(n, here ? 1000 * MCTS_SIMULATIONS : 0);
	}
	end(s);
}

/* A search that is stopped, or that has no more time, ends with what has returned until then: its
 * budget is not reached. */
TEST(test_stop)
{
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct game g = board_game(5, false);
		struct dice d = dice_of(seed);
		struct mcts_options o;
		struct search *s = open_random(&d, &o, &g);
		struct mcts_front *f = &s->processes[0]->front;
		struct mcts_thread *t = s->processes[0]->threads;
		bool timed = seed % 2, never = false;
		struct board b;

		board_start(&b, 5);
		mcts_set_root(t, &b);
		search_run(s, &f->ready);
		mcts_search(t, 1u << 30, timed ? 2000000 : UINT64_MAX);
		if (!timed) {
			assert_int_equal(s->run(s, &never, dice_below(&d, 20000)), 0);
			assert_false(f->done);
			mcts_stop(t);
		}
		search_run(s, &f->done);
		search_settle(s);
		check_phase(s, f->visits);
		assert_true(f->visits < (UINT64_C(1) << 30) * MCTS_SIMULATIONS);
		assert_int_equal(tree_node(s->processes, f->root)->visits, f->visits);
		assert_true(f->best >= 0);
		assert_int_equal(tree_check(s->processes, f->root), tree_nodes(s->processes));
		/* the next one is not stopped */
		assert_true(search_move(s, &b, 200) >= 0);
		search_settle(s);
		check_phase(s, 200 * MCTS_SIMULATIONS);
		end(s);
	}
}

/* Beyond nodes_max the tree grows no more, and the search goes on: also from position to position,
 * before the old tree is deleted. */
TEST(test_no_room)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct game g = board_game(4, false);
		struct mcts_options o = {&g, 1 + (uint32_t)seed % 3, 1 + (uint32_t)seed % 2,
					 .nodes_max = 1 + (uint32_t)(seed / 2), .seed = seed};
		struct virtual_costs costs = {100, 500, 50, {100, 20000}, {1000, 30000}};
		struct mcts_front *f;
		struct search *s;
		struct board b;

		assert_int_equal(port_virtual_open(&o, &costs, &s), 0);
		f = &s->processes[0]->front;
		board_start(&b, 4);
		while (!b.winner) {
			search_move(s, &b, 700);
			search_settle(s);
			check_phase(s, 700 * MCTS_SIMULATIONS);
			assert_int_equal(tree_check(s->processes, f->root),
					 tree_nodes(s->processes));
			assert_int_equal(g.play(&b, (unsigned)f->best), 0);
			mcts_advance(s->processes[0]->threads, (unsigned)f->best, &b);
			search_run(s, &f->ready);
			assert_true(f->root);
		}
		end(s);
	}
}

/* Virtual time is that of the pieces of work, and a game that is over has no playouts. */
TEST(test_time_of_playouts)
{
	struct game g = board_game(2, false);
	struct mcts_options o = {&g, 1, 1, .nodes_max = 1000, .seed = 1};
	struct virtual_costs costs = {.simulation = 1000};
	const struct mcts_counts *counts;
	struct search *s;
	struct board b;

	assert_int_equal(port_virtual_open(&o, &costs, &s), 0);
	counts = &s->processes[0]->threads[0].counts;
	board_start(&b, 2);
	search_move(s, &b, 1000);
	assert_int_equal(counts->simulations, 1000 * MCTS_SIMULATIONS);
	assert_true(counts->playouts && counts->playouts < counts->simulations / 2);
	assert_int_equal(s->now(s), counts->playouts * costs.simulation);
	end(s);
}

/* The front hears of a search while it lasts. */
TEST(test_figures)
{
	struct game g = board_game(5, false);
	struct mcts_options o = {&g, 2, 2, .nodes_max = 1u << 20, .seed = 5};
	struct virtual_costs costs = {100000, 1000, 50, {100, 200}, {1000, 3000}};
	struct search *s;
	struct mcts_front *f;
	struct board b, line;
	unsigned told = 0;
	uint64_t sum = 0;

	assert_int_equal(port_virtual_open(&o, &costs, &s), 0);
	f = &s->processes[0]->front;
	board_start(&b, 5);
	mcts_set_root(s->processes[0]->threads, &b);
	search_run(s, &f->ready);
	mcts_search(s->processes[0]->threads, 20000, UINT64_MAX);
	while (!f->done) {
		assert_int_equal(s->run(s, &f->fresh, 1000), 0);
		told += f->fresh;
		f->fresh = false;
	}
	assert_true(told > 4);
	for (unsigned i = 0; i < f->stat_count; i++) {
		assert_int_equal(board_stone(&b, f->stats[i].move), 0);
		sum += f->stats[i].rollouts;
	}
	assert_int_equal(sum, 20000);
	/* the best line is one of moves, and begins with the best one */
	assert_true(f->line_count >= 2);
	assert_int_equal(f->line[0], f->best);
	line = b;
	for (unsigned i = 0; i < f->line_count; i++)
		assert_int_equal(g.play(&line, f->line[i]), 0);
	end(s);
}

TEST(test_refuses)
{
	struct game g = board_game(5, false), large = g;
	struct mcts_options o = {&g, MCTS_THREADS_MAX, 2, .nodes_max = 10};
	struct virtual_costs costs = {1, 1, 1, {0, 0}, {0, 0}};
	struct search *s;

	assert_int_equal(port_virtual_open(&o, &costs, &s), -EINVAL);
	o.processes = 0;
	assert_int_equal(port_virtual_open(&o, &costs, &s), -EINVAL);
	o.processes = 1;
	large.moves_max = MCTS_MOVES_MAX + 1;
	o.game = &large;
	assert_int_equal(port_virtual_open(&o, &costs, &s), -EINVAL);
	o.threads = 1;
	assert_int_equal(port_one_open(&o, &s), -EINVAL);
}
