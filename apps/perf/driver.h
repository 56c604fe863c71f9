/* SPDX-License-Identifier: BSD-3-Clause */
/* The end that measures: requests a test from the server, runs it and collects the result. */
#ifndef WEIR_PERF_DRIVER_H
#define WEIR_PERF_DRIVER_H

#include "idle.h"
#include "result.h"
#include "server.h"
#include "programs.h"

#include <signal.h>
#include <stdatomic.h>

/* A signal handler sets it; all loops read it. */
extern atomic_bool perf_stop;

struct driver {
	const struct perf_options *options;
	struct weir *weir; /* NULL: TCP */
	struct perf_flow *flows;
	uint32_t flow_count;
	struct perf_flow *flow;	 /* the connection in use */
	struct perf_queue ready; /* with several connections: those that can continue */
	struct perf_buffers buffers;
	struct idle idle;
	struct server *own_server; /* --loop, --inside, --alltoall: this thread also serves */
	bool progress;		   /* print a progress line */
	uint64_t random;	   /* --pick random: state; else 0 */

	char service[WEIR_SERVICE_MAX]; /* of the server */
	char reason[TEAM_REASON];	/* why a thread of this program failed; "": none did */

	uint64_t group;		     /* of this run's window */
	struct remote_window window; /* while a run goes through it */

	struct team *team; /* NULL: alone */
	uint32_t number;   /* in the team */

	uint64_t sent, received; /* of all connections in this run */
	uint64_t looked_ns;	 /* last progress line or team update */
	uint64_t moved_ns;	 /* when a message last arrived or left */
	uint64_t moved;		 /* sent + received then */
	uint32_t idles;
};

/* An address with or without a service. 0 or -EINVAL. */
int perf_address_parse(const char *text, struct weir_address *address);
/* Makes options->connections connections to each address. 0 or -errno. */
int driver_connect(struct driver *d, const char *const *addresses, uint32_t n);
/* Makes the connection for the datagrams of the run that READY named. 0 or -errno. */
int driver_connect_datagrams(struct driver *d, struct perf_flow *f, uint64_t number);
void driver_close(struct driver *d);

/* Waits once for the other end. 0, -EINTR (signal), -ETIMEDOUT (no progress within --patience). */
int driver_wait(struct driver *d);
/* Prints the progress line, or updates the team's counters, when due. */
void driver_progress(struct driver *d, uint64_t now);
/* Sets d->flow to the next connection, in turn or at random. */
void driver_pick(struct driver *d);

/* With --rate: the number of messages allowed `ns` after the start. */
static inline uint64_t
driver_allowed(const struct driver *d, uint64_t ns)
{
	return (uint64_t)(d->options->rate * (double)ns / 1e9) + 1;
}

/* Ranks in the window's group: of this driver, and of the member at connection i. */
static inline uint32_t
driver_member(const struct driver *d)
{
	return d->options->alltoall ? d->number : 2 * d->number;
}

static inline uint32_t
driver_rank(const struct driver *d, uint32_t i)
{
	/* the first connection is to the successor */
	return d->options->alltoall ? (d->number + 1 + i) % d->team->count : 2 * d->number + 1;
}

/* Whether the team ends the run now. */
static inline bool
driver_stopped(const struct driver *d)
{
	return d->team && atomic_load_explicit(&d->team->stop, memory_order_relaxed);
}

/* A run between READY and END, one function per kind of test; fills what only this end knows. */
int driver_latency(struct driver *d, struct perf_result *r);
int driver_stream(struct driver *d, struct perf_result *r);
int driver_many(struct driver *d, struct perf_result *r);
int driver_read(struct driver *d, struct perf_result *r);
int driver_tx(struct driver *d, struct perf_result *r);
int driver_call(struct driver *d, struct perf_result *r);
int driver_remote(struct driver *d, struct perf_result *r);
/* Makes the window of a run; collective. 0 or -errno. */
int driver_window(struct driver *d, const struct perf_message *request);
/* The REQUEST of connection i. */
struct perf_message driver_request(const struct driver *d, uint32_t test, uint32_t size,
				   uint32_t i);

/* One run; fills `r`. 0, or -errno, and `what` names the failed step. */
int driver_run(struct driver *d, uint32_t test, uint32_t size, struct perf_result *r,
	       const char **what);

#endif
