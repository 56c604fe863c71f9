/* SPDX-License-Identifier: BSD-3-Clause */
/* Adopted memory between two engines: sent out of, received into, taken away, misused. */
#include "worlds/engine_world.h"

#include "engine/region.h"
#include "engine/session.h"
#include "engine/state.h"

#define BYTES (4u << 20)
#define COUNT 8 /* of lengths */
#define BOTH (WEIR_ADOPT_SEND | WEIR_ADOPT_RECV)

static struct pair
pair_adopted(const struct world_options *o)
{
	struct pair p = pair_open(o, 1);

	program_adopt(p.pa, 1, BYTES, BOTH);
	program_adopt(p.pb, 2, BYTES, BOTH);
	return p;
}

/* Both programs leave; nothing of the engines refers to anything then. */
static void
pair_leave(struct pair *p)
{
	program_die(p->pa);
	program_die(p->pb);
	world_run(p->w, 2000);
	assert_true(p->pa->removed && p->pb->removed);
}

static void
arrive(struct pair *p, uint64_t messages)
{
	STEP_MOST(p->w, 20000, p->b->received < messages);
	assert_int_equal(p->b->received, messages);
}

static void
test_send_from(void **state)
{
	static const unsigned ways[] = {0, WEIR_SLOT_READ, WEIR_SLOT_WRITE};
	static const uint32_t lengths[] = {0, 1, 900, 8192, 8193, 65536, 65537, 1000000};
	struct pair p = pair_adopted(&(struct world_options){.delay_ns = 1500});

	for (unsigned i = 0; i < 3 * COUNT; i++) {
		pconn_push_from(p.a, WEIR_PLACE(1, 64 * i), lengths[i % COUNT], ways[i / COUNT]);
		arrive(&p, i + 1);
	}
	assert_true(p.w->net.reads && p.w->net.writes);
	assert_int_equal(p.b->placed, 0);
	pconn_push_from(p.a, WEIR_PLACE(1, BYTES - 50000), 50000, 0); /* to the last byte */
	arrive(&p, 3 * COUNT + 1);
	world_run(p.w, 100);
	assert_int_equal(pconn_completed(p.a), 3 * COUNT + 1);
	pair_leave(&p);
}

/* Small messages, which use the arena, between large ones, which use what was posted for them. */
static void
test_recv_into(void **state)
{
	struct pair p = pair_adopted(&(struct world_options){.delay_ns = 1500});
	uint32_t free_blocks = 1024;

	for (unsigned i = 0; i < 12; i++)
		pconn_post(p.b, WEIR_PLACE(2, i * 200000), i, 200000);
	world_run(p.w, 5);
	for (unsigned i = 0; i < 12; i++) {
		if (i % 3 == 1)
			pconn_push(p.a, 0, 100, 0);
		else
			pconn_push(p.a, 0, 200000 - i,
				   WEIR_SLOT_BULK | (i % 2 ? WEIR_SLOT_READ : 0u));
		world_run(p.w, 3);
	}
	arrive(&p, 12);
	assert_int_equal(p.b->placed, 8);
	world_run(p.w, 200);
	assert_int_equal(p.w->node[1].engine->sessions[p.pb->id].blocks.free, free_blocks);
	assert_int_equal(p.w->node[1].engine->sessions[p.pb->id].posted, 0);
	/* a late one, and one too small: to the arena */
	pconn_post(p.b, WEIR_PLACE(2, 0), 12, 9999);
	world_run(p.w, 5);
	pconn_push(p.a, 0, 10000, WEIR_SLOT_BULK);
	arrive(&p, 13);
	pconn_post(p.b, WEIR_PLACE(2, 0), 13, 10000);
	pconn_push(p.a, 0, 10000, WEIR_SLOT_BULK);
	arrive(&p, 14);
	assert_int_equal(p.b->placed, 9);
	pair_leave(&p);
}

