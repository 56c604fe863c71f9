/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs and peers that break the rules: they lose their session, connection or link, nobody
 * else. */
#include "engine_world.h"

#include "engine/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>

struct pair {
	struct world *w;
	struct program *pa, *pb, *honest;
	struct pconn *a, *b, *x, *y; /* x belongs to the honest program on the hostile one's node */
};

static struct pair
pair_open(void)
{
	struct pair p;

	p.w = world_create(NULL);
	p.pa = program_open(p.w, 0, 2);
	p.pb = program_open(p.w, 1, 2);
	p.honest = program_open(p.w, 0, 1);
	world_connect(p.pa, p.pb, &p.a, &p.b);
	world_connect(p.honest, p.pb, &p.x, &p.y);
	return p;
}

static void
honest_traffic(struct pair *p)
{
	uint64_t want = p->y->received + 20;

	for (unsigned n = 20, i = 0; i < 2000 && p->y->received < want; i++) {
		if (n && pconn_send(p->x, 400, 0))
			n--;
		world_step(p->w);
	}
	assert_int_equal(p->y->received, want);
	assert_int_equal(p->y->received, p->x->sent);
	assert_false(p->honest->violated || p->pb->violated);
}

/* After what a hostile program did: it is found out, its peer learns it, the others go on. */
static void
assert_caught(struct pair *p)
{
	world_run(p->w, 1000);
	assert_true(p->pa->violated);
	assert_int_equal(atomic_load(&p->pa->view.violation), EPROTO);
	assert_true(p->b->done);
	assert_int_equal(p->b->close_status, ECONNRESET);
	honest_traffic(p);
	program_die(p->pa);
	world_run(p->w, 200);
	assert_true(p->pa->removed);
	honest_traffic(p);
	world_destroy(p->w);
}

static void
push(struct program *p, struct weir_slot s)
{
	program_slot(p, 0, &s);
}

static void
test_bad_messages(void **state)
{
	for (unsigned kind = 0; kind < 21; kind++) {
		struct pair p = pair_open();
		const struct weir_geometry *g = &p.pa->view.geometry;
		struct weir_slot s = {.op = WEIR_OP_PLACE, .vqpn = p.a->vqpn, .length = 1000};

		(void)state;
		s.place[0] = weir_arena_send(g);
		switch (kind) {
		case 0:
			s.op = WEIR_OP_INLINE;
			s.length = WEIR_INLINE_MAX + 1;
			break;
		case 1:
			s.op = WEIR_OP_INLINE;
			s.flags = WEIR_SLOT_BULK;
			s.length = 10;
			break;
		case 2:
			s.place[0] = weir_arena_recv(g);
			break;
		case 3:
			s.place[0] = WEIR_PLACE(1, weir_arena_send(g));
			break;
		case 4:
			s.place[0] = weir_arena_end(g) - 999;
			break;
		case 5:
			s.place[0] = (1ull << 48) - 500;
			break;
		case 6:
			s.length = WEIR_MESSAGE_MAX + 1;
			break;
		case 7:
			s.length = UINT32_MAX;
			break;
		case 8:
			s.op = 3;
			break;
		case 9:
			s.op = WEIR_OP_OPENED;
			break;
		case 10:
			s.vqpn = p.x->vqpn; /* another session's */
			break;
		case 11:
			s.vqpn = 5000; /* beyond the table */
			break;
		case 12:
			s.op = WEIR_OP_INLINE;
			s.vqpn = WEIR_VQPN(100, 3);
			s.length = UINT32_MAX;
			break;
		case 13:
			s.order = 7; /* nowhere are the seven before it */
			break;
		case 14: /* ways: one that doesn't take it, two, or none of its kind */
			s.op = WEIR_OP_INLINE;
			s.length = 10;
			s.flags = WEIR_SLOT_READ;
			break;
		case 15:
			s.flags = WEIR_SLOT_BULK | WEIR_SLOT_READ | WEIR_SLOT_WRITE;
			break;
		case 16:
			s.flags = WEIR_SLOT_READ;
			break;
		case 17:
			s.flags = WEIR_SLOT_BULK | WEIR_SLOT_RING;
			break;
		case 18:
			s.length = 10000;
			s.flags = WEIR_SLOT_RING;
			break;
		case 19:
			s.length = 1921;
			s.flags = WEIR_SLOT_SEND;
			break;
		case 20:
			s.flags = WEIR_SLOT_SEND | WEIR_SLOT_RING;
			break;
		}
		push(p.pa, s);
		assert_caught(&p);
	}
}

