/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on remote memory, between two nodes and apart on one: they store their bytes and no
 * others, in order, once; flushes are answered; exports, programs and links end; wrong operations
 * end the program or the connection that they come from, and nobody else.
 */
#define BYTES 8192u /* of region 1 of the exporting program */
#define START 1024u
#define LENGTH 4096u
#include "exports.h"

#include "engine/export.h"

#include <errno.h>

/* A program on node 1 exports memory; programs on both nodes open it: a by the link, b apart. */
static struct pair
memory_programs(const struct world_options *o)
{
	struct pair p = pair_programs(o, 2);

	program_adopt(p.pb, 1, BYTES, WEIR_ADOPT_SEND);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_ADD, WEIR_RIGHT_WRITE), 0);
	return p;
}

/* Publishes a cell with this head; payload: a pattern of `number`. */
static void
push(struct pconn *c, uint32_t channel, struct weir_cell_put put, uint32_t length, uint64_t number)
{
	uint32_t n = length <= WEIR_PUT_MAX ? weir_cell_slots(WEIR_OP_PUT, length) : 1;
	struct weir_ring *r = &c->p->tx[channel];
	struct weir_slot s = {
	    .op = WEIR_OP_PUT, .order = (uint16_t)c->sent, .vqpn = c->vqpn, .length = length};
	uint8_t bytes[WEIR_INLINE_MAX];

	memcpy(bytes, &put, WEIR_PUT_FIELDS);
	for (uint32_t i = WEIR_PUT_FIELDS; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(number * 31 + i - WEIR_PUT_FIELDS);
	assert_true(weir_ring_refresh(r));
	assert_true(weir_ring_room(r) >= n);
	memcpy((char *)weir_ring_at(r, r->pos) + 4, (char *)&s + 4, 12);
	weir_ring_put_inline(r, bytes, length <= WEIR_PUT_MAX ? WEIR_PUT_FIELDS + length : 48);
	weir_ring_publish(r, n);
	c->sent++;
}

static void
put(struct pconn *c, uint64_t offset, uint32_t length, uint64_t number)
{
	push(c, 0, (struct weir_cell_put){.handle = WEIR_HANDLE_FIRST, .offset = offset}, length,
	     number);
}

/* The memory of the region holds this PUT, and around it what it held. */
static void
assert_stored(const struct program *p, uint64_t offset, uint32_t length, uint64_t number)
{
	for (uint32_t i = 0; i < length; i++)
		if (p->region[0].base[START + offset + i] != (uint8_t)(number * 31 + i))
			fail_msg("byte %u of a PUT of %u bytes differs", i, length);
}

static void
assert_untouched(const struct program *p, uint64_t from, uint64_t to)
{
	for (; from < to; from++)
		if (p->region[0].base[from] != 0xaa)
			fail_msg("byte %lu of the region was stored", (unsigned long)from);
}

static void
flush(struct pconn *c, unsigned steps)
{
	pconn_op(c, WEIR_OP_FLUSH, 0);
	STEP_MOST(c->p->w, steps, c->done_value != c->sent);
	assert_int_equal(c->done_value, c->sent);
	assert_int_equal(pconn_completed(c), c->sent);
}

static const uint32_t lengths[] = {0,  1,  2,  3,  4,	5,   8,	  9,	       31,
				   32, 33, 92, 93, 152, 500, 931, WEIR_PUT_MAX};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static void
each_length(struct pconn *c, struct program *exporter)
{
	uint8_t *base = exporter->region[0].base;

	for (unsigned i = 0; i < LENGTHS; i++) {
		uint64_t offset = i % 3 * 7, last = LENGTH - lengths[i];

		memset(base, 0xaa, BYTES);
		put(c, offset, lengths[i], i);
		flush(c, 100);
		assert_stored(exporter, offset, lengths[i], i);
		assert_untouched(exporter, 0, START + offset);
		assert_untouched(exporter, START + offset + lengths[i], BYTES);
		put(c, last, lengths[i], i + 1);
		flush(c, 100);
		assert_stored(exporter, last, lengths[i], i + 1);
		assert_untouched(exporter, START + LENGTH, BYTES);
	}
}

static void
test_lengths(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 2000});

	each_length(open_remote(p.pa, WEIR_RIGHT_WRITE), p.pb);
	each_length(open_apart(program_open(p.w, 1, 1), p.pb, WEIR_RIGHT_WRITE), p.pb);
}

