/* SPDX-License-Identifier: BSD-3-Clause */
/* Two weir-control processes between two fake data planes: start, death, silence, return. */
#include "fake.h"
#include "rounds.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// It reaches the other data plane. Told meanwhile that the node is down, ours offers it again.
static void
pass(int from, int to, struct weir_ctl_msg offer)
{
	const struct weir_link_offer *got = &fake_dp[to].link;
	unsigned *down = &fake_dp[from].told[to + 1][WEIR_NODE_DOWN], before = *down;

	fake_dp_send(from, &offer);
	while (got->attempt != offer.link.attempt || got->answered != offer.link.answered) {
		AWAIT(
		    (got->attempt == offer.link.attempt && got->answered == offer.link.answered) ||
			*down > before,
		    LONG);
		if (*down > before)
			fake_dp_send(from, &offer);
		before = *down;
	}
	assert_memory_equal(got, &offer.link, sizeof(*got));
}

// The data planes have taken up offers of each other: there is a data path.
static void
link_both(void)
{
	pass(A, B, fake_offer(A, B, 1, 0));
	pass(B, A, fake_offer(B, A, 4, 1));
	pass(A, B, fake_offer(A, B, 1, 4));
	fake_dp[A].links = fake_dp[B].links = 0;
}

static void
test_both_come_up(void **state)
{
	static const uint8_t mapped[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2};
	struct fake_dp *a = &fake_dp[A];

	fake_start_both();
	AWAIT(a->synced == 1 && fake_dp[B].synced == 1, LONG);
	assert_int_equal(a->hello_node, 1);
	assert_int_equal(a->nodes_before_synced, 2);
	assert_int_equal(a->node[1].self, 1);
	assert_int_equal(a->node[1].state, WEIR_NODE_UP);
	assert_int_equal(a->node[1].incarnation, 100);
	assert_int_equal(a->node[2].self, 0);
	assert_int_equal(a->node[2].incarnation, 101);
	assert_int_equal(a->node[2].engines, 2);
	assert_int_equal(a->node[2].address_count, 1);
	assert_memory_equal(a->node[2].address[0], mapped, 16);
	// Nobody becomes suspect while all is well.
	fake_pump(1500);
	assert_int_equal(a->told[2][WEIR_NODE_SUSPECT], 0);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_SUSPECT], 0);
	assert_int_equal(fake_dp[A].hellos, 1);
	assert_int_equal(fake_control_stop(A), 0);
	assert_int_equal(fake_log_count(A, "ended"), 0);
	AWAIT(fake_dp[B].told[1][WEIR_NODE_SUSPECT], LONG);
}

static void
test_any_order(void **state)
{
	fake_control_start(B);
	fake_pump(300);
	fake_dp_start(B, 101);
	fake_control_start(A);
	AWAIT(fake_sees(B, 1, WEIR_NODE_DOWN),
	      LONG); // its control says that nobody is behind the socket
	fake_dp_start(A, 100);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP) && fake_sees(B, 1, WEIR_NODE_UP), LONG);
}

static void
test_offers_until_answered(void **state)
{
	struct weir_ctl_msg answer;
	unsigned before;

	fake_start_both();
	pass(A, B, fake_offer(A, B, 1, 0));
	// Not answered: it comes again.
	AWAIT(fake_dp[B].links >= 3, LONG);
	answer = fake_offer(B, A, 4, 1);
	pass(B, A, answer);
	fake_pump(500); // what is on its way
	before = fake_dp[B].links;
	fake_pump(3000);
	assert_int_equal(fake_dp[B].links, before);
	// And theirs until we answer.
	AWAIT(fake_dp[A].links > 1, LONG);
	assert_memory_equal(&fake_dp[A].link, &answer.link, sizeof(answer.link));
	pass(A, B, fake_offer(A, B, 1, 4));
	fake_pump(500);
	before = fake_dp[A].links;
	fake_pump(3000);
	assert_int_equal(fake_dp[A].links, before);
	assert_int_equal(fake_dp[B].link.answered, 4);
}

