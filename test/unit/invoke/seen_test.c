/* SPDX-License-Identifier: BSD-3-Clause */
/* A function that runs, as operators see it, and as signals find its thread. */
#include "crew.h"

#include "client/session.h"
#include "invoke/invoker.h"
#include "ipc/shm.h"

#include <signal.h>

static const char LONG[] = "a_name_of_sixty_three_bytes_of_which_operators_see_the_first_55";
static_assert(sizeof(LONG) == WEIR_FUNCTION_NAME_MAX + 1, "the longest");

/* Operators see a handler at work on this function. */
static bool
is_seen(const struct weir *w, const char *name)
{
	const struct weir_arena_head *head = (const struct weir_arena_head *)w->arena;

	for (uint32_t i = 0; i < WEIR_HANDLER_LINES; i++) {
		const struct weir_handler_line *line = &head->handler[i];
		uint64_t words[sizeof(line->name) / sizeof(line->name[0])];
		char seen[sizeof(line->name)];

		for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
			words[k] = atomic_load_explicit(&line->name[k], memory_order_relaxed);
		memcpy(seen, words, sizeof(seen));
		if (seen[sizeof(seen) - 1])
			return false;
		if (atomic_load_explicit(&line->since, memory_order_relaxed) &&
		    !strncmp(seen, name, sizeof(seen) - 1) && strlen(seen) == strnlen(name, 55))
			return true;
	}
	return false;
}

static void
look(struct weir_incoming *c, const void *args, size_t length)
{
	const char *name = weir_incoming_user(c);
	uint32_t good;
	sigset_t now;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	good = (!own || !sigismember(&now, SIGUSR1)) && is_seen(weir_incoming_invoker(c)->w, name);
	weir_incoming_result(c, &good, sizeof(good));
}

static __thread bool over; /* nobody calls the thread any more */

static void
finish(struct weir_incoming *c, const void *args, size_t length)
{
	own->wrong += !is_seen(weir_incoming_invoker(c)->w, "end");
	over = true;
}

static const struct weir_function table[] = {
    {.name = "short", .run = look, .user = "short"},
    {.name = "end", .run = finish},
    {.name = LONG, .run = look, .user = (void *)LONG},
};

static int
call_one(struct hand *h, struct weir_to to, uint32_t function)
{
	struct weir_future f = {0};
	uint32_t good = 0;

	CHECK(!weir_call_return(h->c.v, to, function, NULL, 0, &f, &good, sizeof(good), NULL));
	CHECK(!weir_future_wait(h->c.v, &f, PATIENT));
	CHECK(good);
	return 0;
}

/* Of all threads, the pool's, too. */
static int
call_each(struct hand *h)
{
	for (uint32_t p = 0; p < weir_group_size(h->c.g); p++)
		for (uint32_t i = 0; i < 4 * (THREADS + 1); i++)
			CHECK(!call_one(
			    h, (struct weir_to){p, i / 4 < THREADS ? i / 4 : WEIR_THREAD_ANY},
			    i / 2 % 2 * 2));
	return 0;
}

static pthread_barrier_t entered;

static int
be_seen(struct hand *h)
{
	for (int again = 0; again < 2; again++) {
		/* the last call may arrive while the thread is still in the barrier */
		over = false;
		pthread_barrier_wait(&entered);
		CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
		if (!h->number) {
			usleep(20000); /* so that the others sleep, with signals kept out */
			CHECK(!call_each(h));
			CHECK(!weir_call_all(h->c.v, 1, NULL, 0, NULL));
		}
		while (!over) /* 0: the other process is lost, since all of its threads had left */
			CHECK(weir_invoker_progress(h->c.v, 0, PATIENT) >= 0);
		/* the last one is the first one again */
		CHECK(!call_one(h, (struct weir_to){h->c.process, h->c.thread}, 0));
		CHECK(!weir_invoker_barrier(h->c.v, PATIENT));
		CHECK(!weir_invoker_leave(h->c.v));
		/* what a thread has shown goes when it leaves */
		CHECK(again || !weir_invoker_enter(h->c.v, h->c.thread));
	}
	return 0;
}

static void
on_signal(int signal)
{
}

TEST(test_seen)
{
	struct sigaction a = {.sa_handler = on_signal};

	assert_int_equal(sigaction(SIGUSR1, &a, NULL), 0);
	crew_init();
	crew.o.pool_threads = 2;
	pthread_barrier_init(&entered, NULL, 2 * THREADS);
	crew_of(2, table, 3, be_seen);
	pthread_barrier_destroy(&entered);
}