/* Later ones win; none is lost through a small ring, another channel, QP faults. */
static void
test_order(void **state)
{
	struct pair p = memory_programs(
	    &(struct world_options){.delay_ns = 3000, .ring_lines = 256, .pending = 64});
	struct pconn *c = open_remote(p.pa, WEIR_RIGHT_WRITE);
	uint64_t last[8] = {0}, n = 1;

	for (unsigned round = 0; round < 400; round++) {
		for (unsigned k = 0; k < 12; k++, n++) {
			uint32_t length = lengths[n % LENGTHS] % 500;
			struct weir_cell_put head = {.handle = WEIR_HANDLE_FIRST,
						     .offset = n % 8 * 512};

			STEP_WHILE(p.w, (weir_ring_refresh(&p.pa->tx[n % 2]),
					 weir_ring_room(&p.pa->tx[n % 2]) < 16));
			push(c, n % 2, head, length, n);
			last[n % 8] = n;
		}
		world_run(p.w, round % 4);
	}
	/* behind all, through any channel */
	flush(c, 5000);
	for (unsigned i = 0; i < 8; i++)
		assert_stored(p.pb, i * 512, lengths[last[i] % LENGTHS] % 500, last[i]);
	assert_int_equal(node_counters(p.w, 1)->remote_operations, n - 1);
}

/* A flush with nothing under way is answered at once; one behind the last batch asks for credit. */
static void
test_flush(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 2000});
	struct pconn *c = open_remote(p.pa, WEIR_RIGHT_WRITE);
	uint64_t start, prompt;

	p.w->step_ns = 100;
	world_run(p.w, 1000);
	pconn_op(c, WEIR_OP_FLUSH, 0);
	world_run(p.w, 2);
	assert_int_equal(c->done_value, 0);
	put(c, 0, 8, 1);
	pconn_op(c, WEIR_OP_FLUSH, 0);
	start = p.w->now;
	STEP_MOST(p.w, 2000, !pconn_completed(c));
	prompt = p.w->now - start;
	assert_int_equal(pconn_completed(c), 1);
	world_run(p.w, 1000);
	put(c, 0, 8, 2);
	start = p.w->now;
	STEP_MOST(p.w, 2000, pconn_completed(c) != 2);
	/* without a flush the credit waits for a frame that carries it */
	assert_true(p.w->now - start > prompt + 10000);
	world_run(p.w, 1000);
	put(c, 0, 8, 3);
	world_run(p.w, 5); /* it has left */
	pconn_op(c, WEIR_OP_FLUSH, 0);
	start = p.w->now;
	STEP_MOST(p.w, 2000, pconn_completed(c) != 3);
	assert_true(p.w->now - start < prompt + 2000);
}

/* The export must be there, in this life of its number; rights are those of export and opener. */
static void
test_opening(void **state)
{
	struct pair p = memory_programs(NULL);
	struct engine_command k = {.type = ENGINE_EXPORT_ADD};
	struct pconn *c;

	for (unsigned i = 0; i < 2; i++) {
		struct weir_wire_export x = the_key(WEIR_RIGHT_WRITE);

		x.generation = i ? 0 : GENERATION + 1;
		c = pconn_connect_memory(p.pa, &x);
		STEP_MOST(p.w, 200, !c->opened);
		assert_true(c->opened);
		assert_int_equal(c->open_status, ESTALE);
	}
	c = open_remote(p.pa, WEIR_RIGHT_WRITE);
	assert_int_equal(c->rights, WEIR_RIGHT_WRITE);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_ADD, WEIR_RIGHT_WRITE), -EBUSY);
	k.export = the_export(p.pb, WEIR_RIGHT_WRITE);
	k.export.number = 1;
	k.export.offset = BYTES;
	k.export.length = 1;
	assert_int_equal(program_command(p.pb, &k), -EINVAL);
	k.export.offset = BYTES - 8;
	k.export.length = 9;
	assert_int_equal(program_command(p.pb, &k), -EINVAL);
	k.export.offset = UINT64_MAX - 4;
	k.export.length = 8;
	assert_int_equal(program_command(p.pb, &k), -EINVAL);
	k.export.region = 2;
	assert_int_equal(program_command(p.pb, &k), -ENOENT);
	/* it is asked for without the right to write */
	c = open_remote(p.pa, WEIR_RIGHT_READ);
	assert_int_equal(c->rights, 0);
	put(c, 0, 8, 1);
	world_run(p.w, 100);
	assert_true(p.pa->violated);
	assert_untouched(p.pb, 0, BYTES);
}

