/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The message model: messages and requests between nodes (after DXNet). A program opens a
 * messenger, registers a handler per message type, and sends to node ids. The first message to a
 * node connects to it. docs/message.md is the guide.
 *
 * Threads: any thread may send to any node without locks, because each thread has its own lane to
 * each node. Messages from one thread to one node arrive in the order of the calls, and their
 * handlers run one after another. Handlers run in the messenger's own threads, or, if it has none,
 * in the thread that opened it, inside weir_messenger_progress().
 *
 * Blocking: timeout_ms is in milliseconds. Below 0 the call waits without limit; with 0 it does
 * not wait. Unless said otherwise, a call whose time is over returns -EAGAIN.
 *
 * Errors of every call:
 *   -ENODEV        the data plane is gone. The messenger continues after weir_reattach(): its
 *                  handlers stay registered, and the next messages connect again. Messages under
 *                  way may not have arrived, requests under way end with -ENODEV, earlier drafts
 *                  and replies are void
 *   -ECONNABORTED  an operator has ended the session
 *   -ENOTCONN      this process is a forked child of the one that attached
 * Errors of every call that waits:
 *   -EINTR         a signal handler ran in the calling thread, or weir_wake() was called. Nothing
 *                  was accepted, as with -EAGAIN. weir/stream.h says which handlers are not
 *                  noticed; one that calls weir_wake() is. Calls that release something go on to
 *                  their end instead: weir_messenger_close(), weir_message_disconnect() and
 *                  weir_message_unregister()
 *
 * Errors of every call that sends:
 *   -EHOSTUNREACH  the node is unknown, not reached from here or lost, or its program has closed
 *                  the connection
 *   -ECONNREFUSED  no messenger of this name is open on the node
 *   -ENOSPC        all links of the data plane, or of the node's, are in use, and none became idle
 *                  within 5 s; weir_reason() names the option that allows more
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
#define WEIR_ALL_NODES (-1)	     /* node of weir_messenger_flush() */

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

/* Initialize with WEIR_MESSENGER_OPTIONS_INIT, then change single fields. */
struct weir_messenger_options {
	size_t size;	     /* sizeof(struct weir_messenger_options) */
	const char *service; /* name by which messengers find each other, at most 27 bytes */
	uint32_t flags;	     /* WEIR_MESSENGER_* */
	/*
	 * Threads that run handlers, at most WEIR_HANDLER_THREADS_MAX. 0: the messenger starts no
	 * thread; the thread that opens it runs handlers inside weir_messenger_progress().
	 */
	uint32_t handler_threads;
	/*
	 * Handler threads over which lanes are spread; the remaining ones help when a handler takes
	 * long. At most handler_threads; 0: half the number of CPUs.
	 */
	uint32_t receivers;
	/* Sending threads with lanes of their own, 1 to WEIR_LANES_MAX; further threads share. */
	uint32_t lanes;
	/*
	 * Nodes connected at a time, at least 1; beyond it the least recently used idle one ends.
	 * Without handler threads the node of the messenger itself does not count.
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
	void *user; /* passed to link and sent */
	/*
	 * Called by weir_messenger_progress() when a message that the calling thread sent by
	 * weir_message_send_notify() has ended. Status 0: all bytes lie in the memory of the
	 * receiving program; else -errno, and the message may not have arrived. May be NULL.
	 */
	void (*sent)(struct weir_messenger *m, uint16_t node, uint64_t cookie, int status,
		     void *user);
};
#define WEIR_MESSENGER_OPTIONS_INIT                                                                \
	{                                                                                          \
		sizeof(struct weir_messenger_options), "weir.message", 0, 2, 0, 64, 10000, 0, 50,  \
		    333, 1u << 30, 0, NULL, NULL, NULL                                             \
	}

/*
 * Opens a messenger and starts its handler threads. Without handler threads the calling thread is
 * the one that drives the messenger.
 *
 * @w          session handle
 * @options    NULL: defaults
 * @messenger  receives the handle, freed by weir_messenger_close()
 *
 * Returns 0, or
 *   -EINVAL      an option or the size is out of its range; weir_reason() says which
 *   -E2BIG       the options have a field that this library does not know
 *   -EADDRINUSE  another program of this node has a messenger of this name
 *   -ENOMEM      no memory
 *   and the errors of weir_listen() and of every call.
 */
int weir_messenger_open(struct weir *w, const struct weir_messenger_options *options,
			struct weir_messenger **messenger);

