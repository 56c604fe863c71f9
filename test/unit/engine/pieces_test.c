/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cells with layouts at the engines, between two nodes and apart: they store, read and update the
 * pieces that they describe and no others; wrong ones end the program or the connection that they
 * come from.
 */
#include "worlds/engine_world.h"

#include "engine/conn.h"
#include "engine/export.h"
#include "engine/link.h"
#include "engine/session.h"
#include "ipc/pieces.h"
#include "weir/memory.h"

#define BYTES 32768u  /* of region 1 of the exporting program */
#define START 1024u   /* of the export in it */
#define LENGTH 16384u /* of the export */
#define GENERATION 77
#define ALL (WEIR_RIGHT_READ | WEIR_RIGHT_WRITE | WEIR_RIGHT_UPDATE)

static struct pair
memory_programs(void)
{
	struct pair p = pair_programs(&(struct world_options){.delay_ns = 2000}, 2);
	struct engine_command k = {.type = ENGINE_EXPORT_ADD,
				   .export = {.session = p.pb->id,
					      .number = 1,
					      .generation = GENERATION,
					      .region = 1,
					      .offset = START,
					      .length = LENGTH,
					      .rights = ALL}};

	program_adopt(p.pb, 1, BYTES, WEIR_ADOPT_SEND);
	assert_int_equal(program_command(p.pb, &k), 0);
	memset(p.pb->region[0].base, 0xaa, BYTES);
	return p;
}

static struct pconn *
open_memory(struct pair *p, struct program *by)
{
	struct weir_wire_export x = {.index = 1, .generation = GENERATION, .rights = ALL};
	struct engine_command k = {.type = ENGINE_CONN_APART,
				   .conn = {.session = by->id,
					    .kind = CONN_MEMORY,
					    .listener = ENGINE_LISTENER_NONE,
					    .export_session = p->pb->id,
					    .export_number = 1,
					    .export_generation = GENERATION,
					    .rights = ALL}};
	struct pconn *c;

	if (by == p->pa) {
		c = pconn_connect_memory(by, &x);
	} else {
		c = program_free_conn(by);
		k.conn.desc = c->desc;
		assert_int_equal(program_command(by, &k), 0);
		c->vqpn = k.conn.vqpn;
	}
	STEP_MOST(by->w, 200, !c->opened);
	assert_true(c->opened && !c->open_status);
	return c;
}

/* A cell to be published. */
struct cell {
	uint8_t op;
	struct weir_cell_access access;
	struct weir_cell_layout layout;
	struct weir_piece piece[60]; /* or dimensions */
	uint32_t pieces;	     /* of them that the payload has */
	uint32_t data;		     /* bytes behind */
	uint32_t cut;		     /* bytes of the payload that are left out */
};

static void
push(struct pconn *c, const struct cell *cell)
{
	uint32_t fields = weir_cell_fields(cell->op), head = sizeof(cell->layout), length, n;
	struct weir_cell_put put = {
	    .handle = cell->access.handle,
	    .options = cell->access.options & WEIR_ACCESS_LAYOUT ? WEIR_PUT_LAYOUT : 0,
	    .offset = cell->access.offset};
	struct weir_slot s = {.op = cell->op, .order = (uint16_t)c->sent, .vqpn = c->vqpn};
	struct weir_ring *r = &c->p->tx[0];
	uint8_t bytes[2048];

	memcpy(bytes, cell->op == WEIR_OP_PUT ? (const void *)&put : &cell->access, fields);
	memcpy(bytes + fields, &cell->layout, head);
	memcpy(bytes + fields + head, cell->piece, cell->pieces * sizeof(cell->piece[0]));
	head += cell->pieces * (uint32_t)sizeof(cell->piece[0]);
	for (uint32_t i = 0; i < cell->data; i++)
		bytes[fields + head + i] = (uint8_t)(i + 1);
	s.length = length = head + cell->data - cell->cut;
	n = weir_cell_slots(cell->op, length);
	STEP_WHILE(c->p->w, (weir_ring_refresh(r), weir_ring_room(r) < n));
	memcpy((char *)weir_ring_at(r, r->pos) + 4, (char *)&s + 4, 12);
	weir_ring_put_inline(r, bytes, fields + length);
	weir_ring_publish(r, n);
	c->sent++;
}

