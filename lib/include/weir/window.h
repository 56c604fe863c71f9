/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: memory of a group's members that all members may access, with the kinds, epochs and
 * operations of MPI-3. Order, completion, atomicity and failure are those of weir/remote.h. The
 * memory model is unified: a load observes every operation that is complete at its member;
 * weir_window_sync() orders loads and stores with the operations of others.
 *
 * `disp` counts in units of the window (disp_unit); in a dynamic window it is an address of the
 * target. Lengths are bytes, counts are elements. A
 * member's part has at most 2^47 bytes; parts may differ in size. Only collective calls, and
 * post and wait, need the target's program. docs/window.md is the guide.
 *
 * Epochs: an operation needs an access epoch to its target: between two fences, start and complete,
 * lock and unlock, or lock_all and unlock_all. A program has one kind of epoch per window at a
 * time. -ENOLCK: an operation, or the end of an epoch, without an epoch. -EALREADY: an epoch of
 * another kind is open. The epoch of a fence opens with its first operation; until then lock and
 * start are allowed and end the fence's effect.
 *
 * Collective calls on a window are collective calls of its group (weir/group.h): every member makes
 * them in the same order, between those of the group itself, and one thread at a time. After
 * -EAGAIN or -EINTR the member makes the same call again, with the same arguments, and it continues
 * where it was; likewise after -ENOMEM, -EMFILE, -EDQUOT and -EACCES of the group. Free all windows
 * before weir_group_leave().
 *
 * Threads: any thread may operate within an epoch of its program; one thread at a time begins and
 * ends epochs of a window. A flush, and the end of an epoch, covers the operations of all threads;
 * with WEIR_WINDOW_THREADS those of the calling thread.
 *
 * Errors of operations that do not wait are returned by the operation, if they are known then, and
 * by the flush, unlock or fence that ends them; weir_window_error() names the rank. The error of a
 * part that has ended stays: each later call that covers operations that were lost there, or the
 * part if it is mapped, returns it again, when the operations to all other members are complete. So
 * no thread misses a loss that another one was told of. -ERANGE comes once: in a dynamic window,
 * for operations on what the target has not attached. The next weir_window_flush(), _flush_all(),
 * _unlock(), _unlock_all(), _fence(), _complete() or _free() tells; weir_window_flush_local() and
 * handles of operations do not.
 *
 * After MPI 3.1, chapter 11 (One-Sided Communications), and foMPI (Gerstenberger, Besta, Hoefler:
 * Enabling Highly-Scalable Remote Memory Access Programming with MPI-3 One Sided).
 */
#ifndef WEIR_WINDOW_H
#define WEIR_WINDOW_H

#include "group.h"
#include "remote.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_window; /* valid until weir_window_free() */

/* ---- creation ---- */

enum weir_window_kind {
	WEIR_WINDOW_CREATED = 1,   /* over a region of the program */
	WEIR_WINDOW_ALLOCATED = 2, /* with memory of its own, on request at one address everywhere
				    */
	WEIR_WINDOW_DYNAMIC = 3,   /* over ranges that members attach and detach */
	WEIR_WINDOW_SHARED = 4,	   /* of one host: members can load and store every part */
};

#define WEIR_WINDOWS_MAX 64u			 /* windows of a group at a time */
#define WEIR_WINDOW_NAME_MAX 31u		 /* bytes of a name */
#define WEIR_WINDOW_PART_MAX (UINT64_C(1) << 47) /* bytes of a member's part */
#define WEIR_WINDOW_RANGES_MAX 4096u		 /* attached at a time, to a member's part */

#define WEIR_WINDOW_SAME_ADDRESS 0x1u /* allocated: base and size are equal at all members */
#define WEIR_WINDOW_APART 0x2u	      /* members map nothing: every access is checked */
#define WEIR_WINDOW_PAGES 0x4u	      /* shared: each part starts on a page */
#define WEIR_WINDOW_THREADS 0x8u      /* a flush covers the calling thread */
#define WEIR_WINDOW_NO_LOCKS 0x10u    /* weir_window_lock() and _lock_all() are never called */
/*
 * Updates exclude one another, also on this host, and are plain loops: sums of many elements take
 * less time, single ones more. Engines of the target execute them; if all members are on one host
 * and map the part, the callers do, in turn. Nothing but this window may update or signal the
 * memory meanwhile, and a put or store to an element that is being updated may be lost. Where
 * engines update, puts and gets on this host are not in order with updates: flush in between. Where
 * callers do, a program that is stopped in an update keeps the others waiting until it goes on or
 * ends.
 */
