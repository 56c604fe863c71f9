/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays whose buffers lie in a block that a peer has written. */
#ifndef WEIR_SHUFFLE_ARROW_READ_H
#define WEIR_SHUFFLE_ARROW_READ_H

#include "type.h"

/*
 * Reads the schema of a block, or compares it with `known`, if there is one. Returns 0, -EBADMSG,
 * -EINVAL: another schema, or -ENOMEM.
 */
int arrow_read_schema(const struct weir_block *b, const struct arrow_schema *known,
		      struct arrow_schema **schema);

/*
 * Makes the arrays of a block of this schema, for which arrow_read_schema() has returned 0. The
 * last release of one returns the block to the shuffle, from any thread. Returns 0, or -EBADMSG or
 * -ENOMEM: the block is still the caller's.
 */
int arrow_read(const struct arrow_schema *s, struct weir_shuffle *shuffle,
	       const struct weir_block *b, struct ArrowArray *out);

#endif
