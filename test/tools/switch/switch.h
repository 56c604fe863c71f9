/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weir-switch: an Ethernet switch for nodes on one machine. One thread takes frames from all ports
 * and gives them out, so frames of a flow keep their order.
 */
#ifndef WEIR_SWITCH_H
#define WEIR_SWITCH_H

#include "lcore/clock.h"
#include "options.h"
#include "queue.h"
#include "table.h"

#include <stdatomic.h>
#include <stdio.h>

#include <rte_ethdev.h>
#include <rte_rcu_qsbr.h>

#define SWITCH_PORTS_MAX RTE_MAX_ETHPORTS

struct switch_port {
	char name[RTE_ETH_NAME_MAX_LEN];
	uint16_t id;
	bool started, up;
	uint32_t frame_max; /* bytes of a frame that its far end can take */
	struct switch_queue queue;
	uint64_t rx_frames, rx_bytes, tx_frames, tx_bytes;
	uint64_t full; /* frames for which its queue had no room */
};

/* Reasons to drop frames, beside full queues. */
struct switch_drops {
	uint64_t runt, bad_source, stayed, too_long, no_link;
};

struct ether_switch {
	const struct switch_options *options;
	struct clock clock;
	struct rte_rcu_qsbr *quiet; /* one reader: the thread that forwards */
	struct rte_mempool *pool;
	struct switch_table table;
	struct switch_port port[SWITCH_PORTS_MAX];
	unsigned ports;
	uint32_t waiting; /* bit i: port i has frames in its queue */
	unsigned first;	  /* port that the next turn begins with */
	uint64_t flooded;
	struct switch_drops drops;
	/* time, ns */
	uint64_t began, link_checked, last_work, yielded, sleep_ns, reported;
	uint64_t began_cpu, reported_cpu; /* of the process */
	uint32_t empty_turns;
	uint64_t turns, sleeps;
};

_Static_assert(SWITCH_PORTS_MAX <= 32, "ether_switch.waiting has a bit for each port");

/* Takes frames from all ports and gives out what it can; how many it moved. */
unsigned switch_turn(struct ether_switch *sw, uint64_t now);
/* Looks which ports are up. */
void switch_check_links(struct ether_switch *sw);
/* Drops what waits for a port. */
void switch_empty(struct ether_switch *sw, struct switch_port *port);

/* CPU time of the process, ns. */
uint64_t switch_cpu_ns(void);
/* Tells of the time since the start and since the last report. */
void switch_report(struct ether_switch *sw, uint64_t now, FILE *to);

#endif
