/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting: spin, yield, sleep. */
#ifndef WEIR_CLIENT_WAIT_H
#define WEIR_CLIENT_WAIT_H

#include "thread.h"

struct weir_wait {
	struct weir_thread *worker; /* whose rings hold what is waited for */
	struct weir_thread *self;   /* the caller's own; NULL until it sleeps */
	bool events; /* for anything that self reports: worker is self, and foreign workers count */
	int timeout_ms;
	bool armed;	 /* sleep flags are up: one more look, then sleep */
	bool nap;	 /* worker was unsettled */
	uint32_t polls;	 /* since the last yield */
	uint32_t yields; /* since the start */
	uint32_t looks;	 /* a poll may look so often at its rings before it gives up */
	bool nap_always; /* what is waited for rings no bell */
	uint32_t ends;	 /* naps since the data plane has gone */
	uint32_t nap_ns; /* less than 1 s: sleep so long first, and raise no flags; 0: no */
	uint64_t start, deadline; /* ns; 0: clock not looked at yet */
	struct weir_waiter waiter;
};

/* Raises the sleep flags and looks nowhere: look again, then sleep. Worker locked. */
void weir_thread_arm(struct weir_thread *t, struct weir_waiter *waiter);
/* Lowers them again and takes rung doorbells off. Worker locked. */
void weir_thread_disarm(struct weir_thread *t, struct weir_waiter *waiter);

static inline void
weir_wait_init(struct weir_wait *wait, struct weir_thread *worker, int timeout_ms)
{
	*wait = (struct weir_wait){.worker = worker, .timeout_ms = timeout_ms};
}

/*
 * After a look that found nothing: pauses, yields or sleeps. 0: look again; -EAGAIN: time is over
 * (or there was none); -ENODEV. No lock held.
 */
int weir_wait_next(struct weir_wait *wait);
void weir_wait_disarm(struct weir_wait *wait);
/* After success, or when giving up otherwise. */
static inline void
weir_wait_end(struct weir_wait *wait)
{
	if (weir_unlikely(wait->armed))
		weir_wait_disarm(wait);
}

/*
 * Raises or lowers the flags of t and of the foreign workers that report to it. No lock held. True:
 * some worker is unsettled.
 */
bool weir_thread_arm_all(struct weir_thread *t, struct weir_waiter *waiter);
void weir_thread_disarm_all(struct weir_thread *t, struct weir_waiter *waiter);
uint64_t weir_clock(void);

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
