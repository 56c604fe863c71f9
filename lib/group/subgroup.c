/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of members of another group. The number of the new group, its context, is computed from
 * what all its members know, so that nobody has to give it. Groups with the same members made by
 * the same call may have the same number: the first one has all its connections before the next
 * begins.
 */
#include "board.h"
#include "handle.h"

#include "client/progress.h"
#include "ipc/invariant.h"

#include <stdlib.h>

#define OF_SPLIT 1u
#define OF_SUBSET 2u
#define OF_SURVIVORS 3u

/* Makes the group of g's members with these ranks, of which one is the caller's. */
static int
make_sub(struct weir_group *g, const uint32_t *ranks, uint32_t n, uint64_t context)
{
	const struct collective_call barrier = {.kind = COLLECTIVE_BARRIER};
	struct weir_group *sub;
	uint32_t mine = 0;
	int rc;

	while (ranks[mine] != g->x.rank) {
		mine++;
		weir_assert(mine < n);
	}
	rc = group_new(g->endpoint, mine, n, context, &sub);
	if (rc)
		return rc;
	group_work_for(sub, g);
	for (uint32_t i = 0; i < n; i++)
		sub->member[i] = g->member[ranks[i]];
	for (uint32_t i = 0; i < sub->x.neighbours; i++)
		sub->edge[i].peer = sub->member[sub->x.neighbour[i].rank];
	rc = group_number(sub);
	if (!rc && exchange_begin(&sub->x, &barrier))
		rc = group_no_memory();
	if (rc)
		group_free(sub);
	else
		g->sub = sub;
	return rc;
}

/* All members of g->sub have made it. */
static void
hand_out(struct weir_group *g, struct weir_group **out)
{
	group_work_for(g->sub, g->sub);
	*out = g->sub;
	g->sub = NULL;
}

/* Waits until all members of g->sub have made it. */
static int
finish_sub(struct weir_group *g, uint64_t deadline, struct weir_group **out)
{
	int rc = group_await(g->sub, deadline);

	if (!rc) {
		hand_out(g, out);
		return 0;
	}
	if (rc != exchange_error(&g->sub->x))
		return rc;
	group_spread(g->sub);
	group_error(g->sub, rc);
	group_free(g->sub);
	g->sub = NULL;
	return rc;
}

/* ---- split ---- */

struct place {
	int32_t key;
	uint32_t rank;
};

