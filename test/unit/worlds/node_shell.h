/* SPDX-License-Identifier: BSD-3-Clause */
/* Doorbells and memory for the engines and the broker of a node in the test's own process. */
#ifndef TEST_NODE_SHELL_H
#define TEST_NODE_SHELL_H

#include "ipc/bell.h"

#include <stddef.h>

#define SHELL_DOORBELLS 64u

struct shell_doorbells {
	struct shell_doorbell {
		uint32_t id, engine;
		struct weir_bell bell;
		bool used;
	} at[SHELL_DOORBELLS];
	uint32_t top; /* index of the highest one in use + 1 */
};

/* Takes over the bell. 0 or -ENOSPC. */
int shell_doorbell_add(struct shell_doorbells *d, uint32_t engine, uint32_t id,
		       struct weir_bell bell);
void shell_doorbell_remove(struct shell_doorbells *d, uint32_t engine, uint32_t id);
void shell_doorbell_ring(const struct shell_doorbells *d, uint32_t engine, uint32_t id);
/* Closes all of them. */
void shell_doorbells_fini(struct shell_doorbells *d);

/* memory_get() and memory_put() of struct broker_config */
void *shell_memory_get(void *user, size_t bytes, int numa_socket);
void shell_memory_put(void *user, void *memory, size_t bytes);

#endif
