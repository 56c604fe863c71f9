/* SPDX-License-Identifier: BSD-3-Clause */
#include "histogram.h"

#include <string.h>

void
histogram_clear(struct histogram *h)
{
	memset(h, 0, sizeof(*h));
	h->min = UINT64_MAX;
}

void
histogram_add(struct histogram *to, const struct histogram *from)
{
	to->count += from->count;
	to->sum += from->sum;
	if (from->min < to->min)
		to->min = from->min;
	if (from->max > to->max)
		to->max = from->max;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

uint64_t
histogram_value(uint32_t bucket)
{
	uint32_t shift;
	uint64_t first;

	if (bucket < 2 * HISTOGRAM_STEPS)
		return bucket;
	shift = bucket / HISTOGRAM_STEPS - 1;
	first = (uint64_t)(bucket - shift * HISTOGRAM_STEPS) << shift;
	return first + (1ull << shift) / 2;
}

uint64_t
histogram_percentile(const struct histogram *h, double share)
{
	uint64_t seen = 0, rank = (uint64_t)(share * (double)h->count);
	uint64_t value;

	if (!h->count)
		return 0;
	if ((double)rank < share * (double)h->count)
		rank++; /* the smallest whole number of values that is at least that share */
	if (!rank)
		rank = 1;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen < rank)
			continue;
		value = histogram_value(i);
		if (value < h->min)
			return h->min;
		return value > h->max ? h->max : value;
	}
	return h->max;
}

double
histogram_mean(const struct histogram *h)
{
	return h->count ? (double)h->sum / (double)h->count : 0;
}
