/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The account. Each thread has reserves: one block to send, what one turn may receive, and with
 * files what one reader of them takes. While it holds no more than that, no other thread's use
 * stands in its way. The rest is shared. So the sum is at most the bound, and no two threads wait
 * for each other's memory. Blocks that stay where they arrived take memory of the session instead,
 * up to `lent_max` per thread. Buffers of one block are kept for the next one: malloc() would give
 * their pages back to the kernel each time.
 */
#include "shuffle.h"

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
memory_may_receive(const struct shuffle_thread *t)
{
	return has_room(t, MEMORY_RX, t->s->memory.reserve[MEMORY_RX]) &&
	       atomic_load_explicit(&t->lent, memory_order_relaxed) < t->s->memory.lent_max;
}

void
memory_wake(struct weir_shuffle *s)
{
	if (atomic_load_explicit(&s->memory.freed, memory_order_relaxed) &&
	    atomic_exchange_explicit(&s->memory.freed, false, memory_order_relaxed))
		shuffle_wake(s, false);
}

void *
memory_buffer(struct weir_shuffle *s, uint32_t bytes)
{
	struct account *a = &s->memory;
	void *buffer = NULL;

	if (bytes == s->o.block) {
		pthread_mutex_lock(&a->lock);
		if (a->spare_count)
			buffer = a->spares[--a->spare_count];
		pthread_mutex_unlock(&a->lock);
	}
	return buffer ? buffer : aligned_alloc(64, (bytes + 63u) & ~63u);
}

void
memory_buffer_free(struct weir_shuffle *s, void *buffer, uint32_t bytes)
{
	struct account *a = &s->memory;

	if (buffer && bytes == s->o.block) {
		pthread_mutex_lock(&a->lock);
		if (a->spare_count < a->spare_room) {
			a->spares[a->spare_count++] = buffer;
			buffer = NULL;
		}
		pthread_mutex_unlock(&a->lock);
	}
	free(buffer);
}
