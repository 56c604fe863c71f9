/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "cpus.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

struct mask {
	cpu_set_t sets[CPUS_MAX / CPU_SETSIZE];
};

int
cpus_allowed(struct cpus *c)
{
	struct mask m;

	if (sched_getaffinity(0, sizeof(m), m.sets))
		return -errno;
	c->count = 0;
	for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++)
		if (CPU_ISSET_S(cpu, sizeof(m), m.sets))
			c->cpu[c->count++] = (uint16_t)cpu;
	return 0;
}

struct cpus_part
cpus_part(uint32_t count, uint32_t processes, uint32_t threads, uint32_t rank)
{
	uint32_t each = threads ? threads : count / processes;

	weir_assert(rank < processes);
	if (!each || (uint64_t)each * processes > count)
		return (struct cpus_part){0, count};
	return (struct cpus_part){rank * each, each};
}

int
cpus_pin(const struct cpus *c, struct cpus_part part)
{
	struct mask m;

	weir_assert(part.count && part.from + part.count <= c->count);
	memset(&m, 0, sizeof(m));
	for (uint32_t i = 0; i < part.count; i++)
		CPU_SET_S(c->cpu[part.from + i], sizeof(m), m.sets);
	return sched_setaffinity(0, sizeof(m), m.sets) ? -errno : 0;
}
