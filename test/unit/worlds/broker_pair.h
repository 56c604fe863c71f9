/* SPDX-License-Identifier: BSD-3-Clause */
/* A service and a program that connects to it, sessions of one broker. */
#ifndef TEST_BROKER_PAIR_H
#define TEST_BROKER_PAIR_H

#include "broker_fake.h"

#include <sys/mman.h>
#include <sys/socket.h>

/* A service with `backlog` by l and one connection from c to it. */
struct pair {
	struct fake *f;
	struct fake_session l, c;
};

static inline void
pair_open(struct pair *p, uint32_t backlog)
{
	p->f = fake_open(&two_engines);
	fake_program(p->f, &p->l);
	fake_program(p->f, &p->c);
	fake_listen(p->f, &p->l, "echo", backlog);
	assert_int_equal(p->l.reply.type, WEIR_MSG_LISTENING);
}

/* A test with a pair, p. */
#define TEST_PAIR(name, backlog)                                                                   \
	static void name(struct pair *p);                                                          \
	TEST(run_##name)                                                                           \
	{                                                                                          \
		struct pair p;                                                                     \
                                                                                                   \
		pair_open(&p, backlog);                                                            \
		name(&p);                                                                          \
		fake_close(p.f);                                                                   \
	}                                                                                          \
	static void name(struct pair *p)

static inline void
expect_refused(const struct fake_session *s, int code)
{
	assert_int_equal(s->reply.type, WEIR_MSG_REFUSED);
	assert_int_equal(s->reply.refused.code, code);
	assert_true(s->reply.refused.reason[0]);
}

static inline struct weir_session_msg
ask(struct pair *p, struct fake_session *s, uint32_t type, uint32_t a, uint32_t b)
{
	struct weir_session_msg m = {.type = type};

	m.segment.segment = a; /* also listening.listener, add_channel.engine, pair.vqpn */
	if (weir_session_length(type) >= 16)
		m.segment.side = b; /* also pair.channel */
	assert_int_equal(fake_request(p->f, s, &m), 0);
	return s->reply;
}

#endif
