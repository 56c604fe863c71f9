/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doorbells between programs that don't trust each other. A ring must not pass descriptors to the
 * woken program, because closing them can block for a long time. A doorbell is
 * - a pair of sockets that refuse descriptors (SO_PASSRIGHTS, Linux 6.16), or
 * - on older kernels, a POSIX message queue of one message per direction. A queue carries only
 *   bytes, and each end has an open file of its own, so that neither end can clear O_NONBLOCK for
 *   the other. The system limits the number of queues, so sockets are preferred.
 */
#ifndef WEIR_COMMON_BELL_H
#define WEIR_COMMON_BELL_H

#include <stdbool.h>
#include <stdint.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

#define WEIR_BELL_SLOW_NS 1000000u /* ns; a ring that takes longer is slow */
#define WEIR_BELL_SLOW_MAX 8u	   /* consecutive rings, slow by CPU time, that are an attack */

struct weir_bell {
	int wait; /* readable after the other end has rung */
	int ring;
	bool queue; /* both are message queues */
};

/*
 * Makes the two ends of a doorbell. 0 or -errno: -EMFILE and -ENOSPC are limits, of descriptors, of
 * the user's message queues (RLIMIT_MSGQUEUE) and, without CAP_SYS_RESOURCE, of all users'
 * (fs.mqueue.queues_max).
 */
int weir_bell_open(struct weir_bell ends[2]);
/* The same with message queues, on any kernel. */
int weir_bell_open_queues(struct weir_bell ends[2]);
/* An end from received descriptors. */
struct weir_bell weir_bell_of(int wait, int ring);
/* Closes the open descriptors of an end. */
void weir_bell_close(struct weir_bell *end);
/* Never blocks. The other end may see several rings as one. */
void weir_bell_ring(const struct weir_bell *end);
/*
 * Rings and returns the duration in ns: a program can attach a million waiters to its end, which
 * the ringing thread has to wake. By the wall clock, which includes time of other threads, or by
 * CPU time, which costs more to read.
 */
uint64_t weir_bell_ring_timed(const struct weir_bell *end, bool cpu_time);
/* Drains a bounded number of rings: endless ringing costs no more time. */
void weir_bell_drain(const struct weir_bell *end);
/* Makes an AF_UNIX socket, and sockets it accepts, refuse descriptors. False: old kernel. */
bool weir_refuse_descriptors(int socket);

#endif
