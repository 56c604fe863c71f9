/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between two engines: sizes, wraps, windows, completions, fairness. */
#include "worlds/engine_world.h"

#include "engine/conn.h"
#include "engine/link.h"
#include "engine/send_queue.h"
#include "engine/slot_head.h"
#include "engine/state.h"

static const uint32_t sizes[] = {0,   1,   47,	 48,   49,   107,  108,	  109,	 948,
				 949, 950, 4096, 8191, 8192, 8193, 65536, 65537, 1 << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void
test_each_size(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 1500, .recv_blocks = 4096);

	for (unsigned i = 0; i < SIZES; i++) {
		pconn_stream(p.a, p.b, sizes[i], 0, 5);
		pconn_stream(p.b, p.a, sizes[i], 0, 3);
	}
	pconn_stream(p.a, p.b, 16 << 20, 0, 1);
}

/* Every length of the inline and block range wraps the small rings many times. */
static void
test_ring_wraps(void **state)
{
	struct pair p = PAIR(1, .ring_lines = 256, .ring_slots = 64, .recv_wrs = 6);

	for (uint32_t length = 0; length < 1200; length += 13)
		pconn_stream(p.a, p.b, length, 0, 20);
	for (uint32_t length = 949; length <= 8192; length += 517)
		pconn_stream(p.a, p.b, length, 0, 10);
	assert_true(node_counters(p.w, 0)->ring_stalls > 0);
}

/* Receive WRs in the SRQ while messages come one by one: the fewest after a turn. */
static uint32_t
fewest_receives(uint32_t granted)
{
	struct pair p = PAIR(1, .recv_wrs = granted);
	uint32_t fewest = UINT32_MAX;

	for (unsigned i = 0; i < 100; i++) {
		assert_true(pconn_send(p.a, 64, 0));
		for (unsigned k = 0; k < 20; k++) {
			world_step(p.w);
			if (p.w->node[1].nic->recv_wrs < fewest)
				fewest = p.w->node[1].nic->recv_wrs;
		}
	}
	assert_in_range(p.b->received, 100, UINT32_MAX);
	return fewest;
}

/* The SRQ (256) is refilled in batches, but always has those that peers were granted. */
static void
test_receives_posted(void **state)
{
	assert_in_range(fewest_receives(64), 256 - 15, 256 - 8);
	assert_in_range(fewest_receives(250), 250, 255);
	assert_int_equal(fewest_receives(256), 256);
}

/* Peers are told of their receive WRs once they are posted again, though nothing else comes. */
static void
test_receives_come_back(void **state)
{
	struct pair p = PAIR(1, .recv_wrs = 256);
	const struct peer_link *l = &p.w->node[1].engine->links[1];

	world_run(p.w, 200);
	p.w->node[1].nic->takes_no_recv = true;
	assert_true(pconn_send(p.a, 64, 0));
	world_run(p.w, 200);
	assert_int_equal(p.b->received, 1);
	assert_true(l->wrs_told < l->wrs_seen);
	p.w->node[1].nic->takes_no_recv = false;
	world_run(p.w, 200);
	assert_int_equal(l->wrs_told, l->wrs_seen);
}

/* A queue of the NIC that takes one WR at a time. */
static void
test_slow_queue(void **state)
{
	struct pair p = PAIR(1, .ring_lines = 256, .delay_ns = 700);

	p.w->node[0].nic->post_most = 1;
	for (uint32_t length = 0; length < 9000; length += 401)
		pconn_stream(p.a, p.b, length, 0, 30);
}

/* Credit returns once the threshold is consumed: not before, and not a report later. */
static void
returns_at(double threshold, uint32_t percent)
{
	struct pair p = PAIR(1, .threshold = threshold);
	uint64_t want = (uint64_t)((percent ? percent / 100.0 : threshold) * (256 << 10));
	unsigned returns = 0;
	uint32_t told;
	struct conn *c;

	p.b->percent = percent;
	pconn_stream(p.a, p.b, 64, 0, 20000); /* the window has grown */
	c = conn_find(p.w->node[1].engine, p.b->vqpn);
	assert_int_equal(c->rx_window, 256 << 10);
	told = c->rx_told;
	for (unsigned i = 0; i < 20000 && returns < 5; i++) {
		pconn_fill(p.a, 64);
		world_step(p.w);
		if (c->rx_told == told)
			continue;
		assert_in_range(c->rx_told - told, want, want + weir_cost(64));
		told = c->rx_told;
		returns++;
	}
	assert_int_equal(returns, 5);
}

