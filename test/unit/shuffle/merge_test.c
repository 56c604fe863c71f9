/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merges beside qsort() of all records: 0 to 256 sources of 0 to many records, keys that share
 * beginnings, sources whose last record is gone with the next call, and sources that fail, descend
 * or are ordered by a function that contradicts itself.
 */
#include "chance.h"
#include "worlds/test.h"

#include "shuffle/format/merge.h"
#include "weir/weir.h"

#define KEY_MOST 24u

struct item {
	uint8_t key[KEY_MOST];
	uint32_t length, source, number;
};

struct run {
	struct merge_source source; /* first */
	struct item *items;
	uint32_t n, at;
	uint8_t *shown; /* memory of its record; freed in the next call */
	int rc;		/* instead of the end */
	bool ended;
};

static struct run runs[MERGE_SOURCES_MAX];
static struct merge_source *sources[MERGE_SOURCES_MAX];
static struct key_order order;

static int
next_of_run(struct merge_source *s, struct weir_record *r)
{
	struct run *run = (struct run *)s;
	const struct item *i = &run->items[run->at];

	free(run->shown);
	run->shown = NULL;
	assert_false(run->ended);
	if (run->at == run->n) {
		run->ended = true;
		return run->rc ? run->rc : -ENODATA;
	}
	run->at++;
	run->shown = malloc(i->length + sizeof(*i));
	memcpy(run->shown, i->key, i->length);
	memcpy(run->shown + i->length, i, sizeof(*i));
	*r = (struct weir_record){run->shown, run->shown + i->length, i->length, sizeof(*i)};
	return 0;
}

static int
compare_keys(const struct item *a, const struct item *b)
{
	struct weir_record ra = {.key = a->key, .key_length = a->length},
			   rb = {.key = b->key, .key_length = b->length};

	return key_compare(&order, &ra, &rb);
}

static int
compare_items(const void *x, const void *y)
{
	const struct item *a = x, *b = y;
	int c = compare_keys(a, b);

	if (c)
		return c;
	if (a->source != b->source)
		return a->source < b->source ? -1 : 1;
	return a->number < b->number ? -1 : 1;
}

enum keys { RANDOM, FEW, ZEROS, HIGH, LONG_COMMON, KINDS };

static void
make_key(struct item *i, enum keys kind)
{
	memset(i->key, kind == HIGH ? 0xff : 0, KEY_MOST);
	i->length = draw() % (KEY_MOST + 1);
	if (kind == FEW) {
		i->length = 1;
		i->key[0] = draw() % 3;
	} else if (kind == RANDOM) {
		for (unsigned k = 0; k < KEY_MOST; k++)
			i->key[k] = (uint8_t)draw();
	} else if (kind == LONG_COMMON) {
		i->length = 10 + draw() % 14;
		i->key[9] = (uint8_t)draw();
	}
}

/* All records, which the caller frees; the runs are sorted parts of them. */
static struct item *
build(unsigned n, uint32_t most, enum keys kind, uint32_t *total)
{
	struct item *all = calloc((size_t)n * most + 1, sizeof(*all));

	*total = 0;
	for (unsigned s = 0; s < n; s++) {
		uint32_t count = draw() % (most + 1);

		runs[s] =
		    (struct run){.source.next = next_of_run, .items = all + *total, .n = count};
		sources[s] = &runs[s].source;
		for (uint32_t k = 0; k < count; k++) {
			struct item *i = &all[(*total)++];

			make_key(i, kind);
			i->source = s;
			i->number = k;
		}
		qsort(runs[s].items, count, sizeof(*all), compare_items);
	}
	return all;
}

static void
discard(unsigned n, struct item *all)
{
	for (unsigned s = 0; s < n; s++)
		free(runs[s].shown);
	free(all);
}

static void
assert_merged(unsigned n, uint32_t most, enum keys kind)
{
	uint32_t total;
	struct item *all = build(n, most, kind, &total), *want = malloc((total + 1) * sizeof(*all));
	struct merge *m;
	struct weir_record r;
	bool same = true;

	memcpy(want, all, total * sizeof(*all));
	qsort(want, total, sizeof(*want), compare_items);
	assert_int_equal(merge_open(&order, sources, n, &m), 0);
	for (uint32_t i = 0; i < total; i++) {
		assert_int_equal(merge_next(m, &r, &same), 0);
		assert_int_equal(r.key_length, want[i].length);
		assert_memory_equal(r.key, want[i].key, want[i].length);
		assert_memory_equal(r.value, &want[i], sizeof(*want));
		assert_int_equal(same, i && !compare_keys(&want[i - 1], &want[i]));
	}
	assert_int_equal(merge_next(m, &r, &same), -ENODATA);
	assert_int_equal(merge_next(m, &r, NULL), -ENODATA);
	merge_close(m);
	free(want);
	discard(n, all);
}

static void
all_sizes(void)
{
	static const unsigned sizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 100, 255, 256};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (enum keys kind = 0; kind < KINDS; kind++)
			for (uint32_t most = 0; most <= 64; most = most * 4 + 1)
				assert_merged(sizes[i], most, kind);
}

TEST(as_memcmp)
{
	new_seed();
	order = (struct key_order){0};
	all_sizes();
}

static int
descending(const void *a, uint32_t a_length, const void *b, uint32_t b_length, void *user)
{
	struct weir_record x = {.key = a, .key_length = a_length},
			   y = {.key = b, .key_length = b_length};

	assert_ptr_equal(user, runs);
	return key_compare(&(struct key_order){0}, &y, &x);
}

