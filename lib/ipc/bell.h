/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Doorbells between programs that don't trust each other. A ring must not leave descriptors with
 * the one it wakes, since closing them can block for long. Two ways:
 * - a pair of sockets that refuse descriptors (SO_PASSRIGHTS, Linux 6.16),
 * - before that a POSIX message queue of one message per direction. A queue carries bytes alone,
 * and each end has an open file of its own, so that nobody clears O_NONBLOCK for the other. The
 *   system allows few of them, which is why they are not used where sockets will do.
 */
#ifndef WEIR_COMMON_BELL_H
#define WEIR_COMMON_BELL_H

#include <stdbool.h>
#include <stdint.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

#define WEIR_BELL_SLOW_NS 1000000u /* a ring that takes longer is slow ... */
#define WEIR_BELL_SPITE 8u	   /* ... and so many in a row, by CPU time, are an attack */

struct weir_bell {
	int wait; /* readable when the other end rang */
	int ring;
	bool queue; /* both are message queues */
};

/*
 * Makes the two ends of a doorbell. 0 or -errno: -EMFILE and -ENOSPC are limits, of descriptors, of
 * the user's message queues (RLIMIT_MSGQUEUE) and, without CAP_SYS_RESOURCE, of all users'
 * (fs.mqueue.queues_max).
 */
int weir_bell_open(struct weir_bell ends[2]);
/* The second way, on any kernel. */
int weir_bell_open_queues(struct weir_bell ends[2]);
/* An end whose descriptors were received. */
struct weir_bell weir_bell_of(int wait, int ring);
/* Closes what is open of an end. */
void weir_bell_close(struct weir_bell *end);
/* Never blocks. The other end may see several rings as one. */
void weir_bell_ring(const struct weir_bell *end);
/*
 * The same, and how long it took, ns: a program can have a million waiters on its end, and who
 * rings walks through them. By the wall clock, of which others may have had a part, or, dearer, by
 * CPU time.
 */
uint64_t weir_bell_ring_timed(const struct weir_bell *end, bool cpu_time);
/* Takes rings off, a bounded number: an end that rings without pause gets no more of our time. */
void weir_bell_drain(const struct weir_bell *end);
/* Has an AF_UNIX socket, and those that it will accept, refuse descriptors. False: old kernel. */
bool weir_refuse_descriptors(int socket);

#endif
