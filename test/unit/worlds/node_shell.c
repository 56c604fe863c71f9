/* SPDX-License-Identifier: BSD-3-Clause */
#include "node_shell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int
shell_doorbell_add(struct shell_doorbells *d, uint32_t engine, uint32_t id, struct weir_bell bell)
{
	uint32_t i = 0;

	while (i < SHELL_DOORBELLS && d->at[i].used)
		i++;
	if (i == SHELL_DOORBELLS)
		return -ENOSPC;
	d->at[i] = (struct shell_doorbell){id, engine, bell, true};
	if (i >= d->top)
		d->top = i + 1;
	return 0;
}

void
shell_doorbell_remove(struct shell_doorbells *d, uint32_t engine, uint32_t id)
{
	for (uint32_t i = 0; i < d->top; i++)
		if (d->at[i].used && d->at[i].id == id && d->at[i].engine == engine) {
			weir_bell_close(&d->at[i].bell);
			d->at[i].used = false;
		}
}

void
shell_doorbell_ring(const struct shell_doorbells *d, uint32_t engine, uint32_t id)
{
	for (uint32_t i = 0; i < d->top; i++)
		if (d->at[i].used && d->at[i].id == id && d->at[i].engine == engine)
			weir_bell_ring(&d->at[i].bell);
}

void
shell_doorbells_fini(struct shell_doorbells *d)
{
	for (uint32_t i = 0; i < d->top; i++)
		if (d->at[i].used)
			weir_bell_close(&d->at[i].bell);
	d->top = 0;
}

void *
shell_memory_get(void *user, size_t bytes, int numa_socket)
{
	void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	if (memory)
		memset(memory, 0, bytes);
	return memory;
}

void
shell_memory_put(void *user, void *memory, size_t bytes)
{
	free(memory);
}