static void
flush(struct pconn *c)
{
	pconn_op(c, WEIR_OP_FLUSH, 0);
	STEP_MOST(c->p->w, 200, c->done_value != c->sent);
	assert_int_equal(c->done_value, c->sent);
}

static uint8_t *
result(const struct program *p)
{
	return p->arena + weir_arena_send(&p->view.geometry);
}

/* 5 pieces of 8 bytes from piece 3 on, of 4 rows of 3, downwards. */
static struct cell
block_cell(const struct program *by, uint8_t op)
{
	return (struct cell){
	    .op = op,
	    .access = {.handle = WEIR_HANDLE_FIRST,
		       .type = op == WEIR_OP_UPDATE ? WEIR_T_UINT64 : 0,
		       .acc = op == WEIR_OP_UPDATE ? WEIR_ACC_REPLACE : 0,
		       .options =
			   (op == WEIR_OP_UPDATE ? WEIR_ACCESS_RESULT : 0) | WEIR_ACCESS_LAYOUT,
		       .offset = 4800,
		       .result = (uint32_t)(weir_arena_send(&by->view.geometry) / 64),
		       .count = op == WEIR_OP_UPDATE ? 5 : 40},
	    .layout = {.first = 3, .block = 8, .n = 2},
	    .piece = {{3, 16}, {4, (uint64_t)-1600}},
	    .pieces = 2,
	    .data = op == WEIR_OP_GET ? 0 : 40};
}

static uint32_t
block_at(uint32_t i)
{
	i += 3;
	return START + 4800 + i % 3 * 16 - i / 3 * 1600;
}

static struct cell
list_cell(const struct program *by, uint8_t op)
{
	struct cell c = block_cell(by, op);

	c.layout = (struct weir_cell_layout){.n = 3};
	c.piece[0] = (struct weir_piece){-800, 16};
	c.piece[1] = (struct weir_piece){1600, 0};
	c.piece[2] = (struct weir_piece){0, 24};
	c.pieces = 3;
	return c;
}

static uint32_t
list_at(uint32_t i)
{
	return START + 4800 + (i < 2 ? i * 8 - 800 : (i - 2) * 8);
}

static void
check_pieces(struct program *exporter, uint32_t (*at)(uint32_t i), uint8_t from)
{
	uint8_t want[BYTES];

	memset(want, 0xaa, BYTES);
	for (uint32_t i = 0; i < 40; i++)
		want[at(i / 8) + i % 8] = (uint8_t)(from ? i + from : 0xaa);
	assert_memory_equal(exporter->region[0].base, want, BYTES);
}

static void
test_pieces(void **state)
{
	static const uint8_t ops[] = {WEIR_OP_PUT, WEIR_OP_UPDATE, WEIR_OP_GET};

	for (unsigned i = 0; i < 2 * 2 * 3; i++) {
		struct pair p = memory_programs();
		struct program *by = i % 2 ? program_open(p.w, 1, 1) : p.pa;
		struct pconn *c = open_memory(&p, by);
		bool list = i / 2 % 2;
		uint8_t op = ops[i / 4];
		struct cell cell = list ? list_cell(by, op) : block_cell(by, op);
		uint32_t (*at)(uint32_t k) = list ? list_at : block_at;

		if (op == WEIR_OP_GET)
			for (uint32_t k = 0; k < 40; k++)
				p.pb->region[0].base[at(k / 8) + k % 8] = (uint8_t)(k + 1);
		push(c, &cell);
		flush(c);
		check_pieces(p.pb, at, 1);
		for (uint32_t k = 0; k < 40 && op != WEIR_OP_PUT; k++)
			assert_int_equal(result(by)[k], op == WEIR_OP_GET ? k + 1 : 0xaa);
		assert_false(p.pa->violated || p.pb->violated || by->violated);
		world_end(state);
	}
}

