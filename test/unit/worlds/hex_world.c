/* SPDX-License-Identifier: BSD-3-Clause */
#include "hex_world.h"

/* ---- the board, cell by cell ---- */

bool
board_joined(const struct board *b, int player)
{
	static const int around[6][2] = {{-1, 0}, {-1, 1}, {0, -1}, {0, 1}, {1, -1}, {1, 0}};
	bool seen[BOARD_CELLS] = {false};
	unsigned stack[BOARD_CELLS], top = 0, size = b->size;

	for (unsigned i = 0; i < size; i++) {
		unsigned cell = player > 0 ? i * size : i;

		if (board_stone(b, cell) == player) {
			seen[cell] = true;
			stack[top++] = cell;
		}
	}
	while (top) {
		unsigned cell = stack[--top], r = cell / size, c = cell % size;

		if ((player > 0 ? c : r) == size - 1)
			return true;
		for (unsigned i = 0; i < 6; i++) {
			unsigned row = r + (unsigned)around[i][0];
			unsigned column = c + (unsigned)around[i][1];
			unsigned beside = row * size + column;

			if (row < size && column < size && !seen[beside] &&
			    board_stone(b, beside) == player) {
				seen[beside] = true;
				stack[top++] = beside;
			}
		}
	}
	return false;
}

void
board_random(struct board *b, unsigned size, unsigned stones, struct dice *d)
{
	board_start(b, size);
	while (b->count < stones && !b->winner)
		board_put(b, dice_below(d, size * size), board_turn(b));
}

/* ---- Y ---- */

#define Y_CELLS (Y_MOST * (Y_MOST + 1) / 2)

struct y {
	unsigned size, count;
	int winner;
	int8_t stones[Y_CELLS];
	uint8_t history[Y_CELLS];
};

void
y_start(const struct game *g, void *position)
{
	struct y *y = position;

	memset(y, 0, sizeof(*y));
	y->size = g->size;
}

static bool
y_joined(const struct y *y, int player)
{
	static const int around[6][2] = {{0, -1}, {0, 1}, {-1, -1}, {-1, 0}, {1, 0}, {1, 1}};
	bool seen[Y_CELLS] = {false};

	/* every group that begins at the left side */
	for (unsigned r = 0; r < y->size; r++) {
		unsigned stack[Y_CELLS][2], top = 0, sides = 0, first = r * (r + 1) / 2;

		if (y->stones[first] != player || seen[first])
			continue;
		seen[first] = true;
		stack[top][0] = r;
		stack[top++][1] = 0;
		while (top) {
			unsigned row = stack[--top][0], column = stack[top][1];

			sides |= (column == 0) | (column == row) << 1 | (row == y->size - 1) << 2;
			for (unsigned i = 0; i < 6; i++) {
				unsigned r2 = row + (unsigned)around[i][0];
				unsigned c2 = column + (unsigned)around[i][1];
				unsigned cell = r2 * (r2 + 1) / 2 + c2;

				if (r2 >= y->size || c2 > r2 || seen[cell] ||
				    y->stones[cell] != player)
					continue;
				seen[cell] = true;
				stack[top][0] = r2;
				stack[top++][1] = c2;
			}
		}
		if (sides == 7)
			return true;
	}
	return false;
}

static int
y_turn(const void *position)
{
	return ((const struct y *)position)->count % 2 ? -1 : 1;
}

static int
y_play(void *position, unsigned move)
{
	struct y *y = position;
	int turn = y_turn(y);

	if (move >= y->size * (y->size + 1) / 2 || y->stones[move] || y->winner)
		return -EINVAL;
	y->stones[move] = (int8_t)turn;
	y->history[y->count++] = (uint8_t)move;
	y->winner = y_joined(y, turn) ? turn : 0;
	return 0;
}

static unsigned
y_moves(const void *position, uint16_t *list)
{
	const struct y *y = position;
	unsigned n = 0;

	for (unsigned i = 0; !y->winner && i < y->size * (y->size + 1) / 2; i++)
		if (!y->stones[i])
			list[n++] = (uint16_t)i;
	return n;
}

static int
y_winner(const void *position)
{
	return ((const struct y *)position)->winner;
}

static unsigned
y_playouts(const void *position, unsigned count, struct dice *d)
{
	unsigned wins = 0;

	while (count-- > 0) {
		struct y y = *(const struct y *)position;
		uint16_t list[Y_CELLS];

		while (!y.winner)
			y_play(&y, list[dice_below(d, y_moves(&y, list))]);
		wins += y.winner > 0;
	}
	return wins;
}

