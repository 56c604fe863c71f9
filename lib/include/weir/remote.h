/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Remote memory: a program exports a range of its memory and obtains a key. A program that holds
 * the key opens it and puts, gets and updates bytes there, on the same host or another one. The
 * exporting program takes no part: it may sleep, compute or be stopped. The range is memory of a
 * region (weir/memory.h). docs/remote.md is the guide.
 *
 * Units are bytes. `offset` counts from the start of the export.
 *
 * Completion: an operation returns before it is complete. A put or an update is complete when every
 * load on the target's host observes it. A get, a fetch, a compare and swap is complete when its
 * result lies in the caller's memory. weir_remote_flush() waits for all operations of the calling
 * thread on a handle, a struct weir_op for one of them.
 *
 * Order: operations of one thread with one handle take effect in program order, but for large puts
 * and gets (WEIR_PUT_ORDERED). A notice takes effect behind all operations before it. Handles have
 * no order to each other, not even two of one program or one key: flush one before the operation
 * with the other that shall follow. A put or get of 1, 2, 4 or 8 bytes at an offset that makes its
 * address a multiple of its length is not torn. Longer ones are executed in parts.
 *
 * Atomicity: updates, fetches, and compare and swap are atomic per element, to each other, to C11
 * atomics and to plain aligned loads on the target's host, whichever program performs them.
 * Updates of long double, complex numbers and pairs are atomic to each other only. All take effect
 * exactly once, even if queue pairs fail meanwhile.
 *
 * Failure: -ECONNRESET: the exporting program ended. -EHOSTDOWN: its node is down. -ESTALE: the
 * export was revoked or evicted, or its region freed. -ENODEV, -ECONNABORTED, -ENOTCONN: this
 * session ended, as in weir/stream.h. An operation under way at that moment took effect, did not,
 * or (in parts) did in part; its result is not there. Every later call on the handle returns the
 * same error.
 *
 * Threads: any, without locks. Each thread has a connection of its own to the export, made by its
 * first operation, which takes as long as weir_connect(). Where the session, or the exporting one,
 * has no connection left, the library closes those that are idle; their next operation makes them
 * again. It may return the errors of weir_remote_open() then, and -ESTALE if the export, or its
 * program, has ended meanwhile.
 *
 * After MPI 3.1, chapter 11 (put, flush, the order of accumulates), and foMPI (Gerstenberger,
 * Besta, Hoefler: Enabling Highly-Scalable Remote Memory Access Programming with MPI-3 One Sided).
 */
#ifndef WEIR_REMOTE_H
#define WEIR_REMOTE_H

#include "memory.h"
#include "type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- exporting ---- */

#define WEIR_MAY_READ 0x1u   /* weir_remote_get(); loads from memory that is mapped */
#define WEIR_MAY_WRITE 0x2u  /* weir_remote_put() */
#define WEIR_MAY_UPDATE 0x4u /* weir_remote_update(), _fetch_op(), _compare_swap() */
#define WEIR_MAY_NOTIFY 0x8u /* notices and signals */
#define WEIR_MAY_LOCK 0x10u  /* weir_remote_lock() */
/*
 * Programs of the exporting host may map the export: their operations are loads and stores then,
 * and the data plane does not see them. Implies WEIR_MAY_READ; of whole regions alone. Grant it to
 * programs that you trust. A mapping lasts until its program unmaps it, and the memory counts
 * against the exporting user's limits until then. A program that may write can punch holes into
 * mapped memory: then all exports of the region end, messages out of the region carry zeroes, and
 * programs that mapped it may die of SIGBUS. Free such a region.
 */
#define WEIR_MAY_MAP 0x20u

/*
 * A capability: its holder may do what its rights allow. Programs pass it on as bytes, in a
 * message or a file. It is valid until the export is revoked, and only for this run of the
 * exporting host's data plane.
 */
struct weir_key {
	uint8_t bytes[64];
};

struct weir_export; /* valid until weir_revoke() or weir_detach() */

