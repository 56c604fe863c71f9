/* SPDX-License-Identifier: BSD-3-Clause */
/* Which CPUs the processes of a group have, and that the kernel gives them. */
#define _GNU_SOURCE
#include "worlds/test.h"

#include "run/cpus.h"

#include <sched.h>

/* Each process has `each` CPUs that no other has; 0: all have all. */
static void
have(uint32_t count, uint32_t processes, uint32_t threads, uint32_t each)
{
	uint32_t owner[64] = {0};

	assert_true(count <= 64);
	for (uint32_t rank = 0; rank < processes; rank++) {
		struct cpus_part p = cpus_part(count, processes, threads, rank);

		assert_int_equal(p.count, each ? each : count);
		assert_true(p.from + p.count <= count);
		for (uint32_t i = p.from; i < p.from + p.count; i++) {
			assert_true(!each || !owner[i]);
			owner[i] = rank + 1;
		}
	}
}

TEST(test_parts)
{
	have(1, 1, 0, 1);
	have(1, 1, 1, 1);
	have(1, 2, 0, 0);
	have(2, 2, 1, 1);
	have(2, 1, 1, 1);
	have(2, 2, 2, 0);
	have(16, 4, 0, 4);
	have(16, 4, 3, 3);
	have(16, 4, 4, 4);
	have(16, 4, 5, 0);
	have(17, 4, 0, 4);
	have(7, 2, 0, 3);
	have(64, 1024, 0, 0);
	/* a product beyond 32 bits */
	have(64, 1 << 16, 1 << 16, 0);
}

TEST(test_in_order)
{
	for (uint32_t rank = 0; rank < 4; rank++)
		assert_int_equal(cpus_part(9, 4, 2, rank).from, 2 * rank);
}

TEST(test_pin)
{
	static struct cpus all, some;
	struct cpus_part part;

	assert_int_equal(cpus_allowed(&all), 0);
	assert_true(all.count > 0 && (long)all.count <= sysconf(_SC_NPROCESSORS_CONF));
	for (uint32_t i = 1; i < all.count; i++)
		assert_true(all.cpu[i - 1] < all.cpu[i]);
	/* the last one, then all */
	part = (struct cpus_part){all.count - 1, 1};
	assert_int_equal(cpus_pin(&all, part), 0);
	assert_int_equal(sched_getcpu(), all.cpu[all.count - 1]);
	assert_int_equal(cpus_allowed(&some), 0);
	assert_int_equal(some.count, 1);
	assert_int_equal(some.cpu[0], all.cpu[all.count - 1]);
	part = (struct cpus_part){0, all.count};
	assert_int_equal(cpus_pin(&all, part), 0);
	assert_int_equal(cpus_allowed(&some), 0);
	assert_memory_equal(&some, &all, sizeof(some));
}
