/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows. A member's part is an export, and the data plane knows nothing else of a window. This
 * library has MPI's rules: epochs, units, the collective calls.
 */
#ifndef WEIR_WINDOW_HANDLE_H
#define WEIR_WINDOW_HANDLE_H

#include "board.h"
#include "match.h"

#include "remote/window.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define WINDOW_BUCKETS 64u
#define WINDOW_WORDS 4u /* that members compare */

/* Arguments of the call that makes a window. Without padding: compared whole. */
struct window_args {
	struct weir_region *region;
	uint64_t offset, bytes;
	uint32_t kind, flags, rights, disp_unit;
	int32_t numa_node;
	uint32_t notices;
};

enum window_epoch {
	EPOCH_NONE,
	EPOCH_FENCED, /* a fence has ended; the first operation begins the epoch */
	EPOCH_FENCE,
	EPOCH_LOCKS, /* of single members */
	EPOCH_ALL,
	EPOCH_STARTED, /* with the members of weir_window_start() */
};

enum window_lock {
	LOCK_NONE,
	LOCK_HELD,
	LOCK_UNCHECKED, /* WEIR_NO_CHECK: nobody else wants it */
	LOCK_STARTED,	/* none, but the member has posted */
};

/*
 * A member that was accessed. The thread that begins and ends epochs writes `lock`, `by_words`,
 * `admitted` and `exposure`; the other fields do not change once it is in its bucket.
 */
struct window_member {
	uint32_t rank;
	/* enum window_lock; by who begins and ends epochs, or within EPOCH_ALL with `acquiring` */
	_Atomic uint32_t lock;
	struct window_member *next; /* of its bucket */
	/* its part, where it is mapped; of it, the bytes that callers themselves store, load and
	 * update: 0, or all; whether nothing else is flushed, unless `direct` says so */
	struct weir_direct direct;
	uint64_t may_put, may_get, may_update;
	bool flush_direct;
	struct window_member *next_of_all; /* of all that were accessed */
	/* of those whose parts the program itself may load and store, by rank */
	_Atomic(struct window_member *) next_addressed;
	bool addressed;		     /* it is one of them. With weir_window.lock */
	pthread_mutex_t acquiring;   /* threads wait for the lock one behind the other */
	struct weir_remote *memory;  /* puts and gets */
	struct weir_remote *updates; /* the same, or through the engine */
	struct weir_remote *locks;   /* the same, unless the window is shared */
	/* of this host, unless the window is apart: words of its part, and of the own part those
	 * that it writes; else both NULL */
	struct weir_lock_words *words;
	struct weir_lock_member *from;
	const struct weir_words_known *known; /* of `locks` */
	/* of its words: members update the part one at a time; NULL: at any time */
	_Atomic uint32_t *turn;
	/* NULL, or where notices for it go, unless it is full; how many went there and by the
	 * engine, and how many of each had been taken when that was read last. With `sending` */
	struct notice_ring *ring;
	uint64_t ring_sent, ring_taken, engine_sent, engine_taken;
	pthread_mutex_t sending;
	uint32_t on_host;	/* its place, if it has words */
	int by_words;		/* WEIR_LOCK_* that is held by the words; 0: none. As `lock` */
	uint64_t offset, bytes; /* of the part in its memory */
	bool admitted;		/* its POST was taken, for weir_window_start() */
	uint64_t exposure;	/* its number, from that POST; by words: the last one taken */
};

/* How far the collective call that makes a window is. */
enum window_stage {
	STAGE_BOARDS,
	STAGE_OPTIONS,
	STAGE_SIZES,   /* shared: of the parts */
	STAGE_KEY,     /* shared: of the memory, from rank 0 */
	STAGE_ADDRESS, /* same address: from rank 0 */
	STAGE_TRY,     /* same address: whether all could use it */
	STAGE_MEMORY,
	STAGE_AGREE, /* whether all have their parts */
	STAGE_DONE,
};

