/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks as a peer or a file delivers them: every number is checked before its use. */
#ifndef WEIR_SHUFFLE_BLOCK_H
#define WEIR_SHUFFLE_BLOCK_H

#include "record.h"

/* The checksum of h->stored bytes. */
uint64_t block_checksum(const struct block_head *h, const void *stored);

/*
 * Checks a head and the `length` bytes behind it. 0, or -EBADMSG with map, attempt and number in
 * the text. The head itself has no checksum: shuffle, map, attempt, number and producer are the
 * caller's to check.
 */
int block_check(const struct block_head *h, const void *stored, size_t length);

/* Reads fragments and records in place. */
struct block_walk {
	const struct block_head *head;
	struct fragment_head fragment; /* the current one */
	const uint8_t *bytes;	       /* of it: fragment.bytes of records, or of the program */
	/* the rest is private */
	const uint8_t *record;	     /* the next one of the fragment */
	const uint8_t *next, *end;   /* fragment, block */
	uint32_t fragments, records; /* of the block that are still to come */
	uint32_t in_fragment;	     /* records of it that are still to come */
};

/* Begins at the h->raw bytes at `raw`, of a head that has passed block_check(). Both have to stay
 * until the walk's end. */
void block_walk_begin(struct block_walk *w, const struct block_head *h, const void *raw);

/*
 * Steps to the next fragment, whether or not all records of this one have been read: 0; -ENODATA:
 * the end, and the block has the fragments and records that its head announced; -EBADMSG. The
 * caller checks the partition. In a sorted block partitions ascend.
 */
int block_walk_next(struct block_walk *w);

/* Returns the next record of the fragment, which lies in the block: 0; -ENODATA: the end, and the
 * records have filled the fragment; -EBADMSG. An opaque fragment has none. */
int block_walk_record(struct block_walk *w, struct weir_record *r);

#endif
