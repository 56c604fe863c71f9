/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Room for links: one broker, node 1, which may have 8 of them with one engine, and peers whose
 * offers the test makes. Which link makes room for another, who waits, and who is refused.
 */
#include "worlds/broker_fake.h"

#include "broker/link.h"
#include "broker/node.h"

#define LINKS 8u /* of fake_open() */
#define FIRST 2u /* peers: nodes 2, 3 ... */
#define PEERS 30u

struct end {
	struct fake *f;
	struct fake_session s;
	uint32_t attempt[FIRST + PEERS]; /* of each peer's QPs */
};

static void
end_open(struct end *n)
{
	struct fake_config c = {.engines = 1, .node = 1, .incarnation = 100};

	*n = (struct end){.f = fake_open(&c)};
	for (uint32_t i = 0; i < PEERS; i++)
		fake_node(n->f, FIRST + i, WEIR_NODE_UP, 200, 1);
	fake_program(n->f, &n->s);
	fake_listen(n->f, &n->s, "echo", 100);
}

static struct broker_link *
link_with(struct end *n, uint32_t node)
{
	return link_find(n->f->b, 0, node, 0);
}

static enum link_state
state(struct end *n, uint32_t node)
{
	struct broker_link *l = link_with(n, node);

	return l ? l->state : LINK_DOWN;
}

static struct weir_ctl_msg
offer(struct end *n, uint32_t node, uint32_t answered)
{
	struct weir_ctl_msg m = fake_peer_offer(node, n->attempt[node], answered);

	m.link.joined = answered;
	m.link.qpn[0] = 1000 * node + 2 * n->attempt[node];
	m.link.qpn[1] = m.link.qpn[0] + 1;
	return m;
}

static void
told(struct end *n, const struct weir_ctl_msg *m)
{
	n->f->output_count = 0;
	fake_told(n->f, m);
}

/* The peer begins a link. */
static void
peer_offers(struct end *n, uint32_t node)
{
	struct weir_ctl_msg m;

	n->attempt[node]++;
	m = offer(n, node, 0);
	told(n, &m);
}

/* It takes up what we have offered, or confirms. */
static void
peer_answers(struct end *n, uint32_t node)
{
	struct weir_ctl_msg m;

	if (state(n, node) == LINK_OFFERED)
		n->attempt[node]++;
	m = offer(n, node, link_with(n, node)->attempt);
	told(n, &m);
}

static void
bring_up(struct end *n, uint32_t node)
{
	peer_offers(n, node);
	peer_answers(n, node);
	assert_true(link_with(n, node)->open);
	n->f->now += 1000;
}

static void
later(struct end *n, uint64_t ns)
{
	n->f->now += ns;
	fake_run(n->f);
}

/* Links with nodes 2 to 9: all that there may be. */
static void
fill(struct end *n)
{
	for (uint32_t i = 0; i < LINKS; i++)
		bring_up(n, FIRST + i);
	assert_int_equal(n->f->links, LINKS);
	later(n, BROKER_SECOND_NS); /* they are no longer new */
}

static void
engine_says(struct end *n, uint32_t node, enum engine_event_type type)
{
	struct broker_link *l = link_with(n, node);
	struct engine_event e = {.type = type, .qpn = nic_qpn(l->qp[0])};

	e.conn.link = l->id;
	fake_event(n->f, 0, &e);
}

/* The node whose link the engine was asked to end last. */
static uint32_t
asked(struct end *n)
{
	return link_by_id(n->f->b, 0, n->f->last[ENGINE_LINK_CLOSE].link.link)->node;
}

/* A connection of the peer arrives. */
static void
peer_connects(struct end *n, uint32_t node)
{
	struct engine_event e = {.type = ENGINE_EVENT_CONNECT, .conn.service = "echo"};

	e.conn.link = link_with(n, node)->id;
	e.conn.peer_node = (uint16_t)node;
	e.conn.peer_vqpn = WEIR_VQPN(node, 1);
	fake_event(n->f, 0, &e);
}

static uint32_t
closes(struct end *n)
{
	return n->f->count[ENGINE_LINK_CLOSE];
}

