/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Weir's streams: weir_send() and weir_recv(). Rank 0 attaches to instance A, rank 1 to A within a
 * host, to B (node 2) as between two nodes.
 */
#include "peer.h"

#include <string.h>
#include <weir/stream.h>

static struct weir *session;
static struct weir_conn *conn;
static struct {
	void *buf;
	size_t size;
} posted[PEER_SLOTS];

static int
open_weir(int rank, int pipe, bool nodes)
{
	struct weir_options options = {.size = sizeof(options),
				       .instance = rank == 1 && nodes ? "B" : "A",
				       .name = "peer-weir"};
	struct weir_listener *listener;
	struct weir_address to;
	char ready = 0;

	if (weir_attach(&options, &session))
		peer_die("weir_attach", weir_reason());
	if (rank == 1) {
		if (weir_listen(session, "peer", 1, &listener))
			peer_die("weir_listen", weir_reason());
		peer_exchange(pipe, "", &ready, 1);
		if (weir_accept(listener, 10000, &conn))
			peer_die("weir_accept", weir_reason());
		return rank;
	}
	peer_exchange(pipe, "", &ready, 1);
	if (weir_address_parse(nodes ? "node:2:peer" : "node:1:peer", &to) ||
	    weir_connect(session, &to, 10000, &conn))
		peer_die("weir_connect", weir_reason());
	return rank;
}

static void
send_weir(unsigned slot, const void *buf, size_t size)
{
	if (weir_send(conn, buf, size, -1))
		peer_die("weir_send", weir_reason());
}

static void
sent_weir(unsigned slot)
{
}

static void
recv_weir(unsigned slot, void *buf, size_t size)
{
	posted[slot].buf = buf;
	posted[slot].size = size;
}

static void
received_weir(unsigned slot)
{
	size_t length;

	if (weir_recv(conn, posted[slot].buf, posted[slot].size, &length, -1) ||
	    length != posted[slot].size)
		peer_die("weir_recv", weir_reason());
}

static void
close_weir(void)
{
	weir_flush(conn, 1000);
	weir_close(conn);
	weir_detach(session);
}

const struct peer peer = {false,     open_weir,	    send_weir, sent_weir,
			  recv_weir, received_weir, close_weir};
