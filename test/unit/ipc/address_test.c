/* SPDX-License-Identifier: BSD-3-Clause */
#include "worlds/test.h"
#include "weir/address.h"

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
