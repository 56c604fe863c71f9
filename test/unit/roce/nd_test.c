/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighbour discovery, and what is refused in IPv6 headers and VLAN tags. */
#include "worlds/roce_net.h"

#include "nic/roce/arp.h"

#define SOLICIT 135
#define ADVERTISE 136
#define SOLICITED 0x40000000u
#define OVERRIDE 0x20000000u

static const uint8_t all_nodes[16] = {0xff, 2, [15] = 1};
static const uint8_t group[16] = {0xff, 2, [11] = 1, [12] = 0xff, [15] = 1}; /* of node 0 */

/* A message as it should be; tests spoil it. */
struct message {
	uint8_t type;
	uint32_t flags;
	uint8_t source[16], dest[16], target[16];
	uint8_t mac[6], ethernet[6]; /* of the option; of the frame */
	uint32_t options;	     /* bytes */
};

static uint8_t seen[128]; /* the last ICMPv6 that a node has sent */
static uint32_t seen_length;

static bool
see(struct net *n, const uint8_t *f, uint32_t length)
{
	if (get16(f + 12) == ETH_TYPE_IP6) {
		assert_true(length <= sizeof(seen));
		memcpy(seen, f, length);
		seen_length = length;
	}
	return true;
}

static struct message
message(uint8_t type, uint32_t flags)
{
	struct message m = {.type = type, .flags = flags, .options = 8};

	memcpy(m.source, net_gid(net_ip(1)).raw, 16);
	memcpy(m.dest, type == SOLICIT ? group : net_gid(net_ip(0)).raw, 16);
	memcpy(m.target, net_gid(net_ip(type == SOLICIT ? 0 : 1)).raw, 16);
	frame_mac(1, m.mac);
	frame_mac(1, m.ethernet);
	return m;
}

static uint32_t
make(const struct message *m, uint8_t *f)
{
	uint8_t *ip = f + ETH_BYTES, *nd = ip + IP6_BYTES;

	memset(f, 0, 256);
	memcpy(f, (const uint8_t[6]){0x33, 0x33, 0xff, 0, 0, 1}, 6);
	memcpy(f + 6, m->ethernet, 6);
	put16(f + 12, ETH_TYPE_IP6);
	put32(ip, 6u << 28);
	put16(ip + 4, (uint16_t)(24 + m->options));
	ip[6] = 58;
	ip[7] = 255;
	memcpy(ip + 8, m->source, 16);
	memcpy(ip + 24, m->dest, 16);
	nd[0] = m->type;
	put32(nd + 4, m->flags);
	memcpy(nd + 8, m->target, 16);
	nd[24] = m->type == SOLICIT ? 1 : 2;
	nd[25] = 1;
	memcpy(nd + 26, m->mac, 6);
	craft_icmp6(ip);
	return ETH_BYTES + IP6_BYTES + 24 + m->options;
}

/* A frame in a buffer of exactly its length. */
static void
give_bytes(struct net *n, const uint8_t *f, uint32_t length)
{
	uint8_t *exact = malloc(length ? length : 1);

	memcpy(exact, f, length);
	assert_int_equal(roce_input(n->node[0].port[0].ctx, exact, length, n->now), ROCE_DONE);
	free(exact);
	nic_flush(roce_nic_context(n->node[0].port[0].ctx), n->now);
}

static void
give(struct net *n, const struct message *m)
{
	uint8_t f[256];

	seen_length = 0;
	give_bytes(n, f, make(m, f));
}

static struct net *
create(struct roce_qp **qp)
{
	struct net *n;

	setenv("WEIR_NET", "six", 1);
	n = net_create(2, 1, NULL, 1);
	n->tap = see;
	*qp = (struct roce_qp *)net_qp(&n->node[0].port[0]);
	assert_int_equal(net_rtr((struct nic_qp *)*qp, &n->node[1], 5, 5), 0);
	return n;
}

static bool
knows(const struct roce_qp *qp, const uint8_t *mac)
{
	uint64_t known = neighbour_mac(qp->neighbour);

	return mac ? memcmp(&known, mac, 6) == 0 : !neighbour_known(qp->neighbour);
}

