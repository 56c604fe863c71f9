/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that break the rules: they lose their connection or link, nobody else. Programs that do:
 * hostile_test.c. */
#include "worlds/engine_world.h"

#include "engine/conn.h"
#include "engine/link.h"
#include "engine/state.h"

/* Writes a frame into a ring of node 1 as the link's peer would, with a head that may lie. */
static void
inject_into(struct peer_link *l, struct fake_qp *qp, const struct weir_slot *lines, uint32_t n,
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
	world_links_fail(p->w, EHOSTDOWN);
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
	struct pair p = pair_with_honest();

	world_run(p.w, 100);
	for (unsigned kind = 0; kind < 9; kind++) {
		struct peer_link *l = &p.w->node[1].engine->links[1];
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
}

static void
test_bad_lines(void **state)
{
	struct pair p = pair_with_honest();

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
}

static struct weir_slot
rts_line(const struct pconn *c, uint64_t number, uint32_t length, uint32_t ways)
{
	struct weir_slot s = {.op = WEIR_WIRE_RTS, .vqpn = c->vqpn, .length = length};
	struct weir_wire_rts rts = {.number = number, .ways = ways};

	memcpy(s.data, &rts, sizeof(rts));
	return s;
}

/* A small bulk message is announced behind one that waits for window: that is still granted. */
static void
test_announced_behind_a_stalled_one(void **state)
{
	struct pair p = pair_with_honest();
	struct conn *c = conn_find(p.w->node[1].engine, p.b->vqpn);
	uint32_t most = weir_cost(WEIR_BLOCK_SIZE); /* of what isn't bulk */
	struct weir_slot lines[2] = {{.op = WEIR_WIRE_STALLED, .vqpn = p.b->vqpn, .value = most}};

	c->rx_window_max = most;
	for (unsigned i = 0; i < 2000; i++) {
		pconn_send(p.a, 900, 0);
		world_step(p.w);
	}
	world_run(p.w, 100);
	p.pb->stopped = true;
	while (pconn_send(p.a, 900, 0))
		world_run(p.w, 20);
	world_run(p.w, 1000);
	lines[1] = rts_line(p.b, c->rx_messages + 1, 100, WEIR_RTS_WRITE | WEIR_RTS_READ);
	inject(&p, lines, 2, NULL, 0);
	world_run(p.w, 3);
	assert_int_equal(c->rts_count, 1);
	assert_true(c->rx_granted - c->rx_delivered < most);
	assert_int_equal(c->rx_wanted, most);
	p.pb->stopped = false;
	world_run(p.w, 100);
	assert_true(c->rx_granted - c->rx_delivered >= most);
	repair(&p);
}

/* A SEND that is no frame, or not of this kind or length: the link ends. */
static void
test_bad_sends(void **state)
{
	struct pair p = pair_with_honest();

	for (unsigned kind = 0; kind < 6; kind++) {
		struct peer_link *l = &p.w->node[1].engine->links[1];
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
}

/* Lines that end one connection: the link and the other connections stay. */
static void
test_bad_flow(void **state)
{
	struct pair p = pair_with_honest();

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
}

/* A second peer of node 1, which has only the link. */
struct stranger {
	struct nic_context nowhere;
	struct fake_qp qp[2], end[2];
	struct weir_slot ring[256], staging[256];
	struct weir_credit_line credit[2];
	_Alignas(64) uint8_t work[16384];
};

static struct peer_link *
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

	for (unsigned i = 0; i < sizeof(ops); i++) {
		struct stranger *s = aligned_alloc(64, sizeof(*s));
		struct pair p = pair_with_honest();
		struct weir_slot line = {.op = ops[i], .vqpn = p.b->vqpn};
		struct peer_link *l;

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
		fake_context_fini(&s->nowhere);
		free(s);
	}
}

/* Frames of random lines: whatever happens, the invariants hold and sessions end. */
static void
test_random_lines(void **state)
{
	struct pair p = pair_with_honest();
	uint32_t r = 12345;

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
	world_links_fail(p.w, EHOSTDOWN);
	world_run(p.w, 3000);
	assert_true(p.pa->removed && p.pb->removed);
}

ENGINE_TESTS(TEST(test_bad_heads), TEST(test_bad_lines), TEST(test_bad_flow),
	     TEST(test_announced_behind_a_stalled_one), TEST(test_bad_sends),
	     TEST(test_others_connections), TEST(test_random_lines))
