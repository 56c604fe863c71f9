/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows for operators: status, links, users, why a node is not reached; settings of ports. */
#include "worlds/broker_sockets.h"

#include "broker/link.h"
#include "broker/node.h"
#include "broker/rows.h"
#include "broker/set.h"
#include "broker/status.h"

/* Row `index` of a kind as weirctl gets it; NULL: there are fewer. */
static const void *
row_of(struct fake *f, uint32_t kind, uint32_t index)
{
	static union ctl copy;
	struct rows_query *q = rows_open(f->b, kind, NULL, NULL);
	const void *row = NULL;
	bool more = true;

	while (more && !row) {
		assert_true(rows_next(q));
		assert_int_equal(weir_ctl_check(q->page, q->page->length), 0);
		memcpy(&copy, q->page, q->page->length);
		more = copy.m.rows.more;
		if (index < copy.m.rows.count)
			row = (const char *)copy.m.rows.records + index * copy.m.rows.record_bytes;
		else
			index -= copy.m.rows.count;
	}
	rows_close(q);
	return row;
}

/* The value of a line of the status; NULL: there is none. */
static const char *
line_of(struct fake *f, const char *name)
{
	const struct weir_row_fact *r;

	for (uint32_t i = 0; (r = row_of(f, WEIR_ROWS_STATUS, i)); i++)
		if (!strcmp(r->name, name))
			return r->value;
	return NULL;
}

static void
says(struct fake *f, const char *name, const char *value)
{
	const char *is = line_of(f, name);

	if (!is || strcmp(is, value))
		fail_msg("%s is '%s', not '%s'", name, is ? is : "not there", value);
}

static const struct weir_row_node *
node_of(struct fake *f, uint32_t id)
{
	const struct weir_row_node *r;

	for (uint32_t i = 0; (r = row_of(f, WEIR_ROWS_NODES, i)); i++)
		if (r->is.id == id)
			return r;
	fail_msg("node %u is not shown", id);
	return NULL;
}

TEST_FAKE(test_status, two_engines)
{
	struct fake_session s = {0};

	fake_program(f, &s);
	fake_node(f, 9, WEIR_NODE_UP, 5, 1);
	fake_node(f, 10, WEIR_NODE_DOWN, 5, 1);
	f->now += 93784 * BROKER_SECOND_NS; /* a day, 2 h, 3 min, 4 s */
	says(f, "state", "serving");
	says(f, "node", "7");
	says(f, "uptime", "1 d 02:03:04");
	says(f, "other nodes", "1 up, 0 suspect, 0 joining, 1 down");
	says(f, "programs", "1 of 8");
	says(f, "connections", "0 of 100000");
	says(f, "ports", "1 of 1 have a link");
	says(f, "links", "0 of 0 are up");
	says(f, "control", "not connected; start weir-control");
	f->b->draining = true;
	assert_non_null(strstr(line_of(f, "state"), "draining"));
}

/* A control tells its lines again, others, or none; when it goes they go. */
TEST_FAKE(test_facts, with_sockets)
{
	struct weir_ctl_msg m = {.fact = {"certificate", "weir://x, 12 days left", "weir-control"}};
	struct weir_ctl_msg version = {.fact = {"weir-control", "1.2.3", "weir-control"}};
	const struct weir_row_fact *r;
	union ctl in;
	int fd = ctl_open(f, WEIR_ROLE_CONTROL, &in), other;

	ctl_send(fd, &m, WEIR_CTL_FACT);
	ctl_send(fd, &version, WEIR_CTL_FACT);
	fake_run(f);
	says(f, "control", "connected");
	says(f, "certificate", "weir://x, 12 days left");
	assert_null(line_of(f, "weir-control")); /* that is a version */
	r = row_of(f, WEIR_ROWS_VERSION, 0);
	assert_string_equal(r->name, "weir-control");
	assert_string_equal(r->value, "1.2.3");
	snprintf(m.fact.value, sizeof(m.fact.value), "11 days left");
	ctl_send(fd, &m, WEIR_CTL_FACT);
	fake_run(f);
	says(f, "certificate", "11 days left");
	m.fact.value[0] = '\0';
	ctl_send(fd, &m, WEIR_CTL_FACT);
	fake_run(f);
	assert_null(line_of(f, "certificate"));
	/* no more than there is room for */
	for (uint32_t i = 0; i < 2 * BROKER_FACTS; i++) {
		snprintf(m.fact.name, sizeof(m.fact.name), "line %u", i);
		snprintf(m.fact.value, sizeof(m.fact.value), "%u", i);
		ctl_send(fd, &m, WEIR_CTL_FACT);
		fake_run(f);
	}
	assert_int_equal(f->b->fact_count, BROKER_FACTS);
	/* nobody else tells */
	other = ctl_open(f, WEIR_ROLE_QUERY, &in);
	ctl_send(other, &m, WEIR_CTL_FACT);
	assert_true(get(f, other, &in, sizeof(in), NULL) > 0);
	assert_int_equal(in.m.type, WEIR_CTL_ERROR);
	close(other);
	close(fd);
	fake_run(f);
	says(f, "control", "not connected; start weir-control");
	assert_null(line_of(f, "line 3"));
	assert_null(row_of(f, WEIR_ROWS_VERSION, 0));
}

