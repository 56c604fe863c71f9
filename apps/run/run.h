/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_RUN_H
#define WEIR_RUN_H

#include "base/options.h"

#define RUN_PROCESSES_MAX 1024u
#define RUN_INSTANCES_MAX 64u
#define RUN_INSTANCE_BYTES 32u /* of a name, with its NUL */

struct run_options {
	uint32_t processes; /* 0: not given */
	uint32_t threads;   /* of each process; 0: not given */
	uint32_t instances;
	char instance[RUN_INSTANCES_MAX][RUN_INSTANCE_BYTES];
	bool help, version;
};

extern const struct option_table run_option_table;

/* The data plane of a process: each serves consecutive ranks. */
static inline const char *
run_instance(const struct run_options *o, uint32_t rank)
{
	return o->instance[(uint64_t)rank * o->instances / o->processes];
}

#endif
