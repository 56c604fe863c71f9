/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting between two looks at the connections. Polling: one pause; on a CPU shared with an engine
 * or the other program, a yield, as spinning would keep that thread from working. Long yields
 * detect the shared CPU. Sleeping: weir_wait().
 */
#ifndef WEIR_PERF_IDLE_H
#define WEIR_PERF_IDLE_H

#include "clock.h"

#include "weir/stream.h"

#include <stdbool.h>
#include <stdint.h>

struct perf_flow;

#define IDLE_PROBE 512	    /* empty polls before a yield that probes the CPU */
#define IDLE_OTHERS_NS 1500 /* a longer yield ran another thread */
#define IDLE_ALONE 256	    /* consecutive shorter yields until the CPU counts as dedicated */
#define IDLE_SLEEP_MS 100   /* one sleep; also the delay until a signal is seen */
#define IDLE_EVENTS 64	    /* per poll */

struct idle {
	struct weir *weir; /* NULL: sockets */
	int epoll;	   /* of the sockets; -1: none */
	bool accepts;	   /* a listener has a connection */
	bool sleeping;
	int sleep_ms; /* time limit of one sleep */
	bool shared;
	uint32_t empty; /* polls without work since the last yield */
	uint32_t quick; /* consecutive short yields */
};

/* Handles pending events, or waits for some; see perf_flow_event(). */
void perf_idle_events(struct idle *idle, int timeout_ms);
/* Watches a socket: of a connection, or (NULL) a listener. 0 or -errno. */
int perf_idle_watch(struct idle *idle, int fd, struct perf_flow *flow);
void perf_idle_yield(struct idle *idle);

static inline void
perf_idle_init(struct idle *idle, struct weir *weir, bool sleeping)
{
	*idle = (struct idle){
	    .weir = weir, .epoll = -1, .sleeping = sleeping, .sleep_ms = IDLE_SLEEP_MS};
}

/* After a poll that found nothing; the library has paused already. */
static inline void
perf_idle(struct idle *idle)
{
	if (idle->sleeping)
		perf_idle_events(idle, idle->sleep_ms);
	else if (idle->shared || ++idle->empty >= IDLE_PROBE)
		perf_idle_yield(idle);
}

#endif
