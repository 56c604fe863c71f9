/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a thread does between two looks at its connections. Polling: one pause; but where it shares
 * its CPU with somebody who has work (an engine, the other program), it yields, because then
 * spinning keeps away the very one that it waits for. Whether it does is noticed, not told.
 * Sleeping: weir_wait().
 */
#ifndef WEIR_PERF_IDLE_H
#define WEIR_PERF_IDLE_H

#include "clock.h"

#include "weir/stream.h"

#include <stdbool.h>
#include <stdint.h>

struct perf_flow;

#define IDLE_PROBE 512	    /* empty polls before a yield that finds out */
#define IDLE_OTHERS_NS 1500 /* a yield that takes longer ran somebody else */
#define IDLE_ALONE 256	    /* shorter yields in a row until the CPU counts as our own again */
#define IDLE_SLEEP_MS 100   /* also how late a signal is seen */
#define IDLE_EVENTS 64

struct idle {
	struct weir *weir; /* or */
	int epoll;	   /* where weir is NULL: of the sockets; -1: none */
	bool accepts;	   /* an event said that a listener has a connection */
	bool sleeping;
	int sleep_ms; /* at most so long at a time */
	bool shared;
	uint32_t empty; /* polls without work since the last yield */
	uint32_t quick; /* short yields in a row */
};

/* Takes up the events there are, or waits so long for some; see perf_flow_event(). */
void perf_idle_events(struct idle *idle, int timeout_ms);
/* Events of a socket are wanted: of a connection, or (NULL) of a listener. 0 or -errno. */
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
