/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Codecs: both ways at boundary sizes and all kinds of levels, data that does not pay and when it
 * is tried again, and bytes that no codec wrote. Buffers are exactly as long as they may be, so
 * that a sanitizer sees a byte beyond.
 */
#include "chance.h"
#include "worlds/test.h"

#include "shuffle/format/codec.h"
#include "weir/weir.h"

#include <lz4.h>
#include <zstd.h>

static void *
copy_of(const void *from, size_t length)
{
	void *to = malloc(length ? length : 1);

	assert_non_null(to);
	memcpy(to, from, length);
	return to;
}

/* About 3:1. */
static uint8_t *
text(uint32_t length)
{
	static const char *const words[] = {"the ", "shuffle ",	  "pushes ",   "records ",
					    "to ",  "its ",	  "consumer ", "x",
					    "9 ",   "partition\n"};
	uint8_t *to = malloc(length + 16);

	assert_non_null(to);
	for (uint32_t at = 0; at < length;) {
		const char *word = words[draw() % 10];
		size_t n = strlen(word);

		memcpy(to + at, word, n);
		at += (uint32_t)n;
	}
	return to;
}

static uint8_t *
noise(uint32_t length)
{
	uint8_t *to = malloc(length + 1);

	assert_non_null(to);
	for (uint32_t i = 0; i < length; i++)
		to[i] = (uint8_t)draw();
	return to;
}

/* Bytes stored; 0: it did not pay. */
static uint32_t
round_trip(enum weir_codec codec, int32_t level, const void *from, uint32_t raw)
{
	struct codec_tools t = {0};
	struct codec_pace pace = {0};
	uint8_t *given = copy_of(from, raw), *packed = malloc(codec_bound(codec, raw) + 1);
	uint32_t stored = codec_pack(&t, &pace, codec, level, given, raw, packed);

	assert_true(stored <= codec_bound(codec, raw));
	if (stored) {
		uint8_t *cut = copy_of(packed, stored), *to = malloc(raw);

		assert_int_equal(codec_unpack(&t, codec, cut, stored, to, raw), 0);
		assert_memory_equal(to, from, raw);
		/* exactly this size */
		assert_int_equal(codec_unpack(&t, codec, cut, stored, to, raw - 1), -EBADMSG);
		to = realloc(to, raw + 1);
		assert_int_equal(codec_unpack(&t, codec, cut, stored, to, raw + 1), -EBADMSG);
		assert_true(codec_memory(&t) > 0);
		free(cut);
		free(to);
	}
	codec_free(&t);
	assert_int_equal(codec_memory(&t), 0);
	free(given);
	free(packed);
	return stored;
}

TEST(sizes)
{
	static const uint32_t sizes[] = {
	    64, 65, 127, 4095, 4096, 65535, 65536, 65537, 1u << 20, (2u << 20) + 1, BLOCK_RAW_MAX};

	new_seed();
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint8_t *t = text(sizes[i]), *n = noise(sizes[i]);

		for (enum weir_codec c = WEIR_CODEC_LZ4; c <= WEIR_CODEC_ZSTD; c++) {
			uint32_t stored = round_trip(c, 0, t, sizes[i]);

			assert_true(sizes[i] < 4095 || (stored && stored < sizes[i] / 2));
			assert_int_equal(round_trip(c, 0, n, sizes[i]), 0);
		}
		free(t);
		free(n);
	}
}

/* Noise whose end is zeros. */
TEST(least_gain)
{
	new_seed();
	for (enum weir_codec c = WEIR_CODEC_LZ4; c <= WEIR_CODEC_ZSTD; c++) {
		uint8_t *n = noise(65536);

		memset(n + 65536 - 2500, 0, 2500);
		assert_int_equal(round_trip(c, 0, n, 65536), 0);
		memset(n + 65536 - 5000, 0, 5000);
		assert_in_range(round_trip(c, 0, n, 65536), 1, 65536 / 20 * 19);
		free(n);
	}
}

