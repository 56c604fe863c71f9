/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Entries of 16 bytes are sorted in place of records. A radix sort splits them by partition and
 * prefix, from the highest bit that differs. A merge sort orders short ranges and equal prefixes:
 * it compares least, is stable, and stays inside whatever compare says.
 */
#include "sort.h"

#include "block.h"
#include "ipc/invariant.h"
#include "weir/weir.h"

#include <errno.h>

#define DIGIT_BITS 8u
#define DIGITS (1u << DIGIT_BITS)
#define RADIX_LEAST 48u /* entries; fewer are merged */
#define DEPTH_MOST 32u	/* recursions, 2 KiB of stack each */
#define INSERT_MOST 10u /* entries; more are merged */

struct entry {
	/* 8 bytes of the key, at one place in all keys of a range that is being sorted; if the
	 * program compares, place of the key in the block << 32 | its length */
	uint64_t prefix;
	uint32_t partition;
	uint32_t offset; /* of the record in the block */
};

struct sort {
	const struct key_order *order;
	const uint8_t *raw;
	uint32_t bytes;
};

size_t
sort_memory(uint32_t records)
{
	return 2 * (size_t)records * sizeof(struct entry);
}

static inline size_t
record_at(const struct sort *s, uint32_t offset, struct weir_record *r)
{
	size_t n = record_read(s->raw + offset, s->bytes - offset, r);

	weir_assert(n);
	if (!n) /* not reached: collect() has read it */
		*r = (struct weir_record){.key = s->raw, .value = s->raw};
	return n;
}

static int
compare_keys(const struct sort *s, const struct entry *a, const struct entry *b)
{
	struct weir_record x, y;

	record_at(s, a->offset, &x);
	record_at(s, b->offset, &y);
	return key_compare(s->order, &x, &y);
}

static inline bool
before(const struct sort *s, const struct entry *a, const struct entry *b)
{
	if (a->partition != b->partition)
		return a->partition < b->partition;
	if (s->order->compare)
		return s->order->compare(s->raw + (a->prefix >> 32), (uint32_t)a->prefix,
					 s->raw + (b->prefix >> 32), (uint32_t)b->prefix,
					 s->order->user) < 0;
	if (a->prefix != b->prefix)
		return a->prefix < b->prefix;
	return compare_keys(s, a, b) < 0;
}

static void
insertion_sort(const struct sort *s, struct entry *e, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct entry x = e[i];
		size_t at = i;

		for (; at && before(s, &x, &e[at - 1]); at--)
			e[at] = e[at - 1];
		e[at] = x;
	}
}

/* `other` has room for half of them. */
static void
merge_sort(const struct sort *s, struct entry *e, struct entry *other, size_t n)
{
	size_t half = n / 2, left = 0, right = half, to = 0;

	if (n <= INSERT_MOST) {
		insertion_sort(s, e, n);
		return;
	}
	merge_sort(s, e, other, half);
	merge_sort(s, e + half, other, n - half);
	/* equal keys and sorted ones cost one comparison per range */
	if (!before(s, &e[half], &e[half - 1]))
		return;
	memcpy(other, e, half * sizeof(*e));
	while (left < half && right < n)
		e[to++] = before(s, &e[right], &other[left]) ? e[right++] : other[left++];
	memcpy(e + to, other + left, (half - left) * sizeof(*e));
}

static inline unsigned
digit(const struct entry *e, bool of_partition, unsigned shift)
{
	return (of_partition ? e->partition : e->prefix) >> shift & (DIGITS - 1);
}

/* Takes the prefixes from behind the common beginning of all keys. False: they are still equal. */
static bool
deepen(const struct sort *s, struct entry *e, size_t n)
{
	struct weir_record first, r;
	uint64_t differ = 0;
	uint32_t common;

	record_at(s, e[0].offset, &first);
	common = first.key_length;
	for (size_t i = 1; i < n; i++) {
		const uint8_t *a = first.key, *b;
		uint32_t at = 0;

		record_at(s, e[i].offset, &r);
		b = r.key;
		common = common < r.key_length ? common : r.key_length;
		if (!memcmp(a, b, common))
			continue;
		while (a[at] == b[at])
			at++;
		common = at;
	}
	for (size_t i = 0; i < n; i++) {
		record_at(s, e[i].offset, &r);
		r.key = (const uint8_t *)r.key + common;
		r.key_length -= common;
		e[i].prefix = key_prefix(&r);
		differ |= e[i].prefix ^ e[0].prefix;
	}
	return differ;
}

