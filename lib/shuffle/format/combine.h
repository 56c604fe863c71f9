/* SPDX-License-Identifier: BSD-3-Clause */
/* The program's combiner, applied to records of equal keys. */
#ifndef WEIR_SHUFFLE_COMBINE_H
#define WEIR_SHUFFLE_COMBINE_H

#include "sort.h"

#define COMBINE_RUN 256u /* records of one call from combine_block() */

struct combiner {
	int (*combine)(const struct weir_record *r, size_t n, struct weir_emit *out, void *user);
	struct key_order order; /* `user` is the combiner's too */
};

/* Records as combiners write them. All 0 but `most` at first; emit_free() at the end. */
struct weir_emit {
	uint8_t *bytes;	   /* records in the format of a fragment */
	size_t length;	   /* bytes */
	size_t room, most; /* bytes: allocated, and at most to be */
	uint32_t records;
	/* of the call of the combiner that runs */
	const struct combiner *combiner;
	const struct weir_record *of; /* a record of the run */
	int rc;			      /* the first failure */
};

void emit_free(struct weir_emit *e);

/*
 * Applies the combiner to n records of one key, and adds its output to `e`. Returns 0, or the first
 * failure, and `e` is as before: -ENOMEM: no memory, or more than e->most; -EINVAL: it emitted
 * another key or a record above WEIR_RECORD_MAX; errors of the program's function.
 */
int combine_run(const struct combiner *c, const struct weir_record *r, size_t n,
		struct weir_emit *e);

/*
 * Combines the equal keys of a sorted block, at most COMBINE_RUN records at once; a key with one
 * record is copied. The output replaces what `e` holds; `out` is its head, but for the checksum. As
 * combine_run(), or -EBADMSG; `e` is empty then.
 */
int combine_block(const struct combiner *c, const struct block_head *h, const void *sorted,
		  struct weir_emit *e, struct block_head *out);

#endif
