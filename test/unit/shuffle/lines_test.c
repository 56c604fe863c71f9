/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of weir-sort, their check, and borders of partitions. */
#include "worlds/test.h"

#include "shuffle/lines.h"

#define LINES 2000u

TEST(the_crc_is_that_of_zip)
{
	assert_int_equal(line_crc((const uint8_t *)"123456789", 9), 0xcbf43926);
	assert_int_equal(line_crc((const uint8_t *)"", 0), 0);
}

TEST(lines_are_text)
{
	uint8_t line[LINE_BYTES], again[LINE_BYTES];

	for (uint64_t i = 0; i < LINES; i++) {
		line_make(line, i, 1, 0);
		line_make(again, i, 1, 0);
		assert_memory_equal(line, again, LINE_BYTES);
		for (unsigned k = 0; k < LINE_BYTES - 2; k++)
			assert_true(line[k] >= ' ' && line[k] < 127);
		assert_memory_equal(line + LINE_BYTES - 2, "\r\n", 2);
		line_make(again, i + 1, 1, 0);
		assert_memory_not_equal(line, again, LINE_BYTES);
	}
}

TEST(half_of_the_keys_may_be_one)
{
	uint8_t line[LINE_BYTES], common[LINE_BYTES];
	unsigned same = 0;

	line_make(common, 0, 1, 100);
	for (uint64_t i = 0; i < LINES; i++) {
		line_make(line, i, 1, 50);
		same += !memcmp(line, common, LINE_KEY);
	}
	assert_in_range(same, LINES / 2 - 200, LINES / 2 + 200);
}

static int
compare(const void *a, const void *b)
{
	return memcmp(a, b, LINE_KEY);
}

TEST(the_check_sees_order_and_content)
{
	uint8_t *lines = malloc(LINES * LINE_BYTES);
	struct lines_check a = {0}, b = {0}, c = {0}, d = {0};

	assert_non_null(lines);
	for (uint64_t i = 0; i < LINES; i++)
		line_make(lines + i * LINE_BYTES, i, 5, 10);
	lines_check(&a, lines, LINES);
	assert_true(a.unordered > 0 && a.first > 0);
	qsort(lines, LINES, LINE_BYTES, compare);
	lines_check(&b, lines, LINES / 2);
	lines_check(&b, lines + LINES / 2 * LINE_BYTES, LINES / 2);
	assert_int_equal(b.unordered, 0);
	assert_int_equal(b.lines, LINES);
	assert_true(b.sum == a.sum);
	assert_in_range(b.same, 100, 300);
	/* two lines exchanged, between which all others are */
	memcpy(lines, lines + (LINES - 1) * LINE_BYTES, LINE_BYTES);
	lines_check(&c, lines, LINES);
	assert_int_equal(c.unordered, 1);
	assert_int_equal(c.first, 1);
	assert_true(c.sum != a.sum);
	lines[50]++;
	lines_check(&d, lines, LINES);
	assert_true(d.sum != c.sum);
	free(lines);
}

TEST(partitions_are_in_the_order_of_keys)
{
	uint8_t(*sample)[LINE_KEY] = malloc(LINES * LINE_KEY);
	struct borders b;
	uint32_t count[7] = {0};
	uint8_t line[LINE_BYTES];

	assert_non_null(sample);
	for (uint64_t i = 0; i < LINES; i++) {
		line_make(line, i, 9, 0);
		memcpy(sample[i], line, LINE_KEY);
	}
	assert_int_equal(borders_make(&b, sample, LINES, 7), 0);
	for (uint32_t i = 0, last = 0; i < LINES; i++) {
		uint32_t p = borders_find(&b, sample[i]); /* they are sorted now */

		assert_in_range(p, last, 6);
		count[p]++;
		last = p;
	}
	for (uint32_t i = 0; i < b.count; i++)
		assert_int_equal(borders_find(&b, b.keys[i]), i + 1);
	for (int i = 0; i < 7; i++)
		assert_in_range(count[i], LINES / 7 - 1, LINES / 7 + 1);
	free(b.keys);
	assert_int_equal(borders_make(&b, sample, 0, 1), 0);
	assert_int_equal(borders_find(&b, sample[0]), 0);
	free(b.keys);
	free(sample);
}
