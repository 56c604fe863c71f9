/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test-messages: the message model under the virtual clock. Programs on up to four nodes send
 * messages and requests to each other, from several threads, while frames are lost and queue pairs
 * fail. Each message that was accepted is handled once, in the order of its thread's calls, with
 * its bytes; each request ends once, with the response that its handler gave. Connections close and
 * make room meanwhile, and in some seeds a program dies.
 */
#include "client.h"
#include "messages.h"
#include "node.h"
#include "seeds.h"

#include "client/progress.h"
#include "client/session.h"
#include "client/thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LIMIT (300 * SIM_S) /* virtual time of a seed */

static struct world world;

/* ---- lives of threads and programs ---- */

static void
send_all(struct sender *t)
{
	struct program *p = t->p;

	if (p->lanes) {
		lanes_enter(t);
		t->does = "enters";
		while (p->world->entered < p->world->threads && !p->dead && !is_dying(p))
			rest(t);
	}
	for (uint32_t i = 0; i < p->operations && !p->dead && !is_dying(p); i++)
		operate(t);
	t->does = "collects";
	while (is_waiting(t) && !p->dead && !is_dying(p))
		if (!collect(t))
			rest(t);
	t->does = "has ended";
	sim_trace(p->world->s, "program %u thread %u: has sent", p->id, t->id);
	p->world->sending--;
	if (p->lanes)
		lanes_leave(t);
}

static void *
run_sender(void *arg)
{
	send_all(arg);
	return NULL;
}

static void
open_messenger(struct program *p)
{
	struct weir_handler h = WEIR_HANDLER_INIT;
	struct world *w = p->world;
	int rc;

	p->client = sim_client_attach(w->s, p->node, p->id, &p->w);
	rc = weir_messenger_open(p->w, &p->options, &p->m);
	h.handle = handle;
	h.user = p;
	for (uint32_t i = 0; i < w->programs * SENDERS && !rc; i++) {
		rc = weir_message_register(p->m, WEIR_TYPE(1, i), &h);
		if (!rc)
			rc = weir_message_register(p->m, WEIR_TYPE(2, i), &h);
	}
	if (rc)
		sim_fail(w->s, "program %u: messenger: %d: %s", p->id, rc, weir_reason());
	if (w->has_lanes)
		lanes_open(p);
	w->open++;
}

static bool
others_have_ended(const struct program *p)
{
	for (uint32_t i = 1; i < p->senders; i++)
		if (!lockstep_ended(p->sender[i].thread))
			return false;
	return true;
}

static void
check_messenger(struct program *p)
{
	struct weir_messenger_stats stats = WEIR_MESSENGER_STATS_INIT;

	weir_messenger_stats(p->m, &stats);
	p->world->counts.evicted += stats.evicted;
	if (stats.unknown || stats.malformed || stats.oversized || stats.stalled)
		sim_fail(p->world->s,
			 "program %u: %lu unknown, %lu malformed, %lu oversized, %lu "
			 "stalled messages",
			 p->id, stats.unknown, stats.malformed, stats.oversized, stats.stalled);
}

/* Its messenger's threads, and those that send, learn of it first, as the library's watcher tells
 * them that a session is lost. */
static void
die(struct program *p)
{
	sim_trace(p->world->s, "program %u: dies", p->id);
	p->dead = true;
	weir_lost(p->w);
	weir_threads_each(p->w, weir_thread_plane_lost);
	p->w->late = true;
	weir_threads_each(p->w, weir_thread_end_segments);
	while (!others_have_ended(p))
		nap(10 * SIM_US);
	weir_messenger_close(p->m);
	weir_messenger_close(p->lanes);
	for (uint32_t i = 0; i < p->senders; i++)
		drop_requests(&p->sender[i]);
	sim_client_die(p->client, p->w);
	p->world->counts.died++;
}

