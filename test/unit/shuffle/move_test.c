/* SPDX-License-Identifier: BSD-3-Clause */
/* Partitions that get another owner: each record is read once, whoever was lost or too slow. */
#include "invoke/crew.h"

#include "shuffle/shuffle.h"

#define MAPS 24u
#define RECORDS 300u
#define PARTITIONS 20u

static const struct weir_function table[] = {WEIR_SHUFFLE_FUNCTIONS};
static struct weir_shuffle_options options;

struct mark {
	uint32_t map, number;
};

static _Atomic uint8_t seen[MAPS][RECORDS];
static _Atomic uint32_t finished, read_in_all;

static int
attempt(struct weir_shuffle *s, uint32_t map, uint32_t number)
{
	struct weir_map *m;
	int rc = 0;

	CHECK(!weir_map_begin(s, map, number, &m));
	for (uint32_t i = 0; i < RECORDS && !rc; i++) {
		uint32_t key = map * 31 + i * 7;
		uint8_t value[400] = {0};
		struct weir_record r = {&key, value, sizeof(key),
					(uint32_t)sizeof(struct mark) + i};

		memcpy(value, &(struct mark){map, i}, sizeof(struct mark));
		rc = weir_map_put(m, &r, -1);
	}
	if (rc)
		weir_map_end(m, false);
	else
		rc = weir_map_end(m, true);
	return rc;
}

static int
read_partition(struct weir_shuffle *s, uint32_t partition, uint32_t *records)
{
	struct weir_record record;
	struct weir_reduce *r;
	struct mark mark;
	int rc;

	CHECK(!weir_reduce_begin(s, partition, 0, 1, &r));
	while (!(rc = weir_reduce_next(r, &record, -1))) {
		memcpy(&mark, record.value, sizeof(mark));
		CHECK(mark.map < MAPS && mark.number < RECORDS);
		CHECK(record.value_length == sizeof(mark) + mark.number);
		CHECK(!atomic_fetch_add(&seen[mark.map][mark.number], 1));
		++*records;
	}
	CHECK(rc == -ENODATA);
	weir_reduce_end(r, true);
	return 0;
}

static bool
is_own(const struct hand *h, struct weir_to owner)
{
	return owner.process == h->c.process && owner.thread == h->c.thread;
}

/* Repeats missing tasks of the thread until none is missing anywhere. */
static int
repeat(struct hand *h, struct weir_shuffle *s, uint32_t threads)
{
	uint32_t missing[MAPS], next[MAPS] = {0};
	int n, rc;

	while ((n = weir_shuffle_missing(s, missing, MAPS)) > 0) {
		for (int i = 0; i < n; i++) {
			if (missing[i] % threads != h->number)
				continue;
			rc = attempt(s, missing[i], ++next[missing[i]]);
			CHECK(!rc || rc == -ESTALE || rc == -EALREADY);
		}
		CHECK(weir_invoker_progress(h->c.v, 0, 1) >= 0);
	}
	return 0;
}

static int
read_own(struct hand *h, struct weir_shuffle *s, uint32_t *records)
{
	for (uint32_t p = 0; p < PARTITIONS; p++)
		if (is_own(h, weir_shuffle_owner(s, p))) {
			int line = read_partition(s, p, records);

			if (line)
				return line;
		}
	return 0;
}

/* All have read. Process 0 answers until then. */
static int
leave(struct hand *h, struct weir_shuffle *s, uint32_t threads, uint32_t records)
{
	atomic_fetch_add(&read_in_all, records);
	atomic_fetch_add(&finished, 1);
	while (atomic_load(&finished) < threads)
		CHECK(weir_invoker_progress(h->c.v, 0, 1) >= 0);
	CHECK(atomic_load(&read_in_all) == MAPS * RECORDS);
	weir_shuffle_close(s);
	return 0;
}

static void
start(void)
{
	memset((void *)seen, 0, sizeof(seen));
	finished = read_in_all = 0;
	options = (struct weir_shuffle_options)WEIR_SHUFFLE_OPTIONS_INIT;
	options.kind = WEIR_SHUFFLE_STAGE;
	options.maps = MAPS;
	options.partitions = PARTITIONS;
	options.block = 8192;
	crew_init();
}

/* ---- an owner that goes before its partitions were read ---- */

#define LIVING (2 * THREADS)

/* A partition that came ends when the tasks were repeated, not before. */
static int
lacks_all(struct weir_shuffle *s, uint32_t partition)
{
	struct weir_record record;
	struct weir_reduce *r;

	CHECK(!weir_reduce_begin(s, partition, 0, 1, &r));
	CHECK(weir_reduce_next(r, &record, 0) == -EAGAIN);
	weir_reduce_end(r, false);
	return 0;
}