#define WEIR_WINDOW_BY_ENGINE 0x20u

#define WEIR_WINDOW_NOTICES_MAX 16384u /* most of weir_window_options.notices */

/* Initialize with WEIR_WINDOW_OPTIONS_INIT, then change single fields. */
struct weir_window_options {
	const char *name;   /* see weir_window_info(), copied; NULL: none */
	uint32_t flags;	    /* WEIR_WINDOW_* */
	uint32_t rights;    /* of the other members: WEIR_MAY_READ to _NOTIFY; 0: all of these */
	uint32_t disp_unit; /* bytes; 0: 1 */
	int32_t numa_node;  /* allocated; shared: rank 0 decides; -1: that of the caller */
	/* how many may wait until a watch takes them, of all members and of each one of this host
	 * (struct weir_watch); at most WEIR_WINDOW_NOTICES_MAX; 0: 1,024 */
	uint32_t notices;
	uint32_t reserved; /* 0 */
	uint64_t more[3];  /* 0 */
};
#define WEIR_WINDOW_OPTIONS_INIT                                                                   \
	{                                                                                          \
		NULL, 0, 0, 0, -1, 0, 0,                                                           \
		{                                                                                  \
			0, 0, 0                                                                    \
		}                                                                                  \
	}

/*
 * The calls that make windows are collective. Members give equal options, but for `name` and
 * `numa_node`. An error at one member is an error at all, and leaves nothing behind. They make one
 * window at a time per group.
 *
 * Errors of all of them:
 *   -EINVAL  the members' calls or options differ, or an argument is invalid
 *   -EMFILE  the group has WEIR_WINDOWS_MAX windows, or a member has no region, export or
 *            connection left
 *   and errors of weir_region_alloc(), weir_export() and every collective call (weir/group.h), also
 *   those of another member. After an error of a collective call the group is of no use any more.
 */

/*
 * Makes a window over [offset, offset + bytes) of a region, which cannot be disowned or freed
 * before the window. Members of one host map the part if it is a whole region; else the data plane
 * executes operations.
 *
 * @g           group
 * @region      allocated, or adopted with WEIR_ADOPT_EXPOSE; NULL if bytes is 0
 * @offset      bytes from the start of the region, a multiple of 16
 * @bytes       of the own part, 0 to WEIR_WINDOW_PART_MAX
 * @options     NULL: defaults
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 * @win         receives the window, freed by weir_window_free()
 */
int weir_window_create(struct weir_group *g, struct weir_region *region, uint64_t offset,
		       uint64_t bytes, const struct weir_window_options *options, int timeout_ms,
		       struct weir_window **win);

/*
 * Makes a window with memory of its own, which is zeroed.
 *
 * @bytes  of the own part, as above
 * @base   receives the own part; NULL if bytes is 0
 *
 * With WEIR_WINDOW_SAME_ADDRESS, `bytes` is equal at all members, and so is *base. Returns as
 * above, and -EADDRNOTAVAIL: no address was free at all members in 16 tries.
 */
int weir_window_allocate(struct weir_group *g, uint64_t bytes,
			 const struct weir_window_options *options, int timeout_ms, void **base,
			 struct weir_window **win);

/*
 * Makes a window whose parts lie in one memory, contiguous in rank order, or with WEIR_WINDOW_PAGES
 * each at the start of a page. Returns as above, and -EXDEV: not all members are on this host. The
 * memory is of the member with rank 0, and on its NUMA node: where parts are to lie near their
 * members, weir_window_allocate() makes them so, and weir_window_query() gives their addresses. If
 * rank 0 ends, operations return -ECONNRESET, and loads and stores go on.
 */
int weir_window_allocate_shared(struct weir_group *g, uint64_t bytes,
				const struct weir_window_options *options, int timeout_ms,
				void **base, struct weir_window **win);

