/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on remote memory that are answered: gets, fetches, compare and swap, between two nodes
 * and apart on one; updates in runs, which are not. Credit for answers, ends of all kinds, programs
 * and peers that break the rules.
 */
#include "worlds/engine_world.h"

#include "engine/answer.h"
#include "engine/conn.h"
#include "engine/link.h"
#include "engine/session.h"
#include "ipc/apply.h"
#include "weir/memory.h"
#include "weir/type.h"

#define BYTES 32768u  /* of region 1 of the exporting program */
#define START 1024u   /* of the export in it */
#define LENGTH 16384u /* of the export */
#define GENERATION 77
#define ALL (WEIR_RIGHT_READ | WEIR_RIGHT_WRITE | WEIR_RIGHT_UPDATE)

static void
export_memory(struct program *p, uint32_t rights)
{
	struct engine_command k = {.type = ENGINE_EXPORT_ADD,
				   .export = {.session = p->id,
					      .number = 1,
					      .generation = GENERATION,
					      .region = 1,
					      .offset = START,
					      .length = LENGTH,
					      .rights = rights}};

	program_adopt(p, 1, BYTES, WEIR_ADOPT_SEND);
	assert_int_equal(program_command(p, &k), 0);
	for (uint32_t i = 0; i < BYTES; i++)
		p->region[0].base[i] = (uint8_t)(i * 7 + i / 256);
}

/* A program on node 1 exports memory, others on both nodes open it. */
static struct pair
memory_programs(const struct world_options *o)
{
	struct pair p = pair_programs(o, 2);

	export_memory(p.pb, ALL);
	return p;
}

static struct pconn *
open_remote(struct program *by, uint32_t rights)
{
	struct weir_wire_export x = {.index = 1, .generation = GENERATION, .rights = rights};
	struct pconn *c = pconn_connect_memory(by, &x);

	STEP_MOST(by->w, 200, !c->opened);
	assert_true(c->opened);
	assert_int_equal(c->open_status, 0);
	return c;
}

static struct pconn *
open_apart(struct program *by, const struct program *exporter, uint32_t rights)
{
	return pconn_open_apart(
	    by, exporter,
	    &(struct weir_wire_export){.index = 1, .generation = GENERATION, .rights = rights});
}

/* Where answer n of a program goes. */
static uint8_t *
result(const struct program *p, uint32_t n)
{
	return p->arena + weir_arena_send(&p->view.geometry) + n * WEIR_BLOCK_SIZE;
}

static uint32_t
place(const struct program *p, uint32_t n)
{
	return (uint32_t)((weir_arena_send(&p->view.geometry) + n * WEIR_BLOCK_SIZE) / 64);
}

static void
push(struct pconn *c, uint8_t op, const struct weir_cell_access *a, const void *payload,
     uint32_t length)
{
	bool fits = weir_cell_length_ok(op, length);
	uint32_t n = fits ? weir_cell_slots(op, length) : 1;
	struct weir_ring *r = &c->p->tx[0];
	struct weir_slot s = {
	    .op = op, .order = (uint16_t)c->sent, .vqpn = c->vqpn, .length = length};
	uint8_t bytes[WEIR_INLINE_MAX] = {0};

	memcpy(bytes, a, WEIR_ACCESS_FIELDS);
	if (payload && fits)
		memcpy(bytes + WEIR_ACCESS_FIELDS, payload, length);
	STEP_WHILE(c->p->w, (weir_ring_refresh(r), weir_ring_room(r) < n));
	memcpy((char *)weir_ring_at(r, r->pos) + 4, (char *)&s + 4, 12);
	weir_ring_put_inline(r, bytes, fits ? WEIR_ACCESS_FIELDS + length : 48);
	weir_ring_publish(r, n);
	c->sent++;
}

static void
get(struct pconn *c, uint64_t offset, uint32_t length, uint32_t n)
{
	struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
				     .offset = offset,
				     .result = place(c->p, n),
				     .count = length};

	push(c, WEIR_OP_GET, &a, NULL, 0);
}

/* Adds to a word, and fetches it to result n. */
static void
add(struct pconn *c, uint64_t offset, int64_t by, uint32_t n)
{
	struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
				     .type = WEIR_T_INT64,
				     .acc = WEIR_ACC_SUM,
				     .options = WEIR_ACCESS_RESULT,
				     .offset = offset,
				     .result = place(c->p, n),
				     .count = 1};

	push(c, WEIR_OP_UPDATE, &a, &by, sizeof(by));
}

static void
put(struct pconn *c, uint64_t offset, uint64_t word)
{
	struct weir_cell_put head = {.handle = WEIR_HANDLE_FIRST, .offset = offset};
	struct weir_cell_access a;

	memcpy(head.payload, &word, sizeof(word));
	memcpy(&a, &head, sizeof(a));
	push(c, WEIR_OP_PUT, &a, head.payload + 8, sizeof(word));
}

