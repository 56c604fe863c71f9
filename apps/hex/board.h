/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The board of Hex. +1 begins and joins the first column to the last one, -1 the first row to the
 * last one. Cell row * size + column touches the two beside it, and in the row above those of its
 * own and of the next column, in the row below those of its own and of the column before.
 */
#ifndef HEX_BOARD_H
#define HEX_BOARD_H

#include "game.h"

#include <stdio.h>

#define BOARD_LEAST 2u
#define BOARD_MOST 19u
#define BOARD_CELLS (BOARD_MOST * BOARD_MOST)

struct board {
	uint8_t size;
	int8_t winner;	/* 0: not over */
	uint16_t count; /* of stones */
	uint64_t hash;
	uint32_t stones[2][BOARD_MOST]; /* of +1 and of -1: bit `row` of each column */
	uint16_t history[BOARD_CELLS];	/* cells in the order of play */
	/* Where a stone lies: its group's representative, by way of others, and that one's edges.
	 */
	uint16_t above[BOARD_CELLS];
	uint8_t edges[BOARD_CELLS]; /* 1: the first, 2: the last column or row */
};

/* Hex on size x size cells; `flood`: playouts fill and search the board one cell after the other,
 * as the paper's do. */
struct game board_game(unsigned size, bool flood);

void board_start(struct board *b, unsigned size);
/* A stone of either player. 0, or -EINVAL and nothing is changed: there is no such empty cell, or
 * the game is over. */
int board_put(struct board *b, unsigned cell, int player);
static inline int
board_turn(const struct board *b)
{
	return b->count % 2 ? -1 : 1;
}
int board_stone(const struct board *b, unsigned cell); /* +1, -1, 0: none */
static inline unsigned
board_mirrored(unsigned cell, unsigned size)
{
	return cell % size * size + cell / size;
}
/* The cell "a1" ... "s19" (column, row), of upper or lower case; -EINVAL. */
int board_cell(const char *name, unsigned size);
const char *board_name(unsigned cell, unsigned size, char name[4]);

/* ---- playouts, PLAYOUT_LANES at once ---- */

#define PLAYOUT_LANES 8u
typedef uint32_t playout_lanes __attribute__((vector_size(4 * PLAYOUT_LANES)));

/* Fills the empty cells at random, half of them for each player; one that remains is the mover's.
 * Column c of playout i: filled[c][i], the stones of +1. */
void playout_fill(const struct board *b, struct dice *d, playout_lanes *filled);
/* All bits of lane i: +1 has won there. */
void playout_winners(const playout_lanes *filled, unsigned size, playout_lanes *won);
unsigned playout_run(const void *position, unsigned count, struct dice *d);
unsigned playout_run_flood(const void *position, unsigned count, struct dice *d);

#endif
