/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test-setup: whole controls set up connections with each other and links between their data
 * planes, in virtual time. Controls and data planes are killed and come back, hosts lose power and
 * pause, connections break at one end or go dark, the network is cut, messages are lost and
 * repeated; in two nodes each of these after each step of a set-up. It checks: both ends of a
 * pair use one connection, unused ones beyond the limit are closed, none leaks; after trouble all
 * data planes know all nodes and what each offers, and links come up, both within a bounded time;
 * what a node costs doesn't grow with their number.
 */
#include "seeds.h"
#include "virtual_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK (100 * MS)
#define START (20 * SECOND) /* until all are up, though messages are lost */
#define CALM (15 * SECOND)  /* after trouble */

static bool failed;

static bool
complain(const char *when, const char *why)
{
	printf("FAIL: seed %llu, %s, at %llu ms: %s\n", (unsigned long long)world.seed, when,
	       (unsigned long long)(world.now / MS), why);
	failed = true;
	return false;
}

/*
 * Until both ends of a pair use one connection: a probe, the node timeout, a handshake that the
 * network swallows, a pause between dials. Probes go round.
 */
static uint64_t
pair_bound(void)
{
	return 8 * SECOND + 2ull * world.hosts * NODE_TIMEOUT / 5 * MS;
}

static bool
watch(uint64_t time, const char *when)
{
	uint64_t end = world.now + time;
	char why[240];

	while (world.now < end) {
		world_run(world.now + LOOK);
		if (!hosts_sound(pair_bound(), why, sizeof(why)))
			return complain(when, why);
	}
	return true;
}

static bool
await_settled(uint64_t limit, const char *when)
{
	uint64_t end = world.now + limit;
	char why[240] = "";

	while (!hosts_settled(why, sizeof(why))) {
		if (world.now > end)
			return complain(when, why);
		if (!watch(LOOK, when))
			return false;
	}
	return true;
}

// ---- chance ----

static struct host *
some_host(void)
{
	return &world.host[world_random(world.hosts)];
}

static void
want_some(uint32_t pairs)
{
	while (pairs--) {
		struct host *h = some_host(), *other = some_host();

		if (h != other && h->plane.incarnation && h->control.id_reported &&
		    other->control.id_reported)
			plane_want(h, other->control.self.id);
	}
}

static void
break_some(bool reset)
{
	struct host *h = some_host();
	struct control *c = &h->control;
	struct member *m;

	if (!h->running || !c->member_count)
		return;
	m = c->members[world_random(c->member_count)];
	if (m->conn)
		tcp_darken((struct sock *)m->conn->stream, reset);
}

static void
trouble(void)
{
	struct host *h = some_host();

	switch (world_random(8)) {
	case 0:
		host_stop(h);
		break;
	case 1:
		host_kill(h);
		break;
	case 2:
		host_power_off(h);
		break;
	case 3:
		if (h->plane.incarnation)
			plane_die(h);
		break;
	case 4:
		host_pause(h);
		break;
	case 5:
		break_some(true);
		break;
	case 6:
		break_some(false);
		break;
	case 7:
		for (uint32_t i = 0; i < world.hosts; i++)
			world.host[i].side = (uint32_t)world_random(2);
		world.cut = !world.cut;
		break;
	}
}

static void
mend(struct host *h)
{
	if (h->paused)
		host_resume(h);
	if (!h->running)
		host_start(h);
	if (!h->plane.incarnation)
		plane_start(h);
}

static void
mend_all(void)
{
	world.cut = false;
	world.loss = world.twice = 0;
	for (uint32_t i = 0; i < world.hosts; i++)
		mend(&world.host[i]);
}

static void
start_all(uint64_t spread)
{
	for (uint32_t i = 0; i < world.hosts; i++) {
		world_run(world.now + spread / world.hosts);
		mend(&world.host[i]);
	}
}

static bool
scenario_steps(void)
{
	start_all(world_random(3 * SECOND));
	if (!await_settled(START, "start"))
		return false;
	for (uint32_t i = 0; i < world.hosts; i += 2)
		plane_offer(&world.host[i]);
	want_some(world.hosts * (1 + (uint32_t)world_random(4)));
	if (!await_settled(CALM, "links"))
		return false;
	world.loss = (uint32_t)world_random(50);
	world.twice = (uint32_t)world_random(50);
	for (uint32_t i = 0; i < 40; i++) {
		trouble();
		if (i % 3 == 0)
			plane_offer(some_host());
		if (!world_random(3))
			want_some(2);
		if (!watch(world_random(8) ? world_random(500) * MS : world_random(4 * SECOND),
			   "trouble"))
			return false;
		for (uint32_t k = 0; k < 2; k++)
			mend(some_host());
	}
	mend_all();
	return await_settled(CALM + pair_bound(), "calm again") && watch(5 * SECOND, "at rest") &&
	       await_settled(0, "at rest");
}

