/* SPDX-License-Identifier: BSD-3-Clause */
/* Map tasks with several attempts: consumers read the records of one of them, once. */
#include "invoke/crew.h"

#include "shuffle/shuffle.h"

#define MAPS 60u
#define RECORDS 500u
#define PARTITIONS 23u
#define ATTEMPTS 3u
#define NONE UINT32_MAX

static const struct weir_function table[] = {WEIR_SHUFFLE_FUNCTIONS};
static struct weir_shuffle_options options;
static bool opaque, spills;
static char directory[] = "/tmp/weir-stage-XXXXXX";
static int (*combine)(const struct weir_record *r, size_t n, struct weir_emit *out, void *user);
static const char *const directories[] = {directory, NULL};
static enum { UNSORTED, BY_RECORDS, BY_KEYS } order;

struct mark {
	uint32_t map, attempt, number;
};

/* Which attempts the threads of all processes saw as selected, and how often a record came. */
static _Atomic uint32_t winners[MAPS];
static _Atomic uint8_t seen[MAPS][RECORDS];
static _Atomic uint32_t first_of[MAPS]; /* attempt whose records have come, + 1 */

static uint32_t
value_length(uint32_t number)
{
	uint32_t large = !spills ? 80000 : order == UNSORTED ? 150000 : 20000;

	return number % 200 == 9 ? large : (uint32_t)sizeof(struct mark) + number % 120;
}

static int
put(struct weir_map *m, uint32_t map, uint32_t attempt, uint32_t number)
{
	static __thread uint8_t bytes[150000];
	struct mark mark = {map, attempt, number};
	uint32_t key = map * 31 + number;
	struct weir_record r = {&key, bytes, sizeof(key), value_length(number)};

	memset(bytes, (int)(number + map), sizeof(bytes));
	memcpy(bytes, &mark, sizeof(mark));
	if (!opaque)
		return weir_map_put(m, &r, -1);
	return weir_map_put_block(m, key % PARTITIONS, bytes, r.value_length, 1, -1);
}

static int
attempt_map(struct weir_shuffle *s, uint32_t map, uint32_t attempt)
{
	uint32_t none = NONE;
	struct weir_map *m;
	int rc;

	CHECK(!weir_map_begin(s, map, attempt, &m));
	/* another process begins here, as a rule */
	for (uint32_t i = 0; i < RECORDS; i++)
		CHECK(!put(m, map, attempt, i));
	if (attempt == 2 && map % 3 == 0) {
		CHECK(!weir_map_end(m, false));
		return 0;
	}
	rc = weir_map_end(m, true);
	CHECK(!rc || rc == -EALREADY);
	if (!rc)
		CHECK(atomic_compare_exchange_strong(&winners[map], &none, attempt));
	return 0;
}

static int
check(const void *value, size_t length)
{
	const uint8_t *bytes = value;
	uint32_t expected = 0;
	struct mark m;

	CHECK(length >= sizeof(m));
	memcpy(&m, value, sizeof(m));
	CHECK(m.map < MAPS && m.attempt < ATTEMPTS && m.number < RECORDS);
	CHECK(length == value_length(m.number));
	for (size_t i = sizeof(m); i < length; i += 41)
		CHECK(bytes[i] == (uint8_t)(m.number + m.map));
	CHECK(!atomic_fetch_add(&seen[m.map][m.number], 1));
	atomic_compare_exchange_strong(&first_of[m.map], &expected, m.attempt + 1);
	CHECK(atomic_load(&first_of[m.map]) == m.attempt + 1);
	return 0;
}

/* The next record; with SORTED keys ascend. */
static int
next_record(struct weir_reduce *r, struct weir_record *record, uint8_t last[4], bool *begun)
{
	const void *key;
	uint32_t length;
	int rc;

	while ((rc = order == BY_KEYS && !*begun ? -ENODATA : weir_reduce_next(r, record, -1)) ==
		   -ENODATA &&
	       order == BY_KEYS) {
		rc = weir_reduce_key(r, &key, &length, -1);
		if (rc)
			return rc;
		CHECK(length == 4 && (!*begun || memcmp(last, key, 4) < 0));
		memcpy(last, key, 4);
		*begun = true;
	}
	if (rc || order == UNSORTED)
		return rc;
	CHECK(record->key_length == 4);
	if (order == BY_KEYS)
		CHECK(!memcmp(last, record->key, 4));
	else
		CHECK(!*begun || memcmp(last, record->key, 4) <= 0);
	memcpy(last, record->key, 4);
	*begun = true;
	return 0;
}

