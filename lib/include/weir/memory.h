/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the session that is the program's own: regions. The NIC sends directly from them
 * (WEIR_ZERO_COPY) and receives directly into them, without a copy. A program allocates regions, or
 * adopts ranges of memory that it has already; both is what libibverbs calls registering a memory
 * region, and is done once, for all NICs.
 */
#ifndef WEIR_MEMORY_H
#define WEIR_MEMORY_H

#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Valid until weir_region_free(), weir_disown() or weir_detach(). */
struct weir_region;

/* Uses of a region: flags of weir_adopt(). An allocated region has all of them. */
#define WEIR_ADOPT_SEND 0x1u   /* messages are sent from it */
#define WEIR_ADOPT_RECV 0x2u   /* messages are received into it */
#define WEIR_ADOPT_EXPOSE 0x4u /* it may be made accessible to other programs */

/* ---- allocated regions ---- */

/* Flags of struct weir_alloc_options. */
#define WEIR_ALLOC_HUGE_1G 0x1u	 /* use 1 GiB pages, else 2 MiB pages, else ordinary pages */
#define WEIR_ALLOC_ORDINARY 0x2u /* use ordinary pages */
#define WEIR_ALLOC_EXACT 0x4u	 /* fail with -EEXIST if `address` is occupied */

struct weir_alloc_options {
	uint32_t flags;	   /* WEIR_ALLOC_* */
	int32_t numa_node; /* preferred NUMA node; -1: that of the calling thread */
	void *address;	   /* requested address in this process; NULL: any */
};

/*
 * Allocates memory of the session: zeroed, populated, registered with every NIC, and usable for
 * WEIR_ADOPT_SEND, WEIR_ADOPT_RECV and WEIR_ADOPT_EXPOSE. A forked child does not inherit it.
 *
 * Unless the options say otherwise, a region of 2 MiB and more is on pages of 2 MiB if enough are
 * free, else on ordinary ones. Larger pages than the region, or than `address` is a multiple of
 * with WEIR_ALLOC_EXACT, are not used. Too few free pages of a size are no error;
 * weir_region_info() tells which ones the region has.
 *
 * The call takes about as long as writing the memory. The data plane serves other programs
 * meanwhile; requests of other threads of this program, such as weir_connect(), wait.
 *
 * @w        session handle
 * @bytes    size, rounded up to whole pages; at most 2^47
 * @options  NULL: no flags, the NUMA node of the calling thread, any address
 * @region   receives the handle, freed by weir_region_free() or weir_detach()
 *
 * Returns 0, or
 *   -EINVAL  bytes, flags, NUMA node or address are invalid
 *   -EEXIST  WEIR_ALLOC_EXACT: the addresses are not free
 *   -EMFILE  the session has no region left (--regions)
 *   -ENOSPC  the limit of all regions of the session would be exceeded (--memory), or that of all
 *            programs
 *   -EDQUOT  a limit of the user would be exceeded
 *   -ENOMEM  no memory
 *   and the errors of every call (weir/stream.h).
 * Blocks. Any thread.
 */
int weir_region_alloc(struct weir *w, uint64_t bytes, const struct weir_alloc_options *options,
		      struct weir_region **region);

/*
 * Frees an allocated region and its handle. Its addresses are the program's at once; what peers
 * still read or write lies in memory that no program owns. weir_detach() frees all remaining
 * regions.
 *
 * Returns 0, or -EBUSY if a message sent from the region is not complete, a part of it is posted
 * for receiving or a thread waits for a signal there (weir_signal_wait()), or -EINVAL for an
 * adopted region. On failure nothing has changed. Any thread.
 */
int weir_region_free(struct weir_region *region);

struct weir_region_info {
	void *base;
	uint64_t bytes, page; /* of the region, of one of its pages */
	int32_t numa_node;    /* of the first page; -1: unknown */
	uint32_t flags;	      /* WEIR_ADOPT_* */
};

/* Describes a region, allocated or adopted. Does not block. Any thread. */
void weir_region_info(const struct weir_region *region, struct weir_region_info *info);

/* ---- adopted regions ---- */

