/* SPDX-License-Identifier: BSD-3-Clause */
#include "match.h"
#include "public.h"

#include "ipc/invariant.h"

#include <stdlib.h>

#define KIND_SHIFT 62
#define LENGTH_MASK ((UINT64_C(1) << KIND_SHIFT) - 1)

uint64_t
match_bytes(enum match_kind kind, uint64_t length)
{
	weir_assert(length <= LENGTH_MASK);
	return (uint64_t)kind << KIND_SHIFT | length;
}

enum match_kind
match_kind_of(const struct weir_remote_notice *n)
{
	uint64_t kind = n->bytes >> KIND_SHIFT;

	/* a member wrote it: an unknown kind is its notice, which nobody awaits */
	return kind < MATCH_KINDS ? (enum match_kind)kind : MATCH_TAG;
}

static struct match_bucket *
bucket_of(const struct match *m, uint64_t a, uint64_t b)
{
	uint64_t hash = (a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu) >> 40;

	return &m->bucket[hash & (m->buckets - 1)];
}

static struct match_list *
exact_of(const struct match *m, enum match_kind kind, uint32_t source, uint32_t tag)
{
	return &bucket_of(m, (uint64_t)kind << 32 | source, tag)->exact;
}

static struct match_list *
source_of(const struct match *m, enum match_kind kind, uint32_t source)
{
	return &bucket_of(m, (uint64_t)kind << 32 | source, 0)->source;
}

static struct match_list *
tag_of(const struct match *m, enum match_kind kind, uint32_t tag)
{
	return &bucket_of(m, (uint64_t)kind << 32, tag)->tag;
}

static void
use_buckets(struct match *m, struct match_bucket *bucket, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		TAILQ_INIT(&bucket[i].exact);
		TAILQ_INIT(&bucket[i].source);
		TAILQ_INIT(&bucket[i].tag);
	}
	m->bucket = bucket;
	m->buckets = n;
}

void
match_init(struct match *m)
{
	use_buckets(m, m->first, MATCH_BUCKETS);
	TAILQ_INIT(&m->all);
	TAILQ_INIT(&m->spare);
	m->count = 0;
}

static void
free_buckets(const struct match *m, struct match_bucket *bucket)
{
	if (bucket != m->first)
		free(bucket);
}

void
match_fini(struct match *m)
{
	struct match_notice *n;

	for (uint32_t i = 0; i < m->buckets; i++)
		while ((n = TAILQ_FIRST(&m->bucket[i].exact)))
			match_remove(m, n);
	while ((n = TAILQ_FIRST(&m->spare))) {
		TAILQ_REMOVE(&m->spare, n, of_all);
		free(n);
	}
	free_buckets(m, m->bucket);
}

/* Twice as many buckets. All notices of a new list were in one list, and keep their order. */
static void
grow(struct match *m)
{
	struct match_bucket *old = m->bucket, *more = malloc(2 * m->buckets * sizeof(*more));
	uint32_t count = m->buckets;
	struct match_notice *n;

	if (!more) /* lists get longer */
		return;
	use_buckets(m, more, 2 * count);
	for (uint32_t i = 0; i < count; i++) {
		while ((n = TAILQ_FIRST(&old[i].exact))) {
			TAILQ_REMOVE(&old[i].exact, n, exact);
			TAILQ_INSERT_TAIL(exact_of(m, n->kind, n->is.source, n->is.tag), n, exact);
		}
		while ((n = TAILQ_FIRST(&old[i].source))) {
			TAILQ_REMOVE(&old[i].source, n, of_source);
			TAILQ_INSERT_TAIL(source_of(m, n->kind, n->is.source), n, of_source);
		}
		while ((n = TAILQ_FIRST(&old[i].tag))) {
			TAILQ_REMOVE(&old[i].tag, n, of_tag);
			TAILQ_INSERT_TAIL(tag_of(m, n->kind, n->is.tag), n, of_tag);
		}
	}
	free_buckets(m, old);
}

struct match_notice *
match_add(struct match *m, const struct weir_remote_notice *from)
{
	struct match_notice *n = TAILQ_FIRST(&m->spare);

	if (n)
		TAILQ_REMOVE(&m->spare, n, of_all);
	else
		n = malloc(sizeof(*n));
	if (!n)
		return NULL;
	if (m->count >= m->buckets)
		grow(m);
	n->returned = n->holds_ring = false;
	n->place = 0;
	n->is = *from;
	n->is.bytes &= LENGTH_MASK;
	n->kind = match_kind_of(from);
	TAILQ_INSERT_TAIL(exact_of(m, n->kind, n->is.source, n->is.tag), n, exact);
	TAILQ_INSERT_TAIL(source_of(m, n->kind, n->is.source), n, of_source);
	TAILQ_INSERT_TAIL(tag_of(m, n->kind, n->is.tag), n, of_tag);
	if (n->kind == MATCH_TAG)
		TAILQ_INSERT_TAIL(&m->all, n, of_all);
	m->count++;
	return n;
}

struct match_notice *
match_find(const struct match *m, enum match_kind kind, uint32_t source, uint32_t tag)
{
	bool any_source = source == WEIR_RANK_ANY, any_tag = tag == WEIR_TAG_ANY;
	struct match_notice *n;

	weir_assert(!any_source || !any_tag || kind == MATCH_TAG);
	if (any_source && any_tag)
		return TAILQ_FIRST(&m->all);
	if (any_tag) {
		TAILQ_FOREACH(n, source_of(m, kind, source), of_source)
		if (n->kind == kind && n->is.source == source)
			return n;
		return NULL;
	}
	if (any_source) {
		TAILQ_FOREACH(n, tag_of(m, kind, tag), of_tag)
		if (n->kind == kind && n->is.tag == tag)
			return n;
		return NULL;
	}
	TAILQ_FOREACH(n, exact_of(m, kind, source, tag), exact)
	if (n->kind == kind && n->is.source == source && n->is.tag == tag)
		return n;
	return NULL;
}

void
match_remove(struct match *m, struct match_notice *n)
{
	weir_assert(m->count);
	TAILQ_REMOVE(exact_of(m, n->kind, n->is.source, n->is.tag), n, exact);
	TAILQ_REMOVE(source_of(m, n->kind, n->is.source), n, of_source);
	TAILQ_REMOVE(tag_of(m, n->kind, n->is.tag), n, of_tag);
	if (n->kind == MATCH_TAG)
		TAILQ_REMOVE(&m->all, n, of_all);
	m->count--;
	TAILQ_INSERT_HEAD(&m->spare, n, of_all);
}
