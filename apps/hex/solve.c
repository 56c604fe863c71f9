/* SPDX-License-Identifier: BSD-3-Clause */
#include "solve.h"

#include <stdlib.h>
#include <string.h>

/* ---- small boards: a bit per cell ---- */

struct small {
	unsigned size, cells;
	uint64_t beside[64]; /* of each cell, and of the edges that players 0 (+1) and 1 join */
};

#define FROM(player) (60u + (player))
#define TO(player) (62u + (player))

static void
small_init(struct small *s, unsigned size)
{
	*s = (struct small){.size = size, .cells = size * size};
	for (unsigned a = 0; a < s->cells; a++) {
		unsigned r = a / size, c = a % size;

		for (unsigned b = 0; b < s->cells; b++) {
			int down = (int)(b / size) - (int)r, right = (int)(b % size) - (int)c;

			if (a != b && abs(down) <= 1 && abs(right) <= 1 && down != right)
				s->beside[a] |= UINT64_C(1) << b;
		}
		for (unsigned player = 0; player < 2; player++) {
			unsigned at = player ? r : c;

			if (at == 0)
				s->beside[FROM(player)] |= UINT64_C(1) << a;
			if (at == size - 1) {
				s->beside[TO(player)] |= UINT64_C(1) << a;
				s->beside[a] |= UINT64_C(1) << TO(player);
			}
		}
	}
}

/* Two of these cells; 0: there are fewer. */
static uint64_t
pair(uint64_t cells)
{
	uint64_t others = cells & (cells - 1);

	return others ? (cells ^ others) | (others & -others) : 0;
}

/*
 * Whether the stones join their edges though the other player is next: two that follow each other
 * on a path touch, or have two empty cells in common, of which one is left after his move.
 * *needed: these pairs, of a path with few of them.
 */
static bool
joins_anyway(const struct small *s, uint64_t own, uint64_t empty, unsigned player, uint64_t *needed)
{
	uint64_t pairs[64], left = own | UINT64_C(1) << TO(player);
	unsigned reached[64] = {FROM(player)}, n = 1, last = FROM(player);

	pairs[last] = 0; /* on the way to it */
	do {
		uint64_t best = UINT64_MAX;

		for (unsigned i = 0; i < n; i++)
			for (uint64_t cells = left; cells; cells &= cells - 1) {
				unsigned from = reached[i], to = (unsigned)__builtin_ctzll(cells);
				bool touches = s->beside[from] >> to & 1;
				uint64_t more = touches ? 0
							: pair(s->beside[from] & s->beside[to] &
							       empty & ~pairs[from]);

				more |= touches || more ? pairs[from] : UINT64_MAX;
				if (__builtin_popcountll(more) < __builtin_popcountll(best)) {
					best = more;
					last = to;
				}
			}
		if (best == UINT64_MAX)
			return false;
		pairs[last] = best;
		reached[n++] = last;
		left ^= UINT64_C(1) << last;
	} while (last != TO(player));
	*needed = pairs[last];
	return true;
}

/* ---- every position, from the full boards backwards ---- */

struct solved {
	struct small small;
	uint32_t power[SOLVE_ALL_MOST * SOLVE_ALL_MOST + 1]; /* of 3: a position is a number */
	uint64_t wins[2];
	uint8_t winner[]; /* 2 bits each: player + 1; 0: not reached by moves in turns */
};

static unsigned
get(const struct solved *s, uint32_t position)
{
	return s->winner[position / 4] >> position % 4 * 2 & 3;
}

/* Of a position that has as many stones of both, or one more of player 0. */
static unsigned
winner_of(const struct solved *s, uint32_t position, const uint32_t stones[2], unsigned mover)
{
	for (unsigned cell = 0; cell < s->small.cells; cell++)
		if (!((stones[0] | stones[1]) >> cell & 1) &&
		    get(s, position + (mover + 1) * s->power[cell]) == mover + 1)
			return mover + 1;
	return 2 - mover;
}

