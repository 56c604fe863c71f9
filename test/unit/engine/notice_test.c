/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices and signals of remote memory, between two nodes and apart on one: behind their puts, each
 * once, within a window that the receiving program returns; spilled, never in the way of others;
 * sleepers are rung; wrong ones end the program or the connection that they come from.
 */
#define BYTES 8192u
#define START 1024u
#define LENGTH 4096u
#include "exports.h"

#include "weir/type.h"

#define RIGHTS (WEIR_RIGHT_WRITE | WEIR_RIGHT_UPDATE | WEIR_RIGHT_NOTIFY)
#define TO 1u /* channel of the exporting thread */
#define FIRST 8u
#define MOST 64u
#define COST WEIR_NOTICE_COST

static int
export_to(struct program *p, enum engine_command_type type)
{
	struct engine_command k = {.type = type, .export = the_export(p, RIGHTS)};

	k.export.channel = TO;
	return program_command(p, &k);
}

/* pb exports; this test reads its rings. */
static struct pair
notice_programs(const struct world_options *o)
{
	struct pair p = pair_programs(o, 2);

	program_adopt(p.pb, 1, BYTES, WEIR_ADOPT_SEND);
	assert_int_equal(export_to(p.pb, ENGINE_EXPORT_ADD), 0);
	memset(p.pb->region[0].base, 0, BYTES);
	p.pb->stopped = true;
	return p;
}

static void
push(struct pconn *c, struct weir_cell_notice n)
{
	pconn_cell(c, WEIR_OP_NOTICE, 0, &n, sizeof(n));
}

static void
notify(struct pconn *c, uint32_t tag)
{
	push(c, (struct weir_cell_notice){.handle = WEIR_HANDLE_FIRST,
					  .options = WEIR_NOTICE_DELIVER,
					  .tag = tag,
					  .source = ~tag,
					  .bytes = (uint64_t)tag << 33});
}

static void
signal(struct pconn *c, uint32_t options, uint64_t offset, uint64_t operand)
{
	push(c, (struct weir_cell_notice){.handle = WEIR_HANDLE_FIRST,
					  .options = options,
					  .signal = offset,
					  .operand = operand});
}

static uint64_t
word(const struct pair *p, uint64_t offset)
{
	uint64_t value;

	memcpy(&value, p->pb->region[0].base + START + offset, sizeof(value));
	return value;
}

struct got {
	uint32_t vqpn; /* what NOTICED names */
	struct weir_slot_notice is;
};

/* Takes the next slot of the exporting thread, which is a notice. False: none is there. */
static bool
next_notice(struct program *p, struct got *got)
{
	struct weir_slot *s = weir_ring_peek(&p->rx[TO]);

	if (!s)
		return false;
	assert_int_equal(s->op, WEIR_OP_NOTICE);
	got->vqpn = s->vqpn;
	memcpy(&got->is, s->data, sizeof(got->is));
	assert_int_equal(got->is.number, 2);
	assert_int_equal(got->is.generation, GENERATION);
	assert_int_equal(got->is.source, ~got->is.tag);
	assert_true(got->is.bytes == (uint64_t)got->is.tag << 33);
	weir_ring_pop(&p->rx[TO], 1);
	weir_ring_publish_tail(&p->rx[TO]);
	return true;
}

/* The program has taken this number of them. */
static void
taken(struct program *p, uint32_t vqpn, uint32_t number)
{
	struct weir_slot s = {.op = WEIR_OP_NOTICED, .length = 1};

	s.place[0] = vqpn | (uint64_t)number << 32;
	ring_put(&p->returns[TO], &s);
}

