/* SPDX-License-Identifier: BSD-3-Clause */
/* Two weir-control processes without a peers file: they find each other, agree about ids, part. */
#include "fake.h"
#include "rounds.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char at_a[32], at_both[64], at_b[32];
static pid_t etcd;		/* 0: none */
static char etcd_directory[32]; /* "": none */

static int
setup(void **state)
{
	fake_setup(state);
	snprintf(at_a, sizeof(at_a), "127.0.0.1:%u", fake_control[A].port);
	snprintf(at_b, sizeof(at_b), "127.0.0.1:%u", fake_control[B].port);
	snprintf(at_both, sizeof(at_both), "%s,%s", at_a, at_b);
	for (int i = 0; i < 2; i++)
		fake_dp_start(i, 100 + i);
	return 0;
}

static void
end_etcd(void)
{
	char *remove[] = {"/bin/rm", "-r", etcd_directory, NULL}, text[128];

	if (etcd) {
		kill(etcd, SIGKILL);
		waitpid(etcd, NULL, 0);
	}
	etcd = 0;
	if (*etcd_directory)
		fake_run(remove, text, sizeof(text));
	*etcd_directory = 0;
}

static int
teardown(void **state)
{
	end_etcd();
	fake_control[A].etcd = NULL;
	fake_teardown(state);
	return 0;
}

static void
join(int i, const char *node, const char *seeds)
{
	fake_control[i].node = node;
	fake_control[i].join = seeds;
	fake_control_start(i);
}

// The last that was told of a node, whatever its id.
static const struct weir_ctl_node *
far_node(int dp, uint32_t id)
{
	static const struct weir_ctl_node none = {.state = WEIR_NODE_JOINING};
	const struct fake_dp *d = &fake_dp[dp];

	if (id < FAKE_NODES)
		return &d->node[id];
	for (unsigned i = d->far_count; i-- > 0 && d->far_count - i <= FAKE_FAR;)
		if (d->far[i % FAKE_FAR].id == id)
			return &d->far[i % FAKE_FAR];
	return &none;
}

static void
join_both(void)
{
	join(A, "1", at_a);
	join(B, "2", at_a);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP) && fake_sees(B, 1, WEIR_NODE_UP), LONG);
}

static void
test_two_find_each_other(void **state)
{
	join_both();
	assert_int_equal(fake_dp[A].self, 1);
	assert_int_equal(fake_dp[B].self, 2);
	assert_int_equal(fake_dp[B].node[1].incarnation, 100);
	assert_string_equal(fake_dp[B].node[1].control, at_a);
	assert_string_equal(fake_dp[A].node[2].control, at_b);
	fake_pump(1500);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_SUSPECT], 0);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_SUSPECT], 0);
}

// Its own address in --join, but not as --listen writes it: the cluster begins all the same.
static void
test_seed_is_self(void **state)
{
	char alias[48];

	snprintf(alias, sizeof(alias), "[::ffff:127.0.0.1]:%u", fake_control[A].port);
	join(A, "1", alias);
	join(B, "2", at_a);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP) && fake_sees(B, 1, WEIR_NODE_UP), LONG);
	assert_int_equal(fake_log_count(A, "belongs to another node"), 0);
	assert_in_range(fake_log_count(A, "it is this node itself"), 1, 2); // as either end
}

static void
test_seed_comes_later(void **state)
{
	join(B, "2", at_a);
	AWAIT(fake_log_count(B, "no answer from"), LONG);
	fake_pump(3000);
	assert_int_equal(fake_dp[B].nodes, 0); // no cluster, no id
	assert_in_range(fake_log_count(B, "no answer from"), 1, 3);
	join(A, "1", at_a);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP) && fake_sees(B, 1, WEIR_NODE_UP), LONG);
}

// Both may begin: they find each other all the same, and one id is chosen twice by nobody.
static void
test_auto_ids(void **state)
{
	uint32_t a, b;

	join(A, "auto", at_both);
	join(B, "auto", at_both);
	AWAIT(fake_dp[A].synced && fake_dp[B].synced, LONG);
	a = fake_dp[A].self;
	b = fake_dp[B].self;
	assert_int_not_equal(a, b);
	AWAIT(far_node(A, b)->state == WEIR_NODE_UP && far_node(B, a)->state == WEIR_NODE_UP, LONG);
	// A control that is started again asks its data plane which id it had, and waits for the
	// answer: with another id all links would end.
	fake_dp[B].keeps_id = true;
	fake_control_kill(B, SIGKILL);
	fake_pump(200);
	fake_control_start(B);
	for (uint64_t end = now_ms() + LONG; fake_log_count(B, "listens on") < 2 && now_ms() < end;)
		usleep(10000); // nobody answers it meanwhile
	sleep(1);
	AWAIT(fake_dp[B].hellos == 2 && fake_dp[B].synced == 1, LONG);
	assert_int_equal(fake_dp[B].self, b);
	AWAIT(far_node(B, a)->state == WEIR_NODE_UP, LONG);
}

