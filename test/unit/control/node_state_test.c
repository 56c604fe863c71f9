/* SPDX-License-Identifier: BSD-3-Clause */
/* The state machine of a peer and the offers kept for it, under virtual time. */
#include "cluster/offers.h"
#include "cluster/node_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TIMEOUT 1000u

static struct node_state peer;
static uint64_t now;

static unsigned
step(enum node_event event)
{
	return node_state_step(&peer, event, now, SWIM_UNKNOWN, NULL, false);
}

static unsigned
record(enum swim_status status, enum dp_state state, uint64_t incarnation)
{
	struct dp_view dp = {.state = state, .incarnation = incarnation, .engines = 2};

	return node_state_step(&peer, NODE_RECORD, now, status, &dp, false);
}

// Time passes in ticks, as it does in the process. Returns all that was ordered meanwhile.
static unsigned
pass(uint32_t ms)
{
	unsigned actions = 0;

	for (uint64_t end = now + ms; now < end;) {
		now += 50;
		actions |= step(NODE_TICK);
	}
	return actions;
}

static void
start(void)
{
	now = 1000000;
	node_state_init(&peer, TIMEOUT, now);
}

// A peer that is up with this incarnation.
static void
start_up(uint64_t incarnation, bool linked)
{
	start();
	assert_int_equal(record(SWIM_ALIVE, DP_UP, incarnation), NODE_DO_REPORT | NODE_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	if (linked)
		assert_int_equal(step(NODE_LINKED), 0);
}

static void
test_silence_is_only_suspicion(void **state)
{
	start_up(5, true);
	assert_int_equal(record(SWIM_SUSPECT, DP_UP, 5), 0); // to be refuted, or else dead
	assert_false(pass(TIMEOUT));
	assert_int_equal(record(SWIM_DEAD, DP_UP, 5), NODE_DO_REPORT | NODE_DO_CLOSE);
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
	// Told once, and never down, however long.
	assert_int_equal(record(SWIM_DEAD, DP_UP, 5), 0);
	assert_int_equal(pass(100000), 0);
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
}

static void
test_silence_without_data_path_is_death(void **state)
{
	start_up(5, false);
	assert_int_equal(record(SWIM_DEAD, DP_UP, 5), NODE_DO_REPORT | NODE_DO_CLOSE);
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
	assert_int_equal(pass(TIMEOUT / 4), NODE_DO_REPORT);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	assert_int_equal(pass(10000), 0);
	// The same data plane is heard of again: it was a partition.
	assert_int_equal(record(SWIM_ALIVE, DP_UP, 5), NODE_DO_REPORT | NODE_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
}

static void
test_heard_again(void **state)
{
	start_up(5, true);
	record(SWIM_DEAD, DP_UP, 5);
	assert_int_equal(record(SWIM_ALIVE, DP_UP, 5), NODE_DO_REPORT | NODE_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	// A refutation is no news of its data plane.
	assert_int_equal(record(SWIM_ALIVE, DP_UP, 5), 0);
}

static void
test_control_restarts(void **state)
{
	start_up(5, true);
	// It is back but not yet attached to its data plane: no news, and no reason to be down.
	assert_int_equal(record(SWIM_ALIVE, DP_UNKNOWN, 0), 0);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	// The same data plane: nothing to tell, but offers may have been lost.
	assert_int_equal(record(SWIM_ALIVE, DP_UP, 5), NODE_DO_OFFERS);
	// Late: its data plane may be dead for all it knows.
	record(SWIM_DEAD, DP_UP, 5);
	assert_int_equal(record(SWIM_ALIVE, DP_UNKNOWN, 0), 0);
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
	assert_int_equal(record(SWIM_ALIVE, DP_UP, 5), NODE_DO_REPORT | NODE_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
}

static void
test_death_of_data_plane(void **state)
{
	start_up(5, true);
	assert_int_equal(record(SWIM_ALIVE, DP_DOWN, 5), NODE_DO_REPORT);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	assert_int_equal(record(SWIM_ALIVE, DP_DOWN, 5), 0);
	assert_false(pass(TIMEOUT * 2) & NODE_DO_REPORT);
	assert_int_equal(record(SWIM_ALIVE, DP_UP, 6), NODE_DO_REPORT | NODE_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	assert_int_equal(peer.dp.incarnation, 6);
	// It leaves: at once, whatever links say.
	step(NODE_LINKED);
	assert_int_equal(record(SWIM_LEFT, DP_DOWN, 6), NODE_DO_REPORT | NODE_DO_CLOSE);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
}

static unsigned
hearsay(enum swim_status status, enum dp_state state, uint64_t incarnation)
{
	struct dp_view dp = {.state = state, .incarnation = incarnation, .engines = 2};

	return node_state_step(&peer, NODE_RECORD, now, status, &dp, true);
}

// Others say that it has left: links that live say more, until they don't.
static void
test_gone_by_hearsay(void **state)
{
	start_up(5, true);
	assert_int_equal(hearsay(SWIM_LEFT, DP_DOWN, 5), NODE_DO_REPORT | NODE_DO_ASK);
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
	assert_int_equal(pass(100000), 0);
	// It refutes that.
	assert_int_equal(record(SWIM_ALIVE, DP_UP, 5), NODE_DO_REPORT | NODE_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	// Or its links end.
	hearsay(SWIM_LEFT, DP_DOWN, 5);
	assert_int_equal(step(NODE_LINK_DOWN), NODE_DO_REPORT | NODE_DO_PROBE);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	// Or it says so itself.
	start_up(5, true);
	hearsay(SWIM_LEFT, DP_DOWN, 5);
	assert_int_equal(record(SWIM_LEFT, DP_DOWN, 5), NODE_DO_REPORT | NODE_DO_CLOSE);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	// Without links there is nothing that would say otherwise.
	start_up(5, false);
	assert_int_equal(hearsay(SWIM_LEFT, DP_DOWN, 5), NODE_DO_REPORT | NODE_DO_CLOSE);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
}

// The same of its data plane: that it is down, or another one.
static void
test_data_plane_by_hearsay(void **state)
{
	for (int restarted = 0; restarted < 2; restarted++) {
		enum dp_state said = restarted ? DP_UP : DP_DOWN;
		uint64_t incarnation = restarted ? 6 : 5;

		start_up(5, true);
		assert_int_equal(hearsay(SWIM_ALIVE, said, incarnation), NODE_DO_ASK);
		assert_int_equal(pass(100000), 0);
		assert_int_equal(peer.state, WEIR_NODE_UP);
		assert_true(peer.linked);
		assert_int_equal(peer.dp.incarnation, 5);
		assert_true(peer.doubted);
		// The node itself says so.
		assert_true(record(SWIM_ALIVE, said, incarnation) & NODE_DO_REPORT);
		assert_int_equal(peer.state, restarted ? WEIR_NODE_UP : WEIR_NODE_DOWN);
		assert_false(peer.linked);
		// Or a link does: then others are believed.
		start_up(5, true);
		step(NODE_LINK_DOWN);
		assert_true(hearsay(SWIM_ALIVE, said, incarnation) & NODE_DO_REPORT);
		assert_false(peer.linked);
	}
}

static void
test_new_incarnation_unseen_death(void **state)
{
	start_up(5, true);
	assert_int_equal(record(SWIM_ALIVE, DP_UP, 6), NODE_DO_REPORT | NODE_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	assert_int_equal(peer.dp.incarnation, 6);
	assert_false(peer.linked); // the links went with the old one
	// Our control is new, our data plane has told it of links before anybody was heard.
	start();
	step(NODE_LINKED);
	record(SWIM_ALIVE, DP_UP, 6);
	assert_true(peer.linked);
}

static void
test_link_down_and_silence_is_death(void **state)
{
	// A link that fails while control is heard says nothing, but is a reason to look.
	start_up(5, true);
	assert_int_equal(step(NODE_LINK_DOWN), NODE_DO_PROBE);
	assert_false(pass(10 * TIMEOUT));
	record(SWIM_DEAD, DP_UP, 5);
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
	// Fails while its control is silent: dead.
	assert_int_equal(step(NODE_LINK_DOWN), NODE_DO_REPORT | NODE_DO_PROBE);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);

	// The link fails first, then the silence gets long enough.
	start_up(5, true);
	step(NODE_LINK_DOWN);
	assert_false(pass(TIMEOUT / 2));
	assert_int_equal(record(SWIM_DEAD, DP_UP, 5), NODE_DO_REPORT | NODE_DO_CLOSE);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
}

static void
test_link_down_of_a_node_not_heard(void **state)
{
	// Our control is new, our data plane had links to a node that died meanwhile.
	start();
	assert_int_equal(step(NODE_LINK_DOWN), NODE_DO_PROBE);
	assert_false(pass(TIMEOUT - 50) & NODE_DO_REPORT);
	assert_true(pass(50) & NODE_DO_REPORT);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	start();
	assert_int_equal(pass(60000), 0);
	assert_int_equal(peer.state, WEIR_NODE_JOINING);
}

static void
test_at_first_sight(void **state)
{
	start();
	assert_int_equal(record(SWIM_ALIVE, DP_DOWN, 0), NODE_DO_REPORT);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	start();
	assert_int_equal(record(SWIM_ALIVE, DP_UNKNOWN, 0), 0);
	assert_int_equal(peer.state, WEIR_NODE_JOINING);
}

// Of two connections that cross each other both ends keep the same one.
static void
test_which_connection_stays(void **state)
{
	struct old_conn old = {.joined = false, .same_life = true};

	for (int joined = 0; joined < 2; joined++) {
		old.joined = joined;
		// 1 has dialled 2 and 2 has dialled 1: the one of 1 stays
		assert_false(conn_replaces(&old, 1, 2, SWIM_ALIVE));
		assert_true(conn_replaces(&old, 2, 1, SWIM_ALIVE));
	}
	// Another control of the same id, while the first one lives or may live; or doesn't.
	old = (struct old_conn){.joined = true, .same_life = false};
	assert_false(conn_replaces(&old, 2, 1, SWIM_ALIVE));
	assert_false(conn_replaces(&old, 2, 1, SWIM_SUSPECT));
	assert_true(conn_replaces(&old, 1, 2, SWIM_DEAD));
	// At the same address it is a restarted one, whose end nobody has told us.
	old.same_place = true;
	assert_true(conn_replaces(&old, 1, 2, SWIM_ALIVE));
}

// Whatever comes in whatever order: DOWN and UP have a cause, TELL means a change.
static void
test_random_walk(void **state)
{
	uint32_t seed = 12345;
	uint64_t told_incarnation = 0;

	start();
	for (int i = 0; i < 200000; i++) {
		enum weir_node_state before = peer.state;
		enum node_event event = (seed >> 8) % 5;
		enum swim_status status = SWIM_ALIVE + (seed >> 12) % 4;
		struct dp_view dp = {.state = (seed >> 16) % 3,
				     .incarnation = 1 + (seed >> 20) % 3};
		unsigned actions;

		now += (seed >> 24) % 200;
		actions = node_state_step(&peer, event, now, status, &dp, seed >> 30 & 1);
		if (actions & NODE_DO_REPORT)
			assert_true(peer.state != before ||
				    peer.dp.incarnation != told_incarnation);
		else
			assert_int_equal(peer.state, before);
		if (actions & NODE_DO_REPORT)
			told_incarnation = peer.dp.incarnation;
		if (peer.state == WEIR_NODE_UP && before != WEIR_NODE_UP)
			assert_true(event == NODE_RECORD && status == SWIM_ALIVE &&
				    peer.dp.state == DP_UP);
		if (peer.state == WEIR_NODE_DOWN && before != WEIR_NODE_DOWN)
			assert_true(peer.dp.state == DP_DOWN || peer.silent_at);
		if (peer.state == WEIR_NODE_SUSPECT)
			assert_true(peer.silent_at || peer.dp.state == DP_UNKNOWN);
		seed = seed * 1664525 + 1013904223;
	}
}

// ---- offers ----

static struct weir_link_offer
link_offer(uint8_t engine, uint8_t peer_engine, uint32_t attempt, uint32_t answered)
{
	return (struct weir_link_offer){.node = 1,
					.peer_node = 2,
					.engine = engine,
					.peer_engine = peer_engine,
					.attempt = attempt,
					.answered = answered};
}

static uint32_t
sends(struct offers *o, uint32_t ms)
{
	uint32_t n = 0;

	for (uint64_t end = now + ms; now <= end; now += 50)
		while (offers_next(o, now))
			n++;
	return n;
}

static void
test_offer_until_answered(void **state)
{
	struct weir_link_offer a = link_offer(0, 1, 1, 0), answer = link_offer(1, 0, 9, 1);
	struct offers o = {0};

	now = 5000;
	assert_int_equal(offers_put(&o, &a, now), 0);
	assert_int_equal(sends(&o, 0), 1);
	assert_int_equal(sends(&o, 400), 0);
	assert_int_equal(sends(&o, 200), 1);
	assert_int_equal(sends(&o, 200000), OFFER_SENDS - 2); // it rests at last
	offers_restart(&o, 7, now);
	assert_int_equal(sends(&o, 0), 1);
	// The answer to another link, or to an earlier attempt, is none.
	answer.engine = 0;
	offers_answered(&o, &answer);
	answer = link_offer(1, 0, 9, 0);
	offers_answered(&o, &answer);
	assert_int_equal(sends(&o, 1000), 1);
	answer = link_offer(1, 0, 9, 1);
	offers_answered(&o, &answer);
	assert_int_equal(sends(&o, 100000), 0);
	// Our answer to theirs goes once, no answer to it will come.
	a.answered = 9;
	assert_int_equal(offers_put(&o, &a, now), 0);
	assert_int_equal(o.count, 1);
	assert_int_equal(sends(&o, 100000), 1);
	// So does a refusal; an offer of the same attempt after it does not count as answered.
	a.refused = 28;
	assert_int_equal(offers_put(&o, &a, now), 0);
	assert_int_equal(sends(&o, 100000), 1);
	a.refused = 0;
	assert_int_equal(offers_put(&o, &a, now), 0);
	assert_int_equal(sends(&o, 1000), 2);
	// A new attempt starts it all again.
	a.attempt = 2;
	assert_int_equal(offers_put(&o, &a, now), 0);
	assert_int_equal(sends(&o, 1000), 2);
	offers_fini(&o);
}

// An offer repeated without an answer asks whether the peer is there, whichever end repeats it.
static void
test_offer_again(void **state)
{
	struct weir_link_offer a = link_offer(0, 1, 1, 0), answer = link_offer(1, 0, 9, 1);
	struct offers o = {0};

	now = 5000;
	assert_int_equal(offers_put(&o, &a, now), 0);
	assert_non_null(offers_next(&o, now));
	assert_false(o.again);
	assert_non_null(offers_next(&o, now + 500));
	assert_true(o.again);
	assert_int_equal(offers_put(&o, &a, now + 600), 0);
	assert_non_null(offers_next(&o, now + 600));
	assert_true(o.again);
	a.attempt = 2;
	assert_int_equal(offers_put(&o, &a, now + 700), 0);
	assert_non_null(offers_next(&o, now + 700));
	assert_false(o.again);
	answer.answered = 2;
	offers_answered(&o, &answer);
	a.answered = 9;
	assert_int_equal(offers_put(&o, &a, now + 800), 0);
	assert_non_null(offers_next(&o, now + 800));
	assert_false(o.again);
	offers_fini(&o);
}

static void
test_offers_of_many_links(void **state)
{
	struct offers o = {0};

	now = 5000;
	for (int i = 0; i < 100; i++) {
		struct weir_link_offer a = link_offer(i / 10, i % 10, 1, 0);

		a.peer_incarnation = i % 2 ? 7 : 0;
		assert_int_equal(offers_put(&o, &a, now), 0);
	}
	assert_int_equal(sends(&o, 0), 100);
	offers_drop(&o, 3, 3);
	offers_drop(&o, 3, 3);
	assert_int_equal(o.count, 99);
	offers_restart(&o, 7, now);
	assert_int_equal(sends(&o, 0), 99);
	// Offers for a data plane that is gone are dropped with it.
	offers_restart(&o, 8, now);
	assert_int_equal(o.count, 50);
	assert_int_equal(sends(&o, 0), 50);
	offers_clear(&o);
	assert_int_equal(sends(&o, 10000), 0);
	offers_fini(&o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_silence_is_only_suspicion),
	    cmocka_unit_test(test_silence_without_data_path_is_death),
	    cmocka_unit_test(test_heard_again),
	    cmocka_unit_test(test_control_restarts),
	    cmocka_unit_test(test_death_of_data_plane),
	    cmocka_unit_test(test_gone_by_hearsay),
	    cmocka_unit_test(test_data_plane_by_hearsay),
	    cmocka_unit_test(test_new_incarnation_unseen_death),
	    cmocka_unit_test(test_link_down_and_silence_is_death),
	    cmocka_unit_test(test_link_down_of_a_node_not_heard),
	    cmocka_unit_test(test_at_first_sight),
	    cmocka_unit_test(test_which_connection_stays),
	    cmocka_unit_test(test_random_walk),
	    cmocka_unit_test(test_offer_until_answered),
	    cmocka_unit_test(test_offer_again),
	    cmocka_unit_test(test_offers_of_many_links),
	};

	return cmocka_run_group_tests_name("control_node_state", tests, NULL, NULL);
}
