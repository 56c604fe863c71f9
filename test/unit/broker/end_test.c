/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions that must end are marked: they end once, when the turn ends, and nothing begins for them
 * before.
 */
#include "worlds/broker_pair.h"

TEST_FAKE(test_marked_again, two_engines)
{
	struct broker_session *s;
	struct fake_session p;

	fake_attach(f, &p);
	s = p.s;
	f->hold = true;
	session_end(s);
	session_end(s);
	session_spoil(s, "it is too late");
	session_evict(s, "it is too late");
	assert_int_equal(s->state, SESSION_ENDING);
	assert_ptr_equal(f->b->session[s->id], s); /* callers may still name it */
	assert_false(p.ended);
	broker_flush(f->b);
	broker_flush(f->b);
	assert_true(p.ended);
	assert_int_equal(p.replies, 1); /* WELCOME */
	assert_int_equal(s->state, SESSION_CLOSING);
	assert_int_equal(f->count[ENGINE_SESSION_REMOVE], 2);
	fake_let_go(f);
	assert_int_equal(f->b->session_count, 0);
	assert_int_equal(f->b->counters.sessions_closed, 1);
	assert_int_equal(f->b->counters.sessions_spoilt, 0);
	assert_int_equal(f->b->counters.evicted, 0);
}

/* Neither its own requests nor those of others. */
TEST_PAIR(test_nothing_begins, 4)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_LISTEN);
	uint32_t replies = p->l.replies;

	snprintf(m.listen.service, sizeof(m.listen.service), "more");
	m.listen.channel[1] = 1;
	session_end(p->l.s);
	assert_int_equal(broker_session_request(p->l.s, &m, m.length), 0);
	assert_null(service_find(&p->f->b->services, "more"));
	fake_connect(p->f, &p->c, 7, "echo", 0);
	expect_refused(&p->c, ECONNREFUSED);
	assert_true(p->l.ended);
	assert_int_equal(p->l.replies, replies);
	assert_int_equal(p->f->b->counters.requests_bad, 0);
	assert_int_equal(p->f->b->session_count, 1);
	assert_int_equal(p->f->b->conn_count, 0);
	assert_int_equal(fake_listen(p->f, &p->c, "echo", 4), WEIR_MSG_LISTENING);
}

/* An answer of an engine that comes after that reaches no program. */
TEST_FAKE(test_answer_in_the_same_turn, two_engines)
{
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};
	struct engine_command *answer;
	struct fake_session p;

	fake_attach(f, &p);
	f->hold = true;
	assert_int_equal(fake_request(f, &p, &m), 0);
	answer = f->held[0].c;
	assert_int_equal(answer->type, ENGINE_CHANNEL_ADD);
	f->held_count = 0;
	session_spoil(p.s, "it lied");
	assert_true(p.ended);
	assert_int_equal(f->b->session_count, 1);
	answer->result = 0;
	broker_completed(f->b, 0, answer);
	assert_int_equal(f->count[ENGINE_SESSION_REMOVE], 2);
	fake_let_go(f);
	assert_int_equal(p.replies, 2); /* WELCOME, and why it ended */
	expect_refused(&p, ECONNABORTED);
	assert_int_equal(f->b->session_count, 0);
}

/* Each would be told of the other's end. */
TEST_PAIR(test_both_ends_of_a_connection, 4)
{
	assert_int_equal(fake_connect(p->f, &p->c, 7, "echo", 0), WEIR_MSG_CONNECTING);
	session_end(p->c.s);
	session_end(p->l.s);
	broker_flush(p->f->b);
	assert_true(p->c.ended && p->l.ended);
	assert_int_equal(p->f->count[ENGINE_CONN_PEER_CLOSED], 0);
	assert_int_equal(p->f->b->conn_count, 0);
	assert_int_equal(p->f->b->session_count, 0);
}

struct tally {
	uint32_t refusals, ends;
};

static void
on_reply(void *user, const struct weir_session_msg *reply, const int *fds, unsigned fd_count)
{
	struct tally *t = user;

	t->refusals += reply && reply->type == WEIR_MSG_REFUSED;
	t->ends += !reply;
}

/* No engine knows of it, and news of nodes do not reach it: its memory may not exist. */
TEST_FAKE(test_marked_while_its_memory_is_made, two_engines)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_HELLO);
	struct broker_session *s;
	struct tally t = {0};

	m.hello.magic = WEIR_SESSION_MAGIC;
	m.hello.versions = WEIR_SESSION_VERSIONS;
	snprintf(m.hello.name, sizeof(m.hello.name), "test");
	s = broker_session_open(f->b, &m, m.length, getpid(), getuid(), on_reply, &t);
	assert_non_null(s);
	assert_int_equal(s->state, SESSION_BUILDING);
	session_evict(s, "");
	assert_int_equal(t.refusals, 1);
	assert_true(TAILQ_EMPTY(&f->b->building));
	memfd_close(&s->arena.memory); /* as if no more of it could be made */
	f->b->node_changes++;
	assert_int_equal(f->b->session_count, 1);
	broker_flush(f->b);
	assert_int_equal(f->b->session_count, 0);
	fake_run(f);
	assert_int_equal(t.refusals, 1);
	assert_int_equal(t.ends, 1);
	assert_int_equal(f->count[ENGINE_SESSION_ADD], 0);
	assert_int_equal(f->count[ENGINE_SESSION_REMOVE], 0);
}
