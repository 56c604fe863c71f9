/* SPDX-License-Identifier: BSD-3-Clause */
/* The sorted runs of a part of a partition, read as one (SORTED, GROUPED). */
#ifndef WEIR_SHUFFLE_RUNS_H
#define WEIR_SHUFFLE_RUNS_H

#include "format/merge.h"
#include "store.h"

/* A run in memory, read in place. */
struct run_source {
	struct merge_source base;
	const uint8_t *at, *end;
	uint32_t left; /* records */
};

void run_source_init(struct run_source *source, const struct run *run);

struct runs;

/* Opens all runs of the part; the store has all of them. 0 or -errno. */
int runs_open(struct shuffle_thread *t, struct partition *p, uint32_t number, uint32_t part,
	      struct runs **runs);
void runs_close(struct runs *r); /* NULL is allowed */
/* The next record in the order of keys, which stays until the next call; `same`: its key equals
 * that of the one before. As merge_next(). */
int runs_next(struct runs *r, struct weir_record *record, bool *same);

#endif
