/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MAC addresses of peers, shared by the engines of a device. Only peers of QPs have entries: main
 * makes them when a QP gets its peer, so strangers can't fill the table; engines fill in the
 * address.
 */
#ifndef WEIR_ROCE_NEIGHBOUR_H
#define WEIR_ROCE_NEIGHBOUR_H

#include <stdatomic.h>

#include "packet.h"

#define NEIGHBOUR_MAC_MASK 0xffffffffffffull

struct neighbour {
	_Atomic uint64_t high, low; /* the address, 0 = never used; main writes */
	_Atomic uint64_t mac; /* generation 16 | MAC 48, 0 = unknown; main resets, engines write */
	_Atomic uint64_t asked; /* time of the last request; engines */
	uint32_t users;		/* main: QPs */
};

struct neighbours {
	struct neighbour *entries;
	uint32_t count;
};

/* Main: the entry of `ip`, made if need be, with one more user. NULL: the table is full. */
struct neighbour *roce_neighbour_get(struct neighbours *t, struct address ip);
void roce_neighbour_put(struct neighbour *n);
/* Engine: the entry of `ip`, or NULL. */
struct neighbour *roce_neighbour_find(struct neighbours *t, struct address ip);
/* Any thread: notes the MAC of `ip`; nothing happens if the entry isn't that peer's any more. */
void roce_neighbour_learn(struct neighbour *n, struct address ip, const uint8_t *mac);

/* The entry's address. Another thread may be changing it: read it again after use. */
static inline struct address
neighbour_address(const struct neighbour *n)
{
	return (struct address){atomic_load_explicit(&n->high, memory_order_seq_cst),
				atomic_load_explicit(&n->low, memory_order_seq_cst)};
}

static inline bool
neighbour_known(const struct neighbour *n)
{
	return (atomic_load_explicit(&n->mac, memory_order_relaxed) & NEIGHBOUR_MAC_MASK) != 0;
}

/* The MAC in its first six bytes, zeros if unknown. One word alone is read: relaxed is enough. */
static inline uint64_t
neighbour_mac(const struct neighbour *n)
{
	return atomic_load_explicit(&n->mac, memory_order_relaxed) & NEIGHBOUR_MAC_MASK;
}

#endif
