/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The load that an engine tells its peers: the mean of its own busy share and of the share of time
 * in which some thread of the host waited for a CPU. An engine that is idle itself is slow to
 * answer on a host whose CPUs are taken.
 */
#ifndef WEIR_LOAD_H
#define WEIR_LOAD_H

#include <stdbool.h>
#include <stdint.h>

enum {
	LOAD_NS = 1000000,	 /* ns between two measurements */
	LOAD_SPAN_NS = 8000000,	 /* ns that the engine's share averages */
	LOAD_HOST_NS = 40000000, /* ns between two looks at the host, each a system call */
};

struct load {
	uint64_t at, busy, idle; /* ns, cycles: the last measurement */
	uint32_t engine, host;	 /* 1/1000 */
	uint64_t host_at;	 /* ns: the last look at the host; 0: none yet */
	uint64_t waited;	 /* us: the host's, at that look */
	int fd;			 /* pressure/cpu or loadavg; -1: neither can be read */
	bool pressure;		 /* fd is pressure/cpu */
	unsigned cpus;		 /* of the host */
};

/* Opens PROC/pressure/cpu, or PROC/loadavg on a kernel that doesn't measure pressure. Without both
 * the host counts as free. */
void load_open(struct load *l, const char *proc, unsigned cpus);
void load_close(struct load *l);
/* The load in 1/1000. `busy`, `idle`: cycles of the engine so far. The engine's thread. */
uint32_t load_measure(struct load *l, uint64_t now, uint64_t busy, uint64_t idle);

#endif
