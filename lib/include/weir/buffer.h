/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered buffers: allocators over regions (weir/memory.h), for data to send, put or get without
 * a copy. No allocator registers memory: its region was registered once. After Seriema's RDMA
 * memory.
 *
 *   struct weir_chunks    pieces of regions, which the other allocators cut further
 *   struct weir_circular  for a thread that transmits: recycles what it sent, in order
 *   struct weir_pool      pieces of one size
 *   struct weir_general   pieces of any size
 *
 * Contents: memory of a new region is zeroed; what is handed out again has its former contents.
 * The allocators keep their records outside, so nothing that is written to the memory, by this
 * program or a peer, damages them.
 *
 * Lifetime: allocators are destroyed before their chunks, and chunks before weir_detach(). All
 * pieces of an allocator end with it. A forked child has none of the memory: functions that
 * hand out memory return NULL there with ENOTCONN, others do nothing.
 *
 * The session's end: the memory stays until weir_detach(). With WEIR_REATTACH, new regions are of
 * the new session. Memory of a former one is used on; the library copies what is sent from there.
 *
 * Preconditions: a piece is released once, to the allocator that it is of, when all operations on
 * it have ended. A release build does not check them.
 */
#ifndef WEIR_BUFFER_H
#define WEIR_BUFFER_H

#include "remote.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- chunks ---- */

/* Chunks of equal size, cut from regions that are allocated on demand. Any thread. */
struct weir_chunks; /* valid until weir_chunks_destroy() */

/* Initialize with WEIR_CHUNKS_OPTIONS_INIT, then change single fields. */
struct weir_chunks_options {
	uint64_t chunk;	   /* bytes per chunk, a power of two from 4 KiB on; 0: 2 MiB */
	uint64_t step;	   /* bytes per region; 0: 1 GiB, or less if a limit requires it */
	uint64_t most;	   /* bytes of all chunks; 0: the limits of the session alone */
	int32_t numa_node; /* -1: that of the thread for which a region is allocated */
	uint32_t flags;	   /* WEIR_ALLOC_HUGE_1G, WEIR_ALLOC_ORDINARY or 0 */
	uint64_t more[4];  /* 0 */
};
#define WEIR_CHUNKS_OPTIONS_INIT                                                                   \
	{                                                                                          \
		0, 0, 0, -1, 0,                                                                    \
		{                                                                                  \
			0, 0, 0, 0                                                                 \
		}                                                                                  \
	}

/*
 * Makes an allocator of chunks. It has no region yet.
 *
 * @w        session handle
 * @options  NULL: defaults
 * @chunks   receives the allocator, freed by weir_chunks_destroy()
 *
 * Returns 0, or
 *   -EINVAL  chunk is no power of two or below 4 KiB; step or most is below chunk; a region would
 *            have 2^20 chunks or more; NUMA node, flags or `more` are invalid
 *   -ENOMEM  no memory
 * Does not block. Any thread.
 */
int weir_chunks_create(struct weir *w, const struct weir_chunks_options *options,
		       struct weir_chunks **chunks);

/*
 * Frees all regions. Regions from which messages are still being sent, that a window uses or where
 * a thread waits for a signal, stay until weir_detach(). No thread uses the chunks any more. NULL
 * is allowed. Blocks until the data plane answers.
 */
void weir_chunks_destroy(struct weir_chunks *c);

/*
 * Returns a chunk, or NULL and errno:
 *   ENOSPC    `most`, or the limit of the session (--memory) or of all programs, would be exceeded
 *   EDQUOT    a limit of the user would be exceeded
 *   ENOMEM    no memory
 *   EMFILE    the session has no region left (--regions)
 *   ENOTCONN  in a forked child
 *   and the errors of every call (weir/stream.h).
 * Lock-free, unless a region must be allocated: then it blocks as weir_region_alloc(), and so do
 * other threads that find no free chunk. With `step` 0 it tries smaller regions down to one chunk.
 * Any thread.
 */
void *weir_chunk_get(struct weir_chunks *c);

/* Gives a chunk back. Regions stay. NULL is allowed. Lock-free; does not block. Any thread. */
void weir_chunk_put(struct weir_chunks *c, void *chunk);

/*
 * Finds the region and offset of an address in any allocator over these chunks, to export the
 * memory or a whole region.
 *
 * Returns 0 with *region and *offset, or -ENOENT: the address is not in these chunks. Takes
 * O(log regions), no lock; does not block. Any thread.
 */
int weir_chunk_where(struct weir_chunks *c, const void *at, struct weir_region **region,
		     uint64_t *offset);

/* ---- circular ---- */

/*
 * A circular buffer hands out units in turn. A unit is free when all operations posted from it are
 * complete: one mark (weir/remote.h) reports this for all that was posted before it. If the next
 * unit is busy, the buffer grows by chunks up to `most` units; then it fails with ENOBUFS.
 *
 * A buffer belongs to one thread, as do the marks of its operations. Buffers that serve several
 * remotes wait for the slowest one; a buffer per remote does not.
 */
struct weir_circular; /* valid until weir_circular_destroy() */

/* Initialize with WEIR_CIRCULAR_OPTIONS_INIT, then change single fields. */
struct weir_circular_options {
	uint32_t unit;	   /* bytes; a power of two, 64 to the chunk size */
	uint32_t first;	   /* units at creation, at least 1 */
	uint32_t most;	   /* maximum units; first or more */
	uint32_t growth;   /* percent per step, at least a unit; 0: doubles */
	uint32_t linear;   /* 1: consecutive requests share a unit; 0: each has its own */
	uint32_t reserved; /* 0 */
	uint64_t more[4];  /* 0 */
};
#define WEIR_CIRCULAR_OPTIONS_INIT                                                                 \
	{                                                                                          \
		4096, 64, 4096, 0, 0, 0,                                                           \
		{                                                                                  \
			0, 0, 0, 0                                                                 \
		}                                                                                  \
	}