static void
check_sent(uint8_t type, uint32_t flags, const uint8_t *to_mac, const uint8_t *to)
{
	const uint8_t *ip = seen + ETH_BYTES, *nd = ip + IP6_BYTES;
	uint8_t own[6], again[128];

	frame_mac(0, own);
	assert_int_equal(seen_length, 86);
	assert_memory_equal(seen, to_mac, 6);
	assert_memory_equal(seen + 6, own, 6);
	assert_int_equal(get32(ip), 6u << 28);
	assert_int_equal(get16(ip + 4), 32);
	assert_int_equal(ip[6], 58);
	assert_int_equal(ip[7], 255);
	assert_memory_equal(ip + 8, net_gid(net_ip(0)).raw, 16);
	assert_memory_equal(ip + 24, to, 16);
	assert_int_equal(nd[0], type);
	assert_int_equal(get32(nd + 4), flags);
	assert_memory_equal(nd + 8, net_gid(net_ip(type == SOLICIT ? 1 : 0)).raw, 16);
	assert_int_equal(get16(nd + 24), type == SOLICIT ? 0x0101 : 0x0201);
	assert_memory_equal(nd + 26, own, 6);
	memcpy(again, seen, sizeof(again));
	craft_icmp6(again + ETH_BYTES);
	assert_memory_equal(again, seen, 86);
}

static void
asks(void **state)
{
	static const uint8_t mac[6] = {0x33, 0x33, 0xff, 0, 0, 2};
	struct roce_qp *qp;
	struct net *n = create(&qp);
	uint8_t to[16];

	memcpy(to, group, 16);
	to[15] = 2;
	roce_arp_ask(n->node[0].port[0].ctx, qp->neighbour, n->now + 1);
	check_sent(SOLICIT, 0, mac, to);
	net_run(n, 20000);
	frame_mac(1, to);
	assert_true(knows(qp, to));
	net_destroy(n);
}

static void
answers(void **state)
{
	static const uint8_t others[6] = {2, 0, 0, 0, 0, 9};
	struct message m = message(SOLICIT, 0);
	struct roce_qp *qp;
	struct net *n = create(&qp);

	give(n, &m);
	check_sent(ADVERTISE, SOLICITED | OVERRIDE, m.mac, m.source);
	assert_true(knows(qp, m.mac));
	/* the MAC of the option, not of the frame; that one, if there is no option */
	memcpy(m.ethernet, others, 6);
	give(n, &m);
	check_sent(ADVERTISE, SOLICITED | OVERRIDE, m.mac, m.source);
	m.options = 0;
	give(n, &m);
	check_sent(ADVERTISE, SOLICITED | OVERRIDE, others, m.source);
	assert_true(knows(qp, m.mac));
	/* who looks whether the address is taken is told through the group of all */
	memset(m.source, 0, 16);
	give(n, &m);
	check_sent(ADVERTISE, OVERRIDE, (const uint8_t[6]){0x33, 0x33, 0, 0, 0, 1}, all_nodes);
	/* others' addresses are others' */
	m = message(SOLICIT, 0);
	m.target[15] = 3;
	give(n, &m);
	assert_int_equal(seen_length, 0);
	/* a group as sender would make us flood the network */
	m = message(SOLICIT, 0);
	m.mac[0] |= 1;
	give(n, &m);
	assert_int_equal(seen_length, 0);
	net_destroy(n);
}

