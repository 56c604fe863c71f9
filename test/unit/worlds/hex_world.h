/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of the tree search: a second game, and what must be true of every tree. */
#ifndef TEST_WORLDS_HEX_WORLD_H
#define TEST_WORLDS_HEX_WORLD_H

#include "worlds/test.h"

#include "hex/board.h"
#include "hex/node.h"
#include "hex/search.h"

#define Y_MOST 6u

/* Y, on a triangle of `size` rows: a player wins by joining all three sides. */
struct game y_game(unsigned size);
/* Writes the position without stones. */
void y_start(const struct game *g, void *position);

/* Whether `player` has joined his edges, cell by cell. */
bool board_joined(const struct board *b, int player);
/* Moves at random, until `stones` are set or the game is over. */
void board_random(struct board *b, unsigned size, unsigned stones, struct dice *d);

/*
 * All of a tree in which nothing is under way: sums of visits and wins; turns; every node is
 * reached once. Returns the number of nodes.
 */
uint64_t tree_check(struct mcts *const *processes, uint64_t root);
uint64_t tree_nodes(struct mcts *const *processes); /* of all threads */
struct node *tree_node(struct mcts *const *processes, uint64_t name);

/* Runs until *until; a search that stands still is a failure. */
void search_run(struct search *s, const bool *until);
void search_settle(struct search *s); /* until nothing is under way */
/* Sets the root, searches, and returns the best move. */
int search_move(struct search *s, const void *position, uint64_t rollouts);

#endif
