/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Common to the programs of this folder: arguments, the group that they join, their time per step,
 * and connections between all members, for the same exchange by messages of weir/stream.h.
 *
 * Functions return 0 or -errno unless they say otherwise.
 */
#ifndef EXAMPLES_MEMBERS_H
#define EXAMPLES_MEMBERS_H

#include <weir/stream.h>
#include <weir/window.h>

#include <stdbool.h>

#define MEMBERS_WRONG 1 /* a result is not what it should be */

struct members {
	const char *program; /* name for messages */
	const char *name;    /* of the group */
	bool apart;	     /* --apart: no member maps the part of another one */
	bool by_messages;    /* --by messages */
	bool pencils;	     /* --pencils */
	uint32_t rank, size;
	struct weir *w;
	struct weir_group *g;
	struct weir_listener *listener;
	struct weir_conn **conn; /* by rank; NULL: none */
};

/* Bytes to or from a member. */
struct piece {
	uint32_t rank;
	void *buf;
	size_t length;
};

/*
 * Reads OPTION... NAME SIZE and n numbers above 0.
 *
 * @usage  the arguments as users read them; an option is the program's if it is in there
 *
 * Returns false for other arguments, after a message.
 */
bool members_arguments(struct members *m, int argc, char **argv, const char *usage, size_t *numbers,
		       unsigned n);

/* Attaches to the node, and joins the group. */
int members_join(struct members *m);
/* Reports how the program ends, and leaves. Returns its exit code. */
int members_leave(struct members *m, int rc);

/* A window with a part of `bytes` in units of `unit` bytes. */
int members_window(struct members *m, uint64_t bytes, uint32_t unit, void **base,
		   struct weir_window **win);

/* Connects to every other member, for members_exchange(). */
int members_connect(struct members *m);
/*
 * Sends and receives until all is done, in the order of the lists. Both are ordered by distance
 * around the ring of ranks, up for the sends and down for what is received, so that members which
 * wait for one another never stand in a circle.
 */
int members_exchange(struct members *m, const struct piece *out, size_t outs,
		     const struct piece *in, size_t ins);

/* Monotonic seconds. */
double seconds(void);
/* Rank 0 prints "WHAT: TIME us a step"; `spent` are the seconds of all steps. */
void members_report(const struct members *m, const char *what, double spent, size_t steps);

/* 0 if it is right at all members, else MEMBERS_WRONG at all. */
int members_agree(const struct members *m, bool right);

/* The first of n things that belongs to part `i` of `parts`. */
static inline size_t
part_first(size_t n, size_t parts, size_t i)
{
	return n * i / parts;
}

/* How many of n things belong to part `i` of `parts`. */
static inline size_t
part_size(size_t n, size_t parts, size_t i)
{
	return part_first(n, parts, i + 1) - part_first(n, parts, i);
}

/* A well mixed number of x: the same data at every member, however they are divided. */
static inline uint64_t
mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* A number in [-1, 1) out of x. */
static inline double
noise(uint64_t x)
{
	return (double)(mix(x) >> 11) * 0x1p-52 - 1;
}

#endif
