/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test-membership: members joining, leaving, crashing, paused, cut off and healed, from seeds; and
 * what it costs from 16 to 1,024 of them. It checks: no two nodes that are up have one id, all
 * agree within a bounded number of periods after the last change, also on who offers which
 * services, nobody who answers is declared dead, and the cost of a node doesn't grow with their
 * number.
 */
#include "seeds.h"
#include "swim_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEATHS 8u /* of each cluster that is measured */
#define OFFERS 4u /* changes of services, the same */
#define OFFERS_AT_ONCE 250u
#define QUIET_PERIODS 40u /* after the last change, all agree */

static bool failed;

static void
complain(const struct net *net, const char *when, const char *why)
{
	printf("FAIL: seed %llu, %s, at %llu ms: %s\n", (unsigned long long)net->seed, when,
	       (unsigned long long)net->now / 1000, why);
	failed = true;
}

static void
expect_unique(struct net *net, const char *when)
{
	char why[160];

	if (!net_unique(net, why, sizeof(why)))
		complain(net, when, why);
}

// Periods until all agree, at most `limit`.
static uint32_t
await_agreement(struct net *net, uint32_t limit, const char *when)
{
	char why[160] = "";

	for (uint32_t i = 0; i <= limit; i++) {
		if (net_agree(net, why, sizeof(why)) && net_services_agree(net, why, sizeof(why)))
			return i;
		net_run(net, net->now / 1000 + NET_PERIOD);
	}
	complain(net, when, why);
	return limit;
}

// Where ids are few it takes some tries.
static void
await_all_up(struct net *net, uint32_t limit, const char *when)
{
	uint32_t i = 0;

	while (i < net->nodes && limit) {
		const struct net_node *n = &net->node[i];

		if (!n->running || swim_is_settled(&n->swim)) {
			i++;
			continue;
		}
		net_run(net, net->now / 1000 + NET_PERIOD);
		limit--;
	}
	if (!limit)
		complain(net, when, "a node has no id yet");
}

// One after the other in a second, or all at once.
static void
start_all(struct net *net, uint64_t spread_ms)
{
	for (uint32_t i = 0; i < net->nodes; i++) {
		net_run(net, spread_ms * i / net->nodes);
		net_start(net, i);
	}
}

// Nodes come and go, each step checked for ids.
static void
churn(struct net *net, uint32_t steps)
{
	for (uint32_t i = 0; i < steps; i++) {
		uint32_t place = net->seeds + (uint32_t)net_random(net, net->nodes - net->seeds);
		struct net_node *n = &net->node[place];
		uint32_t what = (uint32_t)net_random(net, 4);

		if (!n->running)
			net_start(net, place);
		else if (n->paused)
			net_resume(net, place);
		else if (what == 0)
			net_crash(net, place);
		else if (what == 1)
			net_leave(net, place);
		else if (what == 2)
			net_offer(net, place);
		else
			net_pause(net, place);
		net_run(net, net->now / 1000 + net_random(net, 200));
		expect_unique(net, "churn");
	}
	for (uint32_t i = 0; i < net->nodes; i++) {
		if (net->node[i].paused)
			net_resume(net, i);
		if (!net->node[i].running && net_random(net, 2))
			net_start(net, i);
	}
}

// Half the node timeout without a CPU is no death. (All messages arrive, or it could be another's.)
static void
short_pauses(struct net *net)
{
	uint64_t before = net->false_deaths;

	for (uint32_t i = 0; i < 20; i++) {
		uint32_t place = (uint32_t)net_random(net, net->nodes);

		if (!net->node[place].running)
			continue;
		net_pause(net, place);
		net_run(net, net->now / 1000 + NET_TIMEOUT / 2);
		net_resume(net, place);
		net_run(net, net->now / 1000 + 10);
	}
	net_run(net, net->now / 1000 + 5 * NET_TIMEOUT);
	if (net->false_deaths != before)
		complain(net, "pauses", "a node that was paused for half the timeout is dead");
}

