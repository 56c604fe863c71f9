/* SPDX-License-Identifier: BSD-3-Clause */
/* Common to streams over a libevent bufferevent, whatever is between it and the socket. */
#ifndef WEIR_CONTROL_STREAM_BEV_H
#define WEIR_CONTROL_STREAM_BEV_H

#include "stream.h"

#include <event2/bufferevent.h>

struct bev_stream {
	struct control_stream stream; /* first */
	struct bufferevent *bev;
};

/* stream.handler is told what s->bev brings; on_event hears of its end. */
void bev_start(struct bev_stream *s, bufferevent_event_cb on_event);
/* control_transport.write */
int bev_write(struct control_stream *stream, const void *data, size_t length);
/*
 * Ends sending. Data from the other end that will not be read is discarded: left unread, it would
 * make the kernel reset the connection, and our last message would be lost.
 */
void bev_hang_up(struct bev_stream *s);

#endif
