/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sort of blocks beside qsort() of the same records: all sizes, keys that share beginnings or end
 * early, equal keys, many partitions, orders of programs, one that contradicts itself, little
 * stack.
 */
#include "chance.h"
#include "worlds/test.h"

#include "shuffle/format/block.h"
#include "shuffle/format/sort.h"
#include "weir/weir.h"

#include <pthread.h>

/* A block in memory that ends with it, and its records in the order of the block. */
struct item {
	uint32_t partition, number;
	struct weir_record r;
};
struct model {
	struct block_head h;
	uint8_t *raw, *end;
	size_t room;
	struct item *items;
};

static void
begin(struct model *m, uint32_t records, size_t room)
{
	memset(m, 0, sizeof(*m));
	m->room = room;
	m->raw = m->end = malloc(room);
	m->items = calloc(records + 1, sizeof(*m->items));
	assert_true(m->raw && m->items);
}

/* Fragments begin with this, and then have records added. */
static uint8_t *
add_fragment(struct model *m, uint32_t partition)
{
	struct fragment_head f = {.partition = partition};
	uint8_t *head;

	while ((m->end - m->raw) % 8)
		*m->end++ = 0;
	head = m->end;
	memcpy(head, &f, sizeof(f));
	m->end += sizeof(f);
	m->h.fragments++;
	return head;
}

static void
add_record(struct model *m, uint8_t *head, const void *key, uint32_t length, uint32_t value_length)
{
	uint8_t value[64];
	struct item *i = &m->items[m->h.records];
	struct weir_record r = {key, value, length, value_length};
	struct fragment_head f;

	memset(value, (int)m->h.records, sizeof(value));
	assert_true(m->end + record_size(length, value_length) + 8 <= m->raw + m->room);
	memcpy(&f, head, sizeof(f));
	record_read(m->end, (size_t)(record_write(m->end, &r) - m->end), &i->r);
	i->partition = f.partition;
	i->number = m->h.records++;
	m->end += record_size(length, value_length);
	f.records++;
	f.bytes = (uint32_t)(m->end - head) - (uint32_t)sizeof(f);
	memcpy(head, &f, sizeof(f));
}

/* Cuts the memory to the block; its records lie elsewhere then. */
static void
end(struct model *m)
{
	uint8_t *cut;

	m->h.raw = m->h.stored = (uint32_t)(m->end - m->raw);
	cut = malloc(m->h.raw ? m->h.raw : 1);
	memcpy(cut, m->raw, m->h.raw);
	for (uint32_t i = 0; i < m->h.records; i++) {
		struct weir_record *r = &m->items[i].r;

		r->key = cut + ((const uint8_t *)r->key - m->raw);
		r->value = cut + ((const uint8_t *)r->value - m->raw);
	}
	free(m->raw);
	m->raw = cut;
}

static void
destroy(struct model *m)
{
	free(m->raw);
	free(m->items);
}

enum keys { RANDOM, TWO_BYTES, WITH_ZEROS, COMMON_BEGIN, LONG_COMMON, EQUAL, KINDS };

/* At most 64 bytes. */
static uint32_t
make_key(enum keys kind, uint8_t *key)
{
	static const uint32_t most[] = {20, 2, 18, 8, 5, 0};
	uint32_t n = draw() % (most[kind] + 1), before = 0;

	memset(key, 'k', 64);
	if (kind == COMMON_BEGIN)
		before = 6;
	if (kind == LONG_COMMON)
		before = 13 + draw() % 20;
	if (kind == EQUAL)
		before = 11;
	for (uint32_t i = 0; i < n; i++)
		key[before + i] =
		    (uint8_t)(kind == WITH_ZEROS || kind == LONG_COMMON ? draw() % 2 : draw());
	return before + n;
}

