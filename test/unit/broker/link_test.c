/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links between two brokers whose controls are the test: offers that cross, come twice, late,
 * garbled or not at all; peers that restart, go and come; links that break.
 */
#include "worlds/broker_net.h"

#include "broker/link.h"
#include "broker/node.h"
#include "broker/quota.h"
#include "broker/session.h"

TEST_NET(test_bring_up, open_net_of_two)
{
	struct engine_command *c;

	assert_int_equal(fake_connect(n->f[0], &n->s[0], 2, "echo", 0),
			 WEIR_MSG_CONNECTING); /* at once */
	assert_int_equal(n->f[0]->last[ENGINE_CONN_OPEN].conn.link, ENGINE_LINK_NONE);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 0);
	assert_int_equal(exchange(n), 3); /* offer, answer, confirmation */
	assert_joined(n);
	c = &n->f[0]->last[ENGINE_CONN_START];
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 1);
	assert_int_equal(c->conn.vqpn, n->s[0].reply.connecting.vqpn);
	assert_int_equal(c->conn.status, 0);
	assert_int_equal(c->conn.link, the_link(n, 0)->id);
	/* the next one goes straight */
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_OPEN].conn.link, the_link(n, 0)->id);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 1);
	assert_int_equal(n->f[0]->output_count, 0);
}

/* Engine i and peer engine i mod E', whichever side begins. */
TEST(test_engine_pairs)
{
	struct net n;
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};

	net_open(&n, 1, 3);
	m.connect.address.kind = WEIR_ADDRESS_IPV4;
	memcpy(m.connect.address.ip, (uint8_t[]){10, 0, 0, 1}, 4);
	snprintf(m.connect.address.service, sizeof(m.connect.address.service), "echo");
	for (uint32_t i = 0; i < 3; i++) {
		m.connect.channel = i;
		assert_int_equal(fake_ask(n.f[1], &n.s[1], &m), WEIR_MSG_CONNECTING);
		exchange(&n);
		assert_int_equal(link_find(n.f[1]->b, i, 1, 0)->state, LINK_UP);
		assert_int_equal(link_find(n.f[0]->b, 0, 2, i)->state, LINK_UP);
	}
	assert_int_equal(n.f[0]->links, 3);
	fake_connect(n.f[0], &n.s[0], 2, "echo", 0);
	assert_int_equal(n.f[0]->output_count, 0); /* 0 - 0 is there already */
	net_close(&n);
}

static uint32_t
connect_as(struct net *n, uint32_t class, uint32_t flags)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};

	m.connect.flags = flags;
	m.connect.class = class;
	m.connect.address.kind = WEIR_ADDRESS_NODE;
	m.connect.address.id = flags & WEIR_CONNECT_LOOP ? 1 : 2;
	snprintf(m.connect.address.service, sizeof(m.connect.address.service), "echo");
	return fake_ask(n->f[0], &n->s[0], &m);
}

static void
set(struct net *n, const char *key, const char *value)
{
	char why[160];

	assert_true(quota_set(n->f[0]->b, key, value, why, sizeof(why)) >= 0);
}

