/* SPDX-License-Identifier: BSD-3-Clause */
/* The meaning of a seed. Every value of a scenario comes from the seed and nothing else. */
#include "sim.h"

#include "ipc/remote.h"

#include <stdio.h>
#include <string.h>

#define PROGRAMS_MOST 8u /* of a seed */
#define CONNS_MOST 24u
#define FRAMES_FEW 100u /* that any seed sends: each impairment happens within or soon after */

static bool
part(struct rng *r, uint32_t without, enum sim_part p, uint32_t permille)
{
	/* drawn in any case: leaving a part out does not change the others */
	bool drawn = rng_chance(r, permille);

	return drawn && !(without & (1u << p));
}

static void
make_wire(struct sim_wire_plan *w, uint32_t nodes, struct rng *r, uint32_t without)
{
	/* draws in a fixed order, so that --without keeps the rest of the scenario as it is */
	uint32_t loss = (uint32_t)rng_log(r, 1, 60), dup = (uint32_t)rng_log(r, 1, 60);
	uint32_t reorder = (uint32_t)rng_log(r, 1, 100), corrupt = (uint32_t)rng_log(r, 1, 30);
	uint32_t full = (uint32_t)rng_log(r, 1, 100);

	memset(w, 0, sizeof(*w));
	w->delay = rng_log(r, 200, 30 * SIM_US);
	w->jitter = rng_log(r, 1, 20 * SIM_US);
	w->outage_at = SIM_START + rng_log(r, 10 * SIM_US, 10 * SIM_MS);
	w->outage_for = rng_log(r, 100 * SIM_US, 700 * SIM_MS);
	w->outage_node = rng_below(r, nodes);
	if (part(r, without, SIM_loss, 500))
		w->loss = loss;
	if (part(r, without, SIM_dup, 500))
		w->dup = dup;
	if (part(r, without, SIM_reorder, 500))
		w->reorder = reorder;
	if (part(r, without, SIM_corrupt, 300))
		w->corrupt = corrupt;
	if (part(r, without, SIM_full, 300))
		w->full = full;
	if (!part(r, without, SIM_outage, 100))
		w->outage_for = 0;
	for (uint32_t i = 0; i < SIM_IMPAIRMENTS; i++)
		w->due[i] = without & (1u << i) ? UINT32_MAX : rng_below(r, FRAMES_FEW);
}

static void
make_sizes(struct sim_scenario *sc, struct rng *r)
{
	static const uint32_t mtus[] = {256, 512, 1024, 2048, 4096};

	sc->mtu = mtus[rng_below(r, 5)];
	/* the smallest holds one message of a block and little else; half of the nodes' surely wrap
	 */
	for (uint32_t i = 0; i < sc->nodes; i++)
		sc->ring_lines[i] = 256u << rng_below(r, i % 2 ? 5 : 4 / sc->nodes);
	sc->recv_wrs = 8u << rng_below(r, 5);
	sc->ring_slots = 64u << rng_below(r, 4);
	sc->largest = rng_chance(r, 100) ? 1u << 20 : 65537;
	sc->arena_bytes = sc->largest > 65537	 ? 8u << 20
			  : sc->ring_slots > 128 ? 4u << 20
						 : 2u << 20;
	/* ARP asks every 2 ms at most: there must be time for several lost answers */
	sc->timeout_ns = rng_log(r, 4 * SIM_MS, 64 * SIM_MS);
	sc->silence_ns = rng_log(r, 100 * SIM_MS, SIM_S);
	sc->window = (uint32_t)rng_log(r, 16384, 2u << 20);
	sc->initial_grant = (uint32_t)rng_log(r, 64, 16384) & ~63u;
	sc->session_pending = 64u << rng_below(r, 4);
	sc->connections = 64;
	sc->channels = 4;
}

