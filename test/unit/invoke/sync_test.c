/* SPDX-License-Identifier: BSD-3-Clause */
/* Syncs: calls of many lines count with one, in whatever mode they leave. */
#include "caller.h"

#define CALLS 5000u

static uint32_t mode;

static void
note(struct weir_sync *s, void *user)
{
	*(uint32_t *)user += 1;
	if (weir_invoker_progress(own->v, 0, 0) != -EDEADLK || weir_sync_left(s, NULL))
		own->wrong++;
}

static int
count(struct team *t, uint32_t index)
{
	struct weir_invoker_options o = standard();
	struct weir_call_options with = {.timeout_ms = -1},
				 sent = {.flags = WEIR_CALL_SYNC_SENT, .timeout_ms = -1};
	struct weir_sync many, other, copied;
	uint32_t ends = 0, row[3] = {0};
	uint64_t failed = 1;
	struct caller c;
	int rc;

	o.batching.mode = mode;
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	weir_sync_init(&many, 1, note, &ends);
	weir_sync_init(&other, 0, NULL, NULL);
	weir_sync_init(&copied, CALLS * t->size, NULL, NULL);
	for (uint32_t i = 0; i < CALLS; i++)
		for (uint32_t p = 0; p < t->size; p++) {
			struct weir_to to = {p, 0};

			row[0] = 2 * i;
			with.sync = i % 10 == 9 ? &other : &many;
			weir_sync_add(with.sync, 1);
			CHECK(!weir_call(c.v, to, ROW, row, sizeof(row), &with));
			sent.sync = &copied;
			row[0]++;
			CHECK(!weir_call(c.v, to, ROW, row, sizeof(row), &sent));
		}
	CHECK(!weir_sync_left(&copied, &failed) && !failed);
	CHECK(!weir_sync_wait(c.v, &other, PATIENT));
	CHECK(weir_sync_wait(c.v, &many, 1) == -EAGAIN && !ends);
	while (weir_sync_left(&many, NULL) > 1)
		CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
	/* the last one counts by a signal of its own */
	CHECK(!weir_sync_left(&other, NULL));
	/* as if its call had been refused */
	weir_sync_add(&many, (uint64_t)-1);
	CHECK(!weir_sync_wait(c.v, &many, PATIENT) && !ends);
	CHECK(!c.wrong);
	return end(t, index, &c);
}

TEST(test_count)
{
	for (mode = WEIR_BATCH_AUTO; mode <= WEIR_BATCH_OVERFLOW; mode++)
		for (uint32_t size = 1; size <= 3; size++)
			team_of(size, count);
	mode = WEIR_BATCH_AUTO;
	team_of_one_node(3, count);
}

/* ---- not before it has run ---- */

static int
wait_in_vain(struct team *t, uint32_t index)
{
	struct weir_invoker_options o = standard();
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_sync s;
	uint32_t row[3] = {0};
	struct caller c;
	int rc;

	o.batching.mode = mode;
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	weir_group_idle(t->g[index], NULL, NULL);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	if (!c.process) {
		weir_sync_init(&s, 3, NULL, NULL);
		with.sync = &s;
		for (; row[0] < 3; row[0]++)
			CHECK(
			    !weir_call(c.v, (struct weir_to){1, 0}, ROW, row, sizeof(row), &with));
		CHECK(weir_sync_wait(c.v, &s, 20) == -EAGAIN);
		CHECK(weir_sync_left(&s, NULL) == 3);
	}
	/* the other end takes nothing before this */
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	weir_group_idle(t->g[index], serve, c.v);
	if (!c.process)
		CHECK(!weir_sync_wait(c.v, &s, PATIENT));
	return end(t, index, &c);
}

TEST(test_in_vain)
{
	for (mode = WEIR_BATCH_AUTO; mode <= WEIR_BATCH_OVERFLOW; mode++)
		team_of(2, wait_in_vain);
}

