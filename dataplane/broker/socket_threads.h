/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and closes sockets of programs on threads of its own. A socket that takes descriptors drops
 * them in the thread that reads or closes it, and the last reference to somebody's file can take
 * long to drop (SO_LINGER, gigabytes of memory). Used where the kernel can't refuse descriptors
 * (before Linux 6.16). A user has one job at a time under way, so that users wait for themselves.
 */
#ifndef WEIR_SOCKET_THREADS_H
#define WEIR_SOCKET_THREADS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct socket_job {
	int fd;
	uid_t uid;
	void *room; /* to receive one packet into; NULL: close the socket */
	size_t size;
	ssize_t result; /* of recv(), or -errno */
	uint64_t ns;	/* wall-clock time that it took, at least until the kick */
	struct socket_job *next;
};

struct socket_threads;

/* NULL and errno. Main thread, as all below. */
struct socket_threads *socket_threads_open(void);
/* No job is under way. */
void socket_threads_close(struct socket_threads *t);
/* An eventfd, readable when a job is done. */
int socket_threads_fd(const struct socket_threads *t);
/* The job is the threads' until socket_threads_take() returns it. */
void socket_threads_submit(struct socket_threads *t, struct socket_job *job);
/* A job that is done, or NULL. */
struct socket_job *socket_threads_take(struct socket_threads *t);
/* Interrupts jobs that have taken longer than SOCKET_KICK_NS. Whether any is under way. */
bool socket_threads_kick(struct socket_threads *t);

#define SOCKET_KICK_NS 10000000u

#endif