static void
make_programs(struct sim_scenario *sc, struct rng *r, uint32_t without)
{
	sc->programs = sc->nodes + rng_below(r, PROGRAMS_MOST - sc->nodes + 1);
	for (uint32_t i = 0; i < sc->programs; i++) {
		struct sim_program_plan *p = &sc->program[i];
		uint32_t often = (uint32_t)rng_log(r, 1, 200);

		/* every node has one at least */
		p->node = i < sc->nodes ? i : rng_below(r, sc->nodes);
		p->sleeps = part(r, without, SIM_sleep, 600);
		p->pause_for = rng_log(r, 10 * SIM_US, 5 * SIM_MS);
		p->pause = part(r, without, SIM_pause, 500) ? often : 0;
		p->threads = part(r, without, SIM_threads, 250) ? 2 : 1;
		p->killed_at = SIM_NEVER;
	}
}

/* Pairs of programs that talk, 500 messages and more in all. */
static void
make_conns(struct sim_scenario *sc, struct rng *r, uint32_t without, uint32_t times)
{
	uint32_t total = times * (500 + rng_below(r, 200));
	uint32_t bulky = part(r, without, SIM_bulk, 700) ? (uint32_t)rng_log(r, 2, 60) : 0;
	uint32_t share;

	sc->bulk = !(without & (1u << SIM_bulk));
	sc->conns = 4 + (uint32_t)rng_log(r, 1, CONNS_MOST - 4) - 1;
	share = total / sc->conns + 1;
	for (uint32_t i = 0; i < sc->conns; i++) {
		struct sim_conn_plan *c = &sc->conn[i];
		uint32_t a = rng_below(r, sc->programs), b = rng_below(r, sc->programs);
		uint32_t one_way = rng_below(r, 4);

		/* other nodes for the most part */
		for (uint32_t try = 0; try < 8 && sc->program[a].node == sc->program[b].node;
		     try++) {
			if ((i >= sc->nodes && rng_chance(r, 300)) &&
			    !(without & (1u << SIM_local)))
				break;
			b = rng_below(r, sc->programs);
		}
		while ((without & (1u << SIM_local)) && sc->program[a].node == sc->program[b].node)
			b = (b + 1) % sc->programs;
		c->loop =
		    part(r, without, SIM_loop, 250) && sc->program[a].node == sc->program[b].node;
		c->program[0] = a;
		c->program[1] = b;
		c->messages[0] = one_way == 1 ? 0 : one_way == 0 ? share : share / 2 + 1;
		c->messages[1] = one_way == 0 ? 0 : one_way == 1 ? share : share / 2 + 1;
		c->start = SIM_START + (rng_chance(r, 500) ? 0 : rng_log(r, SIM_US, 3 * SIM_MS));
		c->bulky = bulky;
		c->shared = c->messages[0] && rng_chance(r, 500);
	}
	for (uint32_t i = 0, n = 0; i < 2 * sc->conns; i++) {
		struct sim_conn_plan *c = &sc->conn[i / 2];

		c->first[i % 2] = n;
		n += c->messages[i % 2] - (c->shared && i % 2 == 0);
	}
	if (part(r, without, SIM_refuse, 200)) {
		struct sim_conn_plan *c = &sc->conn[sc->conns - 1];

		sc->conn[sc->conns++] = *c;
		c[1].unknown = true;
		c[1].shared = false;
	}
}

/* Beside some of them. Draws nothing from r: the rest of a seed stays what it was. */
static void
add_datagrams(struct sim_scenario *sc, uint32_t without)
{
	uint32_t n = without & (1u << SIM_datagram) ? 0 : sim_hash(sc->seed, 77, 0) % 4;

	for (uint32_t i = 0; i < n && sc->conns < CONNS_MOST; i++) {
		struct sim_conn_plan *c = &sc->conn[sc->conns++];

		*c = sc->conn[i];
		c->shared = c->unknown = c->hasty = false;
		c->datagram = true;
		c->messages[0] = 50 + (uint32_t)(sim_hash(sc->seed, 77, 1 + i) % 200);
		c->messages[1] = 0;
	}
}

