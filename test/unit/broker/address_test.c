/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which node an address names, of each kind: by what membership says, by our own ports, by what
 * peers have offered; and what is said when it names none.
 */
#include "worlds/broker_net.h"

#include "broker/node.h"
#include "broker/rows.h"
#include "ipc/address.h"

#include <arpa/inet.h>

enum { OWN = 7, FIRST = 2, SECOND = 3 };

/* A member with up to four NICs, as control tells it. */
static void
tell(struct fake *f, uint32_t id, const char *const addresses[4], const uint16_t lids[4])
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_NODE, .length = weir_ctl_length(WEIR_CTL_NODE)};

	m.node.id = id;
	m.node.self = id == OWN;
	m.node.state = WEIR_NODE_UP;
	m.node.incarnation = 1;
	m.node.engines = 1;
	for (; m.node.address_count < 4 && addresses[m.node.address_count]; m.node.address_count++)
		assert_int_equal(inet_pton(AF_INET6, addresses[m.node.address_count],
					   m.node.address[m.node.address_count]),
				 1);
	memcpy(m.node.lid, lids, 4 * sizeof(lids[0]));
	assert_int_equal(weir_ctl_check(&m, m.length), 0);
	fake_told(f, &m);
}

static struct fake *
open_cluster(void)
{
	struct fake_config c = {.engines = 1, .node = OWN, .lid = 41};
	struct weir_ctl_msg synced = {.type = WEIR_CTL_SYNCED,
				      .length = weir_ctl_length(WEIR_CTL_SYNCED)};
	struct fake *f = fake_open(&c);

	tell(f, OWN, (const char *const[4]){"::ffff:10.0.0.7", "fd00::7"}, (uint16_t[4]){40});
	tell(f, FIRST, (const char *const[4]){"::ffff:10.0.0.2", "fe80::202:c9ff:fe03:2"},
	     (uint16_t[4]){12, 49151});
	tell(f, SECOND,
	     (const char *const[4]){"::ffff:10.0.0.3", "::ffff:10.1.0.3", "fd00::3", "fe80::3"},
	     (uint16_t[4]){0});
	broker_control_input(f->b, &synced);
	return f;
}

/* The node that `text` names, or -errno. */
static int
names(struct fake *f, const char *text)
{
	struct broker_node *n;
	struct weir_address a;
	int rc;

	assert_int_equal(weir_address_read(text, &a, NULL), 0);
	rc = node_resolve(f->b, &a, &n);
	if (rc)
		return rc;
	return n ? (int)n->is.id : OWN;
}

TEST_FAKE_FROM(test_kinds, open_cluster())
{
	static const struct {
		const char *text;
		int node;
	} known[] = {
	    {"node:2:s", FIRST},
	    {"10.0.0.2:s", FIRST},
	    {"gid:[::ffff:10.0.0.2]:s", FIRST}, /* an IPv4 address and its GID are one */
	    {"[::ffff:10.0.0.2]:s", FIRST},
	    {"gid:[::ffff:a00:2]:s", FIRST},
	    {"gid:[fe80::202:c9ff:fe03:2]:s", FIRST},
	    {"[fe80:0::202:c9ff:fe03:2]:s", FIRST},
	    {"lid:12:s", FIRST},
	    {"lid:49151:s", FIRST},
	    {"10.0.0.3:s", SECOND}, /* each of its NICs */
	    {"10.1.0.3:s", SECOND},
	    {"[fd00::3]:s", SECOND},
	    {"gid:[fe80::3]:s", SECOND},
	    {"node:3:s", SECOND},
	    {"node:7:s", OWN},
	    {"10.0.0.7:s", OWN},
	    {"gid:[::ffff:10.0.0.7]:s", OWN},
	    {"[fd00::7]:s", OWN},
	    {"127.0.0.1:s", OWN},
	    {"127.8.9.10:s", OWN},
	    {"[::1]:s", OWN},
	    {"lid:40:s", OWN}, /* as the peers file has it */
	    {"lid:41:s", OWN}, /* as our port says */
	    {"node:9:s", -EHOSTUNREACH},
	    {"node:65534:s", -EHOSTUNREACH},
	    {"10.0.0.4:s", -EHOSTUNREACH},
	    {"0.0.0.0:s", -EHOSTUNREACH},
	    {"255.255.255.255:s", -EHOSTUNREACH},
	    {"[fd00::2]:s", -EHOSTUNREACH},
	    {"[::]:s", -EHOSTUNREACH},
	    {"[::10.0.0.2]:s", -EHOSTUNREACH}, /* not the mapped form */
	    {"gid:[fe80::4]:s", -EHOSTUNREACH},
	    {"lid:13:s", -EHOSTUNREACH},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		int node = names(f, known[i].text);

		if (node != known[i].node)
			fail_msg("%s names %d, not %d", known[i].text, node, known[i].node);
	}
}

