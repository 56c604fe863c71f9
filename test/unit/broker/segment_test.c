/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments between local programs: who pays for them, and that one user leaves room for others. */
#include "worlds/broker_pair.h"

#include "broker/local.h"
#include "broker/quota.h"

#define BOB 1001
#define EVE 1002
#define CAL 1003
#define CHANNELS 64u

static char reason[256];

/* A test with a broker whose users have these limits, f. */
#define TEST_USERS(name, limits_)                                                                  \
	TEST_FAKE(name, ((struct fake_config){.engines = 1,                                        \
					      .node = 7,                                           \
					      .sessions = 32,                                      \
					      .channels = CHANNELS,                                \
					      .limits = limits_}))

/* A program with this number of channels. */
static void
come(struct fake *f, struct fake_session *s, uint32_t uid, uint32_t channels)
{
	struct weir_session_msg m = {.type = WEIR_MSG_ADD_CHANNEL};

	assert_int_equal(fake_attach_by(f, s, uid, "program"), WEIR_MSG_WELCOME);
	for (uint32_t i = 0; i < channels; i++)
		assert_int_equal(fake_request(f, s, &m), 0);
}

/* By this thread: 0, or what it is refused with. */
static int
connect_by(struct fake *f, struct fake_session *s, uint32_t channel)
{
	struct weir_session_msg m = {.type = WEIR_MSG_CONNECT};

	m.connect.channel = channel;
	m.connect.address.kind = WEIR_ADDRESS_NODE;
	m.connect.address.id = 7;
	snprintf(m.connect.address.service, sizeof(m.connect.address.service), "s");
	assert_int_equal(fake_request(f, s, &m), 0);
	return s->reply.type == WEIR_MSG_REFUSED ? -s->reply.refused.code : 0;
}

/* As many as it gets. */
static uint32_t
connect_all(struct fake *f, struct fake_session *s, uint32_t channels)
{
	uint32_t n = 0;

	while (n < channels && !connect_by(f, s, n))
		n++;
	return n;
}

/* Slots alone, for few connections: little memory, and no more connections than there are entries.
 */
TEST(test_small)
{
	const struct segment_shape shape = {.connections = 16, .ring_slots = 64};
	uint32_t window[2] = {0}, index, seen = 0;
	struct segment *g = segment_open(&shape, -1);

	assert_non_null(g);
	assert_int_equal(g->geometry.bytes, segment_bytes(&shape));
	assert_in_range(g->geometry.bytes, 20000, 28672);
	assert_int_equal(g->memory.bytes, g->geometry.bytes);
	assert_memory_equal(g->memory.base, &g->geometry, sizeof(g->geometry));
	for (unsigned i = 0; i < 16; i++) {
		assert_true(segment_open_to_new(g));
		assert_int_equal(segment_take(g, window, &index), 0);
		assert_in_range(index, 0, 15);
		seen |= 1u << index;
	}
	assert_int_equal(seen, 0xffff);
	assert_false(segment_open_to_new(g));
	assert_int_equal(segment_take(g, window, &index), -ENOSPC);
	for (unsigned i = 0; i < 2; i++)
		segment_give(g, 7, i);
	assert_int_equal(segment_take(g, window, &index), 0);
	assert_int_equal(index, 7);
	segment_close(g);
}

/* All that a user's programs have is within his limit, and all of it comes back. */
TEST_USERS(test_charged, "1001:memory=64M")
{
	struct fake_session a, l;
	uint64_t before;
	uint32_t n, fit;

	fit = (uint32_t)(((64 - 8) << 20) / segment_bytes(&segment_streams));
	for (unsigned round = 0; round < 2; round++) {
		come(f, &l, BOB, 1); /* 4 MiB each, and tables */
		come(f, &a, BOB, CHANNELS);
		before = f->b->used[USER_MEMORY];
		fake_listen(f, &l, "s", 1000);
		n = connect_all(f, &a, CHANNELS);
		assert_int_equal(n, fit);
		assert_int_equal(a.reply.refused.code, EDQUOT);
		assert_non_null(strstr(a.reply.refused.reason, "its limit is 65536, "));
		assert_int_equal(f->b->used[USER_MEMORY],
				 before + fit * segment_bytes(&segment_streams));
		assert_int_equal(f->b->used[USER_SEGMENTS], fit);
		fake_leave(f, round ? &a : &l);
		fake_leave(f, round ? &l : &a);
		assert_int_equal(f->b->used[USER_MEMORY], 0);
		assert_int_equal(f->b->used[USER_SEGMENTS], 0);
	}
}

