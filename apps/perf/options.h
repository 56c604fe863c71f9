/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_PERF_OPTIONS_H
#define WEIR_PERF_OPTIONS_H

#include "plan.h"

#include <stdio.h>

#define OPTIONS_SIZES 64
#define PERF_SERVICE "perf"

enum perf_format { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV };

struct perf_options {
	const char *instance; /* NULL: the default one */
	const char *address;  /* NULL: serve, or --loop within this program, or --calibrate alone */
	const char *service;  /* server */
	uint32_t tests[PERF_TESTS];
	uint32_t test_count; /* 0: serve */
	uint32_t sizes[OPTIONS_SIZES];
	uint32_t size_count; /* 0: each test's own */
	uint64_t count;	     /* messages, 0: by duration */
	double duration_s;
	uint64_t large;
	bool large_given;
	uint32_t window;
	uint64_t seed;
	uint32_t flags;	   /* WEIR_RC, an operation: of every message of a run */
	int cpu;	   /* -1: not pinned */
	uint32_t pause_ms; /* lat: rest before each round trip */
	int patience_s;	   /* without any progress the run has failed */
	bool both, sleep, verify, loop, calibrate, no_calibrate, copy;
	enum perf_format format;
};

enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_WRONG };

/*
 * Reads the command line. OPTIONS_WRONG: `reason` says why in one line, cause and remedy. Strings
 * point into argv.
 */
enum options_result perf_options_parse(int argc, char **argv, struct perf_options *o, char *reason,
				       size_t reason_size);
void perf_options_usage(FILE *to);

/* A size: a number that may end in k or m. 0 or -EINVAL. */
int perf_parse_size(const char *text, uint64_t *value);

#endif
