/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stream model: connections like sockets that keep message boundaries (RDMAvisor's connect,
 * listen, accept, send, recv, recv_zero_copy). A message has 0 bytes to 16 MiB and arrives once,
 * whole and in order. The same calls serve connections to this host and to other nodes.
 * docs/stream.md is the guide.
 *
 * Threads: any thread may send on any connection; the messages of all threads have one order, that
 * of the calls. Only one thread at a time may receive on a connection. weir_close() requires that
 * no other thread uses the connection.
 *
 * Blocking: timeout_ms is in milliseconds. Below 0 the call waits without limit; with 0 it does
 * not wait. Unless said otherwise, a call whose time is over returns -EAGAIN and has no effect.
 *
 * Errors of every call:
 *   -ENODEV        the data plane is gone, reported within 100 ms. Receiving first returns the
 *                  messages that had arrived
 *   -ECONNABORTED  an operator has ended the session
 *   -ENOTCONN      this process is a forked child of the one that attached
 * A call that waits also returns
 *   -EINTR         a signal handler ran in the calling thread while it waited, with or without
 *                  SA_RESTART, or weir_wake() was called. The call has no effect; call it again, or
 *                  stop. Calls that are not interrupted say so. Not every handler is noticed: not
 *                  one that runs before the call, or in its first 16 polls (some microseconds),
 *                  nor, until the thread sleeps, one that was installed less than 10 ms ago. A
 *                  handler that calls weir_wake() or weir_wake_thread() always ends the wait, or
 *                  the next one. docs/stream.md, "Stopping a program", has the details
 * -ENOMEM (no memory) and -EMFILE (no channel or file descriptor left) are possible with the first
 * call of each thread.
 *
 * Completion: a message is complete when all its bytes lie in the memory of the receiving session.
 * It is not complete if its connection ends with -ECONNRESET or -EHOSTDOWN first: it was then not
 * delivered, or delivered once without an acknowledgement. It is never delivered twice.
 */
#ifndef WEIR_STREAM_H
#define WEIR_STREAM_H

#include "address.h"
#include "weir.h"

#include <stddef.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_STREAM_MESSAGE_MAX (16u << 20) /* bytes: largest message */

struct weir_conn;     /* a connection; valid until weir_close() or weir_detach() */
struct weir_listener; /* valid until weir_listener_close() or weir_detach() */

/* ---- Listening ---- */

/*
 * Listens on a service name of this node. WEIR_EVENT_ACCEPT goes to the calling thread.
 *
 * @w         session handle
 * @service   1 to 31 letters, digits, '_', '-', '.'; copied
 * @backlog   connections not yet accepted; further ones are refused. 0: 128
 * @listener  receives the handle, freed by weir_listener_close() or weir_detach()
 *
 * Returns 0, or
 *   -EADDRINUSE  another program of this node listens on the name
 *   -EINVAL      the name is invalid
 *   -EMFILE      the program's limit of listeners is reached
 *   and the errors of every call.
 * Blocks until the data plane answers. Any thread.
 */
int weir_listen(struct weir *w, const char *service, unsigned backlog,
		struct weir_listener **listener);

/* Offers the service to the whole cluster: other nodes connect to service:NAME. */
#define WEIR_LISTEN_PUBLIC 0x1u
/*
 * Holds connections: each opens when the program has accepted it. Until then the connecting program
 * waits, and sends nothing. Without the flag a connection opens at once, and waits in the backlog.
 */
#define WEIR_LISTEN_HOLD 0x2u

struct weir_listen_options {
	size_t size;	  /* sizeof(struct weir_listen_options), set by WEIR_LISTEN_OPTIONS_INIT */
	unsigned backlog; /* as for weir_listen() */
	uint32_t flags;	  /* WEIR_LISTEN_PUBLIC, WEIR_LISTEN_HOLD */
};
#define WEIR_LISTEN_OPTIONS_INIT                                                                   \
	{                                                                                          \
		sizeof(struct weir_listen_options), 0, 0                                           \
	}

/*
 * weir_listen() with options. Other nodes learn of a public service within some milliseconds, in
 * large clusters within a second. It disappears when the listener is closed, or when the program,
 * its data plane or its node ends. Several nodes may offer the same name.
 *
 * @options  NULL: defaults
 *
 * Returns as weir_listen(), or
 *   -ENOSPC      this node offers its maximum of public services
 *   -EDQUOT      a limit of this user is reached
 *   -EOPNOTSUPP  the data plane is older than the library
 *   -EINVAL      the name is invalid, or a flag or size is invalid
 *   -E2BIG       the options have a field that this library does not know
 */
