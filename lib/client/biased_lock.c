/* SPDX-License-Identifier: BSD-3-Clause */
#include "biased_lock.h"
#include "membarrier.h"

#include "ipc/invariant.h"

#include <sched.h>

#define CLAIMS_MAX 16 /* changes of the owner after which a lock stays a mutex */

struct weir_bias_seat weir_bias_nobody;

/* The caller's seat, or a free one. NULL: other threads have all seats. */
static struct weir_bias_seat *
own_seat(struct weir_bias *b)
{
	for (unsigned i = 0; i < WEIR_BIAS_OWNERS; i++) {
		struct weir_bias_seat *s = &b->seats[i];
		const void *thread = atomic_load_explicit(&s->thread, memory_order_relaxed);

		if (!thread)
			atomic_store_explicit(&s->thread, weir_self(), memory_order_relaxed);
		if (!thread || thread == weir_self())
			return s;
	}
	return NULL;
}

int
weir_bias_init(struct weir_bias *b)
{
	struct weir_bias_seat *owner = &weir_bias_nobody;
	int rc;

	*b = (struct weir_bias){.claims = CLAIMS_MAX};
	rc = pthread_mutex_init(&b->mutex, NULL);
	if (rc)
		return -rc;
	if (weir_barrier_private()) {
		b->claims = 0;
		owner = own_seat(b);
	}
	atomic_init(&b->owner, owner);
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
	struct weir_bias_seat *owner;

	pthread_mutex_lock(&b->mutex);
	owner = atomic_load_explicit(&b->owner, memory_order_relaxed);
	if (owner != &weir_bias_nobody) {
		atomic_store_explicit(&b->owner, &weir_bias_nobody, memory_order_relaxed);
		/* pairs with the signal fence in weir_bias_enter() */
		weir_barrier_threads();
		/* pairs with the release in weir_bias_leave() */
		while (atomic_load_explicit(&owner->inside, memory_order_acquire))
			sched_yield();
	}
	b->held = NULL;
}

void
weir_bias_unlock_slow(struct weir_bias *b)
{
	struct weir_bias_seat *s = b->claims < CLAIMS_MAX ? own_seat(b) : NULL;

	weir_assert(!b->held && b->claims <= CLAIMS_MAX);
	if (s) {
		b->claims++;
		atomic_store_explicit(&b->owner, s, memory_order_relaxed);
	}
	pthread_mutex_unlock(&b->mutex);
}

void
weir_bias_unlock_passing(struct weir_bias *b)
{
	/* the ownership that this visit ended does not count */
	if (b->claims && b->claims < CLAIMS_MAX)
		b->claims--;
	pthread_mutex_unlock(&b->mutex);
}
