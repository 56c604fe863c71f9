/* SPDX-License-Identifier: BSD-3-Clause */
#include "player.h"

#include "base/fail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECES 256u /* of work between two looks at what else there is */

int
player_open(struct player **player, const struct hex_options *o, char *error, size_t size)
{
	struct player *p = calloc(1, sizeof(*p));
	struct mcts_options options = {.game = p ? &p->game : NULL,
				       .processes = o->processes ? o->processes : 1,
				       .threads = o->processes ? o->threads : 1,
				       .nodes_max = o->nodes,
				       .seed = o->seed,
				       .place_local = o->local,
				       .remote_always = o->remote_always};
	struct virtual_costs costs = {.simulation = o->simulation_ns,
				      .selection = o->selection_ns,
				      .message = o->message_ns,
				      .within = {o->within_ns / 2, o->within_ns * 3 / 2},
				      .between = {o->between_ns / 2, o->between_ns * 3 / 2}};
	int rc = -ENOMEM;

	if (p) {
		p->game = board_game(o->size, o->flood);
		rc = o->processes ? port_virtual_open(&options, &costs, &p->search)
				  : port_one_open(&options, &p->search);
	}
	if (rc) {
		free(p);
		return fail(error, size, rc, "cannot open a search: %s; ask for less --nodes",
			    strerror(-rc));
	}
	*player = p;
	return 0;
}

void
player_close(struct player *p)
{
	p->search->close(p->search);
	free(p);
}

static int
run_until(struct player *p, const bool *until)
{
	int rc = 0;

	while (!rc && !*until)
		rc = p->search->run(p->search, until, PIECES);
	return rc;
}

int
player_settle(struct player *p)
{
	bool never = false;
	int rc = run_until(p, &never);

	return rc == -EDEADLK ? 0 : rc;
}

const char *
player_reason(int rc)
{
	switch (rc) {
	case -ENOMEM:
		return "no memory for the search; give less --nodes";
	case -EPROTO:
		return "another process has found an illegal move; run one version everywhere";
	default:
		return "the search waits for a message that was lost; try again";
	}
}

/* The tree's root becomes b, by moves that were made since, or anew. */
static int
set_root(struct player *p, const struct board *b)
{
	struct mcts_thread *t = p->search->processes[0]->threads;
	struct mcts_front *f = player_front(p);
	const struct board *r = &p->root;
	bool follows = p->has_root && r->size == b->size && r->count <= b->count &&
		       !memcmp(r->history, b->history, r->count * sizeof(r->history[0]));
	int rc = 0;

	if (!follows) {
		p->root = *b;
		mcts_set_root(t, b);
		rc = run_until(p, &f->ready);
	}
	while (!rc && p->root.count < b->count) {
		unsigned move = b->history[p->root.count];

		board_put(&p->root, move, board_turn(&p->root));
		mcts_advance(t, move, &p->root);
		rc = run_until(p, &f->ready);
	}
	p->has_root = !rc && f->root;
	return rc || f->root ? rc : -ENOMEM;
}

int
player_think(struct player *p, const struct board *b, uint64_t rollouts, uint64_t ns,
	     bool (*watch)(void *arg), void *arg)
{
	struct mcts_thread *t = p->search->processes[0]->threads;
	struct mcts_front *f = player_front(p);
	struct board after = *b;
	bool stopped = false;
	int rc = set_root(p, b);

	if (rc)
		return rc;
	mcts_search(t, rollouts, ns);
	while (!rc && !f->done) {
		rc = p->search->run(p->search, &f->done, PIECES);
		if (!rc && !stopped && watch && !watch(arg)) {
			mcts_stop(t);
			stopped = true;
		}
	}
	/* figures of the root may come from another process */
	if (!rc && board_put(&after, (unsigned)f->best, board_turn(b)))
		rc = -EPROTO;
	return rc;
}
