/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups: programs on any nodes with ranks 0 to size - 1, which find each other by a name. Every
 * member makes the collective calls of a group, in the same order and with matching arguments. A
 * collective call takes O(log size) steps. docs/group.md is the guide.
 *
 * Blocking: timeout_ms is in milliseconds. Below 0 the call waits without limit; with 0 it does not
 * wait. A collective call that returns -EAGAIN (the time is over) or -EINTR has begun: the member
 * makes the same call again, with the same arguments, and it continues where it was. Its buffers
 * stay valid and untouched until then. Another collective call on the group returns -EBUSY
 * meanwhile. weir_group_leave() gives up. weir_group_join() begins anew.
 *
 * Failure: if a member ends before a collective call is complete, the call returns an error at
 * every member that waits in it, and so does each later one. It never hangs. weir_group_failed()
 * names the ranks; weir_group_survivors() makes a group of the others. A call may be complete at
 * some members and fail at others.
 *
 * Errors of every collective call:
 *   -ECONNRESET    a member ended, left the group, or cannot be reached
 *   -EHOSTDOWN     a member's node is down
 *   -EINVAL        the members' calls differ in kind, order, length, root, type or operation: the
 *                  group is of no use any more, and every member is told; or an argument is
 *                  invalid: nothing has begun
 *   -EAGAIN, -EINTR  as above; causes of -EINTR as in weir/stream.h
 *   -EBUSY         another collective call of this group has begun and is not complete, or the
 *                  function of weir_group_idle() makes this one
 *   -ENOMEM        no memory; nothing has begun
 *   -ENODEV, -ECONNABORTED, -ENOTCONN  the session is over, as in weir/stream.h; leave the group
 *
 * Threads: one thread at a time makes calls on a group, any thread; several groups may be used by
 * several threads. Groups use a service and connections of their own, at most 2 log2(size) of them,
 * of which weir_poll() reports nothing. Free the windows of a group before it is left, and leave
 * all groups before weir_detach().
 */
#ifndef WEIR_GROUP_H
#define WEIR_GROUP_H

#include "type.h"
#include "weir.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_group; /* valid until weir_group_leave() */

#define WEIR_RANK_ANY UINT32_MAX
#define WEIR_GROUP_MAX 65536u	 /* members of a group */
#define WEIR_GROUP_NAME_MAX 25	 /* characters of a group's name */
#define WEIR_GROUP_SECRET_MAX 63 /* bytes of a secret */

#define WEIR_GROUP_NODE 0x1u /* members of this host only; the group's name is one of this host */

/* Initialize with WEIR_GROUP_OPTIONS_INIT, then set `size`. */
struct weir_group_options {
	uint32_t rank;	    /* WEIR_RANK_ANY: assigned by node, then by arrival */
	uint32_t size;	    /* members, 1 to WEIR_GROUP_MAX; equal at all members */
	uint32_t flags;	    /* WEIR_GROUP_NODE or 0 */
	uint32_t reserved;  /* 0 */
	const char *secret; /* equal at all members, copied; NULL: none */
	uint64_t more[4];   /* 0 */
};
#define WEIR_GROUP_OPTIONS_INIT                                                                    \
	{                                                                                          \
		WEIR_RANK_ANY, 0, 0, 0, NULL,                                                      \
		{                                                                                  \
			0, 0, 0, 0                                                                 \
		}                                                                                  \
	}

/* ---- Joining ---- */