/* The one that was used least recently, in whatever order they came up. */
TEST_END(test_eviction_order)
{
	static const uint32_t used[] = {4, 2, 9, 3, 8, 5, 7, 6};

	fill(n);
	for (uint32_t i = 0; i < LINKS; i++) {
		n->f->now += 1000;
		engine_says(n, used[i], ENGINE_EVENT_LINK_IDLE);
	}
	peer_connects(n, 2);
	for (uint32_t i = 0; i < LINKS; i++) {
		if (used[i] == 2) /* it has a connection */
			continue;
		peer_offers(n, 20 + i);
		assert_int_equal(asked(n), used[i]);
		assert_int_equal(n->f->output_count, 0); /* neither taken up yet, nor refused */
		assert_int_equal(state(n, used[i]), LINK_UP);
		n->f->output_count = 0;
		engine_says(n, used[i], ENGINE_EVENT_LINK_CLOSED);
		assert_int_equal(state(n, used[i]), LINK_DOWN);
		assert_int_equal(state(n, 20 + i), LINK_UP);
		peer_answers(n, 20 + i);
		peer_connects(n, 20 + i);
	}
	assert_int_equal(closes(n), LINKS - 1);
	assert_int_equal(n->f->b->counters.links_evicted, LINKS - 1);
	assert_int_equal(n->f->b->counters.links_closed, LINKS - 1);
	assert_int_equal(n->f->b->counters.links_failed, 0);
	assert_int_equal(state(n, 2), LINK_UP);
}

/* Control learns of each end in order, and when the last link of a node has gone. */
TEST_END(test_control_is_told)
{
	size_t memory = n->f->live_memory;

	bring_up(n, 2);
	n->f->output_count = 0;
	engine_says(n, 2, ENGINE_EVENT_LINK_CLOSED);
	assert_int_equal(n->f->output_count, 1);
	assert_int_equal(n->f->output[0].type, WEIR_CTL_LINK_DOWN);
	assert_int_equal(n->f->output[0].link_down.status, 0);
	assert_int_equal(n->f->output[0].link_down.peer_node, 2);
	assert_int_equal(n->f->links, 0);
	assert_int_equal(n->f->live_qps, 0);
	assert_int_equal(n->f->live_memory, memory); /* its rings are free */
	/* offers of that life, which come late, begin nothing */
	n->f->output_count = 0;
	peer_answers(n, 2);
	assert_int_equal(state(n, 2), LINK_DOWN);
	assert_int_equal(n->f->output_count, 0);
	bring_up(n, 2);
}

/* A program's connection waits until another link has ended; the peers' part stays free. */
TEST_END(test_connect_waits)
{
	for (uint32_t i = 0; i + 1 < LINKS; i++) {
		bring_up(n, FIRST + i);
		peer_connects(n, FIRST + i);
	}
	assert_int_equal(fake_connect(n->f, &n->s, 20, "echo", 0), WEIR_MSG_CONNECTING);
	assert_int_equal(state(n, 20), LINK_DOWN);
	assert_int_equal(closes(n), 0);
	bring_up(n, 21); /* begun by a peer: it may, and is not asked to end at once */
	assert_int_equal(closes(n), 0);
	peer_connects(n, 21);
	later(n, BROKER_SECOND_NS);
	engine_says(n, 5, ENGINE_EVENT_LINK_IDLE);
	assert_int_equal(closes(n), 1);
	assert_int_equal(asked(n), 5);
	engine_says(n, 5, ENGINE_EVENT_LINK_CLOSED);
	/* there is room for a peer now, not for us */
	assert_int_equal(state(n, 20), LINK_DOWN);
	engine_says(n, 6, ENGINE_EVENT_LINK_IDLE);
	assert_int_equal(asked(n), 6);
	engine_says(n, 6, ENGINE_EVENT_LINK_CLOSED);
	assert_int_equal(state(n, 20), LINK_OFFERED);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 0);
	peer_answers(n, 20);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 1);
	assert_int_equal(n->f->last[ENGINE_CONN_START].conn.status, 0);
	assert_int_equal(n->f->last[ENGINE_CONN_START].conn.link, link_with(n, 20)->id);
}

