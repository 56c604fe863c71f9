/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Monte-Carlo tree search by many threads of many processes, of any game. Nodes of the tree belong
 * to threads drawn at random; threads of one process share theirs, others exchange messages. All of
 * this is pure code over a port, which delivers messages and steps the threads.
 */
#ifndef HEX_MCTS_H
#define HEX_MCTS_H

#include "game.h"

#include <stdatomic.h>

#define MCTS_SIMULATIONS 16u /* of a rollout; visits and wins are counted in simulations */
#define MCTS_BATCH 4u	     /* rollouts that a thread launches before it does other work */
/* Rollouts that have not returned, at most: this part of all that are to be launched, but within
 * these bounds per thread of all processes. */
#define MCTS_FLIGHT_PART 256u
#define MCTS_FLIGHT_LEAST 2u
#define MCTS_FLIGHT_MOST 16u
#define MCTS_PHASE 4096u /* rollouts of a phase, per thread of all processes */
#define MCTS_THREADS_MAX 1024u
#define MCTS_LINE_MAX 32u   /* moves of the best line that are told */
#define MCTS_MOVES_MAX 400u /* of a game */
#define MCTS_COMBINED 256u
#define MCTS_FLIGHT_MAX (MCTS_FLIGHT_MOST * MCTS_THREADS_MAX + MCTS_BATCH)

struct mcts;

/* Plain data; nodes have names that are checked. */
struct mcts_message {
	uint16_t kind, move;
	uint32_t index; /* of a child's record in its parent */
	uint64_t node, other;
	uint64_t count, wins; /* visits; of +1 */
	uint8_t state[];
};

/* A move of the root, as told to the front. */
struct mcts_stat {
	uint16_t move;
	uint16_t wins; /* share for the player who makes it, 1/65535 */
	uint32_t rollouts;
};
#define MCTS_MESSAGE_MAX                                                                           \
	(sizeof(struct mcts_message) + MCTS_MOVES_MAX * sizeof(struct mcts_stat) +                 \
	 MCTS_LINE_MAX * sizeof(uint16_t))

struct mcts_port {
	/* Copies a message of the calling thread; thread `to` gets it by mcts_receive(), from one
	 * thread in order. */
	void (*call)(struct mcts_port *p, uint32_t to, const struct mcts_message *m, size_t bytes);
	uint64_t (*now)(struct mcts_port *p); /* ns */
	uint64_t (*random)(struct mcts_port *p);
};

struct mcts_options {
	const struct game *game;
	uint32_t processes, threads; /* threads of each process */
	uint32_t process;	     /* this one */
	uint32_t nodes_max;	     /* per thread; beyond them the tree grows no more */
	uint64_t seed;		     /* of the owners; the same in all processes */
	bool place_local;	     /* nodes belong to the thread that adds them */
	bool remote_always; /* messages also between threads of a process, and to oneself */
};

/* Work of one thread, from its beginning. */
struct mcts_counts {
	uint64_t rollouts; /* begun at a root */
	uint64_t selections, simulations, sent, received;
	uint64_t playouts; /* simulations of games that were not over */
	uint64_t nodes;	   /* at present */
	uint64_t stale;	   /* messages about nodes that are deleted */
	uint64_t refused;  /* messages that no correct thread sends */
};

struct mcts_report {
	uint64_t node, simulations, wins;
	uint32_t index;
};

struct mcts_thread {
	struct mcts *m;
	uint32_t id; /* among all processes' */
	struct dice dice;
	struct dice told; /* for figures, which the clock tells: no part of the game */
	void *position;	  /* scratch */
	struct mcts_message *out;
	/* nodes of this thread: chunks of equal size, that stay until the end */
	char *_Atomic *chunks;
	_Atomic uint32_t nodes; /* in them, free ones included */
	struct node *free;	/* of them */
	struct node *todo;	/* with selections to be done, or to be deleted */
	/* reports on their way up, each at the place that its record decides; node 0: none */
	struct mcts_report combined[MCTS_COMBINED];
	bool combines; /* there is one */
	bool launching;
	uint64_t batch; /* rollouts that it launches now */
	struct mcts_counts counts;
};

/* The view of the program that searches, in thread 0. */
struct mcts_front {
	uint64_t root, number;
	bool ready;	 /* there is a root, or (0) no memory for one */
	bool done;	 /* the search has ended */
	bool fresh;	 /* there are new figures; the reader clears it */
	int best;	 /* move; -1: the game is over */
	uint64_t visits; /* of this search */
	unsigned stat_count, line_count;
	struct mcts_stat stats[MCTS_MOVES_MAX];
	uint16_t line[MCTS_LINE_MAX]; /* the best one, from the root on */
	uint64_t hash;
	size_t state_bytes;
	uint8_t *state; /* of the root */
};

/* A process. */
struct mcts {
	struct mcts_options o;
	struct mcts_port *port;
	struct mcts_thread *threads;
	/* the search, if its root is here */
	_Atomic bool searching;
	uint64_t number, budget, flight, end, next_stats; /* visits; ns, or UINT64_MAX */
	_Atomic uint64_t root, launched, returned;	  /* visits; bit 63: no more are launched */
	_Atomic uint32_t launchers;			  /* threads that may launch more */
	struct mcts_front front;			  /* of thread 0 */
};

/* 0, -EINVAL (more threads or moves than there may be) or -ENOMEM. */
int mcts_open(struct mcts *m, const struct mcts_options *o, struct mcts_port *port);
void mcts_close(struct mcts *m);

/* ---- for ports: calls for a thread never overlap ---- */

/* `from`: the thread that has sent it, as the port knows it. */
void mcts_receive(struct mcts_thread *t, uint32_t from, const struct mcts_message *m, size_t bytes);
/* Does a small piece of work. False: there is none until the next message; or, while t->launching,
 * until another thread of the process has done something. */
bool mcts_step(struct mcts_thread *t);

/* ---- the front: calls by thread 0 ---- */

/* Searches `position` from now on, without what was known. Wait until front.ready. */
void mcts_set_root(struct mcts_thread *t, const void *position);
/* The same for the position after `move` of the root; what is known of it stays known. */
void mcts_advance(struct mcts_thread *t, unsigned move, const void *position);
/* Searches for `rollouts`, at most `ns`, until front.done. */
void mcts_search(struct mcts_thread *t, uint64_t rollouts, uint64_t ns);
/* Ends a search early. */
void mcts_stop(struct mcts_thread *t);
/* Deletes the tree. */
void mcts_drop(struct mcts_thread *t);

#endif