static int
by_first(const void *a, uint32_t a_length, const void *b, uint32_t b_length, void *user)
{
	int x = a_length ? *(const uint8_t *)a : -1, y = b_length ? *(const uint8_t *)b : -1;

	return x - y;
}

TEST(as_the_program_says)
{
	new_seed();
	order = (struct key_order){descending, runs};
	all_sizes();
	order = (struct key_order){by_first, NULL};
	all_sizes();
}

/* One pair of neighbours of one run changes places: what was returned before ascends. */
static void
assert_descent_found(int expected)
{
	for (unsigned i = 0; i < 200; i++) {
		unsigned n = 1 + draw() % 8, s = draw() % n;
		uint32_t total;
		struct item *all = build(n, 40, RANDOM, &total), last = {.length = 0}, swap;
		struct weir_record r;
		struct merge *m;
		int rc;

		if (runs[s].n < 2) {
			discard(n, all);
			continue;
		}
		swap = runs[s].items[runs[s].n / 2 - 1];
		runs[s].items[runs[s].n / 2 - 1] = runs[s].items[runs[s].n / 2];
		runs[s].items[runs[s].n / 2] = swap;
		assert_int_equal(merge_open(&order, sources, n, &m), 0);
		for (unsigned k = 0; !(rc = merge_next(m, &r, NULL)); k++) {
			struct item now;

			memcpy(&now, r.value, sizeof(now));
			assert_true(!k || compare_keys(&last, &now) <= 0);
			last = now;
		}
		if (!compare_keys(&swap, &runs[s].items[runs[s].n / 2 - 1]))
			assert_int_equal(rc, -ENODATA);
		else
			assert_int_equal(rc, expected);
		assert_int_equal(merge_next(m, &r, NULL), rc);
		merge_close(m);
		discard(n, all);
	}
}

TEST(descending_runs)
{
	new_seed();
	order = (struct key_order){0};
	assert_descent_found(-EBADMSG);
	assert_string_equal(weir_reason(), "keys of a sorted block do not ascend");
	order = (struct key_order){descending, runs};
	assert_descent_found(-EINVAL);
	assert_non_null(strstr(weir_reason(), "compare function contradicts itself"));
}

static int
contradict(const void *a, uint32_t a_length, const void *b, uint32_t b_length, void *user)
{
	/* a sanitizer sees whether these are keys */
	seed += (a_length ? *(const uint8_t *)a : 0u) + (b_length ? *(const uint8_t *)b : 0u);
	return (int)(draw() % 3) - 1;
}

static int
always_less(const void *a, uint32_t a_length, const void *b, uint32_t b_length, void *user)
{
	return -1;
}

TEST(contradiction)
{
	static int (*const functions[])(const void *, uint32_t, const void *, uint32_t,
					void *) = {contradict, always_less};
	unsigned failed = 0;

	new_seed();
	for (unsigned i = 0; i < 200; i++) {
		unsigned n = 1 + draw() % 9;
		uint32_t total, k = 0;
		struct item *all;
		struct weir_record r;
		struct merge *m;
		int rc;

		order = (struct key_order){0};
		all = build(n, 40, RANDOM, &total);
		order = (struct key_order){functions[i % 2], NULL};
		assert_int_equal(merge_open(&order, sources, n, &m), 0);
		while (!(rc = merge_next(m, &r, NULL)))
			k++;
		assert_true(rc == -EINVAL || (rc == -ENODATA && k == total));
		failed += rc == -EINVAL;
		merge_close(m);
		discard(n, all);
	}
	assert_in_range(failed, 80, 110); /* nearly each time that it changes its mind */
}

TEST(failing_sources)
{
	new_seed();
	order = (struct key_order){0};
	for (unsigned i = 0; i < 100; i++) {
		unsigned n = 1 + draw() % 8, s = draw() % n;
		uint32_t total, k = 0;
		struct item *all = build(n, 10, RANDOM, &total);
		struct weir_record r;
		struct merge *m;
		int rc;

		runs[s].rc = -EIO;
		assert_int_equal(merge_open(&order, sources, n, &m), 0);
		while (!(rc = merge_next(m, &r, NULL)))
			k++;
		assert_int_equal(rc, -EIO);
		assert_true(k <= total && k >= runs[s].n - !!runs[s].n);
		assert_int_equal(merge_next(m, &r, NULL), -EIO);
		merge_close(m);
		discard(n, all);
	}
	merge_close(NULL);
}

static uint8_t letters[100000];

static int
next_longer(struct merge_source *s, struct weir_record *r)
{
	static uint32_t length;

	if (length > sizeof(letters) / 2)
		return -ENODATA;
	length = 2 * length + 1;
	*r = (struct weir_record){.key = letters, .key_length = length};
	return 0;
}

/* Keys grow, and with them the copy of the last one. */
TEST(long_keys)
{
	struct merge_source longer = {next_longer}, *one = &longer;
	struct weir_record r;
	struct merge *m;
	bool same;
	int rc;

	order = (struct key_order){0};
	assert_int_equal(merge_open(&order, &one, 1, &m), 0);
	while (!(rc = merge_next(m, &r, &same)))
		assert_false(same);
	assert_int_equal(rc, -ENODATA);
	merge_close(m);
}