/* Each comes once, in order, when the put before it is there. */
static void
test_order(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p =
		    notice_programs(&(struct world_options){.delay_ns = 3000, .ring_lines = 256});
		struct pconn *c = open_one(&p, i, RIGHTS);
		uint32_t sent = 0, came = 0;
		struct got got;

		assert_int_equal(c->rights, RIGHTS);
		for (unsigned turn = 0; came < 1000 && turn < 60000; turn++) {
			while (sent < 1000 && pconn_granted(c) >= (sent + 1) * (uint64_t)COST &&
			       weir_ring_room(&c->p->tx[0]) > 2) {
				pconn_put_word(c, sent % 100 * 8, sent + 1);
				notify(c, ++sent);
			}
			weir_ring_refresh(&c->p->tx[0]);
			world_step(p.w);
			while (next_notice(p.pb, &got)) {
				assert_int_equal(got.is.tag, ++came);
				assert_true(word(&p, (came - 1) % 100 * 8) >= came);
				taken(p.pb, got.vqpn, 1);
				world_run(p.w, 1 + turn % 3);
			}
		}
		assert_int_equal(came, 1000);
		assert_int_equal(node_counters(p.w, 1)->remote_notices, 1000);
		assert_int_equal(node_counters(p.w, 1)->remote_puts, 1000);
		world_run(p.w, 100);
		assert_false(next_notice(p.pb, &got) || p.pa->violated || p.pb->violated);
		/* a flush awaits notices like other operations */
		pconn_op(c, WEIR_OP_FLUSH, 0);
		STEP_MOST(p.w, 200, c->done_value != c->sent);
		assert_int_equal(c->done_value, c->sent);
		world_end(state);
	}
}

/* A notice waits with the operations before it: for room in the peer's ring, for the rate. */
static void
test_behind(void **state)
{
	for (unsigned limited = 0; limited < 2; limited++) {
		struct pair p = notice_programs(
		    &(struct world_options){.delay_ns = 2000, .ring_lines = limited ? 4096 : 256});
		struct pconn *c = open_remote(p.pa, RIGHTS);
		struct got got;

		if (limited)
			program_share(p.pa, ENGINE_WEIGHT, 1000000, 1000000);
		for (uint32_t i = 0; i < 400; i++) {
			pconn_put_word(c, i % 100 * 8, i + 1);
			if (i % 100 == 99)
				for (unsigned k = 0; k < 10; k++)
					world_turn(p.w, 0);
			weir_ring_refresh(&p.pa->tx[0]);
		}
		assert_non_null(conn_find(p.w->node[0].engine, c->vqpn)->pend_first);
		notify(c, 7);
		STEP_MOST(p.w, 20000, !next_notice(p.pb, &got));
		assert_int_equal(got.is.tag, 7);
		assert_int_equal(word(&p, 99 * 8), 400);
		world_end(state);
	}
}

/* The window at first, and when notices are taken. */
static void
test_window(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = notice_programs(&(struct world_options){.delay_ns = 2000});
		struct pconn *c = open_one(&p, i, RIGHTS);
		struct pconn *none = open_one(&p, i, WEIR_RIGHT_WRITE);
		struct got got = {0};

		assert_int_equal(pconn_granted(none), 0);
		assert_int_equal(pconn_granted(c), FIRST * COST);
		for (uint32_t k = 0; k < FIRST; k++)
			notify(c, k);
		world_run(p.w, 200);
		for (uint32_t k = 0; k < FIRST; k++)
			assert_true(next_notice(p.pb, &got));
		world_run(p.w, 200);
		/* read is not taken */
		assert_int_equal(pconn_granted(c), FIRST * COST);
		pconn_op(c, WEIR_OP_WANT, 0);
		c->p->tx[0].slots[(c->p->tx[0].pos - 1) & c->p->tx[0].mask].length = COST;
		world_run(p.w, 200);
		assert_int_equal(c->writable, 0);
		taken(p.pb, got.vqpn, 1);
		world_run(p.w, 200);
		assert_int_equal(pconn_granted(c), (1 + MOST) * COST);
		assert_int_equal(c->writable, 1);
		/* returned by halves of the window */
		for (uint32_t k = 1; k < FIRST; k++)
			taken(p.pb, got.vqpn, 1);
		for (uint32_t k = 0; k < MOST / 2; k++)
			notify(c, k);
		world_run(p.w, 200);
		for (uint32_t k = 0; k < MOST / 2; k++)
			assert_true(next_notice(p.pb, &got));
		taken(p.pb, got.vqpn, MOST / 2 - 8);
		world_run(p.w, 200);
		assert_int_equal(pconn_granted(c), (1 + MOST) * COST);
		taken(p.pb, got.vqpn, 1);
		world_run(p.w, 200);
		assert_int_equal(pconn_granted(c),
				 (1 + FIRST - 1 + MOST / 2 - 8 + 1 + MOST) * COST);
		/* signals use none of it */
		for (uint32_t k = 0; k < 200; k++) {
			signal(c, WEIR_NOTICE_ADD, 8, 1);
			world_run(p.w, 2);
		}
		world_run(p.w, 100);
		assert_int_equal(word(&p, 8), 200);
		assert_false(c->p->violated || p.pb->violated);
		/* beyond it the program ends */
		for (uint32_t k = 0; k < MOST + 8; k++)
			notify(c, k);
		world_run(p.w, 200);
		assert_true(c->p->violated);
		assert_false(p.pb->violated);
		world_end(state);
	}
}