/* ---- threads of one process, asleep ---- */

#define ROUNDS 100u

enum { SLOW, BACK };

static void
run_slow(struct weir_incoming *c, const void *args, size_t length)
{
	usleep(1000); /* the caller sleeps by now, if the machine is idle */
	own->run++;
}

static void
run_back(struct weir_incoming *c, const void *args, size_t length)
{
	own->run++;
}

static const struct weir_function slow[] = {
    [SLOW] = {.name = "slow", .run = run_slow},
    [BACK] = {.name = "back", .run = run_back},
};

/* So that the thread, which runs this while it makes progress, has a call to run. */
static void
call_self(struct weir_sync *s, void *user)
{
	if (weir_call(own->v, (struct weir_to){own->process, own->thread}, BACK, NULL, 0, NULL))
		own->wrong++;
}

static void *
be_slow(void *arg)
{
	struct caller *c = arg;

	own = c;
	if (weir_invoker_enter(c->v, 1))
		c->wrong++;
	pthread_barrier_wait(c->user);
	while (c->run < ROUNDS)
		if (weir_invoker_progress(c->v, 0, PATIENT) <= 0)
			c->wrong++;
	weir_invoker_leave(c->v);
	return NULL;
}

/* Both sleep most of the time, and wake each other. */
static int
wake_each_other(struct team *t, uint32_t index)
{
	struct weir_invoker_options o = standard();
	struct weir_call_options with = {.timeout_ms = -1};
	pthread_barrier_t entered;
	struct caller c, second;
	struct weir_sync s;
	pthread_t thread;
	int rc;

	o.functions = slow;
	o.function_count = 2;
	o.threads = 2;
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	second = c;
	second.thread = 1;
	second.user = &entered;
	pthread_barrier_init(&entered, NULL, 2);
	CHECK(!pthread_create(&thread, NULL, be_slow, &second));
	pthread_barrier_wait(&entered);
	with.sync = &s;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		usleep(1000); /* the other one sleeps by now */
		weir_sync_init(&s, 1, call_self, NULL);
		CHECK(!weir_call(c.v, (struct weir_to){c.process, 1}, SLOW, NULL, 0, &with));
		do /* 0: the sync has ended */
			rc = weir_invoker_progress(c.v, 0, PATIENT);
		while (!rc);
		CHECK(rc > 0 && !weir_sync_left(&s, NULL));
	}
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&entered);
	CHECK(!second.wrong && c.run == ROUNDS);
	return end(t, index, &c);
}

TEST(test_asleep)
{
	team_of(1, wake_each_other);
}

/* ---- signals by name ---- */

static int
signal_all(struct team *t, uint32_t index)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct weir_invoker_options o = standard();
	uint64_t name, old_name, names[MOST], old_names[MOST];
	struct weir_sync s, none;
	uint32_t ends = 0;
	struct caller c;
	int rc = begin(t, index, &o, &c);

	CHECK(!rc);
	weir_sync_init(&none, 1, NULL, NULL);
	CHECK(weir_sync_export(c.v, &none, 0, &old_name) == -EINVAL);
	CHECK(weir_sync_export(c.v, &none, 2, &old_name) == -EINVAL);
	CHECK(!weir_sync_export(c.v, &none, 1, &old_name));
	CHECK(!weir_sync_signal(c.v, c.process, old_name, 1));
	CHECK(!weir_sync_wait(c.v, &none, PATIENT));
	weir_sync_init(&s, 10 * t->size, note, &ends);
	CHECK(!weir_sync_export(c.v, &s, 10 * t->size, &name));
	CHECK(name != old_name);
	CHECK(!weir_group_allgather(t->g[index], &name, sizeof(name), names, PATIENT));
	CHECK(!weir_group_allgather(t->g[index], &old_name, sizeof(old_name), old_names, PATIENT));
	for (uint32_t p = 0; p < t->size; p++) {
		CHECK(!weir_sync_signal(c.v, p, old_names[p], 1));
		CHECK(!weir_sync_signal(c.v, p, names[p] ^ 1ull << 40, 1));
		CHECK(!weir_sync_signal(c.v, p, names[p], UINT64_MAX));
		CHECK(!weir_sync_signal(c.v, p, names[p], 3));
		CHECK(!weir_sync_signal(c.v, p, names[p], 7));
	}
	CHECK(!weir_sync_wait(c.v, &s, PATIENT));
	CHECK(ends == 1);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	for (uint32_t p = 0; p < t->size; p++)
		CHECK(!weir_sync_signal(c.v, p, names[p], 1));
	CHECK(weir_sync_signal(c.v, t->size, names[0], 1) == -ENOENT);
	do {
		CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
		CHECK(!weir_invoker_stats(c.v, &stats));
	} while (stats.ignored < 4 * t->size);
	return end(t, index, &c);
}

