/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All blocking calls wait here: they spin, then yield the CPU between polls, then sleep. Two
 * programs that spin on one CPU take whole time slices from each other. A long yield shows that the
 * CPU is shared; from then on the thread yields after every poll until yields are short again.
 * Signal handlers and weir_wake() end a wait in each of these phases (guard.h, wake.h).
 */
#define _GNU_SOURCE
#include "wait.h"
#include "channel.h"
#include "membarrier.h"
#include "progress.h"
#include "reason.h"
#include "segment.h"
#include "session.h"
#include "wake.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000u
/* spin */
#define POLLS_FIRST 300u      /* polls before the first yield */
#define POLLS_AFTER_YIELD 32u /* polls between two yields */
#define POLLS_UNGUARDED 16u   /* first polls without a guard against signals: some microseconds */
#define LOOKS 16u	      /* looks at the rings within one poll */
/* yield */
#define YIELD_SHARED_NS 1000u /* ns; a longer yield ran another thread. Idle: below 500 */
#define SHARED_YIELDS 64u     /* consecutive short yields until the CPU counts as dedicated */
#define AWAKE_NS 100000u      /* ns to poll and yield before sleeping; a wake costs half of it */
#define AWAKE_YIELDS 16u      /* yields before sleeping, even if they took longer than AWAKE_NS */
#define AWAKE_SHARED_NS 2000000u /* ns; on a shared CPU, sleep after this despite AWAKE_YIELDS */
#define YIELDS_SIGNALS 8u	 /* yields after which a guarded wait lets signals in */
/* sleep */
#define NAP_NS 1000000u /* ns; the longest sleep while no doorbell would end it */

/* short yields left until this thread's CPU counts as dedicated; 0: it does */
static __thread uint8_t shared_cpu __attribute__((tls_model("initial-exec")));

uint64_t
weir_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t
weir_time_end(int timeout_ms)
{
	if (timeout_ms <= 0)
		return timeout_ms ? UINT64_MAX : 0;
	return weir_clock() + (uint64_t)timeout_ms * 1000000u;
}

int
weir_time_left(uint64_t end)
{
	uint64_t now, ms;

	if (!end || end == UINT64_MAX)
		return end ? -1 : 0;
	now = weir_clock();
	if (now >= end)
		return 0;
	ms = (end - now) / 1000000u;
	return ms < 1 ? 1 : (int)ms;
}

/* Of the channels. */
static uint32_t
sleep_flags(const struct weir_thread *t)
{
	return !t->armed ? 0 : t->signal_waits ? WEIR_SLEEPS | WEIR_SLEEPS_SIGNALS : WEIR_SLEEPS;
}

static void
raise_flags(struct weir_thread *t)
{
	uint32_t value = t->armed != 0;
	struct weir_channel *ch;
	struct weir_segment *seg;

	SLIST_FOREACH(ch, &t->channels, next)
	atomic_store_explicit(ch->pipe.rx_sleeping, sleep_flags(t), memory_order_relaxed);
	LIST_FOREACH(seg, &t->segments, next)
	{
		if (!seg->left)
			atomic_store_explicit(seg->pipe.rx_sleeping, value, memory_order_relaxed);
		if (!value)
			atomic_store_explicit(&seg->out->wanted, 0, memory_order_relaxed);
	}
}

/* Threads that make no calls may hold those that t waits for: the watcher gets them. */
static void
ask_for_blocks(const struct weir_thread *t)
{
	if (atomic_load_explicit(&t->starved, memory_order_relaxed) && t->w->watched)
		weir_wake_fd(t->w->watcher_fd);
}

void
weir_thread_arm(struct weir_thread *t, struct weir_waiter *waiter)
{
	LIST_INSERT_HEAD(&t->waiters, waiter, next);
	t->signal_waits += waiter->signals;
	if (!t->armed++ || waiter->signals)
		raise_flags(t);
	weir_progress_finish(t);
	ask_for_blocks(t);
	/* pairs with weir_pipe_published() of local peers and the engine's doorbell step, and with
	 * weir_segment_report() of local peers. The caller looks at rings, and at the word of a
	 * signal, after it */
	weir_barrier_global();
}

void
weir_thread_disarm(struct weir_thread *t, struct weir_waiter *waiter)
{
	struct weir_waiter *other;
	struct epoll_event e[16];
	int n = epoll_wait(t->rings_fd, e, 16, 0);
	bool rung = false;

	for (int i = 0; i < n; i++) {
		if (!e[i].data.ptr) /* the session socket */
			continue;
		weir_bell_drain(&((struct weir_pipe *)e[i].data.ptr)->bell);
		rung = true;
	}
	LIST_REMOVE(waiter, next);
	/*
	 * The doorbell rang for all threads that sleep here, and this one may not look. One that
	 * looks wakes those whose request has ended. It does not see room that others wait for.
	 */
	if (rung) {
		LIST_FOREACH(other, &t->waiters, next)
		if (!waiter->looks || !other->awaits)
			weir_wake_fd(other->fd);
	}
	weir_assert(t->armed && t->signal_waits >= waiter->signals);
	t->signal_waits -= waiter->signals;
	if (!--t->armed || waiter->signals)
		raise_flags(t);
}

