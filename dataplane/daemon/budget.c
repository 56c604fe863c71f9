/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of a data plane and the memory that they take, printed once at start. */
#include "base/log.h"
#include "machine_limits.h"
#include "plane.h"
#include "broker/segment.h"

#include <stdio.h>
#include <sys/resource.h>

static uint64_t total;

static void
line(const char *pool, uint64_t count, uint64_t each, const char *when)
{
	printf("  %-34s %8llu x %11llu = %13llu  %s\n", pool, (unsigned long long)count,
	       (unsigned long long)each, (unsigned long long)(count * each), when);
	total += count * each;
}

/* A part of the line above, not added to the total. */
static void
part_of_programs(const char *what, uint64_t count, uint64_t each)
{
	printf("    %-32s %8llu x %11llu   of that\n", what, (unsigned long long)count,
	       (unsigned long long)each);
}

static void
print_pools(const struct plane *p, uint64_t *fixed)
{
	const struct options *o = p->options;
	uint32_t lines = (uint32_t)(o->peer_ring / WEIR_SLOT_SIZE);
	uint64_t joined = 0; /* engines that have a port */
	struct weir_geometry g = {0};
	char name[96];

	plane_arena(p, &g);
	for (unsigned i = 0; i < p->engines; i++)
		joined += p->engine[i].port >= 0;
	printf("memory (bytes):\n");
	for (unsigned i = 0; i < p->ports; i++) {
		struct plane_port_info info;

		plane_port_describe(&p->port[i], &info);
		snprintf(name, sizeof(name), "frames of port %.20s", info.name);
		if (info.frames)
			line(name, info.frames, info.pool_bytes / info.frames, "now");
		snprintf(name, sizeof(name), "tables of port %.20s", info.name);
		line(name, 1, info.table_bytes, "now");
	}
	line("tables of an engine", p->engines, engine_memory(&p->engine[0].config), "now");
	line("receive buffers of an engine", joined * plane_srq_depth(p), ENGINE_RECV_BYTES, "now");
	line("mailboxes of an engine", p->engines, sizeof(struct loop), "now");
	printf("  %-34s %36s %13llu\n", "", "total", (unsigned long long)total);
	line("rings of a link, two ways", o->links * joined,
	     2 * o->peer_ring + 2 * sizeof(struct weir_credit_line) + engine_link_bytes(lines),
	     "at most");
	line("tables of a session in an engine", o->max_sessions * p->engines,
	     engine_session_bytes(&p->engine[0].config, &g), "at most");
	*fixed = total;
	line("shared memory of all programs", 1, o->most[USER_MEMORY], "at most");
	printf("  %-34s %36s %13llu\n", "", "at most", (unsigned long long)total);
	part_of_programs("arena of a session", o->max_sessions, g.bytes);
	part_of_programs("memory that a session has adopted", o->max_sessions, o->adopt);
	part_of_programs("segment of two threads", o->most[USER_SEGMENTS], segment_bytes());
}

void
budget_print(const struct plane *p)
{
	const struct options *o = p->options;
	struct rlimit files = {.rlim_max = RLIM_INFINITY};
	struct plane_port_info info;
	uint64_t fixed;
	char text[256];

	for (unsigned i = 0; i < p->ports; i++) {
		plane_port_describe(&p->port[i], &info);
		printf("port %u: %s\n", i, info.text);
	}
	for (unsigned i = 0; i < p->engines; i++) {
		const struct plane_engine *e = &p->engine[i];

		printf("engine %u: lcore %u, cpu %u, NUMA socket %d, ", i, e->lcore, e->cpu,
		       e->numa_socket);
		if (e->port < 0) {
			printf("no port\n");
			continue;
		}
		plane_port_describe(&p->port[e->port], &info);
		printf("port %s%s\n", info.name,
		       e->loop->config.cpu_shared ? ", shares its cpu" : "");
	}
	total = 0;
	print_pools(p, &fixed);
	printf("limits, all users and each that has no own:\n");
	for (enum user_limit i = 0; i < USER_LIMITS; i++)
		if (o->most[i])
			printf("  %-34s %24llu   %24llu\n", user_limit_name(i),
			       (unsigned long long)o->most[i],
			       (unsigned long long)o->users.others.most[i]);
	fflush(stdout);
	getrlimit(RLIMIT_NOFILE, &files);
	if (!limits_fit(o, fixed, machine_memory(""), files.rlim_max, text, sizeof(text)))
		log_warning("%s", text);
}
