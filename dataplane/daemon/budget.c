/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of a data plane and the memory that they take, printed once at start. */
#include "base/log.h"
#include "machine_limits.h"
#include "plane.h"
#include "broker/segment.h"
#include "ipc/invariant.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define ROWS_MAX 64u

static FILE *out; /* NULL: lines are counted, not printed */
static uint64_t total;
static struct weir_row_memory row[ROWS_MAX];
static uint32_t rows;

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (out)
		vfprintf(out, format, args);
	va_end(args);
}

static void
line(const char *pool, uint64_t count, uint64_t each, const char *when)
{
	say("  %-34s %8llu x %11llu = %13llu  %s\n", pool, (unsigned long long)count,
	    (unsigned long long)each, (unsigned long long)(count * each), when);
	total += count * each;
	weir_assert(rows < ROWS_MAX);
	row[rows] = (struct weir_row_memory){.count = count,
					     .each = each,
					     .bytes = count * each,
					     .used = UINT64_MAX,
					     .now = !strcmp(when, "now")};
	snprintf(row[rows++].pool, sizeof(row[0].pool), "%s", pool);
}

/* A part of the line above, not added to the total. */
static void
part(const char *what, uint64_t count, uint64_t each)
{
	say("    %-32s %8llu x %11llu   of that\n", what, (unsigned long long)count,
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
	say("memory (bytes):\n");
	for (unsigned i = 0; i < p->ports; i++) {
		struct plane_port_info info;

		plane_port_describe(&p->port[i], &info);
		snprintf(name, sizeof(name), "frames of port %.20s", info.name);
		if (info.frames) {
			line(name, info.frames, info.pool_bytes / info.frames, "now");
			row[rows - 1].used =
			    (info.frames - info.frames_free) * (info.pool_bytes / info.frames);
		}
		snprintf(name, sizeof(name), "tables of port %.20s", info.name);
		line(name, 1, info.table_bytes, "now");
	}
	line("tables of an engine", p->engines, engine_memory(&p->engine[0].config), "now");
	line("receive buffers of an engine", joined * plane_srq_depth(p), ENGINE_RECV_BYTES, "now");
	line("mailboxes of an engine", p->engines, sizeof(struct loop), "now");
	say("  %-34s %36s %13llu\n", "", "total", (unsigned long long)total);
	line("rings of a link, two ways", o->links * joined,
	     2 * o->peer_ring + 2 * sizeof(struct weir_credit_line) + engine_staging_bytes(lines) +
		 2 * ENGINE_RING_LEAST * WEIR_SLOT_SIZE + engine_link_bytes(ENGINE_RING_LEAST),
	     "at most");
	line("answers to a peer's engine", o->links * joined, o->answers, "at most");
	line("queue pairs of a link, about", o->links * joined, LINK_QP_BYTES, "at most");
	line("tables of a session in an engine", o->max_sessions * p->engines,
	     engine_session_bytes(&p->engine[0].config, &g), "at most");
	part("exports of a session", o->max_sessions * p->engines,
	     o->exports * engine_export_bytes());
	*fixed = total;
	line("shared memory of all programs", 1, o->most[USER_MEMORY], "at most");
	rows--; /* the broker shows it, with what is used */
	say("  %-34s %36s %13llu\n", "", "at most", (unsigned long long)total);
	part("arena of a session", o->max_sessions, g.bytes);
	part("regions of a session", o->max_sessions, o->memory);
	part("memory that a session has adopted", o->max_sessions, o->adopt);
	part("exports of a session in main", o->max_sessions, o->exports * broker_export_bytes());
	part("segment of two threads", o->most[USER_SEGMENTS], segment_bytes(&segment_streams));
}

void
budget_print(const struct plane *p)
{
	const struct options *o = p->options;
	struct rlimit files = {.rlim_max = RLIM_INFINITY};
	struct plane_port_info info;
	uint64_t fixed;
	char text[256];

	/* for people a table; else each line is one of the log */
	out = log_format() == LOG_FORMAT_TEXT ? stdout : log_stream(LOG_LEVEL_INFO);
	if (!out)
		return;
	for (unsigned i = 0; i < p->ports; i++) {
		plane_port_describe(&p->port[i], &info);
		say("port %u: %s\n", i, info.text);
	}
	for (unsigned i = 0; i < p->engines; i++) {
		const struct plane_engine *e = &p->engine[i];

		say("engine %u: lcore %u, cpu %u, NUMA socket %d, ", i, e->lcore, e->cpu,
		    e->numa_socket);
		if (e->port < 0) {
			say("no port\n");
			continue;
		}
		plane_port_describe(&p->port[e->port], &info);
		say("port %s%s\n", info.name, e->loop->config.cpu_shared ? ", shares its cpu" : "");
	}
	total = 0;
	rows = 0;
	print_pools(p, &fixed);
	say("limits, all users and each that has no own:\n");
	for (enum user_limit i = 0; i < USER_LIMITS; i++)
		if (o->most[i])
			say("  %-34s %24llu   %24llu\n", user_limit_name(i),
			    (unsigned long long)o->most[i],
			    (unsigned long long)o->users.others.most[i]);
	fflush(out);
	if (out != stdout)
		fclose(out);
	out = NULL;
	getrlimit(RLIMIT_NOFILE, &files);
	if (!limits_fit(o, fixed, machine_memory(""), files.rlim_max, text, sizeof(text)))
		log_warning("%s", text);
}

bool
budget_row(const struct plane *p, uint32_t index, struct weir_row_memory *r)
{
	uint64_t fixed;

	rows = 0;
	print_pools(p, &fixed);
	if (index >= rows)
		return false;
	*r = row[index];
	return true;
}
