/* SPDX-License-Identifier: BSD-3-Clause */
/* weir-switch: what it learns, what becomes of a frame, order and bound of its queues, options. */
#include "worlds/test.h"
#include "tools/switch/options.h"
#include "tools/switch/queue.h"
#include "tools/switch/table.h"
#include "worlds/words.h"

#define AGE 300u

static struct switch_table table;

static const uint8_t *
mac(unsigned n)
{
	static uint8_t ring[4][6];
	static unsigned turn;
	uint8_t *m = ring[turn++ % 4];

	m[0] = 0x02;
	m[1] = 0;
	for (int i = 0; i < 4; i++)
		m[2 + i] = (uint8_t)(n >> 8 * i);
	return m;
}

static int
setup(void **state)
{
	switch_table_init(&table, AGE);
	return 0;
}

TEST_IN(setup, NULL, test_learns)
{
	/* nobody knows 2: to all; its answer goes to 1 alone, and then 1's to 2 */
	assert_int_equal(switch_decide(&table, mac(2), mac(1), 10, 0), SWITCH_FLOOD);
	assert_int_equal(switch_decide(&table, mac(1), mac(2), 20, 0), 10);
	assert_int_equal(switch_decide(&table, mac(2), mac(1), 10, 0), 20);
	assert_int_equal(switch_table_count(&table, 0), 2);
	/* two stations behind one port: the frame is there already */
	assert_int_equal(switch_decide(&table, mac(1), mac(3), 10, 0), SWITCH_STAY);
}

TEST_IN(setup, NULL, test_groups)
{
	static const uint8_t broadcast[6] = {255, 255, 255, 255, 255, 255};
	static const uint8_t group[6] = {0x33, 0x33, 0, 0, 0, 1}, nobody[6];

	assert_int_equal(switch_decide(&table, broadcast, mac(1), 1, 0), SWITCH_FLOOD);
	assert_int_equal(switch_decide(&table, group, mac(1), 1, 0), SWITCH_FLOOD);
	/* no station has such an address: neither learnt nor forwarded */
	assert_int_equal(switch_decide(&table, mac(1), group, 2, 0), SWITCH_BAD);
	assert_int_equal(switch_decide(&table, mac(1), nobody, 2, 0), SWITCH_BAD);
	assert_int_equal(switch_decide(&table, group, mac(2), 2, 0), SWITCH_FLOOD);
	assert_int_equal(switch_table_count(&table, 0), 2);
}

TEST_IN(setup, NULL, test_moves)
{
	assert_int_equal(switch_table_learn(&table, switch_mac(mac(1)), 1, 0), SWITCH_NEW);
	assert_int_equal(switch_table_learn(&table, switch_mac(mac(1)), 1, 0), SWITCH_KNOWN);
	assert_int_equal(switch_table_learn(&table, switch_mac(mac(1)), 2, 0), SWITCH_MOVED);
	assert_int_equal(switch_table_find(&table, switch_mac(mac(1)), 0), 2);
	assert_int_equal(table.moved, 1);
	assert_int_equal(switch_table_count(&table, 0), 1);
}

TEST_IN(setup, NULL, test_ages)
{
	switch_table_learn(&table, switch_mac(mac(1)), 1, 1000);
	assert_int_equal(switch_table_find(&table, switch_mac(mac(1)), 1000 + AGE), 1);
	assert_int_equal(switch_table_find(&table, switch_mac(mac(1)), 1001 + AGE), SWITCH_NOWHERE);
	assert_int_equal(switch_table_count(&table, 1001 + AGE), 0);
	/* seen again: lives on */
	switch_table_learn(&table, switch_mac(mac(1)), 1, 1200);
	assert_int_equal(switch_table_find(&table, switch_mac(mac(1)), 1200 + AGE), 1);
	/* seconds may wrap */
	switch_table_learn(&table, switch_mac(mac(1)), 1, UINT32_MAX);
	assert_int_equal(switch_table_find(&table, switch_mac(mac(1)), AGE - 1), 1);
}

