/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steers the frames of queue pairs to the queue of their engine, which saves the hand-over: the low
 * bits of a QPN name the engine. Either all rules of a port are made or none.
 */
#include "flow.h"

/* The last byte of the QPN, from the end of the UDP header on. */
#define QPN_END 7

bool
ethdev_flow_create(uint16_t port, const struct ethdev_flow_config *config,
		   struct rte_flow *rules[ETHDEV_CONTEXTS_MAX])
{
	const struct rte_flow_attr attr = {.ingress = 1};
	const struct rte_flow_item_udp udp = {.hdr.dst_port = RTE_BE16(4791)};
	const struct rte_flow_item_udp udp_mask = {.hdr.dst_port = RTE_BE16(0xffff)};
	uint8_t engine, bits = 0;
	struct rte_flow_item_raw qpn = {
	    .relative = 1, .offset = QPN_END, .length = 1, .pattern = &engine};
	const struct rte_flow_item_raw qpn_mask = {.relative = 1,
						   .search = 1,
						   .offset = (int32_t)0xffffffff,
						   .limit = 0xffff,
						   .length = 1,
						   .pattern = &bits};
	struct rte_flow_action_queue to;
	const struct rte_flow_action actions[] = {
	    {.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
	    {.type = RTE_FLOW_ACTION_TYPE_END},
	};
	struct rte_flow_item items[6] = {{.type = RTE_FLOW_ITEM_TYPE_ETH}};
	struct rte_flow_error error = {0};
	unsigned n = 1;

	if (config->queues < 2)
		return false;
	while (bits + 1u < config->engines)
		bits = (uint8_t)(bits * 2 + 1);
	if (config->vlan)
		items[n++].type = RTE_FLOW_ITEM_TYPE_VLAN;
	items[n++].type = config->six ? RTE_FLOW_ITEM_TYPE_IPV6 : RTE_FLOW_ITEM_TYPE_IPV4;
	items[n++] = (struct rte_flow_item){RTE_FLOW_ITEM_TYPE_UDP, &udp, NULL, &udp_mask};
	items[n++] = (struct rte_flow_item){RTE_FLOW_ITEM_TYPE_RAW, &qpn, NULL, &qpn_mask};
	items[n] = (struct rte_flow_item){.type = RTE_FLOW_ITEM_TYPE_END};
	for (uint16_t q = 0; q < config->queues; q++) {
		engine = (uint8_t)q;
		to.index = q;
		rules[q] = rte_flow_validate(port, &attr, items, actions, &error)
			       ? NULL
			       : rte_flow_create(port, &attr, items, actions, &error);
		if (rules[q])
			continue;
		while (q-- > 0) {
			rte_flow_destroy(port, rules[q], &error);
			rules[q] = NULL;
		}
		return false;
	}
	return true;
}
