/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes that search together: a session, and a group. */
#ifndef HEX_CREW_H
#define HEX_CREW_H

#include "weir/group.h"

struct crew {
	struct weir *w;
	struct weir_group *g;
	uint32_t mode; /* enum weir_batch_mode, of their calls */
};

/*
 * Attaches to the data plane of `instance`, and joins the group of the launcher; without one, the
 * process is alone. 0, or -errno and error.
 */
int crew_open(struct crew *c, const char *instance, char *error, size_t size);
void crew_close(struct crew *c);
/* Collective: all get the bytes of process 0. 0, or -errno and error. */
int crew_share(struct crew *c, void *bytes, size_t length, char *error, size_t size);

#endif
