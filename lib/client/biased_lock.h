/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lock without atomic read-modify-write operations for its usual owner: the owner sets `inside`
 * and checks that it is still the owner. Another thread takes the mutex, ends the ownership, makes
 * every thread of the process execute a fence (membarrier) and waits until the owner has left.
 * After that the mutex decides, until a thread becomes the owner again. Not recursive.
 */
#ifndef WEIR_CLIENT_BIAS_H
#define WEIR_CLIENT_BIAS_H

#include "likely.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_BIAS_OWNERS 3 /* threads that can own a lock during its life */

/*
 * Belongs to one thread for the lock's life: a thread that was preempted between its two reads of
 * the owner writes to its own seat later, when another thread may be the owner.
 */
struct weir_bias_seat {
	_Atomic(void *) thread; /* weir_self() of it; NULL: free. Written under the mutex */
	_Atomic uint32_t
	    inside; /* written by this thread, read by the thread that ends the ownership */
};

struct weir_bias {
	/* never NULL; weir_bias_nobody: the mutex decides. Written under the mutex */
	_Atomic(struct weir_bias_seat *) owner;
	struct weir_bias_seat *held; /* seat of the present holder; NULL: it holds the mutex */
	struct weir_bias_seat seats[WEIR_BIAS_OWNERS];
	uint8_t claims; /* number of times that a thread became the owner */
	pthread_mutex_t mutex;
};

extern struct weir_bias_seat weir_bias_nobody __attribute__((visibility("hidden")));

/* Identifies the calling thread. */
static inline void *
weir_self(void)
{
	return __builtin_thread_pointer();
}

/* The calling thread becomes the owner if membarrier works. 0 or -errno. */
int weir_bias_init(struct weir_bias *b);
void weir_bias_fini(struct weir_bias *b);
void weir_bias_lock_slow(struct weir_bias *b);
void weir_bias_unlock_slow(struct weir_bias *b);
/* Unlocks after weir_bias_lock_slow() without becoming the owner: for occasional visits. */
void weir_bias_unlock_passing(struct weir_bias *b);

static inline bool
weir_bias_is_owner(struct weir_bias *b)
{
	struct weir_bias_seat *s = atomic_load_explicit(&b->owner, memory_order_relaxed);

	return atomic_load_explicit(&s->thread, memory_order_relaxed) == weir_self();
}

/*
 * The owner's fast path; NULL: the caller is not the owner. End it by weir_bias_leave() of the
 * returned seat. Code in between must not read `held`, unless it stores the seat there.
 */
static inline struct weir_bias_seat *
weir_bias_enter(struct weir_bias *b)
{
	struct weir_bias_seat *s = atomic_load_explicit(&b->owner, memory_order_relaxed);

	if (weir_unlikely(atomic_load_explicit(&s->thread, memory_order_relaxed) != weir_self()))
		return NULL;
	if (!s) /* never: saves the callers a test */
		__builtin_unreachable();
	atomic_store_explicit(&s->inside, 1, memory_order_relaxed);
	/* pairs with the membarrier in weir_bias_lock_slow() */
	atomic_signal_fence(memory_order_seq_cst);
	if (weir_likely(atomic_load_explicit(&b->owner, memory_order_relaxed) == s))
		return s;
	atomic_store_explicit(&s->inside, 0, memory_order_release);
	return NULL;
}

static inline void
weir_bias_leave(struct weir_bias_seat *s)
{
	/* pairs with the acquire in weir_bias_lock_slow() */
	atomic_store_explicit(&s->inside, 0, memory_order_release);
}

static inline void
weir_bias_lock(struct weir_bias *b)
{
	struct weir_bias_seat *s = weir_bias_enter(b);

	if (weir_likely(s))
		b->held = s;
	else
		weir_bias_lock_slow(b);
}

static inline void
weir_bias_unlock(struct weir_bias *b)
{
	if (weir_likely(b->held))
		weir_bias_leave(b->held);
	else
		weir_bias_unlock_slow(b);
}

#endif