/*
 * Makes a dynamic window, whose parts are empty until their members attach memory to them. Returns
 * as above. `disp_unit` is 1, and the data plane executes all operations, also on this host.
 */
int weir_window_create_dynamic(struct weir_group *g, const struct weir_window_options *options,
			       int timeout_ms, struct weir_window **win);

/*
 * Attaches [offset, offset + bytes) of a region to the own part of a dynamic window, for operations
 * of all members; these need its addresses. An operation may cross from one range into another that
 * adjoins it, but no element may. Ranges that adjoin in numbers have 128 bytes or more: what
 * crosses more than 64 borders within 8 KiB is refused. The region cannot be disowned or freed
 * before the range is detached. Local; blocks until the data plane has answered. Any thread.
 *
 * Returns 0, or
 *   -EINVAL       not a dynamic window, or not within the region, or bytes is 0
 *   -EACCES       the region was not adopted with WEIR_ADOPT_EXPOSE, or is being freed
 *   -EEXIST       the range overlaps one that is attached
 *   -EMFILE       WEIR_WINDOW_RANGES_MAX ranges are attached, or 4 times as many of the session
 *   -ENOMEM       no memory, here or in the data plane
 *   -EFAULT       holes were punched into the region
 *   -ESTALE       the part has ended, because such a region was attached to it
 *   -ECONNABORTED an operator has ended the part, or the session
 *   -ENODEV       the data plane has ended
 */
int weir_window_attach(struct weir_window *win, struct weir_region *region, uint64_t offset,
		       uint64_t bytes);

/*
 * Detaches the range that begins at `base`. When it returns no operation there is under way, and
 * later ones are refused: they change nothing, read zeros, and the member that began them gets
 * -ERANGE, as said above. Local; blocks as above. Any thread.
 *
 * Returns 0, -EINVAL: not a dynamic window, or -ENOENT: no range begins there. A range of a part
 * that has ended, or of a session that has, is detached, too.
 */
int weir_window_detach(struct weir_window *win, const void *base);

/* An address as a number, which other members use as `disp`, and compute with. Any thread. */
uint64_t weir_address_of(const void *p);

/*
 * Frees a window; collective. A flush and a barrier; afterwards no member can access it. It also
 * ends an epoch of fences: the operations of all members are complete. NULL is an error.
 *
 * Returns 0, -EBUSY (within an epoch of locks, start or post: nothing has begun), an error of every
 * collective call, or how an operation has failed. The window is freed, but after -EBUSY, -EAGAIN
 * and -EINTR. Once the group is of no use any more, since a member has failed
 * (weir_group_failed()), or the session has ended, it is freed within epochs, too: locks end as
 * with a program that has died.
 */
int weir_window_free(struct weir_window *win, int timeout_ms);

struct weir_window_info {
	uint32_t kind; /* enum weir_window_kind */
	uint32_t disp_unit, flags, rights;
	void *base;	/* own part; NULL: it is empty */
	uint64_t bytes; /* of the own part */
	char name[WEIR_WINDOW_NAME_MAX + 1];
};

/* Describes a window. Does not block. Any thread. */
void weir_window_info(const struct weir_window *win, struct weir_window_info *info);
/* The group that it was made with. */
struct weir_group *weir_window_group(const struct weir_window *win);

/*
 * Address of a member's part in this process, for loads and stores.
 *
 * @rank       of a member; WEIR_RANK_ANY: the first one whose part is not empty
 * @base       receives the address; NULL for an empty part
 * @bytes      receives its size; may be NULL
 * @disp_unit  receives the window's; may be NULL
 *
 * Returns 0, -EXDEV (not mapped: on another host, APART, or not a whole region), -EINVAL (no such
 * rank; a dynamic window has no part to address), -ENOENT (ANY: all parts are empty), or the errors
 * of weir_remote_open(), since it opens the part. Within an epoch of weir_window_lock_all() it
 * acquires the part's lock, and returns the errors of operations there, too; *base is valid after
 * -EOWNERDEAD. Any thread, but not while another one begins or ends such an epoch.
 */
int weir_window_query(struct weir_window *win, uint32_t rank, void **base, uint64_t *bytes,
		      uint32_t *disp_unit);

