/* SPDX-License-Identifier: BSD-3-Clause */
/* Slot rings, alone and between two threads; the lock that is free for its owner. */
#include "client/barrier.h"
#include "client/bias.h"
#include "common/slot.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SLOTS 64u

struct both {
	_Alignas(64) struct weir_slot slots[SLOTS];
	_Atomic uint64_t tail;
	struct weir_ring tx, rx;
};

static struct both *
make(void)
{
	struct both *b = aligned_alloc(64, sizeof(*b) + 64 - sizeof(*b) % 64);

	assert_non_null(b);
	memset(b, 0, sizeof(*b));
	weir_ring_init(&b->tx, b->slots, SLOTS, &b->tail, true);
	weir_ring_init(&b->rx, b->slots, SLOTS, &b->tail, false);
	return b;
}

static void
put(struct both *b, uint32_t seed, uint32_t length)
{
	uint8_t m[WEIR_INLINE_MAX];
	struct weir_slot *s = weir_ring_at(&b->tx, b->tx.pos);

	for (uint32_t i = 0; i < length; i++)
		m[i] = (uint8_t)(seed + i * 7);
	weir_ring_put_inline(&b->tx, m, length);
	s->op = WEIR_OP_INLINE;
	s->vqpn = seed;
	s->length = length;
	weir_ring_publish(&b->tx, weir_slots_inline(length));
}

static bool
get(struct both *b, uint32_t seed, uint32_t length)
{
	uint8_t m[WEIR_INLINE_MAX];
	struct weir_slot *s = weir_ring_peek(&b->rx);

	if (!s)
		return false;
	if (s->vqpn != seed || s->length != length || s->op != WEIR_OP_INLINE)
		fail_msg("message %u is another one", seed);
	weir_ring_get_inline(&b->rx, m, length);
	for (uint32_t i = 0; i < length; i++)
		if (m[i] != (uint8_t)(seed + i * 7))
			fail_msg("message %u differs at %u", seed, i);
	weir_ring_pop(&b->rx, weir_slots_inline(length));
	return true;
}

static void
test_every_length(void **state)
{
	struct both *b = make();

	(void)state;
	for (uint32_t length = 0; length <= WEIR_INLINE_MAX; length++) {
		uint32_t n = weir_slots_inline(length);

		assert_true(n >= 1 && n <= WEIR_INLINE_SLOTS);
		assert_true(length <= WEIR_SLOT_HEAD_BYTES + (n - 1) * WEIR_SLOT_MORE_BYTES);
		assert_true(n == 1 ||
			    length > WEIR_SLOT_HEAD_BYTES + (n - 2) * WEIR_SLOT_MORE_BYTES);
		assert_int_equal(weir_cost(length), n * WEIR_SLOT_SIZE);
		if (weir_ring_room(&b->tx) < n)
			assert_true(weir_ring_refresh(&b->tx));
		assert_true(weir_ring_room(&b->tx) >= n);
		assert_false(get(b, length, length));
		put(b, length, length);
		assert_true(get(b, length, length));
		assert_false(get(b, length, length));
	}
	assert_int_equal(weir_cost(WEIR_INLINE_MAX + 1), WEIR_SLOT_SIZE + WEIR_BLOCK_SIZE);
	free(b);
}

static void
test_full(void **state)
{
	struct both *b = make();

	(void)state;
	for (uint32_t lap = 0; lap < 10; lap++) {
		for (uint32_t i = 0; i < SLOTS; i++)
			put(b, i, 8);
		assert_int_equal(weir_ring_room(&b->tx), 0);
		assert_true(weir_ring_refresh(&b->tx));
		assert_int_equal(weir_ring_room(&b->tx), 0);
		for (uint32_t i = 0; i < SLOTS; i++)
			assert_true(get(b, i, 8));
		assert_false(get(b, 0, 8));
		weir_ring_publish_tail(&b->rx);
		assert_true(weir_ring_refresh(&b->tx));
		assert_int_equal(weir_ring_room(&b->tx), SLOTS);
	}
	free(b);
}

/* The consumer's tail is told at least every eighth of the ring. */
static void
test_tail_is_told(void **state)
{
	struct both *b = make();

	(void)state;
	for (uint32_t i = 0; i < SLOTS; i++)
		put(b, i, 8);
	for (uint32_t i = 0; i < SLOTS; i++) {
		assert_true(get(b, i, 8));
		assert_true(b->rx.pos - atomic_load(&b->tail) <= SLOTS / 8);
	}
	free(b);
}

