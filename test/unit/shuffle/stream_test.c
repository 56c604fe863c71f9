/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues between threads of processes, of one node and of two: every record comes once, in the
 * order of its producer. */
#include "invoke/crew.h"

#include "weir/shuffle.h"

#define RECORDS 4000u
#define PARTITIONS 37u

static const struct weir_function table[] = {WEIR_SHUFFLE_FUNCTIONS};
static struct weir_shuffle_options options;
static bool in_place, to_threads;

/* Key and head of the value. */
struct mark {
	uint32_t producer, number; /* among those of the producer for the partition */
};

struct reader {
	struct weir_shuffle *s;
	struct weir_reduce *r;
	struct hand *h;
	uint32_t (*next)[PARTITIONS + 1]; /* by producer */
	uint64_t records;
	int line;
};

static uint32_t
value_length(uint32_t i)
{
	return i % 1000 == 7 ? 70000 : i % 97 == 5 ? 9000 : (uint32_t)sizeof(struct mark) + i % 300;
}

static uint32_t
by_number(const void *key, uint32_t length, uint32_t partitions, void *user)
{
	uint32_t number;

	(void)user;
	assert_int_equal(length, sizeof(number));
	memcpy(&number, key, sizeof(number));
	return number % partitions;
}

/* One record. 0, a line, or -errno. */
static int
take(struct reader *rd, int timeout_ms)
{
	struct weir_record r;
	struct mark m;
	uint32_t partition, key;
	int rc = weir_reduce_next(rd->r, &r, timeout_ms);

	if (rc)
		return rc;
	partition = weir_record_partition(rd->r);
	CHECK(r.key_length == sizeof(key) && r.value_length >= sizeof(m));
	memcpy(&key, r.key, sizeof(key));
	memcpy(&m, r.value, sizeof(m));
	if (to_threads) {
		CHECK(partition == UINT32_MAX && key == rd->h->number);
		partition = PARTITIONS;
	} else {
		struct weir_to owner = weir_shuffle_owner(rd->s, partition);

		CHECK(partition == key % PARTITIONS);
		CHECK(owner.process == rd->h->c.process && owner.thread == rd->h->c.thread);
	}
	CHECK(m.number == rd->next[m.producer][partition]++);
	for (uint32_t i = sizeof(m); i < r.value_length; i += 61)
		CHECK(((const uint8_t *)r.value)[i] == (uint8_t)(m.number + i));
	rd->records++;
	return 0;
}

/* A call had no memory for what comes meanwhile. */
static int
take_some(struct reader *rd, int rc)
{
	CHECK(rc == -ENOBUFS);
	rc = take(rd, 0);
	if (rc > 0)
		return rc;
	CHECK(!rc || rc == -EAGAIN);
	return 0;
}

static int
push(struct weir_map *m, struct reader *rd, const struct weir_record *r, struct weir_to to,
     int timeout_ms)
{
	void *key, *value;
	int rc, line;

	if (to_threads)
		return weir_map_put_to(m, to, r, timeout_ms);
	if (!in_place)
		return weir_map_put(m, r, timeout_ms);
	/* with more than it takes */
	rc = weir_map_reserve(m, by_number(r->key, r->key_length, PARTITIONS, NULL),
			      r->key_length + 3, r->value_length + 500, timeout_ms, &key, &value);
	if (rc)
		return rc;
	memcpy(key, r->key, r->key_length);
	memcpy(value, r->value, r->value_length);
	while ((rc = weir_map_commit_record(m, r->key_length, r->value_length)) == -ENOBUFS)
		if ((line = take_some(rd, rc)))
			return line;
	return rc;
}

/* A put that has no room, or no memory, reads. */
static int
push_or_read(struct weir_map *m, struct reader *rd, const struct weir_record *r, struct weir_to to)
{
	int rc;

	while ((rc = push(m, rd, r, to, -1))) {
		rc = rc > 0 ? rc : take_some(rd, rc);
		if (rc)
			return rc;
	}
	return 0;
}

