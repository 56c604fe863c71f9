/* SPDX-License-Identifier: BSD-3-Clause */
/* WRITEs and READs in flight on a link: their bounds, turns, signals and repeats. */

#include "worlds/engine_world.h"

#include "engine/conn.h"
#include "engine/flight.h"
#include "engine/link.h"

#define READ (WEIR_SLOT_BULK | WEIR_SLOT_READ)
#define WRITE (WEIR_SLOT_BULK | WEIR_SLOT_WRITE)
#define ENDS 24 /* connections of small transfers */

/* The link as node i sees it. */
static struct peer_link *
link_of(const struct pair *p, unsigned i)
{
	return &p->w->node[i].engine->links[1];
}

static uint64_t
wrs_in_flight(const struct peer_link *l)
{
	return l->sq_posted[BULK] - l->sq_done[BULK];
}

/* Many connections from a to b; 8 messages of `length` leave on each. */
struct many {
	struct pconn *a[ENDS], *b[ENDS];
};

static struct many
open_many(struct pair *p)
{
	struct many m;

	for (unsigned i = 0; i < ENDS; i++)
		world_connect(p->pa, p->pb, &m.a[i], &m.b[i]);
	return m;
}

static void
send_many(struct many *m, uint32_t length, unsigned way)
{
	for (unsigned i = 0; i < ENDS; i++)
		pconn_sends(m->a[i], length, way, 8);
}

static void
assert_many_complete(const struct many *m)
{
	for (unsigned i = 0; i < ENDS; i++)
		assert_complete(m->a[i], m->b[i]);
}

/* Large transfers are bounded by bytes, small ones by WRs. */
static void
test_bounds(void **state)
{
	static const struct {
		uint32_t length;
		unsigned way;
	} rows[] = {{65536, WRITE}, {65536, READ}, {200, WRITE}, {200, READ}};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pair p = PAIR(1, .delay_ns = 20000, .recv_blocks = 4096);
		struct peer_link *l = link_of(&p, rows[i].way == READ);
		struct many m = open_many(&p);
		uint64_t wrs = 0, bytes = 0;

		send_many(&m, rows[i].length, rows[i].way);
		for (unsigned n = 0; n < 6000; n++) {
			world_step(p.w);
			wrs = wrs_in_flight(l) > wrs ? wrs_in_flight(l) : wrs;
			bytes = l->flight_bytes > bytes ? l->flight_bytes : bytes;
		}
		assert_many_complete(&m);
		if (rows[i].length == 65536)
			assert_int_equal(bytes, FLIGHT_BYTES);
		else
			assert_int_equal(wrs, FLIGHT_WRS);
		assert_int_equal(l->flight_bytes, 0);
		assert_int_equal(wrs_in_flight(l), 0);
	}
}

/* One WR of a burst is signaled: of eight small ones, and each large one. */
static void
test_signals(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 20000, .recv_blocks = 4096);
	const struct fake_net *net = &p.w->net;
	struct many m = open_many(&p);
	uint64_t reads = net->reads, signaled = net->signaled;

	p.w->step_ns = 5000; /* many leave per turn */
	send_many(&m, 200, READ);
	world_run(p.w, 2000);
	assert_many_complete(&m);
	reads = net->reads - reads;
	signaled = net->signaled - signaled;
	assert_int_equal(reads, 8 * ENDS);
	assert_in_range(signaled, reads / FLIGHT_BURST, reads / 2);
	reads = net->reads;
	signaled = net->signaled;
	pconn_stream(m.a[0], m.b[0], 1 << 20, READ, 1);
	assert_int_equal(net->reads - reads, (1 << 20) / FLIGHT_SEGMENT);
	assert_true(net->signaled - signaled >= (1 << 20) / FLIGHT_SEGMENT);
}

/* The WR that ends a turn is signaled: a message alone is complete without others behind it. */
static void
test_alone(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 2000);

	for (unsigned i = 0; i < 20; i++)
		pconn_stream(p.a, p.b, 1 + i, i % 2 ? READ : WRITE, 1);
}

/* A node that writes and reads over one link does both in turn. */
static void
test_owners_in_turn(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 20000, .recv_blocks = 4096);
	uint64_t reads, writes;

	pconn_sends(p.a, 1 << 20, WRITE, 4); /* node 0 writes */
	pconn_sends(p.b, 1 << 20, READ, 4);  /* and reads */
	STEP_WHILE(p.w, !p.a->received && !p.b->received);
	reads = p.w->net.reads;
	writes = p.w->net.bytes / FLIGHT_SEGMENT - reads; /* about: frames are small */
	assert_in_range(reads, writes / 2, writes * 2);
	world_run(p.w, 4000);
	assert_complete(p.a, p.b);
	assert_complete(p.b, p.a);
}

/* WRs that the driver doesn't take leave later, in order, also when nothing else is left to do. */
static void
test_driver_full(void **state)
{
	for (unsigned way = 0; way < 2; way++) {
		struct pair p = PAIR(1, .delay_ns = 2000, .recv_blocks = 4096);
		struct peer_link *l = link_of(&p, way);
		struct many m = open_many(&p);
		bool left = false;

		p.w->node[way].nic->post_most = 1;
		send_many(&m, 300, way ? READ : WRITE);
		for (unsigned n = 0; n < 3000; n++) {
			world_step(p.w);
			left |= l->burst != 0;
			assert_true(!l->burst || flight_may_post(l)); /* the engine stays awake */
		}
		assert_true(left);
		assert_many_complete(&m);
	}
}

ENGINE_TESTS(TEST(test_bounds), TEST(test_signals), TEST(test_alone), TEST(test_owners_in_turn),
	     TEST(test_driver_full))
