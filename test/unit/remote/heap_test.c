/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send blocks: operations that have ended hold all of them, on connections that nobody flushes.
 * Whoever needs some finds them.
 */
#define _GNU_SOURCE
#define BYTES (1u << 21)
#include "places.h"

#include "client/session.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#define HOLDERS 4u
#define PIECE 32768u
#define PATIENT_MS 20000u

struct world {
	struct pair p;
	struct memory m; /* of the pair's programs */
	struct weir_remote *holder[HOLDERS], *next;
	uint8_t *bytes; /* PIECE of them */
	/* of a thread */
	sem_t opened, exhausted;
	int rc;
};

static struct world
world_open_with(uint32_t blocks)
{
	struct world v = {.bytes = make_message(1, PIECE)};

	v.p = pair_open(PLANE_REMOTE,
			&(struct plane_options){.send_blocks = blocks, .watched = true}, false);
	v.m = (struct memory){.f = v.p.f, .a = v.p.a, .b = v.p.b};
	memory_export(&v.m, ALL);
	plane_run(v.p.f);
	for (unsigned i = 0; i < HOLDERS; i++)
		v.holder[i] = open_key(&v.m, ALL);
	v.next = open_key(&v.m, ALL);
	return v;
}

static void
world_close(struct world *v)
{
	for (unsigned i = 0; i < HOLDERS; i++)
		weir_remote_close(v->holder[i]);
	weir_remote_close(v->next);
	plane_stop(v->p.f);
	pair_close(&v->p);
	free(v->bytes);
}

static struct world
world_open(void)
{
	return world_open_with(128);
}

/* Puts that take all blocks, and have ended, but for those `held` in the data plane. */
static void
exhaust(struct world *v, bool held)
{
	uint64_t at = 0;
	uint8_t last = 0;
	int rc;

	for (unsigned i = 0; i < HOLDERS; i++)
		assert_int_equal(weir_remote_flush(v->holder[i], PATIENT), 0);
	assert_int_equal(weir_remote_flush(v->next, PATIENT), 0);
	memset(v->m.base, 0, LENGTH);
	plane_hold(v->p.f, held);
	for (uint32_t n = PIECE; n >= WEIR_BLOCK_SIZE; n /= 2) {
		for (unsigned i = 0; !(rc = weir_remote_put(v->holder[i % HOLDERS], at, v->bytes, n,
							    WEIR_NOWAIT | WEIR_WRITE));
		     i++) {
			at += n;
			last = v->bytes[n - 1];
		}
		assert_int_equal(rc, -EAGAIN);
	}
	assert_true(at > HOLDERS * PIECE);
	for (uint32_t i = 0; !held && i < PATIENT_MS && v->m.base[at - 1] != last; i++)
		usleep(1000);
}

/* Calls again while the call, which does not wait, has no room. */
#define AWAIT(call)                                                                                \
	for (uint32_t await_i = 0;; await_i++) {                                                   \
		int await_rc = call;                                                               \
                                                                                                   \
		if (await_rc != -EAGAIN || await_i == PATIENT_MS) {                                \
			assert_int_equal(await_rc, 0);                                             \
			break;                                                                     \
		}                                                                                  \
		usleep(1000);                                                                      \
	}

/* They have ended before others need them, or after. */
static void
test_operations(void **state)
{
	uint8_t *in = malloc(PIECE);

	for (unsigned held = 0; held < 2; held++) {
		struct world v = world_open();

		exhaust(&v, held);
		if (held) {
			assert_int_equal(weir_remote_put(v.next, 0, v.bytes, PIECE, WEIR_NOWAIT),
					 -EAGAIN);
			plane_hold(v.p.f, false);
		}
		AWAIT(weir_remote_put(v.next, 0, v.bytes, PIECE, WEIR_NOWAIT));
		exhaust(&v, false);
		AWAIT(weir_remote_get(v.next, PIECE, in, 300, WEIR_NOWAIT));
		exhaust(&v, false);
		AWAIT(weir_remote_get(v.next, PIECE, in, PIECE, WEIR_NOWAIT));
		assert_int_equal(weir_remote_flush(v.next, PATIENT), 0);
		assert_memory_equal(in, v.bytes, PIECE);
		world_close(&v);
	}
	free(in);
}

/* Connections keep memory for small answers, though none is awaited. */
static void
test_answers(void **state)
{
	struct world v = world_open_with(HOLDERS);
	uint64_t in[HOLDERS + 1];

	memset(v.m.base, 1, sizeof(in));
	for (unsigned i = 0; i < HOLDERS; i++) {
		AWAIT(weir_remote_get(v.holder[i], 8 * i, &in[i], 8, WEIR_NOWAIT));
		assert_int_equal(weir_remote_flush(v.holder[i], PATIENT), 0);
	}
	AWAIT(weir_remote_get(v.next, 8 * HOLDERS, &in[HOLDERS], 8, WEIR_NOWAIT));
	assert_int_equal(weir_remote_flush(v.next, PATIENT), 0);
	assert_memory_equal(in, v.m.base, sizeof(in));
	world_close(&v);
}

/* A message needs them, and a reservation. */
static void
test_messages(void **state)
{
	struct world v = world_open();
	void *reserved;

	exhaust(&v, false);
	AWAIT(weir_send(v.p.c, v.bytes, PIECE, 0));
	exhaust(&v, false);
	AWAIT(weir_send_reserve(v.p.c, PIECE, 0, &reserved));
	weir_send_abandon(v.p.c, reserved);
	world_close(&v);
}

static void *
put_waiting(void *arg)
{
	struct world *v = arg;

	v->rc = weir_remote_put(v->next, 0, v->bytes, 8, 0); /* opens the connection */
	sem_post(&v->opened);
	while (sem_wait(&v->exhausted))
		continue;
	if (!v->rc)
		v->rc = weir_remote_put(v->next, 0, v->bytes, PIECE, 0);
	return NULL;
}

/*
 * Another thread waits for them, by each way to wait, while the one that put makes no calls; they
 * end before it, or while it sleeps.
 */
static void
test_threads(void **state)
{
	struct timespec end;
	pthread_t thread;

	for (unsigned i = 0; i < 3; i++) {
		struct world v = world_open();
		bool held = i == 2;

		v.m.a->polling = i == 1;
		sem_init(&v.opened, 0, 0);
		sem_init(&v.exhausted, 0, 0);
		assert_int_equal(pthread_create(&thread, NULL, put_waiting, &v), 0);
		while (sem_wait(&v.opened))
			continue;
		exhaust(&v, held);
		sem_post(&v.exhausted);
		if (held) {
			usleep(100000); /* the thread sleeps by now */
			plane_hold(v.p.f, false);
		}
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec += PATIENT_MS / 1000;
		assert_int_equal(pthread_timedjoin_np(thread, NULL, &end), 0);
		assert_int_equal(v.rc, 0);
		world_close(&v);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_operations),
	    cmocka_unit_test(test_answers),
	    cmocka_unit_test(test_messages),
	    cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
