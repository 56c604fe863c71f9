/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks memory that a struct weir_layout describes. The library uses it here, engines there. */
#ifndef WEIR_COMMON_LAYOUT_H
#define WEIR_COMMON_LAYOUT_H

#include "weir/type.h"

#include <stdbool.h>

/*
 * The first byte of a layout, and the one behind its last, relative to the start of the transfer.
 * Returns the layout's bytes, or UINT64_MAX: invalid, as for weir_layout_bytes().
 */
uint64_t weir_layout_bounds(const struct weir_layout *l, int64_t *first, int64_t *end);

/* Whether all bytes of a valid layout that starts at `offset` lie within [0, length). */
bool weir_layout_fits(const struct weir_layout *l, uint64_t offset, uint64_t length);

/* A position in a layout. */
struct weir_layout_walk {
	struct weir_layout l; /* private copy, adjacent pieces joined; a list is not copied */
	uint64_t index[WEIR_LAYOUT_DIMS];
	size_t piece;	/* of the list */
	int64_t offset; /* of the piece at hand */
	uint64_t taken; /* bytes of it */
};

/* Starts at the beginning of a valid layout. */
void weir_layout_start(struct weir_layout_walk *w, const struct weir_layout *l);
/* The same with a block, at piece `first`, which there is; pieces are those of the description. */
void weir_layout_start_at(struct weir_layout_walk *w, const struct weir_layout *l, uint64_t first);
/* Pieces of a layout with a block before the one at hand. */
uint64_t weir_layout_before(const struct weir_layout_walk *w);

/* The rest of the piece at hand, and where it is; 0: there are none left. Takes nothing. */
uint64_t weir_layout_rest(struct weir_layout_walk *w, int64_t *offset);

/*
 * The next contiguous bytes, at most `most` (at least 1) of them: returns their number and
 * *offset; 0: there are none left. Piece by piece they are those of the description, in its order.
 */
uint64_t weir_layout_next(struct weir_layout_walk *w, uint64_t most, int64_t *offset);

/*
 * Take the next n bytes, which there are: store them from `from`, or load them to `to`. The
 * transfer starts `start` bytes behind `base`. Programs see aligned pieces of 1, 2, 4 and 8 bytes
 * whole (apply.h).
 */
void weir_layout_store(struct weir_layout_walk *w, uint8_t *base, uint64_t start, const void *from,
		       uint64_t n);
void weir_layout_load(struct weir_layout_walk *w, const uint8_t *base, uint64_t start, void *to,
		      uint64_t n);
void weir_layout_skip(struct weir_layout_walk *w, uint64_t n);

#endif