int weir_listen_with(struct weir *w, const char *service, const struct weir_listen_options *options,
		     struct weir_listener **listener);

/*
 * Takes the next connection of a listener. Its events go to the listener's thread; the handle is
 * the caller's, who closes it.
 *
 * @l           listener
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 * @conn        receives the connection
 *
 * Returns 0, or
 *   -EAGAIN      no connection within the timeout
 *   -EADDRINUSE  another program took the name while the data plane restarted
 *   and the errors of every call.
 */
int weir_accept(struct weir_listener *l, int timeout_ms, struct weir_conn **conn);

/*
 * Hands out a held connection undecided: weir_conn_info() tells whose it is, then weir_admit()
 * opens it, or weir_refuse() refuses it. weir_close() and the end of the program refuse it too.
 * Only with a listener that has WEIR_LISTEN_HOLD.
 */
#define WEIR_ACCEPT_HOLD 0x1u

struct weir_accept_options {
	size_t size;	/* sizeof(struct weir_accept_options), set by WEIR_ACCEPT_OPTIONS_INIT */
	uint32_t flags; /* WEIR_ACCEPT_HOLD or 0 */
	/*
	 * Flow-control window towards this program, bytes, from WEIR_WINDOW_MIN; 0: what the
	 * connecting program requested, within a host at most the default. Of a connection that
	 * was open before the call, the window changes with traffic.
	 */
	uint32_t window;
};
#define WEIR_ACCEPT_OPTIONS_INIT                                                                   \
	{                                                                                          \
		sizeof(struct weir_accept_options), 0, 0                                           \
	}

/*
 * weir_accept() with options.
 *
 * @options  NULL: defaults
 *
 * Returns as weir_accept(), or
 *   -EINVAL  a flag, window or size is invalid, or WEIR_ACCEPT_HOLD without WEIR_LISTEN_HOLD
 *   -E2BIG   the options have a field that this library does not know
 * After the timeout the call may still wait for the data plane to open a held connection. Neither
 * signal handlers nor weir_wake() end that wait.
 */
int weir_accept_with(struct weir_listener *l, const struct weir_accept_options *options,
		     int timeout_ms, struct weir_conn **conn);

/*
 * Opens a connection that weir_accept_with() handed out undecided.
 *
 * @c        connection; the handle stays the caller's, also after an error
 * @options  flags: 0; NULL: defaults
 *
 * Returns 0, or
 *   -EISCONN    the connection is open already
 *   -ENOTCONN, -ECONNRESET, -ESHUTDOWN, -EHOSTDOWN
 *               the connecting program has given up, or is lost: close the connection
 *   -EINVAL     a flag, window or size is invalid
 *   -E2BIG      the options have a field that this library does not know
 *   and the errors of every call.
 * Blocks until the data plane has opened it; neither signal handlers nor weir_wake() end that wait.
 * Any thread.
 */
int weir_admit(struct weir_conn *c, const struct weir_accept_options *options);

#define WEIR_REFUSAL_TEXT_MAX 128u /* bytes: longest reason of weir_refuse(), NUL included */

/*
 * Refuses a connection that weir_accept_with() handed out undecided, and frees the handle. The
 * connecting program gets -ECONNREFUSED, and weir_reason() there has the reason.
 *
 * @reason  UTF-8 text, copied; NULL: none. At most WEIR_REFUSAL_TEXT_MAX bytes with the NUL
 *          travel: a longer text is cut, by whole characters. Control characters, marks of
 *          direction and bytes that are not UTF-8 become '?'.
 *
 * Returns 0, also if the connecting program has gone, or
 *   -EISCONN  the connection is open; the handle stays valid
 * Blocks until the data plane answers. No other thread may use the connection.
 */
int weir_refuse(struct weir_conn *c, const char *reason);

/*
 * Refuses the connections not yet accepted and frees the listener. No other thread may use the
 * listener. NULL is allowed.
 */
void weir_listener_close(struct weir_listener *l);

/* ---- Connecting ---- */

