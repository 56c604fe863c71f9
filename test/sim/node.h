/* SPDX-License-Identifier: BSD-3-Clause */
/* One node: engines with their ports, a broker, and the part of control that the broker talks to.
 */
#ifndef WEIR_TEST_SIM_NODE_H
#define WEIR_TEST_SIM_NODE_H

#include "sim.h"
#include "wire.h"

#include "broker/broker.h"
#include "worlds/node_shell.h"

#define SIM_MAILBOX 64u
#define SIM_EVENTS 64u

enum sim_engine_state {
	SIM_AWAKE,
	SIM_DROWSY,   /* will raise its sleep flags next; others may publish meanwhile */
	SIM_PREPARED, /* sleep flags are set; it looks once more, then sleeps */
	SIM_ASLEEP,
	SIM_DOZING, /* a turn between two sleeps, the flags still up */
};

enum sim_torn { /* of a link */
		SIM_WHOLE,
		SIM_TORN,
		SIM_TORN_UPDATES, /* some were under way */
};

struct sim_engine {
	struct sim_node *n;
	uint32_t id;
	struct sim_port port;
	struct nic_context *nic;
	struct nic_srq *srq;
	uint8_t *recv;
	uint64_t fence; /* peers READ it behind their WRITEs, in every other seed */
	struct engine *engine;
	struct engine_config config;
	struct sim_actor actor;
	enum sim_engine_state state;
	bool rung;	/* woken by a doorbell, a command or a frame */
	uint64_t timer; /* of the engine, when it prepared to sleep; SIM_NEVER: none */
	uint32_t idle;	/* empty turns in a row */
	uint64_t nap;	/* next timed sleep on a port without interrupt */
	uint64_t turns;
	uint8_t torn[SIM_LINKS]; /* enum sim_torn, of each link, after the last turn */
	struct engine_command *mailbox[SIM_MAILBOX], *replies[SIM_MAILBOX];
	uint32_t mail_head, mail_tail, reply_head, reply_tail;
	uint32_t
	    mail_out; /* in the mailbox or inside the engine: a reply slot is reserved for each */
	struct engine_event events[SIM_EVENTS];
	uint32_t event_head, event_tail;
};

#define SIM_OFFERS 128u /* pairs of engines, which may share an entry */

struct sim_node {
	struct sim *s;
	uint32_t id;
	struct roce_device *dev;
	struct sim_fault *fault; /* NULL: its QPs don't fail */
	uint32_t engines;
	struct sim_engine engine[SIM_ENGINES_MAX];
	struct broker *broker;
	struct sim_actor actor; /* the main lcore */
	struct shell_doorbells doorbells;
	uint32_t rss;			      /* 0: all frames to engine 0; 1: any engine */
	uint64_t last_control[SIM_NODES_MAX]; /* when the last message to that node arrives */
	/* offers of links with that node, which has the higher id, that came to nothing in a row,
	 * theirs or the answer lost: of each pair of engines, now, and at most of all pairs */
	uint8_t lost_offers[SIM_NODES_MAX][SIM_OFFERS];
	uint8_t most_lost[SIM_NODES_MAX];
};

struct sim_node *sim_node_create(struct sim *s, uint32_t id);
void sim_node_destroy(struct sim_node *n);
/* Where the next frame to a node is received. */
struct sim_port *sim_rx_port(struct sim *s, uint32_t node);
struct sim_port *sim_port(struct sim *s, uint32_t node, uint32_t engine);
/* A turn of the engine `arg`, or a step of its falling asleep. */
void sim_engine_run(struct sim *s, void *arg);
/* Something that wakes a sleeping engine has happened. */
void sim_engine_wake(struct sim *s, uint32_t node, uint32_t engine);
/* Programs may have rung doorbells: wakes whom they rang. Fails the seed if a sleeper was missed.
 */
void sim_node_listen(struct sim_node *n);
/* The main lcore has something to do. */
void sim_node_kick(struct sim_node *n);
/* Control tells all members about each other. */
void sim_control_start(struct sim *s);
/* Between the two nodes more messages were lost in a row than a connect need survive. */
bool sim_offers_lost(const struct sim *s, uint32_t a, uint32_t b);
void sim_control_output(void *user, const struct weir_ctl_msg *m);
/* Forgets messages under way, at the end of a seed. */
void sim_control_reset(struct sim *s);
/* No connection is left. */
bool sim_node_idle(struct sim_node *n);
/* At the end: counters that say that something went wrong without anybody noticing. */
void sim_node_check(struct sim_node *n);

#endif