static void
flush(struct pconn *c, unsigned steps)
{
	pconn_op(c, WEIR_OP_FLUSH, 0);
	STEP_MOST(c->p->w, steps, pconn_completed(c) != c->sent);
	assert_int_equal(pconn_completed(c), c->sent);
}

static int64_t
word_at(const struct program *p, uint64_t offset)
{
	int64_t v;

	memcpy(&v, p->region[0].base + START + offset, sizeof(v));
	return v;
}

static void
set_word(const struct program *p, uint64_t offset, int64_t v)
{
	memcpy(p->region[0].base + START + offset, &v, sizeof(v));
}

static int64_t
result_word(const struct program *p, uint32_t n)
{
	int64_t v;

	memcpy(&v, result(p, n), sizeof(v));
	return v;
}

static struct peer_link *
link_of(struct world *w, unsigned node)
{
	return &w->node[node].engine->links[1];
}

/* ---- what they do ---- */

static void
each_kind(struct pconn *c, struct program *exporter)
{
	static const uint32_t lengths[] = {1,	2,   4,	  7,	8,    47,   48,	  49,  112,
					   113, 500, 948, 1000, 4096, 8129, 8191, 8192};
	struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
				     .type = WEIR_T_UINT32,
				     .offset = 4,
				     .result = place(c->p, 0),
				     .count = 1};
	uint32_t both[2] = {5, 6}, was;
	double many[100];

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint64_t offset = i % 2 ? 8 * i : LENGTH - lengths[i];

		memset(result(c->p, 0), 0xee, WEIR_BLOCK_SIZE + 64);
		get(c, offset, lengths[i], 0);
		flush(c, 300);
		assert_memory_equal(result(c->p, 0), exporter->region[0].base + START + offset,
				    lengths[i]);
		for (uint32_t k = lengths[i]; k < WEIR_BLOCK_SIZE + 64; k++)
			assert_int_equal(result(c->p, 0)[k], 0xee);
	}
	set_word(exporter, 8, 40);
	add(c, 8, 2, 0);
	add(c, 8, -50, 1);
	flush(c, 300);
	assert_int_equal(result_word(c->p, 0), 40);
	assert_int_equal(result_word(c->p, 1), 42);
	assert_int_equal(word_at(exporter, 8), -8);
	/* compare and swap: once it fits, once not */
	memcpy(exporter->region[0].base + START + 4, &both[0], 4);
	push(c, WEIR_OP_CAS, &a, both, sizeof(both));
	flush(c, 300);
	memcpy(&was, result(c->p, 0), 4);
	assert_int_equal(was, 5);
	both[1] = 7;
	push(c, WEIR_OP_CAS, &a, both, sizeof(both));
	flush(c, 300);
	memcpy(&was, result(c->p, 0), 4);
	assert_int_equal(was, 6);
	memcpy(&was, exporter->region[0].base + START + 4, 4);
	assert_int_equal(was, 6);
	/* many elements, with and without their former values */
	for (unsigned i = 0; i < 100; i++)
		many[i] = i;
	memcpy(exporter->region[0].base + START + 64, many, sizeof(many));
	a = (struct weir_cell_access){.handle = WEIR_HANDLE_FIRST,
				      .type = WEIR_T_DOUBLE,
				      .acc = WEIR_ACC_PROD,
				      .options = WEIR_ACCESS_RESULT,
				      .offset = 64,
				      .result = place(c->p, 0),
				      .count = 100};
	push(c, WEIR_OP_UPDATE, &a, many, sizeof(many));
	a.options = 0;
	a.result = 0;
	push(c, WEIR_OP_UPDATE, &a, many, sizeof(many));
	flush(c, 300);
	assert_memory_equal(result(c->p, 0), many, sizeof(many));
	for (unsigned i = 0; i < 100; i++) {
		double is;

		memcpy(&is, exporter->region[0].base + START + 64 + 8 * i, 8);
		assert_true(is == (double)i * i * i);
	}
	a.acc = WEIR_ACC_NO_OP; /* an atomic read */
	a.options = WEIR_ACCESS_RESULT;
	a.result = place(c->p, 0);
	push(c, WEIR_OP_UPDATE, &a, NULL, 0);
	flush(c, 300);
	assert_memory_equal(result(c->p, 0), exporter->region[0].base + START + 64, sizeof(many));
}

static void
test_kinds(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 2000});

	each_kind(open_remote(p.pa, ALL), p.pb);
	each_kind(open_apart(program_open(p.w, 1, 1), p.pb, ALL), p.pb);
	assert_int_equal(node_counters(p.w, 0)->answers, 23);
}

