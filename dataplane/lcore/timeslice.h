/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time slices that a thread requests of the scheduler. Among threads that yield, one with half the
 * slice runs twice as often. Linux 6.12 or later.
 */
#ifndef WEIR_TIMESLICE_H
#define WEIR_TIMESLICE_H

#include <stdint.h>

/* ns; slice of the calling thread. 0: the kernel doesn't tell, or another policy holds. */
uint64_t slice_now(void);
/* On failure the thread keeps its slice. */
void slice_set(uint64_t ns);

#endif