static void
build(struct model *m, uint32_t records, enum keys kind, uint32_t partitions)
{
	uint8_t *head = NULL, key[64];

	begin(m, records, (size_t)records * 160 + 64);
	while (m->h.records < records) {
		if (!head || draw() % 20 == 0)
			head = add_fragment(m, draw() % partitions * (UINT32_MAX / partitions));
		add_record(m, head, key, make_key(kind, key), draw() % 30);
	}
	if (draw() % 2)
		while ((m->end - m->raw) % 8)
			*m->end++ = 0;
	end(m);
}

static struct key_order order;

static int
by_all(const void *x, const void *y)
{
	const struct item *a = x, *b = y;
	int c;

	if (a->partition != b->partition)
		return a->partition < b->partition ? -1 : 1;
	c = key_compare(&order, &a->r, &b->r);
	return c ? c : a->number < b->number ? -1 : 1;
}

/* The sorted block, which has been walked; the caller frees it. */
static uint8_t *
sorted(const struct model *m, struct block_head *out)
{
	uint8_t *to = malloc(pad8(m->h.raw) + 1), *cut;
	void *scratch = malloc(sort_memory(m->h.records) + 1);

	assert_true(to && scratch);
	assert_int_equal(sort_block(&m->h, m->raw, &order, scratch, to, out), 0);
	assert_true(out->raw <= pad8(m->h.raw) && out->raw % 8 == 0 && out->stored == out->raw);
	assert_true(out->flags & BLOCK_SORTED);
	assert_int_equal(out->records, m->h.records);
	cut = malloc(out->raw + 1);
	memcpy(cut, to, out->raw);
	free(to);
	free(scratch);
	out->checksum = block_checksum(out, cut);
	assert_int_equal(block_check(out, cut, out->stored), 0);
	return cut;
}

static void
assert_sorted(struct model *m)
{
	struct block_head out;
	uint8_t *to = sorted(m, &out);
	struct block_walk w;
	struct weir_record r;
	uint32_t n = 0;
	int rc;

	qsort(m->items, m->h.records, sizeof(*m->items), by_all);
	block_walk_begin(&w, &out, to);
	while (!(rc = block_walk_next(&w))) {
		while (!(rc = block_walk_record(&w, &r))) {
			const struct item *i = &m->items[n++];

			assert_int_equal(w.fragment.partition, i->partition);
			assert_true(r.key_length == i->r.key_length &&
				    r.value_length == i->r.value_length);
			assert_memory_equal(r.key, i->r.key, r.key_length);
			assert_memory_equal(r.value, i->r.value, r.value_length);
		}
		assert_int_equal(rc, -ENODATA);
	}
	assert_int_equal(rc, -ENODATA);
	assert_int_equal(n, m->h.records);
	free(to);
}

static void
all_sizes(void)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 9, 10, 11, 20, 47, 48, 49, 100, 1000, 5000};
	struct model m;

	new_seed();
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (enum keys kind = 0; kind < KINDS; kind++)
			for (uint32_t partitions = 1; partitions <= 65536; partitions *= 16) {
				build(&m, sizes[i], kind, partitions);
				assert_sorted(&m);
				destroy(&m);
			}
}

TEST(as_memcmp)
{
	order = (struct key_order){0};
	all_sizes();
}

static int
descending(const void *a, uint32_t a_length, const void *b, uint32_t b_length, void *user)
{
	struct weir_record x = {.key = a, .key_length = a_length},
			   y = {.key = b, .key_length = b_length};

	(*(unsigned *)user)++;
	return key_compare(&(struct key_order){0}, &y, &x);
}

/* Different keys are equal. */
static int
by_length(const void *a, uint32_t a_length, const void *b, uint32_t b_length, void *user)
{
	return (int)a_length - (int)b_length;
}

TEST(as_the_program_says)
{
	unsigned calls = 0;

	order = (struct key_order){descending, &calls};
	all_sizes();
	assert_true(calls > 0);
	order = (struct key_order){by_length, NULL};
	all_sizes();
}

