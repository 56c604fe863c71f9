/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside plane.c: its nodes (plane_node.c), and the programs that have attached to them
 * (plane_program.c). The lock of the plane protects all of it.
 */
#ifndef TEST_PLANE_REAL_H
#define TEST_PLANE_REAL_H

#include "node_shell.h"
#include "plane.h"
#include "roce_net.h"

#include "broker/broker.h"
#include "engine/engine.h"

#include <pthread.h>

#define ENGINES 2u
#define QUEUE 1024u /* commands, events or messages of control under way, power of two */
#define CLIENTS 16u

/* The positions run freely. */
struct ring {
	uint32_t head, tail;
};

struct plane_engine {
	struct node *node;
	uint32_t id;
	struct engine *engine;
	struct engine_config config;
	struct ring commands, replies, events;
	struct engine_command *command[QUEUE], *reply[QUEUE];
	struct engine_event event[QUEUE];
};

struct node {
	struct plane *plane;
	uint32_t id;
	struct broker *broker;
	struct plane_engine engine[ENGINES];
	struct shell_doorbells doorbells;
};

/* A message of a data plane to another's. */
struct letter {
	uint32_t to; /* index of the node */
	struct weir_ctl_msg m;
};

struct client {
	struct plane *plane;
	struct node *node;
	struct weir *w;
	struct broker_session *session; /* NULL: not open, or ended */
	bool replied;
	int socket[2]; /* nothing is ever sent on it; [1] closed: hung up */
	struct weir_session_msg reply;
	int fds[WEIR_SESSION_FDS];
};

struct plane {
	struct plane_options o;
	pthread_mutex_t lock; /* of everything; each call and each turn takes it */
	pid_t process;	      /* that has created it; a forked child has no data plane */
	struct net *net;
	uint32_t nodes;
	struct node node[NET_NODES];
	struct client client[CLIENTS];
	uint32_t clients;
	struct ring mail;
	struct letter letter[QUEUE];
	uint8_t *segment;
	struct weir_segment_geometry segment_geometry;
	uint32_t lists, finds, find_flags, listen_flags;
	_Atomic uint32_t listens;
	uint8_t way;
	pthread_t thread;
	bool running, down;
	uint32_t lives; /* starts of the data planes */
	_Atomic bool stop, held;
};

static inline bool
ring_pending(const struct ring *q)
{
	return q->head != q->tail;
}

static inline bool
ring_full(const struct ring *q)
{
	return q->head - q->tail == QUEUE;
}

static inline uint32_t
ring_put(struct ring *q)
{
	assert_false(ring_full(q));
	return q->head++ % QUEUE;
}

static inline uint32_t
ring_take(struct ring *q)
{
	return q->tail++ % QUEUE;
}

/* ---- plane.c ---- */
/* One turn of everything. */
unsigned plane_turn_locked(struct plane *p);

/* ---- plane_node.c ---- */
void plane_node_create(struct plane *p, uint32_t index);
/* It ends, whatever it was doing; after the end of the network it is freed. */
void plane_node_end(struct node *n);
void plane_node_free(struct node *n);
/* Control takes what it was sent. */
unsigned plane_mail(struct plane *p);
unsigned plane_node_turn(struct node *n);

/* ---- plane_program.c ---- */
void plane_hang_up(struct client *c);

#endif