static void
test_returns_at_threshold(void **state)
{
	returns_at(0.3, 0);
	returns_at(0.5, 0);
	returns_at(0.6, 0);
	returns_at(0.8, 0);
	returns_at(0.6, 20);
	returns_at(0.3, 70);
}

/*
 * A program sends a thousand messages before its first grant has come: only those announced by then
 * go by rendezvous.
 */
static void
test_burst_on_a_new_connection(void **state)
{
	struct pair p =
	    PAIR(1, .delay_ns = 1500, .recv_blocks = 4096, .ring_slots = 1024, .window = 2 << 20);
	struct conn *c = conn_find(p.w->node[0].engine, p.a->vqpn);
	uint64_t spent;

	pconn_sends(p.a, 8192, 0, 900);
	assert_receives(p.b, 4000, 900);
	assert_int_equal(pconn_completed(p.a), 900);
	assert_in_range(c->by_write + c->by_read, 1, 20);
	/* and the program knows what is left of its window */
	assert_int_equal(pconn_granted(p.a) - p.a->spent, c->granted - c->spent);
	spent = p.a->spent;
	pconn_fill(p.a, 64);
	assert_true(p.a->spent > spent);
	assert_receives(p.b, 2000, p.a->sent);
}

/*
 * A program takes over when the data plane has died: it finds the complete messages, in order, and
 * besides them only those in its ring.
 */
static void
check_shown(struct program *p, const struct pconn *from, const struct pconn *c)
{
	const struct weir_geometry *g = &p->view.geometry;
	struct weir_channel_head *head = (void *)(p->arena + weir_arena_channel(g, 0));
	uint64_t at = atomic_load(&head->spilled), block = at >> 40;
	uint32_t slot = at >> 32 & 0xff, count = (uint32_t)at;
	uint16_t order = (uint16_t)(from->sent - count / 2);

	assert_true(count && count % 2 == 0); /* of 64 B each */
	for (uint32_t i = 0; i < count; i++) {
		const struct weir_slot *first = (void *)(p->arena + block * WEIR_BLOCK_SIZE);

		assert_in_range(block * WEIR_BLOCK_SIZE, weir_arena_recv(g),
				weir_arena_send(g) - 1);
		if (i % 2 == 0) {
			assert_int_equal(first[slot].order, (uint16_t)(order + i / 2));
			assert_int_equal(first[slot].vqpn, c->vqpn);
		}
		if (++slot == WEIR_SPILL_SLOTS) {
			slot = 0;
			block = atomic_load(&first->seq);
		}
	}
}

static void
test_window_grows_and_stalls(void **state)
{
	struct pair p = PAIR(1);
	uint64_t sent = 0, granted;

	assert_int_equal(pconn_granted(p.a), 512);
	pconn_stream(p.a, p.b, 64, 0, 3000);
	granted = pconn_granted(p.a) - p.a->spent;
	assert_true(granted > 64 << 10);
	/* the receiver doesn't read: what was granted goes through, half a window more as it is
	 * asked for, then nothing */
	p.pb->stopped = true;
	for (unsigned i = 0; i < 3000; i++) {
		while (pconn_send(p.a, 64, 0))
			sent += weir_cost(64);
		world_step(p.w);
	}
	assert_in_range(sent, granted, granted + (128 << 10));
	assert_int_equal(pconn_completed(p.a), p.a->sent);
	assert_true(node_counters(p.w, 1)->spilled > 0);
	check_shown(p.pb, p.a, p.b);
	/* and goes on when it reads again */
	p.pb->stopped = false;
	world_run(p.w, 1);
	check_shown(p.pb, p.a, p.b);
	assert_receives(p.b, 200, p.a->sent);
	assert_int_equal(
	    ((struct weir_channel_head *)(void *)(p.pb->arena +
						  weir_arena_channel(&p.pb->view.geometry, 0)))
		->spilled,
	    0);
	pconn_stream(p.a, p.b, 64, 0, 3000);
}

/* Also when the first grant is used up by one message: the peer says that it stalls before it is
 * read. */
static void
test_window_grows_at_any_size(void **state)
{
	for (unsigned i = 1; i < SIZES && sizes[i] <= WEIR_BLOCK_SIZE; i++) {
		struct pair p = PAIR(1, .delay_ns = 1500);

		pconn_stream(p.a, p.b, sizes[i], 0, 4000);
		assert_true(conn_find(p.w->node[1].engine, p.b->vqpn)->rx_window >= 128 << 10);
	}
	for (uint32_t length = 200; length < 480; length += 40) {
		struct pair p = PAIR(1, .delay_ns = 1500);

		pconn_stream(p.a, p.b, length, 0, 4000);
		assert_true(conn_find(p.w->node[1].engine, p.b->vqpn)->rx_window >= 128 << 10);
	}
}

