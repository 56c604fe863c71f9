/* SPDX-License-Identifier: BSD-3-Clause */
/* One broker, and offers made by hand as its control would pass them on: node 1 and its peer 2. */
#include "worlds/broker_fake.h"

#include "broker/link.h"

struct end {
	struct fake *f;
	struct fake_session s;
};

static void
end_open(struct end *n)
{
	struct fake_config c = {.engines = 2, .node = 1, .incarnation = 100};

	*n = (struct end){.f = fake_open(&c)};
	fake_node(n->f, 2, WEIR_NODE_UP, 200, 2);
	fake_program(n->f, &n->s);
	fake_listen(n->f, &n->s, "echo", 10);
}

/* An offer from engine 0 of node 2 to our engine 0, with nothing wrong. */
static struct weir_ctl_msg
offer(uint32_t attempt, uint32_t answered)
{
	struct weir_ctl_msg m = fake_peer_offer(2, attempt, answered);

	m.link.highest = WEIR_WIRE_VERSION;
	m.link.qpn[0] = 100 * attempt;
	m.link.qpn[1] = 100 * attempt + 1;
	m.link.psn[0] = 7;
	m.link.psn[1] = 0xffffff;
	return m;
}

static void
take(struct end *n, const struct weir_ctl_msg *m)
{
	n->f->output_count = 0;
	fake_told(n->f, m);
}

static struct broker_link *
the_link(struct end *n)
{
	return link_find(n->f->b, 0, 2, 0);
}

/* Each value that would do harm is refused, and the right one is taken afterwards. */
TEST_END(test_bad_fields)
{
	struct weir_ctl_msg m;
	uint64_t bad = 0;

#define BAD(field, value)                                                                          \
	m = offer(1, 0);                                                                           \
	m.link.field = value;                                                                      \
	take(n, &m);                                                                               \
	assert_int_equal(n->f->b->counters.offers_bad, ++bad);                                     \
	assert_int_equal(n->f->live_qps, 0)
	BAD(layout, WEIR_WIRE_VERSION);
	BAD(layout, WEIR_WIRE_VERSION | 0x200);
	BAD(incarnation, 0);
	BAD(attempt, 0);
	BAD(mtu, 128);
	BAD(mtu, 1025);
	BAD(mtu, 8192);
	BAD(qpn[0], 0);
	BAD(qpn[1], 0);
	BAD(qpn[1], m.link.qpn[0]);
	BAD(qpn[0], 0x1000000);
	BAD(psn[1], 0x1000000);
	BAD(ring_lines, 0);
	BAD(ring_lines, 128);
	BAD(ring_lines, 1000);
	BAD(ring_lines, 131072);
	BAD(ring_address, 0);
	BAD(ring_address, 0x7f0000000020);
	BAD(ring_address, UINT64_MAX - 1024 * 64 + 1);
	BAD(credit_address, 0);
	BAD(credit_address, 0x7f0000100008);
	BAD(credit_address, UINT64_MAX - 63);
	BAD(recv_wrs, 3);
	BAD(recv_wrs, 65537);
	BAD(answers, (16 << 10) - 1);
	BAD(answers, (1 << 30) + 1);
	BAD(gid[10], (memset(m.link.gid, 0, 16), 0));
	BAD(node, 1);
	BAD(node, 3);
	BAD(peer_node, 3);
	BAD(engine, 2);
	BAD(engine, 1); /* 0 and 0, 1 and 1 have links */
	BAD(peer_engine, 2);
#undef BAD
	m = offer(1, 0);
	take(n, &m);
	assert_int_equal(n->f->b->counters.offers_bad, bad);
	assert_int_equal(the_link(n)->state, LINK_UP);
}