static size_t
y_write(const void *position, uint8_t *state)
{
	const struct y *y = position;

	memcpy(state, y->history, y->count);
	return y->count;
}

static int
y_read(const struct game *g, void *position, const uint8_t *state, size_t length)
{
	y_start(g, position);
	for (size_t i = 0; i < length; i++)
		if (y_play(position, state[i]))
			return -EINVAL;
	return 0;
}

static uint64_t
y_hash_after(uint64_t before, unsigned move, int player)
{
	return before + dice_mix(move + (player > 0 ? 100 : 0));
}

static uint64_t
y_hash(const void *position)
{
	const struct y *y = position;
	uint64_t hash = 0;

	for (unsigned i = 0; i < y->count; i++)
		hash = y_hash_after(hash, y->history[i], i % 2 ? -1 : 1);
	return hash;
}

struct game
y_game(unsigned size)
{
	return (struct game){size,
			     size * (size + 1) / 2,
			     sizeof(struct y),
			     Y_CELLS,
			     y_moves,
			     y_play,
			     y_turn,
			     y_winner,
			     y_playouts,
			     y_write,
			     y_read,
			     y_hash,
			     y_hash_after};
}

/* ---- trees ---- */

struct node *
tree_node(struct mcts *const *processes, uint64_t name)
{
	return node_of(processes[name_thread(name) / processes[0]->o.threads], name);
}

uint64_t
tree_nodes(struct mcts *const *processes)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < processes[0]->o.processes; i++)
		for (uint32_t k = 0; k < processes[i]->o.threads; k++)
			sum += processes[i]->threads[k].counts.nodes;
	return sum;
}

uint64_t
tree_check(struct mcts *const *processes, uint64_t root)
{
	const struct game *g = processes[0]->o.game;
	struct node *n = tree_node(processes, root);
	uint64_t visits = 0, nodes = 1;
	void *position = malloc(g->position_bytes);
	struct children *c;

	assert_non_null(n);
	assert_non_null(position);
	assert_int_equal(g->read(g, position, n->state, n->state_bytes), 0);
	assert_int_equal(n->turn, -g->turn(position));
	assert_int_equal(n->winner, g->winner(position));
	assert_int_equal(n->hash, g->hash(position));
	assert_false(n->queued);
	c = n->children;
	if (n->winner)
		assert_null(c);
	for (uint32_t i = 0; c && i < c->count; i++) {
		uint64_t link = c->of[i].link, child_visits = c->of[i].visits, wins = c->of[i].wins,
			 below, beside;
		struct children *cc;
		struct node *child;

		assert_true(wins <= child_visits);
		visits += child_visits;
		if (!child_visits) {
			assert_int_equal(link, 0);
			continue;
		}
		assert_true(link >= NAME_LEAST);
		if (link == NAME_NO_ROOM)
			continue;
		child = tree_node(processes, link);
		assert_non_null(child);
		assert_int_equal(child->parent, root);
		assert_int_equal(child->index, i);
		assert_int_equal(child_visits, child->visits + MCTS_SIMULATIONS);
		if (child->winner) {
			assert_int_equal(wins, child->winner == child->turn ? child_visits : 0);
			nodes++;
			continue;
		}
		/* what its own children have lost, and its first rollout */
		cc = child->children;
		below = beside = 0;
		for (uint32_t k = 0; cc && k < cc->count; k++) {
			below += cc->of[k].visits - cc->of[k].wins;
			beside += cc->of[k].visits;
		}
		assert_int_equal(beside, child->visits);
		assert_true(wins >= below && wins <= below + MCTS_SIMULATIONS);
		nodes += tree_check(processes, link);
	}
	if (c)
		assert_int_equal(visits, n->visits);
	free(position);
	return nodes;
}

/* ---- searches ---- */

void
search_run(struct search *s, const bool *until)
{
	while (!*until)
		assert_int_equal(s->run(s, until, 1000), 0);
}

void
search_settle(struct search *s)
{
	bool never = false;
	int rc;

	do
		rc = s->run(s, &never, 1000);
	while (!rc);
	assert_int_equal(rc, -EDEADLK);
}

int
search_move(struct search *s, const void *position, uint64_t rollouts)
{
	struct mcts_front *f = &s->processes[0]->front;
	struct mcts_thread *t = s->processes[0]->threads;

	mcts_set_root(t, position);
	search_run(s, &f->ready);
	assert_true(f->root);
	mcts_search(t, rollouts, UINT64_MAX);
	search_run(s, &f->done);
	return f->best;
}
