/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that break the rules: they lose their connection or link, nobody else. Programs that do:
 * hostile_test.c. */
#include "worlds/engine_world.h"

#include "engine/conn.h"
#include "engine/ctrl_line.h"
#include "engine/events.h"
#include "engine/link.h"
#include "engine/state.h"
#include "weir/memory.h"
#include "weir/type.h"

static struct peer_link *
link_of(const struct pair *p)
{
	return &p->w->node[1].engine->links[1];
}

static void
inject(struct pair *p, const struct weir_slot *lines, uint32_t n)
{
	link_inject(link_of(p), &p->w->node[1].qp[0], lines, n, NULL, 0);
}

static void
repair(struct pair *p)
{
	world_links_fail(p->w, EHOSTDOWN);
	world_run(p->w, 20);
	for (unsigned i = 0; i < 2; i++)
		p->w->node[i].nic->cq_first = p->w->node[i].nic->cq_end;
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

/* The link has one more error; it is repaired and the others go on. */
static void
assert_link_error(struct pair *p)
{
	unsigned errors = p->w->node[1].link_errors;

	world_run(p->w, 3);
	assert_int_equal(p->w->node[1].link_errors, errors + 1);
	assert_int_equal(p->w->node[1].link_error, EPROTO);
	repair(p);
	honest_traffic(p);
}

static void
test_bad_heads(void **state)
{
	static const struct {
		struct weir_frame_head more; /* than the right one has */
		uint32_t imm;
	} rows[] = {
	    {{.version = 1}},
	    {{.lines = 1}},
	    {{.position = 1}},
	    {{.lines = UINT32_MAX}, WEIR_IMM(WEIR_IMM_FRAME, 0)},
	    {{.lines = 4095}, WEIR_IMM(WEIR_IMM_FRAME, 4096)},
	    {{.consumed = 1}},
	    {{.wrs = 1}},
	    {{0}, WEIR_IMM(99, 1)},
	    {{.consumed = UINT64_MAX}}, /* the value itself */
	};
	struct pair p = pair_with_honest();

	world_run(p.w, 100);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct weir_frame_head *more = &rows[i].more;
		struct weir_frame_head h = link_next_head(link_of(&p), 1);

		h.version += more->version;
		h.lines += more->lines;
		h.position += more->position;
		h.wrs += more->wrs;
		h.consumed =
		    more->consumed == UINT64_MAX ? UINT64_MAX : h.consumed + more->consumed;
		link_inject(link_of(&p), &p.w->node[1].qp[0], NULL, 0, &h, rows[i].imm);
		assert_link_error(&p);
	}
	/* the credit line lies */
	atomic_store(&p.w->node[1].credit->consumed, 1u << 30);
	pconn_send(p.b, 10, 0);
	assert_link_error(&p);
}