struct solved *
solve_all(unsigned size)
{
	unsigned cells = size * size;
	uint32_t positions = 1, stones[2] = {0, (1u << cells) - 1};
	uint8_t *joined = calloc(1u << cells, 1);
	uint64_t none;
	struct solved *s;

	for (unsigned i = 0; i < cells; i++)
		positions *= 3;
	s = calloc(1, sizeof(*s) + positions / 4 + 1);
	if (!joined || !s) {
		free(joined);
		free(s);
		return NULL;
	}
	small_init(&s->small, size);
	s->power[0] = 1;
	for (unsigned i = 0; i < cells; i++)
		s->power[i + 1] = 3 * s->power[i];
	for (uint32_t mask = 0; mask < 1u << cells; mask++)
		for (unsigned p = 0; p < 2; p++)
			joined[mask] |= (uint8_t)(joins_anyway(&s->small, mask, 0, p, &none) << p);
	/* a stone makes a greater number: what follows a position is known before it */
	for (uint32_t position = positions; position-- > 0;) {
		int ahead = __builtin_popcount(stones[0]) - __builtin_popcount(stones[1]);
		unsigned winner = 0;

		if (ahead == 0 || ahead == 1) {
			if (joined[stones[0]] & 1)
				winner = 1;
			else if (joined[stones[1]] & 2)
				winner = 2;
			else
				winner = winner_of(s, position, stones, (unsigned)ahead);
			s->wins[winner - 1]++;
		}
		s->winner[position / 4] |= (uint8_t)(winner << position % 4 * 2);
		/* the number less one: 2 (player 1) becomes 1, 1 becomes 0, 0 borrows */
		for (unsigned cell = 0; cell < cells; cell++) {
			uint32_t bit = 1u << cell;

			if (stones[1] & bit) {
				stones[1] ^= bit;
				stones[0] ^= bit;
				break;
			}
			if (stones[0] & bit) {
				stones[0] ^= bit;
				break;
			}
			stones[1] ^= bit;
		}
	}
	free(joined);
	return s;
}

void
solve_free(struct solved *s)
{
	free(s);
}

int
solve_winner(const struct solved *s, const struct board *b)
{
	uint32_t position = 0;

	for (unsigned cell = 0; cell < s->small.cells; cell++) {
		int stone = board_stone(b, cell);

		position += stone ? (stone > 0 ? 1 : 2) * s->power[cell] : 0;
	}
	return get(s, position) == 1 ? 1 : -1;
}

void
solve_count(const struct solved *s, uint64_t wins[2])
{
	memcpy(wins, s->wins, sizeof(s->wins));
}

/* ---- one position, by search ---- */

#define TABLE_BITS 20u

/* One that was proved: player `winner` wins with these stones, with `mover` to move, if the cells
 * of `needed` are empty, whatever lies on the others. */
struct entry {
	uint64_t stones, needed;
	uint8_t known, winner, mover;
};

struct searcher {
	struct small small;
	struct entry *table;
	struct dice dice;
	uint64_t searched;
};

/* How often the one who has a cell wins, in random ends of the game: where both need it. */
static void
value_cells(struct searcher *s, const uint64_t stones[2], unsigned mover, unsigned empty,
	    unsigned *value)
{
	unsigned size = s->small.size;
	struct board b;

	board_start(&b, size);
	b.count = (uint16_t)mover; /* its turn */
	for (unsigned cell = 0; cell < s->small.cells; cell++)
		for (unsigned p = 0; p < 2; p++)
			b.stones[p][cell % size] |= (uint32_t)(stones[p] >> cell & 1)
						    << cell / size;
	for (unsigned k = 0; k <= empty * empty / 4; k++) {
		playout_lanes filled[BOARD_MOST], won;

		playout_fill(&b, &s->dice, filled);
		playout_winners(filled, size, &won);
		for (unsigned cell = 0; cell < s->small.cells; cell++)
			for (unsigned i = 0; i < PLAYOUT_LANES; i++)
				value[cell] +=
				    (filled[cell % size][i] >> cell / size & 1) == (won[i] & 1);
	}
}