/*
 * Closes all connections in order, as weir_message_disconnect() does, ends the handler threads and
 * frees the messenger. Outstanding requests end with -ECANCELED. Call it before weir_detach(), and
 * while no other thread uses the messenger. Without handler threads the calling thread runs the
 * handlers of the last messages. Commit or abandon drafts first: closing waits for them, up to
 * 10 s, and drops those that are left. NULL is allowed. Blocks for at most 10 s, and until running
 * handlers have returned; neither signal handlers nor weir_wake() end the call.
 *
 * Returns 0, or -EDEADLK if the messenger itself is calling the program in this thread (a handler,
 * `place`, `link`, `sent`, `done`): nothing has changed, close it when the call has returned.
 */
int weir_messenger_close(struct weir_messenger *m);

/*
 * Calls the program for what has ended on the calling thread's lanes: `done` of requests, `sent` of
 * messages. In the thread that opened a messenger without handler threads it also runs handlers,
 * calls `link`, and keeps connections alive: call it at least every 100 ms, or when the descriptor
 * of weir_messenger_fd() is readable.
 *
 * @m           messenger
 * @max         calls of the program after which to return; 0: 64
 * @timeout_ms  milliseconds to wait for the first one; below 0: no limit; 0: do not wait
 *
 * Returns the number of calls, 0 if there were none in time, or
 *   -EINVAL  called from a handler of this messenger
 *   and the errors of every call.
 * Any thread. A thread that shares its lanes may report what others of them sent.
 */
int weir_messenger_progress(struct weir_messenger *m, unsigned max, int timeout_ms);

/*
 * Returns a file descriptor for the caller's own epoll loop (EPOLLIN, level-triggered), or a
 * negative errno: the one of weir_fd() for the calling thread. It is readable when
 * weir_messenger_progress() on this thread has something to do, after weir_messenger_arm() has
 * returned 0. The session owns the descriptor; do not close it. Any thread; does not block.
 */
int weir_messenger_fd(struct weir_messenger *m);

/*
 * Prepares the calling thread to sleep on weir_messenger_fd(), for messages and for events of
 * weir_poll(): a program that uses both needs no weir_arm(). Call it before every sleep.
 *
 * Returns 0 if the thread may sleep, or
 *   -EAGAIN  something is pending: call weir_messenger_progress() and weir_poll(). A thread that
 *            shares the lanes of others has to poll
 *   and the errors of every call.
 * Does not block.
 */
int weir_messenger_arm(struct weir_messenger *m);

/*
 * Waits until all messages and requests that the messenger has accepted so far, from all threads,
 * are complete: their bytes lie in the memory of the receiving programs.
 *
 * @node        id of the receiving node, or WEIR_ALL_NODES
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns 0, or
 *   -EAGAIN        not all are complete within the timeout
 *   -EHOSTUNREACH  a connection was lost, now or since the last flush of the node, before all were
 *                  complete
 *   -EINVAL        not a node id
 *   and the errors of every call. Any thread.
 */
int weir_messenger_flush(struct weir_messenger *m, int node, int timeout_ms);

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
	size_t size; /* sizeof(struct weir_messenger_stats), set by WEIR_MESSENGER_STATS_INIT */
#define WEIR_MESSENGER_COUNTER(name, help) uint64_t name;
	WEIR_MESSENGER_COUNTERS(WEIR_MESSENGER_COUNTER)
#undef WEIR_MESSENGER_COUNTER
};
#define WEIR_MESSENGER_COUNTER_INIT(name, help) , 0
#define WEIR_MESSENGER_STATS_INIT                                                                  \
	{                                                                                          \
		sizeof(struct weir_messenger_stats)                                                \
		    WEIR_MESSENGER_COUNTERS(WEIR_MESSENGER_COUNTER_INIT)                           \
	}

/*
 * Reads the counters since the messenger was opened. Counters that the library does not have are 0.
 *
 * @stats  initialized with WEIR_MESSENGER_STATS_INIT; receives the counters
 *
 * Returns 0, or -EINVAL if the size is invalid. Any thread; does not block.
 */
int weir_messenger_stats(const struct weir_messenger *m, struct weir_messenger_stats *stats);

/* ---- Receiving ---- */

/*
 * Addresses the response to a request. A handler may copy it and respond later, once, from any
 * thread.
 */
struct weir_reply {
	uint64_t internal[4];
};

/*
 * A received message, as passed to a handler. Valid until the handler returns. Later releases may
 * append fields, so a program copies fields, not the structure of another release.
 */
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

