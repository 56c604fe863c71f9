/* SPDX-License-Identifier: BSD-3-Clause */
/* Many threads that send, and handlers that run in several. */
#include "worlds/message_world.h"

struct job {
	struct side *s;
	uint16_t node;
	uint32_t index, count;
	pthread_barrier_t *sent; /* NULL: the thread ends when it has sent its own */
};

/* A thread's lanes end with it, and the connection with the last lane. */
static void
last(const struct job *j)
{
	if (j->sent)
		pthread_barrier_wait(j->sent);
}

static void *
send_many(void *arg)
{
	struct job *j = arg;
	uint32_t buf[300];

	for (uint32_t i = 0; i < j->count; i++) {
		size_t length = 8 + i % 1100;

		fill(buf, j->index, i, length);
		must(weir_message_send(j->s->m, j->node, TYPE_NOTE, buf, length, PATIENT));
	}
	last(j);
	return NULL;
}

static void *
ask_many(void *arg)
{
	struct job *j = arg;
	uint64_t in;
	size_t n;

	for (uint64_t i = 0; i < j->count; i++) {
		uint64_t out = i << 8 | j->index;

		must(weir_message_request(j->s->m, j->node, TYPE_ECHO, &out, 8, &in, 8, &n,
					  PATIENT));
		if (in != out)
			fatal("another's response", 0);
	}
	last(j);
	return NULL;
}

