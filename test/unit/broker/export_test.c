/* SPDX-License-Identifier: BSD-3-Clause */
/* Exports as main sees them: requests, keys, limits, the order of commands, sessions that end. */
#include "worlds/broker_net.h"

#include "broker/conn.h"
#include "broker/export.h"
#include "broker/region.h"
#include "ipc/key.h"
#include "weir/memory.h"

#define EXPORTS 4u /* as broker_fake.c has it */
#define BYTES 65536u

static void
expect_refused(const struct fake_session *s, int code)
{
	assert_int_equal(s->reply.type, WEIR_MSG_REFUSED);
	assert_int_equal(s->reply.refused.code, code);
	assert_non_null(strstr(s->reply.refused.reason, "; "));
}

/* Exports a part of a region. Returns the type of the reply. */
static uint32_t export(struct fake *f, struct fake_session *s, uint32_t region, uint64_t offset,
		       uint64_t length, uint32_t rights)
{
	struct weir_session_msg m = {.type = WEIR_MSG_EXPORT};

	m.export.region = region;
	m.export.offset = offset;
	m.export.length = length;
	m.export.rights = rights;
	return fake_ask(f, s, &m);
}

static uint32_t
revoke_export(struct fake *f, struct fake_session *s, uint32_t number, uint32_t generation)
{
	struct weir_session_msg m = {.type = WEIR_MSG_REVOKE};

	m.exported.number = number;
	m.exported.generation = generation;
	return fake_ask(f, s, &m);
}

static struct weir_key_fields
key_of(const struct fake_session *s)
{
	struct weir_key_fields k;

	assert_int_equal(s->reply.type, WEIR_MSG_EXPORTED);
	memcpy(&k, s->reply.exported.key, sizeof(k));
	return k;
}

static uint32_t
open_key(struct fake *f, struct fake_session *s, const struct weir_key_fields *k, uint32_t rights)
{
	struct weir_session_msg m = {.type = WEIR_MSG_OPEN, .open.rights = rights};

	memcpy(m.open.key, k, sizeof(m.open.key));
	return fake_ask(f, s, &m);
}

/* A program with region 1. */
static void
exporter(struct fake *f, struct fake_session *s)
{
	fake_program(f, s);
	assert_int_equal(fake_adopt(f, s, BYTES, WEIR_ADOPT_EXPOSE), 0);
}

