/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of weir-roce-peer on its memory after a run. */
#include "worlds/roce_peer_world.h"

static void
prime(const char *role, const char *run)
{
	peer_world_begin(role, run);
	p.cycle = 4096;
	peer_prepare(&p, 0);
}

TEST(test_pattern)
{
	static uint8_t data[9000];

	peer_fill(data, sizeof(data), 3);
	assert_true(peer_filled(data, sizeof(data), 3));
	assert_false(peer_filled(data, sizeof(data), 4));
	assert_int_equal(data[0] | data[4096] | data[8192], 0);
	data[8999] ^= 1;
	assert_false(peer_filled(data, sizeof(data), 3));
}

/* 1000 bytes at 0, 1024, 2048, 3072, and no other. */
TEST(test_written)
{
	prime("--listen", "write_bw:1000");
	assert_int_equal(p.region_bytes, 4096);
	assert_int_equal(peer_places(&p), 4);
	assert_int_equal(peer_step(&p), 1024);
	assert_int_equal(peer_inspect(&p), -EBADMSG); /* nothing was written */
	for (unsigned i = 0; i < 4; i++)
		memset(p.region + i * 1024, 7, 1000);
	assert_int_equal(peer_inspect(&p), 0);
	assert_int_equal(p.verified, 4096 - 4 * 24 + 4096 - 4 * 24);
	p.region[1000] = 7;
	assert_int_equal(peer_inspect(&p), -EBADMSG);

	prime("--connect h", "write_bw:1000"); /* the client is not written to */
	assert_int_equal(peer_inspect(&p), 0);
	p.region[0] = 7;
	assert_int_equal(peer_inspect(&p), -EBADMSG);
}

static void
add(unsigned at, uint64_t n)
{
	uint64_t word;

	memcpy(&word, p.region + at, sizeof(word));
	word += n;
	memcpy(p.region + at, &word, sizeof(word));
}

/* Each queue pair has a region of its own, and what is beside any of them counts. */
TEST(test_regions)
{
	prime("--listen", "write_bw:5000+q3");
	assert_int_equal(p.region_bytes, 5056);
	assert_int_equal(peer_region(&p, &p.qp[2]), 2 * 5056);
	for (unsigned i = 0; i < 3; i++)
		memset(p.region + i * 5056, 7, 5000);
	assert_int_equal(peer_inspect(&p), 0);
	assert_int_equal(p.verified, 3 * 5000);
	p.region[2 * 5056 + 5000] = 7;
	assert_int_equal(peer_inspect(&p), -EBADMSG);

	prime("--connect h", "write_bw:5000+b"); /* both are written to */
	assert_int_equal(peer_inspect(&p), -EBADMSG);
	memset(p.region, 7, 5000);
	assert_int_equal(peer_inspect(&p), 0);

	prime("--listen", "write_bw:5000+reversed"); /* the server is not */
	assert_int_equal(peer_inspect(&p), 0);
	p.region[0] = 7;
	assert_int_equal(peer_inspect(&p), -EBADMSG);

	prime("--listen", "atomic_bw+q2");
	for (unsigned i = 0; i < 2; i++)
		add(i * 4096, 5);
	assert_int_equal(peer_inspect(&p), 0);
	add(4096, 1);
	assert_int_equal(peer_inspect(&p), -EBADMSG);
	prime("--listen", "atomic_bw+D1"); /* nobody says how many */
	assert_int_equal(peer_inspect(&p), -EBADMSG);
	add(0, 77);
	assert_int_equal(peer_inspect(&p), 0);
}

TEST(test_margins)
{
	static const int at[] = {-1, -4096, 5056, 5056 + 4095};

	for (unsigned i = 0; i < 4; i++) {
		prime("--listen", "write_bw:5000");
		assert_int_equal(p.region_bytes, 5056);
		assert_int_equal(peer_places(&p), 1);
		memset(p.region, 7, 5000);
		assert_int_equal(peer_inspect(&p), 0);
		p.region[at[i]] = 7;
		assert_int_equal(peer_inspect(&p), -EBADMSG);
	}
	prime("--listen", "read_bw:5000");
	assert_int_equal(peer_inspect(&p), 0);
	p.region[4999]++;
	assert_int_equal(peer_inspect(&p), -EBADMSG);
}

TEST(test_atomics)
{
	prime("--listen", "atomic_bw");
	add(0, 3);
	add(64, 1);
	assert_int_equal(peer_inspect(&p), -EBADMSG); /* 4 of 5 */
	add(128, 1);
	assert_int_equal(peer_inspect(&p), 0);
	add(64, 1);
	assert_int_equal(peer_inspect(&p), -EBADMSG); /* 6 of 5 */
	prime("--listen", "atomic_bw");
	add(8, 5); /* where none is done */
	assert_int_equal(peer_inspect(&p), -EBADMSG);
	prime("--listen", "cas_bw");
	assert_int_equal(peer_inspect(&p), 0);
	add(0, 1);
	assert_int_equal(peer_inspect(&p), -EBADMSG);
	prime("--connect h", "atomic_bw");
	assert_int_equal(peer_inspect(&p), 0);
}
