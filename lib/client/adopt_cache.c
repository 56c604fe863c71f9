/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranges that are sent with WEIR_CACHED again and again are adopted on the fly. Adopting one and
 * giving it back costs what some copies of it cost, so it is adopted when it has been copied so
 * often: nobody pays more than twice what the better choice would have cost. The one that was not
 * sent for longest makes room. A range that the program has unmapped meanwhile is found out by
 * the kernel's word on its first and last page: those of a region are shared, new ones are not.
 */
#define _GNU_SOURCE
#include "adopt_cache.h"
#include "reason.h"
#include "region.h"
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define REFUSED (-1000)	    /* so many sends until the next try after that was refused */
#define SHARED (1ull << 61) /* in /proc/self/pagemap: a page of a file or shared */

void
weir_cache_init(struct weir *w)
{
	pthread_mutex_init(&w->cache.lock, NULL);
	w->cache.pagemap = -1;
}

static bool
is_shared(const struct weir_cache *h, const uint8_t *at)
{
	uint64_t word;
	off_t where = (off_t)((uintptr_t)at / (size_t)sysconf(_SC_PAGESIZE) * sizeof(word));

	return pread(h->pagemap, &word, sizeof(word), where) == sizeof(word) && word & SHARED;
}

static bool
is_ours(const struct weir_cache *h, const struct weir_cached *e)
{
	return is_shared(h, e->addr) && is_shared(h, e->addr + e->length - 1);
}

/* 0, or -EBUSY: a message of it is under way. */
static int
drop(const struct weir_cache *h, struct weir_cached *e)
{
	int rc = 0;

	if (e->region)
		rc = is_ours(h, e) ? weir_disown(e->region) : weir_region_abandon(e->region);
	if (!rc)
		*e = (struct weir_cached){0};
	return rc;
}

void
weir_cache_fini(struct weir *w)
{
	for (unsigned i = 0; i < WEIR_CACHE; i++)
		drop(&w->cache, &w->cache.entry[i]);
	if (w->cache.pagemap >= 0)
		close(w->cache.pagemap);
	pthread_mutex_destroy(&w->cache.lock);
}

/* The entry that was not used for longest and can be dropped, or NULL. `adopted`: one that is. */
static struct weir_cached *
make_room(struct weir_cache *h, bool adopted)
{
	for (uint64_t after = 0;;) {
		struct weir_cached *oldest = NULL;

		for (unsigned i = 0; i < WEIR_CACHE; i++) {
			struct weir_cached *e = &h->entry[i];

			if (!e->addr && !adopted)
				return e;
			if (e->last > after && (e->region || !adopted) &&
			    (!oldest || e->last < oldest->last))
				oldest = e;
		}
		if (!oldest || !drop(h, oldest))
			return oldest;
		after = oldest->last;
	}
}

static void
adopt(struct weir *w, struct weir_cached *e)
{
	int rc =
	    weir_adopt(w, (void *)(uintptr_t)e->addr, e->length, WEIR_REGION_CACHED, &e->region);

	if ((rc == -EMFILE || rc == -ENOSPC) && make_room(&w->cache, true))
		rc = weir_adopt(w, (void *)(uintptr_t)e->addr, e->length, WEIR_REGION_CACHED,
				&e->region);
	if (rc)
		e->uses = REFUSED;
}

/* What adoption costs, in copies: a request, and some passes over the pages (docs/performance.md).
 */
static int
copies_of(size_t length)
{
	return 8 + (int)((6u << 20) / length);
}

static struct weir_cached *
find(struct weir_cache *h, const uint8_t *addr, size_t length)
{
	for (unsigned i = 0; i < WEIR_CACHE; i++)
		if (h->entry[i].addr == addr && h->entry[i].length == length)
			return &h->entry[i];
	return NULL;
}

/* Under lock. */
static struct weir_region *
use(struct weir *w, const uint8_t *addr, size_t length)
{
	struct weir_cache *h = &w->cache;
	struct weir_cached *e = find(h, addr, length);

	if (e && e->region && !is_ours(h, e) && drop(h, e))
		return NULL; /* the program unmapped it under a message */
	if (!e || !e->addr) {
		e = make_room(h, false);
		if (!e)
			return NULL;
		*e = (struct weir_cached){.addr = addr, .length = length};
	}
	e->last = ++h->clock;
	if (!e->region && ++e->uses == copies_of(length))
		adopt(w, e);
	return e->region ? weir_region_use(w, addr, length, WEIR_REGION_CACHED) : NULL;
}

struct weir_region *
weir_cache_use(struct weir *w, const void *addr, size_t length)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct weir_region *r = weir_region_use(w, addr, length, WEIR_ADOPT_SEND);

	if (r || length < WEIR_CACHE_BYTES || length % page || (uintptr_t)addr % page)
		return r;
	pthread_mutex_lock(&w->cache.lock);
	if (w->cache.pagemap < 0)
		w->cache.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (w->cache.pagemap >= 0)
		r = use(w, addr, length);
	pthread_mutex_unlock(&w->cache.lock);
	return r;
}

static int
uncache(struct weir_cache *h, const uint8_t *from, size_t length)
{
	int rc = 0;

	pthread_mutex_lock(&h->lock);
	for (unsigned i = 0; i < WEIR_CACHE; i++) {
		struct weir_cached *e = &h->entry[i];

		if (e->addr && e->addr < from + length && from < e->addr + e->length && drop(h, e))
			rc = -EBUSY;
	}
	pthread_mutex_unlock(&h->lock);
	return rc;
}

int
weir_uncache(struct weir *w, void *addr, size_t length)
{
	int rc = 0;

	if (weir_state(w) == WEIR_FORKED)
		return weir_gone(w);
	for (w = weir_now(w); w; w = w->former)
		rc = uncache(&w->cache, addr, length) ? -EBUSY : rc;
	return rc;
}