/* Initialize with WEIR_HANDLER_INIT, then set `handle`. */
struct weir_handler {
	size_t size; /* sizeof(struct weir_handler) */
	/* Handles one message, in a handler thread. */
	void (*handle)(struct weir_messenger *m, const struct weir_message *message, void *user);
	void *user;	/* passed to handle and place */
	uint32_t flags; /* WEIR_HANDLER_* */
	/*
	 * Threshold: `place` is called for messages of at least this many bytes. 0: for messages
	 * that arrive in fragments, those above WEIR_MESSAGE_WHOLE.
	 */
	uint32_t place_from;
	/*
	 * Called with the header (data is NULL) when the first bytes of a message from place_from
	 * on have arrived. Returns memory of header->length bytes, which `handle` later receives as
	 * data; NULL drops the message. A message in fragments that is never completed is handled
	 * with WEIR_MESSAGE_BROKEN and this memory. May be NULL: messages up to WEIR_MESSAGE_WHOLE
	 * are handled where they arrived, others in memory of the library, within assembly_max.
	 */
	void *(*place)(struct weir_messenger *m, const struct weir_message *header, void *user);
};
#define WEIR_HANDLER_INIT                                                                          \
	{                                                                                          \
		sizeof(struct weir_handler), NULL, NULL, 0, 0, NULL                                \
	}

/*
 * Registers the handler of a message type.
 *
 * @m     messenger
 * @type  WEIR_TYPE()
 * @h     handler; copied
 *
 * Returns 0, or
 *   -EEXIST  the type has a handler already
 *   -EINVAL  no handle function, or an invalid flag or size
 *   -E2BIG   the structure has a field that this library does not know
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
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait. Neither signal handlers nor
 *              weir_wake() end the call
 *
 * Returns 0, or -EAGAIN if a handler still runs: the type is unregistered all the same, or -ENOENT
 * if the type has no handler. Any thread, also from a handler.
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
 * weir_message_respond() that gathers the response from n buffers, at most WEIR_MESSAGE_PARTS.
 * Returns as weir_message_respond(), or -EINVAL if there are too many buffers.
 */
int weir_message_respondv(struct weir_messenger *m, const struct weir_reply *reply,
			  const struct iovec *iov, unsigned n);

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
 *   -EAGAIN    no room within the timeout, or the connection to the node, or one that makes room
 *              for it, was still closing. Nothing was accepted; but a message above
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
 * weir_message_sendv() that reports the end of the message: `sent` of the messenger's options is
 * called once for each message accepted, inside weir_messenger_progress() of this thread. Messages
 * of one thread to one node end in the order of the calls.
 *
 * @cookie  passed to `sent`
 *
 * Returns as weir_message_sendv(), or -EINVAL if the messenger has no `sent`.
 */
int weir_message_send_notify(struct weir_messenger *m, uint16_t node, uint16_t type,
			     const struct iovec *iov, unsigned n, uint64_t cookie, int timeout_ms);

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
 * A message composed in place. Each thread may hold one per receiving node; the number of drafts
 * with WEIR_DRAFT_KEEP is not limited.
 */
