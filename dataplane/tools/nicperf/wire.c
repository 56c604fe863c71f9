/* SPDX-License-Identifier: BSD-3-Clause */
/* The protocol of two processes over TCP: offers, then runs one by one. */
#define _GNU_SOURCE
#include "greet.h"
#include "nicperf.h"

#include "tools/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKET_TURNS 1024u /* turns of the NIC per check of the socket, a system call */

struct word {
	uint32_t test, size;
};

int
nicperf_send(struct nicperf *np, const void *data, size_t n)
{
	if (send(np->socket, data, n, MSG_NOSIGNAL) == (ssize_t)n)
		return 0;
	return nicperf_fail(np, -EPIPE, "the other process is gone: %s; look at its output",
			    strerror(errno));
}

int
nicperf_receive(struct nicperf *np, void *data, size_t n)
{
	ssize_t got = recv(np->socket, data, n, MSG_WAITALL);

	if (got == (ssize_t)n)
		return 0;
	return nicperf_fail(np, -EPIPE, "the other process is gone; look at its output");
}

static int
greet(struct nicperf *np)
{
	char why[WEIR_VERSION_WHY];
	int rc = nicperf_greet(np->socket, why);

	return rc ? nicperf_fail(np, rc, "%s", why) : 0;
}

int
nicperf_agree(struct nicperf *np)
{
	const struct nicperf_options *o = np->options;
	struct nicperf_request wants;
	int rc;

	if (o->listen) {
		int fd = tool_listen(o->port, np->error, sizeof(np->error));

		if (fd < 0)
			return fd;
		np->socket = tool_accept(fd);
		close(fd);
		if (np->socket < 0)
			return nicperf_fail(np, np->socket,
					    "no connection can be accepted: %s; start it again",
					    strerror(-np->socket));
		rc = greet(np);
		if (!rc)
			rc = nicperf_receive(np, &wants, sizeof(wants));
		if (rc)
			return rc;
		if (!wants.qps || wants.qps > NICPERF_QPS_MAX || wants.depth < NICPERF_DEPTH_MIN ||
		    wants.depth > NICPERF_DEPTH_MAX || wants.stride < 64 ||
		    wants.stride > NICPERF_SIZE_MAX || wants.stride & (wants.stride - 1))
			return nicperf_fail(np, -EPROTO,
					    "the other process asks for what there is not; start "
					    "the same version there");
		np->qps = wants.qps;
		np->depth = wants.depth;
		np->stride = wants.stride;
		return 0;
	}
	np->qps = o->shared ? 1 : o->qps + (o->beside && o->qps == 1);
	np->depth = o->depth;
	np->stride = 64;
	for (uint32_t i = 0; i < o->size_count; i++)
		while (np->stride < o->sizes[i])
			np->stride *= 2;
	while (np->stride < o->beside)
		np->stride *= 2;
	for (uint32_t i = 0; i < o->test_count; i++)
		if (o->tests[i] == NICPERF_VERIFY && np->stride < NICPERF_VERIFY_STRIDE)
			np->stride = NICPERF_VERIFY_STRIDE;
	if (!o->connect)
		return 0;
	wants = (struct nicperf_request){np->qps, np->depth, np->stride};
	np->socket =
	    tool_dial(o->connect, o->port, "weir-nicperf --listen", np->error, sizeof(np->error));
	rc = np->socket < 0 ? np->socket : greet(np);
	return rc ? rc : nicperf_send(np, &wants, sizeof(wants));
}

int
nicperf_exchange(struct nicperf *np)
{
	struct nicperf_offer ours;
	int rc;

	if (np->end[1]) {
		nicperf_offer(np, np->end[0], &np->end[1]->peer);
		nicperf_offer(np, np->end[1], &np->end[0]->peer);
		return 0;
	}
	nicperf_offer(np, np->end[0], &ours);
	rc = nicperf_send(np, &ours, sizeof(ours));
	return rc ? rc : nicperf_receive(np, &np->end[0]->peer, sizeof(ours));
}

int
nicperf_send_run(struct nicperf *np, uint32_t test, uint32_t size)
{
	struct word word = {test, size};

	return np->socket < 0 ? 0 : nicperf_send(np, &word, sizeof(word));
}

int
nicperf_await_run(struct nicperf *np, uint32_t *test, uint32_t *size)
{
	struct word word;
	int rc = 0;

	/* the other one may be connecting: its NIC asks for our address */
	for (uint32_t i = 1; !rc && (i % SOCKET_TURNS || !nicperf_readable(np)); i++)
		rc = nicperf_turn(np);
	if (!rc)
		rc = nicperf_receive(np, &word, sizeof(word));
	if (rc)
		return rc;
	if (word.test > NICPERF_TESTS || word.size > np->stride ||
	    (word.test < NICPERF_TESTS && !word.size))
		return nicperf_fail(np, -EPROTO,
				    "the other process asks for something else; start "
				    "the same version there");
	*test = word.test;
	*size = word.size;
	return 0;
}

bool
nicperf_readable(struct nicperf *np)
{
	char byte;

	return np->socket >= 0 && (recv(np->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
				   (errno != EAGAIN && errno != EINTR));
}