static void
learns(void **state)
{
	static const uint8_t moved[6] = {2, 0, 0, 0, 0, 9};
	struct message m = message(ADVERTISE, SOLICITED);
	struct roce_qp *qp;
	struct net *n = create(&qp);

	m.options = 0;
	give(n, &m);
	assert_true(knows(qp, NULL));
	m.options = 8;
	m.mac[0] |= 1;
	give(n, &m);
	assert_true(knows(qp, NULL));
	m.mac[0] &= 0xfe;
	give(n, &m);
	assert_true(knows(qp, m.mac));
	/* it has moved: only who says so is believed */
	memcpy(m.mac, moved, 6);
	give(n, &m);
	assert_false(knows(qp, moved));
	m.flags |= OVERRIDE;
	give(n, &m);
	assert_true(knows(qp, moved));
	/* nobody's peer, our own */
	m.target[15] = 3;
	give(n, &m);
	m.target[15] = 1;
	give(n, &m);
	assert_int_equal(net_counters(&n->node[0]).drop_not_ours, 2);
	assert_int_equal(seen_length, 0);
	net_destroy(n);
}

/* RFC 4861, 7.1: what must be thrown away. */
static void
invalid(void **state)
{
	static const struct {
		uint8_t at, change; /* at ETH_BYTES + `at` */
		bool sum;	    /* made right again */
		enum drop drop;
	} spoilt[] = {
	    {7, 1, true, DROP_bad_ip},		    /* a router has passed it on */
	    {40 + 1, 1, true, DROP_bad_ip},	    /* code */
	    {40 + 2, 1, false, DROP_bad_ip},	    /* checksum */
	    {40 + 5, 1, false, DROP_bad_ip},	    /* what it covers */
	    {8 + 15, 4, false, DROP_bad_ip},	    /* the addresses too */
	    {40 + 8, 0x01, true, DROP_bad_ip},	    /* target ff80:: */
	    {40 + 25, 1, true, DROP_bad_ip},	    /* option without length */
	    {40 + 25, 3, true, DROP_bad_ip},	    /* longer than the message */
	    {5, 0x20 ^ 0x17, true, DROP_too_short}, /* payload of 23 bytes */
	    {5, 0x20 ^ 0x1c, true, DROP_bad_ip},    /* half an option */
	    {5, 0x20 ^ 0x21, false, DROP_bad_ip},   /* more than the frame has */
	    {0, 0x20, true, DROP_bad_ip},	    /* version */
	    {8, 0x01, true, DROP_bad_ip},	    /* source ff80:: */
	    {6, 1, true, DROP_not_ours},	    /* another protocol */
	};
	struct roce_qp *qp;
	struct net *n = create(&qp);
	uint8_t f[256];

	for (uint8_t type = SOLICIT; type <= ADVERTISE; type++)
		for (unsigned i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++) {
			struct message m = message(type, type == SOLICIT ? 0 : SOLICITED);
			uint32_t length = make(&m, f);
			struct nic_counters before = net_counters(&n->node[0]), after;

			if (spoilt[i].at == 40 + 8)
				f[ETH_BYTES + 40 + 8] = 0xff;
			else if (spoilt[i].at == 8)
				f[ETH_BYTES + 8] = 0xff;
			else
				f[ETH_BYTES + spoilt[i].at] ^= spoilt[i].change;
			if (spoilt[i].sum)
				craft_icmp6(f + ETH_BYTES);
			seen_length = 0;
			give_bytes(n, f, length);
			after = net_counters(&n->node[0]);
			assert_int_equal(after.rx_accepted, before.rx_accepted);
			assert_int_equal(
			    after.drop_bad_ip + after.drop_too_short + after.drop_not_ours,
			    before.drop_bad_ip + before.drop_too_short + before.drop_not_ours + 1);
			assert_int_equal(after.drop_bad_ip - before.drop_bad_ip,
					 spoilt[i].drop == DROP_bad_ip);
			assert_int_equal(seen_length, 0);
			assert_true(knows(qp, NULL));
		}
	net_destroy(n);
}

