/* SPDX-License-Identifier: BSD-3-Clause */
#include "envelope.h"

#include "shuffle/format/record.h"

#include <errno.h>
#include <xxhash.h>

#define FRAME ((uint32_t)sizeof(struct frame_head))
#define HEADS (FRAME + (uint32_t)sizeof(struct block_head))
#define FRAGMENT ((uint32_t)sizeof(struct fragment_head))

static struct fragment_head *
open_fragment(struct envelope *e)
{
	return (struct fragment_head *)(void *)(e->chunk->data + e->fragment);
}

/* Offset behind the last fragment, padded. */
static uint32_t
end_of(struct envelope *e)
{
	return FRAME + pad8(e->filled - FRAME);
}

static void
begin_fragment(struct envelope *e, uint32_t partition)
{
	struct chunk *c = e->chunk;
	uint32_t at = end_of(e);

	memset(c->data + e->filled, 0, at - e->filled);
	e->fragment = at;
	e->partition = partition;
	e->fragments++;
	e->filled = at + FRAGMENT;
	*open_fragment(e) = (struct fragment_head){.partition = partition};
}

int
envelope_add(struct envelope *e, uint32_t partition, const struct weir_record *r, uint32_t block)
{
	uint32_t size = record_size(r->key_length, r->value_length), more = size;
	bool fresh = !e->chunk || e->partition != partition;

	if (fresh && e->chunk)
		more += end_of(e) + FRAGMENT - e->filled;
	/* 8: padding of the end */
	if (e->chunk && e->chunk->room - 8 - e->filled < more)
		return -ENOSPC;
	if (!e->chunk) {
		uint32_t room = HEADS + FRAGMENT + size;

		e->chunk = chunk_new((room < FRAME + block ? FRAME + block : room) + 8);
		if (!e->chunk)
			return -ENOMEM;
		e->filled = HEADS;
		e->records = e->fragments = 0;
	}
	if (fresh)
		begin_fragment(e, partition);
	record_write(e->chunk->data + e->filled, r);
	e->filled += size;
	open_fragment(e)->records++;
	open_fragment(e)->bytes += size;
	e->records++;
	return 0;
}

struct chunk *
envelope_close(struct envelope *e, uint64_t word, uint64_t producer, struct frame_head frame)
{
	struct chunk *c = e->chunk;
	uint32_t at, stored;
	struct block_head head;

	if (!c)
		return NULL;
	at = end_of(e);
	memset(c->data + e->filled, 0, at - e->filled);
	c->used = at;
	stored = at - HEADS;
	head = (struct block_head){.shuffle = word,
				   .fragments = e->fragments,
				   .records = e->records,
				   .stored = stored,
				   .raw = stored,
				   .checksum = XXH3_64bits_withSeed(c->data + HEADS, stored, word),
				   .producer = producer};
	frame.bytes = at - FRAME;
	memcpy(c->data, &frame, FRAME);
	memcpy(c->data + FRAME, &head, sizeof(head));
	e->chunk = NULL;
	return c;
}

static int
malformed(const char *fault)
{
	return weir_fail(-EBADMSG, "a block of a peer is invalid: %s; see its output", fault);
}

int
block_open(struct block_reader *b, const uint8_t *block, size_t length, uint64_t word)
{
	struct block_head head;

	if (length < sizeof(head))
		return malformed("it is shorter than its head");
	memcpy(&head, block, sizeof(head));
	if (head.shuffle != word || head.codec || head.flags || head.zero || head.epoch ||
	    head.zeros)
		return malformed("its head");
	if (head.stored != length - sizeof(head) || head.raw != head.stored || head.stored % 8)
		return malformed("its length");
	if (XXH3_64bits_withSeed(block + sizeof(head), head.stored, word) != head.checksum)
		return malformed("its checksum");
	*b = (struct block_reader){.at = block + sizeof(head),
				   .end = block + length,
				   .fragment_end = block + sizeof(head),
				   .fragments = head.fragments,
				   .all = head.records};
	return 0;
}

static int
next_fragment(struct block_reader *b)
{
	struct fragment_head head;

	if (b->at != b->fragment_end)
		return malformed("bytes behind the records of a fragment");
	b->at = b->end - ((size_t)(b->end - b->at) & ~(size_t)7);
	if (!b->fragments)
		return b->all || b->at != b->end ? malformed("its number of records") : -ENODATA;
	if ((size_t)(b->end - b->at) < sizeof(head))
		return malformed("a fragment lacks its head");
	memcpy(&head, b->at, sizeof(head));
	b->at += sizeof(head);
	if (head.flags || head.bytes > (size_t)(b->end - b->at) || head.records > b->all ||
	    !head.records)
		return malformed("a fragment is longer than the block");
	b->fragments--;
	b->all -= head.records;
	b->records = head.records;
	b->partition = head.partition;
	b->fragment_end = b->at + head.bytes;
	return 0;
}

int
block_next(struct block_reader *b, struct weir_record *r)
{
	size_t n;
	int rc;

	if (!b->records) {
		rc = next_fragment(b);
		if (rc)
			return rc;
	}
	n = record_read(b->at, (size_t)(b->fragment_end - b->at), r);
	if (!n)
		return malformed("a record");
	b->at += n;
	b->records--;
	return 0;
}
