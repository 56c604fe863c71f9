/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whole controls in one process under a virtual clock: all of control/ above the sockets, with the
 * part of libevent that it uses, TCP and data planes that are none. Hosts lose power, processes
 * crash, pause and come back, connections break, go dark at one end or both, the network is cut.
 */
#ifndef WEIR_TEST_VIRTUAL_H
#define WEIR_TEST_VIRTUAL_H

#include "worlds/event_queue.h"

#include "cluster/control.h"

#include <event2/event.h>

#define MS UINT64_C(1000) /* of virtual time, which is in us */
#define SECOND (1000 * MS)
#define NODE_TIMEOUT 1000u /* ms */
#define KNOWN_LISTS 512u

struct host;

struct event_base {
	struct host *host;
};

/* One that has stopped or crashed since: `alive` is false, only memory is to be freed. */
typedef void (*task_fn)(void *arg, uint64_t tag, bool alive);

struct task {
	struct host *host; /* whose control it is for; NULL: nobody's, it runs in any case */
	uint64_t life, tag;
	task_fn run;
	void *arg;
	struct task *next;
};

/* One end of a TCP connection. */
struct sock {
	struct control_stream stream;
	struct host *host;
	uint64_t life;
	struct sock *other, *next; /* next: in a listener's backlog */
	unsigned refs;
	bool held;    /* by its process */
	bool waiting; /* in a backlog */
	bool gone;    /* its kernel knows nothing of it */
	bool opened, told_opened, ended, told_ended, ready, scheduled;
	bool dark; /* what it sends arrives nowhere, and nobody is told */
	uint16_t port;
	uint32_t tries, written;
	const char *why;
	struct segment *first, **last; /* under way */
	uint64_t last_at, queued;
	uint8_t *in;
	size_t in_length, in_room;
	uint64_t apart_since; /* us: not the one that the other end uses; 0: it is */
};

enum end_state { END_DOWN, END_OFFERED, END_UP, END_QUIET };

/* An end of a link between data planes, as docs/protocol.md 2 has them, without repair. */
struct end {
	struct end *next;
	uint16_t peer;
	bool wanted, confirmed;
	enum end_state state;
	uint64_t peer_incarnation;
	uint32_t attempt, peer_attempt, burnt;
	struct weir_link_offer saved; /* attempt 0: none */
	uint64_t deadline, resend, quiet_until, heard_at;
};

/* A node as a data plane was told of it. */
struct known {
	struct known *next; /* of those with the same remainder */
	struct weir_ctl_node is;
	uint64_t offers, offered_by; /* digest of its services; incarnation */
};

struct plane {
	uint64_t incarnation; /* 0: it doesn't run */
	uint32_t starts, id;  /* UINT32_MAX: not known */
	struct end *ends;
	struct known *known[KNOWN_LISTS];
	struct weir_services offers;	  /* public services of its programs */
	uint32_t offered;		  /* how often they have changed */
	uint32_t told_suspect, told_down; /* of others */
	uint32_t renamed;		  /* while it ran */
};

struct host {
	struct event_base base;
	uint32_t place, side;
	bool running, paused, powered;
	uint64_t life;
	struct control control;
	struct control_options options;
	struct peers peers; /* as its peers file has them */
	char listen[32];
	struct evconnlistener *listener;
	struct task *kept, **kept_last; /* came while it was paused */
	struct dp *dp;
	struct plane plane;
	uint32_t held; /* ends of connections */
	/* figures */
	uint64_t messages, bytes, dials, pings;
	uint32_t ping_to; /* the place that `pings` counts; UINT32_MAX: none */
};

struct world {
	union {
		struct event_queue queue; /* of tasks */
		uint64_t now;		  /* the queue's, us */
	};
	struct rng rng;
	uint64_t seed;
	uint32_t hosts;
	struct host *host;
	bool cut;	/* hosts of different sides */
	uint32_t loss;	/* of 1,000 messages between controls */
	uint32_t twice; /* the same */
	uint32_t steps;
	bool trace;
};
extern struct world world;

/* ---- virtual.c ---- */
uint64_t world_random(uint64_t limit);
uint64_t world_delay(void); /* us, of a message */
void world_at(uint64_t at, struct host *host, task_fn run, void *arg, uint64_t tag);
void world_run(uint64_t until); /* us */
bool world_step(void);
bool world_cut(const struct host *a, const struct host *b);
/* Tasks that came while it was paused run now, or never. */
void world_resume(struct host *host);
void world_free(void);

/* ---- virtual_tcp.c ---- */
extern const struct control_transport virtual_tcp;
/* Nothing that either end says arrives any more; `reset`: one of them is told. */
void tcp_darken(struct sock *s, bool reset);

/* ---- virtual_plane.c ---- */
void plane_start(struct host *host);
void plane_die(struct host *host);
/* A program at `host` wants a connection to that node. */
void plane_want(struct host *host, uint16_t id);
/* Programs at `host` offer other services than before, or none. */
void plane_offer(struct host *host);
struct end *plane_end(const struct host *host, uint16_t id);
const struct known *plane_known(const struct host *host, uint16_t id);
/* Is this end joined with the one that the other data plane has now? */
bool plane_joined(const struct host *host, const struct end *e);
void plane_link_down(struct host *host, uint16_t id);
void plane_free(struct host *host);

#endif
