/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of objects: their directory and their chunks. */
#define _GNU_SOURCE
#include "table.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RIGHTS (PROT_READ | PROT_WRITE)
#define OWN (MAP_PRIVATE | MAP_ANONYMOUS)
#define HUGE (MAP_HUGETLB | 21 << MAP_HUGE_SHIFT) /* log2 of OBJECTS_CHUNK */

void *
objects_map_directory(size_t bytes)
{
	void *at = mmap(NULL, bytes, RIGHTS, OWN | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	if (!madvise(at, bytes, MADV_WIPEONFORK))
		return at;
	munmap(at, bytes);
	return NULL;
}

/* A chunk of ordinary pages, aligned so that the kernel can make it one large page. */
static void *
map_ordinary(void)
{
	uint8_t *at = mmap(NULL, 2 * OBJECTS_CHUNK, RIGHTS, OWN, -1, 0);
	size_t before;

	if (at == MAP_FAILED)
		return MAP_FAILED;
	before = -(uintptr_t)at % OBJECTS_CHUNK;
	if (before)
		munmap(at, before);
	munmap(at + before + OBJECTS_CHUNK, OBJECTS_CHUNK - before);
	madvise(at + before, OBJECTS_CHUNK, MADV_HUGEPAGE);
	return at + before;
}

/* Sets the node of a chunk's pages, and that no forked child has them. */
static bool
prepare(void *chunk)
{
	unsigned long mask[16] = {0};
	unsigned node;

	/* preferred, not strict: another node's memory is better than none; a kernel without NUMA
	 * refuses, and there is nothing to choose */
	if (!getcpu(NULL, &node) && node < sizeof(mask) * 8) {
		mask[node / (sizeof(long) * 8)] = 1ul << node % (sizeof(long) * 8);
		syscall(SYS_mbind, chunk, OBJECTS_CHUNK, MPOL_PREFERRED, mask, sizeof(mask) * 8, 0);
	}
	return !madvise(chunk, OBJECTS_CHUNK, MADV_DONTFORK);
}

void *
objects_map_chunk(void)
{
	void *at = mmap(NULL, OBJECTS_CHUNK, RIGHTS, OWN | HUGE, -1, 0);

	if (at != MAP_FAILED) {
		/* A hugepage that a cpuset or a limit of the control group forbids fails here;
		 * without this call it would raise SIGBUS on use. */
		if (prepare(at) && !madvise(at, OBJECTS_CHUNK, MADV_POPULATE_WRITE))
			return at;
		munmap(at, OBJECTS_CHUNK);
	}
	at = map_ordinary();
	if (at == MAP_FAILED)
		return NULL;
	if (prepare(at))
		return at;
	munmap(at, OBJECTS_CHUNK);
	return NULL;
}
