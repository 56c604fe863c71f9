/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleep and wake: nothing that could be done is left undone, no bell is lost, none is rung too
 * often. */
#include "worlds/engine_world.h"

#include "ipc/bell.h"

#include "lcore/nap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <errno.h>

static struct weir_channel_head *
head_of(struct program *p, unsigned channel)
{
	return (void *)(p->arena + weir_arena_channel(&p->view.geometry, channel));
}

static void
test_flags(void **state)
{
	struct world *w = world_create(NULL);
	struct program *pa = program_open(w, 0, 2), *pb = program_open(w, 1, 1);
	struct engine *e = w->node[0].engine;
	struct pconn *a, *b;

	world_connect(pa, pb, &a, &b);
	world_run(w, 200);
	assert_int_equal(atomic_load(&head_of(pa, 0)->tx_sleeping), 0);
	assert_true(engine_sleep_prepare(e, w->now) > w->now + 100000000); /* keepalive */
	assert_int_equal(atomic_load(&head_of(pa, 0)->tx_sleeping), 1);
	assert_int_equal(atomic_load(&head_of(pa, 1)->tx_sleeping), 1);
	assert_false(engine_sleep_check(e));
	/* published between the flag and the look: it is seen */
	assert_true(pconn_send(a, 10, 0));
	assert_true(engine_sleep_check(e));
	engine_sleep_cancel(e);
	assert_int_equal(atomic_load(&head_of(pa, 0)->tx_sleeping), 0);
	world_run(w, 200);
	assert_int_equal(b->received, 1);
	world_destroy(w);
}

/* Credit that is due keeps an engine awake; an acknowledgement that is awaited bounds its sleep. */
static void
test_credit_before_sleep(void **state)
{
	struct world *w = world_create(&(struct world_options){.delay_ns = 2000});
	struct program *pa = program_open(w, 0, 1), *pb = program_open(w, 1, 1);
	struct pconn *a, *b;

	world_connect(pa, pb, &a, &b);
	world_run(w, 300);
	pconn_send(a, 10, 0);
	while (b->received < 1)
		world_step(w);
	assert_true(engine_sleep_check(w->node[1].engine));
	assert_true(engine_sleep_prepare(w->node[0].engine, w->now) < w->now + 2000000);
	engine_sleep_cancel(w->node[0].engine);
	world_run(w, 300);
	assert_false(engine_sleep_check(w->node[1].engine));
	assert_true(engine_sleep_prepare(w->node[0].engine, w->now) > w->now + 100000000);
	engine_sleep_cancel(w->node[0].engine);
	world_destroy(w);
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
	while (b->received == received)
		world_step(w);
	begun = w->now;
	while (atomic_load(writes) == before && w->now - begun < 10000000)
		world_step(w);
	return w->now - begun;
}

static void
test_credit_waits(void **state)
{
	struct world *w = world_create(NULL);
	struct program *pa = program_open(w, 0, 1), *pb = program_open(w, 1, 1);
	struct pconn *a, *b;

	world_connect(pa, pb, &a, &b);
	/* until the window is so large that no grant, which brings credit too, is due for a while
	 */
	for (unsigned i = 0; i < 400; i++) {
		pconn_send(a, 10, 0);
		world_run(w, 10);
	}
	world_run(w, 300);
	assert_in_range(credit_after(w, a, b, 0), 10000, 40000);
	assert_in_range(credit_after(w, a, b, 300000), 300000, 340000);
	assert_in_range(credit_after(w, a, b, UINT64_MAX), 500000, 1040000);
	assert_in_range(credit_after(w, a, b, 0), 10000, 40000);
	world_destroy(w);
}

/* Credit came by line first and then in a frame: the line, now old, is no reason to stay awake. */
static void
test_old_credit_line(void **state)
{
	struct world *w = world_create(&(struct world_options){.delay_ns = 4000});
	struct program *pa = program_open(w, 0, 1), *pb = program_open(w, 1, 1);
	struct pconn *a, *b;

	world_connect(pa, pb, &a, &b);
	pconn_send(a, 10, 0);
	world_run(w, 300);
	assert_true(atomic_load(&w->node[0].credit[0].consumed) > 0);
	pconn_send(a, 10, 0);
	while (b->received < 2)
		world_step(w);
	pconn_send(b, 10, 0);
	while (a->received < 1)
		world_step(w);
	pconn_send(a, 10, 0);
	world_run(w, 3);
	assert_int_equal(b->received, 2);
	assert_int_equal(pconn_completed(a), 2);
	assert_false(engine_sleep_check(w->node[0].engine));
	world_run(w, 300);
	assert_int_equal(pconn_completed(a), 3);
	world_destroy(w);
}

