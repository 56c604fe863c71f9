/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes of a job: a session, and the group of the launcher. */
#ifndef SHUFFLE_CREW_H
#define SHUFFLE_CREW_H

#include "weir/group.h"

#include <stdbool.h>

struct crew {
	struct weir *w;	      /* NULL: the process is alone, and needs no data plane */
	struct weir_group *g; /* NULL: the same */
	uint32_t rank, size;
};

/*
 * Attaches to the data plane of `instance` and joins the group of the launcher. Without a launcher
 * the process is alone; it then attaches only if `attach` is set. 0, or -errno and weir_reason().
 */
int crew_open(struct crew *c, const char *instance, const char *name, bool attach);
void crew_close(struct crew *c);

/* Collective, one thread of each process. 0, or -errno and weir_reason(). */
int crew_barrier(struct crew *c);
int crew_gather(struct crew *c, const void *mine, size_t length, void *all);
/* Adds up `count` numbers of each process, in place. */
int crew_sum(struct crew *c, uint64_t *numbers, size_t count);
int crew_most(struct crew *c, uint64_t *numbers, size_t count);

#endif
