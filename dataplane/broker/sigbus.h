/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guards memory that is shared with programs: sealed memory can't shrink, but a program can punch
 * holes. A page that is gone costs whoever touches it a fault, and zeroing a page or two MiB; where
 * none is free it costs SIGBUS. With sigbus_watch() a guarded range is registered with userfaultfd,
 * so that each such fault is a SIGBUS. The handler then tells the two apart. A page that is still
 * in the file, and only was unmapped, is mapped again: the kernel unmaps some under pressure, so
 * that counts only when it happens too often. A page that is gone was punched: the handler maps
 * private zeroes in its place and marks the range. The data plane goes on; the session is to be
 * ended.
 */
#ifndef WEIR_SIGBUS_H
#define WEIR_SIGBUS_H

#include <stdbool.h>
#include <stddef.h>

/* More than arenas, adopted ranges and segments can be (machine_limits.c). */
#define SIGBUS_GUARDS 65536

/* Installs the handler for the process. 0 or -errno. May be called again. */
int sigbus_install(void);

/*
 * Ranges that are guarded from now on are watched: a hole is noticed when it is touched, not only
 * where no page can fill it. 0, or -errno where the kernel or a sandbox doesn't allow it. May be
 * called again. Main thread.
 */
int sigbus_watch(void);
/* No range is watched any more. */
void sigbus_unwatch(void);

/*
 * Guards [base, base + length), whose pages have `page` bytes. notify_fd: an eventfd written to by
 * the handler when it marks the range, or -1. Returns a guard's number, or -errno. Main thread.
 */
int sigbus_guard_add(void *base, size_t length, size_t page, int notify_fd);

/* Whether a fault in it has shown that the program punches holes. */
bool sigbus_guard_hit(int guard);

/*
 * If so, puts private zeroes in the place of the whole range, which the program can't reach, and
 * forgets the hit: true once. Main thread.
 */
bool sigbus_guard_cut(int guard);

/* Before the range is unmapped. Main thread. */
void sigbus_guard_remove(int guard);

#endif
