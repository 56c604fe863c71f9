/* SPDX-License-Identifier: BSD-3-Clause */
/* A search as a player: gets positions, and finds moves in them. */
#ifndef HEX_PLAYER_H
#define HEX_PLAYER_H

#include "board.h"
#include "options.h"

struct player {
	struct game game;
	struct search *search;
	struct board root; /* of the tree */
	bool has_root;
};

/* 0 and *player, or -errno and error. A crew has one player at a time. */
int player_open(struct player **player, const struct hex_options *o, char *error, size_t size);
void player_close(struct player *p);
/*
 * Searches position b, which is not the end of a game; player_front() has what was found. If b
 * follows the last one, the tree is used again. `watch` (may be NULL) is called now and then; if
 * it returns false, the search ends. 0, then front->best is a legal move; or -errno.
 */
int player_think(struct player *p, const struct board *b, uint64_t rollouts, uint64_t ns,
		 bool (*watch)(void *arg), void *arg);
static inline struct mcts_front *
player_front(const struct player *p)
{
	return &p->search->processes[0]->front;
}
/* Why a search has failed, and what to do: for an error of player_think(). */
const char *player_reason(const struct player *p, int rc);
/* Of a crew, in other processes than the first: searches with its players, until it dismisses
 * them. 0, or -errno and error. */
int player_serve(const struct hex_options *o, char *error, size_t size);
/* In the first process of a crew, which has no player any more. 0, or -errno and error. */
int player_dismiss(const struct hex_options *o, char *error, size_t size);
/* Runs until nothing is under way any more. 0 or -errno. */
int player_settle(struct player *p);

#endif
