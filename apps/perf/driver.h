/* SPDX-License-Identifier: BSD-3-Clause */
/* The end that measures: asks the server for a test, runs it, and says what came of it. */
#ifndef WEIR_PERF_DRIVER_H
#define WEIR_PERF_DRIVER_H

#include "idle.h"
#include "result.h"
#include "server.h"
#include "threads.h"

#include <signal.h>
#include <stdatomic.h>

/* Set by a signal handler; everybody looks at it. */
extern atomic_bool perf_stop;

struct driver {
	const struct perf_options *options;
	struct weir *weir; /* NULL: TCP */
	struct perf_flow *flows;
	uint32_t flow_count;
	struct perf_flow *flow;	 /* the only one, or whose turn it is */
	struct perf_queue ready; /* of several: those that can go on */
	struct perf_buffers buffers;
	struct idle idle;
	struct server *here; /* --loop, --alltoall: others are served by this thread too */
	bool progress;	     /* a line on the terminal */
	uint64_t random;     /* --pick random: state; else 0 */

	char service[WEIR_SERVICE_MAX]; /* of the server */
	char reason[TEAM_REASON];	/* why a thread of this program failed; "": none did */

	struct team *team; /* NULL: alone */
	uint32_t number;   /* in the team */

	uint64_t sent, received; /* of several connections together, in this run */
	uint64_t looked_ns;	 /* when the progress was last told */
	uint64_t moved_ns;	 /* when something last arrived or left */
	uint64_t moved;		 /* sent + received then */
	uint32_t idles;
};

/* An address with or without a service. 0 or -EINVAL. */
int perf_address_parse(const char *text, struct weir_address *address);
/* Makes the connections to `addresses`, to each as many as the options say. 0 or -errno. */
int driver_connect(struct driver *d, const char *const *addresses, uint32_t n);
void driver_close(struct driver *d);

/* Waits a little for the other end. 0, -EINTR (signal), -ETIMEDOUT (no progress for too long). */
int driver_wait(struct driver *d);
/* Once in a while: the progress line. */
void driver_progress(struct driver *d, uint64_t now);
/* The next connection in turn, or any one, becomes d->flow. */
void driver_pick(struct driver *d);

/* With --rate: messages that may have been sent `ns` after the start. */
static inline uint64_t
driver_allowed(const struct driver *d, uint64_t ns)
{
	return (uint64_t)(d->options->rate * (double)ns / 1e9) + 1;
}

/* Whether the team shall end the run now. */
static inline bool
driver_stopped(const struct driver *d)
{
	return d->team && atomic_load_explicit(&d->team->stop, memory_order_relaxed);
}

/* The parts of a run between READY and END; `r` gets what only this end can know. */
int driver_latency(struct driver *d, struct perf_result *r);
int driver_stream(struct driver *d, struct perf_result *r);
int driver_crowd(struct driver *d, struct perf_result *r);
int driver_read(struct driver *d, struct perf_result *r);
int driver_talk(struct driver *d, struct perf_result *r);
/* What connection i is asked for. */
struct perf_message driver_request(const struct driver *d, uint32_t test, uint32_t size,
				   uint32_t i);

/* One run: `r` is filled. 0, or -errno, and `what` (a few words) says what failed. */
int driver_run(struct driver *d, uint32_t test, uint32_t size, struct perf_result *r,
	       const char **what);

#endif
