/* SPDX-License-Identifier: BSD-3-Clause */
/* One program that measures: it attaches, connects, runs tests and explains failures. */
#ifndef WEIR_PERF_RUN_H
#define WEIR_PERF_RUN_H

#include "driver.h"

struct run {
	struct weir *weir; /* NULL: TCP */
	struct driver driver;
	struct server own_server; /* --loop without an address, --inside, --alltoall */
	bool serves;		  /* own_server is initialized */
	int node, peer;		  /* ids, negative: unknown */
	const char *path;	  /* remote, local, loop, tcp, cluster */
};

/*
 * Attaches and connects, in a team as member `number`. 0 or -errno, and `what` names the failed
 * step. Call run_close() in any case.
 */
int run_open(struct run *r, const struct perf_options *o, struct team *team, uint32_t number,
	     const char **what);
void run_close(struct run *r);

/* Writes cause and remedy of a failure in one line. */
void run_reason(const struct run *r, int rc, const char *doing, char *to, size_t size);
/* Exit status for 0 or -errno. */
int run_exit_code(int rc);

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define EXIT_RESOURCE 3

/* Runs and reports all tests with all sizes. `one` runs one; it returns an exit code and has
 * printed the reason if that is not 0. */
int run_all(const struct perf_info *info, const cpu_set_t *allowed,
	    int (*one)(void *arg, uint32_t test, uint32_t size, struct perf_result *r), void *arg);
/* Runs all tests without a team. The exit code. */
int run_alone(const struct perf_options *o, const cpu_set_t *allowed);

#endif
