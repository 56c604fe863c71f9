/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a link in order: it ends when no connection uses it, at both ends; whatever crosses
 * the question goes on; a peer that breaks the rules loses its link.
 */
#include "worlds/engine_world.h"

#include "engine/link.h"
#include "engine/state.h"

static int
ask(struct pair *p, unsigned i)
{
	struct engine_command k = {.type = ENGINE_LINK_CLOSE, .link.link = 1};

	return node_command(&p->w->node[i], &k);
}

static struct peer_link *
link_of(struct pair *p, unsigned i)
{
	return &p->w->node[i].engine->links[1];
}

/* Two programs without a connection. */
static struct pair
idle_pair(uint64_t delay_ns)
{
	struct pair p = PAIR(1, .delay_ns = delay_ns);

	pair_send(&p, p.a, 300, 20);
	pair_close(&p, 200);
	assert_int_equal(p.w->node[0].links_idle, 1);
	assert_int_equal(p.w->node[1].links_idle, 1);
	return p;
}

static void
assert_ended(struct pair *p, unsigned i)
{
	assert_int_equal(p->w->node[i].links_closed, 1);
	assert_int_equal(p->w->node[i].link_errors, 0);
	assert_int_equal(link_of(p, i)->end, LINK_OVER);
}

/* Main does the rest: the link goes, and another one takes its place. */
static void
assert_next_works(struct pair *p)
{
	world_links_fail(p->w, ECONNRESET);
	world_run(p->w, 20);
	world_link_up(p->w);
	world_connect(p->pa, p->pb, &p->a, &p->b);
	pair_send(p, p->a, 100, 10);
	assert_receives(p->b, 100, 10);
}

static void
test_ends(void **state)
{
	for (unsigned first = 0; first < 2; first++) {
		struct pair p = idle_pair(2000);

		assert_int_equal(ask(&p, first), 0);
		assert_int_equal(link_of(&p, first)->end, LINK_ASKED);
		world_run(p.w, 30);
		assert_ended(&p, 0);
		assert_ended(&p, 1);
		assert_int_equal(ask(&p, first), 0); /* nothing more */
		assert_next_works(&p);
	}
}

static void
test_both_ask(void **state)
{
	struct pair p = idle_pair(3000);

	assert_int_equal(ask(&p, 0), 0);
	world_run(p.w, 2);
	assert_int_equal(ask(&p, 1), 0);
	world_run(p.w, 40);
	assert_ended(&p, 0);
	assert_ended(&p, 1);
	assert_next_works(&p);
}

/* One with connections does not, and one event says when the last of them has gone. */
static void
test_connections_keep_it(void **state)
{
	struct pair p = PAIR(1);

	world_connect(p.pa, p.pb, &p.x, &p.y);
	assert_int_equal(ask(&p, 0), -EBUSY);
	pconn_close(p.a);
	pconn_ends(p.b, 100);
	assert_int_equal(ask(&p, 0), -EBUSY);
	assert_int_equal(p.w->node[0].links_idle, 0);
	pair_send(&p, p.x, 100, 10);
	pconn_close(p.x);
	world_run(p.w, 100);
	/* its program has not closed this end */
	assert_int_equal(ask(&p, 1), -EBUSY);
	assert_int_equal(ask(&p, 0), 0);
	world_run(p.w, 20);
	assert_int_equal(p.w->node[0].links_stay, 1);
	assert_int_equal(p.w->node[1].links_closed, 0);
	pconn_ends(p.y, 100);
	assert_int_equal(p.w->node[0].links_idle, 1);
	assert_int_equal(p.w->node[1].links_idle, 1);
	assert_int_equal(ask(&p, 1), 0);
	world_run(p.w, 20);
	assert_ended(&p, 0);
	assert_ended(&p, 1);
}

/* A peer connects while the question is on its way: the link goes on, and carries it. */
static void
test_connect_crosses(void **state)
{
	for (unsigned steps = 0; steps < 14; steps++) {
		struct pair p = idle_pair(3000);

		p.w->node[0].listener = p.pa->id;
		assert_int_equal(ask(&p, 0), 0);
		world_run(p.w, steps);
		p.b = pconn_connect(p.pb);
		world_run(p.w, 60);
		if (link_of(&p, 1)->end == LINK_OVER) { /* too late: main begins another link */
			assert_true(steps > 3);
			assert_false(p.b->opened);
			assert_ended(&p, 0);
			continue;
		}
		assert_true(p.b->opened);
		assert_int_equal(p.b->open_status, 0);
		assert_int_equal(p.w->node[0].links_stay, 1);
		assert_int_equal(p.w->node[0].links_closed + p.w->node[1].links_closed, 0);
		pair_send(&p, p.b, 100, 10);
		world_run(p.w, 100);
		assert_int_equal(pconn_completed(p.b), 10);
	}
}