TEST_END(test_connect_fails)
{
	fill(n);
	for (uint32_t i = 0; i < LINKS; i++)
		peer_connects(n, FIRST + i);
	fake_connect(n->f, &n->s, 20, "echo", 0);
	later(n, 4 * BROKER_SECOND_NS);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 0);
	later(n, 2 * BROKER_SECOND_NS);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 1);
	assert_int_equal(n->f->last[ENGINE_CONN_START].conn.status, ENOSPC);
	/* nobody waits any more: no link ends for it */
	engine_says(n, 5, ENGINE_EVENT_LINK_IDLE);
	assert_int_equal(closes(n), 0);
	assert_int_equal(n->f->b->counters.links_full, 1);
}

/* A peer's wish waits only while a link is ending. */
TEST_END(test_peer_is_refused)
{
	const struct weir_link_offer *o = &n->f->output[0].link;

	fill(n);
	for (uint32_t i = 0; i < LINKS; i++)
		peer_connects(n, FIRST + i);
	peer_offers(n, 20);
	assert_int_equal(n->f->output_count, 1);
	assert_int_equal(o->peer_node, 20);
	assert_int_equal(o->refused, ENOSPC);
	assert_int_equal(o->answered, n->attempt[20]);
	assert_int_equal(state(n, 20), LINK_DOWN);
	engine_says(n, 3, ENGINE_EVENT_LINK_IDLE);
	assert_int_equal(closes(n), 0);
	/* it comes again */
	peer_offers(n, 20);
	assert_int_equal(n->f->output_count, 0);
	assert_int_equal(asked(n), 3);
	/* the other end has a connection on its way: no room after all */
	engine_says(n, 3, ENGINE_EVENT_LINK_STAYS);
	assert_true(link_with(n, 3)->open);
	assert_int_equal(n->f->output_count, 1);
	assert_int_equal(o->refused, ENOSPC);
	/* nor is that one asked at once again */
	peer_offers(n, 20);
	assert_int_equal(closes(n), 1);
	assert_int_equal(n->f->output_count, 1);
	later(n, BROKER_SECOND_NS / 5);
	peer_offers(n, 20);
	assert_int_equal(closes(n), 2);
	engine_says(n, 3, ENGINE_EVENT_LINK_CLOSED);
	assert_int_equal(state(n, 20), LINK_UP);
	peer_answers(n, 20);
	assert_true(link_with(n, 20)->open);
}

/* A wish of ours for the link that a peer was refused goes on. */
TEST_END(test_own_wish_goes_on)
{
	fill(n);
	for (uint32_t i = 0; i < LINKS; i++)
		peer_connects(n, FIRST + i);
	fake_connect(n->f, &n->s, 20, "echo", 0);
	peer_offers(n, 20);
	later(n, BROKER_SECOND_NS / 5);
	assert_int_equal(n->f->output_count, 1);
	assert_int_equal(n->f->output[0].link.refused, ENOSPC);
	for (uint32_t node = 5; node < 7; node++) { /* the peers' part, and ours */
		engine_says(n, node, ENGINE_EVENT_LINK_IDLE);
		assert_int_equal(asked(n), node);
		engine_says(n, node, ENGINE_EVENT_LINK_CLOSED);
	}
	assert_int_equal(state(n, 20), LINK_OFFERED);
}

