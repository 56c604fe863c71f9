/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions without sockets: channels, listeners, connections between local programs. Their ends:
 * local_end_test.c. */
#include "worlds/broker_pair.h"

TEST_FAKE(test_channels, two_engines)
{
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
	fake_let_go(f);
	assert_int_equal(s.reply.type, WEIR_MSG_CHANNEL);
	assert_int_equal(s.reply.channel.channel, 0);
	assert_int_equal(f->last[ENGINE_CHANNEL_ADD].channel.session, s.reply.channel.channel);
	/* the program's end was closed with us: ringing says so, and never blocks */
	assert_int_equal(send(f->doorbell[0].ring, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL), -1);
	for (int i = 1; i < 8; i++)
		assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_CHANNEL);
	assert_int_equal(fake_request(f, &s, &m), 0);
	expect_refused(&s, EMFILE);
	assert_int_equal(f->count[ENGINE_CHANNEL_ADD], 8);
	assert_int_equal(f->live_doorbells, 8);
}

TEST_FAKE(test_channel_refused_by_engine, two_engines)
{
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
}

TEST_PAIR(test_listen, 4)
{
	struct weir_session_msg m = {.type = WEIR_MSG_LISTEN};
	uint32_t listener;

	listener = p->l.reply.listening.listener;
	fake_listen(p->f, &p->c, "echo", 4);
	expect_refused(&p->c, EADDRINUSE);
	fake_listen(p->f, &p->c, "", 4);
	expect_refused(&p->c, EINVAL);
	fake_listen(p->f, &p->c, "bad name", 4);
	expect_refused(&p->c, EINVAL);
	m.listen.channel[0] = 1; /* belongs to engine 1 */
	m.listen.channel[1] = 1;
	snprintf(m.listen.service, sizeof(m.listen.service), "other");
	assert_int_equal(fake_request(p->f, &p->c, &m), 0);
	expect_refused(&p->c, EINVAL);
	m.listen.channel[0] = UINT32_MAX;
	assert_int_equal(fake_request(p->f, &p->c, &m), 0);
	expect_refused(&p->c, EINVAL);
	assert_int_equal(ask(p, &p->c, WEIR_MSG_UNLISTEN, listener, 0).type, WEIR_MSG_REFUSED);
	assert_int_equal(ask(p, &p->l, WEIR_MSG_UNLISTEN, listener, 0).type, WEIR_MSG_OK);
	assert_int_equal(ask(p, &p->l, WEIR_MSG_UNLISTEN, listener, 0).type, WEIR_MSG_REFUSED);
	assert_int_equal(fake_listen(p->f, &p->c, "echo", 4), WEIR_MSG_LISTENING);
	/* the name goes with its session */
	fake_leave(p->f, &p->c);
	assert_int_equal(fake_listen(p->f, &p->l, "echo", 4), WEIR_MSG_LISTENING);
	assert_int_not_equal(p->l.reply.listening.listener, listener);
}

TEST_PAIR(test_all_listeners, 4)
{
	char name[16];

	for (unsigned i = 1; i < WEIR_LISTENERS; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		assert_int_equal(fake_listen(p->f, &p->l, name, 1), WEIR_MSG_LISTENING);
		assert_int_equal(p->l.reply.listening.listener % WEIR_LISTENERS, i);
	}
	fake_listen(p->f, &p->l, "more", 1);
	expect_refused(&p->l, EMFILE);
}

TEST_PAIR(test_connect, 4)
{
	struct engine_command *x, *y;
	uint32_t segment, again;

	p->f->hold = true;
	fake_connect(p->f, &p->c, 7, "echo", 0);
	assert_int_equal(p->f->count[ENGINE_CONN_LOCAL], 1); /* the acceptor's follows */
	fake_let_go(p->f);
	assert_int_equal(p->c.reply.type, WEIR_MSG_CONNECTING);
	segment = p->c.reply.connecting.segment;
	assert_true(segment);
	assert_int_equal(p->f->count[ENGINE_CONN_LOCAL], 2);
	assert_int_equal(p->f->count[ENGINE_CONN_LOCAL_OPENED], 2);
	y = &p->f->last[ENGINE_CONN_LOCAL];
	assert_int_equal(y->conn.session, p->l.s->id);
	assert_int_not_equal(y->conn.listener, ENGINE_LISTENER_NONE);
	x = &p->f->last[ENGINE_CONN_LOCAL_OPENED]; /* the connecting program is told last */
	assert_int_equal(x->conn.session, p->c.s->id);
	assert_int_equal(x->conn.vqpn, p->c.reply.connecting.vqpn);
	assert_int_equal(x->conn.peer_vqpn, p->c.reply.connecting.peer_vqpn);
	assert_int_equal(x->conn.status, 0);
	assert_int_equal(x->conn.segment, segment);
	/* another one shares the segment, on another line */
	fake_connect(p->f, &p->c, 7, "echo", 0);
	again = p->c.reply.connecting.segment;
	assert_int_equal(again, segment);
	assert_int_equal(p->c.reply.connecting.conn_index, 1);
	fake_connect(p->f, &p->c, 7, "nobody", 0);
	expect_refused(&p->c, ECONNREFUSED);
	fake_connect(p->f, &p->c, 9, "echo", 0);
	expect_refused(&p->c, EHOSTUNREACH);
}

