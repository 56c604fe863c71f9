/* SPDX-License-Identifier: BSD-3-Clause */
/* Where other controls come in: a few strangers at a time, the oldest makes room for the newest. */
#include "control.h"

/* A TLS handshake costs about 1 ms of CPU: strangers get at most a fifth of a CPU. Further
 * connections wait in the listener's backlog. */
#define ACCEPTS_A_TICK (LISTENER_TICK_MS / 5)

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
on_accept(void *user, int fd, struct sockaddr *address, int length)
{
	static const char crowd[] = "too many connections wait for their handshake";
	struct control *c = user;
	struct conn *conn;

	if (c->stranger_count == CONTROL_STRANGERS) {
		conn = c->strangers;
		door_forget(c, conn);
		log_blamed(&c->blamed, "refused connections", conn->stranger, monotonic_ms(),
			   (struct log_field[]){{"peer", 0, conn->from}, {"reason", 0, crowd}}, 2,
			   "refused a connection from %s: %s", conn->stranger, crowd);
		conn_close(conn, crowd);
	}
	conn = conn_accept(c->base, c->transport, fd, address, length, &member_handler, c);
	if (conn)
		remember(c, conn);
}

int
door_open(struct control *c, const struct sockaddr *address, socklen_t length)
{
	const struct listener_config config = {
	    .option = "--listen", .burst = ACCEPTS_A_TICK, .accepted = on_accept, .user = c};

	return listener_open(c->base, address, length, &config, &c->listener);
}

void
door_close(struct control *c)
{
	while (c->strangers) {
		struct conn *conn = c->strangers;

		door_forget(c, conn);
		conn_close(conn, NULL);
	}
	listener_close(c->listener);
}
