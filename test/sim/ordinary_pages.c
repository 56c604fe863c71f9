/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data planes that find no huge pages (--wrap at link time), as on machines that have none: what
 * they populate at a time decides what a seed means.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);

int
__wrap_memfd_create(const char *name, unsigned flags)
{
	if (!(flags & MFD_HUGETLB))
		return __real_memfd_create(name, flags);
	errno = ENOMEM;
	return -1;
}
