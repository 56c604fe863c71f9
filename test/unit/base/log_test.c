/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of the log: their formats, the time, and what others print. */
#define _GNU_SOURCE
#include "worlds/test.h"
#include "base/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char text[16384];

/* Runs `say`; returns its bytes on stderr. */
static const char *
said(void (*say)(void))
{
	int before = dup(STDERR_FILENO), file = memfd_create("log", MFD_CLOEXEC);
	ssize_t n;

	fflush(stderr);
	dup2(file, STDERR_FILENO);
	say();
	fflush(stderr);
	dup2(before, STDERR_FILENO);
	n = pread(file, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	close(before);
	close(file);
	return text;
}

static void
one_line(void)
{
	log_info("port %d\nis up", 7);
}

static time_t wall; /* 0: the real one */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int
__wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	int rc = __real_clock_gettime(clock, t);

	if (clock == CLOCK_REALTIME && wall)
		*t = (struct timespec){wall, 7089000};
	return rc;
}

/* Before a daemon is up its lines go to whoever has started it; later ones may be read any time. */
TEST(test_time)
{
	assert_int_equal(strncmp(said(one_line), "base_log_test: port 7?is up\n",
				 strlen("base_log_test: port 7?is up\n")),
			 0);
	log_timed();
	wall = 1795399385;
	assert_string_equal(said(one_line),
			    "2026-11-23T02:03:05.007Z base_log_test: port 7?is up\n");
	wall = 0;
}

/* As libc has it, on days that calendars get wrong. */
TEST(test_calendar)
{
	static const struct tm days[] = {
	    {.tm_year = 70, .tm_mday = 1},
	    {.tm_year = 100, .tm_mon = 1, .tm_mday = 29, .tm_hour = 23, .tm_min = 59, .tm_sec = 59},
	    {.tm_year = 100, .tm_mon = 2, .tm_mday = 1},
	    {.tm_year = 124, .tm_mon = 1, .tm_mday = 29},
	    {.tm_year = 126, .tm_mon = 11, .tm_mday = 31, .tm_hour = 23},
	    {.tm_year = 127, .tm_mday = 1},
	    {.tm_year = 200, .tm_mon = 1, .tm_mday = 28},
	    {.tm_year = 200, .tm_mon = 2, .tm_mday = 1},
	};

	log_timed();
	for (size_t i = 0; i < sizeof(days) / sizeof(days[0]); i++) {
		struct tm day = days[i];
		char expected[64];

		wall = timegm(&day) + (i == 0);
		gmtime_r(&wall, &day);
		strftime(expected, sizeof(expected),
			 "%Y-%m-%dT%H:%M:%S.007Z base_log_test: ", &day);
		assert_int_equal(strncmp(said(one_line), expected, strlen(expected)), 0);
	}
	wall = 0;
}

/* The journal has its own. */
TEST(test_journal)
{
	char is[64];
	struct stat st;
	int before = dup(STDERR_FILENO), file = memfd_create("journal", MFD_CLOEXEC);

	dup2(file, STDERR_FILENO);
	assert_int_equal(fstat(file, &st), 0);
	snprintf(is, sizeof(is), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", is, 1);
	log_open("x");
	log_timed();
	one_line();
	dup2(before, STDERR_FILENO);
	unsetenv("JOURNAL_STREAM");
	log_open("x");
	close(before);
	memset(text, 0, sizeof(text));
	assert_true(pread(file, text, sizeof(text) - 1, 0) > 0);
	assert_string_equal(text, "<6>base_log_test: port 7?is up\n");
	close(file);
}

static void
library_prints(void)
{
	FILE *f = log_stream(LOG_LEVEL_WARNING);

	assert_non_null(f);
	fputs("EAL: half a ", f);
	fputs("line\n\n  two \"words\"\nrest", f);
	fclose(f);
}

/* Lines that a library prints become lines of the log, each whole. */
TEST(test_stream)
{
	log_open("i");
	log_set_format(LOG_FORMAT_JSON);
	said(library_prints);
	log_set_format(LOG_FORMAT_TEXT);
	assert_non_null(strstr(text, "\"level\":\"warning\",\"program\":\"base_log_test\""));
	assert_non_null(strstr(text, "\"msg\":\"EAL: half a line\",\"instance\":\"i\"}\n{"));
	assert_non_null(strstr(text, "\"msg\":\"two \\\"words\\\"\""));
	assert_non_null(strstr(text, "\"msg\":\"rest\""));
	assert_null(strstr(text, "\"msg\":\"\""));
}

static void
handler_writes(void)
{
	char whole[512];

	log_raw_begin(LOG_LEVEL_ERROR, whole, sizeof(whole));
	dprintf(STDERR_FILENO, "%sit crashed%s", whole, log_raw_end());
}

/* A signal handler's line is as any other. */
TEST(test_raw)
{
	char whole[512];

	log_open("i");
	log_timed();
	wall = 1795399385;
	assert_string_equal(said(handler_writes),
			    "2026-11-23T02:03:05.007Z base_log_test: it crashed\n");
	log_set_format(LOG_FORMAT_JSON);
	said(handler_writes);
	snprintf(whole, sizeof(whole),
		 "{\"time\":\"2026-11-23T02:03:05.007Z\",\"level\":\"error\","
		 "\"program\":\"base_log_test\",\"pid\":%d,\"instance\":\"i\","
		 "\"msg\":\"it crashed\"}\n",
		 (int)getpid());
	assert_string_equal(text, whole);
	wall = 0;
	log_set_format(LOG_FORMAT_LOGFMT);
	said(handler_writes);
	log_set_format(LOG_FORMAT_TEXT);
	assert_non_null(strstr(text, "msg=\"it crashed\"\n"));
}
