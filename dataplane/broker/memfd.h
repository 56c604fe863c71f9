/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory to be shared with programs: sealed against shrinking and growing, present before anyone
 * works on it, on the wished NUMA socket, not inherited by fork().
 */
#ifndef WEIR_MEMFD_H
#define WEIR_MEMFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMFD_HUGE_PAGE (2ul << 20)
/* Bytes that are made or released at a time, but for a whole page: some 100 us. */
#define MEMFD_PIECE (256ul << 10)

/* A part of the memory that should lie on a NUMA socket (-1: anywhere). */
struct memfd_part {
	size_t offset, length;
	int numa_socket;
};

struct memfd {
	int fd; /* may be sent to programs */
	void *base;
	size_t bytes, page;
	size_t mapped, present; /* of bytes */
	bool apart;		/* being released: fd is a description that no program has */
	uint64_t leased; /* being released: ns, no program can open it since then; 0: one may */
};

/*
 * Makes, binds and populates `bytes` of zeroes, on huge pages if `huge` and enough are free. 0 and
 * *m (free with memfd_close()), or -errno.
 */
int memfd_open(const char *name, size_t bytes, int huge, const struct memfd_part *parts,
	       unsigned part_count, struct memfd *m);

/* The same in pieces, for what shall not stop all else: nothing of it is present yet. */
int memfd_begin(const char *name, size_t bytes, int huge, const struct memfd_part *parts,
		unsigned part_count, struct memfd *m);
/* Populates the next `most` bytes. 1: there are more; 0: all are present, sealed; or -errno. */
int memfd_go_on(struct memfd *m, size_t most);

/*
 * Releases it as it was made, `most` bytes at a time. 1: there is more; 0: its memory is free and
 * *m is closed; -EBUSY: a program has a descriptor or a mapping still, try again later. While a
 * program has one, nothing is done that could wait for that program.
 */
int memfd_release(struct memfd *m, size_t most);
/* Takes it out of *m, which is empty then. */
struct memfd memfd_move(struct memfd *m);
/* Unmaps what is mapped and closes, in one go. */
void memfd_close(struct memfd *m);

#endif
