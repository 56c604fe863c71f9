/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines that others cause: nobody's push out another's, and what is left out is told. */
#define _GNU_SOURCE
#include "worlds/test.h"

#include <fcntl.h>
#include <sys/mman.h>

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

/* The text of log_budget_tell(); static. */
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
TEST_IN(setup, NULL, each_has_its_own)
{
	assert_int_equal(takes("sessions closed", "user 1", 1000), LOG_BURST);
	assert_int_equal(takes("sessions closed", "user 2", 1), 1);
	assert_int_equal(takes("full receive memory", "user 1", 1), 1);
	now += 3 * LOG_PACE_MS;
	assert_int_equal(takes("sessions closed", "user 1", 1000), 3);
}

/* How many is told when it is over, and each minute while it isn't. */
TEST_IN(setup, NULL, what_was_left_out_is_told)
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

TEST_IN(setup, NULL, the_same_line_again)
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
TEST_IN(setup, NULL, many_causers)
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
