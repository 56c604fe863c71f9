/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A block of a shuffle from a peer: what passes the checks is read within its bytes, record by
 * record, and gives the fragments and records that its head announces. Lengths and the checksum are
 * made right, since a peer can do that. The first byte tells what else is.
 */
#include "fuzz.h"

#include "shuffle/format/block.h"
#include "shuffle/format/codec.h"

#include <errno.h>
#include <string.h>

#define LONG_BLOCK (1u << 20) /* unpacking longer ones takes the time of many others */

enum right { RIGHT_RAW = 0x1, RIGHT_CODEC = 0x2, RIGHT_FLAGS = 0x4 };

static struct codec_tools tools;

/* Copies `length` bytes to memory that ends with them, so that a read beyond it is seen. */
static uint8_t *
exact(const void *bytes, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);

	require(copy);
	if (length)
		memcpy(copy, bytes, length);
	return copy;
}

/* The sum of the record's bytes, which reads each. */
static uint64_t
touch(const struct weir_record *r)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < r->key_length; i++)
		sum += ((const uint8_t *)r->key)[i];
	for (uint32_t i = 0; i < r->value_length; i++)
		sum += ((const uint8_t *)r->value)[i];
	return sum;
}

static void
walk(const struct block_head *h, const uint8_t *raw)
{
	uint32_t fragments = 0, records = 0;
	struct weir_record r;
	struct block_walk w;
	int rc, of_records;

	block_walk_begin(&w, h, raw);
	while (!(rc = block_walk_next(&w))) {
		uint32_t before = records;

		require(w.bytes >= raw && w.fragment.bytes <= (size_t)(raw + h->raw - w.bytes));
		fragments++;
		while (!(of_records = block_walk_record(&w, &r))) {
			require(touch(&r) >> 48 == 0);
			records++;
		}
		require(of_records == -ENODATA || of_records == -EBADMSG);
		if (of_records == -EBADMSG)
			return;
		if (w.fragment.flags & FRAGMENT_OPAQUE)
			records += w.fragment.records;
		require(records - before == w.fragment.records);
	}
	require(rc == -ENODATA || rc == -EBADMSG);
	if (rc == -ENODATA)
		require(fragments == h->fragments && records == h->records);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct block_head h;
	uint8_t *stored, *raw;

	if (size < 1 + sizeof(h))
		return 0;
	memcpy(&h, data + 1, sizeof(h));
	h.stored = (uint32_t)(size - 1 - sizeof(h));
	if (data[0] & RIGHT_CODEC)
		h.codec %= WEIR_CODEC_ZSTD + 1;
	if (data[0] & RIGHT_FLAGS)
		h.flags &= BLOCK_SORTED;
	if (data[0] & RIGHT_RAW && !h.codec)
		h.raw = h.stored;
	stored = exact(data + 1 + sizeof(h), h.stored);
	h.checksum = block_checksum(&h, stored);
	if (!block_check(&h, stored, h.stored)) {
		if (!h.codec) {
			walk(&h, stored);
		} else if (h.raw <= LONG_BLOCK) {
			raw = calloc(h.raw ? h.raw : 1, 1);
			require(raw);
			if (!codec_unpack(&tools, h.codec, stored, h.stored, raw, h.raw))
				walk(&h, raw);
			free(raw);
		}
	}
	free(stored);
	return 0;
}
