/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The send heap: memory of the arena for payload that does not fit in slots. Each thread caches a
 * few single blocks, so that most messages take no lock.
 */
#include "send_heap.h"
#include "session.h"
#include "thread.h"
#include "wait.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <stdlib.h>

#define CACHE_MAX (uint32_t)(sizeof(((struct weir_thread *)0)->cache) / sizeof(uint32_t))

int
weir_heap_init(struct weir *w)
{
	struct weir_heap *h = &w->heap;
	uint32_t count = w->geometry.send_blocks;

	h->map = calloc(weir_blocks_words(count) + 1, sizeof(*h->map));
	h->run = calloc(count + 1, sizeof(*h->run));
	if (!h->map || !h->run || pthread_mutex_init(&h->lock, NULL)) {
		free(h->map);
		free(h->run);
		return -ENOMEM;
	}
	weir_blocks_init(&h->blocks, h->map, count);
	/* blocks in the threads' caches must not starve other threads */
	h->cache_room = count / 64 < CACHE_MAX ? count / 64 : CACHE_MAX;
	LIST_INIT(&h->starved);
	return 0;
}

void
weir_heap_fini(struct weir *w)
{
	free(w->heap.map);
	free(w->heap.run);
	pthread_mutex_destroy(&w->heap.lock);
}

static uint32_t
blocks_of(uint32_t length)
{
	return length ? (length + WEIR_BLOCK_SIZE - 1) / WEIR_BLOCK_SIZE : 1;
}

bool
weir_heap_fits(const struct weir *w, uint32_t length)
{
	return blocks_of(length) <= w->geometry.send_blocks;
}

bool
weir_heap_reserved(struct weir *w)
{
	bool any = false;

	pthread_mutex_lock(&w->heap.lock);
	for (uint32_t i = 0; i < w->geometry.send_blocks && !any; i++)
		any = w->heap.run[i];
	pthread_mutex_unlock(&w->heap.lock);
	return any;
}

uint32_t
weir_heap_take(struct weir_thread *t, uint32_t length)
{
	struct weir_heap *h = &t->w->heap;
	uint32_t n = blocks_of(length), first, b;

	if (n == 1 && t->cache_count) {
		first = t->cache[--t->cache_count];
		h->run[first] = 1;
		return first;
	}
	pthread_mutex_lock(&h->lock);
	first = n == 1 ? weir_blocks_take(&h->blocks) : weir_blocks_take_run(&h->blocks, n);
	if (first == WEIR_BLOCK_NONE && n > 1 && t->cache_count) {
		while (t->cache_count)
			weir_blocks_give(&h->blocks, t->cache[--t->cache_count], 1);
		first = weir_blocks_take_run(&h->blocks, n);
	}
	if (first == WEIR_BLOCK_NONE && !t->starved) {
		t->starved = true;
		LIST_INSERT_HEAD(&h->starved, t, in_starved);
		atomic_fetch_add_explicit(&h->starving, 1, memory_order_relaxed);
	}
	/* refill the thread's cache */
	while (n == 1 && first != WEIR_BLOCK_NONE && t->cache_count < h->cache_room / 2) {
		b = weir_blocks_take(&h->blocks);
		if (b == WEIR_BLOCK_NONE)
			break;
		t->cache[t->cache_count++] = b;
	}
	pthread_mutex_unlock(&h->lock);
	if (first != WEIR_BLOCK_NONE)
		h->run[first] = n;
	return first;
}

/* Wakes all threads that wait for blocks. heap.lock held. */
static void
feed(struct weir_heap *h)
{
	struct weir_thread *t;

	while ((t = LIST_FIRST(&h->starved))) {
		LIST_REMOVE(t, in_starved);
		t->starved = false;
		weir_wake_fd(t->wake_fd);
	}
	atomic_store_explicit(&h->starving, 0, memory_order_relaxed);
}

void
weir_heap_give(struct weir_thread *t, uint32_t first)
{
	struct weir_heap *h = &t->w->heap;
	uint32_t n = h->run[first];

	weir_assert(first < t->w->geometry.send_blocks && n);
	h->run[first] = 0;
	if (n == 1 && t->cache_count < h->cache_room &&
	    !atomic_load_explicit(&h->starving, memory_order_relaxed)) {
		t->cache[t->cache_count++] = first;
		return;
	}
	pthread_mutex_lock(&h->lock);
	weir_blocks_give(&h->blocks, first, n);
	while (t->cache_count > h->cache_room / 2 || (h->starving && t->cache_count))
		weir_blocks_give(&h->blocks, t->cache[--t->cache_count], 1);
	if (h->starving)
		feed(h);
	pthread_mutex_unlock(&h->lock);
}

void
weir_heap_flush(struct weir_thread *t)
{
	struct weir_heap *h = &t->w->heap;

	pthread_mutex_lock(&h->lock);
	while (t->cache_count)
		weir_blocks_give(&h->blocks, t->cache[--t->cache_count], 1);
	if (t->starved) {
		LIST_REMOVE(t, in_starved);
		t->starved = false;
	}
	if (h->starving)
		feed(h);
	pthread_mutex_unlock(&h->lock);
}
