/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stream model: sockets that keep message boundaries (RDMAvisor's connect, listen, accept,
 * send, recv, recv_zero_copy). Messages are 0 B ... 16 MiB, arrive once and in order, on
 * connections to the same host or another with the same calls.
 *
 * Threads: any thread may send on any connection; messages of all threads have one order, that of
 * the calls. One thread at a time receives on a connection. weir_close() needs the connection for
 * itself. Waiting: `timeout_ms` < 0 waits for ever, 0 doesn't wait (then -EAGAIN). All calls give
 * -ENODEV within 100 ms once the data plane is gone (recv first returns what had arrived),
 * -ECONNABORTED once an operator has ended the session, -ENOTCONN in a forked child.
 *
 * What completion means: a message is complete when every byte lies in the receiving session's
 * memory. -ECONNRESET and -EHOSTDOWN mean: not delivered, or delivered once without our knowing.
 */
#ifndef WEIR_STREAM_H
#define WEIR_STREAM_H

#include "address.h"
#include "weir.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_STREAM_MESSAGE_MAX (16u << 20)

struct weir_conn;
struct weir_listener;

/*
 * Listens on a service name of this node. `backlog`: connections not yet accepted, more are refused
 * (0 = 128). Events come to the calling thread. -EADDRINUSE: another program has the name.
 */
int weir_listen(struct weir *w, const char *service, unsigned backlog,
		struct weir_listener **listener);

#define WEIR_LISTEN_PUBLIC 0x1u /* the whole cluster finds it by its name: service:NAME */

struct weir_listen_options {
	unsigned backlog; /* as above */
	uint32_t flags;	  /* WEIR_LISTEN_* */
};
/*
 * weir_listen() with options, which may be NULL. A public service is known to the other nodes soon
 * after (some ms; up to a second where there are many), and is gone when the listener is closed or
 * the program, its data plane or its node ends. Several nodes may offer the same name. -ENOSPC:
 * this node offers as many as it may; -EOPNOTSUPP: the data plane is of an older release.
 */
int weir_listen_with(struct weir *w, const char *service, const struct weir_listen_options *options,
		     struct weir_listener **listener);
/* Next connection, received on the listener's thread; it belongs to the caller. */
int weir_accept(struct weir_listener *l, int timeout_ms, struct weir_conn **conn);
/* Refuses what was not accepted and frees the listener. NULL is allowed. */
void weir_listener_close(struct weir_listener *l);

/*
 * Connects. With timeout 0 it returns 0 at once and the connection reports WEIR_EVENT_OPENED or
 * WEIR_EVENT_CLOSED later. -EHOSTUNREACH no such node, -ECONNREFUSED no such service, -ETIMEDOUT,
 * -EHOSTDOWN, -EINVAL address. An address service:NAME is of whichever node offers that public
 * service: this one, if it does, else the others that are up in turns; the next one, if one refuses
 * before the call returns.
 */
int weir_connect(struct weir *w, const struct weir_address *address, int timeout_ms,
		 struct weir_conn **conn);

#define WEIR_LOOP 0x1u /* to this very node, but through its own port: for measuring */

/*
 * Transport and operation, for who knows better than Weir, which chooses by size, load and memory:
 * flags of weir_connect_with(), for all that this end sends, and of single messages. -EINVAL: more
 * than one transport or operation, an operation with WEIR_UD, or a message by another transport
 * than its connection's. -EMSGSIZE: the message is larger than that operation carries. Within a
 * host messages go through shared memory whatever is asked for.
 */
#define WEIR_RC 0x10u	 /* reliable connection: what connections are */
#define WEIR_UD 0x20u	 /* datagram connection, see below */
#define WEIR_RING 0x100u /* through the peer's ring, at most WEIR_RING_MAX bytes */
#define WEIR_SEND                                                                                  \
	0x200u		  /* by SEND into the peer's receive buffers, at most WEIR_SEND_MAX bytes  \
			   */
#define WEIR_READ 0x400u  /* announced; the peer's engine fetches it by RDMA READ */
#define WEIR_WRITE 0x800u /* announced; written by RDMA WRITE where the peer has made room */
#define WEIR_RING_MAX 8192u
#define WEIR_SEND_MAX 1920u

/*
 * WEIR_UD: a message is at most weir_conn_mtu() bytes and is sent once: it may be lost, or
 * overtaken by a later one, but never comes twice, in part, or on another connection. There is no
 * window: what finds no room at the receiver is dropped there and counted (weirctl show
 * connections); a message is complete when it has been sent. Opening and closing are reliable, as
 * is all between programs of one host.
 */