/* Both users have it while both programs live, then whoever is left; once for all users. */
TEST_USERS(test_both_users, "1001:memory=6M")
{
	struct fake_session a, l, c;

	come(f, &l, EVE, 1);
	fake_listen(f, &l, "s", 1000);
	for (unsigned i = 1; i <= 3; i++) {
		come(f, &a, BOB, 2);
		assert_int_equal(connect_by(f, &a, 0), 0);
		assert_int_equal(connect_by(f, &a, 1), -EDQUOT);
		assert_int_equal(f->b->used[USER_SEGMENTS], i);
		fake_leave(f, &a); /* EVE's program still has it */
		assert_int_equal(f->b->used[USER_SEGMENTS], i);
	}
	/* the other way round: who is connected to must have room for it, too */
	come(f, &a, BOB, 1);
	fake_leave(f, &l);
	assert_int_equal(f->b->used[USER_SEGMENTS], 0);
	fake_listen(f, &a, "s", 1000);
	come(f, &c, CAL, 2);
	/* of 6 MiB 2 are free, of which 1.5 aren't for others */
	assert_int_equal(connect_by(f, &c, 0), -EMFILE);
	assert_int_equal(quota_set(f->b, "user.1001.memory", "8M", reason, sizeof(reason)), 1);
	assert_int_equal(connect_by(f, &c, 0), 0);
	assert_int_equal(connect_by(f, &c, 1), -EMFILE);
	assert_int_equal(f->b->used[USER_SEGMENTS], 1);
}

/* However many programs and threads a user has: others get segments with that program, too. */
TEST_USERS(test_room_for_others, NULL)
{
	struct fake_session l, bob[10], eve[8], cal;
	uint32_t n = 0, m = 0;

	come(f, &l, 1000, 1);
	fake_listen(f, &l, "s", 10000);
	for (unsigned i = 0; i < 10; i++) {
		come(f, &bob[i], BOB, CHANNELS);
		n += connect_all(f, &bob[i], CHANNELS);
	}
	assert_int_equal(n, BROKER_SESSION_SEGMENTS / 2);
	assert_int_equal(bob[9].reply.refused.code, EMFILE);
	assert_non_null(strstr(bob[9].reply.refused.reason, "user 1001 shares all memory"));
	for (unsigned i = 0; i < 8; i++) {
		come(f, &eve[i], EVE, CHANNELS);
		m += connect_all(f, &eve[i], CHANNELS);
	}
	assert_in_range(m, BROKER_SESSION_SEGMENTS / 4 - 1, BROKER_SESSION_SEGMENTS / 4 + 1);
	come(f, &cal, CAL, CHANNELS);
	assert_true(connect_all(f, &cal, CHANNELS) > 16);
	/* connections on segments that are there need none */
	assert_int_equal(connect_by(f, &bob[0], 0), 0);
}

/* A program keeps a segment that its session has left: it counts for the user who connected. */
TEST_USERS(test_kept, "1001:segments=1")
{
	struct weir_session_msg m = {.type = WEIR_MSG_SEGMENT};
	struct fake_session a, l;
	int fd;

	come(f, &l, EVE, 1);
	fake_listen(f, &l, "s", 1000);
	come(f, &a, BOB, 1);
	assert_int_equal(connect_by(f, &a, 0), 0);
	m.segment.segment = a.reply.connecting.segment;
	assert_int_equal(fake_ask(f, &a, &m), WEIR_MSG_SEGMENT_MAP);
	fd = dup(a.fds[0]);
	fake_leave(f, &l);
	fake_leave(f, &a);
	assert_int_equal(f->b->used[USER_SEGMENTS], 1);
	come(f, &l, EVE, 1);
	fake_listen(f, &l, "s", 1000);
	come(f, &a, BOB, 1);
	assert_int_equal(connect_by(f, &a, 0), -EDQUOT);
	close(fd);
	f->now += 2 * BROKER_SECOND_NS;
	fake_run(f);
	assert_int_equal(f->b->used[USER_SEGMENTS], 0);
	assert_int_equal(connect_by(f, &a, 0), 0);
}
