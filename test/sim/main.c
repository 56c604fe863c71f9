/* SPDX-License-Identifier: BSD-3-Clause */
/* test-sim: runs seeds, prints what failed and how to see it again. */
#include "seeds.h"
#include "sim.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

struct arguments {
	bool counts, help, given;
	uint64_t from, to;
	struct sim_options options;
};

static int
take_seed(void *into, const char *text, char *error, size_t size)
{
	struct arguments *a = into;
	int status = option_number(text, false, 0, UINT64_MAX, &a->from);

	a->to = a->from;
	return status;
}

static int
take_part(void *bits, const char *word)
{
	static const char *const names[] = {
#define X(name, help) #name,
	    SIM_PARTS(X)
#undef X
	};

	for (unsigned i = 0; i < SIM_PART_COUNT; i++)
		if (!strcmp(word, names[i])) {
			*(uint32_t *)bits |= 1u << i;
			return 0;
		}
	return -EINVAL;
}

static int
take_without(void *into, const char *text, char *error, size_t size)
{
	return option_list(text, take_part, &((struct arguments *)into)->options.without);
}

static int
take_only(void *into, const char *text, char *error, size_t size)
{
	uint32_t bits = 0;
	int status = option_list(text, take_part, &bits);

	((struct arguments *)into)->options.without |= ~bits;
	return status;
}

#define AT(field) OPTION_FIELD(struct arguments, field)
#define PARTS .expected = "parts of a scenario; see --help"

static const struct option_spec specs[] = {
    {"check-every", 0, OPTION_UNSIGNED, AT(options.check_every), "N", "1",
     "turns between two checks of the engines' invariants; 0: never", .max = UINT32_MAX},
    {"counts", 0, OPTION_FLAG, AT(counts), NULL, NULL, "print what the seeds have been through"},
    {"from", 0, OPTION_UNSIGNED, AT(from), "SEED", NULL, "first seed", .max = UINT64_MAX,
     .given = offsetof(struct arguments, given)},
    {"help", 0, OPTION_STOP, AT(help), NULL, NULL, "this text"},
    {"keep-going", 0, OPTION_FLAG, AT(options.keep_going), NULL, NULL,
     "go on after a failing seed"},
    {"limit", 0, OPTION_UNSIGNED, AT(options.limit), "SECONDS", "30",
     "simulated time without progress that fails a seed", .max = UINT32_MAX},
    {"nodes", 0, OPTION_UNSIGNED, AT(options.nodes), "N", NULL,
     "another scenario: N nodes, each talks to more others than it may have links", .min = 40,
     .max = SIM_NODES_MAX},
    {"only", 0, OPTION_CALL, 0, 0, "PART[,PART...]", NULL, "leave all other parts out",
     .take = take_only, PARTS},
    {"seed", 0, OPTION_CALL, 0, 0, "SEED", NULL, "the only seed", .take = take_seed,
     .expected = "a number", .given = offsetof(struct arguments, given)},
    {"times", 0, OPTION_UNSIGNED, AT(options.times), "N", "1", "N times as many messages", .min = 1,
     .max = 100},
    {"to", 0, OPTION_UNSIGNED, AT(to), "SEED", NULL, "last seed", .max = UINT64_MAX},
    {"verbose", 0, OPTION_FLAG, AT(options.verbose), NULL, NULL,
     "print the scenario and what happens"},
    {"without", 0, OPTION_CALL, 0, 0, "PART[,PART...]", NULL, "leave parts out of every scenario",
     .take = take_without, PARTS},
};

static const struct option_table table = {
    OPTION_SPECS(specs, struct arguments),
    .head = "usage: test-sim --seed N | --from A --to B [options]\n",
    .tail = "parts:\n"
#define X(name, help) "  " #name ": " help "\n"
    SIM_PARTS(X)
#undef X
	"exit: 0 all passed, 1 a seed failed, 2 usage\n",
};

int
main(int argc, char **argv)
{
	static struct sim sim;
	struct sim_tally tally = {0};
	struct arguments a = {0};
	struct timespec begin, end;
	struct rlimit files;
	uint64_t failed = 0;

	seeds_parse(&table, &a, &a.help, argc, argv);
	if (!a.given || a.from > a.to) {
		option_print_help(&table, stderr);
		return 2;
	}
	a.options.limit *= SIM_S;
	setvbuf(stdout, NULL, _IOLBF, 0);
	catch_crashes();
	if (!getrlimit(RLIMIT_NOFILE, &files)) { /* programs take several each */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	sim.options = a.options;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (running = a.from; running <= a.to; running++) {
		/* under AddressSanitizer some seeds take three minutes, as 200 nodes do */
		limit_cpu(a.options.nodes || __sanitizer_set_death_callback ? 900 : 120);
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
	return failed || (!a.options.without && !a.options.nodes && !sim_tally_check(&tally));
}
