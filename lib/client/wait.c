/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How calls wait: they poll, then yield the CPU between polls, then sleep. Two programs that spin
 * on one CPU cost each other whole time slices; a yield that takes long says that somebody else was
 * run, and from then on the thread polls only a few times before it yields.
 */
#define _GNU_SOURCE
#include "wait.h"
#include "channel.h"
#include "membarrier.h"
#include "reason.h"
#include "segment.h"
#include "session.h"

#include "stream/progress.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define POLLS_ALONE 300u
#define POLLS_AFTER_YIELD 32u
#define LOOKS 16u
#define YIELD_SHARED_NS 1000u /* an idle yield takes less than half of this */
#define NAP_NS 1000000u
#define AWAKE_NS 100000u /* a wake costs about half of this */
#define AWAKE_YIELDS 16u /* ... and more than these, however long others had the CPU in between */
#define AWAKE_SHARED_NS 2000000u /* ... but who has it for so long keeps it */

/* falls with each short yield, rises with a long one */
static __thread uint8_t shared_cpu __attribute__((tls_model("initial-exec")));

uint64_t
weir_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t
yield(uint64_t now)
{
	uint64_t after;

	sched_yield();
	after = weir_clock();
	if (after - now > YIELD_SHARED_NS)
		shared_cpu = 64;
	else if (shared_cpu)
		shared_cpu--;
	return after;
}

static void
raise_flags(struct weir_thread *t, uint32_t value)
{
	struct weir_channel *ch;
	struct weir_segment *seg;

	SLIST_FOREACH(ch, &t->channels, next)
	atomic_store_explicit(ch->pipe.rx_sleeping, value, memory_order_relaxed);
	LIST_FOREACH(seg, &t->segments, next)
	{
		if (!seg->left)
			atomic_store_explicit(seg->pipe.rx_sleeping, value, memory_order_relaxed);
		if (!value)
			atomic_store_explicit(&seg->out->wanted, 0, memory_order_relaxed);
	}
}

void
weir_thread_arm(struct weir_thread *t, struct weir_waiter *waiter)
{
	LIST_INSERT_HEAD(&t->waiters, waiter, next);
	if (!t->armed++)
		raise_flags(t, 1);
	weir_drive_settle(t);
	/* pairs with weir_pipe_published() of local peers and the engine's doorbell step, and with
	 * weir_segment_tell() of local peers */
	weir_barrier_global();
}

/* Takes rung doorbells off rings_fd. Whether there were any. */
static bool
drain(struct weir_thread *t)
{
	struct epoll_event e[16];
	int n = epoll_wait(t->rings_fd, e, 16, 0);
	bool rung = false;

	for (int i = 0; i < n; i++) {
		if (!e[i].data.ptr) /* the session socket */
			continue;
		weir_bell_drain(&((struct weir_pipe *)e[i].data.ptr)->bell);
		rung = true;
	}
	return rung;
}

void
weir_thread_disarm(struct weir_thread *t, struct weir_waiter *waiter)
{
	LIST_REMOVE(waiter, next);
	/* it rang for all who sleep here, and this one may not look */
	if (drain(t))
		weir_thread_wake(t, NULL);
	if (!--t->armed)
		raise_flags(t, 0);
}

bool
weir_thread_arm_all(struct weir_thread *t, struct weir_waiter *waiter)
{
	struct weir_foreign *f;
	bool unsettled;

	weir_lock(t);
	weir_thread_arm(t, waiter);
	unsettled = t->unsettled;
	weir_unlock(t);
	LIST_FOREACH(f, &t->foreign, next)
	{
		weir_lock(f->worker);
		weir_thread_arm(f->worker, &f->waiter);
		unsettled |= f->worker->unsettled;
		weir_unlock(f->worker);
	}
	return unsettled;
}

void
weir_thread_disarm_all(struct weir_thread *t, struct weir_waiter *waiter)
{
	struct weir_foreign *f;

	weir_lock(t);
	weir_thread_disarm(t, waiter);
	weir_unlock(t);
	LIST_FOREACH(f, &t->foreign, next)
	{
		weir_lock(f->worker);
		weir_thread_disarm(f->worker, &f->waiter);
		weir_unlock(f->worker);
	}
}