/* A few comparisons per record: equal keys, and those in order. */
TEST(little_to_do)
{
	unsigned calls = 0;
	struct block_head out;
	struct model m;

	order = (struct key_order){descending, &calls};
	build(&m, 4096, EQUAL, 1);
	calls = 0;
	free(sorted(&m, &out));
	assert_in_range(calls, 4000, 2 * 4096);
	destroy(&m);
}

static int
contradict(const void *a, uint32_t a_length, const void *b, uint32_t b_length, void *user)
{
	assert_true(a_length <= 64 && b_length <= 64);
	/* a sanitizer sees whether these are keys */
	seed += *(const uint8_t *)user + (a_length ? *(const uint8_t *)a : 0u) +
		(b_length ? *(const uint8_t *)b : 0u);
	return (int)(draw() % 3) - 1;
}

static int
always_less(const void *a, uint32_t a_length, const void *b, uint32_t b_length, void *user)
{
	return -1;
}

/* Each record is there once, whatever the program's function says. */
TEST(contradiction)
{
	static const uint32_t sizes[] = {2, 11, 48, 1000, 3000};
	uint8_t user = 1;

	new_seed();
	for (unsigned i = 0; i < 10; i++) {
		struct model m;
		struct block_walk w;
		struct block_head out;
		struct weir_record r;
		uint8_t *to, *seen;
		uint32_t n = 0;

		build(&m, sizes[i % 5], RANDOM, 3);
		order = (struct key_order){i < 5 ? contradict : always_less, &user};
		to = sorted(&m, &out);
		/* records are found again by their bytes */
		seen = calloc(out.records, 1);
		block_walk_begin(&w, &out, to);
		while (!block_walk_next(&w))
			while (!block_walk_record(&w, &r)) {
				uint32_t k = 0;

				while (k < out.records &&
				       (seen[k] || m.items[k].partition != w.fragment.partition ||
					m.items[k].r.key_length != r.key_length ||
					m.items[k].r.value_length != r.value_length ||
					memcmp(m.items[k].r.key, r.key, r.key_length) ||
					memcmp(m.items[k].r.value, r.value, r.value_length)))
					k++;
				assert_true(k < out.records);
				seen[k] = 1;
				n++;
			}
		assert_int_equal(n, m.h.records);
		free(seen);
		free(to);
		destroy(&m);
	}
}

/* "k", "kk", "kkk": each level of the recursion parts with few keys only. */
static void *
sort_deep(void *model)
{
	assert_sorted(model);
	return NULL;
}

TEST(little_stack)
{
	uint32_t records = 4000;
	uint8_t *keys = malloc(records), *head;
	pthread_attr_t attr;
	pthread_t thread;
	struct model m;

	order = (struct key_order){0};
	memset(keys, 'k', records);
	begin(&m, records, (size_t)records * (records / 2 + 16));
	head = add_fragment(&m, 0);
	for (uint32_t i = 0; i < records; i++)
		add_record(&m, head, keys, (i * 7 + 1) % records, 0);
	end(&m);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 512 << 10);
	assert_int_equal(pthread_create(&thread, &attr, sort_deep, &m), 0);
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attr);
	destroy(&m);
	free(keys);
}

TEST(malformed)
{
	struct fragment_head f = {.flags = FRAGMENT_OPAQUE, .bytes = 8};
	uint8_t raw[24] = {0}, to[64], scratch[64];
	struct block_head h = {.fragments = 1, .raw = 24, .stored = 24, .records = 1}, out;

	order = (struct key_order){0};
	memcpy(raw, &f, sizeof(f));
	assert_int_equal(sort_block(&h, raw, &order, scratch, to, &out), -EBADMSG);
	assert_string_equal(weir_reason(), "an opaque fragment in a shuffle that sorts");
	f = (struct fragment_head){.bytes = 8, .records = 1};
	memcpy(raw, &f, sizeof(f));
	assert_int_equal(sort_block(&h, raw, &order, scratch, to, &out), -EBADMSG);
}
