/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches as a peer may write them: what runs, and where they are refused. */
#include "invoke/batch.h"
#include "invoke/invoker.h"
#include "worlds/test.h"

#include <stdlib.h>

static uint64_t ran;
static uint32_t rows;

static void
run(struct weir_incoming *c, const void *args, size_t length)
{
	const uint8_t *bytes = args;

	assert_int_equal((uintptr_t)args % 8, 0);
	for (size_t i = 0; i < length; i++)
		assert_int_equal(bytes[i], 7);
	assert_int_equal(weir_incoming_from(c).process, 5);
	assert_int_equal(weir_incoming_from(c).thread, 9);
	assert_ptr_equal(weir_incoming_user(c), &ran);
	ran++;
}

static void
run_many(struct weir_incoming *c, const void *args, size_t length, size_t stride, size_t count)
{
	assert_true(stride >= length && stride % 8 == 0);
	rows++;
	ran += count;
}

static const struct weir_function functions[] = {
    {.name = "a", .max_length = 20, .run = run, .user = &ran},
    {.name = "b", .min_length = 8, .max_length = WEIR_ARGS_MAX, .run_many = run_many},
};

struct writer {
	_Alignas(8) uint8_t bytes[2 * WEIR_BATCH_MAX];
	uint32_t length;
};

/* A run as it should be, with another head if `head` is not NULL. */
static void
add(struct writer *w, uint32_t function, uint32_t length, uint32_t count,
    const struct run_head *head)
{
	uint64_t word = run_head_word(function, 0, length, count);

	memcpy(w->bytes + w->length, head ? (const void *)head : &word, RUN_HEAD);
	w->length += RUN_HEAD;
	memset(w->bytes + w->length, 7, count * run_stride(length, 0));
	w->length += count * run_stride(length, 0);
}

/* Runs the first `bytes` bytes in memory of their own, so that a sanitizer sees what lies behind.
 */
static bool
give(const struct writer *w, uint32_t bytes)
{
	struct weir_function table[2] = {functions[0], functions[1]};
	struct weir_invoker v = {.functions = table, .o.function_count = 2};
	struct invoke_thread t = {.v = &v};
	uint8_t *copy = malloc(bytes + !bytes);
	bool good;

	memcpy(copy, w->bytes, bytes);
	ran = rows = 0;
	good = run_batch(&t, &(struct origin){.from = {5, 9}}, copy, bytes);
	free(copy);
	assert_int_equal(t.counters.run, ran);
	assert_int_equal(t.inside, 0);
	return good;
}

TEST(test_runs)
{
	struct writer w = {0};

	add(&w, 0, 0, 3, NULL);
	add(&w, 1, 8, 5, NULL);
	add(&w, 0, 20, 2, NULL);
	add(&w, 1, WEIR_ARGS_MAX, 1, NULL);
	add(&w, 0, 13, 1, NULL);
	assert_true(give(&w, w.length));
	assert_int_equal(ran, 3 + 5 + 2 + 1 + 1);
	assert_int_equal(rows, 2);
	/* behind the last call the padding may be missing, and no more than that */
	assert_true(give(&w, w.length - 3));
	assert_int_equal(ran, 12);
	assert_false(give(&w, w.length - 4));
	assert_int_equal(ran, 11);
}

/* A cut at any place is noticed; runs before it have run, and none behind it. */
TEST(test_cut)
{
	struct writer w = {0};
	uint32_t whole[] = {0, 8 + 24, 8 + 24 + 8 + 40};

	add(&w, 0, 17, 1, NULL);
	add(&w, 1, 8, 5, NULL);
	add(&w, 0, 1, 4, NULL);
	for (uint32_t bytes = 1; bytes < w.length; bytes++) {
		bool end = bytes == whole[1] || bytes == whole[2] || bytes >= w.length - 7 ||
			   (bytes >= whole[1] - 7 && bytes < whole[1]);

		assert_int_equal(give(&w, bytes), end);
		assert_int_equal(ran, (bytes >= whole[1] - 7) + 5 * (bytes >= whole[2]) +
					  4 * (bytes >= w.length - 7));
	}
	assert_false(give(&w, 0));
}

