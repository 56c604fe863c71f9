/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rules that steer queue pairs to queues, against an rte_flow of our own that looks at frames: no
 * port that can be had without hardware takes them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nic/roce_port/flow.h"

#define PORT 3

struct rte_flow {
	uint16_t queue;
	bool six, vlan;
	uint16_t udp_port;
	int32_t offset;
	uint8_t value, mask;
};

static unsigned live, refused_from; /* rules that exist; from which one on they are refused */
static bool refuse_late;	    /* not before they are made */

static struct rte_flow
read_rule(const struct rte_flow_item *i, const struct rte_flow_action *a)
{
	struct rte_flow rule = {.queue = ((const struct rte_flow_action_queue *)a[0].conf)->index};
	const struct rte_flow_item_raw *raw, *mask;

	assert_int_equal(a[0].type, RTE_FLOW_ACTION_TYPE_QUEUE);
	assert_int_equal(a[1].type, RTE_FLOW_ACTION_TYPE_END);
	assert_int_equal(i->type, RTE_FLOW_ITEM_TYPE_ETH);
	i++;
	rule.vlan = i->type == RTE_FLOW_ITEM_TYPE_VLAN;
	i += rule.vlan;
	rule.six = i->type == RTE_FLOW_ITEM_TYPE_IPV6;
	assert_true(rule.six || i->type == RTE_FLOW_ITEM_TYPE_IPV4);
	i++;
	assert_int_equal(i->type, RTE_FLOW_ITEM_TYPE_UDP);
	assert_int_equal(((const struct rte_flow_item_udp *)i->mask)->hdr.dst_port, 0xffff);
	assert_int_equal(((const struct rte_flow_item_udp *)i->mask)->hdr.src_port, 0);
	rule.udp_port = rte_be_to_cpu_16(((const struct rte_flow_item_udp *)i->spec)->hdr.dst_port);
	i++;
	assert_int_equal(i->type, RTE_FLOW_ITEM_TYPE_RAW);
	raw = i->spec;
	mask = i->mask;
	assert_int_equal(raw->relative, 1);
	assert_int_equal(raw->search, 0);
	assert_int_equal(raw->length, 1);
	rule.offset = raw->offset;
	rule.value = raw->pattern[0];
	rule.mask = mask->pattern[0];
	assert_int_equal(i[1].type, RTE_FLOW_ITEM_TYPE_END);
	return rule;
}

int
rte_flow_validate(uint16_t port, const struct rte_flow_attr *attr,
		  const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
		  struct rte_flow_error *error)
{
	assert_int_equal(port, PORT);
	assert_true(attr->ingress && !attr->egress && !attr->transfer);
	read_rule(pattern, actions);
	return live >= refused_from && !refuse_late ? -ENOTSUP : 0;
}

struct rte_flow *
rte_flow_create(uint16_t port, const struct rte_flow_attr *attr,
		const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
		struct rte_flow_error *error)
{
	struct rte_flow *rule;

	if (live >= refused_from)
		return NULL;
	rule = malloc(sizeof(*rule));
	*rule = read_rule(pattern, actions);
	live++;
	return rule;
}

int
rte_flow_destroy(uint16_t port, struct rte_flow *rule, struct rte_flow_error *error)
{
	assert_int_equal(port, PORT);
	live--;
	free(rule);
	return 0;
}

/* The queue of a QPN: of the one rule that fits; -1: of none. */
static int
queue_of(struct rte_flow **rules, unsigned queues, uint32_t qpn)
{
	const uint8_t bth[12] = {[5] = (uint8_t)(qpn >> 16), (uint8_t)(qpn >> 8), (uint8_t)qpn};
	int found = -1;

	for (unsigned i = 0; i < queues; i++)
		if ((bth[rules[i]->offset] & rules[i]->mask) == rules[i]->value) {
			assert_int_equal(found, -1);
			found = rules[i]->queue;
		}
	return found;
}

static void
to_its_engine(void **state)
{
	refused_from = 64;
	for (unsigned engines = 2; engines <= 32; engines++)
		for (uint16_t queues = 2; queues <= engines; queues++) {
			struct ethdev_flow_config c = {engines, queues, engines % 2, queues % 3};
			struct rte_flow *rules[ETHDEV_CONTEXTS_MAX] = {NULL};
			unsigned bits = 0;

			while (1u << bits < engines)
				bits++;
			assert_true(ethdev_flow_create(PORT, &c, rules));
			assert_int_equal(live, queues);
			assert_int_equal(rules[0]->udp_port, 4791);
			assert_int_equal(rules[0]->six, c.six);
			assert_int_equal(rules[0]->vlan, c.vlan);
			/* engine of a QPN: as in the core's input() */
			for (uint32_t qpn = 0; qpn < 300; qpn++) {
				unsigned engine = qpn & ((1u << bits) - 1);

				assert_int_equal(queue_of(rules, queues, qpn << 8 | qpn),
						 engine < queues ? (int)engine : -1);
			}
			for (unsigned i = 0; i < queues; i++)
				rte_flow_destroy(PORT, rules[i], NULL);
		}
}

/* A port that takes only some of the rules gets none. */
static void
all_or_none(void **state)
{
	struct ethdev_flow_config c = {.engines = 4, .queues = 4};
	struct rte_flow *rules[ETHDEV_CONTEXTS_MAX] = {NULL};

	for (refused_from = 0; refused_from < 4; refused_from++)
		for (int late = 0; late < 2; late++) {
			refuse_late = late;
			assert_false(ethdev_flow_create(PORT, &c, rules));
			assert_int_equal(live, 0);
		}
	refused_from = 64;
	c.queues = 1; /* there is nothing to choose */
	assert_false(ethdev_flow_create(PORT, &c, rules));
	assert_int_equal(live, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(to_its_engine),
	    cmocka_unit_test(all_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
