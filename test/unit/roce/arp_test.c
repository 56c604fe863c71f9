/* SPDX-License-Identifier: BSD-3-Clause */
/* ARP: requests that are answered, MACs that are learnt. */
#include "worlds/roce_pair.h"

static void
no_arp_answer(void **state)
{
	struct net *n = net_create(2, 1, NULL, 1);
	struct nic_qp *qp = net_qp(&n->node[0].port[0]);
	struct nic_send_wr wr = {.wr_id = 5, .opcode = NIC_SEND, .flags = NIC_SIGNALED};

	n->step = 20 * NET_STEP_NS;
	n->loss = 100;
	assert_int_equal(net_rtr(qp, &n->node[1], 5, 5), 0);
	assert_int_equal(net_rts(qp, 5), 0);
	assert_int_equal(nic_post_send(qp, &wr, 1), 1);
	net_run(n, SECOND * 19 / 10);
	assert_int_equal(n->node[0].port[0].wcs, 0);
	assert_in_range(net_counters(&n->node[0]).tx_frames, 5, 100);
	net_run(n, SECOND / 2);
	expect_wc(&n->node[0].port[0], 0, 5, NIC_WC_RETRY_EXC_ERR);
	net_destroy(n);
}

static uint8_t arp_seen[64];

static bool
see_arp(struct net *n, const uint8_t *f, uint32_t length)
{
	if (get16(f + 12) == ETH_TYPE_ARP)
		memcpy(arp_seen, f, 60);
	return true;
}

static void
make_arp(uint8_t *f, uint16_t operation, unsigned sender, uint32_t sender_ip, uint32_t target_ip)
{
	memset(f, 0, 60);
	memset(f, 0xff, 6);
	net_mac(sender, f + 6);
	put16(f + 12, ETH_TYPE_ARP);
	put64(f + 14, 0x0001080006040000u | operation);
	net_mac(sender, f + 22);
	put32(f + 28, sender_ip);
	put32(f + 38, target_ip);
}

static void
arp_answers(void **state)
{
	struct net *n = net_create(2, 1, NULL, 1);
	uint8_t f[60], own[6], peer[6];

	net_mac(0, own);
	net_mac(1, peer);
	n->tap = see_arp;
	make_arp(f, 1, 1, net_ip(1), net_ip(0));
	net_inject(n, 0, f, 42);
	assert_memory_equal(arp_seen, peer, 6);
	assert_memory_equal(arp_seen + 6, own, 6);
	assert_int_equal(get16(arp_seen + 20), 2);
	assert_memory_equal(arp_seen + 22, own, 6);
	assert_int_equal(get32(arp_seen + 28), net_ip(0));
	assert_memory_equal(arp_seen + 32, peer, 6);
	assert_int_equal(get32(arp_seen + 38), net_ip(1));
	memset(arp_seen, 0, sizeof(arp_seen));
	make_arp(f, 1, 1, net_ip(1), net_ip(2)); /* somebody else's */
	net_inject(n, 0, f, 60);
	make_arp(f, 3, 1, net_ip(1), net_ip(0)); /* no such operation */
	net_inject(n, 0, f, 60);
	make_arp(f, 1, 1, net_ip(1), net_ip(0));
	f[19] = 5; /* no such length of addresses */
	net_inject(n, 0, f, 60);
	make_arp(f, 1, 1, net_ip(1), net_ip(0));
	net_inject(n, 0, f, 41); /* cut */
	assert_int_equal(get16(arp_seen + 20), 0);
	assert_int_equal(net_counters(&n->node[0]).drop_not_ours, 3);
	assert_int_equal(net_counters(&n->node[0]).drop_too_short, 1);
	/* our own question coming back, as on a looped port: answered from our own MAC */
	make_arp(f, 1, 0, net_ip(0), net_ip(0));
	net_inject(n, 0, f, 60);
	assert_memory_equal(arp_seen + 22, own, 6);
	net_destroy(n);
}

/* Only peers are learnt, and only single addresses. */
static void
arp_learns(void **state)
{
	struct net *n = net_create(2, 1, NULL, 1);
	struct roce_qp *qp = (struct roce_qp *)net_qp(&n->node[0].port[0]);
	uint8_t f[60], mac[6], peer[6];

	assert_int_equal(net_rtr((struct nic_qp *)qp, &n->node[1], 5, 5), 0);
	assert_false(neighbour_known(qp->neighbour));
	make_arp(f, 2, 1, net_ip(1), net_ip(0));
	f[22] |= 1;
	net_inject(n, 0, f, 60);
	assert_false(neighbour_known(qp->neighbour));
	make_arp(f, 2, 1, net_ip(1), net_ip(0));
	net_inject(n, 0, f, 60);
	memcpy(mac, &(uint64_t){neighbour_mac(qp->neighbour)}, sizeof(mac));
	net_mac(1, peer);
	assert_memory_equal(mac, peer, 6);
	make_arp(f, 2, 1, net_ip(2), net_ip(0));
	net_inject(n, 0, f, 60);
	assert_null(
	    roce_neighbour_find(&n->node[0].dev->neighbours, (struct address){0, net_ip(2)}));
	make_arp(f, 2, 2, net_ip(1), net_ip(0)); /* it has moved */
	net_inject(n, 0, f, 60);
	memcpy(mac, &(uint64_t){neighbour_mac(qp->neighbour)}, sizeof(mac));
	net_mac(2, peer);
	assert_memory_equal(mac, peer, 6);
	net_destroy(n);
}

static void
neighbours_reused(void **state)
{
	struct roce_config config = {.neighbours = 1};
	struct net *n = net_create(3, 1, &config, 1);
	struct net_port *port = &n->node[0].port[0];
	struct nic_qp *first = net_qp(port), *second = net_qp(port), *third = net_qp(port);

	assert_int_equal(net_rtr(first, &n->node[1], 5, 5), 0);
	assert_int_equal(net_rtr(second, &n->node[1], 5, 5), 0);
	assert_int_equal(net_rtr(third, &n->node[2], 5, 5), -ENOSPC);
	roce_ops.qp_destroy(first);
	roce_ops.qp_destroy(second);
	roce_ops.qp_destroy(third);
	net_turn(n);
	third = net_qp(port);
	assert_int_equal(net_rtr(third, &n->node[2], 5, 5), 0);
	assert_false(neighbour_known(((struct roce_qp *)third)->neighbour));
	net_destroy(n);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_arp_answer),
	    cmocka_unit_test(arp_answers),
	    cmocka_unit_test(arp_learns),
	    cmocka_unit_test(neighbours_reused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