/*
 * Makes a circular buffer of `first` units.
 *
 * @c        chunks, which outlive the buffer
 * @options  NULL: 64 to 4096 units of 4 KiB
 * @q        receives the buffer, freed by weir_circular_destroy()
 *
 * Returns 0, or
 *   -EINVAL  an option is invalid
 *   -ENOMEM  no memory
 *   and the errors of weir_chunk_get(). Blocks as that. Any thread.
 */
int weir_circular_create(struct weir_chunks *c, const struct weir_circular_options *options,
			 struct weir_circular **q);

/*
 * Frees the buffer; its chunks are handed out again. All operations from its memory have ended.
 * NULL is allowed. Does not block.
 */
void weir_circular_destroy(struct weir_circular *q);

/*
 * Returns `bytes` of a unit (0: as 1), aligned to 64 bytes, with `linear` to 16. NULL and errno:
 *   EMSGSIZE  more than a unit
 *   ENOBUFS   no unit is free and the buffer does not grow: flush a remote, or release, and repeat
 *   ENOTCONN  in a forked child
 * If chunks, or memory for its records, cannot be had, the buffer grows no further than chunks that
 * others release. Blocks only while it grows, as weir_chunk_get().
 */
void *weir_circular_get(struct weir_circular *q, uint32_t bytes);

/*
 * Ties all memory obtained since the last call to this thread's operations on r so far: call it
 * behind them. Until then the memory is not handed out again. Memory that was posted to several
 * remotes is tied by a call for each, with no other call on the buffer in between.
 *
 * If r's connection ended, what is tied to it stays busy until weir_circular_forget(). Does not
 * block, unless no memory is left to note the mark: then it flushes r.
 */
void weir_circular_posted(struct weir_circular *q, struct weir_remote *r);

/*
 * Regards all that is tied to r as complete: after a flush of r has returned 0 or how the
 * connection ended. Must be called before weir_remote_close(r), unless the buffer is destroyed
 * before. Takes time for each mark that is not seen done yet. Does not block.
 */
void weir_circular_forget(struct weir_circular *q, const struct weir_remote *r);

/*
 * Keeps the unit of `at` from being handed out again, whatever is complete, until it was released
 * as often as it was held. The other units are handed out meanwhile. `at` was obtained and not
 * handed out again. Does not block.
 */
void weir_circular_hold(struct weir_circular *q, void *at);
void weir_circular_release(struct weir_circular *q, void *at);

/* ---- pool ---- */

/* Pieces of one size. Any thread; each thread caches up to `keep` pieces. */
struct weir_pool; /* valid until weir_pool_destroy() */

/*
 * Makes a pool, which has no chunk yet.
 *
 * @c      chunks, which outlive the pool
 * @bytes  of a piece, 1 to the chunk size; pieces are multiples of 64 bytes, and aligned so
 * @keep   pieces that each thread may keep for itself; 0: none
 * @p      receives the pool, freed by weir_pool_destroy()
 *
 * Returns 0, or -EINVAL (bytes), -ENOMEM, -EAGAIN (the process has no thread-specific key left).
 * Does not block. Any thread.
 */
int weir_pool_create(struct weir_chunks *c, uint32_t bytes, uint32_t keep, struct weir_pool **p);

/*
 * Frees the pool; its chunks are handed out again. No thread uses the pool, or ends, during the
 * call. NULL is allowed. Does not block.
 */
void weir_pool_destroy(struct weir_pool *p);

/*
 * Returns a piece, or NULL and errno as weir_chunk_get(). Takes no lock while the thread's cache
 * has one; blocks while a region is allocated. Any thread.
 */
void *weir_pool_get(struct weir_pool *p);

/*
 * Gives a piece back. Any thread; what a thread keeps returns to the pool when it ends. NULL is
 * allowed. Does not block, but for a short lock if the cache is full.
 */
void weir_pool_put(struct weir_pool *p, void *at);

/* ---- general ---- */

/*
 * Pieces of any size: best fit by size classes in bounded time, aligned to 64 bytes. A piece of at
 * most a chunk lies in one; larger ones get a region of their own, which is cut and joined like a
 * chunk later. Any thread.
 */
struct weir_general; /* valid until weir_general_destroy() */

/*
 * Makes an allocator, which has no chunk yet.
 *
 * @c  chunks, which outlive the allocator
 * @h  receives the allocator, freed by weir_general_destroy()
 *
 * Returns 0, -EINVAL (chunks above 64 GiB) or -ENOMEM. Does not block. Any thread.
 */
int weir_general_create(struct weir_chunks *c, struct weir_general **h);

/*
 * Frees the allocator; its chunks are handed out again. No thread uses it any more. NULL is
 * allowed. Does not block.
 */
void weir_general_destroy(struct weir_general *h);

/*
 * Returns at least `bytes` (0: as 1), or NULL and errno as weir_chunk_get(). ENOSPC also for a
 * piece above 64 GiB, and where one allocator would have 256 GiB. Takes a lock, under which it
 * blocks while a region is allocated. Any thread.
 */
void *weir_general_get(struct weir_general *h, uint64_t bytes);

/* Gives a piece back and joins it with free neighbours. NULL is allowed. Takes the lock. Any
 * thread. */
void weir_general_put(struct weir_general *h, void *at);

#ifdef __cplusplus
}
#endif
#endif
