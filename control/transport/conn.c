/* SPDX-License-Identifier: BSD-3-Clause */
#include "conn.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/util.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
conn_free(struct conn *c)
{
	weir_assert(!c->waiting.tqe_prev);
	if (c->stream)
		c->stream->transport->close(c->stream);
	if (c->timer)
		event_free(c->timer);
	free(c);
}

// The one way in which a connection ends by itself.
static void
conn_end(struct conn *c, const char *reason)
{
	c->handler->closed(c, reason);
	conn_free(c);
}

void
conn_close(struct conn *c, const char *why)
{
	struct control_msg m = {.type = CONTROL_ERROR};

	if (!c)
		return;
	if (why) {
		snprintf(m.error.reason, sizeof(m.error.reason), "%s", why);
		conn_send(c, &m);
	}
	conn_free(c);
}

static bool
conn_refuse(struct conn *c, const char *why)
{
	struct control_msg m = {.type = CONTROL_ERROR};

	snprintf(m.error.reason, sizeof(m.error.reason), "%s", why);
	m.error.taken = c->taken;
	c->taken = false; // what the other end says of ours is another matter
	conn_send(c, &m);
	conn_end(c, m.error.reason);
	return false;
}

void
conn_send(struct conn *c, const struct control_msg *m)
{
	uint8_t buf[CONTROL_ENCODED_MAX];
	size_t n = control_msg_encode(m, buf, sizeof(buf));

	conn_send_encoded(c, buf, n);
}

void
conn_send_encoded(struct conn *c, const uint8_t *data, size_t length)
{
	// Never freed in here: callers go on using it.
	if (length == 0 || c->stream->transport->write(c->stream, data, length))
		event_active(c->timer, EV_TIMEOUT, 0);
}

static void
on_timer(evutil_socket_t fd, short what, void *user)
{
	struct conn *c = user;

	if (c->joined)
		conn_end(c, "it reads nothing");
	else
		conn_refuse(c, "handshake not done within 2 s");
}

static void
on_opened(void *user)
{
	struct conn *c = user;

	c->handler->opened(c);
}

static bool
conn_message(struct conn *c, const uint8_t *data, size_t length)
{
	const struct control_transport *transport = c->stream->transport;
	char reason[CONTROL_REASON_MAX + 16], choice[WEIR_VERSION_WHY];
	const char *why = NULL;
	struct control_msg m;

	if (control_msg_decode(data, length, &m))
		return conn_refuse(c, "malformed message");
	if (m.type == CONTROL_ERROR || (m.type == CONTROL_BYE && c->joined)) {
		c->idle = m.type == CONTROL_BYE && m.bye.idle;
		c->taken = m.type == CONTROL_ERROR && m.error.taken;
		snprintf(reason, sizeof(reason), "%s%s", m.type == CONTROL_BYE ? "" : "it says: ",
			 m.type == CONTROL_BYE ? "its control was stopped" : m.error.reason);
		conn_end(c, reason);
		return false;
	}
	if (c->joined) {
		why = m.type == CONTROL_HELLO ? "a second hello" : c->handler->message(c, &m);
		return why ? conn_refuse(c, why) : true;
	}
	// The first message: Hello of our version.
	event_del(c->timer);
	if (m.type != CONTROL_HELLO)
		return conn_refuse(c, "the first message is not hello");
	if (!weir_version_choose(CONTROL_VERSIONS, m.hello.versions, "the control protocol",
				 "this weir-control", "the other", choice))
		return conn_refuse(c, choice);
	if (transport->vouch)
		why = transport->vouch(c->stream, m.hello.cluster, m.hello.record.id);
	if (!why)
		why = c->handler->hello(c, &m);
	c->joined = !why;
	return why ? conn_refuse(c, why) : true;
}

static bool
on_input(void *user, const uint8_t *data, size_t length, size_t *taken)
{
	struct conn *c = user;
	size_t at = 0, n;
	int status;

	while (
	    (status = control_frame_next(data + at, length - at,
					 c->joined ? CONTROL_FRAME_MAX : CONTROL_HELLO_MAX, &n))) {
		if (status < 0 && length - at >= 2 && data[at] == 0x16 && data[at + 1] == 3)
			return conn_refuse(c, "it speaks TLS, which is not spoken here; give --tls "
					      "to both or to neither");
		if (status < 0)
			return conn_refuse(c, "not a control message");
		weir_assert(at + CONTROL_PREFIX + n <= length);
		if (!conn_message(c, data + at + CONTROL_PREFIX, n))
			return false;
		at += CONTROL_PREFIX + n;
	}
	*taken = at;
	return true;
}

static void
on_closed(void *user, const char *why)
{
	conn_end(user, why);
}

static const struct control_stream_handler stream_handler = {
    .opened = on_opened,
    .input = on_input,
    .closed = on_closed,
};

static struct conn *
conn_make(struct event_base *base, const struct sockaddr *address, socklen_t length,
	  const struct conn_handler *handler, void *owner)
{
	static const struct timeval limit = {.tv_sec = CONN_HANDSHAKE_MS / 1000};
	struct conn *c = calloc(1, sizeof(*c));
	char host[56] = "?", port[8] = "?";

	if (!c)
		return NULL;
	c->handler = handler;
	c->owner = owner;
	c->timer = evtimer_new(base, on_timer, c);
	if (!c->timer || evtimer_add(c->timer, &limit)) {
		conn_free(c);
		errno = ENOMEM;
		return NULL;
	}
	getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(c->stranger, sizeof(c->stranger), "%s", host);
	snprintf(c->from, sizeof(c->from), "%s:%s", host, port);
	return c;
}

struct conn *
conn_dial(struct event_base *base, const struct control_transport *transport,
	  const struct sockaddr *address, socklen_t length, const struct conn_handler *handler,
	  void *owner)
{
	struct conn *c = conn_make(base, address, length, handler, owner);
	int status;

	if (!c)
		return NULL;
	c->dialled = true;
	status = transport->dial(transport, base, address, length, &stream_handler, c, &c->stream);
	if (status) {
		conn_free(c);
		errno = -status;
		return NULL;
	}
	return c;
}

struct conn *
conn_accept(struct event_base *base, const struct control_transport *transport, int fd,
	    const struct sockaddr *address, socklen_t length, const struct conn_handler *handler,
	    void *owner)
{
	struct conn *c = conn_make(base, address, length, handler, owner);
	int status;

	if (!c) {
		evutil_closesocket(fd);
		return NULL;
	}
	status = transport->adopt(transport, base, fd, &stream_handler, c, &c->stream);
	if (status) {
		conn_free(c);
		errno = -status;
		return NULL;
	}
	return c;
}
