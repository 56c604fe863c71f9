/* SPDX-License-Identifier: BSD-3-Clause */
/* The peers file: what is in it, and where it is wrong. */
#include "membership/peers_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
test_entries(void **state)
{
	static const char text[] = "# the cluster\n"
				   "\n"
				   "1 10.0.0.1:7471 192.168.1.1\n"
				   "  65534\t[fe80::1]:65535 192.168.1.2,fd00::2   # two NICs\r\n"
				   "0 node-c.example:1 fd00::3# no blank before the comment\n"
				   "7 127.0.0.1:7471 10.1.1.1,10.1.1.2,10.1.1.3,10.1.1.4\n"
				   "8 127.0.0.1:7472 lid:12\n"
				   "9 127.0.0.1:7473 lid:49151,fe80::9,lid:1,10.1.1.9";
	static const uint8_t mapped[16] = {[10] = 0xff, 0xff, 192, 168, 1, 1};
	const struct peer_entry *e;
	struct peers peers;
	char error[256] = "";

	assert_int_equal(peers_parse(text, &peers, error, sizeof(error)), 0);
	assert_int_equal(peers.count, 6);
	e = peers_find(&peers, 1);
	assert_non_null(e);
	assert_string_equal(e->control, "10.0.0.1:7471");
	assert_int_equal(e->address_count, 1);
	assert_memory_equal(e->address[0], mapped, 16);
	assert_int_equal(e->line, 3);
	e = peers_find(&peers, 65534);
	assert_non_null(e);
	assert_string_equal(e->control, "[fe80::1]:65535");
	assert_int_equal(e->address_count, 2);
	assert_int_equal(e->address[1][0], 0xfd);
	assert_non_null(peers_find(&peers, 0));
	assert_int_equal(peers_find(&peers, 7)->address_count, 4);
	e = peers_find(&peers, 8);
	assert_int_equal(e->address_count, 0);
	assert_int_equal(e->lid_count, 1);
	assert_int_equal(e->lid[0], 12);
	assert_int_equal(e->lid[1], 0);
	e = peers_find(&peers, 9);
	assert_int_equal(e->address_count, 2);
	assert_int_equal(e->lid_count, 2);
	assert_int_equal(e->lid[0], 49151);
	assert_int_equal(e->lid[1], 1);
	assert_null(peers_find(&peers, 2));
	peers_free(&peers);

	assert_int_equal(peers_parse("", &peers, error, sizeof(error)), 0);
	assert_int_equal(peers.count, 0);
	assert_int_equal(peers_parse("# only\n\n \t\n", &peers, error, sizeof(error)), 0);
	assert_int_equal(peers.count, 0);
}

