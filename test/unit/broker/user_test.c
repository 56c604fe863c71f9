/* SPDX-License-Identifier: BSD-3-Clause */
/* Users: who may attach, and what all programs of one may use together. */
#include "worlds/broker_fake.h"
#include "weir/memory.h"

#include "broker/quota.h"
#include "broker/set.h"

#include <sys/mman.h>

#define BOB 1001
#define EVE 1002

static char reason[256];

/* A test with a broker whose users have these limits, f. */
#define TEST_USERS(name, limits_)                                                                  \
	TEST_FAKE(name, ((struct fake_config){.engines = 2, .node = 7, .limits = limits_}))

/* Two programs of BOB's, one of EVE's, with their channels. */
static void
two_and_one(struct fake *f, struct fake_session *a, struct fake_session *b, struct fake_session *c)
{
	fake_attach_by(f, a, BOB, "a");
	fake_attach_by(f, b, BOB, "b");
	fake_attach_by(f, c, EVE, "c");
	fake_channels(f, a);
	fake_channels(f, b);
	fake_channels(f, c);
}

static void
is_refused(const struct fake_session *s, int code, const char *says)
{
	assert_int_equal(s->reply.type, WEIR_MSG_REFUSED);
	assert_int_equal(s->reply.refused.code, code);
	if (!strstr(s->reply.refused.reason, says) || !strchr(s->reply.refused.reason, ';'))
		fail_msg("'%s', not '%s'", s->reply.refused.reason, says);
}

static int
set(struct fake *f, const char *key, const char *value)
{
	int n = quota_set(f->b, key, value, reason, sizeof(reason));

	broker_flush(f->b);
	fake_run(f);
	return n;
}

TEST_USERS(test_sessions, "1001:sessions=2")
{
	struct fake_session a, b, c, d;

	fake_attach_by(f, &a, BOB, "a");
	fake_attach_by(f, &b, BOB, "b");
	fake_attach_by(f, &c, BOB, "c");
	is_refused(&c, EDQUOT, "user 1001 has 2 sessions, its limit is 2; end a program");
	assert_null(c.s);
	assert_int_equal(fake_attach_by(f, &d, EVE, "d"), WEIR_MSG_WELCOME);
	/* a session counts until its memory is free */
	f->hold = true;
	fake_leave(f, &a);
	fake_attach_by(f, &c, BOB, "c");
	is_refused(&c, EDQUOT, "user 1001 has 2 sessions");
	fake_let_go(f);
	assert_int_equal(fake_attach_by(f, &c, BOB, "c"), WEIR_MSG_WELCOME);
}

TEST_USERS(test_memory, "*:memory=4864K")
{
	struct weir_session_msg m = session_msg(WEIR_MSG_ADOPT), gone;
	struct fake_session a, b;

	fake_attach_by(f, &a, BOB, "a"); /* 4 MiB, and its tables */
	assert_true(f->b->used[USER_MEMORY] > 4 << 20);
	assert_true(f->b->used[USER_MEMORY] < 4200 << 10);
	fake_attach_by(f, &b, BOB, "b");
	is_refused(&b, EDQUOT, "user 1001 has 41");
	is_refused(&b, EDQUOT, "KiB of memory, its limit is 4864, 41");
	is_refused(&b, EDQUOT, " more were asked for; ask for less");
	assert_int_equal(fake_attach_by(f, &b, EVE, "b"), WEIR_MSG_WELCOME);
	m.adopt.flags = WEIR_ADOPT_SEND;
	m.adopt.bytes = 512 << 10;
	assert_int_equal(fake_ask(f, &a, &m), WEIR_MSG_REGION);
	gone = session_msg(WEIR_MSG_DISOWN);
	gone.region.region = a.reply.region.region;
	assert_int_equal(fake_request(f, &a, &m), 0);
	is_refused(&a, EDQUOT, "its limit is 4864, 512 more were asked for");
	assert_int_equal(fake_request(f, &a, &gone), 0);
	assert_int_equal(fake_ask(f, &a, &m), WEIR_MSG_REGION);
	/* all of it comes back */
	fake_leave(f, &a);
	assert_int_equal(fake_attach_by(f, &a, BOB, "a"), WEIR_MSG_WELCOME);
	assert_int_equal(fake_ask(f, &a, &m), WEIR_MSG_REGION);
}