/* Nothing behind an operation that is not answered is complete, though it is executed. */
static void
test_order(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 2000});
	struct pconn *c = open_remote(p.pa, ALL);
	uint64_t last = 0;

	set_word(p.pb, 0, 0);
	for (unsigned i = 0; i < 2000; i++) {
		if (i % 3)
			put(c, 0, i);
		else
			add(c, 0, 1, i % 64);
		if (i % 7 == 0)
			world_run(p.w, 1);
		assert_in_range(pconn_completed(c), last, c->sent);
		last = pconn_completed(c);
		if (last && last < 64 && (last - 1) % 3 == 0)
			assert_int_equal(result_word(p.pa, (uint32_t)last - 1),
					 last > 1 ? last - 2 : 0);
	}
	flush(c, 2000);
	assert_int_equal(word_at(p.pb, 0), 1999);
	/* more than may be unanswered, at once */
	for (unsigned i = 0; i < 60; i++)
		add(c, 0, 1, i);
	STEP_MOST(p.w, 2000, pconn_completed(c) != c->sent);
	assert_int_equal(word_at(p.pb, 0), 1999 + 60);
}

/*
 * Runs of updates without results, of one kind and of many, with other operations between them: the
 * memory ends as a copy that is updated in their order.
 */
static void
test_runs(void **state)
{
	static const struct {
		enum weir_type type;
		enum weir_acc acc;
		uint32_t most; /* elements */
	} kinds[] = {{WEIR_T_INT64, WEIR_ACC_SUM, 1},	{WEIR_T_INT64, WEIR_ACC_SUM, 3},
		     {WEIR_T_UINT8, WEIR_ACC_BXOR, 90}, {WEIR_T_UINT16, WEIR_ACC_REPLACE, 12},
		     {WEIR_T_UINT32, WEIR_ACC_MAX, 7},	{WEIR_T_INT64, WEIR_ACC_MIN, 1},
		     {WEIR_T_INT8, WEIR_ACC_NO_OP, 5},	{WEIR_T_UINT64, WEIR_ACC_SUM, 115}};
	struct pair p = memory_programs(
	    &(struct world_options){.delay_ns = 3000, .ring_lines = 256, .pending = 64});
	struct pconn *c = open_remote(p.pa, ALL);
	uint8_t operands[WEIR_ACCESS_MAX] = {0};
	uint64_t copy[LENGTH / 8];
	unsigned kind = 0, n = 0;

	memcpy(copy, p.pb->region[0].base + START, LENGTH);
	for (unsigned round = 0; round < 600; round++, world_run(p.w, round % 3))
		for (unsigned i = 0; i < 16; i++, n++) {
			struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST};
			uint32_t size, bytes;

			if (n * 7 % 11 < 3)
				kind = n * 13 % 8;
			size = (uint32_t)weir_type_size(kinds[kind].type);
			a.type = kinds[kind].type;
			a.acc = kinds[kind].acc;
			a.count = 1 + n * 5 % kinds[kind].most;
			a.offset = n * 97 % ((LENGTH - a.count * size) / size) * size;
			bytes = a.acc == WEIR_ACC_NO_OP ? 0 : a.count * size;
			memset(operands, (int)(n * 31), bytes);
			push(c, WEIR_OP_UPDATE, &a, operands, bytes);
			assert_int_equal(weir_apply(kinds[kind].type, kinds[kind].acc,
						    (uint8_t *)copy + a.offset, operands, NULL,
						    a.count),
					 0);
			if (n % 50 == 0) {
				put(c, n % 1000 * 8, n);
				copy[n % 1000] = n;
			} else if (n % 37 == 0) {
				add(c, n % 1000 * 8, n, n % 64);
				copy[n % 1000] += n;
			}
		}
	flush(c, 5000);
	assert_memory_equal(p.pb->region[0].base + START, copy, LENGTH);
}

/*
 * The same of operations with answers: gets, fetches, swaps of several lengths, up to more than a
 * line takes; credit for answers ends in the middle of runs. Each result is that of its turn.
 */
static void
test_answered_runs(void **state)
{
	enum { N = 48, WORDS = 40 };
	struct pair p = memory_programs(&(struct world_options){
	    .delay_ns = 3000, .ring_lines = 256, .pending = 64, .answers = 2048});
	struct pconn *c = open_remote(p.pa, ALL);
	uint64_t copy[WORDS], want[N][8];
	uint32_t bytes[N];

	for (unsigned round = 0; round < 200; round++) {
		memcpy(copy, p.pb->region[0].base + START, sizeof(copy));
		for (unsigned i = 0; i < N; i++) {
			unsigned op = (round + i / 12) % 3, words = 1 + (i / 6 + round) % 8;
			unsigned at = (i * 7 + round) % (WORDS - words);
			uint64_t operand[16] = {0};
			struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
						     .offset = at * 8,
						     .result = place(p.pa, i),
						     .count = words};

			if (op == 2)
				words = 1;
			bytes[i] = words * 8;
			memcpy(want[i], &copy[at], words * 8);
			if (op == 0) {
				a.count = words * 8;
				push(c, WEIR_OP_GET, &a, NULL, 0);
				continue;
			}
			a.type = WEIR_T_UINT64;
			for (unsigned k = 0; op == 1 && k < words; k++) {
				operand[k] = i + k + 1;
				copy[at + k] += operand[k];
			}
			if (op == 1) {
				a.acc = WEIR_ACC_SUM;
				a.options = WEIR_ACCESS_RESULT;
				push(c, WEIR_OP_UPDATE, &a, operand, words * 8);
				continue;
			}
			a.count = 1;
			operand[0] = copy[at] + i % 2; /* every second one fails */
			operand[1] = i;
			if (i % 2 == 0)
				copy[at] = i;
			push(c, WEIR_OP_CAS, &a, operand, 16);
		}
		flush(c, 5000);
		for (unsigned i = 0; i < N; i++)
			assert_memory_equal(result(p.pa, i), want[i], bytes[i]);
		assert_memory_equal(p.pb->region[0].base + START, copy, sizeof(copy));
	}
	assert_int_equal(answer_credit_of(conn_find(p.w->node[0].engine, c->vqpn)), 0);
	assert_int_equal(link_of(p.w, 0)->answer_room, link_of(p.w, 0)->is.peer_answers);
}