static int
read_part(struct weir_shuffle *s, uint32_t partition, uint32_t part, uint64_t *records, bool again)
{
	struct weir_reduce *r, *other;
	struct weir_record record;
	struct weir_block block;
	bool begun = false;
	uint8_t last[4];
	int rc, line;

	CHECK(!weir_reduce_begin(s, partition, part, 2, &r));
	CHECK(weir_reduce_begin(s, partition, part, 2, &other) == -EBUSY);
	CHECK(weir_reduce_begin(s, partition, 0, 1, &other) == -EINVAL);
	while (!(rc = opaque ? weir_reduce_block(r, &block, -1)
			     : next_record(r, &record, last, &begun))) {
		if (again)
			break; /* what was read so far comes again */
		line = opaque ? check(block.data, block.length)
			      : check(record.value, record.value_length);
		if (line)
			return line;
		++*records;
		if (opaque)
			weir_block_release(s, &block);
	}
	if (again && opaque && !rc)
		weir_block_release(s, &block);
	CHECK(!rc || rc == -ENODATA);
	weir_reduce_end(r, !again);
	CHECK(again || weir_reduce_begin(s, partition, part, 2, &r) == -ENODATA);
	return 0;
}

static int
stage(struct hand *h)
{
	uint32_t all = weir_invoker_threads(h->c.v, UINT32_MAX), missing[MAPS];
	struct weir_shuffle_stats n = WEIR_SHUFFLE_STATS_INIT;
	struct weir_partition_info info;
	struct weir_shuffle *s;
	struct weir_reduce *r;
	uint64_t records = 0, held = 0;
	int line;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	CHECK(weir_reduce_begin_own(s, &r) == -EINVAL);
	for (uint32_t map = 0; map < MAPS; map++)
		for (uint32_t attempt = 0; attempt < ATTEMPTS; attempt++) {
			if ((map + attempt * 4) % all != h->number)
				continue;
			line = attempt_map(s, map, attempt);
			if (line)
				return line;
		}
	for (uint32_t p = 0; p < PARTITIONS; p++) {
		struct weir_to owner = weir_shuffle_owner(s, p);

		if (owner.process != h->c.process) {
			CHECK(weir_reduce_begin(s, p, 0, 2, &r) == -ENOTCONN);
			continue;
		}
		if (owner.thread != h->c.thread)
			continue;
		line = read_part(s, p, 0, &records, true);
		for (uint32_t part = 0; !line && part < 2; part++) {
			if (part) {
				CHECK(!weir_shuffle_partition(s, p, &info));
				held += info.records;
			}
			line = read_part(s, p, part, &records, false);
		}
		if (line)
			return line;
	}
	CHECK(weir_shuffle_missing(s, missing, MAPS) == 0);
	CHECK(held == records);
	CHECK(!weir_invoker_reduce(h->c.v, &records, &records, 1, WEIR_T_UINT64, WEIR_ACC_SUM, -1));
	CHECK(records == MAPS * RECORDS);
	for (uint32_t map = 0; map < MAPS; map++)
		CHECK(atomic_load(&winners[map]) + 1 == atomic_load(&first_of[map]));
	CHECK(!weir_shuffle_stats(s, &n));
	CHECK(!spills || n.spilled_bytes);
	CHECK(!n.corrupt && !n.malformed);
	/* a record larger than a block may pass the bound, one per thread */
	CHECK(n.memory_peak <=
	      options.memory + (spills && order == UNSORTED ? THREADS * 160000 : 0));
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	CHECK(!weir_shuffle_stats(s, &n));
	CHECK(n.memory == 0 || h->c.thread);
	weir_shuffle_close(s);
	return 0;
}

/* Memory for a small part of the blocks. */
static void
spill_options(void)
{
	if (!spills)
		return;
	options.memory = 2u << 20;
	options.spill = directories;
	options.spill_max = 1u << 30;
}

static void
prepare(bool blocks, uint32_t codec, uint32_t flags)
{
	opaque = blocks;
	for (uint32_t i = 0; i < MAPS; i++) {
		winners[i] = NONE;
		first_of[i] = 0;
		memset((void *)seen[i], 0, sizeof(seen[i]));
	}
	options = (struct weir_shuffle_options)WEIR_SHUFFLE_OPTIONS_INIT;
	options.kind = WEIR_SHUFFLE_STAGE;
	options.maps = MAPS;
	options.partitions = PARTITIONS;
	options.codec = codec;
	options.flags = flags;
	options.combine = combine;
	spill_options();
	crew_init();
}

