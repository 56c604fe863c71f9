/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages of a run on one connection, as one of its ends sends and receives them. Nothing here
 * waits: -EAGAIN means later.
 */
#ifndef WEIR_PERF_FLOW_H
#define WEIR_PERF_FLOW_H

#include "message.h"

#include "weir/stream.h"

/* Up to here a message is copied through a buffer: it travels in slots anyway. */
#define FLOW_COPY_MAX 948u
#define FLOW_WAIT_MS 10

#define FLOW_CONTROL                                                                               \
	1 /* perf_flow_recv(): not a message of the plan but one for perf_message_read() */

struct perf_flow {
	struct weir *weir;
	struct weir_conn *conn;
	struct perf_plan out, in;
	bool verify, copy;
	uint32_t window; /* messages under way at most, 0: no limit */
	uint32_t way;	 /* operation, in flags of each send; 0: any */

	uint64_t sent, received;
	uint64_t completed; /* of sent, as far as events told; with a window only */
	uint64_t bytes;	    /* received */
	uint64_t errors;    /* messages whose contents or length were wrong */
	bool blocked;	    /* the last send had to wait: events tell when it may go on */
	int failed;	    /* -errno that an event brought */
	int wait_ms;	    /* round trips: so long a receive may wait */
	uint64_t prepared;  /* out_buf holds message prepared - 1 */

	uint8_t *out_buf; /* largest message of `out`, written once */
	uint8_t *in_buf;
	size_t in_size;
	struct perf_message control;
	size_t control_length;
};

void perf_flow_init(struct perf_flow *f, struct weir *weir, struct weir_conn *conn);
/* Sets up for the plan of `request`; `driver`: this end asked. 0 or -ENOMEM. */
int perf_flow_start(struct perf_flow *f, const struct perf_message *request, bool driver);
void perf_flow_fini(struct perf_flow *f);

/* Sends the next message of the plan. 0, -EAGAIN, or how the connection ended. */
int perf_flow_send(struct perf_flow *f);
/* Receives: 0 and counted, FLOW_CONTROL and in f->control, -EAGAIN, or how the connection ended. */
int perf_flow_recv(struct perf_flow *f);
/* A message with WEIR_NOTIFY ended. */
void perf_flow_completed(struct perf_flow *f, const struct weir_event *event);
/* Sends a control message where the peer expects message f->sent. 0, -EAGAIN, or an error. */
int perf_flow_send_control(struct perf_flow *f, struct perf_message *m, enum perf_kind kind);
/* Outside a run: receives a control message into f->control. 0, -EAGAIN, or an error. */
int perf_flow_recv_control(struct perf_flow *f);

#endif
