/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of weir-roce-peer. */
#include "worlds/roce_peer_world.h"

#include "tools/tool.h"

TEST(test_options)
{
	assert_int_equal(parse(NIC "--listen -t rc_pingpong,send_bw:1k,atomic_lat"), 0);
	assert_int_equal(o.runs, 3);
	assert_string_equal(o.run[1].test->name, "send_bw");
	assert_int_equal(o.run[0].size, 4096);
	assert_int_equal(o.run[1].size, 1024);
	assert_int_equal(o.run[2].size, 8);
	assert_int_equal(o.count, 0);
	assert_int_equal(o.mtu, 1024);
	assert_int_equal(o.qps, 16);
	assert_int_equal(o.port, 18515);
	assert_int_equal(parse(NIC "--connect ::1 -t cas_bw -n 7 -m 4096 -q 256 --port 9 "
				   "--patience 3"),
			 0);
	assert_int_equal(o.count, 7);
	assert_int_equal(o.mtu, 4096);
	assert_int_equal(o.qps, 256);
	assert_int_equal(o.port, 9);
	assert_int_equal(o.patience, 3);
}

TEST(test_run_options)
{
	assert_int_equal(parse(NIC "--listen -t send_bw:1k+b+q4,write_bw+a,read_bw+D3+reversed"),
			 0);
	assert_int_equal(o.run[0].size, 1024);
	assert_int_equal(o.run[0].qps, 4);
	assert_true(o.run[0].both && !o.run[0].all && !o.run[0].reversed && !o.run[0].seconds);
	assert_true(o.run[1].all && !o.run[1].both);
	assert_int_equal(o.run[1].size, 8 << 20);
	assert_int_equal(o.run[1].qps, 1);
	assert_true(o.run[2].reversed);
	assert_int_equal(o.run[2].seconds, 3);
	assert_int_equal(parse(NIC "--listen -q 5 -t rc_pingpong,srq_pingpong"), 0);
	assert_int_equal(o.run[0].qps, 1);
	assert_int_equal(o.run[1].qps, 5);
}

/* The error for an option that is not offered names it, and the remedy. */
TEST(test_refused_options)
{
	static const struct {
		const char *run, *named;
	} rows[] = {
	    {"send_bw+cUC", "UC is not offered; leave -c UC out"},
	    {"write_bw+cXRC", "XRC is not offered; leave -c XRC out"},
	    {"send_bw+cUD", "give ud_send_bw"},
	    {"read_bw+R", "rdma_cm is not offered; leave -R out"},
	    {"read_bw:1k+q2+z", "rdma_cm is not offered; leave -z out"},
	    {"write_lat+odp", "ODP"},
	    {"rc_pingpong+t", "timestamps"},
	    {"send_bw+e", "leave it out here"},
	    {"read_bw+o1", "leave it out here"},
	    {"send_bw+ipv6", "ip=ADDR/LEN"},
	    {"uc_pingpong", "UC is not offered; give rc_pingpong"},
	    {"send_bw+x", "expected a, b, qN"},
	    {"send_bw+", "expected a, b, qN"},
	    {"send_bw+q0", "q256"},
	    {"send_bw+D", "D3600"},
	    {"send_lat+b", "latency"},
	    {"write_lat+q2", "latency"},
	    {"read_lat+reversed", "latency"},
	    {"atomic_bw+a", "atomics"},
	    {"send_bw+a+D3", "-D"},
	    {"send_bw:1k+a", "all sizes"},
	    {"send_bw+b+reversed", "exclude"},
	    {"rc_pingpong+a", "ping-pongs"},
	    {"srq_pingpong+b", "ping-pongs"},
	    {"ud_pingpong+q2", "ping-pongs"},
	};
	char words[128];

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(words, sizeof(words), NIC "--listen -t send_bw,%s", rows[i].run);
		assert_int_equal(parse(words), -EINVAL);
		if (!strstr(reason, rows[i].named))
			fail_msg("%s: %s", rows[i].run, reason);
	}
}

TEST(test_bad_options)
{
	static const char *const bad[] = {
	    "--listen -t rc_pingpong",
	    NIC "-t rc_pingpong",
	    NIC "--listen --connect h -t rc_pingpong",
	    NIC "--listen",
	    NIC "--listen -t",
	    NIC "--listen -t pingpong",
	    NIC "--listen -t rc_pingpong,",
	    NIC "--listen -t rc_pingpong:",
	    NIC "--listen -t rc_pingpong:0",
	    NIC "--listen -t rc_pingpong:9m",
	    NIC "--listen -t rc_pingpong:1111111111111111111111111",
	    NIC "--listen -t atomic_bw:16",
	    NIC "--listen -t send_bw -n 4",
	    NIC "--listen -t send_bw -m 1000",
	    NIC "--listen -t send_bw -q 257",
	    NIC "--listen -t send_bw --port 65280",
	    NIC "--listen -t send_bw --patience 0",
	    NIC "--listen -t send_bw --fast",
	    NIC "--listen -t send_bw more",
	};
	uint64_t n;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (parse(bad[i]) != -EINVAL)
			fail_msg("accepted: %s", bad[i]);
	/* 2^44 m are 2^64 */
	assert_int_equal(option_number("17592186044416m", true, 0, 1u << 30, &n), -EINVAL);
}