/*
 * Exports [offset, offset + length) of a region that was allocated, or adopted with
 * WEIR_ADOPT_EXPOSE. A region may have several exports, also overlapping ones. With WEIR_MAY_NOTIFY
 * the export's notices go to the calling thread (weir_notice_next()). A key may be made while
 * weir_node() returns -EAGAIN: other nodes open it as soon as they know this one.
 *
 * @region  of this session
 * @offset  bytes from the start of the region; with WEIR_MAY_UPDATE or WEIR_MAY_NOTIFY a multiple
 * of 16
 * @length  bytes, at least 1
 * @rights  WEIR_MAY_*, at least one
 * @x       receives the handle
 * @key     receives the key
 *
 * Returns 0, or
 *   -EINVAL  the range is not within the region, its offset is no multiple of 16 though updates or
 *            notices are allowed, or the rights are invalid
 *   -EINVAL  WEIR_MAY_MAP, and the range is not the whole region
 *   -EACCES  the region was not adopted with WEIR_ADOPT_EXPOSE
 *   -EFAULT  holes were punched into the region; free it and make another
 *   -EMFILE  the session has no export left (--exports), or with WEIR_MAY_NOTIFY no channel for
 *            this thread
 *   -EDQUOT  the user has no export left (--user-limit exports=)
 *   -ENOSPC  all programs together have no export left (weirctl set limit.exports)
 *   -ENOMEM  no memory
 *   and the errors of every call (weir/stream.h).
 * Blocks until the data plane answers. Any thread.
 */
int weir_export(struct weir_region *region, uint64_t offset, uint64_t length, unsigned rights,
		struct weir_export **x, struct weir_key *key);

/*
 * Revokes an export and frees its handle. No operation begins after the data plane has taken the
 * request, whatever the call returns, and none is under way when it returns 0; the handles that
 * opened it get -ESTALE.
 * Its notices that were not taken are dropped.
 * weir_region_free() and weir_disown() revoke all exports of their region, whose handles stay valid
 * until this call. weir_detach() revokes and frees all.
 *
 * Returns 0; the same if the export ended before, or with its session; -ECONNABORTED: an operator
 * had ended it (weirctl evict), and weir_reason() says why. -EAGAIN: after 10 s large operations of
 * a peer that is slow or fails may still be under way: call again. Then, and with the errors of
 * every call (weir/stream.h), the handle stays valid. Blocks until the data plane answers, and the
 * peers that have the export open are done, which takes a round trip as a rule. Any thread.
 */
int weir_revoke(struct weir_export *x);

/* ---- opening ---- */

struct weir_remote; /* valid until weir_remote_close() or weir_detach() */

#define WEIR_OPEN_APART 0x1u /* never map: the data plane executes all operations */

/*
 * Opens a key for the operations that `rights` name. A key with WEIR_MAY_MAP is mapped, if it is of
 * this host: read-only unless `rights` have WEIR_MAY_WRITE.
 *
 * @w           session handle
 * @key         as weir_export() returned it
 * @rights      WEIR_MAY_*, at least one
 * @flags       WEIR_OPEN_APART or 0
 * @timeout_ms  milliseconds until -ETIMEDOUT; below 0: no limit but that of the link (5 s); 0: the
 *              call does not wait, and the first operation says how the opening ended
 * @remote      receives the handle
 *
 * Returns 0, or
 *   -EKEYREJECTED  there is no such export, the key is not as it was made, or its node had no id
 *                  then and is not known here yet (weirctl show nodes)
 *   -EACCES        the key does not grant these rights
 *   -EINVAL        unknown rights or flags
 *   -EHOSTUNREACH, -EHOSTDOWN, -ETIMEDOUT, -ECONNREFUSED, -ENOSPC, -EMFILE, -EDQUOT  as
 *                  weir_connect(); -EMFILE also if the exporting session has no connection left
 *   and the errors of every call (weir/stream.h).
 * Blocks. Any thread.
 */
int weir_remote_open(struct weir *w, const struct weir_key *key, unsigned rights, uint32_t flags,
		     int timeout_ms, struct weir_remote **remote);

/*
 * Closes a handle. Operations that were begun still take effect, unless the connection fails; their
 * results are not written any more. No other thread may use the handle. NULL is allowed. Does not
 * block.
 */
