/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One connection to another control: a stream cut into messages, and its handshake. The dialler
 * says Hello first; a stranger is told nothing but why it is refused. A handshake that isn't done
 * in time ends, whichever end is slow.
 */
#ifndef WEIR_CONTROL_CONN_H
#define WEIR_CONTROL_CONN_H

#include "message.h"
#include "stream.h"

#include <sys/queue.h>

#define CONN_HANDSHAKE_MS 2000u
#define CONN_FROM_MAX 72

struct conn;
struct event_base;

struct conn_handler {
	/* A dialled connection is there: say Hello. */
	void (*opened)(struct conn *c);
	/*
	 * The first message, a Hello of our version, came. NULL to accept; else why not (static or
	 * valid until the next call): the other end is told, the connection ends.
	 */
	const char *(*hello)(struct conn *c, const struct control_msg *m);
	/* A later message. NULL, or why the connection has to end. BYE and ERROR are followed by
	 * closed(). */
	const char *(*message)(struct conn *c, const struct control_msg *m);
	/* The connection ended, not by conn_close(). `reason` for people. The conn is freed
	 * afterwards. */
	void (*closed)(struct conn *c, const char *reason);
};

struct conn {
	const struct conn_handler *handler;
	void *owner;  /* the handler's */
	void *member; /* the handler's: which node; NULL until an accepted one is known */
	TAILQ_ENTRY(conn) waiting; /* the handler's: accepted and not known yet */
	struct control_stream *stream;
	struct event *timer; /* handshake; then only to end a connection that takes nothing */
	bool dialled;
	bool joined; /* both have sent their Hello */
	bool taken;  /* hello(): the other end's id is somebody else's; closed(): it says so of ours
		      */
	bool surplus;		      /* the handler's: there is another one to the same node */
	bool idle;		      /* closed(): the other end had no use for it */
	char from[CONN_FROM_MAX];     /* the other end, for people */
	char stranger[CONN_FROM_MAX]; /* the same without port: what a log line is told apart by */
};

/* Begins to connect. NULL and errno on failure. */
struct conn *conn_dial(struct event_base *base, const struct control_transport *transport,
		       const struct sockaddr *address, socklen_t length,
		       const struct conn_handler *handler, void *owner);
/* Takes over an accepted socket. NULL and errno on failure. */
struct conn *conn_accept(struct event_base *base, const struct control_transport *transport, int fd,
			 const struct sockaddr *address, socklen_t length,
			 const struct conn_handler *handler, void *owner);
/* Queues a message. The connection ends later (closed()) if the other end takes nothing any more.
 */
void conn_send(struct conn *c, const struct control_msg *m);
/* The same of one that was encoded before; length 0: it could not be. */
void conn_send_encoded(struct conn *c, const uint8_t *data, size_t length);
/* Sends `why` as Error if not NULL, closes and frees. NULL is allowed. */
void conn_close(struct conn *c, const char *why);

#endif