/* A pointer of the program's own; NULL at first. One thread at a time sets it. */
void weir_window_set_user(struct weir_window *win, void *user);
void *weir_window_user(const struct weir_window *win);
/*
 * Renames the window at this member, also for operators (weirctl show exports). NULL: no name.
 * Blocks until the data plane has answered. One thread at a time.
 *
 * Returns 0, or, the name being as before,
 *   -EINVAL                   longer than WEIR_WINDOW_NAME_MAX
 *   -ENODEV, -ECONNABORTED    the data plane has ended; an operator has ended the session
 *   -ENOTCONN                 in a forked child
 */
int weir_window_set_name(struct weir_window *win, const char *name);

/* ---- operations ---- */

#define WEIR_RANK_NULL (UINT32_MAX - 1) /* a target that accepts operations and does nothing */

/*
 * Operations need an epoch. They are those of weir/remote.h, with its flags, errors and blocking,
 * on the part of `rank`, and return besides
 *   -ENOLCK      no epoch with this member is open
 *   -EINVAL      there is no such rank
 *   -ERANGE      a byte would lie outside the part
 *   -EOWNERDEAD  within lock_all: the member's lock was acquired, and its last exclusive holder
 *                ended with it: make the data consistent. Nothing began; call again
 *   -EAGAIN      within lock_all: the lock was not acquired in the time that
 *                weir_window_lock_all() got, also with WEIR_NOWAIT. Nothing began; call again
 *   -EAGAIN      WEIR_WINDOW_BY_ENGINE: another caller updates the part (WEIR_NOWAIT)
 *   -EXDEV       WEIR_WINDOW_BY_ENGINE: the part cannot be mapped here; see the limits of address
 *                space and mappings
 * The first one to a member opens its part, which takes as long as weir_remote_open(), also with
 * WEIR_NOWAIT.
 */
int weir_window_put(struct weir_window *win, uint32_t rank, uint64_t disp, const void *buf,
		    size_t length, unsigned flags);
int weir_window_get(struct weir_window *win, uint32_t rank, uint64_t disp, void *buf, size_t length,
		    unsigned flags);
/*
 * t->offset and t->signal count in units, like disp; other fields as in weir/remote.h. A notice
 * comes to watches of the target (weir_watch_init()), with the caller's rank as source. -EINVAL
 * also for a tag of WEIR_TAG_ANY, and signals in shared windows; -EMSGSIZE also for a notice with
 * WEIR_NOWAIT in a window that is shared, and for a notice or signal in one that has
 * WEIR_WINDOW_BY_ENGINE.
 */
int weir_window_put_with(struct weir_window *win, uint32_t rank, const struct weir_transfer *t);
int weir_window_get_with(struct weir_window *win, uint32_t rank, const struct weir_transfer *t);
/* target = target OP operand, per element. */
int weir_window_accumulate(struct weir_window *win, uint32_t rank, uint64_t disp,
			   const void *operand, uint64_t count, enum weir_type type,
			   enum weir_acc op, unsigned flags);
/* The same; `result` receives the elements before. With WEIR_ACC_NO_OP an atomic read. */
int weir_window_get_accumulate(struct weir_window *win, uint32_t rank, uint64_t disp,
			       const void *operand, void *result, uint64_t count,
			       enum weir_type type, enum weir_acc op, unsigned flags);
int weir_window_fetch_op(struct weir_window *win, uint32_t rank, uint64_t disp, const void *operand,
			 void *result, enum weir_type type, enum weir_acc op, unsigned flags);
int weir_window_compare_swap(struct weir_window *win, uint32_t rank, uint64_t disp,
			     const void *compare, const void *operand, void *result,
			     enum weir_type type, unsigned flags);
/* An update with a layout or a handle. u->offset counts in units. */
int weir_window_update_with(struct weir_window *win, uint32_t rank, const struct weir_update *u);

/* ---- epochs ---- */

/* Asserts of the program, which may save work. */
#define WEIR_NO_STORE 0x1u   /* no stores to the own part since the last epoch */
#define WEIR_NO_PUT 0x2u     /* no operations of others on the own part in the next epoch */
#define WEIR_NO_PRECEDE 0x4u /* fence: no operations since the last one; equal at all */
#define WEIR_NO_SUCCEED 0x8u /* fence: begins no epoch; equal at all */
#define WEIR_NO_CHECK 0x10u  /* lock: no other program wants it */

