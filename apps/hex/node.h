/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside the search: nodes, their names, and what its parts need of each other. */
#ifndef HEX_NODE_H
#define HEX_NODE_H

#include "mcts.h"

/*
 * The record of a move in its node. `link` is the name of the child's node; before that is known,
 * the number of selections that wait for it. They share a word, so that a thread that begins to
 * wait and the thread that tells the name can't miss each other.
 */
struct child {
	_Atomic uint64_t link, visits, wins; /* wins of the player who makes the move */
};

struct children {
	uint32_t count;
	struct child of[]; /* and behind them the moves */
};

struct node {
	_Atomic uint64_t name; /* 0: free */
	/* 0: a root. Changes between searches: messages order that behind all reads, and some go
	 * by way of other processes, which checkers of races do not see. */
	_Atomic uint64_t parent;
	uint64_t hash;
	uint32_t index; /* of its record in the parent */
	uint32_t slot, generation;
	uint16_t state_bytes;
	int8_t turn, winner;   /* player of the last move; -1 at the beginning */
	bool queued;	       /* for its thread to do `pending` selections, then to delete it */
	bool dead;	       /* to be deleted */
	_Atomic bool expanded; /* all children are made */
	struct node *next;     /* queued, or free */
	uint64_t pending;
	_Atomic uint64_t visits;	   /* by selections on it */
	struct children *_Atomic children; /* NULL: there was no selection yet */
	uint8_t state[];
};

/* Names: thread + 1, generation, slot. Numbers below the least name are waiting selections. */
#define NAME_THREAD 52u
#define NAME_LEAST (UINT64_C(1) << NAME_THREAD)
#define NAME_NO_ROOM UINT64_MAX /* of a child that its thread has no memory for */

static inline uint32_t
name_thread(uint64_t name)
{
	return (uint32_t)(name >> NAME_THREAD) - 1;
}

enum message_kind {
	SELECT,	 /* `count` selections on node */
	CREATE,	 /* the position of node: make its child `index` by `move` */
	ADDRESS, /* child `index` of node is `other` */
	REPORT,	 /* of child `index` of node */
	DELETE,	 /* node and all below it */
	START,	 /* make a root of the position */
	ADVANCE, /* the root is its child by `move` */
	ADOPT,	 /* node is the root */
	SEARCH,	 /* at the root: visits `count`, ns `wins`, number `other` */
	LAUNCH,	 /* the root, node, is in your process */
	CHECK,	 /* all seem to have returned */
	STOP,	 /* the search of root node */
	ROOT,	 /* to the front: the root is `other`; 0 and no `count`: send a START */
	STATS,	 /* figures of a root: down its best line, then to the front; `wins`: the last */
};

/* Whether a thread is one of this process. */
static inline bool
is_own(const struct mcts_thread *t, uint32_t thread)
{
	return thread / t->m->o.threads == t->m->o.process;
}

/* Whether nodes of that thread are reached without a message. */
static inline bool
is_here(const struct mcts_thread *t, uint32_t thread)
{
	return is_own(t, thread) && !t->m->o.remote_always;
}

int node_open(struct mcts_thread *t); /* 0 or -ENOMEM */
void node_close(struct mcts_thread *t);
/* Of a thread of this process; NULL: there is no such node any more. */
struct node *node_of(const struct mcts *m, uint64_t name);
/* Of t->position. NULL: no memory. */
struct node *node_new(struct mcts_thread *t, uint64_t parent, uint32_t index);
void node_free(struct mcts_thread *t, struct node *n);
/* NULL: no memory, or the game is over. */
struct children *node_children(struct mcts_thread *t, struct node *n);
static inline uint16_t *
node_moves(struct children *c)
{
	return (uint16_t *)(c->of + c->count);
}
/* Takes a child that nobody has visited; -1: there is none. */
int node_expand(struct mcts_thread *t, struct node *n, struct children *c);
/* The child to visit, by UCB. */
uint32_t node_select(struct mcts_thread *t, const struct node *n, struct children *c);
/* The child with most visits, then wins, then chance; -1: none has any. */
int node_best(struct dice *dice, struct node *n);

void search_send(struct mcts_thread *t, uint32_t to, const struct mcts_message *m);
void search_send_out(struct mcts_thread *t, uint32_t to, size_t bytes); /* t->out, with a state */
/* Leaves selections on n, a node of this thread, for later; 0: its deletion, behind them. */
void search_queue(struct mcts_thread *t, struct node *n, uint64_t count);
void search_delete(struct mcts_thread *t, uint64_t link);	   /* if that is a name */
uint32_t search_owner(const struct mcts_thread *t, uint64_t hash); /* thread of a position */

bool phase_launch(struct mcts_thread *t); /* false: not before others have returned */
void phase_check(struct mcts_thread *t);
void phase_receive(struct mcts_thread *t, struct node *n, const struct mcts_message *m,
		   size_t bytes);

/* Tells the front the figures of root n; NULL: of a position without moves. */
void front_tell(struct mcts_thread *t, struct node *n, bool last);
void front_receive(struct mcts_thread *t, struct node *n, const struct mcts_message *m,
		   size_t bytes);

#endif