void weir_remote_close(struct weir_remote *r);

struct weir_remote_info {
	uint64_t length; /* of the export; 0: not open yet */
	uint32_t rights; /* WEIR_MAY_*, as opened */
	uint16_t node;	 /* of the export */
	uint16_t local;	 /* 1: it is on this host */
	/* The export in this process, until weir_remote_close(); NULL: not mapped. Read-only
	 * without WEIR_MAY_WRITE. */
	void *mapped;
};

/* Describes what was opened. Does not block. Any thread. */
void weir_remote_info(const struct weir_remote *r, struct weir_remote_info *info);

/* ---- operations ---- */

/*
 * One operation that is under way, in the caller's memory, which stays where it is and untouched
 * until the operation has ended. Calls that begin an operation fill it in. Valid until
 * weir_remote_close().
 */
struct weir_op {
	int32_t status; /* after the end: 0, or how the export or the session ended (above) */
	uint32_t state; /* the library's; 0: no operation was begun */
	uint64_t internal[7];
};

/*
 * Puts and gets of more than WEIR_PUT_ORDERED bytes are done by the NICs of both hosts, by RDMA
 * WRITE and READ, where two NICs are between program and memory. They may overtake earlier
 * operations of their thread and one another, unless they say WEIR_BEHIND; operations of other
 * kinds, and smaller ones, still take effect after all that were begun before.
 */
#define WEIR_PUT_ORDERED 8192u

/* Flags of operations. */
#define WEIR_NOWAIT 0x1u /* -EAGAIN instead of waiting for room: the operation did not begin */
/* The struct weir_op of a put or of an update without `result` ends with its completion. Without
 * it, it ends as soon as the buffer is the caller's again. */
#define WEIR_AT_TARGET 0x2u
/* Takes effect after all earlier operations of this thread with the handle, of any length: see
 * WEIR_PUT_ORDERED. */
#define WEIR_BEHIND 0x4u
/* The caller leaves the buffer unchanged until the operation's struct weir_op ends, or a flush has
 * returned 0. A large put out of a region for WEIR_ADOPT_SEND is not copied then. */
#define WEIR_KEEP 0x8u

/*
 * WEIR_RING, WEIR_WRITE (puts) and WEIR_READ (gets) of weir/stream.h force the method at any
 * length: the target's engine takes part, or the NICs do all. Where no two NICs are in between,
 * they have no effect. Of a transfer with layouts they concern the pieces that are contiguous at
 * both ends; with WEIR_NOWAIT, layouts and notices leave all to the engine.
 */

/*
 * Writes `length` bytes of `buf` to the export. The buffer is the caller's again on return, unless
 * WEIR_KEEP is set.
 *
 * @flags  WEIR_NOWAIT, WEIR_BEHIND, WEIR_KEEP; WEIR_RING or WEIR_WRITE; or 0
 *
 * Returns 0 (begun), or
 *   -ERANGE    a byte would lie outside the export
 *   -EACCES    the handle was opened without WEIR_MAY_WRITE
 *   -EINVAL    unknown flags
 *   -EAGAIN    WEIR_NOWAIT: no room now, or the thread's connection is still being made
 *   -EMSGSIZE  WEIR_NOWAIT: there is never room for that many bytes at once
 *   -EINTR     interrupted while it waited: a part of the bytes may take effect; put again
 *   -ENOMEM    no memory to note it
 *   how the export or the session ended (above), or, with a thread's first operation, the errors of
 *   weir_remote_open().
 * Blocks while the channel is full, or the session lacks send memory for a large put, unless
 * WEIR_NOWAIT. Any thread.
 */
int weir_remote_put(struct weir_remote *r, uint64_t offset, const void *buf, size_t length,
		    unsigned flags);

/*
 * Reads `length` bytes of the export into `buf`, which the library may write until a flush of this
 * thread has returned 0, or the handle is closed.
 *
 * @flags  WEIR_NOWAIT, WEIR_BEHIND; WEIR_RING or WEIR_READ; or 0
 *
 * Returns 0 (begun), or as weir_remote_put(), and
 *   -EACCES    the handle was opened without WEIR_MAY_READ
 *   -EMSGSIZE  WEIR_NOWAIT: more than 8192 bytes, or with READs more than fit the send memory
 *   -EINTR     interrupted while it waited: a part may be under way, which a flush ends
 *   -ENOMEM    no memory to note it
 * Blocks while the channel is full, the session lacks send memory, or 128 cells of the thread with
 * this handle are under way, unless WEIR_NOWAIT. Any thread.
 */
