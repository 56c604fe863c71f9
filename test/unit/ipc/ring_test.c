/* SPDX-License-Identifier: BSD-3-Clause */
/* Slot rings, alone and between two threads; the lock that is free for its owner. */
#define _GNU_SOURCE
#include "worlds/test.h"
#include "client/membarrier.h"
#include "client/biased_lock.h"
#include "ipc/slot.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <ucontext.h>

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

/* A test with a ring, b. */
#define TEST_RING(name)                                                                            \
	static void name(struct both *b);                                                          \
	TEST(run_##name)                                                                           \
	{                                                                                          \
		struct both *b = make();                                                           \
                                                                                                   \
		name(b);                                                                           \
		free(b);                                                                           \
	}                                                                                          \
	static void name(struct both *b)

static void
put(struct both *b, uint32_t seed, uint32_t length)
{
	uint8_t m[WEIR_INLINE_MAX] = {0};
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

TEST_RING(test_every_length)
{
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
}

TEST_RING(test_full)
{
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
}

/* The consumer's tail is told at least every eighth of the ring. */
TEST_RING(test_tail_is_told)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		put(b, i, 8);
	for (uint32_t i = 0; i < SLOTS; i++) {
		assert_true(get(b, i, 8));
		assert_true(b->rx.pos - atomic_load(&b->tail) <= SLOTS / 8);
	}
}

TEST_RING(test_lying_tail)
{
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
}

/* Payload of an earlier lap that looks like a head is no head. */
TEST_RING(test_old_payload)
{
	uint32_t fake[WEIR_INLINE_MAX / 4];

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
}

/* ---- two threads ---- */

#define STRESS 60000u
#define PATIENCE_S 30 /* for a message that the other thread has yet to send */

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

TEST_RING(test_two_threads)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, produce, b), 0);
	for (uint32_t i = 0; i < STRESS; i++) {
		time_t since = time(NULL);

		while (!get(b, i, stress_length(i))) {
			assert_true(time(NULL) - since < PATIENCE_S);
			weir_ring_publish_tail(&b->rx);
			sched_yield();
		}
	}
	pthread_join(t, NULL);
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

