/* SPDX-License-Identifier: BSD-3-Clause */
/* Payloads that a peer announces, and what it may lie about. The connection is the test's. */
#include "invoke/batch.h"
#include "invoke/invoker.h"
#include "worlds/test.h"

#include <errno.h>
#include <stdlib.h>

#define LENGTH 12u /* of arguments */

static void *of_connection;
static uint32_t expected; /* of the bare message that comes next; 0: none */
static uint32_t posts, post_bytes;
static int post_result;

void **__wrap_message_state(const struct weir_reply *from);
void __wrap_message_expect(const struct weir_reply *from, uint32_t length);
int __wrap_message_post(const struct weir_reply *from, void *data, uint32_t length);
void __wrap_message_wake(struct weir_messenger *m, uint32_t guest);

void **
__wrap_message_state(const struct weir_reply *from)
{
	return &of_connection;
}

void
__wrap_message_expect(const struct weir_reply *from, uint32_t length)
{
	assert_int_equal(expected, 0);
	expected = length;
}

int
__wrap_message_post(const struct weir_reply *from, void *data, uint32_t length)
{
	posts++;
	post_bytes += length;
	return post_result;
}

void
__wrap_message_wake(struct weir_messenger *m, uint32_t guest)
{
}

static uint32_t runs, broken;
static size_t ran_with;
static uint8_t ran_first, ran_last;
static uint8_t *memory; /* of place() */

static void
run(struct weir_incoming *c, const void *args, size_t length)
{
	const uint8_t *payload = weir_incoming_payload(c, &ran_with);

	assert_int_equal(length, LENGTH);
	assert_int_equal(((const uint8_t *)args)[3], 33);
	runs++;
	ran_first = payload[0];
	ran_last = payload[ran_with - 1];
}

static void *
place(struct weir_incoming *c, const void *args, size_t length, size_t payload)
{
	assert_int_equal(((const uint8_t *)args)[3], 33);
	return memory;
}

static void
note_broken(struct weir_invoker *v, void *data, void *user)
{
	assert_ptr_equal(data, memory);
	broken++;
}

static struct weir_function table[2];
static struct weir_invoker v;
static struct invoke_thread *t;
static const struct weir_reply reply = {{1}};
static const struct origin peer = {.from = {5, 9}, .reply = &reply};

static void
create(void)
{
	table[0] = table[1] = (struct weir_function){
	    .name = "f", .min_length = LENGTH, .max_length = LENGTH, .run = run};
	table[1].place = place;
	table[1].broken = note_broken;
	v = (struct weir_invoker){.functions = table, .o.function_count = 2};
	t = aligned_alloc(64, (sizeof(*t) + 63) / 64 * 64);
	assert_non_null(t);
	memset(t, 0, sizeof(*t));
	t->v = &v;
	of_connection = NULL;
	expected = posts = post_bytes = runs = broken = 0;
	post_result = 0;
}

/* The connection ends. */
static void
destroy(void)
{
	if (of_connection)
		payloads_broken(of_connection, &v);
	payloads_drop(t);
	assert_int_equal(v.assembled, 0);
	assert_int_equal(t->inside, 0);
	free(t);
}

/* Gives the first `bytes` bytes in memory of their own. */
static bool
give(const uint8_t *data, uint32_t bytes)
{
	uint8_t *copy = malloc(bytes + !bytes);
	bool good;

	memcpy(copy, data, bytes);
	good = run_batch(t, &peer, copy, bytes);
	free(copy);
	return good;
}

/* A call that announces a payload, or has it behind the arguments. */
static uint32_t
write_call(uint8_t *to, uint32_t function, uint32_t bytes, uint32_t number)
{
	const struct payload_args payload = {bytes, number};
	uint64_t word = run_head_word(function, RUN_PAYLOAD, LENGTH, 1);
	uint32_t length = 8 + 8 + 16;

	memset(to, 0, 2 * WEIR_BATCH_MAX);
	memcpy(to, &word, 8);
	memcpy(to + 8, &payload, 8);
	to[16 + 3] = 33;
	if (!bytes || bytes > payload_in_batch(LENGTH))
		return length;
	memset(to + length, 7, bytes);
	return length + ((bytes + 7) & ~7u);
}

static bool
announce(uint32_t function, uint32_t bytes, uint32_t number)
{
	static uint8_t buffer[2 * WEIR_BATCH_MAX];

	return give(buffer, write_call(buffer, function, bytes, number));
}

