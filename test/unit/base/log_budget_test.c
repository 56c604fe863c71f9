/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines that others cause: nobody's push out another's, and what is left out is told. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"

static struct log_budget budget;
static uint64_t now;

static int
setup(void **state)
{
	memset(&budget, 0, sizeof(budget));
	now = 1000000;
	return 0;
}

/* What log_budget_tell() says; static. */
static const char *
told(void)
{
	static char text[65536];
	int file = memfd_create("stderr", MFD_CLOEXEC), before = dup(STDERR_FILENO);
	ssize_t n;

	assert_true(file >= 0 && dup2(file, STDERR_FILENO) >= 0);
	log_budget_tell(&budget, now);
	dup2(before, STDERR_FILENO);
	n = pread(file, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = 0;
	close(file);
	close(before);
	return text;
}

static unsigned
takes(const char *kind, const char *who, unsigned lines)
{
	unsigned n = 0;

	while (lines--)
		n += log_budget_take(&budget, kind, who, NULL, now);
	return n;
}

/* One user's violations leave those of others, and his other kinds, as they are. */
static void
each_has_its_own(void **state)
{
	assert_int_equal(takes("sessions closed", "user 1", 1000), LOG_BURST);
	assert_int_equal(takes("sessions closed", "user 2", 1), 1);
	assert_int_equal(takes("full receive memory", "user 1", 1), 1);
	now += 3 * LOG_PACE_MS;
	assert_int_equal(takes("sessions closed", "user 1", 1000), 3);
}

/* How many is told when it is over, and each minute while it isn't. */
static void
what_was_left_out_is_told(void **state)
{
	takes("sessions closed", "user 1", LOG_BURST + 7);
	assert_string_equal(told(), "");
	now += LOG_BURST * LOG_PACE_MS;
	assert_non_null(strstr(told(), "7 lines left out (sessions closed, user 1)\n"));
	assert_string_equal(told(), "");
	takes("sessions closed", "user 1", LOG_BURST);
	for (int i = 0; i < 60; i++) {
		takes("sessions closed", "user 1", 3);
		assert_string_equal(told(), "");
		now += LOG_PACE_MS;
	}
	/* 60 times 3 but for one each second, after the first */
	assert_non_null(strstr(told(), "121 lines left out (sessions closed, user 1)\n"));
}

static void
the_same_line_again(void **state)
{
	assert_true(log_budget_take(&budget, "refused", "10.0.0.1", "why", now));
	for (int i = 0; i < 9; i++)
		assert_false(log_budget_take(&budget, "refused", "10.0.0.1", "why", now));
	assert_true(log_budget_take(&budget, "refused", "10.0.0.1", "another reason", now));
	assert_true(log_budget_take(&budget, "refused", "10.0.0.2", "why", now));
	now += LOG_QUIET_MS;
	assert_non_null(strstr(told(), "9 lines left out (refused, 10.0.0.1)\n"));
	now += LOG_SUMMARY_MS;
	assert_true(log_budget_take(&budget, "refused", "10.0.0.1", "why", now));
}

/* A thousand causers cost no more than there is room for; those who are quiet make room. */
static void
many_causers(void **state)
{
	unsigned lines = 0;
	char who[64];

	for (int i = 0; i < 1000; i++) {
		snprintf(who, sizeof(who), "user %d", i);
		lines += takes("sessions closed", who, 2);
	}
	assert_int_equal(lines, 2 * (LOG_CAUSES - 1) + LOG_BURST);
	assert_int_equal(takes("sessions closed", "user 5", 1), 1);
	now += LOG_BURST * LOG_PACE_MS;
	snprintf(who, sizeof(who), "%d lines left out (of many kinds, many others)\n",
		 2 * (1000 - LOG_CAUSES + 1) - LOG_BURST);
	assert_non_null(strstr(told(), who));
	assert_int_equal(takes("sessions closed", "user 2000", 2), 2);
	/* a name that has no room whole is still one causer */
	memset(who, 'x', sizeof(who) - 1);
	assert_int_equal(takes("sessions closed", who, 100), LOG_BURST);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
	const struct CMUnitTest tests[] = {
	    TEST(each_has_its_own),
	    TEST(what_was_left_out_is_told),
	    TEST(the_same_line_again),
	    TEST(many_causers),
	};

	return cmocka_run_group_tests_name("log_budget", tests, NULL, NULL);
}