/* Versions of the wire: lower, higher, overlapping, and of a peer that names one only. */
TEST_END(test_versions)
{
	const uint32_t v = WEIR_WIRE_VERSION;
	const struct {
		struct weir_versions theirs;
		bool taken;
	} cases[] = {
	    {{v - 1, v - 1}, false},
	    {{v + 1, v + 1}, false},
	    {{v + 1, 0}, false},
	    {{v - 1, v + 1}, true},
	};
	uint64_t bad = 0;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct weir_ctl_msg m = offer(1, 0);

		m.link.layout = (uint16_t)(cases[i].theirs.lowest | WEIR_LITTLE_ENDIAN);
		m.link.highest = cases[i].theirs.highest;
		take(n, &m);
		bad += !cases[i].taken;
		assert_int_equal(n->f->b->counters.offers_bad, bad);
		assert_int_equal(n->f->live_qps != 0, cases[i].taken);
	}
	/* ours says what we speak */
	assert_int_equal(the_link(n)->state, LINK_UP);
	assert_int_equal(n->f->output[0].link.layout, v | WEIR_LITTLE_ENDIAN);
	assert_int_equal(n->f->output[0].link.highest, v);
}

/* We may not send before the peer has joined its QPs to ours: it would drop what comes. */
TEST_END(test_waits_for_confirmation)
{
	struct weir_ctl_msg m = offer(1, 0);

	take(n, &m);
	assert_int_equal(the_link(n)->state, LINK_UP);
	assert_int_equal(n->f->output_count, 1);
	assert_int_equal(n->f->output[0].link.answered, 1);
	assert_int_equal(fake_connect(n->f, &n->s, 2, "echo", 0), WEIR_MSG_CONNECTING);
	assert_int_equal(n->f->last[ENGINE_CONN_OPEN].conn.link, ENGINE_LINK_NONE);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 0);
	m = offer(1, the_link(n)->attempt);
	take(n, &m);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 1);
	assert_int_equal(n->f->last[ENGINE_CONN_START].conn.link, the_link(n)->id);
}

/* The NIC must not take remains of a former link for the next one's. */
TEST_END(test_ids_go_round)
{
	uint32_t last = UINT32_MAX;

	for (uint32_t attempt = 1; attempt < 6; attempt++) {
		struct weir_ctl_msg m = offer(attempt, 0);

		take(n, &m);
		assert_int_equal(the_link(n)->state, LINK_UP);
		assert_int_not_equal(the_link(n)->id, last);
		last = the_link(n)->id;
		broker_link_fail(the_link(n), ECONNRESET);
		fake_run(n->f);
		assert_int_equal(the_link(n)->state, LINK_DOWN);
	}
}

/* Rings, credit lines and receive blocks are all of our memory that peers may write to. */
TEST_END(test_what_peers_may_write)
{
	struct weir_ctl_msg m = offer(1, 0);
	const struct weir_geometry *g;
	uint64_t arena, blocks = 0;
	const struct broker_link *l;

	take(n, &m);
	l = the_link(n);
	g = &n->s.s->arena.geometry;
	arena = (uintptr_t)arena_base(&n->s.s->arena);
	assert_true(n->f->next_key > 0 && n->f->next_key <= FAKE_MRS);
	for (uint32_t i = 0; i < n->f->next_key; i++) {
		const struct nic_mr *mr = &n->f->mr[i].is;

		if (!n->f->mr[i].access)
			continue; /* what we send from */
		/* gets are read into it; read by those who are told its key */
		if (n->f->mr[i].access == (NIC_LOCAL_WRITE | NIC_REMOTE_READ)) {
			assert_int_equal(mr->address, arena + weir_arena_send(g));
			assert_int_equal(mr->length, (uint64_t)g->send_blocks * WEIR_BLOCK_SIZE);
			continue;
		}
		assert_int_equal(n->f->mr[i].access & NIC_REMOTE_READ, 0);
		if (mr->rkey == l->ring.mr.rkey) {
			assert_int_equal(mr->length, n->f->config.peer_ring_lines * 64);
		} else if (mr->rkey == l->least.ring_mr.rkey) {
			assert_int_equal(mr->length, ENGINE_RING_LEAST * 64);
		} else if (mr->rkey == l->credit_mr.rkey) {
			assert_int_equal(mr->length, 2 * sizeof(struct weir_credit_line));
		} else {
			assert_true(mr->address >= arena + weir_arena_recv(g));
			assert_true(mr->address + mr->length <= arena + weir_arena_send(g));
			blocks += mr->length / WEIR_BLOCK_SIZE;
		}
	}
	assert_int_equal(blocks, g->recv_blocks);
}
