/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread's rings towards an engine. */
#ifndef WEIR_CLIENT_CHANNEL_H
#define WEIR_CLIENT_CHANNEL_H

#include "pipe.h"

#include "ipc/session_msg.h"

#include <sys/queue.h>

struct weir_conn;
struct weir_thread;

#define WEIR_RELEASES 6u /* per slot */
/* Slots of a channel's tx ring that messages leave free for control slots. */
#define WEIR_CONTROL_RESERVE 8u

struct weir_channel {
	struct weir_pipe pipe;
	struct weir_ring returns; /* producer */
	SLIST_ENTRY(weir_channel) next;
	uint32_t index, engine;
	uint32_t release_count;
	weir_place *release; /* receive blocks to release; room for all blocks */
	/* notices that were taken and not reported: vqpn 32 bits, number 32 bits; `noticed` in all
	 */
	uint64_t noticed_by[WEIR_RELEASES];
	uint32_t noticed_conns, noticed;
	uint32_t *refused; /* vqpns whose CLOSE waits for room in tx */
	uint32_t refused_count, refused_room;
	TAILQ_HEAD(, weir_conn) control;    /* connections with control slots to send */
	TAILQ_HEAD(, weir_conn) to_report;  /* connections with unreported consumption */
	TAILQ_HEAD(, weir_conn) needs_room; /* found no room in tx and wait for it */
	struct weir_conn *asking; /* one of those: its WANT is under way for all of them; or NULL */
};

#define WEIR_CHANNEL_OF(p) ((struct weir_channel *)(p))
static_assert(offsetof(struct weir_channel, pipe) == 0, "a channel begins with its pipe");

/* The calling thread's channel to an engine, UINT32_MAX: to any. 0 or -errno. Worker locked. */
int weir_channel_get(struct weir_thread *t, uint32_t engine, struct weir_channel **ch);
/*
 * The channels to all engines: connections to accept, notices and signals come from any of them.
 * index[i]: receives that of the channel to engine i. 0 or -errno. Worker locked.
 */
int weir_channel_get_all(struct weir_thread *t, uint32_t index[WEIR_ENGINES_MAX]);

#endif