/* An export that goes ends its connections, and only then does its region. */
static void
test_revoke(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 2000});
	struct program *third = program_open(p.w, 1, 1);
	struct pconn *a = open_remote(p.pa, WEIR_RIGHT_WRITE);
	struct pconn *b = open_apart(third, p.pb, WEIR_RIGHT_WRITE);

	put(a, 0, 8, 1);
	flush(a, 100);
	program_disown(p.pb, 1);
	world_run(p.w, 50);
	assert_false(p.pb->disowned[0]); /* the export keeps it */
	put(a, 8, 8, 2);
	put(b, 16, 8, 3);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_STOP, 0), 0);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_REMOVE, 0), 0);
	memset(p.pb->region[0].base, 0xaa, BYTES);
	world_run(p.w, 200);
	assert_true(p.pb->disowned[0]);
	assert_untouched(p.pb, 0, BYTES);
	assert_closed(a, ESTALE);
	assert_int_equal(pconn_status(a), ESTALE);
	assert_closed(b, ESTALE);
	/* what was executed is complete, what was not is not */
	assert_int_equal(pconn_completed(a), 1);
	assert_int_equal(pconn_completed(b), 0);
	put(a, 0, 8, 4); /* too late: it is taken, and goes nowhere */
	pconn_ends(a, 100);
	pconn_ends(b, 100);
	assert_false(p.pa->violated || third->violated);
}

/* Openers and counters that the exporting engine has of the export. */
static struct engine_export_record
counted(struct pair *p, uint32_t generation)
{
	struct engine_export_record r = {
	    .session = p->pb->id, .number = EXPORT, .generation = generation};
	struct engine_snapshot s = {.exports = &r, .export_count = 1};
	struct engine_command k = {.type = ENGINE_SNAPSHOT, .snapshot = &s};

	assert_int_equal(program_command(p->pb, &k), 0);
	return r;
}

/* The record of a connection of node 1 whose export is that one. */
static struct engine_conn_record
record_of(struct pair *p, uint32_t session)
{
	struct engine_conn_record all[16], none = {0};
	struct engine_snapshot s = {.conns = all, .conn_room = 16};
	struct engine_command k = {.type = ENGINE_SNAPSHOT, .snapshot = &s};

	assert_int_equal(program_command(p->pb, &k), 0);
	for (uint32_t i = 0; i < s.conn_count; i++)
		if (all[i].session == session && all[i].export_number)
			return all[i];
	return none;
}

/* Openers and operations of an export are counted where it is, from all sides, with its life. */
static void
test_counters(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 2000});
	struct program *third = program_open(p.w, 1, 1);
	struct pconn *a = open_remote(p.pa, WEIR_RIGHT_WRITE), *b, *more;
	struct engine_export_record r = counted(&p, GENERATION);

	assert_int_equal(r.openers, 1);
	assert_int_equal(r.counters.puts, 0);
	b = open_apart(third, p.pb, WEIR_RIGHT_WRITE);
	more = open_remote(p.pa, WEIR_RIGHT_WRITE);
	put(a, 0, 8, 1);
	put(a, 8, 100, 2);
	put(b, 200, 17, 3);
	world_run(p.w, 100);
	r = counted(&p, GENERATION);
	assert_int_equal(r.openers, 3);
	assert_int_equal(r.counters.puts, 3);
	assert_int_equal(r.counters.bytes_put, 125);
	assert_int_equal(r.counters.refused, 0);
	assert_int_equal(counted(&p, GENERATION + 1).openers, 0);
	assert_int_equal(record_of(&p, p.pb->id).export_number, 2);
	assert_int_equal(record_of(&p, p.pb->id).export_session, p.pb->id);
	assert_int_equal(record_of(&p, third->id).export_session, p.pb->id);
	assert_int_equal(record_of(&p, third->id).bytes, 17);
	/* one end after the other goes; a wrong operation counts */
	pconn_close(more);
	world_run(p.w, 200);
	assert_int_equal(counted(&p, GENERATION).openers, 2);
	put(b, LENGTH, 8, 4);
	world_run(p.w, 100);
	r = counted(&p, GENERATION);
	assert_true(third->violated);
	assert_int_equal(r.counters.refused, 1);
	assert_int_equal(r.counters.puts, 3);
	assert_int_equal(node_counters(p.w, 1)->remote_refused, 1);
	assert_int_equal(node_counters(p.w, 1)->remote_puts, 3);
	program_die(third);
	world_run(p.w, 400);
	assert_int_equal(counted(&p, GENERATION).openers, 1);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_STOP, 0), 0);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_REMOVE, 0), 0);
	assert_int_equal(counted(&p, GENERATION).openers, 0);
	assert_int_equal(counted(&p, 0).counters.puts, 0);
	pconn_ends(a, 100);
}