/*
 * Connects to a service. With timeout 0 the call returns 0 at once; the connection later reports
 * WEIR_EVENT_OPENED or WEIR_EVENT_CLOSED to the calling thread.
 *
 * "service:NAME" connects to a node that offers this public service: the local node if it does,
 * otherwise live nodes in round-robin order. If a node refuses before the call returns, or no link
 * to it is free, the call tries the next one.
 *
 * @w           session handle
 * @address     service to connect to; copied
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 * @conn        receives the connection, freed by weir_close()
 *
 * Returns 0, or
 *   -EHOSTUNREACH  no such node or address
 *   -ECONNREFUSED  the node has no such service, or the service's backlog is full
 *   -ETIMEDOUT     no answer in time
 *   -EHOSTDOWN     the node is down
 *   -ENOSPC        all links of the data plane, or of the node's, are in use, and none became
 *                  idle within 5 s; weir_reason() names the option that allows more
 *   -EINVAL        the address is invalid
 *   -EDQUOT        a limit of this user, or of the user that listens, is reached
 *   -EMFILE        the session has no connection left
 *   and the errors of every call.
 */
int weir_connect(struct weir *w, const struct weir_address *address, int timeout_ms,
		 struct weir_conn **conn);

/* Connects to this node through its own port instead of shared memory; for measuring. */
#define WEIR_LOOP 0x1u

/*
 * Transport and operation. By default Weir chooses them per message, by size, load and memory. A
 * program may choose instead: in weir_connect_options.flags for all messages that this end sends,
 * or in the flags of a send for one message. At most one transport and one operation are allowed.
 *
 *   -EINVAL    several transports or operations, an operation with WEIR_UD, or a message with
 *              another transport than its connection
 *   -EMSGSIZE  the message is larger than its operation carries
 *
 * Within a host all messages go through shared memory; the flags are checked and have no effect.
 */
#define WEIR_RC 0x10u	    /* reliable connection, the default */
#define WEIR_UD 0x20u	    /* datagram connection, see below */
#define WEIR_RING 0x100u    /* RDMA WRITE into the peer's ring, at most WEIR_RING_MAX bytes */
#define WEIR_SEND 0x200u    /* SEND into the peer's receive buffers, at most WEIR_SEND_MAX bytes */
#define WEIR_READ 0x400u    /* rendezvous: the receiver's engine fetches the message by RDMA READ */
#define WEIR_WRITE 0x800u   /* rendezvous: RDMA WRITE into memory that the receiver has granted */
#define WEIR_RING_MAX 8192u /* bytes */
#define WEIR_SEND_MAX 1920u /* bytes */

/*
 * Datagram connections (WEIR_UD). Each message has at most weir_conn_mtu() bytes and is sent once.
 * It may be lost or overtaken by a later one. It never arrives twice, in part, or on another
 * connection. There is no flow-control window: the receiver drops and counts messages that find no
 * room (weirctl show connections). A message is complete when it has been sent. Opening, closing
 * and messages between programs of one host are reliable.
 */

#define WEIR_WINDOW_MIN 8256u /* bytes: smallest window; holds one message of 8 KiB */

/*
 * Automatic reconnecting. The library reconnects inside weir_poll() and weir_wait() of the thread
 * that receives the connection's events. The lost connection itself ends as any other, with its
 * incomplete messages; instead of CLOSED it reports LOST. Then follows either OPENED, with a new
 * handle, or, when the time is over, CLOSED without a handle. A connection is not restored if it
 * was never open, or if the peer or an operator closed it.
 */
struct weir_reconnect {
	uint32_t on;	      /* WEIR_AGAIN_*: causes for which to reconnect; 0: never */
	uint32_t first_ms;    /* ms before the first attempt; doubles with each attempt */
	uint32_t max_ms;      /* longest time between two attempts, ms; 0: 1000 */
	uint32_t total_ms;    /* ms after which to give up, at least one attempt; 0: never */
	uint32_t reserved[4]; /* 0 */
};
#define WEIR_AGAIN_RESTART 0x1u /* own data plane lost; attempts begin once it is reattached */
#define WEIR_AGAIN_LOSS 0x2u	/* peer lost: its program, its node or the path to it */

/*
 * Priority of a connection to another node, for both ends. Each has packets of its own, with its
 * own DSCP and VLAN priority or service level (weir-dataplane --nic). Beside one that sends, the
 * next lower priority gets a quarter of the turns. HIGH needs the operator's permission (weirctl
 * set user.UID.priority high). Within a host the priority has no effect.
 */