int weir_remote_get(struct weir_remote *r, uint64_t offset, void *buf, size_t length,
		    unsigned flags);

/* Behind a put that is visible, or a get whose bytes were read, follows a notice, which delivers
 * tag and source to the thread that exported the memory, */
#define WEIR_WITH_NOTICE 0x1u
/* or a signal: a 64-bit word of the export is set or added to, with release. */
#define WEIR_WITH_SIGNAL_SET 0x2u
#define WEIR_WITH_SIGNAL_ADD 0x4u

/*
 * A put or get with all that it may have. A field of 0 is unused. Layouts are relative to `buf` and
 * to `offset`; both describe as many bytes. They are read during the call. Pieces are bytes of
 * their own: where pieces of the destination overlap, it gets either.
 */
struct weir_transfer {
	uint64_t offset;
	void *buf;
	uint64_t length;		 /* contiguous bytes of an end without a layout */
	const struct weir_layout *here;	 /* pieces of the caller's memory */
	const struct weir_layout *there; /* pieces of the export */
	struct weir_op *op;		 /* is filled in */
	uint32_t flags;			 /* WEIR_NOWAIT, WEIR_AT_TARGET, WEIR_BEHIND, WEIR_KEEP */
	uint32_t notify;		 /* WEIR_WITH_*; not SET and ADD together */
	uint32_t tag, source;		 /* of the notice */
	uint64_t signal;		 /* offset of the signal's word, a multiple of 8 */
	uint64_t operand;		 /* the signal's: to set or to add */
};

/*
 * Puts what `t` describes. Nothing begins on an error, except as said there. A notice needs a
 * window, see weir_remote_notify(); weir_notice.bytes is the length of the transfer.
 *
 * Returns 0 (begun), or as weir_remote_put(), and
 *   -EINVAL  an invalid layout, ends of different lengths, pieces here that are no memory, unknown
 *            flags, a signal at no multiple of 8
 *   -ERANGE  a piece or the signal's word is not within the export
 *   -EACCES  the handle was opened without WEIR_MAY_WRITE, or with a notice or signal
 *            WEIR_MAY_NOTIFY
 *   -EINTR   interrupted while it waited: a part of the bytes may take effect, there is neither
 *            notice nor signal; put again
 * Blocks while the channel or the window is full, unless WEIR_NOWAIT. Any thread.
 */
int weir_remote_put_with(struct weir_remote *r, const struct weir_transfer *t);

/*
 * Gets what `t` describes. The pieces here are the library's until the operation has ended. Errors
 * and blocking as weir_remote_get() and weir_remote_put_with(); with WEIR_NOWAIT -EMSGSIZE also if
 * the pieces do not fit into one answer. Any thread.
 */
int weir_remote_get_with(struct weir_remote *r, const struct weir_transfer *t);

/* An update of `count` elements, one behind the other or as `there` describes. */
struct weir_update {
	uint64_t offset;     /* of the first, a multiple of the type's alignment */
	const void *operand; /* `count` packed elements; not read with WEIR_ACC_NO_OP */
	void *result;	     /* receives the values before, packed; NULL: not wanted */
	uint64_t count;
	const struct weir_layout *there; /* whole aligned elements, relative to offset; or NULL */
	struct weir_op *handle;		 /* is filled in; or NULL */
	uint32_t type, op;		 /* enum weir_type; enum weir_acc */
	uint32_t flags;	   /* WEIR_NOWAIT, WEIR_AT_TARGET, WEIR_BEHIND, WEIR_KEEP, or 0 */
	uint32_t reserved; /* 0 */
};

