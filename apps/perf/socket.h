/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --transport tcp: messages over a TCP connection, each after its length. Nothing here waits:
 * -EAGAIN means later.
 */
#ifndef WEIR_PERF_SOCKET_H
#define WEIR_PERF_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PERF_TCP_PORT ":7471"
#define PERF_TCP_SERVICE "127.0.0.1" PERF_TCP_PORT

struct perf_socket {
	int fd;
	uint32_t head; /* length of the message that is being sent */
	size_t given;  /* bytes of it that the kernel took, head included; 0: no message is being
			  sent */
	uint8_t *in;   /* received bytes not yet returned: [start, end) */
	size_t room, start, end;
};

/* Listens on "ADDRESS:PORT" or "PORT" (loopback). The fd, or -errno. */
int perf_socket_listen(const char *service);
/* Connects to "ADDRESS:PORT"; takes the next connection of a listener. The fd, or -errno. */
int perf_socket_connect(const char *address);
int perf_socket_accept(int listener);

void perf_socket_init(struct perf_socket *s, int fd);
void perf_socket_fini(struct perf_socket *s);
/* Sends a message; after -EAGAIN repeat the same one. 0, -EAGAIN, or -errno. */
int perf_socket_send(struct perf_socket *s, const void *buf, size_t length);
/* Receives a message: *data is valid until the next call. 0, -EAGAIN, -ESHUTDOWN (end), -errno. */
int perf_socket_recv(struct perf_socket *s, const void **data, size_t *length);

static inline bool
perf_socket_halfway(const struct perf_socket *s)
{
	return s->given != 0;
}

#endif
