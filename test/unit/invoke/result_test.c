/* SPDX-License-Identifier: BSD-3-Clause */
/* Results: given, refused, later, cut, cancelled, lost. */
#include "caller.h"

enum { ADD, ROW_ADD, REFUSE, LATER, PASS_ON, MUTE, LONG };

#define OUTSTANDING 300u

static __thread int twice, unasked; /* of the thread that runs the calls */

static void
run_add(struct weir_incoming *c, const void *args, size_t length)
{
	uint64_t in[2], sum;

	memcpy(in, args, sizeof(in));
	sum = in[0] + in[1];
	if (weir_incoming_result(c, &sum, sizeof(sum)))
		unasked = weir_incoming_result(c, &sum, sizeof(sum));
	else
		twice = weir_incoming_result(c, &sum, sizeof(sum));
}

static void
add_row(struct weir_incoming *c, const void *args, size_t length, size_t stride, size_t count)
{
	if (count != 1)
		own->wrong++;
	run_add(c, args, length);
}

static void
run_refuse(struct weir_incoming *c, const void *args, size_t length)
{
	if (weir_incoming_refuse(c, 0) != -EINVAL || weir_incoming_refuse(c, 4096) != -EINVAL ||
	    weir_incoming_refuse(c, EDOM))
		own->wrong++;
}

/* Answers that are given later, by the thread that ran the calls. */
static __thread struct weir_answer answers[OUTSTANDING];
static __thread uint32_t answer_count;

static void
run_later(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_answer second;

	if (weir_incoming_later(c, &answers[answer_count++]) ||
	    weir_incoming_later(c, &second) != -EINVAL ||
	    weir_incoming_result(c, NULL, 0) != -EINVAL)
		own->wrong++;
}

/* A nested call: the caller's result is given when that of the next process has come. */
struct passed {
	struct weir_future f;
	struct weir_answer answer;
	uint64_t result;
	struct weir_invoker *v;
};

static void
pass_back(struct weir_future *f, void *user)
{
	struct passed *p = user;

	if (f->status || f->length != 8 || weir_answer(p->v, &p->answer, 0, &p->result, 8))
		own->wrong++;
	free(p);
}

static void
run_pass_on(struct weir_incoming *c, const void *args, size_t length)
{
	struct passed *p = calloc(1, sizeof(*p));
	uint64_t in[2] = {0};

	memcpy(in, args, sizeof(*in));
	p->v = weir_incoming_invoker(c);
	p->f.then = pass_back;
	p->f.user = p;
	in[1] = 1000;
	if (weir_incoming_later(c, &p->answer) ||
	    weir_call_return(p->v, (struct weir_to){(uint32_t)in[0], 0}, ADD, in, sizeof(in), &p->f,
			     &p->result, 8, NULL))
		own->wrong++;
}

static void
run_mute(struct weir_incoming *c, const void *args, size_t length)
{
	own->run++;
}

static void
run_long(struct weir_incoming *c, const void *args, size_t length)
{
	uint8_t bytes[WEIR_ARGS_MAX + 1];
	int rc;

	for (uint32_t i = 0; i <= WEIR_ARGS_MAX; i++)
		bytes[i] = (uint8_t)(i * 7);
	if (weir_incoming_result(c, bytes, WEIR_ARGS_MAX + 1) != -EMSGSIZE)
		own->wrong++;
	rc = weir_incoming_result(c, bytes, WEIR_ARGS_MAX);
	if (rc && rc != -EAGAIN) /* as in test_greedy() */
		own->wrong++;
}

static const struct weir_function returning[] = {
    [ADD] = {.name = "add", .min_length = 16, .max_length = 16, .run = run_add},
    [ROW_ADD] = {.name = "row", .min_length = 16, .max_length = 16, .run_many = add_row},
    [REFUSE] = {.name = "refuse", .run = run_refuse},
    [LATER] = {.name = "later", .run = run_later},
    [PASS_ON] = {.name = "pass on", .min_length = 8, .max_length = 8, .run = run_pass_on},
    [MUTE] = {.name = "mute", .run = run_mute},
    [LONG] = {.name = "long", .run = run_long},
};

static uint32_t mode;

static int
start(struct team *t, uint32_t index, struct caller *c)
{
	struct weir_invoker_options o = standard();

	o.functions = returning;
	o.function_count = sizeof(returning) / sizeof(returning[0]);
	o.batching.mode = mode;
	return begin(t, index, &o, c);
}

