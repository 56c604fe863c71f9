/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocations of the broker fail, one after the other and from each one on, while a program
 * attaches, connects, adopts memory and leaves. The program gets an error, another one works on.
 */
#define _GNU_SOURCE
#include "worlds/broker_sockets.h"
#include "broker/command.h"
#include "broker/conn.h"
#include "broker/link.h"
#include "weir/memory.h"

/* ---- the allocator: linked with --wrap=calloc ---- */

static uint32_t fail_at;  /* calls until the first that fails; 0: none does */
static bool fail_forever; /* those after it fail, too */
static uint32_t failed;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *
__wrap_calloc(size_t count, size_t size)
{
	if (!fail_at || (fail_at > 1 && fail_at--))
		return __real_calloc(count, size);
	if (!fail_forever)
		fail_at = 0;
	failed++;
	errno = ENOMEM;
	return NULL;
}

static void
arm(uint32_t at, bool forever)
{
	fail_at = at;
	fail_forever = forever;
	failed = 0;
}

static struct fake *
open_fake(void)
{
	arm(0, false);
	return fake_open(&two_engines);
}

/* ---- a program that takes each error as it comes ---- */

static void
settle(struct fake *f)
{
	if (f->hold)
		fake_release(f);
	fake_run(f);
}

/* True: it was done. False: out of memory, or the session is gone. */
static bool
ask(struct fake *f, struct fake_session *s, struct weir_session_msg *m)
{
	uint32_t replies = s->replies;

	if (!s->s)
		return false;
	assert_int_equal(fake_request(f, s, m), 0);
	settle(f);
	if (s->ended)
		return false;
	assert_int_equal(s->replies, replies + 1);
	if (s->reply.type != WEIR_MSG_REFUSED)
		return true;
	assert_int_equal(s->reply.refused.code, ENOMEM);
	return false;
}

static bool
try_attach(struct fake *f, struct fake_session *s)
{
	fake_attach_by(f, s, getuid(), "test");
	settle(f);
	assert_int_equal(s->replies, 1);
	if (s->reply.type == WEIR_MSG_WELCOME)
		return true;
	assert_int_equal(s->reply.type, WEIR_MSG_REFUSED);
	assert_int_equal(s->reply.refused.code, ENOMEM);
	s->s = NULL;
	return false;
}

static bool
try_channels(struct fake *f, struct fake_session *s)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL, .add_channel.engine = i};

		if (!ask(f, s, &m))
			return false;
	}
	return true;
}

static bool
try_listen(struct fake *f, struct fake_session *s, const char *service)
{
	struct weir_session_msg m = {.type = WEIR_MSG_LISTEN, .listen.channel = {0, 1}};

	m.listen.flags = WEIR_LISTEN_PUBLIC;
	snprintf(m.listen.service, sizeof(m.listen.service), "%s", service);
	return ask(f, s, &m);
}

static bool
unlisten(struct fake *f, struct fake_session *s)
{
	struct weir_session_msg m = {.type = WEIR_MSG_UNLISTEN};

	m.listening.listener = s->reply.listening.listener;
	return ask(f, s, &m);
}

static bool
try_connect(struct fake *f, struct fake_session *s, const char *service, uint32_t flags)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT, .connect.flags = flags};

	m.connect.address = (struct weir_address){.kind = WEIR_ADDRESS_NODE, .id = 7};
	snprintf(m.connect.address.service, sizeof(m.connect.address.service), "%s", service);
	return ask(f, s, &m);
}

static void
adopt_and_disown(struct fake *f, struct fake_session *s)
{
	struct weir_session_msg m = {
	    .type = WEIR_MSG_ADOPT, .adopt.bytes = 65536, .adopt.flags = WEIR_ADOPT_SEND};

	if (!ask(f, s, &m))
		return;
	m = (struct weir_session_msg){.type = WEIR_MSG_DISOWN};
	m.region.region = s->reply.region.region;
	ask(f, s, &m);
	m = (struct weir_session_msg){.type = WEIR_MSG_ADOPT};
	m.adopt.bytes = 65536; /* it leaves with this one */
	m.adopt.flags = WEIR_ADOPT_RECV;
	ask(f, s, &m);
}

/* A peer asks for a connection over the link with this node itself, and a node comes and goes. */
static void
hear_of_others(struct fake *f)
{
	struct engine_event e = {.type = ENGINE_EVENT_CONNECT, .conn.service = "other"};

	e.conn.peer_node = 7;
	fake_emit(f, 0, &e);
	settle(f);
	fake_node(f, 9, WEIR_NODE_UP, 100, 2);
	settle(f);
	fake_node(f, 9, WEIR_NODE_DOWN, 100, 2);
	settle(f);
}

