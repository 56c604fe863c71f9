/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CPUs of the processes of a group: parts of those that the starter may use (affinity mask, cpuset
 * of its cgroup), in their order. Nothing is assumed about sockets, cores or hyper-threads.
 */
#ifndef WEIR_RUN_CPUS_H
#define WEIR_RUN_CPUS_H

#include <stdint.h>

#define CPUS_MAX 8192u /* of a Linux machine */

struct cpus {
	uint32_t count;
	uint16_t cpu[CPUS_MAX]; /* ascending */
};

/* Consecutive ones of struct cpus. */
struct cpus_part {
	uint32_t from, count;
};

/* The CPUs that the calling thread may use. 0 or -errno. */
int cpus_allowed(struct cpus *c);
/*
 * The part of a process: as many CPUs as it has threads, or with `threads` 0 an equal share; no
 * other process has them. All `count` CPUs, if there are too few for that.
 */
struct cpus_part cpus_part(uint32_t count, uint32_t processes, uint32_t threads, uint32_t rank);
/* Restricts the calling thread, and the threads and processes that it makes. 0 or -errno. */
int cpus_pin(const struct cpus *c, struct cpus_part part);

#endif
