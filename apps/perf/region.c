/* SPDX-License-Identifier: BSD-3-Clause */
#include "region.h"

#include "plan.h"

#include <errno.h>
#include <sys/mman.h>

/* a last message may end within a word */
static uint64_t
words_of(const struct perf_region *r)
{
	return r->size / 8 + 1;
}

int
perf_region_open(struct perf_region *r)
{
	uint64_t *word;

	if (r->memory)
		return 0;
	word =
	    mmap(NULL, words_of(r) * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (word == MAP_FAILED)
		return -ENOMEM;
	for (uint64_t k = 0; k < words_of(r); k++)
		word[k] = perf_region_word(k);
	r->memory = (uint8_t *)word;
	return 0;
}

void
perf_region_close(struct perf_region *r)
{
	if (r->memory)
		munmap(r->memory, words_of(r) * 8);
	r->memory = NULL;
}
