/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings of idle peers: a peer that sends little leaves its ring for the small one, and gets a large
 * one again when it sends more. The world's main ends the region of memory that is not used, so a
 * WRITE into it fails the test.
 */
#include "worlds/engine_world.h"

#include "engine/conn.h"
#include "engine/link.h"
#include "engine/state.h"

#define IDLE 50000 /* ns, of a step 500 */

static struct peer_link *
link_of(struct pair *p, unsigned i)
{
	return &p->w->node[i].engine->links[1];
}

static uint64_t
withdrawn(struct pair *p, unsigned i)
{
	return atomic_load(&p->w->node[i].engine->counters.rings_withdrawn);
}

static uint64_t
regained(struct pair *p, unsigned i)
{
	return atomic_load(&p->w->node[i].engine->counters.rings_regained);
}

static void
assert_small(struct pair *p)
{
	for (unsigned i = 0; i < 2; i++) {
		assert_true(p->w->node[i].ring_out && p->w->node[i].staging_out);
		assert_true(link_of(p, i)->ring_least);
		assert_int_equal(link_of(p, i)->ring_mask + 1, ENGINE_RING_LEAST);
		assert_int_equal(link_of(p, i)->mask + 1, ENGINE_RING_LEAST);
		assert_int_equal(link_of(p, i)->way, WAY_SETTLED);
	}
}

/* Two programs that are connected and say nothing. */
static struct pair
idle_pair(uint64_t delay_ns)
{
	struct pair p = PAIR(1, .delay_ns = delay_ns, .ring_idle_ns = IDLE);

	pair_send(&p, p.a, 300, 20);
	world_run(p.w, 500);
	assert_small(&p);
	return p;
}

/* Withdrawn from idle peers, once; the first messages use the small one, many get another. */
static void
test_comes_and_goes(void **state)
{
	struct pair p = idle_pair(2000);

	assert_int_equal(withdrawn(&p, 0), 1);
	assert_int_equal(withdrawn(&p, 1), 1);
	world_run(p.w, 1000); /* an idle one stays as it is */
	assert_int_equal(withdrawn(&p, 1), 1);
	pconn_stream(p.a, p.b, 48, 0, 30); /* little: it suffices */
	assert_true(link_of(&p, 1)->ring_least);
	pconn_stream(p.a, p.b, 900, 0, 400);
	assert_int_equal(regained(&p, 1), 1);
	assert_int_equal(regained(&p, 0), 0); /* the other way is idle */
	assert_false(p.w->node[1].ring_out || p.w->node[0].staging_out);
	assert_int_equal(link_of(&p, 0)->mask + 1, p.w->options.ring_lines);
	assert_int_equal(link_of(&p, 1)->ring_mask + 1, p.w->options.ring_lines);
	world_run(p.w, 500);
	assert_small(&p);
	assert_int_equal(withdrawn(&p, 1), 2);
}

/* Messages of any length, both ways, between rests of any length. */
static void
test_under_traffic(void **state)
{
	static const uint32_t lengths[] = {0, 48, 900, 8192, 3000, 48, 30000};
	uint64_t left = 0, again = 0;

	for (unsigned seed = 0; seed < 24; seed++) {
		struct pair p =
		    PAIR(1, .delay_ns = 700 * (seed % 5), .ring_idle_ns = 3000 + 9000 * (seed % 4),
			 .ring_lines = 512u << seed % 3);

		for (unsigned round = 0; round < 40; round++) {
			struct pconn *from = (round + seed) % 3 ? p.a : p.b;

			pconn_stream(from, from == p.a ? p.b : p.a, lengths[(round * 5 + seed) % 7],
				     0, 1 + round * 7 % 60);
			world_run(p.w, 1 + (round * 13 + seed) % 90);
		}
		world_run(p.w, 2000);
		assert_small(&p);
		left += withdrawn(&p, 0) + withdrawn(&p, 1);
		again += regained(&p, 0) + regained(&p, 1);
	}
	assert_true(left > 100 && again > 50);
}

/* Without memory it goes on with the small ring, and asks again. */
static void
test_no_memory(void **state)
{
	for (unsigned end = 0; end < 2; end++) {
		struct pair p = idle_pair(1000);
		uint32_t told = p.w->node[end].rings_told;
		uint64_t since = p.w->now;

		p.w->node[end].no_memory = true;
		pconn_stream(p.a, p.b, 900, 0, 1600);
		assert_true(p.w->node[end].rings_told > told);
		/* main is asked once per look: it would do nothing else */
		assert_true(p.w->node[end].rings_told - told <= (p.w->now - since) / IDLE + 2);
		/* the sender without memory uses a part of the ring that it was given */
		assert_int_equal(link_of(&p, 0)->mask + 1, ENGINE_RING_LEAST);
		assert_int_equal(link_of(&p, 1)->ring_mask + 1, ENGINE_RING_LEAST);
		assert_int_equal(link_of(&p, 1)->ring_least, end == 1);
		p.w->node[end].no_memory = false;
		world_run(p.w, 500);
		pconn_stream(p.a, p.b, 900, 0, 1600);
		assert_int_equal(link_of(&p, 1)->ring_mask + 1, p.w->options.ring_lines);
		assert_int_equal(link_of(&p, 0)->mask + 1, p.w->options.ring_lines);
	}
}

