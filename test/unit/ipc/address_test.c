/* SPDX-License-Identifier: BSD-3-Clause */
#include "worlds/test.h"
#include "client/reason.h"
#include "ipc/address.h"

static const char *const good[] = {
    "node:0:a",
    "node:7:echo",
    "node:65534:kv.store-1_x",
    "10.0.0.2:echo",
    "255.255.255.255:e",
    "[fe80::1]:echo",
    "[::]:0",
    "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:abcdefghijklmnopqrstuvwxyz01234",
    "gid:[fe80::1]:echo",
    "gid:[::ffff:10.0.0.1]:echo",
    "lid:12:echo",
    "lid:49151:echo",
    "service:echo",
    "service:node",
};

static const char *const bad[] = {
    "",
    ":",
    "a",
    "node",
    "node:",
    "node::a",
    "node:7",
    "node:7:",
    "node:x:a",
    "node:65535:a",
    "node:99999999999999999999:a",
    "node:-1:a",
    "node: 7:a",
    "node:7a:a",
    "10.0.0:echo",
    "10.0.0.256:echo",
    "10.0.0.1",
    "10.0.0.1:",
    "10.0.0.1:a b",
    "10.0.0.1:a:b",
    "[fe80::1]",
    "[fe80::1]echo",
    "[fe80::1:echo",
    "[fe80::g]:echo",
    "[]:echo",
    "gid:fe80::1:echo",
    "gid:[10.0.0.1]:echo",
    "lid:0:echo",
    "lid:49152:echo",
    "lid:65536:echo",
    "service",
    "service:",
    "service::echo",
    "service:7:echo",
    "service:abcdefghijklmnopqrstuvwxyz012345",
    "NODE:7:echo",
    "node:7:abcdefghijklmnopqrstuvwxyz012345",
    "node:7:\xc3\xa9",
    "node:7:a/b",
    "0000000000000000000000000000000000000000000000000000000000000010.0.0.1:a",
};

TEST(test_round_trip)
{
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct weir_address a, b;
		char text[WEIR_ADDRESS_TEXT_MAX];

		assert_int_equal(weir_address_parse(good[i], &a), 0);
		assert_int_equal(weir_address_format(&a, text, sizeof(text)), 0);
		assert_string_equal(text, good[i]);
		assert_int_equal(weir_address_parse(text, &b), 0);
		assert_memory_equal(&a, &b, sizeof(a));
		for (size_t size = 0; size <= strlen(text); size++)
			assert_int_equal(weir_address_format(&a, text, size), -ENOSPC);
	}
}

TEST(test_fields)
{
	struct weir_address a;

	assert_int_equal(weir_address_parse("10.1.2.3:kv", &a), 0);
	assert_int_equal(a.kind, WEIR_ADDRESS_IPV4);
	assert_memory_equal(a.ip, "\x0a\x01\x02\x03\0\0\0\0\0\0\0\0\0\0\0\0", 16);
	assert_string_equal(a.service, "kv");
	assert_int_equal(weir_address_parse("node:300:kv", &a), 0);
	assert_int_equal(a.kind, WEIR_ADDRESS_NODE);
	assert_int_equal(a.id, 300);
	assert_int_equal(weir_address_parse("lid:12:kv", &a), 0);
	assert_int_equal(a.kind, WEIR_ADDRESS_LID);
	assert_int_equal(a.id, 12);
	assert_int_equal(weir_address_parse("gid:[fe80::1]:kv", &a), 0);
	assert_int_equal(a.kind, WEIR_ADDRESS_GID);
	assert_int_equal(a.ip[0], 0xfe);
	assert_int_equal(a.ip[15], 1);
}

TEST(test_refused)
{
	struct weir_address a, before;

	memset(&before, 0x5a, sizeof(before));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		a = before;
		if (weir_address_parse(bad[i], &a) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
		assert_memory_equal(&a, &before, sizeof(a));
	}
	assert_int_equal(weir_address_parse(NULL, &a), -EINVAL);
	assert_int_equal(weir_address_parse("node:1:a", NULL), -EINVAL);
}