/* Nobody closes the executing end: it goes with the other one, the programs, the link. */
static void
test_ends(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 2000});
	struct program *third = program_open(p.w, 1, 1);
	struct pconn *a, *b;

	for (unsigned i = 0; i < 3; i++) {
		a = open_remote(p.pa, WEIR_RIGHT_WRITE);
		b = open_apart(third, p.pb, WEIR_RIGHT_WRITE);
		put(a, 8, 64, i);
		put(b, 80, 64, i);
		pconn_close(a); /* behind its operations */
		pconn_close(b);
		world_run(p.w, 200);
		assert_true(a->freed && b->freed && p.pb->conn[0].freed);
		assert_closed(a, 0);
		assert_int_equal(pconn_completed(a), 1);
		assert_stored(p.pb, 8, 64, i);
		assert_stored(p.pb, 80, 64, i);
	}
	a = open_remote(p.pa, WEIR_RIGHT_WRITE);
	b = open_apart(third, p.pb, WEIR_RIGHT_WRITE);
	program_die(p.pb);
	world_run(p.w, 400);
	assert_true(p.pb->removed);
	assert_closed(a, ECONNRESET);
	assert_closed(b, ECONNRESET);
	pconn_ends(a, 100);
	pconn_ends(b, 100);
	assert_true(p.pb->conn[0].freed);
}

static void
test_link_fails(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 2000});
	struct pconn *a = open_remote(p.pa, WEIR_RIGHT_WRITE);

	put(a, 0, 32, 1);
	pconn_op(a, WEIR_OP_FLUSH, 0);
	world_links_fail(p.w, EHOSTDOWN);
	world_run(p.w, 100);
	assert_closed(a, EHOSTDOWN);
	pconn_ends(a, 100);
	program_disown(p.pb, 1);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_STOP, 0), 0);
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_REMOVE, 0), 0);
	world_run(p.w, 100);
	assert_true(p.pb->disowned[0]);
}

/* A program that writes a wrong operation ends, and stores nothing. */
static void
test_bad_programs(void **state)
{
	static const struct {
		uint32_t handle, options;
		uint64_t offset;
		uint32_t length;
	} bad[] = {
	    {WEIR_HANDLE_FIRST, 0, LENGTH, 1},
	    {WEIR_HANDLE_FIRST, 0, LENGTH - 7, 8},
	    {WEIR_HANDLE_FIRST, 0, LENGTH + 1, 0},
	    {WEIR_HANDLE_FIRST, 0, UINT64_MAX, 1},
	    {WEIR_HANDLE_FIRST, 0, UINT64_MAX - 7, 8},
	    {WEIR_HANDLE_FIRST, 0, 0, WEIR_PUT_MAX + 1},
	    {WEIR_HANDLE_FIRST, 0, 0, UINT32_MAX},
	    {WEIR_HANDLE_FIRST, 1, 0, 8},
	    {WEIR_HANDLE_FIRST + 1, 0, 0, 8},
	    {2 * WEIR_HANDLE_FIRST, 0, 0, 8},
	    {0, 0, 0, 8},
	};

	for (unsigned i = 0; i < 4 * sizeof(bad) / sizeof(bad[0]); i++) {
		struct pair p = memory_programs(NULL);
		struct program *by = i % 2 ? program_open(p.w, 1, 1) : p.pa;
		struct pconn *c = i % 2 ? open_apart(by, p.pb, WEIR_RIGHT_WRITE)
					: open_remote(p.pa, WEIR_RIGHT_WRITE);
		struct weir_cell_put head = {.handle = bad[i / 4].handle,
					     .options = bad[i / 4].options,
					     .offset = bad[i / 4].offset};

		put(c, 0, 8, 1);
		flush(c, 100);
		memset(p.pb->region[0].base, 0xaa, BYTES);
		if (i % 4 >= 2) { /* behind others of the same turn */
			put(c, 0, 0, 0);
			put(c, LENGTH, 0, 0);
		}
		push(c, 0, head, bad[i / 4].length, 2);
		world_run(p.w, 50);
		assert_true(by->violated);
		assert_false(p.pb->violated);
		assert_untouched(p.pb, 0, BYTES);
		world_end(state);
	}
}

