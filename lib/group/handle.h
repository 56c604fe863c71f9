/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of a program. The endpoint of weir_group_join() listens for the neighbours of that group
 * and of all groups made from it; each group has a connection per neighbour, made when the group is
 * first used. All connections belong to the worker of the thread that joined; other threads make
 * progress in its place. docs/group.md describes the messages.
 */
#ifndef WEIR_GROUP_HANDLE_H
#define WEIR_GROUP_HANDLE_H

#include "exchange.h"
#include "join.h"

#include "client/reason.h"
#include "client/session.h"
#include "client/wait.h"
#include "stream/conn.h"

/* A neighbour has connected, whose group may not exist here yet. */
struct incoming {
	TAILQ_ENTRY(incoming) next;
	struct weir_conn *conn;
	bool said; /* hello is valid; else it has not come */
	struct group_hello hello;
};

struct endpoint {
	struct weir *w;
	struct weir_thread *worker;
	struct weir_listener *listener;
	uint64_t id;
	pthread_mutex_t lock; /* of what follows; workers are locked inside it */
	uint32_t users;	      /* groups */
	TAILQ_HEAD(incomings, incoming)
	incoming; /* by the time of the hello, or of the connection */
};

/* The connection with a neighbour. */
struct edge {
	struct weir_conn *conn;	 /* NULL: none yet, or ended */
	struct weir_conn *probe; /* tells whether a neighbour lives that has not connected yet */
	struct member peer;
	bool ready; /* hello was sent, or received */
};

/* A collective call that has begun, and its arguments. Without padding: compared whole. */
enum call_op {
	CALL_NONE,
	CALL_COLLECTIVE,
	CALL_SPLIT,
	CALL_SUBSET,
	CALL_SURVIVORS,
	CALL_MEET, /* of windows (board.h) */
};
struct group_call {
	uint32_t op;	    /* enum call_op */
	int32_t color, key; /* SPLIT */
	uint32_t none;
	uint64_t context; /* SUBSET */
	struct collective_call collective;
};
static_assert(sizeof(struct group_call) == 24 + sizeof(struct collective_call) &&
		  sizeof(struct collective_call) == 16 + 3 * sizeof(size_t),
	      "no padding");

/* A member's arguments of weir_group_split(). */
struct choice {
	int32_t color, key;
};

struct weir_group {
	struct endpoint *endpoint;
	struct exchange x;
	uint64_t context;
	uint32_t unready;	/* edges without a ready connection that may still get one */
	uint64_t made;		/* ns */
	int why;		/* -errno of the first connection that ended; 0: none has */
	bool nap;		/* no doorbell ends a wait for what it needs now */
	bool elsewhere;		/* the thread that makes progress is not the one that joined */
	struct member *member;	/* by rank */
	struct edge *edge;	/* by neighbour */
	struct group_call call; /* has begun and is not complete */
	uint64_t announce_at;	/* ns, of a meeting: when neighbours are told; 0: not known */
	/* of what a thread that makes no call of the group uses, too (group_look()), unless one is
	 * inside a call: that one uses it without the lock */
	struct weir_bias lock;
	bool inside;
	/* weir_group_idle() */
	int (*idle)(void *arg);
	void *idle_arg;
	bool idling;		  /* inside idle() */
	struct weir_group *idler; /* its idle() runs while this group waits: this one, or one for
				   * which this one works */
	/* of a call that makes a group */
	struct choice choice, *choices;
	struct weir_group *sub;
	uint32_t sub_deaths; /* SURVIVORS: deaths known when sub was made */
	void *board;	     /* of windows (board.h); NULL: there have been none */
	void (*free_board)(void *board);
};

static inline int
group_misused(void)
{
	return weir_fail(-EINVAL, "no group, or an argument is invalid; see weir/group.h");
}

static inline int
group_no_memory(void)
{
	return weir_fail(-ENOMEM, "no memory for a group; free some");
}

static inline int
group_in_idle(void)
{
	return weir_fail(-EBUSY, "a function of weir_group_idle() makes a collective call of its "
				 "group; make it when the present one is complete");
}

/* ---- endpoint.c ---- */
/* For the calling thread; with one user. 0 or -errno. */
int endpoint_create(struct weir *w, struct endpoint **e);
void endpoint_keep(struct endpoint *e);
void endpoint_drop(struct endpoint *e);
/* Accepts connections and reads who they are from. */
void endpoint_accept(struct endpoint *e);
/* Takes the connection of that neighbour. NULL: it has not come. */
struct weir_conn *endpoint_claim(struct endpoint *e, uint64_t context, uint32_t from);
/* Starts a connection to a service of a node, which nothing reports. 0 or -errno. */
int endpoint_connect(struct endpoint *e, uint16_t node, const char *service, struct weir_conn **c);
/* "gm." and the endpoint's id. */
void endpoint_service(uint64_t id, char service[WEIR_SERVICE_MAX]);

/* ---- wire.c ---- */
/* Makes a group on the endpoint, which it keeps. 0 or -ENOMEM. */
int group_new(struct endpoint *e, uint32_t rank, uint32_t size, uint64_t context,
	      struct weir_group **g);
/* Frees it. Closes its connections. */
void group_free(struct weir_group *g);
/* Takes what has come, and goes on. As exchange_step(), or how the session has ended. */
int group_progress(struct weir_group *g);
/* Until group_progress() has a result, or the time is over. */
int group_await(struct weir_group *g, uint64_t deadline);
/* After a call has failed: tells neighbours, for a short time at most. */
void group_spread(struct weir_group *g);
/* Whether a call failed for want of memory, descriptors or the like here. */
bool group_lacks(int rc);
/* Numbers the members of each host. 0 or -ENOMEM. */
int group_number(struct weir_group *g);
/* Sets weir_reason() for the result of a collective call. */
int group_error(const struct weir_group *g, int rc);
uint64_t group_mix(uint64_t a, uint64_t b);

/* ---- launch.c ---- */
/* Name and options of the group for which a launcher has started the program; both point into the
 * environment. 0, -ENOENT or -EINVAL. */
int group_launched(const char **name, struct weir_group_options *o);

/* ---- call.c ---- */
/* The calling thread is inside a call of the group from now on, or is not any more. */
static inline void
group_set_inside(struct weir_group *g, bool inside)
{
	struct weir_bias_seat *s = weir_bias_enter(&g->lock);

	if (weir_unlikely(!s))
		weir_bias_lock_slow(&g->lock);
	g->inside = inside;
	if (weir_likely(s))
		weir_bias_leave(s);
	else
		weir_bias_unlock_slow(&g->lock);
}
/* Begins a collective call, or goes on with it: 0; 1: it has begun before; then the thread is
 * inside; or an error. */
int group_enter(struct weir_group *g, const struct group_call *call);
/* The call has ended with rc, or waits: -EAGAIN, -EINTR, group_lacks(). Returns rc. */
int group_leave_call(struct weir_group *g, int rc);
/* Nothing has begun after group_enter(). Returns rc. */
int group_take_back(struct weir_group *g, int rc);

#endif