static void
test_bad_control(void **state)
{
	for (unsigned kind = 0; kind < 15; kind++) {
		struct pair p = pair_open();
		const struct weir_geometry *g = &p.pa->view.geometry;
		struct weir_slot s = {.op = WEIR_OP_RELEASE, .vqpn = p.a->vqpn, .length = 1};

		(void)state;
		s.place[0] = weir_arena_recv(g);
		switch (kind) {
		case 0: /* a block that is not out */
			break;
		case 1:
			s.length = 0;
			break;
		case 2:
			s.length = 7;
			break;
		case 3:
			s.place[0] += 64;
			break;
		case 4:
			s.place[0] = weir_arena_send(g);
			break;
		case 5:
			s.place[0] = WEIR_PLACE(3, weir_arena_recv(g));
			break;
		case 6:
			s.place[0] = 0;
			break;
		case 7:
			s.op = WEIR_OP_CONSUMED;
			s.value = 64;
			break;
		case 8:
			s.op = WEIR_OP_CLOSE;
			s.vqpn = p.x->vqpn;
			break;
		case 9:
			s.op = 255;
			break;
		case 10: /* the same block twice */
			pconn_send(p.b, 5000, 0);
			world_run(p.w, 50);
			p.pa->stopped = true;
			pconn_send(p.b, 5000, 0);
			world_run(p.w, 50);
			assert_int_equal(p.a->received, 1);
			push(p.pa, s);
			break;
		case 11: /* the inside of a run */
			p.a->keep_blocks = true;
			pconn_send(p.b, 30000, 0);
			world_run(p.w, 100);
			s.place[0] = p.pa->held[0].place + WEIR_BLOCK_SIZE;
			break;
		case 12: /* of another program */
			s.op = WEIR_OP_CONSUMED;
			s.vqpn = p.x->vqpn;
			s.value = 0;
			break;
		case 13: /* in the wrong ring */
			s.op = WEIR_OP_CONSUMED;
			s.value = 0;
			ring_put(&p.pa->tx[0], &s);
			break;
		case 14:
			s.op = WEIR_OP_WANT;
			ring_put(&p.pa->returns[0], &s);
			break;
		}
		if (kind < 13)
			push(p.pa, s);
		assert_caught(&p);
	}
}

static void
test_after_close(void **state)
{
	struct pair p = pair_open();

	(void)state;
	pconn_push(p.a, 0, 10, 0);
	pconn_close(p.a);
	pconn_push(p.a, 0, 10, 0);
	world_run(p.w, 100);
	assert_true(p.pa->violated);
	/* the entry has gone meanwhile: then it is only stray */
	pconn_push(p.x, 0, 10, 0);
	pconn_close(p.x);
	world_run(p.w, 200);
	assert_true(p.x->freed);
	pconn_push(p.x, 0, 10, 0);
	pconn_close(p.x);
	world_run(p.w, 20);
	assert_false(p.honest->violated);
	assert_true(node_counters(p.w, 0)->stray > 0);
	world_destroy(p.w);
}

static void
test_lying_tail(void **state)
{
	for (unsigned kind = 0; kind < 2; kind++) {
		struct pair p = pair_open();
		struct weir_channel_head *head =
		    (void *)(p.pa->arena + weir_arena_channel(&p.pa->view.geometry, 0));

		(void)state;
		for (unsigned i = 0; i < 3000; i++) {
			pconn_send(p.b, 10, 0);
			world_run(p.w, 2);
		}
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
		struct pair p = pair_open();
		const struct weir_geometry *g = &p.pa->view.geometry;
		uint8_t *recv = p.pa->arena + weir_arena_recv(g);

		(void)state;
		for (unsigned i = 0; i < 600; i++) { /* the window has to grow beyond the ring */
			pconn_send(p.b, 500, 0);
			world_run(p.w, 2);
		}
		p.pa->stopped = true;
		for (unsigned i = 0; i < 800; i++) {
			pconn_send(p.b, 10, 0);
			world_step(p.w);
		}
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
		program_die(p.pa);
		world_run(p.w, 500);
		assert_true(p.pa->removed);
		world_destroy(p.w);
	}
}