static void
run_program(struct fake *f)
{
	struct fake_session s;

	if (!try_attach(f, &s))
		return;
	if (try_channels(f, &s)) {
		try_listen(f, &s, "own");
		try_connect(f, &s, "other", 0); /* ends in the other program */
		try_connect(f, &s, "other", WEIR_CONNECT_LOOP);
		try_connect(f, &s, "other", WEIR_CONNECT_DATAGRAM | WEIR_CONNECT_LOOP);
	}
	adopt_and_disown(f, &s);
	hear_of_others(f);
	if (s.s)
		broker_session_close(s.s);
	settle(f);
}

static void
begin_other(struct fake *f, struct fake_session *other)
{
	assert_true(try_attach(f, other));
	assert_true(try_channels(f, other));
	assert_true(try_listen(f, other, "other"));
}

/* The loop-back link ends with each round, so that each makes it anew. */
static void
end_links(struct fake *f)
{
	for (struct broker_link *l = f->b->links; l; l = l->next)
		broker_link_fail(l, ECONNRESET);
	broker_flush(f->b);
	settle(f);
}

/* The other program closes its ends of connections and unmaps the segments. */
static void
close_ends(struct fake *f, struct fake_session *other)
{
	struct broker_conn *c;

	while ((c = LIST_FIRST(&other->s->conns))) {
		struct engine_event e = {.type = ENGINE_EVENT_CONN_CLOSED};

		e.conn.vqpn = c->vqpn;
		broker_event(f->b, c->engine, &e);
	}
	for (uint32_t i = 1; i < f->b->segment_top; i++) {
		struct weir_session_msg m = {.type = WEIR_MSG_DROP_SEGMENT, .segment.side = 1};

		if (!f->b->segment[i])
			continue;
		m.segment.segment = f->b->segment[i]->id;
		assert_true(ask(f, other, &m));
	}
}

static void
fail_each(bool hold, bool forever)
{
	struct fake *f = open_fake();
	struct fake_session other;
	uint64_t used[USER_LIMITS];
	uint32_t n = 1;
	unsigned fds;

	f->hold = hold;
	begin_other(f, &other);
	memcpy(used, f->b->used, sizeof(used));
	fds = fake_open_fds();
	do {
		arm(n, forever);
		run_program(f);
		fail_at = 0;
		if (!other.s) { /* no memory at all for what it had to be told */
			assert_true(forever);
			begin_other(f, &other);
		}
		assert_true(try_listen(f, &other, "more"));
		assert_true(unlisten(f, &other));
		close_ends(f, &other);
		end_links(f);
		f->now += 10 * BROKER_SECOND_NS; /* all memory is released */
		settle(f);
		assert_memory_equal(f->b->used, used, sizeof(used));
		assert_int_equal(f->b->session_count, 1);
		assert_int_equal(fake_open_fds(), fds);
		n++;
	} while (failed);
	assert_true(n > 25);
	fake_close(f);
}

TEST(test_each_fails_once)
{
	fail_each(false, false);
}

TEST(test_each_fails_while_engines_are_slow)
{
	fail_each(true, false);
}

TEST(test_all_fail_from_each_on)
{
	fail_each(false, true);
	fail_each(true, true);
}

TEST(test_broker_that_cannot_be_made)
{
	struct fake *f = open_fake();
	struct broker *b = NULL;
	uint32_t n = 1;

	for (; !b; n++) {
		arm(n, false);
		b = broker_create(&f->config);
		if (!b)
			assert_int_equal(errno, ENOMEM);
	}
	fail_at = 0;
	assert_true(n > 60);
	broker_destroy(b);
	fake_close(f);
}

/* The common part of the reserve is used up: a session that can't be told ends, and only that. */
TEST(test_session_ends_without_commands)
{
	struct fake *f = open_fake();
	struct fake_session from, to, other;
	struct broker_conn *c;

	begin_other(f, &other);
	assert_true(try_attach(f, &from) && try_channels(f, &from));
	assert_true(try_attach(f, &to) && try_channels(f, &to) && try_listen(f, &to, "to"));
	for (uint32_t i = 0; i < 70; i++)
		assert_true(try_connect(f, &from, "to", 0));
	f->hold = true;
	arm(1, true);
	LIST_FOREACH(c, &to.s->conns, entry) /* 64 commands in all */
	{
		struct engine_event e = {.type = ENGINE_EVENT_LOCAL_CLOSE, .conn.vqpn = c->vqpn};

		broker_event(f->b, c->engine, &e);
	}
	assert_true(from.ended);
	assert_false(to.ended || other.ended);
	broker_session_close(to.s);
	fail_at = 0;
	settle(f);
	assert_int_equal(f->b->session_count, 1);
	assert_true(try_listen(f, &other, "more"));
	fake_close(f);
}

