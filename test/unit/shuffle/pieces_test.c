/* SPDX-License-Identifier: BSD-3-Clause */
/* Words and lines of a file in ranges: each is in one range, wherever that begins. */
#define _GNU_SOURCE
#include "worlds/test.h"

#include "shuffle/pieces.h"

#include <sys/mman.h>
#include <time.h>

#define BYTES 20000u

static uint64_t seed;

static uint32_t
draw(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

static void
new_seed(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	seed = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30;
	printf("seed %llu\n", (unsigned long long)seed);
}

static int
file_of(const void *bytes, size_t length)
{
	int fd = memfd_create("pieces", 0);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, length), length);
	return fd;
}

/* Checks the pieces of all ranges against a plain walk through the bytes. */
static void
check_ranges(const uint8_t *bytes, size_t length, uint32_t ranges, const struct piece_set *set)
{
	struct input in = {.fd = file_of(bytes, length), .size = length, .maps = ranges};
	size_t at = 0;
	struct pieces p;
	uint8_t *piece;
	uint32_t n;
	int rc;

	for (uint32_t i = 0; i < ranges; i++) {
		assert_int_equal(input_pieces(&in, i, set, &p), 0);
		while (!(rc = pieces_next(&p, &piece, &n))) {
			while (!set->has[bytes[at]])
				at++;
			assert_memory_equal(piece, bytes + at, n);
			assert_true(at + n == length || !set->has[bytes[at + n]]);
			assert_in_range(at, length * i / ranges, length * (i + 1) / ranges - 1);
			at += n;
		}
		assert_int_equal(rc, -ENODATA);
		pieces_close(&p);
	}
	while (at < length)
		assert_false(set->has[bytes[at++]]);
	close(in.fd);
}

TEST(each_piece_is_in_one_range)
{
	static const char letters[] = "aZ \n\n.x";
	static uint8_t bytes[BYTES];

	for (int i = 0; i < 60; i++) {
		uint32_t length = 1 + draw(BYTES);

		for (uint32_t k = 0; k < length; k++)
			bytes[k] = (uint8_t)letters[draw(i % 2 ? 7 : 3)];
		check_ranges(bytes, length, 1 + draw(i % 3 ? 20 : 300), &piece_words);
		check_ranges(bytes, length, 1 + draw(20), &piece_lines);
	}
}

TEST(an_empty_file_has_none)
{
	check_ranges((const uint8_t *)"", 0, 1, &piece_words);
}

TEST(a_piece_is_not_too_long)
{
	uint8_t *bytes = malloc(PIECE_MAX + 10), *piece;
	struct pieces p;
	uint32_t n;
	int fd;

	assert_non_null(bytes);
	memset(bytes, 'a', PIECE_MAX + 10);
	fd = file_of(bytes, PIECE_MAX + 10);
	assert_int_equal(pieces_open(&p, fd, 0, PIECE_MAX + 10, &piece_words), 0);
	assert_int_equal(pieces_next(&p, &piece, &n), -EMSGSIZE);
	pieces_close(&p);
	assert_int_equal(ftruncate(fd, PIECE_MAX), 0);
	assert_int_equal(pieces_open(&p, fd, 0, PIECE_MAX, &piece_words), 0);
	assert_int_equal(pieces_next(&p, &piece, &n), 0);
	assert_int_equal(n, PIECE_MAX);
	pieces_close(&p);
	close(fd);
	free(bytes);
}

int
main(void)
{
	new_seed();
	return test_run();
}
