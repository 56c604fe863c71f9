/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Phases of a search. The root's thread lets all threads of its process launch rollouts; when all
 * have returned, it tells the front. And the tree moves on by a move.
 */
#include "node.h"

#include <errno.h>
#include <stdlib.h>

#define CLOSED (UINT64_C(1) << 63) /* in `launched`: no more follow */
#define STATS_NS UINT64_C(250000000)

static void
begin(struct mcts_thread *t, const struct node *n, const struct mcts_message *s)
{
	struct mcts *m = t->m;
	uint64_t now = m->port->now(m->port);
	uint64_t threads = (uint64_t)m->o.processes * m->o.threads * MCTS_SIMULATIONS;
	struct mcts_message launch = {LAUNCH, .node = s->node};

	m->number = s->other;
	if (!n || n->winner) {
		front_tell(t, NULL, true);
		return;
	}
	m->root = s->node;
	m->searching = true;
	m->budget = s->count;
	m->flight = m->budget / MCTS_FLIGHT_PART;
	if (m->flight < MCTS_FLIGHT_LEAST * threads)
		m->flight = MCTS_FLIGHT_LEAST * threads;
	if (m->flight > MCTS_FLIGHT_MOST * threads)
		m->flight = MCTS_FLIGHT_MOST * threads;
	m->end = s->wins < UINT64_MAX - now ? now + s->wins : UINT64_MAX;
	m->next_stats = now + STATS_NS;
	m->launched = m->returned = 0;
	m->launchers = m->o.threads;
	for (uint32_t i = 0; i < m->o.threads; i++)
		search_send(t, m->o.process * m->o.threads + i, &launch);
}

bool
phase_launch(struct mcts_thread *t)
{
	struct mcts *m = t->m;
	uint64_t now = m->port->now(m->port), old, n;

	if (now >= m->end)
		atomic_fetch_or(&m->launched, CLOSED);
	if (t->id == name_thread(m->root) && now >= m->next_stats) {
		m->next_stats = now + STATS_NS;
		front_tell(t, node_of(m, m->root), false);
	}
	old = m->launched;
	do {
		n = old < m->budget ? m->budget - old : 0;
		if (n > MCTS_BATCH * MCTS_SIMULATIONS)
			n = MCTS_BATCH * MCTS_SIMULATIONS;
		/* each of them is chosen without the results of the others */
		if (n && m->returned + m->flight <= old)
			return false;
	} while (n && !atomic_compare_exchange_weak(&m->launched, &old, old + n));
	t->batch = n / MCTS_SIMULATIONS;
	t->counts.rollouts += t->batch;
	if (!n) {
		t->launching = false;
		atomic_fetch_sub(&m->launchers, 1);
		phase_check(t);
	}
	return true;
}

/* All that was launched is back, and nothing more will be launched: however many that were. */
static bool
is_over(struct mcts *m)
{
	return !m->launchers && (m->launched & ~CLOSED) == m->returned;
}

void
phase_check(struct mcts_thread *t)
{
	if (is_over(t->m))
		search_send(t, name_thread(t->m->root), &(struct mcts_message){CHECK});
}

static void
advance(struct mcts_thread *t, struct node *n, unsigned move)
{
	struct children *c = n ? n->children : NULL;
	struct mcts_message m = {ROOT};

	for (uint32_t i = 0; c && i < c->count; i++) {
		uint64_t link = c->of[i].link;

		if (node_moves(c)[i] != move || link < NAME_LEAST || link == NAME_NO_ROOM)
			continue;
		m = (struct mcts_message){ADOPT, .node = link};
		c->of[i].link = 0; /* all others go with the root */
	}
	if (n)
		search_queue(t, n, 0);
	search_send(t, m.node ? name_thread(m.node) : 0, &m);
}

void
phase_receive(struct mcts_thread *t, struct node *n, const struct mcts_message *m, size_t bytes)
{
	struct mcts_message root = {ROOT, .other = n ? m->node : 0};
	const struct game *g = t->m->o.game;
	bool searched = t->m->searching && t->m->root == m->node && n;

	switch (m->kind) {
	case START:
		n = g->read(g, t->position, m->state, bytes) ? NULL : node_new(t, 0, 0);
		root.other = n ? n->name : 0;
		root.count = 1;
		search_send(t, 0, &root);
		break;
	case ADVANCE:
		advance(t, n, m->move);
		break;
	case ADOPT:
		if (n)
			n->parent = 0;
		search_send(t, 0, &root);
		break;
	case SEARCH:
		begin(t, n, m);
		break;
	case LAUNCH:
		t->launching |= node_of(t->m, m->node) != NULL;
		break;
	case CHECK:
		if (t->m->searching && name_thread(t->m->root) == t->id && is_over(t->m)) {
			t->m->searching = false;
			front_tell(t, node_of(t->m, t->m->root), true);
		}
		break;
	default: /* STOP */
		if (searched)
			atomic_fetch_or(&t->m->launched, CLOSED);
	}
}

int
mcts_open(struct mcts *m, const struct mcts_options *o, struct mcts_port *port)
{
	uint64_t threads = (uint64_t)o->processes * o->threads;
	bool made;

	if (!threads || threads > MCTS_THREADS_MAX || o->game->moves_max > MCTS_MOVES_MAX)
		return -EINVAL;
	*m = (struct mcts){.o = *o, .port = port};
	m->threads = calloc(o->threads, sizeof(*m->threads));
	m->front.state = malloc(o->game->state_max);
	made = m->threads && m->front.state;
	for (uint32_t i = 0; made && i < o->threads; i++) {
		struct mcts_thread *t = &m->threads[i];

		t->m = m;
		t->id = o->process * o->threads + i;
		t->dice = t->told = dice_of((*port->random)(port));
		t->out = malloc(MCTS_MESSAGE_MAX);
		t->position = malloc(o->game->position_bytes);
		made = !node_open(t) && t->out && t->position;
	}
	if (made)
		return 0;
	mcts_close(m);
	return -ENOMEM;
}

void
mcts_close(struct mcts *m)
{
	for (uint32_t i = 0; m->threads && i < m->o.threads; i++) {
		struct mcts_thread *t = &m->threads[i];

		node_close(t);
		free(t->out);
		free(t->position);
	}
	free(m->threads);
	free(m->front.state);
	*m = (struct mcts){0};
}
