/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes of nodes, as the broker tells programs of them. */
#include "worlds/broker_fake.h"

#include <sys/socket.h>

static struct weir_session_msg
ask(struct fake *f, struct fake_session *s, uint64_t since, uint32_t channel, uint32_t watch)
{
	struct weir_session_msg m = {.type = WEIR_MSG_NODES,
				     .nodes = {.since = since, .channel = channel, .watch = watch}};

	assert_int_equal(fake_request(f, s, &m), 0);
	return s->reply;
}

static uint64_t
published(struct fake_session *s)
{
	return atomic_load(&arena_head(&s->s->arena)->nodes);
}

static unsigned
rings(int bell)
{
	unsigned n = 0;
	char byte;

	while (recv(bell, &byte, 1, MSG_DONTWAIT) == 1)
		n++;
	return n;
}

TEST_FAKE(test_since, ((const struct fake_config){.engines = 1, .node = 1}))
{
	struct fake_session s = {0};
	struct weir_session_msg r;

	fake_attach(f, &s);
	for (uint32_t i = 10; i < 20; i++)
		fake_node(f, i, WEIR_NODE_UP, i, 1);
	r = ask(f, &s, 0, UINT32_MAX, 0);
	assert_int_equal(r.type, WEIR_MSG_NODE_LIST);
	assert_int_equal(r.node_list.count, WEIR_NODES_A_MSG);
	assert_int_equal(r.node_list.more, 1);
	r = ask(f, &s, r.node_list.upto, UINT32_MAX, 0);
	assert_int_equal(r.node_list.more, 0);
	assert_int_equal(r.node_list.whole, 0); /* control may have more to tell */
	assert_int_equal(r.node_list.upto, published(&s));
	fake_node(f, 12, WEIR_NODE_SUSPECT, 12, 1);
	fake_node(f, 11, WEIR_NODE_DOWN, 11, 1);
	fake_node(f, 12, WEIR_NODE_UP, 13, 1);
	r = ask(f, &s, r.node_list.upto, UINT32_MAX, 0);
	assert_int_equal(r.node_list.count, 2);
	assert_int_equal(r.node_list.node[0].id, 11);
	assert_int_equal(r.node_list.node[0].state, WEIR_NODE_DOWN);
	assert_int_equal(r.node_list.node[1].id, 12);
	assert_int_equal(r.node_list.node[1].incarnation, 13);
	/* the same again is nothing new */
	fake_node(f, 12, WEIR_NODE_UP, 13, 1);
	assert_int_equal(r.node_list.upto, published(&s));
}

TEST_FAKE(test_whole, ((const struct fake_config){.engines = 1, .node = 1}))
{
	struct weir_ctl_msg synced = {.type = WEIR_CTL_SYNCED};
	struct fake_session s = {0};
	uint64_t before;

	fake_attach(f, &s);
	fake_node(f, 2, WEIR_NODE_UP, 1, 1);
	before = published(&s);
	broker_control_input(f->b, &synced);
	assert_true(published(&s) > before);
	assert_int_equal(ask(f, &s, before, UINT32_MAX, 0).node_list.whole, 1);
	assert_int_equal(s.reply.node_list.count, 0);
	assert_int_equal(s.reply.node_list.upto, published(&s));
}

/* A channel that watches is rung, the others aren't; once for what changes at once. */
TEST_FAKE(test_bell, ((const struct fake_config){.engines = 2, .node = 1}))
{
	struct fake_session s = {0}, other = {0};
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};
	int pair[2][2];

	fake_attach(f, &s);
	fake_attach(f, &other);
	for (uint32_t i = 0; i < 2; i++) {
		m.add_channel.engine = i;
		assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_CHANNEL);
		assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair[i]), 0);
		s.s->channel[i].bell.ring = pair[i][0]; /* the program's end went with the reply */
	}
	assert_int_equal(ask(f, &s, 0, 1, 1).type, WEIR_MSG_NODE_LIST);
	fake_node(f, 2, WEIR_NODE_UP, 1, 1);
	assert_int_equal(rings(pair[0][1]), 0);
	assert_int_equal(rings(pair[1][1]), 1);
	assert_int_equal(published(&other), published(&s));
	ask(f, &s, 0, 1, 0);
	fake_node(f, 2, WEIR_NODE_DOWN, 1, 1);
	assert_int_equal(rings(pair[1][1]), 0);
	assert_int_equal(ask(f, &s, 0, 2, 1).type, WEIR_MSG_REFUSED);
	assert_int_equal(s.reply.refused.code, EINVAL);
	for (int i = 0; i < 4; i++)
		close(pair[i / 2][i % 2]);
}