/* A peer that has no room: QPs go, and are offered again soon; connections wait. */
TEST_END(test_peer_refuses)
{
	struct weir_ctl_msg m;
	uint32_t attempt;

	fake_connect(n->f, &n->s, 20, "echo", 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(state(n, 20), LINK_OFFERED);
		attempt = link_with(n, 20)->attempt;
		m = offer(n, 20, attempt + 1); /* not this one */
		m.link.attempt = 1;
		m.link.refused = ENOSPC;
		told(n, &m);
		assert_int_equal(state(n, 20), LINK_OFFERED);
		m.link.answered = attempt;
		told(n, &m);
		assert_int_equal(state(n, 20), LINK_DOWN);
		assert_int_equal(n->f->live_qps, 0);
		assert_int_equal(n->f->count[ENGINE_CONN_START], 0);
		later(n, BROKER_SECOND_NS / 10);
		assert_int_equal(link_with(n, 20)->attempt, attempt + 1);
	}
	peer_answers(n, 20);
	assert_int_equal(n->f->last[ENGINE_CONN_START].conn.status, 0);
	/* until the end */
	fake_connect(n->f, &n->s, 21, "echo", 0);
	for (int i = 0; i < 70; i++) {
		if (state(n, 21) == LINK_OFFERED) {
			m = offer(n, 21, link_with(n, 21)->attempt);
			m.link.attempt = 1;
			m.link.refused = ENOSPC;
			told(n, &m);
		}
		later(n, BROKER_SECOND_NS / 10);
	}
	assert_int_equal(n->f->last[ENGINE_CONN_START].conn.status, ENOSPC);
	assert_int_equal(n->f->b->conn_count, 1);
	/* the same while it is asked again and has not answered yet */
	later(n, 10 * BROKER_SECOND_NS);
	fake_connect(n->f, &n->s, 22, "echo", 0);
	m = offer(n, 22, link_with(n, 22)->attempt);
	m.link.attempt = 1;
	m.link.refused = ENOSPC;
	told(n, &m);
	later(n, BROKER_SECOND_NS);
	assert_int_equal(state(n, 22), LINK_OFFERED);
	later(n, 5 * BROKER_SECOND_NS);
	assert_int_equal(state(n, 22), LINK_OFFERED);
	assert_int_equal(n->f->last[ENGINE_CONN_START].conn.status, ENOSPC);
	assert_int_equal(n->f->b->conn_count, 1);
}

/* The peer has lost what we take for a link. */
TEST_END(test_peer_knows_nothing)
{
	struct weir_ctl_msg m;

	bring_up(n, 2);
	m = offer(n, 2, link_with(n, 2)->attempt);
	m.link.refused = ECONNRESET;
	told(n, &m);
	assert_int_equal(state(n, 2), LINK_DOWN);
	/* without room an answer to QPs that are gone is refused, not taken for a wish */
	for (uint32_t i = 0; i < LINKS; i++) {
		bring_up(n, 10 + i);
		peer_connects(n, 10 + i);
	}
	m = offer(n, 2, link_with(n, 2)->attempt);
	m.link.attempt = ++n->attempt[2];
	told(n, &m);
	assert_int_equal(n->f->output_count, 1);
	assert_int_equal(n->f->output[0].link.refused, ECONNRESET);
	assert_int_equal(n->f->output[0].link.answered, n->attempt[2]);
}

/* Connections to the node of a link that ends wait, and go over it if it stays, else the next. */
TEST_END(test_connect_meets_the_end)
{
	fill(n);
	peer_offers(n, 20);
	assert_int_equal(asked(n), FIRST);
	fake_connect(n->f, &n->s, FIRST, "echo", 0);
	assert_int_equal(n->f->last[ENGINE_CONN_OPEN].conn.link, ENGINE_LINK_NONE);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 0);
	engine_says(n, FIRST, ENGINE_EVENT_LINK_STAYS);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 1);
	assert_int_equal(n->f->last[ENGINE_CONN_START].conn.link, link_with(n, FIRST)->id);
	assert_int_equal(asked(n), FIRST + 1); /* the next one makes room */
	fake_connect(n->f, &n->s, FIRST + 1, "echo", 0);
	engine_says(n, FIRST + 1, ENGINE_EVENT_LINK_CLOSED);
	assert_int_equal(state(n, 20), LINK_UP);
	assert_int_equal(asked(n), FIRST + 2);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 1);
	engine_says(n, FIRST + 2, ENGINE_EVENT_LINK_CLOSED);
	engine_says(n, FIRST + 3, ENGINE_EVENT_LINK_CLOSED); /* its peer wants it */
	assert_int_equal(state(n, FIRST + 1), LINK_OFFERED);
	peer_answers(n, FIRST + 1);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 2);
}