/* The first and the last byte of the export are within it. */
static void
test_borders(void **state)
{
	struct pair p = memory_programs();
	struct program *third = program_open(p.w, 1, 1);
	struct pconn *c[2] = {open_memory(&p, p.pa), open_memory(&p, third)};

	for (unsigned i = 0; i < 2; i++) {
		struct cell cell = block_cell(i ? third : p.pa, WEIR_OP_PUT);

		cell.layout.first = 0;
		cell.access.offset = LENGTH - 40;
		push(c[i], &cell); /* pieces 0 to 4 of 12: the last of a row lies at its end */
		cell.layout.first = 7;
		cell.access.offset = 4800;
		push(c[i], &cell);
		flush(c[i]);
		assert_int_equal(p.pb->region[0].base[START + LENGTH - 1], 24);
		assert_int_equal(p.pb->region[0].base[START], 17);
		assert_int_equal(p.pb->region[0].base[START - 1], 0xaa);
		assert_int_equal(p.pb->region[0].base[START + LENGTH], 0xaa);
		memset(p.pb->region[0].base, 0xaa, BYTES);
	}
}

/* Spoils a right cell in one way. False: there are no more. */
static bool
spoil(struct cell *c, const struct program *by, unsigned how)
{
	switch (how) {
	case 0: /* before the export, though not in the first pieces */
		c->access.offset = 4799;
		break;
	case 1:
		c->access.offset = LENGTH - 39;
		break;
	case 2:
		c->access.offset = UINT64_MAX - 100;
		break;
	case 3:
		c->layout.first = 8;
		break;
	case 4:
		c->layout.first = UINT64_MAX;
		break;
	case 5:
		c->layout.block = 7;
		break;
	case 6:
		c->layout.n = 5;
		c->pieces = 5;
		break;
	case 7: /* more than the payload has */
		c->layout.n = 4;
		c->pieces = 1;
		c->data = 16;
		break;
	case 8:
		c->piece[1].offset = 0; /* a count */
		break;
	case 9:
		c->piece[0] = (struct weir_piece){INT64_MAX, 16};
		break;
	case 10:
		c->piece[1].length = (uint64_t)INT64_MIN;
		break;
	case 11: /* no data; a get has none */
		c->data = 0;
		break;
	case 12:
		c->data = 41;
		break;
	case 13:
		c->cut = 73; /* of 88: less than the head of a layout is left */
		break;
	case 14:
		c->access.handle++;
		break;
	case 15:
		*c = list_cell(by, c->op);
		c->layout.n = 0;
		break;
	case 16:
		*c = list_cell(by, c->op);
		c->layout.first = 1;
		break;
	case 17:
		*c = list_cell(by, c->op);
		c->piece[2].length = 25;
		break;
	case 18:
		*c = list_cell(by, c->op);
		c->piece[2].length = 23;
		break;
	case 19:
		*c = list_cell(by, c->op);
		c->piece[0].offset = -4801;
		break;
	case 20:
		*c = list_cell(by, c->op);
		c->piece[2].offset = LENGTH - 4800 - 23;
		break;
	case 21:
		*c = list_cell(by, c->op);
		c->piece[0].length = UINT64_MAX - 7;
		c->piece[2].length = 48;
		break;
	case 22: /* nothing */
		*c = list_cell(by, c->op);
		memset(c->piece, 0, sizeof(c->piece));
		c->data = 0;
		break;
	default:
		return false;
	}
	return true;
}