/* A flush behind a get asks for no credit: the answer says that it is complete. */
static void
test_flush(void **state)
{
	struct pair p = memory_programs(NULL);
	struct pconn *c = open_remote(p.pa, ALL);
	uint64_t frames;

	world_run(p.w, 200);
	frames = link_of(p.w, 0)->frames_sent;
	for (unsigned i = 0; i < 2; i++) { /* before the operation has left, and behind */
		get(c, 0, 8, 0);
		if (i)
			world_turn(p.w, 0);
		flush(c, 100);
		assert_int_equal(link_of(p.w, 0)->frames_sent, ++frames);
	}
	put(c, 0, 1); /* which has no answer */
	world_turn(p.w, 0);
	flush(c, 100);
	assert_int_equal(link_of(p.w, 0)->frames_sent, frames + 2);
}

/* ---- credit ---- */

/* Answers lack credit: other connections go on, all come in the end, none overtakes. */
static void
test_credit(void **state)
{
	struct pair p = memory_programs(
	    &(struct world_options){.delay_ns = 5000, .answers = WEIR_ANSWERS_LEAST});
	struct pconn *a = open_remote(p.pa, ALL), *b = open_remote(p.pa, ALL);
	struct pconn *c = open_remote(p.pa, ALL);
	uint64_t before;

	set_word(p.pb, 8, 0);
	for (unsigned i = 0; i < 20; i++) {
		get(a, 0, 8192, i);
		get(b, 8192, 8192, 20 + i);
	}
	put(c, 0, 77);
	pconn_op(c, WEIR_OP_FLUSH, 0);
	STEP_MOST(p.w, 1000, pconn_completed(c) != 1);
	assert_int_equal(word_at(p.pb, 0), 77);
	assert_true(pconn_completed(a) < 5 && pconn_completed(b) < 5);
	before = pconn_completed(a) + pconn_completed(b);
	add(c, 8, 1, 50); /* it waits behind both of them, and its turn comes */
	STEP_MOST(p.w, 3000, pconn_completed(c) != 2);
	assert_int_equal(word_at(p.pb, 8), 1);
	assert_true(pconn_completed(a) + pconn_completed(b) >= before + 2);
	assert_true(pconn_completed(a) < 15 && pconn_completed(b) < 15);
	flush(a, 10000);
	flush(b, 10000);
	for (unsigned i = 0; i < 40; i++)
		assert_memory_equal(result(p.pa, i) + 64,
				    p.pb->region[0].base + START + (i < 20 ? 64 : 8192 + 64),
				    8192 - 64);
	assert_true(node_counters(p.w, 0)->answer_stalls > 0);
	assert_int_equal(link_of(p.w, 0)->answer_room, WEIR_ANSWERS_LEAST);
}

/* A peer that grants more than the link can note: more operations wait, and their turn comes. */
static void
test_most(void **state)
{
	struct pair p = memory_programs(&(struct world_options){
	    .delay_ns = 3000, .ring_lines = 8192, .answers = 512 << 10, .pending = 4096});
	struct pconn *c = open_remote(p.pa, ALL), *other = open_remote(p.pa, ALL);

	set_word(p.pb, 0, 0);
	p.w->net.delay_ns = 3000000; /* so that no answer comes meanwhile */
	for (unsigned i = 0; i < 2500; i++)
		add(c, 0, 1, i % 64);
	world_run(p.w, 100);
	assert_int_equal(link_of(p.w, 0)->answer_room, (512 << 10) - LINK_AWAITED * 64);
	assert_true(node_counters(p.w, 0)->answer_stalls > 0);
	put(other, 8, 77);
	add(other, 0, 1, 64);
	flush(c, 500000);
	flush(other, 500000);
	assert_int_equal(word_at(p.pb, 0), 2501);
	assert_int_equal(link_of(p.w, 0)->answer_room, 512 << 10);
}