/*
 * Updates elements of the export: each becomes itself OP its operand. Operands are the caller's
 * again on return; `result` is the library's as the buffer of weir_remote_get() is.
 *
 * Returns 0 (begun), or as weir_remote_get(), and
 *   -EACCES    the handle was opened without WEIR_MAY_UPDATE
 *   -EINVAL    unknown type, operation not defined for it, offset not aligned, no operands; a
 *              layout that is invalid or not of `count` aligned elements
 *   -EMSGSIZE  WEIR_NOWAIT: more than 924 bytes of results, or there is never room for that many
 *              operands at once
 * Blocks as weir_remote_get(). No CPU updates long double, complex numbers and pairs by one
 * instruction, so the data plane does it in mapped memory, too, and the call waits until it is
 * done, even with WEIR_NOWAIT. Any thread.
 */
int weir_remote_update(struct weir_remote *r, const struct weir_update *u);

/*
 * Updates one element and fetches the value that it had: weir_remote_update() with count 1. With
 * WEIR_ACC_NO_OP it is an atomic read, and operand may be NULL. Errors and blocking are the same.
 */
int weir_remote_fetch_op(struct weir_remote *r, uint64_t offset, const void *operand, void *result,
			 enum weir_type type, enum weir_acc op, unsigned flags);

/*
 * One element of an integer type, WEIR_T_BOOL or WEIR_T_BYTE: becomes *operand if it equals
 * *compare. *result receives the value that it had; equal to *compare, the swap took place. Errors
 * and blocking as with weir_remote_update(); -EINVAL also for floating types.
 */
int weir_remote_compare_swap(struct weir_remote *r, uint64_t offset, const void *compare,
			     const void *operand, void *result, enum weir_type type,
			     unsigned flags);

/* ---- completion ---- */

/*
 * Waits until all operations of the calling thread with this handle are complete. With none under
 * way it writes nothing and returns at once.
 *
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns 0 (all took effect), -EAGAIN (not in this time), -EINTR, or how the export or the session
 * ended before they were complete, also if a struct weir_op has said so. Spins, yields, then
 * sleeps. Any thread.
 */
int weir_remote_flush(struct weir_remote *r, int timeout_ms);

/*
 * The same for operations with a result, and puts with WEIR_KEEP, alone: when it returns 0, all
 * results are there, and the memory of those puts is the caller's. Operations
 * before the last of them are complete, too. Errors and blocking as weir_remote_flush(). Any
 * thread.
 */
int weir_remote_flush_local(struct weir_remote *r, int timeout_ms);

/* A position among the operations of a thread with a handle: one mark frees many buffers. */
struct weir_mark {
	uint64_t internal[2];
};

/* Marks all operations that the calling thread has begun with r. Does not block. Any thread. */
void weir_remote_mark(struct weir_remote *r, struct weir_mark *m);
/*
 * 1: they are complete; 0: not yet, or they never will be: the connection ended, and a flush says
 * how. One load of memory that the data plane writes, unless operations with a result are among
 * them. Does not block. The thread that made the mark, until weir_remote_close().
 */
int weir_mark_done(const struct weir_mark *m);

/*
 * Handles of operations are for the thread that began them. Ended ones and those without an
 * operation (state 0) are valid: their status is the result.
 */

/* 1: ended, with op->status; 0: not yet. Does not block. */
int weir_op_test(struct weir_op *op);
/*
 * Waits until an operation has ended.
 *
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns its status, or -EAGAIN (not in this time), -EINTR, or the errors of every call
 * (weir/stream.h). Spins, yields, then sleeps.
 */
int weir_op_wait(struct weir_op *op, int timeout_ms);
/*
 * Waits until one of n operations has ended. Entries of NULL, without an operation, and those whose
 * end one of these calls has reported are skipped.
 *
 * Returns the index of one that has ended, or -ENOENT: none is left; -EINVAL: n is above INT_MAX;
 * else errors and blocking as weir_op_wait().
 */
int weir_op_wait_any(struct weir_op *const *ops, unsigned n, int timeout_ms);
/*
 * Waits until all of n operations have ended; entries may be NULL. Returns 0 when all have ended
 * with 0, or the first other status; else errors and blocking as weir_op_wait().
 */
int weir_op_wait_all(struct weir_op *const *ops, unsigned n, int timeout_ms);

