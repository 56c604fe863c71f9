/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way messages go between two engines: as they are told to, or as size, load and memory say.
 */
#include "worlds/engine_world.h"

#include "engine/conn.h"
#include "engine/link.h"
#include "engine/rndv.h"
#include "engine/session.h"

#define READ (WEIR_SLOT_BULK | WEIR_SLOT_READ)
#define WRITE (WEIR_SLOT_BULK | WEIR_SLOT_WRITE)

static struct engine_conn_record
record(const struct pair *p, unsigned node)
{
	struct engine_conn_record r;
	struct engine_snapshot s = {.conns = &r, .conn_room = 1};
	struct engine_command k = {.type = ENGINE_SNAPSHOT, .snapshot = &s};

	assert_true(engine_execute(p->w->node[node].engine, &k));
	assert_int_equal(s.conn_count, 1);
	return r;
}

/* One message from a to b; all it takes. */
#define one(p, length, flags) pconn_stream((p)->a, (p)->b, length, flags, 1)

/* Both ends agree about what went how. */
static void
assert_all_ways(const struct pair *p, uint64_t ring, uint64_t send, uint64_t read, uint64_t write)
{
	for (unsigned i = 0; i < 2; i++) {
		struct engine_conn_record r = record(p, i);

		assert_int_equal(r.by_ring, ring);
		assert_int_equal(r.by_read, read);
		assert_int_equal(r.by_write, write);
		assert_int_equal(r.by_send, send);
	}
}

static void
assert_ways(const struct pair *p, uint64_t ring, uint64_t read, uint64_t write)
{
	assert_all_ways(p, ring, 0, read, write);
}

static void
set_loads(const struct pair *p, uint32_t a, uint32_t b)
{
	engine_set_load(p->w->node[0].engine, a);
	engine_set_load(p->w->node[1].engine, b);
}

/* A message goes the way that its program names, whatever its size, among others, both ways. */
static void
test_told(void **state)
{
	static const uint32_t sizes[] = {0, 1, 48, 948, 949, 8192, 8193, 65536, 65537, 1 << 20};
	struct pair p = PAIR(1, .delay_ns = 1500);
	const unsigned n = sizeof(sizes) / sizeof(sizes[0]);

	for (unsigned i = 0; i < n; i++) {
		one(&p, sizes[i], READ);
		one(&p, sizes[i], WRITE | WEIR_SLOT_NOTIFY);
		one(&p, 10, WEIR_SLOT_RING);
		one(&p, sizes[i] % 1921, WEIR_SLOT_SEND);
	}
	assert_all_ways(&p, n, n, n, n);
	assert_in_range(p.w->net.sends, n, n);
	assert_true(p.w->net.reads >= n + 16 - 1);
	for (unsigned i = 0; i < n; i++) {
		pconn_send(p.a, sizes[i], READ);
		pconn_send(p.b, sizes[i], READ);
		pconn_send(p.a, 20, 0);
		pconn_send(p.b, 900, WEIR_SLOT_NOTIFY);
		pconn_send(p.b, 1900, WEIR_SLOT_SEND);
		pconn_send(p.a, 100, WEIR_SLOT_SEND | WEIR_SLOT_NOTIFY);
		pconn_send(p.a, 100, WEIR_SLOT_RING);
		world_step(p.w);
	}
	assert_receives(p.b, 4000, p.a->sent);
	assert_int_equal(p.a->received, p.b->sent);
	assert_int_equal(pconn_completed(p.a), p.a->sent);
	assert_int_equal(pconn_completed(p.b), p.b->sent);
}

/* Frames that are sent wrap the staging, wait for the window and take what else there is along. */
static void
test_sends(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 1000, .ring_lines = 256);
	uint32_t r = 1;

	world_connect(p.pa, p.pb, &p.x, &p.y);
	for (unsigned i = 0; i < 4000; i++) {
		r = r * 1103515245 + 12345;
		pconn_send(p.a, (r >> 16) % (r & 64 ? 1921 : 100), WEIR_SLOT_SEND);
		if (r & 128)
			pconn_send(p.x, (r >> 18) % 8193, r & 256 ? 0 : WEIR_SLOT_RING);
		if (r & 512)
			pconn_send(p.b, 1000, WEIR_SLOT_SEND);
		world_step(p.w);
	}
	assert_receives(p.b, 4000, p.a->sent);
	assert_int_equal(p.a->received, p.b->sent);
	assert_int_equal(p.y->received, p.x->sent);
	assert_int_equal(pconn_completed(p.a), p.a->sent);
	assert_true(p.a->sent > 1000 && p.x->sent > 500);
	assert_true(record(&p, 0).by_send >= p.a->sent / 2);
	assert_true(p.w->net.sends > 200 && p.w->net.write_imms > 200);
}