/* A message larger than all receive memory together still fits posted memory. */
static void
test_beyond_the_arena(void **state)
{
	struct pair p = pair_adopted(&(struct world_options){.recv_blocks = 32});

	pconn_post(p.b, WEIR_PLACE(2, 4096), 0, 3000000);
	world_run(p.w, 5);
	pconn_push(p.a, 0, 3000000, WEIR_SLOT_BULK);
	arrive(&p, 1);
	assert_int_equal(p.b->placed, 1);
	/* a program that takes nothing out of its ring, and no memory left for spills */
	pair_leave(&p);
}

/* A slow consumer: its receive memory is full, posted memory takes what comes. */
static void
test_slow_consumer(void **state)
{
	struct pair p = pair_adopted(&(struct world_options){.recv_blocks = 40});

	p.b->keep_blocks = true;
	for (unsigned i = 0; i < 6; i++) {
		if (i >= 2)
			pconn_post(p.b, WEIR_PLACE(2, i * 300000), i, 300000);
		world_run(p.w, 5);
		pconn_push(p.a, 0, i < 2 ? 100000 : 300000, WEIR_SLOT_BULK);
	}
	arrive(&p, 6);
	assert_int_equal(p.b->placed, 4);
	program_release_held(p.pb);
	pair_leave(&p);
}

/* Places are checked by 64-bit sums: at the borders of the largest region, and beyond them. */
static void
test_places(void **state)
{
	static uint8_t base;
	struct region regions[] = {{.base = &base, .bytes = WEIR_REGION_BYTES_MAX, .flags = BOTH},
				   {.base = &base, .bytes = 5ull << 30, .flags = WEIR_ADOPT_RECV}};
	const struct session s = {.regions = regions, .region_count = 2};
	const uint64_t end = WEIR_REGION_BYTES_MAX;

	assert_ptr_equal(region_at(&s, WEIR_PLACE(1, 0), end, WEIR_ADOPT_SEND), &base);
	assert_ptr_equal(region_at(&s, WEIR_PLACE(1, end - 1), 1, WEIR_ADOPT_RECV),
			 &base + (end - 1));
	assert_ptr_equal(region_at(&s, WEIR_PLACE(1, end), 0, WEIR_ADOPT_RECV), &base + end);
	assert_null(region_at(&s, WEIR_PLACE(1, end - 1), 2, WEIR_ADOPT_RECV));
	assert_null(region_at(&s, WEIR_PLACE(1, 1), end, WEIR_ADOPT_RECV));
	assert_null(region_at(&s, WEIR_PLACE(1, end + 1), 0, WEIR_ADOPT_RECV));
	assert_null(region_at(&s, WEIR_PLACE(1, 8), UINT64_MAX - 7, WEIR_ADOPT_RECV));
	assert_null(region_at(&s, WEIR_PLACE(2, 0), 1ull << 32 | 64, WEIR_ADOPT_SEND));
	assert_ptr_equal(region_at(&s, WEIR_PLACE(2, 64), 5ull << 30 >> 1, WEIR_ADOPT_RECV),
			 &base + 64);
	assert_null(region_at(&s, WEIR_PLACE(2, 64), 5ull << 30, WEIR_ADOPT_RECV));
	assert_null(region_at(&s, WEIR_PLACE(3, 0), 0, WEIR_ADOPT_RECV));
	assert_null(region_at(&s, WEIR_PLACE(0, 0), 0, WEIR_ADOPT_RECV));
}

/* Disowned while a message is sent out of it, and while one is on its way into it. */
static void
test_disown_under_way(void **state)
{
	for (unsigned k = 0; k < 4; k++) {
		unsigned side = k % 2, way = k / 2 ? WEIR_SLOT_READ : WEIR_SLOT_WRITE;
		struct pair p = pair_adopted(&(struct world_options){.delay_ns = 20000});

		pconn_post(p.b, WEIR_PLACE(2, 0), 0, 1 << 20);
		world_run(p.w, 5);
		pconn_push_from(p.a, WEIR_PLACE(1, 0), 1 << 20, way);
		STEP_WHILE(p.w, p.w->net.bytes < 400000);
		program_disown(side ? p.pb : p.pa, side + 1);
		assert_false(side ? p.pb->disowned[1] : p.pa->disowned[0]);
		arrive(&p, 1);
		world_run(p.w, 200);
		assert_true(side ? p.pb->disowned[1] : p.pa->disowned[0]);
		assert_int_equal(p.b->placed, 1);
		pair_leave(&p);
	}
}