static void
test_bad_lines(void **state)
{
	struct pair p = pair_with_honest();
	struct weir_wire_connect nobody = {.service = "x"}, endless = {.vqpn = 9};

	memset(endless.service, 'x', sizeof(endless.service));
	for (unsigned kind = 0, kinds = 1; kind < kinds; kind++) {
		const uint32_t b = p.b->vqpn;
		struct weir_slot lines[] = {
		    /* the end lies beyond the frame */
		    {.op = WEIR_OP_INLINE, .vqpn = b, .length = 49},
		    {.op = WEIR_OP_INLINE, .vqpn = b, .length = 949},
		    {.op = WEIR_OP_INLINE, .vqpn = b, .length = UINT32_MAX},
		    {.op = WEIR_OP_PLACE, .vqpn = b, .length = 100},
		    {.op = WEIR_OP_PLACE, .vqpn = b, .length = 8193},
		    {.op = WEIR_OP_PLACE, .vqpn = b, .length = 4000},
		    {.op = 0, .vqpn = b, .length = 8},
		    {.op = WEIR_OP_CLOSE, .vqpn = b, .length = 8},
		    {.op = 255, .vqpn = b, .length = 8},
		    {.op = WEIR_OP_INLINE, .vqpn = WEIR_VQPN(77, 1), .length = 8},
		    {.op = WEIR_OP_INLINE, .vqpn = b + (1u << 20), .length = 8}, /* another life */
		    {.op = WEIR_WIRE_FIN_ACK, .vqpn = b, .length = 8},
		    {.op = WEIR_WIRE_ACCEPT, .vqpn = b, .length = 8, .extra = 5},
		    {.op = WEIR_WIRE_CONNECT, .vqpn = b, .length = 8},
		    {.op = WEIR_WIRE_GRANT, .length = 8},
		    {.op = WEIR_WIRE_CONNECT, .length = 8},
		    {.op = WEIR_WIRE_CONNECT, .length = 8},
		};

		kinds = sizeof(lines) / sizeof(lines[0]);
		memcpy(lines[kinds - 2].data, &nobody, sizeof(nobody));
		memcpy(lines[kinds - 1].data, &endless, sizeof(endless));
		inject(&p, &lines[kind], 1);
		assert_link_error(&p);
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
	pconn_tries(p.a, 900, 2000, 1);
	world_run(p.w, 100);
	p.pb->stopped = true;
	while (pconn_send(p.a, 900, 0))
		world_run(p.w, 20);
	world_run(p.w, 1000);
	lines[1] = rts_line(p.b, c->rx_messages + 1, 100, WEIR_RTS_WRITE | WEIR_RTS_READ);
	inject(&p, lines, 2);
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
	static const struct {
		uint32_t imm, length, position, line; /* more bytes, position and length */
		bool all;			      /* every buffer holds the frame already */
	} rows[] = {
	    {WEIR_IMM(WEIR_IMM_FRAME, 2)},
	    {WEIR_IMM(WEIR_IMM_SEND, 3)},
	    {WEIR_IMM(WEIR_IMM_SEND, 2), .length = 64, .all = true},
	    {WEIR_IMM(WEIR_IMM_SEND, 2), .position = 1},
	    {WEIR_IMM(WEIR_IMM_SEND, 2), .line = 100}, /* beyond the frame */
	    {WEIR_IMM(7, 2)},
	};
	struct pair p = pair_with_honest();

	for (unsigned k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		struct {
			struct weir_frame_head head;
			struct weir_slot line;
		} f = {link_next_head(link_of(&p), 2),
		       {.op = WEIR_OP_INLINE, .vqpn = p.b->vqpn, .length = 8}};

		for (uint32_t i = 0; rows[k].all && i < 256; i++)
			memcpy(p.w->node[1].recv + (size_t)i * ENGINE_RECV_BYTES, &f, sizeof(f));
		f.head.position += rows[k].position;
		f.line.length = rows[k].line ? rows[k].line : 8;
		p.b->no_read = true;
		fake_receive_sent(&p.w->node[1].qp[0], rows[k].imm, &f,
				  rows[k].length ? rows[k].length : sizeof(f));
		assert_link_error(&p);
	}
}

/* Lines that end one connection: the link and the other connections stay. */
static void
test_bad_flow(void **state)
{
	struct pair p = pair_with_honest();

	for (unsigned kind = 0, kinds = 1; kind < kinds; kind++) {
		const uint32_t b = p.b->vqpn;
		const struct {
			struct weir_slot line;
			uint32_t n;	       /* lines, 0: one */
			bool counted;	       /* each has the next number */
			struct weir_slot then; /* the second line, if it is another */
		} rows[] = {
		    /* a slot more than was granted */
		    {{.op = WEIR_OP_INLINE, .vqpn = b, .length = 8}, 9, true},
		    {{.op = WEIR_OP_INLINE, .vqpn = b, .length = 8, .order = 1}},
		    /* lowers a grant; consumed what wasn't sent */
		    {{.op = WEIR_WIRE_GRANT, .vqpn = b, .length = 8, .value = 64}},
		    {{.op = WEIR_WIRE_GRANT, .vqpn = b, .length = 8, .place = {1 << 20, 0, 64}}},
		    {{.op = WEIR_WIRE_RECLAIMED, .vqpn = b, .length = 8}},
		    {rts_line(p.b, 0, WEIR_MESSAGE_MAX + 1, WEIR_RTS_WRITE)},
		    /* the same number twice; too many */
		    {rts_line(p.b, 0, 10000, WEIR_RTS_WRITE), 2},
		    {rts_line(p.b, 0, 10000, WEIR_RTS_WRITE), 9, true},
		    {{.op = WEIR_WIRE_CTS, .vqpn = b, .length = 8}},
		    {{.op = WEIR_WIRE_BULK, .vqpn = b, .length = 8}},
		    {{.op = WEIR_WIRE_FIN, .vqpn = b, .length = 8, .value = 3}},
		    /* END: of other messages than came, twice, before a message, before its RTS */
		    {{.op = WEIR_WIRE_END, .vqpn = b, .length = 8, .value = 3}},
		    {{.op = WEIR_WIRE_END, .vqpn = b, .length = 8}, 2},
		    {{.op = WEIR_WIRE_END, .vqpn = b},
		     2,
		     .then = {.op = WEIR_OP_INLINE, .vqpn = b, .length = 8}},
		    {{.op = WEIR_WIRE_END, .vqpn = b},
		     2,
		     .then = rts_line(p.b, 0, 10000, WEIR_RTS_WRITE)},
		    {rts_line(p.b, 0, 10000, WEIR_RTS_WRITE), 2,
		     .then = {.op = WEIR_WIRE_END, .vqpn = b}},
		    {rts_line(p.b, 0, 10000, 0)},
		    {rts_line(p.b, 0, 10000, 4)},
		    /* fetched what wasn't announced */
		    {{.op = WEIR_WIRE_FETCHED, .vqpn = b, .length = 8}},
		};
		uint32_t n = rows[kind].n ? rows[kind].n : 1;
		struct weir_slot s[9];

		kinds = sizeof(rows) / sizeof(rows[0]);
		for (uint32_t i = 0; i < n; i++) {
			s[i] = rows[kind].line;
			if (rows[kind].counted && s[i].op == WEIR_WIRE_RTS)
				s[i] = rts_line(p.b, i, 10000, WEIR_RTS_WRITE);
			else if (rows[kind].counted)
				s[i].order = (uint16_t)i;
			if (i && rows[kind].then.op)
				s[i] = rows[kind].then;
		}
		p.b->no_read = true;
		inject(&p, s, n);
		world_run(p.w, 1);
		assert_int_equal(link_of(&p)->broken, 0);
		assert_int_equal(pconn_status(p.b), EPROTO);
		assert_int_equal(pconn_status(p.y), 0);
		assert_int_equal(p.w->node[1].link_errors, 0);
		repair(&p);
	}
}

/*
 * Operations on memory that name a stream, or the end of a memory connection that begins them: that
 * connection ends. A number that the peer has announced on a stream is no address.
 */
static void
test_operations_elsewhere(void **state)
{
	static const uint8_t ops[] = {WEIR_OP_PUT, WEIR_OP_UPDATE, WEIR_OP_CAS, WEIR_OP_GET,
				      WEIR_OP_NOTICE};
	static uint8_t target[4096], zeroes[sizeof(target)];

	for (unsigned i = 0; i < sizeof(ops); i++) {
		struct pair p = pair_with_honest();
		struct weir_slot lines[2] = {
		    rts_line(p.b, (uintptr_t)target, 10000, WEIR_RTS_WRITE), {.op = ops[i]}};

		lines[1].vqpn = p.b->vqpn;
		p.b->no_read = true;
		inject(&p, lines, 2);
		world_run(p.w, 1);
		assert_int_equal(link_of(&p)->broken, 0);
		assert_int_equal(pconn_status(p.b), EPROTO);
		assert_int_equal(pconn_status(p.y), 0);
		assert_memory_equal(target, zeroes, sizeof(target));
		repair(&p);
		honest_traffic(&p);
		world_end(state);
	}
}

/* Rejections that wait for one peer, if no other takes of the common places. */
enum { REJECTS_ONE = REJECTS / 2 + REJECTS_OWN };

/* A second peer of node 1, which has only the link. */
struct stranger {
	struct nic_context nowhere;
	struct fake_qp qp[2], end[2];
	struct weir_slot ring[256], staging[256];
	struct weir_credit_line credit[2];
	_Alignas(64) uint8_t work[65536];
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
		link_inject(l, &s->qp[0], &line, 1, NULL, 0);
		world_run(p.w, 3);
		assert_int_equal(l->broken, 1);
		assert_int_equal(p.w->node[1].link_error, EPROTO);
		assert_int_equal(link_of(&p)->broken, 0);
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
			s[i].op = next_random(&r) % 4 ? (uint8_t)(64 + next_random(&r) % 15)
						      : (uint8_t)(next_random(&r) % 4);
			s[i].vqpn = next_random(&r) % 8 ? p.b->vqpn : next_random(&r);
			s[i].length = next_random(&r) % 3 ? next_random(&r) % 2000 : s[i].length;
			s[i].order = (uint16_t)(next_random(&r) % 3);
			if (next_random(&r) % 2)
				s[i].value = next_random(&r) % 5000;
		}
		p.b->no_read = true;
		inject(&p, s, n);
		world_run(p.w, 3);
		if (link_of(&p)->broken || p.b->done || round % 50 == 49)
			repair(&p);
	}
	program_die(p.pb);
	program_die(p.pa);
	world_links_fail(p.w, EHOSTDOWN);
	world_run(p.w, 3000);
	assert_true(p.pa->removed && p.pb->removed);
}