// Few, so that much happens to each; or more than a control keeps connections.
static uint32_t
nodes_of(uint64_t seed)
{
	return seed % 8 == 3 ? 80 + seed % 50 : 3 + seed * 7 % 20;
}

static void
scenario(uint64_t seed, uint32_t hosts)
{
	hosts_make(seed, hosts, seed % 2);
	scenario_steps();
	hosts_free();
}

// ---- each fault after each step of a set-up ----

enum fault {
	KILL_CONTROL,
	KILL_PEER,
	STOP_CONTROL,
	KILL_PLANE,
	KILL_PEER_PLANE,
	POWER_OFF,
	PAUSE,
	RESET,
	DARK,
	CUT,
	FAULTS
};

static void
inject(enum fault what)
{
	struct host *a = &world.host[0], *b = &world.host[1];
	struct sock *s = host_sock(a, b);

	switch (what) {
	case KILL_CONTROL:
		host_kill(a);
		break;
	case KILL_PEER:
		host_kill(b);
		break;
	case STOP_CONTROL:
		host_stop(a);
		break;
	case KILL_PLANE:
		plane_die(a);
		break;
	case KILL_PEER_PLANE:
		plane_die(b);
		break;
	case POWER_OFF:
		host_power_off(b);
		break;
	case PAUSE:
		host_pause(b);
		break;
	case RESET:
	case DARK:
		if (s)
			tcp_darken(s, what == RESET);
		break;
	case CUT:
		world.cut = true;
		b->side = 1;
		break;
	case FAULTS:
		break;
	}
}

// Returns false when the set-up took fewer than `steps` steps.
static bool
one_step(uint64_t seed, enum fault what, uint32_t steps, bool crossing, uint64_t lasts)
{
	struct host *a, *b;
	bool done = false;
	char why[240];

	hosts_make(seed, 2, true);
	a = &world.host[0];
	b = &world.host[1];
	start_all(0);
	if (!await_settled(START, "start"))
		goto out;
	plane_want(a, 1);
	if (crossing)
		plane_want(b, 0);
	for (uint32_t i = 0; i < steps && !done; i++) {
		world_step();
		done = hosts_settled(why, sizeof(why));
	}
	inject(what);
	watch(lasts, "fault");
	mend_all();
	if (!await_settled(CALM, "set-up") || !watch(2 * SECOND, "set-up"))
		printf("      fault %d after %u steps, crossing %d, for %llu ms\n", what, steps,
		       crossing, (unsigned long long)(lasts / MS));
out:
	hosts_free();
	return !done;
}

static void
phases(uint64_t seed)
{
	for (int what = 0; what < FAULTS && !failed; what++)
		for (int crossing = 0; crossing < 2; crossing++)
			for (uint32_t steps = 0; steps < 200 && !failed; steps++)
				if (!one_step(seed, what, steps, crossing,
					      (world_random(4) ? 20 : 2500) * MS))
					break;
}

// ---- probes ----

/*
 * A queue pair without answers (LINK_DOWN): the peer's control is probed within a tick. If it lives
 * that is all, however often it is said while the probe is under way.
 */
static bool
is_probed(const struct host *h, uint16_t id)
{
	for (uint32_t i = 0; i < SWIM_PROBES; i++)
		if (h->control.swim.probe[i].used && h->control.swim.probe[i].id == id)
			return true;
	return false;
}

