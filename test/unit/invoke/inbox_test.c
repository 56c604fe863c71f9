/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches between threads of a process: who is woken, and for what; what comes back. */
#include "invoke/batch.h"
#include "client/session.h"
#include "invoke/line.h"
#include "worlds/test.h"

#include <stdlib.h>

static unsigned wakes[2];
static bool asleep, wants;
static struct invoke_thread *turning;

void __wrap_message_wake(struct weir_messenger *m, uint32_t guest);
int __wrap_weir_messenger_progress(struct weir_messenger *m, unsigned max, int timeout_ms);
struct line *__real_line_find(const struct invoke_thread *t, struct weir_to to);
struct line *__wrap_line_find(const struct invoke_thread *t, struct weir_to to);
int __real_asks_add(struct line *l, struct batch *b, struct weir_sync *s);
int __wrap_asks_add(struct line *l, struct batch *b, struct weir_sync *s);

void
__wrap_message_wake(struct weir_messenger *m, uint32_t guest)
{
	wakes[guest]++;
}

/* The thread sleeps in this. */
int
__wrap_weir_messenger_progress(struct weir_messenger *m, unsigned max, int timeout_ms)
{
	asleep = turning->asleep;
	wants = turning->wants_returned;
	return 0;
}

static struct invoke_thread *leaving;

/* A batch comes back: at this moment, a thread leaves. */
struct line *
__wrap_line_find(const struct invoke_thread *t, struct weir_to to)
{
	if (leaving) {
		leaving->entered = 0;
		inbox_drop(leaving);
		leaving = NULL;
	}
	return __real_line_find(t, to);
}

static bool has_no_memory;

int
__wrap_asks_add(struct line *l, struct batch *b, struct weir_sync *s)
{
	return has_no_memory ? -ENOMEM : __real_asks_add(l, b, s);
}

static void
run(struct weir_incoming *c, const void *args, size_t length)
{
}

struct world {
	struct weir_invoker v;
	struct weir_function function;
	struct invoke_process process;
	struct function_table table;
	struct function_target target;
	struct invoke_thread threads[2];
};

static struct world *
create(void)
{
	struct world *x = aligned_alloc(64, (sizeof(*x) + 63) / 64 * 64);

	assert_non_null(x);
	memset(x, 0, sizeof(*x));
	x->function = (struct weir_function){.name = "a", .max_length = 8, .run = run};
	x->v.functions = &x->function;
	x->v.o.function_count = 1;
	x->v.o.threads = x->process.threads = 2;
	x->v.processes = &x->process;
	x->v.process_count = 1;
	x->v.threads = x->threads;
	x->target.max_length = 8;
	x->table.targets = &x->target;
	x->process.table = &x->table;
	for (uint32_t i = 0; i < 2; i++) {
		x->threads[i].v = &x->v;
		x->threads[i].index = i;
		x->threads[i].entered = 1;
		TAILQ_INIT(&x->threads[i].busy);
		x->threads[i].ended_last = &x->threads[i].ended;
		futures_init(&x->threads[i]);
	}
	memset(wakes, 0, sizeof(wakes));
	return x;
}

static void
destroy(struct world *x)
{
	struct batch *b;

	for (uint32_t i = 0; i < 2; i++)
		thread_drop(&x->threads[i]);
	for (uint32_t i = 0; i < 2; i++) {
		inbox_settle(&x->threads[i]);
		lines_free(&x->threads[i]);
		futures_free(&x->threads[i]);
		asks_free(&x->threads[i]);
		while ((b = x->threads[i].spare)) {
			x->threads[i].spare = b->next;
			free(b);
		}
	}
	free(x);
}

/* A batch with one call, from thread 0 to another one. */
static int
hand(struct world *x, uint32_t to)
{
	struct batch *b = batch_make(&x->threads[0], 64);
	uint64_t word = run_head_word(0, 0, 8, 1);
	int rc;

	assert_non_null(b);
	memcpy(b->data, &word, sizeof(word));
	memset(b->data + RUN_HEAD, 0, 8);
	b->length = RUN_HEAD + 8;
	b->calls = 1;
	rc = inbox_put(&x->threads[0], &x->threads[to], b);
	if (rc)
		batch_free(b);
	return rc;
}

TEST(test_sleeper_is_woken)
{
	struct world *x = create();

	assert_int_equal(hand(x, 1), 0);
	assert_int_equal(wakes[1], 0); /* it is awake */
	x->threads[1].asleep = true;
	assert_int_equal(hand(x, 1), 0);
	assert_int_equal(wakes[1], 1);
	x->threads[0].asleep = true;
	assert_int_equal(hand(x, 0), 0); /* itself */
	assert_int_equal(wakes[0], 0);
	assert_int_equal(inbox_run(&x->threads[1], UINT32_MAX), 2);
	assert_int_equal(inbox_run(&x->threads[0], UINT32_MAX), 1);
	assert_int_equal(wakes[0], 0); /* it wants none back */
	x->threads[1].entered = 0;
	assert_int_equal(hand(x, 1), -ECONNREFUSED);
	destroy(x);
}

