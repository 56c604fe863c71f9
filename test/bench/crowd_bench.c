/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The limit of many nodes on few CPUs: what a turn costs when as many processes as there are take
 * turns, and what they touch in it has left the caches meanwhile. Processes on two CPUs yield to
 * each other; each reads and writes KIB (64) of its own memory per turn, as an engine or a program
 * touches rings, links and buffers, and does nothing else.
 *
 * crowd_bench PROCESSES [KIB [SECONDS]]: prints ns of CPU per turn, with the switch.
 */
#define _GNU_SOURCE
#include "clock.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CPUS = 2, MOST = 1024, LINE = 64 };

struct shared {
	_Atomic bool stop;
	_Atomic uint32_t ready; /* processes that have touched their memory */
	/* each process writes its own, the parent reads */
	struct {
		_Alignas(LINE) _Atomic uint64_t turns;
	} of[MOST];
};

static void
take_turns(struct shared *s, unsigned i, size_t bytes)
{
	uint8_t *memory = malloc(bytes);
	cpu_set_t one;

	if (!memory)
		_exit(1);
	memset(memory, 1, bytes);
	CPU_ZERO(&one);
	CPU_SET(i % CPUS, &one);
	sched_setaffinity(0, sizeof(one), &one);
	atomic_fetch_add(&s->ready, 1);
	while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
		for (size_t at = 0; at < bytes; at += LINE)
			memory[at]++;
		__asm__ __volatile__("" : : "r"(memory) : "memory"); /* not left out */
		atomic_store_explicit(&s->of[i].turns,
				      atomic_load_explicit(&s->of[i].turns, memory_order_relaxed) +
					  1,
				      memory_order_relaxed);
		sched_yield();
	}
	_exit(0);
}

static uint64_t
all_turns(struct shared *s, unsigned n)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += atomic_load_explicit(&s->of[i].turns, memory_order_relaxed);
	return sum;
}

int
main(int argc, char **argv)
{
	unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0, started = 0;
	size_t kib = argc > 2 ? strtoull(argv[2], NULL, 10) : 64;
	double seconds = argc > 3 ? strtod(argv[3], NULL) : 2;
	pid_t pid = 0, parent = getpid();
	struct shared *s;
	uint64_t turns, ns;
	int status, rc = 0;

	if (n < CPUS || n > MOST || !kib || kib > 1u << 20 || !(seconds > 0))
		return 2;
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED)
		return 1;
	for (; started < n; started++) {
		pid = fork();
		if (pid < 0)
			break;
		if (pid)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		take_turns(s, started, kib << 10);
	}
	rc = started < n;
	while (!rc && atomic_load(&s->ready) < n && waitpid(-1, &status, WNOHANG) == 0)
		usleep(10000);
	rc |= atomic_load(&s->ready) < n;
	usleep(200000);
	ns = clock_ns();
	turns = all_turns(s, n);
	usleep((useconds_t)(seconds * 1e6));
	turns = all_turns(s, n) - turns;
	ns = clock_ns() - ns;
	atomic_store(&s->stop, true);
	while (waitpid(-1, &status, 0) > 0)
		;
	if (rc || !turns)
		return 1;
	printf("%.0f\n", (double)ns * CPUS / (double)turns);
	return 0;
}
