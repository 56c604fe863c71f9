/* SPDX-License-Identifier: BSD-3-Clause */
/* The result of a run, and its report. */
#ifndef WEIR_PERF_RESULT_H
#define WEIR_PERF_RESULT_H

#include "calibrate.h"
#include "histogram.h"
#include "message.h"
#include "options.h"

#include <sys/types.h>

/* The same for all runs of the program. */
struct perf_info {
	const struct perf_options *options;
	const char *path; /* remote, local, loop, tcp, cluster */
	char path_text[8];
	int node, peer; /* ids, negative: unknown */
};

/* Messages/s of programs, nodes or threads: how evenly the load is shared. */
struct perf_shares {
	uint32_t count;
	double min, mean, max;
};

/* Times of the calls of PERF_PSCW. */
enum perf_call { CALL_POST, CALL_START, CALL_PUT, CALL_COMPLETE, CALL_WAIT, CALLS };
struct perf_calls {
	uint64_t rounds; /* that were timed, of all members that measure */
	uint64_t ns[CALLS];
};

struct perf_result {
	uint32_t test; /* enum perf_test */
	uint32_t size;
	uint32_t members;  /* of the window; 0: none */
	uint64_t count;	   /* messages (or round trips) sent, warm-up included */
	double duration_s; /* of the measured part */
	double msgs_per_s, bytes_per_s;
	double back_msgs_per_s; /* with -b: the other direction */
	double mean_us;		/* lat: of blocks timed as a whole; 0: from the histogram */
	struct calibration before, after;
	uint64_t errors;
	uint64_t lost;		     /* datagrams, no errors */
	uint64_t timeouts;	     /* requests without an answer in time, part of errors */
	uint64_t received, measured; /* arrived, and arrived after the warm-up */
	uint64_t start_ns, last_ns;  /* arrival of these; 0: duration_s is already set */
	struct perf_shares shares;   /* count 0: not shared */
	uint64_t payload;	     /* bytes that left this end */
	bool ports_known, peer_ports_known;
	struct perf_ports ports, peer_ports; /* of this end and of the server */
	pid_t pid, peer_pid;		     /* data planes, 0: unknown */
	struct histogram latency;	     /* ns; empty unless lat */
	struct perf_calls calls;
	uint64_t made, messages; /* call: calls of this end, and messages that carried them */
};

/* Computes the rates from start_ns, last_ns and measured. */
void perf_result_rate(struct perf_result *r);
/* Adds the result of a part, also as one of the shares. */
void perf_result_add(struct perf_result *to, const struct perf_result *from);
void perf_shares_add(struct perf_shares *s, double rate);

void perf_report_begin(const struct perf_info *info, FILE *to);
void perf_report(const struct perf_info *info, const struct perf_result *result, FILE *to);
void perf_report_end(const struct perf_info *info, FILE *to);
/* --calibrate alone. */
void perf_report_calibration(const struct perf_options *options, const struct calibration *c,
			     FILE *to);

#endif
