/* SPDX-License-Identifier: BSD-3-Clause */
/* weir_wake(): the program ends the waits of its threads. */
#ifndef WEIR_CLIENT_WAKE_H
#define WEIR_CLIENT_WAKE_H

#include "guard.h"
#include "public.h"

#define WEIR_WOKEN_ALL 0x1u /* weir_wake() was called */
#define WEIR_WOKEN_ONE 0x2u /* a thread has asked for its waker, which others may use */

/*
 * A thread has one per handle, and keeps it when the session is replaced. weir_detach() frees
 * wakers, since a signal handler may use them at any time before.
 */
struct weir_waker {
	struct weir_waker *next; /* of the handle's */
	struct weir *first;	 /* the handle */
	_Atomic uint32_t woken;	 /* a wake that has not ended a wait yet; written by any thread */
	int fd;			 /* eventfd, which only the thread reads */
};

/* A waker for another thread object of the handle; NULL and errno. The lock of thread objects is
 * held. */
struct weir_waker *weir_waker_new(struct weir *first);
/* Another thread takes over the object that has k: a pending wake of the ended thread alone goes
 * with that thread. The lock of thread objects is held. */
void weir_waker_take_over(struct weir_waker *k);
/* Frees all wakers of a handle. */
void weir_wakers_free(struct weir *first);
/* The calling thread's waker for the handle of w; NULL: it has none yet. */
struct weir_waker *weir_waker_find(const struct weir *w);
/* Whether a wake ends this wait of the calling thread; it ends no other then. */
bool weir_waker_take(struct weir *w) __attribute__((cold));
/* The calling thread goes on with a wait that was interrupted: its next one ends instead. */
void weir_waker_restore(struct weir *w) __attribute__((cold));
/* Sets weir_reason(). */
int weir_interrupted(void) __attribute__((cold));

/*
 * Sleeps in a call of the program, guarded by g, until `fd` is readable (-1: none), a signal, a
 * wake, or `end` (ns of weir_clock()). 0, -ETIMEDOUT, -EINTR with the reason set.
 */
int weir_wake_await(struct weir_guard *g, struct weir *w, int fd, uint64_t end);

#endif
