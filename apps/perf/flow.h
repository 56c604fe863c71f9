/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages of a run on one connection, as one of its ends sends and receives them. Nothing here
 * waits: -EAGAIN means later.
 */
#ifndef WEIR_PERF_FLOW_H
#define WEIR_PERF_FLOW_H

#include "message.h"
#include "queue.h"
#include "slots.h"
#include "socket.h"

#include "weir/stream.h"

/* Up to here a message is copied through a buffer: it travels in slots anyway. */
#define FLOW_COPY_MAX 948u
#define FLOW_WAIT_MS 10

#define FLOW_CONTROL                                                                               \
	1 /* perf_flow_recv(): not a message of the plan but one for perf_message_read() */

/* Of all connections of a thread: where a message is written and received. */
struct perf_buffers {
	uint8_t *out, *in;
	size_t out_size, in_size;
	const struct perf_flow *prepared_by; /* whose message lies in `out` */
};

struct perf_flow {
	struct weir *weir;
	struct weir_conn *conn;	   /* or */
	struct perf_socket socket; /* where conn is NULL */
	struct perf_buffers *buffers;
	struct perf_queue *queue; /* where it goes when it can go on; NULL: nobody waits for that */
	bool queued;		  /* it is in there */
	struct perf_plan out, in;
	bool verify, copy, plain;
	bool reads;		 /* what arrives comes out of the server's memory */
	struct perf_slots slots; /* --adopt, driver */
	const uint8_t *region;	 /* PERF_READ, server: that memory */
	uint32_t window;	 /* messages under way at most, 0: no limit */
	uint32_t way;		 /* WEIR_RING ... of each message, 0: whichever */

	uint64_t sent, received;
	uint64_t completed; /* of sent, as far as events told; with a window only */
	uint64_t bytes;	    /* received */
	uint64_t errors;    /* messages whose contents or length were wrong */
	bool blocked;	    /* the last send had to wait: events tell when it may go on */
	uint32_t talker;    /* tests of the message model: what the server calls this client */
	bool cut;	    /* a part of message `sent` is with the kernel */
	int failed;	    /* -errno that an event brought */
	int wait_ms;	    /* round trips: so long a receive may wait */
	uint64_t prepared;  /* buffers->out holds message prepared - 1, if it is of this flow */

	struct perf_message control;
	size_t control_length;
};

void perf_flow_init(struct perf_flow *f, struct perf_buffers *buffers);
/* The connection: this one, or what lies behind the descriptor. */
void perf_flow_conn(struct perf_flow *f, struct weir *weir, struct weir_conn *conn);
void perf_flow_socket(struct perf_flow *f, int fd);
/* Sets up for the plan of `request`; `driver`: this end asked. 0 or -ENOMEM. */
int perf_flow_start(struct perf_flow *f, const struct perf_message *request, bool driver);
void perf_flow_close(struct perf_flow *f);
void perf_buffers_free(struct perf_buffers *b);

/* Sends the next message of the plan. 0, -EAGAIN, or how the connection ended. */
int perf_flow_send(struct perf_flow *f);
/* Receives: 0 and counted, FLOW_CONTROL and in f->control, -EAGAIN, or how the connection ended. */
int perf_flow_recv(struct perf_flow *f);
/* An event of the connection: it goes where it is waited for. */
void perf_flow_event(struct perf_flow *f, const struct weir_event *event);
/* Sends a control message where the peer expects message f->sent. 0, -EAGAIN, or an error. */
int perf_flow_send_control(struct perf_flow *f, struct perf_message *m, enum perf_kind kind);
/* Outside a run: receives a control message into f->control. 0, -EAGAIN, or an error. */
int perf_flow_recv_control(struct perf_flow *f);

#endif