/* Rubbish from a program that doesn't use weir_address_parse(). */
TEST_FAKE_FROM(test_malformed, open_cluster())
{
	struct weir_address a = {.service = "s"};
	struct broker_node *n;

	for (a.kind = 0; a.kind < 3; a.kind++) {
		const uint32_t kinds[] = {WEIR_ADDRESS_NONE, WEIR_ADDRESS_LID + 1, UINT32_MAX};
		struct weir_address bad = {.kind = kinds[a.kind], .service = "s"};

		assert_int_equal(node_resolve(f->b, &bad, &n), -EINVAL);
	}
	a.kind = WEIR_ADDRESS_LID;
	assert_int_equal(node_resolve(f->b, &a, &n), -EINVAL); /* 0: nobody's, though unused */
	a.id = 65536 + 12;
	assert_int_equal(node_resolve(f->b, &a, &n), -EINVAL);
	a.kind = WEIR_ADDRESS_NODE;
	a.id = 65535;
	assert_int_equal(node_resolve(f->b, &a, &n), -EHOSTUNREACH);
	a.id = UINT32_MAX;
	assert_int_equal(node_resolve(f->b, &a, &n), -EHOSTUNREACH);
}

static void
refused(struct fake *f, const char *text, int32_t code, const char *reason)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};
	struct fake_session s;

	assert_int_equal(weir_address_read(text, &m.connect.address, NULL), 0);
	fake_program(f, &s);
	assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_REFUSED);
	assert_int_equal(s.reply.refused.code, code);
	assert_non_null(strstr(s.reply.refused.reason, reason));
	fake_leave(f, &s);
}

/* Ids are 0 to 65534: the 65,536th node has none, whoever speaks of it. */
TEST_FAKE(test_most_nodes, ((const struct fake_config){.engines = 1, .node = OWN}))
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_NODE, .length = weir_ctl_length(WEIR_CTL_NODE)};
	struct weir_address a = {.kind = WEIR_ADDRESS_NODE, .service = "s"};
	struct broker_node *n;
	char text[32];

	for (uint32_t id = 0; id < 65535; id++) {
		m.node.id = id;
		m.node.self = id == OWN;
		m.node.state = WEIR_NODE_UP;
		m.node.incarnation = m.node.engines = m.node.address_count = 1;
		memcpy(m.node.address[0], nic_gid_ipv4(0x0a000000 + id).raw, 16);
		assert_int_equal(weir_ctl_check(&m, m.length), 0);
		broker_control_input(f->b, &m);
	}
	fake_run(f);
	assert_int_equal(f->b->node_count, 65535);
	for (uint32_t id = 0; id < 65535; id += 4681) {
		snprintf(text, sizeof(text), "node:%u:s", id);
		assert_int_equal(names(f, text), id);
	}
	assert_int_equal(names(f, "10.0.255.254:s"), 65534);
	m.node.id = 65535;
	assert_int_equal(weir_ctl_check(&m, m.length), -EBADMSG);
	assert_int_equal(weir_address_read("node:65535:s", &a, NULL), -EINVAL);
	a.id = 65535;
	assert_int_equal(node_resolve(f->b, &a, &n), -EHOSTUNREACH);
}

static uint32_t
nodes_shown(struct fake *f)
{
	struct rows_query *q = rows_open(f->b, WEIR_ROWS_NODES, NULL, NULL);
	uint32_t n = 0;

	do {
		assert_true(rows_next(q));
		n += q->page->rows.count;
	} while (q->page->rows.more);
	rows_close(q);
	return n;
}

/* A host comes back with another id: its address names the one that lives; the other is forgotten.
 */
TEST_FAKE_FROM(test_gone, open_cluster())
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_NODE, .length = weir_ctl_length(WEIR_CTL_NODE)};
	uint32_t shown = nodes_shown(f);

	fake_node(f, FIRST, WEIR_NODE_DOWN, 1, 1);
	tell(f, 77, (const char *const[4]){"::ffff:10.0.0.2"}, (uint16_t[4]){0});
	assert_int_equal(names(f, "10.0.0.2:s"), 77);
	assert_int_equal(nodes_shown(f), shown + 1);
	m.node.id = FIRST;
	m.node.state = WEIR_NODE_GONE;
	assert_int_equal(weir_ctl_check(&m, m.length), 0);
	fake_told(f, &m);
	assert_int_equal(nodes_shown(f), shown);
	refused(f, "node:2:s", EHOSTDOWN, "down");
	tell(f, FIRST, (const char *const[4]){"::ffff:10.0.0.9"}, (uint16_t[4]){0});
	assert_int_equal(names(f, "10.0.0.9:s"), FIRST);
	assert_int_equal(nodes_shown(f), shown + 1);
}

