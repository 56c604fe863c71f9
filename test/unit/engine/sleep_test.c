/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleep and wake: nothing that could be done is left undone, no bell is lost, none is rung too
 * often. */
#include "worlds/engine_world.h"

#include "engine/link.h"
#include "engine/state.h"
#include "ipc/bell.h"

#include "lcore/nap.h"

static struct weir_channel_head *
head_of(struct program *p, unsigned channel)
{
	return (void *)(p->arena + weir_arena_channel(&p->view.geometry, channel));
}

static void
assert_flags(struct program *p, unsigned channels, uint32_t sleeping)
{
	for (unsigned i = 0; i < channels; i++)
		assert_int_equal(atomic_load(&head_of(p, i)->tx_sleeping), sleeping);
}

static void
test_flags(void **state)
{
	struct pair p = PAIR(2);
	struct engine *e = p.w->node[0].engine;

	world_run(p.w, 200);
	assert_flags(p.pa, 1, 0);
	assert_true(engine_sleep_prepare(e, p.w->now) > p.w->now + 100000000); /* keepalive */
	assert_flags(p.pa, 2, 1);
	assert_false(engine_sleep_check(e));
	/* published between the flag and the look: it is seen */
	assert_true(pconn_send(p.a, 10, 0));
	assert_true(engine_sleep_check(e));
	engine_sleep_cancel(e);
	assert_flags(p.pa, 1, 0);
	assert_receives(p.b, 200, 1);
}

/* Credit that is due keeps an engine awake; an acknowledgement that is awaited bounds its sleep. */
static void
test_credit_before_sleep(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 2000);

	world_run(p.w, 300);
	pconn_send(p.a, 10, 0);
	STEP_WHILE(p.w, p.b->received < 1);
	assert_true(engine_sleep_check(p.w->node[1].engine));
	assert_true(world_sleep(p.w, p.w->node[0].engine) < p.w->now + 2000000);
	world_run(p.w, 300);
	assert_false(engine_sleep_check(p.w->node[1].engine));
	assert_true(world_sleep(p.w, p.w->node[0].engine) > p.w->now + 100000000);
}

/*
 * A turn that ends with lines to send counts as one with work: its links have sent, and an engine
 * that dozes looks for nothing more.
 */
static void
test_lines_owed_late(void **state)
{
	struct pair p = PAIR(1);
	struct engine *e = p.w->node[0].engine;
	bool owed = false;

	world_run(p.w, 300);
	program_die(p.pa);
	for (unsigned i = 0; i < 300 && !owed; i++) {
		unsigned work = engine_turn(e, p.w->now += 100);

		owed = !list_empty(&e->links[0].ctrl_due);
		assert_true(work || !owed);
	}
	assert_true(owed);
	world_run(p.w, 1000);
	assert_true(p.pa->removed);
}

/* ns from a message's arrival until credit for it leaves alone, when others have the CPU for `away`
 * at a time. */
static uint64_t
credit_after(struct world *w, struct pconn *a, struct pconn *b, uint64_t away)
{
	struct engine *e = w->node[1].engine;
	const _Atomic uint64_t *writes = &engine_counters(e)->credit_writes;
	uint64_t before = atomic_load(writes), received = b->received, begun;

	engine_set_away(e, away);
	pconn_send(a, 10, 0);
	STEP_WHILE(w, b->received == received);
	begun = w->now;
	STEP_WHILE(w, atomic_load(writes) == before && w->now - begun < 10000000);
	return w->now - begun;
}

static void
test_credit_waits(void **state)
{
	struct pair p = PAIR(1);

	/* until the window is so large that no grant, which brings credit too, is due for a while
	 */
	pconn_tries(p.a, 10, 400, 10);
	world_run(p.w, 300);
	assert_in_range(credit_after(p.w, p.a, p.b, 0), 10000, 40000);
	assert_in_range(credit_after(p.w, p.a, p.b, 300000), 300000, 340000);
	assert_in_range(credit_after(p.w, p.a, p.b, UINT64_MAX), 500000, 1040000);
	assert_in_range(credit_after(p.w, p.a, p.b, 0), 10000, 40000);
}

/* Credit came by line first and then in a frame: the line, now old, is no reason to stay awake. */
static void
test_old_credit_line(void **state)
{
	struct pair p = PAIR(1, .delay_ns = 4000);

	pconn_send(p.a, 10, 0);
	world_run(p.w, 300);
	assert_true(atomic_load(&p.w->node[0].credit[0].consumed) > 0);
	pconn_send(p.a, 10, 0);
	STEP_WHILE(p.w, p.b->received < 2);
	pconn_send(p.b, 10, 0);
	STEP_WHILE(p.w, p.a->received < 1);
	pconn_send(p.a, 10, 0);
	assert_receives(p.b, 3, 2);
	assert_int_equal(pconn_completed(p.a), 2);
	assert_false(engine_sleep_check(p.w->node[0].engine));
	world_run(p.w, 300);
	assert_int_equal(pconn_completed(p.a), 3);
}

