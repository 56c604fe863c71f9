/* SPDX-License-Identifier: BSD-3-Clause */
/* How connections, sessions and links end: nothing lost that was told complete, everything freed.
 */
#include "worlds/engine_world.h"

#include "engine/conn.h"
#include "engine/link.h"
#include "engine/rndv.h"

/* Queued data arrives before the end of the stream; both entries are used again. */
static void
test_close_after_data(void **state)
{
	struct pair p = PAIR(2, .delay_ns = 2000);
	uint32_t first = p.a->vqpn;

	for (unsigned round = 0; round < 5; round++) {
		pair_send(&p, p.a, 300, 40);
		pconn_sends(p.a, 100000, 0, 3);
		pconn_pushes(p.a, 1, 700, 20); /* beyond the window, through another channel */
		pconn_close(p.a);
		assert_receives(p.b, 3000, p.a->sent);
		assert_closed(p.b, 0);
		assert_closed(p.a, 0);
		assert_int_equal(pconn_completed(p.a), p.a->sent);
		assert_true(p.a->freed);
		assert_false(p.b->freed);
		assert_int_equal(pconn_status(p.b), ECONNRESET);
		pconn_ends(p.b, 20);
		world_connect(p.pa, p.pb, &p.a, &p.b);
		assert_int_not_equal(p.a->vqpn, first);
		assert_int_equal(WEIR_VQPN_INDEX(p.a->vqpn), WEIR_VQPN_INDEX(first));
	}
}

/* Main evicts it: this end's program gets ECONNABORTED, the peer's ECONNRESET; the next one works.
 */
static void
test_evict(void **state)
{
	struct pair p = PAIR(2, .delay_ns = 2000);
	struct engine_command c = {.type = ENGINE_CONN_EVICT, .conn.status = ECONNABORTED};

	pair_send(&p, p.b, 300, 10);
	pconn_sends(p.a, 100000, 0, 5);
	c.conn.vqpn = p.a->vqpn;
	assert_int_equal(program_command(p.pa, &c), 0);
	world_run(p.w, 2000);
	assert_closed(p.a, ECONNABORTED);
	assert_closed(p.b, ECONNRESET);
	assert_int_equal(program_command(p.pa, &c), -ENOENT);
	pair_close(&p, 200);
	world_connect(p.pa, p.pb, &p.a, &p.b);
	pair_send(&p, p.a, 48, 3);
	assert_receives(p.b, 200, 3);
}

static void
test_both_close_at_once(void **state)
{
	struct pair p = PAIR(2, .delay_ns = 3000);

	pair_send(&p, p.a, 48, 3);
	pair_send(&p, p.b, 48, 3);
	world_run(p.w, 200);
	pconn_close(p.a);
	pconn_close(p.b);
	world_run(p.w, 200);
	assert_true(p.a->done && p.b->done && p.a->freed && p.b->freed);
	assert_int_equal(p.a->close_status, 0);
	assert_int_equal(p.b->close_status, 0);
}

/* Messages that reach the closing end are delivered; those that wait at the other end are not. */
static void
test_close_while_peer_sends(void **state)
{
	struct pair p = PAIR(2, .delay_ns = 5000);

	pair_send(&p, p.b, 100, 3);
	pconn_pushes(p.b, 0, 500, 100);
	pconn_send(p.b, 200000, 0);
	pconn_close(p.a);
	world_run(p.w, 1000);
	assert_true(p.b->done && p.a->done && p.a->freed);
	assert_int_equal(pconn_completed(p.b), p.a->received);
	assert_true(p.b->sent > p.a->received);
	pconn_ends(p.b, 100);
}

/*
 * Half a close: the peer receives all, then the end, and its own messages still arrive. When it has
 * shut, too, both have ended in order, and the grants of both are returned.
 */