/* A sender that stalls gets its credit with a completion, which wakes it. */
static void
test_stalled_sender_wakes(void **state)
{
	struct world *w =
	    world_create(&(struct world_options){.ring_lines = 256, .delay_ns = 4000});
	struct program *pa = program_open(w, 0, 1), *pb = program_open(w, 1, 1);
	struct engine *e = w->node[0].engine;
	struct pconn *a, *b;
	unsigned sleeps = 0;

	world_connect(pa, pb, &a, &b);
	for (unsigned i = 0; i < 2000; i++) {
		pconn_send(a, 8000, 0);
		world_step(w);
	}
	world_run(w, 2000);
	for (unsigned k = 0; k < 30; k++)
		pconn_send(a, 8000, 0);
	for (unsigned i = 0; i < 4000 && pconn_completed(a) < a->sent; i++) {
		bool wakes;

		engine_sleep_prepare(e, w->now);
		if (!engine_sleep_check(e)) {
			/* sleeps until a completion: only the other node runs */
			do {
				struct nic_context *c = w->node[0].nic;

				w->now += 500;
				engine_turn(w->node[1].engine, w->now);
				program_read(pb);
				wakes = c->cq_first != c->cq_end ||
					(c->first && c->first->due <= w->now);
			} while (!wakes && ++sleeps < 100000);
		}
		engine_sleep_cancel(e);
		world_step(w);
	}
	assert_true(sleeps > 0 && sleeps < 100000);
	assert_int_equal(pconn_completed(a), a->sent);
	world_destroy(w);
}

/* Nothing is under way, and the peer has gone: it is noticed all the same. */
static void
test_keepalive(void **state)
{
	struct world *w = world_create(NULL);
	struct program *pa = program_open(w, 0, 1), *pb = program_open(w, 1, 1);
	struct pconn *a, *b;
	uint64_t writes;

	world_connect(pa, pb, &a, &b);
	world_run(w, 200);
	writes = w->net.writes;
	w->step_ns = 1000000;
	world_run(w, 240);
	assert_int_equal(w->net.writes, writes);
	world_run(w, 600);
	assert_in_range(w->net.writes, writes + 2, writes + 6); /* of both */
	world_destroy(w);
}

/* A peer that answers nothing is told of before its QP gives up, and for as long as that lasts. */
static void
test_silence(void **state)
{
	struct world *w = world_create(&(struct world_options){.silence_ns = 1000000000});
	struct program *pa = program_open(w, 0, 1), *pb = program_open(w, 1, 1);
	struct node *n = &w->node[0];
	struct pconn *a, *b;
	unsigned ms;

	world_connect(pa, pb, &a, &b);
	world_run(w, 200);
	w->step_ns = 1000000;
	world_run(w, 5000); /* idle, and fine */
	assert_int_equal(n->silences + w->node[1].silences, 0);
	for (ms = 0; ms < 2250; ms++) { /* the other node has stopped */
		if (ms == 490)
			assert_int_equal(n->silences, 0);
		if (ms == 1250)
			assert_in_range(n->silences, 1, 3);
		w->now += w->step_ns;
		engine_turn(n->engine, w->now);
		world_events(w);
	}
	assert_in_range(n->silences, 4, 8);
	n->silences = 0;
	world_run(w, 2000);
	assert_int_equal(n->silences, 0);
	/* nobody's silence: nothing ran, at whatever time since the last answer */
	for (ms = 0; ms < 500; ms += 10) {
		w->now += 3000000000;
		world_run(w, 100 + ms);
	}
	assert_int_equal(n->silences + w->node[1].silences, 0);
	assert_int_equal(n->link_errors, 0);
	world_destroy(w);
}

