/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls made in functions, calls to the pool, and what calls refuse. */
#include "caller.h"

#include "client/reason.h"
#include "invoke/line.h"

#include <sys/wait.h>

/* ---- calls in functions ---- */

static int
ask(struct team *t, uint32_t index)
{
	struct weir_invoker_options o = standard();
	struct caller c;
	uint32_t hops;
	int rc = begin(t, index, &o, &c);

	CHECK(!rc);
	for (uint32_t i = 0; i < 50; i++)
		for (uint32_t p = 0; p < t->size; p++) {
			hops = i;
			CHECK(!weir_call(c.v, (struct weir_to){p, 0}, ASK, &hops, sizeof(hops),
					 NULL));
		}
	/* of 50 chains with each process, half end at either end; those to itself all */
	while (c.answered < 50 * t->size)
		CHECK(weir_invoker_progress(c.v, 0, PATIENT) > 0);
	return end(t, index, &c);
}

TEST(test_ask)
{
	for (uint32_t size = 1; size <= 3; size++)
		team_of(size, ask);
}

/* ---- without room ---- */

static _Atomic uint32_t flooded;
static uint32_t flood_mode;

static int
flood(struct team *t, uint32_t index)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct weir_invoker_options o = standard();
	struct caller c;
	int rc;

	o.queue_bytes = 1u << 20;
	o.batching.mode = flood_mode;
	o.window = 64u << 10;
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	if (!c.process) {
		CHECK(!weir_call(c.v, (struct weir_to){1, 0}, FLOOD, NULL, 0, NULL));
		/* takes nothing until the other end is full */
		weir_group_idle(t->g[index], NULL, NULL);
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		while (c.run < flooded)
			CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
		weir_group_idle(t->g[index], serve, c.v);
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
	} else {
		weir_group_idle(t->g[index], NULL, NULL);
		while (!c.flooded) {
			rc = weir_invoker_progress(c.v, 0, PATIENT);
			CHECK(rc >= 0);
		}
		CHECK(!weir_invoker_stats(c.v, &stats));
		/* batches have room for others, a call alone has none */
		CHECK(stats.queue_bytes <= o.queue_bytes);
		CHECK(stats.queue_peak >
		      o.queue_bytes - (flood_mode == WEIR_BATCH_EAGER ? 2 * 16 : WEIR_BATCH_MAX));
		/* a head for each, or one for all of a batch */
		CHECK(c.flooded * (flood_mode == WEIR_BATCH_EAGER ? 16 : 8) >
		      o.queue_bytes - 2 * WEIR_BATCH_MAX);
		flooded = c.flooded;
		weir_group_idle(t->g[index], serve, c.v);
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		CHECK(!weir_invoker_stats(c.v, &stats));
		CHECK(flood_mode == WEIR_BATCH_EAGER ? stats.messages == stats.made
						     : stats.messages < stats.made / 100);
	}
	return end(t, index, &c);
}

/* Calls in a function are queued up to queue_bytes, and all that were accepted run. */
TEST(test_flood)
{
	for (flood_mode = WEIR_BATCH_AUTO; flood_mode <= WEIR_BATCH_EAGER; flood_mode++)
		team_of(2, flood);
}

/* ---- lost while it waits ---- */

#define LOST_MOST 20000u

static _Atomic uint32_t accepted;
static uint32_t lost_mode;
static uint8_t ended[LOST_MOST]; /* of each call: how often its future told the end */

static void
note_end(struct weir_future *f, void *user)
{
	++*(uint8_t *)user;
}

