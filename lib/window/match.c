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

static uint32_t
bucket_of(uint64_t a, uint64_t b)
{
	return (uint32_t)((a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu) >> 40) %
	       MATCH_BUCKETS;
}

static struct match_list *
exact_of(const struct match *m, enum match_kind kind, uint32_t source, uint32_t tag)
{
	uint32_t i = bucket_of((uint64_t)kind << 32 | source, tag);

	return (struct match_list *)(uintptr_t)&m->exact[i];
}

static struct match_list *
source_of(const struct match *m, enum match_kind kind, uint32_t source)
{
	return (struct match_list *)(uintptr_t)&m
	    ->source[bucket_of((uint64_t)kind << 32 | source, 0)];
}

static struct match_list *
tag_of(const struct match *m, enum match_kind kind, uint32_t tag)
{
	return (struct match_list *)(uintptr_t)&m->tag[bucket_of((uint64_t)kind << 32, tag)];
}

void
match_init(struct match *m)
{
	for (uint32_t i = 0; i < MATCH_BUCKETS; i++) {
		TAILQ_INIT(&m->exact[i]);
		TAILQ_INIT(&m->source[i]);
		TAILQ_INIT(&m->tag[i]);
	}
	TAILQ_INIT(&m->all);
	TAILQ_INIT(&m->spare);
	m->count = 0;
}

void
match_fini(struct match *m)
{
	struct match_notice *n;

	for (uint32_t i = 0; i < MATCH_BUCKETS; i++)
		while ((n = TAILQ_FIRST(&m->exact[i])))
			match_remove(m, n);
	while ((n = TAILQ_FIRST(&m->spare))) {
		TAILQ_REMOVE(&m->spare, n, of_all);
		free(n);
	}
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
