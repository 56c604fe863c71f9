/* SPDX-License-Identifier: BSD-3-Clause */
#include "buffer_pool.h"
#include "session.h"

#include "ipc/invariant.h"

#include <stdlib.h>

#define LEAST_BITS 10 /* of the smallest size */

struct weir_buffer {
	struct weir_buffer *next; /* while it is kept */
	uint64_t bytes;		  /* behind this head */
};
static_assert(sizeof(struct weir_buffer) % 16 == 0, "what follows is aligned to 16");

void
weir_buffers_init(struct weir_buffer_pool *pool)
{
	pthread_mutex_init(&pool->lock, NULL);
}

void
weir_buffers_fini(struct weir_buffer_pool *pool)
{
	struct weir_buffer *b;

	for (unsigned i = 0; i < WEIR_BUFFER_CLASSES; i++) {
		while ((b = pool->free[i])) {
			pool->free[i] = b->next;
			free(b);
		}
	}
	pthread_mutex_destroy(&pool->lock);
}

/* The class of the smallest buffers that hold `bytes`; WEIR_BUFFER_CLASSES: none does. */
static unsigned
class_of(uint64_t bytes)
{
	unsigned k = 0;

	while (k < WEIR_BUFFER_CLASSES && bytes > 1ull << (LEAST_BITS + k))
		k++;
	return k;
}

void *
weir_buffer_take(struct weir *w, uint64_t bytes)
{
	struct weir_buffer_pool *pool = &w->first->buffers;
	unsigned k = class_of(bytes);
	struct weir_buffer *b = NULL;

	if (k < WEIR_BUFFER_CLASSES) {
		bytes = 1ull << (LEAST_BITS + k);
		pthread_mutex_lock(&pool->lock);
		b = pool->free[k];
		if (b) {
			weir_assert(b->bytes == bytes && pool->kept >= bytes);
			pool->free[k] = b->next;
			pool->kept -= bytes;
		}
		pthread_mutex_unlock(&pool->lock);
	}
	if (!b) {
		if (bytes > SIZE_MAX - sizeof(*b) || !(b = malloc(sizeof(*b) + bytes)))
			return NULL;
		b->bytes = bytes;
	}
	return b + 1;
}

void
weir_buffer_give(struct weir *w, void *p)
{
	struct weir_buffer_pool *pool = &w->first->buffers;
	struct weir_buffer *b = p;
	unsigned k;

	if (!b)
		return;
	b--;
	k = class_of(b->bytes);
	pthread_mutex_lock(&pool->lock);
	if (k < WEIR_BUFFER_CLASSES && b->bytes <= WEIR_BUFFERS_KEPT - pool->kept) {
		pool->kept += b->bytes;
		b->next = pool->free[k];
		pool->free[k] = b;
		b = NULL;
	}
	pthread_mutex_unlock(&pool->lock);
	free(b);
}

void *
weir_buffer_grow(struct weir *w, void *p, uint64_t used, uint64_t bytes)
{
	struct weir_buffer *b = p;
	void *grown;

	if (b && b[-1].bytes >= bytes)
		return p;
	grown = weir_buffer_take(w, bytes);
	if (grown && used)
		memcpy(grown, p, used);
	if (grown)
		weir_buffer_give(w, p);
	return grown;
}
