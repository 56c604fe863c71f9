/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles of remote memory. Each thread that uses one has a connection of its own, whose lock only
 * it takes. Connections stay until the handle is closed, also those that have ended.
 */
#ifndef WEIR_REMOTE_HANDLE_H
#define WEIR_REMOTE_HANDLE_H

#include "public.h"

#include "client/session.h"
#include "ipc/key.h"
#include "stream/conn.h"

struct weir_export {
	struct weir *w;
	uint32_t number, generation; /* at the data plane */
	LIST_ENTRY(weir_export) in_session;
};

struct weir_remote {
	struct weir *w;
	struct weir_key key;
	uint32_t rights;
	uint16_t node;
	bool local;
	/* the connection that was used last: a hint, written and read by all threads; its worker is
	 * set before the release that publishes it */
	_Atomic(struct weir_conn *) recent;
	pthread_mutex_t lock; /* of conns; nothing is locked inside it */
	LIST_HEAD(, weir_conn) conns;
	LIST_ENTRY(weir_remote) in_session;
};

/*
 * The calling thread's connection. It may still be opening. NULL: the thread has
 * none, and with `make` there can be none, *rc and the reason say why.
 */
struct weir_conn *weir_remote_conn(struct weir_remote *r, bool make, int *rc);
/* Waits until it is open. 0, -EAGAIN (not within the time), or how the attempt ended. */
int weir_remote_await_open(struct weir_conn *c, int timeout_ms);
/* How the connection ended, with the reason. */
int weir_remote_ended(const struct weir_conn *c);

#endif
