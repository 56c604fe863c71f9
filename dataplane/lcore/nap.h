/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long an engine sleeps that no event can wake: a part of the time since its last work. A
 * message is late by that part at most, and so is the answer that its sender waits for. With a part
 * of one, two engines would keep each other asleep for ever; with a quarter both are awake within a
 * few messages.
 */
#ifndef WEIR_NAP_H
#define WEIR_NAP_H

#include <stdint.h>

#define NAP_MIN_NS 50000u /* ns; shortest sleep */
#define NAP_PART 4u	  /* sleep for 1/NAP_PART of the rest so far */

/* ns to sleep after `rest` ns without work; at most `most`. */
static inline uint64_t
nap_ns(uint64_t rest, uint64_t most)
{
	uint64_t ns = rest / NAP_PART;

	if (ns < NAP_MIN_NS)
		ns = NAP_MIN_NS;
	return ns < most ? ns : most;
}

#endif
