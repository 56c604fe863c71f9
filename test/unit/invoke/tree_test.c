/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of all threads: each runs once everywhere, whatever the shape of the tree. */
#include "crew.h"

#include "invoke/batch.h"
#include "invoke/invoker.h"

#define CALLS 60u

enum { NOTE, AGAIN, TREE_FUNCTIONS };

/* Calls of all threads that this one has run, by the thread that made them. */
static __thread uint32_t noted[MOST * THREADS];
static _Atomic uint64_t runs, again_runs;

static void
run_note(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_to from = weir_incoming_from(c);
	uint32_t number, who = from.process * THREADS + from.thread;

	memcpy(&number, args, sizeof(number));
	if (own->self != pthread_self() || number != noted[who]++)
		own->wrong++;
	for (size_t i = sizeof(number); i < length; i++)
		if (((const uint8_t *)args)[i] != (uint8_t)(number + i))
			own->wrong++;
	/* it has no result */
	if (weir_incoming_result(c, NULL, 0) != -EINVAL)
		own->wrong++;
	atomic_fetch_add(&runs, 1);
}

/* {hops}: a function that calls all. */
static void
run_again(struct weir_incoming *c, const void *args, size_t length)
{
	uint32_t hops;

	memcpy(&hops, args, sizeof(hops));
	atomic_fetch_add(&again_runs, 1);
	if (hops-- && weir_call_all(own->v, AGAIN, &hops, sizeof(hops), NULL))
		own->wrong++;
}

static void
run_again_many(struct weir_incoming *c, const void *args, size_t length, size_t stride,
	       size_t count)
{
	if (count != 1)
		own->wrong++;
	run_again(c, args, length);
}

static const struct weir_function table[TREE_FUNCTIONS] = {
    [NOTE] = {.name = "note", .min_length = 4, .max_length = WEIR_ARGS_MAX, .run = run_note},
    [AGAIN] = {.name = "again", .min_length = 4, .max_length = 4, .run_many = run_again_many},
};

static int
call_all(struct hand *h)
{
	uint32_t threads = weir_invoker_threads(h->c.v, UINT32_MAX);
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct weir_call_options with = {.timeout_ms = -1};
	uint8_t bytes[WEIR_ARGS_MAX];
	struct weir_sync s;
	uint64_t failed;

	memset(noted, 0, sizeof(noted));
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	weir_sync_init(&s, 0, NULL, NULL);
	for (uint32_t i = 0; i < CALLS; i++) {
		uint32_t length = i % 9 ? 4 + i * h->number % 100 : i % 5 ? 4000 : WEIR_ARGS_MAX;

		memcpy(bytes, &i, sizeof(i));
		for (uint32_t k = 4; k < length; k++)
			bytes[k] = (uint8_t)(i + k);
		with.sync = i % 3 ? &s : NULL;
		if (with.sync)
			weir_sync_add(&s, 1);
		CHECK(!weir_call_all(h->c.v, NOTE, bytes, length, &with));
	}
	CHECK(!weir_sync_wait(h->c.v, &s, PATIENT));
	CHECK(!weir_sync_left(&s, &failed) && !failed);
	CHECK(!weir_invoker_quiet(h->c.v, PATIENT));
	CHECK(atomic_load(&runs) == (uint64_t)threads * threads * CALLS);
	for (uint32_t i = 0; i < threads; i++)
		CHECK(noted[i] == CALLS);
	CHECK(!weir_invoker_stats(h->c.v, &stats) &&
	      stats.run == (uint64_t)CALLS * THREADS * threads && stats.made == stats.run &&
	      !stats.dropped && !stats.ignored && !stats.malformed);
	/* nobody leaves before the others have looked */
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_call_all)
{
	crew_init();
	for (uint32_t size = 1; size <= MOST; size += size < 4 ? 1 : 3) {
		crew.o.arity = size == 7 ? 4 : size % 2 ? 2 : WEIR_ARITY_MAX;
		crew.o.batching.mode = size % 4;
		atomic_store(&runs, 0);
		crew_of(size, table, TREE_FUNCTIONS, call_all);
	}
}

