/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "timeslice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* struct sched_attr of the kernel, whose header conflicts with that of the C library. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

uint64_t
slice_now(void)
{
	struct attributes a = {.size = sizeof(a)};

	if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) || a.policy != SCHED_OTHER)
		return 0;
	return a.runtime;
}

void
slice_set(uint64_t ns)
{
	struct attributes a = {.size = sizeof(a)};

	if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) || a.policy != SCHED_OTHER)
		return;
	a.size = sizeof(a);
	a.runtime = ns;
	syscall(SYS_sched_setattr, 0, &a, 0);
}
