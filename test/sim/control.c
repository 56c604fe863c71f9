/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control as brokers see it: reports members, carries offers between data planes (late, twice,
 * never out of order), finds silent nodes suspect.
 */
#include "node.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define LOST_MANY 4u /* in a row: offers go every half second, a connect ends after five */

struct letter {
	uint32_t to;
	struct weir_ctl_msg m; /* only its length is there */
};

static void
deliver(struct sim *s, void *arg)
{
	struct letter *l = arg;
	struct sim_node *n = s->node[l->to];

	if (n && n->broker) {
		broker_control_input(n->broker, &l->m);
		sim_node_kick(n);
	}
	free(l);
}

static void
mail(struct sim *s, uint64_t at, uint32_t to, const struct weir_ctl_msg *m)
{
	struct letter *l = malloc(offsetof(struct letter, m) + m->length);

	if (!l)
		abort();
	l->to = to;
	memcpy(&l->m, m, m->length);
	sim_call(s, at, deliver, l);
}

static void
drop_letter(struct sim *s, void *letter)
{
	free(letter);
}

/* Frees letters under way, at the end of a seed. */
void
sim_control_reset(struct sim *s)
{
	sim_cancel(s, deliver, drop_letter);
}

static bool
cut_off(const struct sim *s, uint32_t node)
{
	return s->sc.cut_at <= s->now && s->sc.cut_node == node;
}

static void
tell(struct sim *s, uint64_t at, uint32_t to, uint32_t about, enum weir_node_state state)
{
	struct weir_ctl_msg m = {
	    .type = WEIR_CTL_NODE,
	    .length = weir_ctl_length(WEIR_CTL_NODE),
	    .node =
		{
		    .id = about,
		    .state = state,
		    .incarnation = 1000 + about,
		    .engines = s->sc.engines[about],
		    .self = to == about,
		    .address_count = 1,
		},
	};
	uint32_t ip = sim_node_ip(about);

	m.node.address[0][10] = m.node.address[0][11] = 0xff;
	for (uint32_t i = 0; i < 4; i++)
		m.node.address[0][12 + i] = (uint8_t)(ip >> (24 - 8 * i));
	mail(s, at, to, &m);
}

/* A data plane hears nothing of a peer. If control doesn't either, the node is down. */
static void
nobody_answers(struct sim_node *n, uint32_t peer)
{
	struct sim *s = n->s;
	uint64_t at = s->now + 1;

	s->counts.links_lost++;
	if (cut_off(s, n->id) || cut_off(s, peer))
		tell(s, at > s->suspect_at ? at : s->suspect_at, n->id, peer, WEIR_NODE_DOWN);
}

/* One stream between two controls: in order. */
static void
forward(struct sim_node *n, uint32_t to, const struct weir_ctl_msg *m)
{
	struct sim *s = n->s;
	uint64_t at = s->now + SIM_US + rng_next(&s->rng) % s->sc.control_delay;

	if (at <= n->last_control[to])
		at = n->last_control[to] + 1;
	n->last_control[to] = at;
	mail(s, at, to, m);
	if (rng_chance(&s->rng, s->sc.control_dup))
		mail(s, ++n->last_control[to], to, m);
}

/* All learn which names a node offers. */
static void
spread_services(struct sim_node *n, const struct weir_ctl_msg *m)
{
	struct weir_ctl_msg told = *m;

	told.services.node = n->id;
	for (uint32_t to = 0; to < n->s->sc.nodes; to++)
		if (to != n->id && !cut_off(n->s, n->id) && !cut_off(n->s, to))
			forward(n, to, &told);
}

static void
count_lost(const struct sim_node *n, uint32_t to, const struct weir_link_offer *m, bool lost)
{
	bool first = n->id < to;
	struct sim_node *low = n->s->node[first ? n->id : to];
	uint32_t high = first ? to : n->id, mine = first ? m->engine : m->peer_engine,
		 theirs = first ? m->peer_engine : m->engine;
	uint8_t *count = &low->lost_offers[high][(mine * 31 + theirs) % SIM_OFFERS];

	if (!lost && m->answered) /* both ways */
		*count = 0;
	else if (lost && *count < UINT8_MAX)
		++*count;
	if (*count > low->most_lost[high])
		low->most_lost[high] = *count;
}

/* A message of a data plane to its control; those for peers go on. */
void
sim_control_output(void *user, const struct weir_ctl_msg *m)
{
	struct sim_node *n = user;
	struct sim *s = n->s;
	uint32_t to = 0;
	bool lost;

	if (m->type == WEIR_CTL_LINK)
		to = m->link.peer_node;
	else if (m->type == WEIR_CTL_RESYNC)
		to = m->link_down.peer_node;
	else if (m->type == WEIR_CTL_SERVICES)
		spread_services(n, m);
	else if (m->type == WEIR_CTL_LINK_DOWN && m->link_down.status == EHOSTDOWN)
		nobody_answers(n, m->link_down.peer_node);
	if (m->type != WEIR_CTL_LINK && m->type != WEIR_CTL_RESYNC)
		return;
	if (to >= s->sc.nodes)
		sim_fail(s, "node %u: message for node %u, which doesn't exist", n->id, to);
	if (cut_off(s, n->id) || cut_off(s, to))
		return;
	lost = rng_chance(&s->rng, s->sc.control_loss);
	if (m->type == WEIR_CTL_LINK)
		sim_trace(
		    s,
		    "control: node %u.%u offers node %u.%u attempt %u (joined %u, answers %u, "
		    "resumes %u of %u.%u, refuses with %u)%s",
		    n->id, m->link.engine, to, m->link.peer_engine, m->link.attempt, m->link.joined,
		    m->link.answered, m->link.resumes, m->link.born, m->link.peer_born,
		    m->link.refused, lost ? ", lost" : "");
	if (m->type == WEIR_CTL_LINK)
		/* one that finds no room for links comes to nothing, too */
		count_lost(n, to, &m->link, lost || m->link.refused == ENOSPC);
	if (!lost)
		forward(n, to, m);
}

bool
sim_offers_lost(const struct sim *s, uint32_t a, uint32_t b)
{
	return s->node[a < b ? a : b]->most_lost[a < b ? b : a] >= LOST_MANY;
}

void
sim_control_start(struct sim *s)
{
	uint64_t suspect = s->sc.cut_at + rng_log(&s->rng, 100 * SIM_MS, SIM_S);
	struct weir_ctl_msg synced = {.type = WEIR_CTL_SYNCED,
				      .length = weir_ctl_length(WEIR_CTL_SYNCED)};

	s->suspect_at = suspect;
	for (uint32_t to = 0; to < s->sc.nodes; to++) {
		uint64_t at = rng_next(&s->rng) % s->sc.control_delay;

		tell(s, at++, to, to, WEIR_NODE_UP);
		for (uint32_t i = 0; i < s->sc.nodes; i++) {
			if (i == to)
				continue;
			if (rng_chance(&s->rng, 300))
				tell(s, at++, to, i, WEIR_NODE_JOINING);
			else
				tell(s, at++, to, i, WEIR_NODE_UP);
		}
		mail(s, at++, to, &synced);
		at += rng_next(&s->rng) % s->sc.control_delay;
		for (uint32_t i = 0; i < s->sc.nodes; i++) {
			if (i != to)
				tell(s, at++, to, i, WEIR_NODE_UP);
			if (i != to && s->sc.cut_at != SIM_NEVER &&
			    (to == s->sc.cut_node || i == s->sc.cut_node))
				tell(s, suspect > at ? suspect : at, to, i, WEIR_NODE_SUSPECT);
		}
	}
}
