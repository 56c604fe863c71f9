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
	frame_mac(sender, f + 6);
	put16(f + 12, ETH_TYPE_ARP);
	put64(f + 14, 0x0001080006040000u | operation);
	frame_mac(sender, f + 22);
	put32(f + 28, sender_ip);
	put32(f + 38, target_ip);
}

static void
arp_answers(void **state)
{
	struct net *n = net_create(2, 1, NULL, 1);
	uint8_t f[60], own[6], peer[6];

	frame_mac(0, own);
	frame_mac(1, peer);
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

static uint32_t asked_for;	       /* by the last ARP request */
static uint8_t sent_to[6], sent_ip[4]; /* the last IPv4 frame */

static bool
see_frames(struct net *n, const uint8_t *f, uint32_t length)
{
	if (get16(f + 12) == ETH_TYPE_ARP && get16(f + 20) == 1)
		asked_for = get32(f + 38);
	if (get16(f + 12) == ETH_TYPE_IP) {
		memcpy(sent_to, f, sizeof(sent_to));
		memcpy(sent_ip, f + 14 + 16, sizeof(sent_ip));
	}
	return true;
}

/* A peer in another network: which gateway is asked for its MAC, and gets the frames. */
static void
routed_to(struct net *n, uint32_t peer, unsigned gateway)
{
	struct nic_qp_attr attr = {.state = NIC_QP_INIT};
	struct nic_send_wr wr = {.opcode = NIC_SEND};
	struct nic_qp *qp = net_qp(&n->node[0].port[0]);
	uint8_t f[60], mac[6];

	assert_int_equal(roce_ops.qp_modify(qp, &attr), 0);
	attr = (struct nic_qp_attr){
	    .state = NIC_QP_RTR, .remote_gid = net_gid(peer), .remote_qpn = 5, .remote_psn = 5};
	assert_int_equal(roce_ops.qp_modify(qp, &attr), 0);
	assert_int_equal(net_rts(qp, 5), 0);
	asked_for = 0;
	memset(sent_to, 0, sizeof(sent_to));
	assert_int_equal(nic_post_send(qp, &wr, 1), 1);
	net_run(n, SECOND / 100);
	frame_mac(gateway, mac);
	if (!neighbour_known(((struct roce_qp *)qp)->neighbour)) {
		assert_int_equal(asked_for, net_ip(gateway));
		make_arp(f, 2, gateway, net_ip(gateway), net_ip(0));
		net_inject(n, 0, f, 60);
		net_run(n, SECOND / 100);
	}
	assert_memory_equal(sent_to, mac, 6);
	assert_int_equal(get32(sent_ip), peer);
	roce_ops.qp_destroy(qp);
}

/* Frames to other networks go to the gateway of the longest prefix, whatever the order of routes.
 */
static void
gateways(void **state)
{
	struct roce_config config = {
	    .route_count = 3,
	    .routes = {{nic_gid_ipv4(0), nic_gid_ipv4(net_ip(1)), 96},
		       {nic_gid_ipv4(0x0a050600), nic_gid_ipv4(net_ip(3)), 96 + 24},
		       {nic_gid_ipv4(0x0a050000), nic_gid_ipv4(net_ip(2)), 96 + 16}}};
	struct net *n = net_create(4, 1, &config, 1);

	n->tap = see_frames;
	routed_to(n, 0x0a050609, 3);
	routed_to(n, 0x0a050709, 2);
	routed_to(n, 0xc0a80001, 1);
	routed_to(n, net_ip(3), 3); /* on link: itself */
	net_destroy(n);
}

/* A gateway in another network could not be asked for its MAC. */
static void
gateway_elsewhere(void **state)
{
	struct roce_config config = {.gid = nic_gid_ipv4(net_ip(0)),
				     .prefix = 24,
				     .mac = {2},
				     .route_count = 1,
				     .routes = {{nic_gid_ipv4(0), nic_gid_ipv4(0x0a090001), 96}}};

	assert_null(roce_device_create(&config));
	assert_int_equal(errno, EINVAL);
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
	frame_mac(1, peer);
	assert_memory_equal(mac, peer, 6);
	make_arp(f, 2, 1, net_ip(2), net_ip(0));
	net_inject(n, 0, f, 60);
	assert_null(
	    roce_neighbour_find(&n->node[0].dev->neighbours, (struct address){0, net_ip(2)}));
	make_arp(f, 2, 2, net_ip(1), net_ip(0)); /* it has moved */
	net_inject(n, 0, f, 60);
	memcpy(mac, &(uint64_t){neighbour_mac(qp->neighbour)}, sizeof(mac));
	frame_mac(2, peer);
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
	    cmocka_unit_test(no_arp_answer), cmocka_unit_test(arp_answers),
	    cmocka_unit_test(gateways),	     cmocka_unit_test(gateway_elsewhere),
	    cmocka_unit_test(arp_learns),    cmocka_unit_test(neighbours_reused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
