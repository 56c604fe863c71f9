/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tree search by calls: two processes of two threads, on one node and on two. Each rollout that
 * was launched returns, trees are as in virtual time, and process 0 learns what all have done.
 */
#include "group/team.h"
#include "worlds/hex_world.h"

#include "hex/crew.h"
#include "hex/player.h"

#include "weir/invoke.h"

#define THREADS 2u
#define ROLLOUTS 300u

static struct shared {
	struct game game;
	struct mcts_options o;
	uint32_t mode;
	unsigned moves; /* after as many searches but one */
	struct search *searches[2];
	pthread_barrier_t finished, checked;
} shared;

static int
until(struct search *s, const bool *done)
{
	int rc = 0;

	while (!rc && !*done)
		rc = s->run(s, done, 100);
	return rc;
}

/* Searches, and moves on. 0 or the line that fails. */
static int
play(struct search *s)
{
	struct mcts_thread *t = s->processes[0]->threads;
	struct mcts_front *f = &s->processes[0]->front;
	struct board b;

	board_start(&b, shared.game.size);
	mcts_set_root(t, &b);
	if (until(s, &f->ready))
		return __LINE__;
	for (unsigned i = 0;; i++) {
		mcts_search(t, ROLLOUTS, UINT64_MAX);
		if (until(s, &f->done) || f->visits < ROLLOUTS * MCTS_SIMULATIONS)
			return __LINE__;
		if (i == shared.moves)
			return 0;
		if (shared.game.play(&b, (unsigned)f->best))
			return __LINE__;
		f->ready = false;
		mcts_advance(t, (unsigned)f->best, &b);
		if (until(s, &f->ready))
			return __LINE__;
	}
}

static int
search(struct team *t, uint32_t index)
{
	struct crew c = {t->w[index], t->g[index], shared.mode};
	struct mcts_options o = shared.o;
	struct search *s;
	char error[256];
	int rc;

	o.process = weir_group_rank(c.g);
	if (port_invoke_open(&o, &c, &s, error, sizeof(error))) {
		fprintf(stderr, "%s\n", error);
		return __LINE__;
	}
	shared.searches[o.process] = s;
	rc = o.process ? s->serve(s) : play(s);
	if (!rc && !o.process)
		rc = s->finish(s);
	if (rc)
		fprintf(stderr, "%s\n", s->reason);
	else
		pthread_barrier_wait(&shared.finished);
	if (!rc)
		pthread_barrier_wait(&shared.checked);
	s->close(s);
	return rc;
}

/* All threads have ended their work. */
static void
check(void)
{
	struct search *first = shared.searches[0], *second = shared.searches[1];
	struct mcts *processes[2] = {first->processes[0], second->processes[0]};
	uint64_t nodes = tree_check(processes, processes[0]->front.root), rollouts = 0,
		 returned = 0;

	if (shared.moves)
		assert_true(nodes <= tree_nodes(processes)); /* others may be deleted later */
	else
		assert_int_equal(nodes, tree_nodes(processes));
	assert_int_equal(first->count, 2);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t k = 0; k < THREADS; k++) {
			const struct mcts_counts *told = &first->processes[i]->threads[k].counts;

			assert_memory_equal(told, &processes[i]->threads[k].counts, sizeof(*told));
			assert_true(told->playouts > 0);
			assert_int_equal(told->refused, 0);
			rollouts += told->rollouts;
			returned += told->simulations;
		}
	assert_int_equal(rollouts, ROLLOUTS * (shared.moves + 1));
	assert_int_equal(returned, rollouts * MCTS_SIMULATIONS);
}

static void
search_by(uint32_t mode, bool one_node, bool remote_always, unsigned moves)
{
	struct team t;

	shared = (struct shared){.game = board_game(4, false), .mode = mode, .moves = moves};
	shared.o =
	    (struct mcts_options){&shared.game,		 2,	    THREADS,
				  .nodes_max = 1u << 16, .seed = 5, .remote_always = remote_always};
	pthread_barrier_init(&shared.finished, NULL, 3);
	pthread_barrier_init(&shared.checked, NULL, 3);
	team_open(&t, 2, one_node);
	team_join(&t);
	t.succeeds = true;
	t.run = search;
	for (uint32_t i = 0; i < t.size; i++)
		team_start(&t, i);
	pthread_barrier_wait(&shared.finished);
	check();
	pthread_barrier_wait(&shared.checked);
	for (uint32_t i = 0; i < t.size; i++)
		pthread_join(t.thread[i], NULL);
	team_close(&t);
	pthread_barrier_destroy(&shared.finished);
	pthread_barrier_destroy(&shared.checked);
}

TEST(test_two_nodes)
{
	search_by(WEIR_BATCH_AUTO, false, false, 0);
	search_by(WEIR_BATCH_EAGER, false, false, 2);
}

TEST(test_one_node)
{
	search_by(WEIR_BATCH_AUTO, true, true, 0);
	search_by(WEIR_BATCH_FULL, true, false, 2);
}

/* ---- players: the settings are those of process 0 ---- */

static int
use_players(struct team *t, uint32_t index)
{
	struct crew c = {t->w[index], t->g[index], WEIR_BATCH_AUTO};
	uint32_t rank = weir_group_rank(c.g);
	struct hex_options o;
	struct player *p;
	char error[256];
	int rc = option_defaults(&hex_option_table, &o, error, sizeof(error));

	o.crew = &c;
	o.processes = t->size;
	o.threads = 1 + rank;
	o.size = rank ? 9 : 3;
	if (rank)
		rc = player_serve(&o, error, sizeof(error));
	for (o.seed = 1; !rank && !rc && o.seed <= 8; o.seed++) {
		struct board b;

		o.size = 2 + o.seed % 3;
		o.nodes = 1u << 16;
		rc = player_open(&p, &o, error, sizeof(error));
		if (rc)
			break;
		board_start(&b, o.size);
		rc = player_think(p, &b, 50, UINT64_MAX, NULL, NULL);
		if (rc)
			snprintf(error, sizeof(error), "%s", player_reason(p, rc));
		if (!rc && p->search->processes[0]->front.stat_count > o.size * o.size)
			return __LINE__;
		player_close(p);
	}
	if (!rank && !rc)
		rc = player_dismiss(&o, error, sizeof(error));
	if (rc)
		fprintf(stderr, "%s\n", error);
	return rc;
}

TEST(test_players)
{
	team_of(3, use_players);
}

/* Size, words, nodes, threads, and the seed, as no process 0 has them. */
static int
use_bad_settings(struct team *t, uint32_t index)
{
	static const uint32_t bad[][8] = {
	    {BOARD_MOST + 1, 0, 0, 0, 1, 1}, {BOARD_LEAST - 1, 0, 0, 0, 1, 1},
	    {BOARD_LEAST, 0, 0, 0, 0, 1},    {BOARD_LEAST, 0, 0, 0, 1, 0},
	    {BOARD_LEAST, 0, 0, 0, 1, 65},
	};
	struct crew c = {t->w[index], t->g[index], WEIR_BATCH_AUTO};
	struct hex_options o;
	char error[256];

	if (option_defaults(&hex_option_table, &o, error, sizeof(error)))
		return __LINE__;
	o.crew = &c;
	o.processes = t->size;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint32_t settings[8];

		memcpy(settings, bad[i], sizeof(settings));
		if (weir_group_rank(c.g)
			? player_serve(&o, error, sizeof(error)) != -EPROTO
			: crew_share(&c, settings, sizeof(settings), error, sizeof(error)))
			return __LINE__;
	}
	return 0;
}

TEST(test_bad_settings)
{
	team_of(2, use_bad_settings);
}
