/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_TEST_CONTROL_NOW_H
#define WEIR_TEST_CONTROL_NOW_H

#include <stdint.h>
#include <time.h>

/* Of a clock that nobody sets. */
static inline uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

#endif
