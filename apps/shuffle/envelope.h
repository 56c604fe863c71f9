/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks (lib/shuffle/format/record.h), each in a frame: filled by its producer, read by its
 * consumer. */
#ifndef SHUFFLE_ENVELOPE_H
#define SHUFFLE_ENVELOPE_H

#include "inbox.h"

struct envelope {
	struct chunk *chunk; /* NULL: no record yet */
	uint32_t fragment;   /* offset of the head of the open fragment */
	uint32_t partition;  /* of it */
	uint32_t records, fragments;
	uint32_t filled; /* bytes of the chunk, without padding */
};

/* Adds a record; a block ends at `block` bytes, unless it has only one. 0; -ENOSPC: no room, close
 * the envelope first; -ENOMEM. */
int envelope_add(struct envelope *e, uint32_t partition, const struct weir_record *r,
		 uint32_t block);
/* Completes the block and empties the envelope. The chunk has one frame, and belongs to the caller;
 * NULL: there is no record. A copy of the envelope from before stands for it if the block could not
 * leave: the chunk goes back into it, and it is filled on. */
struct chunk *envelope_close(struct envelope *e, uint64_t word, uint64_t producer,
			     struct frame_head frame);

/* Reads a block of a peer, each byte of which is checked. */
struct block_reader {
	const uint8_t *at, *end;
	const uint8_t *fragment_end; /* without the padding */
	uint32_t fragments;	     /* left */
	uint32_t records;	     /* left in the fragment */
	uint32_t all;		     /* left in the block */
	uint32_t partition;
};

/* 0, or -EBADMSG and weir_reason(). */
int block_open(struct block_reader *b, const uint8_t *block, size_t length, uint64_t word);
/* 0; -ENODATA: none left; -EBADMSG and weir_reason(). */
int block_next(struct block_reader *b, struct weir_record *r);

#endif
