/* SPDX-License-Identifier: BSD-3-Clause */
#include "socket.h"

#include "base/vec.h"
#include "weir/stream.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define HEAD sizeof(uint32_t) /* bytes of the length before a message */
#define ROOM (256u << 10)     /* bytes of the receive buffer at first */
#define AHEAD (64u << 10)     /* bytes read beyond an incomplete message */
#define BACKLOG 1024

/* Resolves "ADDRESS:PORT", "[ADDRESS]:PORT" or "PORT" without a name service. */
static int
resolve(const char *text, struct addrinfo **found)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	const char *colon = strrchr(text, ':');
	char host[64] = "127.0.0.1";
	size_t n = colon ? (size_t)(colon - text) : 0;

	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	}
	if (n >= sizeof(host))
		return -EINVAL;
	if (n) {
		memcpy(host, text, n);
		host[n] = '\0';
	}
	return getaddrinfo(host, colon ? colon + 1 : text, &hints, found) ? -EINVAL : 0;
}

/* A socket that listens on or is connected to an address. The fd, or -errno. */
static int
open_socket(const char *text, bool listens)
{
	struct addrinfo *a;
	int fd, on = 1, rc = resolve(text, &a);
	bool ok;

	if (rc)
		return rc;
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | (listens ? SOCK_NONBLOCK : 0), 0);
	if (listens)
		ok = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) &&
		     !bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, BACKLOG);
	else
		ok = fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen);
	rc = ok ? fd : -errno;
	if (!ok && fd >= 0)
		close(fd);
	freeaddrinfo(a);
	return rc;
}

int
perf_socket_listen(const char *service)
{
	return open_socket(service, true);
}

int
perf_socket_connect(const char *address)
{
	return open_socket(address, false);
}

int
perf_socket_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

void
perf_socket_init(struct perf_socket *s, int fd)
{
	int on = 1;

	*s = (struct perf_socket){.fd = fd};
	/* without it small messages would wait for each other's acknowledgements */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void
perf_socket_fini(struct perf_socket *s)
{
	if (s->fd >= 0)
		close(s->fd);
	free(s->in);
	*s = (struct perf_socket){.fd = -1};
}

int
perf_socket_send(struct perf_socket *s, const void *buf, size_t length)
{
	if (!s->given)
		s->head = (uint32_t)length;
	for (;;) {
		size_t head = s->given < HEAD ? s->given : HEAD, body = s->given - head;
		struct iovec iov[2] = {{(uint8_t *)&s->head + head, HEAD - head},
				       {(uint8_t *)(uintptr_t)buf + body, length - body}};
		struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
		ssize_t n = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
		s->given += (size_t)n;
		if (s->given == HEAD + length) {
			s->given = 0;
			return 0;
		}
	}
}

int
perf_socket_recv(struct perf_socket *s, const void **data, size_t *length)
{
	for (;;) {
		size_t have = s->end - s->start, whole = HEAD;
		uint32_t head;
		ssize_t n;

		if (have >= HEAD) {
			memcpy(&head, s->in + s->start, HEAD);
			if (head > WEIR_STREAM_MESSAGE_MAX)
				return -EPROTO;
			whole += head;
		}
		if (have >= HEAD && have >= whole) {
			*data = s->in + s->start + HEAD;
			*length = whole - HEAD;
			s->start += whole;
			return 0;
		}
		/* make room for the whole message from `start` on */
		if (!have)
			s->start = s->end = 0;
		if (s->start && s->start + whole + AHEAD > s->room) {
			memmove(s->in, s->in + s->start, have);
			s->end = have;
			s->start = 0;
		}
		if (VEC_RESERVE(s->in, s->room, whole + AHEAD > ROOM ? whole + AHEAD : ROOM))
			return -ENOMEM;
		n = recv(s->fd, s->in + s->end, s->start + whole + AHEAD - s->end, MSG_DONTWAIT);
		if (n < 0)
			return errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
		if (n == 0)
			return have ? -ECONNRESET : -ESHUTDOWN;
		s->end += (size_t)n;
	}
}