/* Several that arrive before the engine looks have a buffer each. */
static void
test_sends_at_once(void **state)
{
	struct pair p = PAIR(1);

	for (unsigned round = 0; round < 100; round++) {
		for (unsigned i = 0; i < 4; i++) {
			assert_true(pconn_send(p.a, 60 + i, WEIR_SLOT_SEND));
			world_turn(p.w, 0);
		}
		assert_receives(p.b, 50, 4 * (round + 1));
	}
	assert_int_equal(p.w->net.sends, 400);
}

/* The next in order is delivered once it is there, and complete when the sender hears of it. */
static void
test_read_is_early(void **state)
{
	for (unsigned read = 0; read < 2; read++) {
		struct pair p = PAIR(1, .delay_ns = 10000);
		uint64_t start = p.w->now, took;

		assert_true(pconn_send(p.a, 20000, read ? READ : WRITE));
		STEP_WHILE(p.w, !p.b->received);
		took = p.w->now - start;
		/* RTS, READ and its answer; or RTS, CTS, WRITE, its acknowledgement, BULK */
		assert_in_range(took, read ? 30000 : 50000, read ? 36000 : 56000);
		assert_int_equal(pconn_completed(p.a), 0);
		STEP_WHILE(p.w, !pconn_completed(p.a));
		took = p.w->now - start;
		assert_in_range(took, read ? 40000 : 60000, read ? 48000 : 90000);
		assert_int_equal(p.w->node[1].engine->conns[0].rts_count, 0);
	}
}

static void
test_size(void **state)
{
	struct pair p = PAIR(1);

	for (unsigned i = 0; i < 200; i++) /* the window grows */
		one(&p, 8000, 0);
	assert_ways(&p, record(&p, 0).by_ring, 0, record(&p, 0).by_write);
	assert_true(record(&p, 0).by_ring > 190);
	for (uint32_t length = 1; length <= 1 << 20; length *= 4) {
		struct engine_conn_record before = record(&p, 1), after;

		one(&p, length, 0);
		after = record(&p, 1);
		assert_int_equal(after.by_ring - before.by_ring, length <= 8192);
		assert_int_equal(after.by_write - before.by_write, length > 8192);
	}
}

/*
 * Beyond the window it goes by rendezvous, which makes the window larger, also where the sender's
 * rate forbids its peers to read.
 */
static void
test_window_grows(void **state)
{
	for (unsigned limited = 0; limited < 2; limited++) {
		struct pair p = PAIR(1, .initial_grant = 512);

		if (limited)
			program_share(p.pa, ENGINE_WEIGHT, 1000000000, 20000000);
		one(&p, 1000, WEIR_SLOT_BULK);
		world_run(p.w, 100);
		assert_ways(&p, 0, 0, 1);
		assert_true(pconn_granted(p.a) - p.a->spent >= weir_cost(1000));
		one(&p, 1000, 0);
		assert_ways(&p, 1, 0, 1);
	}
}

/* A sender that is clearly busier is relieved, until it isn't. */
static void
test_load(void **state)
{
	static const struct {
		uint32_t sender, receiver;
		bool read;
	} steps[] = {
	    {500, 500, false},
	    {500 + LOAD_READ, 500, false},
	    {501 + LOAD_READ, 500, true},
	    {501 + LOAD_WRITE, 500, true},
	    {500 + LOAD_WRITE, 500, false},
	    {500 + LOAD_READ, 500, false},
	    {1000, 0, true},
	    {1000, 999 - LOAD_WRITE, true},
	    {1000, 1000 - LOAD_WRITE, false}, /* the receiver's rises */
	    {1000, 999 - LOAD_READ, true},
	    {0, 1000, false},
	};
	struct pair p = PAIR(1);
	uint64_t reads = 0, writes = 0;

	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		set_loads(&p, steps[i].sender, steps[i].receiver);
		one(&p, 100000, 0);
		reads += steps[i].read;
		writes += !steps[i].read;
		assert_ways(&p, 0, reads, writes);
	}
	/* told otherwise */
	one(&p, 100000, READ);
	set_loads(&p, 1000, 0);
	one(&p, 100000, WRITE);
	assert_ways(&p, 0, reads + 1, writes + 1);
}