#define EXPORT_AT 1024u	   /* of the export in region 1 of p.pb */
#define EXPORT_BYTES 4096u /* of it; the region has twice as many */

static struct pconn *
open_export(struct pair *p)
{
	struct weir_wire_export x = {.index = 1, .generation = 7, .rights = WEIR_RIGHTS_KNOWN};
	struct pconn *c = pconn_connect_memory(p->pa, &x);

	STEP_MOST(p->w, 100, !c->opened);
	assert_true(c->opened && !c->open_status && c->bytes == EXPORT_BYTES);
	return c;
}

/* Mostly a right one. */
static struct weir_slot
random_operation(uint32_t *r)
{
	static const uint8_t ops[] = {WEIR_OP_PUT, WEIR_OP_UPDATE, WEIR_OP_CAS, WEIR_OP_GET,
				      WEIR_OP_NOTICE};
	static const uint8_t wrong[] = {WEIR_OP_FLUSH, WEIR_WIRE_ANSWER, WEIR_OP_PLACE, 98};
	struct weir_slot s = {.op = ops[next_random(r) % sizeof(ops)]};
	struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
				     .offset = next_random(r) % (EXPORT_BYTES / 8) * 8,
				     .count = 1};

	if (s.op == WEIR_OP_UPDATE || s.op == WEIR_OP_CAS) {
		a.type = WEIR_T_UINT64;
		s.length = s.op == WEIR_OP_CAS ? 16 : 8;
		a.options = s.op == WEIR_OP_UPDATE && next_random(r) % 2;
	}
	if (s.op == WEIR_OP_PUT)
		s.length = next_random(r) % 9;
	memcpy(s.data, &a, sizeof(a));
	if (s.op == WEIR_OP_NOTICE)
		s.data[4] = WEIR_NOTICE_SET; /* of the word at 0 */
	if (s.op == WEIR_OP_NOTICE || s.op == WEIR_OP_PUT)
		memset(s.data + 16, 0, sizeof(s.data) - 16);
	if (s.op == WEIR_OP_NOTICE)
		memset(s.data + 8, 0, 8);
	while (next_random(r) % 16 == 0) /* any bits of the fields */
		s.data[next_random(r) % sizeof(a)] ^= (uint8_t)(1u << next_random(r) % 8);
	if (next_random(r) % 64 == 0)
		s.op = wrong[next_random(r) % sizeof(wrong)];
	if (next_random(r) % 64 == 0)
		s.length = next_random(r) % 1000;
	return s;
}

