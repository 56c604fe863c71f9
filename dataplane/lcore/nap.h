/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long an engine sleeps that nobody can wake. What comes finds it asleep for a part of the time
 * that it has waited for that; the next thing that the peer waits for is late by so much, and finds
 * the peer asleep for a part of that. With a part of one, two engines would keep each other waiting
 * as long as they ever did; with less they wake each other up within a few messages.
 */
#ifndef WEIR_NAP_H
#define WEIR_NAP_H

#include <stdint.h>

#define NAP_MIN_NS 50000u
#define NAP_PART 4u

/* After `rest` ns without work; at most `most`. */
static inline uint64_t
nap_ns(uint64_t rest, uint64_t most)
{
	uint64_t ns = rest / NAP_PART;

	if (ns < NAP_MIN_NS)
		ns = NAP_MIN_NS;
	return ns < most ? ns : most;
}

#endif
