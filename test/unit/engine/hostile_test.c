/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs that break the rules: they lose their session, nobody else. Peers that do:
 * peer_test.c. */
#include "worlds/engine_world.h"

#include "engine/channel.h"
#include "engine/session.h"

/* After what a hostile program did: it is found out, its peer learns it, the others go on. */
static void
assert_caught(struct pair *p)
{
	world_run(p->w, 1000);
	assert_true(p->pa->violated);
	assert_int_equal(atomic_load(&p->pa->view.violation), EPROTO);
	assert_closed(p->b, ECONNRESET);
	honest_traffic(p);
	program_ends(p->pa, 200);
	honest_traffic(p);
}

/* Of slots whose row names neither: the program's connection, the send heap. */
static void
test_bad_messages(void **state)
{
	for (unsigned kind = 0, kinds = 1; kind < kinds; kind++) {
		struct pair p = pair_with_honest();
		const struct weir_geometry *g = &p.pa->view.geometry;
		struct weir_slot slots[] = {
		    {.op = WEIR_OP_INLINE, .length = WEIR_INLINE_MAX + 1},
		    {.op = WEIR_OP_INLINE, .length = 10, .flags = WEIR_SLOT_BULK},
		    {.op = WEIR_OP_PLACE, .length = 1000, .place = {weir_arena_recv(g)}},
		    {.op = WEIR_OP_PLACE,
		     .length = 1000,
		     .place = {WEIR_PLACE(1, weir_arena_send(g))}},
		    {.op = WEIR_OP_PLACE, .length = 1000, .place = {weir_arena_end(g) - 999}},
		    {.op = WEIR_OP_PLACE, .length = 1000, .place = {(1ull << 48) - 500}},
		    {.op = WEIR_OP_PLACE, .length = WEIR_MESSAGE_MAX + 1},
		    {.op = WEIR_OP_PLACE, .length = UINT32_MAX},
		    {.op = 3, .length = 1000, .place = {weir_arena_send(g)}},
		    {.op = WEIR_OP_OPENED, .length = 1000, .place = {weir_arena_send(g)}},
		    /* connections: another session's, beyond the table, another generation */
		    {.op = WEIR_OP_PLACE, .length = 1000, .vqpn = p.x->vqpn},
		    {.op = WEIR_OP_PLACE, .length = 1000, .vqpn = 5000},
		    {.op = WEIR_OP_INLINE, .length = UINT32_MAX, .vqpn = WEIR_VQPN(100, 3)},
		    /* the seven before it are nowhere */
		    {.op = WEIR_OP_PLACE, .length = 1000, .order = 7},
		    /* transfers: one that doesn't take it, two, or none of its kind */
		    {.op = WEIR_OP_INLINE, .length = 10, .flags = WEIR_SLOT_READ},
		    {.op = WEIR_OP_PLACE,
		     .length = 1000,
		     .flags = WEIR_SLOT_BULK | WEIR_SLOT_READ | WEIR_SLOT_WRITE},
		    {.op = WEIR_OP_PLACE, .length = 1000, .flags = WEIR_SLOT_READ},
		    {.op = WEIR_OP_PLACE, .length = 1000, .flags = WEIR_SLOT_BULK | WEIR_SLOT_RING},
		    {.op = WEIR_OP_PLACE, .length = 10000, .flags = WEIR_SLOT_RING},
		    {.op = WEIR_OP_PLACE, .length = 1921, .flags = WEIR_SLOT_SEND},
		    {.op = WEIR_OP_PLACE, .length = 1000, .flags = WEIR_SLOT_SEND | WEIR_SLOT_RING},
		};
		struct weir_slot *s = &slots[kind];

		kinds = sizeof(slots) / sizeof(slots[0]);
		s->vqpn = s->vqpn ? s->vqpn : p.a->vqpn;
		if (s->op == WEIR_OP_PLACE && !s->place[0])
			s->place[0] = weir_arena_send(g);
		program_slot(p.pa, 0, s);
		assert_caught(&p);
	}
}

