/* SPDX-License-Identifier: BSD-3-Clause */
/* What two processes say to each other over TCP: offers, then runs one by one. */
#define _GNU_SOURCE
#include "nicperf.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x77656e70u
#define VERSION 2u
#define LOOK 1024u	  /* turns between two looks at the socket, a system call */
#define CONNECT_TRIES 100 /* of 100 ms: the other process may be starting */

struct word {
	uint32_t test, size;
};

int
nicperf_send(struct nicperf *np, const void *data, size_t n)
{
	if (send(np->socket, data, n, MSG_NOSIGNAL) == (ssize_t)n)
		return 0;
	return nicperf_fail(np, -EPIPE, "the other process is gone: %s; look at what it said",
			    strerror(errno));
}

int
nicperf_receive(struct nicperf *np, void *data, size_t n)
{
	ssize_t got = recv(np->socket, data, n, MSG_WAITALL);

	if (got == (ssize_t)n)
		return 0;
	return nicperf_fail(np, -EPIPE, "the other process is gone; look at what it said");
}

/* A socket that listens on, or is connected to, host and port; -1 and errno. */
static int
open_socket(const char *host, const char *port, bool listener)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
				 .ai_socktype = SOCK_STREAM,
				 .ai_flags = listener ? AI_PASSIVE : 0},
			*all, *a;
	int fd = -1, one = 1, error = EADDRNOTAVAIL;

	if (getaddrinfo(host, port, &hints, &all)) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	for (a = all; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (listener ? !bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, 1)
			     : !connect(fd, a->ai_addr, a->ai_addrlen))
			break;
		error = errno;
		close(fd);
		fd = -1;
	}
	freeaddrinfo(all);
	errno = error;
	return fd;
}

static int
dial(struct nicperf *np, const char *port)
{
	static const struct timespec pause = {.tv_nsec = 100000000};

	for (int i = 0; i < CONNECT_TRIES; i++) {
		np->socket = open_socket(np->options->connect, port, false);
		if (np->socket >= 0)
			return 0;
		if (errno != ECONNREFUSED)
			break;
		nanosleep(&pause, NULL);
	}
	return nicperf_fail(np, -errno,
			    "nobody answers at %s port %s: %s; start weir-nicperf "
			    "--listen there",
			    np->options->connect, port, strerror(errno));
}

static int
await_caller(struct nicperf *np, const char *port)
{
	int fd = open_socket(NULL, port, true);

	if (fd >= 0) {
		np->socket = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		close(fd);
	}
	if (fd >= 0 && np->socket >= 0)
		return 0;
	return nicperf_fail(np, -errno, "cannot listen on port %s: %s; give another --port", port,
			    strerror(errno));
}

static int
hear_hello(struct nicperf *np)
{
	struct nicperf_hello h;
	int rc = nicperf_receive(np, &h, sizeof(h));

	if (rc)
		return rc;
	if (h.magic != MAGIC || h.version != VERSION || !h.qps || h.qps > NICPERF_QPS_MAX ||
	    h.depth < NICPERF_DEPTH_MIN || h.depth > NICPERF_DEPTH_MAX || h.stride < 64 ||
	    h.stride > NICPERF_SIZE_MAX || h.stride & (h.stride - 1))
		return nicperf_fail(np, -EPROTO,
				    "who calls is no weir-nicperf of this version; start the same "
				    "one there");
	np->qps = h.qps;
	np->depth = h.depth;
	np->stride = h.stride;
	return 0;
}

/* Words are short and waited for. */
static void
no_delay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int
nicperf_meet(struct nicperf *np)
{
	const struct nicperf_options *o = np->options;
	struct nicperf_hello hello;
	char port[8];
	int rc;

	snprintf(port, sizeof(port), "%u", o->port);
	if (o->listen) {
		rc = await_caller(np, port);
		no_delay(np->socket);
		return rc ? rc : hear_hello(np);
	}
	np->qps = o->shared ? 1 : o->qps;
	np->depth = o->depth;
	np->stride = 64;
	for (uint32_t i = 0; i < o->size_count; i++)
		while (np->stride < o->sizes[i])
			np->stride *= 2;
	for (uint32_t i = 0; i < o->test_count; i++)
		if (o->tests[i] == NICPERF_VERIFY && np->stride < NICPERF_VERIFY_STRIDE)
			np->stride = NICPERF_VERIFY_STRIDE;
	if (!o->connect)
		return 0;
	hello = (struct nicperf_hello){MAGIC, VERSION, np->qps, np->depth, np->stride};
	rc = dial(np, port);
	no_delay(np->socket);
	return rc ? rc : nicperf_send(np, &hello, sizeof(hello));
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
nicperf_tell(struct nicperf *np, uint32_t test, uint32_t size)
{
	struct word word = {test, size};

	return np->socket < 0 ? 0 : nicperf_send(np, &word, sizeof(word));
}

int
nicperf_hear(struct nicperf *np, uint32_t *test, uint32_t *size)
{
	struct word word;
	int rc = 0;

	/* the other one may be connecting: its NIC asks for our address */
	for (uint32_t i = 1; !rc && (i % LOOK || !nicperf_heard(np)); i++)
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
nicperf_heard(struct nicperf *np)
{
	char byte;

	return np->socket >= 0 && (recv(np->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
				   (errno != EAGAIN && errno != EINTR));
}
