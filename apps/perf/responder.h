/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's end of one connection, as steps that never wait: so a program can serve many, and be
 * both ends at once (--loop). States: asked nothing (RESTING), answering READY, RUNNING the plan,
 * answering RESULT.
 */
#ifndef WEIR_PERF_RESPONDER_H
#define WEIR_PERF_RESPONDER_H

#include "flow.h"
#include "region.h"

#include <sys/queue.h>
#include <sys/types.h>

enum responder_state { RESPONDER_RESTING, RESPONDER_READY, RESPONDER_RUNNING, RESPONDER_RESULT };

struct responder {
	struct perf_flow flow;
	LIST_ENTRY(responder) next;
	const char *instance;	    /* whose ports are read */
	struct perf_region *region; /* for PERF_READ; of all connections */
	enum responder_state state;
	struct perf_message request;
	struct perf_message reply; /* READY or RESULT, until it could be sent */
	struct perf_ports before;
	bool ports_known;
	uint64_t start_ns, last_ns; /* of the measured messages */
};

void responder_init(struct responder *r, const char *instance, struct perf_buffers *buffers,
		    struct perf_region *region);
/* Does what can be done now. How much that was (0: nothing), or -errno: the connection ended so. */
int responder_step(struct responder *r);

#endif
