/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TRIES 200 /* of 50 ms */

/* A socket that listens on, or is connected to, host and port; or -errno. */
static int
open_socket(const char *host, uint16_t port, bool listener)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
				 .ai_socktype = SOCK_STREAM,
				 .ai_flags = listener ? AI_PASSIVE : 0},
			*all, *a;
	int fd = -1, one = 1, error = EADDRNOTAVAIL;
	char text[8];

	snprintf(text, sizeof(text), "%u", port);
	if (getaddrinfo(host, text, &hints, &all))
		return -EADDRNOTAVAIL;
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
	return fd < 0 ? -error : fd;
}

/* Messages are short, and each is waited for. */
static int
no_delay(int fd)
{
	int one = 1;

	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

int
tool_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	return fd < 0 ? -errno : no_delay(fd);
}

int
tool_listen(uint16_t port, char *error, size_t size)
{
	int fd = open_socket(NULL, port, true);

	if (fd < 0)
		snprintf(error, size, "cannot listen on port %u: %s; give another --port", port,
			 strerror(-fd));
	return fd;
}

int
tool_dial(const char *host, uint16_t port, const char *who, char *error, size_t size)
{
	static const struct timespec pause = {.tv_nsec = 50000000};
	int fd = -ECONNREFUSED;

	for (int i = 0; i < TRIES && fd == -ECONNREFUSED; i++) {
		if (i)
			nanosleep(&pause, NULL);
		fd = open_socket(host, port, false);
	}
	if (fd < 0)
		snprintf(error, size, "nothing listens at %s port %u: %s; start %s there", host,
			 port, strerror(-fd), who);
	return no_delay(fd);
}
