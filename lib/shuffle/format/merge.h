/* SPDX-License-Identifier: BSD-3-Clause */
/* Merge of sorted runs of one partition. */
#ifndef WEIR_SHUFFLE_MERGE_H
#define WEIR_SHUFFLE_MERGE_H

#include "sort.h"

#define MERGE_SOURCES_MAX 256u

/* A run, which its owner embeds. next() returns a record, which stays until the next call: 0;
 * -ENODATA: the end, and it is not called again; or an error. */
struct merge_source {
	int (*next)(struct merge_source *s, struct weir_record *r);
};

struct merge;

/* Bytes of a merge of n sources, without the copy of a key. */
size_t merge_memory(unsigned n);

/* Opens a merge of at most MERGE_SOURCES_MAX sources, which outlive it. 0 or -ENOMEM. */
int merge_open(const struct key_order *order, struct merge_source *const *sources, unsigned n,
	       struct merge **merge);
void merge_close(struct merge *m); /* NULL is allowed */

/*
 * Returns the next record, those of equal keys by the number of their source. It stays until the
 * next call. `same`, if not NULL: its key equals that of the record before.
 *
 * Returns 0; -ENODATA: the end; -EINVAL: the program's compare contradicts itself; -EBADMSG: a
 * source does not ascend as memcmp() does; -ENOMEM: for the copy of a key; errors of the sources.
 * After an error it returns that again.
 */
int merge_next(struct merge *m, struct weir_record *r, bool *same);

#endif
