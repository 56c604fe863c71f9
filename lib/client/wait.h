/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting, in all blocking calls: spin, yield, sleep. Waking other threads and programs. */
#ifndef WEIR_CLIENT_WAIT_H
#define WEIR_CLIENT_WAIT_H

#include "guard.h"
#include "thread.h"

struct weir_wait {
	struct weir_thread *worker; /* its rings bring the awaited slots */
	struct weir_thread *self;   /* the caller's own; NULL until it sleeps */
	const void *awaits;	    /* as in weir_waiter */
	bool events; /* wait for any event of self: worker is self, and foreign workers count */
	int timeout_ms;
	bool armed;	 /* sleep flags are up: one more look, then sleep */
	bool nap;	 /* worker needs another look: sleep NAP_NS at most */
	uint32_t polls;	 /* since the last yield */
	uint32_t yields; /* since the start */
	uint32_t looks;	 /* a poll may look at its rings this number of times */
	bool nap_always; /* no doorbell rings for the awaited event: sleep NAP_NS at most */
	bool signals;	 /* doorbells ring for signals, too */
	uint32_t ends;	 /* naps since the data plane has gone */
	uint32_t nap_ns; /* below 1 s: length of a first sleep without sleep flags; 0: none */
	/* a sleep ends when `bell`, a word that others may spoil, is no longer this; NULL: none */
	uint32_t bell_seen;
	_Atomic uint32_t *bell;
	uint64_t start, deadline; /* ns; 0: the clock was not read yet */
	struct weir_waiter waiter;
	/* if worker is another thread's: what comes for the calling thread ends a sleep, too. The
	 * caller's memory, for the time of the wait; NULL: it does not */
	struct weir_waiter *own;
	struct weir_guard guard;
};

/* Raises the sleep flags: the caller looks once more, then sleeps. Worker locked. */
void weir_thread_arm(struct weir_thread *t, struct weir_waiter *waiter);
/* Lowers the sleep flags and drains rung doorbells. Worker locked. */
void weir_thread_disarm(struct weir_thread *t, struct weir_waiter *waiter);

static inline void
weir_wait_init(struct weir_wait *wait, struct weir_thread *worker, int timeout_ms)
{
	*wait = (struct weir_wait){.worker = worker, .timeout_ms = timeout_ms};
}

/*
 * Call it after a look that found nothing: it pauses, yields or sleeps. 0: look again; -EAGAIN: the
 * time is over, or was 0; -EINTR: weir_interrupted(); -ENODEV, -ECONNABORTED, -ENOTCONN:
 * weir_gone(). No lock held.
 */
int weir_wait_next(struct weir_wait *wait);
/* A look has found work, though not what is awaited: polls as long as at first before it sleeps. */
void weir_wait_again(struct weir_wait *wait);
void weir_wait_disarm(struct weir_wait *wait);
/* Ends a wait, successful or not. */
static inline void
weir_wait_end(struct weir_wait *wait)
{
	if (weir_unlikely(wait->armed))
		weir_wait_disarm(wait);
	weir_guard_end(&wait->guard);
}

/*
 * Raise and lower the flags of t and of the foreign workers that report to it. No lock held.
 * weir_thread_arm_all() returns whether any of them needs another look within a short time.
 */
bool weir_thread_arm_all(struct weir_thread *t, struct weir_waiter *waiter);
void weir_thread_disarm_all(struct weir_thread *t, struct weir_waiter *waiter);

/* ns of CLOCK_MONOTONIC; a function that simulators replace */
uint64_t weir_clock(void);
void weir_sleep(uint64_t ns);

/* When a timeout in ms is over, ns; 0: do not wait; UINT64_MAX: no limit. */
uint64_t weir_time_end(int timeout_ms);
/* ms left until then, as a timeout. */
int weir_time_left(uint64_t end);

/* Changes a word in memory that processes share, and wakes all that sleep for it. */
void weir_bell_word_ring(_Atomic uint32_t *bell);

/* Writes to a waiter's eventfd. */
void weir_wake_fd(int fd);
/* Wakes all threads that wait at this worker. */
void weir_thread_wake(struct weir_thread *t);
/* Has the doorbell of a new pipe wake this worker. 0 or -errno. */
int weir_thread_add_bell(struct weir_thread *t, struct weir_pipe *p);
/* The pipe ends before its worker: its doorbell wakes no thread any more. Worker locked. */
void weir_thread_remove_bell(struct weir_thread *t, struct weir_pipe *p);

static inline void
weir_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield" ::: "memory");
#endif
}

#endif
