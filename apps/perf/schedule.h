/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a run sends: the length and the contents of message number i, computed alike at both ends
 * from the seed, so that a message that is lost, doubled, cut, mixed up or out of place is seen.
 */
#ifndef WEIR_PERF_PLAN_H
#define WEIR_PERF_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PERF_READ_REQUEST 16u /* bytes of what asks for a READ */

enum perf_test {
	PERF_LAT,
	PERF_BW,
	PERF_RATE,
	PERF_MIX,
	PERF_READ,
	PERF_CAST,
	PERF_CALL,
	PERF_TESTS
};

struct perf_plan {
	uint32_t test;	 /* enum perf_test */
	uint32_t size;	 /* of every message; not for PERF_MIX */
	uint64_t count;	 /* messages, 0: until the end is announced */
	uint64_t large;	 /* PERF_MIX: so many of them are 64 KiB ... 16 MiB */
	uint64_t seed;	 /* differs between the directions */
	uint64_t region; /* PERF_READ, what comes back: bytes of the memory that it comes from */
};

/* Mixes 64 bits well (the finalizer of splitmix64). */
static inline uint64_t
perf_mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

uint32_t perf_plan_mixed_size(const struct perf_plan *plan, uint64_t i);

/* Length of message i. */
static inline uint32_t
perf_plan_size(const struct perf_plan *plan, uint64_t i)
{
	return plan->test == PERF_MIX ? perf_plan_mixed_size(plan, i) : plan->size;
}

/* Largest length that the plan has. */
uint32_t perf_plan_largest(const struct perf_plan *plan);

/* Writes the contents of message i, and says whether they are those. */
void perf_plan_fill(const struct perf_plan *plan, uint64_t i, void *buf, size_t length);
bool perf_plan_check(const struct perf_plan *plan, uint64_t i, const void *buf, size_t length);

/* PERF_READ: word k of the memory that is read, and where message i begins in it. */
static inline uint64_t
perf_region_word(uint64_t k)
{
	return perf_mix(k + 1);
}
uint64_t perf_plan_offset(const struct perf_plan *plan, uint64_t i);
/* Whether the contents are those of the memory there: all of them, or the first and last word. */
bool perf_plan_read(const struct perf_plan *plan, uint64_t i, const void *buf, size_t length,
		    bool all);

/* The short form: only the number of the message, at both ends of it. */
static inline void
perf_plan_stamp(uint64_t i, void *buf, size_t length)
{
	uint8_t *to = buf;

	if (length < sizeof(i))
		return;
	memcpy(to, &i, sizeof(i));
	memcpy(to + length - sizeof(i), &i, sizeof(i));
}

static inline bool
perf_plan_stamped(uint64_t i, const void *buf, size_t length)
{
	const uint8_t *from = buf;
	uint64_t first, last;

	if (length < sizeof(i))
		return true;
	memcpy(&last, from + length - sizeof(i), sizeof(i));
	if (length < 2 * sizeof(i))
		return last == i;
	memcpy(&first, from, sizeof(i));
	return first == i && last == i;
}

const char *perf_test_name(uint32_t test);

#endif