/* Ranges are few, too: of all programs of a user, and of all users. */
TEST_USERS(test_regions, "1001:regions=3")
{
	struct weir_session_msg gone = session_msg(WEIR_MSG_DISOWN);
	struct fake_session a, b, c;

	two_and_one(f, &a, &b, &c);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(fake_adopt(f, i ? &b : &a, 4096, WEIR_ADOPT_SEND), 0);
	gone.region.region = a.reply.region.region;
	assert_int_equal(fake_adopt(f, &a, 4096, WEIR_ADOPT_SEND), -EDQUOT);
	is_refused(&a, EDQUOT, "user 1001 has 3 regions, its limit is 3; disown or free some");
	assert_int_equal(fake_adopt(f, &c, 4096, WEIR_ADOPT_SEND), 0);
	assert_int_equal(fake_request(f, &a, &gone), 0);
	assert_int_equal(fake_adopt(f, &b, 4096, WEIR_ADOPT_SEND), 0);
	f->b->most[USER_REGIONS] = 5;
	assert_int_equal(fake_adopt(f, &c, 4096, WEIR_ADOPT_SEND), 0);
	assert_int_equal(fake_adopt(f, &c, 4096, WEIR_ADOPT_SEND), -ENOSPC);
	is_refused(&c, ENOSPC, "all programs of this node have 5 regions, the limit is 5");
	fake_leave(f, &b);
	assert_int_equal(fake_adopt(f, &c, 4096, WEIR_ADOPT_SEND), 0);
}