/* Memory of some programs that others put into. Draws nothing from r either. */
static void
add_memories(struct sim_scenario *sc, uint32_t without)
{
	struct rng r = {sim_hash(sc->seed, 79, 0)};
	uint32_t n = rng_below(&r, 8);

	sc->regions = 2 * SIM_MEMORIES + 1;
	sc->region_bytes = sc->regions * (uint64_t)SIM_MEMORY_LARGE;
	sc->exports = SIM_MEMORIES + 1; /* and a lock */
	sc->export_keys = SIM_MEMORIES + 2;
	sc->answers = (uint32_t)(16384u << sim_hash(sc->seed, 82, 0) % 3);
	if (without & (1u << SIM_memory) || n > SIM_MEMORIES || sc->programs < 2)
		return;
	for (; sc->memories < n; sc->memories++) {
		struct sim_memory_plan *m = &sc->memory[sc->memories];

		m->owner = rng_below(&r, sc->programs);
		m->user = (m->owner + 1 + rng_below(&r, sc->programs - 1)) % sc->programs;
		m->puts = 20 + rng_below(&r, 300);
		m->start = SIM_START + rng_log(&r, SIM_US, 3 * SIM_MS);
		m->revoked_at = rng_chance(&r, 300) ? rng_below(&r, m->puts) : UINT32_MAX;
		m->large = sim_hash(sc->seed, 83, sc->memories) % 2;
	}
}

/* A lock; more often in seeds whose nodes do not all last, since those are few. */
static void
add_lock(struct sim_scenario *sc, uint32_t without)
{
	struct rng r = {sim_hash(sc->seed, 90, 0)};
	uint32_t programs = sc->programs < 32 ? sc->programs : 32;
	bool cut = sc->cut_at != SIM_NEVER, none = rng_chance(&r, 400);
	uint32_t kind = sim_hash(sc->seed, 104, 0) % 3;

	if (without & (1u << SIM_lock) || (cut ? kind == 1 : none))
		return;
	sc->lock.owner = rng_below(&r, programs);
	sc->lock.rounds = 3 + rng_below(&r, 30);
	sc->lock.start = SIM_START + rng_log(&r, SIM_US, 3 * SIM_MS);
	if (cut) /* somebody holds it by then */
		sc->lock.start = SIM_START;
	if (cut && kind == 2)
		sc->cut_at += 3 * SIM_MS;
	for (uint32_t i = 0; i < programs; i++)
		sc->lock.users |= (uint32_t)rng_chance(&r, cut ? 1000 : 700) << i;
}

/* Memory that several programs use. Draws nothing from r either. */
static void
add_common(struct sim_scenario *sc, uint32_t without)
{
	struct rng r = {sim_hash(sc->seed, 88, 0)};
	struct sim_common_plan *k = &sc->common;

	if (rng_below(&r, 4) || without & (1u << SIM_common) || sc->programs < 2)
		return;
	k->owner = rng_below(&r, sc->programs);
	k->maps = rng_chance(&r, 300);
	k->passes = 3 + rng_below(&r, 10);
	/* who is cut off holds what another one gets */
	k->rounds = sc->cut_at == SIM_NEVER ? rng_below(&r, 6) : 0;
	k->races = 10 + rng_below(&r, 51);
	k->start = SIM_START + rng_log(&r, SIM_US, 3 * SIM_MS);
	for (uint32_t i = 0; i < sc->programs; i++)
		if (i != k->owner)
			k->users |= (uint32_t)rng_chance(&r, 850) << i;
	if (!k->users)
		k->users = 1u << (k->owner + 1) % sc->programs;
	sc->regions++;
	sc->region_bytes += SIM_COMMON_REGION;
	sc->exports++;
	sc->export_keys++;
}

static void
make_deaths(struct sim_scenario *sc, struct rng *r, uint32_t without)
{
	uint32_t victim = rng_below(r, sc->programs), node = rng_below(r, sc->nodes);
	uint64_t kill_at = SIM_START + rng_log(r, SIM_US, 20 * SIM_MS);
	uint64_t cut_at = SIM_START + rng_log(r, SIM_US, 20 * SIM_MS);

	sc->cut_at = SIM_NEVER;
	if (part(r, without, SIM_kill, 150))
		sc->program[victim].killed_at = kill_at;
	if (part(r, without, SIM_hasty, 150))
		sc->conn[rng_below(r, 4)].hasty = true;
	if (part(r, without, SIM_cut, 60)) {
		sc->cut_node = node;
		sc->cut_at = cut_at;
	}
}

