/* SPDX-License-Identifier: BSD-3-Clause */
/* ZeroMQ: a pair of PAIR sockets over ipc within a host, over TCP as between two nodes. */
#include "peer.h"

#include <stdio.h>
#include <unistd.h>
#include <zmq.h>

static void *context, *sock;
static struct {
	void *buf;
	size_t size;
} posted[PEER_SLOTS];

static int
open_zmq(int rank, int pipe, bool nodes)
{
	char own[256] = "", other[256] = "";
	size_t length = sizeof(own);
	int rc = 0;

	context = zmq_ctx_new();
	sock = zmq_socket(context, ZMQ_PAIR);
	if (rank == 0)
		rc = zmq_bind(sock, nodes ? "tcp://127.0.0.1:*" : "ipc://*") ||
		     zmq_getsockopt(sock, ZMQ_LAST_ENDPOINT, own, &length);
	if (rc)
		peer_die("zmq_bind", zmq_strerror(zmq_errno()));
	peer_exchange(pipe, own, other, sizeof(own));
	if (rank == 1 && zmq_connect(sock, other))
		peer_die("zmq_connect", zmq_strerror(zmq_errno()));
	return rank;
}

static void
send_zmq(unsigned slot, const void *buf, size_t size)
{
	if (zmq_send(sock, buf, size, 0) != (int)size)
		peer_die("zmq_send", zmq_strerror(zmq_errno()));
}

static void
sent_zmq(unsigned slot)
{
}

static void
recv_zmq(unsigned slot, void *buf, size_t size)
{
	posted[slot].buf = buf;
	posted[slot].size = size;
}

static void
received_zmq(unsigned slot)
{
	if (zmq_recv(sock, posted[slot].buf, posted[slot].size, 0) != (int)posted[slot].size)
		peer_die("zmq_recv", zmq_strerror(zmq_errno()));
}

static void
close_zmq(void)
{
	zmq_close(sock);
	zmq_ctx_term(context);
}

const struct peer peer = {false, open_zmq, send_zmq, sent_zmq, recv_zmq, received_zmq, close_zmq};
