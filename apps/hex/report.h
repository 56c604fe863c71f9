/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Boards and searches for people. Cells are shown as other programs do: the first player's edges
 * are top and bottom if `mirrored`, as Black's are, else left and right.
 */
#ifndef HEX_REPORT_H
#define HEX_REPORT_H

#include "board.h"
#include "search.h"

/* marks: of +1, of -1. */
void report_board(FILE *to, const struct board *b, bool mirrored, const char *marks);
/* The winner after a first move on each cell: +1 (X) or -1 (O). */
void report_winners(FILE *to, unsigned size, bool mirrored, const int8_t *winners);
/* Percent of the rollouts per cell. */
void report_effort(FILE *to, const struct board *b, bool mirrored, const struct mcts_front *f);
/* The same as an SVG picture. 0 or -errno. */
int report_picture(const char *file, const struct board *b, bool mirrored,
		   const struct mcts_front *f);
/* Share of wins that the best move promises; -1: unknown. */
double report_share(const struct mcts_front *f);
/* The same as text, "-" if it is unknown. */
#define REPORT_SHARE_MAX 8u
const char *report_share_text(const struct mcts_front *f, char text[REPORT_SHARE_MAX]);

#endif