static uint32_t then_calls;

static void
note(struct weir_future *f, void *user)
{
	*(uint32_t *)user += 1;
}

static int
ask(struct team *t, uint32_t index)
{
	static __thread struct weir_future f[OUTSTANDING], *all[OUTSTANDING], again;
	static __thread uint64_t sum[OUTSTANDING];
	uint32_t thens = 0, any = 0;
	struct weir_to to = {0, 0};
	uint64_t in[2] = {0, 5};
	uint8_t bytes[WEIR_ARGS_MAX] = {0};
	struct caller c;
	int rc = start(t, index, &c);

	CHECK(!rc);
	for (uint32_t i = 0; i < OUTSTANDING; i++) {
		in[0] = i;
		to.process = i % t->size;
		f[i] = (struct weir_future){.then = note, .user = &thens};
		all[i] = &f[i];
		CHECK(!weir_call_return(c.v, to, i % 2 ? ADD : ROW_ADD, in, sizeof(in), &f[i],
					&sum[i], sizeof(sum[i]), NULL));
		CHECK(f[i].status == -EINPROGRESS || !f[i].status); /* a wait runs calls */
	}
	any = (uint32_t)weir_future_any(c.v, all, OUTSTANDING, PATIENT);
	CHECK(any < OUTSTANDING && !f[any].status);
	for (uint32_t i = 0; i < OUTSTANDING; i++) {
		CHECK(!weir_future_wait(c.v, &f[i], PATIENT));
		CHECK(sum[i] == i + 5 && f[i].length == sizeof(*sum));
	}
	CHECK(thens == OUTSTANDING);
	CHECK(!weir_future_wait(c.v, &f[0], 0)); /* again: it has ended */
	for (uint32_t p = 0; p < t->size; p++) {
		to.process = p;
		CHECK(!weir_call_return(c.v, to, REFUSE, NULL, 0, &again, NULL, 0, NULL));
		CHECK(weir_future_wait(c.v, &again, PATIENT) == -EDOM);
		memset(bytes, 0, sizeof(bytes));
		/* without a word an empty one */
		CHECK(!weir_call_return(c.v, to, MUTE, NULL, 0, &again, bytes, 8, NULL));
		CHECK(!weir_future_wait(c.v, &again, PATIENT) && !again.length);
		CHECK(!weir_call_return(c.v, to, LONG, NULL, 0, &again, bytes, 10, NULL));
		CHECK(!weir_future_wait(c.v, &again, PATIENT));
		CHECK(again.length == WEIR_ARGS_MAX && bytes[9] == 63 && !bytes[10]);
		CHECK(
		    !weir_call_return(c.v, to, LONG, NULL, 0, &again, bytes, sizeof(bytes), NULL));
		CHECK(!weir_future_wait(c.v, &again, PATIENT));
		CHECK(bytes[WEIR_ARGS_MAX - 1] == (uint8_t)((WEIR_ARGS_MAX - 1) * 7));
		/* of the caller's thread, by way of the next process */
		in[0] = p;
		to.process = (p + 1) % t->size;
		CHECK(!weir_call_return(c.v, to, PASS_ON, in, 8, &again, &sum[0], 8, NULL));
		CHECK(!weir_future_wait(c.v, &again, PATIENT) && sum[0] == p + 1000);
	}
	/* a call without a future whose function gives a result all the same */
	CHECK(!weir_call(c.v, (struct weir_to){c.process, 0}, ADD, in, sizeof(in), NULL));
	while (unasked != -EINVAL)
		CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
	CHECK(twice == -EINVAL);
	/* refused calls leave nothing outstanding, and tell nobody else */
	again = (struct weir_future){.then = note, .user = &then_calls};
	CHECK(weir_call_return(c.v, to, ADD, in, 15, &again, NULL, 0, NULL) == -EMSGSIZE);
	CHECK(again.status == -EMSGSIZE && !then_calls && again.then == note);
	return end(t, index, &c);
}

TEST(test_ask)
{
	for (mode = WEIR_BATCH_AUTO; mode <= WEIR_BATCH_OVERFLOW; mode++)
		for (uint32_t size = 1; size <= 3; size++)
			team_of(size, ask);
	mode = WEIR_BATCH_AUTO;
	team_of_one_node(2, ask);
}

/* ---- asleep ---- */