/* The last entry belongs to an operation that is paid and waits for its program's rate. */
static void
test_last_entry(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 3000});
	struct program *fast = program_open(p.w, 0, 1);
	struct pconn *slow = open_remote(p.pa, ALL), *c = open_remote(fast, ALL);
	struct peer_link *l = link_of(p.w, 0);
	struct weir_cell_access none = {.handle = WEIR_HANDLE_FIRST,
					.type = WEIR_T_INT64,
					.acc = WEIR_ACC_SUM,
					.offset = 1024,
					.count = 100};
	int64_t zeroes[100] = {0};

	set_word(p.pb, 8, 0);
	program_share(p.pa, ENGINE_WEIGHT, 1000000, 1000000); /* 1 MB/s, 1 ms of burst */
	l->awaited_fresh = LINK_AWAITED - 1;
	l->awaited_left = 1;
	for (unsigned i = 0; i < 2; i++) /* more than the burst */
		push(slow, WEIR_OP_UPDATE, &none, zeroes, sizeof(zeroes));
	world_run(p.w, 20);
	add(slow, 8, 1, 0);
	world_run(p.w, 20);
	assert_int_equal(l->awaited_left, 0);
	assert_int_equal(l->awaited_fresh, LINK_AWAITED - 1);
	add(c, 8, 1, 0);
	world_run(p.w, 20);
	assert_int_equal(word_at(p.pb, 8), 0);
	flush(slow, 100000);
	flush(c, 100000);
	assert_int_equal(word_at(p.pb, 8), 2);
	assert_int_equal(l->awaited_left, 1);
}

/* Two engines that ask each other for more than their rings hold go on. */
static void
test_both_ways(void **state)
{
	struct pair p = memory_programs(&(struct world_options){
	    .delay_ns = 3000, .ring_lines = 256, .answers = WEIR_ANSWERS_LEAST});
	struct pconn *a, *b;

	export_memory(p.pa, ALL);
	a = open_remote(p.pa, ALL);
	b = open_remote(p.pb, ALL);
	set_word(p.pa, 0, 0);
	set_word(p.pb, 0, 0);
	for (unsigned i = 0; i < 300; i++) {
		add(a, 0, 1, i % 32);
		get(a, i % 100 * 64, 1 + i * 27 % 8192, 40 + i % 32);
		add(b, 0, 1, i % 32);
		get(b, i % 100 * 64, 1 + i * 27 % 8192, 40 + i % 32);
		world_run(p.w, i % 3);
	}
	flush(a, 50000);
	flush(b, 50000);
	assert_int_equal(word_at(p.pa, 0), 300);
	assert_int_equal(word_at(p.pb, 0), 300);
	assert_int_equal(result_word(p.pa, 299 % 32), 299);
}

/* ---- ends ---- */

/* Some of its operations are answered, some under way, some wait. */
static void
ask_much(struct pconn *c)
{
	for (unsigned i = 0; i < 12; i++) {
		get(c, 0, 8192, i);
		add(c, 8, 1, 20 + i);
	}
}

static void
test_ends(void **state)
{
	for (unsigned i = 0; i < 40; i++) {
		/* answers wait for credit, or in the engine for room in the ring */
		uint32_t credit = i / 4 % 2 ? 128 << 10 : WEIR_ANSWERS_LEAST;
		struct pair p = memory_programs(&(struct world_options){
		    .delay_ns = 2000, .ring_lines = 256, .answers = credit});
		struct program *third = program_open(p.w, 0, 1);
		struct pconn *c = open_remote(p.pa, ALL), *good = open_remote(third, ALL);
		struct engine_command k = {
		    .type = ENGINE_EXPORT_STOP,
		    .export = {.session = p.pb->id, .number = 1, .generation = GENERATION}};

		set_word(p.pb, 8, 0);
		ask_much(c);
		world_run(p.w, i);
		if (i % 4 == 0) {
			pconn_close(c); /* behind all of them */
			for (unsigned t = 0; t < 4; t++)
				world_turn(p.w, 0);
			memset(result(p.pa, 0), 0xee, 32 * WEIR_BLOCK_SIZE);
			world_run(p.w, 3000);
			for (uint32_t at = 0; at < 32 * WEIR_BLOCK_SIZE; at++)
				assert_int_equal(result(p.pa, 0)[at], 0xee);
			assert_int_equal(word_at(p.pb, 8), 12);
			assert_true(c->freed);
		} else if (i % 4 == 1) {
			program_die(p.pa);
			world_run(p.w, 1000);
			assert_true(p.pa->removed);
		} else if (i % 4 == 2) {
			uint64_t done;

			assert_int_equal(program_command(p.pb, &k), 0);
			world_run(p.w, 1000);
			assert_closed(c, ESTALE);
			/* what was executed is complete, and its result there */
			done = pconn_completed(c);
			assert_int_equal(word_at(p.pb, 8), done / 2);
			for (uint32_t n = 0; n < done / 2; n++)
				assert_int_equal(result_word(p.pa, 20 + n), n);
			pconn_ends(c, 100);
		} else {
			world_links_fail(p.w, EHOSTDOWN);
			world_run(p.w, 100);
			assert_closed(c, EHOSTDOWN);
			pconn_ends(c, 100);
		}
		if (i % 4 < 2) {
			add(good, 16, 1, 0);
			flush(good, 1000);
			assert_int_equal(link_of(p.w, 0)->answer_room, credit);
		}
		world_end(state);
	}
}