/* The engine has agreed to the peer's wish to end it before it sees our command. */
TEST_END(test_engine_was_first)
{
	bring_up(n, 2);
	n->f->fail_type = ENGINE_CONN_START;
	n->f->fail_rc = -ENOLINK;
	fake_connect(n->f, &n->s, 2, "echo", WEIR_CONNECT_DATAGRAM);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 1);
	assert_false(link_with(n, 2)->open);
	n->f->fail_type = -1;
	engine_says(n, 2, ENGINE_EVENT_LINK_CLOSED);
	assert_int_equal(state(n, 2), LINK_OFFERED);
	peer_answers(n, 2);
	assert_int_equal(n->f->count[ENGINE_CONN_START], 2);
	assert_int_equal(n->f->last[ENGINE_CONN_START].conn.status, 0);
}

/* The engine has connections that main has not heard of. */
TEST_END(test_engine_says_busy)
{
	fill(n);
	n->f->fail_type = ENGINE_LINK_CLOSE;
	n->f->fail_rc = -EBUSY;
	peer_offers(n, 20);
	assert_int_equal(closes(n), LINKS);
	for (uint32_t i = 0; i < LINKS; i++)
		assert_true(link_with(n, FIRST + i)->open);
	assert_int_equal(n->f->output[0].link.refused, ENOSPC);
	n->f->fail_type = -1;
	peer_offers(n, 20);
	assert_int_equal(closes(n), LINKS);
	engine_says(n, 4, ENGINE_EVENT_LINK_IDLE);
	peer_offers(n, 20);
	assert_int_equal(asked(n), 4);
}

/* Main may hear that those connections have ended before it hears that there are some. */
TEST_END(test_idle_before_answer)
{
	fill(n);
	for (uint32_t i = 1; i < LINKS; i++)
		peer_connects(n, FIRST + i);
	n->f->hold = true;
	peer_offers(n, 20);
	assert_int_equal(closes(n), 1);
	engine_says(n, FIRST, ENGINE_EVENT_LINK_IDLE);
	n->f->fail_type = ENGINE_LINK_CLOSE;
	n->f->fail_rc = -EBUSY;
	fake_release(n->f);
	assert_int_equal(closes(n), 2); /* it is asked again, and has others by then */
	n->f->fail_type = -1;
	peer_offers(n, 20);
	assert_int_equal(closes(n), 2);
}

/* The engine answers the repair of a link that is over; the event comes too late, or twice. */
TEST_END(test_repair_of_one_that_is_over)
{
	bring_up(n, 2);
	n->f->fail_type = ENGINE_LINK_PAUSE;
	n->f->fail_rc = -ENOLINK;
	link_repair(link_with(n, 2), WEIR_RESUME_BOTH);
	fake_run(n->f);
	assert_int_equal(state(n, 2), LINK_DOWN);
	assert_int_equal(n->f->b->counters.links_closed, 1);
	assert_int_equal(n->f->b->counters.links_failed, 0);
	n->f->fail_type = -1;
	bring_up(n, 2);
	n->f->hold = true;
	engine_says(n, 2, ENGINE_EVENT_LINK_CLOSED);
	engine_says(n, 2, ENGINE_EVENT_LINK_CLOSED);
	fake_release(n->f);
	assert_int_equal(state(n, 2), LINK_DOWN);
	assert_int_equal(n->f->b->counters.links_closed, 2);
}

/* Memory may lack before the number is reached: the same happens then. */
TEST_END(test_memory_lacks)
{
	struct weir_ctl_msg m;

	bring_up(n, 2);
	bring_up(n, 3);
	later(n, BROKER_SECOND_NS);
	n->f->qp_fail = -ENOMEM;
	fake_connect(n->f, &n->s, 20, "echo", 0);
	assert_int_equal(asked(n), 2);
	n->f->qp_fail = 0;
	engine_says(n, 2, ENGINE_EVENT_LINK_CLOSED);
	assert_int_equal(state(n, 20), LINK_OFFERED);
	peer_answers(n, 20);
	/* memory that comes back by itself is found; what the peer resumes meanwhile is refused */
	n->f->qp_fail = -ENOMEM;
	peer_connects(n, 3);
	fake_connect(n->f, &n->s, 22, "echo", 0);
	assert_int_equal(state(n, 22), LINK_DOWN);
	m = offer(n, 22, 7);
	m.link.attempt = 1;
	told(n, &m);
	assert_int_equal(n->f->output[0].link.refused, ECONNRESET);
	n->f->qp_fail = 0;
	later(n, BROKER_SECOND_NS / 5);
	assert_int_equal(state(n, 22), LINK_OFFERED);
	peer_answers(n, 22);
	engine_says(n, 22, ENGINE_EVENT_LINK_CLOSED);
	/* without any other link there is nothing to wait for */
	engine_says(n, 20, ENGINE_EVENT_LINK_CLOSED);
	engine_says(n, 3, ENGINE_EVENT_LINK_CLOSED);
	n->f->qp_fail = -ENOMEM;
	assert_int_equal(fake_connect(n->f, &n->s, 21, "echo", 0), WEIR_MSG_REFUSED);
	n->f->qp_fail = 0;
}

