/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranges sent repeatedly with WEIR_CACHED are adopted automatically. Adopting and disowning a range
 * costs as much as some copies of it; a range is adopted after that number of copies, so that the
 * cost is at most twice the optimum. The least recently sent range makes room. /proc/self/pagemap
 * detects ranges that the program has unmapped: the first and last page of a region are shared
 * pages, new ones are not.
 */
#define _GNU_SOURCE
#include "adopt_cache.h"
#include "reason.h"
#include "region.h"
#include "session.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define REFUSED (-1000)	    /* `uses` after a refused adoption: delays the next attempt */
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

/* Frees the least recently used entry that can be dropped; NULL: none. `adopted`: only regions. */
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

/* cache.lock held. */
static struct weir_region *
use(struct weir *w, const uint8_t *addr, size_t length)
{
	struct weir_cache *h = &w->cache;
	/* the cost of adoption in copies: a request and passes over the pages (docs/performance.md)
	 */
	int copies = 8 + (int)((6u << 20) / length), rc;
	struct weir_cached *e = NULL;

	for (unsigned i = 0; i < WEIR_CACHE && !e; i++)
		if (h->entry[i].addr == addr && h->entry[i].length == length)
			e = &h->entry[i];
	if (e && e->region && !is_ours(h, e) && drop(h, e))
		return NULL; /* the program unmapped it while a message was under way */
	if (!e || !e->addr) {
		e = make_room(h, false);
		if (!e)
			return NULL;
		*e = (struct weir_cached){.addr = addr, .length = length};
	}
	e->last = ++h->clock;
	if (!e->region && ++e->uses == copies) {
		rc = weir_adopt(w, (void *)(uintptr_t)addr, length, WEIR_REGION_CACHED, &e->region);
		if ((rc == -EMFILE || rc == -ENOSPC) && make_room(h, true))
			rc = weir_adopt(w, (void *)(uintptr_t)addr, length, WEIR_REGION_CACHED,
					&e->region);
		if (rc)
			e->uses = REFUSED;
		weir_assert(rc || e->region);
	}
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

int
weir_uncache(struct weir *w, void *addr, size_t length)
{
	const uint8_t *from = addr;
	int rc = 0;

	if (weir_state(w) == WEIR_FORKED)
		return weir_gone(w);
	for (w = weir_now(w); w; w = w->former) {
		pthread_mutex_lock(&w->cache.lock);
		for (unsigned i = 0; i < WEIR_CACHE; i++) {
			struct weir_cached *e = &w->cache.entry[i];

			if (e->addr && e->addr < from + length && from < e->addr + e->length &&
			    drop(&w->cache, e))
				rc = -EBUSY;
		}
		pthread_mutex_unlock(&w->cache.lock);
	}
	return rc;
}
