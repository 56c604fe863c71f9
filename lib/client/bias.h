/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lock that costs its usual owner no atomic operation: the owner says that it is inside and looks
 * whether it is still the owner. Who else wants in takes the mutex, ends the ownership, makes every
 * thread of the process run a fence (membarrier) and waits until the owner has left. After that the
 * mutex decides, until one thread is made owner again. Not recursive.
 */
#ifndef WEIR_CLIENT_BIAS_H
#define WEIR_CLIENT_BIAS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define weir_likely(x) __builtin_expect(!!(x), 1)
#define weir_unlikely(x) __builtin_expect(!!(x), 0)

struct weir_bias {
	_Atomic(const char *)
	    owner; /* whose &weir_self; NULL: the mutex decides. Written under the mutex */
	_Atomic uint32_t inside; /* written by the owner, read by who ends the ownership */
	bool fast;		 /* how the present holder came in */
	uint8_t claims;		 /* how often a thread became the owner */
	pthread_mutex_t mutex;
};

/* Its address names the thread. */
extern __thread char weir_self __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The calling thread becomes the owner where that is possible. 0 or -errno. */
int weir_bias_init(struct weir_bias *b);
void weir_bias_fini(struct weir_bias *b);
void weir_bias_lock_slow(struct weir_bias *b);
void weir_bias_unlock_slow(struct weir_bias *b);
/* As unlock after lock_slow, but nobody becomes the owner by it: for helpers that come by. */
void weir_bias_unlock_passing(struct weir_bias *b);

static inline bool
weir_bias_is_owner(struct weir_bias *b)
{
	return atomic_load_explicit(&b->owner, memory_order_relaxed) == &weir_self;
}

/*
 * The owner's way in alone; false: it is another's. After this weir_bias_leave() ends it, and
 * nothing in between may look how the holder came in.
 */
static inline bool
weir_bias_enter(struct weir_bias *b)
{
	if (weir_unlikely(!weir_bias_is_owner(b)))
		return false;
	atomic_store_explicit(&b->inside, 1, memory_order_relaxed);
	/* pairs with the membarrier in weir_bias_lock_slow() */
	atomic_signal_fence(memory_order_seq_cst);
	if (weir_likely(weir_bias_is_owner(b)))
		return true;
	atomic_store_explicit(&b->inside, 0, memory_order_release);
	return false;
}

static inline void
weir_bias_leave(struct weir_bias *b)
{
	/* pairs with the acquire in weir_bias_lock_slow() */
	atomic_store_explicit(&b->inside, 0, memory_order_release);
}

static inline void
weir_bias_lock(struct weir_bias *b)
{
	if (weir_likely(weir_bias_enter(b)))
		b->fast = true;
	else
		weir_bias_lock_slow(b);
}

static inline void
weir_bias_unlock(struct weir_bias *b)
{
	if (weir_likely(b->fast))
		weir_bias_leave(b);
	else
		weir_bias_unlock_slow(b);
}

#endif
