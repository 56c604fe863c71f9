/* SPDX-License-Identifier: BSD-3-Clause */
#include "node.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 1024u /* nodes */
#define ROOTS 64u   /* beyond nodes_max: there is a new root before the old tree is deleted */

static size_t
node_bytes(const struct mcts *m)
{
	return (sizeof(struct node) + m->o.game->state_max + 7) / 8 * 8;
}

static struct node *
node_at(const struct mcts_thread *t, uint32_t index)
{
	char *chunk = atomic_load_explicit(&t->chunks[index / CHUNK], memory_order_acquire);

	return (struct node *)(void *)(chunk + index % CHUNK * node_bytes(t->m));
}

struct node *
node_of(const struct mcts *m, uint64_t name)
{
	uint32_t thread = name_thread(name), index = (uint32_t)name;
	const struct mcts_thread *t;
	struct node *n;

	if (name < NAME_LEAST || thread / m->o.threads != m->o.process)
		return NULL;
	t = &m->threads[thread % m->o.threads];
	if (index >= atomic_load_explicit(&t->nodes, memory_order_acquire))
		return NULL;
	n = node_at(t, index);
	return atomic_load_explicit(&n->name, memory_order_relaxed) == name ? n : NULL;
}

int
node_open(struct mcts_thread *t)
{
	t->chunks = calloc((t->m->o.nodes_max + ROOTS) / CHUNK + 1, sizeof(*t->chunks));
	return t->chunks ? 0 : -ENOMEM;
}

void
node_close(struct mcts_thread *t)
{
	for (uint32_t i = 0; i < t->nodes; i++)
		free(node_at(t, i)->children);
	for (uint32_t i = 0; t->chunks && i < t->nodes; i += CHUNK)
		free(t->chunks[i / CHUNK]);
	free(t->chunks);
}

struct node *
node_new(struct mcts_thread *t, uint64_t parent, uint32_t index)
{
	const struct game *g = t->m->o.game;
	struct node *n = t->free;
	uint32_t slot = n ? n->slot : t->nodes, generation;

	if (t->counts.nodes >= t->m->o.nodes_max + (parent ? 0 : ROOTS))
		return NULL;
	if (!n && slot % CHUNK == 0)
		t->chunks[slot / CHUNK] = calloc(CHUNK, node_bytes(t->m));
	if (!n && !t->chunks[slot / CHUNK])
		return NULL;
	if (n)
		t->free = n->next;
	else
		t->nodes = slot + 1;
	n = node_at(t, slot);
	generation = (n->generation + 1) % (1u << 20);
	*n = (struct node){.parent = parent,
			   .hash = g->hash(t->position),
			   .index = index,
			   .slot = slot,
			   .generation = generation,
			   .turn = (int8_t)-g->turn(t->position),
			   .winner = (int8_t)g->winner(t->position)};
	n->state_bytes = (uint16_t)g->write(t->position, n->state);
	n->name = (uint64_t)(t->id + 1) << NAME_THREAD | (uint64_t)generation << 32 | slot;
	t->counts.nodes++;
	return n;
}

void
node_free(struct mcts_thread *t, struct node *n)
{
	weir_assert(node_at(t, n->slot) == n && !n->queued);
	free(n->children);
	n->children = NULL;
	n->name = 0;
	n->next = t->free;
	t->free = n;
	t->counts.nodes--;
}

struct children *
node_children(struct mcts_thread *t, struct node *n)
{
	struct children *old = atomic_load_explicit(&n->children, memory_order_acquire), *made;
	const struct game *g = t->m->o.game;
	uint16_t list[MCTS_MOVES_MAX];
	unsigned count;

	if (old || n->winner || g->read(g, t->position, n->state, n->state_bytes))
		return old;
	count = g->moves(t->position, list);
	made = calloc(1, sizeof(*made) + count * (sizeof(made->of[0]) + sizeof(*list)));
	if (!made || !count) {
		free(made);
		return NULL;
	}
	made->count = count;
	memcpy(node_moves(made), list, count * sizeof(*list));
	if (atomic_compare_exchange_strong(&n->children, &old, made))
		return made;
	free(made); /* another thread was faster */
	return old;
}

int
node_expand(struct mcts_thread *t, struct node *n, struct children *c)
{
	uint32_t start = dice_below(&t->dice, c->count);

	if (atomic_load_explicit(&n->expanded, memory_order_relaxed))
		return -1;
	for (uint32_t k = 0; k < c->count; k++) {
		uint32_t i = start + k < c->count ? start + k : start + k - c->count;
		uint64_t none = 0;

		if (!atomic_load_explicit(&c->of[i].visits, memory_order_relaxed) &&
		    atomic_compare_exchange_strong(&c->of[i].visits, &none, MCTS_SIMULATIONS))
			return (int)i;
	}
	atomic_store_explicit(&n->expanded, true, memory_order_relaxed);
	return -1;
}

uint32_t
node_select(struct mcts_thread *t, const struct node *n, struct children *c)
{
	float all = logf((float)atomic_load_explicit(&n->visits, memory_order_relaxed)), most = -1;
	uint32_t best = 0, equal = 0, i = t->id % c->count;

	for (uint32_t k = 0; k < c->count; k++, i = i + 1 < c->count ? i + 1 : 0) {
		struct child *child = &c->of[i];
		float wins = (float)atomic_load_explicit(&child->wins, memory_order_relaxed);
		float visits = (float)atomic_load_explicit(&child->visits, memory_order_relaxed);
		float weight = wins / visits + sqrtf(all / visits);

		if (weight > most) {
			most = weight;
			best = i;
			equal = 1;
		} else if (weight == most && dice_below(&t->dice, ++equal) == 0) {
			best = i;
		}
	}
	return best;
}

int
node_best(struct dice *dice, struct node *n)
{
	struct children *c = atomic_load_explicit(&n->children, memory_order_acquire);
	uint64_t most = 0, most_wins = 0;
	uint32_t equal = 0;
	int best = -1;

	for (uint32_t i = 0; c && i < c->count; i++) {
		uint64_t visits = c->of[i].visits, wins = c->of[i].wins;

		if (!visits || visits < most || (visits == most && wins < most_wins))
			continue;
		equal = visits == most && wins == most_wins ? equal + 1 : 1;
		most = visits;
		most_wins = wins;
		if (dice_below(dice, equal) == 0)
			best = (int)i;
	}
	return best;
}