/* ---- breaking the rules ---- */

static void
test_bad_programs(void **state)
{
	const struct weir_cell_access right = {.handle = WEIR_HANDLE_FIRST,
					       .type = WEIR_T_INT64,
					       .acc = WEIR_ACC_SUM,
					       .options = WEIR_ACCESS_RESULT,
					       .offset = 8,
					       .count = 1};

	for (unsigned i = 0; i < 6 * 28; i++) {
		struct pair p = memory_programs(NULL);
		struct program *by = i % 2 ? program_open(p.w, 1, 1) : p.pa;
		uint32_t rights = i / 6 == 22	? ALL & ~WEIR_RIGHT_UPDATE
				  : i / 6 == 23 ? ALL & ~WEIR_RIGHT_READ
						: ALL;
		struct pconn *c = i % 2 ? open_apart(by, p.pb, rights) : open_remote(by, rights);
		uint8_t before[BYTES], payload[948] = {0};
		struct weir_cell_access a = right;
		uint8_t op = WEIR_OP_UPDATE;
		uint32_t length = 8;

		a.result = place(by, 0);
		memcpy(before, p.pb->region[0].base, BYTES);
		switch (i / 6) {
		case 0:
			a.handle++;
			break;
		case 1:
			a.type = 0;
			break;
		case 2:
			a.type = WEIR_T_LONG_DOUBLE;
			a.offset = 8;
			a.count = 1;
			length = 16;
			break;
		case 3:
			a.type = 255;
			break;
		case 4:
			a.acc = 0;
			break;
		case 5:
			a.acc = WEIR_ACC_MINLOC;
			break;
		case 6:
			a.acc = 255;
			break;
		case 7:
			a.options = 2;
			break;
		case 8:
			a.offset = 4;
			break;
		case 9:
			a.offset = LENGTH;
			break;
		case 10:
			a.offset = UINT64_MAX - 7;
			break;
		case 11:
			a.count = 0;
			length = 0;
			break;
		case 12:
			a.count = 2;
			break;
		case 13:
			length = 16;
			break;
		case 14:
			a.count = UINT32_MAX;
			break;
		case 15:
			length = WEIR_ACCESS_MAX + 1;
			break;
		case 16:
			a.result = 0;
			break;
		case 17:
			a.result = place(by, 8192);
			break;
		case 18:
			op = WEIR_OP_GET;
			a = (struct weir_cell_access){
			    .handle = a.handle, .result = a.result, .count = 8193};
			length = 0;
			break;
		case 19:
			op = WEIR_OP_GET;
			a = (struct weir_cell_access){
			    .handle = a.handle, .result = a.result, .count = 0};
			length = 0;
			break;
		case 20:
			op = WEIR_OP_GET;
			a = (struct weir_cell_access){
			    .handle = a.handle, .result = place(by, 8191) + 127, .count = 65};
			length = 0;
			break;
		case 21:
			op = WEIR_OP_GET;
			a = (struct weir_cell_access){.handle = a.handle,
						      .result = a.result,
						      .offset = LENGTH - 7,
						      .count = 8};
			length = 0;
			break;
		case 22:
			break;
		case 23:
			op = WEIR_OP_GET;
			a = (struct weir_cell_access){
			    .handle = a.handle, .result = a.result, .count = 8};
			length = 0;
			break;
		case 24:
			op = WEIR_OP_CAS;
			a.acc = 0;
			a.options = 0;
			length = 8;
			break;
		case 25:
			op = WEIR_OP_CAS;
			a.acc = 0;
			a.options = 0;
			a.type = WEIR_T_DOUBLE;
			length = 16;
			break;
		case 26:
			op = WEIR_OP_CAS;
			a.acc = 0;
			a.options = 0;
			a.count = 2;
			length = 16;
			break;
		default: /* nothing but zeroes */
			memset(&a, 0, sizeof(a));
			length = 0;
		}
		if (i / 2 % 3 == 1 && op == WEIR_OP_UPDATE) { /* behind others, in a run */
			struct weir_cell_access nothing = right;

			nothing.options = 0;
			if (i / 6 != 22) {
				push(c, op, &nothing, payload, 8);
				push(c, op, &nothing, payload, 8);
			}
			if (i / 6 != 16 && i / 6 != 17) /* that is what is wrong with them */
				a.options &= (uint16_t)~WEIR_ACCESS_RESULT;
		} else if (i / 2 % 3 == 2 && i / 6 != 22 && i / 6 != 23) { /* that are answered */
			static const uint8_t zeroes[16];
			struct weir_cell_access nothing = right;

			nothing.result = place(by, 1);
			if (op != WEIR_OP_UPDATE)
				nothing.acc = 0, nothing.options = 0;
			if (op == WEIR_OP_GET)
				nothing.type = 0;
			for (unsigned k = 0; k < 3; k++)
				push(c, op, &nothing, zeroes,
				     op == WEIR_OP_GET	    ? 0
				     : op == WEIR_OP_UPDATE ? 8
							    : 16);
		}
		push(c, op, &a, payload, length);
		world_run(p.w, 50);
		assert_true(by->violated);
		assert_false(p.pb->violated);
		assert_memory_equal(p.pb->region[0].base, before, BYTES);
		world_end(state);
	}
}

