/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quiet turns, and what memif's driver does on EAL's interrupt thread that needs them. When a peer
 * goes, it unmaps the rings that it shared with it, while an engine may be polling them: it clears
 * its flag "connected", but does not wait for those who looked at it before. So munmap() on that
 * thread waits for a quiet turn of all engines; from then on they see the flag. And when a client
 * is gone before it could be greeted, it closes the descriptor that EAL still watches, at which EAL
 * aborts; so sendmsg() on that thread does as if the peer was there: its hang-up comes as an event
 * next, and that is handled well. All other threads unmap and send as usual.
 */
#define _GNU_SOURCE
#include "quiet.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_alarm.h>
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

/* The interrupt thread sets the first and the last, main the second; main clears them. */
static _Atomic bool held, released, passed;

static void
wait_for(_Atomic bool *flag)
{
	while (!atomic_load(flag))
		usleep(100);
}

static void
hold(void *unused)
{
	(void)unused;
	atomic_store(&held, true);
	wait_for(&released);
}

static void
pass(void *unused)
{
	(void)unused;
	atomic_store(&passed, true);
}

/* Alarms run on the interrupt thread. */
static void
run_there(void (*function)(void *), _Atomic bool *done)
{
	if (rte_eal_alarm_set(1, function, NULL) == 0)
		for (int i = 0; i < 10000 && !atomic_load(done); i++)
			usleep(100);
}

void
quiet_hold_interrupts(void)
{
	atomic_store(&held, false);
	atomic_store(&released, false);
	atomic_store(&passed, false);
	run_there(hold, &held);
}

void
quiet_release_interrupts(void)
{
	atomic_store(&released, true);
	run_there(pass, &passed);
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
