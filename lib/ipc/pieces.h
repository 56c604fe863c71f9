/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layouts in cells: the payload of a PUT, UPDATE or GET with a layout begins with it, and the
 * memory of the operation is the pieces that it describes. The library writes it, engines read it.
 */
#ifndef WEIR_COMMON_PIECES_H
#define WEIR_COMMON_PIECES_H

#include "layout.h"
#include "remote.h"

/* Behind it: n dimensions {count 8, stride 8}, or a list of n {offset 8, length 8}. */
struct weir_cell_layout {
	uint64_t first; /* piece of the cell; lists: 0 */
	uint32_t block; /* bytes per piece; 0: a list */
	uint32_t n;	/* dimensions, at most WEIR_LAYOUT_DIMS; a list: at least 1 */
};

#define WEIR_CELL_PIECES_MAX 1024u /* of a block, per cell: bounds its work */
#define WEIR_CELL_LIST_MAX                                                                         \
	((WEIR_ACCESS_MAX - sizeof(struct weir_cell_layout)) / sizeof(struct weir_piece))

/* The memory of a cell. It is not copied, since it may point into itself. */
struct weir_pieces {
	struct weir_layout l;
	uint64_t first;
	struct weir_piece list[WEIR_CELL_LIST_MAX];
};

/* Bytes of a description with n dimensions or pieces. */
static inline uint32_t
weir_described(uint32_t n)
{
	return (uint32_t)(sizeof(struct weir_cell_layout) + n * sizeof(struct weir_piece));
}

/* Writes pieces from `first` on of a layout with a block to a payload. Returns its bytes. */
uint32_t weir_pieces_put(uint8_t *payload, const struct weir_layout *l, uint64_t first);
/* Writes the head of a list, whose n pieces follow. Returns the bytes of both. */
uint32_t weir_list_put(uint8_t *payload, uint32_t n);

/*
 * Reads what a payload of `length` bytes, in private memory, begins with. Returns its bytes; 0: it
 * is malformed.
 */
uint32_t weir_pieces_get(struct weir_pieces *p, const uint8_t *payload, uint32_t length);
/*
 * Whether `bytes` of data are exactly the pieces of a cell, all within the `whole` bytes of an
 * export when they start at `offset`.
 */
bool weir_pieces_fit(const struct weir_pieces *p, uint64_t bytes, uint64_t offset, uint64_t whole);
/* Whether they consist of elements of this size and alignment. */
bool weir_pieces_aligned(const struct weir_layout *l, size_t size, size_t align);
/* Starts at the first piece. */
void weir_pieces_start(const struct weir_pieces *p, struct weir_layout_walk *w);

#endif