/* Each class has a link of its own, whose packets are marked alike at both ends. */
TEST_NET(test_classes, open_net_of_two)
{
	static const uint8_t marks[WEIR_CLASSES] = {0x10, 0x20, 0x68};
	uint32_t ids = 0;

	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < WEIR_CLASSES; k++) {
			n->f[i]->b->config.engine[0].mark[k].traffic_class = marks[k];
			n->f[i]->b->config.engine[0].mark[k].priority = (uint8_t)(k + 2);
		}
	set(n, "user.*.priority", "high");
	for (uint32_t class = 0; class < WEIR_CLASSES; class ++) {
		assert_int_equal(connect_as(n, class, 0), WEIR_MSG_CONNECTING);
		exchange(n);
		for (unsigned i = 0; i < 2; i++) {
			struct broker_link *l = link_find(n->f[i]->b, 0, 2 - i, WEIR_END(0, class));

			assert_non_null(l);
			assert_int_equal(l->state, LINK_UP);
			assert_true(l->open);
			for (unsigned k = 0; k < 2; k++) {
				struct fake_qp *q = (struct fake_qp *)l->qp[k];

				assert_int_equal(q->traffic_class, marks[class]);
				assert_int_equal(q->priority, class + 2);
			}
			if (!i) {
				assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.link, l->id);
				ids |= 1u << l->id;
			}
		}
		assert_int_equal(n->f[0]->last[ENGINE_LINK_ADD].link.class, class);
		assert_int_equal(n->f[0]->last[ENGINE_LINK_ADD].link.peer_engine, 0);
	}
	assert_int_equal(__builtin_popcount(ids), WEIR_CLASSES);
	assert_int_equal(n->f[0]->links, WEIR_CLASSES);
	/* further connections share them */
	connect_as(n, WEIR_CLASS_LOW, 0);
	assert_int_equal(n->f[0]->output_count, 0);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_OPEN].conn.link,
			 link_find(n->f[0]->b, 0, 2, WEIR_END(0, WEIR_CLASS_LOW))->id);
}

TEST_NET(test_class_offers, open_net_of_two)
{
	struct weir_ctl_msg m;

	assert_int_equal(connect_as(n, WEIR_CLASS_LOW, 0), WEIR_MSG_CONNECTING);
	m = take_output(n->f[0], 0);
	assert_int_equal(m.link.engine, WEIR_END(0, WEIR_CLASS_LOW));
	assert_int_equal(m.link.peer_engine, WEIR_END(0, WEIR_CLASS_LOW));
	/* an end of another class, and classes that do not exist */
	m.link.engine = WEIR_END(0, WEIR_CLASS_NORMAL);
	hand_over(n, 0, &m);
	m.link.engine = m.link.peer_engine = WEIR_END(0, WEIR_CLASSES);
	hand_over(n, 0, &m);
	m.link.engine = m.link.peer_engine = WEIR_END(0, 7);
	hand_over(n, 0, &m);
	assert_int_equal(n->f[1]->b->counters.offers_bad, 3);
	assert_int_equal(n->f[1]->links, 0);
	/* control asks for it again */
	m = (struct weir_ctl_msg){.type = WEIR_CTL_RESYNC,
				  .length = weir_ctl_length(WEIR_CTL_RESYNC)};
	m.link_down.node = 2;
	m.link_down.peer_node = 1;
	m.link_down.engine = m.link_down.peer_engine = WEIR_END(0, WEIR_CLASS_LOW);
	fake_told(n->f[0], &m);
	assert_int_equal(n->f[0]->output_count, 1);
	exchange(n);
	assert_int_equal(link_find(n->f[1]->b, 0, 1, WEIR_END(0, WEIR_CLASS_LOW))->state, LINK_UP);
	assert_null(link_find(n->f[1]->b, 0, 1, 0));
}

