/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * On a crash of a daemon: what happened, what it was doing and where, on stderr, as lines of the
 * log's format; then the signal's usual end (a core, if the limits allow one).
 */
#ifndef WEIR_COMMON_CRASH_H
#define WEIR_COMMON_CRASH_H

#include <stddef.h>
#include <stdint.h>

/* A line made without printf(): all of this is async-signal-safe. */
struct crash_line {
	char text[256];
	size_t length;
};
void crash_add(struct crash_line *l, const char *text);
void crash_add_number(struct crash_line *l, uint64_t number);
void crash_add_hex(struct crash_line *l, uint64_t number);
/* Writes it, behind the program's name. */
void crash_write(const struct crash_line *l);

/*
 * Handles SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT unless somebody does already (a sanitizer).
 * `state`, or NULL, writes lines about what the process was doing; in the handler, on the thread
 * that crashed.
 */
void crash_install(void (*state)(void));
/* The calling thread gets a stack for the handler, so that the end of its own can be told too. */
void crash_thread(void);

#endif
