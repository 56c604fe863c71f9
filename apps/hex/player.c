/* SPDX-License-Identifier: BSD-3-Clause */
#include "player.h"

#include "base/fail.h"
#include "crew.h"
#include "weir/invoke.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECES 256u /* of work between two looks at what else there is */

/* Of process 0, which tells its crew before each search. */
struct settings {
	uint32_t size; /* 0: no search follows */
	uint32_t flood, local, remote_always, nodes, threads;
	uint64_t seed;
};

static int
open_search(struct player *p, const struct hex_options *o, uint32_t process, char *error,
	    size_t size)
{
	struct mcts_options options = {.game = &p->game,
				       .processes = o->processes ? o->processes : 1,
				       .threads = o->processes ? o->threads : 1,
				       .process = process,
				       .nodes_max = o->nodes,
				       .seed = o->seed,
				       .place_local = o->local,
				       .remote_always = o->remote_always};
	struct virtual_costs costs = {.simulation = o->simulation_ns,
				      .selection = o->selection_ns,
				      .message = o->message_ns,
				      .within = {o->within_ns / 2, o->within_ns * 3 / 2},
				      .between = {o->between_ns / 2, o->between_ns * 3 / 2}};
	int rc;

	p->game = board_game(o->size, o->flood);
	if (o->crew)
		return port_invoke_open(&options, o->crew, &p->search, error, size);
	rc = o->processes ? port_virtual_open(&options, &costs, &p->search)
			  : port_one_open(&options, &p->search);
	return rc ? fail(error, size, rc, "cannot open a search: %s; ask for less --nodes",
			 strerror(-rc))
		  : 0;
}

static int
open_player(struct player **player, const struct hex_options *o, uint32_t process, char *error,
	    size_t size)
{
	struct player *p = calloc(1, sizeof(*p));
	int rc = p ? open_search(p, o, process, error, size)
		   : fail(error, size, -ENOMEM, "no memory for a search; free some");

	if (rc)
		free(p);
	else
		*player = p;
	return rc;
}

int
player_open(struct player **player, const struct hex_options *o, char *error, size_t size)
{
	struct settings s = {.size = o->size,
			     .flood = o->flood,
			     .local = o->local,
			     .remote_always = o->remote_always,
			     .nodes = o->nodes,
			     .threads = o->threads,
			     .seed = o->seed};
	int rc = 0;

	if (o->real_threads && !o->crew)
		return fail(error, size, -EINVAL,
			    "a player has no threads of its own; give it virtual=1xN instead");
	if (o->crew)
		rc = crew_share(o->crew, &s, sizeof(s), error, size);
	return rc ? rc : open_player(player, o, 0, error, size);
}

/* The settings are another process's. 0, or -EPROTO and error. */
static int
take_settings(struct hex_options *o, const struct settings *s, char *error, size_t size)
{
	if (s->size < BOARD_LEAST || s->size > BOARD_MOST || !s->nodes || !s->threads ||
	    s->threads > WEIR_INVOKE_THREADS_MAX ||
	    (uint64_t)s->threads * o->processes > MCTS_THREADS_MAX)
		return fail(error, size, -EPROTO,
			    "process 0 has invalid settings; run one version everywhere");
	o->size = s->size;
	o->flood = s->flood;
	o->local = s->local;
	o->remote_always = s->remote_always;
	o->nodes = s->nodes;
	o->threads = s->threads;
	o->seed = s->seed;
	return 0;
}

int
player_serve(const struct hex_options *o, char *error, size_t size)
{
	for (;;) {
		struct hex_options its = *o;
		struct settings s = {0};
		struct player *p;
		int rc = crew_share(o->crew, &s, sizeof(s), error, size);

		if (rc || !s.size)
			return rc;
		rc = take_settings(&its, &s, error, size);
		if (!rc)
			rc = open_player(&p, &its, weir_group_rank(o->crew->g), error, size);
		if (rc)
			return rc;
		rc = p->search->serve(p->search);
		if (rc)
			fail(error, size, rc, "%s", player_reason(p, rc));
		player_close(p);
		if (rc)
			return rc;
	}
}

int
player_dismiss(const struct hex_options *o, char *error, size_t size)
{
	struct settings none = {0};

	return crew_share(o->crew, &none, sizeof(none), error, size);
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
player_reason(const struct player *p, int rc)
{
	if (p->search->reason)
		return p->search->reason;
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