/* Operators decide who may connect with priority high, and which programs have another one. */
TEST_NET(test_class_rights, open_net_of_two)
{
	char key[64], why[160];

	assert_int_equal(connect_as(n, WEIR_CLASSES, 0), WEIR_MSG_REFUSED);
	assert_int_equal(n->s[0].reply.refused.code, EINVAL);
	assert_int_equal(connect_as(n, WEIR_CLASS_HIGH, 0), WEIR_MSG_REFUSED);
	assert_int_equal(n->s[0].reply.refused.code, EACCES);
	assert_non_null(strstr(n->s[0].reply.refused.reason, ".priority high"));
	assert_int_equal(n->f[0]->links, 0);
	set(n, "user.*.priority", "high");
	assert_int_equal(connect_as(n, WEIR_CLASS_HIGH, 0), WEIR_MSG_CONNECTING);
	set(n, "user.*.priority", "normal");
	assert_int_equal(connect_as(n, WEIR_CLASS_HIGH, 0), WEIR_MSG_REFUSED);
	/* of one program: also what asks for none */
	snprintf(key, sizeof(key), "program.%s.priority", n->s[0].s->name);
	set(n, key, "high");
	assert_int_equal(connect_as(n, WEIR_CLASS_HIGH, 0), WEIR_MSG_CONNECTING);
	assert_int_equal(connect_as(n, WEIR_CLASS_NORMAL, 0), WEIR_MSG_CONNECTING);
	assert_null(link_find(n->f[0]->b, 0, 2, 0));
	snprintf(key, sizeof(key), "session.%u.priority", n->s[0].s->id);
	set(n, key, "low");
	assert_int_equal(connect_as(n, WEIR_CLASS_NORMAL, 0), WEIR_MSG_CONNECTING);
	assert_non_null(link_find(n->f[0]->b, 0, 2, WEIR_END(0, WEIR_CLASS_LOW)));
	assert_int_equal(quota_set(n->f[0]->b, key, "higher", why, sizeof(why)), -EINVAL);
	assert_int_equal(quota_set(n->f[0]->b, "user.*.priority", "low", why, sizeof(why)),
			 -EINVAL);
}

TEST_NET(test_crossing, open_net_of_two)
{
	struct weir_ctl_msg a, b;

	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	fake_connect(n->f[1], &n->s[1], 1, "echo", 0);
	a = take_output(n->f[0], 0);
	b = take_output(n->f[1], 0);
	hand_over(n, 0, &a);
	hand_over(n, 1, &b);
	exchange_and_join(n);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_ADD], 1);
	assert_int_equal(n->f[1]->count[ENGINE_LINK_ADD], 1);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 1);
	assert_int_equal(n->f[1]->count[ENGINE_CONN_START], 1);
}

TEST_NET(test_duplicates, open_net_of_two)
{
	unsigned count = 0;

	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	while (n->f[0]->output_count + n->f[1]->output_count) {
		unsigned from = n->f[0]->output_count ? 0 : 1;
		struct weir_ctl_msg m = take_output(n->f[from], 0);

		for (int i = 0; i < 3; i++)
			hand_over(n, from, &m);
		assert_true(++count < 20); /* answers to answers would never end */
	}
	assert_joined(n);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_ADD], 1);
	assert_int_equal(n->f[1]->count[ENGINE_LINK_ADD], 1);
}

/* Whatever message is lost, saying it again brings the link up. */
TEST_NET_EACH(test_lost, open_net_of_two, lost, 0, 3)
{
	unsigned count = 0;

	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	while (n->f[0]->output_count + n->f[1]->output_count) {
		unsigned from = n->f[0]->output_count ? 0 : 1;
		struct weir_ctl_msg m = take_output(n->f[from], 0);

		if (count++ != lost)
			hand_over(n, from, &m);
	}
	pass_time(n, BROKER_SECOND_NS);
	exchange_and_join(n);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 1);
	pass_time(n, 5 * BROKER_SECOND_NS);
	assert_int_equal(n->f[0]->output_count + n->f[1]->output_count, 0);
}

TEST_NET(test_nobody_answers, open_net_of_two)
{
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	pass_time(n, 4 * BROKER_SECOND_NS);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 0);
	pass_time(n, 2 * BROKER_SECOND_NS);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 1);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.status, ETIMEDOUT);
	assert_int_equal(n->f[0]->b->conn_count, 0);
	pass_time(n, 10 * BROKER_SECOND_NS);
	assert_int_equal(the_link(n, 0)->state, LINK_DOWN);
	assert_int_equal(n->f[0]->live_qps, 0);
}

