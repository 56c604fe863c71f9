/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of nodes and its events, as a program's threads see them. */
#include "worlds/plane.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

/* The table has what the test says, not even the node itself. */
static const struct plane_options alone = {.alone = true};

static void
say(struct plane *f, uint16_t id, uint8_t state, uint64_t incarnation)
{
	struct weir_node_info is = {.id = id, .state = state, .incarnation = incarnation};

	is.address_count = 1;
	is.address[0][15] = (uint8_t)id;
	plane_node(f, &is);
}

/* The next event is of this node and says this. */
static void
expect(struct weir *w, uint16_t id, uint32_t change, uint8_t state)
{
	struct weir_event e;

	assert_int_equal(weir_poll(w, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_NODE);
	assert_int_equal(e.cookie, id);
	assert_int_equal(e.change, change);
	assert_int_equal(e.state, state);
	assert_int_equal(e.status, state >= WEIR_NODE_DOWN ? -EHOSTDOWN : 0);
}

static void
expect_none(struct weir *w)
{
	struct weir_event e;

	assert_int_equal(weir_poll(w, &e, 1), 0);
}

static void
test_changes(void **state)
{
	struct plane *f = plane_create(&alone);
	struct weir *w = plane_attach(f);

	say(f, 3, WEIR_NODE_UP, 1);
	expect_none(w); /* nobody has asked */
	assert_int_equal(weir_nodes_watch(w, 1), 0);
	expect(w, 3, WEIR_CHANGE_ADDED | WEIR_CHANGE_UP, WEIR_NODE_UP);
	expect_none(w);
	say(f, 4, WEIR_NODE_JOINING, 0);
	expect(w, 4, WEIR_CHANGE_ADDED, WEIR_NODE_JOINING);
	say(f, 4, WEIR_NODE_UP, 7);
	expect(w, 4, WEIR_CHANGE_UP, WEIR_NODE_UP);
	say(f, 4, WEIR_NODE_SUSPECT, 7);
	expect(w, 4, WEIR_CHANGE_SUSPECT, WEIR_NODE_SUSPECT);
	say(f, 4, WEIR_NODE_DOWN, 7);
	expect(w, 4, WEIR_CHANGE_DOWN, WEIR_NODE_DOWN);
	say(f, 4, WEIR_NODE_UP, 8);
	expect(w, 4, WEIR_CHANGE_UP | WEIR_CHANGE_RESTART, WEIR_NODE_UP);
	say(f, 3, WEIR_NODE_UP, 2);
	expect(w, 3, WEIR_CHANGE_RESTART, WEIR_NODE_UP);
	say(f, 4, WEIR_NODE_GONE, 8);
	expect(w, 4, WEIR_CHANGE_REMOVED, WEIR_NODE_GONE);
	say(f, 4, WEIR_NODE_UP, 9);
	expect(w, 4, WEIR_CHANGE_ADDED | WEIR_CHANGE_UP, WEIR_NODE_UP);
	expect_none(w);
	weir_detach(w);
	plane_destroy(f);
}

/* Another address, one more, and one less. */
static void
test_address(void **state)
{
	struct plane *f = plane_create(&alone);
	struct weir *w = plane_attach(f);
	struct weir_node_info is = {
	    .id = 3, .state = WEIR_NODE_UP, .incarnation = 1, .address_count = 1};

	assert_int_equal(weir_nodes_watch(w, 1), 0);
	plane_node(f, &is);
	expect(w, 3, WEIR_CHANGE_ADDED | WEIR_CHANGE_UP, WEIR_NODE_UP);
	is.address[0][15] = 9;
	plane_node(f, &is);
	expect(w, 3, WEIR_CHANGE_ADDRESS, WEIR_NODE_UP);
	plane_node(f, &is);
	expect_none(w);
	is.address_count = 2;
	is.incarnation = 2;
	plane_node(f, &is);
	expect(w, 3, WEIR_CHANGE_ADDRESS | WEIR_CHANGE_RESTART, WEIR_NODE_UP);
	is.address_count = 1;
	plane_node(f, &is);
	expect(w, 3, WEIR_CHANGE_ADDRESS, WEIR_NODE_UP);
	expect_none(w);
	weir_detach(w);
	plane_destroy(f);
}

/* A program that takes no events is told the difference at last, once per node. */
static void
test_slow(void **state)
{
	struct plane *f = plane_create(&alone);
	struct weir *w = plane_attach(f);

	assert_int_equal(weir_nodes_watch(w, 1), 0);
	say(f, 1, WEIR_NODE_UP, 1);
	say(f, 2, WEIR_NODE_UP, 1);
	expect(w, 1, WEIR_CHANGE_ADDED | WEIR_CHANGE_UP, WEIR_NODE_UP);
	for (unsigned i = 0; i < 1000; i++) {
		say(f, 1, WEIR_NODE_DOWN, 1 + i);
		say(f, 1, WEIR_NODE_UP, 2 + i);
		say(f, 5, WEIR_NODE_UP, 1);
		say(f, 5, WEIR_NODE_GONE, 1);
	}
	expect(w, 2, WEIR_CHANGE_ADDED | WEIR_CHANGE_UP, WEIR_NODE_UP);
	expect(w, 1, WEIR_CHANGE_RESTART, WEIR_NODE_UP);
	expect_none(w); /* 5 was never there as far as we were told */
	weir_detach(w);
	plane_destroy(f);
}

/* First the list, then what came later; larger than a message; without watching too. */
static void
test_list(void **state)
{
	struct plane *f = plane_create(&alone);
	struct weir *w = plane_attach(f);
	struct weir_node_info list[40], one;

	assert_int_equal(weir_nodes(w, list, 40), 0);
	for (uint16_t i = 30; i; i--)
		say(f, i, i % 2 ? WEIR_NODE_UP : WEIR_NODE_DOWN, i);
	assert_int_equal(weir_nodes(w, list, 4), 30);
	assert_int_equal(weir_nodes(w, list, 40), 30);
	for (uint16_t i = 0; i < 30; i++) {
		assert_int_equal(list[i].id, i + 1);
		assert_int_equal(list[i].incarnation, i + 1);
		assert_int_equal(list[i].address[0][15], i + 1);
	}
	expect_none(w);
	assert_int_equal(weir_nodes_watch(w, 1), 0);
	say(f, 7, WEIR_NODE_GONE, 7);
	assert_int_equal(weir_nodes(w, list, 40), 29);
	expect_none(w);
	say(f, 9, WEIR_NODE_DOWN, 9);
	expect(w, 9, WEIR_CHANGE_DOWN, WEIR_NODE_DOWN);
	expect_none(w);
	assert_int_equal(weir_node_find(w, 9, &one), 0);
	assert_int_equal(one.state, WEIR_NODE_DOWN);
	assert_int_equal(weir_node_find(w, 7, &one), -ENOENT);
	assert_int_equal(weir_node_find(w, 700, &one), -ENOENT);
	weir_detach(w);
	plane_destroy(f);
}

/* The old events are for who hasn't asked for these; none are asked for in vain. */
static void
test_quiet(void **state)
{
	struct plane *f = plane_create(&alone);
	struct weir *w = plane_attach(f);
	struct weir_event e;
	uint32_t lists;

	assert_int_equal(weir_nodes_watch(w, 1), 0);
	say(f, 7, WEIR_NODE_UP, 1);
	plane_settle(f); /* the plain event is in the ring as well */
	expect(w, 7, WEIR_CHANGE_ADDED | WEIR_CHANGE_UP, WEIR_NODE_UP);
	lists = plane_lists(f);
	for (int i = 0; i < 100; i++)
		expect_none(w);
	assert_int_equal(plane_lists(f), lists);
	assert_int_equal(weir_nodes_watch(w, 0), 0);
	say(f, 3, WEIR_NODE_UP, 1);
	plane_settle(f);
	assert_int_equal(weir_poll(w, &e, 1), 1);
	assert_int_equal(e.change, 0);
	expect_none(w);
	weir_detach(w);
	plane_destroy(f);
}

static void *
watch_and_end(void *w)
{
	assert_int_equal(weir_nodes_watch(w, 1), 0);
	expect(w, 3, WEIR_CHANGE_ADDED | WEIR_CHANGE_UP, WEIR_NODE_UP);
	return NULL;
}

static void *
look(void *w)
{
	expect_none(w);
	return NULL;
}

/* With a thread its watch ends: others get the plain events again, and who takes its place none. */
static void
test_watcher_ends(void **state)
{
	struct plane *f = plane_create(&alone);
	struct weir *w = plane_attach(f);
	struct weir_listener *l;
	struct weir_event e;
	pthread_t t;

	assert_int_equal(weir_listen(w, "svc", 0, &l), 0); /* has the first channel */
	say(f, 3, WEIR_NODE_UP, 1);
	pthread_create(&t, NULL, watch_and_end, w);
	pthread_join(t, NULL);
	say(f, 4, WEIR_NODE_UP, 1);
	plane_settle(f);
	assert_int_equal(weir_poll(w, &e, 1), 1);
	assert_int_equal(e.type, WEIR_EVENT_NODE);
	assert_int_equal(e.cookie, 4);
	pthread_create(&t, NULL, look, w);
	pthread_join(t, NULL);
	weir_listener_close(l);
	weir_detach(w);
	plane_destroy(f);
}

/* A thread that sleeps is woken, on its own descriptor too. */
static void
test_asleep(void **state)
{
	struct plane *f = plane_create(&alone);
	struct weir *w = plane_attach(f);
	struct pollfd p = {.events = POLLIN};

	assert_int_equal(weir_nodes_watch(w, 1), 0);
	p.fd = weir_fd(w);
	assert_int_equal(weir_arm(w), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	say(f, 3, WEIR_NODE_UP, 1);
	assert_int_equal(poll(&p, 1, PATIENT), 1);
	expect(w, 3, WEIR_CHANGE_ADDED | WEIR_CHANGE_UP, WEIR_NODE_UP);
	assert_int_equal(weir_arm(w), 0);
	say(f, 3, WEIR_NODE_DOWN, 1);
	assert_int_equal(weir_arm(w), -EAGAIN);
	expect(w, 3, WEIR_CHANGE_DOWN, WEIR_NODE_DOWN);
	weir_detach(w);
	plane_destroy(f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_changes),	 cmocka_unit_test(test_address),
	    cmocka_unit_test(test_slow),	 cmocka_unit_test(test_list),
	    cmocka_unit_test(test_quiet),	 cmocka_unit_test(test_asleep),
	    cmocka_unit_test(test_watcher_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
