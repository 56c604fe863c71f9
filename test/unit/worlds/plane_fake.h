/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A data plane for tests of libweir: one process, no sockets but doorbells. Local connections get
 * segments as from the real one. Connections to node 1 are "remote": an engine takes slots out of
 * one channel and puts them into another, keeping windows and receive blocks as the real one does,
 * and fails the test when the library breaks a rule.
 */
#ifndef WEIR_TEST_PLANE_FAKE_H
#define WEIR_TEST_PLANE_FAKE_H

#include "client/channel.h"
#include "client/reason.h"
#include "client/region.h"
#include "client/segment.h"
#include "client/session.h"
#include "client/wait.h"
#include "stream/progress.h"

#define PATIENT 30000 /* ms for what must come about, however few turns a thread gets */
#define FAKE_LOCAL "node:0:svc"
#define FAKE_REMOTE "node:1:svc"
/* The session that was attached as the i-th, as a node of its own; names are its own then too. */
#define FAKE_NODE(i) (10u + (i))

struct fake;

struct fake_options {
	uint32_t ring_slots, recv_blocks, send_blocks, channels; /* 0: 256, 64, 64, 8 */
	uint32_t window;	/* most granted at a time, remote; 0: 64 KiB */
	uint32_t first;		/* granted to a new connection; 0: 512 */
	uint32_t area_bytes;	/* of a segment; 0: 64 KiB */
	uint32_t segment_slots; /* 0: 256 */
	uint32_t engines;	/* 0: 1 */
	uint32_t reaches;	/* only the port of this engine reaches peers */
	bool fickle;		/* ... or none: always that of another */
	bool fence;		/* says that nobody is registered for membarrier */
	bool slow_open;		/* connections open only when fake_open() says so */
	bool prompt;		/* what a request caused is in the rings before its reply */
	bool nodes;		/* each session is a node: FAKE_NODE() */
	uint16_t mtu;		/* connections are datagram connections with this largest message */
	uint32_t listen_ms;	/* a program waits so long until it listens */
	bool watched;		/* sessions have a socket, so that the library watches it */
};

struct fake *fake_create(const struct fake_options *o);
void fake_destroy(struct fake *f);
/* A session of its own. Fails the test on error. */
struct weir *fake_attach(struct fake *f);
struct weir *fake_attach_with(struct fake *f, const struct weir_options *o);
/* One pass over all channels. Returns what it moved. */
unsigned fake_turn(struct fake *f);
/* Turns until nothing moves. */
void fake_settle(struct fake *f);
/* A thread that does nothing but turns, until fake_stop(). */
void fake_run(struct fake *f);
void fake_stop(struct fake *f);
/* The engine takes nothing out of channels while held. */
void fake_hold(struct fake *f, bool held);
void fake_open(struct fake *f);
/* The program of w has died: its peers are told. Its handle stays valid. */
void fake_die(struct fake *f, struct weir *w);
/* The session's socket hangs up, as when the data plane is killed. Needs `watched`. */
void fake_cut(struct fake *f, struct weir *w);
/*
 * An operator ends the session: it is told so, or as the answer to its next request if `asked`, and
 * its socket hangs up. Needs `watched`.
 */
void fake_evict(struct fake *f, struct weir *w, bool asked);
/* The data plane dies with all it knew, needs `watched`; another one takes its place. */
void fake_kill(struct fake *f);
void fake_come_back(struct fake *f);
uint32_t fake_recv_blocks_free(struct fake *f, struct weir *w);
/* Regions of adopted memory that the session has. */
uint32_t fake_regions(struct fake *f, struct weir *w);
uint32_t fake_open_ends(struct fake *f);
/* WEIR_SLOT_TRANSFERS and WEIR_SLOT_BULK of the last remote message. */
uint8_t fake_way(const struct fake *f);
/* Both mappings of the only segment. */
uint8_t *fake_segment(struct fake *f, struct weir_segment_geometry *g);
uint32_t fake_segments(struct fake *f);
void fake_node_event(struct fake *f, uint16_t node, uint32_t status);
/* A row of the table of nodes is this now; all have been told; lists that were asked for. */
void fake_node(struct fake *f, const struct weir_node_info *is);
void fake_synced(struct fake *f);
uint32_t fake_lists(const struct fake *f);
/* What any FIND finds from now on; how many there were since, flags of the last one and of the last
 * LISTEN. */
void fake_found(struct fake *f, const struct weir_found *list, uint32_t n);
uint32_t fake_found_asked(const struct fake *f, uint32_t *flags);
uint32_t fake_listen_flags(const struct fake *f);

#endif