/* The quota of waiting slots is per session; what gives memory back is still heard. */
static void
test_quota(void **state)
{
	struct pair p = pair_open();
	struct weir_slot s = {.op = WEIR_OP_RELEASE, .length = 1};

	(void)state;
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
	push(p.pa, s);
	world_run(p.w, 5);
	assert_int_equal(p.w->node[0].engine->sessions[0].blocks.free,
			 p.pa->view.geometry.recv_blocks);
	p.pb->stopped = false;
	world_run(p.w, 20000);
	assert_int_equal(p.b->received, p.a->sent);
	honest_traffic(&p);
	world_destroy(p.w);
}

/* To the slot: one more would lie behind the memory of those that wait. */
static void
test_quota_is_exact(void **state)
{
	struct pair p = pair_open();
	const struct session *s = &p.w->node[0].engine->sessions[0];

	(void)state;
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
	world_run(p.w, 20000);
	assert_int_equal(p.b->received, p.a->sent);
	world_destroy(p.w);
}

/* Threads of a program: messages of one connection in several channels keep their order. */
static void
test_order_across_channels(void **state)
{
	struct pair p = pair_open();
	unsigned sent = 0;

	(void)state;
	for (unsigned i = 0; i < 3000; i++) {
		for (unsigned k = 0; k < 5; k++)
			sent += pconn_push(p.a, (i * 7 + k * 3) / 4 % 2, i % 200, 0);
		world_step(p.w);
	}
	world_run(p.w, 3000);
	assert_false(p.pa->violated);
	assert_int_equal(p.b->received, sent);
	world_destroy(p.w);
}

/* ---- peers ---- */

/* Writes a frame into a ring of node 1 as the link's peer would, with a head that may lie. */
static void
inject_into(struct link *l, struct fake_qp *qp, const struct weir_slot *lines, uint32_t n,
	    const struct weir_frame_head *lie, uint32_t imm)
{
	struct weir_frame_head head = {.version = WEIR_WIRE_VERSION,
				       .lines = n + 1,
				       .position = l->rx_pos,
				       .consumed = l->tx_posted,
				       .wrs = l->wrs_used};

	if (lie)
		head = *lie;
	memcpy(&l->ring[l->rx_pos & l->rx_mask], &head, 64);
	for (uint32_t i = 0; i < n; i++)
		memcpy(&l->ring[(l->rx_pos + 1 + i) & l->rx_mask], &lines[i], 64);
	fake_receive(qp, imm ? imm : WEIR_IMM(WEIR_IMM_FRAME, n + 1));
}

static void
inject(struct pair *p, const struct weir_slot *lines, uint32_t n, const struct weir_frame_head *lie,
       uint32_t imm)
{
	inject_into(&p->w->node[1].engine->links[1], &p->w->node[1].qp[0], lines, n, lie, imm);
}

static void
repair(struct pair *p)
{
	world_link_fail(p->w, 0, EHOSTDOWN);
	world_link_fail(p->w, 1, EHOSTDOWN);
	world_run(p->w, 20);
	p->w->node[0].nic->cq_first = p->w->node[0].nic->cq_end;
	p->w->node[1].nic->cq_first = p->w->node[1].nic->cq_end;
	pconn_close(p->a);
	pconn_close(p->b);
	pconn_close(p->x);
	pconn_close(p->y);
	world_run(p->w, 20);
	world_link_up(p->w);
	world_connect(p->pa, p->pb, &p->a, &p->b);
	world_connect(p->honest, p->pb, &p->x, &p->y);
	world_run(p->w, 100);
}

static void
assert_link_error(struct pair *p, unsigned errors)
{
	world_run(p->w, 3);
	assert_int_equal(p->w->node[1].link_errors, errors + 1);
	assert_int_equal(p->w->node[1].link_error, EPROTO);
	repair(p);
	honest_traffic(p);
}

static void
test_bad_heads(void **state)
{
	struct pair p = pair_open();

	(void)state;
	world_run(p.w, 100);
	for (unsigned kind = 0; kind < 9; kind++) {
		struct link *l = &p.w->node[1].engine->links[1];
		struct weir_frame_head h = {.version = WEIR_WIRE_VERSION,
					    .lines = 1,
					    .position = l->rx_pos,
					    .consumed = l->tx_posted,
					    .wrs = l->wrs_used};
		unsigned errors = p.w->node[1].link_errors;
		uint32_t imm = 0;

		switch (kind) {
		case 0:
			h.version = WEIR_WIRE_VERSION + 1;
			break;
		case 1:
			h.lines = 2;
			break;
		case 2:
			h.position++;
			break;
		case 3:
			h.lines = 0;
			imm = WEIR_IMM(WEIR_IMM_FRAME, 0);
			break;
		case 4:
			h.lines = 4096;
			imm = WEIR_IMM(WEIR_IMM_FRAME, 4096);
			break;
		case 5:
			h.consumed++;
			break;
		case 6:
			h.wrs++;
			break;
		case 7:
			imm = WEIR_IMM(99, 1);
			break;
		case 8:
			h.consumed = UINT64_MAX;
			break;
		}
		inject(&p, NULL, 0, &h, imm);
		assert_link_error(&p, errors);
	}
	/* the credit line lies */
	atomic_store(&p.w->node[1].credit->consumed, 1u << 30);
	pconn_send(p.b, 10, 0);
	assert_link_error(&p, p.w->node[1].link_errors);
	world_destroy(p.w);
}

