/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When a memif peer goes, the driver unmaps the rings that it shared with it, on EAL's interrupt
 * thread, while an engine may be polling them: it clears its flag "connected", but does not wait
 * for those who looked at it before. So munmap() on that thread waits for a quiet turn of all
 * engines; from then on they see the flag. All other threads unmap as usual.
 */
#define _GNU_SOURCE
#include "quiet.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_interrupts.h>
#include <rte_malloc.h>

/* Main writes at start and end; the interrupt thread reads. */
static struct rte_rcu_qsbr *_Atomic points;

struct rte_rcu_qsbr *
quiet_create(unsigned engines)
{
	struct rte_rcu_qsbr *quiet =
	    rte_zmalloc("quiet", rte_rcu_qsbr_get_memsize(engines), RTE_CACHE_LINE_SIZE);

	if (!quiet || rte_rcu_qsbr_init(quiet, engines)) {
		rte_free(quiet);
		errno = ENOMEM;
		return NULL;
	}
	atomic_store(&points, quiet);
	return quiet;
}

void
quiet_destroy(struct rte_rcu_qsbr *quiet)
{
	atomic_store(&points, NULL);
	rte_free(quiet);
}

int
munmap(void *address, size_t length)
{
	struct rte_rcu_qsbr *quiet = atomic_load(&points);

	if (quiet && rte_thread_is_intr()) {
		uint64_t token = rte_rcu_qsbr_start(quiet);

		while (rte_rcu_qsbr_check(quiet, token, false) == 0)
			usleep(50);
	}
	return (int)syscall(SYS_munmap, address, length);
}
