/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl top: rates of engines, programs and connections, again and again. */
#include "weirctl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/*
 * A row of a connection costs the data plane's main thread about 1 us: the next query
 * waits REST times as long as the last answer took.
 */
#define REST 20
#define LINES 24   /* of a terminal that doesn't say */
#define PIPED 1000 /* of a view that goes elsewhere */

static struct query q;

struct screen {
	bool live; /* a terminal: cleared and drawn anew */
	bool keys; /* raw, and to be put back */
	struct termios before;
};

struct history {
	struct sample before, now;
	double took; // the last answer with connections
};

static void
sample_free(struct sample *s)
{
	free(s->engines.records);
	free(s->sessions.records);
	free(s->conns.records);
	*s = (struct sample){0};
}

// Makes the present rows the previous ones; `rows` is then empty.
static void
move(struct rows *before, struct rows *rows)
{
	free(before->records);
	*before = *rows;
	*rows = (struct rows){0};
}

// 0 or an exit code and q.reason.
static int
look(struct history *h)
{
	double begin = weirctl_now();
	int status;

	move(&h->before.engines, &h->now.engines);
	move(&h->before.sessions, &h->now.sessions);
	h->before.at = h->now.at;
	status = query_rows(&q, WEIR_ROWS_ENGINES, &h->now.engines);
	h->now.at = weirctl_now();
	if (!status)
		status = query_rows(&q, WEIR_ROWS_SESSIONS, &h->now.sessions);
	if (status || (h->before.conns_at > 0 && begin - h->now.conns_at < REST * h->took))
		return status;
	move(&h->before.conns, &h->now.conns);
	h->before.conns_at = h->now.conns_at;
	begin = weirctl_now();
	status = query_rows(&q, WEIR_ROWS_CONNECTIONS, &h->now.conns);
	h->now.conns_at = weirctl_now();
	h->took = h->now.conns_at - begin;
	if (!status)
		rates_sort(&h->now.conns);
	return status;
}

// ---- the screen ----

// Prints at most `most` rows; returns the number of lines left.
static size_t
print_some(const struct table *table, json_t *array, size_t most, size_t lines)
{
	size_t room = lines > 2 ? lines - 2 : 0, count = json_array_size(array);

	most = most < room ? most : room;
	if (!room)
		return 0;
	while (json_array_size(array) > most)
		json_array_remove(array, json_array_size(array) - 1);
	table_print(table->fields, table->count, array);
	if (count > most)
		printf("... %zu more", count - most);
	putchar('\n');
	return lines - 2 - json_array_size(array);
}

// ---- the command ----

// Until the next view is due. True: it is the end.
static bool
rest(const struct screen *screen, int signals, double until)
{
	struct pollfd p[2] = {{.fd = signals, .events = POLLIN},
			      {.fd = screen->keys ? STDIN_FILENO : -1, .events = POLLIN}};

	for (;;) {
		double left = until - weirctl_now();
		char key = 0;

		if (left <= 0)
			return false;
		if (poll(p, 2, (int)(left * 1000) + 1) < 0 && errno != EINTR)
			return true;
		if (p[0].revents)
			return true;
		if (!p[1].revents)
			continue;
		if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q')
			return true;
		if (key == ' ')
			return false;
	}
}

static int
view(const struct weirctl_options *o, const struct screen *screen, const struct history *h)
{
	struct rates r;

	if (!rates_make(&h->before, &h->now, &r))
		return weirctl_fail(WEIRCTL_RESOURCE, "out of memory for the rates");
	if (o->json) {
		json_t *object =
		    json_pack("{s:I, s:O, s:O, s:O}", "time", (json_int_t)time(NULL), "engines",
			      r.engines, "programs", r.programs, "connections", r.conns);

		json_dumpf(object, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(object);
	} else {
		size_t lines = screen->live ? LINES : PIPED, count = h->now.conns.count;
		struct winsize size;
		time_t clock = time(NULL);
		char at[16];

		if (screen->live && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row)
			lines = size.ws_row;
		strftime(at, sizeof(at), "%H:%M:%S", localtime(&clock));
		printf("%s%s  instance %s: %u program%s, %zu end%s of connections, %zu of them "
		       "busy\n\n",
		       screen->live ? "\033[H\033[J" : "", at, o->instance, h->now.sessions.count,
		       h->now.sessions.count == 1 ? "" : "s", count, count == 1 ? "" : "s",
		       json_array_size(r.conns));
		lines = lines > 3 ? lines - 3 : 0;
		lines = print_some(&top_engines, r.engines, lines, lines);
		lines = print_some(&top_programs, r.programs, lines / 2, lines);
		print_some(&top_connections, r.conns, lines, lines);
	}
	rates_free(&r);
	if (fflush(stdout) || ferror(stdout))
		return weirctl_fail(WEIRCTL_FAILED, "cannot write to stdout; check its target");
	return WEIRCTL_OK;
}

int
top(const struct weirctl_options *o, int argc, char **argv)
{
	double pause = o->interval < 1 ? o->interval : 1; // short at first: rates need two looks
	struct history h = {0};
	struct screen screen = {0};
	struct termios raw;
	uint64_t seen = 0;
	sigset_t before;
	int signals, status = query_open(&q, o->instance, WEIRCTL_ANSWER_SECONDS);

	if (status)
		return weirctl_fail(status, "%s", q.reason);
	signals = signals_open(&before);
	screen.live = !o->json && isatty(STDOUT_FILENO);
	screen.keys = screen.live && !tcgetattr(STDIN_FILENO, &screen.before);
	if (screen.keys) {
		raw = screen.before;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
		fputs("\033[?7l\033[?25l", stdout); // long lines are cut; no cursor
	}
	for (;;) {
		double begin = weirctl_now();

		status = look(&h);
		if (status) {
			weirctl_fail(status, "%s", q.reason);
			break;
		}
		if (h.before.at > 0) {
			status = view(o, &screen, &h);
			if (status || ++seen == o->count)
				break;
			pause = o->interval;
		}
		if (rest(&screen, signals, begin + pause))
			break;
	}
	if (screen.keys) {
		tcsetattr(STDIN_FILENO, TCSANOW, &screen.before);
		fputs("\033[?7h\033[?25h", stdout);
		fflush(stdout);
	}
	signals_close(signals, &before);
	weir_ctl_close(&q.c);
	sample_free(&h.before);
	sample_free(&h.now);
	return status;
}