/* The request that lacked memory is refused before its session ends, which ends another one. */
TEST(test_refused_before_it_ends)
{
	struct weir_session_msg m = {.type = WEIR_MSG_LISTEN, .listen.channel = {0, 1}};
	struct fake *f = open_fake();
	struct fake_session from, to;
	uint32_t common = f->b->reserve.common, replies;

	assert_true(try_attach(f, &from) && try_channels(f, &from));
	assert_true(try_attach(f, &to) && try_channels(f, &to));
	m.listen.flags = WEIR_LISTENS_HOLDING;
	snprintf(m.listen.service, sizeof(m.listen.service), "to");
	assert_true(ask(f, &to, &m) && try_connect(f, &from, "to", 0));
	m = (struct weir_session_msg){.type = WEIR_MSG_DECIDE};
	m.decide.vqpn = LIST_FIRST(&to.s->conns)->vqpn;
	replies = to.replies;
	f->b->reserve.common = 0;
	arm(1, true);
	assert_int_equal(fake_request(f, &to, &m), 0);
	arm(0, false);
	f->b->reserve.common = common;
	assert_int_equal(to.replies, replies + 1);
	assert_int_equal(to.reply.type, WEIR_MSG_REFUSED);
	assert_int_equal(to.reply.refused.code, ENOMEM);
	assert_true(to.ended && from.ended);
	assert_int_equal(f->b->session_count, 0);
	fake_close(f);
}

/* Rows of a kind by control.sock, to the last page: 0, or the code of the refusal. */
static int
query(struct fake *f, int fd, uint32_t rows)
{
	struct weir_ctl_msg m = {.query.rows = rows};
	union ctl in;

	ctl_send(fd, &m, WEIR_CTL_QUERY);
	do {
		if (get(f, fd, &in, sizeof(in), NULL) <= 0)
			return ECONNRESET;
		if (in.m.type == WEIR_CTL_ERROR)
			return in.m.error.code;
		assert_int_equal(in.m.type, WEIR_CTL_ROWS);
	} while (in.m.rows.more);
	return 0;
}

/* By session.sock: welcome, or told ENOMEM. */
static void
knock(struct fake *f)
{
	int fd = dial(f, "session.sock"), fds[WEIR_SESSION_FDS] = {-1, -1, -1};
	struct weir_session_msg m = hello();

	send(fd, &m, m.length, MSG_NOSIGNAL); /* refused already: it fails */
	assert_true(get(f, fd, &m, sizeof(m), fds) > 0);
	if (m.type == WEIR_MSG_WELCOME) {
		close(fds[0]);
	} else {
		assert_int_equal(m.type, WEIR_MSG_REFUSED);
		assert_int_equal(m.refused.code, ENOMEM);
	}
	close(fd);
	fake_run(f);
}

/* A control is closed when its report is lost, and tells it again. */
static void
report(struct fake *f, uint32_t id)
{
	struct weir_ctl_msg m = {.hello = {.versions = WEIR_CTL_VERSIONS, .node = 7}};
	int fd = dial(f, "control.sock");
	uint64_t changes;
	union ctl in;

	m.hello.role = WEIR_ROLE_CONTROL;
	m.type = WEIR_CTL_HELLO;
	m.length = weir_ctl_length(WEIR_CTL_HELLO);
	send(fd, &m, m.length, MSG_NOSIGNAL);
	fake_run(f);
	m = (struct weir_ctl_msg){.type = WEIR_CTL_NODE, .length = weir_ctl_length(WEIR_CTL_NODE)};
	m.node.id = id;
	m.node.state = WEIR_NODE_UP;
	m.node.engines = 1;
	m.node.incarnation = 5;
	changes = f->b->node_changes;
	send(fd, &m, m.length, MSG_NOSIGNAL);
	while (get(f, fd, &in, sizeof(in), NULL) > 0)
		;
	if (f->b->node_changes == changes)
		assert_int_equal(get(f, fd, &in, sizeof(in), NULL), 0);
	close(fd);
	fake_run(f);
}

TEST(test_sockets)
{
	static const uint32_t rows[] = {WEIR_ROWS_SESSIONS, WEIR_ROWS_QPS, WEIR_ROWS_CONNECTIONS};
	struct fake *f;
	uint32_t n = 1;
	unsigned fds;
	union ctl in;

	arm(0, false);
	f = fake_open(&with_sockets);
	fds = fake_open_fds();
	do {
		int fd = ctl_open(f, WEIR_ROLE_QUERY, &in), rc = 0;

		arm(n, false);
		for (unsigned i = 0; i < 3 && !rc; i++)
			rc = query(f, fd, rows[i]);
		assert_true(!rc || rc == ENOMEM);
		knock(f);
		report(f, 8 + n);
		fail_at = 0;
		close(fd);
		settle(f);
		assert_int_equal(f->b->session_count, 0);
		assert_int_equal(fake_open_fds(), fds);
		n++;
	} while (failed);
	assert_true(n > 20);
	fake_close(f);
}