TEST(shortest)
{
	struct codec_tools t = {0};
	struct codec_pace pace = {0};
	uint8_t zeros[128] = {0}, packed[128], to[128];

	for (uint32_t raw = 0; raw < 64; raw++)
		for (enum weir_codec c = WEIR_CODEC_NONE; c <= WEIR_CODEC_ZSTD; c++)
			assert_int_equal(codec_pack(&t, &pace, c, 0, zeros, raw, packed), 0);
	/* too short to be tried */
	assert_int_equal(pace.failed, 0);
	assert_true(codec_pack(&t, &pace, WEIR_CODEC_LZ4, 0, zeros, 64, packed) > 0);
	assert_int_equal(codec_pack(&t, &pace, WEIR_CODEC_NONE, 0, zeros, 128, packed), 0);
	/* raw bytes are copied */
	assert_int_equal(codec_unpack(&t, WEIR_CODEC_NONE, zeros, 0, to, 0), 0);
	assert_int_equal(codec_unpack(&t, WEIR_CODEC_NONE, zeros, 128, to, 128), 0);
	assert_memory_equal(to, zeros, 128);
	assert_int_equal(codec_unpack(&t, WEIR_CODEC_NONE, zeros, 127, to, 128), -EBADMSG);
	codec_free(&t);
}

TEST(levels)
{
	static const int32_t lz4[] = {-64, -1, 1, 2, 3, 9, 12},
			     zstd[] = {-100000, -5, 1, 3, 19, 22};
	uint8_t *t;

	new_seed();
	t = text(100000);
	for (unsigned i = 0; i < 7; i++) {
		assert_int_equal(codec_check(WEIR_CODEC_LZ4, lz4[i]), 0);
		assert_true(lz4[i] < 0 || round_trip(WEIR_CODEC_LZ4, lz4[i], t, 100000));
		round_trip(WEIR_CODEC_LZ4, lz4[i], t, 100000);
	}
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(codec_check(WEIR_CODEC_ZSTD, zstd[i]), 0);
		assert_true(zstd[i] < 0 || round_trip(WEIR_CODEC_ZSTD, zstd[i], t, 100000));
		round_trip(WEIR_CODEC_ZSTD, zstd[i], t, 100000);
	}
	assert_true(round_trip(WEIR_CODEC_LZ4, 9, t, 100000) <
		    round_trip(WEIR_CODEC_LZ4, 0, t, 100000));
	free(t);
	assert_int_equal(codec_check(WEIR_CODEC_NONE, 0), 0);
	assert_int_equal(codec_check(WEIR_CODEC_NONE, 1), -EINVAL);
	assert_int_equal(codec_check(WEIR_CODEC_LZ4, 13), -EINVAL);
	assert_int_equal(codec_check(WEIR_CODEC_LZ4, -65), -EINVAL);
	assert_string_equal(weir_reason(), "invalid level -65 for LZ4 (expected -64 ... 12)");
	assert_int_equal(codec_check(WEIR_CODEC_ZSTD, 23), -EINVAL);
	assert_int_equal(codec_check(3, 0), -EINVAL);
	assert_string_equal(weir_reason(), "invalid codec 3 (expected one of enum weir_codec)");
}

/* The highest level of zstd would take hundreds of MiB for the longest block. */
TEST(memory_of_long_blocks)
{
	struct codec_tools t = {0};
	struct codec_pace pace = {0};
	uint8_t *from = calloc(1, BLOCK_RAW_MAX), *to = malloc(BLOCK_RAW_MAX);

	assert_true(codec_pack(&t, &pace, WEIR_CODEC_ZSTD, 22, from, BLOCK_RAW_MAX, to) > 0);
	assert_true(codec_memory(&t) < 32u << 20);
	codec_free(&t);
	free(from);
	free(to);
}

TEST(pace)
{
	struct codec_tools t = {0};
	struct codec_pace pace = {0};
	unsigned trials = 0, before;
	uint8_t *n, *packed = malloc(4096), zeros[4096] = {0};

	new_seed();
	n = noise(4096);
	for (unsigned i = 0; i < 1000; i++) {
		trials += !pace.skip;
		assert_int_equal(codec_pack(&t, &pace, WEIR_CODEC_LZ4, 0, n, 4096, packed), 0);
		assert_true(i != 3 || trials == 4);
	}
	/* 4 at once, then after 1, 3, 7, 15, 31, 63, 63 ... blocks */
	assert_in_range(trials, 20, 26);
	/* data that shrinks is found within 64 blocks, and then always packed */
	for (before = 0; !codec_pack(&t, &pace, WEIR_CODEC_LZ4, 0, zeros, 4096, packed); before++)
		assert_true(before < 64);
	for (unsigned i = 0; i < 100; i++)
		assert_true(codec_pack(&t, &pace, WEIR_CODEC_LZ4, 0, zeros, 4096, packed) > 0);
	/* a few blocks in between change nothing */
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(codec_pack(&t, &pace, WEIR_CODEC_LZ4, 0, n, 4096, packed), 0);
	assert_true(codec_pack(&t, &pace, WEIR_CODEC_LZ4, 0, zeros, 4096, packed) > 0);
	codec_free(&t);
	free(n);
	free(packed);
}

