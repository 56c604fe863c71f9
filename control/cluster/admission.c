/* SPDX-License-Identifier: BSD-3-Clause */
/* Where other controls come in: a few strangers at a time, the oldest makes room for the newest. */
#include "control.h"

#include "ipc/invariant.h"

/* A TLS handshake costs about 1 ms of CPU: strangers get at most a fifth of a CPU. Further
 * connections wait in the listener's backlog. */
#define ACCEPTS_PER_TICK (LISTENER_TICK_MS / 5)

void
admission_forget(struct control *c, struct conn *conn)
{
	if (!conn->waiting.tqe_prev)
		return;
	weir_assert(c->stranger_count);
	TAILQ_REMOVE(&c->strangers, conn, waiting);
	conn->waiting.tqe_prev = NULL;
	c->stranger_count--;
}

static void
on_accept(void *user, int fd, struct sockaddr *address, int length)
{
	static const char crowd[] = "too many connections wait for their handshake";
	struct control *c = user;
	struct conn *conn;

	if (c->stranger_count == CONTROL_STRANGERS) {
		conn = TAILQ_FIRST(&c->strangers);
		admission_forget(c, conn);
		log_blamed(&c->blamed, "refused connections", conn->stranger, monotonic_ms(),
			   (struct log_field[]){{"peer", 0, conn->from}, {"reason", 0, crowd}}, 2,
			   "refused a connection from %s: %s", conn->stranger, crowd);
		conn_close(conn, crowd);
	}
	conn = conn_accept(c->base, c->transport, fd, address, length, &member_handler, c);
	if (!conn)
		return;
	TAILQ_INSERT_TAIL(&c->strangers, conn, waiting);
	c->stranger_count++;
}

int
admission_open(struct control *c, const struct sockaddr *address, socklen_t length)
{
	const struct listener_config config = {
	    .option = "--listen", .burst = ACCEPTS_PER_TICK, .accepted = on_accept, .user = c};

	TAILQ_INIT(&c->strangers);
	return listener_open(c->base, address, length, &config, &c->listener);
}

void
admission_close(struct control *c)
{
	struct conn *conn;

	while ((conn = TAILQ_FIRST(&c->strangers))) {
		admission_forget(c, conn);
		conn_close(conn, NULL);
	}
	listener_close(c->listener);
}