static void *
run_program(void *arg)
{
	struct program *p = arg;
	struct world *w = p->world;
	struct sender *first = &p->sender[0];

	open_messenger(p);
	while (w->open < w->programs)
		nap(10 * SIM_US);
	for (uint32_t i = 1; i < p->senders; i++)
		p->sender[i].thread = lockstep_start(w->s, p->node, run_sender, &p->sender[i]);
	send_all(first);
	/* answers until nobody asks any more */
	while ((w->sending || p->later_count) && !is_dying(p))
		rest(first);
	if (is_dying(p)) {
		die(p);
		return NULL;
	}
	while (p->lanes && !others_have_ended(p))
		rest(first);
	first->does = "closes";
	check_messenger(p);
	weir_messenger_close(p->m);
	weir_messenger_close(p->lanes);
	sim_client_detach(p->client, p->w);
	first->does = "has closed";
	return NULL;
}

/* ---- seeds ---- */

static void
plan_program(struct world *w, uint32_t id, struct rng *r)
{
	struct program *p = &w->program[id];
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;

	o.flags = id < w->nodes ? 0 : WEIR_MESSENGER_CLIENT;
	o.handler_threads = rng_chance(r, 500) ? 0 : 1 + rng_below(r, 2);
	o.receivers = o.handler_threads ? 1 + rng_below(r, o.handler_threads) : 0;
	o.lanes = 1 + rng_below(r, 4);
	o.connections = rng_chance(r, 300) ? 1 + rng_below(r, w->nodes) : 10000;
	o.window = rng_chance(r, 500) ? 0 : (uint32_t)rng_log(r, 64 << 10, 1 << 20);
	o.threshold = 1 + rng_below(r, 90);
	o.message_max = 2 * WEIR_MESSAGE_WHOLE;
	o.link = told_link;
	o.sent = told_sent;
	o.user = p;
	p->world = w;
	p->id = id;
	p->node = id % w->nodes;
	p->options = o;
	p->senders = 1 + rng_below(r, SENDERS);
	p->operations = 20 + rng_below(r, 100);
	p->dies_at = SIM_NEVER;
	for (uint32_t i = 0; i < p->senders; i++) {
		p->sender[i].p = p;
		p->sender[i].id = i;
		p->sender[i].rng.state = sim_hash(w->s->sc.seed, 110 + id, i);
		p->sender[i].does = "starts";
	}
	w->sending += p->senders;
	w->threads += p->senders;
}

static void
make_world(struct sim *s, uint64_t seed)
{
	struct rng r = {sim_hash(seed, 109, 0)};
	struct counts counts = world.counts;
	uint32_t nodes = 1 + rng_below(&r, NODES);

	memset(&world, 0, sizeof(world));
	world.counts = counts;
	world.s = s;
	world.nodes = nodes;
	world.programs = nodes + rng_chance(&r, 300);
	world.has_lanes = sim_hash(seed, 108, 0) % 3 == 0;
	sim_scenario_ranks(&s->sc, seed, nodes);
	s->sc.arena_bytes = 16u << 20; /* pieces of messages have up to WEIR_MESSAGE_WHOLE */
	/* each guest has a channel per engine of its own, and lanes to and from each other one */
	if (world.has_lanes) {
		s->sc.channels = 20;
		s->sc.connections = 512;
	}
	for (uint32_t i = 0; i < world.programs; i++)
		plan_program(&world, i, &r);
	if (rng_chance(&r, 200))
		world.program[rng_below(&r, world.programs)].dies_at =
		    SIM_START + rng_log(&r, SIM_MS, 100 * SIM_MS);
}

static void
print_world(void)
{
	for (uint32_t i = 0; i < world.programs; i++) {
		const struct program *p = &world.program[i];

		printf("  program %u on node %u: %u handler threads, %u receive; %u send, %u "
		       "operations each; %u connections",
		       i, p->node, p->options.handler_threads, p->options.receivers, p->senders,
		       p->operations, p->options.connections);
		if (p->dies_at != SIM_NEVER)
			printf("; dies at %lu us", (p->dies_at - SIM_START) / 1000);
		printf("\n");
	}
}

static bool
all_ended(void)
{
	for (uint32_t i = 0; i < world.programs; i++)
		if (!lockstep_ended(world.program[i].sender[0].thread))
			return false;
	return true;
}

static void
say_stuck(struct sim *s)
{
	char does[160] = "";
	size_t at = 0;

	for (uint32_t i = 0; i < world.programs * SENDERS && at < sizeof(does); i++) {
		const struct sender *t = &world.program[i / SENDERS].sender[i % SENDERS];

		if (t->p)
			at += (size_t)snprintf(does + at, sizeof(does) - at, "[%u.%u %s]",
					       i / SENDERS, i % SENDERS, t->does);
	}
	sim_fail(s, "stuck since %lu us: %s", (s->progress_at - SIM_START) / 1000, does);
}