static void
more_invalid(void **state)
{
	struct roce_qp *qp;
	struct net *n = create(&qp);
	struct message m = message(ADVERTISE, SOLICITED | OVERRIDE);
	uint8_t f[256];
	uint32_t length;

	/* nobody says he was asked by all */
	memcpy(m.dest, all_nodes, 16);
	give(n, &m);
	assert_true(knows(qp, NULL));
	/* who has no address has no MAC to tell, and asks the group */
	m = message(SOLICIT, 0);
	memset(m.source, 0, 16);
	give(n, &m);
	m.options = 0;
	memcpy(m.dest, net_gid(net_ip(0)).raw, 16);
	give(n, &m);
	assert_int_equal(seen_length, 0);
	/* other messages: an echo request */
	m = message(128, 0);
	give(n, &m);
	assert_int_equal(seen_length, 0);
	assert_int_equal(net_counters(&n->node[0]).drop_not_ours, 1);
	/* cut at every byte */
	m = message(SOLICIT, 0);
	length = make(&m, f);
	for (uint32_t i = 0; i < length; i++)
		give_bytes(n, f, i);
	assert_int_equal(net_counters(&n->node[0]).rx_accepted, 0);
	assert_int_equal(seen_length, 0);
	net_destroy(n);
}

static struct craft
sound_ack(const struct nic_qp *qp)
{
	struct craft c = net_craft(1, 0, RC_ACK, nic_qpn(qp), 4);

	c.aeth = true;
	c.syndrome = AETH(AETH_ACK, AETH_UNLIMITED);
	return c;
}

/* Headers of RoCE frames, whose ICRC is right all the same. */
static void
headers(void **state)
{
	static const struct {
		const char *net;
		uint8_t at, change;
		uint64_t drop; /* 0: taken */
	} cases[] = {
	    {"six", 14, 0x20, offsetof(struct nic_counters, drop_bad_ip)}, /* version */
	    {"six", 14, 0x03, 0},					   /* traffic class */
	    {"six", 15, 0xff, 0},					   /* and flow label */
	    {"six", 17, 0xff, 0},
	    {"six", 21, 0x80, 0},					   /* hop limit */
	    {"six", 18, 0x80, offsetof(struct nic_counters, drop_bad_ip)}, /* length */
	    {"six", 19, 0x04, offsetof(struct nic_counters, drop_bad_ip)},
	    {"six", 20, 0x10, offsetof(struct nic_counters, drop_not_ours)},   /* protocol */
	    {"six", 23, 0x01, offsetof(struct nic_counters, drop_wrong_peer)}, /* source */
	    {"six", 37, 0x01, offsetof(struct nic_counters, drop_wrong_peer)},
	    {"six", 39, 0x01, offsetof(struct nic_counters, drop_not_ours)}, /* destination */
	    {"six", 53, 0x01, offsetof(struct nic_counters, drop_not_ours)},
	    {"six", 60, 0xff, 0},					      /* UDP checksum */
	    {"vlan", 12, 0x01, offsetof(struct nic_counters, drop_not_ours)}, /* no tag */
	    {"vlan", 14, 0x01, offsetof(struct nic_counters, drop_not_ours)}, /* ID */
	    {"vlan", 15, 0x01, offsetof(struct nic_counters, drop_not_ours)},
	    {"vlan", 14, 0xf0, 0},					      /* priority */
	    {"vlan", 17, 0x01, offsetof(struct nic_counters, drop_not_ours)}, /* type */
	    {"six,vlan", 15, 0x01, offsetof(struct nic_counters, drop_not_ours)},
	    {"six,vlan", 18, 0x20, offsetof(struct nic_counters, drop_bad_ip)},
	    {"six,vlan", 14, 0x20, 0},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nic_counters before, after;
		struct nic_qp *a, *b;
		struct net *n;
		uint8_t plain[ETH_BYTES + 256], f[512];
		uint32_t length, front;

		setenv("WEIR_NET", cases[i].net, 1);
		n = net_create(2, 1, NULL, 1);
		net_connect(&n->node[0].port[0], &n->node[1].port[0], 5, &a, &b);
		front = n->node[0].dev->headers.front;
		struct craft c = sound_ack(a);
		length = craft_dress(&n->node[0].dev->headers, plain, craft_frame(&c, plain), f);
		f[cases[i].at] ^= cases[i].change;
		uint32_t crc = htole32(frame_icrc(net_six(), f + front, length - front - 4));
		memcpy(f + length - 4, &crc, 4);
		before = net_counters(&n->node[0]);
		give_bytes(n, f, length);
		after = net_counters(&n->node[0]);
		assert_int_equal(after.rx_accepted + after.drop_duplicate,
				 before.rx_accepted + before.drop_duplicate + !cases[i].drop);
		if (cases[i].drop)
			assert_int_equal(*(uint64_t *)(void *)((char *)&after + cases[i].drop), 1);
		/* cut anywhere it is refused, and nothing is read behind its end */
		f[cases[i].at] ^= cases[i].change;
		for (uint32_t k = 0; k < length; k++)
			give_bytes(n, f, k);
		assert_int_equal(net_counters(&n->node[0]).rx_accepted, after.rx_accepted);
		net_destroy(n);
	}
}