/* weir_reason() has the mistake and the remedy. */
TEST(test_mistakes)
{
	static const struct {
		const char *text, *mistake;
	} known[] = {
	    {NULL, "no text"},
	    {"", "empty"},
	    {"node", "service is missing"},
	    {"10.0.0.1", "service is missing"},
	    {"node:7", "append :SERVICE"},
	    {"[fe80::1]echo", "append :SERVICE"},
	    {"node:x:a", "number from 0 to 65534"},
	    {"node:65535:a", "number from 0 to 65534"},
	    {"lid:0:a", "number from 1 to 49151"},
	    {"gid:fe80::1:a", "gid:[GID]:SERVICE"},
	    {"[fe80::g]:a", "[fd00::2]:SERVICE"},
	    {"fe80::1:a", "needs brackets"},
	    {"10.0.0.256:a", "four numbers from 0 to 255"},
	    {"host.example:a", "weir_connect_to()"},
	    {"node:7:a b", "1 to 31 letters"},
	    {"node:7:abcdefghijklmnopqrstuvwxyz012345", "1 to 31 letters"},
	    {"service:", "1 to 31 letters"},
	};
	struct weir_address a;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		assert_int_equal(weir_address_parse(known[i].text, &a), -EINVAL);
		if (!strstr(weir_reason(), known[i].mistake) || !strchr(weir_reason(), ';'))
			fail_msg("'%s': %s", known[i].text, weir_reason());
		if (known[i].text && !strstr(weir_reason(), known[i].text))
			fail_msg("'%s' is not named: %s", known[i].text, weir_reason());
	}
	assert_int_equal(weir_address_parse("node:\n:a", &a), -EINVAL);
	assert_null(strchr(weir_reason(), '\n'));
}

TEST(test_hosts)
{
	static const char *const hosts[] = {"localhost:a", "host.example:echo",
					    "a-b.c_d.e:s", "10.0.0.1.example:s",
					    "x:0",	   "host.example.:echo"};
	static const char *const others[] = {
	    "",	      ":a",	  "host",    "host:",	 "host:a b",	 "host:a:b", "10.0.0.1:a",
	    "1.2:a",  "node:a",	  "lid:a",   "gid:a",	 "service:a",	 "-host:a",  ".host:a",
	    "a..b:a", "[host]:a", "ho st:a", "host\n:a", "h\xc3\xb6st:a"};
	char host[WEIR_HOST_MAX], service[WEIR_SERVICE_MAX], text[300];

	for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++) {
		if (!weir_address_host(hosts[i], host, service))
			fail_msg("'%s' was refused", hosts[i]);
		snprintf(text, sizeof(text), "%s:%s", host, service);
		assert_string_equal(text, hosts[i]);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (weir_address_host(others[i], host, service))
			fail_msg("'%s' was taken", others[i]);
	/* 253 bytes in labels of at most 63 */
	memset(text, 'a', sizeof(text));
	text[63] = text[127] = text[191] = '.';
	memcpy(text + 253, ":s", 3);
	assert_true(weir_address_host(text, host, service));
	memcpy(text + 253, "a:s", 4);
	assert_false(weir_address_host(text, host, service));
	text[127] = 'a';
	memcpy(text + 200, ":s", 3);
	assert_false(weir_address_host(text, host, service));
}

TEST(test_format_refuses)
{
	struct weir_address a;
	char text[WEIR_ADDRESS_TEXT_MAX];

	assert_int_equal(weir_address_parse("node:1:a", &a), 0);
	a.kind = 17;
	assert_int_equal(weir_address_format(&a, text, sizeof(text)), -EINVAL);
	a.kind = WEIR_ADDRESS_NODE;
	memset(a.service, 'a', sizeof(a.service));
	assert_int_equal(weir_address_format(&a, text, sizeof(text)), -EINVAL);
	a.service[0] = '\0';
	assert_int_equal(weir_address_format(&a, text, sizeof(text)), -EINVAL);
}