enum weir_priority {
	WEIR_PRIORITY_NORMAL = 0, /* what the operator has set for the program; else normal */
	WEIR_PRIORITY_LOW = 1,
	WEIR_PRIORITY_HIGH = 2,
};

struct weir_connect_options {
	size_t size;	/* sizeof(struct weir_connect_options), set by WEIR_CONNECT_OPTIONS_INIT */
	uint32_t flags; /* WEIR_LOOP, a transport, an operation */
	/*
	 * Requested flow-control window, bytes, from WEIR_WINDOW_MIN: what this end grants, and
	 * what it asks the other end to grant. 0: the data plane's default; within a host 2 MiB.
	 */
	uint32_t window;
	struct weir_reconnect reconnect;
	uint32_t priority; /* enum weir_priority */
	uint32_t reserved; /* 0 */
};
#define WEIR_CONNECT_OPTIONS_INIT                                                                  \
	{                                                                                          \
		sizeof(struct weir_connect_options), 0, 0, {0, 0, 0, 0, {0, 0, 0, 0}}, 0, 0        \
	}

/*
 * weir_connect() with options.
 *
 * @options  NULL: defaults
 *
 * Returns as weir_connect(), or
 *   -EINVAL      contradicting or unknown flags, an unknown priority, a window below
 *                WEIR_WINDOW_MIN, an invalid size, or a reserved field that is not 0
 *   -E2BIG       the options have a field that this library does not know
 *   -EACCES      the user may not connect with WEIR_PRIORITY_HIGH
 *   -EOPNOTSUPP  WEIR_UD, but a port does not support datagrams
 */
int weir_connect_with(struct weir *w, const struct weir_address *address,
		      const struct weir_connect_options *options, int timeout_ms,
		      struct weir_conn **conn);

/*
 * weir_connect_with() by text: the text of an address (weir_address_parse()), or HOST:SERVICE. The
 * library has libc find the addresses of the host (/etc/hosts, name servers), IPv4 and IPv6, and
 * tries up to 16 of them in turn, each for its share of the time, until one connects. Reconnecting
 * (weir_connect_options.reconnect) uses the address that has connected. A host whose name is node,
 * lid, gid or service needs a longer name.
 *
 * @to          text, NUL-terminated; copied
 * @timeout_ms  milliseconds, the look-up included; below 0: no limit; 0: do not wait, not allowed
 *              with the name of a host
 *
 * Returns as weir_connect_with(), or
 *   -EINVAL        the text is not an address; weir_reason() says why not
 *   -EHOSTUNREACH  the host is not found, or none of its addresses is a node's
 *   -ETIMEDOUT     the resolver or the last address has not answered in time
 *   -EAGAIN        16 look-ups of this process wait for a resolver that does not answer
 */
int weir_connect_to(struct weir *w, const char *to, const struct weir_connect_options *options,
		    int timeout_ms, struct weir_conn **conn);

#define WEIR_SERVICE_LOCAL 0x1u /* a program of this node offers the service */

/* A node that offers a public service. */
struct weir_service_entry {
	uint32_t node; /* node id; UINT32_MAX: this node, before weir-control has assigned its id */
	uint32_t flags; /* WEIR_SERVICE_LOCAL or 0 */
	/*
	 * Address for weir_connect(): the node's NIC that is reachable from this node, as IPv4,
	 * IPv6 or LID, with the service name. Kind NONE: the node has no such NIC.
	 */
	struct weir_address port;
	uint64_t reserved[4]; /* 0 */
};

/*
 * Lists the live nodes known to offer a public service. Asks only the data plane, and so works
 * without weir-control.
 *
 * @w        session handle
 * @service  service name
 * @list     receives up to n nodes
 * @n        entries of list
 *
 * Returns the number of nodes, which may exceed n, or
 *   -EINVAL      the name is invalid
 *   -EOPNOTSUPP  the data plane is older than the library
 *   and the errors of every call.
 * May block until the data plane answers. Any thread.
 */
int weir_service_find(struct weir *w, const char *service, struct weir_service_entry *list,
		      unsigned n);

/* ---- Sending ---- */

/* Flags of a send, besides a transport and an operation. */

#define WEIR_NOTIFY 0x1u /* report completion as WEIR_EVENT_SENT with the send's cookie */
/*
 * The program leaves the buffer unchanged until the message is complete (WEIR_EVENT_SENT,
 * weir_flush()). A message above 8 KiB to another node is then sent without a copy if it lies in
 * memory adopted for sending (weir/memory.h). Otherwise it is copied as without the flag.
 */