TEST(run_test_idle_time)
{
	struct end e, *n = &e;

	end_open(n);
	n->f->b->config.link_idle_ns = 60 * BROKER_SECOND_NS;
	bring_up(n, 2);
	bring_up(n, 3);
	later(n, 30 * BROKER_SECOND_NS);
	engine_says(n, 2, ENGINE_EVENT_LINK_IDLE); /* used meanwhile */
	peer_connects(n, 3);
	bring_up(n, 4);
	later(n, 40 * BROKER_SECOND_NS);
	assert_int_equal(closes(n), 0);
	later(n, 21 * BROKER_SECOND_NS);
	assert_int_equal(closes(n), 2);
	assert_int_equal(asked(n), 4);
	assert_false(link_with(n, 2)->open);
	assert_true(link_with(n, 3)->open);
	fake_close(n->f);
}

/* Of the engine's receive WRs the first links get most, and each its least; all come back. */
TEST(run_test_grants)
{
	struct end e, *n = &e;
	uint32_t sum = 0;

	end_open(n);
	assert_int_equal(broker_recv_depth(64, 128), 64 * 128);
	assert_int_equal(broker_recv_depth(1024, 128), 1024 * 8 + 64 * 120);
	n->f->b->config.recv_depth = LINKS * 8 + 64; /* recv_wrs: 64 */
	for (uint32_t round = 0; round < 2; round++) {
		sum = 0;
		fill(n);
		for (uint32_t i = 0; i < LINKS; i++) {
			struct broker_link *l = link_with(n, FIRST + i);

			assert_in_range(l->recv_wrs, 8, 64);
			sum += l->recv_wrs;
		}
		assert_int_equal(n->f->b->room[0].granted, sum);
		assert_true(sum <= n->f->b->config.recv_depth);
		assert_int_equal(link_with(n, FIRST)->recv_wrs, 16);
		assert_int_equal(n->f->last[ENGINE_LINK_ADD].link.recv_wrs,
				 link_with(n, FIRST + LINKS - 1)->recv_wrs);
		for (uint32_t i = 0; i < LINKS; i++)
			engine_says(n, FIRST + i, ENGINE_EVENT_LINK_CLOSED);
		assert_int_equal(n->f->b->room[0].granted, 0);
		assert_int_equal(n->f->b->room[0].used, 0);
	}
	/* as many as ever: each gets all */
	n->f->b->config.recv_depth = broker_recv_depth(LINKS, 64);
	fill(n);
	for (uint32_t i = 0; i < LINKS; i++)
		assert_int_equal(link_with(n, FIRST + i)->recv_wrs, 64);
	fake_close(n->f);
}

/* Two wishes of programs are no reason to end more links than two. */
TEST_END(test_one_for_each)
{
	fill(n);
	fake_connect(n->f, &n->s, 20, "echo", 0);
	fake_connect(n->f, &n->s, 20, "echo", 0);
	fake_connect(n->f, &n->s, 21, "echo", 0);
	assert_int_equal(closes(n), 2);
	peer_offers(n, 20); /* a peer that wishes the same waits with it */
	assert_int_equal(closes(n), 2);
	assert_int_equal(n->f->output_count, 0);
	engine_says(n, FIRST, ENGINE_EVENT_LINK_CLOSED);
	assert_int_equal(state(n, 20), LINK_UP);
}
