/* SPDX-License-Identifier: BSD-3-Clause */
#include "machine_limits.h"

#include <stdio.h>
#include <string.h>

/* Each is one of the 65,530 mappings that a process may have. */
#define REGIONS_MAX 32768u
#define SEGMENTS_MAX 16384u
#define SEGMENT_FILES 5u   /* open files per segment: memory, doorbells */
#define OTHER_FILES 512u   /* open files of EAL, ports, links, control.sock */
#define SESSION_FILES 3u   /* per session besides channels: socket, arena, a doorbell being sent */
#define LINKS_LEAST 1171u  /* least default of --links: enough for 1,024 peers, see FOR_PEERS */
#define LINKS_MOST 2048u   /* largest default: small NICs have no more completions a queue */
#define LINKS_SHARE 32u	   /* part of the machine's memory that they may take together */
#define LEAST_SEGMENTS 64u /* even with too few open files */

static uint64_t
read_number(const char *path, const char *format)
{
	unsigned long long n = 0;
	FILE *f = fopen(path, "re");
	char line[256];

	while (f && fgets(line, sizeof(line), f) && sscanf(line, format, &n) != 1)
		;
	if (f)
		fclose(f);
	return n;
}

uint64_t
machine_memory(const char *root)
{
	char path[1024], line[512], group[512] = "", *slash;
	uint64_t all, limit;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	all = read_number(path, "MemTotal: %llu kB") << 10;
	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "0::/", 4)) { /* version 2 */
			line[strcspn(line, "\n")] = 0;
			snprintf(group, sizeof(group), "%s", line + 3);
		}
	if (f)
		fclose(f);
	/* the least of our control group and those above it */
	while ((slash = strrchr(group, '/'))) {
		snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s/memory.max", root,
			 group[1] ? group : "");
		limit = read_number(path, "%llu");
		if (limit && (!all || limit < all))
			all = limit;
		if (slash == group && group[1])
			group[1] = 0; /* the root's */
		else
			*slash = 0;
	}
	return all;
}

static uint64_t
less(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Descriptors of all sessions, with all their channels and adopted ranges. */
static uint64_t
session_files(const struct options *o)
{
	return OTHER_FILES + o->max_sessions * (SESSION_FILES + o->channels) +
	       o->most[USER_REGIONS];
}

void
limits_derive(struct options *o, uint64_t machine, uint64_t files)
{
	static const enum user_limit which[] = {USER_MEMORY, USER_REGIONS, USER_SEGMENTS};
	uint64_t link = 2 * o->peer_ring + o->peer_ring / 4 + LINK_QP_BYTES, taken;

	if (!o->links) {
		o->links = less(machine / LINKS_SHARE / link, LINKS_MOST);
		o->links = o->links < LINKS_LEAST ? LINKS_LEAST : o->links;
	}
	o->most[USER_MEMORY] = o->max_memory ? o->max_memory : machine / 2;
	o->most[USER_REGIONS] = less(less(o->max_sessions * o->regions, REGIONS_MAX), files / 4);
	taken = session_files(o);
	o->most[USER_SEGMENTS] =
	    files > taken ? less((files - taken) / SEGMENT_FILES, SEGMENTS_MAX) : 0;
	if (o->most[USER_SEGMENTS] < LEAST_SEGMENTS)
		o->most[USER_SEGMENTS] = LEAST_SEGMENTS;
	for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
		users_default(&o->users, which[i], (o->most[which[i]] + 1) / 2);
}

bool
limits_fit(const struct options *o, uint64_t fixed, uint64_t machine, uint64_t files, char *text,
	   size_t size)
{
	uint64_t need = fixed + o->most[USER_MEMORY];
	uint64_t open = session_files(o) + SEGMENT_FILES * o->most[USER_SEGMENTS];

	if (machine && need > machine)
		snprintf(
		    text, size,
		    "all limits together are %llu MiB, this machine (or control group) has %llu "
		    "MiB; lower --max-memory, or --links, --peer-ring, --tx-frames, or start it "
		    "where there is more",
		    (unsigned long long)need >> 20, (unsigned long long)machine >> 20);
	else if (open > files)
		snprintf(text, size,
			 "all limits together are %llu open files, %llu are allowed; raise that "
			 "limit (ulimit -Hn, LimitNOFILE=), or lower --max-sessions or --channels",
			 (unsigned long long)open, (unsigned long long)files);
	else
		return true;
	return false;
}
