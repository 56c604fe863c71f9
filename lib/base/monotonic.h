/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_MONOTONIC_H
#define WEIR_MONOTONIC_H

#include <stdint.h>
#include <time.h>

/* ns of the clock that nobody sets. */
static inline uint64_t
monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t
monotonic_ms(void)
{
	return monotonic_ns() / 1000000u;
}

#endif
