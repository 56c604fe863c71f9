/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a connection: sends and receives the messages of a run. Nothing here waits: -EAGAIN
 * means later.
 */
#ifndef WEIR_PERF_FLOW_H
#define WEIR_PERF_FLOW_H

#include "memory.h"
#include "message.h"
#include "socket.h"

#include "weir/stream.h"

#define FLOW_WAIT_MS 10 /* time limit of one receive of a round trip */

/* perf_flow_recv() received not a message of the schedule but one for perf_message_read(). */
#define FLOW_CONTROL 1

struct perf_flow;

/* Connections of a thread that have something to do, taken in turn or at random. */
struct perf_queue {
	struct perf_flow **ring; /* room for all connections there are */
	uint32_t mask, head, tail;
};

/* Makes room for n connections. 0 or -ENOMEM. */
int perf_queue_reserve(struct perf_queue *q, uint32_t n);
void perf_queue_free(struct perf_queue *q);
/* Adds a connection at the end, unless it is queued. */
void perf_queue_push(struct perf_queue *q, struct perf_flow *f);
/* Removes and returns the first, or number `random` modulo the count if not 0. NULL: empty. */
struct perf_flow *perf_queue_pop(struct perf_queue *q, uint64_t random);
/* Removes a connection from anywhere in the queue. */
void perf_queue_remove(struct perf_queue *q, struct perf_flow *f);

static inline uint32_t
perf_queue_count(const struct perf_queue *q)
{
	return q->head - q->tail;
}

/* Buffers of a thread, shared by its connections: messages are written and received here. */
struct perf_buffers {
	uint8_t *out, *in;
	size_t out_size, in_size;
	const struct perf_flow *prepared_by; /* its message lies in `out` */
};

struct perf_flow {
	struct weir *weir;
	struct weir_conn *conn;	   /* or */
	struct weir_conn *data;	   /* of the schedule: conn, or with PERF_UD of its own */
	struct perf_socket socket; /* where conn is NULL */
	struct perf_buffers *buffers;
	struct weir_address address; /* driver: of the server */
	struct perf_queue *queue;    /* joined when it can continue; NULL: none */
	bool queued;		     /* it is in `queue` */
	struct perf_schedule out, in;
	bool verify, copy, plain;
	bool datagrams;		 /* `data` is a datagram connection, or not made yet */
	bool answers;		 /* lat, server: what is sent answers what came */
	bool reads;		 /* arriving messages are pieces of the server's memory */
	struct perf_slots slots; /* --adopt, driver */
	const uint8_t *region;	 /* PERF_READ, server: the memory */
	uint32_t window;	 /* messages under way at most, 0: no limit */
	uint32_t transfer;	 /* WEIR_RING ... of each message, 0: whichever */
	uint32_t batch;		 /* messages per call */

	uint64_t sent, received;
	uint64_t due;	    /* datagrams, answers: `sent` once the last one is answered */
	uint64_t completed; /* of sent, by events; only with a window */
	uint64_t bytes;	    /* received */
	uint64_t errors;    /* messages with wrong contents or length */
	bool blocked;	    /* the last send returned -EAGAIN; an event unblocks it */
	uint32_t tx_client; /* tests of the message model: the client number */
	bool partial;	    /* the kernel has a part of message `sent` */
	int failed;	    /* -errno of an event */
	int wait_ms;	    /* round trips: time limit of a receive */
	uint64_t
	    prepared; /* buffers->out holds message prepared - 1, if prepared_by is this flow */

	struct perf_message control;
	size_t control_length;
	uint8_t key[PERF_KEY_BYTES]; /* tests of remote memory, driver: of the memory there */
};

void perf_flow_init(struct perf_flow *f, struct perf_buffers *buffers);
/* Sets the connection: of Weir, or a socket. */
void perf_flow_conn(struct perf_flow *f, struct weir *weir, struct weir_conn *conn);
void perf_flow_socket(struct perf_flow *f, int fd);
/* Sets or, NULL, closes the connection of the datagrams. */
void perf_flow_data(struct perf_flow *f, struct weir_conn *data);
/* Prepares the run of `request`; `driver`: this end sent the request. 0 or -errno. */
int perf_flow_start(struct perf_flow *f, const struct perf_message *request, bool driver);
void perf_flow_close(struct perf_flow *f);
void perf_buffers_free(struct perf_buffers *b);

/* Sends the next message of the schedule. 0, -EAGAIN, or -errno: the connection has ended. */
int perf_flow_send(struct perf_flow *f);
/* Sends up to `most` messages while f->sent is below `until`. Their number, or -errno. */
int perf_flow_send_burst(struct perf_flow *f, uint64_t until, int most);
/*
 * Receives and counts a message. 0, FLOW_CONTROL (a control message in f->control), -EAGAIN, or
 * -errno: the connection has ended.
 */
int perf_flow_recv(struct perf_flow *f);
/*
 * Receives up to `most` messages; *warm_ns is the time when message `warmup` arrived. Their number,
 * or -errno. A control message ends the burst and sets *control; with `control` NULL it is -EPROTO.
 */
int perf_flow_recv_burst(struct perf_flow *f, int most, uint64_t warmup, uint64_t *warm_ns,
			 bool *control);
/* Takes an event of the connection and puts the connection into its queue. */
void perf_flow_event(struct perf_flow *f, const struct weir_event *event);
/* Sends a control message where the peer expects message f->sent. 0, -EAGAIN, or an error. */
int perf_flow_send_control(struct perf_flow *f, struct perf_message *m, enum perf_kind kind);
/* Outside a run: receives a control message into f->control. 0, -EAGAIN, or an error. */
int perf_flow_recv_control(struct perf_flow *f);

#endif