/* Its state from one call to the next. */
struct window_making {
	enum window_stage stage;
	bool begun;   /* what precedes the stage's collective call is done */
	bool misused; /* the arguments are invalid */
	bool decided; /* it has failed at all members */
	int rc;	      /* of this member */
	uint64_t mine[2 * WINDOW_WORDS], all[2 * WINDOW_WORDS];
	uint64_t *sizes; /* by rank */
	struct {
		uint64_t status; /* errno */
		struct weir_key key;
	} said; /* by rank 0 */
	uint64_t address;
	uint32_t tries;
};

/* A range that is attached to a dynamic window, whose region is in use for it. */
struct window_range {
	uint64_t address;
	struct weir_region *region;
};

struct weir_window {
	struct weir_group *g;
	struct weir *w;
	struct board *board;
	struct window_args args;
	uint32_t number; /* of its parts in the boards */
	uint32_t own;	 /* number of this member among the words of its host */
	char name[WEIR_WINDOW_NAME_MAX + 1];
	void *user;
	uint8_t *base;		    /* own part */
	struct weir_region *region; /* of the window, or the program's, in use */
	struct weir_export *x;
	/* dynamic: by address. With `attaching` */
	struct window_range *ranges;
	uint32_t range_count, range_room;
	pthread_mutex_t attaching;
	/* shared: memory of all parts, of rank 0; what maps it here, and goes through the engine */
	struct weir_region *whole_region;
	struct weir_export *whole_x;
	struct weir_remote *whole, *whole_updates;
	_Atomic uint32_t
	    epoch; /* enum window_epoch; operations of any thread turn FENCED to FENCE */
	/* EPOCH_LOCKS: members that are locked; locks of WEIR_RANK_NULL */
	uint32_t locks, null_locks;
	/* EPOCH_ALL: locks are not acquired; ms that each one is waited for */
	bool unchecked;
	int all_ms;
	_Atomic uint32_t
	    acquired; /* EPOCH_ALL: locks of members, checked or not. Any thread adds */
	int fence_rc; /* of the operations before a fence, or the end, that waits for others */
	/* weir_window_post(): whether the part is exposed, and to which ranks; how many of these
	 * were told, and have completed; number of this exposure, 0: unchecked; of the last one */
	bool is_exposed;
	uint32_t *exposed, exposed_room, exposed_count, told, completed, exposure, exposures;
	struct weir_notice_sink sink; /* of x, with its thread's object locked: */
	struct match match;
	/* by place on the host: slots that were taken, written with that object locked and read by
	 * all; and notices that wait. NULL: no rings */
	struct notice_source {
		_Atomic uint64_t taken;
		uint64_t gone; /* of the slots from there on: a bit for each that was taken */
		uint32_t kept;
	} * sources;
	_Atomic uint64_t failed; /* rank << 32 | errno; 0: none has */
	struct window_making making;
	pthread_mutex_t lock; /* of opening members */
	_Atomic(struct window_member *) bucket[WINDOW_BUCKETS], all;
	/* members whose parts the program itself may load and store; whether those that need no
	 * weir_window_query() are among them, by who begins epochs */
	_Atomic(struct window_member *) addressed;
	bool parts_addressed;
};

/* Where a region begins. */
static inline void *
window_base_of(const struct weir_region *region)
{
	struct weir_region_info info;

	weir_region_info(region, &info);
	return info.base;
}

/* ---- create.c ---- */
/* Takes back what this member did for a window, made or not, and frees it. */
void window_undo(struct weir_window *win);
/* How another member's part of a collective call failed: -number, with the reason. */
int window_other_failed(uint32_t rank, uint64_t number);

/* ---- member.c ---- */
/*
 * The member that an operation or an epoch is for, opened if it is not yet. 0, -EINVAL (no such
 * rank) or the errors of weir_remote_open().
 */
int window_member_open(struct weir_window *win, uint32_t rank, struct window_member **m);
/* Completes operations to a member; `local`: those with a result. 0 or -errno, which is noted. */
int window_member_flush(struct weir_window *win, struct window_member *m, bool local,
			uint64_t deadline);
/* The same for all members. -EAGAIN, -EINTR, or the first error after all others. */
int window_members_flush(struct weir_window *win, bool local, uint64_t deadline);
/*
 * Dynamic windows: 0, or -ERANGE, which is noted: operations that are complete were outside of what
 * the member, NULL: any one, had attached. Each is told once: only by a call that does not go on.
 */
