/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of those that attach: made in pieces, in turn, and main is there for others meanwhile. */
#include "worlds/broker_fake.h"

#include "broker/quota.h"
#include "weir/memory.h"

#define PIECES 4u /* of an arena; the first comes with HELLO */

/* ---- main's CPU time: linked with --wrap=clock_gettime, so that each piece costs the same ---- */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int
__wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	static long calls;

	if (clock != CLOCK_THREAD_CPUTIME_ID)
		return __real_clock_gettime(clock, t);
	*t = (struct timespec){calls / 1000, calls % 1000 * 1000000}; /* 1 ms per call */
	calls++;
	return 0;
}

/* ---- programs that attach ---- */

struct guest {
	struct broker_session *s;
	uint32_t waits, welcomes, refusals, ends;
};

static void
on_reply(void *user, const struct weir_session_msg *reply, const int *fds, unsigned fd_count)
{
	struct guest *g = user;

	if (!reply) {
		g->ends++;
		return;
	}
	g->waits += reply->type == WEIR_MSG_WAIT;
	g->refusals += reply->type == WEIR_MSG_REFUSED;
	if (reply->type == WEIR_MSG_WELCOME) {
		g->welcomes++;
	}
}

static void
come_as(struct fake *f, struct guest *g, uid_t uid)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_HELLO);

	*g = (struct guest){0};
	m.hello.magic = WEIR_SESSION_MAGIC;
	m.hello.versions = WEIR_SESSION_VERSIONS;
	m.hello.arena = PIECES * MEMFD_HUGE_PAGE;
	snprintf(m.hello.name, sizeof(m.hello.name), "guest");
	g->s = broker_session_open(f->b, &m, m.length, getpid(), uid, on_reply, g);
	assert_non_null(g->s);
	assert_int_equal(g->s->arena.geometry.bytes, PIECES * MEMFD_HUGE_PAGE);
}

static void
come(struct fake *f, struct guest *g)
{
	come_as(f, g, getuid());
}

static void
leave(struct fake *f, struct guest *g)
{
	broker_session_close(g->s);
	fake_run(f);
}

/* No engine sees a session before all of its memory is there; who waits is told so. */
TEST_FAKE(test_in_turn, two_engines)
{
	struct guest g[3];
	unsigned pieces;

	for (unsigned i = 0; i < 3; i++)
		come(f, &g[i]);
	pieces = (unsigned)(PIECES * MEMFD_HUGE_PAGE / MEMFD_PIECE);
	if (g[0].s->arena.memory.page > MEMFD_PIECE)
		pieces = PIECES;
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 1; k < pieces; k++) {
			assert_int_equal(g[i].welcomes, 0);
			assert_int_equal(f->count[ENGINE_SESSION_ADD], 2 * i);
			f->now += BROKER_SECOND_NS * 3 / 2 / (pieces - 1);
			/* others come in between */
			assert_int_equal(broker_run(f->b) == 0, i < 2 || k < pieces - 1);
		}
	fake_run(f);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(g[i].welcomes, 1);
		assert_int_equal(g[i].waits, 1u << i);
		assert_true(g[i].s->cost_ns > 0);
	}
	assert_true(broker_run(f->b) > 0);
	for (unsigned i = 0; i < 3; i++)
		leave(f, &g[i]);
	assert_int_equal(fake_mappings("weir-arena"), 0);
}

/* A user waits for one session of another user at most, however many that one has begun. */
TEST_FAKE(test_turns_of_users, two_engines)
{
	struct guest many[4], one;
	unsigned turns = 0;

	for (unsigned i = 0; i < 4; i++)
		come_as(f, &many[i], getuid());
	come_as(f, &one, getuid() + 1);
	while (!one.welcomes) {
		assert_true(turns++ < 5 * PIECES * MEMFD_HUGE_PAGE / MEMFD_PIECE);
		broker_run(f->b);
	}
	assert_int_equal(many[3].welcomes, 0);
	assert_int_equal(many[2].welcomes, 0);
	fake_run(f);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(many[i].welcomes, 1);
}

#define REGION (64u << 20)

