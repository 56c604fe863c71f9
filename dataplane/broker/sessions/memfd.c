/* SPDX-License-Identifier: BSD-3-Clause */
/* Sealed, populated, NUMA-bound shared memory. */
#define _GNU_SOURCE
#include "memfd.h"

#include "ipc/invariant.h"
#include "ipc/shm.h"
#include "base/monotonic.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEASE_NS 2000000000u /* to rely on a lease: well below fs.lease-break-time */
#define CALL_BYTES                                                                                 \
	(64ul << 10) /* populated per call: 30 us, 300 us beside others that populate              \
		      */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif
#ifndef MFD_HUGE_1GB
#define MFD_HUGE_1GB (30u << 26)
#endif

static unsigned long
huge_pages(size_t page, const char *what)
{
	char path[96];
	unsigned long n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%zukB/%s_hugepages",
		 page >> 10, what);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%lu", &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

/* Another description of the file, since leases count only those of open(). -errno. */
static int
open_again(int fd, int access)
{
	char path[32];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, access | O_CLOEXEC);
	return again < 0 ? -errno : again;
}

int
memfd_read_only(const struct memfd *m)
{
	return open_again(m->fd, O_RDONLY);
}

static int
begin_on(const char *name, size_t bytes, size_t page, unsigned huge_flags,
	 const struct memfd_part *parts, unsigned part_count, struct memfd *m)
{
	int rc, made;

	*m = (struct memfd){.fd = -1, .base = MAP_FAILED, .page = page};
	m->bytes = (bytes + page - 1) / page * page;
	made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | huge_flags);
	/* the mode: a program that has a read-only descriptor must not open it for writing */
	m->fd = made < 0 || fchmod(made, S_IRUSR | S_IWUSR) || ftruncate(made, (off_t)m->bytes)
		    ? -errno
		    : open_again(made, O_RDWR);
	if (made >= 0)
		close(made);
	if (m->fd < 0)
		return m->fd;
	m->base = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (m->base != MAP_FAILED)
		m->mapped = m->bytes;
	if (m->base == MAP_FAILED || madvise(m->base, m->bytes, MADV_DONTFORK)) {
		rc = -errno;
		memfd_close(m);
		return rc;
	}
	for (const struct memfd_part *p = parts; p < parts + part_count; p++) {
		unsigned long mask[16] = {0}, node = (unsigned long)p->numa_socket;
		size_t from = p->offset / page * page;
		size_t to = (p->offset + p->length) / page * page;

		if (p->numa_socket < 0 || node >= sizeof(mask) * 8 || to <= from)
			continue;
		mask[node / (sizeof(long) * 8)] = 1ul << node % (sizeof(long) * 8);
		/* preferred, not strict: a socket without memory must not raise SIGBUS; a kernel
		 * without NUMA refuses, and there is nothing to choose */
		syscall(SYS_mbind, (char *)m->base + from, to - from, MPOL_PREFERRED, mask,
			sizeof(mask) * 8, 0);
	}
	return 0;
}

int
memfd_begin(const char *name, size_t bytes, enum memfd_pages pages, const struct memfd_part *parts,
	    unsigned part_count, struct memfd *m)
{
	static const struct {
		size_t page;
		unsigned flags;
	} huge[] = {[MEMFD_HUGE] = {MEMFD_HUGE_PAGE, MFD_HUGETLB | MFD_HUGE_2MB},
		    [MEMFD_GIGANTIC] = {MEMFD_GIGANTIC_PAGE, MFD_HUGETLB | MFD_HUGE_1GB}};
	size_t page;

	for (; pages != MEMFD_ORDINARY; pages--) {
		page = huge[pages].page;
		/* populating without enough pages would end in SIGBUS: they are counted first */
		unsigned long reserved = huge_pages(page, "resv"), left = huge_pages(page, "free");

		if (left > reserved && left - reserved >= (bytes + page - 1) / page &&
		    (pages == MEMFD_HUGE || bytes % page == 0) &&
		    !begin_on(name, bytes, page, huge[pages].flags, parts, part_count, m))
			return 0;
	}
	return begin_on(name, bytes, (size_t)sysconf(_SC_PAGESIZE), 0, parts, part_count, m);
}