/* A sender that stalls gets its credit with a completion, which wakes it. */
static void
test_stalled_sender_wakes(void **state)
{
	struct pair p = PAIR(1, .ring_lines = 256, .delay_ns = 4000);
	struct engine *e = p.w->node[0].engine;
	unsigned sleeps = 0;

	pconn_tries(p.a, 8000, 2000, 1);
	world_run(p.w, 2000);
	for (unsigned k = 0; k < 30; k++)
		pconn_send(p.a, 8000, 0);
	for (unsigned i = 0; i < 4000 && pconn_completed(p.a) < p.a->sent; i++) {
		bool wakes;

		engine_sleep_prepare(e, p.w->now);
		if (!engine_sleep_check(e)) {
			/* sleeps until a completion: only the other node runs */
			do {
				struct nic_context *c = p.w->node[0].nic;

				world_turn(p.w, 1);
				program_read(p.pb);
				wakes = c->cq_first != c->cq_end ||
					(c->first && c->first->due <= p.w->now);
			} while (!wakes && ++sleeps < 100000);
		}
		engine_sleep_cancel(e);
		world_step(p.w);
	}
	assert_true(sleeps > 0 && sleeps < 100000);
	assert_int_equal(pconn_completed(p.a), p.a->sent);
}

/* Nothing is under way, and the peer has gone: it is noticed all the same. */
static void
test_keepalive(void **state)
{
	struct pair p = PAIR(1);
	uint64_t writes;

	world_run(p.w, 200);
	writes = p.w->net.writes;
	p.w->step_ns = 1000000;
	world_run(p.w, 240);
	assert_int_equal(p.w->net.writes, writes);
	world_run(p.w, 600);
	assert_in_range(p.w->net.writes, writes + 2, writes + 6); /* of both */
}

/* A peer that answers nothing is told of before its QP gives up, and for as long as that lasts. */
static void
test_silence(void **state)
{
	struct pair p = PAIR(1, .silence_ns = 1000000000);
	struct node *n = &p.w->node[0];
	unsigned ms;

	world_run(p.w, 200);
	p.w->step_ns = 1000000;
	world_run(p.w, 5000); /* idle, and fine */
	assert_int_equal(n->silences + p.w->node[1].silences, 0);
	for (ms = 0; ms < 2250; ms++) { /* the other node has stopped */
		if (ms == 490)
			assert_int_equal(n->silences, 0);
		if (ms == 1250)
			assert_in_range(n->silences, 1, 3);
		p.w->now += p.w->step_ns;
		engine_turn(n->engine, p.w->now);
		world_events(p.w);
	}
	assert_in_range(n->silences, 4, 8);
	n->silences = 0;
	world_run(p.w, 2000);
	assert_int_equal(n->silences, 0);
	/* nobody's silence: nothing ran, at whatever time since the last answer */
	for (ms = 0; ms < 500; ms += 10) {
		world_later(p.w, 3000000000, 100 + ms);
	}
	assert_int_equal(n->silences + p.w->node[1].silences, 0);
	assert_int_equal(n->link_errors, 0);
}

static void
test_bells(void **state)
{
	struct pair p = PAIR(1);
	uint64_t bells;

	pconn_tries(p.a, 10, 1000, 1);
	assert_int_equal(p.pb->bells, 0); /* it is awake */
	world_run(p.w, 100);
	atomic_store(&head_of(p.pb, 0)->rx_sleeping, 1);
	pconn_send(p.a, 10, 0);
	world_run(p.w, 5);
	assert_int_equal(p.pb->bells, 1);
	/* it claims to sleep for ever: a few at once, then one every 20 us */
	bells = p.pb->bells;
	for (unsigned i = 0; i < 4000; i++) { /* 2 ms */
		pconn_send(p.a, 10, 0);
		world_step(p.w);
	}
	assert_in_range(p.pb->bells - bells, 20, 110);
	/* the last message's bell is late, but comes */
	atomic_store(&head_of(p.pb, 0)->rx_sleeping, 0);
	world_run(p.w, 1000);
	atomic_store(&head_of(p.pb, 0)->rx_sleeping, 1);
	pconn_tries(p.a, 10, 20, 1);
	bells = p.pb->bells;
	assert_true(world_sleep(p.w, p.w->node[1].engine) < p.w->now + 100000);
	world_run(p.w, 200);
	assert_true(p.pb->bells > bells);
	bells = p.pb->bells;
	world_run(p.w, 2000);
	assert_int_equal(p.pb->bells, bells);
}

/* Programs that sleep hear of a large message once, at its end, however it goes, not per segment.
 */
static void
test_bells_of_large_messages(void **state)
{
	static const unsigned ways[] = {0, WEIR_SLOT_BULK | WEIR_SLOT_WRITE,
					WEIR_SLOT_BULK | WEIR_SLOT_READ};

	for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct pair p = PAIR(1, .delay_ns = 2000);

		world_run(p.w, 200);
		atomic_store(&head_of(p.pa, 0)->rx_sleeping, 1);
		atomic_store(&head_of(p.pb, 0)->rx_sleeping, 1);
		assert_true(pconn_send(p.a, 1 << 20, ways[i] | WEIR_SLOT_NOTIFY));
		STEP_WHILE(p.w, p.b->received < 1);
		world_run(p.w, 300);
		assert_int_equal(p.pb->bells, 1);
		assert_int_equal(p.pa->bells, 1); /* it is complete */
	}
}

