/* SPDX-License-Identifier: BSD-3-Clause */
/* Sealed, populated, NUMA-bound shared memory. */
#define _GNU_SOURCE
#include "memfd.h"

#include "common/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

static unsigned long
huge_pages(const char *what)
{
	char path[96];
	unsigned long n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-2048kB/%s_hugepages",
		 what);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%lu", &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

/* Populating without enough pages would end in SIGBUS, so they are counted first. */
static int
huge_enough(size_t bytes)
{
	unsigned long reserved = huge_pages("resv"), nr = huge_pages("free");

	return nr > reserved && (nr - reserved) * MEMFD_HUGE_PAGE >= bytes;
}

/* Preferred, not strict: a socket without memory must not raise SIGBUS. */
static void
bind_part(const struct memfd *m, const struct memfd_part *part)
{
	unsigned long mask[16] = {0}, node = (unsigned long)part->numa_socket;
	size_t from = part->offset / m->page * m->page;
	size_t to = (part->offset + part->length) / m->page * m->page;

	if (part->numa_socket < 0 || node >= sizeof(mask) * 8 || to <= from)
		return;
	mask[node / (sizeof(long) * 8)] = 1ul << node % (sizeof(long) * 8);
	/* a kernel without NUMA refuses; then there is nothing to choose */
	syscall(SYS_mbind, (char *)m->base + from, to - from, MPOL_PREFERRED, mask,
		sizeof(mask) * 8, 0);
}

static int
populate(const struct memfd *m, size_t from, size_t length)
{
	if (!madvise((char *)m->base + from, length, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return errno == EFAULT ? -ENOMEM : -errno;
	/* an older kernel: the pages at least exist */
	return fallocate(m->fd, 0, (off_t)from, (off_t)length) ? -errno : 0;
}

static int
begin_on(const char *name, size_t bytes, unsigned huge_flags, const struct memfd_part *parts,
	 unsigned part_count, struct memfd *m)
{
	size_t page = huge_flags ? MEMFD_HUGE_PAGE : (size_t)sysconf(_SC_PAGESIZE);
	int rc;

	*m = (struct memfd){.fd = -1, .base = MAP_FAILED, .page = page};
	m->bytes = (bytes + page - 1) / page * page;
	m->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | huge_flags);
	if (m->fd < 0 || ftruncate(m->fd, (off_t)m->bytes))
		goto err;
	m->base = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (m->base == MAP_FAILED || madvise(m->base, m->bytes, MADV_DONTFORK))
		goto err;
	for (unsigned i = 0; i < part_count; i++)
		bind_part(m, &parts[i]);
	return 0;
err:
	rc = -errno;
	memfd_close(m);
	return rc;
}

int
memfd_begin(const char *name, size_t bytes, int huge, const struct memfd_part *parts,
	    unsigned part_count, struct memfd *m)
{
	if (huge && huge_enough(bytes) &&
	    !begin_on(name, bytes, MFD_HUGETLB | MFD_HUGE_2MB, parts, part_count, m))
		return 0;
	return begin_on(name, bytes, 0, parts, part_count, m);
}

int
memfd_go_on(struct memfd *m, size_t most)
{
	size_t length = m->bytes - m->present;
	int rc;

	if (!length)
		return 0; /* sealed already */
	if (length > most)
		length = WEIR_ALIGN_UP(most, m->page);
	rc = populate(m, m->present, length);
	if (rc)
		return rc;
	m->present += length;
	if (m->present < m->bytes)
		return 1;
	return fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ? -errno : 0;
}

int
memfd_open(const char *name, size_t bytes, int huge, const struct memfd_part *parts,
	   unsigned part_count, struct memfd *m)
{
	int rc = memfd_begin(name, bytes, huge, parts, part_count, m);

	if (rc)
		return rc;
	rc = memfd_go_on(m, m->bytes);
	if (!rc)
		return 0;
	huge = m->page == MEMFD_HUGE_PAGE;
	memfd_close(m);
	return huge ? memfd_open(name, bytes, 0, parts, part_count, m) : rc;
}

void
memfd_close(struct memfd *m)
{
	if (m->base != MAP_FAILED)
		munmap(m->base, m->bytes);
	if (m->fd >= 0)
		close(m->fd);
	m->base = MAP_FAILED;
	m->fd = -1;
}
