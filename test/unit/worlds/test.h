/* SPDX-License-Identifier: BSD-3-Clause */
/* cmocka, and tests that need no list: TEST(name) { ... } is a test, run in the order of the file.
 */
#ifndef TEST_WORLDS_TEST_H
#define TEST_WORLDS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* what nearly every test needs */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void test_add(const struct CMUnitTest *test);
/* Runs all tests. Returns the number of those that failed. A file without main() has one of it. */
int test_run(void);

#define TEST(name) TEST_IN(NULL, NULL, name)

/* A test with something to do before and after it, or NULL. */
#define TEST_IN(setup, teardown, name)                                                             \
	static void name(void **state);                                                            \
	static void __attribute__((constructor)) add_##name(void)                                  \
	{                                                                                          \
		test_add(&(struct CMUnitTest){#name, name, setup, teardown, NULL});                \
	}                                                                                          \
	static void name(void **state)

#endif
