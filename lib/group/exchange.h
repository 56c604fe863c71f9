/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A member's part of a group, without connections and time: it performs the steps of collective
 * calls by messages with its neighbours, and spreads what it learns of ended members. Whoever has
 * the connections, the library or a simulator, puts in the messages and ends, and calls
 * exchange_step().
 *
 * Neighbours are the members at a distance of a power of two, in both directions: at most
 * 2 log2(size). Messages of one neighbour are in order. Messages for a later call or step are kept,
 * up to EXCHANGE_EARLY bytes per neighbour; the caller leaves others where they are, so that flow
 * control stops the sender.
 */
#ifndef WEIR_GROUP_EXCHANGE_H
#define WEIR_GROUP_EXCHANGE_H

#include "step.h"

#include <sys/queue.h>
#include <sys/uio.h>

#define EXCHANGE_FRAGMENT 65536u /* bytes: largest piece of a step's data in one message */
#define EXCHANGE_EARLY 262144u	 /* bytes per neighbour */

/* In front of each message. Little-endian. */
struct exchange_head {
	uint8_t op;   /* EXCHANGE_* */
	uint8_t kind; /* DATA: enum collective_kind */
	uint16_t label;
	uint32_t check;	 /* DATA: of the other arguments; FAIL: rank, or NOBODY: the calls differ */
	uint32_t number; /* DATA: of the collective call; FAIL: errno */
	uint32_t reserved;
	uint64_t bytes; /* DATA: of the whole step */
};
#define EXCHANGE_DATA 1u
#define EXCHANGE_FAIL 2u
#define EXCHANGE_CALL 3u /* as DATA, of the call as a whole: `bytes` is its length */

struct exchange_early {
	STAILQ_ENTRY(exchange_early) next;
	size_t length;
	uint8_t bytes[]; /* with the head */
};

struct neighbour {
	uint32_t rank;
	uint32_t told; /* entries of failures it was told of, or has told */
	bool ended;    /* takes nothing any more, and nothing more comes */
	size_t early;  /* bytes in the list */
	STAILQ_HEAD(, exchange_early) messages;
};

struct failure {
	uint32_t rank; /* NOBODY: the members' calls differ */
	int status;    /* -errno */
};

struct exchange {
	uint32_t rank, size;
	uint32_t number; /* collective calls begun */
	uint32_t neighbours;
	struct neighbour *neighbour; /* by rank, ascending */
	struct failure *failure;     /* in the order of news */
	uint32_t failures, room;
	bool no_memory; /* news or messages were lost */
	struct collective collective;
	struct step step;
	uint32_t to, from;  /* neighbours of the step */
	bool begun;	    /* a call has begun and is not complete */
	uint32_t announced; /* neighbours that were told which call it is */
	bool stepping;	    /* `step` is under way */
	bool sent_any, received_any;
	size_t sent, received;
	/* Sends one message. 0, -EAGAIN (later), or another error: the caller ends the neighbour */
	int (*send)(void *user, uint32_t neighbour, const struct iovec *parts, unsigned n,
		    size_t length);
	void *user;
};

/* Ranks of a member's neighbours, ascending. How many; `ranks` has room for 64. */
uint32_t exchange_neighbours(uint32_t rank, uint32_t size, uint32_t *ranks);
/* Fills in *x, but for send and user. 0 or -ENOMEM. */
int exchange_init(struct exchange *x, uint32_t rank, uint32_t size);
void exchange_free(struct exchange *x);

/* Begins a call; none is under way. 0, or -ENOMEM: nothing has begun. */
int exchange_begin(struct exchange *x, const struct collective_call *call);
/* Goes on with the call. 0: it is complete, or none is under way; -EAGAIN: it waits, as a MEETING
 * does until exchange_cancel(); else how it, and the group, has ended. */
int exchange_step(struct exchange *x);
/*
 * The call has waited for long: tells neighbours which one it is, so that members that wait for
 * each other in different calls notice. 0, or -EAGAIN: some have no room now.
 */
int exchange_announce(struct exchange *x);
/* Tells neighbours of failures. 0: all know; -EAGAIN: some have no room now. */
int exchange_tell(struct exchange *x);
/* Rank of the neighbour whose message the call waits for; NOBODY: none. */
uint32_t exchange_awaits(const struct exchange *x);
/* Gives up the call. */
void exchange_cancel(struct exchange *x);

/* Whether a message of the neighbour may be put in. */
bool exchange_wants(const struct exchange *x, uint32_t neighbour);
/* A message has come. */
void exchange_input(struct exchange *x, uint32_t neighbour, const uint8_t *message, size_t length);
/*
 * Nothing more comes from the neighbour. 0: it left in order, which matters when something is
 * awaited from it; else -errno: it has ended.
 */
void exchange_ended(struct exchange *x, uint32_t neighbour, int status);
/* A member has ended, as somebody else found. */
void exchange_failed(struct exchange *x, uint32_t rank, int status);
/* The members' calls differ, as the caller finds. */
void exchange_differ(struct exchange *x);
/* How the group has ended; 0: it has not. */
int exchange_error(const struct exchange *x);
/* Members that are known to have ended. */
uint32_t exchange_deaths(const struct exchange *x);
/* Whether the rank is known to have ended. */
bool exchange_is_dead(const struct exchange *x, uint32_t rank);

#endif
