/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A data plane for tests of libweir. plane.c is the real one: brokers, engines and protocol core of
 * one or more nodes in this process, a network in memory between them, a virtual clock.
 * plane_fake.c is a replacement for tests of a data plane that misbehaves or dies (plane_fake.h).
 */
#ifndef WEIR_TEST_PLANE_H
#define WEIR_TEST_PLANE_H

#include "client/channel.h"
#include "client/progress.h"
#include "client/reason.h"
#include "client/region.h"
#include "client/segment.h"
#include "client/session.h"
#include "client/wait.h"

/* ms to wait for an event that must come, however slow the machine is: tests of the idle class may
 * have no CPU for minutes */
#define PATIENT 600000
#define PLANE_LOCAL "node:0:svc"
#define PLANE_REMOTE "node:1:svc"
/* Node of the i-th session, if each session is a node. */
#define PLANE_NODE(i) (10u + (i))

struct plane;

struct plane_options {
	uint32_t ring_slots, recv_blocks, send_blocks, channels; /* 0: 256, 64, 64, 8 */
	uint32_t window;					 /* bytes; 0: 64 KiB */
	uint32_t first;	    /* bytes granted to a new connection; 0: 512 */
	uint32_t engines;   /* 0: 1 */
	uint32_t answers;   /* bytes per link; 0: 128 KiB */
	uint32_t links;	    /* per engine; 0: 16 */
	bool nodes;	    /* each session is on a node of its own: PLANE_NODE() */
	uint32_t listen_ms; /* delay of LISTEN */
	bool watched;	    /* sessions have a socket, so that the library watches it */
	bool users;	    /* the i-th session is of user 1000 + i; else all are of root */
	/* the real one */
	bool alone; /* control reports no nodes: the test does, or plane_join() */
	bool fence; /* replies tell programs that the data plane is not registered for membarrier */
	/* the fake */
	uint32_t reaches; /* only the port of this engine reaches peers */
	bool fickle;	  /* no port does: always that of another */
	bool slow_open;	  /* connections open only when fake_open() says so */
	bool prompt;	  /* the effects of a request are in the rings before its reply */
};

struct plane *plane_create(const struct plane_options *o);
void plane_destroy(struct plane *p);
/* A session on node 0, or on its own node. Fails the test on error. */
struct weir *plane_attach(struct plane *p);
struct weir *plane_attach_with(struct plane *p, const struct weir_options *o);
/* The same on node 0 or 1. */
struct weir *plane_attach_at(struct plane *p, uint32_t node);
/* One turn of everything. Returns the amount of work done. */
unsigned plane_turn(struct plane *p);
/* Turns until nothing moves. */
void plane_settle(struct plane *p);
/* A thread that does nothing but turns, until plane_stop(). */
void plane_run(struct plane *p);
void plane_stop(struct plane *p);
/* The network loses, doubles and delays these shares of the frames, percent. */
void plane_impair(struct plane *p, unsigned loss, unsigned dup, unsigned reorder);
/* The engines take nothing out of channels while held. */
void plane_hold(struct plane *p, bool held);
/* An operator ends an export of that program, number as the session has it. 1, or -errno. */
int plane_evict_export(struct plane *p, struct weir *w, uint32_t number);
/* Waiters for the lock of that export, which its engine knows. */
uint32_t plane_lock_waiters(struct plane *p, struct weir *w, uint32_t number);
/* Whether operators see the export by this name. */
bool plane_export_is(struct plane *p, struct weir *w, uint32_t number, const char *name);
/* The program of w has died: its peers are told. Its handle stays valid. */
void plane_die(struct plane *p, struct weir *w);
/* The session's socket hangs up, as when the data plane is killed. Needs `watched`. */
void plane_cut(struct plane *p, struct weir *w);
uint32_t plane_recv_blocks_free(struct plane *p, struct weir *w);
/* Connection ends that the data plane knows. */
uint32_t plane_open_ends(struct plane *p);
/* An operator's setting, on all nodes. */
void plane_set(struct plane *p, const char *key, const char *value);
/* Regions of adopted memory that the session has. */
uint32_t plane_regions(struct plane *p, struct weir *w);
/* Segments of node 0. */
uint32_t plane_segments(struct plane *p);
/* The data planes of all nodes die, needs `watched`; others take their places. */
void plane_kill(struct plane *p);
void plane_come_back(struct plane *p);
/* A row of node 0's table of nodes changes: control reports it. */
void plane_node(struct plane *p, const struct weir_node_info *is);
/* Control reports all nodes of an `alone` plane. */
void plane_join(struct plane *p);
/* Control reports that it has told all nodes. */
void plane_synced(struct plane *p);
/* Lists of nodes that programs have requested. */
uint32_t plane_lists(const struct plane *p);
/* LISTEN requests that were answered. */
uint32_t plane_listens(const struct plane *p);
/* FIND requests, and the flags of the last one; flags of the last LISTEN. */
uint32_t plane_found_asked(const struct plane *p, uint32_t *flags);
uint32_t plane_listen_flags(const struct plane *p);
/* WEIR_SLOT_TRANSFERS and WEIR_SLOT_BULK of the last message that a channel took. */
uint8_t plane_way(const struct plane *p);
/* Both mappings of the latest segment. */
uint8_t *plane_segment(struct plane *p, struct weir_segment_geometry *g);

#endif