/* Messages that the program has, or had, when it gives back a block that it may not. */
enum had { NOTHING, ONE_RELEASED, A_RUN };

static void
test_bad_control(void **state)
{
	for (unsigned kind = 0, kinds = 1; kind < kinds; kind++) {
		struct pair p = pair_with_honest();
		const struct weir_geometry *g = &p.pa->view.geometry;
		const weir_place recv = weir_arena_recv(g);
		struct {
			struct weir_slot slot;
			enum had had;
			struct weir_ring *ring; /* NULL: the one for it */
		} rows[] = {
		    /* a block that is not out; bad counts and places */
		    {{.op = WEIR_OP_RELEASE, .length = 1, .place = {recv}}},
		    {{.op = WEIR_OP_RELEASE, .length = 0, .place = {recv}}},
		    {{.op = WEIR_OP_RELEASE, .length = 7, .place = {recv}}},
		    {{.op = WEIR_OP_RELEASE, .length = 1, .place = {recv + 64}}},
		    {{.op = WEIR_OP_RELEASE, .length = 1, .place = {weir_arena_send(g)}}},
		    {{.op = WEIR_OP_RELEASE, .length = 1, .place = {WEIR_PLACE(3, recv)}}},
		    {{.op = WEIR_OP_RELEASE, .length = 1, .place = {0}}},
		    {{.op = WEIR_OP_CONSUMED, .value = 64}},
		    {{.op = WEIR_OP_CONSUMED, .length = 64}}, /* on loan */
		    {{.op = WEIR_OP_CLOSE, .length = 1, .vqpn = p.x->vqpn, .place = {recv}}},
		    {{.op = 255, .length = 1, .place = {recv}}},
		    /* the same block twice; the inside of a run */
		    {{.op = WEIR_OP_RELEASE, .length = 1, .place = {recv}}, ONE_RELEASED},
		    {{.op = WEIR_OP_RELEASE, .length = 1, .place = {WEIR_BLOCK_SIZE}}, A_RUN},
		    /* of another program; in the wrong ring */
		    {{.op = WEIR_OP_CONSUMED, .vqpn = p.x->vqpn, .length = 1}},
		    {{.op = WEIR_OP_CONSUMED, .length = 1}, .ring = &p.pa->tx[0]},
		    {{.op = WEIR_OP_WANT, .length = 1, .place = {recv}}, .ring = &p.pa->returns[0]},
		};
		struct weir_slot *s = &rows[kind].slot;

		kinds = sizeof(rows) / sizeof(rows[0]);
		s->vqpn = s->vqpn ? s->vqpn : p.a->vqpn;
		if (rows[kind].had == ONE_RELEASED) {
			pconn_send(p.b, 5000, 0);
			world_run(p.w, 50);
			p.pa->stopped = true;
			pconn_send(p.b, 5000, 0);
			assert_receives(p.a, 50, 1);
			program_slot(p.pa, 0, s);
		} else if (rows[kind].had == A_RUN) {
			p.a->keep_blocks = true;
			pconn_send(p.b, 30000, 0);
			world_run(p.w, 100);
			s->place[0] += p.pa->held[0].place;
		}
		if (rows[kind].ring)
			ring_put(rows[kind].ring, s);
		else
			program_slot(p.pa, 0, s);
		assert_caught(&p);
	}
}

static void
test_after_close(void **state)
{
	struct pair p = pair_with_honest();

	pconn_push(p.a, 0, 10, 0);
	pconn_close(p.a);
	pconn_push(p.a, 0, 10, 0);
	world_run(p.w, 100);
	assert_true(p.pa->violated);
	/* the entry has gone meanwhile: then it is only stray */
	pconn_push(p.x, 0, 10, 0);
	pconn_ends(p.x, 200);
	pconn_push(p.x, 0, 10, 0);
	pconn_close(p.x);
	world_run(p.w, 20);
	assert_false(p.honest->violated);
	assert_true(node_counters(p.w, 0)->stray > 0);
}