/* Signals for what has ended, for another generation, or for more than is outstanding do nothing.
 */
TEST(test_signal)
{
	team_of(1, signal_all);
	team_of(3, signal_all);
}

/* The peer signals what is not its own, and what is gone. */
static int
signal_too_often(struct team *t, uint32_t index)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct weir_call_options with = {.timeout_ms = -1};
	struct weir_invoker_options o = standard();
	struct weir_sync *s = malloc(sizeof(*s));
	uint64_t name[2], names[2][2];
	uint32_t row[3] = {0};
	struct caller c;
	int rc = begin(t, index, &o, &c);

	CHECK(!rc && s);
	/* two signals and a call; one that stays */
	weir_sync_init(s, 3, NULL, NULL);
	CHECK(!weir_sync_export(c.v, s, 2, &name[0]));
	CHECK(!weir_group_allgather(t->g[index], name, sizeof(name[0]), names, PATIENT));
	name[1] = names[0][1 - c.process];
	for (uint32_t i = 0; i < 5; i++)
		CHECK(!weir_sync_signal(c.v, 1 - c.process, name[1], i == 4 ? UINT64_MAX : 1));
	do {
		CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
		CHECK(!weir_invoker_stats(c.v, &stats));
	} while (stats.ignored < 3);
	CHECK(weir_sync_left(s, NULL) == 1);
	with.sync = s;
	CHECK(!weir_call(c.v, (struct weir_to){1 - c.process, 0}, ROW, row, sizeof(row), &with));
	CHECK(!weir_sync_wait(c.v, s, PATIENT));
	free(s);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	CHECK(!weir_sync_signal(c.v, 1 - c.process, name[1], 1));
	while (stats.ignored < 4) {
		CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
		CHECK(!weir_invoker_stats(c.v, &stats));
	}
	/* a name ends with the thread that gave it */
	s = malloc(sizeof(*s));
	CHECK(s);
	weir_sync_init(s, 1, NULL, NULL);
	CHECK(!weir_sync_export(c.v, s, 1, &name[0]));
	CHECK(!weir_group_allgather(t->g[index], name, sizeof(name[0]), names, PATIENT));
	name[1] = names[0][1 - c.process];
	weir_group_idle(t->g[index], NULL, NULL);
	CHECK(!weir_invoker_leave(c.v));
	CHECK(!weir_invoker_enter(c.v, 0));
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	weir_group_idle(t->g[index], serve, c.v);
	CHECK(!weir_sync_signal(c.v, 1 - c.process, name[1], 1));
	row[0] = 1;
	CHECK(!weir_call(c.v, (struct weir_to){1 - c.process, 0}, ROW, row, sizeof(row), NULL));
	while (c.run < 2)
		CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
	CHECK(!weir_invoker_stats(c.v, &stats) && stats.ignored == 5);
	CHECK(weir_sync_left(s, NULL) == 1);
	free(s);
	return end(t, index, &c);
}

TEST(test_signal_too_often)
{
	team_of(2, signal_too_often);
}