/* Random operations on an export, a stream, what is not there: none leaves the export's memory. */
static void
test_random_operations(void **state)
{
	struct pair p = pair_with_honest();
	struct engine_command k = {.type = ENGINE_EXPORT_ADD,
				   .export = {.session = p.pb->id,
					      .number = 1,
					      .generation = 7,
					      .region = 1,
					      .offset = EXPORT_AT,
					      .length = EXPORT_BYTES,
					      .rights = WEIR_RIGHTS_KNOWN}};
	const struct engine_counters *counters = node_counters(p.w, 1);
	struct pconn *c = NULL;
	struct conn *begin;
	uint32_t r = 54321;

	program_adopt(p.pb, 1, 2 * EXPORT_BYTES, WEIR_ADOPT_SEND);
	assert_int_equal(program_command(p.pb, &k), 0);
	for (unsigned round = 0; round < 2000; round++) {
		struct weir_slot s[8];
		uint32_t n = 1 + next_random(&r) % 8;
		struct conn *end;

		if (!c)
			c = open_export(&p);
		begin = conn_find(p.w->node[0].engine, c->vqpn);
		end = conn_find(p.w->node[1].engine, begin->peer_vqpn);
		for (uint32_t i = 0; i < n; i++) {
			s[i] = random_operation(&r);
			s[i].vqpn = end->vqpn;
			if (next_random(&r) % 16 == 0)
				s[i].vqpn = next_random(&r) % 4 ? p.b->vqpn : next_random(&r);
			s[i].order = (uint16_t)(end->rx_messages + i + !(next_random(&r) % 32));
		}
		p.b->no_read = true;
		inject(&p, s, n);
		world_run(p.w, 3);
		if (link_of(&p)->broken || p.b->done || c->done || round % 16 == 15) {
			if (!c->done)
				pconn_close(c);
			repair(&p);
			if (c->done)
				pconn_close(c);
			world_run(p.w, 20);
			c = NULL;
		}
		for (uint32_t i = 0; i < EXPORT_AT; i++)
			assert_int_equal(p.pb->region[0].base[i], 0xaa);
		for (uint32_t i = EXPORT_AT + EXPORT_BYTES; i < 2 * EXPORT_BYTES; i++)
			assert_int_equal(p.pb->region[0].base[i], 0xaa);
	}
	assert_true(counters->remote_operations > 500);
}