static void
test_shut(void **state)
{
	struct pair p = PAIR(2, .delay_ns = 2000);

	for (unsigned round = 0; round < 5; round++) {
		pair_send(&p, p.a, 300, 40);
		pair_send(&p, p.b, 300, 40);
		pconn_sends(p.a, 100000, 0, 3);
		pconn_pushes(p.a, 1, 700, 20); /* beyond the window, through another channel */
		pconn_shut(p.a);
		assert_receives(p.b, 3000, p.a->sent);
		assert_true(p.b->peer_shut);
		assert_false(p.a->done || p.b->done);
		assert_int_equal(pconn_completed(p.a), p.a->sent);
		assert_int_equal(p.w->node[1].engine->sessions[p.pb->id].promised, 0);
		pair_send(&p, p.b, 300, 40);
		pconn_sends(p.b, 100000, 0, 3);
		pconn_shut(p.b);
		assert_receives(p.a, 3000, p.b->sent);
		assert_closed(p.a, 0);
		assert_closed(p.b, 0);
		assert_int_equal(pconn_completed(p.b), p.b->sent);
		assert_false(p.a->freed || p.b->freed);
		pair_close(&p, 20);
		world_connect(p.pa, p.pb, &p.a, &p.b);
	}
}

static void
test_both_shut_at_once(void **state)
{
	for (unsigned when = 0; when < 12; when++) {
		struct pair p = PAIR(2, .delay_ns = 3000);

		pair_send(&p, p.a, 48, 3);
		pair_send(&p, p.b, 48, 3);
		world_run(p.w, 200);
		pconn_shut(p.a);
		world_run(p.w, when);
		pconn_sends(p.b, 20000, 0, when % 3);
		pconn_shut(p.b);
		world_run(p.w, 500);
		assert_complete(p.a, p.b);
		assert_complete(p.b, p.a);
		assert_closed(p.a, 0);
		assert_closed(p.b, 0);
		pair_close(&p, 20);
		assert_int_equal(p.w->node[0].link_errors + p.w->node[1].link_errors, 0);
	}
}

/* The end of sending comes, with announced messages before it, to one that takes none any more. */
static void
test_shut_to_one_that_closed(void **state)
{
	static const unsigned which[] = {0, WEIR_SLOT_WRITE, WEIR_SLOT_READ};

	for (unsigned when = 0; when < 600; when++) {
		struct pair p = PAIR(2, .delay_ns = 1000 * (when % 5));

		/* it has messages of its own to send before it may end */
		for (unsigned i = 0; i < 4; i++) /* as far as there is room */
			pconn_send(p.b, 40000, which[when % 3]);
		for (unsigned i = 0; i <= when % 4; i++)
			pconn_send(p.a, 40000, which[when / 3 % 3]);
		world_run(p.w, when / 10 % 30);
		pconn_close(p.b);
		world_run(p.w, when % 10);
		pconn_shut(p.a);
		world_run(p.w, 1000);
		assert_true(p.b->freed);
		pconn_ends(p.a, 100);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(node_counters(p.w, i)->bad_frames, 0);
			assert_int_equal(p.w->node[i].link_errors, 0);
		}
	}
}

/* It closes after it has shut, at any time, whatever the peer does: ends in order. */
static void
test_close_after_shut(void **state)
{
	for (unsigned when = 0; when < 30; when++) {
		struct pair p = PAIR(2, .delay_ns = 1000 * (when % 5));

		pair_send(&p, p.a, 200, 20);
		pconn_send(p.a, 100000, 0);
		pconn_shut(p.a);
		world_run(p.w, when * 3);
		pconn_pushes(p.b, 0, 500, 20);
		if (when % 3 == 0)
			pconn_shut(p.b);
		pconn_close(p.a);
		world_run(p.w, 1000);
		assert_complete(p.a, p.b);
		assert_true(p.a->freed);
		assert_closed(p.b, 0);
		pconn_ends(p.b, 100);
		assert_int_equal(p.w->node[0].link_errors + p.w->node[1].link_errors, 0);
	}
}

/* The end comes after the messages that wait for the window, and for room in the program's ring. */
static void
test_shut_behind_a_stall(void **state)
{
	struct pair p = PAIR(2, .ring_slots = 16);

	p.pb->stopped = true;
	pconn_pushes(p.a, 0, 300, 3);
	for (unsigned i = 0; i < 100; i++) {
		pconn_push(p.a, 1, 40, 0);
		world_run(p.w, 3);
	}
	pconn_shut(p.a);
	world_run(p.w, 500);
	assert_false(p.b->peer_shut);
	p.pb->stopped = false;
	STEP_MOST(p.w, 5000, !p.b->peer_shut);
	assert_true(p.b->peer_shut);
	assert_complete(p.a, p.b);
	pconn_shut(p.b);
	world_run(p.w, 300);
	assert_closed(p.a, 0);
	pair_close(&p, 50);
}