static int
decide(struct pair *p, struct fake_session *s, uint32_t vqpn, uint32_t flags, uint32_t window)
{
	struct weir_session_msg m = {.type = WEIR_MSG_DECIDE};

	m.decide.vqpn = vqpn;
	m.decide.flags = flags;
	m.decide.window = window;
	snprintf(m.decide.reason, sizeof(m.decide.reason), "a\tb");
	assert_int_equal(fake_request(p->f, s, &m), 0);
	return s->reply.type == WEIR_MSG_REFUSED ? s->reply.refused.code : 0;
}

/* Decisions count only for connections of the session that it accepted and holds. */
TEST_PAIR(test_decide, 4)
{
	uint32_t held, connecting, plain, opened;

	assert_true(fake_listen_as(p->f, &p->l, "held", WEIR_LISTENS_HOLDING) > 0);
	fake_connect(p->f, &p->c, 7, "held", 0);
	connecting = p->c.reply.connecting.vqpn;
	held = p->c.reply.connecting.peer_vqpn;
	assert_int_equal(p->f->count[ENGINE_CONN_LOCAL_OPENED], 1); /* the accepting end alone */
	assert_true(p->f->last[ENGINE_CONN_LOCAL_OPENED].conn.held);
	assert_int_equal(decide(p, &p->c, held, 0, 0), ENOTCONN); /* another program's */
	assert_int_equal(decide(p, &p->c, connecting, 0, 0), EISCONN);
	assert_int_equal(decide(p, &p->c, connecting, WEIR_DECIDE_REFUSE, 0), EISCONN);
	assert_int_equal(decide(p, &p->l, 0, 0, 0), ENOTCONN);
	assert_int_equal(decide(p, &p->l, UINT32_MAX, 0, 0), ENOTCONN);
	assert_int_equal(decide(p, &p->l, held, 2, 0), EINVAL);
	assert_int_equal(decide(p, &p->l, held, 0, WEIR_CONNECT_WINDOW_MIN - 1), EINVAL);
	assert_int_equal(p->f->count[ENGINE_CONN_DECIDE], 0);
	assert_int_equal(p->f->count[ENGINE_CONN_LOCAL_OPENED], 1);
	assert_int_equal(decide(p, &p->l, held, 0, 9000), 0);
	assert_int_equal(p->f->last[ENGINE_CONN_DECIDE].conn.window, 9000);
	assert_int_equal(p->f->last[ENGINE_CONN_DECIDE].conn.status, 0);
	opened = p->f->count[ENGINE_CONN_LOCAL_OPENED];
	assert_int_equal(opened, 2);
	assert_int_equal(p->f->last[ENGINE_CONN_LOCAL_OPENED].conn.vqpn, connecting);
	assert_int_equal(p->f->last[ENGINE_CONN_LOCAL_OPENED].conn.status, 0);
	assert_int_equal(decide(p, &p->l, held, WEIR_DECIDE_REFUSE, 0), EISCONN);
	/* of a listener that holds none */
	fake_connect(p->f, &p->c, 7, "echo", 0);
	plain = p->c.reply.connecting.peer_vqpn;
	assert_int_equal(decide(p, &p->l, plain, WEIR_DECIDE_REFUSE, 0), EISCONN);
	assert_int_equal(decide(p, &p->l, plain, 0, 9000), 0);
	/* refused, with a text that steers no terminal */
	fake_connect(p->f, &p->c, 7, "held", 0);
	held = p->c.reply.connecting.peer_vqpn;
	assert_int_equal(decide(p, &p->l, held, WEIR_DECIDE_REFUSE, 0), 0);
	assert_int_equal(p->f->last[ENGINE_CONN_LOCAL_OPENED].conn.status, ECONNREFUSED);
	assert_string_equal(p->f->last[ENGINE_CONN_LOCAL_OPENED].refusal, "a?b");
	assert_string_equal(p->f->last[ENGINE_CONN_DECIDE].refusal, "a?b");
}