static void
radix_sort(const struct sort *s, struct entry *e, struct entry *other, size_t n, unsigned depth)
{
	uint64_t partitions = 0, prefixes = 0, differ;
	uint32_t from[DIGITS + 1] = {0}, to[DIGITS];
	unsigned shift;

	for (size_t i = 1; i < n && n >= RADIX_LEAST; i++) {
		partitions |= e[i].partition ^ e[0].partition;
		prefixes |= s->order->compare ? 0 : e[i].prefix ^ e[0].prefix;
	}
	differ = partitions ? partitions : prefixes;
	if (n < RADIX_LEAST || depth == DEPTH_MOST || (!differ && s->order->compare)) {
		merge_sort(s, e, other, n);
		return;
	}
	if (!differ) {
		if (deepen(s, e, n))
			radix_sort(s, e, other, n, depth + 1);
		else
			merge_sort(s, e, other, n);
		return;
	}
	shift = 64 - (unsigned)__builtin_clzll(differ);
	shift = shift > DIGIT_BITS ? shift - DIGIT_BITS : 0;
	for (size_t i = 0; i < n; i++)
		from[digit(&e[i], partitions, shift) + 1]++;
	for (unsigned d = 0; d < DIGITS; d++) {
		to[d] = from[d];
		from[d + 1] += from[d];
	}
	for (size_t i = 0; i < n; i++)
		other[to[digit(&e[i], partitions, shift)]++] = e[i];
	memcpy(e, other, n * sizeof(*e));
	for (unsigned d = 0; d < DIGITS; d++)
		if (from[d + 1] - from[d] > 1)
			radix_sort(s, e + from[d], other, from[d + 1] - from[d], depth + 1);
}

static inline uint64_t
place(const struct sort *s, const struct weir_record *r)
{
	return (uint64_t)((const uint8_t *)r->key - s->raw) << 32 | r->key_length;
}

/* 0 or -EBADMSG. */
static int
collect(const struct block_head *h, const struct sort *s, struct entry *e)
{
	struct block_walk w;
	struct weir_record r;
	uint32_t n = 0;
	int rc;

	block_walk_begin(&w, h, s->raw);
	while (!(rc = block_walk_next(&w))) {
		if (w.fragment.flags & FRAGMENT_OPAQUE)
			return weir_fail(-EBADMSG, "an opaque fragment in a shuffle that sorts");
		for (;;) {
			uint32_t offset = (uint32_t)(w.record - s->raw);

			rc = block_walk_record(&w, &r);
			if (rc)
				break;
			e[n++] = (struct entry){.prefix = s->order->compare ? place(s, &r)
									    : key_prefix(&r),
						.partition = w.fragment.partition,
						.offset = offset};
		}
		if (rc != -ENODATA)
			return rc;
	}
	return rc == -ENODATA ? 0 : rc;
}

static void
write_sorted(const struct sort *s, const struct entry *e, uint32_t n, uint8_t *to,
	     struct block_head *out)
{
	uint8_t *at = to;
	uint32_t pad;

	for (uint32_t i = 0; i < n;) {
		struct fragment_head f = {.partition = e[i].partition};
		uint8_t *head = at;

		at += sizeof(f);
		for (; i < n && e[i].partition == f.partition; i++, f.records++) {
			struct weir_record r;
			size_t size = record_at(s, e[i].offset, &r);

			memcpy(at, s->raw + e[i].offset, size);
			at += size;
		}
		f.bytes = (uint32_t)(at - head - (ptrdiff_t)sizeof(f));
		memcpy(head, &f, sizeof(f));
		pad = pad8(f.bytes) - f.bytes;
		memset(at, 0, pad);
		at += pad;
		out->fragments++;
	}
	out->raw = out->stored = (uint32_t)(at - to);
}

int
sort_block(const struct block_head *h, const void *raw, const struct key_order *order,
	   void *scratch, void *to, struct block_head *out)
{
	struct sort s = {.order = order, .raw = raw, .bytes = h->raw};
	struct entry *e = scratch;
	int rc = collect(h, &s, e);

	weir_assert(h->codec == WEIR_CODEC_NONE);
	if (rc)
		return rc;
	radix_sort(&s, e, e + h->records, h->records, 0);
	*out = *h;
	out->fragments = 0;
	out->flags |= BLOCK_SORTED;
	write_sorted(&s, e, h->records, to, out);
	return 0;
}
