/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive memory: a connection that waits for more holds none, so that the others go on. */
#include "worlds/engine_world.h"

#include "engine/channel.h"
#include "engine/conn.h"
#include "engine/rndv.h"
#include "engine/state.h"

static struct conn *
conn_of(struct pconn *c)
{
	return conn_find(c->p->w->node[c->p->node].engine, c->vqpn);
}

/* A window that takes most of the memory, and then a bulk message that needs it. */
static void
test_bulk_behind_its_window(void **state)
{
	struct world *w = WORLD(.recv_blocks = 64);
	struct pconn *a, *b;

	world_connect(program_open(w, 0, 1), program_open(w, 1, 1), &a, &b);
	for (unsigned i = 0; i < 20000 && conn_of(b)->rx_window < 24 * WEIR_BLOCK_SIZE; i++) {
		pconn_fill(a, 64);
		world_step(w);
	}
	world_run(w, 50);
	assert_true(pconn_granted(a) - a->spent > 20 * WEIR_BLOCK_SIZE);
	assert_true(pconn_send(a, 45 * WEIR_BLOCK_SIZE, 0));
	assert_true(pconn_send(a, 8192, 0));
	assert_true(pconn_send(a, 64, 0));
	assert_receives(b, 3000, a->sent);
}

/* The memory is shared out in pieces each of which is too small for a message. */
static void
test_pieces_too_small(void **state)
{
	enum { N = 16 };
	struct world *w = WORLD(.recv_blocks = N, .initial_grant = 8192);
	struct program *pa = program_open(w, 0, 1), *pb = program_open(w, 1, 1);
	struct pconn *a[N], *b[N];

	for (unsigned i = 0; i < N; i++)
		world_connect(pa, pb, &a[i], &b[i]);
	for (unsigned i = 0; i < N; i++)
		assert_true(pconn_push(a[i], 0, 8192, 0));
	world_run(w, 256 * 2 * N);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(b[i]->received, 1);
}

/* A place for a bulk message that isn't the next leaves memory for those before it. */
static void
test_places_out_of_turn(void **state)
{
	struct world *w = WORLD(.recv_blocks = 64);
	struct weir_wire_rts rts = {.number = 1, .ways = WEIR_RTS_WRITE};
	struct pconn *a, *b;
	struct conn *c;

	world_connect(program_open(w, 0, 1), program_open(w, 1, 1), &a, &b);
	c = conn_of(b);
	assert_true(bulk_asked(w->node[1].engine, c, &rts, 40 * WEIR_BLOCK_SIZE));
	assert_int_equal(c->cold->rts[0].state, RTS_WAITING);
	assert_true(pconn_send(a, 64, 0));
	assert_receives(b, 2 * HOUSEKEEPING, 1);
	assert_int_not_equal(c->cold->rts[0].state, RTS_WAITING); /* it is the next now */
}

/* A channel full of messages that can't leave gives memory and credit back as ever. */
static void
test_returns_pass_messages(void **state)
{
	struct world *w = WORLD(.ring_slots = 64, .pending = 64, .recv_blocks = 64);
	struct program *p = program_open(w, 0, 1), *slow = program_open(w, 1, 1);
	struct pconn *a, *b, *x, *y;

	world_connect(p, slow, &a, &b);
	world_connect(p, program_open(w, 1, 1), &x, &y);
	slow->stopped = true;
	for (unsigned i = 0; i < 2000; i++) {
		while (pconn_push(a, 0, 10, 0))
			;
		world_step(w);
	}
	for (unsigned i = 0; i < 4000; i++) {
		while (pconn_push(a, 0, 10, 0))
			;
		pconn_send(y, i % 2 ? 8192 : 64, 0);
		world_step(w);
	}
	world_run(w, 100);
	assert_true(x->received > 1000);
	assert_int_equal(x->received, y->sent);
	assert_true(w->node[0].engine->sessions[p->id].channels[0].blocked);
	slow->stopped = false;
	assert_receives(b, 20000, a->sent);
}

/* Memory that stays full is told once, and again when it was free for a while. Nothing is lost. */
static void
test_full_is_told(void **state)
{
	struct world *w = WORLD(.recv_blocks = 64);
	struct program *slow = program_open(w, 1, 1);
	struct node *n = &w->node[1];
	struct pconn *a, *b;

	world_connect(program_open(w, 0, 1), slow, &a, &b);
	for (unsigned round = 1; round <= 3; round++) {
		slow->stopped = true;
		pconn_sends(a, 20 * WEIR_BLOCK_SIZE, 0, 4);
		world_run(w, 2000);
		assert_int_equal(n->full_told, round == 3 ? 2 : round - 1);
		w->step_ns = 1000000; /* a long time passes */
		world_run(w, 600);
		assert_int_equal(n->full_told, round == 3 ? 2 : round);
		slow->stopped = false;
		assert_receives(b, 600, a->sent);
		if (round == 1)
			world_run(w, 12000);
		w->step_ns = 500;
		world_run(w, 2 * HOUSEKEEPING);
	}
	assert_int_equal(node_counters(w, 1)->receive_full, 2);
}

ENGINE_TESTS(TEST(test_bulk_behind_its_window), TEST(test_pieces_too_small),
	     TEST(test_places_out_of_turn), TEST(test_returns_pass_messages),
	     TEST(test_full_is_told))