/* A large region is made in turn with arenas: those of its own user do not wait for it either. */
TEST_FAKE(test_beside_a_region, two_engines)
{
	struct weir_session_msg m = session_msg(WEIR_MSG_ADOPT);
	unsigned turns = 0, most = 3 * PIECES * MEMFD_HUGE_PAGE / MEMFD_PIECE;
	struct fake_session s;
	struct guest other, own;

	f->b->config.region_bytes = f->b->config.adopt_bytes = REGION;
	fake_attach(f, &s);
	m.adopt.bytes = REGION;
	m.adopt.flags = WEIR_ADOPT_SEND;
	s.replies = 0;
	assert_int_equal(broker_session_request(s.s, &m, m.length), 0);
	for (unsigned i = 0; i < 5; i++)
		broker_run(f->b);
	assert_int_equal(s.replies, 0);
	come_as(f, &other, getuid() + 1);
	come_as(f, &own, getuid());
	f->now += BROKER_SECOND_NS;
	while (!other.welcomes || !own.welcomes) {
		assert_true(turns++ < most);
		broker_run(f->b);
	}
	assert_int_equal(other.waits + own.waits, 2);
	assert_int_equal(s.replies, 1);
	assert_int_equal(s.reply.type, WEIR_MSG_WAIT);
	fake_run(f);
	assert_int_equal(s.replies, 2);
	assert_int_equal(s.reply.type, WEIR_MSG_REGION);
	/* one that leaves meanwhile leaves nothing */
	assert_int_equal(broker_session_request(s.s, &m, m.length), 0);
	assert_int_equal(s.reply.refused.code, ENOSPC);
	m.type = WEIR_MSG_DISOWN;
	m.region.region = 1;
	fake_request(f, &s, &m);
	m = session_msg(WEIR_MSG_ADOPT);
	m.adopt.bytes = REGION;
	m.adopt.flags = WEIR_ADOPT_SEND;
	assert_int_equal(broker_session_request(s.s, &m, m.length), 0);
	broker_run(f->b);
	assert_int_equal(fake_mappings("weir-region"), 1);
	fake_leave(f, &s);
	assert_int_equal(fake_mappings("weir-region"), 0);
	leave(f, &other);
	leave(f, &own);
}

/* First, in the middle, last; the others get theirs. */
TEST(test_gone_before)
{
	for (unsigned who = 0; who < 3; who++) {
		struct fake *f = fake_open(&two_engines);
		struct guest g[4];

		for (unsigned i = 0; i < 3; i++)
			come(f, &g[i]);
		broker_run(f->b);
		leave(f, &g[who]);
		assert_int_equal(f->b->session_count, 2);
		come(f, &g[3]);
		fake_run(f);
		fake_run(f);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(g[i].welcomes, i != who);
		assert_int_equal(f->count[ENGINE_SESSION_REMOVE], 0);
		for (unsigned i = 0; i < 4; i++)
			if (i != who)
				leave(f, &g[i]);
		fake_close(f);
	}
}

/* Settings, news and ends reach sessions whose memory is being made, too. */
TEST(test_meanwhile)
{
	struct fake *f = fake_open(&two_engines);
	char reason[WEIR_REASON_MAX];
	struct guest g[2];

	come(f, &g[0]);
	assert_int_equal(quota_set(f->b, "program.guest.weight", "7", reason, sizeof(reason)), 1);
	assert_int_equal(f->count[ENGINE_SESSION_SHARE], 0); /* they don't know it */
	session_publish_node(f->b);
	fake_run(f);
	assert_int_equal(g[0].s->quota.weight, 7);
	assert_int_equal(arena_head(&g[0].s->arena)->node, 8);
	come(f, &g[1]);
	while (!broker_stop(f->b))
		fake_run(f);
	assert_int_equal(g[1].welcomes, 0);
	assert_int_equal(g[1].ends, 1);
	fake_close(f);
	f = fake_open(&two_engines);
	come(f, &g[0]);
	come(f, &g[1]);
	fake_close(f);
}

/* A broker that is destroyed ends all its sessions, however many there are. */
TEST_FAKE(test_destroyed, ((const struct fake_config){.engines = 2, .node = 7, .sessions = 80}))
{
	static struct guest g[80];

	for (unsigned i = 0; i < 80; i++)
		come(f, &g[i]);
	for (unsigned i = 0; i < 10000 && f->b->counters.sessions_opened < 80; i++)
		fake_run(f);
	assert_int_equal(f->b->counters.sessions_opened, 80);
}
