/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/bias.h"

#include "client/barrier.h"

#include <sched.h>

/* A lock that changes hands more often stays a mutex. */
#define CLAIMS_MAX 16

__thread char weir_self;

int
weir_bias_init(struct weir_bias *b)
{
	int rc = pthread_mutex_init(&b->mutex, NULL);

	if (rc)
		return -rc;
	atomic_init(&b->inside, 0);
	atomic_init(&b->owner, weir_barrier_private() ? &weir_self : NULL);
	b->claims = weir_barrier_private() ? 0 : CLAIMS_MAX;
	return 0;
}

void
weir_bias_fini(struct weir_bias *b)
{
	pthread_mutex_destroy(&b->mutex);
}

void
weir_bias_lock_slow(struct weir_bias *b)
{
	pthread_mutex_lock(&b->mutex);
	if (atomic_load_explicit(&b->owner, memory_order_relaxed)) {
		atomic_store_explicit(&b->owner, NULL, memory_order_relaxed);
		/* pairs with the signal fence in weir_bias_lock() */
		weir_barrier_threads();
		/* pairs with the release in weir_bias_unlock() */
		while (atomic_load_explicit(&b->inside, memory_order_acquire))
			sched_yield();
	}
	b->fast = false;
}

void
weir_bias_unlock_slow(struct weir_bias *b)
{
	if (b->claims < CLAIMS_MAX) {
		b->claims++;
		atomic_store_explicit(&b->owner, &weir_self, memory_order_relaxed);
	}
	pthread_mutex_unlock(&b->mutex);
}

void
weir_bias_unlock_passing(struct weir_bias *b)
{
	/* the claim that this visit took away is given back */
	if (b->claims && b->claims < CLAIMS_MAX)
		b->claims--;
	pthread_mutex_unlock(&b->mutex);
}
