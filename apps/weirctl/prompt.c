/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands line by line: from a terminal through libedit, with completion and history. */
#include "weirctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <editline/readline.h>

#define HISTORY_MAX 1000
#define PATH_ROOM 4096

static const struct weirctl_options *options; // libedit's callbacks have no argument of ours
static struct words found;
static size_t next;

// ---- completion ----

static char *
next_match(const char *text, int state)
{
	if (!state)
		next = 0;
	return next < found.count ? strdup(found.word[next++]) : NULL;
}

static char **
matches(const char *text, int start, int end)
{
	char line[1024], *argv[WEIRCTL_WORDS], *at = line, *w;
	int argc = 0;

	rl_attempted_completion_over = 1;
	snprintf(line, sizeof(line), "%.*s", start, rl_line_buffer);
	while ((w = strsep(&at, " \t")) && argc < WEIRCTL_WORDS)
		if (*w)
			argv[argc++] = w;
	words_free(&found);
	complete(options, argc, argv, text, &found);
	if (!found.count && argc == 2 && !strcmp(argv[0], "capture"))
		rl_attempted_completion_over = 0; // a file, by libedit itself
	return found.count ? rl_completion_matches(text, next_match) : NULL;
}

// ---- history ----

// ---- lines ----

static bool
is_end(const char *line)
{
	size_t from = strspn(line, " \t\r\n"), n = strcspn(line + from, " \t\r\n");

	return !line[from + n + strspn(line + from + n, " \t\r\n")] &&
	       ((n == 4 && !strncmp(line + from, "quit", 4)) ||
		(n == 4 && !strncmp(line + from, "exit", 4)));
}

static int
by_terminal(const struct weirctl_options *o)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME"), *file = NULL;
	char text[96], path[PATH_ROOM], *line;
	mode_t mask;
	int n = -1;

	if (state && *state == '/')
		n = snprintf(path, sizeof(path), "%s/weirctl_history", state);
	else if (home && *home == '/')
		n = snprintf(path, sizeof(path), "%s/.weirctl_history", home);
	if (n > 0 && (size_t)n < sizeof(path))
		file = path;

	options = o;
	rl_readline_name = "weirctl";
	rl_attempted_completion_function = matches;
	using_history();
	stifle_history(HISTORY_MAX);
	if (file)
		read_history(file);
	snprintf(text, sizeof(text), "weir %.64s> ", o->instance);
	while ((line = readline(text))) {
		HIST_ENTRY *last =
		    history_length ? history_get(history_base + history_length - 1) : NULL;
		bool end = is_end(line);

		// Saved at once: Ctrl-C ends the prompt, too. Only the user may read the file; it
		// is created if its folder exists.
		if (line[strspn(line, " \t")] && !(last && !strcmp(last->line, line))) {
			add_history(line);
			mask = umask(077);
			if (file)
				write_history(file);
			umask(mask);
		}
		if (!end)
			command_line(o, line);
		free(line);
		if (end)
			break;
	}
	if (!line)
		putchar('\n');
	words_free(&found);
	return WEIRCTL_OK;
}

int
prompt(const struct weirctl_options *o)
{
	char *line = NULL, where[32] = "";
	size_t room = 0;
	int status = WEIRCTL_OK;

	if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
		return by_terminal(o);
	// A script: what comes behind a failure may rest on what failed.
	weirctl_place(where);
	for (unsigned n = 1; !status && getline(&line, &room, stdin) >= 0 && !is_end(line); n++) {
		snprintf(where, sizeof(where), "line %u: ", n);
		status = command_line(o, line);
		fflush(stdout);
	}
	weirctl_place("");
	free(line);
	if (!status && ferror(stdin))
		return weirctl_fail(WEIRCTL_FAILED,
				    "cannot read commands: %s; give one, or check stdin",
				    strerror(errno));
	return status;
}