/* Operations on streams, messages on memory, operations before the connection is open. */
static void
test_mixed_up(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		struct pair p = memory_programs(NULL);
		struct weir_wire_export x = the_key(WEIR_RIGHT_WRITE);

		if (i == 0) {
			world_connect(p.pa, p.pb, &p.a, &p.b);
			put(p.a, 0, 8, 1);
		} else if (i == 1) {
			p.a = open_remote(p.pa, WEIR_RIGHT_WRITE);
			pconn_push(p.a, 0, 48, 0);
		} else if (i == 2) {
			p.a = pconn_connect_memory(p.pa, &x);
			put(p.a, 0, 8, 1);
		} else {
			p.a = open_remote(p.pa, WEIR_RIGHT_WRITE);
			pconn_op(p.a, WEIR_OP_PUT + 1, 0);
		}
		world_run(p.w, 50);
		assert_true(p.pa->violated);
		assert_untouched(p.pb, 0, BYTES);
		world_end(state);
	}
}

/* A wrong operation of a peer ends its connection; operations of its neighbour arrive. */
static void
test_bad_peers(void **state)
{
	for (unsigned i = 0; i < 7; i++) {
		struct pair p = memory_programs(NULL);
		struct pconn *c = open_remote(p.pa, WEIR_RIGHT_WRITE);
		struct pconn *good = open_remote(p.pa, WEIR_RIGHT_WRITE);
		struct engine *e = p.w->node[0].engine;
		struct conn *begin = conn_find(e, c->vqpn);
		struct weir_cell_put head = {.handle = WEIR_HANDLE_FIRST};
		uint32_t length = 8;

		/* the engine at the beginning end believes in more than there is */
		begin->cold->memory.length = UINT64_MAX;
		if (i == 0)
			head.offset = LENGTH;
		else if (i == 1)
			head.offset = LENGTH - 7;
		else if (i == 2)
			head.offset = UINT64_MAX - length;
		else if (i == 3)
			begin->cold->memory.cells = 5; /* operations are missing */
		else if (i == 4)
			begin->peer_vqpn = conn_find(e, good->vqpn)->peer_vqpn; /* another's */
		else if (i == 5)
			head.offset = LENGTH - 512, length = WEIR_PUT_MAX;
		else
			begin->kind = CONN_STREAM; /* a message */
		if (i == 4)
			begin->cold->memory.cells = 9;
		if (i == 6) {
			begin->granted = begin->spent + 4096;
			pconn_push(c, 0, 48, 0);
		} else {
			push(c, 0, head, length, 1);
		}
		world_run(p.w, 100);
		assert_untouched(p.pb, 0, BYTES);
		assert_false(p.pa->violated || p.pb->violated);
		assert_int_equal(node_counters(p.w, 1)->bad_frames, 1);
		if (i != 4) {
			assert_closed(c, ECONNRESET);
			put(good, 0, 8, 7);
			flush(good, 100);
			assert_stored(p.pb, 0, 8, 7);
		}
		assert_int_equal(p.w->node[1].link_errors, 0);
		world_end(state);
	}
}

