/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Combiners: sums of counts in blocks beside sums of the test, runs longer than one call, keys that
 * the program calls equal, and programs that emit the wrong key, too much or fail.
 */
#include "chance.h"
#include "worlds/test.h"

#include "shuffle/format/block.h"
#include "shuffle/format/combine.h"
#include "weir/weir.h"

#include <strings.h>
#include <time.h>

#define KEYS 50u

static struct {
	unsigned calls;
	size_t largest;
	int rc;
	const char *emit; /* this key; NULL: that of the records */
	uint32_t value_length;
	bool overlooked; /* weir_emit()'s failure */
	unsigned copies;
} program;

/* Values are counts. */
static int
sum(const struct weir_record *r, size_t n, struct weir_emit *out, void *user)
{
	uint64_t total = 0;
	struct weir_record to = {r[0].key, &total, r[0].key_length, sizeof(total)};
	int rc = 0;

	assert_ptr_equal(user, &program);
	assert_true(n > 1);
	program.calls++;
	program.largest = program.largest < n ? n : program.largest;
	for (size_t i = 0; i < n; i++) {
		uint64_t count;

		assert_int_equal(r[i].value_length, sizeof(count));
		assert_int_equal(r[i].key_length, r[0].key_length);
		assert_memory_equal(r[i].key, r[0].key, r[0].key_length);
		memcpy(&count, r[i].value, sizeof(count));
		total += count;
	}
	if (program.emit) {
		to.key = program.emit;
		to.key_length = (uint32_t)strlen(program.emit);
	}
	if (program.value_length)
		to.value_length = program.value_length;
	for (unsigned i = 0; i < program.copies && !rc; i++)
		rc = weir_emit(out, &to);
	if (program.rc)
		return program.rc;
	return program.overlooked ? 0 : rc;
}

static struct combiner
sums(void)
{
	memset(&program, 0, sizeof(program));
	program.copies = 1;
	return (struct combiner){sum, {NULL, &program}};
}

/* Sorted records of at most `keys` different keys. */
static uint8_t *
block(struct block_head *out, uint32_t records, uint32_t partitions, uint32_t keys)
{
	size_t room = (size_t)records * 32 + partitions * 24ul + 64;
	uint8_t *raw = malloc(room), *at = raw, *to, *scratch = malloc(sort_memory(records) + 1);
	struct key_order order = {0};
	struct block_head h = {0};

	while (h.fragments < partitions) {
		struct fragment_head f = {.partition = h.fragments++ * 3,
					  .records = records / partitions};
		uint8_t *head = at;

		at += sizeof(f);
		for (uint32_t i = 0; i < f.records; i++) {
			uint64_t count = 1 + draw() % 5;
			char key[16];
			int n = snprintf(key, sizeof(key), "%u", draw() % keys);

			at = record_write(
			    at, &(struct weir_record){key, &count, (uint32_t)n, sizeof(count)});
		}
		f.bytes = (uint32_t)(at - head - (ptrdiff_t)sizeof(f));
		memcpy(head, &f, sizeof(f));
		for (h.records += f.records; (at - head) % 8;)
			*at++ = 0;
	}
	h.raw = h.stored = (uint32_t)(at - raw);
	to = malloc(h.raw + 8);
	assert_int_equal(sort_block(&h, raw, &order, scratch, to, out), 0);
	free(raw);
	free(scratch);
	return to;
}

/* The sums per partition and key, and checks of order. */
static void
add_up(const struct block_head *h, const uint8_t *raw, uint64_t (*total)[KEYS], bool once)
{
	struct block_walk w;
	struct weir_record r;
	int rc;

	block_walk_begin(&w, h, raw);
	while (!(rc = block_walk_next(&w))) {
		while (!(rc = block_walk_record(&w, &r))) {
			uint64_t count, *at;
			char key[16];

			memcpy(key, r.key, r.key_length);
			key[r.key_length] = 0;
			memcpy(&count, r.value, sizeof(count));
			at = &total[w.fragment.partition / 3][strtoul(key, NULL, 10)];
			assert_true(!once || !*at);
			*at += count;
		}
		assert_int_equal(rc, -ENODATA);
	}
	assert_int_equal(rc, -ENODATA);
}

TEST(sums_of_blocks)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	seed = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30;
	printf("seed %llu\n", (unsigned long long)seed);
	for (unsigned i = 0; i < 200; i++) {
		struct combiner c = sums();
		struct weir_emit e = {.most = BLOCK_RAW_MAX};
		uint64_t is[4][KEYS] = {{0}}, want[4][KEYS] = {{0}};
		uint32_t partitions = 1 + draw() % 4;
		struct block_head h, out;
		uint8_t *sorted = block(&h, draw() % 3000, partitions, 1 + draw() % KEYS);

		add_up(&h, sorted, want, false);
		assert_int_equal(combine_block(&c, &h, sorted, &e, &out), 0);
		out.checksum = block_checksum(&out, e.bytes);
		assert_int_equal(block_check(&out, e.bytes, e.length), 0);
		assert_true(out.records <= h.records && program.largest <= COMBINE_RUN);
		/* a key is there once if its records fitted into one call */
		add_up(&out, e.bytes, is, program.largest < COMBINE_RUN);
		assert_memory_equal(is, want, sizeof(is));
		emit_free(&e);
		free(sorted);
	}
}

