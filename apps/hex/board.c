/* SPDX-License-Identifier: BSD-3-Clause */
#include "board.h"

#include <errno.h>
#include <string.h>

#define FIRST_EDGE 1u
#define LAST_EDGE 2u

void
board_start(struct board *b, unsigned size)
{
	memset(b, 0, offsetof(struct board, history)); /* the rest is of stones */
	b->size = (uint8_t)size;
}

int
board_stone(const struct board *b, unsigned cell)
{
	unsigned r = cell / b->size, c = cell % b->size;

	return (int)(b->stones[0][c] >> r & 1) - (int)(b->stones[1][c] >> r & 1);
}

static unsigned
group_of(struct board *b, unsigned cell)
{
	while (b->above[cell] != cell) {
		b->above[cell] = b->above[b->above[cell]];
		cell = b->above[cell];
	}
	return cell;
}

static uint64_t
hash_after(uint64_t before, unsigned move, int player)
{
	return before ^ dice_mix(2 * move + (player > 0));
}

int
board_put(struct board *b, unsigned cell, int turn)
{
	static const int around[6][2] = {{-1, 0}, {-1, 1}, {0, -1}, {0, 1}, {1, -1}, {1, 0}};
	unsigned size = b->size, r = cell / size, c = cell % size, group = cell;
	unsigned at = turn > 0 ? c : r; /* between the edges to join */

	if (cell >= size * size || b->winner || board_stone(b, cell))
		return -EINVAL;
	b->stones[turn < 0][c] |= 1u << r;
	b->history[b->count++] = (uint16_t)cell;
	b->hash = hash_after(b->hash, cell, turn);
	b->above[cell] = (uint16_t)cell;
	b->edges[cell] = (at == 0 ? FIRST_EDGE : 0) | (at == size - 1 ? LAST_EDGE : 0);
	for (unsigned i = 0; i < 6; i++) {
		unsigned row = r + (unsigned)around[i][0], column = c + (unsigned)around[i][1];
		unsigned other;

		if (row >= size || column >= size || !(b->stones[turn < 0][column] >> row & 1))
			continue;
		other = group_of(b, row * size + column);
		b->above[group] = (uint16_t)other;
		b->edges[other] |= b->edges[group];
		group = other;
	}
	if (b->edges[group] == (FIRST_EDGE | LAST_EDGE))
		b->winner = (int8_t)turn;
	return 0;
}

/* ---- names of cells: the column's letter and the row's number ---- */

int
board_cell(const char *name, unsigned size)
{
	unsigned column = (unsigned)(name[0] | 0x20) - 'a', row = 0;

	if (column >= size)
		return -EINVAL;
	while (*++name >= '0' && *name <= '9' && row <= size)
		row = 10 * row + (unsigned)(*name - '0');
	if (*name || row - 1 >= size)
		return -EINVAL;
	return (int)((row - 1) * size + column);
}

const char *
board_name(unsigned cell, unsigned size, char name[4])
{
	snprintf(name, 4, "%c%u", (char)('a' + cell % size), cell / size % BOARD_MOST + 1);
	return name;
}

/* ---- the game ---- */

static unsigned
moves(const void *position, uint16_t *list)
{
	const struct board *b = position;
	unsigned n = 0;

	for (unsigned r = 0; !b->winner && r < b->size; r++)
		for (unsigned c = 0; c < b->size; c++)
			if (!((b->stones[0][c] | b->stones[1][c]) >> r & 1))
				list[n++] = (uint16_t)(r * b->size + c);
	return n;
}

static int
play(void *position, unsigned move)
{
	return board_put(position, move, board_turn(position));
}

static int
turn_of(const void *position)
{
	return board_turn(position);
}

static int
winner_of(const void *position)
{
	return ((const struct board *)position)->winner;
}

/* The number of moves and the moves: a byte each, on boards of more than 255 cells two. */
static size_t
write_state(const void *position, uint8_t *state)
{
	const struct board *b = position;
	bool wide = b->size > 15;
	size_t n = 0;

	for (unsigned i = 0; i <= b->count; i++) {
		unsigned value = i ? b->history[i - 1] : b->count;

		state[n++] = (uint8_t)value;
		if (wide)
			state[n++] = (uint8_t)(value >> 8);
	}
	return n;
}

static int
read_state(const struct game *g, void *position, const uint8_t *state, size_t length)
{
	unsigned bytes = g->size > 15 ? 2 : 1, count = 0;

	board_start(position, g->size);
	for (size_t i = 0; i + bytes <= length; i += bytes) {
		unsigned value = state[i] | (bytes > 1 ? state[i + 1] << 8 : 0);

		if (i == 0)
			count = value;
		else if (play(position, value))
			return -EINVAL;
	}
	return length == (count + (size_t)1) * bytes ? 0 : -EINVAL;
}

static uint64_t
hash_of(const void *position)
{
	return ((const struct board *)position)->hash;
}

struct game
board_game(unsigned size, bool flood)
{
	return (struct game){
	    .size = size,
	    .moves_max = size * size,
	    .position_bytes = sizeof(struct board),
	    .state_max = (size_t)(size * size + 1) * (size > 15 ? 2 : 1),
	    .moves = moves,
	    .play = play,
	    .turn = turn_of,
	    .winner = winner_of,
	    .playouts = flood ? playout_run_flood : playout_run,
	    .write = write_state,
	    .read = read_state,
	    .hash = hash_of,
	    .hash_after = hash_after,
	};
}
