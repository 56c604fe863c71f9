/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pieces of any size, by two-level segregated fit (Masmano, Ripoll, Crespo, Real: TLSF, 2004). Free
 * blocks lie in lists by size: classes are powers of two, divided into 16. Two levels of bits find
 * a list whose blocks all fit. Blocks of the request's own list may fit better: a few are tried.
 *
 * A granule is 64 bytes of memory. Records of granules lie beside it, in pages, one per chunk. The
 * first and the last granule of a block have its size, so that its neighbours find it. Adjacent
 * chunks of one region have adjacent pages, a span: blocks never cross its ends.
 */
#include "chunks.h"

#include "base/vec.h"
#include "client/reason.h"
#include "ipc/invariant.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define GRANULE 64u
#define NONE UINT32_MAX
#define FREE (1u << 31)	     /* of a size */
#define BLOCK_MAX (1u << 30) /* granules */
#define FINE_BITS 4
#define FINE (1u << FINE_BITS) /* lists per power of two */
#define COARSE 28u	       /* powers of two; 0: below FINE granules */
#define TRIES 8u	       /* blocks of the own list */

struct granule {
	uint32_t size;	     /* granules of the block, and FREE; of its first and last one */
	uint32_t next, prev; /* in its list; of the first one, if it is free */
};

struct page {
	uint8_t *chunk;
	struct granule *granule; /* all of the chunk */
	bool first, last;	 /* of its span */
};

struct weir_general {
	struct weir_chunks *chunks;
	pthread_mutex_t lock;	     /* of the rest */
	uint32_t shift;		     /* granules of a chunk are 1 << shift */
	uint32_t count, room;	     /* pages */
	struct page *page;	     /* granule i: of page i >> shift */
	uint32_t coarse;	     /* bits: which of fine[] are not 0 */
	uint32_t fine[COARSE];	     /* bits: which lists are not empty */
	uint32_t list[COARSE][FINE]; /* first granules; NONE: empty */
};

static struct granule *
granule(const struct weir_general *h, uint32_t i)
{
	return &h->page[i >> h->shift].granule[i & ((1u << h->shift) - 1)];
}

static uint32_t
size_of(const struct weir_general *h, uint32_t i)
{
	return granule(h, i)->size & ~FREE;
}

static uint8_t *
address(const struct weir_general *h, uint32_t i)
{
	return h->page[i >> h->shift].chunk + (uint64_t)(i & ((1u << h->shift) - 1)) * GRANULE;
}

/* ---- lists ---- */

struct class
{
	uint32_t coarse, fine;
};

static struct class class_of(uint32_t size)
{
	uint32_t top;

	if (size < FINE)
		return (struct class){0, size};
	top = 31u - (uint32_t)__builtin_clz(size);
	return (struct class){top - FINE_BITS + 1, (size >> (top - FINE_BITS)) - FINE};
}

/* The smallest class whose blocks all have that size. */
static struct class class_above(uint32_t size)
{
	uint32_t top = size < FINE ? 0 : 31u - (uint32_t)__builtin_clz(size);

	return class_of(size < FINE ? size : size + (1u << (top - FINE_BITS)) - 1);
}

static void
set_size(struct weir_general *h, uint32_t i, uint32_t size, uint32_t state)
{
	granule(h, i)->size = granule(h, i + size - 1)->size = size | state;
}

static void
insert(struct weir_general *h, uint32_t i, uint32_t size)
{
	struct class at = class_of(size);
	uint32_t *first = &h->list[at.coarse][at.fine];

	set_size(h, i, size, FREE);
	granule(h, i)->prev = NONE;
	granule(h, i)->next = *first;
	if (*first != NONE)
		granule(h, *first)->prev = i;
	*first = i;
	h->fine[at.coarse] |= 1u << at.fine;
	h->coarse |= 1u << at.coarse;
}

static void
take_out(struct weir_general *h, uint32_t i)
{
	struct class at = class_of(size_of(h, i));
	const struct granule *g = granule(h, i);

	if (g->next != NONE)
		granule(h, g->next)->prev = g->prev;
	if (g->prev != NONE) {
		granule(h, g->prev)->next = g->next;
		return;
	}
	h->list[at.coarse][at.fine] = g->next;
	if (g->next != NONE)
		return;
	h->fine[at.coarse] &= ~(1u << at.fine);
	if (!h->fine[at.coarse])
		h->coarse &= ~(1u << at.coarse);
}

/* A free block of at least that size, or NONE. */
static uint32_t
find(const struct weir_general *h, uint32_t size)
{
	struct class own = class_of(size), at = class_above(size);
	uint32_t best = NONE, bits, i = h->list[own.coarse][own.fine];

	for (uint32_t n = 0; i != NONE && n < TRIES; n++, i = granule(h, i)->next)
		if (size_of(h, i) >= size && (best == NONE || size_of(h, i) < size_of(h, best)))
			best = i;
	if (best != NONE)
		return best;
	bits = h->fine[at.coarse] & ~0u << at.fine;
	if (!bits) {
		bits = h->coarse & ~1u << at.coarse;
		if (!bits)
			return NONE;
		at.coarse = (uint32_t)__builtin_ctz(bits);
		bits = h->fine[at.coarse];
	}
	return h->list[at.coarse][__builtin_ctz(bits)];
}