static void
many(const struct weir_messenger_options *o, const struct plane_options *f, unsigned threads)
{
	struct job jobs[12];
	struct both p;
	pthread_t t[12];
	pthread_barrier_t sent;

	open_both(&p, f, o);
	pthread_barrier_init(&sent, NULL, threads);
	for (unsigned i = 0; i < threads; i++) {
		bool asks = i % 3 == 2;

		jobs[i] = (struct job){.s = i % 2 ? &p.b : &p.a,
				       .node = i % 2 ? A : B,
				       .index = i,
				       .count = asks ? 200 : 1500,
				       .sent = &sent};
		pthread_create(&t[i], NULL, asks ? ask_many : send_many, &jobs[i]);
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	await(p.a.wrong + p.b.wrong || p.a.notes + p.b.notes == (threads - threads / 3) * 1500);
	assert_int_equal(p.a.wrong + p.b.wrong, 0);
	/* both ends at once: one connection */
	assert_int_equal(stats_of(&p.a).created, 1);
	assert_int_equal(stats_of(&p.b).created, 1);
	close_both(&p);
	pthread_barrier_destroy(&sent);
}

static void
test_threads(void **state)
{
	struct weir_messenger_options shared = WEIR_MESSENGER_OPTIONS_INIT,
				      more = WEIR_MESSENGER_OPTIONS_INIT;
	struct plane_options few = message_plane;

	many(NULL, NULL, 6);
	shared.lanes = 3; /* handler threads have two of them */
	many(&shared, NULL, 6);
	few.channels = 4; /* no more for threads that send */
	many(NULL, &few, 6);
	more.handler_threads = 4;
	more.receivers = 3;
	more.window = 64u << 10;
	more.threshold = 10;
	many(&more, NULL, 6);
}

/* A message at a handler counts as not consumed, and stays in its place. */
static void
test_consumed_late(void **state)
{
	uint8_t buf[6000] = {0};
	struct both p;
	uint32_t all;

	open_both(&p, NULL, NULL);
	all = p.b.w->geometry.recv_blocks;
	register_block(&p.b, 0);
	must(weir_message_request(p.a.m, B, TYPE_ECHO, buf, 6000, buf, 6000, NULL, PATIENT));
	await(plane_recv_blocks_free(p.f, p.b.w) == all);
	must(weir_message_send(p.a.m, B, TYPE_BLOCK, buf, 6000, PATIENT));
	await(blocked_now == 1);
	stays(plane_recv_blocks_free(p.f, p.b.w) == all - 1);
	atomic_store(&go, 1);
	await(plane_recv_blocks_free(p.f, p.b.w) == all);
	close_both(&p);
}

static void
test_blocked(void **state)
{
	struct job jobs[6];
	struct both p;
	pthread_t t[6];

	open_both(&p, NULL, NULL);
	register_block(&p.b, 0);
	must(weir_message_send(p.a.m, B, TYPE_BLOCK, "x", 1, PATIENT));
	await(blocked_now == 1);
	/* its next one waits for it */
	must(weir_message_send(p.a.m, B, TYPE_MUTE, "x", 1, PATIENT));
	/* others don't, whichever handler thread they talk to */
	for (unsigned i = 0; i < 6; i++) {
		jobs[i] = (struct job){.s = &p.a, .node = B, .index = i, .count = 300};
		pthread_create(&t[i], NULL, send_many, &jobs[i]);
	}
	for (unsigned i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	await(p.b.notes >= 1800 || p.b.wrong);
	stays(p.b.notes == 1800);
	assert_true(stats_of(&p.b).taken_over > 0);
	assert_int_equal(weir_message_unregister(p.b.m, TYPE_BLOCK, 20), -EAGAIN);
	atomic_store(&go, 1);
	await(p.b.notes == 1801);
	assert_int_equal(p.b.wrong, 0);
	close_both(&p);
}

static _Atomic uint32_t inside, inside_most, exclusives;

static void
exclusive(struct weir_messenger *m, const struct weir_message *message, void *user)
{
	uint32_t n = atomic_fetch_add(&inside, 1) + 1;

	(void)m, (void)message, (void)user;
	if (n > atomic_load(&inside_most))
		atomic_store(&inside_most, n);
	if (atomic_fetch_add(&exclusives, 1) % 1000 == 0)
		nap(20); /* time for another one to come in */
	atomic_fetch_sub(&inside, 1);
}

static void *
send_exclusive(void *arg)
{
	struct job *j = arg;
	uint8_t buf[2000] = {0};

	for (uint32_t i = 0; i < j->count; i++)
		must(weir_message_send(j->s->m, j->node, WEIR_TYPE(4, (uint8_t)(i % 2)), buf,
				       8 + i % 2 * 1500, PATIENT));
	return NULL;
}

static void
test_exclusive(void **state)
{
	struct weir_handler h = {
	    .size = sizeof(h), .handle = exclusive, .flags = WEIR_HANDLER_EXCLUSIVE};
	struct weir_messenger_options o = WEIR_MESSENGER_OPTIONS_INIT;
	struct job jobs[4];
	struct both p;
	pthread_t t[4];

	o.receivers = 2; /* both have lanes, whatever the CPUs */
	open_both(&p, NULL, &o);
	atomic_store(&inside_most, 0);
	atomic_store(&exclusives, 0);
	must(weir_message_register(p.b.m, WEIR_TYPE(4, 0), &h));
	must(weir_message_register(p.b.m, WEIR_TYPE(4, 1), &h));
	for (unsigned i = 0; i < 4; i++) {
		jobs[i] = (struct job){.s = &p.a, .node = B, .index = i, .count = 2000};
		pthread_create(&t[i], NULL, send_exclusive, &jobs[i]);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	await(exclusives == 8000);
	assert_int_equal(inside_most, 1);
	close_both(&p);
}

/* One sender, two messages at a time where order isn't asked for. */
static void
test_unordered(void **state)
{
	struct both p;

	open_both(&p, NULL, NULL);
	register_block(&p.b, WEIR_HANDLER_UNORDERED);
	must(weir_message_send(p.a.m, B, TYPE_BLOCK, "x", 1, PATIENT));
	must(weir_message_send(p.a.m, B, TYPE_BLOCK, "x", 1, PATIENT));
	await(blocked_now == 2);
	atomic_store(&go, 1);
	close_both(&p);
}

static void
test_unregister(void **state)
{
	struct weir_handler h = {.size = sizeof(h), .handle = mute};
	struct job job;
	struct both p;
	pthread_t t;

	open_both(&p, NULL, NULL);
	h.user = &p.b;
	job = (struct job){.s = &p.a, .node = B, .index = 1, .count = 5000};
	pthread_create(&t, NULL, send_many, &job);
	await(p.b.notes > 100);
	must(weir_message_unregister(p.b.m, TYPE_NOTE, PATIENT));
	must(weir_message_register(p.b.m, TYPE_NOTE, &h));
	pthread_join(t, NULL);
	await(stats_of(&p.b).handled + stats_of(&p.b).unknown == 5000);
	assert_int_equal(p.b.wrong, 0);
	assert_int_equal(p.b.notes + stats_of(&p.b).unknown, 5000);
	close_both(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_threads),   cmocka_unit_test(test_consumed_late),
	    cmocka_unit_test(test_blocked),   cmocka_unit_test(test_exclusive),
	    cmocka_unit_test(test_unordered), cmocka_unit_test(test_unregister),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
