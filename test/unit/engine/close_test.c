/* SPDX-License-Identifier: BSD-3-Clause */
/* How connections, sessions and links end: nothing lost that was told complete, everything freed.
 */
#include "worlds/engine_pair.h"

#include "engine/conn.h"
#include "engine/link.h"
#include "engine/rndv.h"

#include <errno.h>
#include <stdlib.h>

/* Queued data arrives before the end of the stream; both entries are used again. */
static void
test_close_after_data(void **state)
{
	struct pair p = pair_open(&(struct world_options){.delay_ns = 2000}, 2);
	uint32_t first = p.a->vqpn;

	for (unsigned round = 0; round < 5; round++) {
		pair_send(&p, p.a, 300, 40);
		for (unsigned i = 0; i < 3; i++)
			assert_true(pconn_send(p.a, 100000, 0));
		for (unsigned i = 0; i < 20; i++)
			pconn_push(p.a, 1, 700, 0); /* beyond the window, through another channel */
		pconn_close(p.a);
		world_run(p.w, 3000);
		assert_int_equal(p.b->received, p.a->sent);
		assert_true(p.b->done);
		assert_int_equal(p.b->close_status, 0);
		assert_true(p.a->done);
		assert_int_equal(p.a->close_status, 0);
		assert_int_equal(pconn_completed(p.a), p.a->sent);
		assert_true(p.a->freed);
		assert_false(p.b->freed);
		assert_int_equal(pconn_status(p.b), ECONNRESET);
		pconn_close(p.b);
		world_run(p.w, 20);
		assert_true(p.b->freed);
		world_connect(p.pa, p.pb, &p.a, &p.b);
		assert_int_not_equal(p.a->vqpn, first);
		assert_int_equal(WEIR_VQPN_INDEX(p.a->vqpn), WEIR_VQPN_INDEX(first));
	}
	world_destroy(p.w);
}

/* Main evicts it: this end's program gets ECONNABORTED, the peer's ECONNRESET; the next one works.
 */
static void
test_evict(void **state)
{
	struct pair p = pair_open(&(struct world_options){.delay_ns = 2000}, 2);
	struct engine_command c = {.type = ENGINE_CONN_EVICT, .conn.status = ECONNABORTED};

	pair_send(&p, p.b, 300, 10);
	for (unsigned i = 0; i < 5; i++)
		assert_true(pconn_send(p.a, 100000, 0));
	c.conn.vqpn = p.a->vqpn;
	assert_int_equal(program_command(p.pa, &c), 0);
	world_run(p.w, 2000);
	assert_true(p.a->done && p.b->done);
	assert_int_equal(p.a->close_status, ECONNABORTED);
	assert_int_equal(p.b->close_status, ECONNRESET);
	assert_int_equal(program_command(p.pa, &c), -ENOENT);
	pconn_close(p.a);
	pconn_close(p.b);
	world_run(p.w, 200);
	assert_true(p.a->freed && p.b->freed);
	world_connect(p.pa, p.pb, &p.a, &p.b);
	pair_send(&p, p.a, 48, 3);
	world_run(p.w, 200);
	assert_int_equal(p.b->received, 3);
	world_destroy(p.w);
}

static void
test_both_close_at_once(void **state)
{
	struct pair p = pair_open(&(struct world_options){.delay_ns = 3000}, 2);

	pair_send(&p, p.a, 48, 3);
	pair_send(&p, p.b, 48, 3);
	world_run(p.w, 200);
	pconn_close(p.a);
	pconn_close(p.b);
	world_run(p.w, 200);
	assert_true(p.a->done && p.b->done && p.a->freed && p.b->freed);
	assert_int_equal(p.a->close_status, 0);
	assert_int_equal(p.b->close_status, 0);
	world_destroy(p.w);
}

/* Messages that reach the closing end are delivered; those that wait at the other end are not. */
static void
test_close_while_peer_sends(void **state)
{
	struct pair p = pair_open(&(struct world_options){.delay_ns = 5000}, 2);

	pair_send(&p, p.b, 100, 3);
	for (unsigned i = 0; i < 100; i++)
		pconn_push(p.b, 0, 500, 0);
	pconn_send(p.b, 200000, 0);
	pconn_close(p.a);
	world_run(p.w, 1000);
	assert_true(p.b->done && p.a->done && p.a->freed);
	assert_int_equal(pconn_completed(p.b), p.a->received);
	assert_true(p.b->sent > p.a->received);
	pconn_close(p.b);
	world_run(p.w, 100);
	assert_true(p.b->freed);
	world_destroy(p.w);
}