#define WEIR_ZERO_COPY 0x2u
/*
 * As WEIR_ZERO_COPY. In addition the library adopts a buffer that is sent repeatedly, if it
 * consists of whole pages and has 256 KiB or more. The rules of weir_adopt() apply to it: call
 * weir_uncache() before the buffer is unmapped or passed to free().
 */
#define WEIR_CACHED 0x4u

/*
 * Sends one message. The buffer may be reused when the call returns (but see WEIR_ZERO_COPY).
 *
 * @c           connection
 * @buf         payload
 * @length      bytes, 0 to 16 MiB
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns 0 if the message is accepted; it then completes exactly once. Otherwise
 *   -EAGAIN      ring, window or arena full for the whole timeout; nothing was accepted, and
 *                WEIR_EVENT_WRITABLE follows
 *   -EMSGSIZE    larger than weir_conn_mtu() or than the arena
 *   -ECONNRESET  the peer closed the connection or died
 *   -EHOSTDOWN   the peer's node is down
 *   -EPIPE       this end has shut down sending (weir_shutdown())
 *   -EPROTO      a local peer corrupted the shared segment
 *   -ENOMEM      no memory
 *   and the errors of every call. Any thread.
 */
int weir_send(struct weir_conn *c, const void *buf, size_t length, int timeout_ms);

/*
 * weir_send() with flags.
 *
 * @flags   WEIR_NOTIFY, WEIR_ZERO_COPY, WEIR_CACHED, a transport, an operation
 * @cookie  returned in the completion event
 *
 * Returns as weir_send(), or -EINVAL for contradicting or unknown flags.
 */
int weir_send_notify(struct weir_conn *c, const void *buf, size_t length, unsigned flags,
		     uint64_t cookie, int timeout_ms);

#define WEIR_PARTS_MAX 1024u /* entries of a list of weir_sendv() and weir_recvv() */

/*
 * Sends one message whose bytes lie in several pieces of memory, one after the other. The message
 * is gathered straight into the memory it is sent from. All pieces may be reused when the call
 * returns. WEIR_ZERO_COPY and WEIR_CACHED have an effect on a message of one piece alone.
 *
 * @parts       pieces, in order; read by the call only. NULL if n is 0
 * @n           number of pieces, 0 to WEIR_PARTS_MAX
 * @flags       as for weir_send_notify()
 * @cookie      returned in the completion event
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns as weir_send_notify(), or
 *   -EINVAL    more than WEIR_PARTS_MAX pieces, or a piece without address
 *   -EMSGSIZE  the pieces together are larger than a message may be
 * Any thread.
 */
int weir_sendv(struct weir_conn *c, const struct iovec *parts, unsigned n, unsigned flags,
	       uint64_t cookie, int timeout_ms);

/*
 * Reserves memory in which the program composes a message, for sending it without a copy. A
 * reservation ends with weir_send_commit(), weir_send_abandon() or weir_close(): the memory is then
 * the library's. Each thread may hold one reservation per connection; any thread may commit or
 * abandon it.
 *
 * @c           connection
 * @length      bytes
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 * @buf         receives the memory
 *
 * Returns 0, an error of weir_send(), or
 *   -EBUSY  the calling thread holds a reservation of this connection
 */
int weir_send_reserve(struct weir_conn *c, size_t length, int timeout_ms, void **buf);

/*
 * Sends a reserved message. On success the library owns the memory; on failure the caller still
 * does, and may commit again or abandon. Does not wait.
 *
 * @buf     memory from weir_send_reserve()
 * @length  bytes of the message, at most the reserved length
 * @flags   as for weir_send_notify()
 * @cookie  returned in the completion event
 *
 * Returns as weir_send_notify(), or -EINVAL if buf is no reservation of the connection or length
 * exceeds the reserved length.
 */
int weir_send_commit(struct weir_conn *c, void *buf, size_t length, unsigned flags,
		     uint64_t cookie);

/* Releases a reservation without sending it. */
void weir_send_abandon(struct weir_conn *c, void *buf);

/*
 * Waits until all messages accepted so far on the connection are complete. Returns 0, -EAGAIN if
 * the time is over, or how the connection ended. Any thread.
 */
int weir_flush(struct weir_conn *c, int timeout_ms);