/* A program dies after it has shut: the peer has received the end, and learns of the death. */
static void
test_dies_after_shut(void **state)
{
	for (unsigned when = 0; when < 60; when++) {
		struct pair p = PAIR(2, .delay_ns = 2000);
		bool both = when % 2;

		pair_send(&p, p.a, 100, 10);
		pconn_shut(p.a);
		if (both)
			pconn_shut(p.b);
		world_run(p.w, when);
		program_ends(p.pa, 2000);
		assert_int_equal(p.b->received, 10);
		assert_true(p.b->peer_shut);
		/* had it heard of the other's end? */
		if (!both || p.b->close_status || when > 40)
			assert_closed(p.b, both && when > 40 ? 0 : ECONNRESET);
		pconn_ends(p.b, 100);
	}
}

static void
test_link_fails_after_shut(void **state)
{
	struct pair p = PAIR(2, .delay_ns = 2000);

	pair_send(&p, p.a, 100, 10);
	pconn_shut(p.a);
	world_run(p.w, 200);
	world_links_fail(p.w, EHOSTDOWN);
	world_run(p.w, 100);
	assert_true(p.b->peer_shut);
	assert_closed(p.a, EHOSTDOWN);
	assert_closed(p.b, EHOSTDOWN);
	pair_close(&p, 50);
}

static void
test_refused(void **state)
{
	struct pair p = PAIR(2);
	struct pconn *c, *d;

	p.w->node[1].refuse = true;
	c = pconn_connect(p.pa);
	d = pconn_connect(p.pa);
	pconn_close(d); /* before the answer */
	world_run(p.w, 100);
	assert_true(c->opened && c->freed && !c->done);
	assert_int_equal(c->open_status, ECONNREFUSED);
	assert_true(d->freed && d->done && !d->opened);
	/* closed before the answer, which is yes */
	p.w->node[1].refuse = false;
	d = pconn_connect(p.pa);
	pconn_close(d);
	world_run(p.w, 200);
	assert_true(d->freed && d->done);
	assert_int_equal(d->close_status, 0);
}

/* Main's queue is full for a while: nothing is lost. */
static void
test_main_is_slow(void **state)
{
	struct pair p = PAIR(2);
	struct pconn *c;

	p.w->node[0].full = p.w->node[1].full = true;
	c = pconn_connect(p.pa);
	pconn_close(p.a);
	world_run(p.w, 100);
	assert_false(c->opened || p.a->freed);
	p.w->node[0].full = p.w->node[1].full = false;
	world_run(p.w, 100);
	assert_true(c->opened && p.a->freed);
}

/* The program dies: its published messages arrive, then the end; the count is exact. */
static void
test_sender_dies(void **state)
{
	struct pair p = PAIR(2, .delay_ns = 2000);

	assert_int_equal(pconn_pushes(p.a, 0, 100, 4), 4);
	assert_true(pconn_send(p.a, 300000, 0));
	program_die(p.pa);
	assert_receives(p.b, 2000, 5);
	assert_closed(p.b, ECONNRESET);
	assert_true(p.pa->removed);
	pconn_ends(p.b, 10);
}

/* The receiver dies with messages under way: those in its memory are complete, no others. */
static void
test_receiver_dies(void **state)
{
	for (unsigned when = 0; when < 40; when++) {
		struct pair p = PAIR(2, .delay_ns = 1000 * (when % 7), .ring_lines = 256);
		uint64_t delivered;

		pair_send(&p, p.a, 200, 200);
		world_run(p.w, 200);
		delivered = node_counters(p.w, 1)->rx_messages;
		p.pb->stopped = true;
		for (unsigned i = 0; i < 300; i++)
			if (!pconn_send(p.a, i % 3 ? 200 : 20000, 0))
				break;
		world_run(p.w, when);
		program_ends(p.pb, 3000);
		assert_closed(p.a, ECONNRESET);
		delivered = node_counters(p.w, 1)->rx_messages - delivered;
		assert_int_equal(pconn_completed(p.a), 200 + delivered);
		pconn_ends(p.a, 100);
	}
}

