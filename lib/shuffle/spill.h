/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of a shuffle in one process. One unnamed file per directory; one or two threads write what
 * any threads queue, and gather it into large writes. Extents begin at multiples of SPILL_ALIGN.
 *
 * Writes go around the page cache where the file system says how (O_DIRECT, STATX_DIOALIGN);
 * elsewhere they leave it when they are on disk. Reads go around it if their memory and offset are
 * multiples of SPILL_ALIGN: several times as fast as through it.
 *
 * Memory: one buffer of SPILL_BUFFER_LEAST ... SPILL_BUFFER_MOST bytes per thread, within the
 * caller's budget, and the stacks, and 48 bytes per freed extent, of at most 4,096. In a forked
 * child calls return -ENOTCONN or do nothing, but for spill_close(), which closes the child's
 * descriptors.
 */
#ifndef WEIR_SHUFFLE_SPILL_H
#define WEIR_SHUFFLE_SPILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define SPILL_ALIGN 4096u		/* bytes */
#define SPILL_BUFFER_LEAST (256u << 10) /* bytes */
#define SPILL_BUFFER_MOST (4u << 20)	/* bytes */
#define SPILL_WRITERS_MAX 2u		/* threads */
#define SPILL_DIRECTORIES_MAX 16u

struct spill;

struct extent {
	uint64_t offset, bytes;
	uint32_t file; /* number of the directory */
};

/* A write, in memory of the caller that stays until it is done. */
struct spill_ticket {
	const struct iovec *iov; /* data, of at least 1 byte; stays too */
	unsigned parts;
	/* Runs in a writer's thread, or in spill_close(), when the write is done; the ticket is the
	 * caller's from its first instruction on. It may call all of these functions but
	 * spill_close(), and does not wait. NULL: the caller asks spill_wait(). */
	void (*done)(struct spill_ticket *t);
	struct extent extent; /* where the data are, if they have been written */
	/* the rest is private */
	struct spill_ticket *next;
	int rc;
	bool finished; /* under the lock of the spill */
};

/*
 * Opens a file in each directory (a list that ends with NULL) for `max` bytes in all of them, with
 * at most `memory` bytes for buffers. Writes a page for trial.
 *
 * Returns 0, or with the directory in weir_reason(): -EINVAL: it does not exist, or there are none
 * or too many; -EACCES: it cannot be written; -ENOSPC: it is full; other errors of open(); -ENOMEM:
 * `memory` is less than SPILL_BUFFER_LEAST, or none is left; -EAGAIN: no thread.
 */
int spill_open(const char *const *directories, uint64_t max, size_t memory, struct spill **spill);

/* Queued writes fail with -ECANCELED, others end; the files vanish. Nobody uses the spill any more.
 * NULL is allowed. */
void spill_close(struct spill *s);

/* Queues a write, of which iov, parts and done are set. Does not block. 0, or -ENOSPC: more than
 * `max` bytes. Any thread. */
int spill_write(struct spill *s, struct spill_ticket *t);

/*
 * Waits until a write is done, at most timeout_ms (0: do not wait, below 0: no limit). Returns 0;
 * -EAGAIN: not yet; -ENOSPC: all directories are full; -EIO or another error of its file system,
 * with the directory in weir_reason(); -ECANCELED. Any thread.
 */
int spill_wait(struct spill *s, struct spill_ticket *t, int timeout_ms);

/* Reads `bytes` at `offset` of an extent. 0; -EIO, also if the file is too short, or another error,
 * with the directory in weir_reason(). Blocks for the disk. Any thread. */
int spill_read(struct spill *s, const struct extent *e, uint64_t offset, void *to, size_t bytes);

/*
 * Frees an extent, which gives its bytes back at once; a writer's thread frees the space when it
 * has nothing to write or finds no space. The caller waits for the disk only while thousands wait
 * for that. Where a file system cannot free parts of a file, the bytes count again until all
 * extents of the file are free. Any thread.
 */
void spill_free_extent(struct spill *s, const struct extent *e);

/* Bytes that count towards `max`: extents and queued writes, each in multiples of SPILL_ALIGN. */
uint64_t spill_used(struct spill *s);

#endif