/* A peer can neither open nor end a connection that our program holds, nor send on it. */
static void
test_held(void **state)
{
	for (unsigned kind = 0; kind < 5; kind++) {
		struct pair p = pair_with_honest();
		struct weir_slot lines[] = {{.op = WEIR_WIRE_ACCEPT, .length = 512, .extra = 5},
					    {.op = WEIR_WIRE_REJECT, .status = ECONNREFUSED},
					    {.op = WEIR_WIRE_REASON, .data = "because"},
					    {.op = WEIR_WIRE_FIN},
					    {.op = WEIR_OP_INLINE, .length = 8}};
		struct pconn *c, *held = NULL;

		p.w->node[1].listener = p.pb->id;
		p.w->node[1].holds = true;
		c = pconn_connect(p.pa);
		world_run(p.w, 50);
		assert_false(c->opened);
		for (unsigned i = 0; i < CONNS; i++)
			if (p.pb->conn[i].held)
				held = &p.pb->conn[i];
		assert_non_null(held);
		assert_true(held->opened && !held->freed);
		lines[kind].vqpn = held->vqpn;
		p.w->node[1].holds = false;
		inject(&p, &lines[kind], 1);
		assert_link_error(&p); /* and all its connections end */
		assert_int_equal(c->open_status, EHOSTDOWN);
		assert_int_equal(held->open_status, EHOSTDOWN);
		assert_true(held->freed);
		world_end(state);
	}
}