/*
 * The RESET with the count of messages that a dead program got waits behind more frames than one
 * poll takes, and the credit for later messages is there already: it mustn't count before.
 */
static void
test_count_behind_a_queue(void **state)
{
	struct pair p = PAIR(2, .recv_wrs = 200);
	struct program *q = program_open(p.w, 0, 1), *r = program_open(p.w, 1, 1);
	struct pair other = {.w = p.w, .pa = q, .pb = r};

	world_connect(q, r, &p.x, &p.y);
	pair_send(&other, p.y, 10, 4000);
	assert_receives(p.x, 2000, 4000);
	p.w->net.delay_ns = 60000;
	pconn_sends(p.a, 100, 0, 4);
	engine_turn(p.w->node[0].engine, p.w->now);
	/* node 0 is busy with something else, for longer than a frame takes both ways */
	for (unsigned i = 0; i < 400; i++) {
		if (i < 80)
			assert_true(pconn_send(p.y, 10, 0));
		if (i == 85)
			program_die(p.pb);
		world_turn(p.w, 1);
	}
	assert_int_equal(node_counters(p.w, 1)->stray, 4);
	world_run(p.w, 1000);
	assert_closed(p.a, ECONNRESET);
	assert_int_equal(pconn_completed(p.a), 0);
	assert_int_equal(p.x->received, 4080);
}

/* An end that closes has promised its blocks to WRITEs under way: they are acknowledged first. */
static void
test_close_under_bulk(void **state)
{
	struct pair p = PAIR(2, .delay_ns = 20000);
	const struct peer_link *l = &p.w->node[0].engine->links[1];

	assert_true(pconn_send(p.a, 1 << 20, 0));
	STEP_WHILE(p.w, p.w->node[1].engine->conns[0].cold->rts[0].state != RTS_ANSWERED);
	pconn_close(p.b); /* FIN arrives just behind CTS */
	STEP_WHILE(p.w, !p.b->freed);
	assert_true(l->sq_posted[BULK] > 0);
	assert_int_equal(l->flight_bytes, 0);
	assert_int_equal(pconn_completed(p.a), 0);
	assert_true(p.a->done);
}

/* The peer doesn't take the messages that a dead program left: they are given up in time. */
static void
test_dies_behind_a_stall(void **state)
{
	struct pair p = PAIR(2);

	p.pb->stopped = true;
	pconn_pushes(p.a, 0, 300, 200);
	world_run(p.w, 100);
	program_die(p.pa);
	world_run(p.w, 1000);
	assert_false(p.pa->removed);
	p.w->step_ns = 1000000;
	world_run(p.w, 600);
	assert_true(p.pa->removed);
	p.pb->stopped = false;
	p.w->step_ns = 500;
	world_run(p.w, 100);
	assert_closed(p.b, ECONNRESET);
	assert_int_equal(p.b->received, pconn_completed(p.a));
}

/* A peer's WRITEs into the blocks of a dead session: the memory stays until it has acknowledged. */
static void
test_dies_under_bulk(void **state)
{
	struct pair p = PAIR(2, .delay_ns = 20000);

	pconn_sends(p.a, 1 << 20, 0, 4);
	STEP_WHILE(p.w, !p.w->net.bytes || p.w->net.bytes < 500000);
	program_die(p.pb);
	STEP_WHILE(p.w, !p.pb->removed);
	/* as main does next: a WRITE that comes later is counted as bad */
	fake_mr_end(&p.w->net, &p.pb->view.recv_mr);
	world_run(p.w, 2000);
	assert_true(p.a->done);
	assert_int_equal(pconn_completed(p.a), 0);
}