static unsigned
most_valuable(const unsigned *value, uint64_t cells)
{
	unsigned best = (unsigned)__builtin_ctzll(cells);

	for (; cells; cells &= cells - 1)
		if (value[__builtin_ctzll(cells)] > value[best])
			best = (unsigned)__builtin_ctzll(cells);
	return best;
}

/*
 * Looks one move ahead. True: the mover wins by it. Else, if the other one would win by a move, the
 * mover has to interfere: *must is where he can with all of these moves.
 */
static bool
decide(const struct small *s, const uint64_t stones[2], unsigned mover, uint64_t *must,
       uint64_t *needed)
{
	uint64_t empty = *must, cells;

	*needed = 0;
	for (unsigned p = mover;; p = 1 - mover) {
		for (uint64_t left = empty; left; left &= left - 1) {
			uint64_t bit = left & -left;

			if (!joins_anyway(s, stones[p] | bit, empty ^ bit, p, &cells))
				continue;
			*needed |= cells | bit;
			if (p == mover)
				return true;
			*must &= cells | bit;
		}
		if (p != mover)
			return false;
	}
}

static struct entry *
entry_of(struct searcher *s, uint64_t stones, unsigned winner, unsigned mover)
{
	return &s->table[dice_mix(stones << 2 | winner << 1 | mover) >> (64 - TABLE_BITS)];
}

/*
 * Whether the mover wins, and the empty cells that the winner needs for that. If the other player
 * wins after one of the moves with the cells of `needed`, a better one must be among these. The
 * most valuable moves come first.
 */
static bool
wins(struct searcher *s, uint64_t stones[2], unsigned mover, uint64_t *needed)
{
	uint64_t empty = ((UINT64_C(1) << s->small.cells) - 1) & ~(stones[0] | stones[1]);
	unsigned value[SOLVE_SEARCH_MOST * SOLVE_SEARCH_MOST] = {0};
	uint64_t must = empty;
	unsigned winner;
	bool won;

	for (unsigned p = 0; p < 2; p++) {
		const struct entry *e = entry_of(s, stones[p], p, mover);

		if (e->known && e->stones == stones[p] && e->winner == p && e->mover == mover &&
		    !(e->needed & ~empty)) {
			*needed = e->needed;
			return p == mover;
		}
	}
	s->searched++;
	won = decide(&s->small, stones, mover, &must, needed);
	if (!won && must)
		value_cells(s, stones, mover, (unsigned)__builtin_popcountll(empty), value);
	while (must && !won) {
		uint64_t bit = UINT64_C(1) << most_valuable(value, must), theirs;

		stones[mover] |= bit;
		won = !wins(s, stones, 1 - mover, &theirs);
		stones[mover] ^= bit;
		*needed = won ? theirs | bit : *needed | theirs;
		must &= theirs;
	}
	winner = won ? mover : 1 - mover;
	*entry_of(s, stones[winner], winner, mover) =
	    (struct entry){stones[winner], *needed, 1, (uint8_t)winner, (uint8_t)mover};
	return won;
}

int
solve_search(const struct board *b, uint64_t *searched)
{
	struct searcher s = {.dice = dice_of(1)};
	uint64_t stones[2] = {0}, needed;
	unsigned mover = board_turn(b) < 0;
	bool won;

	*searched = 0;
	if (b->winner)
		return b->winner;
	s.table = calloc(1u << TABLE_BITS, sizeof(*s.table));
	if (!s.table)
		return 0;
	small_init(&s.small, b->size);
	for (unsigned cell = 0; cell < s.small.cells; cell++) {
		int stone = board_stone(b, cell);

		if (stone)
			stones[stone < 0] |= UINT64_C(1) << cell;
	}
	won = wins(&s, stones, mover, &needed);
	*searched = s.searched;
	free(s.table);
	return won == (mover == 0) ? 1 : -1;
}
