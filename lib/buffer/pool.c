/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pools. A thread takes from and gives to its cache, and exchanges half of it with the pool when it
 * is empty or full. Caches and pool are arrays of addresses. That of the pool has room for all
 * pieces there are, so that giving back never fails.
 */
#include "chunks.h"

#include "base/vec.h"
#include "client/reason.h"
#include "ipc/shm.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define PIECE_ALIGN 64u

/* The pieces that a thread keeps. */
struct cache {
	struct weir_pool *pool;
	LIST_ENTRY(cache) in_pool; /* with the lock */
	uint32_t count;		   /* as `piece`: the thread's */
	void *piece[];		   /* pool->keep */
};

struct weir_pool {
	struct weir_chunks *chunks;
	uint32_t bytes, keep;
	pthread_key_t key;    /* a thread's cache */
	pthread_mutex_t lock; /* of the rest */
	LIST_HEAD(, cache) caches;
	void **piece; /* free ones that no thread keeps */
	size_t count, room;
	uint8_t *cut, *cut_end; /* of the last chunk, what was not handed out yet */
	uint8_t **chunk;
	size_t chunk_count, chunk_room;
};

/* Moves the last `n` pieces of a cache to the pool. Lock held. */
static void
give(struct weir_pool *p, struct cache *k, uint32_t n)
{
	k->count -= n;
	memcpy(p->piece + p->count, k->piece + k->count, n * sizeof(k->piece[0]));
	p->count += n;
}

static void
thread_ends(void *cache)
{
	struct cache *k = cache;
	struct weir_pool *p = k->pool;

	if (weir_chunks_forked(p->chunks)) /* the lock is the parent's */
		return;
	pthread_mutex_lock(&p->lock);
	give(p, k, k->count);
	LIST_REMOVE(k, in_pool);
	pthread_mutex_unlock(&p->lock);
	free(k);
}

/* The calling thread's cache. NULL: it keeps none, or there is no memory for it. */
static struct cache *
own_cache(struct weir_pool *p)
{
	struct cache *k = pthread_getspecific(p->key);

	if (weir_likely(k) || !p->keep)
		return k;
	k = malloc(sizeof(*k) + p->keep * sizeof(k->piece[0]));
	if (!k)
		return NULL;
	k->pool = p;
	k->count = 0;
	if (pthread_setspecific(p->key, k)) {
		free(k);
		return NULL;
	}
	pthread_mutex_lock(&p->lock);
	LIST_INSERT_HEAD(&p->caches, k, in_pool);
	pthread_mutex_unlock(&p->lock);
	return k;
}

/* A piece that no thread keeps. NULL: *rc says why. Lock held. */
static void *
take(struct weir_pool *p, int *rc)
{
	if (p->count)
		return p->piece[--p->count];
	if (p->cut == p->cut_end) { /* another chunk to cut */
		uint64_t pieces = weir_chunk_bytes(p->chunks) / p->bytes;
		uint8_t *chunk;

		if (VEC_RESERVE(p->piece, p->room, (p->chunk_count + 1) * pieces) ||
		    VEC_RESERVE(p->chunk, p->chunk_room, p->chunk_count + 1)) {
			*rc = weir_fail(-ENOMEM, "no memory for the records of a pool; free some");
			return NULL;
		}
		chunk = weir_chunk_get(p->chunks);
		if (!chunk) {
			*rc = -errno;
			return NULL;
		}
		p->chunk[p->chunk_count++] = p->cut = chunk;
		p->cut_end = p->cut + pieces * p->bytes;
	}
	p->cut += p->bytes;
	return p->cut - p->bytes;
}

void *
weir_pool_get(struct weir_pool *p)
{
	struct cache *k;
	void *at;
	int rc = 0;

	if (weir_chunks_forked(p->chunks))
		return NULL;
	k = own_cache(p);
	if (weir_likely(k && k->count))
		return k->piece[--k->count];
	pthread_mutex_lock(&p->lock);
	at = take(p, &rc);
	/* more for next time, but no chunk for that */
	while (k && k->count < p->keep / 2 && (p->count || p->cut != p->cut_end))
		k->piece[k->count++] = take(p, &rc);
	pthread_mutex_unlock(&p->lock);
	if (!at)
		errno = -rc;
	return at;
}

void
weir_pool_put(struct weir_pool *p, void *at)
{
	struct cache *k;

	if (!at || weir_chunks_forked(p->chunks))
		return;
	k = own_cache(p);
	if (weir_likely(k && k->count < p->keep)) {
		k->piece[k->count++] = at;
		return;
	}
	pthread_mutex_lock(&p->lock);
	if (k)
		give(p, k, k->count - p->keep / 2);
	p->piece[p->count++] = at;
	pthread_mutex_unlock(&p->lock);
}

int
weir_pool_create(struct weir_chunks *c, uint32_t bytes, uint32_t keep, struct weir_pool **out)
{
	struct weir_pool *p;
	int rc;

	if (!bytes || bytes > weir_chunk_bytes(c))
		return weir_fail(-EINVAL, "invalid pieces of %u bytes (expected 1 to %llu)", bytes,
				 (unsigned long long)weir_chunk_bytes(c));
	p = calloc(1, sizeof(*p));
	if (!p)
		return weir_fail(-ENOMEM, "no memory for a pool; free some");
	rc = pthread_key_create(&p->key, thread_ends);
	if (rc) {
		free(p);
		return weir_fail(-rc, "no thread-specific key for a pool: %s; destroy another one",
				 strerror(rc));
	}
	p->chunks = c;
	p->bytes = WEIR_ALIGN_UP(bytes, PIECE_ALIGN);
	p->keep = keep;
	pthread_mutex_init(&p->lock, NULL);
	LIST_INIT(&p->caches);
	*out = p;
	return 0;
}

void
weir_pool_destroy(struct weir_pool *p)
{
	struct cache *k;

	if (!p)
		return;
	pthread_key_delete(p->key);
	while ((k = LIST_FIRST(&p->caches))) {
		LIST_REMOVE(k, in_pool);
		free(k);
	}
	for (size_t i = 0; i < p->chunk_count; i++)
		weir_chunk_put(p->chunks, p->chunk[i]);
	pthread_mutex_destroy(&p->lock);
	free(p->chunk);
	free(p->piece);
	free(p);
}