struct weir_draft {
	void *data;    /* memory for the payload */
	size_t room;   /* bytes of data */
	size_t length; /* with WEIR_DRAFT_KEEP: bytes of the committed message */
	uint64_t internal[5];
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
 *   -EBUSY     the calling thread holds a draft for this node, without WEIR_DRAFT_KEEP
 *   -ENOMEM    no memory
 *   and the errors of every call that sends. Any thread.
 */
int weir_message_reserve(struct weir_messenger *m, uint16_t node, uint16_t type, size_t room,
			 uint32_t flags, int timeout_ms, struct weir_draft *draft);

/*
 * weir_message_reserve() for a response: weir_message_commit() sends it and does not wait.
 *
 * @reply       reply of the request, or a copy
 * @room        bytes, at most WEIR_MESSAGE_WHOLE
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 * @draft       filled on success
 *
 * Returns as weir_message_reserve(), or
 *   -EHOSTUNREACH  the connection to the sender is lost
 *   -EINVAL        not the reply of a request
 * Any thread, once per request.
 */
int weir_response_reserve(struct weir_messenger *m, const struct weir_reply *reply, size_t room,
			  int timeout_ms, struct weir_draft *draft);

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
 *   -EINTR      interrupted; the request is given up, and the node may have handled it
 *   -ECANCELED  cancelled by weir_message_cancel() or weir_messenger_close()
 *   -ENOMSG     the node has no handler for the type
 *   -EMSGSIZE   the response is longer than size; the buffer holds its beginning. Or the request
 *               is longer than a limit of either messenger
 *   -ENOSPC     too many requests of this thread are outstanding; also as for every call that sends
 *   -EPROTO     the node sent a malformed message
 *   -EPROTONOSUPPORT
 *               the node's messenger speaks no version of messages that this one speaks
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
	uint16_t reserved;
	size_t length;	  /* once ended: bytes of the response */
	const void *data; /* once ended: the response, in the program's buffer or on loan */
	uint64_t internal[13];
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
 * The response is received on loan, whatever its length: `data` of the request is where it lies,
 * until weir_request_release(). A loan of up to 8 KiB from another node counts against the window
 * of the lane: a program that holds a whole window waits in vain for more responses of that node.
 */
#define WEIR_REQUEST_LOAN 0x1u
/*
 * The response goes to the buffer `response`, which malloc() made and which the library makes
 * larger by realloc() where the response is longer; NULL with response_size 0: it makes one. The
 * buffer is the library's from a successful start until the request has ended. Then `data` of the
 * request is the buffer, which may have moved, or NULL; it has room for the larger of response_size
 * and, where status is 0, `length` bytes, and is the program's, who passes it to another request or
 * to free(), whatever the status. A response longer than message_max of the messenger ends the
 * request with -EMSGSIZE.
 */
#define WEIR_REQUEST_GROW 0x2u

/* Initialize with WEIR_REQUEST_OPTIONS_INIT, then change single fields. */
struct weir_request_options {
	size_t size;		 /* sizeof(struct weir_request_options) */
	const struct iovec *iov; /* buffers of the request; not for weir_request_commit() */
	unsigned parts;		 /* entries of iov, at most WEIR_MESSAGE_PARTS */
	uint32_t flags;		 /* WEIR_REQUEST_LOAN, WEIR_REQUEST_GROW or 0 */
	void *response;		 /* receives the response; not with WEIR_REQUEST_LOAN */
	size_t response_size;	 /* bytes of response */
	/*
	 * Called by weir_messenger_progress() of this thread when the request has ended; until then
	 * the program keeps r. Such a request is not waited for. May be NULL.
	 */
	void (*done)(struct weir_request *r, void *user);
	void *user; /* passed to done */
};
#define WEIR_REQUEST_OPTIONS_INIT                                                                  \
	{                                                                                          \
		sizeof(struct weir_request_options), NULL, 0, 0, NULL, 0, NULL, NULL               \
	}

/*
 * weir_request_start() with options.
 *
 * @r                the request; filled
 * @options          NULL: an empty request whose response has no bytes
 * @send_timeout_ms  milliseconds to wait for room; below 0: no limit; 0: do not wait
 *
 * Returns as weir_request_start(), or
 *   -EINVAL  an unknown flag, too many buffers, a response buffer or WEIR_REQUEST_GROW beside
 *            WEIR_REQUEST_LOAN, a buffer to grow with one of address and size only, or an invalid
 *            size
 *   -E2BIG   the options have a field that this library does not know
 */
int weir_request_start_with(struct weir_messenger *m, struct weir_request *r, uint16_t node,
			    uint16_t type, const struct weir_request_options *options,
			    int send_timeout_ms);

/*
 * weir_message_reserve() for a request, which weir_request_commit() sends. Parameters and results
 * are the same.
 */
int weir_request_reserve(struct weir_messenger *m, uint16_t node, uint16_t type, size_t room,
			 int timeout_ms, struct weir_draft *draft);

/*
 * Sends a draft of weir_request_reserve(). On failure the caller may commit again or abandon.
 *
 * @length   bytes of the request, at most draft->room
 * @r        the request; filled
 * @options  NULL: a response without bytes; iov is not used
 *
 * Returns as weir_request_start_with(), or -EINVAL if the draft is not of a request, or length
 * exceeds it.
 */
int weir_request_commit(struct weir_messenger *m, struct weir_draft *draft, size_t length,
			struct weir_request *r, const struct weir_request_options *options,
			int send_timeout_ms);

/*
 * Waits until one of several requests of this thread has ended. Requests that have not ended go on,
 * also when the time is over.
 *
 * @list        requests; entries may be NULL
 * @n           entries of list
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns the index of the first request of the list that has ended, or
 *   -EAGAIN  none has ended within the timeout
 *   -EINVAL  no request in the list, or one that another thread started, or that has `done`
 *   and the errors of every call.
 */
int weir_request_wait_any(struct weir_request *const *list, unsigned n, int timeout_ms);

/*
 * Releases the response of a request with WEIR_REQUEST_LOAN. Call it once for each such request
 * whose status is 0, before weir_detach(). Any thread, in any order, also after
 * weir_messenger_close(). Does not block.
 */
void weir_request_release(struct weir_request *r);

/*
 * Waits until a request has ended, and returns its status. When the time is over the request ends
 * with -ETIMEDOUT; a late response is dropped. After -EINTR it continues, and may be waited for
 * again. Only one thread at a time may wait for a request.
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
 * and outstanding responses awaited. A later message connects again. Blocks for at most 11 s;
 * neither signal handlers nor weir_wake() end the call.
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
