/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end that others measure against: any number of connections in one thread, as steps that never
 * wait, so that a program can be both ends at once (--loop, --alltoall).
 */
#ifndef WEIR_PERF_SERVER_H
#define WEIR_PERF_SERVER_H

#include "rx.h"
#include "idle.h"
#include "options.h"
#include "region.h"
#include "responder.h"

struct server {
	const struct perf_options *options;
	struct weir *weir;
	struct idle *idle; /* of the thread */
	struct weir_listener *listener;
	int socket; /* listens for --transport tcp, else -1 */
	struct perf_buffers buffers;
	struct perf_region region;
	struct hearer hearer;
	char service[WEIR_SERVICE_MAX];
	struct perf_queue ready;
	LIST_HEAD(, responder) all;
	uint32_t count;
	uint32_t polling; /* of them: their clients want it */
	uint32_t turns;
	int failed; /* -errno: nobody can be served any more */
};

void server_init(struct server *s, const struct perf_options *o, struct weir *weir,
		 struct idle *idle);
/* Listens on a service of this node, or for --transport tcp on an address. 0 or -errno. */
int server_listen(struct server *s, const char *service);
/* Serves a connection that was made: of Weir, or (conn NULL) what lies behind fd. 0 or -errno. */
int server_add(struct server *s, struct weir_conn *conn, int fd);
/* Does what can be done now. How much that was (0: nothing), or -errno: the data plane is gone. */
int server_step(struct server *s);
/* Whether no client wants this end to poll: its thread may sleep. */
bool server_rests(const struct server *s);
void server_close(struct server *s);

/* Serves until a signal or the end of the data plane. 0 or -errno. */
int perf_serve(struct weir *weir, const struct perf_options *o);

#endif