/*
 * The sender gives the connection up while the peer reads its message: the NIC keeps that memory
 * until the peer has sent its last line.
 */
static void
test_disown_lent(void **state)
{
	struct pair p = pair_adopted(&(struct world_options){.delay_ns = 20000});
	struct weir_slot rubbish = {.op = 200, .vqpn = p.a->vqpn};

	pconn_push_from(p.a, WEIR_PLACE(1, 0), 1 << 20, WEIR_SLOT_READ);
	STEP_WHILE(p.w, p.w->net.reads < 4);
	program_slot(p.pa, 0, &rubbish);
	world_run(p.w, 2);
	assert_true(p.pa->violated);
	program_disown(p.pa, 1);
	assert_false(p.pa->disowned[0]);
	world_run(p.w, 1000);
	assert_true(p.pa->disowned[0] && p.b->done);
	assert_int_equal(p.b->received, 0);
	pair_leave(&p);
}

/* Posted and never used: disowning doesn't wait for it; messages come to the arena then. */
static void
test_disown_posted(void **state)
{
	struct pair p = pair_adopted(NULL);

	program_adopt(p.pb, 1, 65536, WEIR_ADOPT_RECV);
	pconn_post(p.b, WEIR_PLACE(2, 0), 0, 65536);
	pconn_post(p.b, WEIR_PLACE(1, 0), 1, 65536);
	pconn_post(p.b, WEIR_PLACE(2, 0), 2, 65536);
	world_run(p.w, 5);
	program_disown(p.pb, 2);
	assert_true(p.pb->disowned[1]);
	for (unsigned i = 0; i < 3; i++)
		pconn_push(p.a, 0, 30000, WEIR_SLOT_BULK);
	arrive(&p, 3);
	assert_int_equal(p.b->placed, 1);
	pair_leave(&p);
}

/* The program dies: its memory is the NIC's until the peer has acknowledged, or is down. */
static void
test_dies_under_post(void **state)
{
	for (unsigned down = 0; down < 2; down++) {
		struct pair p = pair_adopted(&(struct world_options){.delay_ns = 20000});

		pconn_post(p.b, WEIR_PLACE(2, 0), 0, 1 << 20);
		world_run(p.w, 5);
		pconn_push_from(p.a, WEIR_PLACE(1, 0), 1 << 20, 0);
		STEP_WHILE(p.w, p.w->net.bytes < 400000);
		program_die(p.pb);
		program_disown(p.pb, 2);
		world_run(p.w, 2);
		assert_false(p.pb->removed || p.pb->disowned[1]);
		if (down) {
			world_links_fail(p.w, EHOSTDOWN);
		}
		STEP_WHILE(p.w, !p.pb->removed);
		fake_mr_end(&p.w->net, &p.pb->view.recv_mr);
		world_run(p.w, 2000);
		assert_true(p.pb->disowned[1] && p.a->done);
		assert_int_equal(pconn_completed(p.a), 0);
		program_ends(p.pa, 2000);
	}
}

/* The sender ends with what was posted unused: it is forgotten with the connection. */
static void
test_peer_leaves(void **state)
{
	struct pair p = pair_adopted(NULL);

	for (unsigned i = 0; i < 20; i++)
		pconn_post(p.b, WEIR_PLACE(2, i * 10000), i, 10000);
	world_run(p.w, 5);
	assert_int_equal(p.w->node[1].engine->sessions[p.pb->id].posted, 20);
	pconn_close(p.a);
	world_run(p.w, 100);
	assert_true(p.b->done);
	assert_int_equal(p.w->node[1].engine->sessions[p.pb->id].posted, 0);
	pconn_post(p.b, WEIR_PLACE(2, 0), 20, 10000); /* as when it doesn't know yet */
	pconn_close(p.b);
	world_run(p.w, 100);
	pconn_post(p.b, WEIR_PLACE(2, 0), 21, 10000);
	world_run(p.w, 100);
	assert_false(p.pb->violated);
	pair_leave(&p);
}

