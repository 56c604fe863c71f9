/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks. The free ones of all regions form one stack, linked by numbers that lie beside the
 * memory. Its head has a tag that each change increments, so a thread that was interrupted between
 * its load and its compare and swap notices that the same chunk has come back (ABA).
 */
#include "chunks.h"

#include "client/reason.h"
#include "client/session.h"
#include "ipc/invariant.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define CHUNK_USUAL (2ull << 20)
#define CHUNK_MIN 4096u
#define STEP_USUAL (1ull << 30)

/* Number of a chunk: its part << PART_SHIFT | its place there. */
#define PART_SHIFT 20
#define PLACES ((1u << PART_SHIFT) - 1) /* of a part: the number NONE is never used */
#define NONE UINT32_MAX

/* A region. */
struct part {
	struct weir_region *region;
	uint8_t *base;
	uint64_t bytes; /* of its chunks */
	uint32_t number;
	struct {
		_Atomic uint32_t next; /* in the stack; written by the thread that pushes it */
		uint32_t tag;	       /* see weir_chunk_tag() */
	} chunk[];
};

/* All parts by address. Never changes once it is published. */
struct directory {
	struct directory *former; /* threads may search it still */
	uint32_t count;
	struct part *part[];
};

struct weir_chunks {
	struct weir *w;
	uint64_t chunk, most;
	bool exact_step;
	struct weir_alloc_options alloc;
	_Atomic uint64_t top; /* tag << 32 | number of the first free chunk, or NONE. All threads */
	_Atomic(struct directory *) directory; /* NULL: no region. Written with the lock */
	pthread_mutex_t lock;		       /* one thread allocates regions; of the rest */
	uint64_t step, total;		       /* bytes: of the next region; of all chunks */
	_Atomic(struct part *) part[WEIR_REGIONS_MAX]; /* by number, read by all */
};

bool
weir_chunks_forked(const struct weir_chunks *c)
{
	if (weir_likely(weir_state(c->w) != WEIR_FORKED))
		return false;
	errno = ENOTCONN;
	return true;
}

uint64_t
weir_chunk_bytes(const struct weir_chunks *c)
{
	return c->chunk;
}

/* The part in which an address lies, or NULL. */
static struct part *
find(struct weir_chunks *c, const void *at)
{
	/* pairs with the release in publish() */
	const struct directory *d = atomic_load_explicit(&c->directory, memory_order_acquire);
	uint32_t from = 0, to = d ? d->count : 0;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;
		struct part *p = d->part[middle];

		if ((uintptr_t)at < (uintptr_t)p->base)
			to = middle;
		else if ((uintptr_t)at - (uintptr_t)p->base >= p->bytes)
			from = middle + 1;
		else
			return p;
	}
	return NULL;
}

static uint32_t
place(const struct weir_chunks *c, const struct part *p, const void *at)
{
	return (uint32_t)((uint64_t)((const uint8_t *)at - p->base) / c->chunk);
}

uint32_t *
weir_chunk_tag(struct weir_chunks *c, const void *at)
{
	struct part *p = find(c, at);

	weir_assert(p);
	return &p->chunk[place(c, p, at)].tag;
}

int
weir_chunk_where(struct weir_chunks *c, const void *at, struct weir_region **region,
		 uint64_t *offset)
{
	const struct part *p = find(c, at);

	if (!p)
		return weir_fail(-ENOENT,
				 "address %p is not in these chunks; give one that an "
				 "allocator over them returned",
				 at);
	*region = p->region;
	*offset = (uint64_t)((const uint8_t *)at - p->base);
	return 0;
}

/* ---- the stack of free chunks ---- */

/* Adds chunks that are linked already, but for the last one. */
static void
push(struct weir_chunks *c, uint32_t first, uint32_t last)
{
	struct part *p = atomic_load_explicit(&c->part[last >> PART_SHIFT], memory_order_relaxed);
	uint64_t top = atomic_load_explicit(&c->top, memory_order_relaxed), next;

	do {
		atomic_store_explicit(&p->chunk[last & PLACES].next, (uint32_t)top,
				      memory_order_relaxed);
		next = ((top >> 32) + 1) << 32 | first;
		/* pairs with the acquire in weir_chunk_pop(): links, contents, the part */
	} while (!atomic_compare_exchange_weak_explicit(&c->top, &top, next, memory_order_release,
							memory_order_relaxed));
}