static int
push_and_read(struct hand *h, struct weir_shuffle *s, struct reader *rd)
{
	static uint8_t bytes[THREADS * MOST][80000];
	uint32_t numbers[PARTITIONS + THREADS * MOST] = {0},
						all = weir_invoker_threads(h->c.v, UINT32_MAX);
	struct weir_map *m;
	int rc;

	CHECK(!weir_reduce_begin_own(s, &rd->r));
	CHECK(!weir_map_begin(s, 0, 0, &m));
	for (uint32_t i = 0; i < RECORDS; i++) {
		uint32_t key = to_threads ? i % all : i * 7 + h->number, length = value_length(i);
		struct mark mark = {h->number, numbers[to_threads ? key : key % PARTITIONS]++};
		struct weir_record r = {&key, bytes[h->number], sizeof(key), length};

		for (uint32_t k = 0; k < length; k++)
			bytes[h->number][k] = (uint8_t)(mark.number + k);
		memcpy(bytes[h->number], &mark, sizeof(mark));
		rc = push_or_read(m, rd, &r,
				  (struct weir_to){key / crew.o.threads, key % crew.o.threads});
		if (rc)
			return rc;
		if (i == RECORDS / 2)
			while ((rc = weir_map_flush(m, -1)))
				if ((rc = take_some(rd, rc)))
					return rc;
	}
	while ((rc = weir_map_end(m, true)))
		if ((rc = take_some(rd, rc)))
			return rc;
	while (!(rc = take(rd, -1)))
		;
	CHECK(rc == -ENODATA);
	weir_reduce_end(rd->r, true);
	return 0;
}

static int
shuffle(struct hand *h)
{
	struct weir_shuffle_stats n = WEIR_SHUFFLE_STATS_INIT;
	struct reader rd = {.h = h};
	struct weir_shuffle *s;
	uint64_t sum;
	int line;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	rd.s = s;
	rd.next = calloc(THREADS * MOST, sizeof(*rd.next));
	line = push_and_read(h, s, &rd);
	if (line)
		return line;
	sum = rd.records;
	CHECK(!weir_invoker_reduce(h->c.v, &sum, &sum, 1, WEIR_T_UINT64, WEIR_ACC_SUM, -1));
	CHECK(sum == (uint64_t)RECORDS * weir_invoker_threads(h->c.v, UINT32_MAX));
	CHECK(!weir_shuffle_stats(s, &n));
	CHECK(!n.corrupt && !n.malformed && !n.dropped);
	if (n.memory_peak > options.memory)
		fprintf(stderr, "peak %llu\n", (unsigned long long)n.memory_peak);
	CHECK(n.memory_peak <= options.memory);
	if (h->c.thread == 0)
		printf("pushed %llu, blocks %llu, placed %llu of %llu, peak %llu KiB\n",
		       (unsigned long long)n.pushed, (unsigned long long)n.blocks,
		       (unsigned long long)n.placed, (unsigned long long)n.received,
		       (unsigned long long)n.memory_peak >> 10);
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	weir_shuffle_close(s);
	free(rd.next);
	return 0;
}

static void
run(uint32_t flags, uint64_t memory)
{
	options = (struct weir_shuffle_options)WEIR_SHUFFLE_OPTIONS_INIT;
	options.flags = flags;
	options.memory = memory;
	options.partitions = PARTITIONS;
	options.partition = by_number;
	crew_init();
	crew_of(3, table, sizeof(table) / sizeof(table[0]), shuffle);
}

static void
test_blocks(void **state)
{
	(void)state;
	in_place = to_threads = false;
	run(0, 64u << 20);
}

static void
test_prompt(void **state)
{
	(void)state;
	in_place = to_threads = false;
	run(WEIR_SHUFFLE_PROMPT, 64u << 20);
}

/* So little memory that threads have to read between puts. */
static void
test_little_memory(void **state)
{
	(void)state;
	in_place = to_threads = false;
	run(0, 1u << 20);
	run(WEIR_SHUFFLE_PROMPT, 1u << 20);
}

