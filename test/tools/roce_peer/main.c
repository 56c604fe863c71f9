/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-roce-peer: start, run after run, end. See weir-roce-peer(1). */
#define _GNU_SOURCE
#include "roce_peer.h"

#include "daemon/eal_setup.h"
#include "tools/tool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_version.h>

/* As perftest and the pingpongs start out; what they agree on comes later. */
#define LINE 64u

static int
run(struct peer *p, uint32_t i)
{
	uint64_t begin;
	int rc;

	p->run = p->options->run[i];
	p->count = p->options->count ? p->options->count : p->run.test->count;
	p->cycle = p->line = LINE;
	rc = peer_meet(p, i);
	if (rc)
		return rc;
	begin = peer_now();
	rc = p->run.test->op == PEER_PINGPONG ? peer_pingpong(p) : peer_perftest(p);
	peer_part(p);
	if (rc)
		return rc;
	printf("%-14s %9u %10llu %9.3f %14llu\n", p->run.test->name, p->run.size,
	       (unsigned long long)p->count, (double)(peer_now() - begin) / 1e9,
	       (unsigned long long)p->verified);
	return fflush(stdout) ? -errno : 0;
}

static int
run_all(struct peer *p)
{
	const struct peer_options *o = p->options;
	int rc = 0;

	if (o->listen)
		rc = peer_listen(p);
	if (rc)
		return rc;
	printf("%-14s %9s %10s %9s %14s\n", "test", "bytes", "count", "seconds", "verified bytes");
	fflush(stdout);
	for (uint32_t i = 0; i < o->runs && !rc; i++)
		rc = run(p, i);
	return rc;
}

static int
open_and_run(struct peer *p)
{
	int rc = peer_open(p);

	if (rc == -ENODEV)
		eal_explain(p->error, sizeof(p->error));
	return rc ? rc : run_all(p);
}

static int
start(const struct peer_options *o, int eal_argc, char **argv)
{
	static struct peer p;
	char instance[32];
	bool up;
	int rc;

	p.options = o;
	p.socket = -1;
	memset(p.listener, -1, sizeof(p.listener));
	snprintf(instance, sizeof(instance), "roce-peer-%d", (int)getpid());
	rc = eal_setup(instance, eal_argc, argv, p.error, sizeof(p.error));
	up = !rc;
	if (up)
		rc = open_and_run(&p);
	if (rc) /* now: the rest takes its time */
		fprintf(stderr, "weir-roce-peer: %s\n", p.error);
	if (up) {
		peer_deafen(&p);
		peer_close(&p);
		eal_teardown(instance);
	}
	return tool_exit_code(rc);
}

int
main(int argc, char **argv)
{
	static struct peer_options o;
	int dashes = tool_split(argc, argv), rc;
	char error[256];

	rc = peer_options_parse(&o, argc - dashes, argv + dashes, error, sizeof(error));
	if (!rc && o.help) {
		option_print_help(&peer_option_table, stdout);
		return TOOL_OK;
	}
	if (!rc && o.version) {
		printf("weir-roce-peer " WEIR_VERSION " (%s)\n", rte_version());
		return TOOL_OK;
	}
	if (rc) {
		fprintf(stderr, "weir-roce-peer: %s\n", error);
		return TOOL_USAGE;
	}
	return start(&o, dashes ? dashes : 1, argv);
}