static bool
say_piece(uint32_t number, uint32_t zero)
{
	const struct piece_args args = {number, zero};
	uint64_t word = run_head_word(FUNCTION_PIECE, 0, sizeof(args), 1);
	uint8_t bytes[16];

	memcpy(bytes, &word, 8);
	memcpy(bytes + 8, &args, 8);
	return give(bytes, sizeof(bytes));
}

/* The bare message comes, as the messenger gives it. */
static bool
bring(uint8_t value)
{
	struct message_taken taken = {.length = expected, .reply = reply};
	struct weir_to from;
	uint8_t *data = malloc(expected);
	bool good;

	memset(data, value, expected);
	taken.data = data;
	expected = 0;
	good = payload_arrived(t, &taken, &from);
	assert_memory_equal(&from, &peer.from, sizeof(from));
	free(data);
	return good;
}

/* ---- as it should be ---- */

TEST(test_in_batch)
{
	uint8_t buffer[2 * WEIR_BATCH_MAX];
	uint32_t most = payload_in_batch(LENGTH), length;

	create();
	for (uint32_t bytes = 1; bytes <= most; bytes += bytes < 20 ? 1 : most - 20) {
		length = write_call(buffer, 0, bytes, 0);
		runs = 0;
		for (uint32_t cut = 1; cut < length; cut += cut < 60 ? 1 : 500)
			assert_false(give(buffer, cut));
		assert_int_equal(runs, 0);
		assert_true(give(buffer, length));
		assert_int_equal(runs, 1);
		assert_int_equal(ran_with, bytes);
		assert_int_equal(ran_last, 7);
	}
	assert_null(of_connection); /* nothing is kept for these */
	destroy();
}

/* It counts as run when it has: quiet relies on that. */
TEST(test_pieces)
{
	create();
	assert_true(announce(0, 600000, 0));
	assert_int_equal(t->ran, 0);
	assert_int_equal(expected, PAYLOAD_PIECE);
	assert_true(bring(1));
	assert_int_equal(expected, (600000 - PAYLOAD_PIECE) / 2);
	assert_true(bring(2));
	assert_int_equal(runs + t->ran, 0);
	assert_true(bring(3));
	assert_int_equal(runs, 1);
	assert_int_equal(t->ran, 1);
	assert_int_equal(ran_with, 600000);
	assert_int_equal(ran_first, 1);
	assert_int_equal(ran_last, 3);
	assert_int_equal(expected, 0);
	/* one piece stays where it is */
	assert_true(announce(0, 9000, 0));
	assert_int_equal(v.assembled, 0);
	assert_true(bring(4));
	assert_int_equal(t->ran, 2);
	assert_int_equal(ran_last, 4);
	destroy();
}

/* Numbers keep payloads apart; each may be used again. */
TEST(test_numbers)
{
	create();
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 1; i <= PAYLOADS_AHEAD; i++)
			assert_true(announce(0, 300000, i));
		for (uint32_t i = 1; i <= PAYLOADS_AHEAD; i++) {
			assert_int_equal(expected, 0);
			assert_true(say_piece(i, 0));
			assert_true(bring((uint8_t)i));
		}
		assert_int_equal(runs, round * PAYLOADS_AHEAD);
		for (uint32_t i = PAYLOADS_AHEAD; i; i--) {
			assert_true(say_piece(i, 0));
			assert_true(bring(99));
			assert_int_equal(ran_first, i);
			assert_int_equal(ran_last, 99);
		}
	}
	assert_int_equal(t->counters.run, 2 * PAYLOADS_AHEAD);
	assert_int_equal(t->ran, 2 * PAYLOADS_AHEAD + 4 * PAYLOADS_AHEAD);
	destroy();
}

TEST(test_place)
{
	create();
	memory = malloc(1000000);
	assert_true(announce(1, 1000000, 0));
	assert_int_equal(post_bytes, 1000000);
	assert_true(bring(1) && bring(2) && bring(3));
	assert_true(bring(4));
	assert_int_equal(runs, 1);
	assert_int_equal(memory[0], 1);
	assert_int_equal(memory[999999], 4);
	assert_int_equal(posts, 4);
	/* it ends before its bytes have come: the memory goes back */
	assert_true(announce(1, 1000000, 3));
	assert_true(announce(1, 1000000, 0));
	assert_true(bring(1));
	destroy();
	assert_int_equal(broken, 2);
	assert_int_equal(runs, 1);
	free(memory);
	memory = NULL;
	/* there is none: the bytes come, and are dropped */
	create();
	assert_true(announce(1, 300000, 0));
	assert_true(bring(1) && bring(1));
	assert_int_equal(runs + posts, 0);
	assert_int_equal(t->counters.unplaced, 1);
	assert_int_equal(t->ran, 1);
	destroy();
	assert_int_equal(broken, 0);
}

