/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The account. Each thread has reserves: one block to send, what one turn may receive, and with
 * files what one reader of them takes. While it holds no more than that, no other thread's use
 * stands in its way. The rest is shared. So the sum is at most the bound, and no two threads wait
 * for each other's memory. Blocks that stay where they arrived take memory of the session instead,
 * up to `lent_max` per thread.
 *
 * Buffers are pages of one region of as many bytes. With malloc() each thread would keep what it
 * has had at most, and the process would have more than the bound.
 */
#include "shuffle.h"

#include <sys/mman.h>

static void
add(struct shuffle_thread *t, enum memory_side side, uint64_t bytes)
{
	struct account *a = &t->s->memory;
	uint64_t used, peak;

	atomic_fetch_add_explicit(&t->held[side], bytes, memory_order_relaxed);
	used = atomic_fetch_add_explicit(&a->used, bytes, memory_order_relaxed) + bytes;
	peak = atomic_load_explicit(&a->peak, memory_order_relaxed);
	while (used > peak &&
	       !atomic_compare_exchange_weak_explicit(&a->peak, &peak, used, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

bool
memory_is_free(const struct weir_shuffle *s, uint64_t bytes)
{
	return atomic_load_explicit(&s->memory.used, memory_order_relaxed) + bytes <=
	       s->memory.shared;
}

static bool
has_room(const struct shuffle_thread *t, enum memory_side side, uint64_t bytes)
{
	const struct weir_shuffle *s = t->s;
	uint64_t held = atomic_load_explicit(&t->held[side], memory_order_relaxed);

	return held + bytes <= s->memory.reserve[side] || memory_is_free(s, bytes);
}

bool
memory_take(struct shuffle_thread *t, enum memory_side side, uint64_t bytes)
{
	struct account *a = &t->s->memory;

	if (!has_room(t, side, bytes))
		return false;
	add(t, side, bytes);
	/* others may have taken the shared part at the same time */
	if (atomic_load_explicit(&t->held[side], memory_order_relaxed) <= a->reserve[side] ||
	    atomic_load_explicit(&a->used, memory_order_relaxed) <= a->shared)
		return true;
	memory_give(t, side, bytes);
	return false;
}

void
memory_force(struct shuffle_thread *t, uint64_t bytes)
{
	uint64_t ahead = t->ahead < bytes ? t->ahead : bytes;

	t->ahead -= ahead;
	add(t, MEMORY_RX, bytes - ahead);
}

bool
memory_begin_turn(struct shuffle_thread *t)
{
	uint64_t reserve = t->s->memory.reserve[MEMORY_RX];

	if (atomic_load_explicit(&t->lent, memory_order_relaxed) >= t->s->memory.lent_max)
		return false;
	if (!atomic_load_explicit(&t->held[MEMORY_RX], memory_order_relaxed))
		return true;
	if (!memory_take(t, MEMORY_RX, reserve))
		return false;
	t->ahead = reserve;
	return true;
}

void
memory_end_turn(struct shuffle_thread *t)
{
	if (t->ahead)
		memory_give(t, MEMORY_RX, t->ahead);
	t->ahead = 0;
}

void
memory_give(struct shuffle_thread *t, enum memory_side side, uint64_t bytes)
{
	struct account *a = &t->s->memory;

	atomic_fetch_sub_explicit(&t->held[side], bytes, memory_order_relaxed);
	atomic_fetch_sub_explicit(&a->used, bytes, memory_order_seq_cst);
	/* pairs with the addition in await_memory(): one of both sees the other's */
	if (atomic_load_explicit(&a->waiting, memory_order_seq_cst))
		atomic_store_explicit(&a->freed, true, memory_order_relaxed);
}

void
memory_move(struct shuffle_thread *from, struct shuffle_thread *to, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&from->held[MEMORY_TX], bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&to->held[MEMORY_RX], bytes, memory_order_relaxed);
}

bool
memory_may_wait(const struct shuffle_thread *t)
{
	return !atomic_load_explicit(&t->lent, memory_order_relaxed) &&
	       has_room(t, MEMORY_RX, t->s->memory.reserve[MEMORY_RX]);
}

void
memory_wake(struct weir_shuffle *s)
{
	if (atomic_load_explicit(&s->memory.freed, memory_order_relaxed) &&
	    atomic_exchange_explicit(&s->memory.freed, false, memory_order_relaxed))
		shuffle_wake(s, false);
}

/* ---- buffers ---- */

int
memory_open(struct weir_shuffle *s)
{
	struct account *a = &s->memory;
	void *region;

	a->pages = (uint32_t)(s->o.memory / MEMORY_PAGE < UINT32_MAX ? s->o.memory / MEMORY_PAGE
								     : UINT32_MAX);
	region = mmap(NULL, (size_t)a->pages * MEMORY_PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	a->taken = calloc(a->pages / 64 + 1, sizeof(*a->taken));
	if (region != MAP_FAILED)
		a->region = region;
	if (a->region && a->taken)
		return 0;
	memory_close(s);
	return -ENOMEM;
}

void
memory_close(struct weir_shuffle *s)
{
	struct account *a = &s->memory;

	if (a->region)
		munmap(a->region, (size_t)a->pages * MEMORY_PAGE);
	free(a->taken);
	a->region = NULL;
	a->taken = NULL;
}

static bool
is_taken(const struct account *a, uint32_t page)
{
	return a->taken[page / 64] >> page % 64 & 1;
}

/* The first of n free pages in a row, between two pages; UINT32_MAX: there are none. */
static uint32_t
find_pages(const struct account *a, uint32_t n, uint32_t from, uint32_t to)
{
	uint32_t row = 0;

	for (uint32_t i = from; i < to; i++) {
		if (i % 64 == 0 && a->taken[i / 64] == UINT64_MAX) {
			i += 63;
			row = 0;
		} else if (is_taken(a, i)) {
			row = 0;
		} else if (++row == n) {
			return i + 1 - n;
		}
	}
	return UINT32_MAX;
}

static void
mark_pages(struct account *a, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		a->taken[i / 64] ^= UINT64_C(1) << i % 64;
}

/* Pages that are free go back to the kernel, as long as there are buffers outside the region. */
static void
give_back(struct account *a)
{
	uint32_t first, i = 0;

	while (i < a->pages) {
		for (first = i; i < a->pages && !is_taken(a, i); i++)
			;
		if (i > first)
			madvise(a->region + (size_t)first * MEMORY_PAGE,
				(size_t)(i - first) * MEMORY_PAGE, MADV_DONTNEED);
		i++;
	}
}

/* The account has room, but the region has none in a row. */
static void *
buffer_outside(struct account *a, uint32_t bytes)
{
	void *buffer =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buffer == MAP_FAILED)
		return NULL;
	if (!a->outside++)
		give_back(a);
	return buffer;
}

void *
memory_buffer(struct weir_shuffle *s, uint32_t bytes)
{
	struct account *a = &s->memory;
	uint32_t n = memory_round(bytes) / MEMORY_PAGE, page;
	void *buffer;

	if (bytes < MEMORY_SMALL)
		return aligned_alloc(64, (bytes + 63u) & ~63u);
	pthread_mutex_lock(&a->lock);
	page = find_pages(a, n, a->next, a->pages);
	if (page == UINT32_MAX)
		page = find_pages(a, n, 0, a->pages);
	if (page != UINT32_MAX) {
		mark_pages(a, page, n);
		a->next = page + n < a->pages ? page + n : 0;
		buffer = a->region + (size_t)page * MEMORY_PAGE;
	} else {
		buffer = buffer_outside(a, n * MEMORY_PAGE);
	}
	pthread_mutex_unlock(&a->lock);
	return buffer;
}

void
memory_buffer_free(struct weir_shuffle *s, void *buffer, uint32_t bytes)
{
	struct account *a = &s->memory;
	size_t offset = (size_t)((uintptr_t)buffer - (uintptr_t)a->region),
	       room = memory_round(bytes);

	if (!buffer || bytes < MEMORY_SMALL) {
		free(buffer);
		return;
	}
	pthread_mutex_lock(&a->lock);
	if (offset >= (size_t)a->pages * MEMORY_PAGE) {
		munmap(buffer, room);
		a->outside--;
	} else {
		mark_pages(a, (uint32_t)(offset / MEMORY_PAGE), (uint32_t)(room / MEMORY_PAGE));
		if (a->outside)
			madvise(buffer, room, MADV_DONTNEED);
		/* the lowest pages first: no more are touched than have been used at a time */
		if (offset / MEMORY_PAGE < a->next)
			a->next = (uint32_t)(offset / MEMORY_PAGE);
	}
	pthread_mutex_unlock(&a->lock);
}