/* Whatever the bytes are, nothing beyond the buffers is touched. */
static int
try_unpack(struct codec_tools *t, uint32_t codec, const void *from, uint32_t stored, uint32_t raw)
{
	uint8_t *given = copy_of(from, stored), *to = malloc(raw ? raw : 1);
	int rc = codec_unpack(t, codec, given, stored, to, raw);

	assert_true(!rc || rc == -EBADMSG);
	free(given);
	free(to);
	return rc;
}

TEST(corrupted)
{
	struct codec_tools t = {0};
	struct codec_pace pace = {0};
	uint32_t raw = 1000;
	uint8_t *from, packed[1000];

	new_seed();
	from = text(raw);
	for (enum weir_codec c = WEIR_CODEC_LZ4; c <= WEIR_CODEC_ZSTD; c++) {
		uint32_t stored = codec_pack(&t, &pace, c, 0, from, raw, packed);

		assert_true(stored > 0);
		for (uint32_t i = 0; i < stored; i++) {
			for (unsigned bit = 0; bit < 8; bit++) {
				packed[i] ^= (uint8_t)(1u << bit);
				try_unpack(&t, c, packed, stored, raw);
				packed[i] ^= (uint8_t)(1u << bit);
			}
			assert_int_equal(try_unpack(&t, c, packed, i, raw), -EBADMSG);
		}
		for (unsigned i = 0; i < 20000; i++) {
			uint32_t n = 1 + draw() % 200;
			uint8_t *bytes = noise(n);

			if (n > 8 && c == WEIR_CODEC_ZSTD) /* further than the magic number */
				memcpy(bytes, packed, 5 + draw() % 4);
			try_unpack(&t, c, bytes, n, draw() % 1000);
			free(bytes);
		}
		assert_int_equal(try_unpack(&t, c, packed, 0, 0), -EBADMSG);
		assert_int_equal(try_unpack(&t, c, packed, 0, raw), -EBADMSG);
	}
	assert_int_equal(try_unpack(&t, 3, packed, 10, raw), -EBADMSG);
	assert_int_equal(codec_unpack(&t, WEIR_CODEC_LZ4, packed, 10, packed, BLOCK_RAW_MAX + 1),
			 -EBADMSG);
	assert_string_equal(weir_reason(), "10 bytes do not decompress to 16777281 (codec 1)");
	codec_free(&t);
	free(from);
}

/* More bytes than a block may have are refused, even if they unpack. */
TEST(bomb)
{
	struct codec_tools t = {0};
	int raw = BLOCK_RAW_MAX + 1, n;
	uint8_t *from = calloc(1, (size_t)raw), *packed = malloc(1 << 20),
		*to = malloc((size_t)raw);

	n = LZ4_compress_default((char *)from, (char *)packed, raw, 1 << 20);
	assert_true(n > 0);
	assert_int_equal(codec_unpack(&t, WEIR_CODEC_LZ4, packed, (uint32_t)n, to, (uint32_t)raw),
			 -EBADMSG);
	free(from);
	free(packed);
	free(to);
}

/* A frame in pieces, with a skippable one, or without its size: valid for zstd, written by no peer.
 */
TEST(frames_of_others)
{
	struct codec_tools t = {0};
	uint8_t half[500] = {0}, two[1000], skippable[1000] = {0x50, 0x2a, 0x4d, 0x18, 4};
	size_t n = ZSTD_compress(two, sizeof(two), half, sizeof(half), 1), m;
	ZSTD_CCtx *c = ZSTD_createCCtx();

	assert_int_equal(try_unpack(&t, WEIR_CODEC_ZSTD, two, (uint32_t)n, 500), 0);
	memcpy(skippable + 12, two, n);
	assert_int_equal(try_unpack(&t, WEIR_CODEC_ZSTD, skippable, (uint32_t)n + 12, 500),
			 -EBADMSG);
	/* behind it */
	memcpy(two + n, skippable, 12);
	assert_int_equal(try_unpack(&t, WEIR_CODEC_ZSTD, two, (uint32_t)n + 12, 500), -EBADMSG);
	memcpy(two + n, two, n);
	assert_int_equal(try_unpack(&t, WEIR_CODEC_ZSTD, two, 2 * (uint32_t)n, 1000), -EBADMSG);
	ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
	m = ZSTD_compress2(c, two, sizeof(two), half, sizeof(half));
	assert_int_equal(try_unpack(&t, WEIR_CODEC_ZSTD, two, (uint32_t)m, 500), -EBADMSG);
	ZSTD_freeCCtx(c);
	codec_free(&t);
}
