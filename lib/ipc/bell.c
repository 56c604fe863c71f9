/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "bell.h"

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_FLAGS (O_NONBLOCK | O_CLOEXEC)
#define DRAIN_MAX 32 /* rings that one drain takes */

bool
weir_refuse_descriptors(int socket)
{
	int off = 0;

	return !setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}

/* The name is removed again: no other process can open the queue. */
static int
queue_open(int *wait, int *ring)
{
	static _Atomic uint32_t count;
	struct mq_attr one = {.mq_maxmsg = 1, .mq_msgsize = 1};
	char name[40];
	int rc = 0;

	do {
		snprintf(name, sizeof(name), "/weir-%d-%u", (int)getpid(), count++);
		*wait = mq_open(name, O_RDONLY | O_CREAT | O_EXCL | QUEUE_FLAGS, 0600, &one);
	} while (*wait < 0 && errno == EEXIST);
	if (*wait < 0)
		return -errno;
	*ring = mq_open(name, O_WRONLY | QUEUE_FLAGS);
	if (*ring < 0)
		rc = -errno;
	mq_unlink(name);
	return rc;
}

int
weir_bell_open_queues(struct weir_bell ends[2])
{
	int rc;

	ends[0] = ends[1] = (struct weir_bell){-1, -1, true};
	rc = queue_open(&ends[0].wait, &ends[1].ring);
	if (!rc)
		rc = queue_open(&ends[1].wait, &ends[0].ring);
	if (!rc)
		return 0;
	weir_bell_close(&ends[0]);
	weir_bell_close(&ends[1]);
	return rc;
}

/* Refuses descriptors and socket filters, which would run when the other end rings. */
static bool
tame(int socket)
{
	int on = 1;

	return weir_refuse_descriptors(socket) &&
	       !setsockopt(socket, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof(on));
}

int
weir_bell_open(struct weir_bell ends[2])
{
	int pair[2];

	/* datagrams: closing one end does not make the other readable for ever */
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
		return -errno;
	if (!tame(pair[0]) || !tame(pair[1])) {
		close(pair[0]);
		close(pair[1]);
		return weir_bell_open_queues(ends);
	}
	for (int i = 0; i < 2; i++)
		ends[i] = (struct weir_bell){pair[i], pair[i], false};
	return 0;
}

struct weir_bell
weir_bell_of(int wait, int ring)
{
	struct stat st;

	return (struct weir_bell){wait, ring, fstat(wait, &st) || !S_ISSOCK(st.st_mode)};
}

void
weir_bell_close(struct weir_bell *end)
{
	if (end->wait >= 0)
		close(end->wait);
	if (end->ring >= 0 && end->ring != end->wait)
		close(end->ring);
	end->wait = end->ring = -1;
}

void
weir_bell_ring(const struct weir_bell *end)
{
	/* a full queue has been rung already */
	if (end->queue)
		(void)!mq_send(end->ring, "", 0, 0);
	else
		(void)!send(end->ring, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static uint64_t
now_ns(bool cpu_time)
{
	struct timespec ts;

	clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t
weir_bell_ring_timed(const struct weir_bell *end, bool cpu_time)
{
	uint64_t began = now_ns(cpu_time);

	weir_bell_ring(end);
	return now_ns(cpu_time) - began;
}

void
weir_bell_drain(const struct weir_bell *end)
{
	char byte;

	for (int i = 0; i < DRAIN_MAX; i++)
		if ((end->queue ? mq_receive(end->wait, &byte, 1, NULL)
				: recv(end->wait, &byte, 1, MSG_DONTWAIT)) < 0)
			return;
}