int
memfd_go_on(struct memfd *m, size_t most)
{
	size_t length = m->bytes - m->present, step = WEIR_ALIGN_UP(CALL_BYTES, m->page), part;

	weir_assert(m->fd >= 0 && m->present <= m->bytes);
	if (!length)
		return 0; /* sealed before */
	if (length > most)
		length = WEIR_ALIGN_UP(most, m->page);
	for (size_t from = m->present, end = from + length; from < end; from += step) {
		part = end - from < step ? end - from : step;
		if (!madvise((char *)m->base + from, part, MADV_POPULATE_WRITE))
			continue;
		if (errno != EINVAL)
			return errno == EFAULT ? -ENOMEM : -errno;
		/* a kernel without it: allocates the pages at least */
		if (fallocate(m->fd, 0, (off_t)from, (off_t)part))
			return -errno;
	}
	m->present += length;
	if (m->present < m->bytes)
		return 1;
	return fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ? -errno : 0;
}

int
memfd_open(const char *name, size_t bytes, enum memfd_pages pages, const struct memfd_part *parts,
	   unsigned part_count, struct memfd *m)
{
	int rc = memfd_begin(name, bytes, pages, parts, part_count, m);

	if (rc)
		return rc;
	rc = memfd_go_on(m, m->bytes);
	if (!rc)
		return 0;
	pages = m->page > (size_t)sysconf(_SC_PAGESIZE);
	memfd_close(m);
	return pages ? memfd_open(name, bytes, MEMFD_ORDINARY, parts, part_count, m) : rc;
}

/* Cuts the last `most` bytes, rounded up to pages, off *bytes. Returns where they begin. */
static size_t
last(const struct memfd *m, size_t *bytes, size_t most, size_t *length)
{
	*length = WEIR_ALIGN_UP(most, m->page);
	if (*length > *bytes)
		*length = *bytes;
	return *bytes -= *length;
}

int
memfd_release(struct memfd *m, size_t most)
{
	size_t length, at;
	int fd;

	weir_assert(m->present <= m->bytes && m->mapped <= m->bytes);
	if (m->base != MAP_FAILED) {
		at = last(m, &m->mapped, most, &length);
		munmap((char *)m->base + at, length);
		if (!m->mapped)
			m->base = MAP_FAILED;
		return 1;
	}
	/*
	 * A write lease, which only the last opener of a file gets; mappings count, since they hold
	 * the description they were made from. Until the lease is broken, fs.lease-break-time after
	 * another process wants to open the file, its open() waits. So no program can hold the
	 * inode's lock, which punching holes takes.
	 */
	if (!m->leased) {
		fd = m->apart ? m->fd : open_again(m->fd, O_RDWR);
		if (fd < 0)
			return -EBUSY; /* out of descriptors: try again later */
		if (!m->apart)
			close(m->fd);
		m->fd = fd;
		m->apart = true;
		if (!fcntl(fd, F_SETLEASE, F_WRLCK)) {
			m->leased = monotonic_ns();
			return 1;
		}
		if (errno == EAGAIN || errno == ENOMEM)
			return -EBUSY;
		/* such files have no leases: the last program that has it frees it */
		memfd_close(m);
		return 0;
	}
	if (m->present && monotonic_ns() - m->leased < LEASE_NS) {
		at = last(m, &m->present, most, &length);
		/* can only fail for lack of memory: then close() frees it */
		if (fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
			      (off_t)length))
			m->present = 0;
		return 1;
	}
	if (m->present) { /* main did not run: the lease is too old to rely on */
		fcntl(m->fd, F_SETLEASE, F_UNLCK);
		m->leased = 0;
		return 1;
	}
	memfd_close(m);
	return 0;
}

struct memfd
memfd_move(struct memfd *m)
{
	struct memfd moved = *m;

	*m = (struct memfd){.fd = -1, .base = MAP_FAILED};
	return moved;
}

void
memfd_close(struct memfd *m)
{
	if (m->base != MAP_FAILED)
		munmap(m->base, m->mapped);
	if (m->fd >= 0)
		close(m->fd);
	*m = (struct memfd){.fd = -1, .base = MAP_FAILED};
}
