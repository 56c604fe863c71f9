/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "rounds.h"

#include "now.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LOOK_MS 20
#define STARVED_MS 100 /* a control looks at its clock each 25 ms */
#define FAILURES 3     /* rounds in which nobody was starved */
#define SPARE_MS 60000 /* for all rounds of this program that are repeated */

/* Exit codes of a round; all others are BROKEN. */
enum verdict { GOOD, BAD = 100, STARVED, BROKEN };

static _Atomic pid_t watched[2]; /* main writes, the witness reads; 0: none */
static _Atomic bool starved;	 /* the witness writes, main reads */
static bool broken;
static uint64_t spare = SPARE_MS;

void
rounds_watch(int i, pid_t pid)
{
	if (i < 2)
		atomic_store(&watched[i], pid);
}

void
rounds_broken(void)
{
	broken = true;
}

// ---- the witness ----

struct schedule {
	unsigned long long ran, waited; /* ns */
	unsigned long turns;
};

// False: no such process, or a kernel that doesn't say.
static bool
schedule_of(const char *path, struct schedule *s)
{
	FILE *f = fopen(path, "re");
	bool ok = f && fscanf(f, "%llu %llu %lu", &s->ran, &s->waited, &s->turns) == 3;

	if (f)
		fclose(f);
	return ok;
}

struct sight {
	pid_t pid;
	struct schedule last;
	uint64_t at; /* ms: when it was seen to have run */
};

static void
look_at(struct sight *s, pid_t pid, uint64_t now)
{
	struct schedule is;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	if (!pid || !schedule_of(path, &is)) {
		s->pid = 0;
		return;
	}
	if (s->pid != pid || is.ran != s->last.ran || is.turns != s->last.turns) {
		s->pid = pid;
		s->last = is;
		s->at = now;
	} else if (now - s->at >= STARVED_MS) {
		atomic_store(&starved, true);
	}
}

// It shares the fate of the others too: what it sleeps too long, they may have.
static void *
witness(void *unused)
{
	static const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
	struct sight sight[2] = {0};
	struct schedule own = {0}, is;
	uint64_t last = now_ms();
	char path[48];

	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", (int)getpid());
	for (;;) {
		uint64_t now;

		nanosleep(&pause, NULL);
		now = now_ms();
		if (now - last >= LOOK_MS + STARVED_MS)
			atomic_store(&starved, true);
		last = now;
		for (int i = 0; i < 2; i++)
			look_at(&sight[i], atomic_load(&watched[i]), now);
		if (!schedule_of(path, &is))
			continue;
		if (own.turns && is.waited - own.waited >= STARVED_MS * 1000000ull)
			atomic_store(&starved, true);
		own = is;
	}
	return NULL;
}

// ---- rounds ----

static void
one_round(const struct CMUnitTest *test, FILE *said)
{
	const struct CMUnitTest tests[] = {*test};
	pthread_t thread;
	int failed;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(fileno(said), STDOUT_FILENO);
	dup2(fileno(said), STDERR_FILENO);
	if (pthread_create(&thread, NULL, witness, NULL))
		_exit(BAD);
	failed = cmocka_run_group_tests_name("round", tests, NULL, NULL);
	fflush(NULL);
	if (!failed)
		_exit(GOOD);
	if (broken)
		_exit(BROKEN);
	// The kernel counts the time without a CPU when the process gets one.
	usleep(5 * STARVED_MS * 1000);
	_exit(atomic_load(&starved) ? STARVED : BAD);
}

static enum verdict
try_round(const struct CMUnitTest *test, FILE *said)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		one_round(test, said);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	status = WIFEXITED(status) ? WEXITSTATUS(status) : BROKEN;
	return status == GOOD || status == BAD || status == STARVED ? status : BROKEN;
}

static void
repeat(FILE *said)
{
	char line[512];

	rewind(said);
	while (fgets(line, sizeof(line), said))
		print_message("  | %s", line);
}

void
rounds_run(void **state)
{
	const struct CMUnitTest *test = *state;
	unsigned failures = 0;

	for (;;) {
		FILE *said = tmpfile();
		uint64_t begin = now_ms(), took;
		enum verdict v;

		assert_non_null(said);
		v = try_round(test, said);
		took = now_ms() - begin;
		failures += v == BAD;
		if (v != GOOD)
			repeat(said);
		fclose(said);
		if (v == GOOD)
			return;
		if (v == BROKEN || failures == FAILURES)
			fail_msg("%s failed, and not because it was starved", test->name);
		spare -= took < spare ? took : spare;
		if (!spare && v == STARVED) {
			print_message("%s: not decided, the machine is too busy\n", test->name);
			skip();
		}
	}
}