static void
test_bad_lines(void **state)
{
	struct pair p = pair_open();

	(void)state;
	for (unsigned kind = 0; kind < 17; kind++) {
		struct weir_slot s[2] = {{.op = WEIR_OP_INLINE, .vqpn = p.b->vqpn, .length = 8}};
		struct weir_wire_connect w = {.vqpn = 9, .service = "x"};
		unsigned errors = p.w->node[1].link_errors;

		switch (kind) {
		case 0:
			s->length = 49; /* its end lies beyond the frame */
			break;
		case 1:
			s->length = 949;
			break;
		case 2:
			s->length = UINT32_MAX;
			break;
		case 3:
			s->op = WEIR_OP_PLACE;
			s->length = 100;
			break;
		case 4:
			s->op = WEIR_OP_PLACE;
			s->length = 8193;
			break;
		case 5:
			s->op = WEIR_OP_PLACE;
			s->length = 4000;
			break;
		case 6:
			s->op = 0;
			break;
		case 7:
			s->op = WEIR_OP_CLOSE;
			break;
		case 8:
			s->op = 255;
			break;
		case 9:
			s->vqpn = WEIR_VQPN(77, 1);
			break;
		case 10:
			s->vqpn += 1u << 20; /* another life of it */
			break;
		case 11:
			s->op = WEIR_WIRE_FIN_ACK;
			break;
		case 12:
			s->op = WEIR_WIRE_ACCEPT;
			s->extra = 5;
			break;
		case 13:
			s->op = WEIR_WIRE_CONNECT; /* vqpn field set */
			break;
		case 14:
			s->op = WEIR_WIRE_CONNECT;
			s->vqpn = 0;
			w.vqpn = 0;
			memcpy(s->data, &w, sizeof(w));
			break;
		case 15:
			s->op = WEIR_WIRE_CONNECT;
			s->vqpn = 0;
			memset(w.service, 'x', sizeof(w.service));
			memcpy(s->data, &w, sizeof(w));
			break;
		case 16:
			s->op = WEIR_WIRE_GRANT;
			s->vqpn = 0;
			break;
		}
		inject(&p, s, 1, NULL, 0);
		assert_link_error(&p, errors);
	}
	world_destroy(p.w);
}

static struct weir_slot
rts_line(const struct pconn *c, uint64_t number, uint32_t length, uint32_t ways)
{
	struct weir_slot s = {.op = WEIR_WIRE_RTS, .vqpn = c->vqpn, .length = length};
	struct weir_wire_rts rts = {.number = number, .ways = ways};

	memcpy(s.data, &rts, sizeof(rts));
	return s;
}

/* A SEND that is no frame, or not of this kind or length: the link ends. */
static void
test_bad_sends(void **state)
{
	struct pair p = pair_open();

	(void)state;
	for (unsigned kind = 0; kind < 6; kind++) {
		struct link *l = &p.w->node[1].engine->links[1];
		uint32_t errors = p.w->node[1].link_errors;
		struct {
			struct weir_frame_head head;
			struct weir_slot line;
		} f = {{.version = WEIR_WIRE_VERSION,
			.lines = 2,
			.position = l->rx_pos,
			.consumed = l->tx_posted,
			.wrs = l->wrs_used},
		       {.op = WEIR_OP_INLINE, .vqpn = p.b->vqpn, .length = 8}};
		uint32_t imm = WEIR_IMM(WEIR_IMM_SEND, 2), length = sizeof(f);

		switch (kind) {
		case 0:
			imm = WEIR_IMM(WEIR_IMM_FRAME, 2);
			break;
		case 1:
			imm = WEIR_IMM(WEIR_IMM_SEND, 3);
			break;
		case 2: /* the rest seems to lie there already */
			for (uint32_t i = 0; i < 256; i++)
				memcpy(p.w->node[1].recv + (size_t)i * ENGINE_RECV_BYTES, &f,
				       sizeof(f));
			length = 64;
			break;
		case 3:
			f.head.position++;
			break;
		case 4:
			f.line.length = 100; /* beyond the frame */
			break;
		case 5:
			imm = WEIR_IMM(7, 2);
			break;
		}
		p.b->no_read = true;
		fake_receive_sent(&p.w->node[1].qp[0], imm, &f, length);
		assert_link_error(&p, errors);
	}
	world_destroy(p.w);
}

