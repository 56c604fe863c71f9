/* SPDX-License-Identifier: BSD-3-Clause */
/* One program that measures: attached, connected, and what its failures are called. */
#ifndef WEIR_PERF_RUN_H
#define WEIR_PERF_RUN_H

#include "driver.h"

struct run {
	struct weir *weir; /* NULL: TCP */
	struct driver driver;
	struct server here; /* --loop without an address, --alltoall */
	bool serves;	    /* `here` is there */
	int node, peer;	    /* ids, negative: unknown */
	const char *path;   /* remote, local, loop, tcp, cluster */
};

/*
 * Attaches and connects. In a team as member `number`. 0 or -errno, and `what` (a few words) says
 * what failed; run_close() is due in any case.
 */
int run_open(struct run *r, const struct perf_options *o, struct team *team, uint32_t number,
	     const char **what);
void run_close(struct run *r);

/* Says in one line why something failed: cause and remedy. */
void run_reason(const struct run *r, int rc, const char *doing, char *to, size_t size);
/* Exit status for 0 or -errno. */
int run_exit_code(int rc);

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define EXIT_RESOURCE 3

/* Size of a test's messages without -s. */
uint32_t run_usual_size(uint32_t test);
/* Prints all tests with all their sizes, each by `one`, which gives 0 or an exit code after it has
 * said why. */
int run_all(const struct perf_info *info, const cpu_set_t *allowed,
	    int (*one)(void *arg, uint32_t test, uint32_t size, struct perf_result *r), void *arg);
/* Alone, without a team. The exit code. */
int run_alone(const struct perf_options *o, const cpu_set_t *allowed);

#endif
