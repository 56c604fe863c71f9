/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The regions of a session, sorted by address. Any thread searches without a lock; one thread at a
 * time replaces the table as a whole, and reuses the old one when no thread searches it any more.
 */
#ifndef WEIR_CLIENT_REGION_TABLE_H
#define WEIR_CLIENT_REGION_TABLE_H

#include <stdatomic.h>
#include <stdint.h>

struct weir_region;
struct weir_region_list;

struct weir_region_table {
	_Atomic(struct weir_region_list *) list; /* NULL: no region yet */
	struct weir_region_list *spare; /* the next list; has room for all of `list` but one */
	/* Threads that search, by the phase in which they began: a writer changes the phase, so
	 * that new ones do not keep it waiting. */
	_Atomic uint32_t phase, readers[2];
};

/* ---- any thread ---- */

/* Begins to search. Regions found are valid until the end, or for as long as they are used. */
static inline uint32_t
weir_regions_enter(struct weir_region_table *t)
{
	uint32_t phase = atomic_load_explicit(&t->phase, memory_order_relaxed) % 2;

	/* before the list is loaded: pairs with swap() */
	atomic_fetch_add_explicit(&t->readers[phase], 1, memory_order_seq_cst);
	return phase;
}

static inline void
weir_regions_leave(struct weir_region_table *t, uint32_t phase)
{
	/* pairs with the load in swap() */
	atomic_fetch_sub_explicit(&t->readers[phase], 1, memory_order_release);
}

/* The last region that begins below `end`, or NULL: if a region holds a byte below `end` and at or
 * above some address, this one does. Between weir_regions_enter() and weir_regions_leave(). */
struct weir_region *weir_regions_below(struct weir_region_table *t, uintptr_t end);

/* ---- one thread at a time ---- */

/* Makes room for another region. 0 or -ENOMEM. */
int weir_regions_reserve(struct weir_region_table *t);
/* Adds a region that overlaps no other; there is room. */
void weir_regions_put(struct weir_region_table *t, struct weir_region *r);
/* Removes a region: on return no thread finds it any more, nor looks at it without using it. */
void weir_regions_take(struct weir_region_table *t, struct weir_region *r);
/* Region `index`, or NULL: there are fewer. */
struct weir_region *weir_regions_at(const struct weir_region_table *t, uint32_t index);
/* No thread searches. */
void weir_regions_free(struct weir_region_table *t);

#endif
