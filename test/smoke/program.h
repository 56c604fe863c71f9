/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that the small programs of smoke tests share. */
#ifndef TEST_SMOKE_PROGRAM_H
#define TEST_SMOKE_PROGRAM_H

#include "weir/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LARGEST (256u << 10)
#define PATIENCE_MS 60000 /* an event that a test expects may take this long on a busy machine */

extern bool say_when; /* say() puts the CLOCK_BOOTTIME milliseconds before each line */

/* Prints a line on standard output at once. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Says that `what` failed with `rc` and the library's reason; returns 1. */
int failed(const char *what, int rc);
/* Milliseconds of CLOCK_BOOTTIME; seconds of CLOCK_MONOTONIC. */
uint64_t now_ms(void);
double now_s(void);

/*
 * Contents of message `number`: length and bytes follow from number and seed alone. One message of
 * `one_of` is large. `buf` has room for 8 bytes beyond LARGEST.
 */
size_t contents(uint64_t number, uint64_t seed, unsigned one_of, uint64_t *buf);
/* Whether these are the contents of message *count, which is then counted; says so if not, and
 * every `report` messages how many came. */
bool expected(uint64_t *count, uint64_t seed, unsigned one_of, const void *data, size_t length,
	      uint64_t report);

/* The key of an export, into a file and out of one. 0; 1: it has said why not. */
struct weir_key;
int write_key(const char *path, const struct weir_key *key);
int read_key(const char *path, struct weir_key *key);

/* Attaches under a name; NULL: that of the process. 0; 1: it has said why not. */
int attach_to(const char *instance, const char *name, uint32_t flags, struct weir **w);
int dial(struct weir *w, const char *text, struct weir_conn **c);
/* Listens and says "ready", or says why not. */
int serve_at(struct weir *w, const char *service, unsigned backlog, struct weir_listener **l);
/* Accepts all connections that wait; `size` zeroed bytes become the user pointer of each. */
void accept_all(struct weir_listener *l, size_t size);
/* Says "end RC after COUNT" and closes; returns 1 if rc is an error. */
int end(struct weir_conn *c, int rc, uint64_t count);
/* Argument i as a number, or 0. */
unsigned long number_at(int argc, char **argv, int i);

#endif
