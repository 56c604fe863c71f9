/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of peers: what is written is read; each corrupted byte of head and content is refused or
 * read within the block. Blocks lie in memory that ends with them, for sanitizers.
 */
#include "chance.h"
#include "worlds/test.h"

#include "shuffle/format/block.h"
#include "weir/weir.h"

#define RECORDS_MAX 64u

/* A block and what was written. */
struct sample {
	struct block_head h;
	uint8_t bytes[16384];
	uint32_t fragments;
	struct fragment_head fragment[RECORDS_MAX];
	uint32_t records;
	struct weir_record record[RECORDS_MAX];
};

static const uint8_t content[512] = "any bytes that keys and values consist of";

static void
seal(struct sample *s)
{
	s->h.stored = s->h.raw;
	s->h.checksum = block_checksum(&s->h, s->bytes);
}

static void
fill(struct sample *s, bool sorted, bool pad_last)
{
	uint8_t *at = s->bytes;
	uint32_t partition = 0;

	memset(s, 0, sizeof(*s));
	s->h = (struct block_head){.shuffle = draw(),
				   .map = 3,
				   .attempt = 1,
				   .number = 7,
				   .producer = 5ull << 32,
				   .flags = sorted ? BLOCK_SORTED : 0};
	for (uint32_t n = draw() % 6; s->fragments < n;) {
		struct fragment_head *f = &s->fragment[s->fragments++];
		uint8_t *begin = at + sizeof(*f), *end = begin;

		partition += sorted + draw() % 3;
		*f = (struct fragment_head){.partition = partition};
		if (!sorted && draw() % 4 == 0) {
			f->flags = FRAGMENT_OPAQUE;
			f->records = 4;
			end += 1 + draw() % 100;
			memcpy(begin, content, (size_t)(end - begin));
		}
		for (uint32_t k = draw() % 8; !f->flags && f->records < k; f->records++) {
			struct weir_record *r = &s->record[s->records++];

			*r = (struct weir_record){.key = content,
						  .value = content + 7,
						  .key_length = draw() % 12,
						  .value_length = draw() % 150};
			end = record_write(end, r);
		}
		f->bytes = (uint32_t)(end - begin);
		memcpy(at, f, sizeof(*f));
		at = begin + pad8(f->bytes);
		s->h.records += f->records;
		s->h.raw = (uint32_t)((s->fragments == n && !pad_last ? end : at) - s->bytes);
	}
	s->h.fragments = s->fragments;
	seal(s);
}

static bool
same(const struct weir_record *a, const struct weir_record *b)
{
	return a->key_length == b->key_length && a->value_length == b->value_length &&
	       !memcmp(a->key, b->key, a->key_length) &&
	       !memcmp(a->value, b->value, a->value_length);
}

/* Reads all, which is as written in `s`, if not NULL. 0 or -EBADMSG. */
static int
read_all(const struct block_head *h, const uint8_t *bytes, const struct sample *s)
{
	uint32_t fragments = 0, records = 0;
	struct block_walk w;
	struct weir_record r;
	int rc;

	block_walk_begin(&w, h, bytes);
	while (!(rc = block_walk_next(&w))) {
		assert_true(w.bytes + w.fragment.bytes <= bytes + h->raw);
		assert_true(!s ||
			    !memcmp(&w.fragment, &s->fragment[fragments], sizeof(w.fragment)));
		fragments++;
		while (!(rc = block_walk_record(&w, &r))) {
			assert_true(!s || same(&r, &s->record[records]));
			assert_true((const uint8_t *)r.value + r.value_length <= bytes + h->raw);
			records++;
		}
		if (rc != -ENODATA)
			return rc;
	}
	assert_true(rc == -ENODATA || rc == -EBADMSG);
	assert_true(!s || (fragments == s->fragments && records == s->records));
	return rc == -ENODATA ? 0 : rc;
}

