/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Signals during a wait. A signal handler that runs while a call sleeps in ppoll() ends the wait
 * with -EINTR. One that runs while the call polls has to end it as well, or the call would go on to
 * sleep. A thread cannot notice that a handler has run, so a guard keeps handlers out while the
 * thread polls: it blocks signals, and lets them in where the kernel reports a handler.
 *
 * That costs a system call before and one after the wait. Programs without handlers therefore have
 * no guard, and others have it after the first polls, since short waits would take twice as long.
 */
#ifndef WEIR_CLIENT_GUARD_H
#define WEIR_CLIENT_GUARD_H

#include "likely.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct weir_guard {
	bool blocked;
	uint64_t mask; /* signals that the thread itself blocks, if `blocked` */
};

/* From now on no handler runs unseen. Does nothing if the thread has none. `now`: weir_clock(). */
void weir_guard_begin(struct weir_guard *g, uint64_t now);
/* The same whether the thread has handlers or not. */
void weir_guard_block(struct weir_guard *g);
/* ppoll() that lets signals in. Its result, or -EINTR: a handler has run. */
int weir_guard_poll(struct weir_guard *g, struct pollfd *fds, nfds_t n, const struct timespec *ts);
void weir_guard_unblock(struct weir_guard *g);
static inline void
weir_guard_end(struct weir_guard *g)
{
	if (weir_unlikely(g->blocked))
		weir_guard_unblock(g);
}

/* The calling thread is the library's own: it blocks all signals, and no wake ends its waits. */
void weir_guard_exempt(void);
bool weir_guard_is_exempt(void);

#endif
