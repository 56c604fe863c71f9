/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Records of the sort benchmark, as text: 100 bytes, of which the first 10 are the key; lines for
 * other programs. Their sum does not depend on their order.
 */
#ifndef SHUFFLE_LINES_H
#define SHUFFLE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_BYTES 100u
#define LINE_KEY 10u

/* Line `number` of the generator of `seed`. `same`: percentage of lines that have one key. */
void line_make(uint8_t line[LINE_BYTES], uint64_t number, uint64_t seed, uint32_t same);

/* CRC-32 as of zip and ethernet. */
uint32_t line_crc(const uint8_t *bytes, size_t length);

struct lines_check {
	uint64_t lines, sum; /* sum of CRC-32 of each */
	uint64_t unordered;  /* lines with a smaller key than the one before */
	uint64_t same;	     /* lines with the key of the one before */
	uint64_t first;	     /* number of the first that is not in order */
	uint8_t last[LINE_KEY];
};
void lines_check(struct lines_check *c, const uint8_t *lines, size_t count);

/* Partitions of keys: the keys at which those but the first begin. */
struct borders {
	uint8_t (*keys)[LINE_KEY];
	uint32_t count; /* one less than partitions */
};
/* From a sample of keys, which it sorts. 0 or -ENOMEM. */
int borders_make(struct borders *b, uint8_t (*sample)[LINE_KEY], size_t count, uint32_t partitions);
uint32_t borders_find(const struct borders *b, const void *key);

#endif