/* Calls until one is refused. Each is refused, or its sync or future ends once. */
static int
call_until_refused(struct caller *c, const struct weir_call_options *with, bool returns)
{
	struct weir_future *f = calloc(LOST_MOST, sizeof(*f));
	struct weir_to to = {1, 0};
	struct numbered n = {0};
	uint32_t made = 0;
	int rc;

	memset(ended, 0, sizeof(ended));
	do {
		CHECK(made < LOST_MOST);
		f[made] = (struct weir_future){.then = note_end, .user = &ended[made]};
		if (with->sync)
			weir_sync_add(with->sync, 1);
		rc = returns
			 ? weir_call_return(c->v, to, COUNT, &n, sizeof(n), &f[made], NULL, 0, with)
			 : weir_call(c->v, to, COUNT, &n, sizeof(n), with);
		atomic_store(&accepted, ++made);
	} while (!rc);
	CHECK(rc == -EHOSTUNREACH || rc == -ECONNREFUSED);
	/* of a sync or a future, another one found nobody */
	CHECK(strstr(weir_reason(), with->sync || returns ? "process 1" : "thread 0 of process 1"));
	for (uint32_t i = 0; returns && i < made - 1; i++)
		CHECK(weir_future_wait(c->v, &f[i], PATIENT) <= 0 && ended[i] == 1);
	CHECK(!ended[made - 1]);
	while (with->sync && weir_sync_left(with->sync, NULL) > 1)
		CHECK(weir_invoker_progress(c->v, 0, 10) >= 0);
	CHECK(weir_invoker_progress(c->v, 0, 0) >= 0);
	CHECK(!with->sync || weir_sync_left(with->sync, NULL) == 1);
	free(f);
	return 0;
}

static int
wait_for_lost(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_invoker_options o = standard();
	struct weir_sync s;
	struct caller c;
	int rc;

	o.window = 64u << 10;
	o.batching.mode = lost_mode & 1 ? WEIR_BATCH_EAGER : WEIR_BATCH_AUTO;
	if (lost_mode & 2) {
		weir_sync_init(&s, 0, NULL, NULL);
		with.sync = &s;
	}
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	weir_group_idle(t->g[index], NULL, NULL);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	if (!c.process) {
		rc = call_until_refused(&c, &with, lost_mode & 4);
		if (rc)
			return rc;
	} else {
		/* the caller waits, when it makes no more calls */
		for (uint32_t same = 0, before = 0; same < 100; same++) {
			usleep(1000);
			if (!accepted || accepted != before)
				same = 0;
			before = accepted;
		}
		CHECK(!weir_invoker_leave(c.v));
	}
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	return weir_invoker_close(c.v) ? __LINE__ : 0;
}

/* A call that waits for room says which thread does not run it any more. No call is both refused
 * and reported. */
TEST(test_lost_while_it_waits)
{
	for (lost_mode = 0; lost_mode < 8; lost_mode++) {
		accepted = 0;
		team_of(2, wait_for_lost);
		accepted = 0;
		team_of_one_node(2, wait_for_lost);
	}
}

/* The thread called has left before the call. */
static int
call_one_that_left(struct team *t, uint32_t index)
{
	struct weir_call_options with = {.timeout_ms = PATIENT};
	struct weir_invoker_options o = standard();
	struct numbered n = {0};
	struct caller c;
	int rc;

	o.batching.mode = WEIR_BATCH_EAGER;
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	if (!c.process)
		CHECK(!weir_call(c.v, (struct weir_to){1, 0}, COUNT, &n, sizeof(n), &with));
	else
		while (!c.run)
			CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	if (c.process)
		CHECK(!weir_invoker_leave(c.v));
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	while (!c.process && !rc)
		rc = weir_call(c.v, (struct weir_to){1, 0}, COUNT, &n, sizeof(n), &with);
	CHECK(c.process || rc == -EHOSTUNREACH || rc == -ECONNREFUSED);
	CHECK(c.process || strstr(weir_reason(), "thread 0 of process 1"));
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	return weir_invoker_close(c.v) ? __LINE__ : 0;
}

/* A refused call names the thread that does not run it, whoever notices first that it has left. */
TEST(test_left)
{
	static struct invoke_process processes[2];
	static struct weir_invoker v = {.processes = processes};
	static struct invoke_thread thread = {.v = &v};
	struct line l = {.thread = &thread, .to = {1, 0}};

	weir_fail(-EHOSTUNREACH, "gone");
	assert_int_equal(line_failed(&l, -EHOSTUNREACH), -EHOSTUNREACH);
	assert_string_equal(weir_reason(), "the line to thread 0 of process 1 was lost: gone");
	team_of(2, call_one_that_left);
	team_of_one_node(2, call_one_that_left);
}