/* Options that some seeds connect and accept with. */
static void
add_options(struct sim_scenario *sc, struct sim_conn_plan *c, uint32_t i, uint32_t without)
{
	sc->holds = !(without & 1u << SIM_hold) && sim_hash(sc->seed, 97, 0) % 4 == 0;
	if (sc->holds && !c->shared && !c->unknown && !c->datagram)
		c->held = sim_hash(sc->seed, 97, i + 1) % 2;
	if (!(without & 1u << SIM_class) && sim_hash(sc->seed, 98, 0) % 4 == 1 && !c->datagram)
		c->priority = sim_hash(sc->seed, 98, i + 1) % 3;
}

/* No rate is so low that a seed would take minutes. */
static void
make_shares(struct sim_scenario *sc, struct rng *r, uint32_t without)
{
	for (uint32_t i = 0; i < sc->programs; i++) {
		struct sim_program_plan *p = &sc->program[i];
		uint32_t weight = (uint32_t)rng_log(r, 1, 100);
		uint64_t rate = rng_log(r, 20000000, 4000000000);
		uint64_t then = rng_chance(r, 500) ? rng_log(r, 20000000, 4000000000) : 0;
		uint64_t at = SIM_START + rng_log(r, 10 * SIM_US, 20 * SIM_MS);

		p->burst = rng_log(r, 1000, 1000000);
		p->weight = part(r, without, SIM_share, 300) ? weight : 10;
		p->rate = part(r, without, SIM_share, 200) ? rate : 0;
		p->rate_then = then;
		p->changed_at = part(r, without, SIM_share, 200) ? at : SIM_NEVER;
	}
}

/* Few links, and links that end soon. Draws nothing from the seed's chance either. */
static void
make_links(struct sim_scenario *sc)
{
	struct rng r = {sim_hash(sc->seed, 78, 0)};
	uint32_t few = 2 + rng_below(&r, 4);
	uint64_t idle = rng_log(&r, 20 * SIM_US, 20 * SIM_MS);

	sc->links = rng_chance(&r, 300) ? few : SIM_LINKS;
	sc->link_idle = rng_chance(&r, 400) ? idle : 0;
	idle = rng_log(&r, 50 * SIM_US, 20 * SIM_MS);
	sc->ring_idle = rng_chance(&r, 600) ? idle : 0;
}

/* Nodes of the other scenarios, which set what differs. */
static void
make_nodes(struct sim_scenario *sc, uint64_t seed, uint32_t nodes, struct rng *r)
{
	memset(sc, 0, sizeof(*sc));
	sc->seed = seed;
	sc->nodes = nodes;
	make_sizes(sc, r);
	make_wire(&sc->wire, nodes, r, 0);
	sc->wire.outage_for = 0;
	sc->wire.loss = 1 + (uint32_t)rng_log(r, 1, 30);
	sc->answers = WEIR_ANSWERS_LEAST;
	sc->links = SIM_LINKS;
	sc->control_delay = SIM_MS;
	sc->control_dup = 50;
	sc->control_loss = 20;
	sc->cut_at = SIM_NEVER;
	for (uint32_t i = 0; i < nodes; i++) {
		sc->engines[i] = 1;
		sc->event_fd[i] = sc->sleeps[i] = true;
		sc->ring_lines[i] = 256;
	}
}

#define MANY_CONNS 12u /* that each node begins, one after the other for the most part */

void
sim_scenario_many(struct sim_scenario *sc, uint64_t seed, uint32_t nodes)
{
	struct rng r = {sim_hash(seed, 1, 2)};

	make_nodes(sc, seed, nodes, &r);
	sc->programs = nodes;
	sc->bulk = true;
	sc->largest = 65537;
	sc->arena_bytes = 2u << 20;
	sc->ring_slots = 64;
	sc->recv_wrs = 16;
	for (uint32_t i = 0; i < nodes; i++) {
		sc->program[i] = (struct sim_program_plan){.node = i,
							   .threads = 1,
							   .sleeps = true,
							   .killed_at = SIM_NEVER,
							   .changed_at = SIM_NEVER,
							   .weight = 10};
		for (uint32_t k = 0; k < MANY_CONNS; k++) {
			struct sim_conn_plan *c = &sc->conn[sc->conns++];

			c->program[0] = i;
			c->program[1] = (i + 1 + rng_below(&r, nodes - 1)) % nodes;
			c->messages[0] = 3 + rng_below(&r, 8);
			c->messages[1] = rng_below(&r, 8);
			c->start = SIM_START + k * 3 * SIM_MS + rng_below(&r, 10 * SIM_MS);
			c->bulky = 20;
			c->shared = true;
		}
	}
}