/* ---- memory ---- */

/* Adds a span of chunks that has a block of that size. 0 or -errno. Lock held. */
static int
extend(struct weir_general *h, uint32_t size)
{
	uint64_t bytes = weir_chunk_bytes(h->chunks);
	uint32_t first = h->count, n = ((size - 1) >> h->shift) + 1, i;
	uint8_t *at;
	int rc;

	if (n > (NONE >> h->shift) - h->count)
		return weir_fail(-ENOSPC, "one allocator has less than 256 GiB; use several");
	if (VEC_RESERVE(h->page, h->room, h->count + n))
		return weir_fail(-ENOMEM, "no memory for the records of pieces; free some");
	for (i = 0; i < n; i++) {
		struct granule *g = calloc((size_t)1 << h->shift, sizeof(*g));

		if (!g)
			break;
		h->page[first + i] = (struct page){.granule = g, .first = !i, .last = i == n - 1};
	}
	if (i < n) {
		rc = weir_fail(-ENOMEM, "no memory for the records of pieces; free some");
	} else {
		at = n == 1 ? weir_chunk_get(h->chunks) : weir_chunk_run(h->chunks, n);
		rc = at ? 0 : -errno;
	}
	if (rc) {
		while (i)
			free(h->page[first + --i].granule);
		return rc;
	}
	for (i = 0; i < n; i++) {
		h->page[first + i].chunk = at + i * bytes;
		*weir_chunk_tag(h->chunks, at + i * bytes) = first + i;
	}
	h->count += n;
	insert(h, first << h->shift, n << h->shift);
	return 0;
}

void *
weir_general_get(struct weir_general *h, uint64_t bytes)
{
	uint64_t wanted = bytes ? (bytes - 1) / GRANULE + 1 : 1;
	uint32_t size = (uint32_t)wanted, i = NONE, rest;
	void *at = NULL;
	int rc = 0;

	if (weir_chunks_forked(h->chunks))
		return NULL;
	pthread_mutex_lock(&h->lock);
	if (wanted > BLOCK_MAX)
		rc = weir_fail(-ENOSPC, "%llu bytes for one piece, at most %llu; use several",
			       (unsigned long long)bytes, (unsigned long long)BLOCK_MAX * GRANULE);
	else
		i = find(h, size);
	if (!rc && i == NONE) {
		rc = extend(h, size);
		if (!rc)
			i = find(h, size);
	}
	if (!rc) {
		weir_assert(i != NONE && granule(h, i)->size & FREE);
		rest = size_of(h, i) - size;
		take_out(h, i);
		set_size(h, i, size, 0);
		if (rest)
			insert(h, i + size, rest);
		at = address(h, i);
	}
	pthread_mutex_unlock(&h->lock);
	if (!at)
		errno = -rc;
	return at;
}

void
weir_general_put(struct weir_general *h, void *at)
{
	const uint32_t mask = (1u << h->shift) - 1;
	uint32_t page, i, size, end;

	if (!at || weir_chunks_forked(h->chunks))
		return;
	pthread_mutex_lock(&h->lock);
	page = *weir_chunk_tag(h->chunks, at);
	weir_assert(page < h->count);
	i = (page << h->shift) +
	    (uint32_t)((uint64_t)((uint8_t *)at - h->page[page].chunk) / GRANULE);
	size = granule(h, i)->size;
	weir_assert(size && !(size & FREE) && address(h, i) == at);
	end = i + size;
	if ((end & mask || !h->page[(end - 1) >> h->shift].last) && granule(h, end)->size & FREE) {
		take_out(h, end);
		size += size_of(h, end);
	}
	if ((i & mask || !h->page[page].first) && granule(h, i - 1)->size & FREE) {
		i -= size_of(h, i - 1);
		size += size_of(h, i);
		take_out(h, i);
	}
	insert(h, i, size);
	pthread_mutex_unlock(&h->lock);
}

int
weir_general_create(struct weir_chunks *c, struct weir_general **out)
{
	uint64_t chunk = weir_chunk_bytes(c);
	struct weir_general *h;

	if (chunk / GRANULE > BLOCK_MAX)
		return weir_fail(-EINVAL, "chunks of %llu bytes, at most %llu; use smaller ones",
				 (unsigned long long)chunk,
				 (unsigned long long)BLOCK_MAX * GRANULE);
	h = calloc(1, sizeof(*h));
	if (!h)
		return weir_fail(-ENOMEM, "no memory for an allocator; free some");
	h->chunks = c;
	h->shift = (uint32_t)__builtin_ctzll(chunk / GRANULE);
	for (uint32_t i = 0; i < COARSE; i++)
		for (uint32_t k = 0; k < FINE; k++)
			h->list[i][k] = NONE;
	pthread_mutex_init(&h->lock, NULL);
	*out = h;
	return 0;
}

void
weir_general_destroy(struct weir_general *h)
{
	if (!h)
		return;
	for (uint32_t i = 0; i < h->count; i++) {
		weir_chunk_put(h->chunks, h->page[i].chunk);
		free(h->page[i].granule);
	}
	pthread_mutex_destroy(&h->lock);
	free(h->page);
	free(h);
}