TEST_NET(test_stale, open_net_of_two)
{
	struct weir_ctl_msg first, m;

	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	first = n->f[0]->output[0];
	exchange(n);
	broker_link_fail(the_link(n, 0), ECONNRESET);
	fake_run(n->f[0]);
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	exchange_and_join(n);
	assert_int_equal(the_link(n, 0)->attempt, 2);
	/* the first attempt again, a former life of the sender, an offer for a former life of ours
	 */
	hand_over(n, 0, &first);
	m = first;
	m.link.attempt = 9;
	m.link.incarnation = 99;
	hand_over(n, 0, &m);
	m = first;
	m.link.attempt = 9;
	m.link.peer_incarnation = 199;
	hand_over(n, 0, &m);
	assert_joined(n);
	assert_int_equal(n->f[1]->b->counters.offers_stale, 3);
	assert_int_equal(n->f[1]->output_count, 0);
}

/* An offer is taken up only by the QPs that it is meant for, and its QPs only once. */
TEST_NET(test_burnt, open_net_of_two)
{
	struct weir_ctl_msg first, m;

	fake_connect(n->f[1], &n->s[1], 1, "echo", 0);
	first = n->f[1]->output[0];
	exchange_and_join(n);
	m = first; /* right attempt, answer to what never was */
	m.link.answered = 77;
	hand_over(n, 1, &m);
	assert_int_equal(n->f[0]->output_count, 0);
	broker_link_fail(the_link(n, 0), ECONNRESET);
	fake_run(n->f[0]);
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	assert_int_equal(the_link(n, 0)->state, LINK_OFFERED);
	hand_over(n, 1, &first); /* its QPs are joined to ours of before */
	assert_int_equal(the_link(n, 0)->state, LINK_OFFERED);
	m.link.attempt = 5;
	m.link.answered = 1; /* joined to our first attempt, which is gone */
	hand_over(n, 1, &m);
	assert_int_equal(the_link(n, 0)->state, LINK_OFFERED);
	exchange_and_join(n);
}

/* The peer breaks the rules: a new link, and the old one's QPs and memory are gone. */
static void
link_error(struct net *n, unsigned i)
{
	struct engine_event e = {.type = ENGINE_EVENT_LINK_ERROR};

	e.conn.link = the_link(n, i)->id;
	e.conn.status = EPROTO;
	fake_event(n->f[i], 0, &e);
}

/* One end sees it, or both at once. */
TEST_NET_EACH(test_error, bring_up, which, 1, 4)
{
	for (unsigned i = 0; i < 2; i++)
		if (which & 1u << i)
			link_error(n, i);
	for (unsigned i = 0; i < 2; i++)
		if (which & 1u << i)
			assert_int_equal(n->f[i]->last[ENGINE_LINK_FAIL].link.status, ECONNRESET);
	exchange_and_join(n);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_FAIL], 1);
	assert_int_equal(n->f[1]->count[ENGINE_LINK_FAIL], 1);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_ADD], 2);
	/* it is up: the node isn't lost ten seconds later */
	pass_time(n, 11 * BROKER_SECOND_NS);
	assert_joined(n);
	assert_int_equal(n->f[0]->b->counters.nodes_down, 0);
}

/* Silence alone changes nothing: control is told, and decides. */
TEST_NET(test_silent, bring_up)
{
	struct engine_event e = {.type = ENGINE_EVENT_LINK_SILENT};

	n->f[0]->output_count = 0;
	e.conn.link = the_link(n, 0)->id;
	fake_event(n->f[0], 0, &e);
	assert_int_equal(n->f[0]->output_count, 1);
	assert_int_equal(n->f[0]->output[0].type, WEIR_CTL_LINK_DOWN);
	assert_int_equal(n->f[0]->output[0].link_down.peer_node, 2);
	assert_joined(n);
	pass_time(n, 11 * BROKER_SECOND_NS);
	assert_joined(n);
}

