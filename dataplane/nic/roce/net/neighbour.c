/* SPDX-License-Identifier: BSD-3-Clause */
#include "neighbour.h"

#include "ipc/invariant.h"

#include <stddef.h>

struct neighbour *
roce_neighbour_find(struct neighbours *t, struct address ip)
{
	for (uint32_t i = 0; i < t->count; i++) {
		struct address other = neighbour_address(&t->entries[i]);

		if (address_same(other, ip))
			return &t->entries[i];
		/* entries are filled from the front and never emptied */
		if (other.low == 0 && other.high == 0)
			break;
	}
	return NULL;
}

struct neighbour *
roce_neighbour_get(struct neighbours *t, struct address ip)
{
	struct neighbour *n = roce_neighbour_find(t, ip), *unused = NULL;
	uint64_t generation;

	/* an unused entry was not kept up to date: the peer may have another MAC now */
	if (n != NULL && n->users == 0) {
		unused = n;
		n = NULL;
	}
	for (uint32_t i = 0; n == NULL && unused == NULL && i < t->count; i++) {
		if (t->entries[i].users == 0)
			unused = &t->entries[i];
	}
	if (n == NULL) {
		n = unused;
		if (n == NULL)
			return NULL;
		/* an engine that learns the old peer's MAC fails on the new generation */
		generation = (atomic_load_explicit(&n->mac, memory_order_relaxed) >> 48) + 1;
		atomic_store_explicit(&n->high, ip.high, memory_order_relaxed);
		atomic_store_explicit(&n->low, ip.low, memory_order_relaxed);
		atomic_store_explicit(&n->mac, generation << 48, memory_order_seq_cst);
		atomic_store_explicit(&n->asked, 0, memory_order_relaxed);
	}
	n->users++;
	return n;
}

void
roce_neighbour_put(struct neighbour *n)
{
	weir_assert(n->users > 0);
	n->users--;
}

void
roce_neighbour_learn(struct neighbour *n, struct address ip, const uint8_t *mac)
{
	uint64_t old = atomic_load_explicit(&n->mac, memory_order_seq_cst), fresh = 0;

	/* no group addresses, not zero */
	memcpy(&fresh, mac, 6);
	if ((mac[0] & 1) != 0 || fresh == 0)
		return;
	fresh |= old & ~NEIGHBOUR_MAC_MASK;
	if (fresh == old || !address_same(neighbour_address(n), ip))
		return;
	atomic_compare_exchange_strong(&n->mac, &old, fresh);
}