/* A peer that asks for more than it was granted loses the link. */
static void
test_greedy_peer(void **state)
{
	struct pair p = memory_programs(NULL);
	struct pconn *c = open_remote(p.pa, ALL);

	link_of(p.w, 1)->is.answer_lines = 1;
	add(c, 8, 1, 0); /* one line */
	flush(c, 100);
	assert_int_equal(p.w->node[1].link_errors, 0);
	get(c, 0, 49, 0);
	world_run(p.w, 20);
	assert_int_equal(p.w->node[1].link_errors, 1);
	assert_int_equal(p.w->node[1].link_error, EPROTO);
}

/* Writes lines into the ring of a node, as its peer would. */
static void
inject(struct world *w, unsigned node, const struct weir_slot *lines, uint32_t n)
{
	struct peer_link *l = link_of(w, node);
	struct weir_frame_head head = {.version = WEIR_WIRE_VERSION,
				       .lines = n + 1,
				       .position = l->rx_pos,
				       .consumed = l->tx_posted,
				       .wrs = l->wrs_used};

	memcpy(&l->ring[l->rx_pos & l->rx_mask], &head, 64);
	for (uint32_t i = 0; i < n; i++)
		memcpy(&l->ring[(l->rx_pos + 1 + i) & l->rx_mask], &lines[i], 64);
	fake_receive(&w->node[node].qp[0], WEIR_IMM(WEIR_IMM_FRAME, n + 1));
}

static void
test_bad_answers(void **state)
{
	for (unsigned i = 0; i < 12; i++) {
		struct pair p = memory_programs(NULL);
		struct pconn *c = open_remote(p.pa, ALL), *good = open_remote(p.pa, ALL);
		struct weir_slot line[3] = {{.op = WEIR_WIRE_ANSWER, .vqpn = c->vqpn, .length = 8}};
		bool second = i >= 10; /* behind an answer that is right */
		uint32_t n = 1;

		add(good, 8, 1, 30);
		flush(good, 100);
		memset(result(p.pa, 0), 0xee, 64);
		memset(result(p.pa, 1), 0xee, 64);
		if (second) {
			add(c, 8, 1, 0);
			add(c, 8, 1, 1);
			for (unsigned k = 0; k < 3; k++)
				world_turn(p.w, 0);
			line[1] = line[0];
			line[1].order = i == 10 ? 1 : 2;
			line[1].length = i == 10 ? 9 : 8;
			n = 2;
		}
		if (i < 5) { /* it is asked for 8 bytes, and has not answered yet */
			add(c, 8, 1, 0);
			for (unsigned k = 0; k < 3; k++)
				world_turn(p.w, 0);
			assert_int_equal(link_of(p.w, 0)->answer_room,
					 link_of(p.w, 0)->is.peer_answers - 64);
		}
		if (i == 0)
			line[0].length = 7;
		else if (i == 1)
			line[0].length = 9;
		else if (i == 2)
			line[0].length = 0;
		else if (i == 3)
			line[0].order = 1;
		else if (i == 4)
			line[0].length = 100, n = 2;
		else if (i == 5) { /* nothing was asked for, after all was answered */
			for (unsigned k = 0; k < 40; k++) {
				add(c, 8, 1, 0);
				flush(c, 100);
			}
			memset(result(p.pa, 0), 0xee, 64);
			line[0].order = 40;
		} else if (i == 6)
			line[0].length = WEIR_ANSWER_MAX + 1;
		else if (i == 7)
			line[0].length = 49;
		else if (i == 8)
			line[0].vqpn = 0x12345;
		else if (i == 9)
			line[0].vqpn = conn_find(p.w->node[1].engine,
						 conn_find(p.w->node[0].engine, c->vqpn)->peer_vqpn)
					   ->vqpn ^
				       (1u << 20);
		inject(p.w, 0, line, n);
		world_turn(p.w, 0);
		for (uint32_t k = 0; k < 64; k++)
			assert_int_equal(result(p.pa, second)[k], 0xee);
		assert_int_equal(result(p.pa, 0)[7], second ? 0 : 0xee);
		assert_false(p.pa->violated);
		if (i < 6 || second) {
			assert_int_equal(pconn_status(c), EPROTO);
			assert_int_equal(pconn_status(good), 0);
			assert_int_equal(p.w->node[0].link_errors, 0);
			assert_int_equal(node_counters(p.w, 0)->bad_frames, 1);
		} else {
			world_run(p.w, 1);
			assert_int_equal(p.w->node[0].link_errors, 1);
			assert_int_equal(p.w->node[0].link_error, EPROTO);
		}
		world_end(state);
	}
}

