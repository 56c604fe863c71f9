/* SPDX-License-Identifier: BSD-3-Clause */
/* Perfect play on small boards. */
#ifndef HEX_SOLVE_H
#define HEX_SOLVE_H

#include "board.h"

#define SOLVE_ALL_MOST 4u    /* size of boards of which all positions are known */
#define SOLVE_SEARCH_MOST 5u /* of boards that are searched */

struct solved;

/* Every position of a board of size 2 ... SOLVE_ALL_MOST. NULL: no memory. */
struct solved *solve_all(unsigned size);
void solve_free(struct solved *s);
/* The player who wins in b, where the players have moved in turns; also if the game is over. */
int solve_winner(const struct solved *s, const struct board *b);
/* Positions in which each player wins: +1, -1. */
void solve_count(const struct solved *s, uint64_t wins[2]);

/* The same for one position of a board of up to SOLVE_SEARCH_MOST, by search. *searched: positions
 * that were looked at. 0: no memory. */
int solve_search(const struct board *b, uint64_t *searched);

#endif