static void
test_offers_before_the_peer(void **state)
{
	struct weir_ctl_msg offer;

	fake_dp_start(A, 100);
	fake_control_start(A);
	AWAIT(fake_dp[A].synced, LONG);
	offer = fake_offer(A, B, 1, 0);
	fake_dp_send(A, &offer);
	fake_pump(300);
	fake_control_start(B);
	// Told that the node is down, the data plane has given that link up: the offer goes with
	// it.
	AWAIT(fake_sees(A, 2, WEIR_NODE_DOWN), LONG);
	fake_dp_start(B, 101);
	pass(A, B, fake_offer(A, B, 2, 0));
	// Meant for a data plane that is not there any more: not handed on.
	offer = fake_offer(A, B, 3, 0);
	offer.link.peer_incarnation = 99;
	fake_dp_send(A, &offer);
	fake_pump(1000);
	assert_int_equal(fake_dp[B].link.attempt, 2);
}

static void
test_resync(void **state)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_RESYNC};

	fake_start_both();
	m.link_down.node = 2;
	m.link_down.peer_node = 1;
	m.link_down.engine = 1;
	m.link_down.status = EIO;
	// It goes with a connection that ends just then.
	for (int tries = 0; tries < 20 && !fake_dp[A].resyncs; tries++) {
		fake_dp_send(B, &m);
		for (int i = 0; i < 200 && !fake_dp[A].resyncs; i++)
			fake_pump(10);
	}
	assert_int_not_equal(fake_dp[A].resyncs, 0);
	assert_int_equal(fake_dp[A].resync_node, 2);
	// A message that isn't about us goes nowhere and does no harm.
	m.link_down.status = ENOENT;
	m.link_down.node = 3;
	fake_dp_send(B, &m);
	m.link_down.node = 2;
	m.link_down.peer_node = 2;
	fake_dp_send(B, &m);
	fake_pump(300);
	assert_int_equal(fake_dp[A].resync_status, EIO);
	assert_int_equal(fake_log_count(A, "a resync that is not between us"), 0);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP), LONG);
}

static void
test_data_plane_dies_and_returns(void **state)
{
	uint64_t died;

	fake_start_both();
	died = now_ms();
	fake_dp_die(A);
	AWAIT(fake_sees(B, 1, WEIR_NODE_DOWN), LONG);
	// At once, not after a timeout. (A quarter of a second for a busy machine.)
	assert_true(now_ms() - died < 250);
	assert_int_equal(fake_dp[B].node[1].incarnation, 100);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_SUSPECT], 0);
	fake_pump(500);
	fake_dp_start(A, 200);
	AWAIT(fake_sees(B, 1, WEIR_NODE_UP) && fake_dp[B].node[1].incarnation == 200, LONG);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP), LONG);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_DOWN], 1);
}

// Between two of its starts the clock was set back, and nobody saw that it was gone.
static void
test_clock_set_back(void **state)
{
	fake_start_both();
	fake_dp[B].incarnation = 50;
	fake_dp_hang_up(B);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP) && fake_dp[A].node[2].incarnation == 50, LONG);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_DOWN], 1);
}

static void
test_data_plane_hangs_up(void **state)
{
	fake_start_both();
	// It had enough of a control that read nothing, say; it lives.
	fake_dp_hang_up(A);
	AWAIT(fake_dp[A].hellos == 2 && fake_dp[A].synced == 1, LONG);
	pass(A, B, fake_offer(A, B, 1, 0));
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_DOWN], 0);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_UP], 1);
}

static void
test_control_killed_and_restarted(void **state)
{
	struct weir_ctl_msg link;

	fake_start_both();
	link_both();
	link = fake_offer(B, A, 3, 2);
	fake_control_kill(B, SIGKILL);
	AWAIT(fake_sees(A, 2, WEIR_NODE_SUSPECT), LONG);
	fake_pump(2500);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_DOWN], 0);
	// The data plane tells its links to the new one, which passes them on.
	fake_dp[B].tell[0] = link.link;
	fake_dp[B].tell_count = 1;
	fake_control_start(B);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP) && fake_dp[A].link.attempt == 3, LONG);
	assert_memory_equal(&fake_dp[A].link, &link.link, sizeof(link.link));
	assert_int_equal(fake_dp[A].node[2].incarnation, 101);
	assert_int_equal(fake_dp[B].hellos, 2);
	AWAIT(fake_dp[B].synced == 1 && fake_sees(B, 1, WEIR_NODE_UP), LONG);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_DOWN], 0);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_DOWN], 0);
}