static void
test_refused(void **state)
{
	struct pair p = pair_open(NULL, 2);
	struct pconn *c, *d;

	p.w->node[1].refuse = true;
	c = pconn_connect(p.pa, 0);
	d = pconn_connect(p.pa, 0);
	pconn_close(d); /* before the answer */
	world_run(p.w, 100);
	assert_true(c->opened && c->freed && !c->done);
	assert_int_equal(c->open_status, ECONNREFUSED);
	assert_true(d->freed && d->done && !d->opened);
	/* closed before the answer, which is yes */
	p.w->node[1].refuse = false;
	d = pconn_connect(p.pa, 0);
	pconn_close(d);
	world_run(p.w, 200);
	assert_true(d->freed && d->done);
	assert_int_equal(d->close_status, 0);
	world_destroy(p.w);
}

/* Main's queue is full for a while: nothing is lost. */
static void
test_main_is_slow(void **state)
{
	struct pair p = pair_open(NULL, 2);
	struct pconn *c;

	p.w->node[0].full = p.w->node[1].full = true;
	c = pconn_connect(p.pa, 0);
	pconn_close(p.a);
	world_run(p.w, 100);
	assert_false(c->opened || p.a->freed);
	p.w->node[0].full = p.w->node[1].full = false;
	world_run(p.w, 100);
	assert_true(c->opened && p.a->freed);
	world_destroy(p.w);
}

/* The program dies: its published messages arrive, then the end; the count is exact. */
static void
test_sender_dies(void **state)
{
	struct pair p = pair_open(&(struct world_options){.delay_ns = 2000}, 2);

	for (unsigned i = 0; i < 4; i++)
		assert_true(pconn_push(p.a, 0, 100, 0));
	assert_true(pconn_send(p.a, 300000, 0));
	program_die(p.pa);
	world_run(p.w, 2000);
	assert_int_equal(p.b->received, 5);
	assert_true(p.b->done);
	assert_int_equal(p.b->close_status, ECONNRESET);
	assert_true(p.pa->removed);
	pconn_close(p.b);
	world_run(p.w, 10);
	assert_true(p.b->freed);
	world_destroy(p.w);
}

/* The receiver dies with messages under way: those in its memory are complete, no others. */
static void
test_receiver_dies(void **state)
{
	for (unsigned when = 0; when < 40; when++) {
		struct pair p = pair_open(
		    &(struct world_options){.delay_ns = 1000 * (when % 7), .ring_lines = 256}, 2);
		uint64_t delivered;

		(void)state;
		pair_send(&p, p.a, 200, 200);
		world_run(p.w, 200);
		delivered = node_counters(p.w, 1)->rx_messages;
		p.pb->stopped = true;
		for (unsigned i = 0; i < 300; i++)
			if (!pconn_send(p.a, i % 3 ? 200 : 20000, 0))
				break;
		world_run(p.w, when);
		program_die(p.pb);
		world_run(p.w, 3000);
		assert_true(p.pb->removed);
		assert_true(p.a->done);
		assert_int_equal(p.a->close_status, ECONNRESET);
		delivered = node_counters(p.w, 1)->rx_messages - delivered;
		assert_int_equal(pconn_completed(p.a), 200 + delivered);
		pconn_close(p.a);
		world_run(p.w, 100);
		assert_true(p.a->freed);
		world_destroy(p.w);
	}
}

/*
 * The RESET with the count of messages that a dead program got waits behind more frames than one
 * poll takes, and the credit for later messages is there already: it mustn't count before.
 */
static void
test_count_behind_a_queue(void **state)
{
	struct pair p = pair_open(&(struct world_options){.recv_wrs = 200}, 2);
	struct program *q = program_open(p.w, 0, 1), *r = program_open(p.w, 1, 1);
	struct pair other = {.w = p.w, .pa = q, .pb = r};
	struct pconn *x, *y;

	world_connect(q, r, &x, &y);
	pair_send(&other, y, 10, 4000);
	world_run(p.w, 2000);
	assert_int_equal(x->received, 4000);
	p.w->net.delay_ns = 60000;
	for (unsigned i = 0; i < 4; i++)
		assert_true(pconn_send(p.a, 100, 0));
	engine_turn(p.w->node[0].engine, p.w->now);
	/* node 0 is busy with something else, for longer than a frame takes both ways */
	for (unsigned i = 0; i < 400; i++) {
		if (i < 80)
			assert_true(pconn_send(y, 10, 0));
		if (i == 85)
			program_die(p.pb);
		p.w->now += p.w->step_ns;
		engine_turn(p.w->node[1].engine, p.w->now);
	}
	assert_int_equal(node_counters(p.w, 1)->stray, 4);
	world_run(p.w, 1000);
	assert_true(p.a->done);
	assert_int_equal(p.a->close_status, ECONNRESET);
	assert_int_equal(pconn_completed(p.a), 0);
	assert_int_equal(x->received, 4080);
	world_destroy(p.w);
}

