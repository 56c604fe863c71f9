/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_bench SIZE SECONDS: GB/s of memcpy() between the memory that weir-perf -t put -s SIZE uses:
 * out of a buffer of that size, into slots that fill a megabyte of shared memory in turn.
 */
#define _GNU_SOURCE
#include "clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS_BYTES (1u << 20)
#define FIRST 64u /* bytes before the slots */

int
main(int argc, char **argv)
{
	size_t size = argc == 3 ? strtoull(argv[1], NULL, 10) : 0, slots, bytes, n = 0;
	double seconds = argc == 3 ? strtod(argv[2], NULL) : 0;
	uint64_t begin, ns;
	char *from, *to;
	int fd;

	if (!size || size > 1u << 30 || !(seconds > 0))
		return 2;
	slots = size < SLOTS_BYTES ? SLOTS_BYTES / size : 1;
	bytes = FIRST + slots * size;
	fd = memfd_create("copy", 0);
	from = malloc(size);
	if (fd < 0 || !from || ftruncate(fd, (off_t)bytes))
		return 1;
	to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (to == MAP_FAILED)
		return 1;
	memset(from, 1, size);
	begin = clock_ns();
	do {
		for (unsigned i = 0; i < 16; i++, n++) {
			memcpy(to + FIRST + n % slots * size, from, size);
			__asm__ __volatile__("" ::: "memory");
		}
		ns = clock_ns() - begin;
	} while ((double)ns < seconds * 1e9);
	printf("%.3f\n", (double)(n * size) / (double)ns);
	return 0;
}
