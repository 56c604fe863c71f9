/* SPDX-License-Identifier: BSD-3-Clause */
#include "idle.h"

#include "flow.h"

#include <sched.h>

#define EVENTS 16

void
perf_idle_events(struct idle *idle, int timeout_ms)
{
	struct weir_event events[EVENTS];
	int n = timeout_ms ? weir_wait(idle->weir, events, EVENTS, timeout_ms)
			   : weir_poll(idle->weir, events, EVENTS);

	/* how a connection ends, its next send or receive tells */
	for (int i = 0; i < n; i++) {
		if (events[i].type == WEIR_EVENT_SENT && events[i].user)
			perf_flow_completed(events[i].user, &events[i]);
	}
}

void
perf_idle_yield(struct idle *idle)
{
	uint64_t before = now_ns();

	sched_yield();
	idle->empty = 0;
	if (now_ns() - before > IDLE_OTHERS_NS) {
		idle->shared = true;
		idle->quick = 0;
	} else if (idle->shared && ++idle->quick >= IDLE_ALONE) {
		idle->shared = false;
		idle->quick = 0;
	}
}
