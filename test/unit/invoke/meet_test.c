/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective calls of all threads: barrier, reduce, and quiet under storms of calls. */
#include "crew.h"

#include "invoke/invoker.h"

#define ROUNDS 40u

static uint64_t
next_random(uint64_t *x)
{
	*x = *x * 6364136223846793005u + 1442695040888963407u;
	return *x >> 33;
}

/* ---- barriers ---- */

static _Atomic uint32_t arrived;

static int
meet_often(struct hand *h)
{
	uint32_t threads = weir_invoker_threads(h->c.v, UINT32_MAX);
	uint64_t x = h->number;

	for (uint32_t i = 1; i <= ROUNDS; i++) {
		if (next_random(&x) % 4 == 0)
			usleep((unsigned)(next_random(&x) % 1000));
		atomic_fetch_add(&arrived, 1);
		CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
		CHECK(atomic_load(&arrived) >= i * threads);
		CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
		CHECK(atomic_load(&arrived) <= i * threads);
		CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	}
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_barrier)
{
	crew_init();
	for (uint32_t size = 1; size <= 4; size++) {
		atomic_store(&arrived, 0);
		crew_of(size, NULL, 0, meet_often);
	}
}

/* ---- combining ---- */

static int
combine_all(struct hand *h)
{
	uint32_t threads = weir_invoker_threads(h->c.v, UINT32_MAX);
	double mine[300], sum[300], again[300];
	uint64_t bits = UINT64_C(1) << h->number, all;

	for (uint32_t i = 0; i < 300; i++)
		mine[i] = 1.0 / (1 + h->number * 300 + i);
	CHECK(!weir_invoker_reduce(h->c.v, mine, sum, 300, WEIR_T_DOUBLE, WEIR_ACC_SUM, PATIENT));
	memcpy(again, mine, sizeof(mine));
	CHECK(
	    !weir_invoker_reduce(h->c.v, again, again, 300, WEIR_T_DOUBLE, WEIR_ACC_SUM, PATIENT));
	CHECK(!memcmp(sum, again, sizeof(sum)));
	CHECK(!weir_invoker_reduce(h->c.v, &bits, &all, 1, WEIR_T_UINT64, WEIR_ACC_BOR, PATIENT));
	CHECK(all == (UINT64_C(1) << threads) - 1);
	/* the first thread of the first process stands left, the last one right */
	CHECK(!weir_invoker_reduce(h->c.v, &h->number, &all, 1, WEIR_T_UINT32, WEIR_ACC_REPLACE,
				   PATIENT));
	CHECK((uint32_t)all == threads - 1);
	CHECK(!weir_invoker_reduce(h->c.v, NULL, NULL, 0, WEIR_T_INT8, WEIR_ACC_MAX, PATIENT));
	CHECK(weir_invoker_reduce(h->c.v, mine, sum, 1, WEIR_T_DOUBLE, WEIR_ACC_BOR, 0) == -EINVAL);
	CHECK(weir_invoker_reduce(h->c.v, NULL, sum, 1, WEIR_T_DOUBLE, WEIR_ACC_SUM, 0) == -EINVAL);
	CHECK(weir_invoker_reduce(h->c.v, mine, (char *)sum + 1, 1, WEIR_T_DOUBLE, WEIR_ACC_SUM,
				  0) == -EINVAL);
	CHECK(weir_invoker_reduce(h->c.v, mine, sum, SIZE_MAX / 8 + 2, WEIR_T_DOUBLE, WEIR_ACC_SUM,
				  0) == -EINVAL);
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_reduce)
{
	crew_init();
	for (uint32_t size = 1; size <= 5; size++)
		crew_of(size, NULL, 0, combine_all);
}

/* ---- quiet ---- */

enum { SPLIT };

static _Atomic uint64_t made, ran;
static __thread uint64_t dice;
static __thread struct weir_sync running;

struct seed {
	uint32_t hops, pad;
	uint64_t x;
};

static struct weir_to
any_thread(struct weir_invoker *v, uint64_t r, uint32_t processes)
{
	uint32_t thread = (uint32_t)(r / 64 % (THREADS + 1));

	return (struct weir_to){(uint32_t)(r % processes),
				thread == THREADS ? WEIR_THREAD_ANY : thread};
}

static void
call_split(struct weir_invoker *v, struct seed *s, uint32_t processes, struct weir_sync *sync)
{
	struct weir_call_options with = {.timeout_ms = -1, .sync = sync};

	atomic_fetch_add(&made, 1);
	if (weir_call(v, any_thread(v, s->x >> 20, processes), SPLIT, s, sizeof(*s), &with))
		atomic_fetch_add(&made, 1000000);
}

