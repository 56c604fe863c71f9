/* SPDX-License-Identifier: BSD-3-Clause */
/* Chance of a test, from a seed that it prints; WEIR_SEED=N repeats that. */
#ifndef WEIR_TEST_SHUFFLE_CHANCE_H
#define WEIR_TEST_SHUFFLE_CHANCE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t seed;

/* 31 bits. */
static inline uint32_t
draw(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33);
}

static inline void
new_seed(void)
{
	const char *given = getenv("WEIR_SEED");
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	seed =
	    given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30;
	printf("seed %llu\n", (unsigned long long)seed);
}

#endif