static void
test_lying_tail(void **state)
{
	struct both *b = make();

	(void)state;
	for (uint32_t i = 0; i < 20; i++)
		put(b, i, 8);
	atomic_store(&b->tail, 10);
	assert_true(weir_ring_refresh(&b->tx));
	assert_int_equal(weir_ring_room(&b->tx), SLOTS - 10);
	atomic_store(&b->tail, 9); /* back */
	assert_false(weir_ring_refresh(&b->tx));
	atomic_store(&b->tail, 21); /* ahead */
	assert_false(weir_ring_refresh(&b->tx));
	atomic_store(&b->tail, UINT64_MAX);
	assert_false(weir_ring_refresh(&b->tx));
	assert_int_equal(weir_ring_room(&b->tx), SLOTS - 10);
	atomic_store(&b->tail, 20);
	assert_true(weir_ring_refresh(&b->tx));
	assert_int_equal(weir_ring_room(&b->tx), SLOTS);
	free(b);
}

/* Payload of an earlier lap that looks like a head is no head. */
static void
test_old_payload(void **state)
{
	struct both *b = make();
	uint32_t fake[WEIR_INLINE_MAX / 4];

	(void)state;
	for (uint32_t lap = 1; lap < 5; lap++) {
		for (uint32_t i = 0; i < SLOTS / 4; i++) {
			uint32_t length = WEIR_SLOT_HEAD_BYTES + 3 * WEIR_SLOT_MORE_BYTES;

			/* the sequence number that comes next here, everywhere */
			for (unsigned k = 0; k < sizeof(fake) / 4; k++)
				fake[k] = lap * SLOTS + i * 4 + 1;
			weir_ring_put_inline(&b->tx, fake, length);
			weir_ring_at(&b->tx, b->tx.pos)->length = length;
			weir_ring_publish(&b->tx, 4);
			assert_non_null(weir_ring_peek(&b->rx));
			weir_ring_pop(&b->rx, 4);
			assert_null(weir_ring_peek(&b->rx));
			weir_ring_publish_tail(&b->rx);
			weir_ring_refresh(&b->tx);
		}
	}
	free(b);
}

/* ---- two threads ---- */

#define STRESS 60000u

static uint32_t
stress_length(uint32_t i)
{
	return i * 2654435761u % (i % 8 ? 120 : WEIR_INLINE_MAX + 1);
}

static void *
produce(void *arg)
{
	struct both *b = arg;

	for (uint32_t i = 0; i < STRESS; i++) {
		while (weir_ring_room(&b->tx) < weir_slots_inline(stress_length(i))) {
			if (!weir_ring_refresh(&b->tx))
				abort();
			sched_yield();
		}
		put(b, i, stress_length(i));
	}
	return NULL;
}

static void
test_two_threads(void **state)
{
	struct both *b = make();
	pthread_t t;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, produce, b), 0);
	for (uint32_t i = 0; i < STRESS; i++) {
		while (!get(b, i, stress_length(i))) {
			weir_ring_publish_tail(&b->rx);
			sched_yield();
		}
	}
	pthread_join(t, NULL);
	free(b);
}

/* ---- the biased lock ---- */

struct guarded {
	struct weir_bias lock;
	uint64_t plain, copy; /* protected by it */
	uint32_t rounds;
	bool passing;
};

static void *
count(void *arg)
{
	struct guarded *g = arg;

	for (uint32_t i = 0; i < g->rounds; i++) {
		weir_bias_lock(&g->lock);
		if (g->plain != g->copy)
			abort();
		g->plain++;
		g->copy++;
		weir_bias_unlock(&g->lock);
		if (i % 64 == 0)
			sched_yield();
	}
	return NULL;
}

static void *
come_by(void *arg)
{
	struct guarded *g = arg;

	for (uint32_t i = 0; i < g->rounds / 16; i++) {
		weir_bias_lock_slow(&g->lock);
		g->plain++;
		g->copy++;
		weir_bias_unlock_passing(&g->lock);
		sched_yield();
	}
	return NULL;
}

static void
test_bias(void **state)
{
	struct guarded g = {.rounds = 20000};
	pthread_t t[3];

	(void)state;
	weir_barrier_register();
	assert_int_equal(weir_bias_init(&g.lock), 0);
	assert_int_equal(pthread_create(&t[0], NULL, come_by, &g), 0);
	count(&g);
	pthread_join(t[0], NULL);
	assert_int_equal(g.plain, g.rounds + g.rounds / 16);
	/* still free for one thread: a helper takes nothing away for good */
	weir_bias_lock(&g.lock);
	weir_bias_unlock(&g.lock);
	assert_true(weir_bias_is_owner(&g.lock) || !weir_barrier_private());
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, count, &g), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(g.plain, 4ul * g.rounds + g.rounds / 16);
	weir_bias_fini(&g.lock);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_length), cmocka_unit_test(test_full),
	    cmocka_unit_test(test_tail_is_told), cmocka_unit_test(test_lying_tail),
	    cmocka_unit_test(test_old_payload),	 cmocka_unit_test(test_two_threads),
	    cmocka_unit_test(test_bias),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