/* 0 or -EBADMSG of block_check() and of reading. */
static int
take(const struct sample *s, const struct sample *model)
{
	uint8_t *bytes = malloc(s->h.raw ? s->h.raw : 1);
	int rc;

	memcpy(bytes, s->bytes, s->h.raw);
	rc = block_check(&s->h, bytes, s->h.raw);
	assert_true(!rc || rc == -EBADMSG);
	if (!rc)
		rc = read_all(&s->h, bytes, model);
	free(bytes);
	return rc;
}

TEST(written_and_read)
{
	struct sample s;

	new_seed();
	for (unsigned i = 0; i < 20000; i++) {
		fill(&s, i & 1, i & 2);
		assert_int_equal(take(&s, &s), 0);
	}
}

/* A reader may leave records of a fragment, which is then not checked; the sums are. */
TEST(fragments_alone)
{
	struct block_walk w;
	struct sample s;
	uint32_t n;

	new_seed();
	for (unsigned i = 0; i < 1000; i++) {
		fill(&s, false, true);
		block_walk_begin(&w, &s.h, s.bytes);
		for (n = 0; !block_walk_next(&w); n++)
			assert_memory_equal(&w.fragment, &s.fragment[n], sizeof(w.fragment));
		assert_int_equal(n, s.fragments);
	}
}

/* Each value of each byte of a head. */
TEST(corrupt_head)
{
	uint8_t head[sizeof(struct block_head)];
	struct sample s, bad;
	unsigned unseen = 0;

	new_seed();
	do
		fill(&s, false, true);
	while (s.h.fragments < 2);
	for (unsigned i = 0; i < sizeof(head); i++)
		for (unsigned value = 1; value < 256; value++) {
			bad = s;
			memcpy(head, &s.h, sizeof(head));
			head[i] ^= (uint8_t)value;
			memcpy(&bad.h, head, sizeof(head));
			if (block_check(&bad.h, bad.bytes, s.h.stored)) {
				assert_non_null(strstr(weir_reason(), "of map "));
				continue;
			}
			unseen++;
			/* map, attempt, number, producer and epoch are the caller's; fragments,
			 * records are found by the walk; sorted, as it happens, may be true */
			assert_true((i >= 8 && i < 28) || (i >= 48 && i < 60) || i == 37);
			if (i >= 20 && i < 28)
				assert_int_equal(read_all(&bad.h, bad.bytes, NULL), -EBADMSG);
		}
	assert_true(unseen > 0);
}

TEST(corrupt_content)
{
	struct sample s, bad;

	new_seed();
	for (unsigned n = 0; n < 40; n++) {
		fill(&s, n & 1, n & 2);
		for (uint32_t i = 0; i < s.h.raw; i++)
			for (unsigned bit = 0; bit < 8; bit++) {
				bad = s;
				bad.bytes[i] ^= (uint8_t)(1u << bit);
				assert_int_equal(take(&bad, NULL), -EBADMSG);
				assert_non_null(strstr(weir_reason(), "wrong checksum"));
				/* a peer that lies computes the checksum itself */
				seal(&bad);
				take(&bad, NULL);
			}
		/* cut, and longer */
		for (uint32_t raw = 0; raw <= s.h.raw + 8; raw++) {
			bad = s;
			bad.h.raw = raw;
			seal(&bad);
			if (raw != s.h.raw && (raw < s.h.raw - 7 || raw > pad8(s.h.raw)))
				assert_int_equal(take(&bad, NULL), -EBADMSG);
			else
				take(&bad, NULL);
		}
	}
}

/* One fragment with records of 1 + 1 + 3 + 4 bytes; the test changes one thing. */
static struct sample *
simple(uint32_t records)
{
	static struct sample s;
	struct weir_record r = {content, content, 3, 4};
	uint8_t *at = s.bytes + sizeof(struct fragment_head);

	memset(&s, 0, sizeof(s));
	for (uint32_t i = 0; i < records; i++)
		at = record_write(at, &r);
	s.fragment[0] = (struct fragment_head){.records = records, .bytes = 9 * records};
	memcpy(s.bytes, &s.fragment[0], sizeof(struct fragment_head));
	s.h =
	    (struct block_head){.fragments = 1, .records = records, .raw = 16 + pad8(9 * records)};
	seal(&s);
	assert_int_equal(take(&s, NULL), 0);
	return &s;
}

