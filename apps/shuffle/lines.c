/* SPDX-License-Identifier: BSD-3-Clause */
#include "lines.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t
mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

void
line_make(uint8_t line[LINE_BYTES], uint64_t number, uint64_t seed, uint32_t same)
{
	static const char hex[] = "0123456789ABCDEF";
	uint64_t a = mix(seed + 2 * number * UINT64_C(0x9e3779b97f4a7c15)), b = mix(a + 1);
	bool common = mix(b) % 100 < same;

	/* printable, without the blank: 94 characters */
	for (unsigned i = 0; i < LINE_KEY; i++, a /= 94, b /= 94)
		line[i] = (uint8_t)('!' + (common ? 40 : (i < 5 ? a : b) % 94));
	memset(line + LINE_KEY, ' ', 2);
	for (unsigned i = 0; i < 32; i++)
		line[12 + i] = (uint8_t)(i < 16 ? '0' : hex[number >> 4 * (31 - i) & 15]);
	memset(line + 44, ' ', 2);
	for (unsigned i = 0; i < 52; i++)
		line[46 + i] = (uint8_t)hex[(number + i / 4) & 15];
	memcpy(line + 98, "\r\n", 2);
}

/* ---- CRC-32, 8 bytes at a time ---- */

static uint32_t crc[8][256];

static void
make_crc(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int bit = 0; bit < 8; bit++)
			c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
		crc[0][i] = c;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int k = 1; k < 8; k++)
			crc[k][i] = crc[k - 1][i] >> 8 ^ crc[0][crc[k - 1][i] & 255];
}

uint32_t
line_crc(const uint8_t *bytes, size_t length)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint32_t c = UINT32_MAX;

	pthread_once(&once, make_crc);
	for (; length >= 8; bytes += 8, length -= 8) {
		uint32_t low, high;

		memcpy(&low, bytes, 4);
		memcpy(&high, bytes + 4, 4);
		low ^= c;
		c = crc[7][low & 255] ^ crc[6][low >> 8 & 255] ^ crc[5][low >> 16 & 255] ^
		    crc[4][low >> 24] ^ crc[3][high & 255] ^ crc[2][high >> 8 & 255] ^
		    crc[1][high >> 16 & 255] ^ crc[0][high >> 24];
	}
	for (; length; bytes++, length--)
		c = c >> 8 ^ crc[0][(c ^ *bytes) & 255];
	return ~c;
}

void
lines_check(struct lines_check *c, const uint8_t *lines, size_t count)
{
	for (size_t i = 0; i < count; i++, lines += LINE_BYTES) {
		int order = c->lines ? memcmp(lines, c->last, LINE_KEY) : 1;

		if (order < 0 && !c->unordered++)
			c->first = c->lines;
		c->same += !order;
		memcpy(c->last, lines, LINE_KEY);
		c->sum += line_crc(lines, LINE_BYTES);
		c->lines++;
	}
}

/* ---- partitions ---- */

static int
compare(const void *a, const void *b)
{
	return memcmp(a, b, LINE_KEY);
}

int
borders_make(struct borders *b, uint8_t (*sample)[LINE_KEY], size_t count, uint32_t partitions)
{
	*b = (struct borders){.keys = calloc(partitions, LINE_KEY), .count = partitions - 1};
	if (!b->keys)
		return -ENOMEM;
	qsort(sample, count, LINE_KEY, compare);
	for (uint32_t i = 0; i < b->count && count; i++)
		memcpy(b->keys[i], sample[count * (i + 1) / partitions], LINE_KEY);
	return 0;
}

uint32_t
borders_find(const struct borders *b, const void *key)
{
	uint32_t from = 0, to = b->count;

	while (from < to) {
		uint32_t i = from + (to - from) / 2;

		if (memcmp(b->keys[i], key, LINE_KEY) <= 0)
			from = i + 1;
		else
			to = i;
	}
	return from;
}