static void
probing(uint64_t seed)
{
	struct host *a;
	uint32_t told;

	hosts_make(seed, 40, true);
	a = &world.host[0];
	start_all(0);
	if (!await_settled(START, "start"))
		goto out;
	for (uint32_t i = 1; i < world.hosts; i++) {
		struct host *b = &world.host[i];

		plane_want(a, (uint16_t)i);
		if (!await_settled(CALM, "link"))
			goto out;
		told = a->plane.told_suspect + a->plane.told_down;
		a->ping_to = i;
		a->pings = is_probed(a, (uint16_t)i);
		plane_link_down(a, (uint16_t)i);
		plane_link_down(a, (uint16_t)i);
		world_run(world.now + CONTROL_TICK_MS * MS);
		// The round's own may fall into it.
		if (a->pings < 1 || a->pings > 2)
			complain("link down", a->pings ? "probed more than once" : "not probed");
		if (!watch(2 * SECOND, "link down"))
			goto out;
		if (a->pings > 3)
			complain("false alarm", "probed again and again");
		if (a->plane.told_suspect + a->plane.told_down != told ||
		    !plane_joined(a, plane_end(a, (uint16_t)i)))
			complain("false alarm", "a link, or trust, was lost");
		// And where it is true, with the silence of its control: down, sooner than by that.
		if (i % 8)
			continue;
		host_power_off(b);
		plane_link_down(a, (uint16_t)i);
		if (!watch(2 * NODE_TIMEOUT * MS, "power off"))
			goto out;
		if (plane_known(a, (uint16_t)i)->is.state != WEIR_NODE_DOWN)
			complain("power off", "not noticed");
	}
out:
	hosts_free();
}

// ---- half-open connections ----

/*
 * A connection goes dark, or one end of it is told that it ended: a link comes up all the same,
 * long before probes have gone round, though others hear the node all the time; and nobody thinks
 * that it has failed.
 */
static void
half_open(uint64_t seed)
{
	for (uint32_t k = 0; k < 4 && !failed; k++) {
		struct host *a, *b;
		struct sock *s;
		uint32_t told;

		hosts_make(seed, 50, k < 2);
		a = &world.host[3];
		b = &world.host[4];
		start_all(0);
		if (await_settled(START, "start")) {
			watch(12 * NODE_TIMEOUT * MS, "start");
			told = a->plane.told_suspect + a->plane.told_down;
			s = host_sock(a, b);
			if (s)
				tcp_darken(k % 2 ? s->other : s, k % 2);
			plane_want(a, b->control.self.id);
			if (await_settled(5 * NODE_TIMEOUT * MS, "half-open") && !s)
				complain("half-open", "there was no connection");
			if (a->plane.told_suspect + a->plane.told_down != told)
				complain("half-open", "a node that lives was given up");
		}
		hosts_free();
	}
}

// ---- ids ----

/*
 * A control that has chosen its id is started again and again beside its data plane, which may be
 * slow to say the id; its connections end with it, or nobody is told: the id stays, and the links.
 */
static void
restarts(uint64_t seed)
{
	struct host *a, *b;

	hosts_make(seed, 4, false);
	a = &world.host[2];
	b = &world.host[3];
	start_all(0);
	if (await_settled(START, "start"))
		plane_want(a, b->control.self.id);
	for (uint32_t i = 0; i < 20 && !failed; i++) {
		struct sock *s = host_sock(a, b);

		if (!await_settled(CALM, "restart"))
			break;
		if (s && i % 2)
			tcp_darken(s, false);
		host_kill(a);
		host_start(a);
		watch(world_random(2 * NODE_TIMEOUT) * MS, "restart");
	}
	if (plane_end(a, (uint16_t)b->plane.id)->attempt != 1)
		complain("restart", "a restart of control has cost a link");
	hosts_free();
}

/*
 * A control is away for long, its data plane isn't: its node is known from links alone, also to a
 * control that was restarted. It is kept as long as they live, and forgotten when nothing is left.
 */
static void
only_links(uint64_t seed)
{
	uint64_t memory = (swim_memory(NODE_TIMEOUT) + 20 * NODE_TIMEOUT) * MS;
	struct host *a, *b;
	uint16_t id = 0;

	hosts_make(seed, 3, false);
	a = &world.host[1];
	b = &world.host[2];
	start_all(0);
	if (await_settled(START, "start"))
		plane_want(a, b->control.self.id);
	for (int i = 0; i < 2 && await_settled(CALM, "only links"); i++) {
		id = b->control.self.id;
		host_kill(b);
		world_run(world.now + memory);
		if (i) {
			host_kill(a);
			host_start(a);
			world_run(world.now + memory);
		}
		if (!member_find(&a->control, id) || swim_find(&a->control.swim, id) ||
		    plane_end(a, id)->attempt != 1 || !plane_joined(a, plane_end(a, id)))
			complain("only links", "a link that lives was given up");
		if (!i)
			host_start(b);
	}
	host_power_off(b);
	world_run(world.now + memory);
	if (!failed &&
	    (member_find(&a->control, id) || plane_known(a, id)->is.state != WEIR_NODE_GONE))
		complain("only links", "a node of which nothing is left is a member");
	hosts_free();
}

