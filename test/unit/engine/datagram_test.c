/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagram connections of two engines: a datagram arrives whole, once and on its connection,
 * whatever the network does and other senders try; one without room is dropped and counted.
 */
#include "engine/channel.h"
#include "base/list.h"
#include "engine/session.h"
#include "engine/state.h"
#include "worlds/engine_world.h"

static struct pair
datagram_open(const struct world_options *o)
{
	struct pair p = pair_programs(o, 2);

	world_datagrams(p.w, 0);
	world_datagrams(p.w, 1);
	world_connect_datagram(p.pa, p.pb, &p.a, &p.b);
	return p;
}

static uint64_t
counted(struct pair *p, unsigned node, size_t field)
{
	const uint8_t *at = (const uint8_t *)node_counters(p->w, node) + field;

	return atomic_load((const _Atomic uint64_t *)(const void *)at);
}
#define COUNTED(p, node, name) counted(p, node, offsetof(struct engine_counters, name))

/* All sizes, both ways; complete when posted, without a word of the receiver. */
static void
test_sizes(void **state)
{
	static const uint32_t sizes[] = {8, 47, 48, 49, 108, 109, 947, 948, 949, 1500, WORLD_MTU};
	struct pair p = datagram_open(NULL);

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		pair_send(&p, p.a, sizes[i], 10);
		pair_send(&p, p.b, sizes[i], 10);
		world_run(p.w, 5); /* rings hold 16 of the largest */
	}
	assert_receives(p.a, 50, p.b->sent);
	assert_complete(p.a, p.b);
	assert_int_equal(COUNTED(&p, 0, datagrams_sent), p.a->sent);
	assert_int_equal(COUNTED(&p, 1, datagrams_received), p.a->sent);
	assert_int_equal(p.w->net.datagrams, p.a->sent + p.b->sent);
	assert_int_equal(p.w->net.no_buffer, 0);
	assert_true(pconn_push(p.a, 0, 100, WEIR_SLOT_NOTIFY));
	p.pb->stopped = true;
	world_run(p.w, 50);
	assert_int_equal(p.a->done_value, p.a->sent);
}

/* The oracle is verify_datagram(): it fails at a datagram that comes twice, or torn. */
static void
test_bad_network(void **state)
{
	struct pair p = datagram_open(&(struct world_options){.delay_ns = 1500});
	uint64_t got;

	p.w->net.lose = 100;
	p.w->net.twice = 300;
	p.w->net.late = 300;
	for (unsigned i = 0; i < 200; i++) {
		p.w->net.seed = i;
		pair_send(&p, p.a, 8 + i * 10, 40);
		pair_send(&p, p.b, 8 + i, 10);
	}
	world_run(p.w, 100);
	got = p.b->received;
	assert_true(got < p.a->sent && got > p.a->sent / 2);
	assert_true(COUNTED(&p, 1, datagrams_doubled) > 1000);
	assert_int_equal(pconn_completed(p.a), p.a->sent);
	pconn_close(p.a);
	world_run(p.w, 100);
	assert_closed(p.b, 0); /* fewer than were sent is no error */
}

/* A number below the window counts as a double: it might be one. */
static void
test_far_behind(void **state)
{
	struct pair p = datagram_open(&(struct world_options){.delay_ns = 1000});
	uint64_t got;

	p.w->net.late = 1000; /* by up to 20 us: forty steps of 500 ns */
	for (unsigned i = 0; i < 400; i++) {
		assert_true(pconn_send(p.a, 100, 0));
		world_step(p.w);
	}
	world_run(p.w, 100);
	got = p.b->received;
	assert_int_equal(got, p.a->sent); /* forty behind: all of them */
	assert_int_equal(COUNTED(&p, 1, datagrams_doubled), 0);
}

/* ---- strangers ---- */

struct forged {
	uint32_t vqpn, from;
	uint64_t number;
	uint64_t which; /* as of a message of the pattern, which it isn't */
};