/*
 * A program that takes each message a while after it came, when the peer has said that it waits: it
 * lacks no memory, so the window grows all the same.
 */
static void
test_window_grows_behind_stalls(void **state)
{
	struct pair p = PAIR(1);

	for (unsigned i = 0; i < 8000; i++) {
		if (p.a->sent < p.b->received + 2)
			pconn_send(p.a, 4096, 0);
		p.pb->stopped = i % 32;
		world_step(p.w);
	}
	p.pb->stopped = false;
	world_run(p.w, 100);
	assert_true(pconn_granted(p.a) - p.a->spent >= 64 << 10);
}

/* Messages beyond the grant wait in the engine; WANT is answered when they could go. */
static void
test_beyond_the_window(void **state)
{
	struct pair p = PAIR(1);
	struct weir_slot want = {.op = WEIR_OP_WANT, .vqpn = p.a->vqpn, .length = weir_cost(100)};

	assert_int_equal(pconn_pushes(p.a, 0, 100, 100), 100);
	program_slot(p.pa, p.a->channel, &want);
	p.pb->stopped = true;
	world_run(p.w, 200);
	assert_int_equal(pconn_completed(p.a), 6); /* half a window more than it granted at first */
	assert_int_equal(p.a->writable, 0);
	p.pb->stopped = false;
	assert_receives(p.b, 500, 100);
	assert_int_equal(p.a->writable, 1);
}

/* One program that doesn't read costs the other connection on the link nothing. */
static void
test_slow_program(void **state)
{
	struct pair p = PAIR(1);
	struct program *other = program_open(p.w, 1, 1);

	world_connect(p.pa, other, &p.x, &p.y);
	other->stopped = true;
	for (unsigned i = 0; i < 200; i++) {
		pconn_fill(p.x, 300);
		pconn_send(p.x, 8192, 0);
		world_step(p.w);
	}
	pconn_stream(p.a, p.b, 500, 0, 1000);
	pconn_stream(p.a, p.b, 1 << 20, 0, 3);
	other->stopped = false;
	assert_receives(p.y, 500, p.x->sent);
}

/* Bulk and small messages keep the order of the connection. */
static void
test_mixed_order(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 2000, .pending = 256);
	uint32_t r = 1;

	for (unsigned i = 0; i < 600; i++) {
		r = r * 1103515245 + 12345;
		for (unsigned k = 0; k < 50 && !pconn_send(p.a, sizes[(r >> 16) % SIZES],
							   r & 64 ? WEIR_SLOT_NOTIFY : 0);
		     k++)
			world_step(p.w);
		if (r & 128)
			pconn_send(p.b, sizes[(r >> 20) % SIZES], 0);
	}
	STEP_MOST(p.w, 20000, pconn_completed(p.a) < p.a->sent);
	assert_int_equal(p.b->received, p.a->sent);
	assert_int_equal(p.a->received, p.b->sent);
	assert_true(p.a->done_value > 0);
}

/* More bulk than the receiver's memory holds: it comes in turns, as blocks are given back. */
static void
test_bulk_waits_for_memory(void **state)
{
	struct pair p = PAIR(1, .recv_blocks = 64);

	p.b->keep_blocks = true;
	pconn_sends(p.a, 160000, 0, 12);
	assert_receives(p.b, 200, 3);
	while (p.b->received < 12) {
		uint64_t before = p.b->received;

		program_release_held(p.pb);
		world_run(p.w, 100);
		assert_true(p.b->received > before);
	}
	assert_int_equal(pconn_completed(p.a), 12);
	/* what never fits ends the connection */
	pconn_send(p.a, 600000, 0);
	world_run(p.w, 200);
	assert_closed(p.a, EMSGSIZE);
	assert_closed(p.b, ECONNRESET);
	assert_int_equal(pconn_completed(p.a), 12);
}