void *
weir_chunk_pop(struct weir_chunks *c)
{
	/* pairs with the release in push() */
	uint64_t top = atomic_load_explicit(&c->top, memory_order_acquire), next;
	struct part *p;
	uint32_t at;

	do {
		at = (uint32_t)top;
		if (at == NONE)
			return NULL;
		p = atomic_load_explicit(&c->part[at >> PART_SHIFT], memory_order_relaxed);
		next = ((top >> 32) + 1) << 32 |
		       atomic_load_explicit(&p->chunk[at & PLACES].next, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&c->top, &top, next, memory_order_acquire,
							memory_order_acquire));
	return p->base + (at & PLACES) * c->chunk;
}

void
weir_chunk_put(struct weir_chunks *c, void *chunk)
{
	struct part *p;
	uint32_t number;

	if (!chunk || weir_chunks_forked(c))
		return;
	p = find(c, chunk);
	weir_assert(p && (uint64_t)((uint8_t *)chunk - p->base) % c->chunk == 0);
	number = p->number << PART_SHIFT | place(c, p, chunk);
	push(c, number, number);
}

/* ---- regions ---- */

/* Makes a part known. 0, -ENOMEM, or -EMFILE: all numbers are given. Lock held. */
static int
publish(struct weir_chunks *c, struct part *p)
{
	struct directory *old = atomic_load_explicit(&c->directory, memory_order_relaxed);
	uint32_t count = old ? old->count : 0, at = 0;
	struct directory *d;

	if (count == WEIR_REGIONS_MAX) /* of this session and former ones */
		return weir_fail(-EMFILE, "the chunks have %u regions; use larger ones", count);
	d = malloc(sizeof(*d) + (count + 1) * sizeof(d->part[0]));
	if (!d)
		return weir_fail(-ENOMEM, "no memory for the records of a region; free some");
	*d = (struct directory){.former = old, .count = count + 1};
	while (at < count && old->part[at]->base < p->base) {
		d->part[at] = old->part[at];
		at++;
	}
	d->part[at] = p;
	for (; at < count; at++)
		d->part[at + 1] = old->part[at];
	p->number = count;
	atomic_store_explicit(&c->part[count], p, memory_order_relaxed);
	atomic_store_explicit(&c->directory, d, memory_order_release);
	return 0;
}

/* Allocates a region of that many bytes, whole chunks. NULL: *rc says why. Lock held. */
static struct part *
add_region(struct weir_chunks *c, uint64_t bytes, int *rc)
{
	uint32_t chunks = (uint32_t)(bytes / c->chunk);
	struct weir_region_info info;
	struct weir_region *region;
	struct part *p;

	*rc = weir_region_alloc(c->w, bytes, &c->alloc, &region);
	if (*rc)
		return NULL;
	weir_region_info(region, &info);
	p = malloc(sizeof(*p) + chunks * sizeof(p->chunk[0]));
	if (p) {
		*p = (struct part){.region = region, .base = info.base, .bytes = bytes};
		*rc = publish(c, p);
	} else {
		*rc = weir_fail(-ENOMEM, "no memory for the records of a region; free some");
	}
	if (*rc) {
		weir_region_free(region);
		free(p);
		return NULL;
	}
	c->total += bytes;
	return p;
}

/* Bytes that chunks may still have, at most 2^47. Lock held. */
static uint64_t
rest(const struct weir_chunks *c)
{
	uint64_t left = c->most ? c->most - c->total : 1ull << 47;

	return left - left % c->chunk;
}

static int
exhausted(const struct weir_chunks *c)
{
	return weir_fail(-ENOSPC,
			 "the chunks have %llu of at most %llu bytes; give some back, or raise "
			 "weir_chunks_options.most",
			 (unsigned long long)c->total, (unsigned long long)c->most);
}

/* Allocates the next region; where a limit is in the way, a smaller one. Returns its first chunk;
 * the others are free. NULL: *rc says why. Lock held. */
static void *
extend(struct weir_chunks *c, int *rc)
{
	uint64_t bytes = c->step < rest(c) ? c->step : rest(c);
	struct part *p = NULL;
	uint32_t chunks;

	if (!bytes) {
		*rc = exhausted(c);
		return NULL;
	}
	for (;; bytes -= bytes % c->chunk) {
		p = add_region(c, bytes, rc);
		if (p || c->exact_step || bytes == c->chunk ||
		    (*rc != -ENOSPC && *rc != -EDQUOT && *rc != -ENOMEM))
			break;
		bytes /= 2;
	}
	if (!p)
		return NULL;
	if (!c->exact_step) /* a limit may be further away next time */
		c->step = bytes < STEP_USUAL / 2 ? 2 * bytes : STEP_USUAL;
	if (c->step < c->chunk)
		c->step = c->chunk;
	chunks = (uint32_t)(p->bytes / c->chunk);
	for (uint32_t i = 1; i + 1 < chunks; i++)
		atomic_init(&p->chunk[i].next, p->number << PART_SHIFT | (i + 1));
	if (chunks > 1)
		push(c, p->number << PART_SHIFT | 1, p->number << PART_SHIFT | (chunks - 1));
	return p->base;
}