/*
 * Sends several messages. Together they cost less than one call each, and between programs of a
 * host small ones share cache lines if the receiver takes them by weir_recv_many().
 *
 * @c           connection
 * @messages    payload of each message
 * @n           entries of messages
 * @timeout_ms  milliseconds to wait for room for the first message; below 0: no limit; 0: do not
 *              wait
 *
 * Returns the number of messages accepted, from the first on; if there was no room for all,
 * WEIR_EVENT_WRITABLE follows. If none was accepted, returns as weir_send(). An error of a later
 * message is reported by the next call. Any thread; messages of other threads may lie in between.
 */
int weir_send_many(struct weir_conn *c, const struct iovec *messages, unsigned n, int timeout_ms);

/* ---- Receiving ---- */

/*
 * Receives exactly one message into the caller's buffer.
 *
 * @c           connection
 * @buf         receives the message
 * @size        size of buf in bytes
 * @length      receives the size of the message in bytes, also with -EMSGSIZE
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns 0, or
 *   -EAGAIN        no message within the timeout
 *   -EMSGSIZE      buf is too small; the message stays
 *   -ESHUTDOWN     end of stream: the peer closed or shut down sending after its last message
 *   -ECONNRESET    the peer died, or the link to it broke
 *   -EHOSTDOWN     the peer's node is down
 *   -ECONNABORTED  an operator ended the connection
 *   -EPROTO        a local peer corrupted the shared segment
 *   -ENOMEM        no memory
 *   and the errors of every call.
 * Only one thread at a time may receive on a connection.
 */
int weir_recv(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms);

/*
 * Receives exactly one message into several pieces of memory, which are filled one after the other.
 *
 * @parts   pieces, in order, with room for the whole message; none overlaps memory that is posted
 *          (weir_recv_into()). NULL if n is 0
 * @n       number of pieces, 0 to WEIR_PARTS_MAX
 * @length  receives the size of the message in bytes, also with -EMSGSIZE
 *
 * Returns as weir_recv(), or -EINVAL: more than WEIR_PARTS_MAX pieces, or a piece without address.
 */
int weir_recvv(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t *length,
	       int timeout_ms);

/*
 * Looks at the next message without receiving it: its size and its first bytes. The next receive
 * on the connection returns this message. A message is seen once all its bytes have arrived, in
 * the session's memory or in posted memory (weir_recv_into()): one that is announced, or arrives in
 * fragments, is not seen before. It keeps its part of the flow-control window until received.
 *
 * @buf     receives the first bytes: as many as both the message and buf have. NULL if size is 0
 * @size    size of buf in bytes
 * @length  receives the size of the message in bytes
 *
 * Returns as weir_recv(), never -EMSGSIZE. Counts as receiving: one thread at a time, and -EAGAIN
 * makes the next message report WEIR_EVENT_READABLE.
 */
int weir_peek(struct weir_conn *c, void *buf, size_t size, size_t *length, int timeout_ms);

/*
 * Receives the messages that are there, at least one, each into a buffer of its own.
 *
 * @c           connection
 * @messages    buffers; iov_len is the size of each, and then the length of its message
 * @n           entries of messages, at least 1
 * @timeout_ms  milliseconds to wait for the first message; below 0: no limit; 0: do not wait
 *
 * Returns the number of messages received, in order, or -EINVAL if n is 0, or as weir_recv() for
 * the first message. With -EMSGSIZE the first iov_len is the size that the message needs. A message
 * that does not fit into a later buffer ends the call, and is the next one's first.
 * Only one thread at a time may receive on a connection.
 */
int weir_recv_many(struct weir_conn *c, struct iovec *messages, unsigned n, int timeout_ms);

/* A message on loan, read where it arrived. */
struct weir_loan {
	const void *data;
	size_t length; /* bytes */
	uint64_t internal[6];
};

/*
 * Receives one message without a copy: it stays where it arrived until weir_release(). A loan of up
 * to 8 KiB from another node counts against the largest window of the connection. Returns as
 * weir_recv(), never -EMSGSIZE.
 */
int weir_recv_loan(struct weir_conn *c, struct weir_loan *loan, int timeout_ms);

/*
 * weir_recv_loan() for the messages that are there, at least one.
 *
 * @loans  receives up to n loans, each released by weir_release()
 * @n      entries of loans, at least 1
 *
 * Returns the number of loans, or -EINVAL if n is 0, or as weir_recv_loan() for the first.
 */
