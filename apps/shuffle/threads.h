/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads of a process of a job. */
#ifndef SHUFFLE_THREADS_H
#define SHUFFLE_THREADS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Runs work(job, i) in `count` threads, of which the caller is number 0, until all have returned.
 * 0, or the first -errno that one returned; reason then has its weir_reason().
 */
int threads_run(uint32_t count, int (*work)(void *job, uint32_t index), void *job, char *reason,
		size_t size);

#endif
