/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The block of bytes that carries rows of a record batch. Little-endian.
 *
 * A head, the image of the schema (type.h), at the next multiple of 8 bytes one arrow_node per type
 * in the schema's order, then the buffers in the same order, each at a multiple of 64 bytes from
 * the block's begin. Nothing says where a buffer lies or how long it is: both follow from lengths
 * and offsets, so there is nothing to contradict them. An array has a bitmap of valid elements, if
 * any is null; fixed width: the elements; boolean: a bitmap; bytes: length + 1 offsets from 0 on,
 * and the bytes up to the last one; lists: length + 1 offsets from 0 on; the array of elements ends
 * at the last one; and an array of type null has none. The last buffer ends the block, but zeroes
 * follow where the block would have fewer bytes than rows: a shuffle takes no such blocks, and its
 * readers' memory is bounded by what has arrived.
 */
#ifndef WEIR_SHUFFLE_ARROW_BLOCK_H
#define WEIR_SHUFFLE_ARROW_BLOCK_H

#include "shuffle/format/public.h"

#include <stdint.h>

#define ARROW_MAGIC 0x42524157u /* "WARB" */
#define ARROW_VERSION 1u
#define ARROW_ALIGN 64u
/* Elements of an array in a block. Bounds arrays that take no bytes, for instance of nulls. */
#define ARROW_LENGTH_MAX WEIR_RECORD_MAX

struct arrow_head {
	uint32_t magic, version;
	uint32_t bytes;	 /* of the block */
	uint32_t schema; /* bytes of the image */
	uint32_t nodes;
	uint32_t zero[3];
};
_Static_assert(sizeof(struct arrow_head) == 32, "format");

struct arrow_node {
	uint32_t length; /* elements; of the first node: rows */
	uint32_t nulls;	 /* of them */
};
_Static_assert(sizeof(struct arrow_node) == 8, "format");

static inline uint64_t
arrow_align(uint64_t at)
{
	return (at + ARROW_ALIGN - 1) & ~(uint64_t)(ARROW_ALIGN - 1);
}

/* Bytes of a block whose last buffer ends there. */
static inline uint64_t
arrow_length(uint64_t end, uint64_t rows)
{
	return end > rows ? end : rows;
}

/* Bytes of a bitmap of n bits. */
static inline uint64_t
arrow_bitmap(uint64_t n)
{
	return (n + 7) / 8;
}

static inline bool
arrow_bit(const uint8_t *bits, uint64_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

#endif