static void
forge(struct pair *p, struct fake_qp *by, struct nic_gid source, const struct forged *f,
      uint32_t length, uint32_t imm, uint32_t qkey)
{
	static struct fake_ah ah;
	struct nic_mr mr = fake_mr(&p->w->net, (void *)(uintptr_t)f, sizeof(*f), 0);
	struct nic_send_wr wr = {.wr_id = UINT64_MAX,
				 .sge = {{(uintptr_t)f, length, mr.lkey}},
				 .sge_count = 1,
				 .opcode = NIC_SEND_IMM,
				 .imm = imm,
				 .ah = (struct nic_ah *)&ah,
				 .remote_qpn = nic_qpn(p->w->node[1].datagrams.qp),
				 .qkey = qkey};

	ah.source = source;
	assert_int_equal(nic_post_send((struct nic_qp *)by, &wr, 1), 1);
	world_run(p->w, 5);
	fake_mr_end(&p->w->net, &mr);
}

static struct fake_qp stranger;

static void
test_strangers(void **state)
{
	const struct nic_gid gid = nic_gid_ipv4(0x0a000001), other = nic_gid_ipv4(0x0a000063);
	const uint32_t imm = WEIR_IMM(WEIR_IMM_DATAGRAM, 0), size = sizeof(struct forged);
	struct pair p = datagram_open(NULL);
	const uint32_t b = p.b->vqpn, a = p.a->vqpn, qkey = p.w->node[1].datagrams.qkey;
	const struct {
		struct forged f;
		struct nic_gid from;
		uint32_t length, imm, qkey;
	} rows[] = {
	    {{b, a, 4, 60000}, gid, size, imm, qkey + 1}, /* the NIC drops it */
	    {{b, a, 4, 60000}, other, size, imm, qkey},
	    {{b + (1 << 20), a, 4, 60001}, gid, size, imm, qkey}, /* another generation */
	    {{b + 1, a, 4, 60002}, gid, size, imm, qkey},
	    {{0, a, 4, 60003}, gid, size, imm, qkey},
	    {{UINT32_MAX, a, 4, 60004}, gid, size, imm, qkey},
	    {{b, a + 1, 4, 60005}, gid, size, imm, qkey},
	    {{b, a, 0, 60006}, gid, size, imm, qkey},
	    {{b, a, 4, 60007}, gid, 15, imm, qkey}, /* less than a head */
	    {{b, a, 4, 60008}, gid, 0, imm, qkey},
	    {{b, a, 4, 60009}, gid, size, WEIR_IMM(WEIR_IMM_FRAME, 1), qkey},
	    {{b, a, 4, 60000}, gid, size, imm, qkey}, /* right, so the rest of the others was */
	};
	const unsigned last = sizeof(rows) / sizeof(rows[0]) - 1;

	pair_send(&p, p.a, 100, 3);
	for (unsigned i = 0; i <= last; i++) {
		forge(&p, &p.w->node[0].ud, rows[i].from, &rows[i].f, rows[i].length, rows[i].imm,
		      rows[i].qkey);
		assert_int_equal(p.b->received, i == last ? 4 : 3);
		assert_int_equal(COUNTED(&p, 1, datagrams_refused), i < last ? i : last - 1);
	}
	assert_false(p.w->node[1].link_errors);
}

static void
test_other_queue_pair(void **state)
{
	struct pair p = datagram_open(NULL);
	struct forged f = {p.b->vqpn, p.a->vqpn, 1, 0};

	fake_ud_init(&stranger, p.w->node[0].nic, engine_datagram_user(p.w->node[0].engine),
		     &p.w->node[0].ud_srq, 1);
	forge(&p, &stranger, nic_gid_ipv4(0x0a000001), &f, sizeof(f),
	      WEIR_IMM(WEIR_IMM_DATAGRAM, 0), p.w->node[1].datagrams.qkey);
	assert_int_equal(p.b->received, 0);
	assert_int_equal(COUNTED(&p, 1, datagrams_refused), 1);
	pair_send(&p, p.a, 100, 3);
	assert_receives(p.b, 10, 3);
}

