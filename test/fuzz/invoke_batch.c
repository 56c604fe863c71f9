/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A batch of calls that another thread sends, to one that has asked that thread for results and
 * syncs. The other thread is of the same process, so that results go to its inbox, and are run
 * there. Pieces of payloads come as they are announced; the connection is the test's.
 */
#include "invoke/batch.h"
#include "invoke/invoker.h"

#include <errno.h>
#include <stdlib.h>

#define THREADS 2u
#define ASKS 3u
#define FUNCTIONS 3u
#define PIECES 3u /* per round */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *of_connection;
static uint32_t expected; /* of the bare message that comes next; 0: none */

void **__wrap_message_state(const struct weir_reply *from);
void __wrap_message_expect(const struct weir_reply *from, uint32_t length);
int __wrap_message_post(const struct weir_reply *from, void *to, uint32_t length);
void __wrap_message_keep(const struct weir_reply *from, struct weir_loan *loan);

static void
require(bool good)
{
	if (!good)
		abort();
}

void **
__wrap_message_state(const struct weir_reply *from)
{
	return &of_connection;
}

void
__wrap_message_expect(const struct weir_reply *from, uint32_t length)
{
	require(!expected && length >= MESSAGE_BARE_MIN && length <= PAYLOAD_PIECE);
	expected = length;
}

int
__wrap_message_post(const struct weir_reply *from, void *to, uint32_t length)
{
	return length % 2 ? -EINVAL : 0;
}

void
__wrap_message_keep(const struct weir_reply *from, struct weir_loan *loan)
{
	*loan = (struct weir_loan){0};
}

static uint64_t ran;
static uint8_t seen; /* so that all arguments are read */

/* Reads a payload, and keeps it if that is long enough to be one of several pieces, or odd. */
static void
read_payload(struct weir_incoming *c)
{
	struct weir_kept kept;
	size_t length;
	const uint8_t *payload = weir_incoming_payload(c, &length);

	require(!payload == !length && length <= WEIR_PAYLOAD_MAX);
	for (size_t i = 0; i < length; i += i + 1 < length && length > 64 ? length - 1 : 1)
		seen ^= payload[i];
	if (!length || weir_incoming_keep(c, &kept))
		return;
	require(kept.length == length);
	weir_kept_release(weir_incoming_invoker(c), &kept);
}

static uint8_t memory[3 * PAYLOAD_PIECE];
static uint32_t placed, ended; /* payloads that got memory; that ran or broke off since */

static void *
place(struct weir_incoming *c, const void *args, size_t length, size_t payload)
{
	require(length <= 8 && payload <= WEIR_PAYLOAD_MAX);
	if (payload > sizeof(memory))
		return NULL;
	placed++;
	return memory;
}

static void
note_broken(struct weir_invoker *v, void *data, void *user)
{
	require(data == memory);
	ended++;
}

static void
run_placed(struct weir_incoming *c, const void *args, size_t length)
{
	size_t bytes;

	require(length <= 8);
	ended += weir_incoming_payload(c, &bytes) == memory;
	read_payload(c);
	ran++;
}

static void
run(struct weir_incoming *c, const void *args, size_t length)
{
	require(length <= 40);
	read_payload(c);
	for (size_t i = 0; i < length; i++)
		seen ^= ((const uint8_t *)args)[i];
	if (length == 1)
		weir_incoming_refuse(c, 5);
	if (length == 2)
		weir_incoming_result(c, args, length);
	ran++;
}

static void
run_many(struct weir_incoming *c, const void *args, size_t length, size_t stride, size_t count)
{
	require(length >= 8 && length <= WEIR_ARGS_MAX && stride % 8 == 0 && stride >= length);
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < length; k++)
			seen ^= ((const uint8_t *)args)[i * stride + k];
	ran += count;
}

static const struct weir_function table[] = {
    {.name = "a", .max_length = 40, .run = run},
    {.name = "b", .min_length = 8, .max_length = WEIR_ARGS_MAX, .run_many = run_many},
    {.name = "c", .max_length = 8, .run = run_placed, .place = place, .broken = note_broken},
};

struct world {
	struct weir_invoker v;
	struct weir_function functions[FUNCTIONS];
	struct invoke_process process;
	struct function_table none; /* targets are not used: the library calls */
	struct invoke_thread threads[THREADS];
	struct weir_sync sync;
	struct ask asks[ASKS];
	struct weir_future future;
	uint64_t result[2];
};