// ---- figures ----

static bool
has_news(void)
{
	for (uint32_t i = 0; i < world.hosts; i++)
		if (world.host[i].control.swim.news_count)
			return true;
	return false;
}

static bool
figures(uint32_t most, bool json)
{
	double first = 0;

	if (json)
		printf("[");
	else
		printf("%6s %8s %12s %12s %10s %12s\n", "nodes", "up s", "messages/s", "bytes/s",
		       "dials/s", "connections");
	for (uint32_t n = 16; n <= most; n *= 2) {
		uint64_t messages = 0, bytes = 0, dials = 0, held = 0, begin;
		double up, rate;

		hosts_make(7, n, false);
		begin = world.now;
		start_all(0);
		if (!await_settled(3 * START, "start"))
			break;
		up = (double)(world.now - begin) / SECOND;
		while (has_news() && world.now < begin + 100 * SECOND)
			world_run(world.now + SECOND);
		for (uint32_t i = 0; i < n; i++) {
			messages -= world.host[i].messages;
			bytes -= world.host[i].bytes;
			dials -= world.host[i].dials;
		}
		world_run(world.now + 10 * SECOND);
		for (uint32_t i = 0; i < n; i++) {
			messages += world.host[i].messages;
			bytes += world.host[i].bytes;
			dials += world.host[i].dials;
			held += world.host[i].held;
		}
		rate = (double)messages / n / 10;
		if (json)
			printf("%s{\"nodes\": %u, \"up_s\": %.2f, \"messages_per_s\": %.1f, "
			       "\"bytes_per_s\": %.0f, \"dials_per_s\": %.2f, \"connections\": "
			       "%.1f}",
			       n == 16 ? "" : ",\n ", n, up, rate, (double)bytes / n / 10,
			       (double)dials / n / 10, (double)held / n);
		else
			printf("%6u %8.2f %12.1f %12.0f %10.2f %12.1f\n", n, up, rate,
			       (double)bytes / n / 10, (double)dials / n / 10, (double)held / n);
		fflush(stdout);
		hosts_free();
		if (n == 16)
			first = rate;
		else if (rate > 4 * first)
			complain("figures", "a node costs more among many");
	}
	if (json)
		printf("]\n");
	return !failed;
}

struct arguments {
	bool figures, json, trace, help;
	uint32_t from, to, nodes, most;
};

#define AT(field) OPTION_FIELD(struct arguments, field)

static const struct option_spec specs[] = {
    {"figures", 0, OPTION_FLAG, AT(figures), NULL, NULL, "measure instead of running seeds"},
    SEED_FROM(struct arguments, UINT32_MAX),
    SEED_HELP(struct arguments),
    {"json", 0, OPTION_FLAG, AT(json), NULL, NULL, "figures as JSON"},
    {"most", 0, OPTION_UNSIGNED, AT(most), "NODES", "256", "of the largest cluster measured",
     .max = UINT32_MAX},
    {"nodes", 0, OPTION_UNSIGNED, AT(nodes), "N", NULL, "of each seed; default: the seed says",
     .max = UINT32_MAX},
    SEED_TO(struct arguments, UINT32_MAX),
    {"trace", 0, OPTION_FLAG, AT(trace), NULL, NULL, "print what controls log"},
};

static const struct option_table table = {
    OPTION_SPECS(specs, struct arguments),
    .head = "usage: test-setup [--from SEED] [--to SEED] [--nodes N] [--trace]\n"
	    "       test-setup --figures [--json] [--most NODES]\n",
};

int
main(int argc, char **argv)
{
	static void (*const part[])(uint64_t) = {phases, probing, half_open, restarts, only_links};
	struct arguments a = {0};

	seeds_parse(&table, &a, &a.help, argc, argv);
	world.trace = a.trace;
	log_set_level(LOG_LEVEL_ERROR); // what doesn't go through lib/base/log_once.h
	if (a.figures) {
		figures(a.most, a.json);
		return failed;
	}
	for (uint32_t seed = a.from; seed <= (a.to ? a.to : a.from) && !failed; seed++) {
		scenario(seed, a.nodes ? a.nodes : nodes_of(seed));
		for (size_t i = 0; i < sizeof(part) / sizeof(part[0]) && !failed; i++)
			part[i](seed);
	}
	printf("%s\n", failed ? "failed" : "all seeds pass");
	return failed;
}