static void
test_id_taken(void **state)
{
	join(A, "1", at_a);
	AWAIT(fake_dp[A].synced, LONG);
	join(B, "1", at_both);
	AWAIT(fake_log_count(B, "node id 1 belongs to another node"), LONG);
	fake_pump(2000);
	assert_int_equal(fake_log_count(B, "node id 1 belongs to another node"), 1);
	assert_int_equal(fake_dp[B].nodes, 0);
	assert_int_equal(fake_dp[A].self, 1);
	assert_int_equal(fake_log_count(A, "belongs to another node"), 0);
	// When the other one has gone, it is free.
	fake_control_kill(A, SIGKILL);
	AWAIT(fake_dp[B].synced && fake_dp[B].self == 1, LONG);
	join(A, "3", at_both);
	AWAIT(fake_sees(B, 3, WEIR_NODE_UP) && fake_sees(A, 1, WEIR_NODE_UP), LONG);
}

static void
test_killed_and_back(void **state)
{
	join_both();
	fake_control_kill(B, SIGKILL);
	AWAIT(fake_sees(A, 2, WEIR_NODE_DOWN), LONG); // no link could answer for it
	fake_control_start(B);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP), LONG);
	// The seed itself.
	fake_control_kill(A, SIGKILL);
	AWAIT(fake_sees(B, 1, WEIR_NODE_DOWN), LONG);
	fake_control_start(A);
	AWAIT(fake_sees(B, 1, WEIR_NODE_UP) && fake_sees(A, 2, WEIR_NODE_UP), LONG);
}

// The data plane reports its links before the control has an id.
static void
test_links_outlive_control(void **state)
{
	join(A, "1", at_both);
	join(B, "2", at_both);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP) && fake_sees(B, 1, WEIR_NODE_UP), LONG);
	fake_dp[A].keeps_id = true;
	fake_links_outlive_controls();
	assert_int_equal(fake_log_count(A, "data plane sent a link message"), 0);
}

// Its data plane first, then its control: the others know at once.
static void
test_leaves(void **state)
{
	join_both();
	fake_dp_die(B);
	AWAIT(fake_sees(A, 2, WEIR_NODE_DOWN), LONG);
	assert_int_equal(fake_control_stop(B), 0);
	fake_pump(1500);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_SUSPECT], 0);
	fake_dp_start(B, 300);
	fake_control_start(B);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP) && fake_dp[A].node[2].incarnation == 300, LONG);
}

static void
test_useless_address(void **state)
{
	char *argv[] = {(char *)fake_binary, "--node", "1",  "--listen", "0.0.0.0:0",
			"--insecure",	     "--join", at_a, NULL};
	char text[1024];

	assert_int_equal(fake_run(argv, text, sizeof(text)), 2);
	assert_non_null(strstr(text, "for --listen (with --join or --etcd expected an address"));
}

static pid_t
run_etcd(const char *directory, const char *url)
{
	char *argv[] = {"etcd",
			"--unsafe-no-fsync",
			"--data-dir",
			(char *)directory,
			"--listen-peer-urls",
			"http://127.0.0.1:0",
			"--listen-client-urls",
			(char *)url,
			"--advertise-client-urls",
			(char *)url,
			NULL};
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	freopen("/dev/null", "w", stderr);
	execvp(argv[0], argv);
	_exit(127);
}

// The data plane is there long before the id is.
static void
test_etcd_comes_last(void **state)
{
	char url[64];

	snprintf(etcd_directory, sizeof(etcd_directory), "/tmp/weir-join-XXXXXX");
	assert_non_null(mkdtemp(etcd_directory));
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", fake_control[B].port);
	fake_control[A].node = "auto";
	fake_control[A].join = NULL;
	fake_control[A].etcd = url;
	fake_control_start(A);
	AWAIT(fake_dp[A].hellos, LONG);
	fake_pump(200);
	assert_int_equal(fake_dp[A].synced, 0);
	etcd = run_etcd(etcd_directory, url);
	AWAIT(fake_dp[A].synced && fake_log_count(A, "node id is"), LONG);
	assert_in_range(fake_dp[A].self, 1, 9);
	assert_int_equal(fake_control_stop(A), 0);
}

int
main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TIMED(name) ROUNDS(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TIMED(test_two_find_each_other),
	    TIMED(test_seed_is_self),
	    TEST(test_seed_comes_later),
	    TEST(test_auto_ids),
	    TIMED(test_id_taken),
	    TEST(test_killed_and_back),
	    TIMED(test_links_outlive_control),
	    TIMED(test_leaves),
	    TEST(test_useless_address),
	    TEST(test_etcd_comes_last),
	};

	return FAKE_MAIN("control_join", tests);
}