static void
drain_nudge(struct weir_thread *self)
{
	uint64_t count;

	while (read(self->nudge_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

static int
arm(struct weir_wait *wait)
{
	wait->self = weir_thread_get(wait->worker->w);
	if (!wait->self)
		return weir_fail(-errno, "cannot wait: %s; raise the limit of open files",
				 strerror(errno));
	drain_nudge(wait->self);
	wait->waiter.fd = wait->self->nudge_fd;
	if (wait->events) {
		wait->nap = weir_thread_arm_all(wait->worker, &wait->waiter);
	} else {
		weir_lock(wait->worker);
		weir_thread_arm(wait->worker, &wait->waiter);
		wait->nap = wait->worker->unsettled;
		weir_unlock(wait->worker);
	}
	wait->armed = true;
	return 0;
}

void
weir_wait_disarm(struct weir_wait *wait)
{
	if (wait->events) {
		weir_thread_disarm_all(wait->worker, &wait->waiter);
	} else {
		weir_lock(wait->worker);
		weir_thread_disarm(wait->worker, &wait->waiter);
		weir_unlock(wait->worker);
	}
	wait->armed = false;
}

static void
sleep_until(struct weir_wait *wait, uint64_t now)
{
	struct pollfd fds[2] = {{.events = POLLIN}, {.events = POLLIN}};
	uint64_t ns = wait->deadline - now;
	struct timespec ts;

	if ((wait->nap || wait->nap_always) && ns > NAP_NS)
		ns = NAP_NS;
	ts.tv_sec = (time_t)(ns / 1000000000u);
	ts.tv_nsec = (long)(ns % 1000000000u);
	fds[0].fd = wait->events ? wait->worker->epoll_fd : wait->worker->rings_fd;
	fds[1].fd = wait->self->nudge_fd;
	ppoll(fds, 2, &ts, NULL);
}

/* The first polls look at no clock. */
static void
start_clock(struct weir_wait *wait, uint64_t now)
{
	wait->start = now;
	wait->deadline =
	    wait->timeout_ms < 0 ? UINT64_MAX : now + (uint64_t)wait->timeout_ms * 1000000u;
}

static void
nap(struct weir_wait *wait, uint64_t now)
{
	uint64_t left = wait->deadline - now;
	struct timespec ts = {.tv_nsec = (long)(left < wait->nap_ns ? left : wait->nap_ns)};

	nanosleep(&ts, NULL);
	wait->nap_ns = 0;
	wait->yields = 0;
	wait->start = weir_clock();
}

/* Polling still costs less than a sleep would. */
static bool
is_early(const struct weir_wait *wait, uint64_t now)
{
	uint64_t awake = now - wait->start;

	return awake < AWAKE_NS || (wait->yields < AWAKE_YIELDS && awake < AWAKE_SHARED_NS);
}

int
weir_wait_next(struct weir_wait *wait)
{
	uint32_t limit = shared_cpu || wait->nap_ns ? 0
			 : wait->start		    ? POLLS_AFTER_YIELD
						    : POLLS_ALONE;
	uint64_t now;

	if (weir_unlikely(weir_state(wait->worker->w) != WEIR_UP))
		return weir_gone(wait->worker->w);
	if (!wait->timeout_ms)
		return -EAGAIN;
	wait->looks = shared_cpu || wait->armed ? 0 : LOOKS;
	if (!wait->armed && wait->polls < limit) {
		wait->polls++;
		weir_pause();
		return 0;
	}
	now = weir_clock();
	if (!wait->start)
		start_clock(wait, now);
	if (now >= wait->deadline)
		return weir_fail(-EAGAIN, "the time is over; wait longer, or look at the peer "
					  "(weirctl show connections)");
	if (wait->armed) {
		sleep_until(wait, now);
		weir_wait_disarm(wait);
		wait->polls = 0;
		return 0;
	}
	wait->polls = 0;
	if (wait->nap_ns) {
		nap(wait, now);
		return 0;
	}
	now = yield(now);
	wait->yields++;
	if (wait->worker->w->polling || is_early(wait, now))
		return 0;
	return arm(wait);
}
