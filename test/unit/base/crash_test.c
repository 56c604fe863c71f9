/* SPDX-License-Identifier: BSD-3-Clause */
/* Words of a crash on stderr, and the end of the process. */
#include "worlds/test.h"
#include "base/crash.h"
#include "base/log.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void
say_state(void)
{
	struct crash_line l = {.length = 0};

	crash_add(&l, "engine ");
	crash_add_number(&l, 7);
	crash_add(&l, ", ");
	crash_add_hex(&l, 0xbeef);
	crash_write(&l);
}

/* The state to report has been overwritten: looking at it is a crash of its own. */
static void
state_is_ruined(void)
{
	memset(mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 1);
}

/* As when systemd's watchdog loses patience meanwhile. */
static void
another_comes(void)
{
	raise(SIGILL);
}

/* Its stderr, and the signal that ended it. */
static int
crash(void (*state)(void), int number, char *text, size_t size)
{
	struct pollfd wait = {.events = POLLIN};
	size_t n = 0;
	int to[2], status;
	ssize_t got;
	pid_t pid;

	assert_int_equal(pipe(to), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		const struct rlimit none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		signal(number, SIG_DFL); /* a sanitizer's own handler */
		signal(SIGSEGV, SIG_DFL);
		signal(SIGILL, SIG_DFL);
		dup2(to[1], STDERR_FILENO);
		crash_install(state);
		raise(number);
		_exit(0);
	}
	close(to[1]);
	wait.fd = to[0];
	while (poll(&wait, 1, 60000) > 0 && (got = read(to[0], text + n, size - 1 - n)) > 0)
		n += (size_t)got;
	kill(pid, SIGKILL); /* if it is still there */
	text[n] = 0;
	close(to[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	return WTERMSIG(status);
}

TEST(test_tells)
{
	char text[16384];

	assert_int_equal(crash(say_state, SIGABRT, text, sizeof(text)), SIGABRT);
	assert_non_null(strstr(text, "crash: SIGABRT sent by process "));
	assert_non_null(strstr(text, "crash: engine 7, 0xbeef\n"));
	assert_non_null(strstr(text, "[0x")); /* where */
}

/* Programs read the log: each line is an object, those of the stack too. */
TEST(test_json)
{
	char text[16384], *line, *rest = text;
	unsigned lines = 0, frames = 0;

	log_set_format(LOG_FORMAT_JSON);
	assert_int_equal(crash(say_state, SIGABRT, text, sizeof(text)), SIGABRT);
	log_set_format(LOG_FORMAT_TEXT);
	while ((line = strsep(&rest, "\n")) && *line) {
		assert_int_equal(strncmp(line, "{\"time\":\"20", 11), 0);
		assert_non_null(strstr(line, "\"level\":\"error\",\"program\":\""));
		assert_non_null(strstr(line, "\"msg\":\"crash: "));
		assert_string_equal(line + strlen(line) - 2, "\"}");
		frames += strstr(line, "[0x") != NULL;
		lines++;
	}
	assert_true(frames > 1 && lines == frames + 2);
}

TEST(test_state_is_ruined)
{
	char text[16384];

	assert_int_equal(crash(state_is_ruined, SIGABRT, text, sizeof(text)), SIGSEGV);
	assert_non_null(strstr(text, "crash: SIGABRT sent by process "));
	assert_non_null(strstr(text, "[0x"));
}

TEST(test_two_signals)
{
	char text[16384];
	int number = crash(another_comes, SIGABRT, text, sizeof(text));

	assert_true(number == SIGABRT || number == SIGILL);
	assert_non_null(strstr(text, "crash: SIGABRT sent by process "));
	assert_null(strstr(text, "crash: SIGILL"));
}
