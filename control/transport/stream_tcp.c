/* SPDX-License-Identifier: BSD-3-Clause */
/* Plain TCP under a control stream. */
#include "local_peer.h"
#include "stream_bev.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void
on_event(struct bufferevent *bev, short what, void *user)
{
	struct bev_stream *t = user;
	const struct control_stream *s = &t->stream;

	if (what & BEV_EVENT_CONNECTED)
		s->handler->opened(s->user);
	else if (what & BEV_EVENT_ERROR)
		s->handler->closed(s->user, strerror(EVUTIL_SOCKET_ERROR()));
	else if (what & BEV_EVENT_EOF)
		s->handler->closed(s->user, "connection closed");
}

static struct bev_stream *
tcp_make(const struct control_transport *self, struct event_base *base, int fd,
	 const struct control_stream_handler *handler, void *user)
{
	struct bev_stream *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	// Deferred: handlers never run inside a call of ours.
	t->bev = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	if (!t->bev) {
		free(t);
		return NULL;
	}
	t->stream = (struct control_stream){self, handler, user};
	return t;
}

static void
tcp_close(struct control_stream *stream)
{
	struct bev_stream *t = (struct bev_stream *)stream;

	if (!t)
		return;
	if (evbuffer_get_length(bufferevent_get_output(t->bev)) > 0) {
		struct evbuffer *out = bufferevent_get_output(t->bev);

		// The bufferevent keeps the start of its output frozen between its own writes.
		evbuffer_unfreeze(out, 1);
		(void)!evbuffer_write(out, bufferevent_getfd(t->bev));
	}
	bev_hang_up(t);
	bufferevent_free(t->bev);
	free(t);
}

static int
tcp_dial(const struct control_transport *self, struct event_base *base,
	 const struct sockaddr *address, socklen_t length,
	 const struct control_stream_handler *handler, void *user, struct control_stream **stream)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct bev_stream *t;
	int status;

	if (fd < 0)
		return -errno;
	t = tcp_make(self, base, fd, handler, user);
	if (!t) {
		close(fd);
		return -ENOMEM;
	}
	if (bufferevent_socket_connect(t->bev, address, length)) {
		status = -EVUTIL_SOCKET_ERROR();
		tcp_close(&t->stream);
		return status ? status : -EIO;
	}
	bev_start(t, on_event);
	*stream = &t->stream;
	return 0;
}

static int
tcp_adopt(const struct control_transport *self, struct event_base *base, int fd,
	  const struct control_stream_handler *handler, void *user, struct control_stream **stream)
{
	struct bev_stream *t = tcp_make(self, base, fd, handler, user);

	if (!t) {
		close(fd);
		return -ENOMEM;
	}
	bev_start(t, on_event);
	*stream = &t->stream;
	return 0;
}

// Whoever can reach the port is trusted, by --insecure; on loopback not every user is.
static const char *
tcp_vouch(struct control_stream *stream, const char *cluster, uint32_t node)
{
	return local_peer_doubt(bufferevent_getfd(((struct bev_stream *)stream)->bev));
}

const struct control_transport control_tcp = {
    .dial = tcp_dial,
    .adopt = tcp_adopt,
    .vouch = tcp_vouch,
    .write = bev_write,
    .close = tcp_close,
};