/* An end that closes has promised its blocks to WRITEs under way: they are acknowledged first. */
static void
test_close_under_bulk(void **state)
{
	struct pair p = pair_open(&(struct world_options){.delay_ns = 20000}, 2);
	const struct peer_link *l = &p.w->node[0].engine->links[1];

	assert_true(pconn_send(p.a, 1 << 20, 0));
	while (p.w->node[1].engine->conns[0].cold->rts[0].state != RTS_ANSWERED)
		world_step(p.w);
	pconn_close(p.b); /* FIN arrives just behind CTS */
	while (!p.b->freed)
		world_step(p.w);
	assert_true(l->flight_end > 0);
	assert_int_equal(l->flight_first, l->flight_end);
	assert_int_equal(pconn_completed(p.a), 0);
	assert_true(p.a->done);
	world_destroy(p.w);
}

/* The peer doesn't take the messages that a dead program left: they are given up in time. */
static void
test_dies_behind_a_stall(void **state)
{
	struct pair p = pair_open(NULL, 2);

	p.pb->stopped = true;
	for (unsigned i = 0; i < 200; i++)
		pconn_push(p.a, 0, 300, 0);
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
	assert_true(p.b->done);
	assert_int_equal(p.b->close_status, ECONNRESET);
	assert_int_equal(p.b->received, pconn_completed(p.a));
	world_destroy(p.w);
}

/* A peer's WRITEs into the blocks of a dead session: the memory stays until it has acknowledged. */
static void
test_dies_under_bulk(void **state)
{
	struct pair p = pair_open(&(struct world_options){.delay_ns = 20000}, 2);

	for (unsigned i = 0; i < 4; i++)
		assert_true(pconn_send(p.a, 1 << 20, 0));
	while (!p.w->net.bytes || p.w->net.bytes < 500000)
		world_step(p.w);
	program_die(p.pb);
	while (!p.pb->removed)
		world_step(p.w);
	/* as main does next: a WRITE that comes later is counted as bad */
	fake_mr_end(&p.w->net, &p.pb->view.recv_mr);
	world_run(p.w, 2000);
	assert_true(p.a->done);
	assert_int_equal(pconn_completed(p.a), 0);
	world_destroy(p.w);
}

static void
test_link_fails(void **state)
{
	struct pair p = pair_open(&(struct world_options){.delay_ns = 2000}, 2);
	struct pconn *c, *x, *y;
	uint64_t completed;
	uint32_t receives;

	world_connect(p.pa, p.pb, &x, &y);
	pair_send(&p, p.a, 100, 50);
	for (unsigned i = 0; i < 50; i++)
		pconn_push(p.a, 0, 900, 0);
	pconn_send(p.b, 500000, 0);
	pconn_close(y);
	c = pconn_connect(p.pa, 0);
	world_run(p.w, 2);
	fake_qp_break(&p.w->node[0].qp[0]);
	receives = p.w->node[0].nic->recv_wrs;
	fake_receive_fails(&p.w->node[0].qp[0]);
	world_run(p.w, 20);
	assert_true(p.w->node[0].nic->recv_wrs >= receives); /* posted again */
	assert_int_equal(p.w->node[0].link_errors, 1);
	assert_int_equal(p.w->node[0].link_error, ETIMEDOUT);
	completed = pconn_completed(p.a);
	world_link_fail(p.w, 0, EHOSTDOWN);
	world_link_fail(p.w, 1, EHOSTDOWN);
	world_run(p.w, 50);
	assert_true(p.a->done && p.b->done && x->done && c->opened && c->freed);
	assert_int_equal(p.a->close_status, EHOSTDOWN);
	assert_int_equal(p.b->close_status, EHOSTDOWN);
	assert_int_equal(c->open_status, EHOSTDOWN);
	assert_true(y->freed);
	assert_int_equal(pconn_completed(p.a), completed);
	assert_true(p.b->received >= completed);
	pconn_close(p.a);
	pconn_close(p.b);
	pconn_close(x);
	world_run(p.w, 20);
	assert_true(p.a->freed && p.b->freed && x->freed);
	/* a new one takes its place */
	world_link_up(p.w);
	world_connect(p.pa, p.pb, &p.a, &p.b);
	pair_send(&p, p.a, 100, 50);
	world_run(p.w, 200);
	assert_int_equal(p.b->received, 50);
	program_die(p.pa);
	program_die(p.pb);
	world_run(p.w, 1000);
	assert_true(p.pa->removed && p.pb->removed);
	world_destroy(p.w);
}

/* Sessions end although the node of their peers no longer answers. */
static void
test_dies_without_a_peer(void **state)
{
	struct pair p = pair_open(NULL, 2);

	p.w->net.delay_ns = 1ull << 60;
	pconn_push(p.a, 0, 100, 0);
	program_die(p.pa);
	world_run(p.w, 3000);
	assert_false(p.pa->removed);
	world_link_fail(p.w, 0, EHOSTDOWN);
	world_run(p.w, 10);
	assert_true(p.pa->removed);
	world_destroy(p.w);
}