/* Every length arrives or is refused: none waits for memory that there will never be. */
static void
test_largest_bulk(void **state)
{
	bool arrived = false, refused = false;

	for (uint32_t blocks = 28; blocks <= 32; blocks++) {
		struct pair p = PAIR(1, .recv_blocks = 32);

		pconn_send(p.a, blocks * 8192, 0);
		assert_receives(p.b, 3000, !p.a->done);
		if (p.a->done)
			assert_int_equal(p.a->close_status, EMSGSIZE);
		arrived |= !p.a->done;
		refused |= p.a->done;
	}
	assert_true(arrived && refused);
}

/* Channels can't take all the memory: who has one could send and receive nothing. */
static void
test_channels_leave_memory(void **state)
{
	struct world *w = WORLD(.recv_blocks = 4);
	struct program *p = program_open(w, 0, 2);
	struct engine_command k = {.type = ENGINE_CHANNEL_ADD, .channel = {p->id, 2, 99, true}};

	assert_int_equal(program_command(p, &k), -ENOSPC);
}

/* Idle connections hold grants; one that wants them gets them. */
static void
test_reclaim(void **state)
{
	struct pair p = PAIR(1, .recv_blocks = 32);
	struct pconn *x[8], *y[8];

	for (unsigned i = 0; i < 8; i++) {
		world_connect(p.pa, p.pb, &x[i], &y[i]);
		pconn_stream(x[i], y[i], 900, 0, 300);
	}
	world_run(p.w, 2000);
	/* nearly all of the receive memory for one message */
	pconn_stream(p.a, p.b, 28 * 8192, 0, 2);
	for (unsigned i = 0; i < 8; i++)
		pconn_stream(x[i], y[i], 900, 0, 30);
}

/* Lines that housekeeping makes due leave in that turn: the engine may be about to sleep. */
static void
test_reclaim_at_once(void **state)
{
	struct pair p = PAIR(1, .recv_blocks = 32);
	struct engine *e = p.w->node[1].engine;
	const struct engine_counters *c = engine_counters(e);
	unsigned asked = 0, i;

	world_connect(p.pa, p.pb, &p.x, &p.y);
	pconn_stream(p.x, p.y, 900, 0, 3000); /* its window is large now */
	world_run(p.w, 2000);
	pconn_send(p.a, 28 * 8192, 0);
	for (i = 0; i < 2000 && p.b->received < 1; i++) {
		uint64_t frames = atomic_load(&c->frames_received);

		world_step(p.w);
		if (atomic_load(&c->turns) % 256 == 0 &&
		    atomic_load(&c->frames_received) == frames && i > 100) {
			assert_false(engine_sleep_check(e));
			asked++;
		}
	}
	assert_int_equal(p.b->received, 1);
	assert_true(asked > 0);
}

/* Grants have memory behind them: a peer that waits for one gets it when memory is free. */
static void
test_grant_waits_for_memory(void **state)
{
	struct pair p = PAIR(1, .recv_blocks = 16);

	world_connect(p.pa, p.pb, &p.x, &p.y);
	p.b->keep_blocks = true;
	assert_true(pconn_send(p.a, 14 * WEIR_BLOCK_SIZE, 0));
	assert_receives(p.b, 100, 1);
	assert_true(pconn_push(p.x, 0, 5000, 0));
	assert_receives(p.y, 2000, 0);
	program_release_held(p.pb);
	assert_receives(p.y, 100, 1);
}

/* A grant that was asked back and one that is due cross: the sender may only use what is left. */
static void
test_reclaim_meets_grant(void **state)
{
	struct pair p = PAIR(1, .recv_blocks = 64, .delay_ns = 5000);
	const struct conn *c = &p.w->node[1].engine->conns[0];

	assert_int_equal(c->vqpn, p.b->vqpn);
	world_connect(p.pa, p.pb, &p.x, &p.y);
	pconn_stream(p.a, p.b, 64, 0, 3000);
	world_run(p.w, 500);
	p.pb->stopped = true;
	while (c->rx_granted - c->rx_delivered > c->rx_window / 5) {
		assert_true(pconn_send(p.a, 64, 0));
		world_step(p.w);
	}
	assert_true(pconn_send(p.x, 60 * WEIR_BLOCK_SIZE, 0)); /* more than is free */
	STEP_MOST(p.w, 2000, !c->reclaiming);
	assert_true(c->reclaiming);
	p.pb->stopped = false;
	STEP_WHILE(p.w, p.b->received < p.a->sent);
	assert_true(c->reclaiming);
	pconn_op(p.b, WEIR_OP_CONSUMED, p.b->consumed);
	p.b->told = p.b->consumed;
	pconn_tries(p.a, 64, 500, 1);
	world_run(p.w, 100);
	assert_int_equal(pconn_status(p.a), 0);
	assert_int_equal(p.b->received, p.a->sent);
	assert_int_equal(p.y->received, 1);
	pconn_stream(p.a, p.b, 64, 0, 300);
}

