/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program's own memory in the session: a range that was adopted is sent out of without a copy
 * (WEIR_ZERO_COPY), and messages are received right into it.
 */
#ifndef WEIR_MEMORY_H
#define WEIR_MEMORY_H

#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_region;

#define WEIR_ADOPT_SEND 0x1u /* messages are sent out of it */
#define WEIR_ADOPT_RECV 0x2u /* messages are received into it */

/*
 * Adopts [addr, addr + length), whole pages of ordinary memory (malloc, anonymous mmap), at most 64
 * MiB: the contents move into memory of the session, which then lies at the same addresses. Others
 * may read it meanwhile and see the contents, nobody may write: what is written during the call may
 * be lost. A forked child does not have it. Before the range is unmapped or given to free(), it
 * must be disowned. `flags`: WEIR_ADOPT_SEND, WEIR_ADOPT_RECV or both. 0 and *region, or -EINVAL
 * (not whole pages, flags), -EFAULT (not all of it is mapped), -EEXIST (a part is adopted already),
 * -EMFILE (regions), -ENOSPC (bytes) beyond the session's limits, -EDQUOT
 * beyond the user's, -ENOMEM.
 */
int weir_adopt(struct weir *w, void *addr, size_t length, unsigned flags,
	       struct weir_region **region);

/*
 * Ordinary memory with the contents lies at the same addresses again; the rules about threads are
 * those of weir_adopt(). Frees the handle. -EBUSY: a message that is sent out of it is not
 * complete, or memory of it is posted: nothing has changed. weir_detach() disowns all that is left.
 */
int weir_disown(struct weir_region *region);

/*
 * Gives back what sends with WEIR_CACHED have adopted of [addr, addr + length). The library keeps
 * 16 such ranges, those that were sent last. It notices by itself that a range was unmapped when
 * its first or last page is no longer the same, and only then. -EBUSY as weir_disown().
 */
int weir_uncache(struct weir *w, void *addr, size_t length);

/*
 * Posts memory of a region for receiving: the next message of c for which none is posted yet shall
 * come to lie there. Large ones are written there by the peer, and use no receive memory of the
 * session; others are copied there when they are received. At most 64 a connection, -EAGAIN beyond
 * that. The memory is the library's until its message was received, or c was closed and the region
 * disowned. -EINVAL: not inside a region that was adopted for receiving.
 */
int weir_recv_into(struct weir_conn *c, void *buf, size_t size, uint64_t cookie);

struct weir_placed {
	void *data; /* what weir_recv_into() was given */
	size_t length;
	uint64_t cookie;
};

/*
 * Receives the next message in the memory posted for it. Errors as weir_recv(); -EMSGSIZE: it is
 * larger than that, placed->length says how large; message and memory stay, and weir_recv() takes
 * it, which gives the memory back. -EINVAL: no memory is posted for it. weir_recv() and
 * weir_recv_loan() receive such messages too; the memory of these is the program's again.
 */
int weir_recv_placed(struct weir_conn *c, struct weir_placed *placed, int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