TEST_IN(setup, NULL, test_forgets_a_port)
{
	for (unsigned i = 1; i <= 64; i++)
		switch_table_learn(&table, switch_mac(mac(i)), i % 2, 0);
	switch_table_forget(&table, 1);
	assert_int_equal(switch_table_count(&table, 0), 32);
	assert_int_equal(switch_table_find(&table, switch_mac(mac(1)), 0), SWITCH_NOWHERE);
	assert_int_equal(switch_table_find(&table, switch_mac(mac(2)), 0), 0);
}

/* Invented addresses fill the table; older entries stay until they have aged. */
TEST_IN(setup, NULL, test_crowded)
{
	unsigned known = 0;

	switch_table_learn(&table, switch_mac(mac(0)), 7, 0);
	for (unsigned i = 1; i < 100000; i++)
		switch_table_learn(&table, switch_mac(mac(i)), 1, 0);
	assert_true(table.crowded > 0);
	assert_int_equal(table.learnt, switch_table_count(&table, 0));
	assert_true(table.learnt <= SWITCH_BUCKETS * SWITCH_WAYS);
	assert_true(table.learnt > SWITCH_BUCKETS * SWITCH_WAYS * 9 / 10);
	assert_int_equal(switch_table_find(&table, switch_mac(mac(0)), 0), 7);
	for (unsigned i = 100000; i < 101000; i++)
		known += switch_table_learn(&table, switch_mac(mac(i)), 1, AGE + 1) == SWITCH_NEW;
	assert_in_range(known, 950, 1000); /* some buckets get five */
}

/* Nodes have addresses in a row, in a few networks, with a byte of zero here and there. */
TEST_IN(setup, NULL, test_neighbours)
{
	uint8_t m[6] = {0x02, 0, 10, 88};

	for (unsigned net = 0; net < 4; net++)
		for (unsigned i = 0; i < 256; i++) {
			m[4] = (uint8_t)net;
			m[5] = (uint8_t)i;
			switch_table_learn(&table, switch_mac(m), i % 32, 0);
		}
	assert_int_equal(table.crowded, 0);
	assert_int_equal(switch_table_count(&table, 0), 1024);
}

TEST(test_queue)
{
	void *cells[8], **first;
	struct switch_queue q = {.frames = cells, .cells = 8, .limit = 5, .tail = UINT32_MAX - 2};
	uintptr_t in = 0, out = 0;

	q.head = q.tail;
	assert_int_equal(switch_queue_first(&q, &first), 0);
	for (unsigned round = 0; round < 100; round++) {
		uint32_t n;

		while (switch_queue_push(&q, (void *)++in))
			;
		in--; /* that one was refused */
		assert_int_equal(switch_queue_count(&q), 5);
		n = switch_queue_first(&q, &first);
		assert_in_range(n, 1, 5);
		n = n > 3 ? 3 : n;
		for (uint32_t i = 0; i < n; i++)
			assert_ptr_equal(first[i], (void *)++out);
		switch_queue_pop(&q, n);
	}
	assert_true(out > 150);
}

static struct switch_options options;
static char reason[256];

static int
parse(const char *words)
{
	char *argv[WORDS_MAX];
	int argc = words_split("weir-switch", words, argv);

	reason[0] = '\0';
	return switch_options_parse(&options, argc, argv, reason, sizeof(reason));
}

TEST(test_options)
{
	assert_int_equal(parse(""), 0);
	assert_int_equal(options.age, 300);
	assert_int_equal(options.queue, 512);
	assert_true(!options.period && !options.json && !options.poll);
	assert_int_equal(parse("--age 5 --queue 64 --stats-period 2 --json --idle poll"), 0);
	assert_int_equal(options.age, 5);
	assert_int_equal(options.queue, 64);
	assert_int_equal(options.period, 2);
	assert_true(options.json && options.poll);
	assert_int_equal(parse("--help"), 0);
	assert_true(options.help);
	assert_int_equal(parse("--version"), 0);
	assert_true(options.version);
}

TEST(test_bad_options)
{
	static const char *const bad[] = {"--age 0",   "--age x",	   "--age",
					  "--queue 0", "--queue 65537",	   "--idle doze",
					  "--idle",    "--stats-period 0", "--fast",
					  "more",      "--queue -1",	   "--age 99999999"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(parse(bad[i]), -EINVAL);
		assert_true(strstr(reason, "; ") || strstr(reason, " (expected "));
	}
}
