/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A byte stream to another control process. Whoever uses one sees neither sockets nor TLS; a
 * transport makes it: plain TCP (stream_tcp.c) or TLS (stream_tls.c).
 */
#ifndef WEIR_CONTROL_STREAM_H
#define WEIR_CONTROL_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct event_base;
struct control_stream;

/* Events of a stream. Never called from inside one of the stream's functions. */
struct control_stream_handler {
	void (*opened)(void *user); /* a dialled stream is connected */
	/*
	 * `length` bytes wait; sets how many of them it has taken. They are shown again, with more
	 * behind them, until taken. Returns false when it has closed the stream.
	 */
	bool (*input)(void *user, const uint8_t *data, size_t length, size_t *taken);
	/* The other end is gone, or can't be had; why, for people. The user still has to close the
	 * stream. */
	void (*closed)(void *user, const char *why);
};

struct control_stream {
	const struct control_transport *transport;
	const struct control_stream_handler *handler;
	void *user;
};

struct control_transport {
	/* Begins to connect. 0 and *stream, or -errno. */
	int (*dial)(const struct control_transport *self, struct event_base *base,
		    const struct sockaddr *address, socklen_t length,
		    const struct control_stream_handler *handler, void *user,
		    struct control_stream **stream);
	/* Takes over an accepted socket, also on failure. 0 and *stream, or -errno. */
	int (*adopt)(const struct control_transport *self, struct event_base *base, int fd,
		     const struct control_stream_handler *handler, void *user,
		     struct control_stream **stream);
	/*
	 * Whether the other end may say that it is this node of this cluster: NULL, or why not
	 * (valid until the next call). NULL instead of a function: it is believed.
	 */
	const char *(*vouch)(struct control_stream *stream, const char *cluster, uint32_t node);
	/* Queues all of it. 0, or -ENOBUFS: the other end takes nothing any more. */
	int (*write)(struct control_stream *stream, const void *data, size_t length);
	/* Sends what can be sent at once and frees. No handler is called afterwards. NULL is
	 * allowed. */
	void (*close)(struct control_stream *stream);
};

extern const struct control_transport control_tcp;

#endif