void
sim_scenario_ranks(struct sim_scenario *sc, uint64_t seed, uint32_t nodes)
{
	struct rng r = {sim_hash(seed, 1, 3)};

	make_nodes(sc, seed, nodes, &r);
	sc->mtu = 1024u << rng_below(&r, 3); /* cases move megabytes */
	sc->arena_bytes = 4u << 20;
	sc->regions = 32;
	sc->region_bytes = 64u << 20;
	sc->exports = sc->export_keys = 64;
	sc->faults = rng_below(&r, 4);
	sc->fault_every = rng_log(&r, 20 * SIM_US, 20 * SIM_MS);
	for (uint32_t i = 0; i < nodes; i++) {
		sc->engines[i] = 1 + rng_below(&r, SIM_ENGINES_MAX);
		sc->event_fd[i] = rng_chance(&r, 500);
		sc->sleeps[i] = rng_chance(&r, 600);
		sc->ring_lines[i] = 256u << rng_below(&r, 4);
	}
}

void
sim_scenario_make(struct sim_scenario *sc, uint64_t seed, uint32_t without, uint32_t times)
{
	struct rng r = {sim_hash(seed, 1, 1)};

	memset(sc, 0, sizeof(*sc));
	sc->seed = seed;
	/* two nodes more often than four */
	sc->nodes = 2 + (rng_chance(&r, 350) ? 1 + rng_below(&r, 2) : 0);
	for (uint32_t i = 0; i < sc->nodes; i++) {
		sc->engines[i] = 1 + rng_below(&r, SIM_ENGINES_MAX);
		sc->event_fd[i] = rng_chance(&r, 500);
		sc->sleeps[i] = part(&r, without, SIM_sleep, 600);
	}
	make_sizes(sc, &r);
	make_wire(&sc->wire, sc->nodes, &r, without);
	/* a QP gives up after 8 timeouts; a link that is repaired does no harm either */
	if (sc->wire.outage_for > 3 * sc->timeout_ns && !rng_chance(&r, 200))
		sc->wire.outage_for = 3 * sc->timeout_ns;
	make_programs(sc, &r, without);
	make_conns(sc, &r, without, times);
	add_datagrams(sc, without);
	add_memories(sc, without);
	make_deaths(sc, &r, without);
	sc->control_delay = rng_log(&r, SIM_US, 5 * SIM_MS);
	sc->control_dup = (uint32_t)rng_log(&r, 1, 300);
	if (!part(&r, without, SIM_control, 500)) {
		sc->control_delay = 10 * SIM_US;
		sc->control_dup = 0;
	}
	sc->fault_every = rng_log(&r, 20 * SIM_US, 20 * SIM_MS);
	sc->faults = 1 + rng_below(&r, 12);
	sc->control_loss = (uint32_t)rng_log(&r, 1, 300);
	if (!part(&r, without, SIM_fault, 400))
		sc->faults = sc->control_loss = 0;
	make_shares(sc, &r, without);
	make_links(sc);
	add_lock(sc, without);
	add_common(sc, without);
	/* these draw nothing from r */
	for (uint32_t i = 0; i < sc->conns; i++)
		add_options(sc, &sc->conn[i], i, without);
	sc->batches = !(without & 1u << SIM_batch) && sim_hash(seed, 95, 0) % 3 == 0;
}

