/* SPDX-License-Identifier: BSD-3-Clause */
#include "worlds/test.h"

#include "broker/rate.h"

static struct rate r;

TEST(test_good)
{
	assert_int_equal(rate_parse("none", &r), 0);
	assert_int_equal(r.bytes, 0);
	assert_int_equal(rate_burst_ns(&r), 0);
	assert_int_equal(rate_parse("100M", &r), 0);
	assert_int_equal(r.bytes, 100000000);
	assert_int_equal(r.burst, 2000000); /* 20 ms */
	assert_int_equal(rate_burst_ns(&r), 20000000);
	assert_int_equal(rate_parse("1k", &r), 0);
	assert_int_equal(r.bytes, 1000);
	assert_int_equal(r.burst, 65536);
	assert_int_equal(rate_parse("2g,3m", &r), 0);
	assert_int_equal(r.bytes, 2000000000);
	assert_int_equal(r.burst, 3000000);
	assert_int_equal(rate_parse("1000G", &r), 0);
	assert_int_equal(r.bytes, RATE_MAX);
}

TEST(test_bad)
{
	static const char *const bad[] = {
	    "",
	    "0",
	    "999",
	    "-1",
	    "1001G",
	    "100MB",
	    "100M,",
	    "100M,1",
	    "100M,1T",
	    "100M,1k,",
	    "100M 1k",
	    "nan",
	    "18446744073709551616",
	    "M",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_not_equal(rate_parse(bad[i], &r), 0);
}
