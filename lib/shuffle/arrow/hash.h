/* SPDX-License-Identifier: BSD-3-Clause */
/* Partitions of rows by a hash of columns. */
#ifndef WEIR_SHUFFLE_ARROW_CORE_HASH_H
#define WEIR_SHUFFLE_ARROW_CORE_HASH_H

#include "type.h"

/* Adds column `key` to the hash of each row, which is 0 at first. `rows` has been checked. */
void arrow_hash(const struct arrow_schema *s, const struct ArrowArray *rows, uint32_t key,
		uint64_t *hash);

static inline uint32_t
arrow_partition(uint64_t hash, uint32_t partitions)
{
	return (uint32_t)((hash >> 32) * partitions >> 32);
}

#endif
