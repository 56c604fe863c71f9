/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes over TCP, whatever they mean; the NIC is polled meanwhile. */
#define _GNU_SOURCE
#include "roce_peer.h"

#include "tools/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK 64u /* turns between two looks at the socket, a system call */

static int
gone(struct peer *p)
{
	return peer_fail(p, -EPIPE, "%s: the other program is gone; look at what it said",
			 p->run.test->name);
}

int
peer_listen(struct peer *p)
{
	for (uint32_t i = 0; i < p->options->runs; i++) {
		p->listener[i] =
		    tool_listen((uint16_t)(p->options->port + i), p->error, sizeof(p->error));
		if (p->listener[i] < 0)
			return p->listener[i];
	}
	return 0;
}

void
peer_deafen(struct peer *p)
{
	for (uint32_t i = 0; i < PEER_RUNS_MAX; i++)
		if (p->listener[i] >= 0)
			close(p->listener[i]);
}

/*
 * Turns until a client calls. Until the first one has, no queue pair is there: frames for one are
 * those of a client that asks rdma_cm, at queue pair 1.
 */
static int
await_call(struct peer *p, uint32_t run)
{
	struct pollfd call = {.fd = p->listener[run], .events = POLLIN};
	int rc = 0;

	while (!rc && poll(&call, 1, 1) == 0)
		rc = peer_turn_before(p, run == 0);
	return rc;
}

int
peer_meet(struct peer *p, uint32_t run)
{
	const struct peer_options *o = p->options;
	char who[64];
	int rc;

	if (o->connect) {
		snprintf(who, sizeof(who), "%s, without -R and -z (rdma_cm),", p->run.test->name);
		p->socket = tool_dial(o->connect, (uint16_t)(o->port + run), who, p->error,
				      sizeof(p->error));
		if (p->socket < 0)
			return p->socket;
	} else {
		rc = await_call(p, run);
		if (rc)
			return rc;
		p->socket = tool_accept(p->listener[run]);
		if (p->socket < 0)
			return peer_fail(p, p->socket, "nobody can call: %s; start it again",
					 strerror(-p->socket));
	}
	p->last = p->turned = peer_now();
	return 0;
}

void
peer_part(struct peer *p)
{
	if (p->socket >= 0)
		close(p->socket);
	p->socket = -1;
}

/* At once: they read a message by one call. */
int
peer_tell(struct peer *p, const void *data, size_t n)
{
	return send(p->socket, data, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : gone(p);
}

/* n bytes, or fewer when the other one has closed: how many. */
static ssize_t
hear(struct peer *p, uint8_t *data, size_t n)
{
	size_t have = 0;

	for (uint32_t i = 0; have < n; i++) {
		ssize_t got;
		int rc = peer_turn_aside(p);

		if (rc)
			return rc;
		if (i % LOOK)
			continue;
		got = recv(p->socket, data + have, n - have, MSG_DONTWAIT);
		if (got == 0)
			break;
		if (got < 0 && errno != EAGAIN && errno != EINTR)
			return gone(p);
		if (got > 0) {
			have += (size_t)got;
			p->last = peer_now();
		}
	}
	return (ssize_t)have;
}

int
peer_hear(struct peer *p, void *data, size_t n)
{
	ssize_t got = hear(p, data, n);

	if (got < 0)
		return (int)got;
	return got == (ssize_t)n ? 0 : gone(p);
}

bool
peer_speaks(const struct peer *p)
{
	struct pollfd in = {.fd = p->socket, .events = POLLIN};

	return poll(&in, 1, 0) > 0;
}

int
peer_swap(struct peer *p, const void *ours, void *theirs, size_t n)
{
	int rc = PEER_IS_CLIENT(p) ? peer_tell(p, ours, n) : 0;

	if (!rc)
		rc = peer_hear(p, theirs, n);
	if (!rc && !PEER_IS_CLIENT(p))
		rc = peer_tell(p, ours, n);
	return rc;
}

int
peer_await_end(struct peer *p)
{
	uint8_t byte;
	ssize_t got;

	shutdown(p->socket, SHUT_WR);
	do
		got = hear(p, &byte, 1);
	while (got > 0);
	return (int)got;
}