/* ---- notices and signals ---- */

/*
 * Sends a notice without data: the thread that exported the memory gets `tag` and `source`, behind
 * all operations that this thread began with the handle before. It gets each notice exactly once,
 * even if queue pairs fail meanwhile. The data plane delivers it also where the memory is mapped.
 *
 * A notice uses 64 bytes of a flow-control window that the connection has for notices, and returns
 * them when it is taken: at first 8 notices may wait at the target, later 64.
 *
 * @tag, @source  for the receiver; the library does not look at them
 * @flags         WEIR_NOWAIT or 0
 *
 * Returns 0 (begun), or
 *   -EACCES  the handle was opened without WEIR_MAY_NOTIFY
 *   -EAGAIN  WEIR_NOWAIT: no room or no window now, or the thread's connection is still being made
 *   -EINTR   interrupted while it waited: the notice was not sent
 *   -EINVAL  unknown flags
 *   how the export or the session ended (above), or, with a thread's first operation, the errors of
 *   weir_remote_open().
 * Blocks while the channel or the window is full, unless WEIR_NOWAIT. Any thread.
 */
int weir_remote_notify(struct weir_remote *r, uint32_t tag, uint32_t source, unsigned flags);

/* A notice for an export of this thread. */
struct weir_notice {
	struct weir_export *x;
	uint32_t tag, source; /* as sent */
	uint64_t bytes;	      /* of the put or get that it came with, as its sender says; 0: none */
};

/*
 * Takes the oldest notice for any export that the calling thread has made. It acquires: loads of
 * this thread see what was put, updated or signalled before the notice was sent. weir_poll() and
 * weir_wait() report WEIR_EVENT_NOTICE when one comes and none waited.
 *
 * When a thread ends, the notices of its exports are lost, and their senders stop at their window:
 * revoke the exports. Revoked ones, and those that ended with their region, still get the notices
 * that were delivered before, until weir_revoke().
 *
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns 0 and *notice, -EAGAIN (none in this time), -EINTR, -EINVAL (no session or no place), or
 * the errors of every call (weir/stream.h), then after the last notice. Spins, yields, then sleeps.
 * Any thread.
 */
int weir_notice_next(struct weir *w, struct weir_notice *notice, int timeout_ms);

/* The word compared with `value`; both are unsigned. */
enum weir_compare {
	WEIR_EQ = 0,
	WEIR_NE = 1,
	WEIR_GT = 2,
	WEIR_GE = 3,
	WEIR_LT = 4,
	WEIR_LE = 5,
};

/*
 * Waits until a 64-bit word of an own export satisfies the comparison. It acquires: loads of this
 * thread see what its writer did before the signal, or before another store with release. Signals
 * wake a thread that sleeps here, and so do updates by the data plane, if the export has
 * WEIR_MAY_NOTIFY. Other stores, puts and updates of mapped memory are noticed within 2 ms.
 *
 * @offset      bytes from the start of the export; the word's address is a multiple of 8
 * @compare     `word compare value` ends the wait
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 * @seen        receives the value that ended the wait; may be NULL
 *
 * Returns 0, or
 *   -EAGAIN  not in this time
 *   -EINTR   interrupted
 *   -ERANGE  the word is not within the export
 *   -EINVAL  no export, its address is no multiple of 8, or an unknown comparison
 *   -ESTALE  the memory of the export was freed
 *   and the errors of every call (weir/stream.h), unless the word satisfies the comparison.
 * While it waits, weir_region_free() and weir_disown() of the region give -EBUSY, and no thread may
 * revoke the export. It ends neither with the export nor with its senders: give a time. Spins,
 * yields, then sleeps. Any thread.
 */
int weir_signal_wait(struct weir_export *x, uint64_t offset, enum weir_compare compare,
		     uint64_t value, int timeout_ms, uint64_t *seen);

/* ---- locks ---- */

#define WEIR_LOCK_SHARED 1    /* with others that are shared */
#define WEIR_LOCK_EXCLUSIVE 2 /* alone */

