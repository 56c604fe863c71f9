/* SPDX-License-Identifier: BSD-3-Clause */
/* Operators change a running data plane: settings, draining, evicting. */
#include "worlds/broker_fake.h"
#include "base/log.h"

#include "broker/conn.h"
#include "broker/set.h"

static char reason[160];

static int
set(struct fake *f, const char *key, const char *value)
{
	int n = setting_set(f->b, key, value, reason, sizeof(reason));

	fake_run(f);
	return n;
}

static void
refused(int got, int code, const char *says)
{
	assert_int_equal(got, -code);
	if (!strstr(reason, says) || !(strchr(reason, ';') || strstr(reason, "(expected ")))
		fail_msg("it says '%s'", reason);
}

static const char *
value_of(struct fake *f, const char *key)
{
	static struct weir_row_setting r;

	for (uint32_t i = 0; memset(&r, 0, sizeof(r)), setting_row(f->b, i, &r); i++)
		if (!strcmp(r.key, key)) {
			assert_true(*r.help);
			return r.value;
		}
	return NULL;
}

/* Every setting of the whole says what it is, takes another value, and refuses nonsense. */
TEST_FAKE(test_settings, two_engines)
{
	static const struct {
		const char *key, *is, *good, *bad;
	} all[] = {
	    {"drain.self", "off", "on", "yes"},	       {"limit.answers", "131072", "16384", "48K"},
	    {"limit.answers", "16384", "65536", "8K"}, {"limit.answers", "65536", "131072", "256K"},
	    {"limit.connections", NULL, "3", "0"},     {"limit.sessions", NULL, "1", "100000"},
	    {"limit.exports", "none", "3", "0"},       {"limit.memory", "none", "268435456", "0"},
	    {"limit.regions", "none", "3", "3M"},      {"limit.segments", "none", "none", "-1"},
	    {"log.level", "info", "warning", "loud"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		assert_non_null(value_of(f, all[i].key));
		if (all[i].is)
			assert_string_equal(value_of(f, all[i].key), all[i].is);
		refused(set(f, all[i].key, all[i].bad), EINVAL, all[i].bad);
		assert_int_equal(set(f, all[i].key, all[i].good), 1);
		assert_string_equal(value_of(f, all[i].key), all[i].good);
	}
	assert_int_equal(log_level(), LOG_LEVEL_WARNING);
	log_set_level(LOG_LEVEL_INFO);
	refused(set(f, "log.colour", "red"), EINVAL, "no setting is called 'log.colour'");
	refused(set(f, "drain.x", "on"), EINVAL, "'x' for a node to drain");
	refused(set(f, "drain.9", "on"), ESRCH, "no such node");
}

static unsigned
levels_told(const struct fake *f, const char *level)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < f->output_count; i++)
		n += f->output[i].type == WEIR_CTL_SET &&
		     !strcmp(f->output[i].set.key, "log.level") &&
		     !strcmp(f->output[i].set.value, level);
	return n;
}

/* Control hears of the level, one that comes later too; of none that nobody has set. */
TEST_FAKE(test_level_of_control, two_engines)
{
	struct weir_ctl_msg hello = {.type = WEIR_CTL_HELLO, .hello.node = 7};

	broker_control_input(f->b, &hello);
	assert_int_equal(levels_told(f, "info"), 0);
	assert_int_equal(set(f, "log.level", "warning"), 1);
	assert_int_equal(levels_told(f, "warning"), 1);
	broker_control_input(f->b, &hello);
	assert_int_equal(levels_told(f, "warning"), 2);
	log_set_level(LOG_LEVEL_INFO);
}

TEST_FAKE(test_settings_of_programs, two_engines)
{
	struct fake_session a = {0}, b = {0};
	char key[64];

	fake_attach_as(f, &a, "one");
	assert_int_equal(set(f, "program.two.rate", "10M,1M"), 0);
	assert_int_equal(set(f, "program.two.connections", "5"), 0);
	fake_attach_as(f, &b, "two");
	assert_string_equal(value_of(f, "program.two.rate"), "10000000,1000000");
	assert_string_equal(value_of(f, "program.two.connections"), "5");
	assert_null(value_of(f, "program.two.weight"));
	snprintf(key, sizeof(key), "session.%u.connections", b.s->id);
	assert_string_equal(value_of(f, key), "5");
	snprintf(key, sizeof(key), "session.%u.rate", a.s->id);
	assert_string_equal(value_of(f, key), "none");
	refused(set(f, "program.two.connections", "0"), EINVAL,
		"invalid value '0' for program.two.connections (expected 1 to");
}