/* A thread whose line is full hears, once, when batches come back. */
TEST(test_full)
{
	struct world *x = create();
	unsigned n = 0;

	while (!hand(x, 1))
		n++;
	assert_int_equal(n, (256u << 10) / 16);
	assert_true(x->threads[0].wants_returned);
	assert_int_equal(inbox_run(&x->threads[1], 10), 10);
	assert_int_equal(wakes[0], 1);
	assert_false(inbox_is_free(&x->threads[0], 1));
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(hand(x, 1), 0);
	assert_int_equal(hand(x, 1), -EAGAIN);
	/* those that have come meanwhile are for the next turn */
	assert_int_equal(inbox_run(&x->threads[1], UINT32_MAX), n - 10);
	assert_int_equal(wakes[0], 2);
	assert_int_equal(inbox_run(&x->threads[1], UINT32_MAX), 10);
	assert_true(inbox_is_free(&x->threads[0], 1));
	destroy(x);
}

/* A thread that sleeps says so; it wants its batches back if a sync waits for them. */
TEST(test_before_a_sleep)
{
	struct world *x = create();
	struct invoke_thread *t = turning = &x->threads[0];

	thread_turn(t, 0, 0);
	assert_false(asleep);
	thread_turn(t, 0, 5);
	assert_true(asleep);
	assert_false(wants);
	assert_false(t->asleep);
	t->local_asks = 1;
	thread_turn(t, 0, -1);
	assert_true(wants);
	t->local_asks = 0;
	destroy(x);
}

/* ---- what comes back ---- */

static struct line *
line_of(struct world *x)
{
	int rc = 0;
	struct line *l = line_get(&x->threads[0], (struct weir_to){0, 1}, &rc);

	assert_non_null(l);
	return l;
}

/* A batch with one call, which s counts, of thread 0 to thread 1. */
static void
call(struct world *x, uint32_t function, struct weir_sync *s)
{
	struct line *l = line_of(x);
	uint64_t word = run_head_word(function, 0, 8, 1);

	weir_sync_init(s, 1, NULL, NULL);
	assert_int_equal(line_open_batch(l, 64), 0);
	memcpy(l->fast.at, &word, sizeof(word));
	memset(l->fast.at + RUN_HEAD, 0, 8);
	l->fast.at += RUN_HEAD + 8;
	assert_int_equal(asks_add(l, l->open, s), 0);
	assert_int_equal(line_send_open(l), 0);
}

/* Each sync tells of its own batch, however many come back together. */
TEST(test_back_in_order)
{
	struct world *x = create();
	struct weir_sync s[4];
	uint64_t failed;

	for (uint32_t i = 0; i < 4; i++)
		call(x, i == 1 ? FUNCTION_LIBRARY - 1 : 0, &s[i]);
	inbox_run(&x->threads[1], UINT32_MAX);
	inbox_settle(&x->threads[0]);
	asks_count(&x->threads[0]);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(weir_sync_left(&s[i], &failed), 0);
		assert_int_equal(failed, i == 1);
	}
	/* for weir_invoker_quiet(): each batch back is a call of the library, made and run */
	assert_int_equal(x->threads[0].sent, 4);
	assert_int_equal(x->threads[0].ran, 4);
	destroy(x);
}

/* The other thread leaves between the look whether it is there and the batch: that comes back. */
TEST(test_leaves_meanwhile)
{
	struct world *x = create();

	while (!hand(x, 1))
		;
	assert_int_equal(inbox_run(&x->threads[1], 1), 1);
	leaving = &x->threads[1];
	assert_int_equal(hand(x, 1), 0);
	assert_null(leaving);
	assert_true(inbox_is_free(&x->threads[0], 1));
	assert_int_equal(x->threads[0].counters.dropped, 1);
	assert_int_equal(x->v.lost, 1);
	destroy(x);
}

/* A call that finds no memory leaves no batch behind. */
TEST(test_no_memory)
{
	struct world *x = create();
	struct line *l = line_of(x);
	struct weir_sync s;
	uint64_t args = 0;
	struct call c = {.length = 8, .args = &args, .sync = &s, .timeout_ms = -1};

	weir_sync_init(&s, 1, NULL, NULL);
	has_no_memory = true;
	assert_int_equal(call_make(l, &c), -ENOMEM);
	has_no_memory = false;
	lines_flush(&x->threads[0]);
	assert_null(x->threads[1].inbox);
	assert_true(TAILQ_EMPTY(&x->threads[0].busy));
	assert_int_equal(call_make(l, &c), 0);
	lines_flush(&x->threads[0]);
	assert_int_equal(inbox_run(&x->threads[1], UINT32_MAX), 1);
	inbox_settle(&x->threads[0]);
	asks_count(&x->threads[0]);
	assert_int_equal(weir_sync_left(&s, NULL), 0);
	destroy(x);
}

/* ---- the inline path ---- */