/*
 * A ring that is preempted is nobody's fault. One that takes CPU time, too, is followed by a pause;
 * many in a row end the session.
 */
static void
test_slow_bells(void **state)
{
	for (unsigned guilty = 0; guilty < 2; guilty++) {
		struct pair p = PAIR(1);
		uint64_t began, last;

		atomic_store(&head_of(p.pb, 0)->rx_sleeping, 1);
		p.pb->bell_ns = 30000000;
		p.pb->bell_cpu_ns = guilty ? 2000000 : 1000;
		began = p.w->now;
		pconn_tries(p.a, 10, 4, 200);
		assert_true(p.w->now - began < 2 * p.pb->bell_cpu_ns || !guilty);
		assert_int_equal(p.pb->bells, guilty ? 2 : 4);
		for (unsigned rung = 2; guilty && rung < WEIR_BELL_SLOW_MAX; rung++) {
			assert_int_equal(atomic_load(&p.pb->view.violation), 0);
			for (last = p.w->now; p.pb->bells == rung && p.w->now - last < 1000000000;
			     world_step(p.w))
				if (p.w->now % 64 == 0)
					pconn_send(p.a, 10, 0);
			assert_int_equal(p.pb->bells, rung + 1);
			/* later and later */
			assert_true(rung < 3 || p.w->now - last > p.pb->bell_cpu_ns * 4);
		}
		world_run(p.w, 10);
		assert_int_equal(atomic_load(&p.pb->view.violation), guilty ? EPROTO : 0);
	}
}

/*
 * Channels without work are looked at less often, some in each turn, and noticed all the same,
 * before sleep too.
 */
static void
test_cold_channels(void **state)
{
	enum { N = 12 };
	struct pair p = PAIR(N);
	struct engine *e = p.w->node[0].engine;

	for (unsigned i = 0; i < N; i++) {
		world_run(p.w, 6000);
		engine_sleep_prepare(e, p.w->now);
		assert_flags(p.pa, N, 1);
		assert_false(engine_sleep_check(e));
		pconn_push(p.a, i, 10, 0);
		assert_true(engine_sleep_check(e));
		engine_sleep_cancel(e);
		assert_flags(p.pa, N, 0);
		assert_receives(p.b, 10, i + 1);
	}
	world_run(p.w, 6000);
	for (unsigned i = 0; i < N; i++) {
		uint64_t want = p.b->received + 1;

		pconn_push(p.a, i, 10, 0);
		assert_receives(p.b, 10, want);
	}
	/* one that sleeps looks at all: the turn after a doorbell may be the only one */
	for (unsigned i = 0; i < N; i++) {
		uint64_t want = p.b->received + 1;

		world_run(p.w, 6000);
		engine_sleep_prepare(e, p.w->now);
		pconn_push(p.a, i, 10, 0);
		assert_true(engine_turn(e, p.w->now));
		engine_sleep_cancel(e);
		assert_receives(p.b, 10, want);
	}
}

#define SPIN_NS 100000u
#define NAP_MOST_NS 2000000u
#define LATE_NS 60000u /* what the kernel adds to a sleep */
#define WORK_NS 10000u

/* When an engine that had work at `last` sees what arrives at `at`; how often it woke. */
static uint64_t
seen_at(uint64_t last, uint64_t at, unsigned *naps)
{
	uint64_t now = last + SPIN_NS;

	if (at <= now)
		return at;
	for (; now < at; ++*naps)
		now += nap_ns(now - last, NAP_MOST_NS) + LATE_NS;
	return now;
}

/* Two engines that nobody wakes, and that have rested, are awake a few messages later. */
static void
test_naps(void **state)
{
	uint64_t last[2] = {0, 0}, now = 1000000000;
	unsigned naps = 0;

	for (unsigned i = 0; i < 16; i++) {
		uint64_t sent = now;

		now = seen_at(last[i % 2], now, &naps) + WORK_NS;
		last[i % 2] = now;
		if (i == 0)
			assert_in_range(naps, 400, 520); /* of a second of rest */
		if (i >= 8)
			assert_int_equal(now - sent, WORK_NS);
		now += WORK_NS;
	}
}

ENGINE_TESTS(TEST(test_flags), TEST(test_credit_before_sleep), TEST(test_credit_waits),
	     TEST(test_lines_owed_late), TEST(test_old_credit_line),
	     TEST(test_stalled_sender_wakes), TEST(test_keepalive), TEST(test_silence),
	     TEST(test_bells), TEST(test_bells_of_large_messages), TEST(test_slow_bells),
	     TEST(test_cold_channels), TEST(test_naps))