TEST_NET(test_not_repaired, bring_up)
{
	link_error(n, 0);
	assert_int_equal(n->f[0]->output[0].type, WEIR_CTL_LINK); /* the next attempt */
	n->f[0]->output_count = 0;
	for (unsigned i = 0; i < 11; i++) {
		pass_time(n, BROKER_SECOND_NS);
		n->f[0]->output_count = 0;
	}
	assert_int_equal(n->f[0]->b->counters.nodes_down, 1);
	assert_int_equal(n->f[0]->last[ENGINE_NODE_EVENT].conn.status, EHOSTDOWN);
	assert_int_equal(n->f[0]->last[ENGINE_NODE_EVENT].conn.peer_node, 2);
	for (unsigned i = 0; i < 20; i++)
		pass_time(n, BROKER_SECOND_NS);
	assert_int_equal(n->f[0]->live_qps, 0);
	/* and it can come back */
	n->f[0]->output_count = n->f[1]->output_count = 0;
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	exchange_and_join(n);
	assert_int_equal(n->f[0]->last[ENGINE_NODE_EVENT].conn.status, 0);
}

TEST_NET(test_node_down, bring_up)
{
	fake_node(n->f[0], 3, WEIR_NODE_UP, 300, 1);
	fake_connect(n->f[0], &n->s[0], 3, "echo", 0); /* waits */
	fake_node(n->f[0], 2, WEIR_NODE_DOWN, 200, 1);
	assert_int_equal(n->f[0]->last[ENGINE_LINK_FAIL].link.status, EHOSTDOWN);
	assert_int_equal(n->f[0]->last[ENGINE_NODE_EVENT].conn.status, EHOSTDOWN);
	assert_int_equal(the_link(n, 0)->state, LINK_DOWN);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 1); /* node 3's goes on waiting */
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	assert_int_equal(n->s[0].reply.refused.code, EHOSTDOWN);
	fake_node(n->f[0], 3, WEIR_NODE_DOWN, 300, 1);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 2);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.status, EHOSTDOWN);
	/* told once */
	assert_int_equal(n->f[0]->b->counters.nodes_down, 2);
	fake_node(n->f[0], 2, WEIR_NODE_DOWN, 200, 1);
	assert_int_equal(n->f[0]->b->counters.nodes_down, 2);
}

/* A peer that restarts: by control, or by its offer, whichever comes first. */
TEST_NET_EACH(test_restart, bring_up, by_offer, 0, 2)
{
	fake_close(n->f[1]);
	n->f[1] = open_node(2, 1, 201);
	n->f[0]->output_count = 0;
	fake_node(n->f[1], 1, WEIR_NODE_UP, 100, 1);
	open_session(n, 1);
	fake_connect(n->f[1], &n->s[1], 1, "echo", 0);
	if (!by_offer)
		fake_node(n->f[0], 2, WEIR_NODE_UP, 201, 1);
	exchange_and_join(n);
	assert_int_equal(n->f[0]->last[ENGINE_LINK_FAIL].link.status, EHOSTDOWN);
	assert_int_equal(n->f[0]->b->counters.nodes_down, 1);
	assert_int_equal(n->f[0]->last[ENGINE_NODE_EVENT].conn.status, 0);
	if (by_offer) /* control says the same a little later */
		fake_node(n->f[0], 2, WEIR_NODE_UP, 201, 1);
	assert_joined(n);
}

/* Its host's clock was set back between two starts: the newer incarnation is the lower one. */
TEST_NET(test_clock_set_back, bring_up)
{
	fake_close(n->f[1]);
	fake_node(n->f[0], 2, WEIR_NODE_UP, 150, 1); /* of the past */
	assert_int_equal(node_find(n->f[0]->b, 2)->is.incarnation, 200);
	n->f[1] = open_node(2, 1, 150);
	n->f[0]->output_count = 0;
	fake_node(n->f[1], 1, WEIR_NODE_UP, 100, 1);
	open_session(n, 1);
	fake_connect(n->f[1], &n->s[1], 1, "echo", 0);
	fake_node(n->f[0], 2, WEIR_NODE_DOWN, 200, 1);
	fake_node(n->f[0], 2, WEIR_NODE_UP, 150, 1);
	exchange_and_join(n);
	assert_int_equal(n->f[0]->b->counters.nodes_down, 1);
}

