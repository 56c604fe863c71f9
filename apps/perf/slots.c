/* SPDX-License-Identifier: BSD-3-Clause */
#include "slots.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u
#define FLUSH_MS 1000

int
perf_slots_open(struct perf_slots *s, struct weir *weir, uint32_t size, uint32_t most)
{
	uint64_t stride = (size + PAGE - 1) / PAGE * PAGE, count = SLOTS_BYTES / stride;
	uint8_t *memory;
	int rc;

	most = most && most < SLOTS_MAX ? most : SLOTS_MAX;
	count = count < most ? count : most;
	count += !count;
	memory =
	    mmap(NULL, count * stride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	memset(memory, 0x5a, count * stride);
	*s = (struct perf_slots){.memory = memory, .count = (uint32_t)count, .stride = stride};
	rc = weir_adopt(weir, memory, count * stride, WEIR_ADOPT_SEND, &s->region);
	if (rc) {
		munmap(memory, count * stride);
		*s = (struct perf_slots){0};
	}
	return rc;
}

void
perf_slots_close(struct perf_slots *s, struct weir_conn *conn)
{
	if (!s->memory)
		return;
	weir_flush(conn, FLUSH_MS);
	/* what is under way even now keeps its memory until the program detaches */
	if (weir_disown(s->region) == 0)
		munmap(s->memory, s->count * s->stride);
	*s = (struct perf_slots){0};
}