/*
 * A wrong operation of a peer, behind two that are right and of the same kind: those are executed,
 * it is not, and its connection ends. Updates, fetches, gets.
 */
static void
test_bad_updates(void **state)
{
	for (unsigned of = 0; of < 3 * 11; of++) {
		struct pair p = memory_programs(NULL);
		unsigned i = of % 11;
		bool get = of / 11 == 2, answered = of / 11 != 0;
		struct pconn *c = open_remote(
		    p.pa, i == 9 ? ALL & ~(get ? WEIR_RIGHT_READ : WEIR_RIGHT_UPDATE) : ALL);
		struct pconn *good = open_remote(p.pa, ALL);
		struct conn *end = conn_find(p.w->node[1].engine,
					     conn_find(p.w->node[0].engine, c->vqpn)->peer_vqpn);
		uint8_t before[BYTES];
		struct weir_slot line[3];
		unsigned right = i >= 9 ? 0 : 2;
		int64_t one = 1;

		set_word(p.pb, 0, 40);
		set_word(p.pb, LENGTH - 8, 40);
		for (unsigned k = 0; k < 3; k++) {
			struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
						     .type = WEIR_T_INT64,
						     .acc = WEIR_ACC_SUM,
						     .offset = k ? LENGTH - 8 : 0,
						     .count = 1};

			line[k] = (struct weir_slot){.op = get ? WEIR_OP_GET : WEIR_OP_UPDATE,
						     .order = (uint16_t)k,
						     .vqpn = end->vqpn,
						     .length = get ? 0 : 8};
			if (get)
				a.type = a.acc = 0, a.count = 8;
			else if (answered)
				a.options = WEIR_ACCESS_RESULT;
			if (k == 2 && i == 0)
				a.offset = LENGTH - 4;
			else if (k == 2 && i == 1)
				a.offset = LENGTH;
			else if (k == 2 && i == 2)
				a.offset = (uint64_t)-8;
			else if (k == 2 && i == 3)
				a.count *= 2, line[k].length *= 2; /* beyond the export */
			else if (k == 2 && i == 4)
				a.count = 0;
			else if (k == 2 && i == 5)
				a.type = WEIR_T_LONG_DOUBLE;
			else if (k == 2 && i == 6)
				a.acc = WEIR_ACC_MINLOC;
			else if (k == 2 && i == 7)
				a.handle++;
			else if (k == 2 && i == 8)
				line[k].order = 7;
			if (i == 10) { /* nothing but zeroes */
				memset(&a, 0, sizeof(a));
				line[k].length = 0;
			}
			memcpy(line[k].data, &a, WEIR_ACCESS_FIELDS);
			memcpy(line[k].data + WEIR_ACCESS_FIELDS, &one, sizeof(one));
		}
		memcpy(before, p.pb->region[0].base, BYTES);
		inject(p.w, 1, line, 3);
		world_turn(p.w, 1);
		assert_int_equal(word_at(p.pb, 0), right && !get ? 41 : 40);
		assert_int_equal(word_at(p.pb, LENGTH - 8), right && !get ? 41 : 40);
		assert_int_equal(end->cold->memory.answers, answered ? right : 0);
		set_word(p.pb, 0, 40);
		set_word(p.pb, LENGTH - 8, 40);
		assert_memory_equal(p.pb->region[0].base, before, BYTES);
		assert_int_equal(node_counters(p.w, 1)->bad_frames, 1);
		assert_false(p.pb->violated);
		assert_int_equal(p.w->node[1].link_errors, 0);
		assert_int_equal(pconn_status(good), 0);
		world_end(state);
	}
}

/* A program with a rate pays for what it reads. */
static void
test_rate(void **state)
{
	struct pair p = memory_programs(NULL);
	struct pconn *c = open_remote(p.pa, ALL);
	uint64_t start;

	program_share(p.pa, ENGINE_WEIGHT, 1000000, 1000000); /* 1 MB/s, 1 ms of burst */
	start = p.w->now;
	for (unsigned i = 0; i < 10; i++) {
		get(c, 0, 4096, 0);
		flush(c, 100000);
	}
	assert_true(p.w->now - start > 30000000);
}

ENGINE_TESTS(TEST(test_kinds), TEST(test_order), TEST(test_runs), TEST(test_answered_runs),
	     TEST(test_flush), TEST(test_credit), TEST(test_most), TEST(test_last_entry),
	     TEST(test_both_ways), TEST(test_ends), TEST(test_bad_programs), TEST(test_greedy_peer),
	     TEST(test_bad_answers), TEST(test_bad_updates), TEST(test_rate))
