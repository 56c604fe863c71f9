/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections between local programs end: closed, by deaths at each step, when the broker stops. */
#include "worlds/broker_pair.h"

#include "broker/local.h"

/* Descriptors and lines come back, and a line that is used again has no old counters. */
TEST_PAIR(test_close, 4)
{
	struct weir_session_msg c;
	struct engine_event e = {.type = ENGINE_EVENT_LOCAL_CLOSE};
	struct weir_segment_conn *lines, *back;
	uint64_t bytes = 0;
	uint8_t *map;
	struct segment *g;

	fake_connect(p->f, &p->c, 7, "echo", 0);
	c = p->c.reply;
	g = p->f->b->segment[c.connecting.segment % BROKER_SEGMENTS_MAX];
	map = mmap(NULL, g->geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->memory.fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	lines = (struct weir_segment_conn *)(map + weir_segment_conns_at(&g->geometry, 1));
	lines[c.connecting.conn_index].consumed = 12345;
	lines[c.connecting.conn_index].received = 50;
	lines[c.connecting.conn_index].bytes = 4000;
	back = (struct weir_segment_conn *)(map + weir_segment_conns_at(&g->geometry, 0));
	back[c.connecting.conn_index].received = 7;
	back[c.connecting.conn_index].bytes = 70;
	assert_int_equal(
	    local_messages(p->f->b, c.connecting.segment, c.connecting.conn_index, &bytes), 57);
	assert_int_equal(bytes, 4070);
	assert_int_equal(
	    local_messages(p->f->b, c.connecting.segment, segment_streams.connections, &bytes), 0);
	assert_int_equal(
	    local_messages(p->f->b, c.connecting.segment + 1, c.connecting.conn_index, &bytes), 0);
	assert_int_equal(bytes, 4070);
	e.conn.vqpn = c.connecting.vqpn;
	fake_emit(p->f, 0, &e);
	e.type = ENGINE_EVENT_CONN_CLOSED;
	fake_event(p->f, 0, &e);
	assert_int_equal(p->f->count[ENGINE_CONN_PEER_CLOSED], 1);
	assert_int_equal(p->f->last[ENGINE_CONN_PEER_CLOSED].conn.vqpn, c.connecting.peer_vqpn);
	assert_int_equal(p->f->last[ENGINE_CONN_PEER_CLOSED].conn.status, 0);
	/* the other end still reads: the line stays */
	assert_int_equal(g->free_count, segment_streams.connections - 1);
	e.type = ENGINE_EVENT_LOCAL_CLOSE;
	e.conn.vqpn = c.connecting.peer_vqpn;
	fake_emit(p->f, 0, &e);
	e.type = ENGINE_EVENT_CONN_CLOSED;
	fake_event(p->f, 0, &e);
	assert_int_equal(g->free_count, segment_streams.connections);
	assert_int_equal(p->f->count[ENGINE_CONN_PEER_CLOSED], 1);
	assert_int_equal(p->f->b->conn_count, 0);
	fake_connect(p->f, &p->c, 7, "echo", 0);
	assert_int_equal(p->c.reply.connecting.segment, c.connecting.segment);
	assert_int_equal(p->c.reply.connecting.conn_index, c.connecting.conn_index);
	assert_int_equal(lines[c.connecting.conn_index].consumed, 0);
	bytes = 0;
	assert_int_equal(
	    local_messages(p->f->b, c.connecting.segment, c.connecting.conn_index, &bytes), 0);
	assert_int_equal(bytes, 0);
	munmap(map, g->geometry.bytes);
}

/* A set-up of which the engine has answered that many commands; it holds the others. */
static void
connect_as_far_as(struct pair *p, unsigned steps)
{
	pair_open(p, 4);
	p->f->hold = true;
	fake_connect(p->f, &p->c, 7, "echo", 0);
	for (unsigned i = 0; i < steps && p->f->held_count; i++) {
		struct engine_command *k = p->f->held[0].c;

		k->result = 0;
		if (k->type == ENGINE_CONN_LOCAL)
			k->conn.vqpn = WEIR_VQPN(i, 1);
		memmove(p->f->held, p->f->held + 1, --p->f->held_count * sizeof(p->f->held[0]));
		broker_completed(p->f->b, 0, k);
	}
}

/* The connecting program is told when the other dies at each step of the set-up. */
TEST(test_death_while_connecting)
{
	for (unsigned step = 0; step < 4; step++) {
		struct pair p;

		connect_as_far_as(&p, step);
		broker_session_close(p.l.s);
		fake_let_go(p.f);
		assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
		/* once the other program may know of it: what it sent comes first */
		if (step < 3)
			assert_int_equal(p.f->last[ENGINE_CONN_LOCAL_OPENED].conn.status,
					 step < 2 ? ECONNREFUSED : 0);
		assert_int_equal(p.f->count[ENGINE_CONN_PEER_CLOSED], step >= 2);
		if (step >= 2)
			assert_int_equal(p.f->last[ENGINE_CONN_PEER_CLOSED].conn.status,
					 ECONNRESET);
		assert_false(p.c.s->pending);
		assert_int_equal(p.f->b->session_count, 1);
		fake_close(p.f);
	}
}

/* The accepting program hears of it first: it may have sent all and closed before the other does.
 */
TEST(test_closed_before_opened)
{
	struct engine_event e = {.type = ENGINE_EVENT_LOCAL_CLOSE};
	struct pair p;

	connect_as_far_as(&p, 2); /* both entries are made, the acceptor's is opened */
	e.conn.vqpn = WEIR_VQPN(1, 1);
	fake_emit(p.f, 0, &e);
	fake_let_go(p.f);
	assert_int_equal(p.f->last[ENGINE_CONN_LOCAL_OPENED].conn.vqpn, WEIR_VQPN(0, 1));
	assert_int_equal(p.f->last[ENGINE_CONN_LOCAL_OPENED].conn.status, 0);
	assert_int_equal(p.f->count[ENGINE_CONN_LOCAL_OPENED], 2);
	assert_int_equal(p.f->count[ENGINE_CONN_PEER_CLOSED], 1);
	assert_int_equal(p.f->last[ENGINE_CONN_PEER_CLOSED].conn.vqpn, WEIR_VQPN(0, 1));
	assert_int_equal(p.f->last[ENGINE_CONN_PEER_CLOSED].conn.status, 0);
	fake_close(p.f);
}

/* As test_death_while_connecting() when the connecting program dies: the other end is told of no
 * ghost that stays. */
TEST(test_connector_dies)
{
	for (unsigned step = 0; step < 4; step++) {
		struct pair p;

		connect_as_far_as(&p, step);
		broker_session_close(p.c.s);
		fake_let_go(p.f);
		assert_int_equal(p.f->b->session_count, 1);
		/* an entry that the acceptor's engine has is opened to the program and then closed
		 */
		assert_int_equal(p.f->count[ENGINE_CONN_PEER_CLOSED], p.l.s->conn_count);
		fake_close(p.f);
	}
}

TEST_PAIR(test_death_tells_peer_and_keeps_segment, 4)
{
	struct weir_session_msg c;
	uint32_t segment;

	fake_connect(p->f, &p->c, 7, "echo", 0);
	c = p->c.reply;
	segment = c.connecting.segment;
	fake_leave(p->f, &p->c);
	assert_int_equal(p->f->b->session_count, 1);
	assert_int_equal(p->f->count[ENGINE_CONN_PEER_CLOSED], 1);
	assert_int_equal(p->f->last[ENGINE_CONN_PEER_CLOSED].conn.status, ECONNRESET);
	assert_int_equal(p->f->last[ENGINE_CONN_PEER_CLOSED].conn.vqpn, c.connecting.peer_vqpn);
	/* what was queued is still there to be fetched, by its own side only */
	assert_int_equal(ask(p, &p->l, WEIR_MSG_SEGMENT, segment, 0).type, WEIR_MSG_REFUSED);
	assert_int_equal(ask(p, &p->l, WEIR_MSG_SEGMENT, segment + 1, 1).type, WEIR_MSG_REFUSED);
	assert_int_equal(ask(p, &p->l, WEIR_MSG_SEGMENT, segment, 1).type, WEIR_MSG_SEGMENT_MAP);
	assert_int_equal(p->l.fd_count, WEIR_SESSION_FDS);
	fake_leave(p->f, &p->l);
	assert_int_equal(p->f->b->session_count, 0);
	assert_int_equal(p->f->b->conn_count, 0);
	assert_null(p->f->b->segment[segment % BROKER_SEGMENTS_MAX]);
}

TEST_PAIR(test_drop_segment, 4)
{
	struct weir_session_msg c;
	struct engine_event e = {.type = ENGINE_EVENT_CONN_CLOSED};
	uint32_t segment;

	fake_connect(p->f, &p->c, 7, "echo", 0);
	c = p->c.reply;
	segment = c.connecting.segment;
	assert_int_equal(ask(p, &p->l, WEIR_MSG_SEGMENT, segment, 1).type, WEIR_MSG_SEGMENT_MAP);
	assert_int_equal(ask(p, &p->c, WEIR_MSG_SEGMENT, segment, 0).type, WEIR_MSG_SEGMENT_MAP);
	ask(p, &p->c, WEIR_MSG_DROP_SEGMENT, segment, 0);
	expect_refused(&p->c, EBUSY);
	e.conn.vqpn = c.connecting.vqpn;
	fake_event(p->f, 0, &e);
	assert_int_equal(ask(p, &p->c, WEIR_MSG_DROP_SEGMENT, segment, 0).type, WEIR_MSG_OK);
	ask(p, &p->l, WEIR_MSG_DROP_SEGMENT, segment, 1);
	expect_refused(&p->l, EBUSY);
	/* no connection joins it any more */
	fake_connect(p->f, &p->c, 7, "echo", 0);
	assert_int_not_equal(p->c.reply.connecting.segment, segment);
	e.conn.vqpn = c.connecting.peer_vqpn;
	fake_event(p->f, 0, &e);
	assert_null(p->f->b->segment[segment % BROKER_SEGMENTS_MAX]);
	assert_int_equal(ask(p, &p->l, WEIR_MSG_DROP_SEGMENT, segment, 1).type, WEIR_MSG_OK);
}

/* CONN_CLOSED may overtake the answer to the command that made the connection. */
TEST_PAIR(test_closed_before_answer, 4)
{
	struct engine_event e = {.type = ENGINE_EVENT_CONN_CLOSED, .conn.vqpn = WEIR_VQPN(5, 1)};
	struct engine_command *k;

	fake_connect(p->f, &p->c, 7, "echo", WEIR_CONNECT_LOOP); /* brings the loop link up */
	fake_run(p->f);
	assert_int_equal(p->f->b->conn_count, 1);
	p->f->hold = true;
	fake_connect(p->f, &p->c, 7, "echo", WEIR_CONNECT_LOOP);
	assert_int_equal(p->f->held_count, 1);
	k = p->f->held[0].c;
	assert_int_equal(k->type, ENGINE_CONN_OPEN);
	broker_event(p->f->b, 0, &e);
	k->conn.vqpn = WEIR_VQPN(5, 1);
	p->f->held_count = 0;
	broker_completed(p->f->b, 0, k);
	assert_int_equal(p->c.reply.type, WEIR_MSG_CONNECTING);
	assert_int_equal(p->f->b->conn_count, 1);
	p->f->hold = false;
}

/* Descriptors, lines and entries come round for ever. */
TEST_PAIR(test_many_lives, 10000)
{
	struct engine_event e = {.type = ENGINE_EVENT_CONN_CLOSED};

	for (unsigned i = 0; i < 5000; i++) {
		assert_int_equal(fake_connect(p->f, &p->c, 7, "echo", 0), WEIR_MSG_CONNECTING);
		e.conn.vqpn = p->c.reply.connecting.vqpn;
		fake_emit(p->f, 0, &e);
		e.conn.vqpn = p->c.reply.connecting.peer_vqpn;
		fake_event(p->f, 0, &e);
	}
	assert_int_equal(p->f->b->conn_count, 0);
}

/* The engine may answer CHANNEL_ADD after SESSION_REMOVE. */
TEST_FAKE(test_answers_out_of_order, two_engines)
{
	struct fake_session s;
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};
	struct engine_command *late;

	fake_attach(f, &s);
	f->hold = true;
	assert_int_equal(fake_request(f, &s, &m), 0);
	late = f->held[0].c;
	assert_int_equal(late->type, ENGINE_CHANNEL_ADD);
	f->held_count = 0;
	broker_session_close(s.s);
	fake_let_go(f);
	assert_int_equal(f->b->session_count, 1);
	late->result = -ENOENT;
	broker_completed(f->b, 0, late);
	assert_int_equal(f->b->session_count, 0);
}

