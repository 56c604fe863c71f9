/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random ends of games: the empty cells are filled, then one player has joined his edges. A column
 * of the board is a word, and one vector has the same column of several boards.
 */
#include "board.h"

#include <string.h>

#define ALL(mask) ((playout_lanes){0} + (mask))

static bool
is_zero(const playout_lanes *v)
{
	uint32_t any = 0;

	for (unsigned i = 0; i < PLAYOUT_LANES; i++)
		any |= (*v)[i];
	return !any;
}

/*
 * There and back over the columns, until nothing is reached that was not before. In a column, what
 * is reached spreads upwards to the end of its run, by the carry of an addition, and downwards by
 * one cell per pass, since runs are short.
 */
void
playout_winners(const playout_lanes *filled, unsigned size, playout_lanes *won)
{
	playout_lanes reached[BOARD_MOST] = {filled[0]};

	for (bool back = false;; back = !back) {
		playout_lanes fresh = {0};

		for (unsigned i = 1; i < size; i++) {
			unsigned c = back ? size - 1 - i : i;
			playout_lanes run = filled[c], now = reached[c];

			now |= back ? reached[c + 1] | reached[c + 1] << 1
				    : reached[c - 1] | reached[c - 1] >> 1;
			now &= run;
			now |= run & (run ^ (run + now));
			now |= run & now >> 1;
			fresh |= now ^ reached[c];
			reached[c] = now;
		}
		if (is_zero(&fresh))
			break;
	}
	*won = (playout_lanes)(reached[size - 1] != 0);
}

/* The empty cells, column * 32 + row each; *own: those that +1 gets. */
static unsigned
empty_cells(const struct board *b, uint16_t *cells, unsigned *own)
{
	unsigned n = 0;

	for (unsigned c = 0; c < b->size; c++) {
		uint32_t empty = ~(b->stones[0][c] | b->stones[1][c]) & ((1u << b->size) - 1);

		for (; empty; empty &= empty - 1)
			cells[n++] = (uint16_t)(32 * c + (unsigned)__builtin_ctz(empty));
	}
	*own = (n + (board_turn(b) > 0)) / 2;
	return n;
}

/*
 * Each lane takes a random subset of the empty cells, and then adds or removes random cells until
 * its size is right. Subsets of equal size are as likely as each other, before and after.
 */
void
playout_fill(const struct board *b, struct dice *d, playout_lanes *filled)
{
	typedef uint64_t pairs __attribute__((vector_size(4 * PLAYOUT_LANES)));
	uint16_t cells[BOARD_CELLS];
	unsigned own, n = empty_cells(b, cells, &own);
	playout_lanes bits, count = {0};
	pairs x, y, sum;

	for (unsigned i = 0; i < PLAYOUT_LANES / 2; i++) {
		x[i] = dice_next(d);
		y[i] = dice_next(d);
	}
	for (unsigned c = 0; c < b->size; c++) {
		sum = x + y; /* as dice_next() */
		sum = (sum << 17 | sum >> 47) + x;
		y ^= x;
		x = (x << 49 | x >> 15) ^ y ^ y << 21;
		y = y << 28 | y >> 36;
		bits = (playout_lanes)sum & ~ALL(b->stones[0][c] | b->stones[1][c]) &
		       ALL((1u << b->size) - 1);
		filled[c] = bits | ALL(b->stones[0][c]);
		bits -= bits >> 1 & ALL(0x55555555);
		bits = (bits & ALL(0x33333333)) + (bits >> 2 & ALL(0x33333333));
		count += (bits + (bits >> 4)) & ALL(0x0f0f0f0f); /* per byte: at most 19 * 8 */
	}
	count = (count & ALL(0x00ff00ff)) + (count >> 8 & ALL(0x00ff00ff));
	count = (count + (count >> 16)) & ALL(0xffff);
	for (unsigned i = 0; i < PLAYOUT_LANES; i++) {
		uint32_t full = count[i] > own;
		unsigned left = full ? count[i] - own : own - count[i];

		while (left) {
			uint16_t cell = cells[dice_below(d, n)];
			uint32_t *column = (uint32_t *)&filled[cell / 32] + i;
			uint32_t hit = (*column >> cell % 32 & 1) == full;

			*column ^= hit << cell % 32; /* no branch: hits can't be predicted */
			left -= hit;
		}
	}
}

unsigned
playout_run(const void *position, unsigned count, struct dice *d)
{
	const struct board *b = position;
	playout_lanes filled[BOARD_MOST], won;
	unsigned wins = 0;

	for (unsigned done = 0; done < count; done += PLAYOUT_LANES) {
		playout_fill(b, d, filled);
		playout_winners(filled, b->size, &won);
		for (unsigned i = 0; i < PLAYOUT_LANES && done + i < count; i++)
			wins += won[i] & 1;
	}
	return wins;
}

unsigned
playout_run_flood(const void *position, unsigned count, struct dice *d)
{
	const struct board *b = position;
	unsigned own, wins = 0;
	uint16_t cells[BOARD_CELLS], n = (uint16_t)empty_cells(b, cells, &own);

	while (count-- > 0) {
		uint8_t stones[BOARD_MOST + 2][32] = {0}; /* of +1 that are not reached yet */
		uint16_t stack[BOARD_CELLS], top = 0;
		bool won = false;

		for (unsigned c = 0; c < b->size; c++)
			for (unsigned r = 0; r < b->size; r++)
				stones[c + 1][r + 1] = b->stones[0][c] >> r & 1;
		for (unsigned i = 0; i < own; i++) {
			unsigned other = i + dice_below(d, n - i);
			uint16_t cell = cells[other];

			cells[other] = cells[i];
			cells[i] = cell;
			stones[cell / 32 + 1][cell % 32 + 1] = 1;
		}
		for (unsigned r = 1; r <= b->size; r++)
			if (stones[1][r])
				stack[top++] = (uint16_t)(32 + r), stones[1][r] = 0;
		while (top > 0 && !won) {
			static const int around[] = {-32, 32, -1, 1, -31, 31};
			unsigned cell = stack[--top];

			won = cell / 32 == b->size;
			for (unsigned i = 0; i < 6; i++) {
				unsigned beside = (unsigned)((int)cell + around[i]);

				if (stones[beside / 32][beside % 32]) {
					stones[beside / 32][beside % 32] = 0;
					stack[top++] = (uint16_t)beside;
				}
			}
		}
		wins += won;
	}
	return wins;
}
