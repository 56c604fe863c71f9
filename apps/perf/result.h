/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run found, and how it is printed. */
#ifndef WEIR_PERF_RESULT_H
#define WEIR_PERF_RESULT_H

#include "calibrate.h"
#include "histogram.h"
#include "message.h"
#include "options.h"

#include <sys/types.h>

/* Of the whole program run. */
struct perf_info {
	const struct perf_options *options;
	const char *path; /* remote, local, loop, tcp, cluster */
	char path_text[8];
	int node, peer; /* ids, negative: unknown */
};

/* Of the parts of a whole, messages a second: how evenly it was shared. */
struct perf_shares {
	uint32_t count;
	double min, mean, max;
};

struct perf_result {
	uint32_t test; /* enum perf_test */
	uint32_t size;
	uint64_t count;	   /* messages (or round trips) sent, warm-up included */
	double duration_s; /* of what was measured */
	double msgs_per_s, bytes_per_s;
	double back_msgs_per_s; /* with -b: the other direction */
	double mean_us;		/* lat: of batches without a clock inside; 0: from the histogram */
	struct calibration before, after;
	uint64_t errors;
	uint64_t timeouts;	     /* requests whose answer took too long, of the errors */
	uint64_t received, measured; /* messages that arrived, and those after the warm-up */
	uint64_t start_ns, last_ns;  /* when they did; 0: the driver's own time counts */
	struct perf_shares shares;   /* of programs, nodes or threads; count 0: not shared */
	uint64_t payload;	     /* bytes that left this end */
	bool ports_known, peer_ports_known;
	struct perf_ports ports, peer_ports; /* here, and at the server */
	pid_t pid, peer_pid;		     /* data planes, 0: unknown */
	struct histogram latency;	     /* ns; empty unless lat */
};

/* The rates, from what was measured between start_ns and last_ns. */
void perf_result_rate(struct perf_result *r);
/* Adds a part, as which it counts among the shares. */
void perf_result_add(struct perf_result *to, const struct perf_result *from);
void perf_shares_add(struct perf_shares *s, double rate);

void perf_report_begin(const struct perf_info *info, FILE *to);
void perf_report(const struct perf_info *info, const struct perf_result *result, FILE *to);
void perf_report_end(const struct perf_info *info, FILE *to);
/* --calibrate alone. */
void perf_report_calibration(const struct perf_options *options, const struct calibration *c,
			     FILE *to);

#endif