static void
run(bool blocks, uint32_t codec, uint32_t flags)
{
	prepare(blocks, codec, flags);
	crew_of(3, table, sizeof(table) / sizeof(table[0]), stage);
}

static void
test_records(void **state)
{
	(void)state;
	run(false, WEIR_CODEC_NONE, 0);
}

static void
test_blocks(void **state)
{
	(void)state;
	run(true, WEIR_CODEC_NONE, 0);
}

static void
test_packed(void **state)
{
	(void)state;
	run(false, WEIR_CODEC_LZ4, 0);
	run(false, WEIR_CODEC_ZSTD, 0);
}

static void
test_sorted(void **state)
{
	(void)state;
	order = BY_RECORDS;
	run(false, WEIR_CODEC_NONE, WEIR_SHUFFLE_SORTED);
	order = BY_KEYS;
	run(false, WEIR_CODEC_LZ4, WEIR_SHUFFLE_GROUPED);
	order = UNSORTED;
}

static void
spill_all(void)
{
	memcpy(directory + strlen(directory) - 6, "XXXXXX", 6);
	assert_non_null(mkdtemp(directory));
	spills = true;
}

static void
spill_end(void)
{
	spills = false;
	assert_int_equal(rmdir(directory), 0); /* no file is left */
}

static void
test_spilled(void **state)
{
	(void)state;
	spill_all();
	run(false, WEIR_CODEC_NONE, 0);
	run(true, WEIR_CODEC_NONE, 0);
	spill_end();
}

/* A combiner that has nothing to save. */
static int
keep_all(const struct weir_record *r, size_t n, struct weir_emit *out, void *user)
{
	int rc = 0;

	(void)user;
	for (size_t i = 0; i < n && !rc; i++)
		rc = weir_emit(out, &r[i]);
	return rc;
}

static void
test_spilled_sorted(void **state)
{
	(void)state;
	spill_all();
	order = BY_RECORDS;
	run(false, WEIR_CODEC_NONE, WEIR_SHUFFLE_SORTED);
	order = BY_KEYS;
	run(false, WEIR_CODEC_LZ4, WEIR_SHUFFLE_GROUPED);
	combine = keep_all;
	run(false, WEIR_CODEC_NONE, WEIR_SHUFFLE_GROUPED);
	combine = NULL;
	order = UNSORTED;
	spill_end();
}

static struct weir_to
of_first(uint32_t partition, void *user)
{
	(void)partition;
	(void)user;
	return (struct weir_to){0, 0};
}

/* One process, whose thread 0 pushes more than memory and files take. */
static int
fill_files(struct hand *h)
{
	struct weir_shuffle *s;
	struct weir_map *m;
	uint32_t number = 0;
	int rc = 0;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	if (!h->number) {
		CHECK(!weir_map_begin(s, 0, 0, &m));
		while (!rc && number < 1000000)
			rc = put(m, 0, 0, number++);
		CHECK(rc == -ENOBUFS || rc == -EAGAIN);
		CHECK(!weir_map_end(m, false));
	}
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	weir_shuffle_close(s);
	return 0;
}

static void
test_full(void **state)
{
	(void)state;
	spill_all();
	options = (struct weir_shuffle_options)WEIR_SHUFFLE_OPTIONS_INIT;
	options.kind = WEIR_SHUFFLE_STAGE;
	options.maps = 1;
	options.partitions = PARTITIONS;
	options.owner = of_first;
	spill_options();
	options.spill_max = 1u << 20;
	crew_init();
	crew_of(1, table, sizeof(table) / sizeof(table[0]), fill_files);
	spill_end();
}

/* ---- a process that ends ---- */

static _Atomic uint64_t read_in_all;
static _Atomic uint32_t readers;

/* All partitions are process 0's; process 2 only produces. */
static struct weir_to
of_process_0(uint32_t partition, void *user)
{
	(void)user;
	return (struct weir_to){0, partition % THREADS};
}