/* Control is killed and restarted: it is told everything, and nothing happens to the link. */
TEST_NET(test_resync, bring_up)
{
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO, .hello.node = 1};

	broker_control_input(n->f[0]->b, &hello);
	assert_int_equal(n->f[0]->output_count, 3);
	assert_int_equal(n->f[0]->output[0].type, WEIR_CTL_HELLO);
	assert_int_equal(n->f[0]->output[0].hello.node, 1);
	assert_int_equal(n->f[0]->output[0].hello.incarnation, 100);
	assert_int_equal(n->f[0]->output[0].hello.address_count, 1);
	assert_int_equal(n->f[0]->output[1].type, WEIR_CTL_SERVICES);
	assert_int_equal(n->f[0]->output[2].type, WEIR_CTL_LINK);
	fake_node(n->f[0], 2, WEIR_NODE_JOINING, 0, 0);
	fake_node(n->f[0], 2, WEIR_NODE_SUSPECT, 200, 1);
	assert_int_equal(fake_connect(n->f[0], &n->s[0], 2, "echo", 0), WEIR_MSG_CONNECTING);
	fake_node(n->f[0], 2, WEIR_NODE_UP, 200, 1);
	exchange_and_join(n);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_FAIL], 0);
	assert_int_equal(n->f[0]->b->counters.nodes_down, 0);
}

/* Two went while there was no control: the next one hears of neither. */
TEST_NET(test_unheard, bring_up)
{
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO, .hello.node = 1};

	fake_node(n->f[0], 3, WEIR_NODE_UP, 300, 1);
	fake_node(n->f[0], 4, WEIR_NODE_UP, 400, 1);
	fake_node(n->f[0], 5, WEIR_NODE_UP, 500, 1);
	broker_control_input(n->f[0]->b, &hello);
	fake_node(n->f[0], 2, WEIR_NODE_JOINING, 0, 0);
	fake_node(n->f[0], 3, WEIR_NODE_JOINING, 0, 0);
	n->f[0]->now += 9 * BROKER_SECOND_NS;
	fake_node(n->f[0], 5, WEIR_NODE_UP, 500, 1);
	assert_int_equal(n->f[0]->b->counters.nodes_down, 0);
	fake_connect(n->f[0], &n->s[0], 3, "echo", 0); /* waits */
	n->f[0]->now += BROKER_SECOND_NS;
	fake_run(n->f[0]);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.status, EHOSTDOWN);
	assert_int_equal(n->f[0]->b->counters.nodes_down, 2);
	assert_int_equal(node_find(n->f[0]->b, 4)->is.state, WEIR_NODE_DOWN);
	/* there is a link to this one: nothing but the silence of its control */
	assert_int_equal(node_find(n->f[0]->b, 2)->is.state, WEIR_NODE_UP);
	assert_int_equal(the_link(n, 0)->state, LINK_UP);
	fake_node(n->f[0], 4, WEIR_NODE_UP, 400, 1);
	assert_int_equal(n->f[0]->last[ENGINE_NODE_EVENT].conn.status, 0);
	n->f[0]->now += 20 * BROKER_SECOND_NS;
	fake_run(n->f[0]);
	assert_int_equal(n->f[0]->b->counters.nodes_down, 2);
}