/* An answer waits for room; our connection ends meanwhile, and main asks: the answer comes first.
 */
static void
test_asks_behind_answer(void **state)
{
	struct pair p = PAIR(1);
	struct peer_link *l = link_of(&p, 1);
	uint32_t wrs;

	pconn_close(p.a);
	world_run(p.w, 100);
	STEP_MOST(p.w, 1000, l->wrs_credited != l->wrs_used);
	wrs = l->is.peer_recv_wrs;
	l->is.peer_recv_wrs = 1; /* all others are used */
	assert_int_equal(ask(&p, 0), 0);
	world_run(p.w, 20);
	assert_int_equal(l->lines_due, LINK_LINE_STAYS);
	pconn_ends(p.b, 100);
	assert_int_equal(ask(&p, 1), 0);
	world_run(p.w, 20);
	assert_int_equal(l->lines_due, LINK_LINE_STAYS | LINK_LINE_CLOSE);
	l->is.peer_recv_wrs = wrs;
	world_run(p.w, 60);
	assert_int_equal(p.w->node[0].links_stay, 1);
	assert_ended(&p, 0);
	assert_ended(&p, 1);
	assert_next_works(&p);
}

/* Commands of main that cross the peer's question. */
static void
test_no_connection_for_one_that_ends(void **state)
{
	struct pair p = idle_pair(3000);
	struct engine_command open = {.type = ENGINE_CONN_OPEN,
				      .conn = {.session = p.pb->id, .desc = 9, .link = 1}};
	struct engine_command start = {.type = ENGINE_CONN_START};
	struct engine_command accept = {
	    .type = ENGINE_CONN_ACCEPT,
	    .conn = {.session = p.pb->id, .desc = 10, .link = 1, .peer_vqpn = 1, .listener = 3}};

	assert_int_equal(ask(&p, 0), 0);
	STEP_MOST(p.w, 20, link_of(&p, 1)->end == LINK_GOES_ON);
	assert_int_equal(link_of(&p, 1)->end, LINK_AGREED);
	assert_int_equal(node_command(&p.w->node[1], &open), 0);
	assert_int_equal(open.conn.link, ENGINE_LINK_NONE);
	start.conn.vqpn = open.conn.vqpn;
	start.conn.link = 1;
	assert_int_equal(node_command(&p.w->node[1], &start), -ENOLINK);
	assert_int_equal(node_command(&p.w->node[1], &accept), -EHOSTDOWN);
	world_run(p.w, 30);
	assert_ended(&p, 0);
	assert_ended(&p, 1);
	/* and over the next one */
	world_links_fail(p.w, ECONNRESET);
	world_link_up(p.w);
	start.conn.status = 0;
	assert_int_equal(node_command(&p.w->node[1], &start), 0);
	program_die(p.pb);
	world_run(p.w, 100);
	assert_true(p.pb->removed);
}

/* The last line may be lost with its QP: this end is over all the same; the other one is probed. */
static void
test_breaks_when_agreed(void **state)
{
	struct pair p = idle_pair(3000);
	uint64_t writes;

	assert_int_equal(ask(&p, 0), 0);
	STEP_MOST(p.w, 20, link_of(&p, 1)->end == LINK_GOES_ON);
	fake_qp_break(&p.w->node[1].qp[0]);
	world_run(p.w, 2);
	assert_ended(&p, 1);
	assert_int_equal(p.w->node[0].links_closed, 0);
	p = idle_pair(3000);
	assert_int_equal(ask(&p, 0), 0);
	world_turn(p.w, 0);
	writes = p.w->net.writes;
	assert_true(world_sleep(p.w, p.w->node[0].engine) < UINT64_MAX);
	p.w->now += 300000000; /* the peer does not run */
	world_turn(p.w, 0);
	assert_int_equal(p.w->net.writes, writes + 1);
}

/* There is nothing to repair then, and main must know before it makes new QPs. */
static void
test_no_repair_when_agreed(void **state)
{
	for (unsigned resumes = WEIR_RESUME_BULK; resumes <= WEIR_RESUME_BOTH; resumes++) {
		struct pair p = idle_pair(3000);
		struct engine_command k = {.type = ENGINE_LINK_PAUSE, .link = p.w->node[1].link};

		k.link.resumes = resumes;
		assert_int_equal(ask(&p, 0), 0);
		STEP_MOST(p.w, 20, link_of(&p, 1)->end == LINK_GOES_ON);
		assert_int_equal(link_of(&p, 1)->end, LINK_AGREED);
		assert_int_equal(node_command(&p.w->node[1], &k), -ENOLINK);
		world_run(p.w, 2);
		assert_ended(&p, 1);
		assert_int_equal(node_command(&p.w->node[1], &k), -ENOLINK);
		world_run(p.w, 30);
		assert_ended(&p, 1);
		assert_next_works(&p);
	}
}

