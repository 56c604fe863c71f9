/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A logarithmic histogram of nanoseconds in constant memory: 128 steps for each doubling, so that a
 * value is known to better than 1 %; exact below 256. Histograms can be added.
 */
#ifndef WEIR_PERF_HISTOGRAM_H
#define WEIR_PERF_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEP_BITS 7
#define HISTOGRAM_STEPS (1u << HISTOGRAM_STEP_BITS)
#define HISTOGRAM_MAX_BITS 42 /* 73 minutes; more counts as that */
#define HISTOGRAM_BUCKETS ((HISTOGRAM_MAX_BITS - HISTOGRAM_STEP_BITS + 1) * HISTOGRAM_STEPS)

struct histogram {
	uint64_t count, sum, min, max;
	uint64_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_clear(struct histogram *h);
void histogram_add(struct histogram *to, const struct histogram *from);
/* Value below or at which `share` (0 ... 1) of all values lie; 0 when there are none. */
uint64_t histogram_percentile(const struct histogram *h, double share);
double histogram_mean(const struct histogram *h);
/* Standard deviation; 0 when there are none. */
double histogram_deviation(const struct histogram *h);

/* Bucket of a value, and the middle of a bucket. */
static inline uint32_t
histogram_bucket(uint64_t value)
{
	uint32_t shift;

	if (value < 2 * HISTOGRAM_STEPS)
		return (uint32_t)value;
	if (value >> HISTOGRAM_MAX_BITS)
		return HISTOGRAM_BUCKETS - 1;
	shift = 63 - (uint32_t)__builtin_clzll(value) - HISTOGRAM_STEP_BITS;
	return shift * HISTOGRAM_STEPS + (uint32_t)(value >> shift);
}

uint64_t histogram_value(uint32_t bucket);

static inline void
histogram_record(struct histogram *h, uint64_t value)
{
	h->count++;
	h->sum += value;
	h->bucket[histogram_bucket(value)]++;
	if (value < h->min)
		h->min = value;
	if (value > h->max)
		h->max = value;
}

#endif