/* Makes calls of `length` bytes until the line's batch has left. How many it has. */
static uint32_t
calls_until_it_leaves(struct world *x, struct line *l, uint32_t length)
{
	static const uint8_t args[64];
	uint32_t calls;

	while (!x->threads[1].inbox)
		assert_int_equal(weir_line_call(&l->fast, 0, args, length), 0);
	calls = x->threads[1].inbox->calls;
	assert_int_equal(inbox_run(&x->threads[1], UINT32_MAX), calls);
	return calls;
}

/* Inline calls look every 1024 bytes whether their batch leaves; one that has no room for the next
 * call leaves without it. */
TEST(test_looks)
{
	struct weir_life life = {.state = WEIR_UP};
	struct weir w = {.life = &life};
	struct world *x = create();
	struct line *l = line_of(x);
	uint64_t args = 0;

	x->v.w = &w;
	x->v.serial = 79;
	x->threads[0].entered = pthread_self();
	x->function.max_length = x->target.max_length = 40;
	l->batching = (struct weir_batching){WEIR_BATCH_FULL, 4096, 1000000000};
	/* the inline path fills `bytes`, and the call behind that looks */
	assert_int_equal(calls_until_it_leaves(x, l, 8), (4096 - RUN_HEAD) / 8 + 1);
	assert_int_equal(x->threads[0].counters.full, 1);
	l->batching.bytes = WEIR_BATCH_MAX;
	assert_int_equal(calls_until_it_leaves(x, l, 40), (WEIR_BATCH_MAX - RUN_HEAD) / 40);
	assert_int_equal(x->threads[0].counters.full, 2);
	assert_int_equal(x->threads[0].counters.late, 0);
	/* the call that had no room is packed; the time is over, which the next look shows */
	l->batching.delay_us = 1;
	l->open->since = 0;
	assert_int_equal(calls_until_it_leaves(x, l, 40), 1 + (1024 + 39) / 40);
	assert_int_equal(x->threads[0].counters.late, 1);
	/* the data plane ends: so do calls, at the next look */
	l->batching.delay_us = 1000000000;
	assert_int_equal(weir_line_call(&l->fast, 0, &args, 8), 0);
	life.state = WEIR_DEAD;
	for (uint32_t i = 0; i < 1024 / 8; i++)
		assert_int_equal(weir_line_call(&l->fast, 0, &args, 8), 0);
	assert_int_equal(weir_line_call(&l->fast, 0, &args, 8), -ENODEV);
	assert_int_equal(l->head ? (l->fast.at - l->head - RUN_HEAD) / 8 : 0, 1 + 1024 / 8);
	destroy(x);
}

/* A thread that has waited in vain is not woken any more: it may be gone with its invoker. */
TEST(test_waited)
{
	struct world *x = create();
	struct invoke_thread *t = turning = &x->threads[0];
	struct weir_messenger *m = (struct weir_messenger *)(void *)x; /* not used */
	struct weir_sync s;

	x->v.serial = 77;
	x->v.m = m;
	t->entered = pthread_self();
	weir_sync_init(&s, 2, NULL, NULL);
	assert_int_equal(weir_sync_wait(&x->v, &s, 0), -EAGAIN);
	sync_count(&x->threads[1], &s, 2, 0);
	assert_int_equal(wakes[0], 0);
	x->v.m = NULL;
	destroy(x);
}

/* The sync of a cancelled call counts when the payload comes back, also while the thread leaves. */
TEST(test_cancelled)
{
	struct world *x = create();
	struct invoke_thread *t = &x->threads[0];
	struct weir_future f = {0};
	struct weir_sync s;
	const struct expected_result e = {.future = &f, .sync = &s};
	struct call c = {0};
	uint64_t failed;

	x->v.serial = 78;
	t->entered = pthread_self();
	for (uint32_t i = 0; i < 2; i++) {
		weir_sync_init(&s, 1, NULL, NULL);
		assert_int_equal(future_begin(line_of(x), &e, &c.id), 0);
		future_lend(t, c.id);
		weir_future_cancel(&x->v, &f);
		assert_int_equal(f.status, -ECANCELED);
		assert_int_equal(futures_end_lost(t), 0);
		assert_int_equal(weir_sync_left(&s, NULL), 1);
		future_return(t, c.id);
		if (i)
			thread_drop(t);
		else
			assert_int_equal(futures_end_lost(t), 1);
		assert_int_equal(weir_sync_left(&s, &failed), 0);
		assert_int_equal(failed, 1);
	}
	destroy(x);
}

/* A call with a result that did not leave after all leaves nothing behind. */
TEST(test_forgotten)
{
	struct world *x = create();
	struct weir_future f = {0}, *all[] = {&f};
	const struct expected_result e = {.future = &f};
	uint64_t id, again;

	x->v.serial = 80;
	x->threads[0].entered = pthread_self();
	assert_int_equal(future_begin(line_of(x), &e, &id), 0);
	future_forget(&x->threads[0], id);
	assert_int_equal(weir_future_any(&x->v, all, 1, 0), 0);
	assert_int_equal(future_begin(line_of(x), &e, &again), 0);
	assert_int_equal(again, id);
	destroy(x);
}
