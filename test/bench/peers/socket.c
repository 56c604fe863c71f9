/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets: unix within a host, TCP over loopback as between two nodes. They block. */
#include "peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fd = -1;
static struct {
	char *buf;
	size_t size;
} posted[PEER_SLOTS];

static int
open_tcp(int rank, int pipe)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
			   other;
	socklen_t length = sizeof(own);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, s = listener;

	if (rank == 0 && (bind(listener, (struct sockaddr *)&own, length) || listen(listener, 1) ||
			  getsockname(listener, (struct sockaddr *)&own, &length)))
		peer_die("listen", strerror(errno));
	peer_exchange(pipe, &own, &other, sizeof(own));
	if (rank == 0)
		s = accept(listener, NULL, NULL);
	else if (connect(s, (struct sockaddr *)&other, sizeof(other)))
		s = -1;
	if (s < 0)
		peer_die("connect", strerror(errno));
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return s;
}

static int
open_socket(int rank, int pipe, bool nodes)
{
	fd = nodes ? open_tcp(rank, pipe) : pipe;
	return rank;
}

static void
send_socket(unsigned slot, const void *buf, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = send(fd, (const char *)buf + done, size - done, MSG_NOSIGNAL);

		if (n < 0)
			peer_die("send", strerror(errno));
		done += (size_t)n;
	}
}

static void
sent_socket(unsigned slot)
{
}

static void
recv_socket(unsigned slot, void *buf, size_t size)
{
	posted[slot].buf = buf;
	posted[slot].size = size;
}

static void
received_socket(unsigned slot)
{
	for (size_t done = 0; done < posted[slot].size;) {
		ssize_t n = recv(fd, posted[slot].buf + done, posted[slot].size - done, 0);

		if (n <= 0)
			peer_die("recv", n ? strerror(errno) : "the other rank has ended");
		done += (size_t)n;
	}
}

static void
close_socket(void)
{
	close(fd);
}

const struct peer peer = {false,       open_socket,	send_socket, sent_socket,
			  recv_socket, received_socket, close_socket};
