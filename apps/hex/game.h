/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A game of two players, +1 and -1, without draws, in which moves are numbers and +1 begins. The
 * search knows no more of it. Functions that get a position may run in several threads, on one
 * position each.
 */
#ifndef HEX_GAME_H
#define HEX_GAME_H

#include "dice.h"

#include <stdbool.h>
#include <stddef.h>

struct game {
	unsigned size;	       /* of the board */
	unsigned moves_max;    /* legal moves of a position, at most */
	size_t position_bytes; /* of a position in memory */
	size_t state_max;      /* bytes of a position on the wire, at most */

	/* Writes the legal moves in ascending order. Returns their number; 0 if the game is over.
	 */
	unsigned (*moves)(const void *position, uint16_t *list);
	/* 0, or -EINVAL and the position is as it was: not a legal move. */
	int (*play)(void *position, unsigned move);
	int (*turn)(const void *position);   /* player to move */
	int (*winner)(const void *position); /* 0: not over */
	/* Plays to the end at random `count` times. Returns how often +1 has won. */
	unsigned (*playouts)(const void *position, unsigned count, struct dice *d);
	/* Writes the position for other processes. Returns its length. */
	size_t (*write)(const void *position, uint8_t *state);
	/* 0, or -EINVAL: not what write() produces. The bytes may come from anybody. */
	int (*read)(const struct game *g, void *position, const uint8_t *state, size_t length);
	uint64_t (*hash)(const void *position);
	/* Hash of the position after `move` of `player`, made from that before. */
	uint64_t (*hash_after)(uint64_t before, unsigned move, int player);
};

#endif