/* Neither by ring nor with credit does a peer get at a datagram connection. */
static void
test_many_connections(void **state)
{
	struct pair p = datagram_open(&(struct world_options){.delay_ns = 3000});
	struct pconn *a[10], *b[10], *s, *t;

	p.w->net.late = p.w->net.twice = 300;
	world_connect(p.pa, p.pb, &s, &t); /* a stream beside them */
	for (unsigned i = 0; i < 10; i++)
		world_connect_datagram(p.pa, p.pb, &a[i], &b[i]);
	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 10; i++)
			assert_true(pconn_push(a[i], i % 2, 8 + round * 20, 0));
		pair_send(&p, s, 300, 5);
		if (round % 10)
			continue;
		/* its entries are used again while datagrams for it are under way */
		pconn_close(a[round / 10]);
		pconn_close(b[round / 10]);
		world_run(p.w, 60);
		assert_true(a[round / 10]->freed);
		world_connect_datagram(p.pa, p.pb, &a[round / 10], &b[round / 10]);
	}
	assert_receives(t, 200, s->sent);
	for (unsigned i = 5; i < 10; i++)
		assert_int_equal(b[i]->received, a[i]->sent);
}

/* ---- no room ---- */

static void
test_no_room(void **state)
{
	struct pair p = datagram_open(&(struct world_options){.ring_slots = 64, .recv_blocks = 64});

	world_connect(p.pa, p.pb, &p.x, &p.y);
	p.pb->stopped = true;
	pair_send(&p, p.a, 200, 500);
	pair_send(&p, p.a, 2000, 200);
	assert_int_equal(pconn_completed(p.a), p.a->sent);
	assert_true(COUNTED(&p, 1, datagrams_dropped) > 500);
	p.pb->stopped = false;
	world_run(p.w, 50);
	assert_int_equal(p.b->received + COUNTED(&p, 1, datagrams_dropped), p.a->sent);
	pair_send(&p, p.a, 2000, 1);
	pair_send(&p, p.x, 5000, 30);
	assert_receives(p.y, 500, 30);
	assert_int_equal(p.b->received + COUNTED(&p, 1, datagrams_dropped), p.a->sent);
}

/* One whose blocks are kept takes no more than its window: streams of the session go on. */
static void
test_hoarded(void **state)
{
	struct pair p =
	    datagram_open(&(struct world_options){.recv_blocks = 64, .window = 64 << 10});

	world_connect(p.pa, p.pb, &p.x, &p.y);
	p.b->keep_blocks = true;
	pair_send(&p, p.a, 2000, 200);
	assert_int_equal(p.b->received, (64 << 10) / weir_cost(2000));
	pair_send(&p, p.x, 5000, 100);
	assert_receives(p.y, 1000, 100);
}

/* A program that doesn't keep to the largest message breaks the rules. */
static void
test_too_long(void **state)
{
	struct pair p = datagram_open(NULL);

	assert_true(pconn_push(p.a, 0, WORLD_MTU + 1, 0));
	world_run(p.w, 50);
	assert_true(p.pa->violated);
	assert_int_equal(p.w->net.datagrams, 0);
}

/* ---- ends ---- */

static void
test_close(void **state)
{
	struct pair p = datagram_open(&(struct world_options){.delay_ns = 2000});

	for (unsigned i = 0; i < 10; i++) {
		pair_send(&p, p.a, 300, 20);
		pconn_close(i % 2 ? p.a : p.b);
		world_run(p.w, 200);
		assert_true((i % 2 ? p.b : p.a)->done);
		pconn_close(i % 2 ? p.b : p.a);
		world_run(p.w, 200);
		assert_true(p.a->freed && p.b->freed);
		world_connect_datagram(p.pa, p.pb, &p.a, &p.b);
	}
	pair_send(&p, p.a, 300, 20);
	program_die(p.pb);
	world_run(p.w, 200);
	assert_closed(p.a, ECONNRESET);
	assert_true(p.pb->removed);
}