/*
 * Completes all operations at all members and begins the next epoch; collective.
 *
 * @asserts  WEIR_NO_STORE, _PUT, _PRECEDE, _SUCCEED, or 0
 *
 * Returns 0, -EALREADY (an epoch of locks is open: nothing has begun), how an operation has failed
 * (weir_remote_flush()), then the fence is complete, or an error of every collective call, with
 * which the epoch is over.
 */
int weir_window_fence(struct weir_window *win, unsigned asserts, int timeout_ms);

/*
 * Exposes the own part to n members: their weir_window_start() waits for it. Does not wait for
 * them. Exposing does not exclude an access epoch of this program.
 *
 * @ranks    of members; WEIR_RANK_NULL is skipped; copied
 * @asserts  WEIR_NO_STORE, _PUT, _CHECK (the members start with _CHECK, too), or 0
 *
 * Returns 0, -EALREADY (exposed already), -EINVAL, -EINTR (call again with the same ranks),
 * -ENOMEM, or the errors of weir_remote_open() and weir_remote_notify(); members that were told
 * before the error start in vain.
 */
int weir_window_post(struct weir_window *win, const uint32_t *ranks, uint32_t n, unsigned asserts);
/*
 * Begins access to n members. Waits until each of them has posted; each post serves one start.
 *
 * @asserts  WEIR_NO_CHECK or 0
 *
 * Returns 0, -EAGAIN or -EINTR (call again with the same ranks), -EALREADY (an epoch is open),
 * -EINVAL, or how a member has ended.
 */
int weir_window_start(struct weir_window *win, const uint32_t *ranks, uint32_t n, unsigned asserts,
		      int timeout_ms);
/*
 * Ends the epoch of start: all operations are complete at their targets, which are told. Returns 0,
 * -EAGAIN or -EINTR (call again), -ENOLCK, or how an operation has failed; then the epoch is over.
 */
int weir_window_complete(struct weir_window *win, int timeout_ms);
/*
 * Ends the exposure of post: all members to which the part was exposed have called
 * weir_window_complete(). With a time of 0 it is MPI's test.
 *
 * Returns 0, -EAGAIN or -EINTR (call again), -ENOLCK (not exposed), or how a member has ended, then
 * the exposure is over.
 */
int weir_window_wait(struct weir_window *win, int timeout_ms);

/*
 * Acquires a member's lock, as weir_remote_lock() does, for the program. Several members may be
 * locked at a time.
 *
 * @kind     WEIR_LOCK_SHARED or WEIR_LOCK_EXCLUSIVE
 * @asserts  WEIR_NO_CHECK or 0
 *
 * Returns as weir_remote_lock() and -EALREADY also if an epoch of another kind is open, -EINVAL
 * also if there is no such rank or the window has WEIR_WINDOW_NO_LOCKS.
 */
int weir_window_lock(struct weir_window *win, uint32_t rank, int kind, unsigned asserts,
		     int timeout_ms);

/*
 * Completes the operations to a member, then releases its lock. Any thread.
 *
 * Returns 0, -EAGAIN or -EINTR (not complete: it is still held), -ENOLCK (not locked by
 * weir_window_lock()), or how an operation has failed: the lock is released, or ended.
 */
int weir_window_unlock(struct weir_window *win, uint32_t rank, int timeout_ms);

/*
 * Begins an epoch with shared locks of all members. The call acquires those of parts that the
 * program may load and store, in the order of ranks: its own, those whose address it has asked for
 * (weir_window_query()), and all of a shared window. Another member's lock is acquired by the first
 * operation to it; a member without operations costs nothing. Programs that hold some locks and
 * wait for others may wait for each other: give a time, and end the epoch after -EAGAIN.
 *
 * @timeout_ms  milliseconds that this call, and each operation that acquires a lock, waits at most;
 *              below 0: no limit; 0: for the data plane's answer alone, at most 10
 *
 * Returns 0, -EALREADY (an epoch is open), or as weir_window_lock(): after -EOWNERDEAD of one of
 * the parts the epoch has begun, after other errors no lock is held. Parts that have ended have no
 * lock, and operations there fail.
 */
