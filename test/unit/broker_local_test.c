/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions without sockets: channels, listeners, connections between local programs, deaths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker_fake.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct fake_config two_engines = {.engines = 2, .node = 7};

/* A service with `backlog` by l and one connection from c to it. */
struct pair {
	struct fake *f;
	struct fake_session l, c;
};

static void
pair_open(struct pair *p, uint32_t backlog)
{
	p->f = fake_open(&two_engines);
	fake_attach(p->f, &p->l);
	fake_attach(p->f, &p->c);
	fake_channels(p->f, &p->l);
	fake_channels(p->f, &p->c);
	fake_listen(p->f, &p->l, "echo", backlog);
	assert_int_equal(p->l.reply.type, WEIR_MSG_LISTENING);
}

static void
expect_refused(const struct fake_session *s, int code)
{
	assert_int_equal(s->reply.type, WEIR_MSG_REFUSED);
	assert_int_equal(s->reply.refused.code, code);
	assert_true(s->reply.refused.reason[0]);
}

static struct weir_session_msg
ask(struct pair *p, struct fake_session *s, uint32_t type, uint32_t a, uint32_t b)
{
	struct weir_session_msg m = {.type = type};

	m.segment.segment = a; /* also listening.listener, add_channel.engine, pair.vqpn */
	if (weir_session_length(type) >= 16)
		m.segment.side = b; /* also pair.channel */
	assert_int_equal(fake_request(p->f, s, &m), 0);
	return s->reply;
}

static void
test_channels(void **state)
{
	struct fake *f = fake_open(&two_engines);
	struct fake_session s;
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};
	char byte;

	(void)state;
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
	assert_int_equal(send(f->doorbell[0], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL), -1);
	assert_int_equal(recv(f->doorbell[0], &byte, 1, MSG_DONTWAIT), -1);
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

	(void)state;
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

	(void)state;
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

	(void)state;
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

	(void)state;
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

	(void)state;
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

	(void)state;
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

