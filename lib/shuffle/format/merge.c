/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tree of losers. Node i has the children 2i and 2i + 1; source k is child n + k. A node keeps
 * the source that lost there, node 0 the winner of all, whose record is replaced in the next call.
 */
#include "merge.h"

#include "ipc/invariant.h"
#include "weir/weir.h"

#include <errno.h>
#include <stdlib.h>

struct leaf {
	uint64_t prefix; /* of the key; 0: the program compares; UINT64_MAX at the end */
	struct weir_record r;
	struct merge_source *source;
	bool ended;
};

struct merge {
	struct key_order order;
	unsigned n;
	bool begun;
	int rc; /* the end, or the first failure */
	/* The key that was returned last, to see that keys ascend. */
	struct weir_record last;
	uint64_t last_prefix;
	uint8_t *copy;
	uint32_t room; /* bytes */
	uint16_t loser[MERGE_SOURCES_MAX];
	struct leaf leaf[];
};

size_t
merge_memory(unsigned n)
{
	return sizeof(struct merge) + n * sizeof(struct leaf);
}

int
merge_open(const struct key_order *order, struct merge_source *const *sources, unsigned n,
	   struct merge **merge)
{
	struct merge *m = calloc(1, merge_memory(n));

	weir_assert(n <= MERGE_SOURCES_MAX);
	if (!m)
		return weir_fail(-ENOMEM, "no memory to merge %u runs", n);
	m->order = *order;
	m->n = n;
	for (unsigned i = 0; i < n; i++)
		m->leaf[i].source = sources[i];
	*merge = m;
	return 0;
}

void
merge_close(struct merge *m)
{
	if (!m)
		return;
	free(m->copy);
	free(m);
}

static inline bool
before(const struct merge *m, unsigned a, unsigned b)
{
	const struct leaf *x = &m->leaf[a], *y = &m->leaf[b];
	int order;

	if (x->prefix != y->prefix && !m->order.compare)
		return x->prefix < y->prefix;
	if (x->ended || y->ended)
		return !x->ended;
	order = key_compare(&m->order, &x->r, &y->r);
	return order ? order < 0 : a < b;
}

/* 0, also at the end of the source, or its error. */
static int
fill(struct merge *m, struct leaf *l)
{
	int rc = l->source->next(l->source, &l->r);

	if (rc && rc != -ENODATA)
		return rc;
	l->ended = rc;
	if (!rc) /* records of a run mostly lie behind each other */
		__builtin_prefetch((const uint8_t *)l->r.value + l->r.value_length);
	l->prefix = rc ? UINT64_MAX : m->order.compare ? 0 : key_prefix(&l->r);
	return 0;
}

static int
begin(struct merge *m)
{
	uint16_t winner[2 * MERGE_SOURCES_MAX];
	int rc;

	for (unsigned i = 0; i < m->n; i++) {
		rc = fill(m, &m->leaf[i]);
		if (rc)
			return rc;
		winner[m->n + i] = (uint16_t)i;
	}
	for (unsigned i = m->n - 1; i; i--) {
		uint16_t a = winner[2 * i], b = winner[2 * i + 1];
		bool first = before(m, a, b);

		winner[i] = first ? a : b;
		m->loser[i] = first ? b : a;
	}
	m->loser[0] = winner[1];
	m->begun = true;
	return 0;
}

/* Replaces the record of the winner. */
static int
replay(struct merge *m)
{
	unsigned winner = m->loser[0];
	int rc = fill(m, &m->leaf[winner]);

	if (rc)
		return rc;
	for (unsigned i = (m->n + winner) / 2; i; i /= 2) {
		unsigned other = m->loser[i];
		bool loses = before(m, other, winner);
		unsigned swap = (other ^ winner) & -(unsigned)loses;

		/* without a branch, which could not be predicted */
		m->loser[i] = (uint16_t)(other ^ swap);
		winner ^= swap;
	}
	m->loser[0] = (uint16_t)winner;
	return 0;
}

/* A copy, because the next record of a source may replace this one. 0 or -ENOMEM. */
static int
remember(struct merge *m, const struct leaf *l)
{
	uint32_t length = l->r.key_length;

	if (length > m->room) {
		uint32_t room = length + 64;
		uint8_t *copy = realloc(m->copy, room);

		if (!copy)
			return weir_fail(-ENOMEM, "no memory for a key of %u bytes", length);
		m->copy = copy;
		m->room = room;
	}
	if (length)
		memcpy(m->copy, l->r.key, length);
	m->last = (struct weir_record){.key = m->copy, .key_length = length};
	m->last_prefix = l->prefix;
	return 0;
}

/* Of the key that was returned last and this one. */
static int
compare_with_last(const struct merge *m, const struct leaf *l)
{
	if (l->prefix != m->last_prefix)
		return m->last_prefix < l->prefix ? -1 : 1;
	return key_compare(&m->order, &m->last, &l->r);
}

static int
advance(struct merge *m, bool *same)
{
	bool first = !m->begun;
	const struct leaf *l;
	int rc, order = -1;

	if (!m->n)
		return -ENODATA;
	rc = first ? begin(m) : replay(m);
	if (rc)
		return rc;
	l = &m->leaf[m->loser[0]];
	if (l->ended)
		return -ENODATA;
	if (!first)
		order = compare_with_last(m, l);
	if (order > 0)
		return m->order.compare
			   ? weir_fail(-EINVAL,
				       "the shuffle's compare function contradicts itself: "
				       "sorted keys do not ascend")
			   : weir_fail(-EBADMSG, "keys of a sorted block do not ascend");
	if (same)
		*same = !order;
	return order ? remember(m, l) : 0;
}

int
merge_next(struct merge *m, struct weir_record *r, bool *same)
{
	if (!m->rc)
		m->rc = advance(m, same);
	if (!m->rc)
		*r = m->leaf[m->loser[0]].r;
	return m->rc;
}