static int
go_unread(struct hand *h)
{
	struct weir_shuffle *s;
	uint32_t records = 0;
	int line = 0;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	for (uint32_t map = h->number; map < MAPS; map += 3 * THREADS)
		CHECK(!attempt(s, map, 0));
	while (weir_shuffle_missing(s, NULL, 0))
		CHECK(weir_invoker_progress(h->c.v, 0, 1) >= 0);
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	if (h->c.process == 2) {
		weir_shuffle_close(s);
		return 0;
	}
	/* thread 1 of process 0 has read its partitions before */
	if (h->number == 1) {
		line = read_own(h, s, &records);
		if (line)
			return line;
	}
	if (!h->number) {
		for (uint32_t p = 0; p < PARTITIONS; p++) {
			if (weir_shuffle_owner(s, p).process != 2)
				continue;
			CHECK(!weir_shuffle_move(s, p, (struct weir_to){p % 2, 2 * (p % 2)}));
			line = line || p % 2 ? line : lacks_all(s, p);
		}
		CHECK(weir_shuffle_missing(s, NULL, 0) == MAPS);
		if (line)
			return line;
	}
	for (uint32_t p = 0; p < PARTITIONS; p++)
		while (weir_shuffle_owner(s, p).process == 2)
			CHECK(weir_invoker_progress(h->c.v, 0, 1) >= 0);
	line = repeat(h, s, LIVING);
	/* partitions that it has read are over: the rest are those of others */
	if (!line && h->number != 1)
		line = read_own(h, s, &records);
	return line ? line : leave(h, s, LIVING, records);
}

static void
test_gone(void **state)
{
	(void)state;
	start();
	crew_of(3, table, sizeof(table) / sizeof(table[0]), go_unread);
}

/* ---- an owner that is too slow ---- */

static int
move_while_tasks_run(struct hand *h)
{
	struct weir_to own_to = {h->c.process, h->c.thread};
	struct weir_record record = {"key", "v", 3, 1};
	struct weir_reduce *r = NULL;
	struct say_answer answer;
	struct weir_shuffle *s;
	struct weir_map *m;
	uint32_t records = 0, slow = THREADS; /* of process 1's thread 0 */
	int line, rc;

	CHECK(!weir_shuffle_open(h->c.v, &options, &s));
	CHECK(weir_shuffle_owner(s, slow).process == 1 && !weir_shuffle_owner(s, slow).thread);
	if (h->c.process == 1 && !h->c.thread) {
		CHECK(!weir_reduce_begin(s, slow, 0, 1, &r));
		CHECK(weir_shuffle_move(s, slow, (struct weir_to){0, 0}) == -EPERM);
	}
	CHECK(!weir_map_begin(s, h->number, 0, &m));
	for (uint32_t i = 0; i < 50; i++)
		CHECK(!weir_map_put(m, &record, -1));
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	/* another thread than the one that answers */
	if (h->number == 1) {
		CHECK(weir_shuffle_move(s, PARTITIONS, (struct weir_to){2, 1}) == -EINVAL);
		CHECK(weir_shuffle_move(s, slow, (struct weir_to){2, THREADS}) == -ENOENT);
		CHECK(!weir_shuffle_move(s, slow, (struct weir_to){2, 1}));
		CHECK(!weir_shuffle_move(s, slow, (struct weir_to){2, 1})); /* it is there */
		CHECK(!weir_shuffle_move(s, 0, (struct weir_to){0, 2}));    /* within the process */
	}
	CHECK(!weir_invoker_barrier(h->c.v, -1));
	while (!(rc = weir_map_put(m, &record, -1)) && records++ < 10000)
		;
	CHECK(!rc || rc == -ESTALE);
	CHECK(weir_map_end(m, true) == -ESTALE);
	/* nor does process 0 select one that had not heard of it */
	CHECK(!say_ask(shuffle_own(s),
		       &(struct say_args){.kind = SAY_ASK,
					  .map = h->number,
					  .attempt = WEIR_SHUFFLE_ATTEMPTS_MAX - 1,
					  .producer = producer_word(own_to)},
		       &answer));
	CHECK(answer.winner == UINT32_MAX && answer.epoch);
	records = 0;
	if (r) {
		CHECK(weir_reduce_next(r, &record, -1) == -ENOTCONN);
		weir_reduce_end(r, false);
		CHECK(weir_reduce_begin(s, slow, 0, 1, &r) == -ENOTCONN);
	}
	line = repeat(h, s, 3 * THREADS);
	CHECK(weir_shuffle_owner(s, slow).process == 2 && weir_shuffle_owner(s, 0).thread == 2);
	if (!line)
		line = read_own(h, s, &records);
	return line ? line : leave(h, s, 3 * THREADS, records);
}

static void
test_slow(void **state)
{
	(void)state;
	start();
	crew_of(3, table, sizeof(table) / sizeof(table[0]), move_while_tasks_run);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_slow),
	    cmocka_unit_test(test_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
