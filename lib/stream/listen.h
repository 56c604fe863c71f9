/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners. The lock of the worker protects them. */
#ifndef WEIR_STREAM_LISTEN_H
#define WEIR_STREAM_LISTEN_H

#include "conn.h"

struct weir_listener {
	struct weir_thread *worker;
	struct weir_listener *handle; /* the program's handle: the first one, maybe this */
	/* the one in place of this after the data plane was lost; NULL: none. Written once, under
	 * the handle's reattach_lock, read by all */
	_Atomic(struct weir_listener *) successor;
	int error;     /* why no other could take its place. Worker */
	bool replaced; /* does not count among its worker's users any more */
	bool of_lanes; /* of the message model, which accepts */
	bool silent;   /* no program polls it or its connections */
	char service[WEIR_SERVICE_MAX];
	uint32_t backlog, flags;
	uint32_t id;
	bool queued; /* on its worker's list: its connections are to be reported */
	TAILQ_HEAD(, weir_conn) conns; /* not accepted yet */
	TAILQ_ENTRY(weir_listener) in_accepts;
	LIST_ENTRY(weir_listener) in_worker;
};

static inline struct weir_accepts *
weir_accepts_list(const struct weir_listener *l)
{
	return l->of_lanes ? &l->worker->lane_accepts : &l->worker->accepts;
}

/* Puts l on its worker's list, if it is not there. Worker locked. */
void weir_listener_report(struct weir_listener *l);
/* A connection has left the listener's queue. */
void weir_listener_took(struct weir_listener *l);
/* Frees it and its queue; the data plane knows already, or is gone. Worker locked. */
void weir_listener_free(struct weir_listener *l);
/* The listeners of p, and of the caller's objects before that, listen again, on t, its own. */
void weir_listeners_follow(struct weir_thread *t, struct weir_thread *p);

#endif
