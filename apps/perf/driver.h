/* SPDX-License-Identifier: BSD-3-Clause */
/* The end that measures: asks the server for a test, runs it, and says what came of it. */
#ifndef WEIR_PERF_DRIVER_H
#define WEIR_PERF_DRIVER_H

#include "idle.h"
#include "responder.h"
#include "result.h"

#include <signal.h>
#include <stdatomic.h>

/* Set by a signal handler; everybody looks at it. */
extern atomic_bool perf_stop;

struct driver {
	const struct perf_options *options;
	struct weir *weir;
	struct perf_flow flow;
	struct idle idle;
	struct responder *here; /* --loop: the other end is this program too */
	bool progress;		/* a line on the terminal */

	uint64_t looked_ns; /* when the clock was last read */
	uint64_t moved_ns;  /* when something last arrived or left */
	uint64_t moved;	    /* f.sent + f.received then */
	uint32_t idles;
};

/* Waits a little for the other end. 0, -EINTR (signal), -ETIMEDOUT (no progress for too long). */
int driver_wait(struct driver *d);
/* Once in a while: the progress line. */
void driver_progress(struct driver *d, uint64_t now);

/* The parts of a run between READY and END; `r` gets what only this end can know. */
int driver_latency(struct driver *d, struct perf_result *r);
int driver_stream(struct driver *d, struct perf_result *r);

/* One run: `r` is filled. 0, or -errno, and `what` (a few words) says what failed. */
int driver_run(struct driver *d, uint32_t test, uint32_t size, struct perf_result *r,
	       const char **what);

#endif
