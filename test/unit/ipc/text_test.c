/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of other processes: bytes that pass, where they are cut, and reasons in parts. */
#include "worlds/test.h"

#include "ipc/slot.h"
#include "ipc/text.h"

#include <string.h>

static void
copies(const char *from, size_t size, const char *want)
{
	char to[64];

	memset(to, 'z', sizeof(to));
	weir_text_copy(to, from, size);
	assert_string_equal(to, want);
	for (size_t i = strlen(want); i < size; i++)
		assert_int_equal(to[i], 0);
	assert_int_equal(to[size], 'z');
}

static void
test_copy(void **state)
{
	(void)state;
	copies("", 8, "");
	copies("plain text ~", 32, "plain text ~");
	copies("heute geschlo\u00dfen \u20ac \U0001f600", 48,
	       "heute geschlo\u00dfen \u20ac \U0001f600");
	/* controls: C0, DEL, C1 */
	copies("a\033[2J\n\x7f\xc2\x9b", 32, "a?[2J????");
	/* marks of direction, no width, ends of lines */
	copies("\u202e\u200b\u2028\u2066\ufeff\u061c", 48, "?????????????????");
	/* no UTF-8: lone bytes, too long, surrogates, beyond the last */
	copies("\x80\xff\xc3(", 32, "??\?(");
	copies("\xc0\xaf\xe0\x80\xaf\xed\xa0\x80\xf4\x90\x80\x80", 32, "????????????");
	copies("\xe2\x82", 32, "??");
}

/* Nothing behind the end is read, and no character is halved. */
static void
test_cut(void **state)
{
	static const char euros[] = "\u20ac\u20ac\u20ac";

	(void)state;
	copies(euros, 10, euros);
	for (size_t size = 7; size <= 9; size++)
		copies(euros, size, "\u20ac\u20ac");
	copies(euros, 3, "");
	copies("abc", 1, "");
	copies("abcdef", 4, "abc");
}

/* A reason of each length goes through slots and comes out as it was. */
static void
test_reason(void **state)
{
	(void)state;
	for (size_t n = 0; n < WEIR_REFUSAL_MAX; n++) {
		char text[WEIR_REFUSAL_MAX] = "", whole[WEIR_REFUSAL_MAX] = "";
		const char *at = text;

		for (size_t i = 0; i < n; i++)
			text[i] = (char)('a' + i % 26);
		for (uint32_t k = weir_reason_slots(text); k; k--, at += WEIR_SLOT_HEAD_BYTES) {
			assert_true(weir_reason_append(whole, at, WEIR_SLOT_HEAD_BYTES));
		}
		assert_true(strlen(at) < WEIR_REFUSAL_LAST);
		assert_true(weir_reason_append(whole, at, WEIR_REFUSAL_LAST));
		assert_string_equal(whole, text);
		assert_true(weir_reason_append(whole, "x", 1) == (n + 1 < WEIR_REFUSAL_MAX));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_copy),
	    cmocka_unit_test(test_cut),
	    cmocka_unit_test(test_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