/* A link goes only when no datagram names its address handle any more. */
static void
test_link_fails(void **state)
{
	struct pair p = datagram_open(NULL);
	struct engine *e = p.w->node[0].engine;
	struct engine_command *k = calloc(1, sizeof(*k));

	p.w->node[0].ud.hold = true;
	pair_send(&p, p.a, 300, 5);
	p.w->node[0].qp[0].dead = p.w->node[0].qp[1].dead = true;
	k->type = ENGINE_LINK_FAIL;
	k->link = (struct engine_link_command){.link = 1, .status = EHOSTDOWN};
	assert_false(engine_execute(e, k));
	p.w->now += 500;
	engine_turn(e, p.w->now);
	assert_null(engine_done(e));
	program_read(p.pa);
	assert_closed(p.a, EHOSTDOWN);
	fake_ud_release(&p.w->node[0].ud);
	engine_turn(e, p.w->now + 500);
	engine_turn(e, p.w->now + 1000);
	assert_ptr_equal(engine_done(e), k);
	assert_int_equal(k->result, 0);
	free(k);
}

static void
queue_pair_fails(bool told)
{
	struct pair p = datagram_open(NULL);
	struct engine_command k = {.type = ENGINE_DATAGRAM_FAIL};
	struct node *n = &p.w->node[0];

	world_connect(p.pa, p.pb, &p.x, &p.y);
	n->ud.hold = true;
	pair_send(&p, p.a, 300, 5);
	n->ud.dead = true;
	if (told)
		assert_true(engine_execute(n->engine, &k));
	else
		assert_true(pconn_push(p.a, 0, 300, 0));
	world_run(p.w, 50);
	assert_closed(p.a, ECONNRESET);
	assert_closed(p.b, ECONNRESET);
	assert_int_equal(n->datagram_errors, 0); /* the NIC has not given all back */
	k = (struct engine_command){
	    .type = ENGINE_CONN_OPEN,
	    .conn = {.session = 0, .desc = 9, .link = 1, .kind = CONN_DATAGRAM}};
	assert_int_equal(program_command(p.pa, &k), -EBUSY);
	fake_ud_release(&n->ud);
	world_run(p.w, 5);
	assert_int_equal(n->datagram_errors, 1);
	world_datagrams(p.w, 0);
	pair_send(&p, p.x, 300, 20);
	world_connect_datagram(p.pa, p.pb, &p.a, &p.b);
	pair_send(&p, p.a, 300, 20);
	pair_send(&p, p.b, 300, 20);
	assert_receives(p.a, 50, 20);
	assert_int_equal(p.b->received, 20);
	assert_int_equal(p.y->received, 20);
	assert_int_equal(n->datagram_errors, 1);
}

static void
test_queue_pair_fails(void **state)
{
	queue_pair_fails(false);
	queue_pair_fails(true);
}

/* A full send queue makes the program wait; it loses nothing. */
static void
test_full_queue(void **state)
{
	struct pair p = datagram_open(&(struct world_options){.ring_slots = 1024});

	p.w->node[0].ud.hold = true;
	assert_int_equal(pconn_pushes(p.a, 0, 40, ENGINE_DATAGRAMS + 100), ENGINE_DATAGRAMS + 100);
	world_run(p.w, 50);
	assert_int_equal(p.w->net.datagrams, ENGINE_DATAGRAMS);
	assert_int_equal(pconn_completed(p.a), ENGINE_DATAGRAMS);
	fake_ud_release(&p.w->node[0].ud);
	world_run(p.w, 50);
	assert_int_equal(p.w->net.datagrams, p.a->sent);
	assert_int_equal(p.b->received, p.a->sent);
}

/*
 * Datagrams beyond the program's rate wait: its channel and the engine go on, and they leave in
 * order once the rate allows it, or the limit is removed.
 */