/*
 * Acquires the lock of an export for the calling thread and this handle. Each export has one lock,
 * which protects what its programs agree on: operations do not look at it. First come, first
 * served; shared requests that wait one behind the other enter together. It acquires: operations of
 * this thread see what former holders did before they unlocked.
 *
 * A lock ends with its holder: if the thread's connection ends, since its program died, closed the
 * handle, detached or was evicted, or its node is down, the lock passes on. If it was exclusive,
 * the next ones acquire with -EOWNERDEAD, until an exclusive one has: the data may be halfway
 * changed. Nobody takes it from a holder that lives; `weirctl show exports` names it.
 *
 * A thread that locks the same export through two handles waits for itself.
 *
 * @kind        WEIR_LOCK_SHARED or WEIR_LOCK_EXCLUSIVE
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait, which never suffices for memory of
 *              another node
 *
 * Returns 0, or
 *   -EOWNERDEAD  acquired, and its last exclusive holder ended with it: make the data consistent
 *   -EAGAIN      not within this time: the request was taken back
 *   -EINTR       likewise
 *   -EALREADY    this thread holds it already through this handle
 *   -EACCES      the handle was opened without WEIR_MAY_LOCK
 *   -EINVAL      unknown kind
 *   -ENOMEM      no memory to note it
 *   how the export or the session ended (above), or, with a thread's first operation, the errors of
 *   weir_remote_open().
 * Blocks: spins, yields, then sleeps. Any thread.
 */
int weir_remote_lock(struct weir_remote *r, int kind, int timeout_ms);

/*
 * Flushes the operations of the calling thread with this handle, then releases the lock. Operations
 * of the thread through other handles are flushed by weir_remote_flush(), before.
 *
 * @timeout_ms  milliseconds for the flush; below 0: no limit; 0: do not wait
 *
 * Returns 0, or
 *   -EAGAIN  not flushed within this time: the lock is still held
 *   -EINTR   likewise
 *   -ENOLCK  this thread does not hold it through this handle
 *   how the export or the session ended (above): the lock has ended with it.
 * Blocks for the flush, not for the release. Any thread.
 */
int weir_remote_unlock(struct weir_remote *r, int timeout_ms);

/* ---- memory of other nodes ---- */

/* Where memory is allocated. */
struct weir_where {
	uint16_t node;	   /* id; that of this node is allowed */
	int16_t numa_node; /* -1: any */
	uint32_t reserved; /* 0 */
};

/*
 * Allocates zeroed memory of another node, where the operator has started weir-lend(1). Its quota
 * bounds what it lends to all programs. The memory lives until weir_remote_free(), the end of this
 * session, or of either node, of their data planes, or of weir-lend; then the handle gets -ESTALE
 * or -ECONNRESET, as do those that other programs have opened by the key. weir_remote_close() alone
 * does not free it.
 *
 * @w           session handle
 * @where       node, copied
 * @bytes       at least 1; whole pages are lent
 * @timeout_ms  milliseconds; below 0: no limit; not 0
 * @remote      receives the handle, opened to read, write, update and lock; nobody there takes
 *              notices
 * @key         receives the key for other programs, with the same rights; may be NULL
 *
 * Returns 0, or
 *   -ECONNREFUSED  the node lends none
 *   -EDQUOT        weir-lend has lent as much as it may
 *   -ENOSPC, -ENOMEM, -EMFILE  the data plane there has no memory, region or export left
 *   -ETIMEDOUT     no answer in time
 *   -EINVAL        no bytes, no time, or `reserved` is not 0
 *   -EPROTO        weir-lend there is of another release
 *   or as weir_remote_open().
 * weir_reason() says what weir-lend said. Blocks. Any thread.
 */
int weir_remote_alloc(struct weir *w, const struct weir_where *where, uint64_t bytes,
		      int timeout_ms, struct weir_remote **remote, struct weir_key *key);

/*
 * Closes the handle and gives the memory back; operations that were begun may not take effect. NULL
 * is allowed. Returns 0, or -EINVAL: the handle is not of weir_remote_alloc(), and stays open. No
 * other thread may use the handle. Does not block.
 */
int weir_remote_free(struct weir_remote *r);

#ifdef __cplusplus
}
#endif
#endif
