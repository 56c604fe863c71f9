/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test-rma: the cases of test/rma under the virtual clock. Each rank is a program of a simulated
 * node with a thread of its own, since the cases call what waits.
 */
#include "client.h"
#include "lockstep.h"
#include "node.h"
#include "seeds.h"

#include "cases.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SETTINGS 8u
#define LIMIT (300 * SIM_S) /* virtual time of all cases */

/* Where the ranks are. */
static const struct setting {
	uint32_t nodes, ranks;
	bool maps;
} settings[SETTINGS] = {{4, 8, true},  {1, 3, false}, {2, 2, false}, {2, 4, true},
			{3, 3, false}, {1, 3, true},  {4, 4, false}, {2, 8, false}};

struct rank {
	struct sim *s;
	uint32_t node, id;
	struct lockstep_thread *thread;
	char **names;
	int name_count;
	struct ranks is;
	unsigned failed;
};

static void *
run_rank(void *arg)
{
	struct rank *r = arg;
	struct sim_client *client;
	int rc;

	client = sim_client_attach(r->s, r->node, r->id, &r->is.w);
	rc = ranks_join(&r->is, "cases");
	if (rc)
		sim_fail(r->s, "rank %u: join gives %d: %s", r->id, rc, weir_reason());
	r->failed = cases_run(&r->is, r->names, r->name_count);
	weir_group_leave(r->is.g);
	sim_client_detach(client, r->is.w);
	return NULL;
}

static bool
all_ended(const struct rank *r, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!lockstep_ended(r[i].thread))
			return false;
	return true;
}

/* Cases that failed. */
static unsigned
run_seed(struct sim *s, uint64_t seed, char **names, int n)
{
	const struct setting *p = &settings[seed % SETTINGS];
	static struct rank rank[RANKS_MAX];
	unsigned failed = 0;

	sim_reset(s, seed);
	lockstep_reset(s);
	sim_scenario_ranks(&s->sc, seed, p->nodes);
	/* of three threads, to each of eight ranks and back, and to two engines */
	s->sc.connections = 256;
	s->sc.channels = 8;
	memset(&s->counts, 0, sizeof(s->counts));
	if (s->options.verbose)
		sim_scenario_print(&s->sc);
	sim_build(s);
	memset(rank, 0, sizeof(rank));
	for (uint32_t i = 0; i < p->ranks; i++) {
		rank[i] = (struct rank){.s = s,
					.node = i % p->nodes,
					.id = i,
					.names = names,
					.name_count = n,
					.is = {.size = p->ranks, .maps = p->maps, .seed = seed}};
		rank[i].thread = lockstep_start(s, rank[i].node, run_rank, &rank[i]);
	}
	while (!all_ended(rank, p->ranks)) {
		if (!sim_step(s))
			sim_fail(s, "nothing is left to happen");
		if (s->now > SIM_START + LIMIT)
			sim_fail(s, "%s of rank 0 does not end", rank[0].is.name);
	}
	for (uint32_t i = 0; i < p->ranks; i++)
		failed += rank[i].failed;
	if (!rank[0].is.ran)
		sim_fail(s, "no such case");
	sim_run_until_idle(s);
	sim_take_down(s);
	if (failed)
		printf("seed %lu: %u cases failed, %u nodes, %u ranks, memory %s\n", seed, failed,
		       p->nodes, p->ranks, p->maps ? "mapped" : "apart");
	return failed;
}

/* ---- command line ---- */

struct arguments {
	struct sim_options options;
	uint64_t from, to;
	char *names;
	bool help;
};

static int
take_case(void *into, const char *text, char *error, size_t size)
{
	((struct arguments *)into)->names = strdup(text);
	return 0;
}

#define AT(field) OPTION_FIELD(struct arguments, field)
static const struct option_spec specs[] = {
    {"case", 0, OPTION_CALL, 0, 0, "NAME", NULL, "the only case", .take = take_case,
     .expected = "the name of a case, as notify/get"},
    {"check-every", 0, OPTION_UNSIGNED, AT(options.check_every), "N", "16",
     "turns between two checks of the engines' invariants; 0: never", .max = UINT32_MAX},
    SEED_FROM(struct arguments, UINT64_MAX),
    SEED_HELP(struct arguments),
    SEED_TO(struct arguments, UINT64_MAX),
    {"verbose", 0, OPTION_FLAG, AT(options.verbose), NULL, NULL,
     "print the scenario and what happens"},
};

static const struct option_table table = {
    OPTION_SPECS(specs, struct arguments),
    .head = "usage: test-rma [--from SEED] [--to SEED] [options]\n",
    .tail =
	"A seed and the next seven: 3 ranks of a host, mapped and apart; 2 nodes with 1 rank "
	"each,\nwith 2 each, mapped, and with 4 each; 3 nodes; 4 nodes with 1 rank each, and with "
	"2 each, mapped.\n",
};

int
main(int argc, char **argv)
{
	static struct sim sim;
	struct arguments a = {0};
	unsigned failed = 0;

	seeds_parse(&table, &a, &a.help, argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	sim.options = a.options;
	sim.options.limit = 30 * SIM_S;
	sim.options.exits = true;
	a.to = a.to ? a.to : a.from;
	for (uint64_t seed = a.from; seed <= a.to; seed++)
		failed += run_seed(&sim, seed, &a.names, a.names != NULL);
	free(a.names);
	printf("%lu seeds, %u cases failed\n", a.to - a.from + 1, failed);
	return failed != 0;
}
