/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions without sockets: channels, listeners, connections between local programs. Their ends:
 * local_end_test.c. */
#include "worlds/broker_pair.h"

static void
test_channels(void **state)
{
	struct fake *f = fake_open(&two_engines);
	struct fake_session s;
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};

	fake_attach(f, &s);
	m.add_channel.engine = 5;
	assert_int_equal(fake_request(f, &s, &m), 0);
	expect_refused(&s, EINVAL);
	f->hold = true; /* so that the descriptors are looked at before they are closed */
	m.add_channel.engine = UINT32_MAX;
	assert_int_equal(fake_request(f, &s, &m), 0);
	assert_int_equal(s.replies, 2);
	assert_int_equal(fake_request(f, &s, &m), -EBUSY);
	f->hold = false;
	fake_release(f);
	assert_int_equal(s.reply.type, WEIR_MSG_CHANNEL);
	assert_int_equal(s.reply.channel.channel, 0);
	assert_int_equal(f->last[ENGINE_CHANNEL_ADD].channel.session, s.reply.channel.channel);
	/* the program's end was closed with us: ringing says so, and never blocks */
	assert_int_equal(send(f->doorbell[0].ring, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL), -1);
	for (int i = 1; i < 8; i++)
		assert_int_equal(fake_request(f, &s, &m), 0);
	assert_int_equal(s.reply.type, WEIR_MSG_CHANNEL);
	assert_int_equal(fake_request(f, &s, &m), 0);
	expect_refused(&s, EMFILE);
	assert_int_equal(f->count[ENGINE_CHANNEL_ADD], 8);
	assert_int_equal(f->live_doorbells, 8);
	fake_close(f);
}

static void
test_channel_refused_by_engine(void **state)
{
	struct fake *f = fake_open(&two_engines);
	struct fake_session s;
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};

	fake_attach(f, &s);
	f->fail_type = ENGINE_CHANNEL_ADD;
	f->fail_rc = -ENOSPC;
	m.add_channel.engine = 1;
	assert_int_equal(fake_request(f, &s, &m), 0);
	expect_refused(&s, ENOSPC);
	assert_int_equal(f->live_doorbells, 0);
	f->fail_type = -1;
	fake_channels(f, &s); /* the index is free again */
	fake_close(f);
}

static void
test_listen(void **state)
{
	struct pair p;
	struct weir_session_msg m = {.type = WEIR_MSG_LISTEN};
	uint32_t listener;

	pair_open(&p, 4);
	listener = p.l.reply.listening.listener;
	fake_listen(p.f, &p.c, "echo", 4);
	expect_refused(&p.c, EADDRINUSE);
	fake_listen(p.f, &p.c, "", 4);
	expect_refused(&p.c, EINVAL);
	fake_listen(p.f, &p.c, "bad name", 4);
	expect_refused(&p.c, EINVAL);
	m.listen.channel[0] = 1; /* belongs to engine 1 */
	m.listen.channel[1] = 1;
	snprintf(m.listen.service, sizeof(m.listen.service), "other");
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	expect_refused(&p.c, EINVAL);
	m.listen.channel[0] = UINT32_MAX;
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	expect_refused(&p.c, EINVAL);
	assert_int_equal(ask(&p, &p.c, WEIR_MSG_UNLISTEN, listener, 0).type, WEIR_MSG_REFUSED);
	assert_int_equal(ask(&p, &p.l, WEIR_MSG_UNLISTEN, listener, 0).type, WEIR_MSG_OK);
	assert_int_equal(ask(&p, &p.l, WEIR_MSG_UNLISTEN, listener, 0).type, WEIR_MSG_REFUSED);
	fake_listen(p.f, &p.c, "echo", 4);
	assert_int_equal(p.c.reply.type, WEIR_MSG_LISTENING);
	/* the name goes with its session */
	broker_session_close(p.c.s);
	fake_run(p.f);
	fake_listen(p.f, &p.l, "echo", 4);
	assert_int_equal(p.l.reply.type, WEIR_MSG_LISTENING);
	assert_int_not_equal(p.l.reply.listening.listener, listener);
	fake_close(p.f);
}

static void
test_all_listeners(void **state)
{
	struct pair p;
	char name[16];

	pair_open(&p, 4);
	for (unsigned i = 1; i < WEIR_LISTENERS; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		fake_listen(p.f, &p.l, name, 1);
		assert_int_equal(p.l.reply.type, WEIR_MSG_LISTENING);
		assert_int_equal(p.l.reply.listening.listener % WEIR_LISTENERS, i);
	}
	fake_listen(p.f, &p.l, "more", 1);
	expect_refused(&p.l, EMFILE);
	fake_close(p.f);
}

