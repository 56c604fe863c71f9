/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interface for other models, below the public calls of streams: messages taken from a ring before
 * their connection is known, counted as consumed when the model says so; messages with a head in
 * front. "Worker locked": the caller has locked the connection's worker.
 */
#ifndef WEIR_STREAM_MODEL_H
#define WEIR_STREAM_MODEL_H

#include "client/channel.h"
#include "stream/small.h"

#include <sys/uio.h>

/* A received message that does not count as consumed yet. */
struct weir_taken {
	const uint8_t *data;
	uint32_t length;
	uint32_t cost;		      /* in the caller's buffer: still to be counted */
	struct weir_rx_message *loan; /* NULL: in the caller's buffer */
};

/*
 * Takes the next message of c: an inline one at the ring's head is copied to buf (WEIR_INLINE_MAX
 * bytes, aligned to 16), others are lent. 0, -EAGAIN, or how the connection ended. Worker locked.
 */
int weir_take(struct weir_conn *c, void *buf, struct weir_taken *taken);
/* Releases a message and counts it as consumed; c is NULL if its connection is gone. Worker locked.
 */
void weir_taken_done(struct weir_conn *c, struct weir_taken *taken);

/* weir_listen_with() for the message model: weir_poll() does not report its connections. */
int weir_listen_lanes(struct weir *w, const char *service, const struct weir_listen_options *o,
		      struct weir_listener **listener);
/* The same for groups: nothing reports the listener or its connections. */
int weir_listen_silent(struct weir *w, const char *service, const struct weir_listen_options *o,
		       struct weir_listener **listener);
/* Whether the listener, or one in its place, listens in session w. */
bool weir_listener_in(const struct weir_listener *l, const struct weir *w);

/* Takes the event or message at the ring's head off the ring. False: it stays. Worker locked. */
bool weir_channel_step(struct weir_channel *ch);

/* Begins to connect on t, which is locked; the connection opens later. 0 or -errno. */
int weir_conn_start(struct weir_thread *t, const struct weir_address *address,
		    const struct weir_connect_options *o, struct weir_conn **conn);
/* Whether the connection has opened: 0, -EAGAIN (not yet), or how the attempt ended. */
int weir_conn_opened(struct weir_conn *c);

/* The answer to the request for a connection to memory. */
struct weir_memory_answer {
	struct weir_conn *conn; /* NULL: none */
	bool refused;		/* by it, with the error that is returned */
	bool local;		/* of this host */
};
/* The same to the memory that a key names, for the lane `remote`, with WEIR_RIGHT_*. */
int weir_conn_start_memory(struct weir_thread *t, struct weir_remote_lane *remote,
			   const uint8_t *key, uint32_t rights, struct weir_memory_answer *answer);

/*
 * Sends one message gathered from n places, `length` bytes in total. As weir_send(); with
 * WEIR_NOTIFY if there is a cookie.
 */
int weir_send_parts(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t length,
		    const uint64_t *cookie, int timeout_ms);

/* The same without waiting. Worker locked. */
int weir_send_now(struct weir_conn *c, const struct iovec *parts, unsigned n, size_t length,
		  const uint64_t *cookie);

/* Wakes the other end. True: it was rung before and waits for this very CPU. Worker locked. */
bool weir_pipe_wake(struct weir_pipe *p);

/*
 * Puts a small message behind a head of 16 bytes. 0, or -EAGAIN: weir_send_parts() tells why.
 * `length` <= WEIR_INLINE_SMALL - 16. Worker locked.
 */
int weir_send_headed(struct weir_conn *c, const void *head, const void *buf, uint32_t length);

/*
 * As weir_take() for a small message of c at the ring's head, when nothing else needs attention.
 * False: nothing has changed. Worker locked.
 */
static inline __attribute__((always_inline)) bool
weir_take_small(struct weir_conn *c, uint8_t *buf, struct weir_taken *taken)
{
	struct weir_head h;
	const struct weir_slot *s = weir_small_peek(c, WEIR_INLINE_SMALL, &h, false);

	if (!s)
		return false;
	if (h.length > WEIR_SLOT_HEAD_BYTES)
		taken->cost = weir_small_take(c, s, &h, buf, 2, c->pipe->local);
	else
		taken->cost = weir_small_take(c, s, &h, buf, 1, c->pipe->local);
	taken->data = buf;
	taken->length = h.length;
	return true;
}

#endif
