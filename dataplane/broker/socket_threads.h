/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that read and close sockets of programs. A socket that takes descriptors drops them in
 * the thread that reads or closes it, and dropping the last reference to a file can take long
 * (SO_LINGER, gigabytes of memory). Used where the kernel cannot refuse descriptors (before Linux
 * 6.16). A user has one job at a time under way, so that users wait only for themselves.
 */
#ifndef WEIR_SOCKET_THREADS_H
#define WEIR_SOCKET_THREADS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct socket_job {
	int fd;
	uid_t uid;
	void *room; /* to receive one packet into; NULL: close the socket */
	size_t size;
	ssize_t result; /* of recv(), or -errno */
	uint64_t ns;	/* wall-clock time of the job */
	TAILQ_ENTRY(socket_job) entry;
};

struct socket_threads;

/* NULL and errno. Main thread, as all below. */
struct socket_threads *socket_threads_open(void);
/* No job may be under way. */
void socket_threads_close(struct socket_threads *t);
/* An eventfd, readable when a job is done. */
int socket_threads_fd(const struct socket_threads *t);
/* The threads own the job until socket_threads_take() returns it. */
void socket_threads_submit(struct socket_threads *t, struct socket_job *job);
/* Returns a job that is done, or NULL. */
struct socket_job *socket_threads_take(struct socket_threads *t);
/* Interrupts jobs that have taken longer than SOCKET_KICK_NS. True: some job is under way. */
bool socket_threads_kick(struct socket_threads *t);

#define SOCKET_KICK_NS 10000000u

#endif