TEST(test_bias)
{
	struct guarded g = {.rounds = 20000};
	pthread_t t[3];

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

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* its runtime takes too many steps */
#define CAN_STEP
#define TRAP_FLAG 0x100

/* A thread that executes one instruction after the other, and is held up before one of them. */
static struct {
	struct guarded g;
	unsigned steps;	 /* to go before that */
	unsigned inside; /* steps at which nobody else got in */
	_Atomic bool held, go, goes, over, busy, both;
} slow;

static void
after_step(int signal, siginfo_t *info, void *context)
{
	greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
	struct timespec nap = {0, 1000};

	if (slow.over) {
		*flags &= ~TRAP_FLAG;
	} else if (slow.steps && --slow.steps == 0) {
		slow.held = true;
		for (int i = 0; i < 2000 && !slow.go; i++)
			nanosleep(&nap, NULL);
		slow.inside += !slow.go;
		slow.goes = true;
		*flags &= ~TRAP_FLAG;
	}
}

static void *
walk(void *arg)
{
	weir_bias_lock(&slow.g.lock);
	weir_bias_unlock(&slow.g.lock); /* it is the owner now */
	__asm__ __volatile__(
	    "sub $128, %%rsp\n\tpushfq\n\torq %0, (%%rsp)\n\tpopfq\n\tadd $128, %%rsp"
	    :
	    : "i"(TRAP_FLAG)
	    : "memory", "cc");
	weir_bias_lock(&slow.g.lock);
	slow.over = true; /* ends the steps */
	if (slow.busy)
		slow.both = true;
	weir_bias_unlock(&slow.g.lock);
	slow.held = true;
	return NULL;
}

/*
 * An owner that is held up between its two looks at who the owner is, until another thread has
 * become it and is inside: what it stores when it goes on says nothing of that one.
 */
TEST(test_bias_held_up)
{
	struct sigaction now = {.sa_sigaction = after_step, .sa_flags = SA_SIGINFO}, before;
	unsigned steps = 0;
	pthread_t t;

	slow.inside = 0;
	weir_barrier_register();
	assert_int_equal(sigaction(SIGTRAP, &now, &before), 0);
	do {
		assert_int_equal(weir_bias_init(&slow.g.lock), 0);
		slow.steps = ++steps;
		slow.held = slow.go = slow.goes = slow.over = false;
		assert_int_equal(pthread_create(&t, NULL, walk, NULL), 0);
		while (!slow.held)
			sched_yield();
		weir_bias_lock(&slow.g.lock);
		weir_bias_unlock(&slow.g.lock);
		weir_bias_lock(&slow.g.lock);
		slow.busy = true;
		slow.go = true;
		while (!slow.goes && !slow.over) /* it may wait for a CPU */
			sched_yield();
		usleep(1000);
		slow.busy = false;
		weir_bias_unlock(&slow.g.lock);
		pthread_join(t, NULL);
		weir_bias_fini(&slow.g.lock);
		assert_false(slow.both);
		/* more than once, since this thread may have been held up too */
	} while (!slow.steps && slow.inside < 3);
	assert_true(steps > 5);
	sigaction(SIGTRAP, &before, NULL);
}
#endif

/* ---- paired rings ---- */

struct end {
	struct weir_ring *tx, *rx;
	uint32_t sent, received;
};

struct pair {
	struct both *to_b, *to_a;
	struct end end[2];
};

static struct pair
make_pair(void)
{
	struct pair p = {.to_b = make(), .to_a = make()};

	p.end[0] = (struct end){&p.to_b->tx, &p.to_a->rx, 0, 0};
	p.end[1] = (struct end){&p.to_a->tx, &p.to_b->rx, 0, 0};
	return p;
}

/* A test with a pair of rings, p. */
#define TEST_PAIR(name)                                                                            \
	static void name(struct pair *p);                                                          \
	TEST(run_##name)                                                                           \
	{                                                                                          \
		struct pair p = make_pair();                                                       \
                                                                                                   \
		name(&p);                                                                          \
		free(p.to_a);                                                                      \
		free(p.to_b);                                                                      \
	}                                                                                          \
	static void name(struct pair *p)

/* Lengths and contents follow from the message's number. */
static uint32_t
length_of(uint32_t number)
{
	return number * 2654435761u % 13 ? number * 40503u % 100
					 : number * 40503u % WEIR_INLINE_MAX;
}

static bool
pair_send(struct end *e, uint32_t length)
{
	uint32_t n = weir_slots_inline(length);
	uint8_t m[WEIR_INLINE_MAX];
	struct weir_slot *s;

	if (weir_ring_room(e->tx) < n && (!weir_ring_refresh(e->tx) || weir_ring_room(e->tx) < n))
		return false;
	for (uint32_t i = 0; i < length; i++)
		m[i] = (uint8_t)(e->sent * 3 + i);
	weir_ring_put_inline(e->tx, m, length);
	s = weir_ring_at(e->tx, e->tx->pos);
	weir_slot_whose(s, e->sent++, length);
	weir_ring_publish_paired(e->tx, s, n,
				 weir_slot_what(WEIR_OP_INLINE, 0, (uint16_t)e->rx->pos));
	return true;
}

static bool
pair_receive(struct end *e)
{
	const struct weir_slot *s = weir_ring_peek(e->rx);
	uint8_t m[WEIR_INLINE_MAX];

	if (!s)
		return false;
	if (s->vqpn != e->received)
		fail_msg("message %u instead of %u", s->vqpn, e->received);
	weir_ring_get_inline(e->rx, m, s->length);
	for (uint32_t i = 0; i < s->length; i++)
		if (m[i] != (uint8_t)(e->received * 3 + i))
			fail_msg("message %u differs at %u", e->received, i);
	e->received++;
	weir_ring_answered(e->tx, s->order);
	weir_ring_pop_paired(e->rx, s->flags, weir_slots_inline(s->length));
	return true;
}

static void
converse(struct pair *p, uint32_t turns)
{
	for (uint32_t i = 0; i < turns; i++) {
		assert_true(pair_send(&p->end[0], 64));
		assert_true(pair_receive(&p->end[1]));
		assert_true(pair_send(&p->end[1], 64));
		assert_true(pair_receive(&p->end[0]));
	}
}

TEST_PAIR(test_conversation)
{
	converse(p, 100);
	/* few lines again and again */
	for (uint32_t i = 0; i < 100; i++) {
		converse(p, 1);
		assert_true(p->to_b->tx.pos - p->to_b->tx.base < 8);
		assert_int_equal(p->to_b->tx.base, p->to_b->rx.base);
	}
}

/* After a restart a burst stops before what was not read, and goes on when it was. */
TEST_PAIR(test_burst_after_restart)
{
	uint32_t n = 0, full = 0;

	for (uint32_t turns = 100; turns < 108; turns++) {
		converse(p, turns);
		for (n = 0; pair_send(&p->end[0], 64); n++)
			;
		assert_true(n > 0);
		while (pair_receive(&p->end[1]))
			;
		assert_int_equal(p->end[1].received, p->end[0].sent);
		weir_ring_publish_tail(p->end[1].rx); /* as whoever finds nothing does */
		for (full = 0; pair_send(&p->end[0], 64); full++)
			;
		assert_int_equal(full, SLOTS / 2);
		while (pair_receive(&p->end[1]))
			;
		assert_int_equal(p->end[1].received, p->end[0].sent);
	}
}

/* One direction alone never restarts: its consumer may be far behind. */
TEST_PAIR(test_stream_does_not_restart)
{
	for (uint32_t i = 0; i < 1000; i++) {
		assert_true(pair_send(&p->end[0], 64));
		assert_true(pair_receive(&p->end[1]));
		weir_ring_publish_tail(p->end[1].rx);
		assert_true(weir_ring_refresh(p->end[0].tx));
	}
	assert_int_equal(p->to_b->tx.base, 0);
}

TEST_PAIR(test_mixed_talk)
{
	unsigned seed = 7;
	uint32_t restarts = 0;

	for (uint32_t round = 0; round < 3000; round++) {
		uint64_t base = p->to_b->tx.base;

		converse(p, (uint32_t)rand_r(&seed) % 40);
		restarts += p->to_b->tx.base != base;
		for (uint32_t i = (uint32_t)rand_r(&seed) % 60; i; i--) {
			struct end *e = &p->end[rand_r(&seed) % 2];

			if (rand_r(&seed) % 2)
				pair_send(e, length_of(e->sent));
			else
				pair_receive(e);
		}
		for (uint32_t i = 0; i < 2; i++) {
			while (pair_receive(&p->end[i]))
				;
			weir_ring_publish_tail(p->end[i].rx);
			assert_int_equal(p->end[i].received, p->end[1 - i].sent);
		}
	}
	assert_true(restarts > 100);
}

/* A tail may be told later than an answer has said as much. */
TEST_PAIR(test_late_tail)
{
	converse(p, 10);
	weir_ring_publish_tail(p->end[1].rx);
	converse(p, 2);
	assert_true(weir_ring_refresh(p->end[0].tx));
	assert_int_equal(p->to_b->tx.seen, p->to_b->tx.pos);
	atomic_fetch_sub(&p->to_b->tail, 1);
	assert_false(weir_ring_refresh(p->end[0].tx));
}

/* Impossible answers of a peer are ignored. */
TEST_PAIR(test_lying_answer)
{
	struct weir_ring before;

	for (uint32_t i = 0; i < 10; i++)
		assert_true(pair_send(&p->end[0], 8));
	weir_ring_answered(p->end[0].tx, 4);
	before = *p->end[0].tx;
	assert_int_equal(before.limit, SLOTS + 4);
	weir_ring_answered(p->end[0].tx, 3);
	weir_ring_answered(p->end[0].tx, 11);
	weir_ring_answered(p->end[0].tx, 0xffff);
	assert_memory_equal(&before, p->end[0].tx, sizeof(before));
}