/* The exporting thread reads nothing: notices wait in receive memory, other threads go on. */
static void
test_spill(void **state)
{
	struct pair p = notice_programs(
	    &(struct world_options){.delay_ns = 2000, .ring_slots = 16, .recv_blocks = 64});
	struct program *by = program_open(p.w, 1, 1);
	uint32_t next[6] = {0}, came = 0, vqpn[6] = {0};
	struct pconn *c[6], *a, *b;
	struct got got;

	for (unsigned i = 0; i < 6; i++)
		c[i] = i % 2 ? open_apart(by, p.pb, RIGHTS) : open_remote(p.pa, RIGHTS);
	p.pb->stopped = false; /* channel 0 alone has something */
	world_connect(p.pa, p.pb, &a, &b);
	for (unsigned k = 0; k < FIRST; k++)
		for (unsigned i = 0; i < 6; i++) {
			p.pb->stopped = true;
			notify(c[i], i << 16 | k);
			world_run(p.w, 10);
		}
	assert_true(node_counters(p.w, 1)->spilled >= 6 * FIRST - 16);
	pconn_send(a, 40, 0); /* to channel 0 */
	world_run(p.w, 100);
	assert_non_null(weir_ring_peek(&p.pb->rx[0]));
	for (unsigned turn = 0; turn < 1000; turn++) {
		while (next_notice(p.pb, &got)) {
			unsigned i = got.is.tag >> 16;

			assert_int_equal(got.is.tag & 0xffff, next[i]++);
			vqpn[i] = got.vqpn;
			came++;
		}
		world_step(p.w);
	}
	assert_int_equal(came, 6 * FIRST);
	for (unsigned i = 0; i < 6; i++)
		taken(p.pb, vqpn[i], FIRST);
	world_run(p.w, 100);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(pconn_granted(c[i]), (FIRST + MOST) * COST);
	p.pb->stopped = false;
	world_run(p.w, 100);
	assert_int_equal(b->received, 1);
	/* ends of connections whose notices had waited are told */
	assert_int_equal(export_to(p.pb, ENGINE_EXPORT_STOP), 0);
	assert_int_equal(export_to(p.pb, ENGINE_EXPORT_REMOVE), 0);
	world_run(p.w, 200);
	for (unsigned i = 0; i < 6; i++) {
		assert_closed(c[i], ESTALE);
		pconn_ends(c[i], 100);
	}
	program_ends(p.pb, 400);
}

/* Connections that find no receive memory for a window wait, and get one when there is some. */
static void
test_scarce(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p =
		    notice_programs(&(struct world_options){.delay_ns = 2000, .recv_blocks = 4});
		struct program *by = i ? program_open(p.w, 1, 1) : NULL;
		unsigned with = 0, most = 40;
		struct pconn *c[40];

		for (unsigned k = 0; k < most; k++) {
			c[k] = i ? open_apart(by, p.pb, RIGHTS) : open_remote(p.pa, RIGHTS);
			with += pconn_granted(c[k]) != 0;
		}
		/* 4 blocks but a reserve per channel */
		assert_int_equal(with, 2 * WEIR_BLOCK_SIZE / (FIRST * COST));
		for (unsigned k = 0; k < with; k++) {
			assert_true(pconn_granted(c[k]) != 0);
			pconn_close(c[k]);
		}
		world_run(p.w, 600);
		for (unsigned k = with; k < most; k++)
			assert_int_equal(pconn_granted(c[k]), FIRST * COST);
		world_end(state);
	}
}