/* Messages fill the peer's ring but for the line in which it is told that they do. */
static void
test_full_ring_is_told(void **state)
{
	struct pair p = PAIR(1, .ring_lines = 256, .ring_slots = 512);
	const struct peer_link *l = &p.w->node[0].engine->links[1];

	pconn_stream(p.a, p.b, 10, 0, 3000); /* the window is larger than the ring */
	world_run(p.w, 200);
	assert_int_equal(l->tx_pos, l->credited);
	/* the peer is busy with something else: two passes' heads and these make 256 lines */
	for (unsigned i = 0; i < 255; i++) {
		assert_true(pconn_send(p.a, 10, 0));
		if (i >= 253)
			for (unsigned k = 0; k < 3; k++)
				world_turn(p.w, 0);
	}
	assert_true(l->stalled);
	assert_true(l->stall_told);
	assert_receives(p.b, 500, p.a->sent);
}

/* Of two connections whose messages wait neither gets more than its turn before the other. */
static void
test_turns_are_equal(void **state)
{
	struct pair p = PAIR(1, .ring_lines = 256, .delay_ns = 2000, .pending = 4096);
	const uint32_t lines = message_lines(900);
	unsigned left = 40;
	uint64_t a, b;

	world_connect(p.pa, p.pb, &p.x, &p.y);
	pconn_stream(p.a, p.b, 900, 0, 2000);
	pconn_stream(p.x, p.y, 900, 0, 2000);
	world_run(p.w, 500);
	while (left) { /* the peer is busy with something else */
		if (weir_ring_refresh(&p.pa->tx[0]) && weir_ring_room(&p.pa->tx[0]) >= 40) {
			assert_true(pconn_send(p.a, 900, 0));
			assert_true(pconn_send(p.x, 900, 0));
			left--;
		}
		world_turn(p.w, 0);
	}
	a = p.b->received;
	b = p.y->received;
	while (p.b->received < p.a->sent || p.y->received < p.x->sent) {
		int64_t ahead;

		world_step(p.w);
		ahead = (int64_t)(p.b->received - a) - (int64_t)(p.y->received - b);
		assert_true(ahead * lines <= 2 * QUANTUM && -ahead * lines <= 2 * QUANTUM);
	}
}

/* Connections that all want to send share the ring; the greedy one by a channel of its own: what
 * goes by one channel stands in the order in which the program sent it. */
static void
test_fairness(void **state)
{
	struct world *w = WORLD(.ring_lines = 256, .delay_ns = 3000);
	struct pair p = {.w = w, .pa = program_open(w, 0, 2), .pb = program_open(w, 1, 1)};
	struct pconn *x[4], *y[4];

	for (unsigned i = 0; i < 4; i++) {
		world_connect(p.pa, p.pb, &x[i], &y[i]);
		pconn_stream(x[i], y[i], 800, 0, 300);
		x[i]->channel = i > 0;
	}
	for (unsigned step = 0; step < 3000; step++) {
		for (unsigned i = 0; i < 4; i++) /* the first one tries ten times as hard */
			for (unsigned k = 0; k < (i ? 1 : 10); k++)
				pconn_send(x[i], 800, 0);
		world_step(p.w);
	}
	for (unsigned i = 1; i < 4; i++)
		assert_in_range(y[i]->received, y[0]->received / 4, y[0]->received * 4);
}

/* A ping-pong needs one frame a message: credit rides on the answers. */
static void
test_no_extra_frames(void **state)
{
	struct pair p = PAIR(1);
	uint64_t before, credits;

	pconn_stream(p.a, p.b, 8, 0, 3000);
	pconn_stream(p.b, p.a, 8, 0, 3000);
	world_run(p.w, 200);
	before = p.w->net.write_imms;
	credits = p.w->net.writes;
	for (unsigned i = 0; i < 100; i++) {
		uint64_t want = p.b->received + 1;

		assert_true(pconn_send(p.a, 8, 0));
		STEP_WHILE(p.w, p.b->received < want);
		world_run(p.w, 5); /* the program thinks */
		assert_true(pconn_send(p.b, 8, 0));
		want = p.a->received + 1;
		STEP_WHILE(p.w, p.a->received < want);
	}
	assert_int_equal(p.w->net.write_imms - before, 200);
	assert_true(p.w->net.writes - credits <= 2); /* wraps */
}