/* ---- the pool ---- */

static _Atomic uint64_t pool_runs;
static _Atomic pthread_t pool_thread;

static void
run_in_pool(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_invoker *v = weir_incoming_invoker(c);
	struct numbered n = {.thread = weir_incoming_from(c).thread};

	memcpy(&n.number, args, sizeof(n.number));
	atomic_store(&pool_thread, pthread_self());
	atomic_fetch_add(&pool_runs, 1);
	if (weir_call(v, weir_incoming_from(c), 1, &n, sizeof(n), NULL))
		atomic_fetch_add(&pool_runs, 1000000);
	if (weir_invoker_enter(v, 0) != -EDEADLK || weir_invoker_leave(v) != -EDEADLK ||
	    weir_invoker_close(v) != -EDEADLK)
		atomic_fetch_add(&pool_runs, 1000000);
}

static int
use_pool(struct team *t, uint32_t index)
{
	const struct weir_function table[] = {
	    {.name = "pool", .min_length = 4, .max_length = 4, .run = run_in_pool},
	    {.name = "count", .version = 1, .min_length = 8, .max_length = 8, .run = run_count},
	};
	struct weir_invoker_options o = standard();
	struct caller c;
	int rc;

	o.functions = table;
	o.function_count = 2;
	o.pool_threads = 1;
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	for (uint32_t i = 0; i < 500; i++)
		for (uint32_t p = 0; p < t->size; p++)
			CHECK(!weir_call(c.v, (struct weir_to){p, WEIR_THREAD_ANY}, 0, &i,
					 sizeof(i), NULL));
	while (c.run < 500 * t->size)
		CHECK(weir_invoker_progress(c.v, 0, PATIENT) > 0);
	CHECK(atomic_load(&pool_thread) != pthread_self());
	return end(t, index, &c);
}

TEST(test_pool)
{
	atomic_store(&pool_runs, 0);
	team_of(2, use_pool);
	assert_int_equal(pool_runs, 2 * 2 * 500);
}

/* ---- refused ---- */

static int in_function[5];
static __thread uint32_t longer_runs;

static void
run_misuse(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_invoker *v = weir_incoming_invoker(c);
	struct weir_line *l;

	in_function[0] = weir_invoker_progress(v, 0, 0);
	in_function[1] = weir_invoker_leave(v);
	in_function[2] = weir_invoker_close(v);
	in_function[3] = weir_invoker_enter(v, 1);
	in_function[4] = weir_line_open(v, weir_incoming_from(c), NULL, 0, &l);
}

static void
run_longer(struct weir_incoming *c, const void *args, size_t length)
{
	longer_runs++;
}

static void *
be_stranger(void *arg)
{
	static const uint32_t none;
	struct weir_invoker *v = arg;
	struct weir_line *l;
	intptr_t line = 0;

	if (weir_call(v, (struct weir_to){0, 0}, ASK, &none, 4, NULL) != -EPERM ||
	    weir_invoker_progress(v, 0, 0) != -EPERM || weir_invoker_flush(v) != -EPERM ||
	    weir_invoker_leave(v) != -EPERM ||
	    weir_line_open(v, (struct weir_to){0, 0}, NULL, 0, &l) != -EPERM)
		line = __LINE__;
	if (weir_invoker_enter(v, 0) != -EBUSY || weir_invoker_enter(v, 2) != -EINVAL)
		line = __LINE__;
	return (void *)line;
}