/* What ends one connection: the link and the others stay. */
static void
test_bad_flow(void **state)
{
	struct pair p = pair_open();

	(void)state;
	for (unsigned kind = 0; kind < 14; kind++) {
		struct weir_slot s[12] = {{.op = WEIR_OP_INLINE, .vqpn = p.b->vqpn, .length = 8}};
		uint32_t n = 1;

		switch (kind) {
		case 0: /* a slot more than was granted */
			for (n = 0; n < 9; n++) {
				s[n] = s[0];
				s[n].order = (uint16_t)n;
			}
			break;
		case 1:
			s->order = 1;
			break;
		case 2: /* lowers a grant */
			s->op = WEIR_WIRE_GRANT;
			s->value = 64;
			break;
		case 3: /* consumed what wasn't sent */
			s->op = WEIR_WIRE_GRANT;
			s->value = 1 << 20;
			s->place[2] = 64;
			break;
		case 4:
			s->op = WEIR_WIRE_RECLAIMED;
			break;
		case 5:
			s[0] = rts_line(p.b, 0, WEIR_MESSAGE_MAX + 1, WEIR_RTS_WRITE);
			break;
		case 6: /* the same number twice */
			s[1] = s[0] = rts_line(p.b, 0, 10000, WEIR_RTS_WRITE);
			n = 2;
			break;
		case 7: /* too many */
			for (n = 0; n < 9; n++)
				s[n] = rts_line(p.b, n, 10000, WEIR_RTS_WRITE);
			break;
		case 8:
			s->op = WEIR_WIRE_CTS;
			break;
		case 9:
			s->op = WEIR_WIRE_BULK;
			break;
		case 10:
			s->op = WEIR_WIRE_FIN;
			s->value = 3;
			break;
		case 11:
			s[0] = rts_line(p.b, 0, 10000, 0);
			break;
		case 12:
			s[0] = rts_line(p.b, 0, 10000, 4);
			break;
		case 13: /* fetched what wasn't announced */
			s->op = WEIR_WIRE_FETCHED;
			break;
		}
		p.b->no_read = true;
		inject(&p, s, n, NULL, 0);
		world_run(p.w, 1);
		assert_int_equal(p.w->node[1].engine->links[1].broken, 0);
		assert_int_equal(pconn_status(p.b), EPROTO);
		assert_int_equal(pconn_status(p.y), 0);
		assert_int_equal(p.w->node[1].link_errors, 0);
		repair(&p);
	}
	world_destroy(p.w);
}

/* A second peer of node 1, of which there is nothing but the link. */
struct stranger {
	struct nic_context nowhere;
	struct fake_qp qp[2], end[2];
	struct weir_slot ring[256], staging[256];
	struct weir_credit_line credit[2];
	_Alignas(64) uint8_t work[16384];
};

static struct link *
add_stranger(struct world *w, struct stranger *s)
{
	struct engine *e = w->node[1].engine;
	struct engine_command k = {.type = ENGINE_LINK_ADD};

	fake_context_init(&s->nowhere, &w->net);
	for (unsigned i = 0; i < 2; i++) {
		fake_qp_init(&s->qp[i], w->node[1].nic, engine_link_user(e, 2, i));
		fake_qp_init(&s->end[i], &s->nowhere, NULL);
		fake_qp_join(&s->qp[i], &s->end[i]);
	}
	assert_true(engine_link_bytes(256) <= sizeof(s->work));
	k.link = (struct engine_link_command){
	    .link = 2,
	    .peer_node = 5,
	    .qp = {(struct nic_qp *)&s->qp[0], (struct nic_qp *)&s->qp[1]},
	    .ring = s->ring,
	    .staging = s->staging,
	    .ring_lines = 256,
	    .staging_lines = 256,
	    .staging_mr = fake_mr(&w->net, s->staging, sizeof(s->staging), 0),
	    .credit_mr = fake_mr(&w->net, s->credit, sizeof(s->credit), NIC_REMOTE_WRITE),
	    .credit = s->credit,
	    .peer_recv_wrs = 64,
	    .recv_wrs = 64,
	    .work = s->work,
	};
	assert_true(engine_execute(e, &k));
	assert_int_equal(k.result, 0);
	return &e->links[2];
}

