/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Boards: memory of each member of a group that has windows, in which it publishes its parts. A
 * member reads the part of another one when it first accesses it, so that no program gathers the
 * keys of a window.
 */
#ifndef WEIR_WINDOW_BOARD_H
#define WEIR_WINDOW_BOARD_H

#include "public.h"

#include "ipc/lock_words.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct weir_wait;

/* A member's part of a window. Written by it before the collective call that makes the window is
 * complete; read by the others after it. */
struct board_part {
	struct weir_key key; /* of the export that has the lock, and with it the memory unless the
				window is shared */
	uint64_t offset, bytes; /* of the part in its memory */
	uint64_t turns;		/* 1: members update it one at a time (turn.c), and map it */
	uint64_t reserved[5];
};

/* Where the board of a member is: what its key has beside the member's node. */
struct board_ref {
	uint64_t incarnation;
	uint32_t index;	     /* generation 0: errno */
	uint32_t generation; /* 0: the member has no board */
	uint8_t secret[16];
};

/* A member's line in the memory of its host, on which members of the host meet in fences. */
struct board_line {
	_Alignas(64) _Atomic uint64_t arrived; /* fences that the member has come to */
	_Atomic uint64_t released; /* the leader's: fences that all hosts have come to */
	_Atomic uint32_t left;	   /* 1: the member has left the group */
	/* threads of the member that sleep until `bell` changes, which others then do */
	_Atomic uint32_t sleeping, bell;
};

#define NOTICE_SLOTS 64u
/* Windows of a group that have rings, since each takes 1 KiB per pair of members. */
#define NOTICE_WINDOWS 16u

/* A notice; the last field is written last. */
struct notice_slot {
	_Atomic uint64_t tag;
	_Atomic uint64_t lap_bytes; /* lap, of 16 bits, from 1 on; bytes, of 48 */
};

/*
 * Notices of one member for a window of another one on its host. While those wait that went by the
 * engine, since there was no room, no other goes here: so they come in their order.
 */
struct notice_ring {
	/* by the member that takes them: slots that are free again, and how many went by the engine
	 * that no longer keep others from coming here */
	_Alignas(64) _Atomic uint64_t taken, by_engine;
	_Alignas(64) struct notice_slot slot[NOTICE_SLOTS];
};

/*
 * If a host has several members, each member of the group has memory that the others of its host
 * write: lines, of which those of the first member of the host are used; behind them per window
 * words for its part, the lock and how far epochs of post and start are (ipc/lock_words.h); and for
 * the first NOTICE_WINDOWS numbers rings of notices; those of others go by the engine. A member's
 * number among the words is its place on the host + 1.
 */

/* How far board_make() is. */
enum board_stage {
	BOARD_REFS,    /* all learn where the boards are */
	BOARD_LINES,   /* members of a host map its lines */
	BOARD_LEADERS, /* the group of leaders */
	BOARD_VOTE,    /* whether all have succeeded */
	BOARD_READY,
};

struct board {
	struct weir *w;
	struct weir_group *g;
	struct weir_region *region;
	struct weir_export *x;
	struct board_part *parts; /* own ones, by number of the window */
	struct board_ref mine;
	struct board_ref *refs; /* by rank */
	enum board_stage stage;
	/* of the host: by members' on_host, the first of which is the leader and owns them; NULL:
	 * there are none, and members meet by the group's barrier */
	struct board_line *lines;
	uint32_t *local, local_count, on_host; /* ranks of the host's members; own index there */
	uint32_t hosts;
	/* lines and words of this member; NULL: there are none */
	struct weir_region *shared_region;
	struct weir_export *shared_x;
	uint8_t *shared;
	/* what maps those of the others, by on_host; when first used, with `opening` */
	struct weir_remote **shared_at;
	pthread_mutex_t opening;
	struct weir_group *leaders; /* the leader's, if there are several hosts */
	int64_t vote, votes;	    /* of the last stages: 0 or -errno; of all */
	uint64_t fences;	    /* that this member has come to */
	uint64_t used;		    /* numbers of windows; equal at all members */
	struct weir_window *making; /* whose collective call has begun and is not complete */
};

/* The calling member's; made by its first call. NULL: no memory. */
struct board *board_of(struct weir_group *g);
/* Collective; makes the boards of a group that has none. 0 or -errno. */
int board_make(struct board *b, uint64_t deadline);
/*
 * Collective: waits until all members have come, by the lines of the host. 0, or as every
 * collective call; after -EAGAIN and -EINTR it goes on where it was.
 */
int board_meet(struct board *b, uint64_t deadline);
/*
 * A thread that waits for lines or words, with wait->nap_always: before each look, and when the
 * wait is over. `sleeps`: false at first.
 */
void board_before_look(struct board *b, struct weir_wait *wait, bool *sleeps);
void board_awake(struct board *b, bool *sleeps);
/* This member has written a word, in one order with other such accesses (seq_cst), for the one with
 * this place on the host: it looks, if it sleeps. */
void board_wake(struct board *b, uint32_t on_host);

/* Where the own words of a window are in the memory for them; these. */
uint64_t board_words_at(const struct board *b, uint32_t number);
struct weir_lock_words *board_own_words(const struct board *b, uint32_t number);
/* The own rings of a window, by place of the sender; NULL: it has none. */
struct notice_ring *board_own_rings(const struct board *b, uint32_t number);
/* Words of a window, and rings or NULL, at the member with this place on the host, if there are
 * lines. 0 or -errno. Any thread. */
int board_words(struct board *b, uint32_t on_host, uint32_t number, struct weir_lock_words **words,
		struct notice_ring **rings);
/* Reads a member's part. 0 or -errno. Any thread. */
int board_read(struct board *b, uint32_t rank, uint32_t number, struct board_part *part);

#endif
