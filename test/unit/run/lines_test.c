/* SPDX-License-Identifier: BSD-3-Clause */
/* Output of a process as lines: in any pieces, without a final newline, and too long ones. */
#include "worlds/test.h"

#include "run/lines.h"

static char got[1 << 20];
static size_t used, count;

static void
put(void *user, const char *line, size_t length)
{
	assert_ptr_equal(user, got);
	assert_true(length <= LINES_LONGEST && line[length - 1] == '\n');
	assert_null(memchr(line, '\n', length - 1));
	assert_true(used + length < sizeof(got));
	memcpy(got + used, line, length);
	used += length;
	got[used] = '\0';
	count++;
}

/* All of it, `piece` bytes at a time. */
static void
write_in(uint32_t rank, const char *bytes, size_t n, size_t piece)
{
	static struct lines l;

	used = count = 0;
	got[0] = '\0';
	lines_init(&l, rank);
	for (size_t at = 0; at < n; at += piece)
		lines_add(&l, bytes + at, n - at < piece ? n - at : piece, put, got);
	lines_end(&l, put, got);
	lines_end(&l, put, got);
}

static void
becomes(uint32_t rank, const char *text, const char *want)
{
	size_t n = strlen(text);

	for (size_t piece = 1; piece <= n + 1; piece++) {
		write_in(rank, text, n, piece);
		assert_string_equal(got, want);
	}
}

TEST(test_lines)
{
	becomes(3, "", "");
	becomes(3, "a\n", "3: a\n");
	becomes(0, "a\nbc\n\nd\n", "0: a\n0: bc\n0: \n0: d\n");
	becomes(1023, "\n", "1023: \n");
	becomes(4294967295, "x\n", "4294967295: x\n");
}

TEST(test_no_newline)
{
	becomes(7, "a", "7: a\n");
	becomes(7, "a\nb", "7: a\n7: b\n");
}

TEST(test_any_byte)
{
	write_in(1, "a\0b\r\n\xff", 6, 2);
	assert_int_equal(used, 13);
	assert_memory_equal(got, "1: a\0b\r\n1: \xff\n", used);
}

/* Nothing is lost or added but ranks and newlines. */
TEST(test_long)
{
	static const size_t pieces[] = {1, 4000, 4096, 100000};
	const size_t room = LINES_LONGEST - 4; /* "5: " and the newline */
	static char text[100000];
	size_t n;

	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		for (size_t length = room - 1; length <= 2 * room + 1;
		     length += length == room + 1 ? room - 2 : 1) {
			memset(text, 'x', length);
			memcpy(text + length, "\nend\n", 5);
			write_in(5, text, length + 5, pieces[i]);
			n = (length + room - 1) / room;
			assert_int_equal(count, n + 1);
			assert_int_equal(used, length + 4 * n + 7);
			assert_string_equal(got + used - 7, "5: end\n");
		}
		memset(text, 'x', sizeof(text));
		write_in(5, text, sizeof(text), pieces[i]);
		assert_int_equal(count, (sizeof(text) + room - 1) / room);
		assert_int_equal(used, sizeof(text) + 4 * count);
	}
}