/* One that listens, and one that is to connect. */
static void
two_programs(struct fake *f, struct fake_session *l, struct fake_session *c)
{
	fake_attach(f, l);
	fake_attach(f, c);
	fake_channels(f, l);
	fake_channels(f, c);
	fake_listen(f, l, "echo", 10);
}

static void
open_to(struct fake *f, struct fake_session *s, uint32_t node, uint32_t type, int code)
{
	fake_connect(f, s, node, "echo", 0);
	assert_int_equal(s->reply.type, type);
	if (type == WEIR_MSG_REFUSED)
		assert_int_equal(s->reply.refused.code, code);
}

/* A limit below what is there refuses more, and takes nothing away. */
TEST_FAKE(test_limits, two_engines)
{
	struct fake_session l = {0}, c = {0};
	char key[64];

	two_programs(f, &l, &c);
	open_to(f, &c, 7, WEIR_MSG_CONNECTING, 0);
	open_to(f, &c, 7, WEIR_MSG_CONNECTING, 0);
	snprintf(key, sizeof(key), "session.%u.connections", c.s->id);
	assert_int_equal(set(f, key, "1"), 1);
	open_to(f, &c, 7, WEIR_MSG_REFUSED, EMFILE);
	assert_int_equal(c.s->conn_count, 2);
	assert_int_equal(set(f, key, "100"), 1);
	assert_int_equal(set(f, "limit.connections", "5"), 1); /* both ends count */
	open_to(f, &c, 7, WEIR_MSG_REFUSED, EMFILE);
	assert_int_equal(set(f, "limit.connections", "6"), 1);
	open_to(f, &c, 7, WEIR_MSG_CONNECTING, 0);
	assert_int_equal(set(f, "limit.sessions", "2"), 1);
}

static void
hear(void *user, const struct weir_session_msg *reply, const int *fds, unsigned fd_count)
{
	struct weir_session_msg *said = user;

	*said = *reply;
}

TEST_FAKE(test_drain_self, two_engines)
{
	struct fake_session l = {0}, c = {0};
	struct weir_session_msg hello = session_msg(WEIR_MSG_HELLO), said = {0};

	two_programs(f, &l, &c);
	open_to(f, &c, 7, WEIR_MSG_CONNECTING, 0);
	assert_int_equal(set(f, "drain.self", "on"), 1);
	open_to(f, &c, 7, WEIR_MSG_REFUSED, ECONNREFUSED);
	assert_int_equal(c.s->conn_count, 1);
	hello.hello.magic = WEIR_SESSION_MAGIC;
	hello.hello.versions = WEIR_SESSION_VERSIONS;
	assert_null(broker_session_open(f->b, &hello, hello.length, 1, 1, hear, &said));
	assert_int_equal(said.refused.code, ECONNREFUSED);
	assert_non_null(strstr(said.refused.reason, "being drained"));
	assert_int_equal(f->b->counters.drained, 2);
	assert_int_equal(set(f, "drain.self", "off"), 1);
	open_to(f, &c, 7, WEIR_MSG_CONNECTING, 0);
}

