/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The message model: messages and requests between nodes (after DXNet). A program opens a
 * messenger, registers a handler per message type, and sends to node ids. The first message to a
 * node connects to it. docs/message.md is the guide.
 *
 * Threads: any thread may send to any node without locks, because each thread has its own lane to
 * each node. Messages from one thread to one node arrive in the order of the calls, and their
 * handlers run one after another. Handlers run in the messenger's own threads.
 *
 * Blocking: timeout_ms is in milliseconds. Below 0 the call waits without limit; with 0 it does
 * not wait. Unless said otherwise, a call whose time is over returns -EAGAIN.
 *
 * Errors of every call:
 *   -ENODEV        the data plane is gone, also after weir_reattach(): a messenger ends with its
 *                  data plane. Close it and open a new one
 *   -ECONNABORTED  an operator has ended the session
 *   -ENOTCONN      this process is a forked child of the one that attached
 * Errors of every call that sends:
 *   -EHOSTUNREACH  the node is unknown or lost, or its program has closed the connection
 *   -ECONNREFUSED  no messenger of this name is open on the node
 */
#ifndef WEIR_MESSAGE_H
#define WEIR_MESSAGE_H

#include "weir.h"

#include <stddef.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* bytes: largest message that is sent in one fragment and handled where it arrived */
#define WEIR_MESSAGE_WHOLE (1u << 20)
#define WEIR_HANDLER_THREADS_MAX 32u /* handler threads per messenger */
#define WEIR_LANES_MAX 256u	     /* sending threads with lanes of their own, per messenger */
#define WEIR_MESSAGE_PARTS 16u	     /* entries of an iovec, weir_message_sendv() */
#define WEIR_NO_TIMEOUT (-2)	     /* timeout_ms of a request: no limit */

/* Makes a message type from type and subtype, 8 bits each. The program may use all values. */
#define WEIR_TYPE(type, subtype) ((uint16_t)((uint16_t)(type) << 8 | (uint8_t)(subtype)))

struct weir_messenger; /* valid until weir_messenger_close() */

/* ---- Messengers ---- */

enum weir_link_event {
	WEIR_LINK_CREATED = 1, /* messages can be exchanged with the node */
	WEIR_LINK_LOST = 2,    /* the connection ended; status 0: closed in order, else -errno */
};

/* Only sends: the messenger listens on no name, and no node can send messages to it. */
#define WEIR_MESSENGER_CLIENT 0x1u
/* weir_service_find() with the messenger's name lists the nodes that run such a messenger. */
#define WEIR_MESSENGER_PUBLIC 0x2u

/* Initialize with WEIR_MESSENGER_OPTIONS, then change single fields. */
struct weir_messenger_options {
	const char *service;	  /* name by which messengers find each other, at most 27 bytes */
	uint32_t flags;		  /* WEIR_MESSENGER_* */
	uint32_t handler_threads; /* 1 to WEIR_HANDLER_THREADS_MAX */
	/*
	 * Handler threads over which lanes are spread; the remaining ones help when a handler takes
	 * long. At most handler_threads; 0: half the number of CPUs.
	 */
	uint32_t receivers;
	/* Sending threads with lanes of their own, 1 to WEIR_LANES_MAX; further threads share. */
	uint32_t lanes;
	/* Nodes connected at a time, at least 1; beyond it the least recently used idle one ends.
	 */
	uint32_t connections;
	/* Flow-control window per lane, bytes, at least 64 KiB; 0: the data plane's default. */
	uint32_t window;
	uint32_t threshold;	     /* percent of the window after which credit returns, 1 to 90 */
	uint32_t request_timeout_ms; /* ms, at least 1; applies to requests with timeout_ms -1 */
	uint64_t message_max;	     /* bytes, at least 1 MiB; both ends refuse longer messages */
	/*
	 * Bytes of messages above WEIR_MESSAGE_WHOLE that the library reassembles at a time, at
	 * least 4 MiB; one node may use at most half. Further messages wait. 0: twice message_max.
	 * Memory from a handler's `place` does not count.
	 */
	uint64_t assembly_max;
	/*
	 * Called by a handler thread when a node is connected or lost, alternately per node. May
	 * be NULL.
	 */
	void (*link)(uint16_t node, enum weir_link_event event, int status, void *user);
	void *user; /* passed to link */
};
#define WEIR_MESSENGER_OPTIONS                                                                     \
	{                                                                                          \
		"weir.message", 0, 2, 0, 64, 10000, 0, 50, 333, 1ull << 30, 0, NULL, NULL          \
	}