/* The ports' networks: 10.0.0.7/24 and, on engine 1, 10.1.0.7/24. */
static void
networks(struct fake *f)
{
	f->b->attr[0].prefix = f->b->attr[1].prefix = 96 + 24;
	f->b->attr[1].gid.raw[13] = 1;
}

/* A node at 10.2.0.ID. */
static void
far_node(struct fake *f, uint32_t id)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_NODE, .length = weir_ctl_length(WEIR_CTL_NODE)};

	m.node.id = id;
	m.node.state = WEIR_NODE_UP;
	m.node.incarnation = 5;
	m.node.engines = 1;
	m.node.address_count = 1;
	memcpy(m.node.address[0], nic_gid_ipv4(0x0a020000 + id).raw, 16);
	fake_told(f, &m);
}

/* NICs in different networks: refused at once, and shown before anybody tries. */
TEST_FAKE(test_other_network, two_engines)
{
	struct fake_session s = {0};

	networks(f);
	fake_program(f, &s);
	fake_node(f, 9, WEIR_NODE_UP, 5, 1);
	far_node(f, 8);
	assert_int_equal(fake_connect(f, &s, 8, "echo", 0), WEIR_MSG_REFUSED);
	assert_int_equal(s.reply.refused.code, EHOSTUNREACH);
	assert_non_null(strstr(s.reply.refused.reason,
			       "node 8 has 10.2.0.8, which is not in 10.0.0.7/24; give both"));
	assert_int_equal(f->count[ENGINE_CONN_OPEN], 0);
	assert_string_equal(node_of(f, 8)->link, "no way");
	assert_non_null(strstr(node_of(f, 8)->link_reason, "10.2.0.8, which is not in"));
	assert_non_null(strstr(line_of(f, "unreachable"), "node 8 has 10.2.0.8"));
	/* the one in a network of ours is reached, by the address in it */
	assert_int_equal(fake_connect(f, &s, 9, "echo", 0), WEIR_MSG_CONNECTING);
	assert_string_equal(node_of(f, 9)->link_address, "10.0.0.9");
	assert_string_equal(node_of(f, 9)->link_reason, "");
	/* a port without a network may have any GID as its peer */
	f->b->attr[1].prefix = 0;
	assert_int_equal(fake_connect(f, &s, 8, "echo", 0), WEIR_MSG_CONNECTING);
	assert_null(line_of(f, "unreachable"));
}

/* A gateway makes it reachable, by the engine that has one; a port in the node's network goes
 * first. */
TEST_FAKE(test_gateway, two_engines)
{
	static const struct nic_route route = {
	    {{[10] = 0xff, 0xff, 10, 2}}, {{[10] = 0xff, 0xff, 10, 1, 0, 1}}, 96 + 16};
	struct fake_session s = {0};

	networks(f);
	fake_program(f, &s);
	fake_node(f, 9, WEIR_NODE_UP, 5, 1); /* 10.0.0.9 */
	far_node(f, 8);
	f->b->attr[1].routes = &route;
	f->b->attr[1].route_count = 1;
	assert_string_not_equal(node_of(f, 8)->link, "no way");
	assert_string_equal(node_of(f, 8)->link_address, "10.2.0.8");
	assert_int_equal(node_engine(f->b, node_find(f->b, 8), 0), 1);
	assert_int_equal(node_engine(f->b, node_find(f->b, 9), 1), 0);
}

