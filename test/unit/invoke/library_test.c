/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls for libraries that stand on an invoker: who and where one is, and the end of a wait. */
#include "crew.h"

#define LENGTH 1000u

static void
ignore(struct weir_incoming *c, const void *args, size_t length)
{
	(void)c, (void)args, (void)length;
}

static void
end_wait(struct weir_incoming *c, const void *args, size_t length)
{
	(void)args, (void)length;
	weir_incoming_end_wait(c);
}

enum { IGNORE, END_WAIT, NAMED };
static const struct weir_function table[] = {
    [IGNORE] = {"test.ignore", 1, 0, 0, LENGTH, ignore, NULL, NULL, NULL, NULL},
    [END_WAIT] = {"test.end_wait", 1, 0, 0, 0, end_wait, NULL, NULL, NULL, NULL},
    [NAMED] = {"test.ignore", 2, 0, 0, 0, ignore, NULL, NULL, NULL, NULL},
};

static int
ask(struct hand *h)
{
	struct weir_to self;

	CHECK(!weir_invoker_self(h->c.v, &self));
	CHECK(self.process == h->c.process && self.thread == h->c.thread);
	CHECK(weir_invoker_processes(h->c.v) == 2);
	CHECK(weir_invoker_function(h->c.v, "test.ignore", 1) == IGNORE);
	CHECK(weir_invoker_function(h->c.v, "test.ignore", 2) == NAMED);
	CHECK(weir_invoker_function(h->c.v, "test.ignore", 3) == -ENOENT);
	CHECK(weir_invoker_function(h->c.v, "test.other", 1) == -ENOENT);
	CHECK(!weir_invoker_status(h->c.v, 0) && !weir_invoker_status(h->c.v, 1));
	CHECK(weir_invoker_status(h->c.v, 2) == -ENOENT);
	return 0;
}

static void
test_ask(void **state)
{
	(void)state;
	crew_init();
	crew_of(2, table, sizeof(table) / sizeof(table[0]), ask);
}

static pthread_barrier_t full, ended;
static _Atomic bool over;

/* Thread 0 of process 0 floods a thread that takes nothing, and another one ends its wait. */
static int
flood(struct hand *h)
{
	static const uint8_t bytes[LENGTH];
	struct weir_to deaf = {1, 0}, flooder = {0, 0};
	struct weir_call_options now = {.flags = WEIR_CALL_FULL_FAILS}, wait = {.timeout_ms = -1};
	int rc;

	CHECK(!weir_invoker_barrier(h->c.v, -1)); /* all have entered */
	if (h->c.process == 0 && h->c.thread == 0) {
		while (!(rc = weir_call(h->c.v, deaf, IGNORE, bytes, LENGTH, &now)))
			;
		CHECK(rc == -EAGAIN);
		pthread_barrier_wait(&full);
		while (!(rc = weir_call(h->c.v, deaf, IGNORE, bytes, LENGTH, &wait)))
			;
		CHECK(rc == -EAGAIN); /* which an endless wait returns for that reason alone */
		atomic_store(&over, true);
		pthread_barrier_wait(&ended);
	} else if (h->c.process == 1 && h->c.thread < 2) {
		pthread_barrier_wait(&full);
		/* one that comes as a wait ends by itself ends no later one */
		while (h->c.thread == 1 && !atomic_load(&over)) {
			CHECK(!weir_call(h->c.v, flooder, END_WAIT, NULL, 0, NULL));
			CHECK(weir_invoker_progress(h->c.v, 0, 1) >= 0);
		}
		pthread_barrier_wait(&ended);
	}
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	return 0;
}

static void
test_end_wait(void **state)
{
	(void)state;
	pthread_barrier_init(&full, NULL, 3);
	pthread_barrier_init(&ended, NULL, 3);
	crew_init();
	crew_of(2, table, sizeof(table) / sizeof(table[0]), flood);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_ask),
	    cmocka_unit_test(test_end_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
