/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time slices that a thread asks the scheduler for. Among threads that yield, one with half the
 * slice is run twice as often. Linux knows this from 6.12 on.
 */
#ifndef WEIR_DATAPLANE_SLICE_H
#define WEIR_DATAPLANE_SLICE_H

#include <stdint.h>

/* The calling thread's, in ns; 0: the kernel doesn't tell, or other rules hold for the thread. */
uint64_t slice_now(void);
void slice_set(uint64_t ns);

#endif
