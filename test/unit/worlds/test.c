/* SPDX-License-Identifier: BSD-3-Clause */
#include "test.h"

#define TESTS 64 /* of one program, at most */

static struct CMUnitTest tests[TESTS]; /* cmocka skips those without a name */
static unsigned count;

void
test_add(const struct CMUnitTest *test)
{
	if (count == TESTS)
		__builtin_trap();
	tests[count++] = *test;
}

int
test_run(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int __attribute__((weak)) main(void)
{
	return test_run();
}
