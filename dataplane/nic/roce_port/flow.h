/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEIR_ROCE_ETHDEV_FLOW_H
#define WEIR_ROCE_ETHDEV_FLOW_H

#include <stdbool.h>

#include <rte_flow.h>

#include "roce_port.h"

struct ethdev_flow_config {
	unsigned engines; /* 2 ... 32 */
	uint16_t queues;  /* queue i is engine i's; fewer than engines is fine */
	bool six, vlan;
};

/*
 * Makes the started port steer each QP's frames to the queue of its engine. False: the port can't,
 * and nothing has changed. Rules end with the port.
 */
bool ethdev_flow_create(uint16_t port, const struct ethdev_flow_config *config,
			struct rte_flow *rules[ETHDEV_CONTEXTS_MAX]);

#endif
