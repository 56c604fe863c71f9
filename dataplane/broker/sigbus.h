/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guards memory that is shared with programs: sealed memory cannot shrink, but a program can punch
 * holes. Touching a page that is gone costs a fault, and zeroing a page or 2 MiB; where none is
 * free, it costs SIGBUS. With sigbus_watch(), guarded ranges are registered with userfaultfd, so
 * that each such fault is a SIGBUS, and the handler tells two cases apart. A page that is still in
 * the file and was only unmapped is mapped again: the kernel unmaps some under pressure, so this
 * counts only when it happens too often. A page that is gone was punched: the handler maps private
 * zeroes in its place and marks the range. The data plane goes on, and ends the session.
 */
#ifndef WEIR_SIGBUS_H
#define WEIR_SIGBUS_H

#include <stdbool.h>
#include <stddef.h>

/* Installs the handler for the process. 0 or -errno. May be called again. */
int sigbus_install(void);

/*
 * Watches ranges that are guarded from now on: every hole is noticed when it is touched, not only
 * where no page can fill it. 0, or -errno where kernel or sandbox do not allow it. May be called
 * again. Main thread.
 */
int sigbus_watch(void);
/* Stops watching all ranges. */
void sigbus_unwatch(void);

/*
 * Guards [base, base + length), whose pages have `page` bytes. notify_fd: an eventfd written to by
 * the handler when it marks the range, or -1. Returns a guard's number, or -errno. Main thread.
 */
int sigbus_guard_add(void *base, size_t length, size_t page, int notify_fd);

/* Whether the handler has marked the range. */
bool sigbus_guard_hit(int guard);

/*
 * If the range is marked, maps private zeroes, which the program cannot reach, over all of it and
 * removes the mark: true once. Main thread.
 */
bool sigbus_guard_cut(int guard);

/* Before the range is unmapped. Main thread. */
void sigbus_guard_remove(int guard);

#endif