void *
weir_chunk_get(struct weir_chunks *c)
{
	void *chunk;
	int rc = 0;

	if (weir_chunks_forked(c))
		return NULL;
	chunk = weir_chunk_pop(c);
	if (weir_likely(chunk))
		return chunk;
	pthread_mutex_lock(&c->lock);
	chunk = weir_chunk_pop(c); /* another thread may have allocated a region */
	if (!chunk)
		chunk = extend(c, &rc);
	pthread_mutex_unlock(&c->lock);
	if (!chunk)
		errno = -rc;
	return chunk;
}

void *
weir_chunk_run(struct weir_chunks *c, uint64_t count)
{
	struct part *p = NULL;
	int rc;

	pthread_mutex_lock(&c->lock);
	if (count > PLACES)
		rc = weir_fail(-ENOSPC, "%llu chunks for one piece, at most %u; use larger chunks",
			       (unsigned long long)count, PLACES);
	else if (count > rest(c) / c->chunk)
		rc = exhausted(c);
	else
		p = add_region(c, count * c->chunk, &rc);
	pthread_mutex_unlock(&c->lock);
	if (!p)
		errno = -rc;
	return p ? p->base : NULL;
}

/* ---- creation ---- */

static int
acceptable(const struct weir_chunks_options *o, uint64_t chunk, uint64_t step)
{
	for (unsigned i = 0; i < sizeof(o->more) / sizeof(o->more[0]); i++)
		if (o->more[i])
			return weir_fail(-EINVAL, "weir_chunks_options.more is not 0; initialize "
						  "with WEIR_CHUNKS_OPTIONS_INIT");
	if (chunk < CHUNK_MIN || chunk & (chunk - 1) || step < chunk || step / chunk > PLACES ||
	    (o->most && o->most < chunk))
		return weir_fail(-EINVAL,
				 "invalid sizes: chunks of %llu bytes, regions of %llu, all %llu "
				 "(expected a power of two from %u on, 1 to %u chunks, a chunk "
				 "or more)",
				 (unsigned long long)chunk, (unsigned long long)step,
				 (unsigned long long)o->most, CHUNK_MIN, PLACES);
	if (o->numa_node < -1 ||
	    (o->flags && o->flags != WEIR_ALLOC_HUGE_1G && o->flags != WEIR_ALLOC_ORDINARY))
		return weir_fail(-EINVAL,
				 "invalid flags 0x%x or NUMA node %d (expected WEIR_ALLOC_HUGE_1G, "
				 "WEIR_ALLOC_ORDINARY or 0, and a node or -1)",
				 o->flags, (int)o->numa_node);
	return 0;
}

int
weir_chunks_create(struct weir *w, const struct weir_chunks_options *options,
		   struct weir_chunks **chunks)
{
	static const struct weir_chunks_options usual = WEIR_CHUNKS_OPTIONS_INIT;
	const struct weir_chunks_options *o = options ? options : &usual;
	uint64_t chunk = o->chunk ? o->chunk : CHUNK_USUAL;
	uint64_t step = o->step ? o->step : chunk > STEP_USUAL ? chunk : STEP_USUAL;
	struct weir_chunks *c;
	int rc = acceptable(o, chunk, step);

	if (rc)
		return rc;
	c = calloc(1, sizeof(*c));
	if (!c)
		return weir_fail(-ENOMEM, "no memory for an allocator of chunks; free some");
	c->w = w;
	c->chunk = chunk;
	c->step = step - step % chunk;
	c->exact_step = o->step;
	c->most = o->most;
	c->alloc = (struct weir_alloc_options){.flags = o->flags, .numa_node = o->numa_node};
	atomic_init(&c->top, NONE);
	pthread_mutex_init(&c->lock, NULL);
	*chunks = c;
	return 0;
}

void
weir_chunks_destroy(struct weir_chunks *c)
{
	struct directory *d, *former;

	if (!c)
		return;
	d = atomic_load_explicit(&c->directory, memory_order_relaxed);
	for (uint32_t i = 0; d && i < d->count; i++) {
		weir_region_free(d->part[i]->region); /* -EBUSY: weir_detach() frees it */
		free(d->part[i]);
	}
	for (; d; d = former) {
		former = d->former;
		free(d);
	}
	pthread_mutex_destroy(&c->lock);
	free(c);
}
