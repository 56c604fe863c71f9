/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory.h"

#include "schedule.h"

#include "weir/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u

/* Whole pages, and a word more than the size: a last message may end within a word. */
static uint64_t
bytes_of(const struct perf_region *r)
{
	return (r->size + 8 + PAGE - 1) / PAGE * PAGE;
}

/* Memory beyond what the session may adopt is copied when it is sent. */
static void
adopt(struct perf_region *r, struct weir *weir)
{
	uint64_t all = bytes_of(r);

	for (uint32_t i = 0; i < REGION_PIECES && r->adopted < all; i++) {
		uint64_t left = all - r->adopted,
			 length = left < REGION_PIECE ? left : REGION_PIECE;

		if (weir_adopt(weir, r->memory + r->adopted, length, WEIR_ADOPT_SEND, &r->piece[i]))
			break;
		r->adopted += length;
	}
	if (r->adopted < all)
		fprintf(stderr,
			"weir-perf: %llu of %llu MiB to read are adopted, the others copied; start "
			"weir-dataplane with a larger --adopt\n",
			(unsigned long long)r->adopted >> 20, (unsigned long long)all >> 20);
}

int
perf_region_open(struct perf_region *r, struct weir *weir)
{
	uint64_t *word;

	if (r->memory)
		return 0;
	word = mmap(NULL, bytes_of(r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (word == MAP_FAILED)
		return -ENOMEM;
	for (uint64_t k = 0; k < bytes_of(r) / 8; k++)
		word[k] = perf_region_word(k);
	r->memory = (uint8_t *)word;
	adopt(r, weir);
	return 0;
}

void
perf_region_close(struct perf_region *r)
{
	int busy = 0;

	for (uint32_t i = 0; i < REGION_PIECES && r->piece[i]; i++)
		busy |= weir_disown(r->piece[i]);
	/* what is still under way keeps its memory until the program detaches */
	if (r->memory && !busy)
		munmap(r->memory, bytes_of(r));
	*r = (struct perf_region){.size = r->size};
}

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
