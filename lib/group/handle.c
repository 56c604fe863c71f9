/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that do not wait: leaving, ranks, members, failures. */
#include "board.h"
#include "handle.h"

#include <stdlib.h>
#include <string.h>

void
weir_group_leave(struct weir_group *g)
{
	if (!g || weir_state(g->endpoint->w) == WEIR_FORKED)
		return;
	if (g->board)
		g->free_board(g->board);
	/* neighbours that had no room for the news before */
	if (g->x.failures && weir_state(g->endpoint->w) == WEIR_UP)
		exchange_tell(&g->x);
	group_free(g);
}

struct group_idle
group_set_idle(struct weir_group *g, struct group_idle idle)
{
	struct group_idle before = {g->idle, g->idle_arg};

	g->idle = idle.f;
	g->idle_arg = idle.arg;
	return before;
}

void
weir_group_idle(struct weir_group *g, int (*f)(void *arg), void *arg)
{
	group_set_idle(g, (struct group_idle){f, arg});
}

bool
group_is_home(const struct weir_group *g)
{
	return weir_thread_get(g->endpoint->worker->w) == g->endpoint->worker;
}

uint32_t
group_awaits(const struct weir_group *g)
{
	return exchange_awaits(&g->x);
}

void
group_work_for(struct weir_group *part, struct weir_group *g)
{
	part->idler = g;
}

struct weir *
group_session(const struct weir_group *g)
{
	return g->endpoint->w;
}

void **
group_board(struct weir_group *g, void (*free_board)(void *board))
{
	g->free_board = free_board;
	return &g->board;
}

bool
group_is_calling(const struct weir_group *g)
{
	return g->call.op != CALL_NONE && weir_state(g->endpoint->w) == WEIR_UP;
}

bool
group_is_over(struct weir_group *g)
{
	bool over = weir_group_failed(g, NULL, 0) < 0;

	if (over)
		return true;
	weir_bias_lock(&g->lock);
	over = exchange_error(&g->x);
	weir_bias_unlock(&g->lock);
	return over;
}

uint32_t
weir_group_rank(const struct weir_group *g)
{
	return g->x.rank;
}

uint32_t
weir_group_size(const struct weir_group *g)
{
	return g->x.size;
}

struct known {
	uint64_t id;
	uint32_t rank;
};

static int
by_id(const void *a, const void *b)
{
	const struct known *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

int
weir_group_translate(const struct weir_group *a, uint32_t n, const uint32_t *ranks,
		     const struct weir_group *b, uint32_t *out)
{
	struct known *known;

	if (!a || !b || (n && (!ranks || !out)))
		return weir_fail(-EINVAL, "no group, or no ranks; see weir/group.h");
	known = calloc(b->x.size, sizeof(*known));
	if (!known)
		return weir_fail(-ENOMEM, "no memory to translate ranks; free some");
	for (uint32_t i = 0; i < b->x.size; i++)
		known[i] = (struct known){b->member[i].id, i};
	qsort(known, b->x.size, sizeof(*known), by_id);
	for (uint32_t i = 0; i < n; i++) {
		const struct known *found;
		struct known key;

		if (ranks[i] >= a->x.size) {
			free(known);
			return weir_fail(-EINVAL, "rank %u of %u members", ranks[i], a->x.size);
		}
		key.id = a->member[ranks[i]].id;
		found = bsearch(&key, known, b->x.size, sizeof(*known), by_id);
		out[i] = found ? found->rank : WEIR_RANK_ANY;
	}
	free(known);
	return 0;
}

int
weir_group_member(const struct weir_group *g, uint32_t rank, struct weir_member *member)
{
	const struct member *m;

	if (!g || !member || rank >= g->x.size)
		return weir_fail(-EINVAL, "no group, or no such rank");
	m = &g->member[rank];
	*member = (struct weir_member){.node = m->node,
				       .local = m->node == g->member[g->x.rank].node,
				       .on_host = m->on_host,
				       .numa_node = m->numa};
	return 0;
}

int
weir_group_failed(struct weir_group *g, uint32_t *ranks, uint32_t n)
{
	uint32_t count = 0;
	int rc;

	if (!g || (n && !ranks))
		return weir_fail(-EINVAL, "no group, or no place for ranks");
	if (weir_state(g->endpoint->w) != WEIR_UP)
		return weir_gone(g->endpoint->w);
	weir_bias_lock(&g->lock);
	rc = group_progress(g);
	if (!rc || rc == -EAGAIN || rc == exchange_error(&g->x)) {
		exchange_tell(&g->x);
		rc = 0;
	}
	for (uint32_t i = 0; !rc && i < g->x.failures; i++) {
		if (g->x.failure[i].rank >= g->x.size)
			continue;
		if (count < n)
			ranks[count] = g->x.failure[i].rank;
		count++;
	}
	weir_bias_unlock(&g->lock);
	return rc ? rc : (int)count;
}