/* Memory that a program keeps counts until the program lets go of it. */
TEST_USERS(test_kept, "*:memory=6300K")
{
	struct fake_session a, b;
	char has[80];
	void *map;
	int fd;

	fake_attach_by(f, &a, BOB, "a"); /* 4 MiB, and its tables */
	snprintf(has, sizeof(has), "user 1001 has %llu KiB of memory, its limit is 6300",
		 (unsigned long long)f->b->used[USER_MEMORY] >> 10);
	fd = dup(a.fds[0]);
	fake_leave(f, &a);
	fake_attach_by(f, &b, BOB, "b");
	is_refused(&b, EDQUOT, has);
	map = mmap(NULL, MEMFD_HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	close(fd);
	f->now += 2 * BROKER_SECOND_NS;
	fake_attach_by(f, &b, BOB, "b");
	is_refused(&b, EDQUOT, has);
	munmap(map, MEMFD_HUGE_PAGE);
	f->now += 2 * BROKER_SECOND_NS;
	fake_run(f);
	assert_int_equal(fake_attach_by(f, &b, BOB, "b"), WEIR_MSG_WELCOME);
	/* adopted memory too */
	assert_int_equal(fake_adopt(f, &b, 1 << 20, WEIR_ADOPT_SEND), 0);
	fd = dup(b.fds[0]);
	fake_leave(f, &b);
	assert_int_equal(fake_attach_by(f, &b, BOB, "b"), WEIR_MSG_WELCOME);
	assert_int_equal(fake_adopt(f, &b, 1 << 20, WEIR_ADOPT_SEND), 0);
	assert_int_equal(fake_adopt(f, &b, 4096, WEIR_ADOPT_SEND), -ENOSPC); /* of the session */
	fake_leave(f, &b);
	fake_attach_by(f, &b, BOB, "b");
	assert_int_equal(fake_adopt(f, &b, 1 << 20, WEIR_ADOPT_SEND), 0);
	close(fd);
}

TEST_USERS(test_connections, "1001:connections=3")
{
	struct fake_session a, b, c;

	two_and_one(f, &a, &b, &c);
	fake_listen(f, &b, "s", 8);
	/* both ends are his */
	fake_connect(f, &a, 7, "s", 0);
	assert_int_equal(a.s->conn_count + b.s->conn_count, 2);
	fake_connect(f, &a, 7, "s", 0);
	is_refused(&a, EDQUOT, "user 1001 has reached its limit of 3 connections");
	assert_int_equal(a.s->conn_count + b.s->conn_count, 2);
	fake_connect(f, &c, 7, "s", 0);
	assert_int_equal(c.s->conn_count, 1);
	fake_connect(f, &c, 7, "s", 0);
	is_refused(&c, EDQUOT, "user 1001 has reached its limit of 3 connections");
	fake_leave(f, &c);
	fake_leave(f, &a);
	fake_leave(f, &b);
	fake_attach_by(f, &a, BOB, "a");
	fake_attach_by(f, &b, BOB, "b");
	fake_channels(f, &a);
	fake_channels(f, &b);
	fake_listen(f, &b, "s", 8);
	fake_connect(f, &a, 7, "s", 0);
	assert_int_equal(a.s->conn_count + b.s->conn_count, 2);
}

/* Names that the cluster knows are a node's few: of all programs of a user, for as long as they
 * offer them. */
TEST_USERS(test_services, "*:services=2")
{
	struct weir_session_msg m = {.type = WEIR_MSG_UNLISTEN};
	struct fake_session a, b, c;
	int first;

	two_and_one(f, &a, &b, &c);
	first = fake_listen_as(f, &a, "one", WEIR_LISTENS_PUBLIC);
	assert_true(first >= 0);
	/* a name that is taken costs nothing */
	assert_int_equal(fake_listen_as(f, &b, "one", WEIR_LISTENS_PUBLIC), -EADDRINUSE);
	assert_true(fake_listen_as(f, &b, "two", WEIR_LISTENS_PUBLIC) >= 0);
	assert_int_equal(fake_listen_as(f, &a, "three", WEIR_LISTENS_PUBLIC), -EDQUOT);
	is_refused(&a, EDQUOT, "user 1001 has 2 public services, its limit is 2; close one");
	assert_true(fake_listen_as(f, &a, "of the host", 0) == -EINVAL);
	assert_true(fake_listen_as(f, &a, "of-the-host", 0) >= 0);
	assert_true(fake_listen_as(f, &c, "three", WEIR_LISTENS_PUBLIC) >= 0);
	m.listening.listener = (uint32_t)first;
	assert_int_equal(fake_request(f, &a, &m), 0);
	assert_true(fake_listen_as(f, &a, "four", WEIR_LISTENS_PUBLIC) >= 0);
	assert_int_equal(fake_listen_as(f, &a, "five", WEIR_LISTENS_PUBLIC), -EDQUOT);
	/* at once, though the program's memory is not free yet */
	f->hold = true;
	fake_leave(f, &b);
	assert_true(fake_listen_as(f, &a, "five", WEIR_LISTENS_PUBLIC) >= 0);
	fake_let_go(f);
	assert_int_equal(fake_listen_as(f, &a, "six", WEIR_LISTENS_PUBLIC), -EDQUOT);
	assert_int_equal(set(f, "user.1001.services", "3"), 1);
	assert_true(fake_listen_as(f, &a, "six", WEIR_LISTENS_PUBLIC) >= 0);
}

TEST_USERS(test_rate_and_set, "1001:rate=100M")
{
	struct fake_session a, b, c;
	uint32_t told;

	two_and_one(f, &a, &b, &c);
	assert_ptr_equal(a.s->share.above, b.s->share.above);
	assert_ptr_not_equal(a.s->share.above, c.s->share.above);
	assert_int_equal(atomic_load(&a.s->share.above->rate), 100000000);
	assert_int_equal(atomic_load(&c.s->share.above->rate), 0);
	told = f->count[ENGINE_SESSION_SHARE];
	assert_int_equal(set(f, "user.1001.rate", "10M,1M"), 2);
	assert_int_equal(atomic_load(&b.s->share.above->rate), 10000000);
	assert_int_equal(atomic_load(&b.s->share.above->burst_ns), 100000000);
	/* both engines, of both sessions */
	assert_int_equal(f->count[ENGINE_SESSION_SHARE], told + 4);
	/* of who isn't there, for when it comes */
	assert_int_equal(set(f, "user.2000.sessions", "1"), 0);
	assert_int_equal(set(f, "user.1001.sessions", "2"), 2);
	fake_leave(f, &c);
	fake_attach_by(f, &c, BOB, "c");
	is_refused(&c, EDQUOT, "its limit is 2");
	assert_int_equal(set(f, "user.1001.sessions", "none"), 2);
	assert_int_equal(fake_attach_by(f, &c, BOB, "c"), WEIR_MSG_WELCOME);
	fake_attach_by(f, &a, 2000, "x");
	fake_attach_by(f, &b, 2000, "y");
	is_refused(&b, EDQUOT, "user 2000 has 1 sessions");
	assert_int_equal(set(f, "user.1001.colour", "1"), -ENOENT);
	assert_non_null(
	    strstr(reason, "invalid value '1' for user.1001.colour (expected sessions, "));
	assert_non_null(strstr(reason, "rate or priority)"));
	assert_true(strlen(reason) < sizeof(((struct weir_ctl_msg *)0)->error.reason));
	assert_int_equal(set(f, "user.1001.memory", "0"), -EINVAL);
	assert_non_null(
	    strstr(reason, "user.1001.memory (expected bytes with K, M or G, or none)"));
	assert_int_equal(set(f, "user.1001.priority", "low"), -EINVAL);
	assert_non_null(strstr(reason, "user.1001.priority (expected normal or high)"));
	assert_int_equal(set(f, "user.1001.sessions", "0"), -EINVAL);
	assert_non_null(strstr(reason, "(expected a number from 1, or none)"));
	assert_int_equal(set(f, "user.1001.rate", "fast"), -EINVAL);
	assert_non_null(strstr(reason, "or none)"));
	assert_int_equal(set(f, "user.bob.memory", "1M"), -EINVAL);
	assert_int_equal(set(f, "user..memory", "1M"), -EINVAL);
	assert_int_equal(set(f, "user.memory", "1M"), -EINVAL);
}

/* How a setting is shown; "" if it isn't. */
static const char *
shown(struct fake *f, const char *key)
{
	static struct weir_row_setting r;

	for (uint32_t i = 0; setting_row(f->b, i, &r); i++)
		if (!strcmp(r.key, key))
			return r.value;
	return "";
}

/* Settings are shown, those of absent users too, in a form that weirctl set takes. */
TEST(test_shown)
{
	struct users users = {0};
	const struct fake_config config = {.engines = 2, .node = 7, .users = &users};
	struct fake *f;
	struct fake_session a, b, c;

	assert_int_equal(users_limit(&users, "*:sessions=16", reason, sizeof(reason)), 0);
	assert_int_equal(users_limit(&users, "1001:rate=100M,memory=4K", reason, sizeof(reason)),
			 0);
	f = fake_open(&config);
	assert_string_equal(shown(f, "user.1001.rate"), "100000000,2000000");
	assert_string_equal(shown(f, "user.1001.memory"), "4096");
	assert_string_equal(shown(f, "user.1001.sessions"), "none");
	assert_string_equal(shown(f, "user.*.sessions"), "16");
	assert_string_equal(shown(f, "user.*.rate"), "none");
	assert_string_equal(shown(f, "user.*.services"), "none");
	assert_string_equal(shown(f, "user.1002.sessions"), "");
	fake_attach_by(f, &a, EVE, "a");
	assert_string_equal(shown(f, "user.1002.sessions"), "");
	/* of all that have none of their own, those that are attached too */
	assert_int_equal(set(f, "user.*.sessions", "1"), 1);
	assert_int_equal(set(f, "user.*.rate", "5K,9K"), 1);
	assert_string_equal(shown(f, "user.*.rate"), "5000,9000");
	assert_int_equal(atomic_load(&a.s->share.above->rate), 5000);
	fake_attach_by(f, &b, EVE, "b");
	is_refused(&b, EDQUOT, "its limit is 1");
	fake_attach_by(f, &b, 2000, "b");
	assert_int_equal(atomic_load(&b.s->share.above->rate), 5000);
	fake_attach_by(f, &c, 2000, "c");
	is_refused(&c, EDQUOT, "its limit is 1");
	assert_int_equal(set(f, "user.2000.connections", "3"), 1);
	assert_string_equal(shown(f, "user.2000.connections"), "3");
	assert_int_equal(set(f, "user.2000.services", "5"), 1);
	assert_string_equal(shown(f, "user.2000.services"), "5");
	assert_string_equal(shown(f, "user.2000.sessions"), "1");
	assert_int_equal(set(f, "user.*.sessions", "0"), -EINVAL);
	assert_int_equal(set(f, "user.*.colour", "1"), -ENOENT);
	assert_int_equal(set(f, "user.**.sessions", "1"), -EINVAL);
	assert_string_equal(shown(f, "user.*.sessions"), "1");
	fake_close(f);
}

/* Leaving and coming back does not fill the bucket: what was sent has to be paid for first. */
TEST_USERS(test_coming_back, "*:rate=1M")
{
	struct fake_session a;

	fake_attach_by(f, &a, BOB, "a");
	atomic_store(&a.s->share.above->paid, f->now + 1000);
	fake_leave(f, &a);
	fake_attach_by(f, &a, EVE, "e");
	fake_leave(f, &a);
	fake_attach_by(f, &a, BOB, "a");
	assert_int_equal(atomic_load(&a.s->share.above->paid), f->now + 1000);
	fake_leave(f, &a);
	f->now += 1000;
	fake_attach_by(f, &a, EVE, "e");
	fake_leave(f, &a);
	fake_attach_by(f, &a, BOB, "a");
	assert_int_equal(atomic_load(&a.s->share.above->paid), 0);
}

TEST(test_who_may)
{
	static const gid_t groups[] = {7, 300};
	struct users users = {0};

	assert_true(users_may_attach(&users, BOB, BOB, NULL, 0));
	assert_int_equal(users_allow(&users, "user:1001", reason, sizeof(reason)), 0);
	assert_int_equal(users_allow(&users, "group:300", reason, sizeof(reason)), 0);
	assert_int_equal(users_allow(&users, "user:root", reason, sizeof(reason)), 0);
	assert_true(users_may_attach(&users, BOB, 5, NULL, 0));
	assert_false(users_may_attach(&users, EVE, BOB, NULL, 0));
	assert_false(users_may_attach(&users, 300, 5, NULL, 0));
	assert_true(users_may_attach(&users, EVE, 300, NULL, 0));
	assert_true(users_may_attach(&users, EVE, 5, groups, 2));
	assert_false(users_may_attach(&users, EVE, 5, groups, 1));
	assert_true(users_may_attach(&users, 0, 5, NULL, 0));
	assert_true(users_may_attach(&users, geteuid(), 5, NULL, 0));
}

TEST(test_bad_words)
{
	static const char *const allow[] = {
	    "", "bob", "user:", "user:no-such-user", "group:-1", "group:no such", "users:1"};
	static const char *const limit[] = {"",
					    "bob",
					    "1001:",
					    ":sessions=1",
					    "no-such-user:sessions=1",
					    "1001:sessions",
					    "1001:sessions=",
					    "1001:sessions=0",
					    "1001:sessions=-1",
					    "1001:sessions=1x",
					    "1001:memory=1T",
					    "1001:rate=1",
					    "1001:speed=1",
					    "1001:sessions=1;memory=1M"};
	struct users users = {0};

	for (size_t i = 0; i < sizeof(allow) / sizeof(allow[0]); i++) {
		assert_int_equal(users_allow(&users, allow[i], reason, sizeof(reason)), -EINVAL);
		assert_true(strchr(reason, ';') || strstr(reason, "(expected "));
	}
	for (size_t i = 0; i < sizeof(limit) / sizeof(limit[0]); i++) {
		if (users_limit(&users, limit[i], reason, sizeof(reason)) != -EINVAL)
			fail_msg("'%s' is taken", limit[i]);
		assert_true(strchr(reason, ';') || strstr(reason, "(expected "));
	}
	assert_int_equal(users.allowed_count, 0);
	for (unsigned i = 0; i < USERS_ALLOWED_MAX; i++)
		assert_int_equal(users_allow(&users, "user:1", reason, sizeof(reason)), 0);
	assert_int_equal(users_allow(&users, "user:1", reason, sizeof(reason)), -EINVAL);
}
