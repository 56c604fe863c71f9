/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A batch of calls that another thread sends, to one that has asked that thread for results and
 * syncs. The other thread is of the same process, so that results go to its inbox, and are run
 * there.
 */
#include "invoke/batch.h"
#include "invoke/invoker.h"

#include <stdlib.h>

#define THREADS 2u
#define ASKS 3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool good)
{
	if (!good)
		abort();
}

static uint64_t ran;
static uint8_t seen; /* so that all arguments are read */

static void
run(struct weir_incoming *c, const void *args, size_t length)
{
	require(length <= 40);
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
};

struct world {
	struct weir_invoker v;
	struct weir_function functions[2];
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
	x->v.o.function_count = 2;
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

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world *x;
	uint8_t *copy;
	uint64_t left;

	if (size > WEIR_BATCH_MAX)
		return 0;
	x = create();
	copy = malloc(size + !size); /* aligned, and with nothing behind it */
	require(copy);
	if (size)
		memcpy(copy, data, size);
	ran = 0;
	run_batch(&x->threads[0], &(struct origin){.from = {0, 1}}, copy, (uint32_t)size);
	free(copy);
	require(x->threads[0].counters.run == ran && !x->threads[0].inside);
	asks_count(&x->threads[0]);
	left = weir_sync_left(&x->sync, NULL);
	require(left <= ASKS);
	require(!x->future.internal[0] || !x->future.length);
	/* results go back; none of them was asked for */
	lines_flush(&x->threads[0]);
	inbox_run(&x->threads[1], UINT32_MAX);
	require(weir_sync_left(&x->sync, NULL) == left);
	destroy(x);
	return 0;
}