/* The engine's answer comes after the program's end. */
TEST_PAIR(test_decide_meanwhile, 4)
{
	struct weir_session_msg m = {.type = WEIR_MSG_DECIDE};

	fake_listen_as(p->f, &p->l, "held", WEIR_LISTENS_HOLDING);
	fake_connect(p->f, &p->c, 7, "held", 0);
	m.decide.vqpn = p->c.reply.connecting.peer_vqpn;
	p->f->hold = true;
	assert_int_equal(fake_request(p->f, &p->l, &m), 0);
	fake_leave(p->f, &p->l);
	fake_let_go(p->f);
	assert_int_equal(p->f->count[ENGINE_CONN_DECIDE], 1);
	assert_int_equal(fake_connect(p->f, &p->c, 7, "held", 0), WEIR_MSG_REFUSED);
}

TEST_PAIR(test_who, 4)
{
	struct weir_session_msg m = {.type = WEIR_MSG_WHO}, r;

	fake_connect(p->f, &p->c, 7, "echo", 0);
	m.who.vqpn = p->c.reply.connecting.vqpn;
	assert_int_equal(fake_request(p->f, &p->l, &m), 0); /* another program's */
	expect_refused(&p->l, ENOTCONN);
	assert_int_equal(fake_request(p->f, &p->c, &m), 0);
	r = p->c.reply;
	assert_int_equal(r.type, WEIR_MSG_PEER);
	assert_int_equal(r.peer.local, 1);
	assert_int_equal(r.peer.node, 7);
	assert_int_equal(r.peer.pid, p->l.s->pid);
	assert_int_equal(r.peer.uid, p->l.s->uid);
	assert_string_equal(r.peer.program, p->l.s->name);
	assert_int_equal(r.peer.age_ms, 0);
	p->f->now += 1500000000;
	assert_int_equal(fake_request(p->f, &p->c, &m), 0);
	assert_int_equal(p->c.reply.peer.age_ms, 1500);
	m.who.vqpn = 0;
	assert_int_equal(fake_request(p->f, &p->c, &m), 0);
	expect_refused(&p->c, ENOTCONN);
}

TEST_PAIR(test_own_addresses, 0)
{
	static const struct {
		uint32_t kind, id;
		uint8_t ip[16];
		uint32_t channel, flags;
		int code; /* of the refusal; 0: connects */
	} cases[] = {
	    {.kind = WEIR_ADDRESS_IPV4, .ip = {10, 0, 0, 7}},
	    {.kind = WEIR_ADDRESS_IPV4, .ip = {127, 0, 0, 1}},
	    {.kind = WEIR_ADDRESS_IPV4, .ip = {10, 0, 0, 99}, .code = EHOSTUNREACH},
	    {.kind = WEIR_ADDRESS_GID, .ip = {10, 0, 0, 99}, .code = EHOSTUNREACH},
	    {.kind = WEIR_ADDRESS_GID, .ip = {[10] = 0xff, 0xff, 10, 0, 0, 7}},
	    {.kind = WEIR_ADDRESS_IPV6, .ip = {[15] = 1}},
	    {.kind = WEIR_ADDRESS_IPV6, .ip = {0xfe, [15] = 1}, .code = EHOSTUNREACH},
	    {.kind = WEIR_ADDRESS_LID, .id = 12, .code = EHOSTUNREACH},
	    {.kind = 77, .id = 12, .code = EINVAL},
	    {.kind = WEIR_ADDRESS_NODE, .id = 7, .channel = 100, .code = EINVAL},
	    {.kind = WEIR_ADDRESS_NODE, .id = 7, .flags = 0x80, .code = EINVAL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};

		m.connect.address = (struct weir_address){
		    .kind = cases[i].kind, .id = cases[i].id, .service = "echo"};
		memcpy(m.connect.address.ip, cases[i].ip, 16);
		m.connect.channel = cases[i].channel;
		m.connect.flags = cases[i].flags;
		assert_int_equal(fake_request(p->f, &p->c, &m), 0);
		if (cases[i].code)
			expect_refused(&p->c, cases[i].code);
		else
			assert_int_equal(p->c.reply.type, WEIR_MSG_CONNECTING);
	}
}

