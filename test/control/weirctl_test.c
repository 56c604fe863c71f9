/* SPDX-License-Identifier: BSD-3-Clause */
/* weirctl against a data plane that is none: tables, JSON, waiting, errors. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

static char text[1 << 20];

static void
answer_with(const void *records, uint32_t count, uint32_t page)
{
	fake_dp[0].records = records;
	fake_dp[0].record_count = count;
	fake_dp[0].page = page;
}

// weirctl FIRST SECOND WORDS...; the words are separated by blanks.
static int
run(const char *first, const char *second, const char *words)
{
	char copy[128], *argv[12] = {(char *)fake_binary, (char *)first, (char *)second};
	int n = 3;

	snprintf(copy, sizeof(copy), "%s", words);
	for (char *at = copy, *w; (w = strsep(&at, " "));)
		if (*w)
			argv[n++] = w;
	return fake_run(argv, text, sizeof(text));
}

static int
weirctl(const char *words)
{
	return run("--instance", "a", words);
}

// As long as weirctl has the patience to, we may have been late: once more.
static int
weirctl_answered(const char *words)
{
	uint64_t end = now_ms() + LONG;
	int code;

	do
		code = weirctl(words);
	while (strstr(text, "data plane does not answer") && now_ms() < end);
	return code;
}

// weirctl wait WHAT: in vain, however long it waits, and it says what there is.
static void
waits(const char *what, const char *says)
{
	static const char *const timeout[] = {"0.2", "2", "8", "20"};
	char words[96];

	for (int i = 0; i < 4; i++) {
		snprintf(words, sizeof(words), "wait %s --timeout %s", what, timeout[i]);
		assert_int_equal(weirctl(words), 4);
		if (strstr(text, says))
			return;
	}
	fail_msg("'%s': not '%s' but '%s'", what, says, text);
}

static json_t *
shown(const char *kind, size_t count)
{
	char words[64];
	json_t *array;

	snprintf(words, sizeof(words), "--json show %s", kind);
	assert_int_equal(weirctl_answered(words), 0);
	array = json_loads(text, 0, NULL);
	assert_non_null(array);
	assert_int_equal(json_array_size(array), count);
	return array;
}

static json_int_t
number(const json_t *row, const char *key)
{
	assert_true(json_is_integer(json_object_get(row, key)));
	return json_integer_value(json_object_get(row, key));
}

static const char *
string(const json_t *row, const char *key)
{
	assert_true(json_is_string(json_object_get(row, key)));
	return json_string_value(json_object_get(row, key));
}

static void
test_nodes(void **state)
{
	struct weir_row_node nodes[2] = {
	    {.is = {.id = 1,
		    .state = WEIR_NODE_UP,
		    .incarnation = 1ull << 62,
		    .engines = 2,
		    .self = 1,
		    .address_count = 2,
		    .control = "127.0.0.1:7471",
		    .address = {{[10] = 0xff, 0xff, 10, 0, 0, 1}, {[0] = 0xfd, [15] = 1}}}},
	    {.is = {.id = 2, .state = WEIR_NODE_SUSPECT}, .link = "up", .link_address = "10.0.0.2"},
	};
	json_t *array;

	fake_dp_start(0, 100);
	answer_with(nodes, 2, 10);
	array = shown("nodes", 2);
	assert_int_equal(number(json_array_get(array, 0), "id"), 1);
	assert_string_equal(string(json_array_get(array, 0), "state"), "up");
	assert_string_equal(string(json_array_get(array, 0), "address"), "10.0.0.1,fd00::1");
	assert_int_equal(number(json_array_get(array, 0), "incarnation"), 1ll << 62);
	assert_string_equal(string(json_array_get(array, 1), "state"), "suspect");
	assert_string_equal(string(json_array_get(array, 1), "link"), "up");
	assert_string_equal(string(json_array_get(array, 1), "link_address"), "10.0.0.2");
	json_decref(array);
	assert_int_equal(weirctl_answered("show nodes"), 0);
	assert_non_null(strstr(text, "NODE  SELF  STATE"));
	assert_non_null(strstr(text, "suspect"));
}

static void
test_pages(void **state)
{
	struct weir_row_connection *rows = calloc(1000, sizeof(*rows));
	json_t *array, *ways;

	for (uint32_t i = 0; i < 1000; i++) {
		rows[i].vqpn = i + 0x100000;
		rows[i].peer_node = 2;
		rows[i].local = i == 5;
		rows[i].window = 2 << 20;
		rows[i].by_ring = 3000000000;
		snprintf(rows[i].state_name, sizeof(rows[i].state_name),
			 i < 10 ? "open" : "opening");
	}
	fake_dp_start(0, 100);
	answer_with(rows, 1000, 150);
	array = shown("connections", 1000);
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(number(json_array_get(array, i), "vqpn"), i + 0x100000);
	assert_string_equal(string(json_array_get(array, 4), "peer"), "node:2");
	assert_string_equal(string(json_array_get(array, 5), "peer"), "local");
	ways = json_object_get(json_array_get(array, 4), "by_primitive");
	assert_int_equal(number(ways, "ring"), 3000000000);
	assert_int_equal(number(ways, "send"), 0);
	json_decref(array);
	assert_int_equal(weirctl_answered("show connections"), 0);
	assert_non_null(strstr(text, "2048.0 KiB"));
	assert_non_null(strstr(text, "ring=3000000000"));

	assert_int_equal(weirctl("wait connections:10 --timeout 0"), 0);
	waits("connections:11", "10 of 11 connections are open");
	assert_int_equal(weirctl("wait connections:0 --timeout 0.2"), 4);
	answer_with(rows, 0, 150);
	assert_int_equal(weirctl("wait connections:0 --timeout 0"), 0);
	free(rows);
}

static void
test_ports_engines_and_the_rest(void **state)
{
	struct weir_row_port port = {.name = "net_memif0",
				     .rx_frames = 12,
				     .tx_bytes = 123456789,
				     .drop_count = 2,
				     .drops = {{"no_memory", 7}, {"bad_icrc", 0}}};
	struct weir_row_engine engine = {.lcore = 3,
					 .busy_cycles = 300,
					 .idle_cycles = 100,
					 .busy_cycles_per_s = 20,
					 .idle_cycles_per_s = 60};
	struct weir_row_session session = {.session = 1, .name = "evil\x1b[2J\xff"};
	struct weir_row_qp qp = {.qpn = 0x11, .purpose = "ring", .state = "rts"};
	struct weir_row_counter counter = {"turns", "turns of the loop", 99};
	json_t *array;

	fake_dp_start(0, 100);
	answer_with(&port, 1, 1);
	array = shown("ports", 1);
	assert_int_equal(number(json_object_get(json_array_get(array, 0), "drops"), "no_memory"),
			 7);
	assert_int_equal(number(json_array_get(array, 0), "tx_bytes"), 123456789);
	json_decref(array);
	assert_int_equal(weirctl_answered("show ports"), 0);
	assert_non_null(strstr(text, "no_memory=7"));
	assert_null(strstr(text, "bad_icrc"));
	assert_non_null(strstr(text, "117.7 MiB"));

	answer_with(&engine, 1, 1);
	array = shown("engines", 1);
	assert_int_equal(number(json_array_get(array, 0), "busy_cycles"), 300);
	assert_int_equal(number(json_array_get(array, 0), "lcore"), 3);
	json_decref(array);
	assert_int_equal(weirctl_answered("show engines"), 0);
	assert_non_null(strstr(text, "25.0 %")); /* of the last second, not since the start */

	answer_with(&session, 1, 1);
	array = shown("sessions", 1);
	assert_string_equal(string(json_array_get(array, 0), "name"), "evil\x1b[2J?");
	json_decref(array);
	assert_int_equal(weirctl_answered("show sessions"), 0);
	assert_non_null(strstr(text, "evil"));
	assert_null(strchr(text, 0x1b));
	answer_with(&qp, 1, 1);
	array = shown("qps", 1);
	assert_string_equal(string(json_array_get(array, 0), "purpose"), "ring");
	json_decref(array);
	assert_int_equal(weirctl_answered("show qps"), 0);
	answer_with(&counter, 1, 1);
	array = shown("counters", 1);
	assert_int_equal(number(json_array_get(array, 0), "value"), 99);
	json_decref(array);
	answer_with(NULL, 0, 1);
	json_decref(shown("counters", 0));
	assert_int_equal(weirctl_answered("show counters"), 0);
	assert_string_equal(text, "COUNTER  VALUE  MEANING\n");
}