int weir_window_lock_all(struct weir_window *win, unsigned asserts, int timeout_ms);
/* Completes all operations, then releases all locks. As weir_window_unlock(); -ENOLCK: there is no
 * epoch of weir_window_lock_all(). */
int weir_window_unlock_all(struct weir_window *win, int timeout_ms);

/*
 * Waits until the operations to one member, or to all, are complete, as weir_remote_flush() does;
 * the local ones as weir_remote_flush_local(). -ENOLCK: no epoch is open, or none with this member;
 * -EINVAL: there is no such rank. Any thread.
 */
int weir_window_flush(struct weir_window *win, uint32_t rank, int timeout_ms);
int weir_window_flush_all(struct weir_window *win, int timeout_ms);
int weir_window_flush_local(struct weir_window *win, uint32_t rank, int timeout_ms);
int weir_window_flush_local_all(struct weir_window *win, int timeout_ms);

/* Orders this thread's loads and stores before it with those after it, and with operations of
 * others. Does not block. Any thread. */
void weir_window_sync(struct weir_window *win);

/* ---- notified access ---- */

#define WEIR_TAG_ANY UINT32_MAX

/*
 * Awaits `count` notices of a source and a tag. Lives in the program's memory, filled in by
 * weir_watch_init(), until weir_window_free(). Each notice goes to one watch, the one that looks
 * first; those that no watch wants stay, in the order in which they came: `notices` of the window's
 * options, and beyond them as many as weir_remote_notify() says of each thread, and 64 of each
 * member of the host for the first 16 windows of the group. Calls that test or wait take notices
 * in; operations on mapped parts and their flushes do not. One thread at a time uses a watch.
 */
struct weir_watch {
	uint32_t source, tag; /* awaited: a rank or WEIR_RANK_ANY, a tag or WEIR_TAG_ANY */
	uint32_t count, found;
	uint32_t last_source, last_tag; /* of the notice found last */
	uint64_t bytes;			/* of all puts and gets that they came with */
	uint64_t internal[5];
};

/* Fills in a watch; none is found yet. Does not block. */
void weir_watch_init(struct weir_watch *watch, struct weir_window *win, uint32_t source,
		     uint32_t tag, uint32_t count);
/* Begins again, for as many notices. */
void weir_watch_start(struct weir_watch *watch);
/*
 * Takes notices that have come. Returns 1 (all were found), 0, or the errors of every call
 * (weir/stream.h). It acquires: loads of this thread see what was put before. Does not block.
 */
int weir_watch_test(struct weir_watch *watch);
/*
 * Waits until all were found. Returns 0, -EAGAIN, -EINTR, -ECONNRESET or -EHOSTDOWN (the awaited
 * source has ended; with WEIR_RANK_ANY, any member has), or the errors of every call. Notices that
 * have come are taken first. Spins, yields, then sleeps.
 */
int weir_watch_wait(struct weir_watch *watch, int timeout_ms);
/* Waits until one of n watches has found all; returns its index, or as weir_watch_wait(). */
int weir_watch_wait_any(struct weir_watch *const *watches, unsigned n, int timeout_ms);
/*
 * Sends a notice without data, behind all operations that this thread has begun to the member.
 * Needs an epoch. Returns as weir_remote_notify(), and as operations. -EAGAIN also if such an
 * operation is not complete, with WEIR_NOWAIT, in a window that is shared or has
 * WEIR_WINDOW_BY_ENGINE. Any thread.
 */
int weir_window_notify(struct weir_window *win, uint32_t rank, uint32_t tag, unsigned flags);
/* weir_signal_wait() on a word of the own part; -EINVAL also for shared windows. -ECONNRESET or
 * -EHOSTDOWN: a member has ended, and the word does not hold. */
int weir_window_signal_wait(struct weir_window *win, uint64_t disp, enum weir_compare compare,
			    uint64_t value, int timeout_ms, uint64_t *seen);

/* The member at which an operation failed last: stores its rank and returns how, -errno; -ENOENT:
 * none has. Any thread. */
int weir_window_error(const struct weir_window *win, uint32_t *rank);

#ifdef __cplusplus
}
#endif
#endif