/* No place for it at first: the sender's memory holds it, and it is read as soon as there is one.
 */
static void
test_memory(void **state)
{
	struct pair p = PAIR(1, .recv_blocks = 64);

	set_loads(&p, 0, 1000);
	one(&p, 100000, 0);
	assert_ways(&p, 0, 0, 1);
	p.b->keep_blocks = true;
	pconn_sends(p.a, 200000, 0, 4);
	world_run(p.w, 2000);
	assert_in_range(p.b->received, 2, 4);
	assert_int_equal(record(&p, 1).by_read, 0);
	p.b->keep_blocks = false;
	program_release_held(p.pb);
	assert_receives(p.b, 2000, 5);
	assert_true(record(&p, 1).by_read > 0);
	/* enough again */
	one(&p, 100000, 0);
	assert_int_equal(record(&p, 0).by_read, record(&p, 1).by_read);
	assert_int_equal(record(&p, 0).by_read + record(&p, 0).by_write, 6);
}

/* While little receive memory is free the receiver reads, though nothing had to wait for it. */
static void
test_scarce_memory(void **state)
{
	struct pair p = PAIR(1, .recv_blocks = 64);
	struct session *s = &p.w->node[1].engine->sessions[p.pb->id];
	uint64_t written = 1;

	set_loads(&p, 0, 1000);
	p.b->keep_blocks = true;
	for (; s->blocks.free >= 64 / SCARCE_PART; written++) {
		one(&p, 8193, 0);
		assert_ways(&p, 0, 0, written);
	}
	assert_true(s->blocks.free >= bulk_blocks(8193));
	one(&p, 8193, 0);
	assert_ways(&p, 0, 1, written - 1);
	p.b->keep_blocks = false;
	program_release_held(p.pb);
	world_run(p.w, 100);
	one(&p, 8193, 0);
	assert_ways(&p, 0, 1, written);
}

/* Memory is taken for what is being read, not for all that was announced. */
static void
test_places_in_turn(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 5000, .recv_blocks = 4096);
	struct session *s = &p.w->node[1].engine->sessions[p.pb->id];
	struct pconn *a[16], *b[16];
	uint32_t most = 0, before, got = 0;

	for (unsigned i = 0; i < 16; i++)
		world_connect(p.pa, p.pb, &a[i], &b[i]);
	before = s->blocks.free;
	for (unsigned i = 0; i < 16; i++)
		pconn_sends(a[i], FLIGHT_SEGMENT, READ, 4);
	for (unsigned i = 0; i < 4000; i++) {
		world_step(p.w);
		if (before - s->blocks.free > most)
			most = before - s->blocks.free;
	}
	for (unsigned i = 0; i < 16; i++)
		got += (uint32_t)b[i]->received;
	assert_int_equal(got, 64);
	assert_int_equal(s->blocks.free, before);
	assert_in_range(most, FLIGHT_BYTES / WEIR_BLOCK_SIZE, 2 * FLIGHT_BYTES / WEIR_BLOCK_SIZE);
}

/* The most receive blocks taken while n messages are written. */
static uint32_t
most_taken(struct pair *p, uint32_t length, unsigned n)
{
	struct session *s = &p->w->node[1].engine->sessions[p->pb->id];
	uint32_t before = s->blocks.free, most = 0;

	pconn_sends(p->a, length, WEIR_SLOT_BULK, n);
	for (unsigned i = 0; i < 4000 && pconn_completed(p->a) < p->a->sent; i++) {
		world_step(p->w);
		if (before - s->blocks.free > most)
			most = before - s->blocks.free;
	}
	assert_complete(p->a, p->b);
	assert_int_equal(s->blocks.free, before);
	return most * WEIR_BLOCK_SIZE;
}

/* Places are found for what is written next, not for all that was announced; that is no lack. */
static void
test_places_ahead(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 5000, .recv_blocks = 4096);

	assert_int_equal(most_taken(&p, 1 << 16, RTS_MAX), RTS_MAX << 16);
	/* one more is being delivered */
	assert_in_range(most_taken(&p, 1 << 19, RTS_MAX), PLACED_BYTES, PLACED_BYTES + (1 << 19));
	assert_in_range(most_taken(&p, 1 << 20, RTS_MAX), PLACED_BYTES, PLACED_BYTES + (1 << 20));
	assert_in_range(most_taken(&p, 3 << 20, 5), 6 << 20, 9 << 20);
	assert_ways(&p, 0, 0, 3 * RTS_MAX + 5);
}

