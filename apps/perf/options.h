/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_PERF_OPTIONS_H
#define WEIR_PERF_OPTIONS_H

#include "message.h"

#include "base/options.h"

#define OPTIONS_SIZES 64
#define OPTIONS_NODES PERF_PROGRAMS_MAX /* and programs */
#define PERF_SERVICE "perf"

enum perf_format { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV };

struct perf_options {
	const char *instance; /* NULL: the default one */
	const char *address;  /* NULL: serve, or --loop or --inside alone, or --calibrate alone */
	const char *service;  /* server */
	bool is_public;	      /* server: the whole cluster finds it */
	uint32_t tests[PERF_TESTS];
	uint32_t test_count; /* 0: serve */
	uint32_t sizes[OPTIONS_SIZES];
	uint32_t size_count; /* 0: each test's own */
	uint64_t count;	     /* messages, 0: by duration */
	double duration_s;
	uint64_t large;
	bool large_given;
	uint32_t window, batch;
	uint32_t type, op;	/* acc, fop: enum weir_type, enum weir_acc; 0: int64, sum */
	uint32_t block, stride; /* put, get, acc: pieces of the memory; block 0: one */
	uint64_t seed;
	uint32_t flags;	   /* WEIR_RC, an operation: of every message of a run */
	int cpu;	   /* -1: not pinned */
	uint32_t pause_ms; /* lat: sleep before each round trip */
	int patience_s;	   /* seconds without progress after which a run fails */
	bool both, sleep, verify, loop, calibrate, no_calibrate, copy;
	bool stop;	  /* put: the program whose memory it is is stopped, else asleep */
	bool apart;	  /* put: memory of this host is not mapped */
	bool through;	  /* put: as a window, else as remote memory */
	bool by_engine;	  /* acc: the target's engine updates */
	uint32_t readers; /* lock: programs that lock shared */
	/* pscw: members that each one starts to; lockall: whose parts a program has asked for */
	uint32_t partners;
	uint32_t mode;	  /* call: enum weir_batch_mode */
	bool many;	  /* call: consecutive calls run together */
	bool inside;	  /* call: threads of this program */
	bool adopt;	  /* bw: send out of adopted buffers */
	bool tcp;	  /* sockets instead of Weir */
	bool random;	  /* connections at random, else in turn */
	bool interactive; /* a prompt */
	bool duration_given, help, version;
	uint32_t connections; /* of each program */
	uint32_t programs, threads;
	double rate;	 /* messages/s of all connections, 0: no limit */
	double period_s; /* seconds between two lines of rates, 0: none */
	uint64_t region; /* read: bytes of memory at the server */
	bool alltoall;	 /* one program on each of these instances */
	const char *cluster[OPTIONS_NODES];
	uint32_t cluster_count;
	enum perf_format format;
};

enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_WRONG };

/*
 * Reads the command line. OPTIONS_WRONG: `reason` is one line, cause and remedy. Strings
 * point into argv.
 */
enum options_result perf_options_parse(int argc, char **argv, struct perf_options *o, char *reason,
				       size_t reason_size);
/* Changes one option, as on the command line. 0, or -EINVAL with `reason`. */
int perf_options_set(struct perf_options *o, const char *name, const char *value, char *reason,
		     size_t reason_size);
extern const struct option_table perf_option_table;

/* Whether the test goes through a window. */
static inline bool
perf_in_window(const struct perf_options *o, uint32_t test)
{
	return perf_is_window(test) || (o->through && perf_is_remote(test));
}

/* The value of --flags. */
const char *perf_flags_text(const struct perf_options *o);

#endif
