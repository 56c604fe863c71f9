/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads of the driver that send, each in its own order. The main thread serves the connections
 * that control the test, and gives the run up when nothing moves.
 */
#ifndef WEIR_PERF_TX_H
#define WEIR_PERF_TX_H

#include "driver.h"

#include <pthread.h>

struct tx_run;

struct tx_thread {
	pthread_t thread;
	struct tx_run *run;
	uint32_t number;
	uint64_t to[TEAM_MAX]; /* messages sent, by connection */
	/* the thread writes, the main thread reads */
	_Alignas(64) _Atomic uint64_t sent;
	_Atomic uint64_t received, errors, timeouts;
	uint64_t ns; /* duration of its part of the run */
	int rc;
	struct histogram latency;
	uint8_t *out, *in; /* `size` bytes each */
};

struct tx_run {
	struct driver *driver;
	int (*body)(struct tx_thread *t); /* its part of the run: 0 or -errno */
	uint32_t size, threads;
	uint64_t count, start_ns, end_ns; /* count: of all threads; 0: until end_ns */
	atomic_uint ended;		  /* threads add, the main thread reads */
	/* the main thread writes: the run ends now, or has failed as well */
	atomic_bool stop, failed;
};

/* Messages that a thread sends; 0: until end_ns. */
static inline uint64_t
tx_share(const struct tx_thread *t)
{
	const struct tx_run *run = t->run;

	return run->count / run->threads + (t->number < run->count % run->threads);
}

/* Runs the threads to the end and adds their results: per connection in flows[].sent. */
int tx_run_threads(struct tx_run *run, struct perf_result *r);

#endif