static int
misuse(struct team *t, uint32_t index)
{
	const struct weir_function mine[] = {
	    {.name = "misuse", .run = run_misuse},
	    {.name = index ? "here" : "there", .run = run_misuse},
	    {.name = "newer", .version = index, .run = run_misuse},
	    {.name = "longer", .max_length = 100 + 100 * index, .run = run_longer},
	};
	/* one of both has them in another order */
	struct weir_function table[4];
	const uint32_t misuse_number = index ? 3 : 0, name_number = index ? 2 : 1,
		       newer_number = index ? 1 : 2, longer_number = index ? 0 : 3;
	struct weir_batching bad[] = {
	    {WEIR_BATCH_OVERFLOW + 1, 64, 0}, {0, 63, 0}, {0, WEIR_BATCH_MAX + 1, 0}};
	struct weir_call_options options = {.flags = 0x80}, more = {.more = {0, 0, 1}};
	struct weir_invoker_options o = standard();
	struct weir_to other = {1 - index, 0}, self = {0};
	uint8_t args[300] = {0};
	struct weir_line *l;
	pthread_t thread;
	struct caller c;
	void *line;
	int rc;

	for (uint32_t i = 0; i < 4; i++)
		table[index ? 3 - i : i] = mine[i];
	o.functions = table;
	o.function_count = 4;
	o.threads = 2;
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	other.process = 1 - c.process;
	self.process = c.process;
	CHECK(weir_call(c.v, other, 4, NULL, 0, NULL) == -EINVAL);
	CHECK(weir_call(c.v, other, UINT32_MAX, NULL, 0, NULL) == -EINVAL);
	CHECK(weir_call(c.v, other, misuse_number, NULL, 0, &options) == -EINVAL);
	CHECK(weir_call(c.v, other, misuse_number, NULL, 0, &more) == -EINVAL);
	CHECK(weir_call(c.v, other, misuse_number, args, 1, NULL) == -EMSGSIZE);
	CHECK(weir_call(c.v, other, longer_number, args, 101, NULL) == -EMSGSIZE);
	CHECK(!weir_call(c.v, other, longer_number, args, 100, NULL));
	CHECK(weir_call(c.v, other, name_number, NULL, 0, NULL) == -ENOSYS);
	CHECK(strstr(weir_reason(), index ? "no 'here'" : "no 'there'"));
	CHECK(weir_call(c.v, other, newer_number, NULL, 0, NULL) == -ENOSYS);
	CHECK(strstr(weir_reason(), index ? "version 0, here it is 1" : "version 1, here it is 0"));
	CHECK(weir_call(c.v, (struct weir_to){2, 0}, misuse_number, NULL, 0, NULL) == -ENOENT);
	CHECK(weir_call(c.v, (struct weir_to){0, 2}, misuse_number, NULL, 0, NULL) == -ENOENT);
	CHECK(weir_call(c.v, (struct weir_to){0, WEIR_THREAD_ANY}, misuse_number, NULL, 0, NULL) ==
	      -ENOENT);
	/* that has not entered, here and there */
	for (uint32_t i = 0; i < 20; i++)
		CHECK(weir_call(c.v, (struct weir_to){other.process, 1}, misuse_number, NULL, 0,
				NULL) == -ECONNREFUSED);
	CHECK(weir_call(c.v, (struct weir_to){c.process, 1}, misuse_number, NULL, 0, NULL) ==
	      -ECONNREFUSED);
	CHECK(weir_line_open(c.v, (struct weir_to){c.process, 1}, NULL, 0, &l) == -ECONNREFUSED);
	for (uint32_t i = 0; i < 3; i++)
		CHECK(weir_line_open(c.v, other, &bad[i], 0, &l) == -EINVAL);
	CHECK(weir_invoker_enter(c.v, 1) == -EALREADY);
	CHECK(!pthread_create(&thread, NULL, be_stranger, c.v));
	CHECK(!pthread_join(thread, &line) && !line);
	while (longer_runs < 1)
		CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
	/* in a function */
	if (!c.process) {
		CHECK(!weir_call(c.v, self, misuse_number, NULL, 0, NULL));
		CHECK(weir_invoker_progress(c.v, 0, PATIENT) > 0);
		while (!in_function[0])
			CHECK(weir_invoker_progress(c.v, 0, PATIENT) > 0);
		for (uint32_t i = 0; i < 5; i++)
			CHECK(in_function[i] == -EDEADLK);
	}
	return end(t, index, &c);
}