TEST_FAKE(test_export, two_engines)
{
	struct fake_session s;
	struct weir_key_fields a, b;

	exporter(f, &s);
	assert_int_equal(export(f, &s, 1, 100, 1000, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	assert_int_equal(f->count[ENGINE_EXPORT_ADD], 2);
	assert_int_equal(f->last[ENGINE_EXPORT_ADD].export.offset, 100);
	assert_int_equal(f->last[ENGINE_EXPORT_ADD].export.length, 1000);
	assert_int_equal(f->last[ENGINE_EXPORT_ADD].export.rights, WEIR_RIGHT_WRITE);
	a = key_of(&s);
	assert_true(weir_key_ok(&a));
	assert_int_equal(a.node, 7);
	assert_int_equal(a.incarnation, f->config.incarnation);
	/* the same range once more is another export: nothing of its key can be guessed */
	assert_int_equal(export(f, &s, 1, 100, 1000, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	b = key_of(&s);
	assert_int_not_equal(a.index, b.index);
	assert_memory_not_equal(a.secret, b.secret, sizeof(a.secret));
	assert_int_equal(revoke_export(f, &s, 1, a.generation), WEIR_MSG_OK);
	assert_int_equal(f->count[ENGINE_EXPORT_REMOVE], 2);
	assert_int_equal(f->last[ENGINE_EXPORT_REMOVE].export.generation, a.generation);
	assert_int_equal(revoke_export(f, &s, 1, a.generation), WEIR_MSG_REFUSED);
	/* its number has another life, which its old name does not end */
	assert_int_equal(export(f, &s, 1, 0, 1, WEIR_RIGHT_READ), WEIR_MSG_EXPORTED);
	assert_int_equal(s.reply.exported.number, 1);
	assert_int_not_equal(s.reply.exported.generation, a.generation);
	assert_int_equal(revoke_export(f, &s, 1, a.generation), WEIR_MSG_REFUSED);
	assert_int_equal(f->count[ENGINE_EXPORT_REMOVE], 2);
}

TEST_FAKE(test_limits, two_engines)
{
	struct fake_session s;

	exporter(f, &s);
	assert_int_equal(fake_adopt(f, &s, BYTES, WEIR_ADOPT_SEND), 0);
	for (unsigned i = 0; i < 3; i++) {
		static const uint32_t none[] = {0, 3, UINT32_MAX};

		export(f, &s, none[i], 0, 1, WEIR_RIGHT_WRITE);
		expect_refused(&s, ENOENT);
	}
	export(f, &s, 2, 0, 1, WEIR_RIGHT_WRITE);
	expect_refused(&s, EACCES);
	export(f, &s, 1, 0, 1, 0);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, 0, 1, WEIR_RIGHTS_KNOWN + 1);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, 0, 0, WEIR_RIGHT_WRITE);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, BYTES, 1, WEIR_RIGHT_WRITE);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, BYTES - 1, 2, WEIR_RIGHT_WRITE);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, 2, UINT64_MAX, WEIR_RIGHT_WRITE);
	expect_refused(&s, EINVAL);
	export(f, &s, 1, UINT64_MAX, 2, WEIR_RIGHT_WRITE);
	expect_refused(&s, EINVAL);
	assert_int_equal(f->count[ENGINE_EXPORT_ADD], 0);
	for (unsigned i = 0; i < EXPORTS; i++)
		assert_int_equal(export(f, &s, 1, 0, BYTES, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	export(f, &s, 1, 0, BYTES, WEIR_RIGHT_WRITE);
	expect_refused(&s, EMFILE);
	assert_int_equal(revoke_export(f, &s, 0, 1), WEIR_MSG_REFUSED);
	assert_int_equal(revoke_export(f, &s, EXPORTS + 1, 1), WEIR_MSG_REFUSED);
	assert_int_equal(revoke_export(f, &s, UINT32_MAX, 1), WEIR_MSG_REFUSED);
	fake_leave(f, &s);
}

/* An engine takes it and another does not: neither has it afterwards. */
TEST_FAKE(test_refused_by_engine, two_engines)
{
	struct fake_session s;

	exporter(f, &s);
	f->fail_type = ENGINE_EXPORT_ADD;
	f->fail_rc = -ENOSPC;
	export(f, &s, 1, 0, 1, WEIR_RIGHT_WRITE);
	expect_refused(&s, ENOSPC);
	assert_int_equal(f->count[ENGINE_EXPORT_REMOVE], 2);
	f->fail_type = -1;
	assert_int_equal(export(f, &s, 1, 0, 1, WEIR_RIGHT_WRITE), WEIR_MSG_EXPORTED);
	assert_int_equal(s.reply.exported.number, 1);
}

/* Exports end before their region does, in every engine. */
TEST_FAKE(test_disown, two_engines)
{
	struct fake_session s, other;
	struct weir_session_msg m = {.type = WEIR_MSG_DISOWN, .region.region = 1};
	struct weir_key_fields k;
	bool removed[2] = {false};

	exporter(f, &s);
	fake_program(f, &other);
	export(f, &s, 1, 0, 1, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	f->hold = true;
	assert_int_equal(fake_ask(f, &s, &m), WEIR_MSG_OK);
	for (uint32_t i = 0; i < f->held_count; i++) {
		if (f->held[i].c->type == ENGINE_EXPORT_REMOVE)
			removed[f->held[i].engine] = true;
		if (f->held[i].c->type == ENGINE_REGION_REMOVE)
			assert_true(removed[f->held[i].engine]);
	}
	assert_true(removed[0] && removed[1]);
	/* from the request on nobody opens it */
	assert_int_equal(open_key(f, &other, &k, WEIR_RIGHT_WRITE), WEIR_MSG_REFUSED);
	assert_int_equal(other.reply.refused.code, EKEYREJECTED);
	/* the session ends while engines have the commands */
	fake_leave(f, &s);
	fake_let_go(f);
}

TEST_FAKE(test_apart, two_engines)
{
	struct fake_session s, other;
	struct weir_key_fields k, bad;
	uint32_t free_descs;

	exporter(f, &s);
	fake_program(f, &other);
	export(f, &s, 1, 0, 100, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	free_descs = other.s->free_desc_count;
	assert_int_equal(open_key(f, &other, &k, WEIR_RIGHT_WRITE), WEIR_MSG_CONNECTING);
	assert_int_equal(other.reply.connecting.local, 1);
	assert_int_equal(other.reply.connecting.segment, 0);
	assert_int_not_equal(other.reply.connecting.vqpn, 0);
	assert_int_equal(f->last[ENGINE_CONN_APART].conn.export_session, s.s->id);
	assert_int_equal(f->last[ENGINE_CONN_APART].conn.export_number, 1);
	assert_int_equal(f->last[ENGINE_CONN_APART].conn.export_generation, k.generation);
	assert_int_equal(f->last[ENGINE_CONN_APART].conn.rights, WEIR_RIGHT_WRITE);
	assert_int_equal(other.s->free_desc_count, free_descs - 1);
	/* rights that the key does not grant, or none; a secret that differs in its last bit */
	open_key(f, &other, &k, WEIR_RIGHT_READ | WEIR_RIGHT_WRITE);
	expect_refused(&other, EACCES);
	open_key(f, &other, &k, 0);
	expect_refused(&other, EINVAL);
	bad = k;
	bad.secret[15] ^= 1;
	bad.sum = weir_key_sum(&bad);
	open_key(f, &other, &bad, WEIR_RIGHT_WRITE);
	expect_refused(&other, EKEYREJECTED);
	bad = k;
	bad.index = UINT32_MAX;
	bad.sum = weir_key_sum(&bad);
	open_key(f, &other, &bad, WEIR_RIGHT_WRITE);
	expect_refused(&other, EKEYREJECTED);
	/* the engine has ended it meanwhile */
	f->fail_type = ENGINE_CONN_APART;
	f->fail_rc = -ESTALE;
	open_key(f, &other, &k, WEIR_RIGHT_WRITE);
	expect_refused(&other, EKEYREJECTED);
	f->fail_type = -1;
	assert_int_equal(other.s->free_desc_count, free_descs - 1);
	assert_int_equal(f->count[ENGINE_CONN_APART], 2);
	fake_leave(f, &s);
	open_key(f, &other, &k, WEIR_RIGHT_WRITE);
	expect_refused(&other, EKEYREJECTED);
}

/* ---- over a link ---- */

/* A peer asks for it: `with` changes what it sends. */
static void
asked(struct net *n, const struct weir_key_fields *k, uint32_t rights)
{
	struct weir_wire_export wanted = {
	    .index = k->index, .generation = k->generation, .rights = rights};
	struct engine_event e = {.type = ENGINE_EVENT_CONNECT,
				 .conn = {.link = the_link(n, 1)->id,
					  .peer_node = 1,
					  .peer_vqpn = 0x100001,
					  .kind = CONN_MEMORY}};

	memcpy(wanted.secret, k->secret, sizeof(wanted.secret));
	memcpy(e.conn.service, &wanted, sizeof(wanted));
	fake_event(n->f[1], 0, &e);
}

/* The accepting end is of the exporting session, but takes no descriptor and no channel of it. */
TEST_NET(test_accept, bring_up)
{
	struct fake *f = n->f[1];
	struct fake_session s;
	struct engine_event closed = {.type = ENGINE_EVENT_CONN_CLOSED};
	struct weir_key_fields k, bad;
	struct engine_conn_command *c = &f->last[ENGINE_CONN_ACCEPT].conn;
	uint32_t descs, conns;

	exporter(f, &s);
	descs = s.s->free_desc_count;
	conns = s.s->conn_count;
	export(f, &s, 1, 0, 100, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	asked(n, &k, WEIR_RIGHT_WRITE);
	assert_int_equal(f->count[ENGINE_CONN_ACCEPT], 1);
	assert_int_equal(c->kind, CONN_MEMORY);
	assert_int_equal(c->desc, ENGINE_DESC_NONE);
	assert_int_equal(c->channel, ENGINE_CHANNEL_NONE);
	assert_int_equal(c->export_session, s.s->id);
	assert_int_equal(c->export_number, 1);
	assert_int_equal(c->export_generation, k.generation);
	assert_int_equal(c->rights, WEIR_RIGHT_WRITE);
	assert_int_equal(s.s->free_desc_count, descs);
	assert_int_equal(s.s->conn_count, conns + 1);
	closed.conn.vqpn = s.s->conns->vqpn;
	fake_event(f, 0, &closed);
	assert_int_equal(s.s->free_desc_count, descs); /* none comes back that was not taken */
	assert_int_equal(s.s->conn_count, conns);

	asked(n, &k, WEIR_RIGHT_READ);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EACCES);
	asked(n, &k, 0);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EACCES);
	for (unsigned i = 0; i < sizeof(bad.secret); i++) {
		bad = k;
		bad.secret[i] ^= 0x80;
		asked(n, &bad, WEIR_RIGHT_WRITE);
		assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
	}
	bad = k;
	bad.generation++;
	asked(n, &bad, WEIR_RIGHT_WRITE);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
	assert_int_equal(f->count[ENGINE_CONN_ACCEPT], 1);
	assert_true(f->b->counters.keys_rejected >= 17);
	/* the engine has ended it meanwhile */
	f->fail_type = ENGINE_CONN_ACCEPT;
	f->fail_rc = -ESTALE;
	asked(n, &k, WEIR_RIGHT_WRITE);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
	f->fail_type = -1;
	/* no room for connections at the exporting program */
	s.s->quota.conn_limit = s.s->conn_count;
	asked(n, &k, WEIR_RIGHT_WRITE);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EMFILE);
	fake_leave(f, &s);
	asked(n, &k, WEIR_RIGHT_WRITE);
	assert_int_equal(f->last[ENGINE_CONN_REJECT].conn.status, EKEYREJECTED);
}

/* CONNECT carries the names of the key; a key of an earlier run of that node's data plane fails at
 * once. */
TEST_NET(test_connect, bring_up)
{
	struct fake *f = n->f[0];
	struct weir_wire_export wanted;
	struct fake_session s;
	struct weir_key_fields k;

	exporter(n->f[1], &s);
	export(n->f[1], &s, 1, 0, 100, WEIR_RIGHT_WRITE);
	k = key_of(&s);
	assert_int_equal(open_key(f, &n->s[0], &k, WEIR_RIGHT_WRITE), WEIR_MSG_CONNECTING);
	assert_int_equal(n->s[0].reply.connecting.local, 0);
	assert_int_equal(f->last[ENGINE_CONN_OPEN].conn.kind, CONN_MEMORY);
	memcpy(&wanted, f->last[ENGINE_CONN_OPEN].conn.service, sizeof(wanted));
	assert_int_equal(wanted.index, k.index);
	assert_int_equal(wanted.generation, k.generation);
	assert_int_equal(wanted.rights, WEIR_RIGHT_WRITE);
	assert_memory_equal(wanted.secret, k.secret, sizeof(k.secret));
	k.incarnation--;
	k.sum = weir_key_sum(&k);
	open_key(f, &n->s[0], &k, WEIR_RIGHT_WRITE);
	expect_refused(&n->s[0], EKEYREJECTED);
	k.node = 77;
	k.sum = weir_key_sum(&k);
	open_key(f, &n->s[0], &k, WEIR_RIGHT_WRITE);
	expect_refused(&n->s[0], EKEYREJECTED);
	fake_leave(n->f[1], &s);
}
