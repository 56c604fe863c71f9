/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages of a run: both ends compute length and contents of message i from the seed, and so
 * detect a message that is lost, doubled, truncated, corrupted or out of order.
 */
#ifndef WEIR_PERF_SCHEDULE_H
#define WEIR_PERF_SCHEDULE_H

#include "weir/type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PERF_READ_REQUEST 16u /* bytes of a request for a READ */

enum perf_test {
	PERF_LAT,
	PERF_BW,
	PERF_RATE,
	PERF_MIX,
	PERF_READ,
	PERF_MESSAGES,
	PERF_REQUESTS,
	PERF_CALLS,
	PERF_RETURNS,
	PERF_PUT,
	PERF_GET,
	PERF_ACC,
	PERF_FOP,
	PERF_CAS,
	PERF_NOTIFY,
	PERF_SIGNAL,
	PERF_FLAG,
	PERF_LOCK,
	PERF_LOCKALL,
	PERF_FENCE,
	PERF_PSCW,
	PERF_TESTS
};

/* Tests of the message model. */
static inline bool
perf_is_message(uint32_t test)
{
	return test == PERF_MESSAGES || test == PERF_REQUESTS;
}

/* Tests of remote invocation. */
static inline bool
perf_is_call(uint32_t test)
{
	return test == PERF_CALLS || test == PERF_RETURNS;
}

/* The payload comes from the server. */
static inline bool
perf_is_fetch(uint32_t test)
{
	return test == PERF_READ || test == PERF_GET;
}

/* Tests of remote memory whose elements are updated: each operation adds 1, with PERF_ACC and
 * PERF_FOP what is asked for. */
static inline bool
perf_is_update(uint32_t test)
{
	return test >= PERF_ACC && test <= PERF_CAS;
}

/* Tests of remote memory. */
static inline bool
perf_is_remote(uint32_t test)
{
	return test >= PERF_PUT && test < PERF_TESTS;
}

/* Tests whose bytes may be pieces in the memory. */
static inline bool
perf_has_layout(uint32_t test)
{
	return test >= PERF_PUT && test <= PERF_ACC;
}

/* Tests of remote memory in which the target takes part: it answers each operation. */
static inline bool
perf_is_answered(uint32_t test)
{
	return test >= PERF_NOTIFY && test <= PERF_FLAG;
}

/* PERF_ACC, PERF_FOP: type and operation; 0 is the usual one. */
static inline uint32_t
perf_element(uint32_t type)
{
	return type ? type : WEIR_T_INT64;
}

static inline uint32_t
perf_acc(uint32_t op)
{
	return op ? op : WEIR_ACC_SUM;
}

/* Bytes of an element; 0: of no type. */
static inline uint32_t
perf_element_size(uint32_t type)
{
	return (uint32_t)weir_type_size((enum weir_type)perf_element(type));
}

/* Whether `size` bytes are elements with that operation. */
bool perf_elements_ok(uint32_t type, uint32_t op, uint32_t size);
/* Whether pieces of that many bytes, so far from each other, are whole aligned elements. */
static inline bool
perf_pieces_ok(uint32_t type, uint32_t block, uint32_t stride)
{
	return block % perf_element_size(type) == 0 &&
	       stride % weir_type_align((enum weir_type)perf_element(type)) == 0;
}

/* Bytes of an operation without -s. */
uint32_t perf_usual_size(uint32_t test, uint32_t type);

#define PERF_ELEMENT_MAX 32u /* bytes */
/* Writes a small number as an element: as the real part, as value and index of a pair. */
void perf_element_store(uint32_t type, uint64_t value, void *element);
/* Whether an element is that number; its padding may be anything. */
bool perf_element_is(uint32_t type, uint64_t value, const void *element);
/* The number that 0 becomes when it is updated that many times with 1. */
uint64_t perf_element_after(uint32_t type, uint32_t op, uint64_t times);

/* Tests that windows alone have. */
static inline bool
perf_is_window(uint32_t test)
{
	return test == PERF_FLAG || (test >= PERF_LOCKALL && test <= PERF_PSCW);
}

/* Tests of remote memory whose operations begin and end an epoch, or lock and unlock: without
 * payload, unless a window's user asks for a put within. */
static inline bool
perf_is_epoch(uint32_t test)
{
	return test >= PERF_LOCK && test <= PERF_PSCW;
}

/* Tests whose operations all members of a window make together. */
static inline bool
perf_is_round(uint32_t test)
{
	return test == PERF_FENCE || test == PERF_PSCW;
}

/* Tests of remote memory of which one operation after the other is measured alone. */
static inline bool
perf_is_serial(uint32_t test)
{
	return perf_is_answered(test) || perf_is_epoch(test);
}

struct perf_schedule {
	uint32_t test;	 /* enum perf_test */
	uint32_t size;	 /* bytes of every message; not for PERF_MIX */
	uint64_t count;	 /* messages, 0: until the end is announced */
	uint64_t large;	 /* PERF_MIX: number of messages from 64 KiB to 16 MiB */
	uint64_t seed;	 /* differs between the directions */
	uint64_t region; /* PERF_READ, answers: bytes of the memory that is read */
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

uint32_t perf_schedule_mixed_size(const struct perf_schedule *schedule, uint64_t i);

/* Length of message i. */
static inline uint32_t
perf_schedule_size(const struct perf_schedule *schedule, uint64_t i)
{
	return schedule->test == PERF_MIX ? perf_schedule_mixed_size(schedule, i) : schedule->size;
}

/* Largest length of the schedule. */
uint32_t perf_schedule_largest(const struct perf_schedule *schedule);

/* Writes and checks the contents of message i. */
void perf_schedule_fill(const struct perf_schedule *schedule, uint64_t i, void *buf, size_t length);
bool perf_schedule_check(const struct perf_schedule *schedule, uint64_t i, const void *buf,
			 size_t length);

/* PERF_READ: word k of the memory, and the offset of message i in it. */
static inline uint64_t
perf_region_word(uint64_t k)
{
	return perf_mix(k + 1);
}
uint64_t perf_schedule_offset(const struct perf_schedule *schedule, uint64_t i);
/* Checks the contents of a piece of the memory: all words, or only the first and last. */
bool perf_schedule_read(const struct perf_schedule *schedule, uint64_t i, const void *buf,
			size_t length, bool all);

/* Stamps: only the number of the message, at its beginning and end. */
static inline void
perf_schedule_stamp(uint64_t i, void *buf, size_t length)
{
	uint8_t *to = buf;

	if (length < sizeof(i))
		return;
	memcpy(to, &i, sizeof(i));
	memcpy(to + length - sizeof(i), &i, sizeof(i));
}

static inline bool
perf_schedule_stamped(uint64_t i, const void *buf, size_t length)
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
