/* SPDX-License-Identifier: BSD-3-Clause */
#include "idle.h"

#include "flow.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>

void
perf_idle_events(struct idle *idle, int timeout_ms)
{
	static const struct weir_event readable = {.type = WEIR_EVENT_READABLE};
	struct epoll_event ready[IDLE_EVENTS];
	struct weir_event events[IDLE_EVENTS];
	int n;

	if (idle->epoll >= 0) {
		n = epoll_wait(idle->epoll, ready, IDLE_EVENTS, timeout_ms);
		for (int i = 0; i < n; i++) {
			if (ready[i].data.ptr)
				perf_flow_event(ready[i].data.ptr, &readable);
			else
				idle->accepts = true;
		}
		return;
	}
	n = timeout_ms ? weir_wait(idle->weir, events, IDLE_EVENTS, timeout_ms)
		       : weir_poll(idle->weir, events, IDLE_EVENTS);
	/* a failed connection reports its error on its next call, a failed listener on accept */
	if (n < 0)
		idle->accepts = true;
	for (int i = 0; i < n; i++) {
		if (events[i].type == WEIR_EVENT_ACCEPT)
			idle->accepts = true;
		else if (events[i].user)
			perf_flow_event(events[i].user, &events[i]);
	}
}

int
perf_idle_watch(struct idle *idle, int fd, struct perf_flow *flow)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = flow};

	if (idle->epoll < 0)
		idle->epoll = epoll_create1(EPOLL_CLOEXEC);
	return idle->epoll < 0 || epoll_ctl(idle->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
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
