/* SPDX-License-Identifier: BSD-3-Clause */
#include "mr.h"

#include "ipc/invariant.h"

#include <errno.h>
#include <sys/random.h>

int
roce_mr_register(struct mr_table *t, void *addr, size_t length, unsigned access, struct nic_mr *mr)
{
	uint64_t address = (uintptr_t)addr;
	struct mr *m;
	uint32_t key;

	if (length == 0 || address + length < address)
		return -EINVAL;
	/* at most half of the table is used, so a free place is found after two tries on average */
	if (t->count == t->limit)
		return -ENOSPC;
	do {
		key = 0;
		if (getrandom(&key, sizeof(key), 0) != sizeof(key) && errno != EINTR)
			return -errno;
	} while (key == 0 ||
		 atomic_load_explicit(&t->mrs[key & t->mask].key, memory_order_relaxed) != 0);
	m = &t->mrs[key & t->mask];
	/* release: a reader of any of them sees the old key gone; partners: the loads in mr_check()
	 */
	atomic_store_explicit(&m->address, address, memory_order_release);
	atomic_store_explicit(&m->length, length, memory_order_release);
	atomic_store_explicit(&m->rights, (uint64_t)key << 32 | access, memory_order_release);
	/* partner: the acquire load in mr_check() */
	atomic_store_explicit(&m->key, key, memory_order_release);
	t->count++;
	weir_assert(t->count <= t->limit);
	*mr = (struct nic_mr){
	    .address = address, .length = length, .lkey = key, .rkey = key, .driver = m};
	return 0;
}

void
roce_mr_remove(struct mr_table *t, uint32_t key)
{
	struct mr *m = &t->mrs[key & t->mask];

	if (key == 0 || atomic_load_explicit(&m->key, memory_order_relaxed) != key)
		return;
	atomic_store_explicit(&m->key, 0, memory_order_release);
	weir_assert(t->count > 0);
	t->count--;
}

bool
roce_mr_invalidate(struct mr_table *t, uint32_t key)
{
	struct mr *m = &t->mrs[key & t->mask];
	uint64_t rights = atomic_load_explicit(&m->rights, memory_order_acquire);

	/* fails if the region was removed meanwhile, and its place taken by another */
	return key != 0 && atomic_load_explicit(&m->key, memory_order_acquire) == key &&
	       rights >> 32 == key && (rights & NIC_REMOTE_INVALIDATE) &&
	       atomic_compare_exchange_strong(&m->rights, &rights, rights & ~(uint64_t)UINT32_MAX);
}
