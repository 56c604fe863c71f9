/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows, epochs and values that cases of windows use. */
#ifndef WEIR_RMA_PART_H
#define WEIR_RMA_PART_H

#include "cases.h"

#include <weir/window.h>

#include <stdatomic.h>
#include <string.h>

#define TYPES 22u		  /* numbers 1 to this */
#define OPERATIONS 14u		  /* likewise */
#define ELEMENT_MAX 32u		  /* bytes of the largest type */
#define UNTOUCHED ((uint8_t)0xa5) /* byte that no operation may change */

static inline struct weir_window_options
options(const struct ranks *r)
{
	struct weir_window_options o = WEIR_WINDOW_OPTIONS_INIT;

	o.flags = r->maps ? 0 : WEIR_WINDOW_APART;
	return o;
}

/* Collective. A window with `bytes` of memory at each rank, of units of 8 bytes. */
static inline uint8_t *
make(struct ranks *r, uint64_t bytes, uint32_t flags, struct weir_window **win)
{
	struct weir_window_options o = options(r);
	void *base = NULL;

	o.flags |= flags;
	o.disp_unit = 8;
	*win = NULL;
	OK(r, weir_window_allocate(r->g, bytes, &o, CASE_MS, &base, win));
	return base;
}

/* Word i of a part, which others may write. */
static inline uint64_t
word(const uint8_t *base, uint64_t i)
{
	return atomic_load_explicit((const _Atomic uint64_t *)(const void *)base + i,
				    memory_order_relaxed);
}

static inline uint32_t
next_rank(const struct ranks *r)
{
	return (r->rank + 1) % r->size;
}

static inline uint32_t
previous_rank(const struct ranks *r)
{
	return (r->rank + r->size - 1) % r->size;
}

/* Whether all n bytes are the same one. */
bool is_filled(const uint8_t *at, uint8_t with, size_t n);

/* n packed elements of a type, which differ by `round`; bytes between their fields are 0. */
void operands(enum weir_type t, uint32_t round, unsigned n, void *to);
/* The operation with the lowest number that the type has. */
enum weir_acc first_operation(enum weir_type t);

/* Epochs with all members as targets. */
enum epoch_kind { BY_FENCE, BY_START, BY_LOCKS, BY_LOCK_ALL, EPOCH_KINDS };

/* Collective. All have stored what they stored before; the caller may access all. */
void epoch_begin(struct ranks *r, struct weir_window *win, enum epoch_kind kind);
/* Collective. Loads of the own part see the operations of all. */
void epoch_end(struct ranks *r, struct weir_window *win, enum epoch_kind kind);

/* Collective. The same ranks, of this host alone, with a group of their own. */
struct ranks host_ranks(struct ranks *r);
void host_done(struct ranks *r, struct ranks *host);

#endif