/* The end of messages: twice, before a message, after a close, for another's or a local connection.
 */
static void
test_bad_end(void **state)
{
	for (unsigned kind = 0; kind < 5; kind++) {
		struct pair p = pair_with_honest();
		struct weir_slot s = {.op = WEIR_OP_END, .vqpn = p.x->vqpn};

		if (kind == 3)
			pconn_close(p.a);
		if (kind == 4)
			program_slot(p.pa, 0, &s);
		else
			pconn_shut(p.a);
		if (kind == 0)
			pconn_shut(p.a);
		else if (kind == 1)
			pconn_push(p.a, 0, 10, 0);
		else if (kind == 2)
			pconn_push(p.a, 0, 5000, 0);
		world_run(p.w, 200);
		assert_true(p.pa->violated);
		assert_int_equal(atomic_load(&p.pa->view.violation), EPROTO);
		honest_traffic(&p);
		program_ends(p.pa, 200);
		assert_true(p.b->done);
		honest_traffic(&p);
	}
}

static void
test_lying_tail(void **state)
{
	for (unsigned kind = 0; kind < 2; kind++) {
		struct pair p = pair_with_honest();
		struct weir_channel_head *head =
		    (void *)(p.pa->arena + weir_arena_channel(&p.pa->view.geometry, 0));

		pconn_tries(p.b, 10, 3000, 2);
		p.pa->stopped = true;
		atomic_store(&head->rx_tail, kind ? 100000 : 3);
		for (unsigned i = 0; i < 2000 && !p.pa->violated; i++) {
			pconn_send(p.b, 10, 0);
			world_step(p.w);
		}
		assert_caught(&p);
	}
}

/* It writes into the slots that wait in its receive memory. */
static void
test_scribbles_in_spills(void **state)
{
	for (unsigned kind = 0; kind < 3; kind++) {
		struct pair p = pair_with_honest();
		const struct weir_geometry *g = &p.pa->view.geometry;
		uint8_t *recv = p.pa->arena + weir_arena_recv(g);

		for (unsigned i = 0; i < 600; i++) { /* the window has to grow beyond the ring */
			pconn_send(p.b, 500, 0);
			world_run(p.w, 2);
		}
		p.pa->stopped = true;
		pconn_tries(p.b, 10, 800, 1);
		assert_true(node_counters(p.w, 0)->spilled > 0);
		for (size_t i = 0; i < g->recv_blocks * (size_t)WEIR_BLOCK_SIZE; i++)
			recv[i] = kind == 0 ? 0xff : kind == 1 ? 0 : (uint8_t)(i * 131 >> 3);
		/* and lets it all be replayed */
		for (unsigned i = 0; i < 400; i++) {
			struct weir_channel_head *head =
			    (void *)(p.pa->arena + weir_arena_channel(g, 0));
			struct channel *ch = &p.w->node[0].engine->sessions[p.pa->id].channels[0];

			if (!p.pa->violated)
				atomic_store(&head->rx_tail, ch->rx.pos);
			world_step(p.w);
		}
		honest_traffic(&p);
		program_ends(p.pa, 500);
	}
}