static void
test_in_place(void **state)
{
	(void)state;
	in_place = true, to_threads = false;
	run(0, 64u << 20);
	run(WEIR_SHUFFLE_PROMPT, 64u << 20);
}

static void
test_to_threads(void **state)
{
	(void)state;
	in_place = false, to_threads = true;
	run(0, 64u << 20);
	run(WEIR_SHUFFLE_PROMPT, 64u << 20);
}

#define BEHIND 400u /* records before a block: of several chunks of a queue */

static pthread_barrier_t deaf, read_all;
static _Atomic bool has_block;

static int
put_bytes(struct weir_map *m, uint32_t process, uint32_t length, int timeout_ms)
{
	static const uint8_t bytes[70000];
	struct weir_record r = {NULL, bytes, 0, length};

	return weir_map_put_to(m, (struct weir_to){process, 0}, &r, timeout_ms);
}

/* Process 1 sends a block behind records, and then takes nothing any more. As long as the block
 * lies unread in the session's memory, no put of process 0 waits for room, wherever its reader is.
 */
static int
wait_or_read(struct hand *h)
{
	uint32_t peer = !h->c.process;
	struct weir_record r;
	struct weir_shuffle *s;
	struct weir_reduce *rd;
	struct weir_map *m;
	int rc = 0;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	CHECK(!weir_reduce_begin_own(s, &rd));
	CHECK(!weir_map_begin(s, 0, 0, &m));
	if (h->c.process == 0) {
		while (!(rc = put_bytes(m, peer, 300, -1)))
			;
		CHECK(rc == -ENOBUFS);
		atomic_store(&has_block, true);
		pthread_barrier_wait(&deaf);
		while (!(rc = put_bytes(m, peer, 300, 0)))
			;
		CHECK(rc == -ENOBUFS);
		for (uint32_t i = 0; i < BEHIND; i++) {
			CHECK(!weir_reduce_next(rd, &r, 0) && r.value_length == 300);
			while (!(rc = put_bytes(m, peer, 300, 0)))
				;
			CHECK(rc == -ENOBUFS);
		}
		CHECK(!weir_reduce_next(rd, &r, 0) && r.value_length == 70000);
	} else {
		for (uint32_t i = 0; i < BEHIND; i++)
			CHECK(!put_bytes(m, peer, 300, -1));
		CHECK(!put_bytes(m, peer, 70000, -1));
		while (!atomic_load(&has_block)) {
			rc = weir_map_flush(m, 0);
			CHECK(!rc || rc == -EAGAIN || rc == -ENOBUFS);
			CHECK(weir_invoker_progress(h->c.v, 0, 1) >= 0);
		}
		pthread_barrier_wait(&deaf);
	}
	pthread_barrier_wait(&read_all);
	while ((rc = weir_map_end(m, true)) == -ENOBUFS)
		CHECK((rc = weir_reduce_next(rd, &r, 0)) == 0 || rc == -EAGAIN);
	CHECK(!rc);
	while (!(rc = weir_reduce_next(rd, &r, -1)))
		;
	CHECK(rc == -ENODATA);
	weir_reduce_end(rd, true);
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	weir_shuffle_close(s);
	return 0;
}

static void
test_wait_or_read(void **state)
{
	(void)state;
	has_block = false;
	pthread_barrier_init(&deaf, NULL, 2);
	pthread_barrier_init(&read_all, NULL, 2);
	options = (struct weir_shuffle_options)WEIR_SHUFFLE_OPTIONS_INIT;
	options.flags = WEIR_SHUFFLE_PROMPT;
	options.partitions = PARTITIONS;
	crew_init();
	crew.o.threads = 1;
	crew_of(2, table, sizeof(table) / sizeof(table[0]), wait_or_read);
	pthread_barrier_destroy(&read_all);
	pthread_barrier_destroy(&deaf);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_blocks),	  cmocka_unit_test(test_prompt),
	    cmocka_unit_test(test_little_memory), cmocka_unit_test(test_in_place),
	    cmocka_unit_test(test_to_threads),	  cmocka_unit_test(test_wait_or_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