#define WEIR_WINDOW_MIN 8256u /* of weir_connect_options.window: a message of 8 KiB */

/*
 * When the library shall connect again by itself, by weir_poll() and weir_wait() of the thread that
 * the connection reports to. The connection ends all the same, with what was not complete; but
 * instead of CLOSED it reports LOST, and then either OPENED with another handle, or CLOSED without
 * one when the time is over. A connection that was never open is not made again, nor one that the
 * peer or an operator has closed.
 */
struct weir_reconnect {
	uint32_t on;	   /* WEIR_AGAIN_*; 0: never */
	uint32_t first_ms; /* until the first try; doubled from one to the next ... */
	uint32_t max_ms;   /* ... up to this; 0: 1000 */
	uint32_t total_ms; /* then it gives up, after one try at least; 0: it doesn't */
};
#define WEIR_AGAIN_RESTART 0x1u /* the own data plane was lost; tries begin when it is attached */
#define WEIR_AGAIN_LOSS 0x2u	/* the peer was lost: its program, its node or the way to it */

struct weir_connect_options {
	uint32_t flags;	 /* WEIR_LOOP, transport, operation */
	uint32_t window; /* flow-control window wished, bytes; 0: the data plane's default */
	struct weir_reconnect reconnect;
};
/* weir_connect() with options, which may be NULL. -EINVAL: flags that contradict each other, or a
 * window below WEIR_WINDOW_MIN. -EOPNOTSUPP: WEIR_UD, and the port offers no datagrams. */
int weir_connect_with(struct weir *w, const struct weir_address *address,
		      const struct weir_connect_options *options, int timeout_ms,
		      struct weir_conn **conn);

#define WEIR_SERVICE_LOCAL 0x1u /* offered by a program of this node */

/* A node that offers a public service. */
struct weir_service_entry {
	uint32_t node;	/* its id; UINT32_MAX: this one, which weir-control has not told its id */
	uint32_t flags; /* WEIR_SERVICE_* */
	/* By which of its ports (NICs) it is reached from here: IPV4, IPV6 or LID with the
	 * service's name, good for weir_connect(). Kind NONE: it has none. */
	struct weir_address port;
};
/*
 * Which nodes offer a public service, as far as is known here: those that are up. Returns how many,
 * of which the first n are in list; -EINVAL not a name; -EOPNOTSUPP as above. Asks the data plane
 * alone, so it doesn't depend on weir-control. May block for that answer; any thread.
 */
int weir_service_find(struct weir *w, const char *service, struct weir_service_entry *list,
		      unsigned n);

#define WEIR_NOTIFY 0x1u /* report the completion as WEIR_EVENT_SENT with the cookie given */
/*
 * The buffer stays as it is until the message is complete (WEIR_EVENT_SENT, weir_flush()): a
 * message above 8 KiB to another node is not copied if it lies in memory adopted for sending
 * (weir/memory.h). Else it is copied, as without this flag.
 */
#define WEIR_ZERO_COPY 0x2u
/*
 * The same, and a buffer of whole pages, 256 KiB or more, that is sent so again and again is
 * adopted on the fly: the rules of weir_adopt() hold for it, and weir_uncache() comes before it is
 * unmapped or given to free().
 */
#define WEIR_CACHED 0x4u

/*
 * Sends one message; the buffer may be reused at once (but see WEIR_ZERO_COPY). 0 = accepted: it
 * completes exactly once. -EAGAIN: ring, window or arena full and timeout over, nothing taken.
 * -EMSGSIZE: larger than weir_conn_mtu() or than the arena. -ECONNRESET, -EHOSTDOWN, -EPIPE
 * (closed by us).
 */
int weir_send(struct weir_conn *c, const void *buf, size_t length, int timeout_ms);
/* The same with flags (WEIR_NOTIFY, WEIR_ZERO_COPY, WEIR_CACHED, an operation) and a cookie for the
 * completion event. */
int weir_send_notify(struct weir_conn *c, const void *buf, size_t length, unsigned flags,
		     uint64_t cookie, int timeout_ms);

/*
 * Zero-copy send: memory of `length` bytes to write the message into; then commit (length may have
 * shrunk) or abandon. One reservation per thread and connection at a time. After a commit that
 * succeeded the memory is the library's; after one that failed it is still the caller's.
 */
