/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Monotonic time from the TSC, in ns: a multiplication, no system call and no division. Main and
 * engines share one clock.
 */
#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

#include <rte_cycles.h>
#include <stdint.h>

struct clock {
	uint64_t base; /* TSC one second before start */
	uint64_t hz;
	uint64_t mult; /* ns per cycle, scaled by 2^32 */
};

static inline void
clock_start(struct clock *c)
{
	c->hz = rte_get_tsc_hz();
	c->mult = (uint64_t)(((unsigned __int128)1000000000u << 32) / c->hz);
	c->base = rte_rdtsc() - c->hz; /* so no time is 0 */
}

static inline uint64_t
clock_ns(const struct clock *c, uint64_t tsc)
{
	return (uint64_t)(((unsigned __int128)(tsc - c->base) * c->mult) >> 32);
}

static inline uint64_t
clock_now(const struct clock *c)
{
	return clock_ns(c, rte_rdtsc());
}

#endif