static void
scenario(uint64_t seed, uint32_t nodes)
{
	struct net net;

	net_init(&net, seed, nodes);
	// Few ids: claims collide.
	net.id_space = net_random(&net, 2) ? 65535 : 2 * nodes;
	net.loss = (uint32_t)net_random(&net, 3) * 100;
	start_all(&net, net_random(&net, 5000));
	for (uint32_t i = 0; i < 50; i++) {
		net_run(&net, net.now / 1000 + NET_PERIOD);
		expect_unique(&net, "start");
	}
	await_all_up(&net, 4 * QUIET_PERIODS, "start");
	if (net.hasty)
		complain(&net, "start", "an id was taken at once");
	// Each is a change for all: of many at once all know as late as a node's messages have
	// room.
	for (uint32_t i = 0; i < nodes; i += 1 + nodes / OFFERS_AT_ONCE)
		net_offer(&net, i);
	await_agreement(&net, QUIET_PERIODS, "start");
	churn(&net, nodes / 2 < 100 ? nodes / 2 + 16 : 100);
	await_agreement(&net, 3 * QUIET_PERIODS, "churn");
	net_part(&net, 1 + (uint32_t)net_random(&net, 99));
	net_run(&net, net.now / 1000 + 5 * NET_TIMEOUT);
	await_agreement(&net, QUIET_PERIODS, "partition");
	churn(&net, 16);
	net_run(&net, net.now / 1000 + net_random(&net, nodes < 500 ? 60000 : 5000));
	net.partitioned = false;
	await_agreement(&net, 4 * QUIET_PERIODS, "healed");
	expect_unique(&net, "healed");
	net.loss = 0;
	short_pauses(&net);
	await_agreement(&net, QUIET_PERIODS, "pauses");
	net_fini(&net);
}

// ---- figures ----

struct figures {
	double up_s;	   /* until the last is up, all started at once */
	double messages_s; /* of a node, at rest */
	double suspect_s, dead_s, all_s;
	double change_messages_s; /* of a node in the second after a death */
	double service_s;	  /* until all know what a node offers now */
	double lists;		  /* most that one node told for that */
};

static uint64_t
all_sent(const struct net *net)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < net->nodes; i++)
		sum += net->node[i].sent;
	return sum;
}

static uint32_t
some_runner(struct net *net)
{
	uint32_t place;

	do
		place = net->seeds + (uint32_t)net_random(net, net->nodes - net->seeds);
	while (!net->node[place].running);
	return place;
}

// The death of one: who suspects it when, who knows of it when. Returns false if not all do.
static bool
one_death(struct net *net, struct figures *f)
{
	uint32_t place = some_runner(net), running = 0;
	uint64_t begin = net->now, sent = all_sent(net);

	net->watched = net->node[place].swim.self->is.id;
	net->first_suspect = net->first_dead = net->last_dead = net->knowers = 0;
	net_crash(net, place);
	net_run(net, net->now / 1000 + 1000);
	f->change_messages_s += (double)(all_sent(net) - sent) / net->nodes;
	net_run(net, net->now / 1000 + 8 * NET_TIMEOUT);
	f->suspect_s += (double)(net->first_suspect - begin) / 1e6;
	f->dead_s += (double)(net->first_dead - begin) / 1e6;
	f->all_s += (double)(net->last_dead - begin) / 1e6;
	for (uint32_t i = 0; i < net->nodes; i++)
		running += net->node[i].running;
	return net->knowers == running;
}

// One node offers something else: how long it takes, what it costs who tells it most.
static void
one_offer(struct net *net, struct figures *f)
{
	uint64_t begin = net->now, most = 0, *before = calloc(net->nodes, sizeof(*before));
	uint32_t place = some_runner(net);

	if (!before)
		abort();
	for (uint32_t i = 0; i < net->nodes; i++)
		before[i] = net->node[i].lists;
	net_offer(net, place);
	while (!net_service_known(net, place) && net->now - begin < 20000000)
		net_run(net, net->now / 1000 + 5);
	if (!net_service_known(net, place))
		complain(net, "offer", "not all know of it");
	f->service_s += (double)(net->now - begin) / 1e6;
	for (uint32_t i = 0; i < net->nodes; i++)
		if (net->node[i].lists - before[i] > most)
			most = net->node[i].lists - before[i];
	f->lists += (double)most;
	free(before);
	net_run(net, net->now / 1000 + 5 * NET_TIMEOUT);
}

static struct figures
measure(uint32_t nodes, uint32_t clusters)
{
	struct figures f = {0};
	uint64_t sent;

	for (uint32_t i = 0; i < clusters; i++) {
		struct net net;

		net_init(&net, 1000 + i, nodes);
		start_all(&net, 0);
		await_agreement(&net, 4 * QUIET_PERIODS, "start");
		net_run(&net, net.now / 1000 + 20000);
		for (uint32_t k = 0; k < nodes; k++)
			if ((double)net.node[k].settled_at / 1e6 > f.up_s)
				f.up_s = (double)net.node[k].settled_at / 1e6;
		await_all_up(&net, 1, "start");
		sent = all_sent(&net);
		net_run(&net, net.now / 1000 + 5000);
		f.messages_s += (double)(all_sent(&net) - sent) / nodes / 5;
		for (uint32_t k = 0; k < DEATHS; k++)
			if (!one_death(&net, &f))
				complain(&net, "death", "not all know of it");
		for (uint32_t k = 0; k < OFFERS; k++)
			one_offer(&net, &f);
		if (net.false_deaths)
			complain(&net, "death", "a node that lives was declared dead");
		net_fini(&net);
	}
	f.messages_s /= clusters;
	f.service_s /= clusters * OFFERS;
	f.lists /= clusters * OFFERS;
	f.change_messages_s /= clusters * DEATHS;
	f.suspect_s /= clusters * DEATHS;
	f.dead_s /= clusters * DEATHS;
	f.all_s /= clusters * DEATHS;
	return f;
}