static int
sleep_for_ends(struct team *t, uint32_t index)
{
	static const uint64_t in[2] = {1, 2};
	struct weir_to other = {1, 0};
	uint32_t ended = 0;
	struct weir_future f = {.then = note, .user = &ended};
	struct weir_sync s;
	struct weir_call_options with = {.timeout_ms = -1, .sync = &s};
	struct caller c;
	int rc = start(t, index, &c);

	CHECK(!rc);
	for (uint32_t i = 0; !c.process && i < 20; i++) {
		ended = 0;
		CHECK(!weir_call_return(c.v, other, ADD, in, sizeof(in), &f, NULL, 0, NULL));
		while (!ended)
			CHECK(!weir_invoker_progress(c.v, 0, -1));
		weir_sync_init(&s, 1, NULL, NULL);
		CHECK(!weir_call(c.v, other, MUTE, NULL, 0, &with));
		while (weir_sync_left(&s, NULL))
			CHECK(!weir_invoker_progress(c.v, 0, -1));
	}
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	return end(t, index, &c);
}

/* The end of a future or a sync ends a sleep without limit. */
TEST(test_sleep)
{
	team_of(2, sleep_for_ends);
	team_of_one_node(2, sleep_for_ends);
}

/* ---- later, or never ---- */

static int
later(struct team *t, uint32_t index)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	static __thread struct weir_future f[OUTSTANDING];
	struct weir_answer wrong = {{0}};
	struct caller c;
	int rc = start(t, index, &c);

	CHECK(!rc);
	answer_count = 0;
	CHECK(weir_answer(c.v, &wrong, 0, NULL, 0) == -EINVAL);
	if (!c.process) {
		for (uint32_t i = 0; i < OUTSTANDING; i++)
			CHECK(!weir_call_return(c.v, (struct weir_to){1, 0}, LATER, NULL, 0, &f[i],
						NULL, 0, NULL));
		CHECK(weir_future_wait(c.v, &f[0], 0) == -EAGAIN);
		/* the first half is given up, and its slots are used again */
		for (uint32_t i = 0; i < OUTSTANDING / 2; i++) {
			weir_future_cancel(c.v, &f[i]);
			CHECK(f[i].status == -ECANCELED);
			weir_future_cancel(c.v, &f[i]);
		}
		CHECK(!weir_call_return(c.v, (struct weir_to){1, 0}, MUTE, NULL, 0, &f[0], NULL, 0,
					NULL));
		CHECK(!weir_future_wait(c.v, &f[0], PATIENT));
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		for (uint32_t i = OUTSTANDING / 2; i < OUTSTANDING; i++)
			CHECK(weir_future_wait(c.v, &f[i], PATIENT) == (i % 2 ? -ENOKEY : 0));
		do {
			CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
			CHECK(!weir_invoker_stats(c.v, &stats));
		} while (stats.ignored < OUTSTANDING / 2);
	} else {
		while (answer_count < OUTSTANDING)
			CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		for (uint32_t i = OUTSTANDING; i--;)
			CHECK(!weir_answer(c.v, &answers[i], i % 2 ? ENOKEY : 0, NULL, 0));
	}
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	return end(t, index, &c);
}

/* Results in another order; those of cancelled calls end no other future. */
TEST(test_later)
{
	team_of(2, later);
}

/* ---- lost ---- */

static int
leave_early(struct team *t, uint32_t index)
{
	struct weir_future f[4] = {0};
	struct weir_sync s;
	struct weir_call_options with = {.timeout_ms = -1, .sync = &s};
	uint64_t failed = 0;
	struct caller c;
	int rc = start(t, index, &c);

	CHECK(!rc);
	if (c.process) {
		answer_count = 0;
		while (answer_count < 2)
			CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
		/* the others have not come, or are not taken */
		weir_group_idle(t->g[index], NULL, NULL);
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		CHECK(!weir_invoker_leave(c.v));
	} else {
		weir_sync_init(&s, 2, NULL, NULL);
		for (uint32_t i = 0; i < 2; i++)
			CHECK(!weir_call_return(c.v, (struct weir_to){1, 0}, LATER, NULL, 0, &f[i],
						NULL, 0, NULL));
		CHECK(weir_future_wait(c.v, &f[0], 1) == -EAGAIN);
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		for (uint32_t i = 2; i < 4; i++) {
			rc = weir_call_return(c.v, (struct weir_to){1, 0}, MUTE, NULL, 0, &f[i],
					      NULL, 0, NULL);
			CHECK(!rc || rc == -ECONNREFUSED || rc == -EHOSTUNREACH);
			if (weir_call(c.v, (struct weir_to){1, 0}, MUTE, NULL, 0, &with))
				weir_sync_init(&s, weir_sync_left(&s, NULL) - 1, NULL, NULL);
		}
		for (uint32_t i = 0; i < 4; i++) {
			rc = weir_future_wait(c.v, &f[i], PATIENT);
			CHECK(rc == -EHOSTUNREACH || rc == -ECONNREFUSED);
		}
		if (weir_sync_left(&s, NULL)) {
			rc = weir_sync_wait(c.v, &s, PATIENT);
			CHECK(rc == -EHOSTUNREACH || rc == -ECONNREFUSED);
			CHECK(!weir_sync_left(&s, &failed) && failed);
		}
		CHECK(!weir_invoker_leave(c.v));
	}
	weir_group_idle(t->g[index], NULL, NULL);
	CHECK(!weir_group_barrier(t->g[index], PATIENT));
	CHECK(!c.wrong);
	return weir_invoker_close(c.v) ? __LINE__ : 0;
}

