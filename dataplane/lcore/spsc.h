/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A ring from one thread to another: a power of two of cells of equal size. Neither side waits.
 * Used for the mailboxes between main and the engines, and for packets between engines.
 */
#ifndef WEIR_SPSC_H
#define WEIR_SPSC_H

#include "ipc/invariant.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct spsc {
	_Alignas(64) _Atomic uint32_t head; /* producer writes, consumer reads */
	uint32_t tail_seen;		    /* producer's copy of tail */
	_Alignas(64) _Atomic uint32_t tail; /* consumer writes, producer reads */
	uint32_t head_seen;		    /* consumer's copy of head */
	_Alignas(64) unsigned char *cells;  /* set at init, then constant */
	uint32_t mask;
};

/* `cells` is the caller's: count * size bytes, count a power of two. */
static inline void
spsc_init(struct spsc *r, void *cells, uint32_t count)
{
	weir_assert(count && !(count & (count - 1)));
	memset(r, 0, sizeof(*r));
	r->cells = cells;
	r->mask = count - 1;
}

/* Producer: free cells, a lower bound. */
static inline uint32_t
spsc_room(struct spsc *r)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	/* pairs with the release in spsc_pop() */
	r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
	return r->mask + 1 - (head - r->tail_seen);
}

/* Producer: puts one cell of `size` bytes; false when the ring is full. */
static inline bool
spsc_push(struct spsc *r, const void *cell, size_t size)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	weir_assert(head - r->tail_seen <= r->mask + 1);
	if (head - r->tail_seen > r->mask && spsc_room(r) == 0)
		return false;
	memcpy(r->cells + (head & r->mask) * size, cell, size);
	/* pairs with the acquire in spsc_pop() */
	atomic_store_explicit(&r->head, head + 1, memory_order_release);
	return true;
}

/* Consumer: takes one cell of `size` bytes; false when the ring is empty. */
static inline bool
spsc_pop(struct spsc *r, void *cell, size_t size)
{
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

	if (tail == r->head_seen) {
		/* pairs with the release in spsc_push() */
		r->head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
		if (tail == r->head_seen)
			return false;
	}
	weir_assert(r->head_seen - tail <= r->mask + 1);
	memcpy(cell, r->cells + (tail & r->mask) * size, size);
	/* pairs with the acquire in spsc_room() */
	atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
	return true;
}

/* Any thread: whether nothing is in the ring now. */
static inline bool
spsc_empty(struct spsc *r)
{
	return atomic_load_explicit(&r->head, memory_order_acquire) ==
	       atomic_load_explicit(&r->tail, memory_order_acquire);
}

#endif
