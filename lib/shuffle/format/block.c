/* SPDX-License-Identifier: BSD-3-Clause */
#include "block.h"

#include "ipc/invariant.h"
#include "weir/weir.h"

#include <errno.h>
#include <xxhash.h>

#define RECORD_LEAST 2u /* bytes: two lengths of 0 */

static int
lie(const struct block_head *h, const char *fault)
{
	return weir_fail(-EBADMSG, "block %u of map %u, attempt %u, from process %u: %s", h->number,
			 h->map, h->attempt, (uint32_t)(h->producer >> 32), fault);
}

uint64_t
block_checksum(const struct block_head *h, const void *stored)
{
	return XXH3_64bits_withSeed(stored, h->stored, h->shuffle);
}

int
block_check(const struct block_head *h, const void *stored, size_t length)
{
	if (h->stored != length)
		return lie(h, "its length differs from that of its head");
	if (h->codec > WEIR_CODEC_ZSTD || h->flags & ~BLOCK_SORTED || h->zero || h->zeros)
		return lie(h, "unknown codec or flag");
	if (h->raw > BLOCK_RAW_MAX)
		return lie(h, "longer than a record can be");
	if (h->codec == WEIR_CODEC_NONE ? h->raw != h->stored : h->raw <= h->stored || !h->stored)
		return lie(h, "impossible sizes");
	if (h->fragments > h->raw / sizeof(struct fragment_head) || h->records > h->raw)
		return lie(h, "more fragments or records than it has room for");
	if (h->checksum != block_checksum(h, stored))
		return lie(h, "wrong checksum");
	return 0;
}

void
block_walk_begin(struct block_walk *w, const struct block_head *h, const void *raw)
{
	*w = (struct block_walk){.head = h,
				 .next = raw,
				 .end = (const uint8_t *)raw + h->raw,
				 .fragments = h->fragments,
				 .records = h->records};
}

/* Where the next fragment begins, of bytes that end at `at`, or NULL: there are other bytes than 0
 * in between. The last fragment may end with its bytes. */
static const uint8_t *
padding_end(const struct block_walk *w, const uint8_t *at, uint32_t bytes)
{
	uint32_t pad = pad8(bytes) - bytes;

	if (at == w->end)
		return at;
	if (pad > (size_t)(w->end - at))
		return NULL;
	for (; pad; pad--)
		if (*at++)
			return NULL;
	return at;
}

int
block_walk_next(struct block_walk *w)
{
	const uint8_t *bytes = w->next + sizeof(struct fragment_head), *next;
	struct fragment_head f;
	bool opaque;

	if (w->next == w->end)
		return w->fragments || w->records
			   ? lie(w->head, "fewer fragments or records than its head says")
			   : -ENODATA;
	if (!w->fragments || (size_t)(w->end - w->next) < sizeof(f))
		return lie(w->head, "more fragments than its head says");
	memcpy(&f, w->next, sizeof(f));
	opaque = f.flags & FRAGMENT_OPAQUE;
	if (f.flags & ~FRAGMENT_OPAQUE)
		return lie(w->head, "unknown flag of a fragment");
	if (f.bytes > (size_t)(w->end - bytes) ||
	    !(next = padding_end(w, bytes + f.bytes, f.bytes)))
		return lie(w->head, "a fragment beyond its end, or padding that is not zero");
	if (f.records > w->records || (!opaque && f.records > f.bytes / RECORD_LEAST))
		return lie(w->head, "more records than announced or than there is room for");
	if (w->head->flags & BLOCK_SORTED &&
	    (opaque || (w->bytes && f.partition <= w->fragment.partition)))
		return lie(w->head, "sorted, but its partitions do not ascend");
	w->fragment = f;
	w->record = w->bytes = bytes;
	w->next = next;
	w->fragments--;
	w->records -= f.records;
	w->in_fragment = opaque ? 0 : f.records;
	return 0;
}

int
block_walk_record(struct block_walk *w, struct weir_record *r)
{
	size_t room, n;

	weir_assert(w->bytes);
	if (w->fragment.flags & FRAGMENT_OPAQUE)
		return -ENODATA;
	room = w->fragment.bytes - (size_t)(w->record - w->bytes);
	if (!w->in_fragment)
		return room ? lie(w->head, "bytes behind a fragment's records") : -ENODATA;
	n = record_read(w->record, room, r);
	if (!n)
		return lie(w->head, "a record beyond its fragment");
	w->record += n;
	w->in_fragment--;
	return 0;
}
