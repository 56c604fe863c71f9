/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_PERF_OPTIONS_H
#define WEIR_PERF_OPTIONS_H

#include "schedule.h"

#include "base/options.h"

#define OPTIONS_SIZES 64
#define OPTIONS_NODES 256 /* and programs */
#define PERF_SERVICE "perf"

enum perf_format { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV };

struct perf_options {
	const char *instance; /* NULL: the default one */
	const char *address;  /* NULL: serve, or --loop within this program, or --calibrate alone */
	const char *service;  /* server */
	bool is_public;	      /* the same: the whole cluster finds it */
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
	bool adopt;	  /* bw: send out of buffers that were adopted */
	bool tcp;	  /* sockets instead of Weir */
	bool random;	  /* connections in any order, else in turn */
	bool interactive; /* a prompt */
	bool duration_given, help, version;
	uint32_t connections; /* of each program */
	uint32_t programs, threads;
	double rate;	 /* messages/s of all together, 0: as many as go */
	double period_s; /* rates on stderr so often, 0: never */
	uint64_t region; /* read: bytes of memory at the server */
	bool alltoall;	 /* one program on each of these instances */
	const char *cluster[OPTIONS_NODES];
	uint32_t cluster_count;
	enum perf_format format;
};

enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_WRONG };

/*
 * Reads the command line. OPTIONS_WRONG: `reason` says why in one line, cause and remedy. Strings
 * point into argv.
 */
enum options_result perf_options_parse(int argc, char **argv, struct perf_options *o, char *reason,
				       size_t reason_size);
/* What can't go together, and what follows from what was said. */
enum options_result perf_options_settle(struct perf_options *o, char *reason, size_t size);
/* Writes a reason; gives OPTIONS_WRONG. */
__attribute__((format(printf, 3, 4))) enum options_result
perf_options_wrong(char *reason, size_t size, const char *format, ...);
/* Changes one option as the command line would have. 0, or -EINVAL and `reason` says why. */
int perf_options_set(struct perf_options *o, const char *name, const char *value, char *reason,
		     size_t reason_size);
extern const struct option_table perf_option_table;

/* What --flags was given, in its words. */
const char *perf_flags_text(const struct perf_options *o);

#endif