static void
test_signals(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = notice_programs(&(struct world_options){.delay_ns = 2000});
		struct pconn *c = open_one(&p, i, RIGHTS);
		struct got got;

		signal(c, WEIR_NOTICE_SET, 0, 41);
		signal(c, WEIR_NOTICE_ADD, 0, 1);
		signal(c, WEIR_NOTICE_SET, LENGTH - 8, UINT64_MAX);
		signal(c, WEIR_NOTICE_ADD, LENGTH - 8, 3);
		world_run(p.w, 100);
		assert_int_equal(word(&p, 0), 42);
		assert_int_equal(word(&p, LENGTH - 8), 2);
		assert_false(next_notice(p.pb, &got));
		/* both at once */
		push(c, (struct weir_cell_notice){.handle = WEIR_HANDLE_FIRST,
						  .options = WEIR_NOTICE_ADD | WEIR_NOTICE_DELIVER,
						  .source = ~0u,
						  .signal = 0,
						  .operand = 8});
		world_run(p.w, 100);
		assert_true(next_notice(p.pb, &got));
		assert_int_equal(word(&p, 0), 50);
		world_end(state);
	}
}

static struct weir_channel_head *
head_of(struct program *p, unsigned channel)
{
	return (void *)(p->arena + weir_arena_channel(&p->view.geometry, channel));
}

/* Signals and updates ring the threads that sleep for signals, and no others. */
static void
test_bells(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = notice_programs(&(struct world_options){.delay_ns = 2000});
		struct pconn *c = open_one(&p, i, RIGHTS);
		struct weir_cell_access add = {.handle = WEIR_HANDLE_FIRST,
					       .type = WEIR_T_UINT64,
					       .acc = WEIR_ACC_SUM,
					       .offset = 16,
					       .count = 1,
					       .payload = {1}};
		struct weir_slot s = {.op = WEIR_OP_UPDATE, .vqpn = c->vqpn, .length = 8};

		atomic_store(&head_of(p.pb, TO)->rx_sleeping, WEIR_SLEEPS);
		signal(c, WEIR_NOTICE_ADD, 0, 1);
		world_run(p.w, 200);
		assert_int_equal(word(&p, 0), 1);
		assert_int_equal(p.pb->bells, 0);
		/* any thread of the program */
		atomic_store(&head_of(p.pb, 0)->rx_sleeping, WEIR_SLEEPS | WEIR_SLEEPS_SIGNALS);
		signal(c, WEIR_NOTICE_SET, 0, 7);
		world_run(p.w, 200);
		assert_int_equal(word(&p, 0), 7);
		assert_int_equal(p.pb->bells, 1);
		pconn_put_word(c, 8, 1);
		world_run(p.w, 200);
		assert_int_equal(p.pb->bells, 1);
		s.order = (uint16_t)c->sent++;
		memcpy(s.data, &add, sizeof(add));
		program_slot(c->p, 0, &s);
		world_run(p.w, 200);
		assert_int_equal(word(&p, 16), 1);
		assert_int_equal(p.pb->bells, 2);
		/* one that sleeps for its ring is rung for a notice */
		atomic_store(&head_of(p.pb, 0)->rx_sleeping, 0);
		notify(c, 1);
		world_run(p.w, 200);
		assert_int_equal(p.pb->bells, 3);
		world_end(state);
	}
}