TEST_PAIR(test_backlog, 2)
{
	fake_connect(p->f, &p->c, 7, "echo", 0);
	assert_int_equal(fake_connect(p->f, &p->c, 7, "echo", 0), WEIR_MSG_CONNECTING);
	fake_connect(p->f, &p->c, 7, "echo", 0);
	expect_refused(&p->c, ECONNREFUSED);
	/* the program accepts one */
	arena_head(&p->l.s->arena)->accepted[0] = 1;
	assert_int_equal(fake_connect(p->f, &p->c, 7, "echo", 0), WEIR_MSG_CONNECTING);
	fake_connect(p->f, &p->c, 7, "echo", 0);
	expect_refused(&p->c, ECONNREFUSED);
	/* a refusal by the engine frees the place */
	arena_head(&p->l.s->arena)->accepted[0] = 2;
	p->f->fail_type = ENGINE_CONN_LOCAL;
	p->f->fail_rc = -ENOSPC;
	fake_connect(p->f, &p->c, 7, "echo", 0);
	expect_refused(&p->c, ENOSPC);
	p->f->fail_type = -1;
	assert_int_equal(fake_connect(p->f, &p->c, 7, "echo", 0), WEIR_MSG_CONNECTING);
	assert_int_equal(p->c.s->conn_count, 4);
	assert_int_equal(p->l.s->conn_count, 4);
}

TEST_PAIR(test_connect_to_itself, 4)
{
	assert_int_equal(fake_connect(p->f, &p->l, 7, "echo", 0), WEIR_MSG_CONNECTING);
	assert_int_equal(p->l.s->conn_count, 2);
	ask(p, &p->l, WEIR_MSG_SEGMENT, p->l.reply.connecting.segment, 0);
	assert_int_equal(p->l.reply.segment_map.side, 0);
	ask(p, &p->l, WEIR_MSG_SEGMENT, p->l.reply.segment_map.segment, 1);
	assert_int_equal(p->l.reply.segment_map.side, 1);
	fake_leave(p->f, &p->l);
	assert_int_equal(p->f->b->session_count, 1);
	assert_int_equal(p->f->b->conn_count, 0);
}

TEST_PAIR(test_limits, 10000)
{
	unsigned made = 0;

	do
		fake_connect(p->f, &p->c, 7, "echo", 0);
	while (p->c.reply.type == WEIR_MSG_CONNECTING && ++made < 5000);
	assert_int_equal(made, 4096);
	expect_refused(&p->c, EMFILE);
	assert_int_equal(p->f->b->conn_count, 2 * 4096);
	fake_leave(p->f, &p->c);
	assert_int_equal(p->f->count[ENGINE_CONN_PEER_CLOSED], 4096);
}

/* Ports in two networks: a connection belongs to the engine whose port reaches the peer. */
TEST_FAKE(test_other_engine, two_engines)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};
	struct fake_session s;

	fake_program(f, &s);
	fake_node(f, 9, WEIR_NODE_UP, 1, 2); /* 10.0.0.9 */
	f->b->attr[0].gid.raw[13] = 1;	     /* 10.1.0.7/15, then /16 */
	f->b->attr[0].prefix = 96 + 15;
	f->b->attr[1].prefix = 96 + 24; /* 10.0.0.7/24 */
	assert_int_equal(fake_connect(f, &s, 9, "echo", 0), WEIR_MSG_CONNECTING);
	assert_int_not_equal(s.reply.connecting.vqpn, 0);
	f->b->attr[0].prefix = 96 + 16;
	assert_int_equal(fake_connect(f, &s, 9, "echo", 0), WEIR_MSG_CONNECTING);
	assert_int_equal(s.reply.connecting.vqpn, 0);
	assert_int_equal(s.reply.connecting.engine, 1);
	m.connect.channel = 1;
	m.connect.address.kind = WEIR_ADDRESS_NODE;
	m.connect.address.id = 9;
	snprintf(m.connect.address.service, sizeof(m.connect.address.service), "echo");
	assert_int_equal(fake_request(f, &s, &m), 0);
	assert_int_not_equal(s.reply.connecting.vqpn, 0);
	assert_int_equal(s.reply.connecting.engine, 1);
	/* no port reaches it */
	f->b->attr[1].gid.raw[12] = 11;
	assert_int_equal(fake_connect(f, &s, 9, "echo", 0), WEIR_MSG_REFUSED);
	assert_int_equal(s.reply.refused.code, EHOSTUNREACH);
}
