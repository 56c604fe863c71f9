/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory regions of a device, shared by its engines. A key is 32 random bits whose low bits are its
 * place in the table: found in one step, and not guessable.
 */
#ifndef WEIR_ROCE_MR_H
#define WEIR_ROCE_MR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nic/nic.h"

struct mr {			 /* main writes, engines read, but for SEND_INV */
	_Atomic uint32_t key;	 /* 0: free. Stored last (release) and cleared first */
	_Atomic uint64_t rights; /* key 32 | access 32; engines clear the access */
	_Atomic uint64_t address, length;
};

struct mr_table {
	struct mr *mrs;
	uint32_t mask, count, limit;
};

/* Main thread. mr_reg: -ENOSPC if the table is full, -EINVAL for a range that wraps. */
int roce_mr_register(struct mr_table *t, void *addr, size_t length, unsigned access,
		     struct nic_mr *mr);
/* Afterwards no engine finds the key; one that had found it may still copy until its turn ends. */
void roce_mr_remove(struct mr_table *t, uint32_t key);

/* Engine: removes all rights of a region that has NIC_REMOTE_INVALIDATE. False: no such region. */
bool roce_mr_invalidate(struct mr_table *t, uint32_t key);

/* Whether `key` names memory that holds [address, address + length) with all rights in `access`. */
static inline __attribute__((always_inline)) bool
mr_check(const struct mr_table *t, uint32_t key, uint64_t address, uint64_t length, uint32_t access)
{
	struct mr *m = &t->mrs[key & t->mask];
	uint64_t base, size, rights;

	/* partner: the release store of the key in roce_mr_register() */
	if (key == 0 || atomic_load_explicit(&m->key, memory_order_acquire) != key)
		return false;
	/*
	 * Acquire, so that the key is read again after them: another region may have taken the
	 * entry. Partners: the release stores in roce_mr_register()
	 */
	base = atomic_load_explicit(&m->address, memory_order_acquire);
	size = atomic_load_explicit(&m->length, memory_order_acquire);
	rights = atomic_load_explicit(&m->rights, memory_order_acquire);
	if (atomic_load_explicit(&m->key, memory_order_relaxed) != key)
		return false;
	return (rights & access) == access && address >= base && length <= size &&
	       address - base <= size - length;
}

#endif