/*
 * Adopts a range of whole pages of ordinary memory (malloc(), anonymous mmap(), static data). The
 * contents move into memory of the session, which then replaces the range at the same addresses.
 * During the call other threads may read the range and see its contents, but must not write to it:
 * such writes may be lost. A forked child does not inherit the range.
 *
 * Parts of pages, stacks and memory shared with other processes or files cannot be adopted: copy to
 * a region of weir_region_alloc().
 *
 * The program must disown the range before it unmaps it or passes it to free() or realloc().
 *
 * @w       session handle
 * @addr    start of the range, page-aligned
 * @length  bytes, a multiple of the page size
 * @flags   WEIR_ADOPT_*, one or more
 * @region  receives the handle, freed by weir_disown() or weir_detach()
 *
 * Returns 0, or
 *   -EINVAL  the range is not whole pages of ordinary memory, or the flags are invalid
 *   -EFAULT  a part of the range is not mapped
 *   -EEXIST  a part of the range is adopted already
 *   -EMFILE  the session has no region left
 *   -ENOSPC  the session's limit of adopted bytes or of all regions would be exceeded
 *   -EDQUOT  a limit of the user would be exceeded
 *   -ENOMEM  no memory
 *   and the errors of every call (weir/stream.h).
 * Blocks until the data plane answers. Where a limit is reached while a disowned range is still in
 * use by an engine, the data plane waits for that range, at most a second. Any thread.
 */
int weir_adopt(struct weir *w, void *addr, size_t length, unsigned flags,
	       struct weir_region **region);

/*
 * Turns an adopted range back into ordinary memory with the same contents at the same addresses,
 * and frees the handle. As with weir_adopt(), no thread may write to the range during the call.
 * weir_detach() disowns all remaining ranges.
 *
 * Returns 0, or -EBUSY if a message sent from the range is not complete, a part of the range is
 * posted for receiving or a thread waits for a signal there (weir_signal_wait()), or -ENOMEM, or
 * -EINVAL for an allocated region. On failure nothing has changed. Any thread.
 */
int weir_disown(struct weir_region *region);

/*
 * Disowns the ranges within [addr, addr + length) that sends with WEIR_CACHED have adopted. The
 * library caches 16 such ranges and evicts the least recently sent one. It detects an unmapped
 * range only if the range's first or last page has changed, so the program must call this before
 * it unmaps or frees the memory.
 *
 * Returns 0, or -EBUSY as weir_disown(). Any thread.
 */
int weir_uncache(struct weir *w, void *addr, size_t length);

/*
 * Posts a buffer inside a region for the next message of the connection that has no posted
 * buffer yet. The peer writes large messages directly into the buffer, without using the session's
 * receive memory; the library copies other messages into it when they are received.
 *
 * The library owns the buffer until its message has been received, or until the connection is
 * closed and the region disowned. At most 64 buffers are posted per connection.
 *
 * @c       connection
 * @buf     buffer inside one region with WEIR_ADOPT_RECV
 * @size    bytes
 * @cookie  returned in struct weir_placed
 *
 * Returns 0, or
 *   -EINVAL  the buffer is not inside one region for receiving
 *   -EAGAIN  64 buffers are posted already; receive first
 *   -ENOMEM  no memory
 *   or how the connection ended, once all its messages have been received.
 * Does not block. Only one thread at a time may receive on a connection.
 */
int weir_recv_into(struct weir_conn *c, void *buf, size_t size, uint64_t cookie);

/* A message received by weir_recv_placed(). */
struct weir_placed {
	void *data;	   /* the buffer passed to weir_recv_into() */
	size_t length;	   /* bytes of the message */
	uint64_t cookie;   /* the cookie passed to weir_recv_into() */
	uint64_t reserved; /* 0 */
};

/*
 * Receives the next message into the buffer posted for it; the program owns the buffer again.
 * weir_recv() and weir_recv_loan() may also receive such a message, and release its buffer.
 *
 * @c           connection
 * @placed      receives the buffer, length and cookie
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns 0, the errors of weir_recv(), or
 *   -EMSGSIZE  the message is larger than the buffer. placed->length holds its size; message and
 *              buffer stay, and weir_recv() takes the message and releases the buffer
 *   -EINVAL    no buffer is posted for the next message
 * Only one thread at a time may receive on a connection.
 */
int weir_recv_placed(struct weir_conn *c, struct weir_placed *placed, int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
