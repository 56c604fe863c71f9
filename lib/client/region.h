/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions: memory of the session that the program has allocated, or that replaces its own. */
#ifndef WEIR_CLIENT_REGION_H
#define WEIR_CLIENT_REGION_H

#include "public.h"

#include <stdatomic.h>
#include <stdbool.h>

struct weir_region {
	struct weir *w;
	uint8_t *addr;
	uint64_t bytes;
	uint32_t index; /* number at the data plane, 1 to WEIR_REGIONS_MAX */
	uint32_t flags; /* WEIR_ADOPT_* */
	uint32_t page;	/* bytes of its pages */
	bool allocated; /* by weir_region_alloc(), else adopted */
	/* messages sent out of it, memory posted, and WEIR_REGION_LEAVING; all threads */
	_Atomic uint32_t users;
};
#define WEIR_REGION_LEAVING (1u << 31) /* of users: set at 0 */
#define WEIR_REGION_CACHED 0x80u       /* flag: adopted by the cache, for sending */

/*
 * The region that holds [addr, addr + length) and was adopted for `flags`, or NULL. It cannot be
 * disowned until weir_region_drop(). Takes no lock.
 */
struct weir_region *weir_region_use(struct weir *w, const void *addr, size_t length,
				    unsigned flags);
void weir_region_drop(struct weir_region *r);
/* Frees a region whose range the program has unmapped. -EBUSY as weir_disown(). */
int weir_region_abandon(struct weir_region *r);
/* Disowns all regions. No thread is inside a call. */
void weir_regions_fini(struct weir *w);

#endif
