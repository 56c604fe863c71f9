/* SPDX-License-Identifier: BSD-3-Clause */
/* test-sim: runs seeds, prints what failed and how to see it again. */
#include "sim.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static uint64_t running; /* seed, for the handlers below */

static void
say_seed(const char *why)
{
	char line[80];
	int n = snprintf(line, sizeof(line), "seed %lu: %s\n", running, why);

	if (write(STDOUT_FILENO, line, (size_t)n) < 0)
		_exit(1);
}

static void
on_signal(int sig)
{
	say_seed(sig == SIGPROF ? "does not end" : strsignal(sig));
	signal(sig, SIG_DFL);
	raise(sig == SIGPROF ? SIGABRT : sig);
}

/* AddressSanitizer ends the process without a signal. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void
on_death(void)
{
	say_seed("stopped by a sanitizer");
}

static void
catch_crashes(void)
{
	static const int signals[] = {SIGABRT, SIGPROF, SIGBUS, SIGFPE, SIGILL};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], on_signal);
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(on_death);
	else
		signal(SIGSEGV, on_signal);
	signal(SIGPIPE, SIG_IGN);
}

/* Of the process: it may be stopped for a while, or share its CPU. 0: no limit. */
static void
limit_cpu(time_t seconds)
{
	struct itimerval t = {.it_value.tv_sec = seconds};

	setitimer(ITIMER_PROF, &t, NULL);
}

static void
usage(FILE *to)
{
	fprintf(to, "usage: test-sim --seed N | --from A --to B [options]\n"
		    "  --without PART[,PART...]  leave parts out of every scenario:\n");
#define X(name, help) fprintf(to, "      %-10s%s\n", #name, help);
	SIM_PARTS(X)
#undef X
	fprintf(
	    to,
	    "  --only PART[,PART...]     leave all other parts out\n"
	    "  --times N                 N times as many messages (1)\n"
	    "  --check-every N           check the engines' invariants every N turns (1; 0 never)\n"
	    "  --limit SECONDS           simulated time without progress that fails a seed (30)\n"
	    "  --keep-going              go on after a failing seed\n"
	    "  --counts                  print what the seeds have been through\n"
	    "  --verbose                 print the scenario and what happens\n"
	    "exit: 0 all passed, 1 a seed failed, 2 usage\n");
}

static bool
parse_parts(const char *text, uint32_t *bits)
{
	static const char *const names[] = {
#define X(name, help) #name,
	    SIM_PARTS(X)
#undef X
	};
	char copy[256], *rest = copy, *t;

	snprintf(copy, sizeof(copy), "%s", text);
	while ((t = strsep(&rest, ","))) {
		unsigned i = 0;

		while (i < SIM_PART_COUNT && strcmp(t, names[i]) != 0)
			i++;
		if (i == SIM_PART_COUNT) {
			fprintf(stderr, "test-sim: no part '%s'; see --help\n", t);
			return false;
		}
		*bits |= 1u << i;
	}
	return true;
}

static bool
parse_number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (errno || end == text || *end) {
		fprintf(stderr, "test-sim: '%s' is not a number; give a decimal one\n", text);
		return false;
	}
	return true;
}

struct arguments {
	bool counts;
	uint64_t from, to;
	bool given;
	struct sim_options options;
};

static bool
parse_option(struct arguments *a, int c)
{
	uint64_t v = 0;
	uint32_t bits = 0;

	switch (c) {
	case 's':
		a->given = true;
		return parse_number(optarg, &a->from) && parse_number(optarg, &a->to);
	case 'f':
		a->given = true;
		return parse_number(optarg, &a->from);
	case 't':
		return parse_number(optarg, &a->to);
	case 'w':
		return parse_parts(optarg, &a->options.without);
	case 'o':
		if (!parse_parts(optarg, &bits))
			return false;
		a->options.without |= ~bits;
		return true;
	case 'c':
		if (!parse_number(optarg, &v))
			return false;
		a->options.check_every = (uint32_t)v;
		return true;
	case 'l':
		if (!parse_number(optarg, &v))
			return false;
		a->options.limit = v * SIM_S;
		return true;
	case 'm':
		if (!parse_number(optarg, &v) || v < 1 || v > 100)
			return false;
		a->options.times = (uint32_t)v;
		return true;
	case 'k':
		a->options.keep_going = true;
		return true;
	case 'C':
		a->counts = true;
		return true;
	case 'v':
		a->options.verbose = true;
		return true;
	}
	return false;
}

static bool
parse(int argc, char **argv, struct arguments *a)
{
	static const struct option longs[] = {
	    {"seed", 1, NULL, 's'},    {"from", 1, NULL, 'f'},	  {"to", 1, NULL, 't'},
	    {"without", 1, NULL, 'w'}, {"only", 1, NULL, 'o'},	  {"check-every", 1, NULL, 'c'},
	    {"counts", 0, NULL, 'C'},  {"limit", 1, NULL, 'l'},	  {"keep-going", 0, NULL, 'k'},
	    {"times", 1, NULL, 'm'},   {"verbose", 0, NULL, 'v'}, {"help", 0, NULL, 'h'},
	    {NULL, 0, NULL, 0},
	};
	int c;

	a->options.check_every = a->options.times = 1;
	a->options.limit = 30 * SIM_S;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h') {
			usage(stdout);
			exit(0);
		}
		if (!parse_option(a, c))
			return false;
	}
	return a->given && optind == argc && a->from <= a->to;
}

int
main(int argc, char **argv)
{
	static struct sim sim;
	struct sim_tally tally = {0};
	struct arguments a = {0};
	struct timespec begin, end;
	uint64_t failed = 0;

	if (!parse(argc, argv, &a)) {
		usage(stderr);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	catch_crashes();
	sim.options = a.options;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (running = a.from; running <= a.to; running++) {
		limit_cpu(120);
		if (sim_run(&sim, running)) {
			sim_tally_add(&tally, &sim.counts);
			continue;
		}
		printf("seed %lu: %s (test-sim --seed %lu --verbose)\n", running, sim.cause,
		       running);
		failed++;
		if (!a.options.keep_going)
			break;
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	limit_cpu(0);
	printf("%lu seeds, %lu failed, %.1f s\n", running - a.from + (running <= a.to), failed,
	       (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
	if (a.counts)
		sim_tally_print(&tally);
	return failed || (!a.options.without && !sim_tally_check(&tally));
}