static void
test_errors(void **state)
{
	static const struct {
		const char *text, *where, *what;
	} bad[] = {
	    {"x 1.1.1.1:1 1.1.1.1", "1:1:", "not a number"},
	    {"-1 1.1.1.1:1 1.1.1.1", "1:1:", "not a number"},
	    {"1x 1.1.1.1:1 1.1.1.1", "1:2:", "not a number"},
	    {"\n  65535 1.1.1.1:1 1.1.1.1", "2:3:", "above 65534"},
	    {"99999999999999999999999 1.1.1.1:1 1.1.1.1", "1:1:", "above 65534"},
	    {"1", "1:2:", "HOST:PORT of the control is missing"},
	    {"1 # 1.1.1.1:1 1.1.1.1", "1:3:", "HOST:PORT of the control is missing"},
	    {"1 1.1.1.1 1.1.1.1", "1:3:", "not HOST:PORT"},
	    {"1 1.1.1.1: 1.1.1.1", "1:3:", "not HOST:PORT"},
	    {"1 :1 1.1.1.1", "1:3:", "not HOST:PORT"},
	    {"1 1.1.1.1:0 1.1.1.1", "1:3:", "not HOST:PORT"},
	    {"1 1.1.1.1:65536 1.1.1.1", "1:3:", "not HOST:PORT"},
	    {"1 1.1.1.1:99999999999999999999 1.1.1.1", "1:3:", "not HOST:PORT"},
	    {"1 1.1.1.1:1x 1.1.1.1", "1:3:", "not HOST:PORT"},
	    {"1 fe80::1:1 1.1.1.1", "1:3:", "not HOST:PORT"},
	    {"1 [fe80::1:1 1.1.1.1", "1:3:", "not HOST:PORT"},
	    {"1 []:1 1.1.1.1", "1:3:", "not HOST:PORT"},
	    {"1 1.1.1.1:1", "1:12:", "NIC address is missing"},
	    {"1 1.1.1.1:1   # none", "1:15:", "NIC address is missing"},
	    {"1 1.1.1.1:1 1.1.1", "1:13:", "'1.1.1' is not an IPv4 or IPv6 address"},
	    {"1 1.1.1.1:1 1.1.1.1,", "1:21:", "missing"},
	    {"1 1.1.1.1:1 1.1.1.1,,1.1.1.2", "1:21:", "missing"},
	    {"1 1.1.1.1:1 1.1.1.1,1.1.1.1", "1:21:", "on this line already"},
	    {"1 1.1.1.1:1 1.1.1.1, 1.1.1.2", "1:21:", "missing"},
	    {"1 1.1.1.1:1 1.1.1.1 1.1.1.2", "1:21:", "more than three fields"},
	    {"1 1.1.1.1:1 ::1,::2,::3,::4,::5,::6,::7,::8,::9", "1:45:", "more than 8"},
	    {"1 1.1.1.1:1 ::1,lid:2,::3,lid:4,::5,::6,::7,::8,lid:9", "1:49:", "more than 8"},
	    {"1 1.1.1.1:1 lid:", "1:13:", "not a unicast LID"},
	    {"1 1.1.1.1:1 lid:0", "1:13:", "not a unicast LID"},
	    {"1 1.1.1.1:1 lid:49152", "1:13:", "not a unicast LID"},
	    {"1 1.1.1.1:1 lid:99999999999999999", "1:13:", "not a unicast LID"},
	    {"1 1.1.1.1:1 lid:7x", "1:13:", "not a unicast LID"},
	    {"1 1.1.1.1:1 lid:-7", "1:13:", "not a unicast LID"},
	    {"1 1.1.1.1:1 lid:7,lid:07", "1:19:", "on this line already"},
	    {"1 1.1.1.1:1 lid:7\n2 1.1.1.1:2 lid:7", "2:13:", "is on line 1 already"},
	    {"1 1.1.1.1:1 1.1.1.1\n1 1.1.1.1:2 1.1.1.2", "2:1:", "node 1 is on line 1"},
	    {"1 1.1.1.1:1 1.1.1.1\n2 1.1.1.1:1 1.1.1.2", "2:3:", "is on line 1 already"},
	    {"1 1.1.1.1:1 1.1.1.1\n\n2 1.1.1.1:2 ::3,1.1.1.1", "3:17:", "is on line 1 already"},
	    {"1 1.1.1.1:1 1.1.1.1\n2 1.1.1.1:2 ::ffff:1.1.1.1", "2:13:", "is on line 1"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct peers peers;
		char error[256] = "";

		if (peers_parse(bad[i].text, &peers, error, sizeof(error)) != -EINVAL ||
		    strncmp(error, bad[i].where, strlen(bad[i].where)) ||
		    !strstr(error, bad[i].what))
			fail_msg("'%s' gives '%s', not '%s %s'", bad[i].text, error, bad[i].where,
				 bad[i].what);
		assert_null(peers.list);
	}
}

static void
test_long_fields(void **state)
{
	char text[4096] = "1 ", error[40];
	struct peers peers;

	memset(text + 2, 'h', 200);
	snprintf(text + 202, sizeof(text) - 202, ":1 1.1.1.1");
	assert_int_equal(peers_parse(text, &peers, error, sizeof(error)), -EINVAL);
	assert_memory_equal(error, "1:3:", 4);
	snprintf(text, sizeof(text), "1 1.1.1.1:1 ");
	memset(text + 12, '1', 300);
	text[312] = 0;
	assert_int_equal(peers_parse(text, &peers, error, sizeof(error)), -EINVAL);
	// Cut, never overrun, by a small buffer for the error.
	assert_true(strlen(error) < sizeof(error));
	assert_int_equal(peers_parse("x", &peers, error, 3), -EINVAL);
}

static void
test_many(void **state)
{
	char *text = malloc(64 * 1000), *at = text, error[256];
	struct peers peers;

	for (int i = 0; i < 1000; i++)
		at += snprintf(at, 64, "%d 127.0.0.1:%d 10.0.%d.%d\n", i, i + 1, i / 250,
			       i % 250 + 1);
	assert_int_equal(peers_parse(text, &peers, error, sizeof(error)), 0);
	assert_int_equal(peers.count, 1000);
	assert_int_equal(peers_find(&peers, 999)->line, 1000);
	peers_free(&peers);
	free(text);
}

static void
test_host_port(void **state)
{
	char host[16];
	uint16_t port = 0;

	assert_int_equal(host_port_split("[::1]:80", false, host, sizeof(host), &port), 0);
	assert_string_equal(host, "::1");
	assert_int_equal(port, 80);
	assert_int_equal(host_port_split("a:0", true, host, sizeof(host), &port), 0);
	assert_int_equal(host_port_split("a:0", false, host, sizeof(host), &port), -EINVAL);
	assert_int_equal(host_port_split("0123456789abcde:1", false, host, 16, &port), 0);
	assert_int_equal(host_port_split("0123456789abcdef:1", false, host, 16, &port), -EINVAL);
	assert_int_equal(host_port_split("]:1", false, host, 16, &port), -EINVAL);
	assert_int_equal(host_port_split("[:1", false, host, 16, &port), -EINVAL);
	assert_int_equal(host_port_split("[", false, host, 16, &port), -EINVAL);
	assert_int_equal(host_port_split("", false, host, 16, &port), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_entries),	cmocka_unit_test(test_errors),
	    cmocka_unit_test(test_long_fields), cmocka_unit_test(test_many),
	    cmocka_unit_test(test_host_port),
	};

	return cmocka_run_group_tests_name("control_peers", tests, NULL, NULL);
}
