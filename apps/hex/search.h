/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads that search together, behind one of the ports. */
#ifndef HEX_SEARCH_H
#define HEX_SEARCH_H

#include "mcts.h"

struct search {
	struct mcts **processes; /* the front is in the first one */
	uint32_t count;
	/*
	 * Runs all threads until *until, or for `pieces` pieces of work. 0; -EDEADLK: nothing is
	 * left to be done and *until is false; -ENOMEM.
	 */
	int (*run)(struct search *s, const bool *until, unsigned pieces);
	uint64_t (*now)(struct search *s); /* ns, since any time */
	void (*close)(struct search *s);
	/*
	 * Of searches by real threads, else NULL. finish() ends the work of all threads, whose
	 * counts are in `processes` then; nothing but close() may follow. serve() takes its place
	 * in processes that are not the first: it works until that. 0 or -errno and `reason`.
	 */
	int (*finish)(struct search *s);
	int (*serve)(struct search *s);
	const char *reason; /* why a call has failed, and what to do; NULL: see its error */
};

/* ns that pieces of work take in virtual time. */
struct virtual_costs {
	uint64_t simulation; /* of a game that is not over */
	uint64_t selection;  /* on one node */
	uint64_t message;    /* to send one, and again to receive it */
	/* on its way: least and most, between threads of a process and between processes */
	uint64_t within[2], between[2];
};

/* One thread: o->processes and o->threads are 1. 0, -EINVAL or -ENOMEM. */
int port_one_open(const struct mcts_options *o, struct search **s);
/* All threads of all processes, one after the other, in virtual time. */
int port_virtual_open(const struct mcts_options *o, const struct virtual_costs *costs,
		      struct search **s);
/*
 * o->threads real threads of each process of the crew, which call each other. Collective: the front
 * is that of process 0, the search of all others serves. 0, or -errno and error.
 */
struct crew;
int port_invoke_open(const struct mcts_options *o, struct crew *crew, struct search **s,
		     char *error, size_t size);

#endif