static void
test_connect(void **state)
{
	struct pair p;
	struct engine_command *x, *y;
	uint32_t segment, again;

	pair_open(&p, 4);
	p.f->hold = true;
	fake_connect(p.f, &p.c, 7, "echo", 0);
	assert_int_equal(p.f->count[ENGINE_CONN_LOCAL], 1); /* the acceptor's follows */
	p.f->hold = false;
	fake_release(p.f);
	assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
	segment = p.c.reply.connecting.segment;
	assert_true(segment);
	assert_int_equal(p.f->count[ENGINE_CONN_LOCAL], 2);
	assert_int_equal(p.f->count[ENGINE_CONN_LOCAL_OPENED], 2);
	y = &p.f->last[ENGINE_CONN_LOCAL];
	assert_int_equal(y->conn.session, p.l.s->id);
	assert_int_not_equal(y->conn.listener, ENGINE_LISTENER_NONE);
	x = &p.f->last[ENGINE_CONN_LOCAL_OPENED]; /* the connecting program is told last */
	assert_int_equal(x->conn.session, p.c.s->id);
	assert_int_equal(x->conn.vqpn, p.c.reply.connecting.vqpn);
	assert_int_equal(x->conn.peer_vqpn, p.c.reply.connecting.peer_vqpn);
	assert_int_equal(x->conn.status, 0);
	assert_int_equal(x->conn.segment, segment);
	/* another one shares the segment, on another line */
	fake_connect(p.f, &p.c, 7, "echo", 0);
	again = p.c.reply.connecting.segment;
	assert_int_equal(again, segment);
	assert_int_equal(p.c.reply.connecting.conn_index, 1);
	fake_connect(p.f, &p.c, 7, "nobody", 0);
	expect_refused(&p.c, ECONNREFUSED);
	fake_connect(p.f, &p.c, 9, "echo", 0);
	expect_refused(&p.c, EHOSTUNREACH);
	fake_close(p.f);
}

static void
test_own_addresses(void **state)
{
	struct pair p;
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};

	pair_open(&p, 0);
	snprintf(m.connect.address.service, sizeof(m.connect.address.service), "echo");
	m.connect.address.kind = WEIR_ADDRESS_IPV4;
	memcpy(m.connect.address.ip, (uint8_t[]){10, 0, 0, 7}, 4);
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
	memcpy(m.connect.address.ip, (uint8_t[]){127, 0, 0, 1}, 4);
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
	memcpy(m.connect.address.ip, (uint8_t[]){10, 0, 0, 99}, 4);
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	expect_refused(&p.c, EHOSTUNREACH);
	m.connect.address.kind = WEIR_ADDRESS_GID;
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	expect_refused(&p.c, EHOSTUNREACH);
	memcpy(m.connect.address.ip, nic_gid_ipv4(0x0a000007).raw, 16);
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
	m.connect.address.kind = WEIR_ADDRESS_IPV6;
	memset(m.connect.address.ip, 0, 16);
	m.connect.address.ip[15] = 1;
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
	m.connect.address.ip[0] = 0xfe;
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	expect_refused(&p.c, EHOSTUNREACH);
	m.connect.address.kind = WEIR_ADDRESS_LID;
	m.connect.address.id = 12;
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	expect_refused(&p.c, EHOSTUNREACH);
	m.connect.address.kind = 77;
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	expect_refused(&p.c, EINVAL);
	m.connect.address.kind = WEIR_ADDRESS_NODE;
	m.connect.address.id = 7;
	m.connect.channel = 100;
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	expect_refused(&p.c, EINVAL);
	m.connect.channel = 0;
	m.connect.flags = 0x80;
	assert_int_equal(fake_request(p.f, &p.c, &m), 0);
	expect_refused(&p.c, EINVAL);
	fake_close(p.f);
}

static void
test_backlog(void **state)
{
	struct pair p;

	pair_open(&p, 2);
	fake_connect(p.f, &p.c, 7, "echo", 0);
	fake_connect(p.f, &p.c, 7, "echo", 0);
	assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
	fake_connect(p.f, &p.c, 7, "echo", 0);
	expect_refused(&p.c, ECONNREFUSED);
	/* the program accepts one */
	arena_head(&p.l.s->arena)->accepted[0] = 1;
	fake_connect(p.f, &p.c, 7, "echo", 0);
	assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
	fake_connect(p.f, &p.c, 7, "echo", 0);
	expect_refused(&p.c, ECONNREFUSED);
	/* a refusal by the engine frees the place */
	arena_head(&p.l.s->arena)->accepted[0] = 2;
	p.f->fail_type = ENGINE_CONN_LOCAL;
	p.f->fail_rc = -ENOSPC;
	fake_connect(p.f, &p.c, 7, "echo", 0);
	expect_refused(&p.c, ENOSPC);
	p.f->fail_type = -1;
	fake_connect(p.f, &p.c, 7, "echo", 0);
	assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
	assert_int_equal(p.c.s->conn_count, 4);
	assert_int_equal(p.l.s->conn_count, 4);
	fake_close(p.f);
}