/* Nothing leaves behind LINK_LEFT before the peer has consumed it. */
static void
test_waits_when_left(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 4000, .ring_idle_ns = IDLE);
	struct peer_link *l = link_of(&p, 0);
	uint64_t end, sent = 0;

	STEP_MOST(p.w, 1000, l->way != WAY_LEFT);
	assert_int_equal(l->way, WAY_LEFT);
	end = l->left_at;
	for (; l->way == WAY_LEFT; world_step(p.w)) {
		assert_int_equal(l->tx_pos, end);
		sent += pconn_send(p.a, 100, 0);
	}
	assert_true(sent > 2);
	assert_true(l->credited >= end);
	world_run(p.w, 200);
	assert_int_equal(pconn_completed(p.a), sent);
}

/* Nor does the engine turn for that, also if credit of receive WRs comes meanwhile. */
static void
test_sleeps_when_left(void **state)
{
	struct pair p = idle_pair(4000);
	struct peer_link *l = link_of(&p, 0);

	for (unsigned i = 0; i < 1000 && l->way != WAY_LEFT; i++) {
		pconn_fill(p.a, 900);
		world_step(p.w);
	}
	assert_int_equal(l->way, WAY_LEFT);
	STEP_MOST(p.w, 5, list_empty(&l->active));
	assert_false(list_empty(&l->active));
	assert_true(
	    link_credit(p.w->node[0].engine, l, l->credited, l->wrs_credited + 1, l->executed));
	assert_false(l->stalled);
	assert_true(l->credited < l->left_at);
	assert_false(link_is_pressing(l));
	world_run(p.w, 500);
	assert_int_equal(regained(&p, 1), 1);
}

static void
inject(struct pair *p, uint8_t op, uint32_t length, uint32_t vqpn)
{
	struct weir_wire_ring ring = {4096, 7, length};
	struct weir_slot line = {.op = op, .vqpn = vqpn};

	if (op == WEIR_WIRE_LINK_RING)
		memcpy(line.data, &ring, sizeof(ring));
	else
		line.length = length;
	link_inject(link_of(p, 1), &p->w->node[1].qp[0], &line, 1, NULL, 0);
	world_turn(p->w, 1);
}

static void
test_bad_lines(void **state)
{
	static const struct {
		bool offered;
		uint8_t op;
		uint32_t length, times, vqpn;
	} rows[] = {
	    {.op = WEIR_WIRE_LINK_LEFT, .length = 256}, /* nobody has offered a ring */
	    {.op = WEIR_WIRE_LINK_LEFT, .length = 512, .offered = true}, /* larger than offered */
	    {.op = WEIR_WIRE_LINK_LEFT, .length = 128, .offered = true},
	    {.op = WEIR_WIRE_LINK_LEFT, .length = 255, .offered = true},
	    {.op = WEIR_WIRE_LINK_RING, .length = 128},
	    {.op = WEIR_WIRE_LINK_RING, .length = 1000},
	    {.op = WEIR_WIRE_LINK_RING, .length = 1 << 17},
	    {.op = WEIR_WIRE_LINK_RING, .length = 256, .vqpn = 3},
	    {.op = WEIR_WIRE_LINK_RING,
	     .length = 256,
	     .times = 1}, /* before the first is left for */
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pair p =
		    PAIR(1, .delay_ns = 3000, .ring_idle_ns = rows[i].offered ? IDLE : 1000 * IDLE);

		if (rows[i].offered) {
			STEP_MOST(p.w, 1000, link_of(&p, 1)->ring_state != RING_OFFERED);
			world_turn(p.w, 1); /* LINK_RING has left */
		}
		for (unsigned n = 0; n <= rows[i].times; n++)
			inject(&p, rows[i].op, rows[i].length, rows[i].vqpn);
		world_turn(p.w, 1);
		world_events(p.w);
		assert_int_equal(p.w->node[1].link_errors, 1);
		assert_int_equal(p.w->node[1].link_error, EPROTO);
		world_links_fail(p.w, EHOSTDOWN);
		world_run(p.w, 20);
	}
}

/* Memory that main has made for a link which ends meanwhile: no line follows the last one. */
static void
test_ends_meanwhile(void **state)
{
	struct pair p = idle_pair(1000);
	struct engine_command k = {.type = ENGINE_LINK_STAGING, .link = p.w->node[1].link};
	struct peer_link *l = link_of(&p, 1);

	pair_close(&p, 200);
	p.w->node[1].full = true;
	inject(&p, WEIR_WIRE_LINK_RING, p.w->options.ring_lines, 0);
	assert_int_equal(l->way, WAY_ASKED);
	inject(&p, WEIR_WIRE_LINK_CLOSE, 0, 0);
	assert_int_equal(l->end, LINK_AGREED);
	assert_int_equal(node_command(&p.w->node[1], &k), -EBUSY);
	assert_int_equal(l->lines_due & LINK_LINE_LEFT, 0);
	world_links_fail(p.w, EHOSTDOWN);
	world_run(p.w, 20);
}

/* Main has no memory for one that it was not asked for. */
static void
test_commands(void **state)
{
	struct pair p = idle_pair(1000);
	struct engine_command k = {.type = ENGINE_LINK_RING, .link = p.w->node[0].link};

	assert_int_equal(node_command(&p.w->node[0], &k), -EBUSY);
	k.type = ENGINE_LINK_STAGING;
	assert_int_equal(node_command(&p.w->node[0], &k), -EBUSY);
	k.link.link = 3;
	assert_int_equal(node_command(&p.w->node[0], &k), -ENOENT);
	k.type = ENGINE_LINK_RING;
	assert_int_equal(node_command(&p.w->node[0], &k), -ENOENT);
}

ENGINE_TESTS(TEST(test_comes_and_goes), TEST(test_under_traffic), TEST(test_no_memory),
	     TEST(test_waits_when_left), TEST(test_sleeps_when_left), TEST(test_bad_lines),
	     TEST(test_ends_meanwhile), TEST(test_commands))
