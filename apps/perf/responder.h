/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's end of one connection, as steps that never wait: so a program can serve many, and be
 * both ends at once (--loop). States: asked nothing (RESTING), answering READY, RUNNING the plan,
 * awaiting messages that came other ways than the END (DRAINING), answering RESULT.
 */
#ifndef WEIR_PERF_RESPONDER_H
#define WEIR_PERF_RESPONDER_H

#include "flow.h"

#include <sys/queue.h>
#include <sys/types.h>

enum responder_state {
	RESPONDER_RESTING,
	RESPONDER_READY,
	RESPONDER_RUNNING,
	RESPONDER_DRAINING,
	RESPONDER_RESULT
};

struct server;

struct responder {
	struct perf_flow flow;
	LIST_ENTRY(responder) next;
	struct server *server; /* memory and messengers of all connections */
	int heard;	       /* tests of the message model: number of the client, or -1 */
	uint64_t due, due_ns;  /* DRAINING: messages, and how long it may take */
	enum responder_state state;
	struct perf_message request;
	struct perf_message reply; /* READY or RESULT, until it could be sent */
	struct perf_ports before;
	bool ports_known;
	uint64_t start_ns, last_ns; /* of the measured messages */
};

void responder_init(struct responder *r, struct server *server);
void responder_fini(struct responder *r);
/* Does what can be done now. How much that was (0: nothing), or -errno: the connection ended so. */
int responder_step(struct responder *r);

#endif
