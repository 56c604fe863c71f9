/* SPDX-License-Identifier: BSD-3-Clause */
#include "stream_bev.h"

#include "ipc/invariant.h"
#include "message.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#define INPUT_MAX (CONTROL_PREFIX + CONTROL_FRAME_MAX) /* a whole message must fit */
#define OUTPUT_MAX (1u << 20)			       /* then the other end doesn't read */
#define UNREAD_READS 8				       /* and no more: it may send for ever */

static void
on_read(struct bufferevent *bev, void *user)
{
	struct bev_stream *s = user;
	struct evbuffer *in = bufferevent_get_input(bev);
	size_t length = evbuffer_get_length(in), taken = 0;

	if (length == 0 ||
	    !s->stream.handler->input(s->stream.user, evbuffer_pullup(in, -1), length, &taken))
		return;
	evbuffer_drain(in, taken);
}

void
bev_start(struct bev_stream *s, bufferevent_event_cb on_event)
{
	int one = 1;

	setsockopt(bufferevent_getfd(s->bev), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	bufferevent_setwatermark(s->bev, EV_READ, 0, INPUT_MAX);
	bufferevent_setcb(s->bev, on_read, NULL, on_event, s);
	bufferevent_enable(s->bev, EV_READ | EV_WRITE);
}

int
bev_write(struct control_stream *stream, const void *data, size_t length)
{
	struct bev_stream *s = (struct bev_stream *)stream;

	weir_assert(length <= INPUT_MAX);
	if (evbuffer_get_length(bufferevent_get_output(s->bev)) + length > OUTPUT_MAX)
		return -ENOBUFS;
	return bufferevent_write(s->bev, data, length) ? -ENOMEM : 0;
}

void
bev_hang_up(struct bev_stream *s)
{
	int fd = bufferevent_getfd(s->bev);
	char unread[16384];

	shutdown(fd, SHUT_WR);
	for (int i = 0; i < UNREAD_READS; i++)
		if (recv(fd, unread, sizeof(unread), MSG_DONTWAIT) <= 0)
			return;
}
