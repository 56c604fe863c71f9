/* SPDX-License-Identifier: BSD-3-Clause */
#include "prompt.h"

#include "clock.h"
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#ifdef PERF_EDITLINE
#include <editline/readline.h>
#endif

/* Lines from a terminal, edited, or from a file or pipe. */
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

static void
line_open(const char *prompt, void (*on_line)(char *line))
{
	memset(&input, 0, sizeof(input));
	input.on_line = on_line;
#ifdef PERF_EDITLINE
	input.terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	if (input.terminal)
		rl_callback_handler_install(prompt, edited);
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
line_read(int timeout_ms)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	bool readable;
	ssize_t n;

	/* a complete line needs no wait */
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

static void
line_again(void)
{
#ifdef PERF_EDITLINE
	if (input.terminal)
		rl_forced_update_display();
#endif
}

static void
line_close(void)
{
#ifdef PERF_EDITLINE
	if (input.terminal)
		rl_callback_handler_remove();
#endif
}

#define PROMPT "weir-perf> "
#define LOOK_MS 50 /* between two looks at the run */
#define WORDS 4	   /* of a command */

struct prompt {
	struct perf_options *options;
	struct perf_info info;
	struct team_run run;
	struct team_rates rates;
	struct team_sum past, cleared; /* ended runs; counters at the last `clear stats` */
	uint64_t wait_until;	       /* `wait`: ns, no command is read before; 0: none */
	int code;		       /* of the last run */
	int wrong; /* exit code of the first error in a file or pipe, which ends the input */
	bool quit;
};

static struct prompt *prompt;

/* An error at a terminal leaves the choice to its user; commands from elsewhere rely on the past.
 */
static void
went_wrong(struct prompt *p, int code)
{
	if (input.terminal)
		return;
	if (!p->wrong)
		p->wrong = code;
	p->quit = true;
}

__attribute__((format(printf, 2, 3))) static void
complain(struct prompt *p, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	went_wrong(p, EXIT_USAGE);
}

static void
help(void)
{
	puts(
	    "start                 starts a run with these settings; prints its result at the end\n"
	    "stop                  ends the run\n"
	    "wait [SECONDS]        reads no command until the run has ended, or for SECONDS\n"
	    "set NAME VALUE        test, size, window, flags, rate, connections, programs, "
	    "threads, count,\n"
	    "                      duration, region, large, pick, seed, wait, stats-period, "
	    "verify, copy, "
	    "bidirectional;\n"
	    "                      as the options of the same name, on or off for the last three\n"
	    "show config           prints the settings\n"
	    "show stats all        prints the counters, also during a run\n"
	    "clear stats           resets the counters\n"
	    "help, quit");
}

static struct team_sum
add(struct team_sum a, struct team_sum b)
{
	return (struct team_sum){.sent = a.sent + b.sent,
				 .received = a.received + b.received,
				 .errors = a.errors + b.errors,
				 .connected = b.connected};
}

static void
show_stats(const struct prompt *p)
{
	struct team_sum all = add(p->past, team_count(&p->run));

	for (uint32_t i = 0; p->run.team && i < p->run.team->count; i++) {
		struct team_live *l = &p->run.team->member[i].live;

		printf("program %-4u %8llu connections %15llu sent %15llu received %10llu "
		       "errors\n",
		       i, (unsigned long long)atomic_load(&l->connected),
		       (unsigned long long)atomic_load(&l->sent),
		       (unsigned long long)atomic_load(&l->received),
		       (unsigned long long)atomic_load(&l->errors));
	}
	printf("all          %8llu connections %15llu sent %15llu received %10llu errors\n",
	       (unsigned long long)all.connected, (unsigned long long)(all.sent - p->cleared.sent),
	       (unsigned long long)(all.received - p->cleared.received),
	       (unsigned long long)(all.errors - p->cleared.errors));
}

static void
start(struct prompt *p)
{
	const struct perf_options *o = p->options;
	int rc;

	if (p->run.team) {
		complain(p, "a run goes on; stop it first");
		return;
	}
	rc = team_start(&p->run, o, o->tests[0],
			o->size_count ? o->sizes[0] : perf_usual_size(o->tests[0], o->type));
	if (rc) {
		printf("no run: %s; lower programs\n", strerror(-rc));
		went_wrong(p, EXIT_RESOURCE);
	}
	p->rates = (struct team_rates){.last_ns = now_ns()};
}

static bool
is(const char *const *word, const char *a, const char *b, const char *c)
{
	const char *want[] = {a, b, c};

	for (int i = 0; i < 3; i++)
		if (!word[i] != !want[i] || (want[i] && strcmp(word[i], want[i]) != 0))
			return false;
	return true;
}

/* A command, or NULL at the end of the input. */
static void
on_line(char *line)
{
	const char *word[WORDS + 1] = {NULL};
	struct prompt *p = prompt;
	struct perf_options *o = p->options;
	char reason[160], *rest = line, *end;
	int n = 0;
	double s;

	if (!line) {
		p->quit = true;
		return;
	}
	while (n < WORDS && (word[n] = strsep(&rest, " \t\r\n")))
		n += word[n][0] != '\0';
	word[n] = NULL;
	if (!n)
		return;
	if (is(word, "start", NULL, NULL)) {
		start(p);
	} else if (is(word, "stop", NULL, NULL) && !p->run.team) {
		puts("nothing runs");
	} else if (is(word, "stop", NULL, NULL)) {
		atomic_store(&p->run.team->stop, true);
	} else if (is(word, "quit", NULL, NULL)) {
		p->quit = true;
	} else if (is(word, "help", NULL, NULL)) {
		help();
	} else if (is(word, "show", "config", NULL)) {
		printf("%s: address %s, transport %s, flags %s\n",
		       p->run.team ? "running" : "stopped", o->address ? o->address : "itself",
		       o->tcp ? "tcp" : "weir", perf_flags_text(o));
		printf("test %s, size %u, window %u, rate %.0f, count %llu, duration %g\n",
		       perf_test_name(o->tests[0]), o->size_count ? o->sizes[0] : 0, o->window,
		       o->rate, (unsigned long long)o->count, o->duration_s);
		printf("connections %u, programs %u, threads %u, pick %s, wait %s, seed %llu\n",
		       o->connections, o->programs, o->threads, o->random ? "random" : "turn",
		       o->sleep ? "sleep" : "poll", (unsigned long long)o->seed);
		printf("verify %s, copy %s, bidirectional %s, stats-period %g\n",
		       o->verify ? "on" : "off", o->copy ? "on" : "off", o->both ? "on" : "off",
		       o->period_s);
	} else if (is(word, "show", "stats", "all")) {
		show_stats(p);
	} else if (is(word, "clear", "stats", NULL)) {
		p->cleared = add(p->past, team_count(&p->run));
	} else if (n == 3 && strcmp(word[0], "set") == 0) {
		if (p->run.team)
			complain(p, "a run goes on; stop it first");
		else if (perf_options_set(o, word[1], word[2], reason, sizeof(reason)))
			complain(p, "%s", reason);
	} else if (n <= 2 && strcmp(word[0], "wait") == 0) {
		s = word[1] ? strtod(word[1], &end) : 86400;
		if (word[1] && (end == word[1] || *end || !(s >= 0) || s > 86400))
			complain(p, "invalid time '%s' (expected seconds from 0 to 86400)",
				 word[1]);
		else if (p->run.team || word[1])
			p->wait_until = now_ns() + (uint64_t)(s * 1e9);
	} else {
		complain(p, "unknown or incomplete command '%s'; see help", word[0]);
	}
	fflush(stdout);
}

/* Watches the run: prints its result at the end, and rates meanwhile. */
static void
look(struct prompt *p)
{
	static struct perf_result r;
	char reason[TEAM_REASON];
	uint64_t now = now_ns();

	if (p->run.team && !team_watch(&p->run)) {
		p->past = add(p->past, team_count(&p->run));
		p->code = team_collect(&p->run, &p->info, &r, reason, sizeof(reason));
		if (p->code) {
			fprintf(stderr, "weir-perf: %s\n", reason);
		} else {
			perf_report_begin(&p->info, stdout);
			perf_report(&p->info, &r, stdout);
			perf_report_end(&p->info, stdout);
			p->code = r.errors ? EXIT_FAILED : 0;
		}
		if (p->code)
			went_wrong(p, p->code);
		p->wait_until = 0;
		line_again();
	}
	if (p->wait_until && now >= p->wait_until)
		p->wait_until = 0;
	if (p->run.team && p->options->period_s > 0 &&
	    (double)(now - p->rates.last_ns) >= p->options->period_s * 1e9) {
		team_print_rates(&p->run, &p->rates, stdout);
		fflush(stdout);
		line_again();
	}
}

int
perf_prompt(struct perf_options *o)
{
	static struct prompt p;

	p = (struct prompt){.options = o, .info = {.options = o, .node = -1, .peer = -1}};
	prompt = &p;
	line_open(PROMPT, on_line);
	while (!p.quit && !atomic_load(&perf_stop)) {
		if (p.wait_until)
			usleep(LOOK_MS * 1000);
		else
			line_read(LOOK_MS);
		look(&p);
	}
	line_close();
	if (p.run.team)
		atomic_store(&p.run.team->stop, true);
	while (p.run.team) {
		look(&p);
		usleep(LOOK_MS * 100);
	}
	return p.wrong ? p.wrong : p.code;
}