TEST(test_nothing_is_left)
{
	unsigned fds = fake_open_fds();
	struct pair p;

	for (int i = 0; i < 3; i++) {
		pair_open(&p, 4);
		fake_connect(p.f, &p.c, 7, "echo", 0);
		fake_connect(p.f, &p.l, 7, "echo", 0);
		assert_int_equal(fake_mappings("weir-arena"), 2);
		if (i)
			fake_leave(p.f, &p.c);
		assert_int_equal(fake_mappings("weir-arena"), i ? 1 : 2);
		fake_close(p.f);
	}
	assert_int_equal(fake_open_fds(), fds);
	assert_int_equal(fake_mappings("weir-"), 0);
}

/* Mailboxes that take nothing for a while lose nothing, and keep the order. */
TEST_FAKE(test_full_mailbox, two_engines)
{
	struct fake_session s;
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};

	fake_attach(f, &s);
	f->full = true;
	m.add_channel.engine = 0;
	assert_int_equal(fake_request(f, &s, &m), 0);
	assert_int_equal(f->count[ENGINE_CHANNEL_ADD], 0);
	assert_true(broker_run(f->b) <= BROKER_SECOND_NS / 1000);
	broker_session_close(s.s);
	assert_int_equal(f->count[ENGINE_SESSION_REMOVE], 0);
	f->full = false;
	f->hold = true;
	fake_run(f);
	assert_int_equal(f->held[0].c->type, ENGINE_CHANNEL_ADD);
	assert_int_equal(f->held[1].c->type, ENGINE_SESSION_REMOVE);
	fake_let_go(f);
	assert_int_equal(f->b->session_count, 0);
	assert_int_equal(s.replies, 1);
}

TEST_PAIR(test_stop, 4)
{
	fake_connect(p->f, &p->c, 7, "echo", WEIR_CONNECT_LOOP);
	assert_int_equal(p->f->links, 2);
	p->f->hold = true;
	assert_false(broker_stop(p->f->b));
	/* engines may still put something into their memory */
	assert_false(p->c.ended || p->l.ended);
	fake_let_go(p->f);
	assert_true(p->c.ended && p->l.ended);
	while (!broker_stop(p->f->b))
		fake_run(p->f);
	assert_int_equal(p->f->b->session_count, 0);
	assert_int_equal(p->f->links, 0);
	assert_int_equal(p->f->live_qps, 0);
}