/* Process 2 ends before the others begin, and takes no task with it. */
static int
go_on_without(struct hand *h)
{
	struct weir_shuffle *s;
	uint64_t records = 0;
	int line;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	if (h->c.process == 2) {
		weir_shuffle_close(s);
		return 0;
	}
	while (!weir_invoker_status(h->c.v, 2) && !atomic_load(&s->lost[2]))
		CHECK(weir_invoker_progress(h->c.v, 0, 1) >= 0);
	for (uint32_t map = h->number; map < MAPS; map += 2 * THREADS) {
		line = attempt_map(s, map, 0);
		if (line)
			return line;
		CHECK(atomic_load(&winners[map]) == 0);
	}
	for (uint32_t p = 0; p < PARTITIONS; p++) {
		struct weir_to owner = weir_shuffle_owner(s, p);

		if (owner.process != h->c.process || owner.thread != h->c.thread)
			continue;
		for (uint32_t part = 0; part < 2; part++) {
			line = read_part(s, p, part, &records, false);
			if (line)
				return line;
		}
	}
	atomic_fetch_add(&read_in_all, records);
	atomic_fetch_add(&readers, 1);
	/* process 0 answers until all have ended */
	while (atomic_load(&readers) < 2 * THREADS)
		CHECK(weir_invoker_progress(h->c.v, 0, 1) >= 0);
	CHECK(atomic_load(&read_in_all) == MAPS * RECORDS);
	weir_shuffle_close(s);
	return 0;
}

static void
test_process_ends(void **state)
{
	(void)state;
	prepare(false, WEIR_CODEC_NONE, 0);
	options.owner = of_process_0;
	crew_of(3, table, sizeof(table) / sizeof(table[0]), go_on_without);
}

/* ---- sums of keys ---- */

#define KEYS 40u
#define COUNTED 3000u /* records of a map task */

static int
add_up(const struct weir_record *r, size_t n, struct weir_emit *out, void *user)
{
	struct weir_record sum = r[0];
	uint64_t total = 0, value;

	(void)user;
	for (size_t i = 0; i < n; i++) {
		memcpy(&value, r[i].value, sizeof(value));
		total += value;
	}
	sum.value = &total;
	return weir_emit(out, &sum);
}

static int
sum_keys(struct hand *h)
{
	uint64_t sums[KEYS] = {0}, one = 1, value, read = 0;
	struct weir_shuffle_stats n = WEIR_SHUFFLE_STATS_INIT;
	struct weir_shuffle *s;
	struct weir_reduce *r;
	struct weir_map *m;
	const void *key;
	uint32_t length, k;
	int rc;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	CHECK(!weir_map_begin(s, h->number, 0, &m));
	for (uint32_t i = 0; i < COUNTED; i++) {
		struct weir_record record = {&k, &one, sizeof(k), sizeof(one)};

		k = i * i % KEYS;
		CHECK(!weir_map_put(m, &record, -1));
	}
	CHECK(!weir_map_end(m, true));
	for (uint32_t p = h->number; p < options.partitions; p += options.maps) {
		struct weir_record record;

		CHECK(!weir_reduce_begin(s, p, 0, 1, &r));
		while (!(rc = weir_reduce_key(r, &key, &length, -1))) {
			CHECK(length == sizeof(k));
			memcpy(&k, key, sizeof(k));
			CHECK(k < KEYS && !sums[k]);
			while (!(rc = weir_reduce_next(r, &record, -1))) {
				memcpy(&value, record.value, sizeof(value));
				sums[k] += value;
				read++;
			}
			CHECK(rc == -ENODATA && sums[k]);
		}
		CHECK(rc == -ENODATA);
		weir_reduce_end(r, true);
	}
	CHECK(!weir_shuffle_stats(s, &n));
	CHECK(n.combined > 0 && read <= options.maps * KEYS);
	for (k = 0; k < KEYS; k++) {
		uint64_t expected = 0, sum;

		for (uint32_t i = 0; i < COUNTED; i++)
			expected += i * i % KEYS == k;
		CHECK(!weir_invoker_reduce(h->c.v, &sums[k], &sum, 1, WEIR_T_UINT64, WEIR_ACC_SUM,
					   -1));
		CHECK(sum == expected * options.maps);
	}
	weir_shuffle_close(s);
	return 0;
}

static void
test_combined(void **state)
{
	(void)state;
	options = (struct weir_shuffle_options)WEIR_SHUFFLE_OPTIONS_INIT;
	options.kind = WEIR_SHUFFLE_STAGE;
	options.flags = WEIR_SHUFFLE_GROUPED;
	options.maps = 2 * THREADS;
	options.partitions = 11;
	options.combine = add_up;
	crew_init();
	crew_of(2, table, sizeof(table) / sizeof(table[0]), sum_keys);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_records),	 cmocka_unit_test(test_blocks),
	    cmocka_unit_test(test_packed),	 cmocka_unit_test(test_sorted),
	    cmocka_unit_test(test_process_ends), cmocka_unit_test(test_combined),
	    cmocka_unit_test(test_spilled),	 cmocka_unit_test(test_spilled_sorted),
	    cmocka_unit_test(test_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