int weir_recv_loan_many(struct weir_conn *c, struct weir_loan *loans, unsigned n, int timeout_ms);

/*
 * Releases a loan. Any thread, in any order, also after weir_close() of the connection.
 * weir_detach() ends all loans.
 */
void weir_release(struct weir *w, struct weir_loan *loan);

/* ---- Events ---- */

enum weir_event_type {
	/* A message can be received. Reported once; again only after a receive gave -EAGAIN. */
	WEIR_EVENT_READABLE = 1,
	/* A send that gave -EAGAIN may now succeed. */
	WEIR_EVENT_WRITABLE = 2,
	/* A message sent with WEIR_NOTIFY ended; cookie, and status 0: complete, else -errno. */
	WEIR_EVENT_SENT = 3,
	/* A weir_connect() with timeout 0 succeeded. */
	WEIR_EVENT_OPENED = 4,
	/* The connection ended; status 0: end of stream, else -errno. Close it. */
	WEIR_EVENT_CLOSED = 5,
	/* A listener has a connection. */
	WEIR_EVENT_ACCEPT = 6,
	/*
	 * A node came up (status 0) or went down (-EHOSTDOWN); cookie: node id. One thread of the
	 * program receives it, unless some thread watches nodes (weir_nodes_watch(), weir/node.h).
	 */
	WEIR_EVENT_NODE = 7,
	/*
	 * As CLOSED with a status other than 0, but the library reconnects: close this handle.
	 * Then follows OPENED with a new handle and the same user pointer, or CLOSED with conn
	 * NULL. The cookie is for weir_reconnect_cancel().
	 */
	WEIR_EVENT_LOST = 8,
	/*
	 * The peer has shut down sending, and its last message has been received. This end may
	 * still send. CLOSED follows when the connection ends.
	 */
	WEIR_EVENT_END = 9,
	/*
	 * The message model (weir/message.h) has messages, responses or completions for this
	 * thread. Reported once; again after weir_messenger_progress() on this thread has left
	 * something, or when something new arrives.
	 */
	WEIR_EVENT_MESSAGES = 10,
	/* A notice for an export of this thread can be taken (weir/remote.h). */
	WEIR_EVENT_NOTICE = 11,
};

struct weir_event {
	uint32_t type;			/* enum weir_event_type */
	int32_t status;			/* 0 or -errno, by type */
	struct weir_conn *conn;		/* NULL for ACCEPT, NODE and MESSAGES */
	struct weir_listener *listener; /* for ACCEPT */
	void *user;			/* pointer set by weir_conn_set_user() */
	uint64_t cookie;		/* of the send, the node or the reconnect, by type */
	/* NODE, only for threads that watch nodes: */
	uint32_t change;      /* WEIR_CHANGE_* */
	uint32_t state;	      /* present state, enum weir_node_state */
	uint64_t reserved[2]; /* 0 */
};

/*
 * Takes events of the connections and listeners bound to the calling thread. The cost grows with
 * the number of ready connections, not with the number of open ones. Does not wait.
 *
 * @w       session handle
 * @events  receives up to n events
 * @n       entries of events
 *
 * Returns the number of events, 0 if there are none, or -ENODEV, -ECONNABORTED or -ENOTCONN.
 * weir_wake() has no effect on it.
 */
int weir_poll(struct weir *w, struct weir_event *events, unsigned n);

/*
 * weir_poll() that waits for at least one event; the thread may sleep.
 *
 * @timeout_ms  milliseconds; below 0: no limit; 0: do not wait
 *
 * Returns as weir_poll(), or -EINTR if there was no event before a signal handler or weir_wake()
 * ended the wait.
 */
int weir_wait(struct weir *w, struct weir_event *events, unsigned n, int timeout_ms);

/*
 * Stops reconnecting a lost connection. Must be called by the thread that received the event.
 *
 * @cookie  cookie of the WEIR_EVENT_LOST
 *
 * Returns 0, or -ENOENT if the connection is already restored or given up.
 */
int weir_reconnect_cancel(struct weir *w, uint64_t cookie);

/* ---- Connections ---- */

/*
 * Directs the events of a connection to the calling thread from now on. Returns 0, or -ENOMEM or
 * -EMFILE, or an error of every call.
 */
int weir_conn_bind(struct weir_conn *c);

/* Sets a pointer of the program's that the events of the connection carry; initially NULL. */
void weir_conn_set_user(struct weir_conn *c, void *user);