static void
test_set(void **state)
{
	fake_dp_start(0, 100);
	assert_int_equal(weirctl_answered("set program.here.weight 20"), 0);
	assert_string_equal(text, "");
	assert_int_equal(weirctl_answered("set program.away.weight 20"), 0);
	assert_non_null(strstr(text, "it holds for those to come"));
}

// Commands of testpmd.
static void
test_foreign_words(void **state)
{
	struct weir_row_port ports[3] = {
	    {.name = "net_a", .engine = 0, .rx_frames = 1},
	    {.name = "net_a", .engine = 1, .rx_frames = 2},
	    {.name = "net_b", .engine = 2, .rx_frames = 3, .impaired = "loss=1"},
	};
	struct weir_row_xstat xstats[2] = {{"net_a", "rx_good_packets", 7},
					   {"net_b", "rx_good_packets", 8}};

	fake_dp_start(0, 100);
	answer_with(ports, 3, 10);
	json_decref(shown("port stats all", 3));
	json_decref(shown("port stats net_a", 2));
	json_decref(shown("port info 0", 2));
	json_decref(shown("port summary 1", 1));
	assert_int_equal(weirctl_answered("show port stats 1"), 0);
	assert_non_null(strstr(text, "loss=1"));
	assert_null(strstr(text, "net_a"));
	assert_int_equal(weirctl_answered("show port stats 2"), 2);
	assert_non_null(strstr(text, "no port '2'; see show ports"));
	answer_with(xstats, 2, 10);
	json_decref(shown("port xstats net_b", 1));
}