/*
 * Joins the group `name` and waits for the other members. The first program on each host listens on
 * the public service "group.NAME"; the one on the node with the lowest id gathers all members and
 * gives the ranks. Any program that may attach and knows the name may join; a secret keeps others
 * out. The gathering program learns the secrets of those that join.
 *
 * The name is free again once the group is complete: later programs form another group.
 *
 * With name and options NULL the program joins the group for which weir-run, or another launcher,
 * has started it. They come from the environment: WEIR_GROUP (name), WEIR_GROUP_SIZE,
 * WEIR_GROUP_RANK (unset: assigned), WEIR_GROUP_SECRET (unset: none).
 *
 * @w           session handle
 * @name        1 to WEIR_GROUP_NAME_MAX letters, digits, '_', '-', '.'; copied
 * @options     size and rank; NULL only if `name` is NULL
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 * @group       receives the group, freed by weir_group_leave()
 *
 * Returns 0, or
 *   -EAGAIN      some members did not arrive in time, or weir-control has not yet assigned the id
 *                of this node
 *   -EEXIST      another member has the rank
 *   -EACCES      the secret differs from that of the program that gathers
 *   -EINVAL      the size differs from its size, or an argument or variable is invalid
 *   -ENOENT      no name, and WEIR_GROUP is not set: no launcher has started the program
 *   -ECONNRESET, -EHOSTDOWN  a member ended while the group was formed
 *   and errors of weir_listen_with(), weir_connect() and every call (weir/stream.h).
 * An error leaves nothing behind. Any thread; without a name, none may change the environment
 * meanwhile.
 */
int weir_group_join(struct weir *w, const char *name, const struct weir_group_options *options,
		    int timeout_ms, struct weir_group **group);

/*
 * Makes a group of this program alone: rank 0 of 1. Returns 0, -EAGAIN (no id of this node yet),
 * -EMFILE (no listener left), -ENOMEM, or an error of every call. Any thread.
 */
int weir_group_self(struct weir *w, struct weir_group **group);

/*
 * Collective. Members with the same color form a group, ranked by key, then by their rank.
 *
 * @color  below 0: the member joins none, and *sub is NULL
 * @key    orders the members of the new group
 * @sub    receives the group
 *
 * Returns 0 or an error of every collective call. -ECONNRESET and -EHOSTDOWN are also about members
 * of the new group alone; the others then have theirs.
 */
int weir_group_split(struct weir_group *g, int color, int key, int timeout_ms,
		     struct weir_group **sub);

/* Collective. weir_group_split() by host: the members of the caller's host, in rank order. */
int weir_group_split_host(struct weir_group *g, int timeout_ms, struct weir_group **sub);

/*
 * Collective among the n listed members only, which get ranks in the listed order.
 *
 * @ranks  ranks in g, each once, with the caller's; copied; equal at all callers
 * @n      entries of ranks, at least 1
 *
 * Returns 0 or an error of every collective call. Members with different lists wait for each other:
 * -EAGAIN.
 */
int weir_group_subset(struct weir_group *g, const uint32_t *ranks, uint32_t n, int timeout_ms,
		      struct weir_group **sub);

/*
 * Leaves without waiting for other members, and frees the handle. Free its windows
 * (weir/window.h) first. Messages of complete collective
 * calls still reach the others. Groups made from this one stay. NULL is allowed. Does not block.
 */
void weir_group_leave(struct weir_group *g);

/* ---- Members ---- */

/* Own rank, and number of members. Any thread; do not block. */
uint32_t weir_group_rank(const struct weir_group *g);
uint32_t weir_group_size(const struct weir_group *g);

/*
 * Translates ranks of one group into ranks of another.
 *
 * @n      entries of ranks and out
 * @ranks  ranks in a
 * @out    receives ranks in b; WEIR_RANK_ANY: not a member of b
 *
 * Returns 0, -EINVAL (a rank is not in a; out is undefined) or -ENOMEM. Any thread; does not block.
 */
int weir_group_translate(const struct weir_group *a, uint32_t n, const uint32_t *ranks,
			 const struct weir_group *b, uint32_t *out);

struct weir_member {
	uint16_t node;	   /* id */
	uint16_t local;	   /* 1: on this host */
	uint32_t on_host;  /* rank among the members of its host */
	int32_t numa_node; /* where its thread ran when it joined; -1: not known */
	uint32_t reserved; /* 0 */
};

/* Describes a member. Returns 0, or -EINVAL: no such rank. Any thread; does not block. */
int weir_group_member(const struct weir_group *g, uint32_t rank, struct weir_member *member);

/* ---- Collective calls ---- */

/* Waits until every member has made the call. Returns 0 or an error of every collective call. */
int weir_group_barrier(struct weir_group *g, int timeout_ms);