static void
send_until_flight(struct pair *p)
{
	const struct peer_link *l = &p->w->node[1].engine->links[1];

	pconn_sends(p->a, 1 << 20, READ, 3);
	STEP_WHILE(p->w, l->flight_bytes + FLIGHT_SEGMENT <= FLIGHT_BYTES);
}

/* DONE comes behind all before it, though the credit for them comes later than FETCHED. */
static void
test_done(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 10000, .initial_grant = 8192);

	for (unsigned i = 0; i < 50; i++) {
		uint64_t end = p.a->sent + 3;

		assert_true(pconn_send(p.a, 40, 0));
		assert_true(pconn_send(p.a, 20000, READ | WEIR_SLOT_NOTIFY));
		assert_true(pconn_send(p.a, 30000, READ | (i % 2 ? WEIR_SLOT_NOTIFY : 0)));
		world_run(p.w, i % 2 ? 400 : i * 13);
		if (i % 2)
			assert_int_equal(p.a->done_value, end);
	}
	world_run(p.w, 1000);
	assert_int_equal(pconn_completed(p.a), p.a->sent);
	assert_int_equal(p.b->received, p.a->sent);
	assert_int_equal(p.a->done_value, p.a->sent);
}

/* Memory that the peer reads belongs to it until it answers. */
static void
test_owner_dies(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 20000, .recv_blocks = 4096);
	const struct peer_link *l = &p.w->node[1].engine->links[1];

	p.w->net.delay_ns = 300000;
	send_until_flight(&p);
	program_die(p.pa);
	while (!p.pa->removed) {
		p.w->step_ns = !l->flight_bytes ? 1000000 : 500;
		world_step(p.w);
	}
	assert_int_equal(l->flight_bytes, 0);
	/* as main does next: a READ that comes later is counted as bad */
	fake_mr_end(&p.w->net, &p.pa->view.send_mr);
	p.w->step_ns = 500;
	world_run(p.w, 2000);
	assert_true(p.b->done);
	assert_in_range(p.b->received, pconn_completed(p.a), 3);
}

static void
test_reader_dies(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 20000, .recv_blocks = 4096);
	const struct peer_link *l = &p.w->node[1].engine->links[1];

	send_until_flight(&p);
	program_die(p.pb);
	while (!p.pb->removed) {
		assert_false(p.a->done && l->flight_bytes);
		world_step(p.w);
	}
	fake_mr_end(&p.w->net, &p.pb->view.recv_mr);
	world_run(p.w, 2000);
	assert_true(p.a->done);
	assert_true(pconn_completed(p.a) < 3);
}

/* An end that closes reads on what is in flight, then says so. */
static void
test_reader_closes(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 20000, .recv_blocks = 4096);
	const struct peer_link *l = &p.w->node[1].engine->links[1];

	send_until_flight(&p);
	pconn_close(p.b);
	STEP_WHILE(p.w, !p.a->done);
	assert_int_equal(l->flight_bytes, 0);
	pconn_close(p.a);
	world_run(p.w, 2000);
	assert_true(p.a->freed && p.b->freed);
	/* nothing of it is left */
	world_connect(p.pa, p.pb, &p.a, &p.b);
	p.w->net.delay_ns = 500;
	one(&p, 1 << 20, READ);
}

/* The reader's end breaks off: what it has delivered counts, though FETCHED has not left. */
static void
test_count_of_reset(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 20000);
	struct weir_slot bad = {.op = WEIR_OP_PLACE, .vqpn = 1};

	assert_true(pconn_send(p.a, 20000, READ));
	STEP_WHILE(p.w, !p.b->received);
	bad.vqpn = p.b->vqpn;
	bad.length = 100;
	program_slot(p.pb, 0, &bad); /* breaks the rules: a place outside of its memory */
	world_run(p.w, 400);
	assert_closed(p.a, ECONNRESET);
	assert_int_equal(pconn_completed(p.a), 1);
}

ENGINE_TESTS(TEST(test_told), TEST(test_sends), TEST(test_sends_at_once), TEST(test_read_is_early),
	     TEST(test_size), TEST(test_window_grows), TEST(test_places_in_turn),
	     TEST(test_places_ahead), TEST(test_load), TEST(test_memory), TEST(test_scarce_memory),
	     TEST(test_done), TEST(test_owner_dies), TEST(test_reader_dies),
	     TEST(test_reader_closes), TEST(test_count_of_reset))
