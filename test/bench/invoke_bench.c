/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Costs of remote invocation in several processes, which weir-run starts.
 *
 * invoke_bench lines: processes 0 and 1 print the bytes that an idle line takes at its end, of the
 * thread that calls and of the thread that is called. Each thread of process 0 calls all threads of
 * process 1 once. Counted are the bytes that malloc() has given to the process when all have called
 * one thread, and when they have called all; the difference is divided by the number of lines made
 * between. So it has the line, its lane, and the program's record of the connection. Shared memory
 * is not part of it: what the session and the data plane have of the connection (memory_1000), and
 * the segment of two threads of one host.
 *
 * invoke_bench tree ROUNDS [PID...]: process 0 prints the time of CPU of a round of weir_call_all()
 * divided by that of a round of weir_call() to each process, and both in us. Either round makes
 * each process run a function once, and ends when all have run. The time is that of all processes
 * and of those with a PID (data planes). One thread per process, which sleeps when there is nothing
 * to do. Rounds alternate in blocks, so that other load of the machine meets both.
 */
#include "clock.h"

#include "weir/invoke.h"
#include "weir/weir.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENT 60000 /* ms */
#define SLEEP_MS 100
#define BLOCK 50u /* rounds of one kind */

enum { NOTHING, END, FUNCTIONS };

static struct weir_group *group;
static struct weir_invoker *invoker;
static pthread_barrier_t together; /* threads of this process */
static uint32_t rank, threads;
static uint64_t bytes[2]; /* thread 0 writes, the main thread reads after its end */
static bool ended;	  /* of one thread */

static void
must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "invoke_bench: %s: %s\n", what, weir_reason());
	exit(1);
}

static void
nothing(struct weir_incoming *c, const void *args, size_t length)
{
}

static void
end(struct weir_incoming *c, const void *args, size_t length)
{
	ended = true;
}

/* ---- lines ---- */

/* Awaits that all calls have run, and counts memory while no thread allocates any. */
static void
count_bytes(uint32_t number, uint64_t *into)
{
	struct mallinfo2 m;

	must(weir_invoker_quiet(invoker, PATIENT), "quiet");
	pthread_barrier_wait(&together);
	if (!number) {
		m = mallinfo2();
		*into = m.uordblks + m.hblkhd;
	}
	pthread_barrier_wait(&together);
}

static void *
line_main(void *arg)
{
	uint32_t number = (uint32_t)(uintptr_t)arg;
	uint64_t args = 0;
	int rc;

	must(weir_invoker_enter(invoker, number), "enter");
	must(weir_invoker_barrier(invoker, PATIENT), "barrier");
	for (uint32_t i = 0; i < threads; i++) {
		struct weir_to to = {1, (number + i) % threads};

		rc = rank ? 0 : weir_call(invoker, to, NOTHING, &args, sizeof(args), NULL);
		must(rc, "call");
		if (!i)
			count_bytes(number, &bytes[0]);
	}
	count_bytes(number, &bytes[1]);
	must(weir_invoker_leave(invoker), "leave");
	return NULL;
}