static void
test_control_stopped_and_continued(void **state)
{
	fake_start_both();
	link_both();
	fake_control_kill(A, SIGSTOP);
	AWAIT(fake_sees(B, 1, WEIR_NODE_SUSPECT), LONG);
	fake_pump(1000);
	fake_control_kill(A, SIGCONT);
	AWAIT(fake_sees(B, 1, WEIR_NODE_UP), LONG);
	fake_control_kill(B, SIGSTOP); // longer than a connection may be silent
	AWAIT(fake_sees(A, 2, WEIR_NODE_SUSPECT), LONG);
	fake_pump(6000);
	fake_control_kill(B, SIGCONT);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP) && fake_sees(B, 1, WEIR_NODE_UP), LONG);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_DOWN], 0);
	assert_int_equal(fake_dp[B].told[1][WEIR_NODE_DOWN], 0);
	assert_int_equal(fake_dp[A].hellos, 1);
}

// A control that is new hears of links from its data plane: silence is suspicion for it too.
static void
test_links_outlive_control(void **state)
{
	fake_start_both();
	link_both();
	fake_links_outlive_controls();
}

// Nobody could answer for the node: silence of its control is all there is.
static void
test_silence_without_a_link(void **state)
{
	fake_start_both();
	fake_control_kill(B, SIGKILL);
	AWAIT(fake_sees(A, 2, WEIR_NODE_DOWN), LONG);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_SUSPECT], 1);
	fake_control_start(B);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP), LONG);
}

// A link that ended in order answers for nobody, unless others live.
static void
test_silence_after_a_link(void **state)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK_DOWN};

	fake_start_both();
	link_both();
	m.link_down.node = 1;
	m.link_down.peer_node = 2;
	m.link_down.status = ESHUTDOWN;
	fake_dp_send(A, &m);
	fake_control_kill(B, SIGKILL);
	AWAIT(fake_sees(A, 2, WEIR_NODE_SUSPECT), LONG);
	fake_pump(2000);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_DOWN], 0);
	m.link_down.status = 0;
	fake_dp_send(A, &m);
	AWAIT(fake_sees(A, 2, WEIR_NODE_DOWN), LONG);
	fake_control_start(B);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP), LONG);
}

// Half the node timeout without a CPU is neither death nor suspicion.
static void
test_short_stop(void **state)
{
	fake_start_both();
	for (int i = 0; i < 5; i++) {
		fake_control_kill(B, SIGSTOP);
		fake_pump(250);
		fake_control_kill(B, SIGCONT);
		fake_pump(500);
	}
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_DOWN], 0);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_SUSPECT], 0);
}

static void
test_node_lost(void **state)
{
	struct weir_ctl_msg m = {.type = WEIR_CTL_LINK_DOWN};

	fake_start_both();
	m.link_down.node = 1;
	m.link_down.peer_node = 2;
	m.link_down.status = EIO;
	// A link fails while control is heard: no reason to give the node up.
	fake_dp_send(A, &m);
	fake_pump(1000);
	assert_true(fake_sees(A, 2, WEIR_NODE_UP));
	// The whole node falls silent, then a link fails.
	link_both();
	fake_control_kill(B, SIGSTOP);
	AWAIT(fake_sees(A, 2, WEIR_NODE_SUSPECT), LONG);
	fake_pump(1000);
	assert_int_equal(fake_dp[A].told[2][WEIR_NODE_DOWN], 0);
	fake_dp_send(A, &m);
	AWAIT(fake_sees(A, 2, WEIR_NODE_DOWN), LONG);
	fake_control_kill(B, SIGCONT);
	AWAIT(fake_sees(A, 2, WEIR_NODE_UP), LONG);
}

static void
test_dead_behind_a_dead_control(void **state)
{
	fake_start_both();
	link_both(); // which nobody asks: silence alone is no death
	fake_control_kill(A, SIGKILL);
	fake_dp_die(A);
	AWAIT(fake_sees(B, 1, WEIR_NODE_SUSPECT), LONG);
	// The new control finds nobody behind the socket and says so.
	fake_control_start(A);
	AWAIT(fake_sees(B, 1, WEIR_NODE_DOWN), LONG);
}

