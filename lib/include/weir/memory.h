/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * User memory. A program adopts ranges of its own memory into the session: the NIC then sends
 * directly from them (WEIR_ZERO_COPY) and receives directly into them, without a copy. Adopting a
 * range is what libibverbs calls registering a memory region.
 */
#ifndef WEIR_MEMORY_H
#define WEIR_MEMORY_H

#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_region; /* an adopted range; valid until weir_disown() or weir_detach() */

/* Flags of weir_adopt(). */
#define WEIR_ADOPT_SEND 0x1u /* messages are sent from the range */
#define WEIR_ADOPT_RECV 0x2u /* messages are received into the range */

/*
 * Adopts a range of whole pages of ordinary memory (malloc(), anonymous mmap()), at most 64 MiB.
 * The contents move into memory of the session, which then replaces the range at the same
 * addresses. During the call other threads may read the range and see its contents, but must not
 * write to it: such writes may be lost. A forked child does not inherit the range.
 *
 * The program must disown the range before it unmaps it or passes it to free() or realloc().
 *
 * @w       session handle
 * @addr    start of the range, page-aligned
 * @length  bytes, a multiple of the page size
 * @flags   WEIR_ADOPT_SEND, WEIR_ADOPT_RECV or both
 * @region  receives the handle, freed by weir_disown() or weir_detach()
 *
 * Returns 0, or
 *   -EINVAL  the range is not whole pages, or the flags are invalid
 *   -EFAULT  a part of the range is not mapped
 *   -EEXIST  a part of the range is adopted already
 *   -EMFILE  the session has no region left
 *   -ENOSPC  the session's limit of adopted bytes would be exceeded
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
 * Returns 0, or -EBUSY if a message sent from the range is not complete or a part of the range is
 * posted for receiving, or -ENOMEM. On failure nothing has changed. Any thread.
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
 * Posts a buffer inside an adopted range for the next message of the connection that has no posted
 * buffer yet. The peer writes large messages directly into the buffer, without using the session's
 * receive memory; the library copies other messages into it when they are received.
 *
 * The library owns the buffer until its message has been received, or until the connection is
 * closed and the region disowned. At most 64 buffers are posted per connection.
 *
 * @c       connection
 * @buf     buffer inside one region adopted with WEIR_ADOPT_RECV
 * @size    bytes
 * @cookie  returned in struct weir_placed
 *
 * Returns 0, or
 *   -EINVAL  the buffer is not inside one region adopted for receiving
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