static void
measure_lines(void)
{
	pthread_t thread[WEIR_INVOKE_THREADS_MAX];

	pthread_barrier_init(&together, NULL, threads);
	for (uintptr_t i = 0; i < threads; i++)
		must(pthread_create(&thread[i], NULL, line_main, (void *)i), "thread");
	for (uint32_t i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("%.1f\n", (double)(bytes[1] - bytes[0]) / threads / (threads - 1));
}

/* ---- trees ---- */

static void
make_round(bool all, uint32_t function)
{
	uint32_t size = weir_group_size(group);
	struct weir_call_options o = {.timeout_ms = PATIENT};
	uint64_t args = 0;
	struct weir_sync s;

	weir_sync_init(&s, all ? 1 : size, NULL, NULL);
	o.sync = &s;
	o.flags = all ? WEIR_CALL_ONCE_PER_PROCESS : 0;
	if (all)
		must(weir_call_all(invoker, function, &args, sizeof(args), &o), "call of all");
	for (uint32_t i = 0; !all && i < size; i++)
		must(weir_call(invoker, (struct weir_to){i, 0}, function, &args, sizeof(args), &o),
		     "call");
	must(weir_sync_wait(invoker, &s, PATIENT), "sync");
}

/* ns of CPU of processes. */
static uint64_t
cpu_ns(const pid_t *pids, uint32_t n)
{
	struct timespec t;
	clockid_t clock;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (clock_getcpuclockid(pids[i], &clock) || clock_gettime(clock, &t)) {
			fprintf(stderr, "invoke_bench: no process %d\n", (int)pids[i]);
			exit(1);
		}
		sum += (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	}
	return sum;
}

static void
compare_rounds(uint32_t blocks, const pid_t *pids, uint32_t n)
{
	uint64_t before, ns[2] = {0, 0};

	/* the first two blocks open lines, and are not counted */
	for (uint32_t b = 0; b < blocks + 2; b++) {
		before = cpu_ns(pids, n);
		for (uint32_t i = 0; i < BLOCK; i++)
			make_round(b % 2, NOTHING);
		ns[b % 2] += b < 2 ? 0 : cpu_ns(pids, n) - before;
	}
	make_round(true, END);
	printf("%.3f %.1f %.1f\n", (double)ns[1] / (double)ns[0],
	       (double)ns[1] / 1e3 / BLOCK / (blocks / 2),
	       (double)ns[0] / 1e3 / BLOCK / (blocks / 2));
}

static void
measure_tree(uint32_t rounds, const pid_t *pids, uint32_t n)
{
	int rc;

	must(weir_invoker_enter(invoker, 0), "enter");
	must(weir_invoker_barrier(invoker, PATIENT), "barrier");
	if (!rank)
		compare_rounds(rounds / BLOCK / 2 * 2, pids, n);
	while (!ended) {
		rc = weir_invoker_progress(invoker, 0, SLEEP_MS);
		must(rc < 0 ? rc : 0, "progress");
	}
	must(weir_invoker_barrier(invoker, PATIENT), "barrier");
	must(weir_invoker_leave(invoker), "leave");
}

int
main(int argc, char **argv)
{
	static const struct weir_function functions[FUNCTIONS] = {
	    [NOTHING] = {.name = "nothing", .min_length = 8, .max_length = 8, .run = nothing},
	    [END] = {.name = "end", .min_length = 8, .max_length = 8, .run = end},
	};
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	const char *work = argc > 1 ? argv[1] : "", *given = getenv("WEIR_THREADS");
	uint32_t rounds = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0, size;
	bool lines = !strcmp(work, "lines"), tree = !strcmp(work, "tree");
	pid_t own = getpid(), *pids;
	struct weir *w;

	threads = given && lines ? (uint32_t)strtoul(given, NULL, 10) : 1;
	if ((!lines && !tree) || (tree && rounds < 2 * BLOCK) ||
	    (lines && (threads < 2 || threads > WEIR_INVOKE_THREADS_MAX))) {
		fputs("usage: weir-run -n 2 -t THREADS -- invoke_bench lines\n"
		      "       weir-run -n PROCESSES -t 1 -- invoke_bench tree ROUNDS [PID...]; "
		      "rounds: "
		      "from 100\n",
		      stderr);
		return 2;
	}
	must(weir_attach(NULL, &w), "attach");
	must(weir_group_join(w, NULL, NULL, PATIENT, &group), "group");
	rank = weir_group_rank(group);
	size = weir_group_size(group);
	pids = calloc(size + (size_t)argc, sizeof(*pids));
	if (!pids)
		return 1;
	must(weir_group_allgather(group, &own, sizeof(own), pids, PATIENT), "allgather");
	for (int i = 3; i < argc; i++)
		pids[size++] = (pid_t)strtol(argv[i], NULL, 10);
	o.functions = functions;
	o.function_count = FUNCTIONS;
	o.threads = threads;
	must(weir_invoker_open(w, group, &o, &invoker), "invoker");
	if (lines)
		measure_lines();
	else
		measure_tree(rounds, pids, size);
	must(weir_group_barrier(group, PATIENT), "barrier");
	must(weir_invoker_close(invoker), "close");
	weir_group_leave(group);
	weir_detach(w);
	free(pids);
	return 0;
}
