/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server: serves any number of connections in one thread, in steps that never wait, so that a
 * program can be both ends at once (--loop, --alltoall).
 */
#ifndef WEIR_PERF_SERVER_H
#define WEIR_PERF_SERVER_H

#include "call.h"
#include "rx.h"
#include "idle.h"
#include "options.h"
#include "memory.h"
#include "responder.h"

struct server {
	const struct perf_options *options;
	struct weir *weir;
	struct idle *idle; /* of the thread */
	struct weir_listener *listener;
	int socket; /* listens for --transport tcp, else -1 */
	struct perf_buffers buffers;
	struct perf_region region;
	struct remote_part part; /* --alltoall: of the window */
	struct perf_rx rx;
	struct call_group calls; /* --inside, --alltoall */
	char service[WEIR_SERVICE_MAX];
	struct perf_queue ready;
	LIST_HEAD(, responder) all;
	uint32_t count;
	uint32_t polling; /* connections whose clients want this end to poll */
	uint32_t turns;
	uint32_t runs; /* of datagrams, so far */
	int failed;    /* -errno: the server cannot continue */
};

void server_init(struct server *s, const struct perf_options *o, struct weir *weir,
		 struct idle *idle);
/* Listens on a service of this node, or for --transport tcp on an address. 0 or -errno. */
int server_listen(struct server *s, const char *service);
/* Serves a connection: of Weir, or (conn NULL) socket fd. 0 or -errno. */
int server_add(struct server *s, struct weir_conn *conn, int fd);
/* Does all work possible now. Its amount (0: none), or -errno: the data plane is gone. */
int server_step(struct server *s);
/* Whether no client wants this end to poll: the thread may sleep. */
bool server_rests(const struct server *s);
void server_close(struct server *s);

/* Serves until a signal, and again after each restart of the data plane. 0 or -errno. */
int perf_serve(struct weir *weir, const struct perf_options *o);

#endif