/* A thread leaves while others expect results of it: they end. */
TEST(test_leave_early)
{
	team_of(2, leave_early);
	team_of_one_node(2, leave_early);
}

/* ---- without room ---- */

#define GREEDY 2000u

static int
be_greedy(struct team *t, uint32_t index)
{
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct weir_invoker_options o = standard();
	static struct weir_future f[GREEDY];
	struct weir_future waits = {0};
	uint32_t lost = 0;
	struct caller c;
	int rc;

	o.functions = returning;
	o.function_count = sizeof(returning) / sizeof(returning[0]);
	o.queue_bytes = 1u << 20;
	o.window = 64u << 10;
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	answer_count = 0;
	if (c.process)
		CHECK(!weir_call_return(c.v, (struct weir_to){0, 0}, LATER, NULL, 0, &waits, NULL,
					0, NULL));
	while (!c.process && !answer_count)
		CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
	weir_group_idle(t->g[index], NULL, NULL);
	if (!c.process) {
		/* results are not taken meanwhile */
		for (uint32_t i = 0; i < GREEDY; i++) {
			f[i] = (struct weir_future){0};
			rc = weir_call_return(c.v, (struct weir_to){1, 0}, LONG, NULL, 0, &f[i],
					      NULL, 0, NULL);
			CHECK(!rc || rc == -EHOSTUNREACH);
		}
		/* behind all that */
		rc = weir_answer(c.v, &answers[0], 0, NULL, 0);
		CHECK(!rc || rc == -EHOSTUNREACH);
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		for (uint32_t i = 0; i < GREEDY; i++) {
			rc = weir_future_wait(c.v, &f[i], PATIENT);
			CHECK(!rc || rc == -EHOSTUNREACH);
			lost += rc != 0;
		}
		CHECK(lost);
		/* those that come behind them are answered */
		do {
			CHECK(!weir_call_return(c.v, (struct weir_to){1, 0}, MUTE, NULL, 0, &f[0],
						NULL, 0, NULL));
			rc = weir_future_wait(c.v, &f[0], PATIENT);
			CHECK(!rc || rc == -EHOSTUNREACH);
		} while (rc);
	} else {
		do {
			CHECK(weir_invoker_progress(c.v, 0, 10) >= 0);
			CHECK(!weir_invoker_stats(c.v, &stats));
		} while (!stats.malformed);
		/* what it waits for was on the line that has ended */
		CHECK(waits.status == -EHOSTUNREACH);
		CHECK(stats.queue_peak <= 2 * o.queue_bytes && stats.queue_peak > o.queue_bytes);
		weir_group_idle(t->g[index], serve, c.v);
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
	}
	weir_group_idle(t->g[index], serve, c.v);
	return end(t, index, &c);
}

/* A caller that takes no results loses its line, and costs no more than it may. */
TEST(test_greedy)
{
	team_of(2, be_greedy);
}

/* The same of a thread that calls itself, or another one of its process: it learns which results
 * had no room. */
