/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quiet turns, and two faults of memif's driver on EAL's interrupt thread that they cover.
 * When a peer disconnects, the driver clears its flag "connected" and unmaps the shared rings at
 * once, while an engine that read the flag before may be polling them. So munmap() on that thread
 * waits for a quiet turn of all engines, which then see the flag.
 * When a client disconnects before it is greeted, the driver closes the descriptor that EAL still
 * watches, and EAL aborts. So sendmsg() on that thread reports success; the hang-up comes as the
 * next event, and the driver handles that. All other threads unmap and send as usual.
 */
#define _GNU_SOURCE
#include "munmap_guard.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
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

	weir_assert(!atomic_load(&points)); /* munmap() waits for one only */
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

/*
 * Main stops the interrupt thread by an event of its own, not by an alarm, since
 * rte_eal_cleanup() waits for the end of alarms.
 */
static struct rte_intr_handle *call; /* main's */
static _Atomic bool held, released;  /* the interrupt thread sets the first, main the second */

static void
hold(void *unused)
{
	uint64_t count;

	if (read(rte_intr_fd_get(call), &count, sizeof(count)) < 0)
		return;
	atomic_store(&held, true);
	/* closing ports takes moments; a tool holds the thread while it measures */
	for (unsigned i = 0; !atomic_load(&released); i++)
		usleep(i < 100 ? 100 : 20000);
	atomic_store(&held, false);
}

static void
wait_until(const _Atomic bool *flag, bool value)
{
	for (int i = 0; i < 10000 && atomic_load(flag) != value; i++)
		usleep(100);
}

void
quiet_hold_interrupts(void)
{
	uint64_t one = 1;
	int fd;

	if (!call) {
		fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		call = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
		if (fd < 0 || !call || rte_intr_fd_set(call, fd) ||
		    rte_intr_type_set(call, RTE_INTR_HANDLE_EXT) ||
		    rte_intr_callback_register(call, hold, NULL)) {
			rte_intr_instance_free(call);
			call = NULL;
			if (fd >= 0)
				close(fd);
			return;
		}
	}
	atomic_store(&released, false);
	if (write(rte_intr_fd_get(call), &one, sizeof(one)) == sizeof(one))
		wait_until(&held, true);
}

void
quiet_release_interrupts(void)
{
	atomic_store(&released, true);
	wait_until(&held, false);
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

ssize_t
sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t sent = syscall(SYS_sendmsg, fd, message, flags | MSG_NOSIGNAL), bytes = 0;

	if (sent >= 0 || (errno != EPIPE && errno != ECONNRESET) || !rte_thread_is_intr())
		return sent;
	for (size_t i = 0; i < message->msg_iovlen; i++)
		bytes += (ssize_t)message->msg_iov[i].iov_len;
	return bytes;
}