/* A peer names the connection of another one: it loses its link, they don't notice. */
static void
test_others_connections(void **state)
{
	static const uint8_t ops[] = {WEIR_OP_INLINE,	 WEIR_WIRE_FIN,	  WEIR_WIRE_RESET,
				      WEIR_WIRE_FIN_ACK, WEIR_WIRE_GRANT, WEIR_WIRE_BULK};

	(void)state;
	for (unsigned i = 0; i < sizeof(ops); i++) {
		struct stranger *s = aligned_alloc(64, sizeof(*s));
		struct pair p = pair_open();
		struct weir_slot line = {.op = ops[i], .vqpn = p.b->vqpn};
		struct link *l;

		memset(s, 0, sizeof(*s));
		l = add_stranger(p.w, s);
		line.value = 1024; /* GRANT: more than it has */
		p.b->no_read = true;
		inject_into(l, &s->qp[0], &line, 1, NULL, 0);
		world_run(p.w, 3);
		assert_int_equal(l->broken, 1);
		assert_int_equal(p.w->node[1].link_error, EPROTO);
		assert_int_equal(p.w->node[1].engine->links[1].broken, 0);
		assert_int_equal(pconn_status(p.b), 0);
		assert_int_equal(p.b->received, 0);
		assert_int_equal(pconn_granted(p.b), 512);
		honest_traffic(&p);
		world_destroy(p.w);
		fake_context_fini(&s->nowhere);
		free(s);
	}
}

static uint32_t
next_random(uint32_t *r)
{
	*r ^= *r << 13;
	*r ^= *r >> 17;
	*r ^= *r << 5;
	return *r;
}

/* Frames of random lines: whatever happens, the invariants hold and sessions end. */
static void
test_random_lines(void **state)
{
	struct pair p = pair_open();
	uint32_t r = 12345;

	(void)state;
	for (unsigned round = 0; round < 2000; round++) {
		struct weir_slot s[8];
		uint32_t n = next_random(&r) % 9;

		for (uint32_t i = 0; i < n; i++) {
			for (unsigned k = 0; k < 16; k++)
				((uint32_t *)(void *)&s[i])[k] = next_random(&r);
			s[i].op = next_random(&r) % 4 ? (uint8_t)(64 + next_random(&r) % 14)
						      : (uint8_t)(next_random(&r) % 4);
			s[i].vqpn = next_random(&r) % 8 ? p.b->vqpn : next_random(&r);
			s[i].length = next_random(&r) % 3 ? next_random(&r) % 2000 : s[i].length;
			s[i].order = (uint16_t)(next_random(&r) % 3);
			if (next_random(&r) % 2)
				s[i].value = next_random(&r) % 5000;
		}
		p.b->no_read = true;
		inject(&p, s, n, NULL, 0);
		world_run(p.w, 3);
		if (p.w->node[1].engine->links[1].broken || p.b->done || round % 50 == 49)
			repair(&p);
	}
	program_die(p.pb);
	program_die(p.pa);
	world_link_fail(p.w, 0, EHOSTDOWN);
	world_link_fail(p.w, 1, EHOSTDOWN);
	world_run(p.w, 3000);
	assert_true(p.pa->removed && p.pb->removed);
	world_destroy(p.w);
}

/* Random slots from a program, in both channels. */
static void
test_random_slots(void **state)
{
	uint32_t r = 777;

	(void)state;
	for (unsigned round = 0; round < 40; round++) {
		struct pair p = pair_open();

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
		world_destroy(p.w);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_bad_messages),
	    cmocka_unit_test(test_bad_control),
	    cmocka_unit_test(test_after_close),
	    cmocka_unit_test(test_lying_tail),
	    cmocka_unit_test(test_scribbles_in_spills),
	    cmocka_unit_test(test_quota),
	    cmocka_unit_test(test_quota_is_exact),
	    cmocka_unit_test(test_order_across_channels),
	    cmocka_unit_test(test_bad_heads),
	    cmocka_unit_test(test_bad_lines),
	    cmocka_unit_test(test_bad_flow),
	    cmocka_unit_test(test_bad_sends),
	    cmocka_unit_test(test_others_connections),
	    cmocka_unit_test(test_random_lines),
	    cmocka_unit_test(test_random_slots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
