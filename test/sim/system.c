/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clock, chance, sleep and log for the code under test in place of the system's (--wrap at link
 * time), so that a seed runs the same every time.
 */
#define _GNU_SOURCE
#include "node.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <mqueue.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

struct sim *sim_running;

uint64_t __wrap_weir_clock(void);
ssize_t __wrap_getrandom(void *buf, size_t length, unsigned flags);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_sched_yield(void);
void __wrap_weir_barrier_global(void);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask);
int __real_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask);
ssize_t __wrap_send(int fd, const void *buf, size_t length, int flags);
ssize_t __real_send(int fd, const void *buf, size_t length, int flags);
ssize_t __wrap_write(int fd, const void *buf, size_t length);
ssize_t __real_write(int fd, const void *buf, size_t length);
int __wrap_madvise(void *at, size_t length, int advice);
int __real_mq_send(mqd_t queue, const char *message, size_t length, unsigned priority);
int __wrap_mq_send(mqd_t queue, const char *message, size_t length, unsigned priority);
int __real_madvise(void *at, size_t length, int advice);

uint64_t
__wrap_weir_clock(void)
{
	struct sim *s = sim_running;

	/* a thread of its own that asks again and again awaits others, and time */
	if (s->pass && ++s->asked % 256 == 0)
		s->pass(s, s->now + SIM_US);
	return s->now;
}

/* PSNs come from here too: often just before they wrap. */
ssize_t
__wrap_getrandom(void *buf, size_t length, unsigned flags)
{
	uint8_t *to = buf;
	bool wraps = rng_chance(&sim_running->rng, 300);
	/* programs with stacks name services of groups by such numbers, which must differ */
	bool differ = sim_running->pass && length > sizeof(uint32_t);

	for (size_t i = 0; i < length; i++)
		to[i] = !wraps || !i ? (uint8_t)rng_next(&sim_running->rng)
			: differ     ? (uint8_t)sim_hash(sim_running->steps, to[0], i)
				     : 0xff;
	return (ssize_t)length;
}

/* A doorbell: somebody must look who was rung. */
ssize_t
__wrap_send(int fd, const void *buf, size_t length, int flags)
{
	sim_running->rang = true;
	return __real_send(fd, buf, length, flags);
}

int
__wrap_mq_send(mqd_t queue, const char *message, size_t length, unsigned priority)
{
	sim_running->rang = true;
	return __real_mq_send(queue, message, length, priority);
}

/* Threads of one program wake each other through an eventfd. Lines of the log go into the trace. */
ssize_t
__wrap_write(int fd, const void *buf, size_t length)
{
	if (fd == STDERR_FILENO && sim_running) {
		sim_trace(sim_running, "log: %.*s", (int)length - 1, (const char *)buf);
		return (ssize_t)length;
	}
	if (sim_running)
		sim_running->rang = true;
	return __real_write(fd, buf, length);
}

/* Arenas are mostly left untouched here: populating them would take most of a seed's time. */
int
__wrap_madvise(void *at, size_t length, int advice)
{
	if (advice == MADV_POPULATE_WRITE)
		return 0;
	return __real_madvise(at, length, advice);
}

static void
nothing(struct sim *s, void *arg)
{
}

/* A program that waits inside a call until `at`, at most: everybody else goes on meanwhile. */
static void
wait_until(struct sim *s, uint64_t at)
{
	if (s->pass && s->pass(s, at))
		return;
	for (uint32_t i = 0; i < s->sc.nodes; i++) {
		s->rang = true;
		sim_node_listen(s->node[i]);
	}
	sim_call(s, at, nothing, NULL);
	while (s->now < at)
		sim_step(s);
}

static uint64_t
end_of(const struct sim *s, const struct timespec *ts)
{
	uint64_t ns = (uint64_t)ts->tv_sec < SIM_NEVER / SIM_S
			  ? (uint64_t)ts->tv_sec * SIM_S + (uint64_t)ts->tv_nsec
			  : SIM_NEVER;

	return ns < SIM_NEVER - s->now ? s->now + ns : SIM_NEVER;
}

int
__wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	wait_until(sim_running, end_of(sim_running, wanted));
	return 0;
}

int
__wrap_sched_yield(void)
{
	wait_until(sim_running, sim_running->now + (sim_running->pass ? 10 : 1) * SIM_US);
	return 0;
}

/*
 * One thread runs at a time. The system call interrupts other CPUs, once per sleep of a program:
 * seeds with a million sleeps took minutes beside another process.
 */
void
__wrap_weir_barrier_global(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

/* Waits for doorbells, which it looks at less and less often. */
int
__wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
	static const struct timespec none;
	struct sim *s = sim_running;
	uint64_t start = s->now, end = end_of(s, ts), nap = s->pass ? 10 * SIM_US : SIM_US;
	int rc;

	while (!(rc = __real_ppoll(fds, n, &none, mask)) && s->now < end) {
		if (s->now - start > s->options.limit)
			sim_fail(s, "a call waits for its doorbell since %lu us",
				 (start - SIM_START) / 1000);
		wait_until(s, nap < end - s->now ? s->now + nap : end);
		nap = nap < (s->pass ? 200 : 50) * SIM_US ? 2 * nap : nap;
	}
	return rc;
}
