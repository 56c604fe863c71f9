/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory to be shared with programs: sealed against shrinking and growing, present before anyone
 * works on it, on the wished NUMA socket, not inherited by fork().
 */
#ifndef WEIR_MEMFD_H
#define WEIR_MEMFD_H

#include <stddef.h>

#define MEMFD_HUGE_PAGE (2ul << 20)

/* A part of the memory that should lie on a NUMA socket (-1: anywhere). */
struct memfd_part {
	size_t offset, length;
	int numa_socket;
};

struct memfd {
	int fd;
	void *base;
	size_t bytes, page;
	size_t present; /* of bytes */
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

/* Unmaps what is mapped and closes. */
void memfd_close(struct memfd *m);

#endif
