/* SPDX-License-Identifier: BSD-3-Clause */
/* One seed: build the nodes and programs, run until everything has ended, check, take down. */
#include "common.h"
#include "lock.h"
#include "memory.h"
#include "node.h"
#include "oracle.h"
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPTS 4u

void
sim_build(struct sim *s)
{
	sim_oracle_create(s);
	sim_memories_create(s);
	sim_lock_create(s);
	sim_common_create(s);
	for (uint32_t i = 0; i < s->sc.nodes; i++)
		s->node[i] = sim_node_create(s, i);
	sim_control_start(s);
	for (uint32_t i = 0; i < s->sc.programs; i++)
		s->program[i] = sim_program_create(s, i);
}

static bool
all_programs_ended(const struct sim *s)
{
	for (uint32_t i = 0; i < s->sc.programs; i++)
		if (!sim_program_ended(s->program[i]))
			return false;
	return true;
}

static void
say_stuck(struct sim *s)
{
	char waits[160] = "";

	for (uint32_t i = 0; i < s->sc.programs; i++)
		sim_program_waits_for(s->program[i], waits, sizeof(waits));
	sim_common_waits_for(s, waits, sizeof(waits));
	sim_fail(s, "stuck since %lu us: %s", (s->progress_at - SIM_START) / 1000, waits);
}

static void
run_until_ended(struct sim *s)
{
	while (!all_programs_ended(s)) {
		if (!sim_step(s))
			sim_fail(s, "nothing is left to happen");
		if (s->now - s->progress_at > s->options.limit)
			say_stuck(s);
	}
}

void
sim_run_until_idle(struct sim *s)
{
	uint64_t end = s->now + s->options.limit;

	for (uint32_t i = 0; i < s->sc.nodes; i++)
		while (!sim_node_idle(s->node[i])) {
			if (!sim_step(s) || s->now > end)
				sim_fail(
				    s,
				    "node %u still holds connections or sessions of ended programs",
				    i);
		}
}

void
sim_take_down(struct sim *s)
{
	for (uint32_t i = 0; i < s->sc.nodes; i++)
		sim_node_check(s->node[i]);
	for (uint32_t i = 0; i < s->sc.programs; i++)
		sim_program_destroy(s->program[i]);
	sim_wire_reset(s);
	sim_control_reset(s);
	for (uint32_t i = 0; i < s->sc.nodes; i++)
		sim_node_destroy(s->node[i]);
	sim_common_destroy(s);
	sim_lock_destroy(s);
	sim_memories_destroy(s);
	sim_oracle_destroy(s);
	if (sim_frames_out())
		sim_fail(s, "%lu frames were never given back", sim_frames_out());
}

void
sim_reset(struct sim *s, uint64_t seed)
{
	memset(s->node, 0, sizeof(s->node));
	memset(s->program, 0, sizeof(s->program));
	s->oracle = NULL;
	sim_running = s;
	s->queue.count = 0;
	s->now = s->progress_at = SIM_START;
	s->steps = 0;
	s->frames = s->damaged = 0;
	s->rng.state = sim_hash(seed, 2, 2);
}

static bool
run_once(struct sim *s, uint64_t seed, uint32_t without, uint32_t times)
{
	sim_reset(s, seed);
	if (s->options.nodes)
		sim_scenario_many(&s->sc, seed, s->options.nodes);
	else
		sim_scenario_make(&s->sc, seed, without, times);
	s->counts.nodes = s->sc.nodes;
	if (s->options.verbose)
		sim_scenario_print(&s->sc);
	/* a failed seed leaves its memory behind */
	if (setjmp(s->failed)) {
		sim_frames_forget();
		return false;
	}
	sim_build(s);
	run_until_ended(s);
	sim_oracle_check(s);
	s->counts.deaths += s->sc.cut_at <= s->now;
	sim_run_until_idle(s);
	sim_take_down(s);
	sim_trace(s, "passed: %lu steps, %lu us", s->steps, (s->now - SIM_START) / 1000);
	return true;
}

/* Of many nodes: each ran out of links many times. */
static bool
made_room(struct sim *s)
{
	const struct sim_counts *c = &s->counts;

	if (c->links_evicted > s->sc.nodes && c->links_full > s->sc.nodes)
		return true;
	snprintf(s->cause, sizeof(s->cause),
		 "too little: %lu links made room for others, %lu found none", c->links_evicted,
		 c->links_full);
	return false;
}

bool
sim_run(struct sim *s, uint64_t seed)
{
	const uint32_t deaths = 1u << SIM_kill | 1u << SIM_cut | 1u << SIM_hasty | 1u << SIM_outage;
	uint64_t have = 0, least = 0;
	const char *lack = "";

	memset(&s->counts, 0, sizeof(s->counts));
	s->sizes = 0;
	if (s->options.nodes)
		return run_once(s, seed, 0, 1) && made_room(s);
	if (s->options.without || s->options.times > 1)
		return run_once(s, seed, s->options.without, s->options.times);
	for (uint32_t i = 0; lack && i < ATTEMPTS; i++) {
		if (!run_once(s, i ? sim_hash(seed, 3, i) : seed, i ? deaths : 0, 1))
			return false;
		lack = sim_counts_lack(&s->counts, &have, &least);
	}
	if (lack)
		snprintf(s->cause, sizeof(s->cause), "too little: %lu instead of %lu %s", have,
			 least, lack);
	return !lack;
}
