/* SPDX-License-Identifier: BSD-3-Clause */
/* Public services between two weir-control processes and fake data planes. */
#include "fake.h"
#include "rounds.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

// Services of a data plane from now on.
static void
offer(int dp, const char *a, const char *b)
{
	struct weir_services *s = &fake_dp[dp].own;

	memset(s, 0, sizeof(*s));
	if (a)
		weir_services_add(s, a);
	if (b)
		weir_services_add(s, b);
}

// Has this data plane been told what that node offers now?
static bool
knows(int dp, int node)
{
	return weir_services_digest(&fake_dp[dp].offers[node + 1]) ==
		   weir_services_digest(&fake_dp[node].own) &&
	       fake_dp[dp].offered_by[node + 1] == fake_dp[node].incarnation;
}

static void
test_told_and_withdrawn(void **state)
{
	offer(A, "kv", NULL); // before anybody is there
	fake_start_both();
	AWAIT(knows(B, A) && knows(A, B), LONG);
	assert_true(weir_services_has(&fake_dp[B].offers[1], "kv"));
	offer(A, "kv", "log");
	fake_dp_services(A);
	AWAIT(knows(B, A), LONG);
	offer(B, "mail", NULL);
	fake_dp_services(B);
	AWAIT(knows(A, B), LONG);
	offer(A, NULL, NULL);
	fake_dp_services(A);
	AWAIT(knows(B, A), LONG);
	assert_int_equal(fake_dp[B].offers[1].count, 0);
}

// Nothing new is told while nothing is.
static void
test_quiet(void **state)
{
	unsigned told;

	offer(A, "kv", NULL);
	fake_start_both();
	AWAIT(knows(B, A) && knows(A, B), LONG);
	fake_pump(500);
	told = fake_dp[B].offers_told;
	fake_dp_services(A); // the same again
	fake_pump(1000);
	assert_int_equal(fake_dp[B].offers_told, told);
}

// A control that is killed: its data plane knows what it knew, and the next one tells what is new.
static void
test_control_restarted(void **state)
{
	offer(A, "kv", NULL);
	fake_start_both();
	AWAIT(knows(B, A), LONG);
	fake_control_kill(B, SIGKILL);
	AWAIT(fake_dp[B].conn < 0, LONG); // all that it has told is heard
	memset(fake_dp[B].offers, 0, sizeof(fake_dp[B].offers));
	fake_control_start(B);
	AWAIT(knows(B, A), LONG); // told again, though nothing has changed
	fake_control_kill(A, SIGKILL);
	offer(A, "log", NULL);
	fake_control_start(A);
	AWAIT(knows(B, A), LONG);
	// gone while nobody listened
	fake_control_kill(B, SIGKILL);
	offer(A, NULL, NULL);
	fake_dp_services(A);
	fake_pump(100);
	fake_control_start(B);
	AWAIT(knows(B, A), LONG);
}

// Another life of a data plane: what it offers is told with its incarnation, if it is the same too.
static void
test_data_plane_restarted(void **state)
{
	offer(A, "kv", NULL);
	fake_start_both();
	AWAIT(knows(B, A), LONG);
	fake_dp_die(A);
	AWAIT(fake_sees(B, 1, WEIR_NODE_DOWN), LONG);
	fake_dp_start(A, 300);
	AWAIT(fake_sees(B, 1, WEIR_NODE_UP) && knows(B, A), LONG);
	assert_int_equal(fake_dp[B].offered_by[1], 300);
	fake_dp_die(A);
	AWAIT(fake_sees(B, 1, WEIR_NODE_DOWN), LONG);
	offer(A, NULL, NULL);
	fake_dp_start(A, 400);
	AWAIT(fake_sees(B, 1, WEIR_NODE_UP) && knows(B, A), LONG);
}

// As many as there can be, with names as long as they can be.
static void
test_full_list(void **state)
{
	char name[WEIR_SERVICE_MAX];

	fake_start_both();
	for (uint32_t i = 0; i < WEIR_SERVICES_MAX; i++) {
		snprintf(name, sizeof(name), "a-name-that-is-as-long-as-may%02u", i % 100);
		weir_services_add(&fake_dp[A].own, name);
	}
	assert_int_equal(fake_dp[A].own.count, WEIR_SERVICES_MAX);
	fake_dp_services(A);
	AWAIT(knows(B, A), LONG);
}

int
main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_told_and_withdrawn), ROUNDS(test_quiet, fake_setup, fake_teardown),
	    TEST(test_control_restarted),  TEST(test_data_plane_restarted),
	    TEST(test_full_list),
	};

	return FAKE_MAIN("control_service", tests);
}