static int
call_one_of_each(struct hand *h)
{
	uint32_t processes = weir_group_size(h->c.g);
	struct weir_call_options with = {.flags = WEIR_CALL_ONCE_PER_PROCESS | WEIR_CALL_NOW,
					 .timeout_ms = -1};
	struct weir_sync s;
	uint64_t all;

	memset(noted, 0, sizeof(noted));
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	weir_sync_init(&s, CALLS, NULL, NULL);
	with.sync = &s;
	for (uint32_t i = 0; i < CALLS; i++)
		CHECK(!weir_call_all(h->c.v, NOTE, &i, sizeof(i), &with));
	CHECK(!weir_sync_wait(h->c.v, &s, PATIENT));
	with.flags |= WEIR_CALL_SYNC_SENT;
	weir_sync_init(&s, 1, NULL, NULL);
	CHECK(!weir_call_all(h->c.v, NOTE, &(uint32_t){CALLS}, 4, &with));
	CHECK(!weir_sync_left(&s, NULL));
	CHECK(!weir_invoker_quiet(h->c.v, PATIENT));
	all = (uint64_t)processes * processes * THREADS * (CALLS + 1);
	CHECK(atomic_load(&runs) == all);
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_once_per_process)
{
	crew_init();
	crew.o.arity = 2;
	for (uint32_t size = 1; size <= 5; size += 2) {
		atomic_store(&runs, 0);
		crew_of(size, table, TREE_FUNCTIONS, call_one_of_each);
	}
}

/* Functions call all: of one call come `threads` ones, three times. */
static int
call_from_functions(struct hand *h)
{
	uint64_t threads = weir_invoker_threads(h->c.v, UINT32_MAX);

	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	if (!h->number)
		CHECK(!weir_call_all(h->c.v, AGAIN, &(uint32_t){2}, 4, NULL));
	CHECK(!weir_invoker_quiet(h->c.v, PATIENT));
	CHECK(atomic_load(&again_runs) ==
	      threads + threads * threads + threads * threads * threads);
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_from_functions)
{
	crew_init();
	for (uint32_t size = 1; size <= 4; size++) {
		atomic_store(&again_runs, 0);
		crew_of(size, table, TREE_FUNCTIONS, call_from_functions);
	}
}

/* ---- not everywhere ---- */

/* A thread has left: the others run it, and the caller learns why not all have. */
static int
call_where_one_has_left(struct hand *h)
{
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_sync s;
	uint64_t failed;
	int rc;

	memset(noted, 0, sizeof(noted));
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	if (h->number == 7)
		return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	if (!h->number) {
		weir_sync_init(&s, 1, NULL, NULL);
		with.sync = &s;
		CHECK(!weir_call_all(h->c.v, NOTE, &(uint32_t){0}, 4, &with));
		rc = weir_sync_wait(h->c.v, &s, PATIENT);
		CHECK(rc == -ECONNREFUSED);
		CHECK(!weir_sync_left(&s, &failed) && failed == 1);
	}
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	CHECK(noted[0] == 1);
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_one_has_left)
{
	crew_init();
	crew.o.arity = 2;
	crew_of(5, table, TREE_FUNCTIONS, call_where_one_has_left);
}

static int
be_refused(struct team *t, uint32_t index)
{
	/* process 1 lacks one function, and has another length of the other */
	static const struct weir_function other[] = {
	    {.name = "note", .min_length = 4, .max_length = 8, .run = run_note}};
	struct weir_call_options options = {.flags = 0x80, .timeout_ms = -1};
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	uint8_t args[100] = {0};
	struct weir_invoker *v;
	struct caller c = {0};

	memset(noted, 0, sizeof(noted));
	o.functions = weir_group_rank(t->g[index]) == 1 ? other : table;
	o.function_count = weir_group_rank(t->g[index]) == 1 ? 1 : TREE_FUNCTIONS;
	o.arity = 1;
	CHECK(weir_invoker_open(t->w[index], t->g[index], &o, &v) == -EINVAL);
	o.arity = WEIR_ARITY_MAX + 1;
	CHECK(weir_invoker_open(t->w[index], t->g[index], &o, &v) == -EINVAL);
	o.arity = 2;
	CHECK(!weir_invoker_open(t->w[index], t->g[index], &o, &v));
	CHECK(weir_call_all(v, NOTE, args, 4, NULL) == -EPERM);
	CHECK(weir_invoker_barrier(v, 0) == -EPERM);
	c = (struct caller){.v = v, .self = pthread_self()};
	own = &c;
	CHECK(!weir_invoker_enter(v, 0));
	CHECK(!weir_invoker_barrier(v, PATIENT));
	if (weir_group_rank(t->g[index]) != 1) {
		CHECK(weir_call_all(v, AGAIN, args, 4, NULL) == -ENOSYS);
		CHECK(strstr(weir_reason(), "no 'again'"));
	}
	CHECK(weir_call_all(v, NOTE, args, 9, NULL) == -EMSGSIZE);
	CHECK(weir_call_all(v, NOTE, args, 3, NULL) == -EMSGSIZE);
	CHECK(weir_call_all(v, TREE_FUNCTIONS, args, 4, NULL) == -EINVAL);
	CHECK(weir_call_all(v, NOTE, args, 4, &options) == -EINVAL);
	CHECK(!weir_call_all(v, NOTE, args, 4, NULL));
	CHECK(!weir_invoker_quiet(v, PATIENT));
	CHECK(noted[0] + noted[THREADS] + noted[2 * THREADS] == 3 && !c.wrong);
	CHECK(!weir_invoker_barrier(v, PATIENT));
	return weir_invoker_close(v) ? __LINE__ : 0;
}