/* ---- calls of all ---- */

/* One that announces a payload, or has it behind the arguments. */
static bool
announce_tree(const struct tree_args *a, uint32_t bytes)
{
	static uint8_t buffer[2 * WEIR_BATCH_MAX];
	uint32_t length = sizeof(*a) + LENGTH, at = 8 + 8 + ((length + 7) & ~7u);
	uint64_t word = run_head_word(FUNCTION_TREE, RUN_PAYLOAD, length, 1);
	const struct payload_args payload = {bytes, 0};

	memset(buffer, 0, sizeof(buffer));
	memcpy(buffer, &word, 8);
	memcpy(buffer + 8, &payload, 8);
	memcpy(buffer + 16, a, sizeof(*a));
	buffer[16 + sizeof(*a) + 3] = 33;
	if (bytes > payload_in_batch(length))
		return give(buffer, at);
	memset(buffer + at, 7, bytes);
	return give(buffer, at + ((bytes + 7) & ~7u));
}

/* The peer is the root, this process its only branch. */
static const struct tree_args good_tree = {.process = 5, .thread = 9, .function = 1, .arity = 2};

static void
create_tree(void)
{
	static struct invoke_process processes[6] = {
	    [0] = {.threads = 1}, [5] = {.threads = 10, .seat = 1}};
	static uint32_t seats[] = {0, 5};

	create();
	v.processes = processes;
	v.process_count = 6;
	v.seats = seats;
	v.seat_count = 2;
	v.o.threads = 1;
	memory = NULL; /* it is not asked for */
}

TEST(test_tree)
{
	uint32_t most = payload_in_batch(sizeof(good_tree) + LENGTH);

	create_tree();
	assert_true(announce_tree(&good_tree, 600000));
	assert_int_equal(t->ran, 0);
	assert_true(bring(1) && bring(2) && bring(3));
	assert_int_equal(runs, 1);
	assert_int_equal(t->ran, 1);
	assert_int_equal(t->counters.run, 1);
	assert_int_equal(ran_with, 600000);
	assert_int_equal(ran_first, 1);
	assert_int_equal(ran_last, 3);
	assert_int_equal(v.assembled, 0);
	assert_true(announce_tree(&good_tree, most));
	assert_int_equal(runs, 2);
	assert_int_equal(ran_last, 7);
	/* one piece, too, is in memory of the library, and counts there */
	assert_true(announce_tree(&good_tree, most + 1));
	assert_true(bring(4));
	assert_int_equal(ran_last, 4);
	v.assembled = 2 * WEIR_PAYLOAD_MAX - most;
	assert_true(announce_tree(&good_tree, most + 1));
	assert_true(bring(4));
	assert_int_equal(runs, 3);
	assert_int_equal(t->counters.unplaced, 1);
	assert_int_equal(v.assembled, 2 * WEIR_PAYLOAD_MAX - most);
	v.assembled = 0;
	/* another one follows than its bytes, and its connection ends */
	assert_true(announce_tree(&good_tree, 600000));
	assert_false(announce_tree(&good_tree, 600000));
	assert_true(bring(1));
	assert_int_equal(v.assembled, 2 * PAYLOAD_PIECE);
	assert_int_equal(runs, 3);
	destroy();
}

/* They end the line before the bytes come. */
TEST(test_lies_of_trees)
{
	struct tree_args a;

	create_tree();
#define LIE_OF_TREE(field, value)                                                                  \
	do {                                                                                       \
		a = good_tree;                                                                     \
		a.field = value;                                                                   \
		assert_false(announce_tree(&a, 9000));                                             \
		assert_false(announce_tree(&a, 100));                                              \
	} while (0)
	LIE_OF_TREE(process, 0);
	LIE_OF_TREE(process, 6);
	LIE_OF_TREE(thread, 8);
	LIE_OF_TREE(function, 2);
	LIE_OF_TREE(flags, TREE_LEAF);
	LIE_OF_TREE(arity, 1);
	LIE_OF_TREE(zero, 1);
	assert_false(announce_tree(&good_tree, 0));
	assert_false(announce_tree(&good_tree, WEIR_PAYLOAD_MAX + 1));
	assert_null(of_connection);
	assert_int_equal(runs, 0);
	destroy();
}

