/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guards memory that is shared with programs: sealed memory can't shrink, but a program can punch
 * holes, and where a hole can't be filled again an access raises SIGBUS. The handler maps private
 * memory over it, so that the data plane goes on, and marks the range: its session is to be closed.
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
 * Guards [base, base + length), whose pages have `page` bytes. notify_fd: an eventfd written to by
 * the handler after a repair, or -1. Returns a guard's number, or -errno. Main thread.
 */
int sigbus_guard_add(void *base, size_t length, size_t page, int notify_fd);

/* Whether a fault has been repaired in it. */
bool sigbus_guard_hit(int guard);

/* Before the range is unmapped. Main thread. */
void sigbus_guard_remove(int guard);

#endif