/* Calls others, fewer than one on average, and sometimes takes its time. */
static void
run_split(struct weir_incoming *c, const void *args, size_t length)
{
	struct weir_invoker *v = weir_incoming_invoker(c);
	uint32_t processes = *(const uint32_t *)weir_incoming_user(c);
	struct seed s;

	memcpy(&s, args, sizeof(s));
	if (next_random(&s.x) % 500 == 0)
		usleep(300);
	for (uint64_t n = s.hops ? next_random(&s.x) % 4 : 0; n; n--) {
		struct seed next = {.hops = s.hops - 1, .x = next_random(&s.x) * 77777 + n};

		call_split(v, &next, processes, NULL);
	}
	atomic_fetch_add(&ran, 1);
}

/* A call of a callback: its thread must not be taken as done before. */
static void
call_once_more(struct weir_sync *s, void *user)
{
	struct seed next = {.hops = 2, .x = next_random(&dice)};

	call_split(own->v, &next, *(uint32_t *)user, NULL);
}

static int
storm(struct hand *h)
{
	uint32_t processes = weir_group_size(h->c.g);

	for (uint32_t round = 0; round < ROUNDS; round++) {
		dice = h->number * 1000 + round;
		/* all know what is wrong: nothing is made before all have looked */
		CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
		weir_sync_init(&running, 0, call_once_more, &processes);
		if (round % 3 || h->number == round % processes) {
			weir_sync_add(&running, 5);
			for (uint32_t i = 0; i < 5; i++) {
				struct seed s = {.hops = round % 7,
						 .x = next_random(&dice) * 31 + i};

				call_split(h->c.v, &s, processes, &running);
			}
		}
		CHECK(!weir_invoker_quiet(h->c.v, PATIENT));
		CHECK(!weir_sync_left(&running, NULL));
		CHECK(atomic_load(&made) == atomic_load(&ran));
	}
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

static void
storms(uint32_t size, uint32_t mode)
{
	const struct weir_function splits[] = {{.name = "split",
						.min_length = sizeof(struct seed),
						.max_length = sizeof(struct seed),
						.run = run_split,
						.user = &size}};

	crew_init();
	crew.o.pool_threads = 1;
	crew.o.batching.mode = mode;
	crew.o.batching.delay_us = 1000000;
	atomic_store(&made, 0);
	atomic_store(&ran, 0);
	crew_of(size, splits, 1, storm);
	assert_true(atomic_load(&made) > 1000);
}

TEST(test_quiet)
{
	for (uint32_t size = 1; size <= 3; size++)
		for (uint32_t mode = WEIR_BATCH_AUTO; mode <= WEIR_BATCH_OVERFLOW; mode++)
			storms(size, mode);
}

/* Counters begin again at zero. */
static int
wrap(struct hand *h)
{
	struct invoke_thread *t = &h->c.v->threads[h->c.thread];

	atomic_store(&t->sent, UINT64_MAX - 3 * h->number);
	t->ran = UINT64_MAX - 3 * h->number;
	atomic_store(&t->closed, t->ran);
	return storm(h);
}

TEST(test_quiet_wraps)
{
	uint32_t size = 2;
	const struct weir_function splits[] = {{.name = "split",
						.min_length = sizeof(struct seed),
						.max_length = sizeof(struct seed),
						.run = run_split,
						.user = &size}};

	crew_init();
	crew.o.pool_threads = 1;
	atomic_store(&made, 0);
	atomic_store(&ran, 0);
	crew_of(size, splits, 1, wrap);
}

static void
run_told(struct weir_incoming *c, const void *args, size_t length)
{
	own->run++;
	/* no wait in a function */
	if (weir_invoker_barrier(own->v, 0) != -EDEADLK ||
	    weir_invoker_quiet(own->v, 0) != -EDEADLK)
		own->wrong++;
}

static const struct weir_function told[] = {{.name = "told", .run = run_told}};

/* A call that has run counts when all that it has made counts, and its answers have left. */
static int
close_turns(struct hand *h)
{
	struct weir_to self = {.process = h->c.process, .thread = h->c.thread};
	struct invoke_thread *t = &h->c.v->threads[h->c.thread];
	uint64_t sent, closed;
	struct ask ended = {0};
	struct line *l;

	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	closed = atomic_load(&t->closed);
	sent = atomic_load(&t->sent);
	t->ran++;
	CHECK(!weir_call(h->c.v, self, 0, NULL, 0, NULL)); /* its run is open */
	l = line_find(t, self);
	CHECK(l && atomic_load(&t->sent) == sent);
	l->owes = true;
	turn_close(t);
	CHECK(atomic_load(&t->closed) == closed);
	l->owes = false;
	t->futures_lost = true;
	turn_close(t);
	CHECK(atomic_load(&t->closed) == closed);
	t->futures_lost = false;
	t->ended = &ended;
	turn_close(t);
	CHECK(atomic_load(&t->closed) == closed);
	t->ended = NULL;
	turn_close(t);
	CHECK(atomic_load(&t->closed) == closed + 1 && atomic_load(&t->sent) == sent + 1);
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_turns)
{
	crew_init();
	crew.o.threads = 1;
	crew.o.batching.mode = WEIR_BATCH_FULL;
	crew.o.batching.delay_us = 1000000;
	crew_of(1, told, 1, close_turns);
}

/* ---- not all, not in time, not the same ---- */

static int
come_late(struct hand *h)
{
	bool late = h->number == 4; /* thread 1 of process 1 */
	uint64_t one = 1, sum = 0;
	int rc;

	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	if (!late) {
		CHECK(weir_invoker_reduce(h->c.v, &one, &sum, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 0) ==
		      -EAGAIN);
		rc = weir_invoker_reduce(h->c.v, &one, &sum, 1, WEIR_T_UINT64, WEIR_ACC_SUM, 20);
		CHECK(rc == -EAGAIN);
		if (h->c.process == 1)
			CHECK(strstr(weir_reason(), "process 1 waits for its threads 1"));
		else
			CHECK(strstr(weir_reason(), "process 1 has not made the call") ||
			      strstr(weir_reason(), "see the reason of thread"));
		CHECK(weir_invoker_barrier(h->c.v, 0) == -EBUSY);
		/* the late one is told by a call */
		CHECK(!weir_call(h->c.v, (struct weir_to){1, 1}, 0, NULL, 0, NULL));
	} else {
		while (h->c.run < 5)
			CHECK(weir_invoker_progress(h->c.v, 0, PATIENT) >= 0);
	}
	CHECK(!weir_invoker_reduce(h->c.v, &one, &sum, 1, WEIR_T_UINT64, WEIR_ACC_SUM, PATIENT));
	CHECK(sum == 6);
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_late)
{
	crew_init();
	crew_of(2, told, 1, come_late);
}

static int
differ(struct hand *h)
{
	bool other = h->number == 5;
	int rc;

	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	/* a call may be complete at some, and fail at others when the next one does */
	atomic_fetch_add(&arrived, 1);
	while (atomic_load(&arrived) < 2 * THREADS)
		usleep(100);
	do
		rc = other ? weir_invoker_quiet(h->c.v, PATIENT)
			   : weir_invoker_barrier(h->c.v, PATIENT);
	while (rc == -EAGAIN);
	CHECK(rc == -EINVAL || rc == -ECONNRESET);
	rc = weir_invoker_barrier(h->c.v, PATIENT);
	CHECK(rc == -EINVAL || rc == -ECONNRESET);
	/* calls go on, to those that have not left */
	rc = weir_call(h->c.v, (struct weir_to){h->c.process, h->c.thread}, 0, NULL, 0, NULL);
	CHECK(!rc && weir_invoker_progress(h->c.v, 0, PATIENT) > 0);
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_differ)
{
	crew_init();
	atomic_store(&arrived, 0);
	crew_of(2, told, 1, differ);
}

/* One leaves while the others wait for it: they go on without it. */
static int
leave(struct hand *h)
{
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	if (h->c.thread == 2) {
		usleep(3000);
		return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
	}
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	CHECK(!weir_invoker_quiet(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_leave)
{
	crew_init();
	for (uint32_t size = 1; size <= 3; size++)
		crew_of(size, NULL, 0, leave);
}

/* Calls run, and threads sleep, while the leader waits for another process. */
static int
serve_meanwhile(struct hand *h)
{
	struct weir_future f = {0};

	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	if (h->number == 5) {
		for (uint32_t i = 0; i < 200; i++) {
			usleep(200); /* the others sleep by now */
			CHECK(!weir_call_return(h->c.v, (struct weir_to){i % 2, i % 3}, 0, NULL, 0,
						&f, NULL, 0, NULL));
			CHECK(!weir_future_wait(h->c.v, &f, PATIENT));
		}
	} else if (h->number == 1) {
		for (uint32_t i = 0; i < 200; i++) {
			usleep(200);
			CHECK(!weir_call_return(h->c.v, (struct weir_to){0, i % 3}, 0, NULL, 0, &f,
						NULL, 0, NULL));
			CHECK(!weir_future_wait(h->c.v, &f, PATIENT));
		}
	}
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
	return weir_invoker_leave(h->c.v) ? __LINE__ : 0;
}

TEST(test_meanwhile)
{
	crew_init();
	crew_of(2, told, 1, serve_meanwhile);
}