/*
 * Opens a messenger and starts its handler threads.
 *
 * @w          session handle
 * @options    NULL: defaults
 * @messenger  receives the handle, freed by weir_messenger_close()
 *
 * Returns 0, or
 *   -EINVAL      an option is out of its range; weir_reason() says which
 *   -EADDRINUSE  another program of this node has a messenger of this name
 *   -ENOMEM      no memory
 *   and the errors of weir_listen() and of every call.
 */
int weir_messenger_open(struct weir *w, const struct weir_messenger_options *options,
			struct weir_messenger **messenger);

/*
 * Closes all connections in order, as weir_message_disconnect() does, ends the handler threads and
 * frees the messenger. Outstanding requests end with -ECANCELED. Call it before weir_detach(), not
 * from a handler, and while no other thread uses the messenger. NULL is allowed.
 */
void weir_messenger_close(struct weir_messenger *m);

/* Counters since the messenger was opened: X(field, description). */
#define WEIR_MESSENGER_COUNTERS(X)                                                                 \
	X(handled, "messages and requests passed to handlers")                                     \
	X(unknown, "messages dropped: no handler registered for their type")                       \
	X(malformed, "messages dropped: malformed; their connections were closed")                 \
	X(oversized, "messages dropped: longer than message_max, or no memory given for them")     \
	X(stalled, "messages dropped: incomplete in time while others waited for their memory")    \
	X(late, "responses dropped: their request had ended")                                      \
	X(taken_over, "messages handled for a thread whose handler did not return")                \
	X(created, "connections made")                                                             \
	X(lost, "connections ended")                                                               \
	X(evicted, "connections closed to stay within the limit")
struct weir_messenger_stats {
#define WEIR_MESSENGER_COUNTER(name, help) uint64_t name;
	WEIR_MESSENGER_COUNTERS(WEIR_MESSENGER_COUNTER)
#undef WEIR_MESSENGER_COUNTER
};

/* Reads the counters since the messenger was opened. Any thread; does not block. */
void weir_messenger_stats(const struct weir_messenger *m, struct weir_messenger_stats *stats);

/* ---- Receiving ---- */

/*
 * Addresses the response to a request. A handler may copy it and respond later, once, from any
 * thread.
 */
struct weir_reply {
	uint64_t internal[3];
};

/* A received message, as passed to a handler. Valid until the handler returns. */
struct weir_message {
	const void *data; /* aligned to 8 bytes */
	size_t length;	  /* bytes */
	uint16_t node;	  /* id of the sending node */
	uint16_t type;	  /* WEIR_TYPE() */
	uint32_t flags;	  /* WEIR_MESSAGE_REQUEST, WEIR_MESSAGE_BROKEN */
	struct weir_reply reply;
};
#define WEIR_MESSAGE_REQUEST 0x1u /* the sender waits for a response */
#define WEIR_MESSAGE_BROKEN 0x2u  /* never completed; data is the memory that `place` returned */

/* Of all exclusive handlers of a messenger, only one runs at a time. */
#define WEIR_HANDLER_EXCLUSIVE 0x1u
/* The sender's next message may be handled before this one's handler has returned. */
#define WEIR_HANDLER_UNORDERED 0x2u

struct weir_handler {
	/* Handles one message, in a handler thread. */
	void (*handle)(struct weir_messenger *m, const struct weir_message *message, void *user);
	void *user;	/* passed to handle and place */
	uint32_t flags; /* WEIR_HANDLER_* */
	/*
	 * Called with the header when the first fragment of a message above WEIR_MESSAGE_WHOLE
	 * arrives. Returns memory of header->length bytes, which `handle` later receives as data;
	 * NULL drops the message. If the message is never completed, `handle` receives the memory
	 * with WEIR_MESSAGE_BROKEN. May be NULL: the library then allocates, within assembly_max.
	 */
	void *(*place)(struct weir_messenger *m, const struct weir_message *header, void *user);
};

/*
 * Registers the handler of a message type.
 *
 * @m     messenger
 * @type  WEIR_TYPE()
 * @h     handler; copied
 *
 * Returns 0, or
 *   -EEXIST  the type has a handler already
 *   -EINVAL  no handle function, or an unknown flag
 *   -ENOMEM  no memory
 * Any thread, also from a handler. Does not block.
 */
int weir_message_register(struct weir_messenger *m, uint16_t type, const struct weir_handler *h);

/*
 * Unregisters the handler of a message type. From the call on, messages of the type, also those in
 * transit, are dropped and counted, and requests are answered with -ENOMSG. Then the call waits
 * until running handlers of the type have returned, except the one that makes the call. After 0
 * the program again owns all memory that `place` returned for messages not yet handled.
 *
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns 0, or -EAGAIN if a handler still runs, or -ENOENT if the type has no handler.
 * Any thread, also from a handler.
 */