/* Descriptors and lines come back, and a line that is used again has no old counters. */
static void
test_close(void **state)
{
	struct pair p;
	struct weir_session_msg c;
	struct engine_event e = {.type = ENGINE_EVENT_LOCAL_CLOSE};
	struct weir_segment_conn *lines;
	uint8_t *map;
	struct segment *g;

	(void)state;
	pair_open(&p, 4);
	fake_connect(p.f, &p.c, 7, "echo", 0);
	c = p.c.reply;
	g = p.f->b->segment[c.connecting.segment % BROKER_SEGMENTS_MAX];
	map = mmap(NULL, g->geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->memory, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	lines = (struct weir_segment_conn *)(map + weir_segment_conns_at(&g->geometry, 1));
	lines[c.connecting.conn_index].consumed = 12345;
	lines[c.connecting.conn_index].received = 50;
	((struct weir_segment_conn *)(map + weir_segment_conns_at(&g->geometry,
								  0)))[c.connecting.conn_index]
	    .received = 7;
	assert_int_equal(local_messages(p.f->b, c.connecting.segment, c.connecting.conn_index), 57);
	assert_int_equal(local_messages(p.f->b, c.connecting.segment, SEGMENT_CONNECTIONS), 0);
	assert_int_equal(local_messages(p.f->b, c.connecting.segment + 1, c.connecting.conn_index),
			 0);
	e.conn.vqpn = c.connecting.vqpn;
	fake_emit(p.f, 0, &e);
	e.type = ENGINE_EVENT_CONN_CLOSED;
	fake_emit(p.f, 0, &e);
	fake_run(p.f);
	assert_int_equal(p.f->count[ENGINE_CONN_PEER_CLOSED], 1);
	assert_int_equal(p.f->last[ENGINE_CONN_PEER_CLOSED].conn.vqpn, c.connecting.peer_vqpn);
	assert_int_equal(p.f->last[ENGINE_CONN_PEER_CLOSED].conn.status, 0);
	/* the other end still reads: the line stays */
	assert_int_equal(g->free_count, SEGMENT_CONNECTIONS - 1);
	e.type = ENGINE_EVENT_LOCAL_CLOSE;
	e.conn.vqpn = c.connecting.peer_vqpn;
	fake_emit(p.f, 0, &e);
	e.type = ENGINE_EVENT_CONN_CLOSED;
	fake_emit(p.f, 0, &e);
	fake_run(p.f);
	assert_int_equal(g->free_count, SEGMENT_CONNECTIONS);
	assert_int_equal(p.f->count[ENGINE_CONN_PEER_CLOSED], 1);
	assert_int_equal(p.f->b->conn_count, 0);
	fake_connect(p.f, &p.c, 7, "echo", 0);
	assert_int_equal(p.c.reply.connecting.segment, c.connecting.segment);
	assert_int_equal(p.c.reply.connecting.conn_index, c.connecting.conn_index);
	assert_int_equal(lines[c.connecting.conn_index].consumed, 0);
	assert_int_equal(local_messages(p.f->b, c.connecting.segment, c.connecting.conn_index), 0);
	munmap(map, g->geometry.bytes);
	fake_close(p.f);
}

/* What the connecting program hears when the other dies at each step of the set-up. */
static void
test_death_while_connecting(void **state)
{
	(void)state;
	for (unsigned step = 0; step < 4; step++) {
		struct pair p;

		pair_open(&p, 4);
		p.f->hold = true;
		fake_connect(p.f, &p.c, 7, "echo", 0);
		for (unsigned i = 0; i < step && p.f->held_count; i++) {
			struct engine_command *k = p.f->held[0].c;

			k->result = 0;
			if (k->type == ENGINE_CONN_LOCAL)
				k->conn.vqpn = WEIR_VQPN(i, 1);
			memmove(p.f->held, p.f->held + 1, --p.f->held_count * sizeof(p.f->held[0]));
			broker_completed(p.f->b, 0, k);
		}
		broker_session_close(p.l.s);
		p.f->hold = false;
		fake_release(p.f);
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
static void
test_closed_before_opened(void **state)
{
	struct engine_event e = {.type = ENGINE_EVENT_LOCAL_CLOSE};
	struct pair p;

	(void)state;
	pair_open(&p, 4);
	p.f->hold = true;
	fake_connect(p.f, &p.c, 7, "echo", 0);
	for (unsigned i = 0; i < 2; i++) { /* both entries are made, the acceptor's is opened */
		struct engine_command *k = p.f->held[0].c;

		k->result = 0;
		k->conn.vqpn = WEIR_VQPN(i, 1);
		memmove(p.f->held, p.f->held + 1, --p.f->held_count * sizeof(p.f->held[0]));
		broker_completed(p.f->b, 0, k);
	}
	e.conn.vqpn = WEIR_VQPN(1, 1);
	fake_emit(p.f, 0, &e);
	p.f->hold = false;
	fake_release(p.f);
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
static void
test_connector_dies(void **state)
{
	(void)state;
	for (unsigned step = 0; step < 4; step++) {
		struct pair p;

		pair_open(&p, 4);
		p.f->hold = true;
		fake_connect(p.f, &p.c, 7, "echo", 0);
		for (unsigned i = 0; i < step && p.f->held_count; i++) {
			struct engine_command *k = p.f->held[0].c;

			k->result = 0;
			if (k->type == ENGINE_CONN_LOCAL)
				k->conn.vqpn = WEIR_VQPN(i, 1);
			memmove(p.f->held, p.f->held + 1, --p.f->held_count * sizeof(p.f->held[0]));
			broker_completed(p.f->b, 0, k);
		}
		broker_session_close(p.c.s);
		p.f->hold = false;
		fake_release(p.f);
		assert_int_equal(p.f->b->session_count, 1);
		/* an entry that the acceptor's engine has is opened to the program and then closed
		 */
		assert_int_equal(p.f->count[ENGINE_CONN_PEER_CLOSED], p.l.s->conn_count);
		fake_close(p.f);
	}
}

static void
test_death_tells_peer_and_keeps_segment(void **state)
{
	struct pair p;
	struct weir_session_msg c;
	uint32_t segment;

	(void)state;
	pair_open(&p, 4);
	fake_connect(p.f, &p.c, 7, "echo", 0);
	c = p.c.reply;
	segment = c.connecting.segment;
	broker_session_close(p.c.s);
	fake_run(p.f);
	assert_int_equal(p.f->b->session_count, 1);
	assert_int_equal(p.f->count[ENGINE_CONN_PEER_CLOSED], 1);
	assert_int_equal(p.f->last[ENGINE_CONN_PEER_CLOSED].conn.status, ECONNRESET);
	assert_int_equal(p.f->last[ENGINE_CONN_PEER_CLOSED].conn.vqpn, c.connecting.peer_vqpn);
	/* what was queued is still there to be fetched, by its own side only */
	assert_int_equal(ask(&p, &p.l, WEIR_MSG_SEGMENT, segment, 0).type, WEIR_MSG_REFUSED);
	assert_int_equal(ask(&p, &p.l, WEIR_MSG_SEGMENT, segment + 1, 1).type, WEIR_MSG_REFUSED);
	assert_int_equal(ask(&p, &p.l, WEIR_MSG_SEGMENT, segment, 1).type, WEIR_MSG_SEGMENT_MAP);
	assert_int_equal(p.l.fd_count, 2);
	broker_session_close(p.l.s);
	fake_run(p.f);
	assert_int_equal(p.f->b->session_count, 0);
	assert_int_equal(p.f->b->conn_count, 0);
	assert_null(p.f->b->segment[segment % BROKER_SEGMENTS_MAX]);
	fake_close(p.f);
}

static void
test_drop_segment(void **state)
{
	struct pair p;
	struct weir_session_msg c;
	struct engine_event e = {.type = ENGINE_EVENT_CONN_CLOSED};
	uint32_t segment;

	(void)state;
	pair_open(&p, 4);
	fake_connect(p.f, &p.c, 7, "echo", 0);
	c = p.c.reply;
	segment = c.connecting.segment;
	assert_int_equal(ask(&p, &p.l, WEIR_MSG_SEGMENT, segment, 1).type, WEIR_MSG_SEGMENT_MAP);
	assert_int_equal(ask(&p, &p.c, WEIR_MSG_SEGMENT, segment, 0).type, WEIR_MSG_SEGMENT_MAP);
	ask(&p, &p.c, WEIR_MSG_DROP_SEGMENT, segment, 0);
	expect_refused(&p.c, EBUSY);
	e.conn.vqpn = c.connecting.vqpn;
	fake_emit(p.f, 0, &e);
	fake_run(p.f);
	assert_int_equal(ask(&p, &p.c, WEIR_MSG_DROP_SEGMENT, segment, 0).type, WEIR_MSG_OK);
	ask(&p, &p.l, WEIR_MSG_DROP_SEGMENT, segment, 1);
	expect_refused(&p.l, EBUSY);
	/* no connection joins it any more */
	fake_connect(p.f, &p.c, 7, "echo", 0);
	assert_int_not_equal(p.c.reply.connecting.segment, segment);
	e.conn.vqpn = c.connecting.peer_vqpn;
	fake_emit(p.f, 0, &e);
	fake_run(p.f);
	assert_null(p.f->b->segment[segment % BROKER_SEGMENTS_MAX]);
	assert_int_equal(ask(&p, &p.l, WEIR_MSG_DROP_SEGMENT, segment, 1).type, WEIR_MSG_OK);
	fake_close(p.f);
}

static void
test_pair(void **state)
{
	struct pair p;
	struct weir_session_msg c;
	uint32_t pair;

	(void)state;
	pair_open(&p, 4);
	fake_connect(p.f, &p.c, 7, "echo", 0);
	c = p.c.reply;
	/* the same two threads: nothing new */
	ask(&p, &p.c, WEIR_MSG_PAIR, c.connecting.vqpn, 0);
	assert_int_equal(p.c.reply.segment_map.segment, c.connecting.segment);
	assert_int_equal(p.f->count[ENGINE_PAIR], 0);
	/* another thread of ours */
	ask(&p, &p.c, WEIR_MSG_PAIR, c.connecting.vqpn, 1);
	assert_int_equal(p.c.reply.type, WEIR_MSG_SEGMENT_MAP);
	assert_int_equal(p.c.reply.segment_map.side, 0);
	assert_int_not_equal(p.c.reply.segment_map.segment, c.connecting.segment);
	assert_int_equal(p.f->count[ENGINE_PAIR], 1);
	pair = p.c.reply.segment_map.segment;
	assert_int_equal(p.f->last[ENGINE_PAIR].conn.segment, pair);
	assert_int_equal(p.f->last[ENGINE_PAIR].conn.session, p.l.s->id);
	/* from the other end */
	ask(&p, &p.l, WEIR_MSG_PAIR, c.connecting.peer_vqpn, 0);
	assert_int_equal(p.l.reply.type, WEIR_MSG_SEGMENT_MAP);
	assert_int_equal(p.f->count[ENGINE_PAIR], 2);
	/* not somebody else's connection, not an unknown one, not an unknown channel */
	ask(&p, &p.l, WEIR_MSG_PAIR, c.connecting.vqpn, 0);
	expect_refused(&p.l, ENOTCONN);
	ask(&p, &p.c, WEIR_MSG_PAIR, c.connecting.vqpn ^ 0x100000, 0);
	expect_refused(&p.c, ENOTCONN);
	ask(&p, &p.c, WEIR_MSG_PAIR, c.connecting.vqpn, 7);
	expect_refused(&p.c, ENOTCONN);
	/* what was queued in it can be fetched after a death */
	broker_session_close(p.c.s);
	fake_run(p.f);
	assert_int_equal(ask(&p, &p.l, WEIR_MSG_SEGMENT, pair, 1).type, WEIR_MSG_SEGMENT_MAP);
	assert_int_equal(ask(&p, &p.l, WEIR_MSG_SEGMENT, pair, 1).type, WEIR_MSG_REFUSED);
	fake_close(p.f);
}

static void
test_connect_to_itself(void **state)
{
	struct pair p;

	(void)state;
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

/* CONN_CLOSED may overtake the answer to the command that made the connection. */
static void
test_closed_before_answer(void **state)
{
	struct pair p;
	struct engine_event e = {.type = ENGINE_EVENT_CONN_CLOSED, .conn.vqpn = WEIR_VQPN(5, 1)};
	struct engine_command *k;

	(void)state;
	pair_open(&p, 4);
	fake_connect(p.f, &p.c, 7, "echo", WEIR_CONNECT_LOOP); /* brings the loop link up */
	fake_run(p.f);
	assert_int_equal(p.f->b->conn_count, 1);
	p.f->hold = true;
	fake_connect(p.f, &p.c, 7, "echo", WEIR_CONNECT_LOOP);
	assert_int_equal(p.f->held_count, 1);
	k = p.f->held[0].c;
	assert_int_equal(k->type, ENGINE_CONN_OPEN);
	broker_event(p.f->b, 0, &e);
	k->conn.vqpn = WEIR_VQPN(5, 1);
	p.f->held_count = 0;
	broker_completed(p.f->b, 0, k);
	assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
	assert_int_equal(p.f->b->conn_count, 1);
	p.f->hold = false;
	fake_close(p.f);
}

static void
test_limits(void **state)
{
	struct pair p;
	unsigned made = 0;

	(void)state;
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

/* Descriptors, lines and entries come round for ever. */
static void
test_many_lives(void **state)
{
	struct pair p;
	struct engine_event e = {.type = ENGINE_EVENT_CONN_CLOSED};

	(void)state;
	pair_open(&p, 10000);
	for (unsigned i = 0; i < 5000; i++) {
		fake_connect(p.f, &p.c, 7, "echo", 0);
		assert_int_equal(p.c.reply.type, WEIR_MSG_CONNECTING);
		e.conn.vqpn = p.c.reply.connecting.vqpn;
		fake_emit(p.f, 0, &e);
		e.conn.vqpn = p.c.reply.connecting.peer_vqpn;
		fake_emit(p.f, 0, &e);
		fake_run(p.f);
	}
	assert_int_equal(p.f->b->conn_count, 0);
	fake_close(p.f);
}

/* The engine may answer CHANNEL_ADD after SESSION_REMOVE. */
static void
test_answers_out_of_order(void **state)
{
	struct fake *f = fake_open(&two_engines);
	struct fake_session s;
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};
	struct engine_command *late;

	(void)state;
	fake_attach(f, &s);
	f->hold = true;
	assert_int_equal(fake_request(f, &s, &m), 0);
	late = f->held[0].c;
	assert_int_equal(late->type, ENGINE_CHANNEL_ADD);
	f->held_count = 0;
	broker_session_close(s.s);
	f->hold = false;
	fake_release(f);
	assert_int_equal(f->b->session_count, 1);
	late->result = -ENOENT;
	broker_completed(f->b, 0, late);
	assert_int_equal(f->b->session_count, 0);
	fake_close(f);
}

static void
test_nothing_is_left(void **state)
{
	unsigned fds = fake_open_fds();
	struct pair p;

	(void)state;
	for (int i = 0; i < 3; i++) {
		pair_open(&p, 4);
		fake_connect(p.f, &p.c, 7, "echo", 0);
		fake_connect(p.f, &p.l, 7, "echo", 0);
		assert_int_equal(fake_mappings("weir-arena"), 2);
		if (i)
			broker_session_close(p.c.s);
		fake_run(p.f);
		assert_int_equal(fake_mappings("weir-arena"), i ? 1 : 2);
		fake_close(p.f);
	}
	assert_int_equal(fake_open_fds(), fds);
	assert_int_equal(fake_mappings("weir-"), 0);
}

/* Mailboxes that take nothing for a while lose nothing, and keep the order. */
static void
test_full_mailbox(void **state)
{
	struct fake *f = fake_open(&two_engines);
	struct fake_session s;
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};

	(void)state;
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
	f->hold = false;
	fake_release(f);
	assert_int_equal(f->b->session_count, 0);
	assert_int_equal(s.replies, 1);
	fake_close(f);
}

/* Ports in two networks: a connection belongs to the engine whose port reaches the peer. */
static void
test_other_engine(void **state)
{
	struct fake *f = fake_open(&two_engines);
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};
	struct fake_session s;

	(void)state;
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

static void
test_stop(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, 4);
	fake_connect(p.f, &p.c, 7, "echo", WEIR_CONNECT_LOOP);
	assert_int_equal(p.f->links, 2);
	p.f->hold = true;
	assert_false(broker_stop(p.f->b));
	assert_true(p.c.ended && p.l.ended);
	p.f->hold = false;
	fake_release(p.f);
	while (!broker_stop(p.f->b))
		fake_run(p.f);
	assert_int_equal(p.f->b->session_count, 0);
	assert_int_equal(p.f->links, 0);
	assert_int_equal(p.f->live_qps, 0);
	fake_close(p.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_channels),
	    cmocka_unit_test(test_channel_refused_by_engine),
	    cmocka_unit_test(test_listen),
	    cmocka_unit_test(test_all_listeners),
	    cmocka_unit_test(test_connect),
	    cmocka_unit_test(test_own_addresses),
	    cmocka_unit_test(test_backlog),
	    cmocka_unit_test(test_close),
	    cmocka_unit_test(test_death_while_connecting),
	    cmocka_unit_test(test_closed_before_opened),
	    cmocka_unit_test(test_connector_dies),
	    cmocka_unit_test(test_death_tells_peer_and_keeps_segment),
	    cmocka_unit_test(test_drop_segment),
	    cmocka_unit_test(test_pair),
	    cmocka_unit_test(test_connect_to_itself),
	    cmocka_unit_test(test_closed_before_answer),
	    cmocka_unit_test(test_limits),
	    cmocka_unit_test(test_many_lives),
	    cmocka_unit_test(test_answers_out_of_order),
	    cmocka_unit_test(test_nothing_is_left),
	    cmocka_unit_test(test_full_mailbox),
	    cmocka_unit_test(test_other_engine),
	    cmocka_unit_test(test_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