/* ---- lies ---- */

TEST(test_lies)
{
	create();
	assert_false(announce(0, 0, 0));
	assert_false(announce(0, WEIR_PAYLOAD_MAX + 1, 0));
	assert_false(announce(0, UINT32_MAX, 0));
	assert_false(announce(0, 9000, PAYLOADS_AHEAD + 1));
	assert_false(announce(0, 100, 1)); /* it is there: it has no number */
	assert_false(say_piece(0, 0));
	assert_false(say_piece(1, 0));
	assert_true(announce(0, 300000, 1));
	assert_false(announce(0, 300000, 1)); /* its pieces have not come */
	assert_false(say_piece(2, 0));
	assert_false(say_piece(1, 1));
	assert_false(say_piece(PAYLOADS_AHEAD + 1, 0));
	assert_true(say_piece(1, 0));
	assert_false(say_piece(1, 0)); /* two at once */
	assert_false(announce(0, 9000, 0));
	assert_true(bring(1));
	assert_true(announce(0, 9000, 0));
	assert_false(announce(0, 9000, 0));
	assert_false(say_piece(1, 0));
	assert_int_equal(runs, 0);
	destroy();
}

/* A row of calls has no payloads, arguments have their bounds. */
TEST(test_heads)
{
	uint8_t buffer[2 * WEIR_BATCH_MAX];
	uint32_t length = write_call(buffer, 0, 9000, 0);
	struct run_head h;

	create();
	memcpy(&h, buffer, sizeof(h));
#define LIE(field, value)                                                                          \
	do {                                                                                       \
		struct run_head lie = h;                                                           \
		lie.field = value;                                                                 \
		memcpy(buffer, &lie, sizeof(lie));                                                 \
		assert_false(give(buffer, length));                                                \
	} while (0)
	LIE(count, 0);
	LIE(count, 2);
	LIE(count, UINT16_MAX);
	LIE(length, LENGTH + 1);
	LIE(length, UINT16_MAX);
	LIE(flags, RUN_PAYLOAD | 4);
	LIE(flags, RUN_PAYLOAD | RUN_RETURN); /* its id would be the length */
	LIE(function, FUNCTION_DONE);
	LIE(function, FUNCTION_TREE);
	LIE(function, FUNCTION_PIECE);
	assert_null(of_connection);
	destroy();
}

/* Announced lengths cost nothing, neither memory nor a share of what all of a process may have. */
TEST(test_announced)
{
	void *liar;

	create();
	for (uint32_t i = 1; i <= PAYLOADS_AHEAD; i++)
		assert_true(announce(0, WEIR_PAYLOAD_MAX, i));
	for (uint32_t i = 1; i <= 3; i++) {
		assert_true(say_piece(i, 0));
		assert_true(bring(1));
	}
	assert_int_equal(v.assembled, 3 * 2 * PAYLOAD_PIECE);
	/* another connection */
	liar = of_connection;
	of_connection = NULL;
	assert_true(announce(0, 600000, 0));
	assert_true(bring(1) && bring(1) && bring(1));
	assert_int_equal(runs, 1);
	payloads_broken(liar, &v);
	destroy();
}

/* The bytes of all that have come are bounded; a payload that goes beyond does not run. */
TEST(test_bound)
{
	const uint64_t most = 2 * WEIR_PAYLOAD_MAX, others = most - 1000000;

	create();
	v.assembled = others;
	for (uint32_t i = 1; i <= 2; i++) {
		assert_true(announce(0, 600000, i));
		assert_true(say_piece(i, 0));
		assert_true(bring(1));
	}
	assert_int_equal(v.assembled, others + 2 * PAYLOAD_PIECE); /* the second is refused */
	for (uint32_t i = 1; i <= 2; i++)
		for (uint32_t piece = 1; piece < 3; piece++) {
			assert_true(say_piece(i, 0));
			assert_true(bring(1));
		}
	assert_int_equal(runs, 1);
	assert_int_equal(t->counters.unplaced, 1);
	assert_int_equal(v.assembled, others);
	v.assembled = 0;
	destroy();
}