/* n messages, each alone in its frame. */
static void
one_way(struct pair *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		assert_true(pconn_send(p->a, 64, 0));
		world_run(p->w, 5);
	}
}

/* One frame takes all that programs have committed since the last turn, however many they are. */
static void
test_frame_takes_all(void **state)
{
	enum { N = PROGRAMS, EACH = 4 };
	struct world *w = WORLD(.delay_ns = 0);
	struct pconn *a[N], *b[N];
	uint64_t before;

	for (unsigned i = 0; i < N; i++)
		world_connect(program_open(w, 0, 1), program_open(w, 1, 1), &a[i], &b[i]);
	for (unsigned i = 0; i < N; i++) /* the channels are hot: all are looked at in a turn */
		pconn_stream(a[i], b[i], 64, 0, 20);
	world_run(w, 100);

	before = w->net.write_imms;
	pconn_sends(a[0], 64, 0, EACH);
	world_run(w, 20);
	assert_int_equal(w->net.write_imms - before, 1);

	before = w->net.write_imms;
	for (unsigned i = 0; i < N; i++)
		pconn_sends(a[i], 64, 0, EACH);
	world_run(w, 20);
	assert_int_equal(w->net.write_imms - before, 1);
	assert_int_equal(b[N - 1]->received, 20 + EACH);

	before = w->net.write_imms;
	for (unsigned i = 0; i < N; i++) {
		pconn_sends(a[i], 64, 0, 1);
		world_run(w, 20);
	}
	assert_int_equal(w->net.write_imms - before, N);
}

/* One WR in ENGINE_SEND_WRS / 4 asks for a completion. */
static void
test_seldom_signaled(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 0);
	const unsigned n = 40 * ENGINE_SEND_WRS / 4;
	uint64_t posted, signaled;

	one_way(&p, 100);
	posted = p.w->net.write_imms + p.w->net.writes;
	signaled = p.w->net.signaled;
	one_way(&p, n);
	posted = p.w->net.write_imms + p.w->net.writes - posted;
	signaled = p.w->net.signaled - signaled;
	assert_in_range(posted, n, 2 * n);
	assert_in_range(signaled, 40, posted / (ENGINE_SEND_WRS / 4) + 2);
	assert_int_equal(p.w->net.overruns, 0);
}

/* All programs share the engine's SRQ: more of them need no more receive buffers. */
static void
test_receives_are_shared(void **state)
{
	enum { N = PROGRAMS };
	struct world *w = WORLD(.recv_wrs = 64);
	const struct nic_context *nic = w->node[1].nic;
	struct pconn *a[N], *b[N];
	uint32_t before;

	world_run(w, 10);
	before = nic->recv_wrs;
	for (unsigned i = 0; i < N; i++)
		world_connect(program_open(w, 0, 1), program_open(w, 1, 1), &a[i], &b[i]);
	world_run(w, 100);
	assert_in_range(nic->recv_wrs, before - 16, before);
	for (unsigned round = 0; round < 100; round++) {
		for (unsigned i = 0; i < N; i++)
			assert_true(pconn_send(a[i], 60, WEIR_SLOT_SEND));
		world_run(w, 20);
		assert_in_range(nic->recv_wrs, before - 16, before);
	}
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(b[i]->received, 100);
	assert_true(w->net.sends >= 100);
	assert_int_equal(w->net.no_recv, 0);
}

ENGINE_TESTS(TEST(test_each_size), TEST(test_ring_wraps), TEST(test_slow_queue),
	     TEST(test_receives_posted), TEST(test_receives_come_back),
	     TEST(test_returns_at_threshold), TEST(test_burst_on_a_new_connection),
	     TEST(test_window_grows_and_stalls), TEST(test_window_grows_at_any_size),
	     TEST(test_window_grows_behind_stalls), TEST(test_beyond_the_window),
	     TEST(test_slow_program), TEST(test_mixed_order), TEST(test_bulk_waits_for_memory),
	     TEST(test_largest_bulk), TEST(test_channels_leave_memory), TEST(test_reclaim),
	     TEST(test_reclaim_at_once), TEST(test_grant_waits_for_memory),
	     TEST(test_reclaim_meets_grant), TEST(test_full_ring_is_told),
	     TEST(test_turns_are_equal), TEST(test_fairness), TEST(test_no_extra_frames),
	     TEST(test_frame_takes_all), TEST(test_seldom_signaled), TEST(test_receives_are_shared))