/* A checksum that the port has looked at isn't computed again; all else is looked at. */
static void
checked_by_port(void **state)
{
	uint8_t f[ETH_BYTES + 256];
	struct nic_qp *a, *b;
	struct net *n;
	uint32_t length;

	setenv("WEIR_NET", "", 1);
	n = net_create(2, 1, NULL, 1);
	net_connect(&n->node[0].port[0], &n->node[1].port[0], 5, &a, &b);
	struct craft c = sound_ack(a);
	length = craft_frame(&c, f);
	f[IP_AT + 11] ^= 1; /* not in the ICRC */
	give_bytes(n, f, length);
	assert_int_equal(net_counters(&n->node[0]).drop_bad_ip, 1);
	assert_int_equal(roce_input_checked(n->node[0].port[0].ctx, f, length, n->now), ROCE_DONE);
	assert_int_equal(net_counters(&n->node[0]).drop_bad_ip, 1);
	f[IP_AT] ^= 0x20;
	assert_int_equal(roce_input_checked(n->node[0].port[0].ctx, f, length, n->now), ROCE_DONE);
	assert_int_equal(net_counters(&n->node[0]).drop_bad_ip, 2);
	net_destroy(n);
}

/* A device has one kind of address, its peers the same. */
static void
other_kind(void **state)
{
	struct nic_qp_attr attr = {.state = NIC_QP_INIT};
	struct roce_qp *first;
	struct net *n = create(&first);
	struct nic_qp *qp = net_qp(&n->node[0].port[0]);
	struct nic_ah_attr to = {.gid = nic_gid_ipv4(net_ip(1))};
	struct nic_ah *ah;

	assert_int_equal(roce_ops.qp_modify(qp, &attr), 0);
	attr.state = NIC_QP_RTR;
	attr.remote_gid = nic_gid_ipv4(net_ip(1));
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -EINVAL);
	memset(attr.remote_gid.raw, 0, 16);
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -EINVAL);
	memcpy(attr.remote_gid.raw, all_nodes, 16);
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -EINVAL);
	attr.remote_gid = net_gid(net_ip(1));
	attr.remote_gid.raw[14] ^= 1; /* /120 */
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -ENETUNREACH);
	attr.remote_gid.raw[14] ^= 1;
	attr.remote_gid.raw[7] ^= 1;
	assert_int_equal(roce_ops.qp_modify(qp, &attr), -ENETUNREACH);
	attr.remote_gid.raw[7] ^= 1;
	assert_int_equal(roce_ops.qp_modify(qp, &attr), 0);
	assert_int_equal(roce_ops.ah_create(roce_nic_device(n->node[0].dev), &to, &ah), -EINVAL);
	net_destroy(n);
	setenv("WEIR_NET", "", 1);
	n = net_create(2, 1, NULL, 1);
	to.gid = craft_gid(true, net_ip(1));
	assert_int_equal(roce_ops.ah_create(roce_nic_device(n->node[0].dev), &to, &ah), -EINVAL);
	net_destroy(n);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(asks),	    cmocka_unit_test(answers),
	    cmocka_unit_test(learns),	    cmocka_unit_test(invalid),
	    cmocka_unit_test(more_invalid), cmocka_unit_test(headers),
	    cmocka_unit_test(other_kind),   cmocka_unit_test(checked_by_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