static int
be_greedy_inside(struct team *t, uint32_t index)
{
	static struct weir_future f[GREEDY];
	struct weir_invoker_options o = WEIR_INVOKER_OPTIONS_INIT;
	uint32_t lost = 0;
	struct caller c;
	int rc;

	o.functions = returning;
	o.function_count = sizeof(returning) / sizeof(returning[0]);
	o.queue_bytes = 1u << 20;
	rc = begin(t, index, &o, &c);
	CHECK(!rc);
	for (uint32_t i = 0; i < GREEDY; i++) {
		f[i] = (struct weir_future){0};
		CHECK(!weir_call_return(c.v, (struct weir_to){c.process, 0}, LONG, NULL, 0, &f[i],
					NULL, 0, NULL));
	}
	for (uint32_t i = 0; i < GREEDY; i++) {
		rc = weir_future_wait(c.v, &f[i], PATIENT);
		CHECK(!rc || rc == -EHOSTUNREACH);
		lost += rc != 0;
	}
	CHECK(lost);
	/* when those that had room have come */
	do {
		CHECK(!weir_call_return(c.v, (struct weir_to){c.process, 0}, MUTE, NULL, 0, &f[0],
					NULL, 0, NULL));
		rc = weir_future_wait(c.v, &f[0], PATIENT);
		CHECK(!rc || rc == -EHOSTUNREACH);
	} while (rc);
	return end(t, index, &c);
}

TEST(test_greedy_inside)
{
	team_of(1, be_greedy_inside);
}

/* ---- a thread that leaves, and enters again ---- */

static int refused;

/* The thread leaves: it makes no calls any more. */
static void
call_again(struct weir_future *f, void *user)
{
	struct weir_to self = {own->process, 0};

	if (f->status != -ECANCELED)
		own->wrong++;
	refused = weir_call(own->v, self, MUTE, NULL, 0, NULL);
}

/* Process 0 makes the same calls twice. Answers of process 1 to those of the thread that has left
 * are nothing to those of the one that has entered. */
static int
enter_again(struct team *t, uint32_t index)
{
	struct weir_future f[2] = {{.then = call_again}, {0}};
	struct weir_invoker_stats stats = WEIR_INVOKER_STATS_INIT;
	struct weir_call_options with = {.flags = WEIR_CALL_NOW, .timeout_ms = -1};
	const struct weir_to other = {1, 0};
	struct weir_sync s[2];
	struct caller c;

	CHECK(!start(t, index, &c));
	weir_group_idle(t->g[index], NULL, NULL);
	answer_count = 0;
	if (c.process) {
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		while (answer_count < 1 || c.run < 1)
			CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
		/* behind what it says to the one that has left */
		CHECK(!weir_call(c.v, (struct weir_to){0, 0}, MUTE, NULL, 0, &with));
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		while (answer_count < 2 || c.run < 2)
			CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
		CHECK(!weir_answer(c.v, &answers[0], 0, NULL, 0));
		CHECK(!weir_call(c.v, (struct weir_to){0, 0}, MUTE, NULL, 0, &with));
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		CHECK(!weir_answer(c.v, &answers[1], 0, NULL, 0));
	} else {
		for (uint32_t i = 0; i < 2; i++) {
			with.sync = &s[i];
			weir_sync_init(&s[i], 1, NULL, NULL);
			CHECK(!weir_call(c.v, other, MUTE, NULL, 0, &with));
			with.sync = NULL;
			CHECK(!weir_call_return(c.v, other, LATER, NULL, 0, &f[i], NULL, 0, &with));
			if (i)
				break;
			CHECK(!weir_invoker_leave(c.v) && refused == -EPERM);
			CHECK(f[0].status == -ECANCELED && !weir_sync_left(&s[0], NULL));
			CHECK(!weir_invoker_enter(c.v, 0));
			CHECK(!weir_group_barrier(t->g[index], PATIENT));
			CHECK(!weir_group_barrier(t->g[index], PATIENT));
		}
		while (c.run < 1)
			CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
		CHECK(weir_sync_left(&s[1], NULL) == 1);
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		while (c.run < 2)
			CHECK(weir_invoker_progress(c.v, 0, PATIENT) >= 0);
		CHECK(f[1].status == -EINPROGRESS);
		CHECK(!weir_sync_wait(c.v, &s[1], PATIENT));
		CHECK(!weir_invoker_stats(c.v, &stats) && stats.ignored == 1 && !stats.malformed);
		CHECK(!weir_group_barrier(t->g[index], PATIENT));
		CHECK(!weir_future_wait(c.v, &f[1], PATIENT));
	}
	weir_group_idle(t->g[index], serve, c.v);
	return end(t, index, &c);
}

TEST(test_enter_again)
{
	for (mode = WEIR_BATCH_AUTO; mode <= WEIR_BATCH_OVERFLOW; mode++)
		team_of(2, enter_again);
}