TEST_NET(test_loop, open_net_of_two)
{
	struct engine_event e = {.type = ENGINE_EVENT_CONNECT};

	assert_int_equal(fake_connect(n->f[0], &n->s[0], 1, "echo", WEIR_CONNECT_LOOP),
			 WEIR_MSG_CONNECTING);
	assert_int_equal(n->s[0].reply.connecting.segment, 0);
	assert_int_equal(n->f[0]->links, 2);
	assert_int_equal(n->f[0]->output_count, 0);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_START], 1);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.status, 0);
	/* the other end asks */
	e.conn.link = !n->f[0]->last[ENGINE_CONN_START].conn.link;
	e.conn.peer_vqpn = n->s[0].reply.connecting.vqpn;
	e.conn.granted = 512;
	snprintf(e.conn.service, sizeof(e.conn.service), "echo");
	fake_event(n->f[0], 0, &e);
	assert_int_equal(n->f[0]->count[ENGINE_CONN_ACCEPT], 1);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_ACCEPT].conn.granted, 512);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_ACCEPT].conn.peer_vqpn, e.conn.peer_vqpn);
	/* one end breaks the rules: both go, and the next connection makes a new pair */
	e.type = ENGINE_EVENT_LINK_ERROR;
	e.conn.status = EPROTO;
	fake_event(n->f[0], 0, &e);
	assert_int_equal(n->f[0]->links, 0);
	assert_int_equal(n->f[0]->live_qps, 0);
	fake_connect(n->f[0], &n->s[0], 1, "echo", WEIR_CONNECT_LOOP);
	assert_int_equal(n->f[0]->links, 2);
	fake_connect(n->f[0], &n->s[0], 2, "echo", WEIR_CONNECT_LOOP);
	assert_int_equal(n->s[0].reply.refused.code, EINVAL);
}

TEST_NET(test_accept_and_reject, bring_up)
{
	struct engine_event e = {.type = ENGINE_EVENT_CONNECT, .conn.peer_node = 1};

	e.conn.link = the_link(n, 1)->id;
	snprintf(e.conn.service, sizeof(e.conn.service), "nobody");
	fake_emit(n->f[1], 0, &e);
	memset(e.conn.service, 'x', sizeof(e.conn.service)); /* not ended */
	fake_event(n->f[1], 0, &e);
	assert_int_equal(n->f[1]->count[ENGINE_CONN_REJECT], 2);
	assert_int_equal(n->f[1]->last[ENGINE_CONN_REJECT].conn.status, ECONNREFUSED);
	snprintf(e.conn.service, sizeof(e.conn.service), "echo");
	n->f[1]->fail_type = ENGINE_CONN_ACCEPT;
	n->f[1]->fail_rc = -ENOSPC;
	fake_event(n->f[1], 0, &e);
	assert_int_equal(n->f[1]->count[ENGINE_CONN_REJECT], 3);
	assert_int_equal(n->f[1]->b->conn_count, 0);
	n->f[1]->fail_type = -1;
	for (unsigned i = 0; i < 1001; i++)
		fake_event(n->f[1], 0, &e);
	assert_int_equal(n->f[1]->b->conn_count, 1000);
	assert_int_equal(n->f[1]->count[ENGINE_CONN_REJECT], 4);
}

TEST_NET(test_no_resources, open_net_of_two)
{
	n->f[0]->qp_fail = -ENOMEM;
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	assert_int_equal(n->s[0].reply.refused.code, ENOMEM);
	n->f[0]->qp_fail = 0;
	n->f[1]->fail_type = ENGINE_LINK_ADD;
	n->f[1]->fail_rc = -ENOSPC;
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	exchange(n);
	assert_int_equal(n->f[1]->live_qps, 0);
	pass_time(n, 6 * BROKER_SECOND_NS);
	assert_int_equal(n->f[0]->last[ENGINE_CONN_START].conn.status, ETIMEDOUT);
}