static void
test_connect_to_itself(void **state)
{
	struct pair p;

	pair_open(&p, 4);
	fake_connect(p.f, &p.l, 7, "echo", 0);
	assert_int_equal(p.l.reply.type, WEIR_MSG_CONNECTING);
	assert_int_equal(p.l.s->conn_count, 2);
	ask(&p, &p.l, WEIR_MSG_SEGMENT, p.l.reply.connecting.segment, 0);
	assert_int_equal(p.l.reply.segment_map.side, 0);
	ask(&p, &p.l, WEIR_MSG_SEGMENT, p.l.reply.segment_map.segment, 1);
	assert_int_equal(p.l.reply.segment_map.side, 1);
	broker_session_close(p.l.s);
	fake_run(p.f);
	assert_int_equal(p.f->b->session_count, 1);
	assert_int_equal(p.f->b->conn_count, 0);
	fake_close(p.f);
}

static void
test_limits(void **state)
{
	struct pair p;
	unsigned made = 0;

	pair_open(&p, 10000);
	do
		fake_connect(p.f, &p.c, 7, "echo", 0);
	while (p.c.reply.type == WEIR_MSG_CONNECTING && ++made < 5000);
	assert_int_equal(made, 4096);
	expect_refused(&p.c, EMFILE);
	assert_int_equal(p.f->b->conn_count, 2 * 4096);
	broker_session_close(p.c.s);
	fake_run(p.f);
	assert_int_equal(p.f->count[ENGINE_CONN_PEER_CLOSED], 4096);
	fake_close(p.f);
}

/* Ports in two networks: a connection belongs to the engine whose port reaches the peer. */
static void
test_other_engine(void **state)
{
	struct fake *f = fake_open(&two_engines);
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};
	struct fake_session s;

	fake_attach(f, &s);
	fake_channels(f, &s);
	fake_node(f, 9, WEIR_NODE_UP, 1, 2); /* 10.0.0.9 */
	f->b->attr[0].gid.raw[13] = 1;	     /* 10.1.0.7/15, then /16 */
	f->b->attr[0].prefix = 96 + 15;
	f->b->attr[1].prefix = 96 + 24; /* 10.0.0.7/24 */
	fake_connect(f, &s, 9, "echo", 0);
	assert_int_equal(s.reply.type, WEIR_MSG_CONNECTING);
	assert_int_not_equal(s.reply.connecting.vqpn, 0);
	f->b->attr[0].prefix = 96 + 16;
	fake_connect(f, &s, 9, "echo", 0);
	assert_int_equal(s.reply.type, WEIR_MSG_CONNECTING);
	assert_int_equal(s.reply.connecting.vqpn, 0);
	assert_int_equal(s.reply.connecting.engine, 1);
	m.connect.channel = 1;
	m.connect.address.kind = WEIR_ADDRESS_NODE;
	m.connect.address.id = 9;
	snprintf(m.connect.address.service, sizeof(m.connect.address.service), "echo");
	assert_int_equal(fake_request(f, &s, &m), 0);
	assert_int_not_equal(s.reply.connecting.vqpn, 0);
	assert_int_equal(s.reply.connecting.engine, 1);
	/* nobody seems to reach it: as the program wishes */
	f->b->attr[1].gid.raw[12] = 11;
	fake_connect(f, &s, 9, "echo", 0);
	assert_int_not_equal(s.reply.connecting.vqpn, 0);
	assert_int_equal(s.reply.connecting.engine, 0);
	fake_close(f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_channels), cmocka_unit_test(test_channel_refused_by_engine),
	    cmocka_unit_test(test_listen),   cmocka_unit_test(test_all_listeners),
	    cmocka_unit_test(test_connect),  cmocka_unit_test(test_own_addresses),
	    cmocka_unit_test(test_backlog),  cmocka_unit_test(test_connect_to_itself),
	    cmocka_unit_test(test_limits),   cmocka_unit_test(test_other_engine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