TEST(test_refused)
{
	team_of(3, be_refused);
}

/* ---- a peer that lies ---- */

static void
run_nothing(struct weir_incoming *c, const void *args, size_t length)
{
	atomic_fetch_add(&runs, 1);
}

/* Calls of the library to thread 0 of process 1 of six, the fourth of which has no threads. */
static bool
say(struct weir_to from, const struct tree_args *a, uint32_t length)
{
	struct invoke_process processes[6] = {0};
	uint32_t seats[] = {0, 1, 2, 4, 5};
	struct weir_function one = {
	    .name = "f", .min_length = 4, .max_length = 8, .run = run_nothing};
	/* nothing is passed on: the others have it, with arguments of another length */
	struct function_target longer = {.number = 0, .min_length = 9, .max_length = 100};
	struct function_table targets = {.targets = &longer};
	struct weir_invoker v = {.functions = &one,
				 .o = {.function_count = 1, .threads = 1, .queue_bytes = 100000},
				 .processes = processes,
				 .process_count = 6,
				 .self = 1,
				 .seats = seats,
				 .seat_count = 5};
	struct invoke_thread t = {.v = &v};
	struct weir_incoming c = {.v = &v, .thread = &t, .from = from};
	uint8_t bytes[64] = {0};
	bool good;

	for (uint32_t i = 0; i < 5; i++) {
		processes[seats[i]].threads = 1;
		processes[seats[i]].seat = i;
		processes[seats[i]].table = &targets;
	}
	TAILQ_INIT(&t.busy);
	memcpy(bytes, a, sizeof(*a));
	atomic_store(&runs, 0);
	good = tree_run(&c, bytes, length);
	assert_int_equal(atomic_load(&runs), good);
	/* processes 4 and 5, where the root is 0; none below process 5 */
	assert_int_equal(t.counters.dropped, good && !a->process ? 2 : 0);
	return good;
}

TEST(test_lies)
{
	/* process 1 is a branch of process 0, which is the root */
	const struct tree_args good = {.arity = 2};
	const uint32_t length = sizeof(good) + 4;
	const struct weir_to root = {0, 0};
	struct tree_args a;

	assert_true(say(root, &good, length));
	assert_true(say(root, &good, length + 4));
	assert_false(say(root, &good, length - 1));
	assert_false(say(root, &good, length + 5));
	assert_false(say(root, &good, sizeof(good) - 1));
	assert_false(say(root, &good, 0));
#define LIE(from, field, value)                                                                    \
	do {                                                                                       \
		a = good;                                                                          \
		a.field = value;                                                                   \
		assert_false(say(from, &a, length));                                               \
	} while (0)
	LIE(root, arity, 0);
	LIE(root, arity, 1);
	LIE(root, arity, WEIR_ARITY_MAX + 1);
	LIE(root, function, 1);
	LIE(root, function, UINT16_MAX);
	LIE(root, flags, TREE_LEAF); /* another process gives to no single thread */
	LIE(root, flags, 0x4);
	LIE(root, zero, 1);
	LIE(root, process, 6);
	LIE(root, process, UINT32_MAX);
	LIE(root, process, 3); /* has no threads */
	LIE(root, process, 1); /* this one itself */
	LIE(root, process, 2); /* not from its parent in that tree */
	LIE(root, thread, 1);
	LIE(root, thread, UINT32_MAX);
	/* from another thread, or process, than the parent */
	assert_false(say((struct weir_to){0, 1}, &good, length));
	assert_false(say((struct weir_to){2, 0}, &good, length));
	/* in the tree of process 4 it is the fourth: below process 5 */
	a = good;
	a.process = 4;
	assert_true(say((struct weir_to){5, 0}, &a, length));
	assert_false(say((struct weir_to){0, 0}, &a, length));
	assert_false(say((struct weir_to){4, 0}, &a, length));
}