/*
 * Copies `length` bytes from the root's buffer to that of every other member.
 *
 * @root    rank, equal at all members
 * @buf     root: read; others: written
 * @length  bytes, equal at all members
 *
 * Returns 0 or an error of every collective call; complete here does not mean complete elsewhere.
 */
int weir_group_broadcast(struct weir_group *g, uint32_t root, void *buf, size_t length,
			 int timeout_ms);

/*
 * Gathers a block of each member, in rank order, at all members.
 *
 * @mine    own block
 * @length  bytes of a block, equal at all members
 * @all     receives size * length bytes; does not overlap `mine`
 *
 * Returns 0 or an error of every collective call.
 */
int weir_group_allgather(struct weir_group *g, const void *mine, size_t length, void *all,
			 int timeout_ms);

/*
 * Combines the elements of all members: result[i] = mine[i] of rank 0 OP that of rank 1 OP ...
 * Rank 0 stands left; the brackets depend on the size of the group alone. So all members get the
 * same bits, and the same ones in each run, floating point included. REPLACE yields the elements of
 * the last rank, NO_OP those of rank 0.
 *
 * @mine    own elements, packed
 * @result  receives the combined ones, aligned for the type; may be `mine`
 * @count   elements, equal at all members
 * @type    enum weir_type
 * @op      enum weir_acc; one that weir_acc_valid() allows for the type
 *
 * Returns 0 or an error of every collective call.
 */
int weir_group_allreduce(struct weir_group *g, const void *mine, void *result, size_t count,
			 enum weir_type type, enum weir_acc op, int timeout_ms);

/*
 * Sends block i of `mine` to rank i: block r of `all` is from rank r. Blocks travel through other
 * members, each about log2(size) / 2 times.
 *
 * @mine    size blocks
 * @length  bytes of a block, equal at all members
 * @all     receives size blocks; does not overlap `mine`
 *
 * Returns 0 or an error of every collective call.
 */
int weir_group_alltoall(struct weir_group *g, const void *mine, size_t length, void *all,
			int timeout_ms);

/*
 * Sets a function that runs while a thread waits in a collective call of g, or of a window of g
 * (weir/window.h), for the other members. So a member serves other programs, or threads of its own,
 * while it waits. Groups made from g have no function at first.
 *
 * It runs after each look that does not complete the call, thus at least once in a call that cannot
 * complete at once, also with timeout 0. The thread sleeps when nothing happens. It then wakes, and
 * the function runs, when something arrives on a connection of the thread that joined g or of the
 * calling thread: immediately if both are one thread, else within a millisecond, and so in a fence
 * of a window.
 *
 * The function may make any call but collective calls of g and its windows, which return -EBUSY,
 * and weir_group_leave(). Members wait while it runs, the timeout of the call is looked at when it
 * returns, and signal handlers of the thread may run only then.
 *
 * @f    returns how many items it has handled, or 0; above 0 the thread looks again before it
 *       sleeps. NULL: no function any more
 * @arg  passed to f; valid as long as f is set
 *
 * Does not block. One thread at a time makes calls on g, and this is one; f may make it, too.
 */
void weir_group_idle(struct weir_group *g, int (*f)(void *arg), void *arg);

/* ---- Failure ---- */

/*
 * Stores the first n ranks known to have ended, in the order in which this member learned of them.
 * Takes news first, does not wait.
 *
 * Returns how many there are, which may exceed n, or an error of a session that is over.
 */
int weir_group_failed(struct weir_group *g, uint32_t *ranks, uint32_t n);

/*
 * Collective among the living members, after an error: makes a group of them in the same order. It
 * agrees on who lives: members that end meanwhile are left out. Ends a collective call that has
 * begun.
 *
 * @h  receives the group; leave g afterwards
 *
 * Returns 0, -EAGAIN, -EINTR, -ENOMEM, or an error of a session that is over. After -ECONNRESET or
 * -EHOSTDOWN a further member has ended at the last moment; call again.
 */
int weir_group_survivors(struct weir_group *g, int timeout_ms, struct weir_group **h);

#ifdef __cplusplus
}
#endif
#endif