/* No more than a quarter of the slots that may wait; what is beyond goes to the arena. */
static void
test_too_many(void **state)
{
	struct pair p = pair_adopted(&(struct world_options){.pending = 64});

	for (unsigned i = 0; i < 20; i++)
		pconn_post(p.b, WEIR_PLACE(2, i * 10000), i, 10000);
	world_run(p.w, 5);
	assert_int_equal(p.w->node[1].engine->sessions[p.pb->id].posted, 16);
	for (unsigned i = 0; i < 20; i++) {
		pconn_push(p.a, 0, 9000, WEIR_SLOT_BULK);
		world_run(p.w, 20);
	}
	arrive(&p, 20);
	assert_int_equal(p.b->placed, 16);
	pair_leave(&p);
}

/* Each kind of rule broken ends the session, and no byte is written where it may not be. */
static void
test_bad_places(void **state)
{
	for (unsigned kind = 0, kinds = 1; kind < kinds; kind++) {
		struct pair p = pair_adopted(NULL);
		const struct {
			weir_place place;
			uint64_t number;
			uint32_t length; /* 0: 20000 */
			uint8_t op;	 /* 0: POST */
			uint16_t disowns;
			bool posted, misplaced; /* number 5 before it; in the wrong ring */
		} rows[] = {
		    {WEIR_PLACE(2, BYTES - 19999)},
		    {WEIR_PLACE(2, (1ull << 48) - 1)},
		    {WEIR_PLACE(4, 0)}, /* beyond the table */
		    {WEIR_PLACE(65535, 0)},
		    {weir_arena_recv(&p.pb->view.geometry)},
		    {WEIR_PLACE(1, 0)}, /* for sending only */
		    {WEIR_PLACE(2, 0), .length = UINT32_MAX},
		    {WEIR_PLACE(2, 0), .number = 5, .posted = true}, /* not forward */
		    {WEIR_PLACE(2, 0), .number = UINT64_MAX},
		    {WEIR_PLACE(2, 0), .disowns = 2},
		    {WEIR_PLACE(2, 0), .misplaced = true},
		    {WEIR_PLACE(3, 0), .op = WEIR_OP_PLACE}, /* for receiving only */
		};
		struct weir_slot s = {.op = rows[kind].op ? rows[kind].op : WEIR_OP_POST,
				      .vqpn = p.b->vqpn,
				      .length = rows[kind].length ? rows[kind].length : 20000,
				      .place = {rows[kind].place, rows[kind].number}};

		kinds = sizeof(rows) / sizeof(rows[0]);
		program_adopt(p.pb, 1, 65536, WEIR_ADOPT_SEND);
		program_adopt(p.pb, 3, 65536, WEIR_ADOPT_RECV);
		if (rows[kind].posted)
			pconn_post(p.b, WEIR_PLACE(2, 0), 5, 100);
		if (rows[kind].disowns)
			program_disown(p.pb, rows[kind].disowns);
		if (rows[kind].misplaced)
			ring_put(&p.pb->tx[0], &s);
		else
			program_slot(p.pb, 0, &s);
		pconn_push(p.a, 0, 15000, WEIR_SLOT_BULK);
		world_run(p.w, 1000);
		assert_true(p.pb->violated);
		assert_true(p.a->done);
		pair_leave(&p);
	}
}

ENGINE_TESTS(TEST(test_send_from), TEST(test_recv_into), TEST(test_beyond_the_arena),
	     TEST(test_slow_consumer), TEST(test_places), TEST(test_disown_under_way),
	     TEST(test_disown_posted), TEST(test_dies_under_post), TEST(test_peer_leaves),
	     TEST(test_too_many), TEST(test_disown_lent), TEST(test_bad_places))