// Checks figures that must not grow with the number of nodes, and those of its logarithm.
static void
judge(const struct figures *few, const struct figures *many, double doublings)
{
	if (many->messages_s > 1.25 * few->messages_s)
		printf("FAIL: messages of a node: %.1f/s, %.1f/s among few\n", many->messages_s,
		       few->messages_s);
	else if (many->suspect_s > 1.5 * few->suspect_s)
		printf("FAIL: first suspicion: %.2f s, %.2f s among few\n", many->suspect_s,
		       few->suspect_s);
	else if (many->all_s > few->all_s + 0.4 * doublings)
		printf("FAIL: until all know: %.2f s, %.2f s among few\n", many->all_s, few->all_s);
	else if (many->service_s > few->service_s + 0.4 * doublings)
		printf("FAIL: until all know a service: %.2f s, %.2f s among few\n",
		       many->service_s, few->service_s);
	else if (many->lists > few->lists + 6 * doublings)
		printf("FAIL: lists told by one: %.1f, %.1f among few\n", many->lists, few->lists);
	else
		return;
	failed = true;
}

static void
figures(uint32_t clusters, uint32_t most, bool json)
{
	struct figures first = {0};
	double doublings = 0;

	if (json)
		printf("[");
	else
		printf("%6s %8s %12s %12s %10s %8s %10s %10s %6s\n", "nodes", "up s", "messages/s",
		       "after death", "suspect s", "dead s", "all know s", "service s", "lists");
	for (uint32_t nodes = 16; nodes <= most; nodes *= 2, doublings++) {
		struct figures f = measure(nodes, clusters);

		if (json)
			printf("%s{\"nodes\": %u, \"up_s\": %.3f, \"messages_per_s\": %.2f, "
			       "\"messages_after_death_per_s\": %.2f, \"suspect_s\": %.3f, "
			       "\"dead_s\": %.3f, \"all_know_s\": %.3f, \"service_s\": %.3f, "
			       "\"service_lists\": %.1f}",
			       nodes == 16 ? "" : ",\n ", nodes, f.up_s, f.messages_s,
			       f.change_messages_s, f.suspect_s, f.dead_s, f.all_s, f.service_s,
			       f.lists);
		else
			printf("%6u %8.2f %12.2f %12.2f %10.2f %8.2f %10.2f %10.2f %6.1f\n", nodes,
			       f.up_s, f.messages_s, f.change_messages_s, f.suspect_s, f.dead_s,
			       f.all_s, f.service_s, f.lists);
		if (nodes == 16)
			first = f;
		else
			judge(&first, &f, doublings);
	}
	if (json)
		printf("]\n");
}

struct arguments {
	bool figures, json, help;
	uint32_t from, to, nodes, clusters, most;
};

#define AT(field) OPTION_FIELD(struct arguments, field)

static const struct option_spec specs[] = {
    {"clusters", 0, OPTION_UNSIGNED, AT(clusters), "N", "1", "of each size that is measured",
     .min = 1, .max = UINT32_MAX},
    {"figures", 0, OPTION_FLAG, AT(figures), NULL, NULL, "measure instead of running seeds"},
    SEED_FROM(struct arguments, UINT32_MAX),
    SEED_HELP(struct arguments),
    {"json", 0, OPTION_FLAG, AT(json), NULL, NULL, "figures as JSON"},
    {"most", 0, OPTION_UNSIGNED, AT(most), "NODES", "1024", "of the largest cluster measured",
     .max = UINT32_MAX},
    {"nodes", 0, OPTION_UNSIGNED, AT(nodes), "N", NULL, "of each seed; default: the seed says",
     .max = UINT32_MAX},
    SEED_TO(struct arguments, UINT32_MAX),
};

static const struct option_table table = {
    OPTION_SPECS(specs, struct arguments),
    .head = "usage: test-membership [--from SEED] [--to SEED] [--nodes N]\n"
	    "       test-membership --figures [--json] [--clusters N] [--most NODES]\n",
};

int
main(int argc, char **argv)
{
	struct arguments a = {0};

	seeds_parse(&table, &a, &a.help, argc, argv);
	if (a.figures) {
		figures(a.clusters, a.most, a.json);
		return failed;
	}
	for (uint32_t seed = a.from; seed <= (a.to ? a.to : a.from); seed++)
		scenario(seed, a.nodes ? a.nodes : 4 + seed * 7 % 90);
	printf("%s\n", failed ? "failed" : "all seeds pass");
	return failed;
}