static void
test_data_plane_of_another_release(void **state)
{
	fake_dp_start(A, 100);
	fake_dp[A].versions = (struct weir_versions){WEIR_CTL_VERSION + 1, WEIR_CTL_VERSION + 2};
	fake_control_start(A);
	AWAIT(fake_log_count(A, "upgrade weir-control, which is older"), LONG);
	AWAIT(fake_dp[A].hellos > 3, LONG); // it may be replaced meanwhile
	assert_int_equal(fake_log_count(A, "upgrade weir-control, which is older"), 1);
	fake_dp[A].versions = (struct weir_versions){WEIR_CTL_VERSION - 1, WEIR_CTL_VERSION - 1};
	AWAIT(fake_log_count(A, "upgrade weir-dataplane, which is older"), LONG);
	fake_dp[A].versions.highest = WEIR_CTL_VERSION + 1;
	AWAIT(fake_dp[A].synced, LONG);
}

static void
test_stop_leaves_nothing(void **state)
{
	char path[96];

	fake_control_start(A);
	AWAIT(fake_log_count(A, "listens on"), LONG);
	snprintf(path, sizeof(path), "%s/a/control.pid", fake_dir);
	assert_int_equal(access(path, R_OK), 0);
	fake_control_kill(A, SIGINT);
	assert_int_equal(fake_control_stop(A), 0);
	assert_int_equal(access(path, R_OK), -1);
	snprintf(path, sizeof(path), "%s/a", fake_dir);
	assert_int_equal(rmdir(path), 0); // it is there, and empty
	// A pid file that a killed one has left is no obstacle.
	fake_control_start(A);
	AWAIT(fake_log_count(A, "listens on") == 2, LONG);
	fake_control_kill(A, SIGKILL);
	fake_control_start(A);
	AWAIT(fake_log_count(A, "listens on") == 3, LONG);
}

// It ends in order as soon as there is something to remove.
static void
test_stopped_while_it_starts(void **state)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/a/control.pid", fake_dir);
	for (unsigned i = 0; i < 60; i++) {
		uint64_t end = now_ms() + LONG;
		pid_t pid;

		fake_control_start(A);
		pid = fake_control[A].pid;
		fake_control[A].pid = 0;
		while (access(path, F_OK))
			assert_true(now_ms() < end);
		kill(pid, SIGTERM);
		assert_int_equal(fake_await_exit(pid), 0);
		assert_int_equal(access(path, F_OK), -1);
	}
}