static struct world *
create(void)
{
	struct world *x = aligned_alloc(64, (sizeof(*x) + 63) / 64 * 64);
	struct line *l;
	int rc = 0;

	require(x);
	memset(x, 0, sizeof(*x));
	memcpy(x->functions, table, sizeof(table));
	x->v.functions = x->functions;
	x->v.o.function_count = FUNCTIONS;
	x->v.o.queue_bytes = 1 << 20;
	x->v.o.threads = x->process.threads = THREADS;
	x->v.processes = &x->process;
	x->v.process_count = 1;
	x->v.threads = x->threads;
	x->process.table = &x->none;
	for (uint32_t i = 0; i < THREADS; i++) {
		struct invoke_thread *t = &x->threads[i];

		t->v = &x->v;
		t->index = i;
		t->entered = 1;
		TAILQ_INIT(&t->busy);
		t->ended_last = &t->ended;
		futures_init(t);
	}
	l = line_get(&x->threads[0], (struct weir_to){0, 1}, &rc);
	require(l);
	weir_sync_init(&x->sync, ASKS, NULL, NULL);
	for (uint32_t i = 0; i < ASKS; i++) {
		struct batch b = {.asks = &x->asks[i], .asks_last = &x->asks[i]};

		x->asks[i] = (struct ask){.sync = &x->sync, .count = 1};
		asks_sent(l, &b);
	}
	x->threads[0].slots = calloc(1, sizeof(struct future_slot));
	x->threads[0].slot_count = 1;
	x->threads[0].slots[0] =
	    (struct future_slot){.future = &x->future, .line = l, .generation = 1};
	memcpy(x->future.internal,
	       (uint64_t[]){1ull << 32, (uintptr_t)x->result, sizeof(x->result), 0},
	       sizeof(x->future.internal));
	return x;
}

static void
destroy(struct world *x)
{
	x->threads[0].spare_ask = NULL; /* the three are not of malloc() */
	for (uint32_t i = 0; i < THREADS; i++)
		thread_drop(&x->threads[i]);
	for (uint32_t i = 0; i < THREADS; i++) {
		x->threads[i].spare_ask = NULL;
		thread_free(&x->threads[i]);
	}
	free(x);
}

/* The pieces that are expected come. False: one is malformed. */
static bool
bring_pieces(struct invoke_thread *t, const struct weir_reply *reply)
{
	static uint8_t bytes[PAYLOAD_PIECE];
	struct message_taken taken = {.data = bytes, .reply = *reply};
	struct weir_to from;

	for (uint32_t i = 0; i < PIECES && expected; i++) {
		taken.length = expected;
		expected = 0;
		if (!payload_arrived(t, &taken, &from))
			return false;
		require(!from.process && from.thread == 1);
	}
	return true;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct weir_reply reply = {{1}};
	struct invoke_thread *t;
	struct world *x;
	bool good = true;
	uint8_t *copy;
	uint64_t left;

	if (size > WEIR_BATCH_MAX)
		return 0;
	x = create();
	t = &x->threads[0];
	copy = malloc(size + !size); /* aligned, and with nothing behind it */
	require(copy);
	if (size)
		memcpy(copy, data, size);
	ran = 0;
	of_connection = NULL;
	expected = placed = ended = 0;
	/* once more: what was announced is there, then */
	for (uint32_t i = 0; i < 2 && good; i++)
		good = run_batch(t, &(struct origin){.from = {0, 1}, .reply = &reply}, copy,
				 (uint32_t)size) &&
		       bring_pieces(t, &reply);
	free(copy);
	require(t->counters.run == ran && !t->inside);
	asks_count(t);
	left = weir_sync_left(&x->sync, NULL);
	require(left <= ASKS);
	require(!x->future.internal[0] || !x->future.length);
	/* results go back; none of them was asked for */
	lines_flush(t);
	inbox_run(&x->threads[1], UINT32_MAX);
	require(weir_sync_left(&x->sync, NULL) == left);
	if (of_connection)
		payloads_broken(of_connection, &x->v);
	payloads_drop(t);
	require(!x->v.assembled && placed == ended && !t->inside);
	destroy(x);
	return 0;
}