/* The broker doesn't touch QPs and memory before the engine has given them back. */
TEST_NET(test_quiet, bring_up)
{
	size_t memory = n->f[0]->live_memory;

	n->f[0]->hold = true;
	broker_link_fail(the_link(n, 0), EHOSTDOWN);
	broker_run(n->f[0]->b);
	assert_int_equal(n->f[0]->count[ENGINE_LINK_FAIL], 1);
	assert_int_equal(n->f[0]->live_qps, 2);
	assert_int_equal(fake_qp_find(n->f[0], nic_qpn(the_link(n, 0)->qp[0]))->state, NIC_QP_ERR);
	broker_completed(n->f[0]->b, 0, n->f[0]->held[0].c);
	assert_int_equal(n->f[0]->count[ENGINE_QUIET], 1);
	assert_int_equal(n->f[0]->live_memory, memory);
	n->f[0]->held[0] = n->f[0]->held[1];
	n->f[0]->held_count = 1;
	fake_let_go(n->f[0]);
	assert_int_equal(n->f[0]->count[ENGINE_QUIET], 2);
	assert_true(n->f[0]->live_memory < memory);
	assert_int_equal(n->f[0]->live_qps, 0);
	n->f[0]->links--; /* LINK_FAIL was answered by hand */
}

/* ---- random ---- */

static uint64_t seed;

static uint32_t
below(uint32_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % n;
}

/* Garbled offers: whatever comes, no assert, no memory lost, and the true offer still works. */
TEST(test_garbage)
{
	struct net n;
	struct weir_ctl_msg good, m;

	seed = 20240607;
	net_open(&n, 2, 2);
	fake_connect(n.f[0], &n.s[0], 2, "echo", 0);
	good = n.f[0]->output[0];
	for (unsigned i = 0; i < 20000; i++) {
		uint8_t *bytes = (uint8_t *)&m.link;

		m = good;
		for (unsigned k = 1 + below(3); k; k--)
			bytes[below(sizeof(m.link))] = (uint8_t)below(256);
		if (weir_ctl_check(&m, m.length))
			continue;
		m.link.incarnation = good.link.incarnation; /* else the good one is of the past */
		fake_told(n.f[1], &m);
		n.f[1]->output_count = 0;
		assert_true(n.f[1]->live_qps <= 2 * 8 * 2);
	}
	assert_true(n.f[1]->b->counters.offers_bad > 1000);
	net_close(&n);
}

/* Loss, doubling, reordering, broken links: when all that ends, there is one link and it works. */
TEST_NET_EACH(test_storm, open_net_of_two, s, 1, 301)
{
	seed = s;
	for (unsigned step = 0; step < 200; step++) {
		unsigned i = below(2), what = below(20);
		struct fake *f = n->f[i];

		n->s[i].s->pending = false;
		if (what < 3) {
			fake_connect(f, &n->s[i], 2 - i, "echo", 0);
		} else if (what < 15 && f->output_count) {
			struct weir_ctl_msg m =
			    take_output(f, below(f->output_count < 4 ? f->output_count : 4));
			unsigned times = below(4);

			for (; times; times--)
				hand_over(n, i, &m);
		} else if (what == 15 && the_link(n, i) && the_link(n, i)->state == LINK_UP) {
			link_error(n, i);
		} else if (what == 16) {
			f->hold = !f->hold;
			if (!f->hold)
				fake_release(f);
		} else {
			pass_time(n, below(400) * 1000000ull);
		}
		if (f->output_count > FAKE_OUTPUT / 2)
			f->output_count = 0;
	}
	for (unsigned i = 0; i < 2; i++) {
		fake_let_go(n->f[i]);
		n->f[i]->fail_type = -1;
	}
	for (unsigned i = 0; i < 40; i++) {
		exchange(n);
		pass_time(n, BROKER_SECOND_NS / 2);
	}
	fake_connect(n->f[0], &n->s[0], 2, "echo", 0);
	fake_connect(n->f[1], &n->s[1], 1, "echo", 0);
	for (unsigned i = 0; i < 8; i++) {
		exchange(n);
		pass_time(n, BROKER_SECOND_NS / 2);
	}
	if (!the_link(n, 0)->confirmed)
		print_message("seed %u\n", s);
	assert_joined(n);
	assert_int_equal(exchange(n), 0);
}