static int
by_key(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* All choices are known. */
static int
make_part(struct weir_group *g)
{
	uint64_t context = group_mix(group_mix(g->context, g->x.number),
				     (uint64_t)OF_SPLIT << 32 | (uint32_t)g->choice.color);
	struct place *places = calloc(g->x.size, sizeof(*places));
	uint32_t *ranks = calloc(g->x.size, sizeof(*ranks)), n = 0;
	int rc;

	for (uint32_t i = 0; places && ranks && i < g->x.size; i++)
		if (g->choices[i].color == g->choice.color)
			places[n++] = (struct place){g->choices[i].key, i};
	if (places && ranks) {
		qsort(places, n, sizeof(*places), by_key);
		for (uint32_t i = 0; i < n; i++)
			ranks[i] = places[i].rank;
		rc = make_sub(g, ranks, n, context);
	} else {
		rc = group_no_memory();
	}
	free(places);
	free(ranks);
	return rc;
}

int
weir_group_split(struct weir_group *g, int color, int key, int timeout_ms, struct weir_group **sub)
{
	uint64_t deadline = weir_time_end(timeout_ms);
	const struct group_call call = {.op = CALL_SPLIT, .color = color, .key = key};
	int rc;

	if (!g || !sub)
		return group_misused();
	*sub = NULL;
	rc = group_enter(g, &call);
	if (rc < 0)
		return rc;
	if (!rc) {
		struct collective_call c = {
		    .kind = COLLECTIVE_ALLGATHER, .mine = &g->choice, .length = sizeof(g->choice)};

		g->choice = (struct choice){color, key};
		g->choices = calloc(g->x.size, sizeof(*g->choices));
		c.all = g->choices;
		if (!g->choices || exchange_begin(&g->x, &c)) {
			free(g->choices);
			g->choices = NULL;
			return group_take_back(g, group_no_memory());
		}
	}
	rc = g->sub ? 0 : group_await(g, deadline);
	if (!rc && color >= 0 && !g->sub)
		rc = make_part(g);
	if (!rc && color >= 0)
		rc = finish_sub(g, deadline, sub);
	rc = group_leave_call(g, rc);
	if (g->call.op == CALL_NONE) {
		free(g->choices);
		g->choices = NULL;
	}
	return rc;
}

int
weir_group_split_host(struct weir_group *g, int timeout_ms, struct weir_group **sub)
{
	return g ? weir_group_split(g, g->member[g->x.rank].node, 0, timeout_ms, sub)
		 : group_misused();
}

/* ---- subset ---- */

int
weir_group_subset(struct weir_group *g, const uint32_t *ranks, uint32_t n, int timeout_ms,
		  struct weir_group **sub)
{
	uint64_t deadline = weir_time_end(timeout_ms);
	struct group_call call = {.op = CALL_SUBSET};
	bool *listed, member;
	uint32_t i;
	int rc;

	if (!g || !ranks || !n || n > g->x.size || !sub)
		return group_misused();
	*sub = NULL;
	listed = calloc(g->x.size, sizeof(*listed));
	if (!listed)
		return group_no_memory();
	call.context = group_mix(g->context, (uint64_t)OF_SUBSET << 32 | n);
	for (i = 0; i < n && ranks[i] < g->x.size && !listed[ranks[i]]; i++) {
		listed[ranks[i]] = true;
		call.context = group_mix(call.context, ranks[i]);
	}
	member = listed[g->x.rank];
	free(listed);
	if (i < n || !member)
		return weir_fail(-EINVAL, "the list has a rank that is not in the group, or one "
					  "twice, or lacks the caller's");
	rc = group_enter(g, &call);
	if (rc < 0)
		return rc;
	if (!rc) {
		rc = make_sub(g, ranks, n, call.context);
		if (rc)
			return group_take_back(g, rc);
	}
	return group_leave_call(g, finish_sub(g, deadline, sub));
}

/* ---- survivors ---- */

/* Tries with the members that are not known to have ended. */
static int
make_survivors(struct weir_group *g)
{
	uint32_t *ranks = calloc(g->x.size, sizeof(*ranks)), n = 0;
	uint64_t context = OF_SURVIVORS;
	int rc;

	if (!ranks)
		return group_no_memory();
	/* the same, whichever group the members are in */
	for (uint32_t i = 0; i < g->x.size; i++)
		if (i == g->x.rank || !exchange_is_dead(&g->x, i)) {
			ranks[n++] = i;
			context = group_mix(context, g->member[i].id);
		}
	rc = make_sub(g, ranks, n, context);
	g->sub_deaths = exchange_deaths(&g->x);
	free(ranks);
	return rc;
}

/* Each of the two groups learns of ended members from the other. */
static void
pass_on(struct weir_group *g)
{
	for (uint32_t i = 0; i < g->x.failures; i++) {
		const struct failure *f = &g->x.failure[i];

		for (uint32_t k = 0; f->rank != NOBODY && k < g->sub->x.size; k++)
			if (g->sub->member[k].id == g->member[f->rank].id)
				exchange_failed(&g->sub->x, k, f->status);
	}
	for (uint32_t i = 0; i < g->sub->x.failures; i++) {
		const struct failure *f = &g->sub->x.failure[i];

		for (uint32_t k = 0; f->rank != NOBODY && k < g->x.size; k++)
			if (g->member[k].id == g->sub->member[f->rank].id)
				exchange_failed(&g->x, k, f->status);
	}
}

/* 0: all survivors have made the group; -EAGAIN: not yet. */
static int
survive_step(struct weir_group *g)
{
	int rc = group_progress(g); /* news of members that have ended; else it has nothing to do */

	if (weir_state(g->endpoint->w) != WEIR_UP)
		return weir_gone(g->endpoint->w);
	if (g->sub && !exchange_error(&g->sub->x))
		rc = group_progress(g->sub);
	else
		rc = -EAGAIN;
	if (g->sub) {
		if (!rc)
			return 0;
		pass_on(g);
		if (rc != -EAGAIN && rc != exchange_error(&g->sub->x))
			return rc;
	}
	exchange_tell(&g->x);
	if (g->sub && g->sub_deaths == exchange_deaths(&g->x))
		return exchange_error(&g->sub->x) ? exchange_error(&g->sub->x) : -EAGAIN;
	if (g->sub) {
		/* members that have it already hear why, before they hear that this one left it */
		exchange_tell(&g->sub->x);
		group_free(g->sub);
		g->sub = NULL;
	}
	rc = make_survivors(g);
	return rc ? rc : -EAGAIN;
}

int
weir_group_survivors(struct weir_group *g, int timeout_ms, struct weir_group **h)
{
	const struct group_call call = {.op = CALL_SURVIVORS};
	struct weir_wait wait;
	int rc;

	if (!g || !h)
		return group_misused();
	*h = NULL;
	if (weir_state(g->endpoint->w) != WEIR_UP)
		return weir_gone(g->endpoint->w);
	if (g->idling)
		return group_in_idle();
	if (g->call.op != CALL_NONE && g->call.op != CALL_SURVIVORS) {
		group_set_inside(g, true);
		exchange_cancel(&g->x);
		group_take_back(g, 0);
		free(g->choices);
		g->choices = NULL;
		if (g->sub)
			group_free(g->sub);
		g->sub = NULL;
	}
	rc = group_enter(g, &call);
	if (rc < 0)
		return rc;
	weir_wait_init(&wait, g->endpoint->worker, timeout_ms);
	wait.nap_always = true;
	while ((rc = survive_step(g)) == -EAGAIN) {
		rc = group_wait_next(g, &wait);
		if (rc)
			break;
	}
	weir_wait_end(&wait);
	if (rc == -EAGAIN || rc == -EINTR || group_lacks(rc)) {
		group_set_inside(g, false);
		return rc;
	}
	if (!rc) {
		hand_out(g, h);
	} else if (g->sub) {
		group_error(g->sub, rc);
		group_free(g->sub);
		g->sub = NULL;
	}
	return group_take_back(g, rc);
}