/* A peer that gives reasons without end, or for what it accepts. */
static void
test_bad_reasons(void **state)
{
	for (unsigned kind = 0; kind < 3; kind++) {
		struct pair p = pair_with_honest();
		struct weir_slot lines[4] = {{.op = WEIR_WIRE_REASON},
					     {.op = WEIR_WIRE_REASON},
					     {.op = WEIR_WIRE_REASON},
					     {.op = WEIR_WIRE_REJECT, .status = ECONNREFUSED}};
		struct pconn *c;
		unsigned n;

		for (unsigned i = 0; i < 3; i++)
			memset(lines[i].data, 'x', sizeof(lines[i].data));
		p.w->node[0].listener = p.pa->id;
		p.w->node[0].holds = true;
		c = pconn_connect(p.pb);
		world_run(p.w, 50);
		assert_false(c->opened);
		if (kind == 0) /* right: 127 bytes */
			lines[2].data[WEIR_REFUSAL_MAX - 1 - 96] = 0;
		else if (kind == 1)
			lines[1] =
			    (struct weir_slot){.op = WEIR_WIRE_ACCEPT, .length = 512, .extra = 5};
		n = kind == 1 ? 2 : 4;
		for (unsigned i = 0; i < n; i++)
			lines[i].vqpn = c->vqpn;
		inject(&p, lines, n);
		if (kind) {
			assert_link_error(&p);
			assert_int_equal(c->open_status, EHOSTDOWN);
		} else {
			world_run(p.w, 50);
			assert_int_equal(c->open_status, ECONNREFUSED);
			assert_int_equal(c->reasons, 2);
		}
		world_end(state);
	}
}

/* A peer that gives a reason for refusing a memory connection: it is ignored, or a wrong line. */
static void
test_reasons_of_memory(void **state)
{
	for (unsigned kind = 0; kind < 3; kind++) {
		struct pair p = pair_with_honest();
		struct weir_wire_export x = {.index = 1, .generation = 1, .rights = 1};
		struct weir_slot lines[2] = {{.op = WEIR_WIRE_REASON},
					     {.op = WEIR_WIRE_REJECT, .status = ESTALE}};
		struct pconn *c = pconn_connect_memory(p.pb, &x);

		memset(lines[0].data, 'x', sizeof(lines[0].data));
		memset(lines[1].reason, 'y', sizeof(lines[1].reason) - 1);
		lines[0].vqpn = lines[1].vqpn = c->vqpn;
		inject(&p, kind ? &lines[0] : &lines[1], kind == 1 ? 2 : 1);
		if (kind) {
			assert_link_error(&p);
			assert_int_equal(c->open_status, EHOSTDOWN);
		} else {
			world_run(p.w, 50);
			assert_int_equal(c->open_status, ESTALE);
			assert_int_equal(c->reasons, 0);
			pconn_close(c);
			repair(&p);
			honest_traffic(&p);
		}
		world_end(state);
	}
}

/*
 * A peer asks for exports without end, while main takes nothing, and takes no answer. The engine
 * keeps a bounded number, then the link of that peer ends. Requests of others are answered.
 */
static void
test_connects_without_end(void **state)
{
	struct stranger *s = aligned_alloc(64, sizeof(*s));
	struct pair p = pair_with_honest();
	struct weir_wire_connect guess = {.flags = WEIR_CONNECTS_MEMORY};
	struct weir_wire_export x = {.index = 1, .generation = 1, .rights = 1};
	struct engine *e = p.w->node[1].engine;
	uint32_t asked = 0;
	struct engine_command gone = {.type = ENGINE_LINK_FAIL, .link = {.link = 2}};
	struct weir_slot lines[8] = {{.op = WEIR_WIRE_CONNECT}};
	struct weir_frame_head h;
	struct pconn *c;
	struct peer_link *l;

	memset(s, 0, sizeof(*s));
	l = add_stranger(p.w, s);
	memcpy(guess.service, &x, sizeof(x));
	p.w->node[1].full = true;
	for (unsigned round = 0; round < 2000 && !l->broken; round++) {
		for (unsigned i = 0; i < 8; i++) {
			guess.vqpn = ++asked;
			lines[i].op = WEIR_WIRE_CONNECT;
			memcpy(lines[i].data, &guess, sizeof(guess));
		}
		h = link_next_head(l, 9);
		h.consumed = h.wrs = 0;
		link_inject(l, &s->qp[0], lines, 8, &h, 0);
		world_turn(p.w, 1);
	}
	assert_true(l->broken && l->unanswered); /* no frame of it is executed again */
	assert_int_equal(l->error, EPROTO);
	assert_in_range(asked, CONNECTS + REJECTS_ONE, CONNECTS + REJECTS_ONE + 256 + 8);
	p.w->node[1].full = false;
	assert_int_equal(node_command(&p.w->node[1], &gone), 0);
	world_run(p.w, 10);
	/* nothing of it is left */
	assert_int_equal(e->connect_end, e->connect_first);
	assert_int_equal(link_of(&p)->broken, 0);
	p.w->node[1].listener = p.pb->id;
	c = pconn_connect_memory(p.pa, &x);
	world_run(p.w, 100);
	assert_int_equal(c->open_status, ESTALE); /* there is no such export */
	assert_int_equal(e->rejects_left, REJECTS);
	assert_int_equal(link_of(&p)->rejects.count, 0);
	honest_traffic(&p);
	fake_context_fini(&s->nowhere);
	free(s);
}