int window_refusals_of(struct weir_window *win, struct window_member *one);
static inline int
window_refusals(struct weir_window *win, struct window_member *one)
{
	return win->args.kind == WEIR_WINDOW_DYNAMIC ? window_refusals_of(win, one) : 0;
}
void window_members_close(struct weir_window *win);
/* Notes how the member has failed, if rc says that it has. Returns rc. */
int window_note(struct weir_window *win, uint32_t rank, int rc);

/* One that was opened, or NULL. */
static inline struct window_member *
window_member_find(struct weir_window *win, uint32_t rank)
{
	/* pairs with the release in window_member_open() */
	struct window_member *m =
	    atomic_load_explicit(&win->bucket[rank % WINDOW_BUCKETS], memory_order_acquire);

	while (m && m->rank != rank)
		m = m->next;
	return m;
}

/* The member, if it is open and the epoch is known to have begun; else NULL. */
static inline struct window_member *
window_member_ready(struct weir_window *win, uint32_t rank)
{
	uint32_t epoch = atomic_load_explicit(&win->epoch, memory_order_relaxed);
	struct window_member *m = window_member_find(win, rank);

	/* acquire: pairs with the release of who locked the member */
	if (m && (epoch == EPOCH_FENCE || atomic_load_explicit(&m->lock, memory_order_acquire)))
		return m;
	return NULL;
}

/* Flushes a member to which all was loads and stores. False: there is more to it. */
static inline bool
window_member_flush_direct(const struct window_member *m)
{
	return m->flush_direct && weir_direct_flush(&m->direct);
}

/* The first of all that were opened; the others by next_of_all. */
static inline struct window_member *
window_members(struct weir_window *win)
{
	/* pairs with the release in window_member_open() */
	return atomic_load_explicit(&win->all, memory_order_acquire);
}

/* ---- lock.c ---- */
/* Locks a member's part, by words or by its engine. 0, -EOWNERDEAD, or as weir_remote_lock(). */
int window_lock_take(struct weir_window *win, struct window_member *m, int kind, int timeout_ms);
/* Releases it; the operations to the member are complete. */
void window_lock_leave(const struct weir_window *win, struct window_member *m);

/* Takes it by words, if that is possible now. The program knows them (weir_words_ready()). */
static inline bool
window_words_take(const struct weir_window *win, struct window_member *m, int kind)
{
	bool taken = kind == WEIR_LOCK_SHARED
			 ? weir_lock_take_shared(m->words, win->own)
			 : weir_lock_take_exclusive(m->words, win->own, win->board->local_count);

	if (taken)
		m->by_words = kind;
	return taken;
}

static inline void
window_words_leave(const struct weir_window *win, struct window_member *m)
{
	if (m->by_words == WEIR_LOCK_SHARED)
		weir_lock_leave_shared(m->words, win->own);
	else
		weir_lock_leave_exclusive(m->words, win->own, 0);
	m->by_words = 0;
}

/* ---- turn.c ---- */
/* Whether members update each part one at a time: engines never update narrow types then. */
bool window_takes_turns(const struct weir_window *win);
/* The member's part is the caller's to update. 0, or with its reason -EAGAIN (WEIR_NOWAIT), -EINTR,
 * or how the session has ended. The part is open (weir_direct_open()). */
int window_turn_take(struct weir_window *win, struct window_member *m, unsigned flags);
void window_turn_leave(const struct weir_window *win, struct window_member *m);

/* ---- epoch.c ---- */
/* The program itself loads and stores the member's part: weir_window_lock_all() locks it at once.
 * 0, or within that epoch as window_target_slow(). */
int window_addressed(struct weir_window *win, struct window_member *m);
/*
 * The member that an operation is for; NULL: WEIR_RANK_NULL. 0, or -ENOLCK, -EINVAL and the errors
 * of weir_remote_open() and weir_remote_lock().
 */
int window_target_slow(struct weir_window *win, uint32_t rank, struct window_member **m);

#endif