/* A node that has told no address yet is not out of reach: the link says. */
TEST_FAKE(test_no_address_yet, two_engines)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_NODE, .length = weir_ctl_length(WEIR_CTL_NODE)};
	struct fake_session s = {0};

	networks(f);
	fake_program(f, &s);
	m.node.id = 8;
	m.node.state = WEIR_NODE_UP;
	fake_told(f, &m);
	assert_string_equal(node_of(f, 8)->link, "none");
	assert_string_equal(node_of(f, 8)->link_reason, "its data plane is not known yet");
	assert_int_equal(fake_connect(f, &s, 8, "echo", 0), WEIR_MSG_CONNECTING);
}

TEST_FAKE(test_links, two_engines)
{
	const struct weir_row_link *l;
	struct fake_session s = {0};

	fake_program(f, &s);
	fake_node(f, 9, WEIR_NODE_UP, 5, 1);
	assert_null(row_of(f, WEIR_ROWS_LINKS, 0));
	assert_string_equal(node_of(f, 9)->link, "none");
	assert_int_equal(fake_connect(f, &s, 9, "echo", 0), WEIR_MSG_CONNECTING);
	assert_string_equal(node_of(f, 9)->link, "setup");
	l = row_of(f, WEIR_ROWS_LINKS, 0);
	assert_non_null(l);
	assert_int_equal(l->node, 9);
	assert_string_equal(l->state, "offered");
	assert_string_equal(l->address, "10.0.0.7");
	assert_string_equal(l->peer_address, "");
	assert_int_equal(l->open, 0);
	assert_true(l->memory >= 256 * WEIR_SLOT_SIZE);
	says(f, "links", "0 of 1 are up");
	fake_node(f, 9, WEIR_NODE_DOWN, 5, 1);
	assert_string_equal(node_of(f, 9)->link_reason, "the node is down");
}

TEST_FAKE(test_users,
	  ((const struct fake_config){.engines = 2, .node = 7, .limits = "1234:sessions=3"}))
{
	struct fake_session s = {0};
	const struct weir_row_user *u;
	bool seen = false;

	assert_int_equal(fake_attach_by(f, &s, 1234, "one"), WEIR_MSG_WELCOME);
	for (uint32_t i = 0; (u = row_of(f, WEIR_ROWS_USERS, i)); i++) {
		if (u->uid != 1234)
			continue;
		seen = true;
		assert_int_equal(u->named, 1);
		assert_int_equal(u->sessions, 1);
		assert_int_equal(u->sessions_max, 3);
		assert_true(u->memory >= 1 << 20);
		assert_int_equal(u->connections_max, 0);
	}
	assert_true(seen);
}

/* ---- settings of ports ---- */

static char asked[160];

static int
port_set(void *user, const char *port, const char *key, const char *value, char *error, size_t size)
{
	snprintf(asked, sizeof(asked), "%s %s %s", port, key, value);
	return 1;
}

static bool
port_setting(void *user, uint32_t index, struct weir_row_setting *r)
{
	if (index > 1)
		return false;
	snprintf(r->key, sizeof(r->key), "port.0000:03:00.%u.loss", index);
	snprintf(r->value, sizeof(r->value), "0");
	return true;
}

/* Names of PCI devices have dots in them; what lies behind these settings is still shown. */
TEST_FAKE(test_port_settings, two_engines)
{
	struct weir_row_setting r;
	char reason[160];
	unsigned ports = 0, users = 0;

	assert_int_equal(setting_set(f->b, "port.x.loss", "1", reason, sizeof(reason)), -EINVAL);
	f->b->config.port_set = port_set;
	f->b->config.port_setting = port_setting;
	assert_int_equal(setting_set(f->b, "port.0000:03:00.1.loss", "2", reason, sizeof(reason)),
			 1);
	assert_string_equal(asked, "0000:03:00.1 loss 2");
	assert_int_equal(setting_set(f->b, "port.loss", "1", reason, sizeof(reason)), -EINVAL);
	assert_non_null(strstr(reason, "give port.NAME.KEY"));
	for (uint32_t i = 0; memset(&r, 0, sizeof(r)), setting_row(f->b, i, &r); i++) {
		ports += !strncmp(r.key, "port.", 5);
		users += !strncmp(r.key, "user.*.", 7);
	}
	assert_int_equal(ports, 2);
	assert_int_equal(users, USER_LIMITS + 2); /* rate and priority */
}