TEST_FAKE(test_drain_node, two_engines)
{
	struct fake_session c = {0};
	struct engine_event e = {.type = ENGINE_EVENT_CONNECT};

	fake_program(f, &c);
	fake_node(f, 9, WEIR_NODE_UP, 1, 2);
	fake_node(f, 10, WEIR_NODE_UP, 1, 2);
	assert_null(value_of(f, "drain.9"));
	assert_int_equal(set(f, "drain.9", "on"), 1);
	assert_string_equal(value_of(f, "drain.9"), "on");
	open_to(f, &c, 9, WEIR_MSG_REFUSED, ECONNREFUSED);
	open_to(f, &c, 10, WEIR_MSG_CONNECTING, 0);
	/* nor is taken what that node asks for */
	fake_listen(f, &c, "echo", 10);
	e.conn.peer_node = 9;
	snprintf(e.conn.service, sizeof(e.conn.service), "echo");
	fake_event(f, 0, &e);
	assert_int_equal(f->count[ENGINE_CONN_REJECT], 1);
	assert_int_equal(f->count[ENGINE_CONN_ACCEPT], 0);
	assert_int_equal(f->b->counters.drained, 2);
	e.conn.peer_node = 10;
	fake_event(f, 0, &e);
	assert_int_equal(f->count[ENGINE_CONN_ACCEPT], 1);
	assert_int_equal(set(f, "drain.9", "off"), 1);
	assert_null(value_of(f, "drain.9"));
	open_to(f, &c, 9, WEIR_MSG_CONNECTING, 0);
}

static int
evicts(struct fake *f, uint32_t what, uint32_t id, const char *why)
{
	int rc = evict(f->b, what, id, why, reason, sizeof(reason));

	broker_flush(f->b);
	fake_run(f);
	return rc;
}

/* A session ends, and its program can read why. */
TEST_FAKE(test_evict_session, two_engines)
{
	struct fake_session a = {0}, b = {0};

	fake_attach(f, &a);
	fake_attach(f, &b);
	refused(evicts(f, WEIR_EVICT_SESSION, 63, ""), ESRCH, "no session 63");
	assert_int_equal(evicts(f, WEIR_EVICT_SESSION, a.s->id, "too loud"), 1);
	assert_true(a.ended);
	assert_false(b.ended);
	assert_int_equal(a.reply.type, WEIR_MSG_REFUSED);
	assert_int_equal(a.reply.refused.code, ECONNABORTED);
	assert_non_null(strstr(a.reply.refused.reason, "evicted by an operator: too loud;"));
	assert_int_equal(f->b->counters.evicted, 1);
	assert_int_equal(f->b->session_count, 1);
}

/* Both ends of a local connection hear that it was aborted; the sessions stay. */
TEST_FAKE(test_evict_local, two_engines)
{
	struct fake_session l = {0}, c = {0};
	uint32_t before;

	two_programs(f, &l, &c);
	open_to(f, &c, 7, WEIR_MSG_CONNECTING, 0);
	before = f->count[ENGINE_CONN_PEER_CLOSED];
	refused(evicts(f, WEIR_EVICT_CONNECTION, 0, ""), ESRCH, "no connection 0x0");
	assert_int_equal(evicts(f, WEIR_EVICT_CONNECTION, c.reply.connecting.vqpn, "in the way"),
			 1);
	assert_int_equal(f->count[ENGINE_CONN_PEER_CLOSED], before + 2);
	assert_int_equal(f->last[ENGINE_CONN_PEER_CLOSED].conn.status, ECONNABORTED);
	assert_false(c.ended || l.ended);
}

/* One that waits for a link ends at once; its engine is asked for one that has one. */
TEST_FAKE(test_evict_remote, two_engines)
{
	struct fake_session c = {0};

	fake_program(f, &c);
	fake_node(f, 9, WEIR_NODE_UP, 1, 2);
	open_to(f, &c, 9, WEIR_MSG_CONNECTING, 0);
	assert_non_null(conn_find(f->b, c.reply.connecting.vqpn)->waiting_for);
	assert_int_equal(evicts(f, WEIR_EVICT_CONNECTION, c.reply.connecting.vqpn, ""), 1);
	assert_int_equal(f->last[ENGINE_CONN_START].conn.status, ECONNABORTED);
	assert_int_equal(f->count[ENGINE_CONN_EVICT], 0);
	assert_int_equal(fake_connect(f, &c, 7, "echo", WEIR_CONNECT_LOOP), WEIR_MSG_CONNECTING);
	fake_run(f);
	assert_null(conn_find(f->b, c.reply.connecting.vqpn)->waiting_for);
	assert_int_equal(evicts(f, WEIR_EVICT_CONNECTION, c.reply.connecting.vqpn, ""), 1);
	assert_int_equal(f->count[ENGINE_CONN_EVICT], 1);
	assert_int_equal(f->last[ENGINE_CONN_EVICT].conn.status, ECONNABORTED);
}