int weir_message_unregister(struct weir_messenger *m, uint16_t type, int timeout_ms);

/*
 * Responds to a request. Does not wait: if there is no room, the library keeps a copy of the
 * response, and further messages of the sender wait for it.
 *
 * @m       messenger
 * @reply   reply of the request, or a copy
 * @buf     response; may be reused when the call returns
 * @length  bytes, at most message_max
 *
 * Returns 0, or
 *   -EHOSTUNREACH  the connection to the sender is lost
 *   -EMSGSIZE      longer than message_max
 *   -EINVAL        not the reply of a request
 *   -ENOMEM        no memory
 * Any thread, once per request.
 */
int weir_message_respond(struct weir_messenger *m, const struct weir_reply *reply, const void *buf,
			 size_t length);

/*
 * Fails a request: it ends at its sender with -error.
 *
 * @error  1 to 4095, an errno value
 *
 * Returns as weir_message_respond(). Any thread, once per request.
 */
int weir_message_refuse(struct weir_messenger *m, const struct weir_reply *reply, int error);

/* ---- Sending ---- */

/*
 * Sends a message. The buffer may be reused when the call returns.
 *
 * @m           messenger
 * @node        id of the receiving node
 * @type        WEIR_TYPE()
 * @buf         payload
 * @length      bytes, at most message_max
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns 0 if the message is accepted: it arrives exactly once, or the connection is lost.
 * Otherwise
 *   -EAGAIN    no room within the timeout. Nothing was accepted; but a message above
 *              WEIR_MESSAGE_WHOLE goes in fragments, and if the time is over in between, the
 *              receiver drops it
 *   -EMSGSIZE  longer than message_max
 *   -ENOMEM    no memory
 *   and the errors of every call that sends. Any thread.
 */
int weir_message_send(struct weir_messenger *m, uint16_t node, uint16_t type, const void *buf,
		      size_t length, int timeout_ms);

/*
 * weir_message_send() that gathers the payload from several buffers.
 *
 * @iov  buffers
 * @n    entries of iov, at most WEIR_MESSAGE_PARTS
 *
 * Returns as weir_message_send(), or -EINVAL if there are too many buffers.
 */
int weir_message_sendv(struct weir_messenger *m, uint16_t node, uint16_t type,
		       const struct iovec *iov, unsigned n, int timeout_ms);

/*
 * Sends the same message to several nodes, one after another.
 *
 * @nodes       ids of the receiving nodes
 * @n           entries of nodes
 * @timeout_ms  milliseconds per node
 * @results     receives the result of weir_message_send() per node; may be NULL
 *
 * Returns the number of nodes for which the message was accepted.
 */
int weir_message_send_many(struct weir_messenger *m, const uint16_t *nodes, unsigned n,
			   uint16_t type, const void *buf, size_t length, int timeout_ms,
			   int *results);

/*
 * A message composed in place. Each thread may hold one at a time; the number of drafts with
 * WEIR_DRAFT_KEEP is not limited.
 */
struct weir_draft {
	void *data;    /* memory for the payload */
	size_t room;   /* bytes of data */
	size_t length; /* with WEIR_DRAFT_KEEP: bytes of the committed message */
	uint64_t internal[4];
};
#define WEIR_DRAFT_KEEP 0x1u /* keep the memory after the commit, for sending the message again */

/*
 * Reserves memory in which the program composes a message. The draft ends with
 * weir_message_commit() or weir_message_abandon(). With WEIR_DRAFT_KEEP the program owns the memory
 * beyond the commit, and may send the message unchanged to any node until it abandons the draft.
 *
 * @m           messenger
 * @node        id of the receiving node
 * @type        WEIR_TYPE()
 * @room        bytes, at most WEIR_MESSAGE_WHOLE
 * @flags       WEIR_DRAFT_KEEP or 0
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 * @draft       filled on success
 *
 * Returns 0, or
 *   -EAGAIN    no room within the timeout
 *   -EMSGSIZE  room is above WEIR_MESSAGE_WHOLE
 *   -EINVAL    unknown flag
 *   -ENOMEM    no memory
 *   and the errors of every call that sends. Any thread.
 */
int weir_message_reserve(struct weir_messenger *m, uint16_t node, uint16_t type, size_t room,
			 uint32_t flags, int timeout_ms, struct weir_draft *draft);

/*
 * Sends a draft. On success the library owns its memory, except with WEIR_DRAFT_KEEP; on failure
 * the caller may commit again or abandon.
 *
 * @length      bytes of the message, at most draft->room
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns as weir_message_send(), or -EINVAL if the draft was not reserved or length exceeds it.
 */