/* Local connections: the engine passes events only. */
static void
test_local(void **state)
{
	struct pair p = pair_open(NULL, 2);
	struct pconn *c = &p.pa->conn[10];
	struct engine_command k = {
	    .type = ENGINE_CONN_LOCAL,
	    .conn = {
		.session = p.pa->id, .desc = 10, .listener = ENGINE_LISTENER_NONE, .segment = 77}};

	assert_int_equal(program_command(p.pa, &k), 0);
	*c = (struct pconn){.p = p.pa, .desc = 10, .used = true, .vqpn = k.conn.vqpn};
	k.type = ENGINE_CONN_LOCAL_OPENED;
	k.conn.peer_vqpn = 5;
	assert_int_equal(program_command(p.pa, &k), 0);
	world_run(p.w, 2);
	assert_true(c->opened);
	pconn_close(c);
	world_run(p.w, 5);
	assert_int_equal(p.w->node[0].local_closed, 1);
	assert_true(c->freed && c->done);
	assert_int_equal(c->close_status, 0);
	k.type = ENGINE_CONN_PEER_CLOSED;
	assert_int_equal(program_command(p.pa, &k), -ENOENT);
	/* the other order */
	k.type = ENGINE_CONN_LOCAL;
	assert_int_equal(program_command(p.pa, &k), 0);
	*c = (struct pconn){.p = p.pa, .desc = 10, .used = true, .vqpn = k.conn.vqpn};
	k.type = ENGINE_CONN_PEER_CLOSED;
	k.conn.status = ECONNRESET;
	assert_int_equal(program_command(p.pa, &k), 0);
	world_run(p.w, 2);
	assert_true(c->done && !c->freed);
	assert_int_equal(c->close_status, ECONNRESET);
	pconn_close(c);
	world_run(p.w, 5);
	assert_true(c->freed);
	assert_int_equal(p.w->node[0].local_closed, 1);
	/* never opened */
	k.type = ENGINE_CONN_LOCAL;
	assert_int_equal(program_command(p.pa, &k), 0);
	*c = (struct pconn){.p = p.pa, .desc = 10, .used = true, .vqpn = k.conn.vqpn};
	k.type = ENGINE_CONN_LOCAL_OPENED;
	k.conn.status = ECONNREFUSED;
	assert_int_equal(program_command(p.pa, &k), 0);
	world_run(p.w, 5);
	assert_true(c->opened && c->freed && !c->done);
	assert_int_equal(c->open_status, ECONNREFUSED);
	world_destroy(p.w);
}

/* Started later: the entry waits for its link. */
static void
test_start_later(void **state)
{
	struct pair p = pair_open(NULL, 2);
	struct pconn *c = &p.pa->conn[10];
	struct engine_command k = {
	    .type = ENGINE_CONN_OPEN,
	    .conn = {.session = p.pa->id, .desc = 10, .link = ENGINE_LINK_NONE}};

	for (unsigned round = 0; round < 3; round++) {
		k.type = ENGINE_CONN_OPEN;
		k.conn.link = ENGINE_LINK_NONE;
		k.conn.status = 0;
		assert_int_equal(program_command(p.pa, &k), 0);
		*c = (struct pconn){.p = p.pa, .desc = 10, .used = true, .vqpn = k.conn.vqpn};
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
	world_destroy(p.w);
}

/* News of nodes reach programs whose ring was full. */
static void
test_news_for_a_slow_program(void **state)
{
	struct pair p = pair_open(&(struct world_options){.ring_slots = 16}, 2);
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
	world_destroy(p.w);
}

static void
test_snapshot(void **state)
{
	struct pair p = pair_open(NULL, 2);
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
	assert_int_equal(s.link_count, 1);
	assert_int_equal(links[0].ring_used, 0);
	world_destroy(p.w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_close_after_data),
	    cmocka_unit_test(test_both_close_at_once),
	    cmocka_unit_test(test_evict),
	    cmocka_unit_test(test_close_while_peer_sends),
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_main_is_slow),
	    cmocka_unit_test(test_sender_dies),
	    cmocka_unit_test(test_receiver_dies),
	    cmocka_unit_test(test_count_behind_a_queue),
	    cmocka_unit_test(test_close_under_bulk),
	    cmocka_unit_test(test_dies_behind_a_stall),
	    cmocka_unit_test(test_dies_under_bulk),
	    cmocka_unit_test(test_link_fails),
	    cmocka_unit_test(test_dies_without_a_peer),
	    cmocka_unit_test(test_local),
	    cmocka_unit_test(test_start_later),
	    cmocka_unit_test(test_news_for_a_slow_program),
	    cmocka_unit_test(test_snapshot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