TEST(test_lies)
{
	static const struct run_head lies[] = {
	    {.function = 2, .length = 8, .count = 1}, /* unknown */
	    {.function = UINT16_MAX, .length = 8, .count = 1},
	    {.function = 0, .length = 21, .count = 1}, /* out of bounds */
	    {.function = 1, .length = 7, .count = 1},
	    {.function = 1, .length = WEIR_ARGS_MAX + 1, .count = 1},
	    {.function = 1, .length = 8, .count = 0}, /* nothing */
	    {.function = 1, .length = 8, .count = 2}, /* beyond the end */
	    {.function = 0, .length = 0, .count = UINT16_MAX},
	    {.function = 1, .length = UINT16_MAX, .count = UINT16_MAX},
	    {.function = 1, .flags = 2, .length = 8, .count = 1},
	    {.function = 1, .zero = 1, .length = 8, .count = 1},
	};

	for (uint32_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct writer w = {0};

		add(&w, 0, 8, 2, NULL);
		add(&w, 1, 8, 1, &lies[i]);
		/* behind one without calls lie none */
		assert_false(give(&w, w.length - (lies[i].count ? 0 : run_stride(8, 0))));
		assert_int_equal(ran, 2);
	}
}

/* ---- what the library says ---- */

/* A thread with a line to the one that says it, which has three batches that ask. */
struct listener {
	struct weir_invoker v;
	struct invoke_process processes[6];
	struct line line, *of_process[11], **lines[6];
	struct invoke_thread t;
	struct weir_sync sync;
	struct ask asks[3];
	struct weir_function table[2];
};

static struct listener *
listener_create(void)
{
	struct listener *x = calloc(1, sizeof(*x));

	assert_non_null(x);
	memcpy(x->table, functions, sizeof(functions));
	x->v.functions = x->table;
	x->v.o.function_count = 2;
	x->v.processes = x->processes;
	x->v.process_count = 6;
	x->processes[5].threads = 10;
	x->of_process[9] = &x->line;
	x->lines[5] = x->of_process;
	x->t.v = &x->v;
	x->t.lines = x->lines;
	x->t.ended_last = &x->t.ended;
	x->line.thread = &x->t;
	x->line.asks_last = &x->line.asks;
	x->line.to = (struct weir_to){5, 9};
	x->line.asked = x->line.answered = UINT16_MAX - 1; /* numbers begin again */
	futures_init(&x->t);
	weir_sync_init(&x->sync, 6, NULL, NULL);
	for (uint32_t i = 0; i < 3; i++) {
		struct batch b = {.asks = &x->asks[i], .asks_last = &x->asks[i]};

		x->asks[i] = (struct ask){.sync = &x->sync, .count = i + 1};
		asks_sent(&x->line, &b);
	}
	return x;
}

static bool
say(struct listener *x, uint32_t function, const void *args, uint32_t length)
{
	struct writer w = {0};
	bool good;

	add(&w, function, length, 1, NULL);
	memcpy(w.bytes + RUN_HEAD, args, length);
	good = run_batch(&x->t, &(struct origin){.from = x->line.to}, w.bytes, w.length);
	asks_count(&x->t);
	return good;
}

static bool
done(struct listener *x, uint32_t ask, uint32_t zero)
{
	return say(x, FUNCTION_DONE, &(struct done_args){ask, zero}, sizeof(struct done_args));
}