int weir_message_commit(struct weir_messenger *m, struct weir_draft *draft, size_t length,
			int timeout_ms);

/*
 * Sends a committed draft with WEIR_DRAFT_KEEP again, to any node. Returns as weir_message_send(),
 * or -EINVAL if the draft is not a committed one with WEIR_DRAFT_KEEP.
 */
int weir_message_resend(struct weir_messenger *m, struct weir_draft *draft, uint16_t node,
			int timeout_ms);

/* Releases a draft that is not sent, or not sent again. */
void weir_message_abandon(struct weir_messenger *m, struct weir_draft *draft);

/* ---- Requests ---- */

/*
 * Sends a request and waits for its response.
 *
 * @m                messenger
 * @node             id of the node that is asked
 * @type             WEIR_TYPE()
 * @buf              request
 * @length           bytes of the request, at most message_max
 * @response         receives the response
 * @size             size of response in bytes
 * @response_length  receives the bytes of the response, also with -EMSGSIZE; may be NULL
 * @timeout_ms       milliseconds; -1: request_timeout_ms of the messenger; WEIR_NO_TIMEOUT: no
 *                   limit
 *
 * Returns 0, or
 *   -ETIMEDOUT  no response in time
 *   -ECANCELED  cancelled by weir_message_cancel() or weir_messenger_close()
 *   -ENOMSG     the node has no handler for the type
 *   -EMSGSIZE   the response is longer than size; the buffer holds its beginning. Or the request
 *               is longer than a limit of either messenger
 *   -ENOSPC     too many requests of this thread are outstanding
 *   -EPROTO     the node sent a malformed message
 *   -ENOMEM     no memory
 *   the error with which the handler refused the request,
 *   or an error of every call that sends. Any thread.
 */
int weir_message_request(struct weir_messenger *m, uint16_t node, uint16_t type, const void *buf,
			 size_t length, void *response, size_t size, size_t *response_length,
			 int timeout_ms);

/*
 * A request whose response is collected later. The program provides the memory and must keep it,
 * and the response buffer, from weir_request_start() until the request has ended.
 */
struct weir_request {
	int status;    /* once ended: 0 or -errno */
	uint16_t node; /* id of the node that is asked */
	size_t length; /* once ended: bytes of the response */
	uint64_t internal[6];
};

/*
 * Sends a request without waiting for the response. The response is written to the buffer during a
 * later call of this thread, or of a thread that waits for r.
 *
 * @r                the request; filled
 * @response         receives the response
 * @size             size of response in bytes
 * @send_timeout_ms  milliseconds to wait for room; below 0: no limit; 0: do not wait
 *
 * Returns 0, or -EAGAIN if there was no room, or an error of weir_message_request().
 */
int weir_request_start(struct weir_messenger *m, struct weir_request *r, uint16_t node,
		       uint16_t type, const void *buf, size_t length, void *response, size_t size,
		       int send_timeout_ms);

/*
 * Waits until a request has ended, and returns its status. When the time is over the request ends
 * with -ETIMEDOUT; a late response is dropped. Only one thread at a time may wait for a request.
 *
 * @timeout_ms  milliseconds; -1: request_timeout_ms of the messenger; WEIR_NO_TIMEOUT: no limit;
 *              0: do not wait, return -EAGAIN if the request has not ended
 *
 * Returns as weir_message_request(), or -EINVAL if the request was not started.
 */
int weir_request_wait(struct weir_request *r, int timeout_ms);

/*
 * Ends a request with -ECANCELED, unless it has ended already, and wakes the thread that waits for
 * it. Any thread.
 */
void weir_request_cancel(struct weir_request *r);

/*
 * Cancels all outstanding requests to a node. Returns the number of requests cancelled, or an
 * error of every call. Any thread.
 */
int weir_message_cancel(struct weir_messenger *m, uint16_t node);

/* ---- Connections ---- */

/*
 * Connects to a node without sending a message. Returns 0, or -EAGAIN if the time is over, or an
 * error of every call that sends. Any thread.
 */
int weir_message_connect(struct weir_messenger *m, uint16_t node, int timeout_ms);

/*
 * Closes the connection to a node in order: messages that both ends have accepted are delivered
 * and outstanding responses awaited, for at most 10 s. A later message connects again.
 *
 * Returns 0, or
 *   -ETIMEDOUT  10 s were not enough; the connection is closed all the same
 *   -ENOTCONN   the node is not connected
 *   and the errors of every call.
 * Any thread, but not from a handler.
 */
int weir_message_disconnect(struct weir_messenger *m, uint16_t node);

#ifdef __cplusplus
}
#endif
#endif