/* The export, the exporting program, the link end while notices wait and windows are granted. */
static void
test_ends(void **state)
{
	for (unsigned how = 0; how < 4; how++) {
		struct pair p =
		    notice_programs(&(struct world_options){.delay_ns = 2000, .ring_slots = 16});
		struct program *by = program_open(p.w, 1, 1);
		struct pconn *a = open_remote(p.pa, RIGHTS), *b = open_apart(by, p.pb, RIGHTS);
		struct pconn *more[3];
		struct got got = {0};

		for (unsigned k = 0; k < 3; k++)
			more[k] = open_remote(p.pa, RIGHTS);
		for (unsigned k = 0; k < FIRST; k++) {
			notify(a, k);
			notify(b, k);
			notify(more[k % 3], k);
			world_run(p.w, 20);
		}
		assert_true(next_notice(p.pb, &got));
		taken(p.pb, got.vqpn, 1);
		if (how == 0)
			assert_int_equal(export_to(p.pb, ENGINE_EXPORT_STOP), 0);
		else if (how == 1)
			program_die(p.pb);
		else if (how == 2)
			world_links_fail(p.w, EHOSTDOWN);
		else
			pconn_close(b), pconn_close(a);
		/* what was delivered stays; returning it is late */
		taken(p.pb, got.vqpn, 1);
		world_run(p.w, 400);
		assert_false(p.pb->violated || by->violated);
		assert_int_equal(a->done, true);
		if (how != 3)
			assert_int_equal(a->close_status, how == 0   ? ESTALE
							  : how == 1 ? ECONNRESET
								     : EHOSTDOWN);
		assert_int_equal(b->done, how != 2);
		if (how == 2) { /* apart no link is needed */
			while (next_notice(p.pb, &got))
				world_step(p.w);
			pconn_close(b);
		}
		world_run(p.w, 400);
		if (how != 1)
			program_ends(p.pb, 800);
		assert_true(p.pb->removed);
		world_end(state);
	}
}

/* A program that writes a wrong cell or a wrong return ends, and nobody else. */
static void
test_bad_programs(void **state)
{
	static const struct weir_cell_notice bad[] = {
	    {.handle = WEIR_HANDLE_FIRST},
	    {.handle = WEIR_HANDLE_FIRST, .options = 8 | WEIR_NOTICE_DELIVER},
	    {.handle = WEIR_HANDLE_FIRST, .options = WEIR_NOTICE_SIGNALS},
	    {.handle = WEIR_HANDLE_FIRST, .options = WEIR_NOTICE_SET, .signal = LENGTH},
	    {.handle = WEIR_HANDLE_FIRST, .options = WEIR_NOTICE_SET, .signal = LENGTH - 7},
	    {.handle = WEIR_HANDLE_FIRST, .options = WEIR_NOTICE_ADD, .signal = 4},
	    {.handle = WEIR_HANDLE_FIRST, .options = WEIR_NOTICE_ADD, .signal = -8ull},
	    {.handle = WEIR_HANDLE_FIRST, .options = WEIR_NOTICE_ADD, .tag = 1},
	    {.handle = WEIR_HANDLE_FIRST, .options = WEIR_NOTICE_ADD, .reserved = 1},
	    {.handle = WEIR_HANDLE_FIRST, .options = WEIR_NOTICE_DELIVER, .operand = 1},
	    {.handle = 2 * WEIR_HANDLE_FIRST, .options = WEIR_NOTICE_DELIVER},
	};
	unsigned n = sizeof(bad) / sizeof(bad[0]);

	for (unsigned i = 0; i < 2 * n + 2; i++) {
		struct pair p = notice_programs(NULL);
		struct pconn *c = open_one(&p, i, i < 2 * n ? RIGHTS : RIGHTS & ~WEIR_RIGHT_NOTIFY);
		struct got got;

		if (i < 2 * n)
			push(c, bad[i / 2]);
		else
			signal(c, WEIR_NOTICE_SET, 0, 1);
		world_run(p.w, 100);
		assert_true(c->p->violated);
		assert_false(p.pb->violated || next_notice(p.pb, &got));
		for (unsigned k = 0; k < LENGTH; k += 8)
			assert_int_equal(word(&p, k), 0);
		world_end(state);
	}
	for (unsigned i = 0; i < 8; i++) {
		struct pair p = notice_programs(NULL);
		struct pconn *c = open_one(&p, i, RIGHTS);
		struct weir_slot s = {.op = WEIR_OP_NOTICED, .length = i / 2 == 1 ? 7 : 0};
		struct got got;

		notify(c, 1);
		world_run(p.w, 100);
		assert_true(next_notice(p.pb, &got));
		if (i / 2 == 0)
			taken(p.pb, got.vqpn, 2);
		else if (i / 2 < 3)
			ring_put(&p.pb->returns[TO], &s);
		else if (i == 6)
			taken(p.pb, got.vqpn, UINT32_MAX);
		else
			pconn_op(c, WEIR_OP_CONSUMED, COST); /* it is not the sender's */
		world_run(p.w, 100);
		assert_int_equal(p.pb->violated, i != 7);
		assert_int_equal(c->p->violated, i == 7);
		world_end(state);
	}
	/* one who has not exported returns nothing */
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = notice_programs(NULL);
		struct pconn *c = open_one(&p, i, RIGHTS);
		struct weir_slot s = {.op = WEIR_OP_NOTICED, .length = 1};
		struct got got;

		for (unsigned k = 0; k < FIRST; k++)
			notify(c, k);
		world_run(p.w, 100);
		assert_true(next_notice(p.pb, &got));
		s.place[0] = (i ? c->vqpn : got.vqpn) | (uint64_t)FIRST << 32;
		ring_put(&c->p->returns[0], &s);
		world_run(p.w, 100);
		assert_int_equal(pconn_granted(c), FIRST * COST);
		world_end(state);
	}
}