int weir_send_reserve(struct weir_conn *c, size_t length, int timeout_ms, void **buf);
int weir_send_commit(struct weir_conn *c, void *buf, size_t length, unsigned flags,
		     uint64_t cookie);
void weir_send_abandon(struct weir_conn *c, void *buf);

/* Waits until everything accepted so far on c is complete: 0, or -EAGAIN (time), or how it ended.
 */
int weir_flush(struct weir_conn *c, int timeout_ms);

/*
 * Receives exactly one message. 0 and *length; -EMSGSIZE: buf too small, *length says what is
 * needed, the message stays; -EAGAIN; -ESHUTDOWN: end of stream (the peer closed after its last
 * message); -ECONNRESET: peer died; -EHOSTDOWN; -ECONNABORTED: by an operator; -EPROTO: a local
 * peer spoilt the segment.
 */
int weir_recv(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms);

struct weir_loan {
	const void *data;
	size_t length;
	uint64_t internal[3];
};
/* Receives without a copy: the message stays where it arrived until released. Errors as weir_recv.
 */
int weir_recv_loan(struct weir_conn *c, struct weir_loan *loan, int timeout_ms);
/* Gives the place back, any order, any thread, also after weir_close(c). weir_detach() ends what is
 * still on loan. */
void weir_release(struct weir *w, struct weir_loan *loan);

enum weir_event_type {
	WEIR_EVENT_READABLE =
	    1, /* a message can be received; reported once until recv gives -EAGAIN */
	WEIR_EVENT_WRITABLE = 2, /* a send that gave -EAGAIN may succeed now */
	WEIR_EVENT_SENT = 3,	 /* a message sent with WEIR_NOTIFY ended: cookie, status */
	WEIR_EVENT_OPENED = 4,	 /* a weir_connect() without waiting succeeded */
	WEIR_EVENT_CLOSED = 5,	 /* connection ended: status 0 = end of stream, else -errno */
	WEIR_EVENT_ACCEPT = 6,	 /* a listener has a connection */
	/*
	 * cookie = node id, status 0 = up, -EHOSTDOWN = down: to some thread, unless one has asked
	 * for more (weir_nodes_watch() in weir/node.h)
	 */
	WEIR_EVENT_NODE = 7,
	/*
	 * As CLOSED, with a status that is not 0: close it. It is made again: OPENED has another
	 * handle with the same `user`, or CLOSED comes with conn NULL. `cookie` is for
	 * weir_reconnect_cancel().
	 */
	WEIR_EVENT_LOST = 8,
};

struct weir_event {
	uint32_t type; /* enum weir_event_type */
	int32_t status;
	struct weir_conn *conn; /* NULL for ACCEPT and NODE */
	struct weir_listener *listener;
	void *user; /* what weir_conn_set_user() said */
	uint64_t cookie;
	uint32_t change; /* NODE, to a thread that watches: WEIR_CHANGE_* ... */
	uint32_t state;	 /* ... and enum weir_node_state now */
};

/*
 * Fills up to n events of the connections bound to this thread, in O(ready). Returns how many (0:
 * none within timeout), or -ENODEV, -ECONNABORTED. weir_wait() is weir_poll() that may sleep.
 */
int weir_poll(struct weir *w, struct weir_event *events, unsigned n);
int weir_wait(struct weir *w, struct weir_event *events, unsigned n, int timeout_ms);

/* The connection that LOST told of by this cookie is not made again. By the thread that was told.
 * 0, or -ENOENT: it has been, or it was given up. */
int weir_reconnect_cancel(struct weir *w, uint64_t cookie);

/* Events of c come to the calling thread from now on. */
int weir_conn_bind(struct weir_conn *c);
void weir_conn_set_user(struct weir_conn *c, void *user);
void *weir_conn_user(const struct weir_conn *c);
/* Node of the other end, and whether it is this host's. -EAGAIN: not connected yet. */
int weir_conn_peer(const struct weir_conn *c, uint16_t *node, int *local);

/* Largest message that c takes: of a datagram connection what one frame of the path holds, else
 * WEIR_STREAM_MESSAGE_MAX. -EAGAIN: not connected yet. */
int weir_conn_mtu(const struct weir_conn *c);

/* No more sends; queued data still arrives and the peer then sees the end of the stream. Frees c.
 */
void weir_close(struct weir_conn *c);

#ifdef __cplusplus
}
#endif
#endif