static void
test_link_fails(void **state)
{
	struct pair p = PAIR(2, .delay_ns = 2000, .recv_wrs = 256);
	struct pconn *c;
	uint64_t completed;
	uint32_t receives;

	world_connect(p.pa, p.pb, &p.x, &p.y);
	pair_send(&p, p.a, 100, 50);
	pconn_pushes(p.a, 0, 900, 50);
	pconn_send(p.b, 500000, 0);
	pconn_close(p.y);
	c = pconn_connect(p.pa);
	world_run(p.w, 2);
	fake_qp_break(&p.w->node[0].qp[0]);
	receives = p.w->node[0].nic->recv_wrs;
	fake_receive_fails(&p.w->node[0].qp[0]);
	world_run(p.w, 20);
	assert_true(p.w->node[0].nic->recv_wrs >= receives); /* posted again */
	assert_int_equal(p.w->node[0].link_errors, 1);
	assert_int_equal(p.w->node[0].link_error, ETIMEDOUT);
	completed = pconn_completed(p.a);
	world_links_fail(p.w, EHOSTDOWN);
	world_run(p.w, 50);
	assert_true(p.a->done && p.b->done && p.x->done && c->opened && c->freed);
	assert_int_equal(p.a->close_status, EHOSTDOWN);
	assert_int_equal(p.b->close_status, EHOSTDOWN);
	assert_int_equal(c->open_status, EHOSTDOWN);
	assert_true(p.y->freed);
	assert_int_equal(pconn_completed(p.a), completed);
	assert_true(p.b->received >= completed);
	pconn_close(p.a);
	pconn_close(p.b);
	pconn_close(p.x);
	world_run(p.w, 20);
	assert_true(p.a->freed && p.b->freed && p.x->freed);
	/* a new one takes its place */
	world_link_up(p.w);
	world_connect(p.pa, p.pb, &p.a, &p.b);
	pair_send(&p, p.a, 100, 50);
	assert_receives(p.b, 200, 50);
	program_die(p.pa);
	program_die(p.pb);
	world_run(p.w, 1000);
	assert_true(p.pa->removed && p.pb->removed);
}

/* Sessions end although the node of their peers no longer answers. */
static void
test_dies_without_a_peer(void **state)
{
	struct pair p = PAIR(2);

	p.w->net.delay_ns = 1ull << 60;
	pconn_push(p.a, 0, 100, 0);
	program_die(p.pa);
	world_run(p.w, 3000);
	assert_false(p.pa->removed);
	world_link_fail(p.w, 0, EHOSTDOWN);
	world_run(p.w, 10);
	assert_true(p.pa->removed);
}

/* Executes what makes the program's connection 10 and gives that, which isn't open. */
static struct pconn *
made_by(struct program *p, struct engine_command *k, enum engine_command_type type)
{
	struct pconn *c = &p->conn[10];

	k->type = type;
	assert_int_equal(program_command(p, k), 0);
	*c = (struct pconn){.p = p, .desc = 10, .used = true, .vqpn = k->conn.vqpn};
	return c;
}

/* Local connections: the engine passes events only. */
static void
test_local(void **state)
{
	struct pair p = PAIR(2);
	struct engine_command k = {
	    .conn = {
		.session = p.pa->id, .desc = 10, .listener = ENGINE_LISTENER_NONE, .segment = 77}};
	struct pconn *c = made_by(p.pa, &k, ENGINE_CONN_LOCAL);

	k.type = ENGINE_CONN_LOCAL_OPENED;
	k.conn.peer_vqpn = 5;
	assert_int_equal(program_command(p.pa, &k), 0);
	world_run(p.w, 2);
	assert_true(c->opened);
	pconn_ends(c, 5);
	assert_int_equal(p.w->node[0].local_closed, 1);
	assert_closed(c, 0);
	k.type = ENGINE_CONN_PEER_CLOSED;
	assert_int_equal(program_command(p.pa, &k), -ENOENT);
	/* the other order */
	made_by(p.pa, &k, ENGINE_CONN_LOCAL);
	k.type = ENGINE_CONN_PEER_CLOSED;
	k.conn.status = ECONNRESET;
	assert_int_equal(program_command(p.pa, &k), 0);
	world_run(p.w, 2);
	assert_false(c->freed);
	assert_closed(c, ECONNRESET);
	pconn_ends(c, 5);
	assert_int_equal(p.w->node[0].local_closed, 1);
	/* never opened */
	made_by(p.pa, &k, ENGINE_CONN_LOCAL);
	k.type = ENGINE_CONN_LOCAL_OPENED;
	k.conn.status = ECONNREFUSED;
	assert_int_equal(program_command(p.pa, &k), 0);
	world_run(p.w, 5);
	assert_true(c->opened && c->freed && !c->done);
	assert_int_equal(c->open_status, ECONNREFUSED);
}