void
sim_scenario_print(const struct sim_scenario *sc)
{
	const struct sim_wire_plan *w = &sc->wire;

	printf("seed %lu: %u nodes, %u programs, %u connections\n", sc->seed, sc->nodes,
	       sc->programs, sc->conns);
	printf("  mtu %u, %u recv wrs, channel %u slots, arena %lu KiB, "
	       "window %u, first grant %u, pending %u, timeout %lu us\n",
	       sc->mtu, sc->recv_wrs, sc->ring_slots, sc->arena_bytes / 1024, sc->window,
	       sc->initial_grant, sc->session_pending, sc->timeout_ns / 1000);
	printf("  wire: loss %u dup %u reorder %u corrupt %u full %u permille, delay %lu+%lu ns",
	       w->loss, w->dup, w->reorder, w->corrupt, w->full, w->delay, w->jitter);
	if (w->outage_for)
		printf(", node %u dark at %lu us for %lu us", w->outage_node,
		       (w->outage_at - SIM_START) / 1000, w->outage_for / 1000);
	printf("\n  control: delay up to %lu us, %u permille twice\n", sc->control_delay / 1000,
	       sc->control_dup);
	printf("  %u links per engine", sc->links);
	if (sc->ring_idle)
		printf(", rings withdrawn after %lu us", sc->ring_idle / 1000);
	if (sc->link_idle)
		printf(", which end after %lu us without connections", sc->link_idle / 1000);
	printf("\n");
	if (sc->faults)
		printf(
		    "  %u QPs of each node fail, one in %lu us at most; %u permille of offers are "
		    "lost\n",
		    sc->faults, sc->fault_every / 1000, sc->control_loss);
	for (uint32_t i = 0; i < sc->nodes; i++)
		printf("  node %u: %u engines, rings of %u lines%s%s\n", i, sc->engines[i],
		       sc->ring_lines[i], sc->sleeps[i] ? ", adaptive" : "",
		       sc->event_fd[i] ? ", rx interrupt" : "");
	for (uint32_t i = 0; i < sc->programs; i++) {
		const struct sim_program_plan *p = &sc->program[i];

		printf("  program %u on node %u%s%s", i, p->node,
		       p->threads > 1 ? ", two threads" : "", p->sleeps ? ", sleeps" : "");
		if (p->weight != 10)
			printf(", weight %u", p->weight);
		if (p->rate)
			printf(", %lu bytes/s", p->rate);
		if (p->changed_at != SIM_NEVER)
			printf(", %lu bytes/s from %lu us on", p->rate_then,
			       (p->changed_at - SIM_START) / 1000);
		if (p->pause)
			printf(", pauses (%u permille, to %lu us)", p->pause, p->pause_for / 1000);
		if (p->killed_at != SIM_NEVER)
			printf(", dies at %lu us", (p->killed_at - SIM_START) / 1000);
		printf("\n");
	}
	for (uint32_t i = 0; i < sc->conns; i++)
		printf("  connection %u: program %u to %u%s%s%s%s%s, %u and %u messages, bulk %u "
		       "permille\n",
		       i, sc->conn[i].program[0], sc->conn[i].program[1],
		       sc->conn[i].unknown ? " (no such service)" : "",
		       sc->conn[i].shared ? ", shared service" : "",
		       sc->conn[i].loop ? ", loop" : "", sc->conn[i].hasty ? ", hasty" : "",
		       sc->conn[i].datagram ? ", datagrams" : "", sc->conn[i].messages[0],
		       sc->conn[i].messages[1], sc->conn[i].bulky);
	if (sc->batches)
		printf("  batches of messages\n");
	if (sc->common.users)
		printf(
		    "  memory of program %u for programs %x%s: %u hand-overs, %u locks, %u races\n",
		    sc->common.owner, sc->common.users, sc->common.maps ? ", mapped" : "",
		    sc->common.passes, sc->common.rounds, sc->common.races);
	for (uint32_t i = 0; i < sc->conns; i++)
		if (sc->conn[i].held || sc->conn[i].priority)
			printf("  connection %u: priority %u%s\n", i, sc->conn[i].priority,
			       sc->conn[i].held ? ", held" : "");
	if (sc->cut_at != SIM_NEVER)
		printf("  node %u is cut off at %lu us\n", sc->cut_node,
		       (sc->cut_at - SIM_START) / 1000);
}