// However often it is told to, it ends once, and in order.
static void
test_stop_again_and_again(void **state)
{
	for (unsigned i = 1; i <= 30; i++) {
		pid_t pid;
		int status;

		fake_control_start(A);
		AWAIT(fake_log_count(A, "listens on") == i, LONG);
		pid = fake_control[A].pid;
		fake_control[A].pid = 0;
		while (waitpid(pid, &status, WNOHANG) == 0)
			kill(pid, SIGTERM);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

static void
test_one_per_instance(void **state)
{
	char text[512], expected[64], listen[32];
	char *argv[] = {(char *)fake_binary, "--instance", "a",	      "--node",	  "1",
			"--listen",	     listen,	   "--peers", fake_peers, NULL};

	fake_control_start(A);
	AWAIT(fake_log_count(A, "listens on"), LONG);
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", fake_control[B].port);
	assert_int_equal(fake_run(argv, text, sizeof(text)), 3);
	snprintf(expected, sizeof(expected), "runs already as pid %d;", (int)fake_control[A].pid);
	assert_non_null(strstr(text, expected));
	argv[2] = "c";
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", fake_control[A].port);
	assert_int_equal(fake_run(argv, text, sizeof(text)), 3);
	assert_non_null(strstr(text, "Address already in use; stop what listens there"));
}

static void
test_usage(void **state)
{
	static const struct {
		const char *args[9], *says;
	} bad[] = {
	    {{"--bogus"}, "unknown option '--bogus'"},
	    {{"extra"}, "unexpected argument 'extra'"},
	    {{"--listen"}, "missing value for --listen"},
	    {{"--join", "127.0.0.1"},
	     "invalid value '127.0.0.1' for --join (expected HOST:PORT[,HOST:PORT...])"},
	    {{"--join", "127.0.0.1:1,"},
	     "invalid value '127.0.0.1:1,' for --join (expected HOST:PORT[,HOST:PORT...])"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--peers", "P", "--join", "127.0.0.1:1"},
	     "--peers, --join and --etcd contradict each other"},
	    {{"--node", "auto", "--listen", "127.0.0.1:1", "--peers", "P"},
	     "--node auto needs --join or --etcd"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--join", "192.0.2.1:1"},
	     "give certificates with --tls DIR, or --insecure"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--etcd", "http://x"},
	     "invalid value 'http://x' for --etcd"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--etcd", ""},
	     "invalid value '' for --etcd"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--etcd", "http://127.0.0.1:1,"},
	     "invalid value '' for --etcd"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--etcd", "http://127.0.0.1:1/v3"},
	     "invalid value 'http://127.0.0.1:1/v3' for --etcd (expected http://HOST:PORT"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--etcd", "http://192.0.2.1:2379"},
	     "is neither TLS nor loopback"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--etcd", "http://127.0.0.1:1",
	      "--etcd-user", "x"},
	     "--etcd-user and --etcd-password belong together"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--etcd", "https://x:1", "--etcd-tls",
	      "/nonexistent"},
	     "put the CA of etcd's certificate there"},
	    {{"--node", "65535"}, "invalid value '65535' for --node (expected a node id"},
	    {{"--node", "-1"}, "invalid value '-1' for --node (expected a node id"},
	    {{"--node", "1x"}, "invalid value '1x' for --node (expected a node id"},
	    {{"--node-timeout", "1h"}, "invalid value '1h' for --node-timeout (expected a time"},
	    {{"--node-timeout", "10ms"},
	     "invalid value '10ms' for --node-timeout (expected a time"},
	    {{"--instance", "../x"}, "invalid value '../x' for --instance "},
	    {{"--cluster", ""}, "invalid value '' for --cluster "},
	    {{"--listen", "127.0.0.1:1", "--peers", "P"}, "--node is missing"},
	    {{"--node", "1", "--peers", "P"}, "--listen is missing"},
	    {{"--node", "1", "--listen", "127.0.0.1:1"}, "--peers, --join or --etcd is missing"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--peers", "/nonexistent"},
	     "cannot read /nonexistent: No such file or directory"},
	    {{"--node", "3", "--listen", "127.0.0.1:1", "--peers", "P"}, "node 3 is not in"},
	    {{"--log-level", "error", "--node", "3", "--listen", "127.0.0.1:1", "--peers", "P"},
	     "node 3 is not in"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--etcd", "http://h:1", "--insecure",
	      "--etcd-tls", "/nonexistent"},
	     "cannot read /nonexistent/ca.pem"},
	    {{"--node", "1", "--listen", "127.0.0.1:1", "--etcd",
	      "http://[::1]:1,http://[::1]:2,http://[::1]:3,http://[::1]:4,http://[::1]:5,"
	      "http://[::1]:6,http://[::1]:7,http://[::1]:8,http://[::1]:9"},
	     "more than 8 URLs"},
	    {{"--node", "1", "--listen", "127.0.0.1", "--peers", "P"}, "is not HOST:PORT"},
	    {{"--node", "1", "--listen", "0.0.0.0:1", "--peers", "P"},
	     "give certificates with --tls DIR, or --insecure"},
	    {{"--node", "1", "--listen", "[::]:1", "--peers", "P"},
	     "give certificates with --tls DIR, or --insecure"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *argv[11] = {(char *)fake_binary}, text[4096];
		int status;

		for (int j = 0; j < 9 && bad[i].args[j]; j++)
			argv[j + 1] =
			    strcmp(bad[i].args[j], "P") ? (char *)bad[i].args[j] : fake_peers;
		status = fake_run(argv, text, sizeof(text));
		if (status != 2 || !strstr(text, bad[i].says) ||
		    strncmp(text, "weir-control: ", 14) || strchr(text, '\n')[1])
			fail_msg("case %zu: exit %d, not '%s' but '%s'", i, status, bad[i].says,
				 text);
	}
}

