/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory under construction, of arenas and regions: main makes it piece by piece and serves other
 * programs between two pieces.
 */
#ifndef WEIR_BROKER_BUILD_H
#define WEIR_BROKER_BUILD_H

#include "broker.h"

#include <sys/queue.h>

struct broker_build;
struct broker_session;
struct memfd;

struct build_kind {
	/* Makes a piece. 1: more follow; 0: all is there; or -errno. */
	int (*piece)(struct broker_build *);
	/* All is there: tells engines. 0 or -errno. */
	int (*complete)(struct broker_build *);
	/* Refuses it, and frees it or ends its session. */
	void (*failed)(struct broker_build *, int rc);
	/* Charges CPU time of main for a piece, ns. */
	void (*charge)(struct broker_build *, uint64_t ns);
};

struct broker_build {
	const struct build_kind *kind; /* NULL: not in the queue */
	struct broker_session *session;
	const struct memfd *memory;
	TAILQ_ENTRY(broker_build) entry;
};

/* Begins: the program waits for an answer from now on. */
void build_enter(struct broker_build *e, const struct build_kind *kind, struct broker_session *s,
		 const struct memfd *memory);
/* Leaves the queue, if it is in it. */
void build_leave(struct broker_build *e);
/* Makes a piece of one of them. Returns when to be called again. */
uint64_t build_timers(struct broker *b, uint64_t now);

#endif
