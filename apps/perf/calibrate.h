/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calibration: the cost of the machine itself, measured without Weir between two CPUs. Results are
 * compared with it because a host may move its virtual CPUs at any time.
 */
#ifndef WEIR_PERF_CALIBRATE_H
#define WEIR_PERF_CALIBRATE_H

#include <sched.h>
#include <stdbool.h>

#define CALIBRATE_STEADY 0.20 /* largest relative difference of two line_ns of a steady run */

struct calibration {
	bool valid; /* false: fewer than two CPUs */
	double
	    line_ns; /* round trip between two threads, a cache line each way; median of batches */
	double ring_mps; /* bare ring of 64-byte slots published every 32, millions of slots a
			    second */
	double
	    slots_mps; /* 64-byte messages, each in two slots of such a ring, millions a second */
	double chain4_us; /* a cache line passed round 4 processes that yield, on 2 CPUs */
	double copy_gbps; /* memcpy of 64 KiB between two warm buffers, 1e9 bytes per second */
};

/* Measures between CPU `cpu` (-1: the first) and another one of `allowed`. About 0.2 s. */
struct calibration calibrate(const cpu_set_t *allowed, int cpu);
/* "steady" or "unsteady" for a run between two calibrations; "none" without two CPUs. */
const char *calibration_label(const struct calibration *before, const struct calibration *after);
/* The mean of both. */
struct calibration calibration_mean(const struct calibration *before,
				    const struct calibration *after);

#endif