/* All that was accepted has been handled, but what the dead have sent or were to get. */
static void
check_flows(struct sim *s)
{
	for (uint32_t i = 0; i < world.programs * SENDERS * NODES; i++) {
		const struct sender *t =
		    &world.program[i / NODES / SENDERS].sender[i / NODES % SENDERS];
		const struct flow *f = &t->flow[i % NODES];

		if (f->handled != f->accepted && !t->p->dead && !world.program[i % NODES].dead)
			sim_fail(s, "program %u thread %u: %u messages to node %u, %u were handled",
				 t->p->id, t->id, f->accepted, i % NODES, f->handled);
	}
}

static void
run_seed(struct sim *s, uint64_t seed)
{
	sim_reset(s, seed);
	lockstep_reset(s);
	memset(&s->counts, 0, sizeof(s->counts));
	make_world(s, seed);
	if (s->options.verbose) {
		sim_scenario_print(&s->sc);
		print_world();
	}
	sim_build(s);
	for (uint32_t i = 0; i < world.programs; i++) {
		struct program *p = &world.program[i];

		p->sender[0].thread = lockstep_start(s, p->node, run_program, p);
	}
	while (!all_ended()) {
		if (!sim_step(s))
			sim_fail(s, "nothing is left to happen");
		if (s->now - s->progress_at > s->options.limit || s->now > SIM_START + LIMIT)
			say_stuck(s);
	}
	check_flows(s);
	if (world.has_lanes)
		lanes_check(s, &world);
	sim_run_until_idle(s);
	sim_take_down(s);
	world.counts.repaired += s->counts.repaired;
	sim_trace(s, "passed: %lu steps, %lu us", s->steps, (s->now - SIM_START) / 1000);
}

/* ---- command line ---- */

struct arguments {
	struct sim_options options;
	uint64_t from, to;
	bool counts, help;
};

#define AT(field) OPTION_FIELD(struct arguments, field)
static const struct option_spec specs[] = {
    {"check-every", 0, OPTION_UNSIGNED, AT(options.check_every), "N", "16",
     "turns between two checks of the engines' invariants; 0: never", .max = UINT32_MAX},
    {"counts", 0, OPTION_FLAG, AT(counts), NULL, NULL, "print what the seeds went through"},
    SEED_FROM(struct arguments, UINT64_MAX),
    SEED_HELP(struct arguments),
    SEED_TO(struct arguments, UINT64_MAX),
    {"verbose", 0, OPTION_FLAG, AT(options.verbose), NULL, NULL,
     "print the scenario and what happens"},
};

static const struct option_table table = {
    OPTION_SPECS(specs, struct arguments),
    .head = "usage: test-messages [--from SEED] [--to SEED] [options]\n",
    .tail = "Ends at the first seed that fails. Of 40 seeds and more: each kind of event must have "
	    "been there.\n",
};

#define SEEDS_FULL 40u /* seeds that see everything */

/* False: something did not happen in the seeds. */
static bool
check_counts(const struct arguments *a)
{
	bool all = true;

#define X(name, help, least)                                                                       \
	if (a->counts)                                                                             \
		printf("%10lu %s\n", world.counts.name, help);                                     \
	if (a->to - a->from + 1 >= SEEDS_FULL && world.counts.name < (least)) {                    \
		printf("too little: %lu instead of %u %s\n", world.counts.name, least, help);      \
		all = false;                                                                       \
	}
	COUNTS(X)
#undef X
	return all;
}

int
main(int argc, char **argv)
{
	static struct sim sim;
	struct arguments a = {0};

	seeds_parse(&table, &a, &a.help, argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	sim.options = a.options;
	sim.options.limit = 30 * SIM_S;
	sim.options.exits = true;
	a.to = a.to ? a.to : a.from;
	for (uint64_t seed = a.from; seed <= a.to; seed++)
		run_seed(&sim, seed);
	printf("%lu seeds passed\n", a.to - a.from + 1);
	return !check_counts(&a);
}