/* Main rejects requests of the stranger until this number of rejections waits. */
static void
reject_until(struct pair *p, const struct peer_link *l, uint32_t waiting)
{
	struct engine_command k = {.type = ENGINE_CONN_REJECT, .conn = {.link = l->is.link}};

	while (l->rejects.count < waiting) {
		k.conn.peer_vqpn++;
		assert_int_equal(node_command(&p->w->node[1], &k), 0);
		if (k.conn.peer_vqpn % 64 == 0)
			world_turn(p->w, 1);
	}
}

/*
 * A peer takes no rejections. Rejections of another peer leave meanwhile; with one more than its
 * share the first peer loses its link. Main's commands never wait for it.
 */
static void
test_rejections_not_taken(void **state)
{
	struct stranger *s = aligned_alloc(64, sizeof(*s));
	struct pair p = pair_with_honest();
	struct engine *e = p.w->node[1].engine;
	struct engine_command k = {.type = ENGINE_CONN_REJECT, .conn = {.link = 2}},
			      gone = {.type = ENGINE_LINK_FAIL, .link = {.link = 2}};
	struct peer_link *l;
	struct pconn *c;

	memset(s, 0, sizeof(*s));
	l = add_stranger(p.w, s);
	reject_until(&p, l, REJECTS_ONE);
	world_run(p.w, 3);
	assert_int_equal(l->rejects.count, REJECTS_ONE);
	assert_false(l->broken);
	p.w->node[1].refuse = true;
	for (unsigned i = 0; i < 2 * REJECTS_OWN; i++) {
		c = pconn_connect(p.pa);
		STEP_MOST(p.w, 50, !c->open_status);
		assert_int_equal(c->open_status, ECONNREFUSED);
		pconn_close(c);
	}
	assert_int_equal(l->rejects.count, REJECTS_ONE);
	assert_int_equal(node_command(&p.w->node[1], &k), 0);
	assert_true(l->broken);
	world_run(p.w, 3);
	assert_int_equal(p.w->node[1].link_errors, 1);
	assert_int_equal(p.w->node[1].link_error, EPROTO);
	assert_false(link_of(&p)->broken);
	honest_traffic(&p);
	assert_int_equal(node_command(&p.w->node[1], &gone), 0);
	assert_int_equal(e->rejects_left, REJECTS);
	fake_context_fini(&s->nowhere);
	free(s);
}

/* Others have taken all common places: a peer with room in its ring keeps its link. */
static void
test_rejections_of_one_turn(void **state)
{
	struct pair p = pair_with_honest();
	struct engine *e = p.w->node[1].engine;
	struct peer_link *l = link_of(&p);
	struct engine_command k = {.type = ENGINE_CONN_REJECT, .conn = {.link = l->is.link}};

	e->rejects_left = 0;
	for (uint32_t i = 1; i <= 10 * REJECTS_OWN; i++) {
		k.conn.peer_vqpn = WEIR_VQPN(i, 9);
		assert_int_equal(node_command(&p.w->node[1], &k), 0);
		assert_in_range(l->rejects.count, 1, REJECTS_OWN);
		assert_false(l->broken || l->unanswered);
	}
	e->rejects_left = REJECTS;
	/* all others are in the open frame, behind its head */
	assert_int_equal(l->tx_pos - l->frame_at, 1 + 10 * REJECTS_OWN - l->rejects.count);
}

