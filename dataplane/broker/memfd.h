/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory to share with programs: sealed against shrinking and growing, populated before use, on the
 * wanted NUMA socket, not inherited by fork().
 */
#ifndef WEIR_MEMFD_H
#define WEIR_MEMFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMFD_HUGE_PAGE (2ul << 20)
#define MEMFD_GIGANTIC_PAGE (1ul << 30)
/* Bytes made or released at a time, at least a page: some 100 us. */
#define MEMFD_PIECE (256ul << 10)

/* A part of the memory that should lie on a NUMA socket (-1: anywhere). */
struct memfd_part {
	size_t offset, length;
	int numa_socket;
};

/* The largest pages to be tried; smaller ones where too few of them are free. */
enum memfd_pages {
	MEMFD_ORDINARY,
	MEMFD_HUGE,	/* 2 MiB */
	MEMFD_GIGANTIC, /* 1 GiB, for whole ones */
};

struct memfd {
	int fd; /* may be sent to programs */
	void *base;
	size_t bytes, page;
	size_t mapped, present; /* bytes */
	bool apart;		/* released: fd is a description that no program has */
	uint64_t leased;	/* released: ns, no program can open it since then; 0: not leased */
};

/* Makes, binds and populates `bytes` of zeroes. 0 and *m (free with memfd_close()), or -errno. */
int memfd_open(const char *name, size_t bytes, enum memfd_pages pages,
	       const struct memfd_part *parts, unsigned part_count, struct memfd *m);

/* The same in pieces, so that main works between them: none of it is present yet. */
int memfd_begin(const char *name, size_t bytes, enum memfd_pages pages,
		const struct memfd_part *parts, unsigned part_count, struct memfd *m);
/* The pages to begin again with when those of this size ran out meanwhile. */
static inline enum memfd_pages
memfd_smaller(const struct memfd *m)
{
	return m->page == MEMFD_GIGANTIC_PAGE ? MEMFD_HUGE : MEMFD_ORDINARY;
}
/* Populates the next `most` bytes. 1: more follow; 0: all are present, sealed; or -errno. */
int memfd_go_on(struct memfd *m, size_t most);

/* A descriptor that nobody can write or map writable by: -errno. The caller closes it. */
int memfd_read_only(const struct memfd *m);

/*
 * Releases memory, `most` bytes at a time. 1: more follows; 0: the memory is free and *m closed;
 * -EBUSY: a program has a descriptor or a mapping still, try again later. Until then nothing is
 * done that could wait for that program.
 */
int memfd_release(struct memfd *m, size_t most);
/* Moves the memory out of *m, which is empty afterwards. */
struct memfd memfd_move(struct memfd *m);
/* Unmaps and closes all of it at once. */
void memfd_close(struct memfd *m);

#endif