TEST(long_run)
{
	struct combiner c = sums();
	struct weir_emit e = {.most = 1 << 20};
	struct block_head h, out;
	uint8_t *sorted = block(&h, 1000, 1, 1);

	assert_int_equal(combine_block(&c, &h, sorted, &e, &out), 0);
	assert_int_equal(program.calls, 4);
	assert_int_equal(program.largest, COMBINE_RUN);
	assert_int_equal(out.records, 4);
	free(sorted);
	/* each record alone: nothing to combine */
	sorted = block(&h, 1, 1, 1);
	program.calls = 0;
	assert_int_equal(combine_block(&c, &h, sorted, &e, &out), 0);
	assert_int_equal(program.calls, 0);
	assert_int_equal(out.raw, h.raw);
	assert_memory_equal(e.bytes, sorted, h.raw);
	free(sorted);
	/* none at all */
	sorted = block(&h, 0, 1, 1);
	assert_int_equal(combine_block(&c, &h, sorted, &e, &out), 0);
	assert_int_equal(out.raw, 0);
	free(sorted);
	emit_free(&e);
}

static int
any_case(const void *a, uint32_t a_length, const void *b, uint32_t b_length, void *user)
{
	assert_ptr_equal(user, &program);
	return a_length == b_length ? strncasecmp(a, b, a_length) : (int)a_length - (int)b_length;
}

TEST(runs)
{
	struct combiner c = sums();
	struct weir_emit e = {.most = 1 << 20};
	uint64_t one = 1;
	struct weir_record r[3] = {{"key", &one, 3, 8}, {"key", &one, 3, 8}, {"key", &one, 3, 8}};
	size_t before;

	assert_int_equal(combine_run(&c, r, 3, &e), 0);
	assert_int_equal(e.records, 1);
	assert_int_equal(e.length, record_size(3, 8));
	before = e.length;
	/* none of a call that fails stays */
	program.copies = 3;
	program.rc = -EIO;
	assert_int_equal(combine_run(&c, r, 3, &e), -EIO);
	assert_true(e.length == before && e.records == 1);
	program.rc = 7;
	assert_int_equal(combine_run(&c, r, 3, &e), -EINVAL);
	program.rc = 0;
	program.emit = "kez";
	assert_int_equal(combine_run(&c, r, 3, &e), -EINVAL);
	assert_non_null(strstr(weir_reason(), "another key"));
	program.overlooked = true;
	assert_int_equal(combine_run(&c, r, 3, &e), -EINVAL);
	program.emit = "keyy";
	assert_int_equal(combine_run(&c, r, 3, &e), -EINVAL);
	program.emit = "";
	assert_int_equal(combine_run(&c, r, 3, &e), -EINVAL);
	program.emit = "KEY";
	assert_int_equal(combine_run(&c, r, 3, &e), -EINVAL);
	c.order.compare = any_case;
	assert_int_equal(combine_run(&c, r, 3, &e), 0);
	assert_int_equal(e.records, 4);
	program.emit = NULL;
	program.value_length = WEIR_RECORD_MAX;
	before = e.length;
	assert_int_equal(combine_run(&c, r, 3, &e), -EINVAL);
	assert_non_null(strstr(weir_reason(), "more than 16777216 bytes"));
	program.value_length = 0;
	program.copies = 100000;
	program.overlooked = false;
	assert_int_equal(combine_run(&c, r, 3, &e), -ENOMEM);
	assert_true(e.length == before && e.records == 4 && e.room <= e.most);
	emit_free(&e);
}

/* A failure in the second fragment leaves nothing; the end of the data is no such word of programs.
 */
TEST(failing_blocks)
{
	struct combiner c = sums();
	struct weir_emit e = {.most = 1 << 20};
	struct block_head h, out = {0};
	uint8_t *sorted = block(&h, 100, 3, 2);

	program.rc = -ENODATA;
	assert_int_equal(combine_block(&c, &h, sorted, &e, &out), -ENODATA);
	assert_true(!e.length && !e.records && !out.raw);
	program.rc = 0;
	emit_free(&e);
	e.most = 100;
	assert_int_equal(combine_block(&c, &h, sorted, &e, &out), -ENOMEM);
	emit_free(&e);
	e.most = 10;
	assert_int_equal(combine_block(&c, &h, sorted, &e, &out), -ENOMEM);
	e.most = 1 << 20;
	sorted[16] = 200;
	assert_int_equal(combine_block(&c, &h, sorted, &e, &out), -EBADMSG);
	assert_true(!e.length && !e.records);
	free(sorted);
	emit_free(&e);
}
