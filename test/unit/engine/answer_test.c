/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on remote memory that are answered: gets, fetches, compare and swap, between two nodes
 * and apart on one; updates in runs, which are not. Credit for answers, ends of all kinds.
 */
#include "answers.h"

#include "engine/answer.h"
#include "engine/scheduler.h"
#include "ipc/apply.h"

#include <pthread.h>
#include <unistd.h>

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
	assert_true(node_counters(p.w, 1)->remote_gets);
	assert_int_equal(node_counters(p.w, 1)->remote_gets + node_counters(p.w, 1)->remote_updates,
			 node_counters(p.w, 1)->remote_operations);
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
	assert_int_equal(node_counters(p.w, 1)->remote_puts, 1333);
	assert_int_equal(node_counters(p.w, 1)->remote_updates, 667 + 60);
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

/* An operation that waits for credit leaves its program's part of the frame to others. */
static void
test_part_without_credit(void **state)
{
	struct pair p = memory_programs(&(struct world_options){.delay_ns = 3000});
	struct pconn *c = open_remote(p.pa, ALL), *other = open_remote(p.pa, ALL);
	struct session *s = &p.w->node[0].engine->sessions[p.pa->id];
	struct peer_link *l = link_of(p.w, 0);
	uint64_t credit = l->answer_room, left = 0;
	uint32_t part;

	set_word(p.pb, 8, 0);
	for (unsigned i = 0; i < 2; i++) { /* with credit, and without it */
		if (i) {
			left = l->answer_room;
			l->answer_room = 0;
		}
		l->split = true;
		l->last_weight = 1;
		part = share_lines(l, s);
		assert_true(part > 1);
		add(i ? other : c, 8, 1, i);
		world_turn(p.w, 0);
		assert_int_equal(queue_of(s, l, RING)->lines, part - !i);
	}
	l->answer_room += left;
	link_busy(p.w->node[0].engine, l);
	flush(c, 500);
	flush(other, 500);
	assert_int_equal(word_at(p.pb, 8), 2);
	assert_int_equal(l->answer_room, credit);
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
		    .export = {.session = p.pb->id, .number = EXPORT, .generation = GENERATION}};

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

/* ---- exports that engines alone update ---- */

static void *
run_world(void *arg)
{
	world_run(arg, 300);
	return NULL;
}

/* Each kind of update, also in runs, waits while another engine holds the flag of the region. */
static void
test_engines_alone(void **state)
{
	struct pair p = pair_programs(&(struct world_options){.delay_ns = 2000}, 2);
	int64_t by = 2, both[2] = {0, 0};
	struct pconn *c;
	pthread_t t;

	export_memory(p.pb, ALL | WEIR_RIGHT_ALONE);
	c = open_remote(p.pa, ALL);
	set_word(p.pb, 8, 40);
	for (unsigned i = 0; i < 4; i++) {
		struct weir_cell_access a = {.handle = WEIR_HANDLE_FIRST,
					     .type = WEIR_T_INT64,
					     .acc = WEIR_ACC_SUM,
					     .offset = 8,
					     .count = 1};
		int64_t before = word_at(p.pb, 8);

		both[0] = before;
		both[1] = before + 2;
		atomic_store(&p.pb->updating[0], true);
		if (i % 2) {
			a.result = place(p.pa, 0);
			a.options = i == 1 ? WEIR_ACCESS_RESULT : 0;
		}
		if (i == 3)
			a.acc = 0;
		push(c, i == 3 ? WEIR_OP_CAS : WEIR_OP_UPDATE, &a, i == 3 ? both : &by,
		     i == 3 ? sizeof(both) : sizeof(by));
		assert_int_equal(pthread_create(&t, NULL, run_world, p.w), 0);
		usleep(20000);
		assert_int_equal(
		    __atomic_load_n((int64_t *)(void *)(p.pb->region[0].base + START + 8),
				    __ATOMIC_RELAXED),
		    before);
		atomic_store(&p.pb->updating[0], false);
		pthread_join(t, NULL);
		flush(c, 300);
		assert_int_equal(word_at(p.pb, 8), before + 2);
	}
}

ENGINE_TESTS(TEST(test_kinds), TEST(test_engines_alone), TEST(test_order), TEST(test_runs),
	     TEST(test_answered_runs), TEST(test_flush), TEST(test_credit), TEST(test_most),
	     TEST(test_last_entry), TEST(test_part_without_credit), TEST(test_both_ways),
	     TEST(test_ends), TEST(test_rate))
