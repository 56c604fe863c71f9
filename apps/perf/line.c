/* SPDX-License-Identifier: BSD-3-Clause */
#include "line.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef PERF_EDITLINE
#include <editline/readline.h>
#endif

#define LINE_MAX_BYTES 512

static struct {
	void (*on_line)(char *line);
	bool terminal;
	char text[LINE_MAX_BYTES]; /* of a file or a pipe: not yet given out */
	size_t length;
	bool ended;
} input;

#ifdef PERF_EDITLINE
static void
edited(char *line)
{
	if (line && *line)
		add_history(line);
	input.on_line(line);
	free(line);
}
#endif

void
perf_line_open(const char *prompt, void (*on_line)(char *line))
{
	memset(&input, 0, sizeof(input));
	input.on_line = on_line;
#ifdef PERF_EDITLINE
	input.terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	if (input.terminal)
		rl_callback_handler_install(prompt, edited);
#else
	(void)prompt;
#endif
}

/* Gives out the first line, or what there is when no more comes or fits. Whether there was one. */
static bool
give_line(void)
{
	char line[LINE_MAX_BYTES + 1], *end = memchr(input.text, '\n', input.length);
	size_t n = end ? (size_t)(end - input.text) : input.length;
	size_t used = end ? n + 1 : n;

	if (!end && !(n == sizeof(input.text) || (n && input.ended)))
		return false;
	memcpy(line, input.text, n);
	line[n] = '\0';
	input.length -= used;
	memmove(input.text, input.text + used, input.length);
	input.on_line(line);
	return true;
}

static void
read_plain(bool readable)
{
	ssize_t n;

	if (give_line())
		return;
	if (readable && !input.ended) {
		n = read(STDIN_FILENO, input.text + input.length,
			 sizeof(input.text) - input.length);
		if (n > 0)
			input.length += (size_t)n;
		else if (n == 0 || errno != EINTR)
			input.ended = true;
	}
	if (!give_line() && input.ended)
		input.on_line(NULL);
}

void
perf_line_read(int timeout_ms)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	bool readable;

	/* a line that is there already is not waited for */
	if (!input.terminal && (input.ended || memchr(input.text, '\n', input.length)))
		timeout_ms = 0;
	readable = poll(&in, 1, timeout_ms) > 0;
#ifdef PERF_EDITLINE
	if (input.terminal) {
		if (readable)
			rl_callback_read_char();
		return;
	}
#endif
	read_plain(readable);
}

void
perf_line_again(void)
{
#ifdef PERF_EDITLINE
	if (input.terminal)
		rl_forced_update_display();
#endif
}

void
perf_line_close(void)
{
#ifdef PERF_EDITLINE
	if (input.terminal)
		rl_callback_handler_remove();
#endif
}