static void
test_bells(void **state)
{
	struct world *w = world_create(NULL);
	struct program *pa = program_open(w, 0, 1), *pb = program_open(w, 1, 1);
	struct pconn *a, *b;
	uint64_t bells;

	world_connect(pa, pb, &a, &b);
	for (unsigned i = 0; i < 1000; i++) {
		pconn_send(a, 10, 0);
		world_step(w);
	}
	assert_int_equal(pb->bells, 0); /* it is awake */
	world_run(w, 100);
	atomic_store(&head_of(pb, 0)->rx_sleeping, 1);
	pconn_send(a, 10, 0);
	world_run(w, 5);
	assert_int_equal(pb->bells, 1);
	/* it claims to sleep for ever: a few at once, then one every 20 us */
	bells = pb->bells;
	for (unsigned i = 0; i < 4000; i++) { /* 2 ms */
		pconn_send(a, 10, 0);
		world_step(w);
	}
	assert_in_range(pb->bells - bells, 20, 110);
	/* the last message's bell is late, but comes */
	atomic_store(&head_of(pb, 0)->rx_sleeping, 0);
	world_run(w, 1000);
	atomic_store(&head_of(pb, 0)->rx_sleeping, 1);
	for (unsigned i = 0; i < 20; i++) {
		pconn_send(a, 10, 0);
		world_step(w);
	}
	bells = pb->bells;
	assert_true(engine_sleep_prepare(w->node[1].engine, w->now) < w->now + 100000);
	engine_sleep_cancel(w->node[1].engine);
	world_run(w, 200);
	assert_true(pb->bells > bells);
	bells = pb->bells;
	world_run(w, 2000);
	assert_int_equal(pb->bells, bells);
	world_destroy(w);
}

/*
 * A ring that is preempted is nobody's fault. One that takes CPU time, too, is followed by a pause;
 * many in a row end the session.
 */
static void
test_slow_bells(void **state)
{
	for (unsigned guilty = 0; guilty < 2; guilty++) {
		struct world *w = world_create(NULL);
		struct program *pa = program_open(w, 0, 1), *pb = program_open(w, 1, 1);
		struct pconn *a, *b;
		uint64_t began, last;

		world_connect(pa, pb, &a, &b);
		atomic_store(&head_of(pb, 0)->rx_sleeping, 1);
		pb->bell_ns = 30000000;
		pb->bell_cpu_ns = guilty ? 2000000 : 1000;
		began = w->now;
		for (unsigned i = 0; i < 4; i++) {
			pconn_send(a, 10, 0);
			world_run(w, 200);
		}
		assert_true(w->now - began < 2 * pb->bell_cpu_ns || !guilty);
		assert_int_equal(pb->bells, guilty ? 2 : 4);
		for (unsigned rung = 2; guilty && rung < WEIR_BELL_SLOW_MAX; rung++) {
			assert_int_equal(atomic_load(&pb->view.violation), 0);
			for (last = w->now; pb->bells == rung && w->now - last < 1000000000;
			     world_step(w))
				if (w->now % 64 == 0)
					pconn_send(a, 10, 0);
			assert_int_equal(pb->bells, rung + 1);
			/* later and later */
			assert_true(rung < 3 || w->now - last > pb->bell_cpu_ns * 4);
		}
		world_run(w, 10);
		assert_int_equal(atomic_load(&pb->view.violation), guilty ? EPROTO : 0);
		world_destroy(w);
	}
}

/* Channels without work are looked at less often, and noticed all the same, before sleep too. */
static void
test_cold_channels(void **state)
{
	struct world *w = world_create(NULL);
	struct program *pa = program_open(w, 0, 3), *pb = program_open(w, 1, 1);
	struct engine *e = w->node[0].engine;
	struct pconn *a, *b;

	world_connect(pa, pb, &a, &b);
	for (unsigned i = 0; i < 3; i++) {
		world_run(w, 6000);
		engine_sleep_prepare(e, w->now);
		for (unsigned k = 0; k < 3; k++)
			assert_int_equal(atomic_load(&head_of(pa, k)->tx_sleeping), 1);
		assert_false(engine_sleep_check(e));
		pconn_push(a, i, 10, 0);
		assert_true(engine_sleep_check(e));
		engine_sleep_cancel(e);
		for (unsigned k = 0; k < 3; k++)
			assert_int_equal(atomic_load(&head_of(pa, k)->tx_sleeping), 0);
		world_run(w, 10);
		assert_int_equal(b->received, i + 1);
	}
	world_run(w, 6000);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t want = b->received + 1;

		pconn_push(a, i, 10, 0);
		world_run(w, 10);
		assert_int_equal(b->received, want);
	}
	world_destroy(w);
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_flags),
	    cmocka_unit_test(test_credit_before_sleep),
	    cmocka_unit_test(test_credit_waits),
	    cmocka_unit_test(test_old_credit_line),
	    cmocka_unit_test(test_stalled_sender_wakes),
	    cmocka_unit_test(test_keepalive),
	    cmocka_unit_test(test_silence),
	    cmocka_unit_test(test_bells),
	    cmocka_unit_test(test_slow_bells),
	    cmocka_unit_test(test_cold_channels),
	    cmocka_unit_test(test_naps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
