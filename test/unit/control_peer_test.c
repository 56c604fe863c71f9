/* SPDX-License-Identifier: BSD-3-Clause */
/* The state machine of a peer and the offers kept for it, under virtual time. */
#include "offers.h"
#include "peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TIMEOUT 1000u

static struct peer peer;
static uint64_t now;

static unsigned
step(enum peer_event event)
{
	return peer_step(&peer, event, now, NULL);
}

static unsigned
view(enum peer_event event, enum dp_state state, uint64_t incarnation)
{
	struct dp_view dp = {.state = state, .incarnation = incarnation, .engines = 2};

	return peer_step(&peer, event, now, &dp);
}

// Time passes in ticks, as it does in the process. Returns all that was ordered meanwhile.
static unsigned
pass(uint32_t ms)
{
	unsigned actions = 0;

	for (uint64_t end = now + ms; now < end;) {
		now += 50;
		actions |= step(PEER_TICK);
	}
	return actions;
}

static void
start(uint16_t own, uint16_t other)
{
	now = 1000000;
	peer_init(&peer, other, own, TIMEOUT, now);
}

// A peer that is joined and up with this incarnation.
static void
start_up(uint64_t incarnation)
{
	start(1, 2);
	assert_int_equal(step(PEER_TICK), PEER_DO_DIAL);
	assert_int_equal(view(PEER_OPENED, DP_UP, incarnation), PEER_DO_TELL | PEER_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
}

static void
test_lower_id_dials(void **state)
{
	start(1, 2);
	assert_int_equal(step(PEER_TICK), PEER_DO_DIAL);
	assert_int_equal(pass(5000), 0); // one dial at a time
	start(2, 1);
	assert_int_equal(pass(5000), 0);
	assert_int_equal(peer.state, WEIR_NODE_JOINING);
}

static void
test_backoff_doubles_to_its_limit(void **state)
{
	uint32_t expected[] = {100, 200, 400, 800, 1600, 2000, 2000};

	start(1, 2);
	step(PEER_TICK);
	for (int i = 0; i < 7; i++) {
		uint64_t failed = now;

		step(PEER_LOST);
		while (!(pass(50) & PEER_DO_DIAL))
			assert_true(now - failed < 3000);
		assert_int_equal(now - failed, expected[i]);
	}
	// Once it has worked, the next dial comes soon again.
	view(PEER_OPENED, DP_UP, 1);
	step(PEER_LOST);
	assert_true(pass(100) & PEER_DO_DIAL);
}

static void
test_heartbeats(void **state)
{
	unsigned beats = 0;

	start_up(5);
	for (int i = 0; i < 100; i++) {
		beats += !!(pass(50) & PEER_DO_BEAT);
		step(PEER_HEARD);
	}
	assert_in_range(beats, 19, 21); // each 250 ms of 5 s
	step(PEER_LOST);
	assert_false(pass(50) & PEER_DO_BEAT);
}

static void
test_silence_is_only_suspicion(void **state)
{
	unsigned actions;

	start_up(5);
	actions = pass(TIMEOUT);
	assert_false(actions & PEER_DO_TELL);
	assert_int_equal(pass(50) & PEER_DO_TELL, PEER_DO_TELL);
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
	// Told once, and never down, however long and whether the connection stands or not.
	assert_false(pass(3000) & PEER_DO_TELL);
	assert_true(pass(2000) & PEER_DO_CLOSE);
	step(PEER_LOST);
	for (int i = 0; i < 50; i++) {
		assert_false(pass(2000) & PEER_DO_TELL);
		step(PEER_LOST); // dials fail
	}
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
}

static void
test_heard_again(void **state)
{
	start_up(5);
	pass(TIMEOUT + 50);
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
	assert_int_equal(step(PEER_HEARD), PEER_DO_TELL | PEER_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	assert_int_equal(step(PEER_HEARD), 0);
}

static void
test_control_restarts_in_time(void **state)
{
	start_up(5);
	step(PEER_LOST);
	assert_false(pass(500) & PEER_DO_TELL);
	// It is back but not yet attached to its data plane: no news, and no reason to be down.
	assert_int_equal(view(PEER_OPENED, DP_UNKNOWN, 0), 0);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	// The same data plane: nothing to tell, but offers may have been lost.
	assert_int_equal(view(PEER_VIEW, DP_UP, 5), PEER_DO_OFFERS);
	step(PEER_LOST);
	assert_int_equal(view(PEER_OPENED, DP_UP, 5), PEER_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
}

static void
test_control_restarts_late(void **state)
{
	start_up(5);
	step(PEER_LOST);
	pass(3000);
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
	assert_int_equal(view(PEER_OPENED, DP_UNKNOWN, 0), 0);
	assert_int_equal(step(PEER_HEARD), 0); // its data plane may be dead for all it knows
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
	assert_int_equal(view(PEER_VIEW, DP_UP, 5), PEER_DO_TELL | PEER_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
}

static void
test_death_of_data_plane(void **state)
{
	start_up(5);
	assert_int_equal(view(PEER_VIEW, DP_DOWN, 5), PEER_DO_TELL);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	assert_int_equal(view(PEER_VIEW, DP_DOWN, 5), 0);
	// Heartbeats of its control don't bring it back.
	assert_int_equal(step(PEER_HEARD), 0);
	assert_false(pass(TIMEOUT * 2) & PEER_DO_TELL);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	assert_int_equal(view(PEER_VIEW, DP_UP, 6), PEER_DO_TELL | PEER_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	assert_int_equal(peer.dp.incarnation, 6);
}

static void
test_new_incarnation_unseen_death(void **state)
{
	start_up(5);
	step(PEER_LOST);
	assert_int_equal(view(PEER_OPENED, DP_UP, 6), PEER_DO_TELL | PEER_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	assert_int_equal(peer.dp.incarnation, 6);
}

static void
test_link_down_and_silence_is_death(void **state)
{
	// A link that fails while control is heard says nothing.
	start_up(5);
	assert_int_equal(step(PEER_LINK_DOWN), 0);
	pass(50);
	step(PEER_HEARD);
	pass(TIMEOUT + 50);
	assert_int_equal(peer.state, WEIR_NODE_SUSPECT);
	// Fails after the last word of control: dead.
	assert_int_equal(step(PEER_LINK_DOWN), PEER_DO_TELL);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);

	// The link fails first, then the silence gets long enough.
	start_up(5);
	pass(200);
	assert_int_equal(step(PEER_LINK_DOWN), 0);
	assert_int_equal(peer.state, WEIR_NODE_UP);
	assert_true(pass(TIMEOUT) & PEER_DO_TELL);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	// The same data plane is heard of again: it was a partition.
	assert_int_equal(step(PEER_HEARD), PEER_DO_TELL | PEER_DO_OFFERS);
	assert_int_equal(peer.state, WEIR_NODE_UP);
}

static void
test_link_down_of_a_node_not_heard(void **state)
{
	// Our control is new, our data plane had links to a node that died meanwhile.
	start(2, 1);
	assert_int_equal(step(PEER_LINK_DOWN), 0);
	assert_false(pass(TIMEOUT) & PEER_DO_TELL);
	assert_true(pass(50) & PEER_DO_TELL);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	start(2, 1);
	assert_int_equal(pass(60000), 0);
	assert_int_equal(peer.state, WEIR_NODE_JOINING);
}

static void
test_dead_at_first_sight(void **state)
{
	start(2, 1);
	assert_int_equal(view(PEER_OPENED, DP_DOWN, 0), PEER_DO_TELL);
	assert_int_equal(peer.state, WEIR_NODE_DOWN);
	start(2, 1);
	assert_int_equal(view(PEER_OPENED, DP_UNKNOWN, 0), 0);
	assert_int_equal(peer.state, WEIR_NODE_JOINING);
}

static void
test_replaceable(void **state)
{
	start(2, 1);
	assert_true(peer_replaceable(&peer, now));
	view(PEER_OPENED, DP_UP, 5);
	assert_false(peer_replaceable(&peer, now));
	now += TIMEOUT;
	assert_false(peer_replaceable(&peer, now));
	now++;
	assert_true(peer_replaceable(&peer, now));
	step(PEER_HEARD);
	assert_false(peer_replaceable(&peer, now));
	step(PEER_LOST);
	assert_true(peer_replaceable(&peer, now));
}

// Whatever comes in whatever order: DOWN and UP have a cause, TELL means a change.
static void
test_random_walk(void **state)
{
	uint32_t seed = 12345;
	uint64_t told_incarnation = 0;

	start(1, 2);
	for (int i = 0; i < 200000; i++) {
		enum weir_node_state before = peer.state;
		enum peer_event event = (seed >> 8) % 6;
		struct dp_view dp = {.state = (seed >> 16) % 3,
				     .incarnation = 1 + (seed >> 20) % 3};
		unsigned actions;

		// Only what can happen: nothing is heard without a connection.
		if (peer.phase != PEER_JOINED && (event == PEER_HEARD || event == PEER_VIEW))
			event = PEER_TICK;
		now += (seed >> 24) % 200;
		actions = peer_step(&peer, event, now, &dp);
		if (actions & PEER_DO_TELL)
			assert_true(peer.state != before ||
				    peer.dp.incarnation != told_incarnation);
		else
			assert_int_equal(peer.state, before);
		if (actions & PEER_DO_TELL)
			told_incarnation = peer.dp.incarnation;
		if (peer.state == WEIR_NODE_UP && before != WEIR_NODE_UP)
			assert_true(peer.dp.state == DP_UP && peer.phase == PEER_JOINED);
		if (peer.state == WEIR_NODE_DOWN && before != WEIR_NODE_DOWN)
			assert_true(peer.dp.state == DP_DOWN || peer.link_down_at >= peer.heard_at);
		if (actions & PEER_DO_CLOSE)
			peer_step(&peer, PEER_LOST, now, NULL);
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
	// A new attempt starts it all again.
	a.attempt = 2;
	assert_int_equal(offers_put(&o, &a, now), 0);
	assert_int_equal(sends(&o, 1000), 2);
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
	// Those meant for a data plane that is gone go with it.
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
	    cmocka_unit_test(test_lower_id_dials),
	    cmocka_unit_test(test_backoff_doubles_to_its_limit),
	    cmocka_unit_test(test_heartbeats),
	    cmocka_unit_test(test_silence_is_only_suspicion),
	    cmocka_unit_test(test_heard_again),
	    cmocka_unit_test(test_control_restarts_in_time),
	    cmocka_unit_test(test_control_restarts_late),
	    cmocka_unit_test(test_death_of_data_plane),
	    cmocka_unit_test(test_new_incarnation_unseen_death),
	    cmocka_unit_test(test_link_down_and_silence_is_death),
	    cmocka_unit_test(test_link_down_of_a_node_not_heard),
	    cmocka_unit_test(test_dead_at_first_sight),
	    cmocka_unit_test(test_replaceable),
	    cmocka_unit_test(test_random_walk),
	    cmocka_unit_test(test_offer_until_answered),
	    cmocka_unit_test(test_offers_of_many_links),
	};

	return cmocka_run_group_tests_name("control_peer", tests, NULL, NULL);
}
