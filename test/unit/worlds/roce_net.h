/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A network for tests of the protocol core: nodes with one or more contexts on a switch, a virtual
 * clock, loss, duplication and reordering from a seed. Proves on the way that a frame never changes
 * once sent, and that every buffer comes back.
 */
#ifndef WEIR_TEST_ROCE_NET_H
#define WEIR_TEST_ROCE_NET_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nic/roce/context.h"
#include "frame_net.h"
#include "roce_craft.h"

#include <errno.h>

#define NET_NODES 4
#define NET_CONTEXTS 4
#define NET_QUEUE 8192
#define NET_WCS 4096
#define NET_STEP_NS 2000 /* of a turn; tests that wait for seconds take longer steps */

struct net;
struct net_node;

struct net_port {
	struct frame_port frames; /* first: the wire's user */
	struct net_node *node;
	struct roce_context *ctx;
	struct nic_srq *srq;
	struct nic_wc wc[NET_WCS]; /* all completions so far */
	unsigned wcs;
};

struct net_node {
	struct net *net;
	unsigned id;
	struct roce_device *dev;
	struct net_port port[NET_CONTEXTS];
	unsigned contexts;
	unsigned rss; /* context whose queue gets the frames that arrive */
	bool stuck;   /* its port takes nothing */
};

struct net {
	struct net_node node[NET_NODES];
	unsigned nodes;
	union {
		struct event_queue queue; /* of frame_deliveries, ns */
		uint64_t now;		  /* the queue's */
	};
	uint64_t step;
	struct frame_net frames;
	uint64_t random;
	unsigned loss, dup, reorder; /* percent */
	unsigned room;		     /* what wires say they take in one flush */
	/* Sees every frame that is sent, ICMPv6 as bare Ethernet; false: it is lost. May be NULL.
	 */
	bool (*tap)(struct net *n, const uint8_t *frame, uint32_t length);
	void *tap_user;
};

/* `config` gives what isn't default; address, MAC and contexts are filled in. */
struct net *net_create(unsigned nodes, unsigned contexts, const struct roce_config *config,
		       uint64_t seed);
/* Checks that no buffer was lost. */
void net_destroy(struct net *n);
/* From now on frames can be allocated until there are `frames` more. */
void net_set_left(struct net *n, uint64_t frames);
/* One turn of every node; time goes on. */
void net_turn(struct net *n);
/* Turns until `ns` have passed. */
void net_run(struct net *n, uint64_t ns);
/* Puts a frame into a node's receive queue now. */
void net_inject(struct net *n, unsigned node, const uint8_t *frame, uint32_t length);
/* The addresses of a frame between two nodes; the test fills in the rest. */
struct craft net_craft(unsigned from, unsigned to, uint8_t opcode, uint32_t qpn, uint32_t psn);
/* Makes the frame and puts it into the receive queue of a node. */
void net_give(struct net *n, unsigned node, const struct craft *c);
/* A QP at each of the ports, connected and in RTS; psn of both directions. */
void net_connect(struct net_port *a, struct net_port *b, uint32_t psn, struct nic_qp **qa,
		 struct nic_qp **qb);
/* Brings a QP from RESET to RTS, connected to `peer`, with further attributes as in `attr`. */
void net_join(struct nic_qp *qp, struct nic_qp *peer, struct nic_qp_attr attr);
struct nic_qp *net_qp(struct net_port *p);
int net_rtr(struct nic_qp *qp, struct net_node *peer, uint32_t remote_qpn, uint32_t psn);
int net_rts(struct nic_qp *qp, uint32_t psn);
/* `count` receives into `mr` at multiples of `each`, wr_id from 0. */
void net_post_recvs(struct net_port *p, const struct nic_mr *mr, unsigned count, uint32_t each);
struct nic_counters net_counters(struct net_node *node);
/* rx_frames = accepted + drops on receive. */
void net_check_sum(struct net_node *node);
uint32_t net_random(struct net *n);
/*
 * WEIR_NET in the environment names other headers than plain IPv4: six, vlan, or six,vlan. Injected
 * frames and those that taps see are plain IPv4 all the same: the net converts them.
 */
bool net_six(void);
struct nic_gid net_gid(uint32_t ip);
struct address net_address(uint32_t ip);
uint32_t net_ip(unsigned node);

#endif