/* A peer that sends more than it was granted, or wrong ones, loses its connection. */
static void
test_bad_peers(void **state)
{
	for (unsigned i = 0; i < 5; i++) {
		struct pair p = notice_programs(NULL);
		struct pconn *c = open_remote(p.pa, RIGHTS), *good = open_remote(p.pa, RIGHTS);
		struct conn *begin = conn_find(p.w->node[0].engine, c->vqpn);
		struct weir_slot grant = {.op = WEIR_WIRE_GRANT, .length = COST};
		struct peer_link *l = begin->link;
		unsigned came = 0;
		struct got got;

		begin->cold->memory.length = UINT64_MAX;
		begin->granted = 1u << 20;
		if (i == 0)
			for (unsigned k = 0; k <= FIRST; k++)
				notify(c, k);
		else if (i == 1)
			signal(c, WEIR_NOTICE_ADD, LENGTH, 1);
		else if (i == 2)
			signal(c, WEIR_NOTICE_SET, UINT64_MAX - 15, 1);
		if (i == 3) { /* a window for an end that sends no notices */
			l = conn_find(p.w->node[1].engine, begin->peer_vqpn)->link;
			grant.vqpn = begin->peer_vqpn;
			grant.value = GRANT_ALL + COST;
			link_inject(l, &p.w->node[1].qp[0], &grant, 1, NULL, 0);
		} else if (i == 4) { /* a window that shrinks */
			grant.vqpn = c->vqpn;
			grant.value = COST;
			link_inject(l, &p.w->node[0].qp[0], &grant, 1, NULL, 0);
		}
		world_run(p.w, 100);
		while (next_notice(p.pb, &got))
			came++;
		assert_int_equal(came, i == 0 ? FIRST : 0);
		assert_false(p.pa->violated || p.pb->violated);
		assert_int_equal(node_counters(p.w, i != 4)->bad_frames, 1);
		if (i < 3) {
			assert_closed(c, ECONNRESET);
			notify(good, 9);
			world_run(p.w, 100);
			assert_true(next_notice(p.pb, &got));
			assert_int_equal(got.is.tag, 9);
		}
		world_end(state);
	}
}

/* Channel, offset and rights of an export are checked once more. */
static void
test_export(void **state)
{
	struct pair p = pair_programs(NULL, 2);
	struct engine_command k = {.type = ENGINE_EXPORT_ADD,
				   .export = {.session = p.pb->id,
					      .number = 1,
					      .generation = 5,
					      .region = 1,
					      .length = 64,
					      .rights = WEIR_RIGHT_NOTIFY,
					      .channel = 2}};

	program_adopt(p.pb, 1, BYTES, WEIR_ADOPT_SEND);
	assert_int_equal(program_command(p.pb, &k), -EINVAL);
	k.export.channel = ENGINE_CHANNEL_NONE;
	assert_int_equal(program_command(p.pb, &k), -EINVAL);
	k.export.channel = 1;
	k.export.offset = 8;
	assert_int_equal(program_command(p.pb, &k), -EINVAL);
	k.export.offset = 16;
	assert_int_equal(program_command(p.pb, &k), 0);
}

ENGINE_TESTS(TEST(test_order), TEST(test_behind), TEST(test_window), TEST(test_spill),
	     TEST(test_scarce), TEST(test_signals), TEST(test_bells), TEST(test_ends),
	     TEST(test_bad_programs), TEST(test_bad_peers), TEST(test_export))