/* A rejection that waits goes with its link, not over the next one, whose peer did not ask. */
static void
test_rejection_ends_with_link(void **state)
{
	struct pair p = idle_pair(3000);
	struct engine_command k = {.type = ENGINE_CONN_REJECT,
				   .conn = {.link = 1, .peer_vqpn = WEIR_VQPN(5, 1)}};

	assert_int_equal(node_command(&p.w->node[0], &k), 0);
	assert_next_works(&p);
	assert_int_equal(p.w->node[1].link_errors, 0);
}

/* A line of the link itself, which the peer writes into our ring: node 1. */
static void
inject(struct pair *p, uint8_t op, uint32_t vqpn)
{
	struct weir_slot line = {.op = op, .vqpn = vqpn};

	link_inject(link_of(p, 1), &p->w->node[1].qp[0], &line, 1, NULL, 0);
	world_turn(p->w, 1);
}

static void
test_bad_lines(void **state)
{
	static const struct {
		bool conns, asked;
		uint8_t op[2];
		uint32_t vqpn;
		bool over; /* the link was ending: no error of it is told */
	} rows[] = {
	    {.op = {WEIR_WIRE_LINK_CLOSED}}, /* nobody has asked */
	    {.op = {WEIR_WIRE_LINK_STAYS}},
	    {.op = {WEIR_WIRE_LINK_CLOSE}, .vqpn = 5},
	    {.conns = true, .op = {WEIR_WIRE_LINK_CLOSED}},
	    {.conns = true, .op = {WEIR_WIRE_LINK_CLOSE, WEIR_WIRE_LINK_CLOSED}},
	    {.asked = true, .op = {WEIR_WIRE_LINK_STAYS, WEIR_WIRE_LINK_STAYS}},
	    /* after its last line */
	    {.op = {WEIR_WIRE_LINK_CLOSE, WEIR_WIRE_LINK_CLOSE}, .over = true},
	    {.op = {WEIR_WIRE_LINK_CLOSE, WEIR_WIRE_LINK_STAYS}, .over = true},
	    {.op = {WEIR_WIRE_LINK_CLOSE, WEIR_WIRE_CONNECT}, .over = true},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pair p = rows[i].conns ? PAIR(1, .delay_ns = 3000) : idle_pair(3000);

		if (rows[i].asked) {
			assert_int_equal(ask(&p, 1), 0);
			world_turn(p.w, 1);
		}
		inject(&p, rows[i].op[0], rows[i].vqpn);
		if (rows[i].op[1])
			inject(&p, rows[i].op[1], 0);
		world_turn(p.w, 1);
		world_events(p.w);
		assert_int_equal(p.w->node[1].link_errors, !rows[i].over);
		assert_int_equal(p.w->node[1].links_closed, rows[i].over);
		if (!rows[i].over)
			assert_int_equal(p.w->node[1].link_error, EPROTO);
		world_links_fail(p.w, EHOSTDOWN);
		world_run(p.w, 20);
	}
}

/*
 * The peer asks while an end has left its ring and lacks the acknowledgement: that of LINK_LEFT
 * says nothing about LINK_CLOSED.
 */
static void
test_left_before(void **state)
{
	unsigned crossed = 0;

	for (unsigned steps = 0; steps < 120; steps++) {
		struct pair p = PAIR(1, .delay_ns = 4000, .ring_idle_ns = 30000);
		struct peer_link *l = link_of(&p, 0);

		world_run(p.w, steps);
		pconn_close(p.a);
		pconn_close(p.b);
		STEP_MOST(p.w, 200, !list_empty(&l->conns) || !list_empty(&link_of(&p, 1)->conns));
		assert_int_equal(ask(&p, 1), 0);
		STEP_MOST(p.w, 200, l->end == LINK_GOES_ON);
		crossed += l->way == WAY_LEFT;
		world_run(p.w, 200);
		assert_ended(&p, 0);
		assert_ended(&p, 1);
	}
	assert_true(crossed > 5);
}

ENGINE_TESTS(TEST(test_ends), TEST(test_both_ask), TEST(test_connections_keep_it),
	     TEST(test_connect_crosses), TEST(test_left_before), TEST(test_asks_behind_answer),
	     TEST(test_no_connection_for_one_that_ends), TEST(test_breaks_when_agreed),
	     TEST(test_no_repair_when_agreed), TEST(test_bad_lines),
	     TEST(test_rejection_ends_with_link))
