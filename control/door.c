/* SPDX-License-Identifier: BSD-3-Clause */
/* Where other controls come in: a few strangers at a time, the oldest makes room for the newest. */
#include "control.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <string.h>

#define PAUSE_MS 1000u /* after accept() failed: out of descriptors or memory */
/* A TLS handshake costs about 1 ms of CPU: strangers get a fifth of a CPU at most. Who comes
 * meanwhile waits in the listener's backlog. */
#define ACCEPTS_A_TICK (CONTROL_TICK_MS / 5)
#define BACKLOG 256 /* little more than a second's worth: diallers give up after two */

static void
remember(struct control *c, struct conn *conn)
{
	struct conn **at = &c->strangers, *prev = NULL;

	while (*at) {
		prev = *at;
		at = &prev->next;
	}
	*at = conn;
	conn->prev = prev;
	c->stranger_count++;
}

static bool
is_stranger(const struct control *c, const struct conn *conn)
{
	return conn->prev || c->strangers == conn;
}

void
door_forget(struct control *c, struct conn *conn)
{
	if (!is_stranger(c, conn))
		return;
	if (conn->prev)
		conn->prev->next = conn->next;
	else
		c->strangers = conn->next;
	if (conn->next)
		conn->next->prev = conn->prev;
	conn->next = conn->prev = NULL;
	c->stranger_count--;
}

static void
on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int length,
	  void *user)
{
	static const char crowd[] = "too many connections wait for their handshake";
	struct control *c = user;
	struct conn *conn;

	if (c->stranger_count == CONTROL_STRANGERS) {
		conn = c->strangers;
		door_forget(c, conn);
		log_limited(&c->stranger_trouble, control_now(),
			    (struct log_field[]){{"peer", 0, conn->from}, {"reason", 0, crowd}}, 2,
			    "refused a connection from %s: %s", conn->stranger, crowd);
		conn_close(conn, crowd);
	}
	conn = conn_accept(c->base, c->transport, fd, address, length, &member_handler, c);
	if (conn)
		remember(c, conn);
	if (++c->accepted == ACCEPTS_A_TICK)
		evconnlistener_disable(listener);
}

static void
on_accept_error(struct evconnlistener *listener, void *user)
{
	struct control *c = user;

	const char *why = strerror(EVUTIL_SOCKET_ERROR());

	log_limited(&c->stranger_trouble, control_now(), (struct log_field[]){{"reason", 0, why}},
		    1, "cannot accept connections: %s; trying again each second", why);
	evconnlistener_disable(listener);
	c->closed_until = control_now() + PAUSE_MS;
}

int
door_open(struct control *c, const struct sockaddr *address, socklen_t length)
{
	c->listener = evconnlistener_new_bind(c->base, on_accept, c,
					      LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC |
						  LEV_OPT_REUSEABLE,
					      BACKLOG, address, length);
	if (!c->listener)
		return errno ? -errno : -ENOMEM;
	evconnlistener_set_error_cb(c->listener, on_accept_error);
	return 0;
}

void
door_tick(struct control *c, uint64_t now)
{
	if (now < c->closed_until || (!c->closed_until && c->accepted < ACCEPTS_A_TICK)) {
		c->accepted = 0;
		return;
	}
	c->closed_until = 0;
	c->accepted = 0;
	evconnlistener_enable(c->listener);
}

void
door_close(struct control *c)
{
	while (c->strangers) {
		struct conn *conn = c->strangers;

		door_forget(c, conn);
		conn_close(conn, NULL);
	}
	if (c->listener)
		evconnlistener_free(c->listener);
}
