/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The message model: messages and requests between nodes (DXNet's). A program opens a messenger,
 * registers handlers by type and sends to node ids; connections are made by the first message. See
 * docs/message.md.
 *
 * Threads: any thread may send to any node, without locks: each has a lane of its own to each node
 * it sends to. Messages of one thread to one node arrive in the order of the calls, and their
 * handlers run one after another. Handlers run in the messenger's own threads.
 *
 * Waiting: `timeout_ms` < 0 waits for ever, 0 doesn't wait (then -EAGAIN), where nothing else is
 * said. All calls give -ENODEV once the data plane is gone, and go on giving it after
 * weir_reattach(): a messenger ends with its data plane, close it and open another one.
 * -ECONNABORTED when an operator has ended the session, -ENOTCONN in a forked child,
 * -EHOSTUNREACH when the node is unknown, lost, or has been closed by its program, -ECONNREFUSED
 * when no messenger of that name is open there.
 */
#ifndef WEIR_MESSAGE_H
#define WEIR_MESSAGE_H

#include "weir.h"

#include <stddef.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_MESSAGE_WHOLE                                                                         \
	(1u << 20) /* up to here a message goes, and is handled, in one piece                      \
		    */
#define WEIR_HANDLER_THREADS_MAX 32u
#define WEIR_LANES_MAX 256u
#define WEIR_MESSAGE_PARTS 16u
#define WEIR_NO_TIMEOUT (-2) /* of a request: waits for ever */

/* What a message is about: type and subtype, 8 bits each; the program's own, all of them. */
#define WEIR_TYPE(type, subtype) ((uint16_t)((uint16_t)(type) << 8 | (uint8_t)(subtype)))

struct weir_messenger;

/* ---- messengers ---- */

enum weir_link_event {
	WEIR_LINK_CREATED = 1, /* messages can be exchanged with the node */
	WEIR_LINK_LOST = 2,    /* status: 0 closed in order, else -errno */
};

#define WEIR_MESSENGER_CLIENT 0x1u /* sends only: listens on no name, nobody can send to it */
/* weir_service_find() of its name says on which nodes there are messengers like this one. */
#define WEIR_MESSENGER_PUBLIC 0x2u

/* Set with WEIR_MESSENGER_OPTIONS, then changed. */
struct weir_messenger_options {
	const char *service;	  /* name under which messengers find each other; 27 bytes */
	uint32_t flags;		  /* WEIR_MESSENGER_* */
	uint32_t handler_threads; /* 1 ... WEIR_HANDLER_THREADS_MAX */
	uint32_t receivers; /* of them, those that lanes are spread over; the others help when a
			       handler takes long; 0: half as many as CPUs */
	uint32_t lanes; /* 1 ... WEIR_LANES_MAX: threads with lanes of their own; others share */
	uint32_t connections; /* nodes connected at a time, at least 1; then the least recently used
				 idle one goes */
	uint32_t window;    /* flow-control window of a lane, bytes; 0: the data plane's default; at
			       least 64 KiB */
	uint32_t threshold; /* percent of the window, 1 ... 90, after which credit is returned */
	uint32_t request_timeout_ms; /* where a request says -1 */
	uint64_t message_max;	     /* bytes of a message; longer ones are refused at both ends */
	/*
	 * Bytes of messages above WEIR_MESSAGE_WHOLE that the library puts together at a time, at
	 * least 4 MiB; those from one node at most half of them. Others wait. 0: twice message_max.
	 * Memory that a handler's `place` gives doesn't count.
	 */
	uint64_t assembly_max;
	/* Called by a handler thread, created and lost in turn for each node. May be NULL. */
	void (*link)(uint16_t node, enum weir_link_event event, int status, void *user);
	void *user;
};
#define WEIR_MESSENGER_OPTIONS                                                                     \
	{                                                                                          \
		"weir.message", 0, 2, 0, 64, 10000, 0, 50, 333, 1ull << 30, 0, NULL, NULL          \
	}

/*
 * Opens a messenger; `options` may be NULL. 0 and *messenger; -EINVAL (an option out of its range,
 * see weir_reason()), -EADDRINUSE (another program of this node has the name).
 */
int weir_messenger_open(struct weir *w, const struct weir_messenger_options *options,
			struct weir_messenger **messenger);
/*
 * Closes all connections in order, as weir_message_disconnect() does, and ends the handler threads;
 * requests end with -ECANCELED. No other thread may be inside a call, nor may a handler call this.
 * Before weir_detach(). NULL is allowed.
 */
void weir_messenger_close(struct weir_messenger *m);

#define WEIR_MESSENGER_COUNTERS(X)                                                                 \
	X(handled, "messages and requests given to handlers")                                      \
	X(unknown, "dropped: nobody had registered their type")                                    \
	X(malformed, "dropped: not what a messenger sends; their connection was closed")           \
	X(oversized, "dropped: longer than message_max, or nobody gave memory for them")           \
	X(stalled, "dropped: not whole in time, and others waited for their memory")               \
	X(late, "responses dropped: their request had ended")                                      \
	X(taken_over, "messages handled for a thread whose handler did not return")                \
	X(created, "connections made")                                                             \
	X(lost, "connections ended")                                                               \
	X(evicted, "connections closed for the limit")
struct weir_messenger_stats {
#define WEIR_MESSENGER_COUNTER(name, help) uint64_t name;
	WEIR_MESSENGER_COUNTERS(WEIR_MESSENGER_COUNTER)
#undef WEIR_MESSENGER_COUNTER
};
/* Counted since the messenger was opened. Any thread. */
void weir_messenger_stats(const struct weir_messenger *m, struct weir_messenger_stats *stats);

/* ---- receiving ---- */

/* Whom a response goes to. A handler may keep a copy and respond later, from any thread, once. */
struct weir_reply {
	uint64_t internal[3];
};

/* What a handler is given: valid until it returns. */
struct weir_message {
	const void *data; /* aligned to 8 */
	size_t length;
	uint16_t node;	/* sender */
	uint16_t type;	/* WEIR_TYPE() */
	uint32_t flags; /* WEIR_MESSAGE_* */
	struct weir_reply reply;
};
#define WEIR_MESSAGE_REQUEST 0x1u /* the sender waits for a response */
#define WEIR_MESSAGE_BROKEN 0x2u  /* it will never be whole: `data` is what `place` gave */

#define WEIR_HANDLER_EXCLUSIVE 0x1u /* one message at a time of all exclusive handlers together */
#define WEIR_HANDLER_UNORDERED                                                                     \
	0x2u /* the sender's next message need not wait for this one's handler */

struct weir_handler {
	void (*handle)(struct weir_messenger *m, const struct weir_message *message, void *user);
	void *user;
	uint32_t flags; /* WEIR_HANDLER_* */
	/*
	 * Asked for each message above WEIR_MESSAGE_WHOLE when its first piece is there: memory of
	 * message->length bytes, which `handle` is given as data; NULL drops the message. If the
	 * message breaks off, `handle` gets it with WEIR_MESSAGE_BROKEN. May be NULL: the library
	 * allocates, within assembly_max.
	 */
	void *(*place)(struct weir_messenger *m, const struct weir_message *header, void *user);
};

/* Registers a handler; a copy is kept. -EEXIST: the type has one. Any thread, also a handler. */
int weir_message_register(struct weir_messenger *m, uint16_t type, const struct weir_handler *h);
/*
 * From now on messages of the type are dropped and counted, also those under way, and requests
 * answered with -ENOMSG. Then waits until handlers of the type that run have returned (not for
 * that of the caller): 0, or -EAGAIN, or -ENOENT (nobody had registered it). After 0 the memory
 * that its `place` gave for messages not handled yet is the program's again. Any thread.
 */
int weir_message_unregister(struct weir_messenger *m, uint16_t type, int timeout_ms);

/*
 * Responds to a request. Doesn't wait: a response that finds no room is kept, and the sender's
 * further messages wait for it. 0; -ENOTCONN or so when the sender has gone; -EINVAL.
 */
int weir_message_respond(struct weir_messenger *m, const struct weir_reply *reply, const void *buf,
			 size_t length);
/* Ends the request with -error (1 ... 4095) at its sender. */
int weir_message_refuse(struct weir_messenger *m, const struct weir_reply *reply, int error);

/* ---- sending ---- */

/*
 * Sends a message; the buffer may be used again at once. 0 = accepted: it arrives once, or the
 * connection is lost. -EAGAIN: no room within the timeout, nothing taken; -EMSGSIZE. A message
 * above WEIR_MESSAGE_WHOLE goes in pieces; if the timeout ends it in the middle it is dropped at
 * the receiver.
 */
int weir_message_send(struct weir_messenger *m, uint16_t node, uint16_t type, const void *buf,
		      size_t length, int timeout_ms);
/* The same from several places, at most WEIR_MESSAGE_PARTS. */
int weir_message_sendv(struct weir_messenger *m, uint16_t node, uint16_t type,
		       const struct iovec *iov, unsigned n, int timeout_ms);
/* The same to n nodes; results[i] (may be NULL) is what weir_message_send() had returned. Returns
 * how many accepted it. */
int weir_message_send_many(struct weir_messenger *m, const uint16_t *nodes, unsigned n,
			   uint16_t type, const void *buf, size_t length, int timeout_ms,
			   int *results);

/* A message to be written in place. One a thread at a time, unless WEIR_DRAFT_KEEP. */
struct weir_draft {
	void *data;    /* write here */
	size_t room;   /* at most so much */
	size_t length; /* KEEP: of the message as committed */
	uint64_t internal[4];
};
#define WEIR_DRAFT_KEEP 0x1u /* in the program's memory, so that it can be sent again */

/*
 * Memory to write a message of up to `room` bytes (at most WEIR_MESSAGE_WHOLE) into. Then commit
 * (length may have shrunk) or abandon. After a commit that succeeded the memory is the library's,
 * but for a kept draft: that can be sent again, as it is, to any node, until it is abandoned.
 */
int weir_message_reserve(struct weir_messenger *m, uint16_t node, uint16_t type, size_t room,
			 uint32_t flags, int timeout_ms, struct weir_draft *draft);
int weir_message_commit(struct weir_messenger *m, struct weir_draft *draft, size_t length,
			int timeout_ms);
int weir_message_resend(struct weir_messenger *m, struct weir_draft *draft, uint16_t node,
			int timeout_ms);
void weir_message_abandon(struct weir_messenger *m, struct weir_draft *draft);

/* ---- requests ---- */

/*
 * Sends a request and waits for its response: 0 and *length. timeout_ms: -1 = the messenger's
 * request timeout, WEIR_NO_TIMEOUT, else milliseconds. -ETIMEDOUT; -ECANCELED; -EHOSTUNREACH;
 * -ENOMSG: no handler for the type there; -EMSGSIZE: the response is longer than `size`, *length
 * says how long (the buffer holds its beginning); or what the other program refused it with.
 */
int weir_message_request(struct weir_messenger *m, uint16_t node, uint16_t type, const void *buf,
			 size_t length, void *response, size_t size, size_t *response_length,
			 int timeout_ms);

/* A request whose response is collected later. The program's memory, from start until it ended. */
struct weir_request {
	int status; /* once ended: 0 or -errno */
	uint16_t node;
	size_t length; /* once ended: of the response */
	uint64_t internal[6];
};

/*
 * Sends the request; send_timeout_ms is that of the sending. The response will be written to
 * `response` by whichever call of this thread, or of one that waits for r, takes it in.
 */
int weir_request_start(struct weir_messenger *m, struct weir_request *r, uint16_t node,
		       uint16_t type, const void *buf, size_t length, void *response, size_t size,
		       int send_timeout_ms);
/*
 * Waits until r has ended and returns its status; timeouts as with weir_message_request(), and 0:
 * looks only, -EAGAIN. With -ETIMEDOUT the request has ended: a late response is dropped. One
 * thread at a time.
 */
int weir_request_wait(struct weir_request *r, int timeout_ms);
/* Ends r with -ECANCELED if it has not ended; who waits for it is woken. Any thread. */
void weir_request_cancel(struct weir_request *r);
/* The same for all requests to a node that have not ended. How many. */
int weir_message_cancel(struct weir_messenger *m, uint16_t node);

/* ---- connections ---- */

/* Connects without a message: 0, or -EAGAIN, or why not. */
int weir_message_connect(struct weir_messenger *m, uint16_t node, int timeout_ms);
/*
 * Closes the connection to a node in order: what both ends have accepted is delivered, outstanding
 * responses are awaited, 10 s at most; then it closes all the same: -ETIMEDOUT. -ENOTCONN: there is
 * none. A later message makes a new one. Not from a handler.
 */
int weir_message_disconnect(struct weir_messenger *m, uint16_t node);

#ifdef __cplusplus
}
#endif
#endif