/*
 * Whether a worker of another thread, now armed, needs another look soon: it has to report, or
 * waits for send blocks, and freed blocks wake its own thread only. Worker locked.
 */
static bool
needs_nap(const struct weir_thread *worker)
{
	return worker->report_pending ||
	       atomic_load_explicit(&worker->starved, memory_order_relaxed);
}

bool
weir_thread_arm_all(struct weir_thread *t, struct weir_waiter *waiter)
{
	struct weir_foreign *f;
	bool report_pending;

	weir_lock(t);
	weir_thread_arm(t, waiter);
	report_pending = t->report_pending;
	weir_unlock(t);
	LIST_FOREACH(f, &t->foreign, next)
	{
		weir_lock(f->worker);
		weir_thread_arm(f->worker, &f->waiter);
		report_pending |= needs_nap(f->worker);
		weir_unlock(f->worker);
	}
	return report_pending;
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

/* Raises the sleep flags for a wait. */
static void
arm(struct weir_wait *wait)
{
	struct weir_thread *worker = wait->worker, *self = wait->self;

	wait->waiter.fd = self->wake_fd;
	wait->waiter.awaits = wait->awaits;
	wait->waiter.signals = wait->signals;
	wait->waiter.looks = false;
	if (self == worker)
		wait->own = NULL;
	if (wait->events) {
		wait->nap = weir_thread_arm_all(worker, &wait->waiter);
	} else {
		weir_lock(worker);
		weir_thread_arm(worker, &wait->waiter);
		wait->nap = self != worker ? needs_nap(worker) : worker->report_pending;
		weir_unlock(worker);
	}
	if (wait->own) {
		*wait->own = (struct weir_waiter){.fd = self->wake_fd};
		weir_lock(self);
		weir_thread_arm(self, wait->own);
		wait->nap |= self->report_pending;
		weir_unlock(self);
	}
	self->arms++;
	wait->armed = true;
}

static void
disarm(struct weir_thread *t, struct weir_waiter *waiter)
{
	weir_lock(t);
	weir_thread_disarm(t, waiter);
	weir_unlock(t);
}

void
weir_wait_disarm(struct weir_wait *wait)
{
	if (wait->events)
		weir_thread_disarm_all(wait->worker, &wait->waiter);
	else
		disarm(wait->worker, &wait->waiter);
	if (wait->own)
		disarm(wait->self, wait->own);
	wait->armed = false;
}

void
weir_wait_again(struct weir_wait *wait)
{
	if (wait->armed)
		weir_wait_disarm(wait);
	wait->yields = 0;
	if (wait->start) /* `polls` goes on: the deadline is looked at whatever the looks find */
		wait->start = weir_clock();
}

int
weir_wait_next(struct weir_wait *wait)
{
	struct pollfd fds[3] = {{.events = POLLIN}, {.events = POLLIN}, {.events = POLLIN}};
	struct weir_thread *worker = wait->worker;
	uint32_t limit = shared_cpu || wait->nap_ns ? 0
			 : wait->start		    ? POLLS_AFTER_YIELD
						    : POLLS_FIRST;
	uint64_t now, ns, count;
	static const struct timespec none;
	struct timespec ts;
	nfds_t n = 2;
	int rc;

	weir_assert(!wait->events || (!wait->own && (!wait->self || wait->self == worker)));
	if (weir_unlikely(weir_state(worker->w) != WEIR_UP))
		return weir_gone(worker->w);
	if (!wait->timeout_ms)
		return -EAGAIN;
	/* after each spin, and before it sleeps */
	if (!wait->polls &&
	    weir_unlikely(atomic_load_explicit(&worker->w->first->woken, memory_order_relaxed)) &&
	    weir_waker_take(worker->w))
		return weir_interrupted();
	wait->looks = shared_cpu || wait->armed ? 0 : LOOKS;
	/* spin; the first polls read no clock */
	if (!wait->armed && wait->polls < limit) {
		if (wait->polls++ == POLLS_UNGUARDED && !wait->start)
			weir_guard_begin(&wait->guard, weir_clock());
		weir_pause();
		return 0;
	}
	now = weir_clock();
	if (!wait->start) {
		wait->start = now;
		wait->deadline =
		    wait->timeout_ms < 0 ? UINT64_MAX : now + (uint64_t)wait->timeout_ms * 1000000u;
		weir_guard_begin(&wait->guard, now);
	}
	if (now >= wait->deadline)
		return weir_fail(-EAGAIN, "the time is over; wait longer, or look at the peer "
					  "(weirctl show connections)");
	wait->polls = 0;
	ns = wait->deadline - now;
	if (wait->armed) { /* sleep until a doorbell, a nudge or the deadline */
		if ((wait->nap || wait->nap_always) && ns > NAP_NS)
			ns = NAP_NS;
		ts = (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S),
				       .tv_nsec = (long)(ns % NS_PER_S)};
		fds[0].fd = wait->events ? worker->epoll_fd : worker->rings_fd;
		fds[1].fd = wait->self->wake_fd;
		if (wait->own)
			fds[n++].fd = wait->self->rings_fd;
		rc = weir_guard_poll(&wait->guard, fds, n, wait->bell ? &none : &ts);
		if (!rc && wait->bell) /* a signal handler runs with the next look */
			syscall(SYS_futex, wait->bell, FUTEX_WAIT, wait->bell_seen, &ts, NULL, 0);
		wait->waiter.looks = wait->awaits && rc != -EINTR;
		weir_wait_disarm(wait);
		return rc == -EINTR ? weir_interrupted() : 0;
	}
	if (wait->guard.blocked && wait->yields % YIELDS_SIGNALS == 0 &&
	    weir_guard_poll(&wait->guard, NULL, 0, &none) == -EINTR)
		return weir_interrupted();
	if (wait->nap_ns) {
		weir_sleep(ns < wait->nap_ns ? ns : wait->nap_ns);
		wait->nap_ns = 0;
		wait->yields = 0;
		wait->start = weir_clock();
		return 0;
	}
	/* yield; a long yield means that the CPU is shared */
	ns = now;
	sched_yield();
	now = weir_clock();
	if (now - ns > YIELD_SHARED_NS)
		shared_cpu = SHARED_YIELDS;
	else if (shared_cpu)
		shared_cpu--;
	wait->yields++;
	ns = now - wait->start;
	if (ns < AWAKE_NS || (wait->yields < AWAKE_YIELDS && ns < AWAKE_SHARED_NS))
		return 0;
	if (worker->w->polling) {
		if (!(wait->yields & (wait->yields - 1))) /* less and less often */
			ask_for_blocks(worker);
		return 0;
	}
	/* raise the sleep flags; the caller looks once more before it sleeps */
	wait->self = weir_thread_get(worker->w);
	if (!wait->self)
		return weir_fail(-errno, "cannot wait: %s; raise the limit of open files",
				 strerror(errno));
	while (read(wait->self->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	arm(wait);
	return 0;
}

void
weir_sleep(uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

	nanosleep(&ts, NULL);
}

/* ---- waking ---- */

void
weir_bell_word_ring(_Atomic uint32_t *bell)
{
	atomic_fetch_add_explicit(bell, 1, memory_order_seq_cst);
	syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void
weir_pipe_ring(struct weir_pipe *p)
{
	static const uint64_t one = 1;

	if (p->local) {
		if (p->slow_rings == WEIR_BELL_SLOW_MAX)
			return; /* the peer has attached too many waiters: it is not woken any more
				 */
		if (weir_bell_ring_timed(&p->bell, p->slow_rings) > WEIR_BELL_SLOW_NS)
			p->slow_rings++;
		else
			p->slow_rings = 0;
	} else if (write(p->bell.ring, &one, sizeof(one)) <
		   0) /* an eventfd whose counter only we add to */
		return;
}

int
weir_thread_add_bell(struct weir_thread *t, struct weir_pipe *p)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = p};

	if (epoll_ctl(t->rings_fd, EPOLL_CTL_ADD, p->bell.wait, &e))
		return -errno;
	if (t->armed) { /* threads that sleep here have not looked at this ring */
		atomic_store_explicit(p->rx_sleeping, p->local ? 1 : sleep_flags(t),
				      memory_order_relaxed);
		weir_thread_wake(t);
	}
	return 0;
}

void
weir_thread_remove_bell(struct weir_thread *t, struct weir_pipe *p)
{
	/* close() alone would not remove it: a forked child may hold the descriptor */
	epoll_ctl(t->rings_fd, EPOLL_CTL_DEL, p->bell.wait, NULL);
}

void
weir_wake_fd(int fd)
{
	uint64_t one = 1;

	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void
weir_thread_wake(struct weir_thread *t)
{
	struct weir_waiter *waiter;

	LIST_FOREACH(waiter, &t->waiters, next)
	weir_wake_fd(waiter->fd);
}
