/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the machine itself costs right now, measured without Weir between two CPUs: results are read
 * against that, because a host may move its CPUs nearer to each other or further apart at any time.
 */
#ifndef WEIR_PERF_CALIBRATE_H
#define WEIR_PERF_CALIBRATE_H

#include <sched.h>
#include <stdbool.h>

#define CALIBRATE_STEADY 0.20 /* before and after within this share of each other */

struct calibration {
	bool valid; /* there were two CPUs to measure between */
	double
	    line_ns; /* round trip between two threads, a cache line each way; median of batches */
	double ring_mps;  /* bare ring of 64-byte slots published every 32, millions of slots a
			     second */
	double chain4_us; /* a line passed round 4 processes on 2 CPUs that yield while they wait */
};

/* Measures between CPU `cpu` (-1: the first) and another one of `allowed`. About 0.2 s. */
struct calibration calibrate(const cpu_set_t *allowed, int cpu);
/* steady or unsteady, of a run between two calibrations; "none" without two CPUs. */
const char *calibration_label(const struct calibration *before, const struct calibration *after);
/* The mean of both. */
struct calibration calibration_mean(const struct calibration *before,
				    const struct calibration *after);

#endif
