/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of weir-nicperf, and its HELLO. */
#include "worlds/test.h"
#include "tools/nicperf/greet.h"
#include "tools/nicperf/options.h"
#include "worlds/words.h"

#include <sys/socket.h>

#define NIC "--nic roce:net_ring0,ip=10.0.0.1/24 "

static struct nicperf_options o;
static char reason[256];

/* Words, separated by blanks. */
static int
parse(const char *words)
{
	char *argv[WORDS_MAX];
	int argc = words_split("weir-nicperf", words, argv);

	reason[0] = '\0';
	return nicperf_options_parse(&o, argc, argv, reason, sizeof(reason));
}

TEST(test_defaults)
{
	assert_int_equal(parse(NIC), 0);
	assert_string_equal(o.nic.port, "net_ring0");
	assert_int_equal(o.test_count, 1);
	assert_int_equal(o.tests[0], NICPERF_WRITE);
	assert_int_equal(o.size_count, 1);
	assert_int_equal(o.sizes[0], 64);
	assert_int_equal(o.qps, 1);
	assert_int_equal(o.depth, 128);
	assert_int_equal(o.list, 32);
	assert_int_equal(o.port, 18515);
	assert_true(!o.no_calibrate && !o.json && !o.shared && !o.listen && !o.connect);
}

TEST(test_values)
{
	assert_int_equal(parse(NIC
			       "-t lat,bare,cas -s 1,4k,16m -n 7 -q 12 --shared --depth 4 --list 4 "
			       "--connect ::1 --port 99 --json --no-calibrate"),
			 0);
	assert_int_equal(o.test_count, 3);
	assert_int_equal(o.tests[0], NICPERF_LAT);
	assert_int_equal(o.tests[1], NICPERF_BARE);
	assert_int_equal(o.tests[2], NICPERF_CAS);
	assert_int_equal(o.size_count, 3);
	assert_int_equal(o.sizes[1], 4096);
	assert_int_equal(o.sizes[2], 16 << 20);
	assert_int_equal(o.count, 7);
	assert_int_equal(o.qps, 12);
	assert_true(o.shared && o.json && o.no_calibrate);
	assert_string_equal(o.connect, "::1");
	assert_int_equal(o.port, 99);
	assert_int_equal(parse("--help --nonsense"), 0);
	assert_true(o.help);
	assert_int_equal(parse("--version"), 0);
	assert_true(o.version);
	for (uint32_t i = 0; i < NICPERF_TESTS; i++) {
		char words[80];

		snprintf(words, sizeof(words), NIC "-t %s", nicperf_test_name(i));
		assert_int_equal(parse(words), 0);
		assert_int_equal(o.tests[0], i);
	}
}

TEST(test_bad)
{
	static const char *const bad[] = {
	    "",
	    "--nic roce:net_ring0",
	    NIC "-t",
	    NIC "-t fly",
	    NIC "-t write,",
	    NIC "-t ,",
	    NIC "-t write,write,write,write,write,write,write,write,write",
	    NIC "-s 0",
	    NIC "-s 16385k",
	    NIC "-s 1,,2",
	    NIC "-s -1",
	    NIC "-s 99999999999999999999",
	    NIC "-s 1kk",
	    NIC "-n 0",
	    NIC "-D 0",
	    NIC "-D nan",
	    NIC "-D 1s",
	    NIC "-q 0",
	    NIC "-q 1025",
	    NIC "-q 65 --shared",
	    NIC "--depth 3",
	    NIC "--depth 4097",
	    NIC "--depth 16",
	    NIC "--list 257",
	    NIC "--port 65536",
	    NIC "--listen --connect a",
	    NIC "word",
	    NIC "--fast",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (parse(bad[i]) != -EINVAL)
			fail_msg("'%s' is taken", bad[i]);
		if (!(strstr(reason, "; ") || strstr(reason, " (expected ")) ||
		    strchr(reason, '\n'))
			fail_msg("'%s': '%s'", bad[i], reason);
	}
}

/* Lower, higher and overlapping ranges, and what is no weir-nicperf. */
TEST(test_versions)
{
	enum { V = NICPERF_VERSION };
	static const struct {
		struct nicperf_hello its;
		const char *why; /* NULL: a common version */
	} cases[] = {
	    {{NICPERF_MAGIC, {V, V}}, NULL},
	    {{NICPERF_MAGIC, {V - 2, V}}, NULL},
	    {{NICPERF_MAGIC, {V - 1, V + 1}}, NULL},
	    {{NICPERF_MAGIC, {V - 1, 1}}, "upgrade weir-nicperf there, which is older"},
	    {{NICPERF_MAGIC, {V - 2, V - 1}}, "upgrade weir-nicperf there, which is older"},
	    {{NICPERF_MAGIC, {V + 1, V + 2}}, "upgrade weir-nicperf here, which is older"},
	    {{NICPERF_MAGIC + 1, {V, V}}, "is not a weir-nicperf"},
	};
	char why[WEIR_VERSION_WHY];
	struct nicperf_hello ours;
	int ends[2];

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
		assert_int_equal(write(ends[1], &cases[i].its, sizeof(cases[i].its)),
				 sizeof(cases[i].its));
		assert_int_equal(nicperf_greet(ends[0], why), cases[i].why ? -EPROTO : 0);
		if (cases[i].why)
			assert_non_null(strstr(why, cases[i].why));
		assert_int_equal(read(ends[1], &ours, sizeof(ours)), sizeof(ours));
		assert_int_equal(ours.magic, NICPERF_MAGIC);
		assert_int_equal(ours.versions.lowest, V);
		assert_int_equal(ours.versions.highest, V);
		close(ends[1]);
		assert_int_equal(nicperf_greet(ends[0], why), -EPIPE);
		close(ends[0]);
	}
}