/* A PUT whose payload lies beyond its frame breaks the link, and is not executed. */
static void
test_cut_off(void **state)
{
	static const uint32_t cut[] = {33, 100, WEIR_PUT_MAX};

	for (unsigned i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
		struct pair p = memory_programs(NULL);
		struct pconn *c = open_remote(p.pa, WEIR_RIGHT_WRITE);
		struct conn *end = conn_find(p.w->node[1].engine,
					     conn_find(p.w->node[0].engine, c->vqpn)->peer_vqpn);
		struct weir_cell_put head = {.handle = WEIR_HANDLE_FIRST};
		struct weir_slot line = {.op = WEIR_OP_PUT, .vqpn = end->vqpn, .length = cut[i]};

		memcpy(line.data, &head, sizeof(head));
		link_inject(end->link, &p.w->node[1].qp[0], &line, 1, NULL, 0);
		world_run(p.w, 5);
		assert_untouched(p.pb, 0, BYTES);
		assert_int_equal(p.w->node[1].link_errors, 1);
		world_end(state);
	}
}

/* A program that stands still costs its remote peers nothing: its engine does the work. */
static void
test_stopped(void **state)
{
	struct pair p = memory_programs(NULL);
	struct pconn *c = open_remote(p.pa, WEIR_RIGHT_WRITE);

	p.pb->stopped = true;
	for (unsigned i = 0; i < 500; i++) {
		put(c, i % 64 * 64, 64, i);
		flush(c, 100);
	}
	for (unsigned i = 436; i < 500; i++)
		assert_stored(p.pb, i % 64 * 64, 64, i);
}

/* The rate of the beginning program holds for its operations. */
static void
test_rate(void **state)
{
	struct pair p = memory_programs(NULL);
	struct pconn *c = open_remote(p.pa, WEIR_RIGHT_WRITE);
	uint64_t start;

	program_share(p.pa, ENGINE_WEIGHT, 1000000, 1000000); /* 1 MB/s, 1 ms of burst */
	start = p.w->now;
	for (unsigned i = 0; i < 60; i++) {
		put(c, 0, 900, i);
		flush(c, 100000);
	}
	assert_true(p.w->now - start > 30000000);
}

/*
 * The RESET of a connection whose export was stopped finds no room for a while. Credit for puts
 * that came meanwhile gives room, but they do not count as complete; and then it does not matter.
 */
static void
test_refused_before_reset(void **state)
{
	struct pair p = memory_programs(NULL);
	struct pconn *c = open_remote(p.pa, WEIR_RIGHT_WRITE);
	struct peer_link *from = &p.w->node[0].engine->links[1];
	struct peer_link *to = &p.w->node[1].engine->links[1];

	put(c, 0, 8, 1);
	flush(c, 100);
	assert_int_equal(pconn_completed(c), 1);
	to->way = WAY_LEFT; /* no frame leaves before the peer has consumed all */
	to->left_at = UINT64_MAX;
	assert_int_equal(export_command(p.pb, ENGINE_EXPORT_STOP, WEIR_RIGHT_WRITE), 0);
	for (unsigned i = 0; i < 40; i++) {
		put(c, 8 * i, 8, 2 + i);
		world_run(p.w, 5);
	}
	world_run(p.w, 200);
	assert_int_equal(from->credited, from->tx_posted);
	assert_true(from->executed < from->credited);
	assert_int_equal(pconn_completed(c), 1);
	assert_int_equal(pconn_status(c), 0);
	to->way = WAY_SETTLED;
	link_busy(p.w->node[1].engine, to);
	world_run(p.w, 100);
	assert_int_equal(pconn_status(c), ESTALE);
	assert_int_equal(pconn_completed(c), 1);
	assert_int_equal(from->executed, from->tx_posted);
	assert_int_equal(to->holds, 0);
	assert_stored(p.pb, 0, 8, 1);
	assert_untouched(p.pb, START + 8, BYTES);
}

ENGINE_TESTS(TEST(test_refused_before_reset), TEST(test_lengths), TEST(test_order),
	     TEST(test_flush), TEST(test_opening), TEST(test_revoke), TEST(test_counters),
	     TEST(test_ends), TEST(test_link_fails), TEST(test_bad_programs), TEST(test_mixed_up),
	     TEST(test_bad_peers), TEST(test_cut_off), TEST(test_stopped), TEST(test_rate))