// The tool's own version stands beside those of the daemons.
static void
test_version(void **state)
{
	struct weir_row_fact facts[2] = {{"weir-dataplane", "1.2.3", "weir-dataplane"},
					 {"weir-control", "1.2.3", "weir-control"}};
	json_t *array;

	fake_dp_start(0, 100);
	answer_with(facts, 2, 10);
	array = shown("version", 3);
	assert_string_equal(string(json_array_get(array, 0), "name"), "weir-dataplane");
	assert_string_equal(string(json_array_get(array, 2), "name"), "weirctl");
	json_decref(array);
}

static void
test_wait_for_nodes(void **state)
{
	struct weir_row_node nodes[2] = {{.is = {.id = 2, .state = WEIR_NODE_UP}},
					 {.is = {.id = 1, .state = WEIR_NODE_JOINING, .self = 1}}};

	waits("up", "no data plane for instance 'a'");
	fake_dp_start(0, 100);
	answer_with(nodes, 0, 10);
	waits("up", "no weir-control has assigned");
	answer_with(nodes, 2, 10);
	assert_int_equal(weirctl("wait up --timeout 0.2"), 4);
	assert_int_equal(weirctl("wait node:2 --timeout 0"), 0);
	assert_int_equal(weirctl("wait node:3 --timeout 0.2"), 4);
	nodes[1].is.state = WEIR_NODE_UP;
	assert_int_equal(weirctl("wait up --timeout 0"), 0);
}

static void
test_errors(void **state)
{
	static const struct {
		const char *words;
		int code;
		const char *says;
	} bad[] = {
	    {"show nodes", 1, "no data plane for instance 'a'"},
	    {"show", 2, "give 'show KIND'"},
	    {"show nodes engines", 2, "give 'show KIND'"},
	    {"show sheep", 2, "cannot show 'sheep'"},
	    {"reboot", 2, "unknown command 'reboot'"},
	    {"show port stats 7", 1, "no data plane for instance 'a'"},
	    {"show port nonsense all", 2, "cannot show 'port'; give nodes, "},
	    {"clear port stats all", 2, "no command 'clear port'; counters only grow"},
	    {"port stop 0", 2, "no command 'port stop'; drain self takes the node out"},
	    {"port start all", 2, "ports start with their data plane"},
	    {"port config 0 loopback", 2, "no command 'port config'; ports are set up by --nic"},
	    {"stop", 2, "drain self takes the node out of service"},
	    {"stopped", 2, "unknown command 'stopped'"},
	    {"wait", 2, "give 'wait up|node:ID|connections:K'"},
	    {"wait rain", 2, "cannot wait for 'rain'"},
	    {"wait node:", 2, "cannot wait for 'node:'"},
	    {"wait node:x", 2, "cannot wait for"},
	    {"wait node:65535", 2, "cannot wait for"},
	    {"wait connections:-1", 2, "cannot wait for"},
	    {"wait up --timeout x", 2, "invalid value 'x' for --timeout (expected seconds"},
	    {"wait up --timeout -1", 2, "invalid value '-1' for --timeout "},
	    {"capture net0", 2, "give 'capture PORT FILE'"},
	    {"set program.x.rate", 2, "give 'set KEY VALUE'"},
	    {"evict sheep", 2, "cannot evict 'sheep'"},
	    {"evict session.x", 2, "cannot evict 'session.x'"},
	    {"evict export.", 2, "cannot evict 'export.'"},
	    {"drain sheep", 2, "cannot drain 'sheep'"},
	    {"drain 65535", 2, "cannot drain '65535'"},
	    {"drain 1 on", 2, "invalid word 'on' after the node"},
	    {"help sheep", 2, "unknown command 'sheep'"},
	    {"top now", 2, "give 'top'"},
	    {"top --interval 0", 2, "invalid value '0' for --interval (expected seconds, 0.1"},
	    {"top --count 0", 2, "invalid value '0' for --count (expected a number of views"},
	    {"top --count 1", 1, "no data plane for instance 'a'"},
	    {"set program.x.rate 1M", 1, "no data plane for instance 'a'"},
	    {"--json capture net0 -", 2, "--json and frames cannot both go to stdout"},
	    {"capture net0 f --seconds 0", 2, "invalid value '0' for --seconds "},
	    {"capture net0 f --packets 0", 2, "invalid value '0' for --packets "},
	    {"capture net0 f --packets 1x", 2, "invalid value '1x' for --packets "},
	    {"capture net0 f", 1, "no data plane for instance 'a'"},
	    {"--fast show nodes", 2, "unknown option '--fast'"},
	    {"show nodes --instance", 2, "missing value for --instance"},
	    {"show nodes --instance ../x", 2, "invalid value '../x' for --instance "},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int code = weirctl(bad[i].words);

		if (code != bad[i].code || !strstr(text, bad[i].says) ||
		    strncmp(text, "weirctl: ", 9) || strchr(text, '\n')[1])
			fail_msg("'%s': exit %d and '%s'", bad[i].words, code, text);
	}
	fake_dp_start(0, 100);
	fake_dp[0].versions = (struct weir_versions){WEIR_CTL_VERSION + 1, WEIR_CTL_VERSION + 1};
	assert_int_equal(weirctl_answered("show nodes"), 1);
	assert_non_null(strstr(text, "upgrade weirctl, which is older"));
	fake_dp[0].versions = (struct weir_versions){1, WEIR_CTL_VERSION - 1};
	assert_int_equal(weirctl_answered("show nodes"), 1);
	assert_non_null(strstr(text, "upgrade weir-dataplane, which is older"));
	fake_dp[0].versions = (struct weir_versions){1, WEIR_CTL_VERSION + 1};
	assert_int_equal(weirctl_answered("show nodes"), 0);
}