TEST(test_misuse)
{
	memset(in_function, 0, sizeof(in_function));
	team_of(2, misuse);
}

/* ---- fork ---- */

static int
fork_packed(struct team *t, uint32_t index)
{
	const struct weir_batching pack = {WEIR_BATCH_FULL, WEIR_BATCH_MAX, 1000000};
	struct weir_invoker_options o = standard();
	struct numbered n = {0};
	struct weir_line *l;
	struct caller c;
	int rc = begin(t, index, &o, &c), status;
	pid_t child;

	CHECK(!rc);
	/* a call is packed: the next one would go the inline way */
	CHECK(!weir_line_open(c.v, (struct weir_to){c.process ^ 1, 0}, &pack, PATIENT, &l));
	CHECK(!weir_line_call(l, COUNT, &n, sizeof(n)));
	n.number++;
	child = fork();
	if (!child)
		_exit(weir_line_call(l, COUNT, &n, sizeof(n)) != -ENOTCONN ||
		      weir_call(c.v, (struct weir_to){0, 0}, COUNT, &n, sizeof(n), NULL) !=
			  -ENOTCONN ||
		      weir_invoker_progress(c.v, 0, 0) != -ENOTCONN ||
		      weir_invoker_leave(c.v) != -ENOTCONN || weir_invoker_close(c.v));
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	CHECK(!weir_line_call(l, COUNT, &n, sizeof(n)));
	while (c.run < 2)
		CHECK(weir_invoker_progress(c.v, 0, PATIENT) > 0);
	return end(t, index, &c);
}

/* A child makes no calls, and those of the parent run once. */
TEST(test_fork)
{
	team_of(2, fork_packed);
}

static int
open_badly(struct team *t, uint32_t index)
{
	struct weir_function table[2] = {{.name = "a", .run = run_empty},
					 {.name = "a", .run = run_empty}};
	char name[65];
	struct weir_invoker *v;
	struct {
		struct weir_function f;
		int want;
	} bad[] = {
	    {{.name = NULL, .run = run_empty}, -EINVAL},
	    {{.name = "", .run = run_empty}, -EINVAL},
	    {{.name = name, .run = run_empty}, -EINVAL},
	    {{.name = "b"}, -EINVAL},
	    {{.name = "b", .flags = 2, .run = run_empty}, -EINVAL},
	    {{.name = "b", .min_length = 2, .max_length = 1, .run = run_empty}, -EINVAL},
	    {{.name = "b", .max_length = WEIR_ARGS_MAX + 1, .run = run_empty}, -EINVAL},
	    {{.name = "a", .run = run_empty}, -EEXIST},
	};
	struct weir_invoker_options o[] = {standard(), standard(), standard(), standard(),
					   standard(), standard(), standard(), standard()};

	memset(name, 'x', 64);
	name[64] = 0;
	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct weir_invoker_options one = standard();

		table[1] = bad[i].f;
		one.functions = table;
		one.function_count = 2;
		CHECK(weir_invoker_open(t->w[index], t->g[index], &one, &v) == bad[i].want);
	}
	o[0].size = 7;
	o[1].layout = 2;
	o[2].function_count = WEIR_FUNCTIONS_MAX + 1;
	o[3].threads = WEIR_INVOKE_THREADS_MAX + 1;
	o[4].pool_threads = WEIR_INVOKE_POOL_MAX + 1;
	o[5].batching.mode = 4;
	o[6].functions = NULL;
	o[7].queue_bytes = WEIR_BATCH_MAX - 1;
	for (uint32_t i = 0; i < 8; i++)
		CHECK(weir_invoker_open(t->w[index], t->g[index], &o[i], &v) == -EINVAL);
	/* none of these has begun a collective call */
	return weir_group_barrier(t->g[index], PATIENT) ? __LINE__ : 0;
}

TEST(test_open_badly)
{
	team_of(2, open_badly);
}