/* Returns the pointer set by weir_conn_set_user(). */
void *weir_conn_user(const struct weir_conn *c);

/*
 * Identifies the other end of a connection.
 *
 * @node   receives the node id; may be NULL
 * @local  receives 1 if the peer is a program of this host, else 0; may be NULL
 *
 * Returns 0, or -EAGAIN if the connection is not open yet. Does not block.
 */
int weir_conn_peer(const struct weir_conn *c, uint16_t *node, int *local);

#define WEIR_PROGRAM_MAX 32u /* bytes: longest name of a program, NUL included */

/* Facts about a connection, as weir_conn_info() reports them. */
struct weir_conn_info {
	size_t size;	/* sizeof(struct weir_conn_info), set by WEIR_CONN_INFO_INIT */
	uint32_t node;	/* id of the peer's node; UINT32_MAX: this node, before it has an id */
	uint32_t local; /* 1: the peer is a program of this host */
	/*
	 * The peer if local, as the kernel told the data plane when that program attached, and the
	 * name by which it attached: its own choice. Else pid 0, uid UINT32_MAX and no name. They
	 * stay known after the peer's end.
	 */
	uint32_t uid;
	int32_t pid;
	char program[WEIR_PROGRAM_MAX];
	/* Ports of both ends, without a service; kind NONE: no port, or not known yet. */
	struct weir_address here, there;
	/*
	 * Flow-control windows as they are now, bytes, by the direction of the messages that they
	 * limit; 0: a datagram connection, or not open yet.
	 */
	uint32_t send_window, recv_window;
	uint32_t mtu;	     /* as weir_conn_mtu() */
	int32_t send_status; /* 0: messages may be sent; -EAGAIN: not open yet; else why not */
	int32_t recv_status; /* 0: messages may come; else why none comes after those that have */
	uint32_t undecided;  /* 1: weir_admit() or weir_refuse() is due */
	uint32_t priority;   /* enum weir_priority */
	uint32_t reserved;
	/* Messages, and bytes of their payload: accepted from this program, and received by it. */
	uint64_t sent_messages, sent_bytes;
	uint64_t recv_messages, recv_bytes;
	uint64_t age_ms; /* ms since the connection was requested or arrived here */
};
#define WEIR_CONN_INFO_INIT                                                                        \
	{                                                                                          \
		sizeof(struct weir_conn_info), 0, 0, 0, 0, {0}, {0, 0, {0}, {0}},                  \
		    {0, 0, {0}, {0}}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                        \
	}

/*
 * Reports what is known of a connection, undecided ones included, until weir_close().
 *
 * @info  initialized with WEIR_CONN_INFO_INIT; filled on success
 *
 * Returns 0, or
 *   -EAGAIN    the connection is not open yet
 *   -EINVAL    info is NULL or not initialized
 *   -ENOTCONN  the connection never opened
 *   and the errors of every call.
 * Blocks until the data plane answers. Any thread.
 */
int weir_conn_info(struct weir_conn *c, struct weir_conn_info *info);

/*
 * Returns the size in bytes of the largest message that the connection takes:
 * WEIR_STREAM_MESSAGE_MAX, or for a datagram connection the payload of one packet on its path.
 * Returns -EAGAIN if the connection is not open yet. Does not block.
 */
int weir_conn_mtu(const struct weir_conn *c);

/*
 * Shuts down sending: half of a close. Messages accepted so far are still delivered; the peer then
 * receives the end of the stream (-ESHUTDOWN, WEIR_EVENT_END) and may still send. This end receives
 * until the peer closes or shuts down, too. Once both ends have shut down, the connection has ended
 * in order: both get WEIR_EVENT_CLOSED with status 0. weir_close() is still due. Does not wait.
 *
 * Returns 0, also if sending was shut down before, or
 *   -EAGAIN      the connection is not open yet
 *   -ECONNRESET, -EHOSTDOWN, -EPROTO: the connection has ended, as for weir_send()
 *   and the errors of every call. Any thread.
 */
int weir_shutdown(struct weir_conn *c);

/*
 * Closes a connection and frees its handle. Messages accepted so far are still delivered; the peer
 * then sees the end of the stream. Messages not yet received are dropped. Does not wait. No other
 * thread may use the connection. NULL is allowed.
 */
void weir_close(struct weir_conn *c);

#ifdef __cplusplus
}
#endif
#endif
