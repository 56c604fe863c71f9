/* SPDX-License-Identifier: BSD-3-Clause */
/* State of the engines when the process crashes. Async-signal-safe. */
#include "plane.h"

#include "base/crash.h"

#include <rte_lcore.h>

static const struct plane *plane; /* main writes before the engines start and after they end */

void
plane_crash_state(void)
{
	static const char *const name[] = {
#define X(type) [ENGINE_##type] = #type,
	    X(SET_NODE) X(SESSION_ADD) X(SESSION_REMOVE) X(REGION_ADD) X(REGION_REMOVE)
		X(SESSION_SHARE) X(CHANNEL_ADD) X(CONN_OPEN) X(CONN_START) X(CONN_ACCEPT)
		    X(CONN_REJECT) X(CONN_LOCAL) X(CONN_LOCAL_OPENED) X(CONN_PEER_CLOSED)
			X(CONN_EVICT) X(LINK_ADD) X(LINK_PAUSE) X(LINK_RESUME) X(LINK_GO)
			    X(LINK_FAIL) X(DATAGRAM_ADD) X(DATAGRAM_FAIL) X(NODE_EVENT) X(SNAPSHOT)
				X(QUIET)
#undef X
	};
	struct crash_line line = {.length = 0};

	if (!plane) {
		crash_add(&line, "no engine runs");
		crash_write(&line);
		return;
	}
	if (rte_lcore_id() == rte_get_main_lcore())
		crash_add(&line, "in the broker, on the main lcore; ");
	crash_add(&line, "instance ");
	crash_add(&line, plane->options->instance);
	crash_write(&line);
	for (unsigned i = 0; i < plane->engines; i++) {
		const struct plane_engine *e = &plane->engine[i];
		const struct loop *l = e->loop;
		uint32_t last;

		if (!l)
			continue;
		line.length = 0;
		crash_add(&line, "engine ");
		crash_add_number(&line, i);
		crash_add(&line, ": lcore ");
		crash_add_number(&line, e->lcore);
		if (rte_lcore_id() == e->lcore)
			crash_add(&line, " (this thread)");
		crash_add(&line, ", turn ");
		crash_add_number(&line,
				 atomic_load_explicit(&l->stats.turns, memory_order_relaxed));
		crash_add(&line, ", sleeps ");
		crash_add_number(&line,
				 atomic_load_explicit(&l->stats.sleeps, memory_order_relaxed));
		crash_add(&line, atomic_load_explicit(&l->sleeping, memory_order_relaxed)
				     ? ", dozing"
				     : ", awake");
		crash_add(&line, ", commands ");
		crash_add_number(&line,
				 atomic_load_explicit(&l->stats.commands, memory_order_relaxed));
		crash_add(&line, ", the last ");
		last = atomic_load_explicit(&l->stats.last_command, memory_order_relaxed);
		crash_add(&line, last < sizeof(name) / sizeof(name[0]) && name[last] ? name[last]
										     : "unknown");
		crash_write(&line);
	}
}

void
plane_crash_watch(const struct plane *p)
{
	plane = p;
}