/* The quota of waiting slots is per session; what gives memory back is still heard. */
static void
test_quota(void **state)
{
	struct pair p = pair_with_honest();
	struct weir_slot s = {.op = WEIR_OP_RELEASE, .length = 1};

	p.a->keep_blocks = true;
	pconn_send(p.b, 30000, 0);
	world_run(p.w, 100);
	assert_int_equal(p.pa->held_count, 1);
	p.pb->stopped = true;
	for (unsigned i = 0; i < 2000; i++) {
		if (p.w->node[0].engine->sessions[0].pool_used < 1020)
			while (weir_ring_refresh(&p.pa->tx[0]) &&
			       weir_ring_room(&p.pa->tx[0]) > 30 && pconn_push(p.a, 0, 900, 0))
				;
		world_step(p.w);
	}
	assert_true(p.w->node[0].engine->sessions[0].pool_used > 1000);
	s.place[0] = p.pa->held[0].place;
	program_slot(p.pa, 0, &s);
	world_run(p.w, 5);
	assert_int_equal(p.w->node[0].engine->sessions[0].blocks.free,
			 p.pa->view.geometry.recv_blocks);
	p.pb->stopped = false;
	assert_receives(p.b, 20000, p.a->sent);
	honest_traffic(&p);
}

/* To the slot: one more would lie behind the memory of those that wait. */
static void
test_quota_is_exact(void **state)
{
	struct pair p = pair_with_honest();
	const struct session *s = &p.w->node[0].engine->sessions[0];

	p.pb->stopped = true;
	for (unsigned i = 0; i < 2000; i++) {
		while (weir_ring_refresh(&p.pa->tx[0]) && weir_ring_room(&p.pa->tx[0]) > 30 &&
		       pconn_push(p.a, 0, 10, 0))
			;
		world_step(p.w);
		assert_true(s->pool_used <= s->pool_size);
	}
	assert_int_equal(s->pool_used, s->pool_size);
	p.pb->stopped = false;
	assert_receives(p.b, 20000, p.a->sent);
}

/* Threads of a program: messages of one connection in several channels keep their order. */
static void
test_order_across_channels(void **state)
{
	struct pair p = pair_with_honest();
	unsigned sent = 0;

	for (unsigned i = 0; i < 3000; i++) {
		for (unsigned k = 0; k < 5; k++)
			sent += pconn_push(p.a, (i * 7 + k * 3) / 4 % 2, i % 200, 0);
		world_step(p.w);
	}
	world_run(p.w, 3000);
	assert_false(p.pa->violated);
	assert_int_equal(p.b->received, sent);
}

/* Random slots from a program, in both channels. */
static void
test_random_slots(void **state)
{
	uint32_t r = 777;

	for (unsigned round = 0; round < 40; round++) {
		struct pair p = pair_with_honest();

		for (unsigned i = 0; i < 60 && !p.pa->violated; i++) {
			struct weir_slot s;

			for (unsigned k = 0; k < 16; k++)
				((uint32_t *)(void *)&s)[k] = next_random(&r);
			s.op = next_random(&r) % 8 ? (uint8_t)(next_random(&r) % 2 + 1)
						   : (uint8_t)(16 + next_random(&r) % 5);
			s.vqpn = p.a->vqpn;
			s.order = (uint16_t)p.a->sent;
			s.length = next_random(&r) % 4 ? next_random(&r) % 900 : s.length % 20000;
			s.flags = s.op == WEIR_OP_INLINE ? 0 : s.flags & 3;
			if (s.op == WEIR_OP_PLACE)
				s.place[0] = weir_arena_send(&p.pa->view.geometry) +
					     next_random(&r) % 100000;
			if (next_random(&r) % 50 == 0)
				s.length = next_random(&r);
			p.a->sent += s.op < 16;
			program_slot(p.pa, next_random(&r) % 8 ? 0 : 1, &s);
			p.pb->stopped = true;
			world_run(p.w, 2);
		}
		program_die(p.pa);
		p.w->step_ns = 1000000;
		world_run(p.w, 800);
		assert_true(p.pa->removed);
	}
}

ENGINE_TESTS(TEST(test_bad_messages), TEST(test_bad_control), TEST(test_after_close),
	     TEST(test_bad_end), TEST(test_lying_tail), TEST(test_scribbles_in_spills),
	     TEST(test_quota), TEST(test_quota_is_exact), TEST(test_order_across_channels),
	     TEST(test_random_slots))
