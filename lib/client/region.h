/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the program that was adopted. */
#ifndef WEIR_CLIENT_REGION_H
#define WEIR_CLIENT_REGION_H

#include "public.h"

#include <stdatomic.h>

/* A range of the program's memory that was adopted. */
struct weir_region {
	struct weir *w;
	uint8_t *addr;
	uint64_t bytes;
	uint32_t index;		/* number at the data plane, 1 ... WEIR_REGIONS_MAX */
	uint32_t flags;		/* WEIR_ADOPT_* */
	_Atomic uint32_t users; /* messages sent out of it, memory posted; all threads */
};
#define WEIR_REGION_CACHED 0x80u /* flag: adopted by the cache, for sending */

/*
 * The region that holds [addr, addr + length) and was adopted for `flags`, or NULL; it can't be
 * disowned until weir_region_drop(). Any lock but region_lock may be held.
 */
struct weir_region *weir_region_use(struct weir *w, const void *addr, size_t length,
				    unsigned flags);
void weir_region_drop(struct weir_region *r);
/* The range isn't the region's any more: gives only the region back. -EBUSY as weir_disown(). */
int weir_region_abandon(struct weir_region *r);
/* Gives all of it back to the program. Nobody is inside a call. */
void weir_regions_fini(struct weir *w);

#endif