static void
test_limited(void **state)
{
	static const uint32_t sizes[] = {30, 100, 948, 1500, 400};
	struct pair p = datagram_open(NULL);
	struct engine *e = p.w->node[0].engine;
	uint64_t limited;

	program_share(p.pa, ENGINE_WEIGHT, 10000, 0);
	assert_true(pconn_push(p.a, 0, 400, 0));
	assert_receives(p.b, 100, 1);
	for (unsigned i = 0; i < 5; i++)
		assert_true(pconn_push(p.a, 0, sizes[i], 0));
	assert_receives(p.b, 100, 1);
	limited = COUNTED(&p, 0, rate_limited);
	assert_true(limited > 0);
	world_run(p.w, 1000);
	assert_int_equal(COUNTED(&p, 0, rate_limited), limited); /* nobody tries in vain */
	assert_false(e->sessions[p.pa->id].channels[0].blocked);
	assert_int_equal(world_sleep(p.w, e), e->limited_at);
	for (unsigned i = 2; i <= 4; i++) {
		world_later(p.w, 400000000, 100);
		assert_true(p.b->received >= i && p.b->received < 6);
	}
	program_share(p.pa, ENGINE_WEIGHT, 0, 0);
	assert_receives(p.b, 100, 6);
	assert_int_equal(pconn_completed(p.a), 6);
	assert_int_equal(e->sessions[p.pa->id].pool_used, 0);
	/* close: what waits leaves before; death: it doesn't */
	program_share(p.pa, ENGINE_WEIGHT, 10000, 0);
	pair_send(&p, p.a, 400, 3);
	pconn_close(p.a);
	for (unsigned i = 0; i < 3; i++) {
		world_later(p.w, 40000000, 100);
	}
	assert_int_equal(p.b->received, 9);
	assert_true(p.b->done);
	world_connect_datagram(p.pa, p.pb, &p.a, &p.b);
	pair_send(&p, p.a, 400, 3);
	program_die(p.pa);
	world_later(p.w, 600000000, 200);
	assert_true(p.pa->removed && p.b->done);
}

/* Its queue pair fails while datagrams wait for their rate: they end with their connection. */
static void
test_limited_fails(void **state)
{
	struct pair p = datagram_open(NULL);
	struct engine *e = p.w->node[0].engine;

	program_share(p.pa, ENGINE_WEIGHT, 10000, 0);
	assert_int_equal(pconn_pushes(p.a, 0, 1000, 4), 4);
	world_run(p.w, 100);
	assert_true(p.b->received < 4);
	p.w->node[0].ud.dead = true;
	world_later(p.w, 400000000, 100);
	assert_true(p.a->done && p.b->done);
	assert_int_equal(p.a->close_status, ECONNRESET);
	assert_int_equal(e->sessions[p.pa->id].pool_used, 0);
	assert_true(list_empty(&e->limited));
}

/* A program that sends before it may: a datagram stays one, and nobody else's link ends. */
static void
test_before_open(void **state)
{
	struct pair p = datagram_open(NULL);
	struct pconn *c;

	world_connect(p.pa, p.pb, &p.x, &p.y);
	c = pconn_connect_datagram(p.pa);
	assert_false(c->opened);
	assert_int_equal(pconn_pushes(c, 0, 100, 3), 3);
	world_run(p.w, 100);
	assert_true(c->opened);
	assert_int_equal(pconn_completed(c), 3);
	assert_int_equal(COUNTED(&p, 0, datagrams_sent), 3);
	assert_int_equal(COUNTED(&p, 1, bad_frames), 0);
	assert_int_equal(p.w->node[1].link_errors, 0);
	pair_send(&p, p.x, 300, 20);
	assert_receives(p.y, 50, 20);
}

ENGINE_TESTS(TEST(test_sizes), TEST(test_bad_network), TEST(test_far_behind), TEST(test_strangers),
	     TEST(test_other_queue_pair), TEST(test_many_connections), TEST(test_no_room),
	     TEST(test_hoarded), TEST(test_too_long), TEST(test_close), TEST(test_link_fails),
	     TEST(test_queue_pair_fails), TEST(test_full_queue), TEST(test_limited),
	     TEST(test_limited_fails), TEST(test_before_open))
