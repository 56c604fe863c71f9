/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * starve SEED [STOPS] PROGRAM [ARGUMENT...]: runs a program on a machine that has no CPU for it now
 * and then: single threads of it are stopped at random, STOPS times (200) in all, most for some ms,
 * some for seconds. Exits as the program does. A test that fails so depends on time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 1024
#define STOPS 200
#define GAP_MS 30 /* of a thread between two stops, about */
#define LOOK_NS 300000

struct victim {
	pid_t id;
	bool asked, stopped;
	double next, until; /* ms: of its next stop; of the present one */
};

static struct victim victims[THREADS];
static unsigned count;
static uint64_t seed;

static double
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* From 0 up to 1; xorshift. */
static double
chance(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (double)(seed >> 11) / (double)(UINT64_C(1) << 53);
}

static double
gap(void)
{
	double r = chance();

	return 2 * GAP_MS * r * r;
}

static double
length(void)
{
	double r = chance();

	return r < 0.75 ? 30 * chance() : r < 0.95 ? 1000 * chance() : 1000 + 3500 * chance();
}

static struct victim *
victim_of(pid_t id)
{
	for (unsigned i = 0; i < count; i++)
		if (victims[i].id == id)
			return &victims[i];
	if (count == THREADS) {
		fprintf(stderr, "starve: more than %d threads\n", THREADS);
		exit(1);
	}
	victims[count] = (struct victim){.id = id, .next = now_ms() + gap()};
	return &victims[count++];
}

/* A thread has stopped, as we asked it to or for reasons of its own. */
static void
take(struct victim *v, int status)
{
	int number = WSTOPSIG(status), event = status >> 16;

	if (event == PTRACE_EVENT_STOP && number != SIGTRAP)
		ptrace(PTRACE_LISTEN, v->id, NULL, NULL); /* by a signal, until another one */
	else if (event == PTRACE_EVENT_STOP && v->asked)
		v->stopped = true;
	else
		ptrace(PTRACE_CONT, v->id, NULL, event ? 0L : (long)number);
}

/* True: the program has ended; `code`: how. */
static bool
look(pid_t program, int *code)
{
	int status;
	pid_t id;

	while ((id = waitpid(-1, &status, __WALL | WNOHANG)) > 0) {
		struct victim *v = victim_of(id);

		if (WIFSTOPPED(status)) {
			take(v, status);
			continue;
		}
		*v = victims[--count];
		*code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (id == program)
			return true;
	}
	return false;
}

static void
stop_some(unsigned *stops)
{
	double now = now_ms();

	for (unsigned i = 0; i < count; i++) {
		struct victim *v = &victims[i];

		if (v->stopped && now >= v->until) {
			v->stopped = v->asked = false;
			v->next = now + gap();
			ptrace(PTRACE_CONT, v->id, NULL, NULL);
		} else if (!v->asked && now >= v->next && *stops) {
			v->until = now + length();
			v->asked = !ptrace(PTRACE_INTERRUPT, v->id, NULL, NULL);
			*stops -= v->asked;
		}
	}
}

/* It waits until we are its tracer. */
static pid_t
begin(char **argv)
{
	long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
		       PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
	int ready[2];
	pid_t id;
	char c;

	if (pipe(ready))
		return -1;
	id = fork();
	if (!id) {
		close(ready[1]);
		if (read(ready[0], &c, 1) == 1)
			execvp(*argv, argv);
		perror(*argv);
		_exit(127);
	}
	if (id > 0 && (ptrace(PTRACE_SEIZE, id, NULL, options) || write(ready[1], "", 1) != 1))
		id = -1;
	close(ready[0]);
	close(ready[1]);
	return id;
}

int
main(int argc, char **argv)
{
	static const struct timespec pause = {.tv_nsec = LOOK_NS};
	unsigned stops;
	char **command = argv + 2, *end;
	pid_t program;
	int code = 0;

	if (argc < 3) {
		fprintf(stderr, "usage: starve SEED [STOPS] PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	stops = (unsigned)strtoul(argv[2], &end, 10);
	if (!*end && argc > 3)
		command++;
	else
		stops = STOPS;
	seed = strtoul(argv[1], &end, 10) * UINT64_C(2654435761) + 1;
	program = begin(command);
	if (program < 0) {
		fprintf(stderr, "starve: %s; allow ptrace\n", strerror(errno));
		return 1;
	}
	while (!look(program, &code)) {
		stop_some(&stops);
		nanosleep(&pause, NULL);
	}
	return code;
}
