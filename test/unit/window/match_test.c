/* SPDX-License-Identifier: BSD-3-Clause */
/* Notices are found as a search of all of them, oldest first, would find them. */
#include "worlds/test.h"

#include "window/match.h"
#include "window/public.h"

#include <string.h>

#define MOST 200u
#define VALUES 8u /* sources, and tags */

struct model {
	struct match m;
	struct weir_remote_notice is[MOST]; /* by age; bytes with the kind */
	unsigned count;
	uint32_t seed;
};

static uint32_t
draw(struct model *m)
{
	m->seed = m->seed * 1103515245u + 12345;
	return m->seed >> 8;
}

static void
add(struct model *m)
{
	enum match_kind kind = (enum match_kind)(draw(m) % MATCH_KINDS);
	struct weir_remote_notice n = {.vqpn = draw(m),
				       .tag = draw(m) % VALUES,
				       .source = draw(m) % VALUES,
				       .bytes = match_bytes(kind, draw(m))};

	if (m->count == MOST)
		return;
	assert_non_null(match_add(&m->m, &n));
	m->is[m->count++] = n;
}

/* Index in the model, or -1. */
static int
search(const struct model *m, enum match_kind kind, uint32_t source, uint32_t tag)
{
	for (unsigned i = 0; i < m->count; i++)
		if (m->is[i].bytes >> 62 == kind &&
		    (source == WEIR_RANK_ANY || m->is[i].source == source) &&
		    (tag == WEIR_TAG_ANY || m->is[i].tag == tag))
			return (int)i;
	return -1;
}

static void
take(struct model *m)
{
	enum match_kind kind = (enum match_kind)(draw(m) % MATCH_KINDS);
	uint32_t source = draw(m) % VALUES, tag = draw(m) % VALUES;
	struct match_notice *n;
	int i;

	if (draw(m) % 2)
		source = WEIR_RANK_ANY;
	if (draw(m) % 2 && (kind == MATCH_TAG || source != WEIR_RANK_ANY))
		tag = WEIR_TAG_ANY;
	n = match_find(&m->m, kind, source, tag);
	i = search(m, kind, source, tag);
	assert_int_equal(n != NULL, i >= 0);
	if (!n)
		return;
	assert_int_equal(n->is.vqpn, m->is[i].vqpn);
	assert_int_equal(n->is.source, m->is[i].source);
	assert_int_equal(n->is.tag, m->is[i].tag);
	assert_int_equal(match_bytes(kind, n->is.bytes), m->is[i].bytes);
	match_remove(&m->m, n);
	memmove(&m->is[i], &m->is[i + 1], (m->count - (unsigned)i - 1) * sizeof(m->is[0]));
	m->count--;
}

TEST(test_random)
{
	for (uint32_t seed = 0; seed < 20; seed++) {
		struct model m = {.seed = seed};

		match_init(&m.m);
		for (unsigned i = 0; i < 5000; i++) {
			/* few wait, then many */
			if (draw(&m) % 100 < (i / 500 % 2 ? 60 : 45))
				add(&m);
			else
				take(&m);
			assert_int_equal(m.m.count, m.count);
		}
		match_fini(&m.m);
	}
}

/* Many more sources and tags than there are lists: none is taken for another one. */
TEST(test_others)
{
	const struct weir_remote_notice n = {.source = 5, .tag = 6};
	struct match m;

	match_init(&m);
	assert_non_null(match_add(&m, &n));
	for (uint32_t other = 0; other < 100 * MATCH_BUCKETS; other++) {
		assert_int_equal(match_find(&m, MATCH_TAG, other, 6) != NULL, other == 5);
		assert_int_equal(match_find(&m, MATCH_TAG, other, WEIR_TAG_ANY) != NULL,
				 other == 5);
		assert_int_equal(match_find(&m, MATCH_TAG, 5, other) != NULL, other == 6);
		assert_int_equal(match_find(&m, MATCH_TAG, WEIR_RANK_ANY, other) != NULL,
				 other == 6);
		assert_null(match_find(&m, MATCH_POST, other, 6));
	}
	match_fini(&m);
}

#define MANY 20000u

static unsigned
length(const struct match_list *list)
{
	struct match_notice *n;
	unsigned count = 0;

	TAILQ_FOREACH(n, list, exact)
	count++;
	return count;
}

/* Lists stay short, however many wait. */
TEST(test_many)
{
	struct weir_remote_notice n = {0};
	const struct match_notice *found;
	struct match m;

	match_init(&m);
	for (uint32_t i = 0; i < MANY; i++) {
		n.source = i % 100;
		n.tag = i / 100;
		n.bytes = i;
		assert_non_null(match_add(&m, &n));
	}
	for (uint32_t i = 0; i < m.buckets; i++)
		assert_true(length(&m.bucket[i].exact) <= 32);
	for (uint32_t i = 0; i < MANY; i++) {
		found = match_find(&m, MATCH_TAG, i % 100, i / 100);
		assert_non_null(found);
		assert_int_equal(found->is.bytes, i);
	}
	match_fini(&m);
}

/* A member that writes nonsense. */
TEST(test_unknown_kind)
{
	struct weir_remote_notice n = {.bytes = UINT64_MAX};
	struct match m;

	match_init(&m);
	assert_non_null(match_add(&m, &n));
	assert_non_null(match_find(&m, MATCH_TAG, 0, 0));
	assert_null(match_find(&m, MATCH_POST, 0, 0));
	match_fini(&m);
}
