/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of dynamic windows. The data plane has the ranges, too, and refuses what is wrong. */
#include "handle.h"

#include "base/vec.h"
#include "client/reason.h"
#include "client/region.h"
#include "client/session.h"
#include "ipc/invariant.h"
#include "remote/window.h"

#include <errno.h>
#include <string.h>

/* How many ranges begin before the address. */
static uint32_t
ranges_before(const struct weir_window *win, uint64_t address)
{
	return VEC_BEFORE(win->range_count, i, win->ranges[i].address < address);
}

static int
not_dynamic(void)
{
	return weir_fail(-EINVAL, "no window, or not a dynamic one; see "
				  "weir_window_create_dynamic()");
}

uint64_t
weir_address_of(const void *p)
{
	return (uintptr_t)p;
}

int
weir_window_attach(struct weir_window *win, struct weir_region *region, uint64_t offset,
		   uint64_t bytes)
{
	struct weir_region_info info;
	struct window_range *r;
	uint32_t at;
	int rc = 0;

	if (!win || win->args.kind != WEIR_WINDOW_DYNAMIC)
		return not_dynamic();
	if (weir_state(win->w) != WEIR_UP)
		return weir_gone(win->w);
	if (!region)
		return weir_fail(-EINVAL, "no region; see weir_region_alloc() and weir_adopt()");
	weir_region_info(region, &info);
	if (!bytes || offset > info.bytes || bytes > info.bytes - offset)
		return weir_fail(-EINVAL, "%llu bytes at %llu are not within the region of %llu",
				 (unsigned long long)bytes, (unsigned long long)offset,
				 (unsigned long long)info.bytes);
	region = weir_region_use(win->w, region->addr + offset, bytes, WEIR_ADOPT_EXPOSE);
	if (!region)
		return weir_fail(-EACCES, "the region was not adopted with WEIR_ADOPT_EXPOSE, or "
					  "is being freed");
	pthread_mutex_lock(&win->attaching);
	if (VEC_RESERVE(win->ranges, win->range_room, win->range_count + 1))
		rc = weir_fail(-ENOMEM, "no memory for a range; free some");
	if (!rc)
		rc = weir_export_attach(win->x, region, offset, bytes);
	if (!rc) {
		at = ranges_before(win, (uintptr_t)region->addr + offset);
		r = &win->ranges[at];
		/* the data plane refuses ranges that overlap */
		weir_assert(at == win->range_count ||
			    r->address >= (uintptr_t)region->addr + offset + bytes);
		memmove(r + 1, r, (win->range_count++ - at) * sizeof(*r));
		*r = (struct window_range){(uintptr_t)region->addr + offset, region};
	}
	pthread_mutex_unlock(&win->attaching);
	if (rc)
		weir_region_drop(region);
	return rc;
}

int
weir_window_detach(struct weir_window *win, const void *base)
{
	uint64_t address = weir_address_of(base);
	struct window_range *r;
	uint32_t at;
	int rc = 0;

	if (!win || win->args.kind != WEIR_WINDOW_DYNAMIC)
		return not_dynamic();
	if (weir_state(win->w) == WEIR_FORKED)
		return weir_gone(win->w);
	pthread_mutex_lock(&win->attaching);
	at = ranges_before(win, address);
	r = &win->ranges[at];
	if (at == win->range_count || r->address != address)
		rc = weir_fail(-ENOENT,
			       "no range begins at %p; give the start of one that is "
			       "attached",
			       base);
	else if (weir_state(win->w) == WEIR_UP)
		rc = weir_export_detach(win->x, address);
	/* the part has ended, or the session has */
	if (rc == -ESTALE || rc == -ECONNABORTED || (rc && weir_state(win->w) != WEIR_UP))
		rc = 0;
	if (!rc) {
		weir_region_drop(r->region);
		memmove(r, r + 1, (--win->range_count - at) * sizeof(*r));
	}
	pthread_mutex_unlock(&win->attaching);
	return rc;
}
