/* SPDX-License-Identifier: BSD-3-Clause */
/* Order of keys, and the sort of a block by it. */
#ifndef WEIR_SHUFFLE_SORT_H
#define WEIR_SHUFFLE_SORT_H

#include "record.h"

/* The order of a shuffle: options.compare, or NULL: as memcmp(), shorter keys first. */
struct key_order {
	int (*compare)(const void *a, uint32_t a_length, const void *b, uint32_t b_length,
		       void *user);
	void *user;
};

static inline int
key_compare(const struct key_order *o, const struct weir_record *a, const struct weir_record *b)
{
	uint32_t n = a->key_length < b->key_length ? a->key_length : b->key_length;
	int order;

	if (o->compare)
		return o->compare(a->key, a->key_length, b->key, b->key_length, o->user);
	order = n ? memcmp(a->key, b->key, n) : 0;
	return order ? order : (a->key_length > b->key_length) - (a->key_length < b->key_length);
}

/* The first 8 bytes of a key as a number; shorter keys end with zeros. Different prefixes order as
 * memcmp() does; equal ones leave the order open. */
static inline uint64_t
key_prefix(const struct weir_record *r)
{
	const uint8_t *key = r->key;
	uint64_t prefix = 0;

	if (r->key_length >= 8) {
		memcpy(&prefix, key, 8);
		return __builtin_bswap64(prefix);
	}
	for (uint32_t i = 0; i < r->key_length; i++)
		prefix |= (uint64_t)key[i] << (56 - 8 * i);
	return prefix;
}

/* Bytes of scratch memory for sort_block(), aligned to 8. */
size_t sort_memory(uint32_t records);

/*
 * Sorts the records of a block, which has passed block_check() and is not compressed, by partition
 * and key, equal ones as they were. Writes one fragment per partition to `to`, which has room for
 * pad8(h->raw) bytes, and its head, but for the checksum, to `out`. `scratch` has
 * sort_memory(h->records) bytes. A compare function that contradicts itself spoils the order alone.
 *
 * Returns 0, or -EBADMSG: the block is malformed or has opaque fragments.
 */
int sort_block(const struct block_head *h, const void *raw, const struct key_order *order,
	       void *scratch, void *to, struct block_head *out);

#endif