/* A link that is being repaired keeps its rejections, and ends if one of them found no place. */
static void
test_rejections_while_repaired(void **state)
{
	for (unsigned more = 0; more < 2; more++) {
		struct stranger *s = aligned_alloc(64, sizeof(*s));
		struct pair p = pair_with_honest();
		struct engine_command k = {
		    .type = ENGINE_LINK_PAUSE,
		    .link = {.link = 2, .resumes = WEIR_RESUME_BOTH},
		};
		struct peer_link *l;

		memset(s, 0, sizeof(*s));
		l = add_stranger(p.w, s);
		assert_int_equal(node_command(&p.w->node[1], &k), 0);
		reject_until(&p, l, REJECTS_ONE);
		k.type = ENGINE_CONN_REJECT;
		k.conn = (struct engine_conn_command){.link = 2, .peer_vqpn = 1};
		if (more)
			assert_int_equal(node_command(&p.w->node[1], &k), 0);
		k.type = ENGINE_LINK_RESUME;
		k.link = l->is;
		k.link.resumes = WEIR_RESUME_BOTH;
		k.link.peer_ring_lines = 256;
		assert_int_equal(node_command(&p.w->node[1], &k), more ? -EPROTO : 0);
		assert_int_equal(l->rejects.count, REJECTS_ONE);
		k.type = ENGINE_LINK_FAIL;
		assert_int_equal(node_command(&p.w->node[1], &k), 0);
		assert_int_equal(p.w->node[1].engine->rejects_left, REJECTS);
		fake_context_fini(&s->nowhere);
		free(s);
		world_end(state);
	}
}

/* Each link has its own places, and one that takes the common ones leaves as many to the others. */
static void
test_shares_of_rejections(void **state)
{
	enum { LINKS = 40 };
	struct world *w = WORLD(0);
	struct engine_config config = w->node[1].engine->config;
	struct engine *e;

	config.links = ENGINE_LINKS_MOST + 1;
	assert_null(engine_create(&config));
	config.links = LINKS;
	e = engine_create(&config);
	assert_non_null(e);
	for (unsigned round = 0; round < 3; round++) {
		uint32_t left = REJECTS;

		for (uint32_t i = 0; i < LINKS; i++) {
			struct peer_link *l = &e->links[i];
			uint32_t n = 0;

			l->up = true;
			while (reject_later(e, l, WEIR_VQPN(n, 1), 1 + i))
				n++;
			assert_int_equal(n, REJECTS_OWN + (left + 1) / 2);
			left -= n - REJECTS_OWN;
			assert_int_equal(e->rejects_left, left);
		}
		assert_int_equal(left, 0);
		for (uint32_t i = 0; i < LINKS; i++) {
			struct peer_link *l = &e->links[(i * 7 + round) % LINKS];

			for (uint32_t n = 0; l->rejects.count; n++) {
				struct reject r = reject_take(e, l);

				assert_int_equal(r.peer_vqpn, WEIR_VQPN(n, 1));
				assert_int_equal(r.status, 1 + (i * 7 + round) % LINKS);
			}
		}
		assert_int_equal(e->rejects_left, REJECTS);
		assert_int_equal(e->rejects_fresh, REJECTS + LINKS * REJECTS_OWN);
	}
	engine_destroy(e);
}

ENGINE_TESTS(TEST(test_connects_without_end), TEST(test_rejections_not_taken),
	     TEST(test_rejections_of_one_turn), TEST(test_rejections_while_repaired),
	     TEST(test_shares_of_rejections), TEST(test_held), TEST(test_bad_reasons),
	     TEST(test_reasons_of_memory), TEST(test_bad_heads), TEST(test_bad_lines),
	     TEST(test_bad_flow), TEST(test_operations_elsewhere),
	     TEST(test_announced_behind_a_stalled_one), TEST(test_bad_sends),
	     TEST(test_others_connections), TEST(test_random_lines), TEST(test_random_operations))