/* Started later: the entry waits for its link. */
static void
test_start_later(void **state)
{
	struct pair p = PAIR(2);
	struct engine_command k;

	for (unsigned round = 0; round < 3; round++) {
		struct pconn *c;

		k = (struct engine_command){
		    .conn = {.session = p.pa->id, .desc = 10, .link = ENGINE_LINK_NONE}};
		c = made_by(p.pa, &k, ENGINE_CONN_OPEN);
		world_run(p.w, 5);
		assert_false(c->opened);
		if (round == 2)
			pconn_close(c);
		world_run(p.w, 5);
		k.type = ENGINE_CONN_START;
		k.conn.link = 1;
		k.conn.status = round == 1 ? EHOSTUNREACH : 0;
		assert_int_equal(program_command(p.pa, &k), round == 2 ? -ENOENT : 0);
		world_run(p.w, 50);
		assert_true(round == 2 ? c->done && c->freed : c->opened);
		if (round == 1)
			assert_int_equal(c->open_status, EHOSTUNREACH);
	}
}

/* News of nodes reach programs whose ring was full. */
static void
test_news_for_a_slow_program(void **state)
{
	struct pair p = PAIR(2, .ring_slots = 16);
	struct engine_command k = {.type = ENGINE_NODE_EVENT, .conn = {.peer_node = 3}};

	p.pb->stopped = true;
	for (unsigned i = 0; i < 30; i++)
		pconn_push(p.a, 0, 100, 0), world_run(p.w, 50);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(program_command(p.pb, &k), 0);
	pconn_close(p.a);
	world_run(p.w, 300);
	p.pb->stopped = false;
	world_run(p.w, 1000);
	assert_int_equal(p.pb->nodes_seen, 3);
	assert_true(p.b->done);
	assert_int_equal(p.b->received, 30);
}

static void
test_snapshot(void **state)
{
	struct pair p = PAIR(2);
	struct engine_conn_record conns[4];
	struct engine_link_record links[4];
	struct engine_snapshot s = {.conns = conns, .conn_room = 4, .links = links, .link_room = 4};
	struct engine_command k = {.type = ENGINE_SNAPSHOT, .snapshot = &s};

	pair_send(&p, p.a, 100, 10);
	world_run(p.w, 100);
	assert_int_equal(program_command(p.pa, &k), 0);
	assert_int_equal(s.conn_count, 1);
	assert_int_equal(s.conn_next, UINT32_MAX);
	assert_int_equal(conns[0].vqpn, p.a->vqpn);
	assert_int_equal(conns[0].outstanding + conns[0].returned, 10 * weir_cost(100));
	assert_int_equal(conns[0].by_ring, 10);
	assert_int_equal(conns[0].bytes, 1000);
	/* in blocks and in bulk; the receiving end counts what it delivered */
	pair_send(&p, p.a, 5000, 2);
	pair_send(&p, p.a, 300000, 1);
	world_run(p.w, 300);
	assert_int_equal(p.b->received, 13);
	assert_int_equal(program_command(p.pa, &k), 0);
	assert_int_equal(conns[0].bytes, 311000);
	assert_int_equal(program_command(p.pb, &k), 0);
	assert_int_equal(conns[0].bytes, 311000);
	assert_int_equal(s.link_count, 1);
	assert_int_equal(links[0].ring_used, 0);
}

ENGINE_TESTS(TEST(test_close_after_data), TEST(test_both_close_at_once), TEST(test_evict),
	     TEST(test_close_while_peer_sends), TEST(test_shut), TEST(test_both_shut_at_once),
	     TEST(test_shut_to_one_that_closed), TEST(test_close_after_shut),
	     TEST(test_shut_behind_a_stall), TEST(test_dies_after_shut),
	     TEST(test_link_fails_after_shut), TEST(test_refused), TEST(test_main_is_slow),
	     TEST(test_sender_dies), TEST(test_receiver_dies), TEST(test_count_behind_a_queue),
	     TEST(test_close_under_bulk), TEST(test_dies_behind_a_stall),
	     TEST(test_dies_under_bulk), TEST(test_link_fails), TEST(test_dies_without_a_peer),
	     TEST(test_local), TEST(test_start_later), TEST(test_news_for_a_slow_program),
	     TEST(test_snapshot))