static void
test_silent_data_plane(void **state)
{
	uint64_t begin = now_ms();
	char *argv[] = {(char *)fake_binary, "--instance", "a", "wait", "up",
			"--timeout",	     "0.5",	   NULL};

	fake_dp_start(0, 100);
	fake_dp[0].versions = (struct weir_versions){9, 9};
	assert_int_equal(fake_run(argv, text, sizeof(text)), 4);
	assert_in_range(now_ms() - begin, 400, LONG);
}

static void
test_pki(void **state)
{
	static const char *const made[] = {
	    "ca.key",	       "ca.pem",	  "node-1/ca.pem",     "node-1/node.pem",
	    "node-1/node.key", "node-any/ca.pem", "node-any/node.pem", "node-any/node.key"};
	static const struct {
		const char *words, *says;
		int code;
	} bad[] = {
	    {"", "give 'pki DIR ca' or 'pki DIR node ID|any'", 2},
	    {"node", "give 'pki DIR ca'", 2},
	    {"node 65535", "invalid node '65535' (expected 0 to 65534, or any)", 2},
	    {"node x", "invalid node 'x'", 2},
	    {"node 1 --cluster c", "--cluster is the CA's", 2},
	    {"node 2 --address a,,b", "invalid address ''", 2},
	    {"node 2 --address a/b", "invalid address 'a/b'", 2},
	    {"ca --address a", "--address is for 'pki DIR node'", 2},
	    {"ca --cluster a/b", "invalid value 'a/b' for --cluster ", 2},
	    {"ca --days 0", "invalid value '0' for --days (expected a number of days", 2},
	    {"ca", "ca.pem is there already; add --force", 2},
	    {"node 1", "is there already; add --force", 2},
	};
	char dir[80], path[128];
	struct stat st;

	snprintf(dir, sizeof(dir), "%s/pki", fake_dir);
	assert_int_equal(run("pki", dir, "node 1"), 3);
	assert_non_null(strstr(text, "make a CA first: weirctl pki"));
	assert_int_equal(run("pki", dir, "ca --cluster c"), 0);
	assert_int_equal(
	    run("pki", dir, "node 1 --address 10.0.0.1,fd00::1,host-1.example --days 2"), 0);
	assert_int_equal(run("pki", dir, "node any"), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int code = run("pki", dir, bad[i].words);

		if (code != bad[i].code || !strstr(text, bad[i].says))
			fail_msg("'%s': exit %d, '%s'", bad[i].words, code, text);
	}
	assert_int_equal(run("pki", dir, "node 1 --force"), 0);
	assert_int_equal(run("pki", "/proc/none", "ca"), 3);
	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, made[i]);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0600);
		unlink(path);
	}
	// Nothing else: not even what a refused order would have begun with.
	snprintf(path, sizeof(path), "%s/node-1", dir);
	assert_int_equal(rmdir(path), 0);
	snprintf(path, sizeof(path), "%s/node-any", dir);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

int
main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_nodes),
	    TEST(test_pages),
	    TEST(test_ports_engines_and_the_rest),
	    TEST(test_wait_for_nodes),
	    TEST(test_errors),
	    TEST(test_silent_data_plane),
	    TEST(test_set),
	    TEST(test_pki),
	    TEST(test_foreign_words),
	    TEST(test_version),
	};

	return FAKE_MAIN("weirctl", tests);
}