/* Wrong for updates alone, or for gets alone. */
static bool
spoil_access(struct cell *c, const struct program *by, unsigned how)
{
	*c = block_cell(by, how < 6 ? WEIR_OP_UPDATE : WEIR_OP_GET);
	switch (how) {
	case 0:
		c->access.offset = 4804;
		break;
	case 1:
		c->piece[0].length = 20;
		break;
	case 2:
		c->layout.block = 4;
		break;
	case 3:
		*c = list_cell(by, WEIR_OP_UPDATE);
		c->piece[0].offset++;
		break;
	case 4:
		*c = list_cell(by, WEIR_OP_UPDATE);
		c->piece[0].length = 12;
		c->piece[2].length = 28;
		break;
	case 5:
		c->op = WEIR_OP_CAS;
		c->access.acc = 0;
		c->access.options = WEIR_ACCESS_LAYOUT;
		c->access.count = 1;
		c->data = 16;
		break;
	case 6:
		c->data = 8;
		break;
	case 7:
		c->access.count = 39;
		break;
	case 8:
		c->access.count = 80;
		break;
	case 9: /* more pieces than a cell may have */
		c->layout = (struct weir_cell_layout){.block = 1, .n = 1};
		c->piece[0] = (struct weir_piece){WEIR_CELL_PIECES_MAX + 1, 2};
		c->pieces = 1;
		c->access.count = WEIR_CELL_PIECES_MAX + 1;
		break;
	default:
		return false;
	}
	return true;
}

static void
expect_refused(void **state, struct pair *p, struct program *by, struct pconn *c,
	       const struct cell *cell)
{
	uint8_t before[BYTES];

	memcpy(before, p->pb->region[0].base, BYTES);
	push(c, cell);
	world_run(p->w, 100);
	assert_memory_equal(p->pb->region[0].base, before, BYTES);
	assert_false(p->pb->violated);
	assert_true(by->violated);
	world_end(state);
}

static void
test_bad_programs(void **state)
{
	static const uint8_t ops[] = {WEIR_OP_PUT, WEIR_OP_UPDATE, WEIR_OP_GET};
	bool more = true;

	for (unsigned i = 0; more; i++) {
		for (unsigned k = 0; k < 6; k++) {
			struct pair p = memory_programs();
			struct program *by = k % 2 ? program_open(p.w, 1, 1) : p.pa;
			struct pconn *c = open_memory(&p, by);
			struct cell cell = block_cell(by, ops[k / 2]);

			more = spoil(&cell, by, i);
			if (cell.op == WEIR_OP_GET) { /* it says how much it wants */
				cell.access.count = cell.data > 40 ? cell.data : 40;
				cell.data = 0;
				cell.cut -= cell.cut ? 40 : 0;
			}
			if (more && !(cell.op == WEIR_OP_GET && i == 11))
				expect_refused(state, &p, by, c, &cell);
			else
				world_end(state);
		}
	}
	more = true;
	for (unsigned i = 0; more; i++)
		for (unsigned k = 0; k < 2; k++) {
			struct pair p = memory_programs();
			struct program *by = k % 2 ? program_open(p.w, 1, 1) : p.pa;
			struct pconn *c = open_memory(&p, by);
			struct cell cell;

			more = spoil_access(&cell, by, i);
			if (more)
				expect_refused(state, &p, by, c, &cell);
			else
				world_end(state);
		}
}

/* Of a peer whose engine does not look, the executing one refuses them: the connection ends. */
static void
test_bad_peers(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pair p = memory_programs();
		struct pconn *c = open_memory(&p, p.pa), *good = open_memory(&p, p.pa);
		struct conn *begin = conn_find(p.w->node[0].engine, c->vqpn);
		struct cell cell = block_cell(p.pa, i ? WEIR_OP_UPDATE : WEIR_OP_PUT);

		begin->cold->memory.length = 2 * LENGTH;
		cell.access.offset = LENGTH - 32;
		push(c, &cell);
		world_run(p.w, 100);
		check_pieces(p.pb, block_at, 0);
		assert_false(p.pa->violated || p.pb->violated);
		assert_closed(c, ECONNRESET);
		cell.access.offset = 4800;
		push(good, &cell);
		flush(good);
		check_pieces(p.pb, block_at, 1);
		world_end(state);
	}
}

ENGINE_TESTS(TEST(test_pieces), TEST(test_borders), TEST(test_bad_programs), TEST(test_bad_peers))
