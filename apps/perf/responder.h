/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's end of one connection, in steps that never wait. States: awaiting a request (IDLE),
 * awaiting the program that exports memory (PREPARING), sending READY, RUNNING the schedule,
 * awaiting messages that END has overtaken, or what that program has found (DRAINING), sending
 * RESULT.
 */
#ifndef WEIR_PERF_RESPONDER_H
#define WEIR_PERF_RESPONDER_H

#include "flow.h"
#include "remote.h"

#include <sys/queue.h>
#include <sys/types.h>

enum responder_state {
	RESPONDER_IDLE,
	RESPONDER_PREPARING,
	RESPONDER_READY,
	RESPONDER_RUNNING,
	RESPONDER_DRAINING,
	RESPONDER_RESULT
};

struct server;

struct responder {
	struct perf_flow flow;
	LIST_ENTRY(responder) next;
	struct server *server;		 /* memory and messengers of all connections */
	int rx_client;			 /* tests of the message model: client number, or -1 */
	struct call_rx *calls;		 /* call: its threads; NULL: none */
	struct perf_target target;	 /* tests of remote memory */
	uint64_t due, due_ns;		 /* DRAINING: number of messages; time limit */
	struct weir_listener *datagrams; /* PERF_UD: until the driver has connected */
	enum responder_state state;
	bool drained; /* RUNNING: calls have failed with -EAGAIN, so an event tells of more */
	struct perf_message request;
	struct perf_message reply; /* READY or RESULT, until it is sent */
	struct perf_ports before;
	bool ports_known;
	uint64_t start_ns, last_ns; /* of the measured messages */
};

void responder_init(struct responder *r, struct server *server);
void responder_fini(struct responder *r);
/* Takes the connection for the run's datagrams if it has come. */
void responder_accept(struct responder *r);
/* Does all work possible now. Its amount (0: none), or -errno: the connection has ended. */
int responder_step(struct responder *r);

#endif
