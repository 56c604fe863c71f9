/* SPDX-License-Identifier: BSD-3-Clause */
/* The front: thread 0 names the root, has it searched, and gets its figures. */
#include "node.h"

#include <string.h>

/* ---- figures, from the root to the front ---- */

/* Adds the best child of n, if there is one, to the line in t->out, and sends it on. */
static void
pass_line(struct mcts_thread *t, size_t bytes, struct node *n, int best)
{
	struct children *c = n ? n->children : NULL;
	size_t line = (bytes - t->out->index * sizeof(struct mcts_stat)) / sizeof(uint16_t);
	uint64_t link = 0;

	if (best >= 0 && line < MCTS_LINE_MAX) {
		memcpy(t->out->state + bytes, &node_moves(c)[best], sizeof(uint16_t));
		bytes += sizeof(uint16_t);
		link = c->of[best].link;
	}
	t->out->node = link >= NAME_LEAST && link != NAME_NO_ROOM ? link : 0;
	search_send_out(t, t->out->node ? name_thread(link) : 0, bytes);
}

void
front_tell(struct mcts_thread *t, struct node *n, bool last)
{
	struct children *c = n ? n->children : NULL;
	const struct game *g = t->m->o.game;
	struct mcts_stat *stats = (void *)t->out->state;
	struct dice *dice = last ? &t->dice : &t->told;
	int best = n ? node_best(dice, n) : -1;
	uint16_t list[MCTS_MOVES_MAX];
	unsigned moves;

	*t->out = (struct mcts_message){STATS, UINT16_MAX, .other = t->m->number,
					.count = n ? t->m->returned : 0, .wins = last};
	if (best >= 0)
		t->out->move = node_moves(c)[best];
	else if (n && !g->read(g, t->position, n->state, n->state_bytes) &&
		 (moves = g->moves(t->position, list)) > 0)
		t->out->move = list[dice_below(dice, moves)]; /* nothing is known: any */
	for (uint32_t i = 0; c && i < c->count; i++) {
		uint64_t visits = c->of[i].visits, wins = c->of[i].wins;

		if (visits)
			stats[t->out->index++] =
			    (struct mcts_stat){.move = node_moves(c)[i],
					       .wins = (uint16_t)(wins * UINT16_MAX / visits),
					       .rollouts = (uint32_t)(visits / MCTS_SIMULATIONS)};
	}
	pass_line(t, t->out->index * sizeof(*stats), n, best);
}

static void
take_stats(struct mcts_front *f, const struct mcts_message *m, size_t bytes)
{
	size_t stats = m->index * sizeof(f->stats[0]), line = bytes - stats;

	if (m->other != f->number || f->done)
		return;
	f->stat_count = m->index;
	memcpy(f->stats, m->state, stats);
	f->line_count = (unsigned)(line / sizeof(f->line[0]));
	memcpy(f->line, m->state + stats, line);
	f->best = m->move == UINT16_MAX ? -1 : m->move;
	f->visits = m->count;
	f->fresh = true;
	f->done = m->wins;
}

/* ---- orders ---- */

static void
start(struct mcts_thread *t)
{
	struct mcts_front *f = &t->m->front;

	*t->out = (struct mcts_message){START};
	memcpy(t->out->state, f->state, f->state_bytes);
	search_send_out(t, search_owner(t, f->hash), f->state_bytes);
}

static void
set_state(struct mcts_thread *t, const void *position)
{
	struct mcts_front *f = &t->m->front;

	f->ready = false;
	f->hash = t->m->o.game->hash(position);
	f->state_bytes = t->m->o.game->write(position, f->state);
}

static void
order(struct mcts_thread *t, struct mcts_message *m)
{
	m->node = t->m->front.root;
	search_send(t, name_thread(m->node), m);
}

void
mcts_drop(struct mcts_thread *t)
{
	search_delete(t, t->m->front.root);
	t->m->front.root = 0;
}

void
mcts_set_root(struct mcts_thread *t, const void *position)
{
	mcts_drop(t);
	set_state(t, position);
	start(t);
}

void
mcts_advance(struct mcts_thread *t, unsigned move, const void *position)
{
	set_state(t, position);
	order(t, &(struct mcts_message){ADVANCE, .move = (uint16_t)move});
}

void
mcts_search(struct mcts_thread *t, uint64_t rollouts, uint64_t ns)
{
	struct mcts_front *f = &t->m->front;

	f->done = f->fresh = false;
	f->number++;
	order(t, &(struct mcts_message){SEARCH, .count = rollouts * MCTS_SIMULATIONS, .wins = ns,
					.other = f->number});
}

void
mcts_stop(struct mcts_thread *t)
{
	order(t, &(struct mcts_message){STOP});
}

void
front_receive(struct mcts_thread *t, struct node *n, const struct mcts_message *m, size_t bytes)
{
	struct mcts_front *f = &t->m->front;
	size_t line = bytes - m->index * sizeof(struct mcts_stat);

	if (m->kind == STATS && (m->index > MCTS_MOVES_MAX || line % sizeof(uint16_t) ||
				 line > MCTS_LINE_MAX * sizeof(uint16_t))) {
		t->counts.refused++; /* also if line is negative */
	} else if (m->kind == STATS && m->node) {
		memcpy(t->out, m, sizeof(*m) + bytes);
		pass_line(t, bytes, n, n ? node_best(&t->told, n) : -1);
	} else if (m->kind == STATS && t->id == 0) {
		take_stats(f, m, bytes);
	} else if (t->id == 0) {
		f->root = m->other;
		f->ready = m->other || m->count;
		if (!f->ready)
			start(t);
	}
}
