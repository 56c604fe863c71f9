/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Remote memory: a program exports a range of its memory and obtains a key. A program that holds
 * the key opens it and puts bytes there, on the same host or another one. The exporting program
 * takes no part: it may sleep, compute or be stopped. The range is memory of a region
 * (weir/memory.h). docs/remote.md is the guide.
 *
 * Units are bytes. `offset` counts from the start of the export.
 *
 * Completion: a put returns before it is complete. It is complete when every load on the target's
 * host observes it. weir_remote_flush() waits for all operations of the calling thread on a handle.
 *
 * Order: puts of one thread with one handle take effect in program order. A put of 1, 2, 4 or 8
 * bytes to an offset that makes its address a multiple of its length is not torn.
 *
 * Failure: -ECONNRESET: the exporting program ended. -EHOSTDOWN: its node is down. -ESTALE: the
 * export was revoked, or its region freed. -ENODEV, -ECONNABORTED, -ENOTCONN: this session ended,
 * as in weir/stream.h. A put under way at that moment took effect, did not, or did in part. Every
 * later call on the handle returns the same error.
 *
 * Threads: any, without locks. Each thread has a connection of its own to the export, made by its
 * first operation, which takes as long as weir_connect().
 *
 * After MPI 3.1, chapter 11 (put, flush, the order of accumulates), and foMPI (Gerstenberger,
 * Besta, Hoefler: Enabling Highly-Scalable Remote Memory Access Programming with MPI-3 One Sided).
 */
#ifndef WEIR_REMOTE_H
#define WEIR_REMOTE_H

#include "memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- exporting ---- */

#define WEIR_MAY_WRITE 0x2u /* weir_remote_put() */

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
 * WEIR_ADOPT_EXPOSE. A region may have several exports, also overlapping ones.
 *
 * @region  of this session
 * @offset  bytes from the start of the region
 * @length  bytes, at least 1
 * @rights  WEIR_MAY_*, at least one
 * @x       receives the handle
 * @key     receives the key
 *
 * Returns 0, or
 *   -EINVAL  the range is not within the region, or the rights are invalid
 *   -EACCES  the region was not adopted with WEIR_ADOPT_EXPOSE
 *   -EMFILE  the session has no export left (--exports)
 *   -ENOMEM  no memory
 *   and the errors of every call (weir/stream.h).
 * Blocks until the data plane answers. Any thread.
 */
int weir_export(struct weir_region *region, uint64_t offset, uint64_t length, unsigned rights,
		struct weir_export **x, struct weir_key *key);

/*
 * Revokes an export and frees its handle. No operation begins after the data plane has taken the
 * request, and none is under way when the call returns 0; the handles that opened it get -ESTALE.
 * weir_region_free() and weir_disown() revoke all exports of their region, whose handles stay valid
 * until this call. weir_detach() revokes and frees all.
 *
 * Returns 0; the same if the export ended before, or with its session. Else the errors of every
 * call (weir/stream.h), and the handle stays valid. Blocks until the data plane answers. Any
 * thread.
 */
int weir_revoke(struct weir_export *x);

/* ---- opening ---- */

struct weir_remote; /* valid until weir_remote_close() or weir_detach() */

/*
 * Opens a key for the operations that `rights` name.
 *
 * @w           session handle
 * @key         as weir_export() returned it
 * @rights      WEIR_MAY_*, at least one
 * @timeout_ms  milliseconds until -ETIMEDOUT; below 0: no limit but that of the link (5 s); 0: the
 *              call does not wait, and the first operation says how the opening ended
 * @remote      receives the handle
 *
 * Returns 0, or
 *   -EKEYREJECTED  there is no such export, or the key is not as it was made
 *   -EACCES        the key does not grant these rights
 *   -EINVAL        unknown rights
 *   -EHOSTUNREACH, -EHOSTDOWN, -ETIMEDOUT, -ECONNREFUSED, -ENOSPC, -EMFILE, -EDQUOT  as
 *                  weir_connect(); -EMFILE also if the exporting session has no connection left
 *   and the errors of every call (weir/stream.h).
 * Blocks. Any thread.
 */
int weir_remote_open(struct weir *w, const struct weir_key *key, unsigned rights, int timeout_ms,
		     struct weir_remote **remote);

/*
 * Closes a handle. Puts that were begun still take effect, unless the connection fails. No other
 * thread may use the handle. NULL is allowed. Does not block.
 */
void weir_remote_close(struct weir_remote *r);

struct weir_remote_info {
	uint64_t length; /* of the export; 0: not open yet */
	uint32_t rights; /* WEIR_MAY_*, as opened */
	uint16_t node;	 /* of the export */
	uint16_t local;	 /* 1: it is on this host */
};

/* Describes what was opened. Does not block. Any thread. */
void weir_remote_info(const struct weir_remote *r, struct weir_remote_info *info);

/* ---- operations ---- */

#define WEIR_NOWAIT 0x1u /* -EAGAIN instead of waiting for room: the operation did not begin */

/*
 * Writes `length` bytes of `buf` to the export. The buffer is the caller's again on return.
 *
 * @flags  WEIR_NOWAIT or 0
 *
 * Returns 0 (begun), or
 *   -ERANGE    a byte would lie outside the export
 *   -EACCES    the handle was opened without WEIR_MAY_WRITE
 *   -EINVAL    unknown flags
 *   -EAGAIN    WEIR_NOWAIT: no room now, or the thread's connection is still being made
 *   -EMSGSIZE  WEIR_NOWAIT: there is never room for that many bytes at once
 *   -EINTR     interrupted while it waited: a part of the bytes may take effect; put again
 *   how the export or the session ended (above), or, with a thread's first operation, the errors of
 *   weir_remote_open().
 * Blocks while the channel is full, unless WEIR_NOWAIT. Any thread.
 */
int weir_remote_put(struct weir_remote *r, uint64_t offset, const void *buf, size_t length,
		    unsigned flags);

/* ---- completion ---- */

/*
 * Waits until all operations of the calling thread with this handle are complete. With none under
 * way it writes nothing and returns at once.
 *
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns 0 (all took effect), -EAGAIN (not in this time), -EINTR, or how the export or the session
 * ended before they were complete. Spins, yields, then sleeps. Any thread.
 */
int weir_remote_flush(struct weir_remote *r, int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