TEST(test_done)
{
	struct listener *x = listener_create();

	assert_true(done(x, UINT16_MAX - 100, 0)); /* of an earlier connection */
	assert_true(done(x, UINT16_MAX - 1, 0));   /* known */
	assert_true(done(x, UINT16_MAX - 1, 0));
	assert_false(done(x, UINT16_MAX - 2, 0)); /* it goes back */
	assert_int_equal(weir_sync_left(&x->sync, NULL), 6);
	assert_false(done(x, 2, 0)); /* not sent yet */
	assert_false(done(x, 1u << 16, 0));
	assert_false(done(x, UINT16_MAX, 1));
	assert_false(say(x, FUNCTION_DONE, &(uint64_t){0}, 4));
	assert_false(say(x, FUNCTION_TREE + 1, &(uint64_t){0}, 8));
	assert_int_equal(weir_sync_left(&x->sync, NULL), 6);
	assert_true(done(x, 0, 0)); /* the first two */
	assert_int_equal(weir_sync_left(&x->sync, NULL), 3);
	assert_true(done(x, 1, 0));
	assert_int_equal(weir_sync_left(&x->sync, NULL), 0);
	assert_null(x->line.asks);
	assert_false(done(x, 0, 0));
	assert_false(done(x, UINT16_MAX, 0));
	asks_lost(&x->line, -EHOSTUNREACH); /* and another connection */
	assert_true(done(x, 0, 0));
	/* a thread without a line to it has asked nothing; a thread of the pool neither */
	x->of_process[9] = NULL;
	assert_false(done(x, 1, 0));
	x->of_process[9] = &x->line;
	x->t.index = WEIR_THREAD_ANY;
	assert_false(done(x, 1, 0));
	free(x);
}

TEST(test_result)
{
	struct listener *x = listener_create();
	struct weir_future f = {0};
	uint64_t value = 0;
	struct {
		struct result_args head;
		uint64_t value;
	} r = {.value = 77};
	const uint64_t good = 3ull << 32;
	static const uint64_t former[] = {0, 1ull << 32, 2ull << 32, 0xffffffffull << 32},
			      never[] = {1, 3ull << 32 | 1, 4ull << 32, 0x7fffffffull << 32,
					 UINT64_MAX};

	x->t.slots = calloc(1, sizeof(*x->t.slots));
	x->t.slot_count = 1;
	x->t.slots[0] = (struct future_slot){.future = &f, .line = &x->line, .generation = 3};
	memcpy(f.internal, (uint64_t[]){good, (uintptr_t)&value, sizeof(value), 0},
	       sizeof(f.internal));
	for (uint32_t i = 0; i < 4; i++) {
		r.head.id = former[i];
		assert_true(say(x, FUNCTION_RESULT, &r, sizeof(r)));
	}
	assert_int_equal(x->t.counters.ignored, 4);
	for (uint32_t i = 0; i < 5; i++) {
		r.head.id = never[i];
		assert_false(say(x, FUNCTION_RESULT, &r, sizeof(r)));
	}
	r.head.id = good;
	r.head.status = 1;
	assert_false(say(x, FUNCTION_RESULT, &r, sizeof(r)));
	r.head.status = -4096;
	assert_false(say(x, FUNCTION_RESULT, &r, sizeof(r)));
	r.head.status = 0;
	r.head.zero = 1;
	assert_false(say(x, FUNCTION_RESULT, &r, sizeof(r)));
	r.head.zero = 0;
	assert_false(say(x, FUNCTION_RESULT, &r, sizeof(r.head) - 1));
	/* of a process that was not asked */
	x->line.to.process = 4;
	x->lines[4] = x->of_process;
	x->t.slots[0].line = &(struct line){.to = {5, 9}};
	assert_false(say(x, FUNCTION_RESULT, &r, sizeof(r)));
	assert_int_equal(value, 0);
	x->line.to.process = 5;
	assert_true(say(x, FUNCTION_RESULT, &r, sizeof(r)));
	assert_int_equal(value, 77);
	assert_int_equal(f.length, sizeof(value));
	assert_true(say(x, FUNCTION_RESULT, &r, sizeof(r)));
	assert_int_equal(x->t.counters.ignored, 5);
	r.head.id = 4ull << 32; /* the one that is given next */
	assert_false(say(x, FUNCTION_RESULT, &r, sizeof(r)));
	free(x->t.slots);
	free(x);
}