static void
refused(struct sample *s, const char *why)
{
	memcpy(s->bytes, &s->fragment[0], sizeof(struct fragment_head));
	seal(s);
	assert_int_equal(take(s, NULL), -EBADMSG);
	if (!strstr(weir_reason(), why))
		fail_msg("expected '%s', got '%s'", why, weir_reason());
}

TEST(lies)
{
	struct sample *s;

	(s = simple(3))->fragment[0].records = 2;
	s->h.records = 2;
	refused(s, "bytes behind a fragment's records");
	(s = simple(3))->fragment[0].records = 4;
	s->h.records = 4;
	refused(s, "a record beyond its fragment");
	(s = simple(3))->h.records = 4;
	refused(s, "fewer fragments or records");
	(s = simple(3))->h.records = 2;
	refused(s, "more records than announced");
	(s = simple(3))->h.fragments = 2;
	refused(s, "fewer fragments");
	(s = simple(3))->h.fragments = 0;
	refused(s, "more fragments than its head says");
	(s = simple(3))->h.fragments = 4;
	refused(s, "more fragments or records than it has room for");
	(s = simple(3))->h.records = 49;
	refused(s, "more fragments or records than it has room for");
	(s = simple(3))->fragment[0].records = UINT32_MAX;
	refused(s, "more records");
	(s = simple(3))->fragment[0].bytes = 33;
	refused(s, "a fragment beyond its end");
	(s = simple(3))->fragment[0].bytes = UINT32_MAX;
	refused(s, "a fragment beyond its end");
	(s = simple(3))->fragment[0].flags = 2;
	refused(s, "unknown flag of a fragment");
	(s = simple(3))->bytes[16 + 27] = 1;
	refused(s, "padding that is not zero");
	(s = simple(3))->bytes[16] = 4;
	refused(s, "a record beyond its fragment");
	(s = simple(3))->bytes[16 + 18] = 0x84;
	refused(s, "a record beyond its fragment");
	(s = simple(3))->h.flags = BLOCK_SORTED;
	s->fragment[0].flags = FRAGMENT_OPAQUE;
	refused(s, "do not ascend");
	(s = simple(3))->h.flags = 2;
	refused(s, "unknown codec or flag");
	(s = simple(3))->h.codec = 3;
	refused(s, "unknown codec or flag");
	(s = simple(3))->h.codec = WEIR_CODEC_LZ4;
	refused(s, "impossible sizes");
	/* two fragments of one partition: only a sorted block has one each */
	s = simple(0);
	s->h.fragments = 2;
	s->h.raw = 32;
	seal(s);
	assert_int_equal(take(s, NULL), 0);
	s->h.flags = BLOCK_SORTED;
	refused(s, "do not ascend");
	/* compressed */
	s = simple(3);
	s->h.codec = WEIR_CODEC_LZ4;
	s->h.raw = s->h.stored + 1;
	assert_int_equal(block_check(&s->h, s->bytes, s->h.stored), 0);
	s->h.raw = BLOCK_RAW_MAX + 1;
	assert_int_equal(block_check(&s->h, s->bytes, s->h.stored), -EBADMSG);
	assert_int_equal(block_check(&s->h, s->bytes, s->h.stored - 1), -EBADMSG);
	assert_non_null(strstr(weir_reason(), "block 0 of map 0, attempt 0, from process 0: "));
}

/* Random bytes with a right checksum. */
TEST(noise)
{
	struct sample s = {0};

	new_seed();
	for (unsigned n = 0; n < 200000; n++) {
		s.h = (struct block_head){.raw = draw() % 200, .flags = draw() & BLOCK_SORTED};
		s.h.fragments = draw() % (s.h.raw / 16 + 1);
		s.h.records = draw() % (s.h.raw + 1);
		for (uint32_t i = 0; i < s.h.raw; i++)
			s.bytes[i] = draw() % 4 ? 0 : (uint8_t)(draw() % 64);
		seal(&s);
		take(&s, NULL);
	}
}
