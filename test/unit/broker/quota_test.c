/* SPDX-License-Identifier: BSD-3-Clause */
/* Weights and rates of programs: what settings mean, for whom, from when on. */
#include "worlds/broker_fake.h"

#include "broker/quota.h"

static char reason[160];

static int
set(struct fake *f, const char *key, const char *value)
{
	int n = quota_set(f->b, key, value, reason, sizeof(reason));

	broker_flush(f->b);
	fake_run(f);
	return n;
}

static void
is(const struct fake_session *s, uint32_t weight, uint64_t rate, uint64_t burst_ns)
{
	const struct engine_share *share = &s->s->share;

	assert_ptr_equal(s->s->view[0].share, share);
	assert_ptr_equal(s->s->view[1].share, share);
	assert_int_equal(atomic_load(&share->weight), weight);
	assert_int_equal(atomic_load(&share->rate), rate);
	assert_int_equal(atomic_load(&share->burst_ns), burst_ns);
}

TEST_FAKE(test_one_and_all, two_engines)
{
	struct fake_session a = {0}, b = {0}, c = {0};
	char key[64];

	fake_attach_as(f, &a, "v1.2 tool");
	fake_attach_as(f, &b, "v1.2 tool");
	is(&a, ENGINE_WEIGHT, 0, 0);
	snprintf(key, sizeof(key), "session.%u.rate", a.s->id);
	assert_int_equal(set(f, key, "100M,1M"), 1);
	is(&a, ENGINE_WEIGHT, 100000000, 10000000);
	is(&b, ENGINE_WEIGHT, 0, 0);
	/* every engine hears of it */
	assert_int_equal(f->count[ENGINE_SESSION_SHARE], 2);
	assert_int_equal(set(f, "program.v1.2 tool.weight", "30"), 2);
	is(&a, 30, 100000000, 10000000);
	is(&b, 30, 0, 0);
	/* who comes later as well */
	assert_int_equal(set(f, "program.later.rate", "1G"), 0);
	fake_attach_as(f, &c, "later");
	is(&c, ENGINE_WEIGHT, 1000000000, 20000000);
	assert_int_equal(set(f, "program.later.rate", "none"), 1);
	is(&c, ENGINE_WEIGHT, 0, 0);
	fake_leave(f, &a);
	assert_int_equal(set(f, "program.v1.2 tool.weight", "1"), 1);
	is(&b, 1, 0, 0);
}

/* A session that ends while an engine is being told. */
TEST_FAKE(test_end_meanwhile, two_engines)
{
	struct fake_session a = {0};

	fake_attach_as(f, &a, "x");
	f->hold = true;
	assert_int_equal(set(f, "program.x.weight", "5"), 1);
	broker_session_close(a.s);
	assert_int_equal(f->b->session_count, 1);
	fake_let_go(f);
	assert_int_equal(f->b->session_count, 0);
}

TEST_FAKE(test_bad, two_engines)
{
	static const struct {
		const char *key, *value, *says;
		int code;
	} bad[] = {
	    {"", "1", "no setting", EINVAL},
	    {"weight", "1", "no setting", EINVAL},
	    {"program.weight", "1", "no setting", EINVAL},
	    {"program.x.colour", "1", "no setting", EINVAL},
	    {"node.1.weight", "1", "no setting", EINVAL},
	    {"session.x.weight", "1", "expected a number", EINVAL},
	    {"session.-1.weight", "1", "expected a number", EINVAL},
	    {"session.63.weight", "1", "there is no session 63", ESRCH},
	    {"program.x.weight", "0", "expected 1 to 100", EINVAL},
	    {"program.x.weight", "101", "expected 1 to 100", EINVAL},
	    {"program.x.weight", "ten", "expected 1 to 100", EINVAL},
	    {"program.x.rate", "10", "invalid value '10' for program.x.rate", EINVAL},
	    {"program.x.rate", "10M,", "invalid value '10M,' for program.x.rate", EINVAL},
	    {"program.a name that is longer than names are.rate", "10M", "longer", EINVAL},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(set(f, bad[i].key, bad[i].value), -bad[i].code);
		if (!strstr(reason, bad[i].says) ||
		    !(strchr(reason, ';') || strstr(reason, "(expected ")))
			fail_msg("%s %s: '%s'", bad[i].key, bad[i].value, reason);
	}
	assert_null(f->b->quota_settings);
	/* names without end */
	for (unsigned i = 0; i < 1024; i++) {
		char key[64];

		snprintf(key, sizeof(key), "program.p%u.weight", i);
		assert_int_equal(set(f, key, "20"), 0);
	}
	assert_int_equal(set(f, "program.one more.weight", "20"), -ENOSPC);
	assert_int_equal(set(f, "program.p7.weight", "21"), 0);
}