/* A control that was started again without a list has heard of nobody yet. */
TEST_FAKE_FROM(test_control_restarted, open_cluster())
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_NODE, .length = weir_ctl_length(WEIR_CTL_NODE)};

	m.node.id = FIRST;
	m.node.state = WEIR_NODE_JOINING;
	fake_told(f, &m);
	assert_int_equal(names(f, "10.0.0.2:s"), FIRST);
	assert_int_equal(names(f, "lid:12:s"), FIRST);
	/* what it knows from a list goes for it */
	tell(f, SECOND, (const char *const[4]){"::ffff:10.0.0.30"}, (uint16_t[4]){0});
	assert_int_equal(names(f, "10.0.0.30:s"), SECOND);
	assert_int_equal(names(f, "10.0.0.3:s"), -EHOSTUNREACH);
}

/* A control with another list, or another id for us, leaves nothing of the former one behind. */
TEST_FAKE_FROM(test_other_control, open_cluster())
{
	const struct weir_ctl_msg hello = {
	    .type = WEIR_CTL_HELLO, .length = weir_ctl_length(WEIR_CTL_HELLO), .hello.node = OWN};
	struct weir_ctl_msg m = {.type = WEIR_CTL_NODE, .length = weir_ctl_length(WEIR_CTL_NODE)};
	uint32_t shown = nodes_shown(f);

	m.node.id = 50;
	m.node.state = WEIR_NODE_JOINING; /* of a list, and never heard */
	fake_told(f, &m);
	assert_int_equal(nodes_shown(f), shown + 1);
	broker_control_input(f->b, &hello);
	fake_node(f, SECOND, WEIR_NODE_DOWN, 1, 1);
	f->now += f->b->config.repair_timeout_ns;
	fake_run(f);
	assert_int_equal(nodes_shown(f), shown);
	refused(f, "node:2:s", EHOSTDOWN, "down");
	f->now += 60 * BROKER_SECOND_NS;
	fake_run(f);
	assert_int_equal(nodes_shown(f), shown - 1); /* of SECOND it has spoken */
	refused(f, "10.0.0.2:s", EHOSTUNREACH, "no member");
	/* our id is another; then another host has that one, which was started before us */
	tell(f, OWN, (const char *const[4]){"::ffff:10.0.0.7"}, (uint16_t[4]){40});
	m.node.id = OWN + 1;
	m.node.self = 1;
	m.node.state = WEIR_NODE_UP;
	m.node.incarnation = 9;
	fake_told(f, &m);
	assert_int_equal(f->b->node, OWN + 1);
	assert_int_equal(nodes_shown(f), shown - 1);
	refused(f, "node:7:s", EHOSTDOWN, "down");
	node_find(f->b, OWN)->is.incarnation = 1000;
	fake_node(f, OWN, WEIR_NODE_UP, 5, 1);
	assert_true(node_find(f->b, OWN)->is.incarnation == 5);
	assert_int_equal(names(f, "node:7:s"), OWN);
	assert_int_equal(nodes_shown(f), shown);
}

/* The reason says what is to be done. */
TEST(test_reasons)
{
	struct fake_config c = {.engines = 1, .node = UINT32_MAX};
	struct fake *f = open_cluster();

	refused(f, "10.0.0.4:s", EHOSTUNREACH, "no member of the cluster has this address");
	refused(f, "lid:13:s", EHOSTUNREACH, "no member of the cluster has this address");
	refused(f, "gid:[fe80::4]:s", EHOSTUNREACH, "no member of the cluster has this address");
	refused(f, "127.0.0.1:nobody", ECONNREFUSED, "nobody");
	fake_node(f, FIRST, WEIR_NODE_DOWN, 1, 1);
	refused(f, "node:2:s", EHOSTDOWN, "down");
	fake_close(f);

	f = fake_open(&c); /* without a control */
	refused(f, "10.0.0.2:s", EHOSTUNREACH, "start weir-control");
	refused(f, "node:2:s", EHOSTUNREACH, "start weir-control");
	fake_close(f);
}

/* A LID that no peers file lists is known once the peer's port has told it with its offer. */
TEST_NET(test_lid_of_offer, open_net_of_two)
{
	n->f[0]->b->attr[0].lid = 101;
	n->f[1]->b->attr[0].lid = 102;
	assert_int_equal(names(n->f[0], "lid:102:s"), -EHOSTUNREACH);
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	exchange_and_join(n);
	assert_int_equal(names(n->f[0], "lid:102:s"), 2);
	assert_int_equal(names(n->f[1], "lid:101:s"), 1);
	assert_int_equal(names(n->f[0], "lid:103:s"), -EHOSTUNREACH);
}