static void
test_help(void **state)
{
	char *argv[] = {(char *)fake_binary, "--help", NULL}, text[4096];

	assert_int_equal(fake_run(argv, text, sizeof(text)), 0);
	assert_non_null(strstr(text, "--peers FILE"));
	assert_non_null(strstr(text, "Exit codes"));
	argv[1] = "--version";
	assert_int_equal(fake_run(argv, text, sizeof(text)), 0);
}

static void
test_bad_peers_file(void **state)
{
	char *argv[] = {(char *)fake_binary, "--node",	"1",	    "--listen",
			"127.0.0.1:1",	     "--peers", fake_peers, NULL};
	char text[512];
	FILE *f = fopen(fake_peers, "w");

	fputs("# one\n1 127.0.0.1:1 10.0.0.1\n2 127.0.0.1:2 10.0.0.x\n", f);
	fclose(f);
	assert_int_equal(fake_run(argv, text, sizeof(text)), 2);
	assert_non_null(strstr(text, "/peers:3:15: '10.0.0.x' is not an IPv4 or IPv6 address;"));
	f = fopen(fake_peers, "w");
	fputs("1 127.0.0.1:1 10.0.0.1\n2 192.0.2.1:2 10.0.0.2\n", f);
	fclose(f);
	assert_int_equal(fake_run(argv, text, sizeof(text)), 2);
	assert_non_null(strstr(text, "peer '192.0.2.1:2' is not a loopback address"));
}

// It listens where nobody will look for it: told, since it may be meant so.
static void
test_listens_elsewhere(void **state)
{
	fake_control_start(A);
	AWAIT(fake_log_count(A, "node 1 of cluster"), LONG);
	assert_int_equal(fake_log_count(A, "but others look"), 0);
	assert_int_equal(fake_control_stop(A), 0);
	fake_control[A].port = fake_control[B].port;
	fake_control_start(A);
	AWAIT(fake_log_count(A, "node 1 of cluster") == 2, LONG);
	assert_int_equal(fake_log_count(A, "but others look for node 1 at 127.0.0.1:"), 1);
	assert_int_equal(fake_control_stop(A), 0);
}

// One line says why, and it is true.
static void
test_metrics_port_taken(void **state)
{
	char *argv[] = {(char *)fake_binary, "--node",	 "1",	      "--listen",    "127.0.0.1:0",
			"--peers",	     fake_peers, "--metrics", "127.0.0.1:0", NULL};
	char text[512], at[32];
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, length), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &length), 0);
	snprintf(at, sizeof(at), "127.0.0.1:%u", ntohs(a.sin_port));
	argv[8] = at;
	assert_int_equal(fake_run(argv, text, sizeof(text)), 3);
	close(fd);
	assert_non_null(strstr(text, "cannot serve metrics"));
	assert_string_equal(strchr(text, '\n'), "\n");
}

int
main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
#define TIMED(name) ROUNDS(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TIMED(test_both_come_up),
	    TEST(test_any_order),
	    TIMED(test_offers_until_answered),
	    TEST(test_offers_before_the_peer),
	    TEST(test_resync),
	    TIMED(test_data_plane_dies_and_returns),
	    TEST(test_clock_set_back),
	    TIMED(test_data_plane_hangs_up),
	    TIMED(test_control_killed_and_restarted),
	    TIMED(test_control_stopped_and_continued),
	    TIMED(test_links_outlive_control),
	    TIMED(test_silence_without_a_link),
	    TIMED(test_silence_after_a_link),
	    TIMED(test_short_stop),
	    TIMED(test_node_lost),
	    TIMED(test_dead_behind_a_dead_control),
	    TEST(test_data_plane_of_another_release),
	    TEST(test_stop_leaves_nothing),
	    TEST(test_stopped_while_it_starts),
	    TEST(test_stop_again_and_again),
	    TEST(test_one_per_instance),
	    TEST(test_usage),
	    TEST(test_help),
	    TEST(test_bad_peers_file),
	    TEST(test_listens_elsewhere),
	    TEST(test_metrics_port_taken),
	};

	return FAKE_MAIN("control_process", tests);
}
