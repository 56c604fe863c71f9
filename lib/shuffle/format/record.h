/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks and their records, the same image in memory, on the wire and in a file. Little-endian.
 *
 * A block is a head and fragments, each of which begins at a multiple of 8 bytes: a head, then
 * records of one partition, or bytes of the program. A record is the length of its key, the length
 * of its value, both as compact numbers (7 bits per byte, lowest first, at most 5 bytes), the key
 * and the value. Fragments may be compressed together; the checksum is that of the bytes as stored.
 */
#ifndef WEIR_SHUFFLE_RECORD_H
#define WEIR_SHUFFLE_RECORD_H

#include "public.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct block_head {
	uint64_t shuffle; /* random word of the shuffle */
	uint32_t map, attempt;
	uint32_t number;    /* of the block in its attempt, for its consumer thread; from 0 */
	uint32_t fragments; /* number */
	uint32_t records;
	uint32_t stored; /* bytes behind the head */
	uint32_t raw;	 /* the same when decompressed */
	uint8_t codec;	 /* enum weir_codec */
	uint8_t flags;	 /* BLOCK_* */
	uint16_t zero;
	uint64_t checksum; /* XXH3 of the stored bytes, seeded with `shuffle` */
	uint64_t producer; /* process << 32 | thread */
	uint32_t epoch;	   /* of the partitions' owners, when the attempt began */
	uint32_t zeros;
};
_Static_assert(sizeof(struct block_head) == 64, "format");
#define BLOCK_SORTED 0x1u /* by partition, then key; one fragment per partition */
/* More than a record of the maximum, for which a block of its own is made. */
#define BLOCK_RAW_MAX (WEIR_RECORD_MAX + 64u)

struct fragment_head {
	uint32_t partition; /* UINT32_MAX: of the thread, weir_map_put_to() */
	uint32_t records;
	uint32_t bytes; /* behind the head, without padding to 8 */
	uint32_t flags; /* FRAGMENT_* */
};
_Static_assert(sizeof(struct fragment_head) == 16, "format");
#define FRAGMENT_OPAQUE 0x1u /* bytes of weir_map_put_block() */

#define COMPACT_MAX 5u /* bytes */

static inline uint32_t
pad8(uint32_t n)
{
	return (n + 7u) & ~7u;
}

static inline uint32_t
compact_size(uint32_t n)
{
	return n < 1u << 7 ? 1 : n < 1u << 14 ? 2 : n < 1u << 21 ? 3 : n < 1u << 28 ? 4 : 5;
}

/* Writes n at `to`. Bytes written. */
static inline uint32_t
compact_write(uint8_t *to, uint32_t n)
{
	uint32_t i = 0;

	for (; n >= 0x80; n >>= 7)
		to[i++] = (uint8_t)(n | 0x80);
	to[i++] = (uint8_t)n;
	return i;
}

/* Reads a number from at most `room` bytes. Bytes read; 0: malformed. */
static inline uint32_t
compact_read(const uint8_t *from, size_t room, uint32_t *n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < COMPACT_MAX && i < room; i++) {
		uint8_t byte = from[i];

		sum |= (uint64_t)(byte & 0x7f) << 7 * i;
		if (byte & 0x80)
			continue;
		*n = (uint32_t)sum;
		return sum <= UINT32_MAX ? i + 1 : 0;
	}
	return 0;
}

/* Bytes of a record in a fragment; the lengths are at most WEIR_RECORD_MAX together. */
static inline uint32_t
record_size(uint32_t key_length, uint32_t value_length)
{
	return compact_size(key_length) + compact_size(value_length) + key_length + value_length;
}

/* Writes record_size() bytes. Returns the byte behind them. */
static inline uint8_t *
record_write(uint8_t *to, const struct weir_record *r)
{
	to += compact_write(to, r->key_length);
	to += compact_write(to, r->value_length);
	if (r->key_length)
		memcpy(to, r->key, r->key_length);
	to += r->key_length;
	if (r->value_length)
		memcpy(to, r->value, r->value_length);
	return to + r->value_length;
}

/* Reads a record from at most `room` bytes, which a peer has written; it points into them. Bytes
 * read; 0: malformed. */
static inline size_t
record_read(const uint8_t *from, size_t room, struct weir_record *r)
{
	uint32_t key, value, n, m;

	n = compact_read(from, room, &key);
	m = n ? compact_read(from + n, room - n, &value) : 0;
	if (!m || (uint64_t)key + value > WEIR_RECORD_MAX || (uint64_t)key + value > room - n - m)
		return 0;
	*r = (struct weir_record){.key = from + n + m,
				  .value = from + n + m + key,
				  .key_length = key,
				  .value_length = value};
	return (size_t)n + m + key + value;
}

#endif
