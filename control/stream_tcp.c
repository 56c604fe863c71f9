/* SPDX-License-Identifier: BSD-3-Clause */
/* Plain TCP under a control stream. */
#include "stream.h"

#include "message.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

#define INPUT_MAX (CONTROL_PREFIX + CONTROL_FRAME_MAX) /* a whole message must fit */
#define OUTPUT_MAX (1u << 20)			       /* then the other end doesn't read */

struct tcp_stream {
	struct control_stream stream;
	struct bufferevent *bev;
};

static void
on_read(struct bufferevent *bev, void *user)
{
	struct tcp_stream *t = user;
	struct evbuffer *in = bufferevent_get_input(bev);
	size_t length = evbuffer_get_length(in), taken = 0;

	if (length == 0 ||
	    !t->stream.handler->input(t->stream.user, evbuffer_pullup(in, -1), length, &taken))
		return;
	evbuffer_drain(in, taken);
}

static void
on_event(struct bufferevent *bev, short what, void *user)
{
	struct tcp_stream *t = user;

	if (what & BEV_EVENT_CONNECTED)
		t->stream.handler->opened(t->stream.user);
	else if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
		t->stream.handler->closed(t->stream.user,
					  what & BEV_EVENT_ERROR ? EVUTIL_SOCKET_ERROR() : 0);
}

static int
tcp_make(struct event_base *base, int fd, const struct control_stream_handler *handler, void *user,
	 struct tcp_stream **out)
{
	struct tcp_stream *t = calloc(1, sizeof(*t));
	int one = 1;

	if (!t)
		return -ENOMEM;
	// Deferred: handlers never run inside a call of ours.
	t->bev = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	if (!t->bev) {
		free(t);
		return -ENOMEM;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	t->stream.transport = &control_tcp;
	t->stream.handler = handler;
	t->stream.user = user;
	bufferevent_setwatermark(t->bev, EV_READ, 0, INPUT_MAX);
	bufferevent_setcb(t->bev, on_read, NULL, on_event, t);
	*out = t;
	return 0;
}

static void
tcp_close(struct control_stream *stream)
{
	struct tcp_stream *t = (struct tcp_stream *)stream;

	if (!t)
		return;
	if (evbuffer_get_length(bufferevent_get_output(t->bev)) > 0) {
		struct evbuffer *out = bufferevent_get_output(t->bev);

		// The bufferevent keeps the start of its output frozen between its own writes.
		evbuffer_unfreeze(out, 1);
		(void)!evbuffer_write(out, bufferevent_getfd(t->bev));
	}
	shutdown(bufferevent_getfd(t->bev), SHUT_WR);
	bufferevent_free(t->bev);
	free(t);
}

static int
tcp_dial(struct event_base *base, const struct sockaddr *address, socklen_t length,
	 const struct control_stream_handler *handler, void *user, struct control_stream **stream)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct tcp_stream *t;
	int status;

	if (fd < 0)
		return -errno;
	status = tcp_make(base, fd, handler, user, &t);
	if (status) {
		close(fd);
		return status;
	}
	if (bufferevent_socket_connect(t->bev, address, length)) {
		status = -EVUTIL_SOCKET_ERROR();
		tcp_close(&t->stream);
		return status ? status : -EIO;
	}
	bufferevent_enable(t->bev, EV_READ | EV_WRITE);
	*stream = &t->stream;
	return 0;
}

static int
tcp_adopt(struct event_base *base, int fd, const struct control_stream_handler *handler, void *user,
	  struct control_stream **stream)
{
	struct tcp_stream *t;
	int status;

	status = tcp_make(base, fd, handler, user, &t);
	if (status) {
		close(fd);
		return status;
	}
	bufferevent_enable(t->bev, EV_READ | EV_WRITE);
	*stream = &t->stream;
	return 0;
}

static int
tcp_write(struct control_stream *stream, const void *data, size_t length)
{
	struct tcp_stream *t = (struct tcp_stream *)stream;

	if (evbuffer_get_length(bufferevent_get_output(t->bev)) + length > OUTPUT_MAX)
		return -ENOBUFS;
	return bufferevent_write(t->bev, data, length) ? -ENOMEM : 0;
}

const struct control_transport control_tcp = {
    .name = "tcp",
    .dial = tcp_dial,
    .adopt = tcp_adopt,
    .write = tcp_write,
    .close = tcp_close,
};
